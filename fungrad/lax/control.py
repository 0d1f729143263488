"""Loops and choices: JAX's scan, map, fori_loop, while_loop, cond and switch, and its collectives.

A body or branch is traced once. What it closes over becomes an operand. Python scalars in a carry take the type that
the body gives them: its program is typed anew, without running the user's function again.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..errors import DTypeError, RefusedError, ShapeError, TreeError
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..ir.value import Value
from ..ops.create import full
from ..ops.elementwise import max as maximum, min as minimum, ne
from ..ops.linear import convert, reshape
from ..ops.slicing import concatenate, slice_
from ..trace import Tracer, bind, evaluate, trace_program
from ..transforms.api import vmap
from ..transforms.bodies import groups, retyped
from ..transforms.checkpoint import checkpoint_p, nothing_saveable
from ..transforms.collective import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
)
from ..transforms.cond import cond as choose
from ..transforms.flat import argument_names, function_name, is_weak, to_value
from ..transforms.scan import scan as loop
from ..transforms.while_loop import while_

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "cond", "custom_linear_solve", "custom_root", "fori_loop",
    "map", "pmax", "pmean", "pmin", "ppermute", "pshuffle", "psum", "psum_scatter", "scan", "switch", "while_loop",
]

# ---- tracing bodies -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Body:
    """A traced function: [arguments..., captured...] -> leaves of its result."""
    program: Program
    captured: tuple[Value, ...]
    out_tree: tree.TreeDef
    weak: tuple[bool, ...]
    where: str

    def consts_first(self) -> Program:
        """[captured..., arguments...] -> results"""
        return _consts_first(self.program, len(self.captured))


def _consts_first(program: Program, captured: int) -> Program:
    if not captured:
        return program
    count = len(program.input_types) - captured
    types = program.input_types
    return trace_program(
        lambda *v: evaluate(program, [*v[captured:], *v[:captured]]), [*types[count:], *types[:count]]
    ).program


def _where(function: Callable[..., Any]) -> str:
    """A function's name and line, for messages."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    name = function_name(function)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _trace(function: Callable[..., Any], in_tree: tree.TreeDef, types: Sequence[Type], weak: Sequence[bool],
           name: str) -> Body:
    """Run a body or branch once, on tracers."""
    found: list[Any] = []
    where = _where(function)

    def flat(*leaves: Any) -> list[Any]:
        items, out_tree = tree.flatten(function(*tree.unflatten(in_tree, leaves)))
        paths = tree.leaf_paths(out_tree)
        found[:] = [out_tree, tuple([is_weak(item) for item in items])]
        return [to_value(item, lambda i=i: f"lax.{name}: the result of {where}{_at(paths[i])}")
                for i, item in enumerate(items)]
    traced = trace_program(flat, types, weak)
    return Body(traced.program, traced.captured, found[0], found[1], where)


def _at(path: Any) -> str:
    text = tree.keystr(path)
    return f" at {text}" if text else ""


def _values(leaves: Sequence[Any], name: str, paths: Sequence[Any]) -> list[Any]:
    return [to_value(leaf, lambda i=i: f"lax.{name}: the operand{_at(paths[i])}") for i, leaf in enumerate(leaves)]


def _common(a: Type, a_weak: bool, b: Type, b_weak: bool) -> Type | None:
    """The type in which a carry's value on entry and after the body meet; None if there is none."""
    if a.shape != b.shape:
        return None
    if a.dtype == b.dtype:
        return a
    if not (a_weak or b_weak):
        return None
    strong = tuple(x.dtype for x, weak in ((a, a_weak), (b, b_weak)) if not weak)
    loose = tuple(x.dtype for x, weak in ((a, a_weak), (b, b_weak)) if weak)
    return a.with_dtype(dtypes.promote_with_scalars(strong, loose) if strong else dtypes.promote(*loose))


def _settle(body: Body, first: int, weak: Sequence[bool], mismatch: Callable[[int, Type, Type], Exception]) -> Program:
    """The body's program with equal types of the carry on entry (inputs from `first` on) and after it (its first
    outputs).
    """
    program = body.program
    for _ in range(4):
        types = list(program.input_types)
        for i, flag in enumerate(weak):
            have, got = program.input_types[first + i], program.output_types[i]
            common = _common(have, flag, got, body.weak[i])
            if common is None or (common != have and not flag):
                raise mismatch(i, have, got)
            types[first + i] = common
        if tuple(types) == program.input_types:
            break
        try:
            program = retyped(program, types)
        except (TypeError, ValueError) as error:
            raise mismatch(i, have, got) from error
    wanted = program.input_types[first:first + len(weak)]
    if program.output_types[:len(weak)] == wanted:
        return program

    def converted(*values: Any) -> list[Any]:
        results = evaluate(program, values)
        return [*[convert(x, type.dtype) for x, type in zip(results, wanted, strict=False)], *results[len(weak):]]
    return trace_program(converted, program.input_types).program


def _carry_error(name: str, parameter: str, paths: Sequence[Any], where: str) -> Callable[[int, Type, Type], Exception]:
    def error(i: int, have: Type, got: Type) -> Exception:
        leaf = f"{parameter}{tree.keystr(paths[i])}"
        kind = ShapeError if have.shape != got.shape else DTypeError
        advice = (
            "" if have.shape != got.shape else f" Convert one of them, for instance with .astype({have.dtype.name!r})."
        )
        return kind(f"lax.{name}: the carry must keep its types, but {leaf} is {have} on entry and {got} after {where}."
                    f"{advice}")
    return error


def _check_carry_tree(name: str, before: tree.TreeDef, after: tree.TreeDef, where: str) -> None:
    if before != after:
        raise TreeError(
            f"lax.{name}: the carry must keep its structure, but it is {before} on entry and {after} after {where}"
        )


# ---- scan -----------------------------------------------------------------------------------------------------------

def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None,
         reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False, *,
         checkpoint: Any = None) -> tuple[Any, Any]:
    """Loop over the leading axis of `xs` with a carry: `carry, y = f(carry, x)` for every slice; answers (carry, ys).

    Args:
        f: takes the carry and a slice of every leaf of `xs`; answers the next carry, of equal structure and types,
            and a pytree, whose leaves are stacked along a new first axis. It is traced once.
        init: the first carry. A Python scalar in it takes the type that `f` gives it.
        xs: a pytree of arrays with equal leading axes, or None: then `length` says how often.
        reverse: go from the last slice to the first; ys lie where their xs do.
        unroll: accepted; the loop is compiled as it is.
        checkpoint: True or a policy: the backward pass keeps only the carries and computes the rest of each step again.

    >>> import fungrad.numpy as fnp
    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, fnp.arange(4.0))
    >>> float(total), sums.tolist()
    (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    carry_leaves, carry_tree = tree.flatten(init)
    x_leaves, x_tree = tree.flatten(xs)
    carry_paths, x_paths = tree.leaf_paths(carry_tree), tree.leaf_paths(x_tree)
    start, slices = _values(carry_leaves, "scan", carry_paths), _values(x_leaves, "scan", x_paths)
    length = _length(slices, x_paths, length)
    weak = [is_weak(leaf) for leaf in carry_leaves]
    in_tree = tree.structure((init, xs))
    types = [*[x.type for x in start], *[array_type(x.shape[1:], x.dtype) for x in slices]]
    out_trees: list[tree.TreeDef] = []

    def step(carry: Any, x: Any) -> Any:
        answer = f(carry, x)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise TypeError(
                f"lax.scan: {_where(f)} must answer a pair (carry, y), but it answers {type(answer).__name__}"
            )
        out_trees[:] = [tree.structure(part) for part in answer]
        return answer
    step.__wrapped__ = f   # type: ignore[attr-defined]  # its name and line, for messages
    body = _trace(step, in_tree, types, [*weak, *[False] * len(slices)], "scan")
    _check_carry_tree("scan", carry_tree, out_trees[0], body.where)
    error = _carry_error("scan", argument_names(f, 2)[0], carry_paths, body.where)
    program = _settle(body, 0, weak, error)
    start = [convert(x, type.dtype) for x, type in zip(start, program.input_types, strict=False)]
    program = _consts_first(program, len(body.captured))
    if checkpoint:
        program = _checkpointed(program, nothing_saveable if checkpoint is True else checkpoint)
    results = loop(program, [*body.captured, *start, *slices], len(body.captured), len(start), length, bool(reverse))
    return tree.unflatten(carry_tree, results[:len(start)]), tree.unflatten(out_trees[1], results[len(start):])


def _checkpointed(program: Program, policy: Any) -> Program:
    return trace_program(
        lambda *xs: bind(checkpoint_p, *xs, program=program, policy=policy), program.input_types
    ).program


def _length(xs: Sequence[Any], paths: Sequence[Any], given: int | None) -> int:
    for x, path in zip(xs, paths, strict=True):
        if not x.ndim:
            raise ShapeError(f"lax.scan: every leaf of xs needs a leading axis, but xs{tree.keystr(path)} is {x.type}")
    lengths = {f"xs{tree.keystr(path)}": x.shape[0] for x, path in zip(xs, paths, strict=True)}
    if given is not None:
        lengths["length"] = int(given)
    if not lengths:
        raise ValueError("lax.scan: without xs the length must be given: lax.scan(f, init, None, length=n)")
    if len(set(lengths.values())) > 1:
        raise ShapeError("lax.scan: the leading axes differ: " + ", ".join(f"{k} {v}" for k, v in lengths.items()))
    return next(iter(lengths.values()))


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` of every slice along the leading axis of `xs`, one after another; results are stacked.

    batch_size: so many slices at a time, by vmap.
    """
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    leaves, structure = tree.flatten(xs)
    values = _values(leaves, "map", tree.leaf_paths(structure))
    length = _length(values, tree.leaf_paths(structure), None)
    many, whole = vmap(f), length // batch_size * batch_size
    part = lambda x, start, stop: slice_(x, (start, *[0] * (x.ndim - 1)), (stop, *x.shape[1:]))
    blocks = [reshape(part(x, 0, whole), (whole // batch_size, batch_size, *x.shape[1:])) for x in values]
    results = []
    if whole:
        _, ys = scan(lambda _, x: (None, many(x)), None, tree.unflatten(structure, blocks))
        results.append(tree.tree_map(lambda y: reshape(y, (whole, *y.shape[2:])), ys))
    if whole < length or not length:
        results.append(many(tree.unflatten(structure, [part(x, whole, length) for x in values])))
    return results[0] if len(results) == 1 else tree.tree_map(lambda *ys: concatenate(ys, 0), *results)


# ---- loops of other kinds -------------------------------------------------------------------------------------------

def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *,
              unroll: int | bool | None = None) -> Any:
    """`for i in range(lower, upper): val = body_fun(i, val)`; answers val.

    With bounds that are known while tracing it is one scan, which can be differentiated in both modes; otherwise a
    while loop, which has forward mode only.

    >>> int(fori_loop(0, 5, lambda i, s: s + i, 0))
    10
    """
    first, last = _known_integer(lower), _known_integer(upper)
    if first is not None and last is not None:
        dtype = dtypes.promote(dtypes.of_scalar(first), dtypes.of_scalar(last))

        def step(state: Any, _: Any) -> Any:
            (i, value) = state
            i.weak = True
            return (i + 1, body_fun(i, value)), None
        step.__wrapped__ = body_fun   # type: ignore[attr-defined]
        (_, value), _ = scan(step, (full((), first, dtype), init_val), None, length=max(last - first, 0))
        return value
    start, end = to_value(lower, lambda: "lax.fori_loop: lower"), to_value(upper, lambda: "lax.fori_loop: upper")
    if not (dtypes.is_integer(start.dtype) and dtypes.is_integer(end.dtype)) or start.shape or end.shape:
        raise DTypeError(f"lax.fori_loop: bounds must be integer scalars, got {start.type} and {end.type}")
    dtype = dtypes.promote(start.dtype, end.dtype)
    state = (convert(start, dtype), convert(end, dtype), init_val)
    return while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], body_fun(s[0], s[2])), state)[2]


def _known_integer(x: Any) -> int | None:
    """The value of an integer that is known while tracing."""
    if isinstance(x, (int, np.integer)) or (isinstance(x, (np.ndarray, Value)) and not isinstance(x, Tracer)
                                            and x.ndim == 0 and dtypes.is_integer(x.dtype)):
        return int(x)   # type: ignore[arg-type]  # an Array has __int__
    return None


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, *,
               max_steps: int | None = None) -> Any:
    """`while cond_fun(val): val = body_fun(val)`; answers val. Both functions are traced once.

    max_steps: at most so many iterations. The loop is then a scan, which can be differentiated in reverse mode too.

    >>> int(while_loop(lambda x: x < 100, lambda x: x * 3, 1))
    243
    """
    leaves, structure = tree.flatten(init_val)
    paths = tree.leaf_paths(structure)
    start, weak = _values(leaves, "while_loop", paths), [is_weak(leaf) for leaf in leaves]
    in_tree = tree.structure((init_val,))
    body = _trace(body_fun, in_tree, [x.type for x in start], weak, "while_loop")
    _check_carry_tree("while_loop", structure, body.out_tree, body.where)
    program = _settle(body, 0, weak, _carry_error("while_loop", argument_names(body_fun, 1)[0], paths, body.where))
    count = len(start)
    types = program.input_types[:count]
    start = [convert(x, type.dtype) for x, type in zip(start, types, strict=True)]
    test = _trace(cond_fun, in_tree, types, weak, "while_loop")
    condition = _boolean(test)
    consts = [*test.captured, *body.captured]
    program = _consts_first(program, len(body.captured))
    if max_steps is None:
        results = while_(condition, program, [*consts, *start], len(test.captured), len(body.captured))
    else:
        step = _bounded_step(condition, program, len(test.captured), len(body.captured))
        results = loop(step, [*consts, *start], len(consts), count, int(max_steps))
    return tree.unflatten(structure, results)


def _boolean(test: Body) -> Program:
    """The condition's program, consts first, giving one bool."""
    outputs = test.program.output_types
    if len(outputs) != 1 or outputs[0].shape or outputs[0].dtype != np.dtype(bool):
        raise TypeError(f"lax.while_loop: {test.where} must answer one boolean scalar, but it answers "
                        f"{outputs[0] if len(outputs) == 1 else list(outputs)}")
    return test.consts_first()


def _bounded_step(condition: Program, body: Program, condition_consts: int, body_consts: int) -> Program:
    """One iteration where the condition holds; nothing changes once it does not."""
    fixed, carry = groups(body.input_types, body_consts)
    stay = trace_program(lambda *values: values[body_consts:], body.input_types).program

    def step(*values: Any) -> Sequence[Any]:
        first, second, state = groups(values, condition_consts, body_consts)
        (go_on,) = evaluate(condition, [*first, *state])
        return choose((stay, body), convert(go_on, dtypes.int32), [*second, *state])
    return trace_program(step, [*condition.input_types[:condition_consts], *fixed, *carry]).program


# ---- choices --------------------------------------------------------------------------------------------------------

def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any,
         operand: Any = None, linear: Any = None) -> Any:
    """`true_fun(*operands) if pred else false_fun(*operands)`; only the branch that is taken runs.

    Both are traced, and must answer results of equal structure and types. Under vmap with a condition that differs
    between lanes both run, and the results are selected.

    >>> float(cond(True, lambda x: x + 1, lambda x: x - 1, 2.0))
    3.0
    """
    if operand is not None:
        if operands:
            raise TypeError("lax.cond: give the operands by position or by `operand=`, not both")
        operands = (operand,)
    if not callable(true_fun) or not callable(false_fun):
        raise TypeError(
            "lax.cond: the second and third arguments must be functions: cond(pred, true_fun, false_fun, *operands)"
        )
    value = to_value(pred, lambda: "lax.cond: the condition")
    if value.shape:
        raise TypeError(f"lax.cond: the condition must be a scalar, got {value.type}. For a choice by element use "
                        f"fungrad.numpy.where, for one by example fungrad.vmap.")
    known = None if isinstance(value, Tracer) else bool(pred)
    if value.dtype != np.dtype(bool):
        value = ne(value, full((), 0, value.dtype))
    return _choose(
        "cond", convert(value, dtypes.int32), None if known is None else int(known), (false_fun, true_fun), operands
    )


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = None) -> Any:
    """`branches[index](*operands)`, the index moved into the range of the branches.

    >>> float(switch(2, [lambda x: x, lambda x: x * x, lambda x: -x], 3.0))
    -3.0
    """
    if operand is not None:
        operands = (operand,)
    branches = tuple(branches)
    if not branches or not all(callable(branch) for branch in branches):
        raise ValueError("lax.switch: branches must be a non-empty sequence of functions")
    value = to_value(index, lambda: "lax.switch: the index")
    if value.shape or not dtypes.is_integer(value.dtype):
        raise TypeError(f"lax.switch: the index must be an integer scalar, got {value.type}")
    known = None if isinstance(value, Tracer) else min(max(int(index), 0), len(branches) - 1)
    if value.dtype != dtypes.int32:   # one of another type might not fit
        limits = full((), 0, value.dtype), full((), min(len(branches) - 1, int(np.iinfo(value.dtype).max)), value.dtype)
        value = convert(_clamp(limits[0], value, limits[1]), dtypes.int32)
    return _choose("switch", value, known, branches, operands)


def _clamp(low: Any, x: Any, high: Any) -> Any:
    """`x` moved into [low, high]."""
    return minimum(maximum(x, low), high)


def _choose(
    name: str, index: Any, known: int | None, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    """Trace all branches and run one: at once if the index is known."""
    leaves, in_tree = tree.flatten(tuple(operands))
    values = _values(leaves, name, tree.leaf_paths(in_tree))
    weak = [is_weak(leaf) for leaf in leaves]
    traced = [_trace(function, in_tree, [x.type for x in values], weak, name) for function in functions]
    programs = _agreeing(name, traced)
    out_tree = traced[0].out_tree
    if known is not None:
        results: Sequence[Any] = evaluate(programs[known], [*values, *traced[known].captured])
        return tree.unflatten(out_tree, results)
    captured: dict[int, Any] = {id(x): x for body in traced for x in body.captured}
    places = {number: place for place, number in enumerate(captured)}
    types = [*[x.type for x in values], *[x.type for x in captured.values()]]
    branches = tuple([_with_places(program, len(values), [places[id(x)] for x in body.captured], types)
                      for program, body in zip(programs, traced, strict=True)])
    return tree.unflatten(out_tree, choose(branches, index, [*values, *captured.values()]))


def _with_places(program: Program, count: int, places: Sequence[int], types: Sequence[Type]) -> Program:
    """A branch that takes what all branches close over."""
    return trace_program(
        lambda *v: evaluate(program, [*v[:count], *[v[count + place] for place in places]]), types
    ).program


def _agreeing(name: str, traced: Sequence[Body]) -> list[Program]:
    """The branches' programs with results of equal types; weak ones are converted."""
    first = traced[0]
    paths = tree.leaf_paths(first.out_tree)
    for other in traced[1:]:
        if other.out_tree != first.out_tree:
            raise TreeError(
                f"lax.{name}: branches must answer equal structures, but {first.where} answers {first.out_tree} "
                f"and {other.where} answers {other.out_tree}"
            )
    wanted: list[Type] = []
    for i, path in enumerate(paths):
        common, weak, source = first.program.output_types[i], first.weak[i], first
        for other in traced[1:]:
            found = _common(common, weak, other.program.output_types[i], other.weak[i])
            if found is None:
                given = other.program.output_types[i]
                kind = ShapeError if given.shape != common.shape else DTypeError
                raise kind(
                    f"lax.{name}: branches must answer equal types, but{_at(path) or ' the result'} {source.where} "
                    f"gives {common} and {other.where} gives {given}"
                )
            if weak and not other.weak[i]:
                source = other
            common, weak = found, weak and other.weak[i]
        wanted.append(common)
    return [
        body.program if body.program.output_types == tuple(wanted) else _converted(body.program, wanted)
        for body in traced
    ]


def _converted(program: Program, types: Sequence[Type]) -> Program:
    return trace_program(
        lambda *v: [convert(x, type.dtype) for x, type in zip(evaluate(program, v), types, strict=True)],
        program.input_types,
    ).program


# ---- not there yet --------------------------------------------------------------------------------------------------

def refused(name: str, instead: str) -> Callable[..., Any]:
    """A function that raises RefusedError with its advice."""
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RefusedError(f"lax.{name} is not there yet. {instead}")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not there yet. {instead}"
    return function


custom_linear_solve = refused("custom_linear_solve", "Solve with a fixed number of iterations.")
custom_root = refused("custom_root", "Iterate a fixed number of times.")

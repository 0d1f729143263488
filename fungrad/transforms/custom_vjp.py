"""custom_vjp: a function whose backward derivative the user gives; custom_gradient and closure_convert.

Under linearization the function's forward rule runs, and `custom_linear` stands for its derivative in the linear
program: it is transposed by the user's backward rule. Forward mode transposes the backward rule in its turn.
"""
from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import tree
from ..errors import RefusedError, TreeError
from ..ir.interpret import interpret
from ..ir.primitive import Linear, Primitive, Refused, Zero, declare
from ..ir.program import Program
from ..ir.types import Type
from ..ir.value import Value
from ..ops.linear import reduce_sum
from ..ops.rules import add_tangents, move_axis
from ..trace import (
    Tracer,
    active,
    bind,
    current_trace,
    evaluate,
    process_in,
    thread_state,
    trace_program,
    with_named_axes,
)
from .batch import batch_program, batch_program_over, mapped_axis_name
from .call import call_p
from .custom import (
    Call,
    RuleTrace,
    captured_tangents,
    checked,
    differentiable,
    positional,
    static_numbers,
    tangent_type,
    zero_for,
)
from .flat import FlatFunction, function_name, leaf_name, to_value
from .jvp import JVPTrace, jvp_program
from .linearize import LinearizeTrace
from .transpose import transpose_program

# ---- the derivative, in linear programs -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _expand(backward: Program, saved: int) -> Program:
    """[saved..., tangents of arguments...] -> [tangents of outputs...], the transpose of the backward program."""
    count = len(backward.input_types)
    linear = tuple([i >= saved for i in range(count)])
    try:
        return transpose_program(backward, linear, (True,) * len(backward.outputs), True)[0]
    except RefusedError as error:
        raise RefusedError(
            f"forward mode through a custom_vjp function transposes its backward rule, which must be linear "
            f"in the cotangent: {error}. Use custom_jvp, or reverse mode only."
        ) from error


def _linear_type(*types: Type, backward: Program, saved: int) -> tuple[Type, ...]:
    return backward.input_types[saved:]


def _linear_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, backward: Program, saved: int) -> tuple[Any, Any]:
    results = bind(custom_linear_p, *primals, backward=backward, saved=saved)
    total: list[Any] = [Zero(result.type) for result in results]
    if any([type(t) is not Zero for t in tangents[saved:]]):
        given = [zero_for(t.type) if type(t) is Zero else t for t in tangents[saved:]]
        total = list(bind(custom_linear_p, *primals[:saved], *given, backward=backward, saved=saved))
    nonzero = tuple([i < saved and type(t) is not Zero for i, t in enumerate(tangents)])
    if any(nonzero):
        forward, mask = jvp_program(_expand(backward, saved), nonzero)
        found = evaluate(forward, [*primals, *(t for t, flag in zip(tangents, nonzero, strict=True) if flag)])
        along = iter(found[len(mask):])
        total = [add_tangents(t, next(along)) if flag else t for t, flag in zip(total, mask, strict=True)]
    return results, tuple(total)


def _linear_transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, backward: Program,
                      saved: int) -> tuple[Any, ...]:
    given = [zero_for(c.type) if type(c) is Zero else c for c in cotangents]
    if any(isinstance(operand, Linear) for operand in operands[:saved]):
        raise RefusedError("the derivative of a custom_vjp function is not linear in what its forward rule saved")
    results = evaluate(backward, [*operands[:saved], *given])
    return (*[None] * saved, *[result if isinstance(operand, Linear) else None
                               for result, operand in zip(results, operands[saved:], strict=True)])


def _linear_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, backward: Program,
                  saved: int) -> tuple[Any, Any]:
    mapped = tuple(axis is not None for axis in axes)
    batched = _batched_backward(backward, size, mapped[:saved], mapped[saved:], mapped_axis_name())
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    results = bind(custom_linear_p, *aligned, backward=batched, saved=saved)
    return results, (0,) * len(results)


@functools.lru_cache(maxsize=1024)
def _batched_backward(backward: Program, size: int, saved: tuple[bool, ...], arguments: tuple[bool, ...],
                      axis_name: Any) -> Program:
    """The backward program over an axis of the marked saved values and all cotangents.

    The cotangent of an argument that is not mapped is the sum over the axis.
    """
    count = len(backward.input_types) - len(saved)
    mapped, _ = batch_program_over(backward, size, (*saved, *[True] * count), (True,) * len(backward.outputs),
                                   axis_name)

    def summed(*values: Any) -> list[Any]:
        results = evaluate(mapped, values)
        return [result if flag else reduce_sum(result, (0,)) for result, flag in zip(results, arguments, strict=True)]
    return trace_program(summed, mapped.input_types).program


custom_linear_p = declare(Primitive(
    "custom_linear", _linear_type,
    lambda *arrays, backward, saved: tuple(interpret(_expand(backward, saved), arrays)),
    _linear_jvp, _linear_transpose, _linear_batch,
    Refused("the derivative of a custom_vjp function is inlined before lowering"), frozenset({"call"}),
    "The derivative of a custom_vjp function: the transpose of its backward program.", multiple_results=True,
    expand=_expand))


# ---- rules of staged calls ------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class VjpPrograms:
    """A rule as programs.

    forward: [arguments..., captured..., values...] -> [outputs..., residuals...]
    backward: [residuals..., captured..., backward values..., cotangents of floating outputs...] ->
        [cotangents of floating arguments...]
    """
    forward: Program
    values: tuple[Value, ...]
    backward: Program
    backward_values: tuple[Value, ...]


class VjpRule(ABC):
    """The rule of a staged call. `arguments`: how many of the operation's operands are arguments (the rest is
    captured).
    """

    __slots__ = ("arguments", "name")
    arguments: int
    name: str

    @abstractmethod
    def traced(self) -> VjpPrograms:
        """The rule as Programs, traced when they are first asked for."""

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class UserRule(VjpRule):
    """A rule that is a pair of Python functions."""

    __slots__ = ("_owner", "_call", "_types", "_captured", "_axes", "_found")

    def __init__(self, owner: custom_vjp, call: Call, types: Sequence[Type], captured: tuple[Value, ...]):
        self.name = function_name(owner.fun)
        self.arguments = len(types)
        self._owner = owner
        self._call = call
        self._types = types
        self._captured = captured
        self._axes = thread_state.axes
        self._found: VjpPrograms | None = None

    def traced(self) -> VjpPrograms:
        if self._found is None:
            with with_named_axes(self._axes):
                self._found = self._trace()
        return self._found

    def _trace(self) -> VjpPrograms:
        owner, call = self._owner, self._call
        kept: list[Forward] = []

        def forward(*values: Any) -> list[Any]:
            kept.append(owner.run_forward(call, values))
            return [*kept[0].results, *kept[0].residuals]
        traced = trace_program(forward, self._types, captured=self._captured)
        count = len(self._captured)
        backward = owner.trace_backward(call, kept[0], self._types, self._captured)
        return VjpPrograms(traced.program, traced.captured[count:], backward.program, backward.captured[count:])


class BatchedRule(VjpRule):
    """A rule mapped over an axis; all its results are."""

    __slots__ = ("_rule", "_outputs", "_size", "_mapped", "_axis_name")

    def __init__(self, rule: VjpRule, outputs: int, size: int, mapped: tuple[bool, ...], axis_name: Any):
        self.name = f"vmap({rule.name})"
        self.arguments = rule.arguments
        self._rule = rule
        self._outputs = outputs
        self._size = size
        self._mapped = mapped
        self._axis_name = axis_name

    def traced(self) -> VjpPrograms:
        inner = self._rule.traced()
        floats = [flag for flag, type in zip(self._mapped[:self.arguments], inner.forward.input_types)
                  if differentiable(type)]
        wanted = tuple([i < self._outputs for i in range(len(inner.forward.outputs))])
        forward, mask = batch_program_over(inner.forward, self._size, (*self._mapped, *[False] * len(inner.values)),
                                           wanted,
                                           self._axis_name)
        saved = (*mask[self._outputs:], *self._mapped[self.arguments:], *[False] * len(inner.backward_values))
        backward = _batched_backward(inner.backward, self._size, saved, tuple(floats), self._axis_name)
        return VjpPrograms(forward, inner.values, backward, inner.backward_values)


@functools.lru_cache(maxsize=1024)
def _batched_rule(rule: VjpRule, outputs: int, size: int, mapped: tuple[bool, ...], axis_name: Any) -> VjpRule:
    return BatchedRule(rule, outputs, size, mapped, axis_name)


@dataclass(frozen=True, slots=True)
class Forward:
    """What a forward rule answered, flat."""
    results: list[Any]
    residuals: list[Any]
    out_tree: tree.TreeDef
    residual_tree: tree.TreeDef


# ---- the primitive --------------------------------------------------------------------------------------------------

def _forward_rule(primals: Sequence[Any], program: Program, rule: VjpRule) -> tuple[list[Any], list[Any], Program]:
    """Results, what the derivative needs, and the backward program."""
    programs = rule.traced()
    found = evaluate(programs.forward, [*primals, *programs.values])
    count = len(program.outputs)
    saved = [*found[count:], *primals[rule.arguments:], *programs.backward_values]
    return found[:count], saved, programs.backward


def _float_tangents(tangents: Sequence[Any]) -> list[Any]:
    return [zero_for(t.type) if type(t) is Zero else t for t in tangents if differentiable(t.type)]


def _spread(program: Program, found: Sequence[Any]) -> list[Any]:
    """The tangents of floating outputs among all outputs."""
    given = iter(found)
    return [next(given) if differentiable(type) else Zero(type) for type in program.output_types]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, rule: VjpRule) -> tuple[Any, Any]:
    count = rule.arguments
    if all([type(t) is Zero for t in tangents[:count]]):
        results: Sequence[Any] = bind(custom_vjp_p, *primals, program=program, rule=rule)
        found: list[Any] = [Zero(result.type) for result in results]
    else:
        results, saved, backward = _forward_rule(primals, program, rule)
        expanded = _expand(backward, len(saved))
        found = _spread(program, evaluate(expanded, [*saved, *_float_tangents(tangents[:count])]))
    return tuple(results), tuple(captured_tangents(program, count, primals, tangents, found))


def _linearize(trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program,
               rule: VjpRule) -> tuple[Any, Any]:
    count = rule.arguments
    if all([type(t) is Zero for t in tangents[:count]]):
        results: Sequence[Any] = process_in(trace.parent, custom_vjp_p, primals, {"program": program, "rule": rule})
        found: list[Any] = [Zero(result.type) for result in results]
    else:
        with active(trace.parent):
            results, saved, backward = _forward_rule(primals, program, rule)
        found = _spread(program, _staged_linear(trace, saved, tangents[:count], backward))
    with active(trace.split_trace):
        return tuple(results), tuple(captured_tangents(program, count, primals, tangents, found))


def _staged_linear(trace: LinearizeTrace, saved: Sequence[Any], tangents: Sequence[Any], backward: Program) -> Any:
    with active(trace.split_trace):
        given = _float_tangents(tangents)
    return trace.tangent_trace.process(custom_linear_p, (*saved, *given), {"backward": backward, "saved": len(saved)})


def _batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, program: Program,
           rule: VjpRule) -> tuple[Any, Any]:
    mapped = tuple(axis is not None for axis in axes)
    batched, _ = batch_program(program, size, mapped, (True,) * len(program.outputs))
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    rule = _batched_rule(rule, len(program.outputs), size, mapped, mapped_axis_name())
    results = bind(custom_vjp_p, *aligned, program=batched, rule=rule)
    return results, (0,) * len(results)


def _transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, program: Program, rule: VjpRule) -> Any:
    return call_p.transpose(cotangents, operands, program=program, name=rule.name)


custom_vjp_p = declare(Primitive(
    "custom_vjp", lambda *types, program, rule: program.output_types,
    lambda *arrays, program, rule: tuple(interpret(program, arrays)), _jvp, _transpose, _batch,
    Refused("a function with a rule of its own is inlined before lowering"), frozenset({"call"}),
    "A program whose backward derivative is given by the user's rule.", multiple_results=True, linearize=_linearize))


# ---- the user's side ------------------------------------------------------------------------------------------------

class custom_vjp:
    """A function with a user's rule for its backward derivative.

    nondiff_argnums: arguments that are given to the function and, in their places, to the forward rule as they are; the
    backward rule gets them first.

    >>> import fungrad, fungrad.numpy as fnp
    >>> @fungrad.custom_vjp
    ... def f(x):
    ...     return fnp.sin(x)
    >>> f.defvjp(lambda x: (fnp.sin(x), fnp.cos(x)), lambda cos_x, g: (2 * cos_x * g,))
    >>> float(fungrad.grad(f)(0.0))
    2.0
    """

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = nondiff_argnums
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self._rules: dict[Any, VjpRule] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any], symbolic_zeros: bool = False,
               optimize_remat: bool = False) -> None:
        """Set the rules: fwd(*args) -> (result, residuals); bwd(*nondiff, residuals, cotangent) -> tuple of cotangents.

        A cotangent may be None for zero. `optimize_remat` is accepted and changes nothing.
        """
        if symbolic_zeros:
            raise NotImplementedError(
                "custom_vjp: symbolic_zeros=True is not supported; a zero cotangent is an array of zeros"
            )
        self.fwd = fwd
        self.bwd = bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None:
            raise TypeError(
                f"custom_vjp of {function_name(self.fun)} has no rules yet. Set them with f.defvjp(fwd, bwd)."
            )
        args = positional(self.fun, args, kwargs, "custom_vjp")
        call = Call(self.fun, args, static_numbers(self.nondiff_argnums, len(args)))
        if not any(isinstance(leaf, Tracer) for leaf in call.leaves):
            return self.fun(*args)
        values, trace = call.values(), current_trace()
        if isinstance(trace, (JVPTrace, LinearizeTrace)):
            primals, tangents = zip(*[trace.split(value) for value in values], strict=True)
            if any(type(t) is not Zero for t in tangents):
                return self._differentiated(call, trace, primals, tangents)
        traced = trace_program(call.flat, [value.type for value in values], call.weak())
        rule = self._rule_of(call, values, traced.captured)
        results = bind(custom_vjp_p, *values, *traced.captured, program=traced.program, rule=rule)
        return tree.unflatten(call.flat.result_tree, results)

    def _rule_of(self, call: Call, values: Sequence[Value], captured: tuple[Value, ...]) -> VjpRule:
        """The rule of a staged call; the same object for equal calls that close over nothing."""
        made = UserRule(self, call, [value.type for value in values], captured)
        if captured:
            return made
        try:
            return self._rules.setdefault(call.key(), made)
        except TypeError:   # a static argument that is not hashable
            return made

    def run_forward(self, call: Call, primals: Sequence[Any]) -> Forward:
        """The forward rule on flat values; checks what it answers."""
        name = f"the forward rule of custom_vjp {function_name(self.fun)}"
        assert self.fwd is not None
        answer = self.fwd(*call.merged(tree.unflatten(call.in_tree, primals)))
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
            raise TypeError(f"{name} must answer a pair (result, residuals), but it answers {type(answer).__name__}")
        results, out_tree = tree.flatten(answer[0])
        if call.flat.out_tree is not None and out_tree != call.flat.out_tree:
            raise TreeError(
                f"{name} answers a result of structure {out_tree}, but the function's is {call.flat.out_tree}"
            )
        residuals, residual_tree = tree.flatten(answer[1])
        return Forward([to_value(x, lambda: f"{name}: its result") for x in results],
                       [to_value(x, lambda: f"{name}: a residual") for x in residuals], out_tree, residual_tree)

    def trace_backward(self, call: Call, forward: Forward, types: Sequence[Type], captured: Sequence[Value]) -> Any:
        """The backward rule as a Traced program: [residuals..., captured..., others..., cotangents...] -> cotangents.

        Takes and answers those of floating outputs and arguments only.
        """
        out_types = [result.type for result in forward.results]
        floats = [type for type in out_types if differentiable(type)]
        residual_types = [residual.type for residual in forward.residuals]

        def backward(*values: Any) -> list[Any]:
            given = iter(values[len(residual_types):])
            cotangents = [next(given) if differentiable(type) else zero_for(type) for type in out_types]
            return self._run_backward(call, forward, types, values[:len(residual_types)], cotangents)
        traced = trace_program(backward, [*residual_types, *floats], captured=captured)
        first, last = len(residual_types), len(residual_types) + len(floats)
        order = traced.program.input_types
        reordered = trace_program(
            lambda *v: evaluate(traced.program,
                                [*v[:first], *v[len(v) - len(floats):], *v[first:len(v) - len(floats)]]),
            [*order[:first], *order[last:], *order[first:last]])
        return type(traced)(reordered.program, traced.captured, reordered.locations)

    def _run_backward(self, call: Call, forward: Forward, types: Sequence[Type], residuals: Sequence[Any],
                      cotangents: Sequence[Any]) -> list[Any]:
        """The backward rule on flat values; checks what it answers."""
        name = f"the backward rule of custom_vjp {function_name(self.fun)}"
        assert self.bwd is not None
        answer = self.bwd(*call.static_values(), tree.unflatten(forward.residual_tree, residuals),
                          tree.unflatten(forward.out_tree, cotangents))
        dynamic = call.in_tree.num_leaves
        arguments = tree.unflatten(call.in_tree, range(dynamic))
        if isinstance(answer, list):
            answer = tuple(answer)
        if not isinstance(answer, tuple) or len(answer) != len(arguments):
            found = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
            raise TypeError(
                f"{name} must answer a tuple with one cotangent for each of {len(arguments)} arguments, but it "
                f"answers {found}"
            )
        leaves: list[Any] = []
        for number, (part, argument) in enumerate(zip(answer, arguments, strict=True)):
            structure = tree.structure(argument)
            if part is None:
                leaves += [None] * structure.num_leaves
                continue
            try:
                leaves += tree.flatten_up_to(structure, part)
            except TreeError as error:
                raise TreeError(f"{name}: cotangent {number} must have the structure of its argument {structure}: "
                                f"{error}") from None
        place = lambda i: f"{name}: the cotangent of {leaf_name(self.fun, arguments, i)}"
        results = [checked(leaf, type, lambda i=i: place(i)) for i,
                   (leaf, type) in enumerate(zip(leaves, types, strict=True))
                   if differentiable(type)]
        return [zero_for(result.type) if type(result) is Zero else result for result in results]

    def _differentiated(self, call: Call, trace: JVPTrace | LinearizeTrace, primals: Sequence[Any],
                        tangents: Sequence[Any]) -> Any:
        """Run the forward rule now, under the trace that differentiates with respect to an argument."""
        with active(RuleTrace(trace) if isinstance(trace, LinearizeTrace) else trace):
            forward = self.run_forward(call, primals)
            backward = self.trace_backward(call, forward, [primal.type for primal in primals], ())
        saved = [trace.split(x)[0] for x in (*forward.residuals, *backward.captured)]
        pairs = [trace.split(result) for result in forward.results]
        if isinstance(trace, LinearizeTrace):
            found = iter(_staged_linear(trace, saved, tangents, backward.program))
        else:
            with active(trace.parent):
                found = iter(evaluate(_expand(backward.program, len(saved)), [*saved, *_float_tangents(tangents)]))
        outputs = []
        with active(trace.split_trace if isinstance(trace, LinearizeTrace) else trace.parent):
            for primal, along_captured in pairs:
                own = next(found) if differentiable(primal.type) else Zero(primal.type)
                outputs.append(trace.join(primal, add_tangents(own, along_captured)))
        return tree.unflatten(forward.out_tree, outputs)


@tree.register_static
@dataclass(frozen=True, slots=True)
class _Pullback:
    """The traced gradient function of a custom_gradient, as a part of the residuals' structure."""
    program: Program
    structure: tree.TreeDef


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its gradient: `fun(*args)` answers (result, vjp), where vjp(cotangent) gives the arguments'
    cotangents.

    >>> import fungrad
    >>> f = fungrad.custom_gradient(lambda x: (x ** 2, lambda g: (g * 10 * x,)))
    >>> float(fungrad.grad(f)(3.0))
    30.0
    """
    @functools.wraps(fun, updated=())
    def primal(*args: Any) -> Any:
        return fun(*args)[0]

    def forward(*args: Any) -> tuple[Any, Any]:
        result, pullback = fun(*args)
        leaves, structure = tree.flatten(result)
        types = [tangent_type(to_value(leaf, lambda: "the result of a custom_gradient function").type) for leaf
                 in leaves]

        def as_tuple(*cotangents: Any) -> Any:
            answer = pullback(*cotangents)
            return answer if isinstance(answer, (tuple, list)) else (answer,)
        flat = FlatFunction(lambda *c: as_tuple(tree.unflatten(structure, c)), tree.structure(tuple(types)))
        traced = trace_program(flat, types)
        return result, (list(traced.captured), _Pullback(traced.program, flat.result_tree))

    def backward(residuals: Any, cotangent: Any) -> Any:
        captured, pullback = residuals
        return tree.unflatten(pullback.structure, evaluate(pullback.program, [*tree.leaves(cotangent), *captured]))
    made = custom_vjp(primal)
    made.defvjp(forward, backward)
    return made


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` without the values it closes over, and those: converted(*args, *values) is fun(*args).

    `fun` is traced once, for arguments of the examples' types.
    """
    leaves, in_tree = tree.flatten(example_args)
    values = [to_value(leaf, lambda i=i: leaf_name(fun, example_args, i)) for i, leaf in enumerate(leaves)]
    flat = FlatFunction(fun, in_tree)
    traced = trace_program(flat, [value.type for value in values])

    def converted(*args: Any) -> Any:
        count = len(traced.captured)
        given = [to_value(leaf, lambda: "an argument") for leaf in tree.leaves(args[:len(args) - count])]
        return tree.unflatten(flat.result_tree, evaluate(traced.program, [*given, *args[len(args) - count:]]))
    return converted, list(traced.captured)

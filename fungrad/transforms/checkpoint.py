"""checkpoint (remat): a function whose backward pass computes intermediate values again instead of keeping them.

    checkpoint{program}(inputs)            linearizes to itself and, in the linear program, to
    checkpoint_linear{program}(inputs, tangents)     which saves the inputs (and what the policy names) only.

Transposed, checkpoint_linear becomes a checkpoint of [forward again, then backward], behind barriers on the inputs: a
barrier reads as its operand, but it is a node of its own, so what is computed from it is not merged with the first
computation; and it waits for the cotangents, so that it is computed when the backward pass gets there.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from .. import tree
from ..ir.expr import Expr, Reader
from ..ir.interpret import interpret
from ..ir.primitive import Linear, Primitive, Refused, Zero, declare
from ..ir.program import RESULT, Node, Program, node, program as make_program
from ..ir.types import Type
from ..ops.rules import batch_to_front, instantiate, move_axis
from ..trace import bind, evaluate, process_in, trace_program
from ..util import toposort
from .batch import batch_program
from .call import call_p
from .flat import FlatFunction, function_name, is_weak, leaf_name, to_value
from .jvp import jvp_program
from .linearize import LinearizeTrace, linearize_program
from .transpose import backward_pass

# ---- barriers -------------------------------------------------------------------------------------------------------


def _barrier_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    result = bind(barrier_p, *primals)
    if type(tangents[0]) is Zero:
        return result, tangents[0]
    return result, bind(barrier_p, tangents[0], *primals[1:])


def _barrier_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None]) -> tuple[Any, int]:
    return bind(barrier_p, batch_to_front(size, operands[0], axes[0]), *operands[1:]), 0


def _barrier_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type) -> Expr:
    return readers[0](index, valid)


barrier_p = declare(Primitive(
    "barrier", lambda x, *after: x, lambda x, *after: x, _barrier_jvp,
    lambda cotangent, operands: (cotangent, *[None] * (len(operands) - 1)), _barrier_batch, _barrier_lower,
    frozenset({"movement", "cheap"}),
    "Its first operand, under another identity, once the others are known: what is computed from it is not merged with "
    "what is computed from the operand."))


def barrier(x: Any, after: Sequence[Any]) -> Any:
    """`x` as a value that is not merged with `x`, computed after the values `after`."""
    return bind(barrier_p, x, *after)


# ---- policies -------------------------------------------------------------------------------------------------------

Policy = Callable[[Node], bool]


def everything_saveable(node: Node) -> bool:
    """Keep every intermediate value: no recomputation."""
    return True


def nothing_saveable(node: Node) -> bool:
    """Keep the inputs only; the default."""
    return False


def dots_saveable(node: Node) -> bool:
    """Keep the results of matrix products and convolutions."""
    return "contraction" in node.primitive.traits


def dots_with_no_batch_dims_saveable(node: Node) -> bool:
    """Keep the results of matrix products without batch dimensions."""
    if not dots_saveable(node):
        return False
    numbers = dict(node.params).get("dimension_numbers")
    return numbers is None or not any(numbers[1])


checkpoint_policies = SimpleNamespace(
    everything_saveable=everything_saveable, nothing_saveable=nothing_saveable, dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable, dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable)


@functools.lru_cache(maxsize=1024)
def _split(program: Program, policy: Policy) -> tuple[Program, Program, int]:
    """The program with what the policy saves as further outputs, the program that takes those as further inputs,
    their number.
    """
    saved = [n for n in program.nodes() if n.operands and isinstance(n.type, Type) and policy(n)]
    if not saved:
        return program, program, 0
    first = trace_program(lambda *xs: _with_nodes(program, xs, saved), program.input_types).program
    count = len(program.input_types)
    types = [*program.input_types, *(n.type for n in saved)]
    second = trace_program(lambda *xs: _evaluate_given(program, xs[:count], dict(zip(saved, xs[count:], strict=True))),
                           types).program
    return first, second, len(saved)


def _with_nodes(program: Program, values: Sequence[Any], nodes: Sequence[Node]) -> list[Any]:
    return evaluate(make_program(program.input_types, (*program.outputs, *nodes)), values)


def _evaluate_given(program: Program, values: Sequence[Any], given: dict[Node, Any]) -> list[Any]:
    """Evaluate a program some of whose nodes are known; where a node's tangent matters it is that of the known
    value.
    """
    environment: dict[Node, Any] = dict(zip(program.inputs, values, strict=True))
    for n in program.nodes():
        if n in environment:
            continue
        if n.primitive is RESULT:
            environment[n] = environment[n.operands[0]][n.param("number")]
        else:
            environment[n] = bind(n.primitive, *[environment[operand] for operand in n.operands], **dict(n.params))
        if n in given:
            environment[n] = bind(saved_p, environment[n], given[n])
    return [environment[output] for output in program.outputs]


def _saved_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    return bind(saved_p, *primals), tangents[0]


saved_p = declare(
    Primitive(
        "saved",
        lambda x, value: value,
        lambda x, value: value,
        _saved_jvp,
        Refused("a saved value is replaced when its program is differentiated"),
        lambda size, operands, axes: (
            bind(saved_p, *[batch_to_front(size, x, a) for x, a in zip(operands, axes, strict=True)]),
            0,
        ),
        lambda readers, index, valid, type: readers[1](index, valid),
        frozenset({"movement", "cheap"}),
        "The second operand, which was saved; its derivative is the first one's.",
    )
)


def _with_saved(program: Program) -> Program:
    """The program reading saved values wherever it reads what they were computed as."""
    given = {n.operands[0]: n.operands[1] for n in program.nodes() if n.primitive is saved_p}
    if not given:
        return program

    def source(n: Node) -> Node:
        while n in given or n.primitive is saved_p:
            n = given[n] if n in given else n.operands[1]
        return n
    roots = [source(output) for output in program.outputs]
    at: dict[Node, Node] = {}
    for n in toposort(roots, lambda n: [source(operand) for operand in n.operands]):
        at[n] = node(n.primitive, tuple([at[source(operand)] for operand in n.operands]), dict(n.params), n.type)
    return make_program(program.input_types, tuple([at[root] for root in roots]))


# ---- the primitives -------------------------------------------------------------------------------------------------

def _type(*types: Type, program: Program, policy: Policy) -> tuple[Type, ...]:
    return program.output_types


def _interpret(*arrays: Any, program: Program, policy: Policy) -> tuple[Any, ...]:
    return tuple(interpret(program, arrays))


def _spread(types: Sequence[Type], mask: Sequence[bool], found: Sequence[Any]) -> tuple[Any, ...]:
    given = iter(found)
    return tuple([next(given) if flag else Zero(type) for flag, type in zip(mask, types, strict=True)])


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, policy: Policy) -> tuple[Any, Any]:
    nonzero = tuple(type(t) is not Zero for t in tangents)
    forward, mask = jvp_program(program, nonzero)
    found = bind(checkpoint_p, *primals, *(t for t in tangents if type(t) is not Zero), program=forward, policy=policy)
    return found[:len(mask)], _spread(program.output_types, mask, found[len(mask):])


def _linearize(
    trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, policy: Policy
) -> tuple[Any, Any]:
    nonzero = tuple(type(t) is not Zero for t in tangents)
    first, second, count = _split(program, policy)
    results = process_in(trace.parent, checkpoint_p, primals, {"program": first, "policy": policy})
    outputs, saved = results[:len(results) - count], results[len(results) - count:]
    mask = jvp_program(program, nonzero)[1]
    given = [t for t in tangents if type(t) is not Zero]
    inputs = (*primals, *saved)
    found = trace.tangent_trace.process(checkpoint_linear_p, (*inputs, *given), {
        "program": second, "policy": policy, "nonzero": (*nonzero, *[False] * count)}) \
        if any(mask) else ()
    return outputs, _spread(program.output_types, mask, found)


def _batch(
    size: int, operands: Sequence[Any], axes: Sequence[int | None], *, program: Program, policy: Policy
) -> tuple[Any, Any]:
    mapped, out_mapped = batch_program(program, size, tuple(axis is not None for axis in axes))
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    results = bind(checkpoint_p, *aligned, program=mapped, policy=policy)
    return results, tuple(0 if flag else None for flag in out_mapped)


def _transpose(
    cotangents: Sequence[Any], operands: Sequence[Any], *, program: Program, policy: Policy
) -> tuple[Any, ...]:
    return call_p.transpose(cotangents, operands, program=program, name="checkpoint")


checkpoint_p = declare(Primitive(
    "checkpoint", _type, _interpret, _jvp, _transpose, _batch, Refused("a checkpoint is inlined before lowering"),
    frozenset({"call"}), "A program whose backward pass computes its intermediate values again.", multiple_results=True,
    linearize=_linearize))


@functools.lru_cache(maxsize=1024)
def _tangent_program(program: Program, nonzero: tuple[bool, ...]) -> Program:
    """[inputs..., tangents of the nonzero ones...] -> [tangents of the nonzero outputs...], from behind barriers."""
    forward, mask = jvp_program(program, nonzero)
    forward = _with_saved(forward)
    count = len(program.input_types)

    def tangents(*values: Any) -> list[Any]:
        behind = [barrier(x, ()) for x in values[:count]]
        return evaluate(forward, [*behind, *values[count:]])[len(mask):]
    return trace_program(tangents, forward.input_types).program


def _linear_expand(*, program: Program, policy: Policy, nonzero: tuple[bool, ...]) -> Program:
    return _tangent_program(program, nonzero)


def _linear_type(*types: Type, program: Program, policy: Policy,
                 nonzero: tuple[bool, ...]) -> tuple[Type, ...]:
    mask = jvp_program(program, nonzero)[1]
    return tuple(type for type, flag in zip(program.output_types, mask, strict=True) if flag)


def _linear_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """Of the tangent program, as of any checkpoint."""
    expanded = _linear_expand(**params)
    return checkpoint_p.jvp(primals, tangents, program=expanded, policy=params["policy"])


def _linear_linearize(
    trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> tuple[Any, Any]:
    assert checkpoint_p.linearize is not None
    return checkpoint_p.linearize(trace, primals, tangents, program=_linear_expand(**params), policy=params["policy"])


def _linear_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
    return checkpoint_p.batch(size, operands, axes, program=_linear_expand(**params), policy=params["policy"])


@functools.lru_cache(maxsize=1024)
def _backward(program: Program, nonzero: tuple[bool, ...], flowing: tuple[bool, ...]) -> Program:
    """[inputs..., cotangents of the outputs marked flowing...] -> [cotangents of the nonzero inputs...]"""
    forward, linear, mask = linearize_program(program, nonzero)
    forward = _with_saved(forward)
    count, outputs = len(program.input_types), len(program.outputs)
    types = [type for type, flag in zip(program.output_types, mask, strict=True) if flag]

    def backward(*values: Any) -> list[Any]:
        given = iter(values[count:])
        cotangents = [next(given) if flag else Zero(type) for type, flag in zip(types, flowing, strict=True)]
        behind = [barrier(x, values[count:]) for x in values[:count]]
        residuals = evaluate(forward, behind)[outputs:]
        flags = [i < sum(nonzero) for i in range(len(linear.input_types))]
        return [instantiate(c) for c in backward_pass(linear, flags, residuals, cotangents)]

    return trace_program(
        backward, [*program.input_types, *(t for t, flag in zip(types, flowing, strict=True) if flag)]
    ).program


def _linear_transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, program: Program, policy: Policy,
                      nonzero: tuple[bool, ...]) -> tuple[Any, ...]:
    count = len(program.input_types)
    if any(isinstance(operand, Linear) for operand in operands[:count]):
        raise TypeError("the derivative of a checkpoint is not linear in the checkpoint's inputs")
    flowing = tuple(type(c) is not Zero for c in cotangents)
    program = _backward(program, nonzero, flowing)
    results = bind(checkpoint_p, *operands[:count], *(c for c in cotangents if type(c) is not Zero), program=program,
                   policy=policy)
    return (*[None] * count, *[result if isinstance(operand, Linear) else None
                               for result, operand in zip(results, operands[count:], strict=True)])


checkpoint_linear_p = declare(
    Primitive(
        "checkpoint_linear",
        _linear_type,
        lambda *arrays, **params: tuple(interpret(_linear_expand(**params), arrays)),
        _linear_jvp,
        _linear_transpose,
        _linear_batch,
        Refused("a checkpoint is inlined before lowering"),
        frozenset({"call"}),
        "The derivative of a checkpoint: it computes the intermediate values again.",
        multiple_results=True,
        linearize=_linear_linearize,
        expand=_linear_expand,
    )
)


# ---- the user's side ------------------------------------------------------------------------------------------------

def checkpoint(fun: Callable[..., Any] | None = None, *, prevent_cse: bool = True, policy: Policy | None = None,
               static_argnums: int | Sequence[int] = ()) -> Any:
    """`fun`, but its backward pass keeps only its arguments and computes the rest again. Values do not change.

    policy: which intermediate values are kept all the same, one of `fungrad.checkpoint_policies` or a function of a
    Node.
    prevent_cse: accepted for compatibility; the recomputation is never merged with the first computation.

    >>> import fungrad, fungrad.numpy as fnp
    >>> float(fungrad.grad(fungrad.checkpoint(lambda x: fnp.exp(fnp.exp(x))))(0.0)) == float(fnp.exp(1.0))
    True
    """
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(fun, updated=())
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        static = {n % len(args) for n in numbers} if args else set()
        dynamic = tuple(arg for i, arg in enumerate(args) if i not in static)
        leaves, in_tree = tree.flatten((dynamic, kwargs))

        def merged(given: Any, keywords: Any) -> Any:
            rest = iter(given)
            return fun(*[arg if i in static else next(rest) for i, arg in enumerate(args)], **keywords)
        flat = FlatFunction(merged, in_tree, function_name(fun))
        values = [to_value(leaf, lambda i=i: leaf_name(fun, (*dynamic, kwargs), i)) for i, leaf in enumerate(leaves)]
        traced = trace_program(flat, [value.type for value in values], [is_weak(leaf) for leaf in leaves])
        results = bind(checkpoint_p, *values, *traced.captured, program=traced.program,
                       policy=policy or nothing_saveable)
        return tree.unflatten(flat.result_tree, results)
    return checkpointed


remat = checkpoint

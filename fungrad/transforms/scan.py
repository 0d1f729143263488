"""scan: a loop of known length over slices of arrays, with a carry; one primitive with the body as a Program.

    body: [consts..., carry..., slices of xs...] -> [carry..., slices of ys...]
    scan: [consts..., carry..., xs...]           -> [carry..., ys...]

The derivative of a scan is a scan. Its residuals are stacked as further ys, but for those that need no memory of their
own: what depends on the consts only is computed once, outside; a slice of xs or ys is read where it lies.
Transposed, the scan runs backwards; the cotangents of its consts are accumulated in the carry.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..ir.interpret import interpret
from ..ir.primitive import Linear, Primitive, Refused, declare
from ..ir.program import INPUT, Node, Program, program as make_program
from ..ir.types import Type, array_type
from ..ops.create import zeros
from ..ops.rules import add_tangents, batch_to_front, instantiate, move_axis
from ..trace import active, bind, evaluate, process_in, trace_program
from .batch import batch_program
from .bodies import Mask, chosen, dependent, fixpoint, groups, nonzero, regrouped, with_outputs, with_zeros
from .jvp import jvp_program
from .linearize import LinearizeTrace, linearize_program, linearize_values
from .transpose import backward_pass


def scan(program: Program, operands: Sequence[Any], consts: int, carry: int, length: int,
         reverse: bool = False) -> tuple[Any, ...]:
    """Run the loop: `consts` and `carry` are the numbers of operands of each kind, the rest are xs."""
    return bind(scan_p, *operands, program=program, consts=consts, carry=carry, length=length, reverse=reverse)


def stacked(type: Type, length: int) -> Type:
    return array_type((length, *type.shape), type.dtype)


def _type(*types: Type, program: Program, consts: int, carry: int, length: int, reverse: bool) -> tuple[Type, ...]:
    first = consts + carry
    wanted = (*program.input_types[:first], *[stacked(type, length) for type in program.input_types[first:]])
    if types != wanted:
        raise ShapeError(f"scan: the body takes {program.input_types}, so the operands must be {wanted}, got {types}")
    if program.output_types[:carry] != program.input_types[consts:first]:
        raise DTypeError(f"scan: the carry changes its types from {program.input_types[consts:first]} to "
                         f"{program.output_types[:carry]}")
    return (*program.output_types[:carry], *[stacked(type, length) for type in program.output_types[carry:]])


def _reference(*arrays: np.ndarray, program: Program, consts: int, carry: int, length: int,
               reverse: bool) -> tuple[np.ndarray, ...]:
    fixed, state, xs = groups(arrays, consts, carry)
    ys = [np.empty((length, *type.shape), type.dtype) for type in program.output_types[carry:]]
    for i in reversed(range(length)) if reverse else range(length):
        results = interpret(program, [*fixed, *state, *[x[i] for x in xs]])
        state = results[:carry]
        for y, part in zip(ys, results[carry:], strict=True):
            y[i] = part
    return (*state, *ys)


# ---- forward mode ---------------------------------------------------------------------------------------------------

def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, consts: int, carry: int, length: int,
         reverse: bool) -> tuple[Any, Any]:
    fixed, start, along = groups(nonzero(tangents), consts, carry)
    state = fixpoint(lambda mask: jvp_program(program, (*fixed, *mask, *along))[1][:carry], tuple(start))
    ys = len(program.outputs) - carry
    both, mask = jvp_program(program, (*fixed, *state, *along), (*state, *[False] * ys))
    body = regrouped(both, (consts, carry, len(along), sum(fixed), sum(state)), (0, 3, 1, 4, 2, 5),
                     (carry, ys, sum(state)), (0, 2, 1, 3))
    values, directions = groups(primals, consts, carry), groups(tangents, consts, carry)
    moving = [instantiate(t) for t in chosen(state, directions[1])]
    results = scan(body, [*values[0], *chosen(fixed, directions[0]), *values[1], *moving, *values[2],
                          *chosen(along, directions[2])], consts + sum(fixed), carry + sum(state), length, reverse)
    end, end_t, out, out_t = groups(results, carry, sum(state), ys)
    types = [result.type for result in (*end, *out)]
    return (*end, *out), tuple(with_zeros(types, mask, [*end_t, *out_t]))


# ---- linearization --------------------------------------------------------------------------------------------------

class _Residuals:
    """Where the values that a linear body needs from its forward body come from.

    For each residual: (kind, number) with kind "const" (an operand), "hoisted" (depends on consts alone), "xs" (an
    operand that is sliced), "ys" (a result of the loop). `stacked` are the nodes that become further ys.
    """

    def __init__(self, forward: Program, outputs: int, consts: int, carry: int):
        self.hoisted: list[Node] = []
        self.stacked: list[Node] = []
        self.places: list[tuple[str, int]] = []
        varying = _varying(forward, consts)
        self.first_stacked = outputs - carry
        ys = {node: number for number, node in reversed(list(enumerate(forward.outputs[carry:outputs])))}
        for node in forward.outputs[outputs:]:
            self.places.append(self._place(node, varying, ys, consts, carry))

    def _place(self, node: Node, varying: set[Node], ys: dict[Node, int], consts: int, carry: int) -> tuple[str, int]:
        if node.primitive is INPUT:
            number = node.param("number")
            if number < consts:
                return "const", number
            if number >= consts + carry:
                return "xs", number
        if node not in varying:
            return "hoisted", _number(self.hoisted, node)
        if node not in ys:
            ys[node] = self.first_stacked + len(self.stacked)
            self.stacked.append(node)
        return "ys", ys[node]


def _number(nodes: list[Node], node: Node) -> int:
    if node not in nodes:
        nodes.append(node)
    return nodes.index(node)


def _varying(program: Program, consts: int) -> set[Node]:
    """The nodes that differ between iterations."""
    found = set(program.inputs[consts:])
    for node in program.nodes():
        if any([operand in found for operand in node.operands]):
            found.add(node)
    return found


def _linearize(trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, consts: int,
               carry: int, length: int, reverse: bool) -> tuple[Any, Any]:
    fixed, start, along = groups(nonzero(tangents), consts, carry)
    state = fixpoint(lambda mask: linearize_program(program, (*fixed, *mask, *along))[2][:carry], tuple(start))
    outputs = len(program.outputs)
    forward, linear, mask = linearize_program(program, (*fixed, *state, *along), (*state, *[False] * (outputs - carry)))
    found = _Residuals(forward, outputs, consts, carry)
    body = with_outputs(forward, (*forward.outputs[:outputs], *found.stacked))
    sizes = {"consts": consts, "carry": carry, "length": length, "reverse": reverse}
    results = process_in(trace.parent, scan_p, primals, {"program": body, **sizes})
    with active(trace.parent):
        hoisted = evaluate(make_program(program.input_types[:consts], tuple(found.hoisted)), primals[:consts])
    sources = {"const": primals, "hoisted": hoisted, "xs": primals, "ys": results[carry:]}
    once = tuple([kind in ("const", "hoisted") for kind, _ in found.places])
    residuals = [sources[kind][number] for kind, number in found.places]
    body = _linear_body(linear, sum(fixed), sum(state), sum(along), once)
    directions = groups(tangents, consts, carry)
    with active(trace.tangent_trace):
        moving = [instantiate(t) for t in chosen(state, directions[1])]
    operands = (*chosen(once, residuals), *chosen(fixed, directions[0]), *moving,
                *[x for x, flag in zip(residuals, once, strict=True) if not flag], *chosen(along, directions[2]))
    out = trace.tangent_trace.process(scan_p, operands, {
        "program": body, "consts": sum(once) + sum(fixed), "carry": sum(state), "length": length, "reverse": reverse})
    outer = [result.type for result in results[:outputs]]
    return results[:outputs], tuple(with_zeros(outer, mask, out))


@lru_cache(maxsize=1024)
def _linear_body(linear: Program, fixed: int, state: int, along: int, once: Mask) -> Program:
    """[tangents of consts, of carry, of xs, residuals] -> [residuals that are `once`, tangents of consts, of carry,
    other residuals, tangents of xs]"""
    types = groups(linear.input_types, fixed, state, along)
    residual_types = types[3]
    single = chosen(once, residual_types)
    several = [type for type, flag in zip(residual_types, once, strict=True) if not flag]

    def run(*values: Any) -> list[Any]:
        first, t_fixed, t_state, rest, t_along = groups(values, len(single), fixed, state, len(several))
        given, others = iter(first), iter(rest)
        residuals = [next(given) if flag else next(others) for flag in once]
        return evaluate(linear, [*t_fixed, *t_state, *t_along, *residuals])
    return trace_program(run, [*single, *types[0], *types[1], *several, *types[2]]).program


# ---- transposition --------------------------------------------------------------------------------------------------

def _transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, program: Program, consts: int, carry: int,
               length: int, reverse: bool) -> tuple[Any, ...]:
    is_linear = tuple(isinstance(operand, Linear) for operand in operands)
    fixed, start, along = groups(is_linear, consts, carry)
    state = fixpoint(lambda mask: dependent(program, (*fixed, *mask, *along))[:carry], tuple(start))
    sizes = {"consts": consts, "carry": carry, "length": length, "reverse": reverse}
    if not all(state):
        return _transpose_in_part(cotangents, operands, program=program, **sizes)
    flowing = nonzero(cotangents[carry:])
    body = _transposed_body(program, (*fixed, *state, *along), consts, carry, flowing)
    values = groups(operands, consts, carry)
    known = [[x for x in part if not isinstance(x, Linear)] for part in (values[0], values[2])]
    sums = [zeros(x.type) for x in chosen(fixed, values[0])]
    ends = [instantiate(c) for c in cotangents[:carry]]
    results = scan(body, [*known[0], *sums, *ends, *known[1], *chosen(flowing, cotangents[carry:])], len(known[0]),
                   len(sums) + carry, length, not reverse)
    totals, starts, parts = map(iter, groups(results, len(sums), carry))
    answer = [next(totals) if flag else None for flag in fixed]
    answer += [c if flag else None for c, flag in zip(starts, start, strict=True)]
    return (*answer, *[next(parts) if flag else None for flag in along])


@lru_cache(maxsize=1024)
def _transposed_body(program: Program, linear: Mask, consts: int, carry: int, flowing: Mask) -> Program:
    """[known consts | sums of consts' cotangents, carry's cotangents | known xs, ys' cotangents] ->
    [sums, carry's cotangents | xs' cotangents]"""
    fixed, _, along = groups(linear, consts, carry)
    types, out = groups(program.input_types, consts, carry), groups(program.output_types, carry)
    known = [[type for type, flag in zip(part, mask, strict=True) if not flag]
             for part, mask in ((types[0], fixed), (types[2], along))]
    summed, slices = chosen(fixed, types[0]), chosen(flowing, out[1])

    def backward(*values: Any) -> list[Any]:
        first, sums, ends, rest, given = groups(values, len(known[0]), len(summed), carry, len(known[1]))
        seeds = [*ends, *with_zeros(out[1], flowing, given)]
        found = backward_pass(program, linear, [*first, *rest], seeds)
        own, starts, parts = groups(found, len(summed), carry)
        return [*[add_tangents(total, c) for total, c in zip(sums, own, strict=True)], *map(instantiate, starts),
                *map(instantiate, parts)]
    return trace_program(backward, [*known[0], *summed, *types[1], *known[1], *slices]).program


def _transpose_in_part(cotangents: Sequence[Any], operands: Sequence[Any], **params: Any) -> tuple[Any, ...]:
    """Where part of the carry does not depend on the linear operands (a counter): that part runs forward first."""
    flags = [isinstance(operand, Linear) for operand in operands]
    at_zero = [zeros(operand.type) if flag else operand for operand, flag in zip(operands, flags, strict=True)]
    linearized = linearize_values(lambda *values: bind(scan_p, *values, **params), at_zero, flags)
    traced = linearized.traced
    count = sum(flags)
    linear = [i < count for i in range(len(traced.program.input_types))]
    found = iter(backward_pass(traced.program, linear, traced.captured, chosen(linearized.nonzero, cotangents)))
    return tuple([next(found) if flag else None for flag in flags])


# ---- vmap -----------------------------------------------------------------------------------------------------------

def _batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, program: Program, consts: int, carry: int,
           length: int, reverse: bool) -> tuple[Any, Any]:
    fixed, start, along = groups([axis is not None for axis in axes], consts, carry)
    state = fixpoint(lambda mask: batch_program(program, size, (*fixed, *mask, *along))[1][:carry], tuple(start))
    wanted = (*state, *[False] * (len(program.outputs) - carry))
    body, mask = batch_program(program, size, (*fixed, *state, *along), wanted)
    values, places = groups(operands, consts, carry), groups(axes, consts, carry)
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(values[0], places[0], strict=True)]
    aligned += [batch_to_front(size, x, axis) if flag else x
                for x, axis, flag in zip(values[1], places[1], state, strict=True)]
    aligned += [x if axis is None else move_axis(x, axis, 1) for x, axis in zip(values[2], places[2], strict=True)]
    results = scan(body, aligned, consts, carry, length, reverse)
    return results, tuple([None if not flag else 0 if i < carry else 1 for i, flag in enumerate(mask)])


scan_p = declare(Primitive(
    "scan", _type, _reference, _jvp, _transpose, _batch,
    Refused("a loop is a launch of its own, not an expression of its operands' elements"), frozenset({"control"}),
    "A loop of known length over slices of arrays, with a carry.", multiple_results=True, linearize=_linearize))

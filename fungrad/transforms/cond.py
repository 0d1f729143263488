"""cond: one of several branches, chosen by an index; one primitive with the branches as Programs of equal types.

    cond: [index, operands...] -> results of branches[index](operands...); the index is moved into the range

The derivative of a cond is a cond with the same index. Its residuals share places between the branches: what the taken
branch does not fill is zero. Under vmap with an index that differs between lanes, every branch runs and the results are
selected; a lane's operands come to the branches that it does not take without derivative, so that what those make of
them (NaN) stays out of its gradient.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..ir.interpret import interpret
from ..ir.primitive import PRIMITIVES, Linear, Primitive, Refused, declare
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..ops.create import full, zeros
from ..ops.elementwise import eq, max as maximum, min as minimum, select
from ..ops.rules import batch_to_front, broadcast, move_axis
from ..trace import bind, evaluate, process_in, trace_program
from .batch import batch_program
from .bodies import Mask, chosen, nonzero, with_zeros
from .jvp import jvp_program
from .linearize import LinearizeTrace, linearize_program
from .transpose import transpose_program

_INDEX = array_type((), np.dtype("int32"))
Branches = tuple[Program, ...]


def cond(branches: Branches, index: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of one branch; the index is an int32."""
    return bind(cond_p, index, *operands, branches=branches)


def _type(index: Type, *types: Type, branches: Branches) -> tuple[Type, ...]:
    if index != _INDEX:
        raise DTypeError(f"cond: the index must be {_INDEX}, got {index}")
    for branch in branches:
        if branch.input_types != types:
            raise ShapeError(f"cond: a branch takes {branch.input_types}, got {types}")
        if branch.output_types != branches[0].output_types:
            raise DTypeError(f"cond: branches give {branches[0].output_types} and {branch.output_types}")
    return branches[0].output_types


def _reference(index: np.ndarray, *arrays: np.ndarray, branches: Branches) -> tuple[np.ndarray, ...]:
    return tuple(interpret(branches[min(max(int(index), 0), len(branches) - 1)], arrays))


def _joined(masks: Sequence[Mask]) -> Mask:
    return tuple([any(flags) for flags in zip(*masks, strict=True)])


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: Branches) -> tuple[Any, Any]:
    index, *values = primals
    mask = nonzero(tangents[1:])
    out = _joined([jvp_program(branch, mask)[1] for branch in branches])
    new = tuple([jvp_program(branch, mask, out)[0] for branch in branches])
    results = cond(new, index, [*values, *chosen(mask, tangents[1:])])
    count = len(out)
    return results[:count], tuple(with_zeros(branches[0].output_types, out, results[count:]))


# ---- linearization --------------------------------------------------------------------------------------------------

@lru_cache(maxsize=1024)
def _linearized(branches: Branches, mask: Mask) -> tuple[Branches, Branches, Mask, tuple[Type, ...]]:
    """Forward branches with residuals in common places, linear branches that take those, which outputs are nonzero."""
    out = _joined([linearize_program(branch, mask)[2] for branch in branches])
    pairs = [linearize_program(branch, mask, out)[:2] for branch in branches]
    count, moving = len(out), sum(mask)
    places: list[Type] = []
    taken: list[list[int]] = []
    for forward, _ in pairs:
        own: list[int] = []
        for type in forward.output_types[count:]:
            free = [i for i, place in enumerate(places) if place == type and i not in own]
            if not free:
                places.append(type)
                free = [len(places) - 1]
            own.append(free[0])
        taken.append(own)
    new_forward, new_linear = [], []
    for (forward, linear), own in zip(pairs, taken, strict=True):
        def with_places(*values: Any, forward: Program = forward, own: list[int] = own) -> list[Any]:
            results = evaluate(forward, values)
            filled = dict(zip(own, results[count:], strict=True))
            return [*results[:count], *[filled[i] if i in filled else zeros(type) for i, type in enumerate(places)]]

        def from_places(*values: Any, linear: Program = linear, own: list[int] = own) -> list[Any]:
            return evaluate(linear, [*values[:moving], *[values[moving + i] for i in own]])
        new_forward.append(trace_program(with_places, forward.input_types).program)
        new_linear.append(trace_program(from_places, [*linear.input_types[:moving], *places]).program)
    return tuple(new_forward), tuple(new_linear), out, tuple(places)


def _linearize(trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any], *,
               branches: Branches) -> tuple[Any, Any]:
    mask = nonzero(tangents[1:])
    forward, linear, out, places = _linearized(branches, mask)
    results = process_in(trace.parent, cond_p, primals, {"branches": forward})
    count = len(out)
    operands = (primals[0], *chosen(mask, tangents[1:]), *results[count:])
    found = trace.tangent_trace.process(cond_p, operands, {"branches": linear}) if any(out) else ()
    return results[:count], tuple(with_zeros(branches[0].output_types, out, found))


def _transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, branches: Branches) -> tuple[Any, ...]:
    index, *values = operands
    linear = tuple(isinstance(x, Linear) for x in values)
    flowing = nonzero(cotangents)
    new = tuple([transpose_program(branch, linear, flowing, True)[0] for branch in branches])
    known = [x for x in values if not isinstance(x, Linear)]
    results = iter(cond(new, index, [*known, *chosen(flowing, cotangents)]))
    return (None, *[next(results) if flag else None for flag in linear])


# ---- vmap -----------------------------------------------------------------------------------------------------------

def _batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, branches: Branches) -> tuple[Any, Any]:
    (index, *values), (index_axis, *places) = operands, axes
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(values, places, strict=True)]
    mask = tuple(axis is not None for axis in places)
    if index_axis is None:
        out = _joined([batch_program(branch, size, mask)[1] for branch in branches])
        new = tuple([batch_program(branch, size, mask, out)[0] for branch in branches])
        return cond(new, index, aligned), tuple([0 if flag else None for flag in out])
    index = move_axis(index, index_axis, 0)
    everywhere = (True,) * len(mask)
    wanted = (True,) * len(branches[0].outputs)
    whole = [batch_to_front(size, x, axis) for x, axis in zip(values, places, strict=True)]
    lowest, highest = full(index.shape, 0, index.dtype), full(index.shape, len(branches) - 1, index.dtype)
    index = minimum(maximum(index, lowest), highest)
    results: list[Any] = []
    for number, branch in enumerate(branches):
        taken = eq(index, full(index.shape, number, index.dtype))
        own = evaluate(batch_program(branch, size, everywhere, wanted)[0], [_guarded(taken, x) for x in whole])
        results = own if number == 0 else [select(broadcast(taken, y.shape, (0,)), y, x)
                                           for x, y in zip(results, own, strict=True)]
    return tuple(results), (0,) * len(results)


def _guarded(taken: Any, x: Any) -> Any:
    """`x`, whose derivative counts where the branch is taken only."""
    return select(broadcast(taken, x.shape, (0,)), x, bind(PRIMITIVES["stop_gradient"], x))


cond_p = declare(Primitive(
    "cond", _type, _reference, _jvp, _transpose, _batch,
    Refused("a choice is a launch of its own, not an expression of its operands' elements"), frozenset({"control"}),
    "The results of one of several branches, chosen by an index.", multiple_results=True, linearize=_linearize))

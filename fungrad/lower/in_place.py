"""Carries of loops of which an iteration changes a window: they are updated in place.

    for i:  s = s.at[i].set(f(s[i], ...))            the body's output is dynamic_update_slice(s, window, i)
    for i:  sum = sum + zeros.at[i].add(c)           the cotangent of x[i], summed over the iterations: the window is
                                                     sum[i] + c
    before: an iteration writes the whole carry      after: it writes the window, so a loop of T steps costs O(T + N)

The body computes the windows and where they start, all else included, while the carry still has its old value; then
the windows are written, in order.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..dtypes import is_signed
from ..ir.expr import INDEX, Buffer, Expr, axis, cast, constant, index_constant, load, operation
from ..ir.kernel import Fused, Kernel, Launch, Loop, Statement, Store
from ..ir.primitive import PRIMITIVES
from ..ir.program import Node, Program, apply, program as make_program
from ..ir.types import Type
from .fuse_names import canonical_axis, canonical_buffer, intern_kernel

LEAST_BYTES = 256     # of a carry that is worth it
VECTOR_BYTES = 64


@dataclass(frozen=True, slots=True)
class Update:
    """A window of a carry: its value and its starts are nodes of the body."""
    carry: int
    window: Node
    starts: tuple[Node, ...]


def windows(program: Program, consts: int, carry: int) -> list[Update]:
    """The updates that take the place of outputs of a body; every carry of which there is one is updated in place."""
    found: list[Update] = []
    for number in range(carry):
        type = program.input_types[consts + number]
        if type.nbytes >= LEAST_BYTES:
            found += _chain(program.outputs[number], program.inputs[consts + number], number) or []
    return found


def _chain(output: Node, before: Node, number: int) -> list[Update] | None:
    """The windows by which `output` differs from `before`; None if it is something else."""
    if output is before:
        return []
    name = output.primitive.name
    if name == "dynamic_update_slice" and not output.param("batch_dims"):
        inner, window, *starts = output.operands
        earlier = _chain(inner, before, number)
        return None if earlier is None else [*earlier, Update(number, window, tuple(starts))]
    if name != "add":
        return None
    for whole, added in (output.operands, output.operands[::-1]):
        if (
            added.primitive.name == "dynamic_update_slice"
            and not added.param("batch_dims")
            and _is_zero(added.operands[0])
        ):
            earlier = _chain(whole, before, number)
            if earlier is not None:
                _, window, *starts = added.operands
                old = apply(
                    PRIMITIVES["dynamic_slice"], (whole, *starts), {"sizes": window.type.shape, "batch_dims": 0}
                )
                return [*earlier, Update(number, apply(PRIMITIVES["add"], (old, window), {}), tuple(starts))]
    return None


def _is_zero(node: Node) -> bool:
    return node.primitive.name == "full" and node.param("value").value == 0


def without_wholes(program: Program, updates: Sequence[Update]) -> tuple[Program, list[int]]:
    """The body with windows and starts as further outputs, and the carries that are updated in place.

    Their own outputs are the carries' inputs, unchanged.
    """
    places = sorted({update.carry for update in updates})
    outputs = [output for number, output in enumerate(program.outputs) if number not in places]
    for update in updates:
        outputs += [update.window, *update.starts]
    return make_program(program.input_types, tuple(outputs)), places


def with_updates(fused: Fused, updates: Sequence[Update], places: Sequence[int], consts: int, outputs: int) -> Fused:
    """The fused body (of `without_wholes`) with the launches that write the windows; it has `outputs` outputs of its
    own.
    """
    kept = outputs - len(places)
    rest = iter(fused.outputs[kept:])
    launches = list(fused.launches)
    for update in updates:
        carry = fused.inputs[consts + update.carry]
        operands = [next(rest) for _ in range(1 + len(update.starts))]
        if update.window.type.size:
            kernel = _window_kernel(fused.slots[carry], update.window.type, tuple([s.type for s in update.starts]))
            launches.append(Launch(kernel, (carry, *operands)))
    others = iter(fused.outputs[:kept])
    own = tuple([fused.inputs[consts + number] if number in places else next(others) for number in range(outputs)])
    return replace(fused, launches=tuple(launches), outputs=own)


def _window_kernel(whole: Type, window: Type, starts: tuple[Type, ...]) -> Kernel:
    """Writes a window into an array; the rest of the array is left alone."""
    target, source = canonical_buffer("out0", whole, "global"), canonical_buffer("in0", window, "global")
    positions = [canonical_buffer(f"in{number + 1}", type, "global") for number, type in enumerate(starts)]
    first = [_start(position, extent - size) for position, extent, size in
             zip(positions, whole.shape, window.shape, strict=True)]

    def level(number: int, index: tuple[Expr, ...]) -> tuple[Statement, ...]:
        if number == window.rank:
            at = tuple(
                [i if start is None else operation("add", start, i) for i, start in zip(index, first, strict=True)]
            )
            return (Store(target, at, load(source, index)),)
        extent = window.shape[number]
        if extent == 1:
            return level(number + 1, (*index, index_constant(0)))
        name = f"w{number}"
        lanes = VECTOR_BYTES // window.dtype.itemsize
        if number < window.rank - 1 or extent < 4:
            a = canonical_axis(name, extent)
            return (Loop(a, level(number + 1, (*index, axis(a)))),)
        blocks, left = divmod(extent, lanes)
        body: list[Statement] = []
        if blocks:
            block, lane = canonical_axis(f"{name}_block", blocks), canonical_axis(name, lanes)
            place = operation("add", operation("mul", axis(block), index_constant(lanes)), axis(lane))
            body.append(Loop(block, (Loop(lane, level(number + 1, (*index, place)), "vector"),)))
        if left:
            lane = canonical_axis(f"{name}_rest", left)
            place = operation("add", axis(lane), index_constant(blocks * lanes))
            body.append(Loop(lane, level(number + 1, (*index, place)), "vector"))
        return tuple(body)

    return intern_kernel(
        Kernel(
            f"window_{'x'.join(map(str, window.shape))}",
            (target,),
            (source, *positions),
            (),
            (),
            (),
            level(0, ()),
            "loops",
            reasons=("a loop's carry is updated in place",),
        )
    )


def _start(position: Buffer, limit: int) -> Expr | None:
    """The start of a window along one axis, moved so that it lies within; None for 0."""
    if limit == 0:
        return None
    entry = load(position, ())
    if entry.dtype == np.dtype("uint64"):   # a large one would become negative
        return cast(operation("min", entry, constant(limit, entry.dtype)), INDEX)
    moved = operation("min", cast(entry, INDEX), index_constant(limit))
    return operation("max", moved, index_constant(0)) if is_signed(entry.dtype) else moved

"""Long sums of few results in chunks: one contraction becomes one with a chunk axis, and a kernel that adds the chunks.

    w[o, c] += g[n, o] * x[n, c]     n: 8192
 -> part[chunk, o, c] += g[chunk*512 + n, o] * x[chunk*512 + n, c]     chunk: 16, n: 512     (chunks in parallel)
    w[o, c] += part[chunk, o, c]     chunk: 16

The gradient of a convolution's weights is of this kind. The chunks depend on the shape only, so that results are the
same bits for any number of threads; they are added in order.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from ..ir.expr import Axis, Buffer, Expr, axis, constant, index_constant, load, operation, select
from ..ir.kernel import Control, Fused, Kernel, Launch, Nest
from ..ir.target import Target
from ..ir.types import array_type
from .contraction_analysis import guarded, loads, replace_axes
from .fuse_kernels import canonical_axis, canonical_buffer, intern_kernel

ENOUGH_RESULTS = 1 << 17   # results that make enough tiles by themselves
SHORTEST = 512             # steps in k for which storing and adding a partial result is cheap
MOST_CHUNKS = 64
WORTH_SPLITTING = 1 << 21  # multiplications


def split_long_contractions(fused: Fused, target: Target) -> Fused:
    """The pass: a launch of a contraction with a long sum and few results becomes two launches."""
    launches: list[Launch | Control] = []
    slots = list(fused.slots)
    for launch in fused.launches:
        if isinstance(launch, Control) or (parts := _split(launch.kernel)) is None:
            launches.append(launch)
            continue
        first, second = parts
        place = dict(zip(launch.kernel.outputs + launch.kernel.inputs, launch.slots, strict=True))
        partial = len(slots)
        slots.append(first.outputs[0].type)
        launches.append(Launch(first, (partial, *[place[b] for b in first.inputs])))
        launches.append(Launch(second, (*[place[b] for b in second.outputs], partial,
                                        *[place[b] for b in second.inputs[1:]])))
    if len(launches) == len(fused.launches):
        return fused
    return replace(fused, launches=tuple(launches), slots=tuple(slots))


@lru_cache(maxsize=2048)
def _split(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """The kernel of partial sums and the one that adds them; its first input are the partial sums."""
    if kernel.kind != "contraction" or kernel.body is not None:
        return None
    nest = kernel.nests[0]
    cut = chunks([a.extent for a in (*kernel.outer, *nest.axes)], nest.reduce_axes)
    if cut is None:
        return None
    long, count, size = cut
    first = _partial_sums(kernel, nest, long, count, size)
    return first, _addition(kernel, nest, first.outputs[0], count)


def chunks(results: Sequence[int], reduce_axes: Sequence[Axis]) -> tuple[Axis, int, int] | None:
    """(the axis to cut, the number of chunks, their size) for a contraction; None to leave it whole."""
    points, steps = math.prod(results), math.prod(a.extent for a in reduce_axes)
    wanted = min(steps // SHORTEST, -(-ENOUGH_RESULTS // max(points, 1)), MOST_CHUNKS)
    if wanted < 2 or points * steps < WORTH_SPLITTING:
        return None
    for a in reduce_axes:   # the outermost that is long enough: a chunk then is one piece of memory
        if a.extent >= wanted:
            count = _divisor_near(a.extent, wanted)
            return a, count, -(-a.extent // count)
    return None


def _divisor_near(extent: int, wanted: int) -> int:
    """A number of equal chunks near `wanted`, or `wanted` (the last chunk is then shorter)."""
    for count in range(wanted, wanted // 2, -1):
        if extent % count == 0:
            return count
    return -(-extent // -(-extent // wanted))


def _partial_sums(kernel: Kernel, nest: Nest, long: Axis, count: int, size: int) -> Kernel:
    chunk, inner = canonical_axis("chunk", count), canonical_axis(f"{long.name}_{size}", size)
    position = operation("add", operation("mul", axis(chunk), index_constant(size)), axis(inner))
    places = {one: index_constant(0) for one in (*kernel.outer, *nest.axes) if one.extent == 1} | {long: position}
    a, b = (replace_axes(operand, places) for operand in nest.value.operands)
    valid = replace_axes(nest.valid, places)
    if count * size != long.extent:
        inside = operation("lt", position, index_constant(long.extent))
        a, b = (guarded(operand, inside) for operand in (a, b))
        a = select(inside, a, constant(0, a.dtype))
    kept = tuple(one for one in (*kernel.outer, *nest.axes) if one.extent > 1)
    shape = (count, *[one.extent for one in kept])
    partial = canonical_buffer("partial", array_type(shape, nest.value.dtype), "global")
    value = operation("mul", a, b)
    reduce_axes = tuple(inner if one is long else one for one in nest.reduce_axes)
    sums = Nest(partial, (axis(chunk), *map(axis, kept)), (), value, "add", reduce_axes, valid)
    return intern_kernel(Kernel(f"{kernel.name}_partial", (partial,), _read(kernel.inputs, [value, valid]), (),
                                (chunk, *kept), (sums,), kind="contraction",
                                reasons=(*kernel.reasons, f"the sum in {count} chunks")))


def _addition(kernel: Kernel, nest: Nest, partial: Buffer, count: int) -> Kernel:
    chunk = canonical_axis("chunk", count)
    kept = [axis(one) for one in (*kernel.outer, *nest.axes) if one.extent > 1]
    added = replace(nest, value=load(partial, (axis(chunk), *kept)), reduce_axes=(chunk,))
    nests = (added, *kernel.nests[1:])
    exprs = [e for n in kernel.nests[1:] for e in (n.value, n.valid, *n.index)] + [*nest.index, nest.valid]
    return intern_kernel(Kernel(f"{kernel.name}_sum", kernel.outputs, (partial, *_read(kernel.inputs, exprs)),
                                kernel.scratch, kernel.outer, nests, kind="nests",
                                reasons=(*kernel.reasons, "adds the chunks")))


def _read(inputs: Iterable[Buffer], exprs: Iterable[Expr]) -> tuple[Buffer, ...]:
    """The inputs that expressions read."""
    found = {x.attribute for e in exprs for x in loads(e)}
    return tuple(b for b in inputs if b in found)

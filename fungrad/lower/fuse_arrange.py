"""Which axes of a finished kernel are outer: what the nests need in common, and what vectors should run along.

Groups bind as many axes as they can, which leaves some kernels with all their axes outer and none in their nests. Then

    no scratch, maps or sums down columns    the axes go into the nests, where the schedule orders and vectorises them
    sums down columns with a scratch total   the last axis is cut into blocks: the block is outer, its columns are inner
    sums along rows                          stay: one row at a time, vectors along it
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.expr import Axis, Buffer, Expr, axis as axis_expr, index_constant, load, operation, substitute
from ..ir.kernel import Nest
from ..ir.types import Type, array_type
from .index import Simplifier, axes_of, loads_of

MAX_COLUMNS = 512     # of a block
MIN_COLUMNS = 16

Arranged = tuple[tuple[Axis, ...], list[Nest], tuple[Buffer, ...]]
CanonicalAxis = Callable[[str, int], Axis]
CanonicalBuffer = Callable[[str, Type, str], Buffer]


def arrange(outer: tuple[Axis, ...], nests: list[Nest], scratch: tuple[Buffer, ...], simplify: Simplifier,
            canonical_axis: CanonicalAxis, canonical_buffer: CanonicalBuffer) -> Arranged:
    """Outer axes, nests and scratch of a kernel that is not a contraction, as the module's text says."""
    if not outer or any(nest.axes for nest in nests) or any(buffer.type.rank for buffer in scratch):
        return outer, nests, scratch
    reduces = [nest for nest in nests if nest.reduce_axes]
    if reduces and not _walks_columns(outer, reduces):
        return outer, nests, scratch
    if not scratch:
        return (), [replace(nest, axes=outer) for nest in nests], scratch
    return _blocks(outer, nests, scratch, simplify, canonical_axis, canonical_buffer)


def _walks_columns(outer: tuple[Axis, ...], nests: list[Nest]) -> bool:
    """Whether neighbours in the largest array that is reduced lie along an outer axis."""
    reads = [e for nest in nests for e in loads_of(nest.value)
             if e.attribute.scope == "global" and e.attribute.type.rank]
    for e in sorted(reads, key=lambda e: -e.attribute.type.nbytes):
        for position in reversed(e.operands[:-1]):
            found = axes_of(position)
            if found:
                return all(a in outer for a in found)
    return False


def _columns(extent: int) -> int:
    """The number of columns in a block: a divisor of the extent, or all of it."""
    for count in range(min(MAX_COLUMNS, extent // 4), MIN_COLUMNS - 1, -1):
        if extent % count == 0:
            return count
    return extent


def _blocks(outer: tuple[Axis, ...], nests: list[Nest], scratch: tuple[Buffer, ...], simplify: Simplifier,
            canonical_axis: CanonicalAxis, canonical_buffer: CanonicalBuffer) -> Arranged:
    last = outer[-1]
    count = _columns(last.extent)
    column = canonical_axis("i0", count)
    place: Expr = axis_expr(column)
    kept = outer[:-1]
    if count < last.extent:
        block = canonical_axis(last.name, last.extent // count)
        kept = (*kept, block)
        place = operation("add", operation("mul", axis_expr(block), index_constant(count)), place)
    wide = {buffer: canonical_buffer(buffer.name, array_type((count,), buffer.type.dtype), "scratch")
            for buffer in scratch}

    def rewrite(e: Expr) -> Expr | None:
        if e.op == "axis" and e.attribute is last:
            return place
        if e.op == "load" and e.attribute in wide:
            return load(wide[e.attribute], (axis_expr(column),), substitute(e.operands[-1], rewrite))
        return None

    def apply(e: Expr) -> Expr:
        return simplify(substitute(e, rewrite))
    changed = [replace(nest, target=wide.get(nest.target, nest.target), axes=(column,), value=apply(nest.value),
                       index=(axis_expr(column),) if nest.target in wide else tuple(map(apply, nest.index)),
                       valid=apply(nest.valid)) for nest in nests]
    return kept, changed, tuple(wide[buffer] for buffer in scratch)

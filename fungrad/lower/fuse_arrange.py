"""Which axes of a finished kernel are outer: what the nests need in common, and what vectors should run along.

Groups bind as many axes as they can, which leaves some kernels with all their axes outer and little in their nests.
Then

    no scratch, maps or sums down columns    the axes go into the nests, where the schedule orders and vectorises them
    sums down columns with a scratch total   the last axis is cut into blocks: the block is outer, its columns are inner
    little work at an outer point            likewise (rows of 10 elements, pooling windows): vectors run along a block
    sums along long rows                     stay: one row at a time, vectors along it
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from ..ir.expr import Axis, Buffer, Expr, axis as axis_expr, index_constant, load, operation, substitute
from ..ir.kernel import Nest
from ..ir.types import Type, array_type
from .index import Simplifier
from .walk import axes_of, loads_of

MAX_COLUMNS = 512     # of a block
MIN_COLUMNS = 16
SHORT = 64            # points of a nest at one outer point that are too few
BLOCK = 1024          # points that a block should have instead
MIN_OUTER = 16        # outer points that must remain in a kernel of more work than SMALL
SMALL = 32768

Arranged = tuple[tuple[Axis, ...], list[Nest], tuple[Buffer, ...]]
CanonicalAxis = Callable[[str, int], Axis]
CanonicalBuffer = Callable[[str, Type, str], Buffer]


def arrange(outer: tuple[Axis, ...], nests: list[Nest], scratch: tuple[Buffer, ...], simplify: Simplifier,
            canonical_axis: CanonicalAxis, canonical_buffer: CanonicalBuffer) -> Arranged:
    """Outer axes, nests and scratch of a kernel that is not a contraction, as the module's text says."""
    if not outer:
        return outer, nests, scratch
    flat = not any(nest.axes for nest in nests)
    reduces = [nest for nest in nests if nest.reduce_axes]
    columns = flat and (not reduces or _walks_columns(outer, reduces))
    if columns and not scratch:
        return (), [replace(nest, axes=outer) for nest in nests], scratch
    pusher = _Pusher(outer, nests, scratch, simplify, canonical_axis, canonical_buffer)
    if columns:
        pusher.push(_columns(outer[-1].extent))
    while pusher.outer:
        count = pusher.wanted()
        if count < 2:
            break
        pusher.push(count)
    return pusher.outer, pusher.nests, pusher.scratch


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


class _Pusher:
    """Moves the last outer axis, or blocks of it, into the nests of a kernel."""

    def __init__(self, outer: tuple[Axis, ...], nests: list[Nest], scratch: tuple[Buffer, ...], simplify: Simplifier,
                 canonical_axis: CanonicalAxis, canonical_buffer: CanonicalBuffer) -> None:
        self.outer = outer
        self.nests = nests
        self.scratch = scratch
        self.simplify = simplify
        self.canonical_axis = canonical_axis
        self.canonical_buffer = canonical_buffer
        self.pushed = 0

    def wanted(self) -> int:
        """How many values of the last outer axis should be inner, so that nests are not short; 1 where none."""
        inner = max(prod(a.extent for a in (*nest.axes, *nest.reduce_axes)) for nest in self.nests)
        if inner >= SHORT or not inner:
            return 1
        points = prod(a.extent for a in self.outer)
        most = min(BLOCK // inner, points // MIN_OUTER if points * inner > SMALL else points)
        last = self.outer[-1].extent
        return next((count for count in range(min(most, last), 1, -1) if last % count == 0), 1)

    def push(self, count: int) -> None:
        """Make the position in a block of `count` values of the last outer axis the first axis of every nest."""
        last = self.outer[-1]
        column = self.canonical_axis(f"c{self.pushed}", count)
        self.pushed += 1
        place: Expr = axis_expr(column)
        self.outer = self.outer[:-1]
        if count < last.extent:
            block = self.canonical_axis(last.name, last.extent // count)
            self.outer = (*self.outer, block)
            place = operation("add", operation("mul", axis_expr(block), index_constant(count)), place)
        wide = {buffer: self.canonical_buffer(buffer.name, array_type((count, *buffer.type.shape), buffer.type.dtype),
                                              "scratch") for buffer in self.scratch}

        def rewrite(e: Expr) -> Expr | None:
            if e.op == "axis" and e.attribute is last:
                return place
            if e.op == "load" and e.attribute in wide:
                *index, valid = [substitute(operand, rewrite) for operand in e.operands]
                return load(wide[e.attribute], (axis_expr(column), *index), valid)
            return None

        def apply(e: Expr) -> Expr:
            return self.simplify(substitute(e, rewrite))

        def index_of(nest: Nest) -> tuple[Expr, ...]:
            index = tuple(map(apply, nest.index))
            return (axis_expr(column), *index) if nest.target in wide else index
        self.nests = [replace(nest, target=wide.get(nest.target, nest.target), axes=(column, *nest.axes),
                              value=apply(nest.value), index=index_of(nest), valid=apply(nest.valid))
                      for nest in self.nests]
        self.scratch = tuple([wide[buffer] for buffer in self.scratch])

"""Sums over the rows of a row kernel, computed in it block by block.

    rows:  mean[i], dx[i,j] of x[i,j]           one kernel, outer axis i of N rows
    sum:   dgamma[j] = sum over i of f(x[i,j])  walks the same rows: on its own, a second pass over x

The sum joins the row kernel: partial[b,j] = sum over t < T of f(x[b*T + t, j]), whose outer axis becomes the block b,
of T rows each. What remains, dgamma[j] = sum over b of partial[b,j], is small. Blocks depend on the shapes only, so the
result does not depend on the number of threads.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.expr import Axis, Buffer, Expr, axis as axis_expr, index_constant, load, operation, substitute
from ..ir.types import Type, array_type
from .fuse_stages import Stage
from .index import Simplifier
from .walk import loads_of

MAX_BLOCK = 64            # rows
MIN_BLOCK = 4
BLOCK_BYTES = 96 << 10    # of one row-shaped scratch array for a block
MIN_BLOCKS = 16           # outer points that must remain
WORTH = 4                 # saved traffic over the partial sums' traffic


@dataclass(frozen=True, slots=True)
class BlockOf:
    """Binds a stage's dimension to the number of the block of an outer axis."""
    axis: Axis


Bound = Axis | BlockOf | None


@dataclass(slots=True)
class Rows:
    """How a reduction lies over a group's outer axes: the group's row axes, each with the reduction's axis for it."""
    pairs: list[tuple[Axis, Axis]]
    saved: int


def match_rows(stages: Sequence[Stage], bind: Mapping[Stage, tuple[Bound, ...]], outer: Sequence[Axis],
               reduction: Stage) -> Rows | None:
    """Match outer axes of a group with axes over which a stage reduces, through what the stage reads of the group or
    with it; None where some read disagrees.
    """
    own = {stage.buffer: stage for stage in stages}
    others = {e.attribute: (stage, e) for stage in stages for e in stage.reads
              if not any(isinstance(a, BlockOf) for a in bind[stage])}
    found: dict[Axis, Axis] = {}
    saved = 0
    counted: set[Buffer] = set()
    for e in reduction.reads:
        producer = own.get(e.attribute)
        if producer is not None:
            places: Sequence[Bound] = bind[producer]
        elif e.attribute in others:
            stage, f = others[e.attribute]
            at = dict(zip(stage.axes, bind[stage], strict=True))
            places = [at.get(i.attribute) if i.op == "axis" else None for i in f.operands[:-1]]
        else:
            continue
        here = [(a, i.attribute) for a, i in zip(places, e.operands[:-1], strict=True)
                if isinstance(a, Axis) and i.op == "axis"]
        if any(found.setdefault(a, b) is not b for a, b in here) or (
                producer is not None and len(here) < sum(a is not None for a in places)):
            return None
        if here and e.attribute not in counted:
            counted.add(e.attribute)
            saved += e.attribute.type.nbytes * (2 if producer is not None else 1)
    pairs = [(a, found[a]) for a in outer if a in found and found[a] in reduction.reduce_axes]
    if not pairs or len({b for _, b in pairs}) < len(pairs) or any(a.extent != b.extent for a, b in pairs):
        return None
    return Rows(pairs, saved)


def rows_in_block(rows: Rows, stages: Sequence[Stage], reduction: Stage) -> int | None:
    """How many rows a block should have; None where blocks are not worth it."""
    count = math.prod(a.extent for a, _ in rows.pairs)
    last = rows.pairs[-1][0].extent
    width = max(stage.points // count for stage in (*stages, reduction))
    itemsize = reduction.buffer.type.dtype.itemsize
    for block in range(min(MAX_BLOCK, last, BLOCK_BYTES // max(width * itemsize, 1)), MIN_BLOCK - 1, -1):
        partial = reduction.buffer.type.nbytes * count // block
        if last % block == 0 and count // block >= MIN_BLOCKS and WORTH * 2 * partial <= rows.saved:
            return block
    return None


def split_rows(reduction: Stage, rows: Rows, block: int, partial: Buffer, simplify: Simplifier
               ) -> tuple[Stage, tuple[Bound, ...]]:
    """Make `reduction` the sum of partial sums; the stage of the partial sums, and its binding to the group."""
    kept = tuple([Axis(a.name, a.extent) for a in reduction.axes])
    blocks = [Axis(f"b{number}", a.extent // (block if number == len(rows.pairs) - 1 else 1))
              for number, (a, _) in enumerate(rows.pairs)]
    inner = Axis("t", block)
    places: dict[Axis, Expr] = dict(zip(reduction.axes, map(axis_expr, kept), strict=True))
    for (_, mine), number in zip(rows.pairs, blocks, strict=True):
        places[mine] = axis_expr(number)
    last = rows.pairs[-1][1]
    places[last] = operation("add", operation("mul", axis_expr(blocks[-1]), index_constant(block)), axis_expr(inner))
    rest = tuple([a for a in reduction.reduce_axes if all(a is not b for _, b in rows.pairs)])
    assert reduction.value is not None
    value = simplify(substitute(reduction.value, lambda e: places.get(e.attribute) if e.op == "axis" else None))
    stage = Stage(reduction.number - 0.5, partial, (*blocks, *kept), value, reduction.combine, (inner, *rest), "reduce",
                  reduction.label, tuple(loads_of(value)), reduction.cost)
    again = tuple([Axis(f"r{number}", a.extent) for number, a in enumerate(blocks)])
    reduction.reduce_axes = again
    reduction.value = simplify(load(partial, tuple(map(axis_expr, (*again, *reduction.axes)))))
    reduction.reads = tuple(loads_of(reduction.value))
    reduction.cost = 0
    bound: list[Bound] = [a if number < len(rows.pairs) - 1 else BlockOf(a) for number, (a, _) in enumerate(rows.pairs)]
    return stage, (*bound, *[None] * len(kept))


def partial_type(reduction: Stage, rows: Rows, block: int) -> Type:
    """The type of the buffer of partial sums."""
    extents = [a.extent for a, _ in rows.pairs]
    extents[-1] //= block
    return array_type((*extents, *reduction.buffer.type.shape), reduction.buffer.type.dtype)

"""The tiling of a contraction, as plain numbers, and its form as a list of Opts."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import CompilationError
from ..ir.expr import Axis, Expr, index_constant
from ..ir.kernel import Opt
from .contraction_loops import Dim, at_most, less, plus, quotient, remainder, times

STAGES = ("direct", "panel", "window")


@dataclass(frozen=True, slots=True)
class Split:
    """How a class of axes is cut: one axis into pieces of `tile`, those before it fully, those after it not at all."""
    position: int = 0
    tile: int = 1


@dataclass(frozen=True, slots=True)
class Tiling:
    """The numbers from which a contraction's loop tree is built.

    swap: exchange the operands first, so that the vector lanes run along the m axes. m, n, k: the cache blocks. lanes,
    rows, vectors: the register tile, `rows` x (`vectors` * `lanes`) sums. group_m, group_n: how many blocks of m and
    of n one parallel iteration takes. stage_a, stage_b: where the micro-kernel reads an operand: "direct" from its
    buffers, "panel" from a packed copy of the block, "window" from a copy of the input region under a convolution's
    window. unroll: how many steps of the innermost k loop are written out.
    """
    m: Split
    n: Split
    k: Split
    lanes: int
    rows: int
    vectors: int
    stage_a: str = "panel"
    stage_b: str = "panel"
    swap: bool = False
    group_m: int = 1
    group_n: int = 1
    unroll: int = 1

    def opts(self) -> tuple[Opt, ...]:
        """This tiling as a schedule."""
        opts = [Opt("swap")] if self.swap else []
        opts += [Opt("split", (name, split.position, split.tile))
                 for name, split in (("m", self.m), ("n", self.n), ("k", self.k))]
        opts += [Opt("vectorize", ("n", self.lanes)), Opt("unroll", ("n", self.vectors)),
                 Opt("unroll", ("m", self.rows)), Opt("unroll", ("k", self.unroll)),
                 Opt("stage", ("a", self.stage_a)), Opt("stage", ("b", self.stage_b)),
                 Opt("parallel", ("m", self.group_m)), Opt("parallel", ("n", self.group_n))]
        return tuple(opts)


def from_opts(opts: Sequence[Opt]) -> Tiling:
    """The tiling that a schedule describes; CompilationError for an Opt that means nothing here."""
    tiling = Tiling(Split(), Split(), Split(), 1, 1, 1, "direct", "direct")
    for opt in opts:
        match opt.name, opt.arguments:
            case "swap", ():
                tiling = replace(tiling, swap=True)
            case "split", ("m" | "n" | "k" as name, int(position), int(tile)):
                tiling = replace(tiling, **{name: Split(position, tile)})
            case "vectorize", ("n", int(lanes)):
                tiling = replace(tiling, lanes=lanes)
            case "unroll", ("n" | "m" | "k" as name, int(count)):
                tiling = replace(tiling, **{{"n": "vectors", "m": "rows", "k": "unroll"}[name]: count})
            case "stage", ("a" | "b" as name, str(kind)) if kind in STAGES:
                tiling = replace(tiling, **{f"stage_{name}": kind})
            case "parallel", ("m" | "n" as name, int(group)):
                tiling = replace(tiling, **{f"group_{name}": group})
            case _:
                raise CompilationError(f"a contraction's schedule has no {opt}")
    return tiling


@dataclass(frozen=True, slots=True)
class Blocks:
    """A class of axes cut as a Split says."""
    axes: tuple[Axis, ...]
    position: int
    tile: int

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of one block."""
        return tuple(1 if i < self.position else self.tile if i == self.position else a.extent
                     for i, a in enumerate(self.axes))

    @property
    def size(self) -> int:
        return math.prod(self.extents)

    @property
    def inner(self) -> int:
        """How many indices one step along the cut axis holds."""
        return math.prod(self.extents[self.position + 1:])

    @property
    def counts(self) -> tuple[int, ...]:
        """How many blocks there are along each axis."""
        return tuple(-(-a.extent // extent) if extent else 0 for a, extent in zip(self.axes, self.extents, strict=True))

    @property
    def number(self) -> int:
        return math.prod(self.counts)

    def at(self, block: Expr) -> Range:
        """The block with this number."""
        bases: list[Expr] = []
        for count, extent in zip(reversed(self.counts), reversed(self.extents), strict=True):
            here = remainder(block, count) if bases or count > 1 else index_constant(0)
            bases.append(times(here, extent) if count > 1 else index_constant(0))
            block = quotient(block, count)
        bases.reverse()
        limit = None
        if self.axes and self.axes[self.position].extent % self.tile:
            limit = plus(self.axes[self.position].extent, times(bases[self.position], -1))
        return Range(self.axes, tuple(bases), self.extents, self.position, limit)


@dataclass(frozen=True, slots=True)
class Range:
    """One block of a class of axes: where it starts, how far it goes along each axis, and where it is cut off.

    limit: how many indices of the cut axis are inside (at least 1, it may exceed the tile); None: all of the tile.
    """
    axes: tuple[Axis, ...]
    bases: tuple[Expr, ...]
    extents: tuple[int, ...]
    position: int
    limit: Expr | None

    @property
    def size(self) -> int:
        return math.prod(self.extents)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each axis are in the row-major order of the block."""
        return tuple(math.prod(self.extents[i + 1:]) for i in range(len(self.extents)))

    def dims(self, strides: Sequence[int], suffix: str = "") -> tuple[Dim, ...]:
        """Loop dimensions over this block, with their places in packed memory."""
        return tuple(Dim(Axis(a.name + suffix, extent), stride, self._capped(i, extent))
                     for i, (a, extent, stride) in enumerate(zip(self.axes, self.extents, strides, strict=True)))

    def _capped(self, i: int, extent: int) -> Expr | None:
        if i != self.position or self.limit is None:
            return None
        return at_most(self.limit, extent)

    def values(self, local: Sequence[Expr]) -> dict[Axis, Expr]:
        """The axes in terms of indices inside the block."""
        return {a: plus(base, index) for a, base, index in zip(self.axes, self.bases, local, strict=True)}

    def row_major(self, index: Expr) -> dict[Axis, Expr]:
        """The axes in terms of one row-major index inside the block."""
        local: list[Expr] = []
        for i, (extent, stride) in enumerate(zip(self.extents, self.strides, strict=True)):
            part = quotient(index, stride)
            local.append(part if i <= self.position else remainder(part, extent))
        local = [index_constant(0) if i < self.position else e for i, e in enumerate(local)]
        return self.values(local)

    def inside(self, index: Expr, strides: Sequence[int]) -> Expr | None:
        """The condition that an index with these strides lies before the cut; None: always."""
        if self.limit is None:
            return None
        return less(index, times(self.limit, strides[self.position]))

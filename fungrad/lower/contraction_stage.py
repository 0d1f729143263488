"""Where the micro-kernel reads an operand: from its own buffers, from a packed panel, or from a copied window.

Each way answers the same question: given an index into the block's free dimension (rows of `a`, columns of `b`) and
indices into the block of k, what expression is the element? And which statements must have run before?

A *panel* holds the block as [k][free]. A *window* serves convolutions: where the operand depends on a free axis f and
a k axis t only through f + d*t (an image row and a row of the filter), it holds the region of the input under the
block once, with zeros where it is padded, instead of once for every t. Then a step in t is a step in memory, and
neighbours in f are neighbours in memory across the ends of image rows: columns are counted with the pitch of the
copied rows, and the few that fall between rows are computed and never stored. With a stride s > 1, f*s + t, each phase
t mod s has a region of its own where f are columns; rows are just s apart.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import CompilationError
from ..ir.expr import TRUE, Axis, Buffer, Expr, axis, conjunction, index_constant, load
from ..ir.types import array_type
from .contraction_analysis import forms, guarded, loads, replace_axes
from .contraction_loops import (
    Body,
    Dim,
    collapses,
    dim,
    fill,
    less,
    plus,
    quotient,
    remainder,
    round_up,
    times,
)
from .contraction_tiling import Range


@dataclass(frozen=True, slots=True)
class Staged:
    """An operand made ready for a block.

    strides: how far neighbours along each free axis are apart in the free index. padded: how many free indices there
    are, with those that only fill up the last sliver. read(free, k): the element at a free index and at indices into
    the k block. fill: what has to run first, with its buffers.
    """
    strides: tuple[int, ...]
    padded: int
    read: Callable[[Expr, Sequence[Expr]], Expr]
    fill: Body = ()
    buffers: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Axes seen only as free + step * k (phases 1), or as phases * free + k (step 1)."""
    free: Axis
    k: Axis
    step: int
    phases: int


def count(strides: Sequence[int], extents: Sequence[int]) -> int:
    """How many free indices a block spans."""
    return 1 + sum((extent - 1) * stride for stride, extent in zip(strides, extents, strict=True))


@dataclass(frozen=True, slots=True)
class Layout:
    """How staged operands lie: elements of a vector and of a cache line, registers (lanes x lanes) for transposing."""
    lanes: int
    line: int
    tile: Buffer | None


def make(kind: str, name: str, value: Expr, free: Range, k: Range, sliver: int, rows: bool, layout: Layout) -> Staged:
    """Stage an operand, of which the micro-kernel takes `sliver` free indices at once (columns as vectors)."""
    if kind == "direct":
        return direct(value, free, k, sliver, rows)
    return (panel if kind == "panel" else window)(name, value, free, k, sliver, rows, layout)


def direct(value: Expr, free: Range, k: Range, sliver: int, rows: bool) -> Staged:
    """Read the operand where it lies; outside the block it is 0. CompilationError if columns do not advance evenly."""
    strides = free.strides
    even = collapses((value,), free.axes, strides)
    padded = round_up(free.size, sliver)
    if not even and not rows:
        raise CompilationError("an operand whose columns do not advance evenly cannot be read in place")

    def read(index: Expr, ks: Sequence[Expr]) -> Expr:
        if even and free.axes:
            places = free.values([index_constant(0)] * (len(free.axes) - 1) + [index])
        else:
            places = free.row_major(index)
        element = replace_axes(value, places | k.values(ks))
        inside = free.inside(index, strides) or (less(index, free.size) if padded > free.size else None)
        return element if inside is None else guarded(element, inside)
    return Staged(strides, padded, read)


def odd_lines(elements: int, line: int) -> int:
    """At least this many elements, in an odd number of cache lines: so that columns do not share cache sets."""
    lines = -(-elements // line)
    return (lines + 1 - lines % 2) * line


def panel(name: str, value: Expr, free: Range, k: Range, sliver: int, rows: bool, layout: Layout) -> Staged:
    """Copy the block as [k][free], or as [slivers of free][k][sliver] where columns are one axis."""
    padded, lanes = round_up(free.size, sliver), layout.lanes
    if not rows and padded > sliver and sliver % lanes == 0 and free.extents[-1] == free.size:
        return _slivers(name, value, free, k, sliver, layout)
    pitch = odd_lines(padded, layout.line) if padded > 1 else 1
    k_strides = tuple(stride * pitch for stride in k.strides)
    k_dims, free_dims = k.dims(k_strides), free.dims(free.strides)
    places = free.values([axis(d.axis) for d in free_dims]) | k.values([axis(d.axis) for d in k_dims])
    buffer = Buffer(name, array_type((k.size * pitch + 2 * lanes,), value.dtype), "scratch")
    body = fill(buffer, (*k_dims, *free_dims), replace_axes(value, places), TRUE, lanes, layout.tile)

    def read(index: Expr, ks: Sequence[Expr]) -> Expr:
        return load(buffer, (plus(*[times(i, s) for i, s in zip(ks, k_strides, strict=True)], index),))
    return Staged(free.strides, padded, read, body, (buffer,))


def _slivers(name: str, value: Expr, free: Range, k: Range, sliver: int, layout: Layout) -> Staged:
    """A panel that the micro-kernel reads from front to back."""
    padded = round_up(free.size, sliver)
    stride = k.size * sliver
    k_strides = tuple(s * sliver for s in k.strides)
    k_dims, number, inside = k.dims(k_strides), dim("sliver", padded // sliver, stride), dim("inside", sliver, 1)
    index = plus(times(axis(number.axis), sliver), axis(inside.axis))
    places = free.values([index_constant(0)] * (len(free.axes) - 1) + [index])
    places |= k.values([axis(d.axis) for d in k_dims])
    valid = TRUE if padded == free.size else less(index, free.size)
    valid = conjunction(valid, free.inside(index, free.strides) or TRUE)
    lanes = layout.lanes
    buffer = Buffer(name, array_type((padded * k.size + 2 * lanes,), value.dtype), "scratch")
    body = fill(buffer, (number, *k_dims, inside), replace_axes(value, places), valid, lanes, layout.tile)

    def read(at: Expr, ks: Sequence[Expr]) -> Expr:
        return load(buffer, (plus(times(quotient(at, sliver), stride),
                                  *[times(i, s) for i, s in zip(ks, k_strides, strict=True)], remainder(at, sliver)),))
    return Staged(free.strides, padded, read, body, (buffer,))


def pairs(value: Expr, free: Sequence[Axis], k: Sequence[Axis]) -> tuple[Pair, ...]:
    """The pairs of axes that an operand sees only in combination; empty where there are none or they are entangled."""
    separate = [form for x in loads(value) for form in forms(x.operands[:-1])]
    found: dict[Axis, Pair] = {}
    for form in separate:
        frees = [a for a in free if form.coefficient(a)]
        ks = [a for a in k if form.coefficient(a)]
        if not frees or not ks:
            continue
        if len(frees) > 1 or len(ks) > 1:
            return ()
        f, t = form.coefficient(frees[0]), form.coefficient(ks[0])
        if t % f == 0:
            pair = Pair(frees[0], ks[0], t // f, 1)
        elif f % t == 0 and f // t > 0:
            pair = Pair(frees[0], ks[0], 1, f // t)
        else:
            return ()
        if found.setdefault(pair.free, pair) != pair:
            return ()
    if len({pair.k for pair in found.values()}) != len(found):
        return ()
    everywhere = forms((value,))
    for pair in found.values():
        if any(pair.step * f.coefficient(pair.free) != pair.phases * f.coefficient(pair.k) for f in everywhere):
            return ()
    return tuple(found[a] for a in free if a in found)


def window(name: str, value: Expr, free: Range, k: Range, sliver: int, rows: bool, layout: Layout) -> Staged:
    """Copy the region of the input under the block. CompilationError where the operand has no window."""
    found = {pair.free: pair for pair in pairs(value, free.axes, k.axes)}
    if not found:
        raise CompilationError("an operand without a window cannot be staged as one")
    paired = {pair.k: pair for pair in found.values()}
    region = _Region(free, k, found, paired, apart=not rows)
    strides = region.free_strides
    if not rows:
        span = count(strides, free.extents)
        padded = round_up(span, sliver)
        beyond = padded - span
    else:   # rows are counted without gaps; those past the end advance along the cut axis
        padded = round_up(free.size, sliver)
        inner = math.prod(free.extents[free.position + 1:])
        beyond = (-(-padded // inner) - free.extents[free.position]) * strides[free.position]
    buffer = Buffer(name, array_type((region.size + beyond + 2 * layout.lanes,), value.dtype), "scratch")
    body = fill(buffer, region.dims, replace_axes(value, region.places), region.valid, layout.lanes, layout.tile)

    def read(index: Expr, ks: Sequence[Expr]) -> Expr:
        return load(buffer, (plus(index, region.k_place(ks)),))
    return Staged(strides, padded, read, body, (buffer,))


class _Region:
    """The layout of a window: [phases][k axes without a pair][free axes, widened by their pair].

    apart: phases lie apart, so that neighbours in the free axis are neighbours in memory; else a step in the free axis
    is a step of `phases` in memory.
    """

    def __init__(self, free: Range, k: Range, found: dict[Axis, Pair], paired: dict[Axis, Pair], *, apart: bool):
        self.free, self.k, self.found, self.apart = free, k, found, apart
        self.k_index = {a: i for i, a in enumerate(k.axes)}
        dims: list[tuple[str, Axis, int, Expr | None]] = []
        for pair in found.values():
            if apart and pair.phases > 1:
                if k.extents[self.k_index[pair.k]] != pair.k.extent:
                    raise CompilationError(f"axis {pair.k} cannot be cut: the window's phases go through it")
                dims.append(("phase", pair.free, min(pair.phases, pair.k.extent), None))
        k_dims = k.dims(k.strides)
        dims += [("k", a, d.extent, d.limit)
                 for a, d in zip(k.axes, k_dims, strict=True) if a not in paired]
        for a, d in zip(free.axes, free.dims(free.strides), strict=True):
            dims.append(("free", a, self.extent(a, d.extent), self._limit(a, d, k_dims)))
        self.strides: dict[tuple[str, Axis], int] = {}
        size = 1
        for kind, a, extent, _ in reversed(dims):
            self.strides[kind, a] = size
            size *= extent
        self.size = size
        self.dims = tuple(Dim(Axis(f"{a.name}_{kind}", extent), self.strides[kind, a], limit)
                          for kind, a, extent, limit in dims)
        self.local = {(kind, a): axis(d.axis) for (kind, a, _, _), d in zip(dims, self.dims, strict=True)}
        self.free_strides = tuple(self.strides["free", a] * self.factor(a) for a in free.axes)
        self.places, self.valid = self._places()

    def factor(self, a: Axis) -> int:
        """How far a step in a free axis goes in the region."""
        pair = self.found.get(a)
        return 1 if pair is None or self.apart else pair.phases

    def extent(self, a: Axis, extent: int) -> int:
        """The extent in the region of `extent` indices of a free axis."""
        pair = self.found.get(a)
        return extent if pair is None else region_extent(pair, extent, self.k.extents[self.k_index[pair.k]], self.apart)

    def _limit(self, a: Axis, d: Dim, k_dims: Sequence[Dim]) -> Expr | None:
        pair = self.found.get(a)
        if pair is None:
            return d.limit
        taps = k_dims[self.k_index[pair.k]]
        if d.limit is None and taps.limit is None:
            return None
        inside = index_constant(d.extent) if d.limit is None else d.limit
        if taps.limit is None or (self.apart and pair.phases > 1):
            return plus(times(inside, self.factor(a)), self.extent(a, 1) - self.factor(a))
        return plus(times(plus(inside, -1), self.factor(a)), times(plus(taps.limit, -1), abs(pair.step)), 1)

    def _lowest(self, pair: Pair) -> int:
        """The least step * k."""
        return min(0, pair.step) * (self.k.extents[self.k_index[pair.k]] - 1)

    def _places(self) -> tuple[dict[Axis, Expr], Expr]:
        """The operand's axes at a place of the region, and where that place belongs to some free and k index."""
        places: dict[Axis, Expr] = {}
        valid = TRUE
        for a, base in zip(self.k.axes, self.k.bases, strict=True):
            places[a] = plus(base, self.local["k", a]) if ("k", a) in self.local else base
        for a, base in zip(self.free.axes, self.free.bases, strict=True):
            pair, here = self.found.get(a), self.local["free", a]
            if pair is None or pair.phases == 1:
                places[a] = plus(base, here, self._lowest(pair) if pair is not None else 0)
            elif not self.apart:
                places[a] = base
                places[pair.k] = plus(places[pair.k], here)
            else:
                places[a] = plus(base, here)
                places[pair.k] = self.local["phase", a]
                last = pair.phases * (a.extent - 1) + pair.k.extent - 1
                if (pair.k.extent - 1) % pair.phases != pair.phases - 1:
                    valid = conjunction(valid, less(plus(times(places[a], pair.phases), places[pair.k]), last + 1))
        return places, valid

    def k_place(self, ks: Sequence[Expr]) -> Expr:
        """How far indices into the k block move the place."""
        terms: list[Expr | int] = []
        for a, index in zip(self.k.axes, ks, strict=True):
            pair = next((p for p in self.found.values() if p.k is a), None)
            if pair is None:
                terms.append(times(index, self.strides["k", a]))
                continue
            stride = self.strides["free", pair.free]
            if self.apart and pair.phases > 1:
                terms += [times(remainder(index, pair.phases), self.strides["phase", pair.free]),
                          times(quotient(index, pair.phases), stride)]
            else:
                terms.append(plus(times(index, stride * pair.step), -self._lowest(pair) * stride))
        return plus(*terms)


def region_extent(pair: Pair, extent: int, taps: int, apart: bool) -> int:
    """How long the region under `extent` free and `taps` k indices is (with `apart`: one phase of it)."""
    if pair.phases == 1:
        return extent + abs(pair.step) * (taps - 1)
    return extent + (taps - 1) // pair.phases if apart else pair.phases * (extent - 1) + taps

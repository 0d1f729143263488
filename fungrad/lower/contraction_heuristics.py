"""Good tilings from the shape of a contraction and the caches of the target: a few dozen candidates, priced by a model.

The prices are cycles an element, measured on a Zen 5 core; only their ratios matter. What decides: how much of the
register tile is wasted at the edges, whether an operand must be transposed or gathered while it is packed, how often
each is packed, whether results are stored contiguously, and whether the tiles can be shared evenly among the threads.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir.expr import TRUE, Axis, Expr, load
from ..ir.target import Target
from .affine import Form
from .contraction_analysis import Contraction, forms, loads
from .contraction_loops import collapses, contiguous, round_up
from .contraction_stage import Pair, count, pairs, region_extent
from .contraction_tiling import Blocks, Split, Tiling

CONTIGUOUS, TRANSPOSED, GATHERED = 0.15, 0.4, 1.5   # cycles to pack an element, by how its source lies
STORED, COPIED, SCATTERED = 0.1, 0.3, 1.5           # cycles to store a result element
CALL = 25                                           # cycles around one run of the micro-kernel
LONGEST_K = 1024                                    # the longest sum that is kept in registers
PACKING_SHARE = 0.01                                # packing below this share of the work need not be shared
UNEVEN = 0.25                                       # how much of a tile threads wait for one another at the end
LINE = 64                                           # bytes of a cache line
SHORT_RUN = 8                                       # k loops up to this long may be written out
PARALLEL_CYCLES = 20_000                            # work below this is not worth sharing among threads
REGISTER_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 25)
STREAM_ROWS, STREAM_K, STREAM_COLUMNS = 8, 4, 1024  # few rows: b is read once, a few of its rows side by side


def choose(contraction: Contraction, target: Target) -> Tiling:
    """A tiling for this contraction on this target."""
    best, choice = math.inf, None
    both = [_Sides(contraction.swapped() if swap else contraction, target) for swap in (False, True)]
    streaming = any(sides.streams() for sides in both)   # it sums in an order of its own: not a matter of threads
    for swap, sides in enumerate(both):
        if streaming and not sides.streams():
            continue
        for tiling in sides.candidates():
            cycles = sides.cycles(tiling)
            if cycles < best:
                best, choice = cycles, replace(tiling, swap=bool(swap))
    assert choice is not None
    return choice


@dataclass(frozen=True, slots=True)
class _Operand:
    """What packing an operand costs and allows."""
    pairs: tuple[Pair, ...]
    packing: float      # cycles an element of a panel
    filling: float      # cycles an element of a window
    plain: bool         # nothing but one read that is always valid
    even: bool          # its free axes advance evenly
    along: bool         # consecutive free indices are consecutive in memory
    step: int           # the distance, in elements, of neighbours in k


@dataclass(frozen=True, slots=True)
class _Cut:
    """The properties of Blocks that prices need, computed once."""
    extents: tuple[int, ...]
    size: int
    number: int


class _Sides:
    """The candidates for one assignment of the operands to rows and lanes."""

    def __init__(self, c: Contraction, target: Target):
        self.c, self.target = c, target
        self.itemsize = c.dtype.itemsize
        self.cuts: dict[tuple[tuple[Axis, ...], Split], _Cut] = {}
        self.tiles: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.lanes = max(target.vector_bytes // self.itemsize, 1) if c.n else 1
        self.a, self.b = _operand(c.a, c.m, c.k), _operand(c.b, c.n, c.k)
        self.k = math.prod(a.extent for a in c.k)
        self.batch = math.prod(a.extent for a in c.batch)
        self.stored = _form(load(c.outputs[0].target, c.outputs[0].index)) if c.outputs else Form(0)

    def blocks(self, axes: tuple[Axis, ...], split: Split) -> _Cut:
        """A class of axes cut as `split` says."""
        key = axes, split
        found = self.cuts.get(key)
        if found is None:
            blocks = Blocks(axes, split.position, split.tile)
            found = self.cuts[key] = _Cut(blocks.extents, blocks.size, blocks.number)
        return found

    # -- candidates ----------------------------------------------------------------------------------------------------

    def candidates(self) -> Iterator[Tiling]:
        """Tilings that can be built."""
        k = self.split_k()
        unroll = self.unroll(k)
        if self.streams():
            yield self.streaming()
            return
        for stage_b in self.stages_b():
            for n in self.splits_n(stage_b, k):
                columns = self.columns(stage_b, n, k)
                for m in self.splits_m(columns):
                    rows = self.blocks(self.c.m, m).size
                    for stage_a in self.stages_a(m):
                        tile = self.register_tile(stage_a, rows, columns)
                        tiling = Tiling(m, n, k, self.lanes, *tile, stage_a, stage_b, unroll=unroll)
                        yield self.grouped(tiling)

    def streams(self) -> bool:
        """Whether a few rows meet a large b that needs no packing."""
        return (math.prod(a.extent for a in self.c.m) <= STREAM_ROWS and self.k > 4 * STREAM_K
                and self.b.plain and self.b.even and self.b.along and not self.b.pairs
                and self.a.plain and not self.a.pairs and self.c.k[-1].extent % STREAM_K == 0)

    def streaming(self) -> Tiling:
        """Nothing is packed, b streams by, a few of its rows side by side."""
        rows = math.prod(a.extent for a in self.c.m)
        m = Split(0, self.c.m[0].extent) if self.c.m else Split()
        n = cut(self.c.n, STREAM_COLUMNS, 1.0, 2 * self.lanes)
        return Tiling(m, n, cut(self.c.k, STREAM_K, 1.0), self.lanes, rows, 2, "direct", "direct", unroll=STREAM_K)

    def split_k(self) -> Split:
        """All of k at once if it is short, else near-equal blocks; a window's phases are never cut."""
        split = cut(self.c.k, LONGEST_K, 1.0)
        phased = {pair.k for side in (self.a, self.b) for pair in side.pairs if pair.phases > 1}
        if self.c.k and self.c.k[split.position] in phased:
            return Split(split.position, self.c.k[split.position].extent)
        return split

    def unroll(self, k: Split) -> int:
        """Whether to write out the innermost k loop."""
        if len(self.c.k) > 1 and k.position < len(self.c.k) - 1 and self.b.pairs and self.k <= 64:
            last = self.c.k[-1].extent
            return last if last <= SHORT_RUN else 1
        return 1

    def stages_a(self, m: Split) -> Iterator[str]:
        if self.a.plain and not self.a.pairs and self.whole(m):
            footprint = self.a.step * self.itemsize * min(self.k, LONGEST_K)
            if self.a.step == 1 or footprint <= self.target.caches[1]:
                yield "direct"
        yield "window" if self.a.pairs else "panel"

    def whole(self, m: Split) -> bool:
        """Whether all blocks of rows are full."""
        return not self.c.m or self.c.m[m.position].extent % m.tile == 0

    def stages_b(self) -> Iterator[str]:
        b = self.b
        if not self.c.n:
            yield "direct"
            return
        if b.plain and b.even and b.along and not b.pairs:
            if min(self.k, LONGEST_K) * b.step * self.itemsize <= 4 * self.target.caches[1]:
                yield "direct"
        yield "window" if b.pairs else "panel"

    def splits_n(self, stage_b: str, k: Split) -> Iterator[Split]:
        """Blocks of n: by the cache, and smaller ones for balance."""
        c, target = self.c, self.target
        if not c.n:
            yield Split()
            return
        depth = min(self.k, LONGEST_K)
        most = max(2 * target.caches[1] // (depth * self.itemsize), 4 * self.lanes)
        widen = 1.0
        if stage_b == "window":
            most = max(target.caches[1] // 2 // self.itemsize // self.window_depth(k), 4 * self.lanes)
            widen = self.widening(k)
        seen = set()
        for share in (1, 2, 4, 8):
            split = cut(c.n, max(most // share, 2 * self.lanes), widen, self.lanes * 2 if len(c.n) == 1 else 1)
            if split not in seen:
                seen.add(split)
                yield split

    def splits_m(self, columns: int) -> Iterator[Split]:
        """Blocks of m: by the cache, for packed rows and for the block's sums, and smaller ones for balance."""
        depth, cache = min(self.k, LONGEST_K), self.target.caches[1] // self.itemsize
        most = max(min(2 * cache // depth, cache // 2 // columns), 16)
        seen = set()
        for share in (1, 2, 4):
            split = cut(self.c.m, max(most // share, 16), 1.0, 8 if len(self.c.m) == 1 else 1)
            if split not in seen:
                seen.add(split)
                yield split

    def window_depth(self, k: Split) -> int:
        """How many planes a window of b holds: the k axes without a pair."""
        paired = {pair.k for pair in self.b.pairs}
        extents = self.blocks(self.c.k, k).extents
        phases = math.prod(min(pair.phases, pair.k.extent) for pair in self.b.pairs)
        return max(math.prod(e for a, e in zip(self.c.k, extents, strict=True) if a not in paired) * phases, 1)

    def widening(self, k: Split) -> float:
        """How much longer rows of a window are than rows of the result."""
        extents = dict(zip(self.c.k, self.blocks(self.c.k, k).extents, strict=True))
        return math.prod(region_extent(pair, pair.free.extent, extents[pair.k], True) / pair.free.extent
                         for pair in self.b.pairs)

    def columns(self, stage_b: str, n: Split, k: Split) -> int:
        """How many columns a block has, with those between the rows of a window."""
        blocks = self.blocks(self.c.n, n)
        if stage_b != "window":
            return blocks.size
        return count(self.strides_b(n, k), blocks.extents)

    def strides_b(self, n: Split, k: Split) -> tuple[int, ...]:
        k_extents = dict(zip(self.c.k, self.blocks(self.c.k, k).extents, strict=True))
        paired = {pair.free: pair for pair in self.b.pairs}
        strides, size = [], 1
        for a, extent in zip(reversed(self.c.n), reversed(self.blocks(self.c.n, n).extents), strict=True):
            strides.append(size)
            size *= region_extent(paired[a], extent, k_extents[paired[a].k], True) if a in paired else extent
        return tuple(reversed(strides))

    def register_tile(self, stage_a: str, rows: int, columns: int) -> tuple[int, int]:
        """Rows and vectors of the register tile: the least cycles for a block."""
        key = (stage_a, rows, columns)
        if key in self.tiles:
            return self.tiles[key]
        best, choice = math.inf, (1, 1)
        depth = max(min(self.k, LONGEST_K), 1)
        inner = self.c.m[-1].extent if stage_a == "window" else 1
        for r, vectors in _register_tiles(self.target.vector_registers, self.lanes > 1):
            if r > rows or (stage_a == "direct" and rows % r):
                continue
            call = CALL + 2 * r * vectors + (0 if r % inner == 0 or inner % r == 0 else 6 * r)
            tiles = -(-columns // (vectors * self.lanes)) * -(-rows // r)
            cycles = tiles * (depth * self.step(r, vectors, depth, stage_a) + call)
            if cycles < best:
                best, choice = cycles, (r, vectors)
        self.tiles[key] = choice
        return choice

    def step(self, rows: int, vectors: int, depth: int, stage_a: str) -> float:
        """Cycles of one step in k; more where slivers come from the second cache."""
        cycles, line = step_cycles(rows, vectors), vectors * self.lanes * self.itemsize
        if line * depth > 0.75 * self.target.caches[0]:
            cycles = max(cycles, line / 24) + 0.002 * line
        if stage_a == "direct" and self.a.step > 1 and self.evicted(self.a.step, depth, 0):
            cycles += 8.0 if self.evicted(self.a.step, depth, 1) else 2.0
        return cycles

    def evicted(self, step: int, lines: int, level: int) -> bool:
        """Whether so many cache lines, `step` elements apart, are more than their sets of a cache hold."""
        size, distance = self.target.caches[level], max(step * self.itemsize // LINE, 1)
        ways = max(size // 4096, 1) if level == 0 else 16   # a set of the first cache is found in a page's offset
        sets = max(size // (LINE * ways), 1)
        return lines > ways * (sets // math.gcd(sets, distance))

    def grouped(self, t: Tiling) -> Tiling:
        """Several blocks for one packing of the operand that costs more, while tiles are left for the threads."""
        m, n, k = (self.blocks(axes, split) for axes, split in ((self.c.m, t.m), (self.c.n, t.n), (self.c.k, t.k)))
        if k.number > 1:
            return t
        block = m.size * n.size * k.size / 32
        saved_a = self.pack_a(t, m, k) if n.number > 1 else 0.0
        saved_b = 0.0
        if m.number > 1 and t.stage_b != "direct":
            saved_b = self.pack_b(t, n, k, self.columns(t.stage_b, t.n, t.k))
        wanted = math.ceil(max(saved_a, saved_b) / (PACKING_SHARE * block))
        most = max(self.batch * m.number * n.number // (8 * self.target.threads), 1)
        if saved_a > saved_b:
            return replace(t, group_n=min(n.number, most, wanted))
        return replace(t, group_m=min(m.number, most, wanted)) if saved_b else t

    # -- prices --------------------------------------------------------------------------------------------------------

    def cycles(self, t: Tiling) -> float:
        """The model's time for a tiling."""
        m, n, k = (self.blocks(axes, split) for axes, split in ((self.c.m, t.m), (self.c.n, t.n), (self.c.k, t.k)))
        columns = self.columns(t.stage_b, t.n, t.k)
        slivers = -(-columns // (t.vectors * self.lanes)) * -(-m.size // t.rows)
        call = CALL + 2 * t.rows * t.vectors * (1.5 if k.number > 1 else 1)
        block = k.number * slivers * (k.size * self.step(t.rows, t.vectors, k.size, t.stage_a) + call)
        block += m.size * n.size * self.storing(t, k)
        packing_a, packing_b = self.pack_a(t, m, k), self.pack_b(t, n, k, columns)
        if k.number > 1:
            tile = t.group_m * t.group_n * (block + k.number * (packing_a + packing_b))
        elif t.group_m > 1:
            tile = t.group_n * (packing_b + t.group_m * (packing_a + block))
        else:
            tile = packing_a + t.group_n * (packing_b + block)
        tiles = self.batch * -(-m.number // t.group_m) * -(-n.number // t.group_n)
        return self.shared(tile, tiles) / self.filled(m, n) ** 0.9

    def shared(self, tile: float, tiles: int) -> float:
        """The time of tiles shared among the threads."""
        threads = self.target.threads if tile * tiles > PARALLEL_CYCLES else 1
        return max(-(-tiles // threads), tiles / threads + (UNEVEN if threads > 1 else 0.0)) * tile

    def filled(self, m: _Cut, n: _Cut) -> float:
        """How much larger the blocks together are than the result: the last ones stop early."""
        return (m.number * m.size * n.number * n.size) / max(math.prod(a.extent for a in (*self.c.m, *self.c.n)), 1)

    def pack_b(self, t: Tiling, n: _Cut, k: _Cut, columns: int) -> float:
        if t.stage_b == "direct":
            far = self.evicted(self.b.step, k.size, 1)
            return k.size * n.size * (0.25 if k.size <= STREAM_K else 0.6 if far else 0.05)
        if t.stage_b == "window":
            return self.window_depth(t.k) * columns * self.b.filling
        return k.size * n.size * self.b.packing

    def pack_a(self, t: Tiling, m: _Cut, k: _Cut) -> float:
        if t.stage_a == "direct":
            return 0.0
        if t.stage_a == "panel":
            return k.size * m.size * self.a.packing
        extents = dict(zip(self.c.m, m.extents, strict=True)) | dict(zip(self.c.k, k.extents, strict=True))
        size = 1.0
        paired = {pair.k for pair in self.a.pairs}
        for a, e in extents.items():
            size *= 1 if a in paired else e
        for pair in self.a.pairs:
            size *= region_extent(pair, extents[pair.free], extents[pair.k], False) / extents[pair.free]
        return size * self.a.filling

    def storing(self, t: Tiling, k: _Cut) -> float:
        along_n = bool(self.c.n) and self.stored.coefficient(self.c.n[-1]) == 1
        if along_n:
            return STORED if k.number == 1 and t.stage_b != "window" else COPIED
        along_m = bool(self.c.m) and self.stored.coefficient(self.c.m[-1]) == 1
        return 2 * COPIED if along_m else SCATTERED


@lru_cache
def _register_tiles(registers: int, vector: bool) -> tuple[tuple[int, int], ...]:
    """Register tiles (rows, vectors) that leave registers for a step's operands."""
    return tuple((rows, vectors) for vectors in range(1, 7 if vector else 2) for rows in REGISTER_ROWS
                 if rows * vectors + vectors + 1 <= registers)


def step_cycles(rows: int, vectors: int) -> float:
    """Cycles of one step in k: two multiply-adds and two loads a cycle, latency 4."""
    return max(rows * vectors / 2, 4.0, (rows + vectors) / 2) + 0.02 * (rows + vectors) + 0.2


def cut(axes: Sequence[Axis], most: float, widen: float, multiple: int = 1) -> Split:
    """The cut of a class of axes into near-equal blocks of at most about `most` indices, a multiple of `multiple`.

    widen: the inner axes take this many times their size.
    """
    size = 1
    for position in range(len(axes) - 1, -1, -1):
        extent = axes[position].extent
        if size * extent * widen > most:
            tile = max(int(most / (size * widen)), 1)
            pieces = -(-extent // tile)
            tile = round_up(-(-extent // pieces), multiple)
            near = range(max(round_up(tile * 3 // 4, multiple), multiple), tile * 5 // 4 + 1, multiple)
            whole = [t for t in near if extent % t == 0]
            return Split(position, min(whole, key=lambda t: abs(t - tile)) if whole else min(tile, extent))
        size *= extent
    return Split(0, axes[0].extent) if axes else Split()




def _form(e: Expr) -> Form:
    return forms((e,))[0]


def _operand(value: Expr, free: tuple[Axis, ...], k: tuple[Axis, ...]) -> _Operand:
    """Look at how an operand is read."""
    found = pairs(value, free, k)
    reads = [x for x in loads(value)]
    plain = value.op == "load" and value.operands[-1] is TRUE and len(reads) == 1
    along = bool(free) and contiguous((value,), free[-1])
    along_k = any(contiguous((value,), a, step) for a in k for step in (1, -1))
    form = forms((reads[0],))[0] if reads else Form(0)
    step = abs(form.coefficient(k[-1])) if k else 1
    strides = [math.prod(a.extent for a in free[i + 1:]) for i in range(len(free))]
    packing = CONTIGUOUS if along else TRANSPOSED if along_k else GATHERED
    filling = CONTIGUOUS * 1.5 if along or along_k else GATHERED
    return _Operand(found, packing, filling, plain, collapses((value,), free, strides), along, step)

"""Good tilings in microseconds, from the shape of a contraction and the caches of the target."""
from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.expr import Axis, load
from ..ir.target import Target
from .affine import Analysis
from .contraction_analysis import Contraction, forms
from .contraction_loops import round_up
from .contraction_stage import pairs
from .contraction_tiling import Split, Tiling


def choose(contraction: Contraction, target: Target) -> Tiling:
    """A tiling for this contraction on this target."""
    swap = _swapped(contraction)
    c = contraction.swapped() if swap else contraction
    lanes = max(target.vector_bytes // c.dtype.itemsize, 1) if c.n else 1
    stage_a = "window" if pairs(c.a, c.m, c.k) else "panel"
    stage_b = "window" if pairs(c.b, c.n, c.k) else "panel"
    k = _split(c.k, 512)
    columns = _split(c.n, 512)
    m = _split(c.m, 192)
    rows, vectors = _register_tile(_size(c.m, m), _size(c.n, columns), lanes, target.vector_registers)
    return Tiling(m, columns, k, lanes, rows, vectors, stage_a, stage_b, swap)


def _swapped(c: Contraction) -> bool:
    """Whether lanes should run along the m axes: so that the first output is written contiguously."""
    if not c.n or not c.m:
        return not c.n
    analysis = Analysis()
    stored = forms(analysis, (load(c.outputs[0].target, c.outputs[0].index),))[0]
    return min((abs(stored.coefficient(a)) or math.inf for a in c.m)) < \
        min((abs(stored.coefficient(a)) or math.inf for a in c.n))


def _size(axes: Sequence[Axis], split: Split) -> int:
    return math.prod([split.tile if i == split.position else a.extent for i, a in enumerate(axes) if i >= split.position])


def _split(axes: Sequence[Axis], most: int) -> Split:
    """The cut of a class of axes into near-equal blocks of at most about `most` indices."""
    size = 1
    for position in range(len(axes) - 1, -1, -1):
        extent = axes[position].extent
        if size * extent > most:
            pieces = -(-size * extent // most)
            return Split(position, max(-(-extent // pieces), 1))
        size *= extent
    return Split(0, axes[0].extent) if axes else Split()


def _register_tile(m: int, n: int, lanes: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of the register tile: the least cycles for a block of m x n."""
    best, choice = math.inf, (1, 1)
    for vectors in range(1, 7):
        for rows in range(1, 15):
            if rows * vectors + vectors + 1 > registers:
                break
            tiles = -(-m // rows) * -(-n // (vectors * lanes))
            cycles = max(rows * vectors / 2, 4, (rows + vectors) / 2 * 1.1) + 0.5 + 0.05 * (rows + vectors)
            if tiles * cycles < best:
                best, choice = tiles * cycles, (rows, vectors)
    return choice

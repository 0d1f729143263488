"""Values that are put together from pieces along an axis (a concatenation): each piece is a stage of its own.

    y[i, j] = select(j < 4, a[i, j], b[i, j - 4])   ->   y[i, j] = a[i, j] for j < 4;   y[i, 4 + j] = b[i, j]

No element is then computed twice or chosen, and a piece may be the epilogue of the kernel that computes it: the three
parts of a gradient are written side by side by the products that make them. Axes of a piece that are only taken apart
again are split (see `fuse_axes`), so that the piece has the axes of what it reads.
"""
from __future__ import annotations

from dataclasses import dataclass

from ..ir.expr import Axis, Expr, axis as axis_expr, index_constant, operation, substitute
from .fuse_axes import pieces_of_axes, radices
from .index import Simplifier

MIN_ELEMENTS = 1 << 14     # of an array that is made in pieces
MAX_PIECES = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an array: `whole[place] = value` for every point of `axes`."""
    axes: tuple[Axis, ...]
    place: tuple[Expr, ...]
    value: Expr


def pieces_of(value: Expr, axes: tuple[Axis, ...], simplify: Simplifier) -> list[Piece]:
    """The pieces of a value over `axes`; one, with everything, where it is not put together from several."""
    cut = _axis_of_choice(value, axes)
    if cut is None:
        return [Piece(axes, tuple(map(axis_expr, axes)), value)]
    ranges: list[tuple[int, int, Expr]] = []
    _cut(value, cut, 0, cut.extent, ranges)
    if not 1 < len(ranges) <= MAX_PIECES:
        return [Piece(axes, tuple(map(axis_expr, axes)), value)]
    return [_piece(axes, cut, low, high, part, simplify) for low, high, part in ranges]


def _limit(value: Expr) -> tuple[Axis, int] | None:
    """The axis and number n of a choice by `axis < n` or `axis >= n`."""
    if value.op != "select" or value.operands[0].op not in ("lt", "ge"):
        return None
    position, limit = value.operands[0].operands
    if position.op != "axis" or limit.op != "constant":
        return None
    return position.attribute, int(limit.attribute.value)


def _axis_of_choice(value: Expr, axes: tuple[Axis, ...]) -> Axis | None:
    found = _limit(value)
    return found[0] if found is not None and found[0] in axes else None


def _cut(value: Expr, cut: Axis, low: int, high: int, ranges: list[tuple[int, int, Expr]]) -> None:
    """Collect what `value` is in parts of the range [low, high) of an axis."""
    while True:
        found = _limit(value)
        if found is None or found[0] is not cut:
            ranges.append((low, high, value))
            return
        limit = found[1]
        below, above = value.operands[1:] if value.operands[0].op == "lt" else value.operands[:0:-1]
        if limit <= low:
            value = above
        elif limit >= high:
            value = below
        else:
            _cut(below, cut, low, limit, ranges)
            value, low = above, limit


def _piece(axes: tuple[Axis, ...], cut: Axis, low: int, high: int, value: Expr, simplify: Simplifier) -> Piece:
    own = tuple([Axis(a.name, high - low if a is cut else a.extent) for a in axes])
    shifted = {a: axis_expr(b) if a is not cut or not low else operation("add", axis_expr(b), index_constant(low))
               for a, b in zip(axes, own, strict=True)}

    def replaced(e: Expr, by: dict[Axis, Expr]) -> Expr:
        return simplify(substitute(e, lambda x: by.get(x.attribute) if x.op == "axis" else None))
    value = replaced(value, shifted)
    place = tuple([simplify(shifted[a]) for a in axes])
    split, values = pieces_of_axes(own, radices([value]), Axis)
    if values:
        value = replaced(value, values)
        place = tuple([replaced(e, values) for e in place])
        own = tuple([part for a in own for part in split.get(a, (a,))])
    return Piece(own, place, value)

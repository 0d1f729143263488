"""Axes of a finished kernel: an axis that is only taken apart again is split.

A reshape leaves x[i div 5, i rem 5]. With i = 5*j + k the read is x[j, k], which later stages see as plain strides.
Axes are split where every quotient and remainder by constants fits into one mixed radix.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.expr import Axis, Expr, axis as axis_expr, index_constant, operation, substitute
from ..ir.kernel import Nest
from .index import Simplifier
from .walk import subexpressions

Canonical = Callable[[str, int], Axis]
MAX_PIECES = 4


def split_axes(outer: tuple[Axis, ...], nests: list[Nest], simplify: Simplifier,
               canonical: Canonical) -> tuple[tuple[Axis, ...], list[Nest]]:
    """The outer axes and nests of a kernel with axes split as the module's text says."""
    found = radices([e for nest in nests for e in (nest.value, nest.valid, *nest.index)])
    if not found:
        return outer, nests
    pieces, value = pieces_of_axes(outer, found, canonical)
    rewritten = []
    for nest in nests:
        nest_pieces, nest_value = pieces_of_axes((*nest.axes, *nest.reduce_axes), found, canonical)
        if not value and not nest_value:
            rewritten.append(nest)
            continue
        both = {**value, **nest_value}

        def replace(e: Expr, both: dict[Axis, Expr] = both) -> Expr | None:
            return both.get(e.attribute) if e.op == "axis" else None

        def apply(e: Expr, replace: Callable[[Expr], Expr | None] = replace) -> Expr:
            return simplify(substitute(e, replace))
        rewritten.append(Nest(nest.target, tuple(map(apply, nest.index)), _all(nest.axes, nest_pieces),
                              apply(nest.value), nest.combine, _all(nest.reduce_axes, nest_pieces), apply(nest.valid)))
    return _all(outer, pieces), rewritten


def radices(expressions: Sequence[Expr]) -> dict[Axis, list[int]]:
    """For every axis that can be split: the divisors, each one a multiple of the one before."""
    found: dict[Axis, set[int]] = {}
    for e in subexpressions(*expressions):
        if e.op not in ("div", "rem") or e.operands[1].op != "constant" or e.dtype.kind != "i":
            continue
        inner, divisor = e.operands[0], int(e.operands[1].attribute.value)
        while inner.op == "div" and inner.operands[1].op == "constant" and inner.dtype.kind == "i":
            divisor *= int(inner.operands[1].attribute.value)
            inner = inner.operands[0]
        if inner.op == "axis":
            found.setdefault(inner.attribute, set()).add(divisor)
            if e.op == "rem" and e.operands[0] is not inner:
                found[inner.attribute].add(divisor // int(e.operands[1].attribute.value))
    result = {}
    for a, divisors in found.items():
        chain = sorted(d for d in divisors if 1 < d < a.extent)
        if chain and len(chain) < MAX_PIECES and all(
                big % small == 0 for small, big in zip(chain, [*chain[1:], a.extent], strict=True)):
            result[a] = chain
    return result


def pieces_of_axes(axes: tuple[Axis, ...], radices: dict[Axis, list[int]],
                   canonical: Canonical) -> tuple[dict[Axis, tuple[Axis, ...]], dict[Axis, Expr]]:
    """The parts of the axes that are split, and every such axis in terms of its parts."""
    pieces: dict[Axis, tuple[Axis, ...]] = {}
    values: dict[Axis, Expr] = {}
    for a in axes:
        chain = radices.get(a)
        if chain is None:
            continue
        steps = [1, *chain]
        ends = [*chain, a.extent]
        parts = [canonical(f"{a.name}_{number}", end // step)
                 for number, (step, end) in enumerate(zip(steps, ends, strict=True))]
        total: Expr | None = None
        for step, part in reversed(list(zip(steps, parts, strict=True))):
            term = axis_expr(part) if step == 1 else operation("mul", axis_expr(part), index_constant(step))
            total = term if total is None else operation("add", total, term)
        assert total is not None
        pieces[a] = tuple(reversed(parts))
        values[a] = total
    return pieces, values


def _all(axes: tuple[Axis, ...], pieces: dict[Axis, tuple[Axis, ...]]) -> tuple[Axis, ...]:
    return tuple([part for a in axes for part in pieces.get(a, (a,))])

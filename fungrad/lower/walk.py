"""Walks over expressions that the passes share."""
from __future__ import annotations

from collections.abc import Iterable

from ..ir.expr import BOOL, TRUE, Axis, Expr


def axes_of(*expressions: Expr) -> list[Axis]:
    """The free axes of some expressions, in order of first appearance (axes of inner reductions left out)."""
    found: dict[Axis, None] = {}
    bound: set[Axis] = set()
    seen: set[Expr] = set()
    stack = list(reversed(expressions))
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.op == "axis":
            found[e.attribute] = None
        else:
            if e.op == "reduce":
                bound.update(e.attribute[1])
            stack.extend(reversed(e.operands))
    return [a for a in found if a not in bound]


def subexpressions(*expressions: Expr) -> Iterable[Expr]:
    """Every distinct expression inside some expressions, users before operands."""
    seen: set[Expr] = set()
    stack = list(reversed(expressions))
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        yield e
        stack.extend(reversed(e.operands))


def loads_of(*expressions: Expr) -> list[Expr]:
    """Every distinct load inside some expressions."""
    return [e for e in subexpressions(*expressions) if e.op == "load"]


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions whose conjunction `condition` is."""
    if condition is TRUE:
        return []
    if condition.op == "and" and condition.dtype == BOOL:
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [condition]

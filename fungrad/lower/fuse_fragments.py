"""Operands of ops with loops of their own that need no memory: zeros into which is scattered, positions to be sorted.

Before: full writes a buffer of zeros, scatter reads it.   After: scatter's copy loop stores 0.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.expr import TRUE, Buffer, Expr, constant, select, substitute
from ..ir.kernel import Fragment, If, Loop, Statement, Store, While
from ..ir.program import Node

Read = Callable[[tuple[Expr, ...], Expr], Expr]   # the element at an index, looked at only where the second holds


def made_of_nothing(node: Node, depth: int = 4) -> bool:
    """Whether a value is computed from constants and positions alone, cheaply."""
    traits = node.primitive.traits
    return "cheap" in traits and depth > 0 and ("creation" in traits or bool(node.operands) and all(
        made_of_nothing(operand, depth - 1) for operand in node.operands))


def inline_operands(fragment: Fragment, values: dict[Buffer, Read]) -> Fragment:
    """The fragment with the inputs in `values` computed where they are read."""
    def change(e: Expr) -> Expr | None:
        if e.op != "load" or e.attribute not in values:
            return None
        *index, valid = [substitute(operand, change) for operand in e.operands]
        element = values[e.attribute](tuple(index), valid)
        return element if valid is TRUE else select(valid, element, constant(0, element.dtype))

    def statement(s: Statement) -> Statement:
        if isinstance(s, Store):
            index = tuple([substitute(i, change) for i in s.index])
            return replace(s, index=index, value=substitute(s.value, change))
        body = tuple(map(statement, s.body))
        if isinstance(s, Loop):
            return replace(s, body=body, stop=None if s.stop is None else substitute(s.stop, change))
        return If(substitute(s.condition, change), body) if isinstance(s, If) else \
            While(substitute(s.condition, change), body)
    return replace(fragment, inputs=tuple([buffer for buffer in fragment.inputs if buffer not in values]),
                   body=tuple(map(statement, fragment.body)))

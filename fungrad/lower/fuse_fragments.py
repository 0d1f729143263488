"""Operands of ops with loops of their own that need no memory: zeros into which is scattered, products to be summed.

Before: full writes a buffer of zeros, scatter reads it.   After: scatter's copy loop stores 0.
Before: mul writes x * y, cumsum reads it.                 After: cumsum reads x and y.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from ..ir.expr import TRUE, Buffer, Expr, constant, load, select, substitute
from ..ir.kernel import Fragment, If, Loop, Statement, Store, While
from ..ir.primitive import Primitive
from ..ir.program import Node, Params
from ..ir.types import Type
from .walk import loads_of

Read = Callable[[tuple[Expr, ...], Expr], Expr]   # the element at an index, looked at only where the second holds


_fragments: dict[tuple[Primitive, Params, tuple[Type, ...]], Fragment] = {}
_MAX_FRAGMENTS = 4096


def fragment_of(node: Node, types: tuple[Type, ...]) -> Fragment:
    """What an op with loops of its own lowers to; equal nodes share one."""
    key = (node.primitive, node.params, types)
    found = _fragments.get(key)
    if found is None:
        if len(_fragments) > _MAX_FRAGMENTS:
            _fragments.clear()
        found = _fragments[key] = node.primitive.lower(types, node.type, **dict(node.params))
    return found


def evaluations(fragment: Fragment, buffer: Buffer) -> int:
    """How many elements of an input a fragment reads, at most; very many where a `while` loop reads it."""
    def reads(body: tuple[Statement, ...], points: int) -> int:
        total = 0
        for s in body:
            if isinstance(s, Store):
                total += points * sum(e.attribute is buffer for e in loads_of(s.value, *s.index))
            elif isinstance(s, Loop):
                stop = loads_of(s.stop) if s.stop is not None else []
                total += points * sum(e.attribute is buffer for e in stop) + reads(s.body, points * s.axis.extent)
            else:
                rounds = points if isinstance(s, If) else points << 20
                total += rounds * sum(e.attribute is buffer for e in loads_of(s.condition)) + reads(s.body, rounds)
        return total
    return reads(fragment.body, prod(a.extent for a in fragment.outer))


def made_of_nothing(node: Node, depth: int = 4) -> bool:
    """Whether a value is computed from constants and positions alone, cheaply."""
    traits = node.primitive.traits
    return "cheap" in traits and depth > 0 and ("creation" in traits or bool(node.operands) and all(
        made_of_nothing(operand, depth - 1) for operand in node.operands))


def inline_operands(fragment: Fragment, values: dict[Buffer, Read]) -> Fragment:
    """The fragment with the inputs in `values` computed where they are read.

    What those read instead become further inputs by `adopt_inputs`.
    """
    def change(e: Expr) -> Expr | None:
        if e.op != "load" or e.attribute not in values:
            return None
        *index, valid = [substitute(operand, change) for operand in e.operands]
        element = values[e.attribute](tuple(index), valid)
        return element if valid is TRUE else select(valid, element, constant(0, element.dtype))

    kept = tuple([buffer for buffer in fragment.inputs if buffer not in values])
    return replace(fragment, inputs=kept, body=map_expressions(fragment.body, lambda e: substitute(e, change)))


def adopt_inputs(fragment: Fragment,
                 canonical: Callable[[str, Type, str], Buffer]) -> tuple[Fragment, tuple[Buffer, ...]]:
    """The fragment with every foreign buffer that it reads as a further input, and those buffers in order."""
    known = {*fragment.outputs, *fragment.inputs, *fragment.scratch}
    foreign: dict[Buffer, Buffer] = {}

    def adopt(e: Expr) -> Expr | None:
        if e.op != "load" or e.attribute in known:
            return None
        if e.attribute not in foreign:
            foreign[e.attribute] = canonical(f"read{len(foreign)}", e.attribute.type, "global")
        return load(foreign[e.attribute], tuple([substitute(i, adopt) for i in e.operands[:-1]]),
                    substitute(e.operands[-1], adopt))
    body = map_expressions(fragment.body, lambda e: substitute(e, adopt))
    return replace(fragment, inputs=(*fragment.inputs, *foreign.values()), body=body), tuple(foreign)


def map_expressions(body: tuple[Statement, ...], change: Callable[[Expr], Expr]) -> tuple[Statement, ...]:
    """Statements with every expression in them changed."""
    def statement(s: Statement) -> Statement:
        if isinstance(s, Store):
            return replace(s, index=tuple(map(change, s.index)), value=change(s.value))
        inside = map_expressions(s.body, change)
        if isinstance(s, Loop):
            return replace(s, body=inside, stop=None if s.stop is None else change(s.stop))
        return If(change(s.condition), inside) if isinstance(s, If) else While(change(s.condition), inside)
    return tuple(map(statement, body))

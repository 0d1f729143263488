"""Writing loop trees by hand: what the ops with loops of their own (scatter, sort) share."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.expr import Axis, Expr, axis as axis_expr, index_constant, operation
from ..ir.kernel import Loop, Statement

Body = tuple[Statement, ...]
VECTOR_BYTES = 64   # lanes of a hand-written vector loop; a device with narrower registers splits them


def plus(a: Expr, b: Expr | int) -> Expr:
    """a + b on indices."""
    if isinstance(b, int):
        return a if b == 0 else operation("add", a, index_constant(b))
    return operation("add", a, b)


def times(a: Expr, factor: int) -> Expr:
    """a * factor on indices."""
    return a if factor == 1 else operation("mul", a, index_constant(factor))


def loop(name: str, extent: int, body: Callable[[Expr], Body], kind: str = "serial", stop: Expr | None = None) -> Loop:
    """Run `body(i)` for i = 0 .. extent-1, or below `stop`."""
    counter = Axis(name, extent)
    return Loop(counter, body(axis_expr(counter)), kind, stop)


def vector_loop(name: str, extent: int, itemsize: int, body: Callable[[Expr], Body]) -> Body:
    """`loop` in vectors, whose body's points must not depend on one another."""
    lanes = VECTOR_BYTES // itemsize
    if extent <= lanes:
        return (loop(name, extent, body, "vector"),)
    whole, rest = divmod(extent, lanes)
    main = loop(f"{name}_block", whole, lambda block: (
        loop(name, lanes, lambda lane: body(plus(times(block, lanes), lane)), "vector"),))
    if not rest:
        return (main,)
    return main, loop(f"{name}_rest", rest, lambda lane: body(plus(lane, whole * lanes)), "vector")


def nested(names: Sequence[str], extents: Sequence[int], body: Callable[[tuple[Expr, ...]], Body],
           vector_itemsize: int | None = None) -> Body:
    """`body(index)` for every index of an array of shape `extents`; the last axis in vectors, given an item size."""
    def level(number: int, index: tuple[Expr, ...]) -> Body:
        if number == len(extents):
            return body(index)
        inside = lambda i: level(number + 1, (*index, i))
        if number == len(extents) - 1 and vector_itemsize is not None:
            return vector_loop(names[number], extents[number], vector_itemsize, inside)
        return (loop(names[number], extents[number], inside),)
    return level(0, ())

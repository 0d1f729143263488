"""Loops over boxes: the parts from which a contraction's loop tree is put together.

A box is a list of dimensions (`Dim`), outermost first. Adjacent dimensions in which everything advances as in one
longer dimension are run as one loop. No index is taken apart by division inside a loop.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..ir.expr import (
    TRUE,
    Axis,
    Buffer,
    Expr,
    axis,
    conjunction,
    index_constant,
    load,
    operation,
)
from ..ir.kernel import If, Loop, Statement, Store
from .contraction_analysis import forms, guarded, replace_axes

Body = tuple[Statement, ...]


def plus(*terms: Expr | int) -> Expr:
    """The sum of index expressions and integers."""
    constant, total = 0, None
    for term in terms:
        if isinstance(term, int):
            constant += term
        elif term.op == "constant":
            constant += int(term.attribute.value)
        else:
            total = term if total is None else operation("add", total, term)
    if total is None:
        return index_constant(constant)
    return operation("add", total, index_constant(constant)) if constant else total


def times(x: Expr, factor: int) -> Expr:
    """An index expression times an integer."""
    if x.op == "constant":
        return index_constant(int(x.attribute.value) * factor)
    return x if factor == 1 else operation("mul", x, index_constant(factor))


def quotient(x: Expr, divisor: int) -> Expr:
    if x.op == "constant":
        return index_constant(int(x.attribute.value) // divisor)
    return x if divisor == 1 else operation("div", x, index_constant(divisor))


def remainder(x: Expr, divisor: int) -> Expr:
    if x.op == "constant":
        return index_constant(int(x.attribute.value) % divisor)
    return index_constant(0) if divisor == 1 else operation("rem", x, index_constant(divisor))


def less(x: Expr, limit: Expr | int) -> Expr:
    return operation("lt", x, index_constant(limit) if isinstance(limit, int) else limit)


def at_most(x: Expr, limit: int) -> Expr:
    return operation("min", x, index_constant(limit))


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a box: a loop axis, and the number of indices that count (None: all), known when the loop
    starts.

    stride: how far one step goes in the packed memory that belongs to the box.
    """
    axis: Axis
    stride: int = 0
    limit: Expr | None = None

    @property
    def extent(self) -> int:
        return self.axis.extent


def dim(name: str, extent: int, stride: int = 0, limit: Expr | None = None) -> Dim:
    """A dimension with an axis of its own."""
    return Dim(Axis(name, extent), stride, limit)


def offset(dims: Iterable[Dim]) -> Expr:
    """The place of a point of the box in packed memory."""
    return plus(*[times(axis(d.axis), d.stride) for d in dims if d.extent != 1])


def merged(dims: Sequence[Dim], exprs: Sequence[Expr]) -> tuple[list[Dim], dict[Axis, Expr]]:
    """Fewer dimensions that run over the same box, and the old axes in terms of the new ones.

    Adjacent dimensions become one where the packed memory and every affine form in `exprs` advance evenly over both.
    """
    found = forms(exprs)
    result: list[Dim] = []
    values: dict[Axis, Expr] = {}
    for outer in reversed(dims):
        if outer.extent == 1 and outer.limit is None:
            values[outer.axis] = index_constant(0)
            continue
        if result:
            last = result[-1]
            count = last.extent
            if (last.limit is None and outer.stride == count * last.stride
                    and all(f.coefficient(outer.axis) == count * f.coefficient(last.axis) for f in found)):
                limit = None if outer.limit is None else times(outer.limit, count)
                longer = Dim(Axis(last.axis.name, outer.extent * count), last.stride, limit)
                values[outer.axis] = index_constant(0)
                values = {a: replace_axes(e, {last.axis: axis(longer.axis)}) for a, e in values.items()}
                values[last.axis] = axis(longer.axis)
                found = [replace(f, terms=tuple((axis(longer.axis) if atom is axis(last.axis) else atom, c)
                                                for atom, c in f.terms if atom is not axis(outer.axis)))
                         for f in found]
                result[-1] = longer
                continue
        result.append(outer)
    result.reverse()
    return result, values


def collapses(exprs: Sequence[Expr], axes: Sequence[Axis], strides: Sequence[int]) -> bool:
    """Whether expressions depend on these axes only through the sum of stride * axis (the last stride is 1)."""
    if not axes:
        return True
    last = axes[-1]
    return all(f.coefficient(one) == stride * f.coefficient(last)
               for f in forms(exprs) for one, stride in zip(axes, strides, strict=True))


def contiguous(exprs: Sequence[Expr], one: Axis, step: int = 1) -> bool:
    """Whether the loads in `exprs` read consecutive elements along an axis (or the same one, but not all of them).

    step -1: consecutive elements backwards.
    """
    coefficients = [f.coefficient(one) for f in forms(exprs)]
    return step in coefficients and all(c in (0, step) for c in coefficients)


def nest(dims: Sequence[Dim], body: Body) -> Body:
    """`body` in serial loops over a box."""
    for d in reversed(dims):
        body = (Loop(d.axis, body, "serial", d.limit),)
    return body


def vector(lanes: int, body: Callable[[Expr], Body]) -> Loop:
    """A vector loop; `body` gets the lane number."""
    lane = Axis("lane", lanes)
    return Loop(lane, body(axis(lane)), "vector")


def unrolled(name: str, count: int, body: Callable[[Expr], Body]) -> Loop:
    one = Axis(name, count)
    return Loop(one, body(axis(one)), "unroll")


def chunked(d: Dim, lanes: int, body: Callable[[Expr, Expr], Body]) -> Body:
    """Vector loops over one dimension; `body` gets the index and the condition under which it is inside."""
    full, rest = divmod(d.extent, lanes)
    if d.limit is not None:
        full, rest = -(-d.extent // lanes), 0
    statements: list[Statement] = []
    if full:
        chunk = Axis(f"{d.axis.name}_chunk", full)
        stop = None if d.limit is None else quotient(plus(d.limit, lanes - 1), lanes)

        def whole(lane: Expr) -> Body:
            index = plus(times(axis(chunk), lanes), lane)
            return body(index, TRUE if d.limit is None else less(index, d.limit))
        statements.append(Loop(chunk, (vector(lanes, whole),), "serial", stop))
    if rest:
        def tail(lane: Expr) -> Body:
            index = plus(lane, full * lanes)
            return body(index, less(index, d.extent))
        statements.append(vector(lanes, tail))
    return tuple(statements)


def only_if(condition: Expr, body: Body) -> Body:
    return body if condition is TRUE else (If(condition, body),)


def fill(target: Buffer, dims: Sequence[Dim], value: Expr, valid: Expr, lanes: int, tile: Buffer | None) -> Body:
    """Store `value`, an expression over the axes of `dims`, at its place in packed memory, for every point of the box.

    Where the last dimension ends inside a vector, the rest of the vector lands where the next row is written later, or
    in the slack behind the box. Values beyond a limit, and where `valid` is false, are not read. `tile`: a register
    buffer of lanes x lanes elements; with it, a source that is contiguous along another dimension than the packed
    memory is transposed in registers.
    """
    value = guarded(value, valid)
    runs, values = merged(dims, (value,))
    value = replace_axes(value, values)
    if not runs:
        return (Store(target, (index_constant(0),), value),)
    last = runs[-1]
    across = _transposable(runs, value, lanes) if tile is not None else None
    if across is not None and tile is not None:
        return _fill_transposed(target, runs, *across, value, lanes, tile)

    def row(index: Expr, inside: Expr) -> Body:
        element = guarded(replace_axes(value, {last.axis: index}), inside)
        store = Store(target, (plus(offset(runs[:-1]), times(index, last.stride)),), element)
        return (store,) if last.stride == 1 else only_if(inside, (store,))
    return nest(runs[:-1], chunked(last, min(lanes, _power(last.extent)), row))


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _transposable(runs: Sequence[Dim], value: Expr, lanes: int) -> tuple[Dim, bool] | None:
    """The dimension along which the source is contiguous (or contiguous backwards), if another than the last pays."""
    last = runs[-1]
    if last.stride != 1 or contiguous((value,), last.axis) or last.extent < 3:
        return None
    for d in reversed(runs[:-1]):
        if d.extent >= lanes // 2:
            if contiguous((value,), d.axis):
                return d, False
            if d.limit is None and contiguous((value,), d.axis, -1):
                return d, True
    return None


def _backwards(index: Expr, d: Dim) -> Expr:
    return plus(times(index, -1), d.extent - 1)


def _fill_transposed(target: Buffer, runs: Sequence[Dim], across: Dim, backwards: bool, value: Expr, lanes: int,
                     tile: Buffer) -> Body:
    """`fill` in squares: rows of `across` are read as vectors, columns are written as vectors."""
    last = runs[-1]
    outer = offset([d for d in runs[:-1] if d is not across])

    def place(x: Expr) -> Expr:
        return _backwards(x, across) if backwards else x

    def element(x: Expr, y: Expr, inside: Expr) -> Expr:
        return guarded(replace_axes(value, {across.axis: place(x), last.axis: y}), inside)

    # Beyond the end of `last` a vector may only meet what is written later: not the next row of the square.
    free = last.extent % lanes == 0 or (not backwards and runs[-2] is across
                                        and across.stride >= round_up(last.extent, lanes))

    def write(x: Expr, y: Expr, inside: Expr, total: Expr) -> Body:
        body: Body = (Store(target, (plus(outer, times(place(x), across.stride), y),), total),)
        body = only_if(TRUE if free else less(y, last.extent), body)
        return only_if(TRUE if across.extent % lanes == 0 else less(x, across.extent), body)
    return squares(runs, across, last, lanes, tile, element, write)


def squares(runs: Sequence[Dim], along: Dim, across: Dim, lanes: int, tile: Buffer,
            read: Callable[[Expr, Expr, Expr], Expr], write: Callable[[Expr, Expr, Expr, Expr], Body]) -> Body:
    """Run over a box in squares of lanes x lanes, transposed in registers.

    read(x, y, inside): the element at x in `along`, which becomes the lanes, and y in `across`, where `inside` holds.
    write(x, y, inside, element): what to do with it, with y in the lanes.
    """
    x_chunk, y_chunk = (Axis(f"{d.axis.name}_square", -(-d.extent // lanes)) for d in (along, across))

    def inside(index: Expr, d: Dim) -> Expr:
        if d.limit is not None:
            return less(index, d.limit)
        return TRUE if d.extent % lanes == 0 else less(index, d.extent)

    def both(x: Expr, y: Expr) -> Expr:
        return conjunction(inside(y, across), inside(x, along))

    def read_row(i: Expr) -> Body:
        y = plus(times(axis(y_chunk), lanes), i)

        def each(lane: Expr) -> Body:
            x = plus(times(axis(x_chunk), lanes), lane)
            return (Store(tile, (i, lane), read(x, y, both(x, y))),)
        return (vector(lanes, each),)

    def write_column(i: Expr) -> Body:
        x = plus(times(axis(x_chunk), lanes), i)

        def each(lane: Expr) -> Body:
            y = plus(times(axis(y_chunk), lanes), lane)
            return write(x, y, both(x, y), load(tile, (lane, i)))
        return (vector(lanes, each),)

    square: Body = (unrolled("row", lanes, read_row), unrolled("column", lanes, write_column))
    loops = {along.axis: Loop(x_chunk, (), "serial", _chunks(along, lanes)),
             across.axis: Loop(y_chunk, (), "serial", _chunks(across, lanes))}
    body = square
    for d in reversed(runs):
        loop = loops.get(d.axis)
        body = (Loop(d.axis, body, "serial", d.limit) if loop is None else Loop(loop.axis, body, "serial", loop.stop),)
    return body


def _chunks(d: Dim, lanes: int) -> Expr | None:
    return None if d.limit is None else quotient(plus(d.limit, lanes - 1), lanes)


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple

"""Loop trees of operations that run along an axis. Which one depends on where the axis lies in memory:

- Another axis is the last one: columns run side by side, a vector of them in each register.
- It is the last axis, and there are several rows: a few of them run side by side, each element by element.
- There is hardly more than one row, and the operation may be regrouped (sums, maxima): the row is cut into tiles, a
  tile into chunks that run side by side as independent chains, and what comes before each chunk is added to it, in
  vectors, afterwards.

Every element is read before the element of the result in its place is written.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..dtypes import accumulation
from ..ir.expr import Axis, Buffer, Expr, axis as axis_expr, cast, constant, index_constant, load, operation
from ..ir.kernel import Fragment, If, Store
from ..ir.types import Type, array_type
from .fragments import VECTOR_BYTES, Body, loop, plus, times, vector_loop

Step = Callable[..., Expr]
VECTORS = 4      # registers of columns in one loop
ROWS = 4         # rows side by side: more would compete for one set of the cache where rows are a power of two apart
CHAINS = 8       # chains within a tile: enough to hide the latency of an addition
CHUNK = 64       # elements of a chain in a full tile


@dataclass(frozen=True, slots=True)
class Run:
    """What to compute: y_k = step(y_{k-1}, x_k...) along `axis`, from `first`; carried in the element type `wide`."""
    inputs: tuple[Buffer, ...]
    output: Buffer
    axis: int
    reverse: bool
    first: Expr
    step: Step

    @property
    def shape(self) -> tuple[int, ...]:
        return self.output.type.shape

    @property
    def wide(self) -> np.dtype:
        return self.first.dtype

    def along(self, index: Sequence[Expr], k: Expr) -> tuple[Expr, ...]:
        """`index` with the k-th position in the direction of running."""
        if self.reverse:
            k = operation("sub", index_constant(self.shape[self.axis] - 1), k)
        return (*index[:self.axis], k, *index[self.axis + 1:])

    def stepped(self, carry: Expr, index: tuple[Expr, ...]) -> Expr:
        return self.step(carry, *[cast(load(x, index), self.wide) for x in self.inputs])

    def register(self, name: str, *shape: int) -> Buffer:
        return Buffer(name, array_type(shape, self.wide), "register")

    def advance(self, carry: Buffer, slot: tuple[Expr, ...], index: tuple[Expr, ...]) -> Body:
        """Step the carry in `slot` with the elements at `index`, and write it there."""
        return (Store(carry, slot, self.stepped(load(carry, slot), index)),
                Store(self.output, index, cast(load(carry, slot), self.output.type.dtype)))


def run_fragment(types: Sequence[Type], type: Type, axis: int, reverse: bool, first: float, step: Step,
                 regroup: bool) -> Fragment:
    """The fragment of an operation that runs along `axis`; regroup: step is an associative operation."""
    wide = accumulation(type.dtype)
    run = Run(tuple(Buffer(f"x{i}", t) for i, t in enumerate(types)), Buffer("y", type), axis, reverse,
              constant(first, wide), step)
    others = [a for a in range(type.rank) if a != axis and type.shape[a] > 1]
    if others and others[-1] > axis:
        return _columns(run, others[-1])
    rows = type.shape[others[-1]] if others else 1
    if regroup and rows < ROWS and type.shape[axis] >= CHAINS * CHAINS:
        return _chunks(run)
    return _rows(run, others[-1]) if rows > 1 else _serial(run)


def _loops(run: Run, *without: int) -> tuple[list[Expr], tuple[Axis, ...]]:
    """An index with a new axis in each place but those in `without` (there 0), and these axes."""
    axes = {a: Axis(f"i{a}", extent) for a, extent in enumerate(run.shape) if a not in without}
    return [axis_expr(axes[a]) if a in axes else index_constant(0) for a in range(len(run.shape))], tuple(axes.values())


def _serial(run: Run) -> Fragment:
    index, outer = _loops(run, run.axis)
    carry = run.register("carry")
    body = (Store(carry, (), run.first),
            loop("k", run.shape[run.axis], lambda k: run.advance(carry, (), run.along(index, k))))
    return Fragment((run.output,), run.inputs, (carry,), outer, body)


def _blocked(run: Run, axis: int, width: int, body: Callable[[Expr, int, list[Buffer]], Body],
             outer: tuple[Axis, ...]) -> Fragment:
    """`body(start, size, registers)` for blocks of `width` along `axis`, in parallel; the last block may be smaller."""
    whole, rest = divmod(run.shape[axis], width)
    registers: list[Buffer] = []
    if not whole or not rest:
        block = Axis("block", max(whole, 1))
        statements = body(times(axis_expr(block), width), width if whole else rest, registers)
    else:
        block = Axis("block", whole + 1)
        number, last = axis_expr(block), index_constant(whole)
        statements = (If(operation("lt", number, last), body(times(number, width), width, registers)),
                      If(operation("eq", number, last), body(index_constant(whole * width), rest, registers)))
    return Fragment((run.output,), run.inputs, tuple(registers), (*outer, block), statements)


def _columns(run: Run, axis: int) -> Fragment:
    """Blocks of columns, whose carries stay in vector registers."""
    lanes = VECTOR_BYTES // run.wide.itemsize
    index, outer = _loops(run, run.axis, axis)

    def block(start: Expr, size: int, registers: list[Buffer]) -> Body:
        pieces = [(offset, min(lanes, size - offset)) for offset in range(0, size, lanes)]
        carries = [run.register(f"carry{size}_{offset}", count) for offset, count in pieces]
        registers.extend(carries)

        def vectors(body: Callable[[Buffer, Expr, Expr], Body]) -> Body:
            return tuple(loop(f"lane{offset}", count, lambda lane, carry=carry, offset=offset: body(
                carry, lane, plus(plus(start, offset), lane)), "vector")
                for carry, (offset, count) in zip(carries, pieces, strict=True))

        def column(k: Expr, carry: Buffer, lane: Expr, position: Expr) -> Body:
            at = [*index[:axis], position, *index[axis + 1:]]
            return run.advance(carry, (lane,), run.along(at, k))
        return (*vectors(lambda carry, lane, position: (Store(carry, (lane,), run.first),)),
                loop(f"k{size}", run.shape[run.axis], lambda k: vectors(
                    lambda carry, lane, position: column(k, carry, lane, position))))
    return _blocked(run, axis, VECTORS * lanes, block, outer)


def _rows(run: Run, axis: int) -> Fragment:
    """A few rows side by side, each with a carry of its own."""
    index, outer = _loops(run, run.axis, axis)

    def block(start: Expr, size: int, registers: list[Buffer]) -> Body:
        carry = run.register(f"carry{size}", size)
        registers.append(carry)

        def row(k: Expr, number: Expr) -> Body:
            at = [*index[:axis], plus(start, number), *index[axis + 1:]]
            return run.advance(carry, (number,), run.along(at, k))
        return (loop(f"clear{size}", size, lambda number: (Store(carry, (number,), run.first),), "unroll"),
                loop(f"k{size}", run.shape[run.axis], lambda k: (
                    loop(f"row{size}", size, lambda number: row(k, number), "unroll"),)))
    return _blocked(run, axis, ROWS, block, outer)


def _chunks(run: Run) -> Fragment:
    """Tiles of CHAINS chunks; see the module's text. `local` has a tile's results as if nothing came before a chunk."""
    index, outer = _loops(run, run.axis)
    extent, dtype = run.shape[run.axis], run.output.type.dtype
    local = Buffer("local", array_type((CHAINS * min(CHUNK, extent // CHAINS),), run.wide), "scratch")
    total, carry = run.register("total"), run.register("carry", CHAINS)

    def tile(start: Expr, chunk: int, name: str) -> Body:
        def chain(j: Expr, c: Expr) -> Body:
            place = plus(times(c, chunk), j)
            return (Store(carry, (c,), run.stepped(load(carry, (c,)), run.along(index, plus(start, place)))),
                    Store(local, (place,), load(carry, (c,))))

        def finish(place: Expr) -> Body:
            value = run.step(load(total, ()), load(local, (place,)))
            return (Store(run.output, run.along(index, plus(start, place)), cast(value, dtype)),)

        def chunk_of(c: Expr) -> Body:
            return (*vector_loop(f"{name}_lane", chunk, run.wide.itemsize, lambda j: finish(plus(times(c, chunk), j))),
                    Store(total, (), run.step(load(total, ()), load(carry, (c,)))))
        return (loop(f"{name}_clear", CHAINS, lambda c: (Store(carry, (c,), run.first),), "unroll"),
                loop(f"{name}_j", chunk, lambda j: (loop(f"{name}_c", CHAINS, lambda c: chain(j, c), "unroll"),)),
                loop(f"{name}_chunk", CHAINS, chunk_of, "unroll"))

    tiles, rest = divmod(extent, CHAINS * CHUNK)
    done = tiles * CHAINS * CHUNK
    body: Body = (Store(total, (), run.first),)
    if tiles:
        body += (loop("tile", tiles, lambda number: tile(times(number, CHAINS * CHUNK), CHUNK, "tile")),)
    if rest >= CHAINS:
        body += tile(index_constant(done), rest // CHAINS, "rest")
        done += rest // CHAINS * CHAINS
    if done < extent:
        body += (loop("last", extent - done, lambda k: run.advance(total, (), run.along(index, plus(k, done)))),)
    return Fragment((run.output,), run.inputs, (local, total, carry), outer, body)

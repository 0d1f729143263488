"""From a contraction and a tiling to a loop tree.

    parallel over batch x groups of blocks of n x groups of blocks of m:
        for each block of n in its group:
            for each block of m in its group:
                for each block of k:
                    pack b; pack a                   (before the loop in which it stays the same, where k is one block)
                    for each sliver of `vectors` vectors of columns:
                        for each sliver of `rows` rows:
                            sums in registers = 0
                            for k: sums += a[rows] (broadcast) * b[vectors]
                            store the sums, or add them to the block's sums in scratch
                copy the block's sums out

This is the structure of GotoBLAS (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008)
and of BLIS, with the packing read through index expressions and one parallel loop. A sum over several blocks of k is
the sum of the blocks' sums, in order; so a result does not depend on the tiles of m and n, nor on the threads.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.expr import TRUE, Axis, Buffer, Expr, axis, conjunction, constant, index_constant, load, operation, substitute
from ..ir.kernel import Kernel, Loop, Statement, Store
from ..ir.types import array_type
from . import contraction_stage as stage
from .contraction_analysis import Contraction, Output, replace_axes
from .contraction_loops import (
    Body,
    Dim,
    at_most,
    chunked,
    collapses,
    contiguous,
    less,
    merged,
    nest,
    offset,
    only_if,
    plus,
    quotient,
    remainder,
    squares,
    times,
    unrolled,
    vector,
)
from .contraction_stage import Staged
from .contraction_tiling import Blocks, Range, Tiling


def build(kernel: Kernel, contraction: Contraction, tiling: Tiling) -> Kernel:
    """The scheduled kernel. CompilationError where the tiling does not fit the contraction."""
    return _Builder(contraction.swapped() if tiling.swap else contraction, tiling).run(kernel)


def output_expressions(outputs: Sequence[Output]) -> list[Expr]:
    """Expressions whose affine forms are those of the outputs' stores and values."""
    return [e for o in outputs for e in (load(o.target, o.index, o.valid), o.value)]


class _Builder:
    """Builds the loop tree of one contraction."""

    def __init__(self, contraction: Contraction, tiling: Tiling):
        self.contraction, self.tiling = contraction, tiling
        self.dtype = contraction.dtype
        self.lanes = tiling.lanes
        self.width = tiling.vectors * tiling.lanes
        self.line = max(64 // self.dtype.itemsize, 1)
        self.m = Blocks(contraction.m, tiling.m.position, tiling.m.tile)
        self.n = Blocks(contraction.n, tiling.n.position, tiling.n.tile)
        self.k = Blocks(contraction.k, tiling.k.position, tiling.k.tile)
        self.sums = self.registers("sums", tiling.rows, self.width)
        self.row = self.registers("row", tiling.rows)
        self.columns = self.registers("columns", self.width)
        self.tile = self.registers("square", self.lanes, self.lanes) if self.lanes > 1 else None
        self.layout = stage.Layout(self.lanes, self.line, self.tile)
        self.scratch: list[Buffer] = [self.sums, self.row, self.columns]

    def registers(self, name: str, *shape: int) -> Buffer:
        return Buffer(name, array_type(shape, self.dtype), "register")

    def run(self, kernel: Kernel) -> Kernel:
        c, t = self.contraction, self.tiling
        batch = Blocks(c.batch, max(len(c.batch) - 1, 0), 1)
        m_groups, n_groups = -(-self.m.number // t.group_m), -(-self.n.number // t.group_n)
        tile = Axis("tile", batch.number * n_groups * m_groups)
        body: Body = ()
        if tile.extent and self.n.size and self.m.size:
            rest = quotient(axis(tile), m_groups)
            here = batch.at(quotient(rest, n_groups)).values([index_constant(0)] * len(c.batch))
            one = self.group(here, remainder(axis(tile), m_groups), remainder(rest, n_groups))
            body = (Loop(tile, one, "parallel"),)
        if self.tile is not None:
            self.scratch.append(self.tile)
        return replace(kernel, scratch=tuple(self.scratch), outer=(), nests=(), body=body, schedule=t.opts())

    def group(self, batch: dict[Axis, Expr], m_group: Expr, n_group: Expr) -> Body:
        """One parallel iteration. An operand that stays the same in the inner loop is packed before it."""
        a, b = (replace_axes(e, batch) for e in (self.contraction.a, self.contraction.b))
        outputs = [Output(o.target, tuple(replace_axes(i, batch) for i in o.index), replace_axes(o.value, batch),
                          replace_axes(o.valid, batch)) for o in self.contraction.outputs]
        whole = self.k.at(index_constant(0)) if self.k.number == 1 else None
        m_block, n_block = Axis("m_block", self.tiling.group_m), Axis("n_block", self.tiling.group_n)
        rows, columns = self.m.at(_member(m_group, m_block)), self.n.at(_member(n_group, n_block))
        a_ready = self.stage_a(a, rows, whole) if whole is not None and m_block.extent == 1 else None
        b_ready = self.stage_b(b, columns, whole) if whole is not None and m_block.extent > 1 else None
        body = self.block(a, b, outputs, rows, columns, a_ready, b_ready)
        body = (*_fill(b_ready), *_member_loop(self.m, m_group, m_block, body))
        return (*_fill(a_ready), *_member_loop(self.n, n_group, n_block, body))

    def stage_a(self, a: Expr, rows: Range, k: Range) -> Staged:
        return self.noted(stage.make(self.tiling.stage_a, "a_packed", a, rows, k, self.tiling.rows, True, self.layout))

    def stage_b(self, b: Expr, columns: Range, k: Range) -> Staged:
        return self.noted(stage.make(self.tiling.stage_b, "b_packed", b, columns, k, self.width, False, self.layout))

    def noted(self, staged: Staged) -> Staged:
        self.scratch += [b for b in staged.buffers if b not in self.scratch]
        return staged

    def block(self, a: Expr, b: Expr, outputs: list[Output], rows: Range, columns: Range, a_ready: Staged | None,
              b_ready: Staged | None) -> Body:
        """The sums of a block of rows and a block of columns, to their places."""
        several = self.k.number > 1
        step = Axis("k_block", self.k.number)
        k = self.k.at(axis(step) if several else index_constant(0))
        staged_b = self.stage_b(b, columns, k) if b_ready is None else b_ready
        staged_a = self.stage_a(a, rows, k) if a_ready is None else a_ready
        packing = (*(staged_b.fill if b_ready is None else ()), *(staged_a.fill if a_ready is None else ()))
        if not several and self.storable(outputs, columns, staged_b):
            def finish(i: Expr, row: Expr, v: Expr, column: Expr, lane: Expr) -> Body:
                return self.store_direct(outputs, rows, columns, staged_a, staged_b, row, column, self.sum(i, v, lane))
            return (*packing, *self.slivers(staged_a, staged_b, rows, columns, k, finish))
        pitch = stage.odd_lines(staged_b.padded, self.line)
        size = staged_a.padded * pitch + self.lanes * self.lanes
        sums = Buffer("block_sums", array_type((size,), self.dtype), "scratch")
        self.scratch.append(sums)

        def keep(i: Expr, row: Expr, v: Expr, column: Expr, lane: Expr) -> Body:
            place, total = (plus(times(row, pitch), column),), self.sum(i, v, lane)
            if several:
                is_first = operation("eq", axis(step), index_constant(0))
                total = operation("select", is_first, total, operation("add", load(sums, place), total))
            return (Store(sums, place, total),)
        body: Body = (*packing, *self.slivers(staged_a, staged_b, rows, columns, k, keep))
        if several:
            body = (Loop(step, body, "serial"),)
        return (*body, *self.copy_out(outputs, rows, columns, staged_b, sums, pitch))

    def sum(self, i: Expr, v: Expr, lane: Expr) -> Expr:
        return load(self.sums, (i, plus(times(v, self.lanes), lane)))

    def slivers(self, a: Staged, b: Staged, rows: Range, columns: Range, k: Range, finish) -> Body:
        """The micro-kernels of a block; `finish` gives what to do with a sum."""
        right, down = Axis("right", b.padded // self.width), Axis("down", a.padded // self.tiling.rows)
        first_row, first_column = times(axis(down), self.tiling.rows), times(axis(right), self.width)

        def each_row(i: Expr) -> Body:
            def each_vector(v: Expr) -> Body:
                def each_lane(lane: Expr) -> Body:
                    return finish(i, plus(first_row, i), v, plus(first_column, times(v, self.lanes), lane), lane)
                return (vector(self.lanes, each_lane),)
            return (unrolled("v", self.tiling.vectors, each_vector),)
        kernel = (*self.clear(), *self.micro_kernel(a, b, rows, k, first_row, first_column),
                  unrolled("i", self.tiling.rows, each_row))
        body: Body = (Loop(down, kernel, "serial", _slivers(rows, rows.strides, self.tiling.rows)),)
        return (Loop(right, body, "serial", _slivers(columns, b.strides, self.width)),)

    def clear(self) -> Body:
        zero = constant(0, self.dtype)

        def each(i: Expr) -> Body:
            return (unrolled("v", self.tiling.vectors, lambda v: (
                vector(self.lanes, lambda lane: (Store(self.sums, (i, plus(times(v, self.lanes), lane)), zero),)),)),)
        return (unrolled("i", self.tiling.rows, each),)

    def micro_kernel(self, a: Staged, b: Staged, rows: Range, k: Range, first_row: Expr, first_column: Expr) -> Body:
        """sums += a * b over the block of k."""
        dims = k.dims([0] * len(k.axes))
        local = [axis(d.axis) for d in dims]
        runs, values = merged(dims, (a.read(first_row, local), b.read(first_column, local)))
        ks = [replace_axes(e, values) for e in local]

        def load_column(v: Expr) -> Body:
            def each(lane: Expr) -> Body:
                place = plus(times(v, self.lanes), lane)
                return (Store(self.columns, (place,), b.read(plus(first_column, place), ks)),)
            return (vector(self.lanes, each),)

        def each_row(i: Expr) -> Body:
            element = a.read(_free_index(a, rows, plus(first_row, i)), ks)

            def each_vector(v: Expr) -> Body:
                def each(lane: Expr) -> Body:
                    place = plus(times(v, self.lanes), lane)
                    old = load(self.sums, (i, place))
                    return (Store(self.sums, (i, place), self.multiply_add(load(self.row, (i,)),
                                                                           load(self.columns, (place,)), old)),)
                return (vector(self.lanes, each),)
            return (Store(self.row, (i,), element), unrolled("v", self.tiling.vectors, each_vector))
        body: Body = (unrolled("v", self.tiling.vectors, load_column), unrolled("i", self.tiling.rows, each_row))
        return self.k_loops(runs, body)

    def multiply_add(self, x: Expr, y: Expr, total: Expr) -> Expr:
        if self.dtype.kind in "iu":
            return operation("add", operation("mul", x, y), total)
        return operation("fma", x, y, total)

    def k_loops(self, runs: Sequence[Dim], body: Body) -> Body:
        """Serial loops over k, the innermost partly written out."""
        if not runs:
            return body
        *outer, last = runs
        steps = self.tiling.unroll
        if steps > 1 and last.limit is None and last.extent % steps == 0:
            inner = Axis(last.axis.name, steps)
            coarse = Axis(last.axis.name + "_steps", last.extent // steps)
            value = {last.axis: plus(times(axis(coarse), steps), axis(inner))}
            body = (Loop(coarse, (Loop(inner, replace_in(body, value), "unroll"),), "serial"),)
            return nest(outer, body)
        return nest(runs, body)

    # -- what happens to the sums --------------------------------------------------------------------------------------

    def storable(self, outputs: Sequence[Output], columns: Range, b: Staged) -> bool:
        """Whether vectors of sums can go straight to the outputs."""
        if not columns.axes:
            return self.lanes == 1
        exprs = output_expressions(outputs)
        return collapses(exprs, columns.axes, b.strides) and all(
            contiguous((load(o.target, o.index),), columns.axes[-1]) for o in outputs)

    def store_direct(self, outputs: Sequence[Output], rows: Range, columns: Range, a: Staged, b: Staged, row: Expr,
                     column: Expr, total: Expr) -> Body:
        exprs = output_expressions(outputs)
        inside = TRUE
        for here, index, strides, padded in ((rows, row, rows.strides, a.padded),
                                             (columns, column, b.strides, b.padded)):
            span = stage.count(strides, here.extents)
            condition = here.inside(index, strides)
            if condition is not None:
                inside = conjunction(inside, condition)
            if padded > span:
                inside = conjunction(inside, less(index, span))
        places = columns.values([index_constant(0)] * (len(columns.axes) - 1) + [column]) if columns.axes else {}
        if not columns.axes:
            inside = conjunction(inside, less(column, 1))
        if collapses(exprs, rows.axes, rows.strides):
            places |= rows.values([index_constant(0)] * (len(rows.axes) - 1) + [row]) if rows.axes else {}
        else:
            places |= rows.row_major(row)
        return only_if(inside, self.stores(outputs, places, total))

    def stores(self, outputs: Sequence[Output], places: dict[Axis, Expr], total: Expr) -> Body:
        """The outputs' stores at a place."""
        body: list[Statement] = []

        def summed(x: Expr) -> Expr | None:
            return total if x.op == "load" and x.attribute is self.contraction.total else None
        for o in outputs:
            def put(e: Expr) -> Expr:
                return substitute(replace_axes(e, places), summed)
            store = Store(o.target, tuple(replace_axes(i, places) for i in o.index), put(o.value))
            body += only_if(put(o.valid), (store,))
        return tuple(body)

    def copy_out(self, outputs: Sequence[Output], rows: Range, columns: Range, b: Staged, sums: Buffer,
                 pitch: int) -> Body:
        """Sums in scratch to the outputs."""
        dims = (*rows.dims([stride * pitch for stride in rows.strides]), *columns.dims(b.strides))
        places = rows.values([axis(d.axis) for d in dims[:len(rows.axes)]])
        places |= columns.values([axis(d.axis) for d in dims[len(rows.axes):]])
        outputs = [Output(o.target, tuple(replace_axes(i, places) for i in o.index), replace_axes(o.value, places),
                          replace_axes(o.valid, places)) for o in outputs]
        exprs = output_expressions(outputs)
        runs, values = merged(dims, exprs)
        if not runs:
            return self.stores(outputs, values, load(sums, (index_constant(0),)))
        last = runs[-1]

        def at(extra: dict[Axis, Expr]) -> dict[Axis, Expr]:
            return {a: replace_axes(e, extra) for a, e in values.items()} | extra

        stored = [replace_axes(load(o.target, o.index), values) for o in outputs]
        across = None
        if last.stride == 1 and not contiguous(stored, last.axis):
            long = [d for d in runs[:-1] if d.extent >= self.lanes // 2 and contiguous(stored, d.axis)]
            across = long[-1] if long else None
        if across is None or self.tile is None:
            def put(index: Expr, inside: Expr) -> Body:
                place = plus(offset(runs[:-1]), times(index, last.stride))
                return only_if(inside, self.stores(outputs, at({last.axis: index}), load(sums, (place,))))
            return nest(runs[:-1], chunked(last, self.lanes, put))
        outer = offset([d for d in runs[:-1] if d is not across])

        def read(x: Expr, y: Expr, _: Expr) -> Expr:
            return load(sums, (plus(outer, times(y, across.stride), x),))

        def write(x: Expr, y: Expr, inside: Expr, total: Expr) -> Body:
            return only_if(inside, self.stores(outputs, at({last.axis: x, across.axis: y}), total))
        return squares(runs, last, across, self.lanes, self.tile, read, write)


def _member(group: Expr, member: Axis) -> Expr:
    """The number of a group's member."""
    return plus(times(group, member.extent), axis(member)) if member.extent > 1 else group


def _member_loop(blocks: Blocks, group: Expr, member: Axis, body: Body) -> Body:
    """Run over the members of a group that exist."""
    if member.extent == 1:
        return body
    cut = blocks.number % member.extent
    stop = at_most(plus(blocks.number, times(group, -member.extent)), member.extent) if cut else None
    return (Loop(member, body, "serial", stop),)


def _fill(staged: Staged | None) -> Body:
    return () if staged is None else staged.fill


def replace_in(body: Body, values: dict[Axis, Expr]) -> Body:
    """Statements with other expressions in the place of axes."""
    result: list[Statement] = []
    for s in body:
        if isinstance(s, Store):
            result.append(Store(s.target, tuple(replace_axes(i, values) for i in s.index),
                                replace_axes(s.value, values), s.combine))
        elif isinstance(s, Loop):
            stop = None if s.stop is None else replace_axes(s.stop, values)
            result.append(Loop(s.axis, replace_in(s.body, values), s.kind, stop))
        else:
            result.append(type(s)(replace_axes(s.condition, values), replace_in(s.body, values)))
    return tuple(result)


def _free_index(staged: Staged, free: Range, index: Expr) -> Expr:
    """A row-major index of a block as a free index of a staged operand."""
    if staged.strides == free.strides:
        return index
    terms = []
    for i, (extent, mine, theirs) in enumerate(zip(free.extents, free.strides, staged.strides, strict=True)):
        part = quotient(index, mine)
        terms.append(times(part if i <= free.position else remainder(part, extent), theirs))
    return plus(*terms)


def _slivers(here: Range, strides: Sequence[int], width: int) -> Expr | None:
    """How many slivers of a block hold anything; None: all."""
    if here.limit is None:
        return None
    inside = at_most(here.limit, here.extents[here.position])
    inner = stage.count(strides[here.position + 1:], here.extents[here.position + 1:])
    return quotient(plus(times(plus(inside, -1), strides[here.position]), inner + width - 1), width)

"""Plan -> loop tree: writes the loops that a plan's decisions ask for.

The vectorised axis runs in chunks of `unroll` vectors, then single vectors, then one masked vector. A reduction along
it keeps `unroll` vectors of accumulators that are combined in a fixed tree at the end; a reduction across it keeps one
accumulator a lane. So the order of all combinations depends on the plan only, never on threads.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..ir.expr import TRUE, Axis, Buffer, Expr, axis, constant, index_constant, load, operation, substitute
from ..ir.kernel import If, Loop, Statement, Store
from ..ir.types import array_type
from ..util import toposort
from .affine import Analysis, offset_form
from .instructions import identity
from .plan import Group, Plan, Write, narrowed, replace_axes

Body = tuple[Statement, ...]
TILES = 4   # register tiles side by side, so that whole runs of memory are read


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` chunks, `stride` apart from `base` on, of `vectors` vectors each; of a vector `active` lanes run."""
    count: int
    stride: int
    vectors: int
    active: int
    base: int


def pieces(extent: int, lanes: int, unroll: int) -> list[Piece]:
    """How range(extent) is covered by vectors."""
    chunk = lanes * unroll
    whole, single = extent - extent % chunk, extent - extent % lanes
    found = [Piece(extent // chunk, chunk, unroll, lanes, 0)]
    if unroll > 1:
        found.append(Piece((single - whole) // lanes, lanes, 1, lanes, whole))
    found.append(Piece(int(single < extent), lanes, 1, extent - single, single))
    return [piece for piece in found if piece.count]


def plus(a: Expr, b: int) -> Expr:
    return a if b == 0 else operation("add", a, index_constant(b))


def times(a: Expr, b: int) -> Expr:
    return a if b == 1 else operation("mul", a, index_constant(b))


def guarded(condition: Expr, body: Body) -> Body:
    return body if condition is TRUE else (If(condition, body),)


def nested(axes: Sequence[Axis], body: Body) -> Body:
    """Serial loops around a body, the first outermost."""
    for a in reversed(axes):
        body = (Loop(a, body),)
    return body


def build(plan: Plan, scratch: tuple[Buffer, ...]) -> tuple[Body, tuple[Buffer, ...]]:
    """The loop tree of a plan, and its scratch and register buffers."""
    if plan.vector is not None:
        return side_by_side(plan, scratch)
    builder = Builder()
    body: Body = ()
    for group in plan.groups:
        body += builder.group(group)
    body = nested(plan.outer[1:], body)
    if plan.outer:
        body = (Loop(plan.outer[0], body, "parallel" if plan.parallel else "serial"),)
    return body, scratch + tuple(builder.registers)


def side_by_side(plan: Plan, scratch: tuple[Buffer, ...]) -> tuple[Body, tuple[Buffer, ...]]:
    """Points of an outer axis as lanes: every scratch buffer gets a dimension of lanes, every loop inside stays
    serial.
    """
    vector, lanes = plan.vector, plan.lanes
    assert vector is not None
    lane = Axis(vector.name + "_lane", lanes)
    wide = {b: Buffer(b.name, array_type((*b.type.shape, lanes), b.type.dtype), b.scope) for b in scratch}
    builder = Builder(lane=lane)
    body: Body = ()
    for group in plan.groups:
        body += builder.group(replace(group, writes=tuple(_widen(write, wide, lane) for write in group.writes)))
    others = [a for a in plan.outer if a is not vector]
    chunks, total = -(-vector.extent // lanes), 1
    for a in others:
        total *= a.extent
    flat = Axis("".join(a.name for a in others) + vector.name, total * chunks)
    chunk = operation("rem", axis(flat), index_constant(chunks))
    position = operation("add", times(chunk, lanes), axis(lane))
    by, stride = {vector: position}, total * chunks
    for a in others:
        stride //= a.extent
        by[a] = operation("rem", operation("div", axis(flat), index_constant(stride)), index_constant(a.extent))
    body = replace_in(body, by)
    if vector.extent % lanes:
        body = (If(operation("lt", position, index_constant(vector.extent)), body),)
    body = (Loop(lane, body, "vector"),)
    return (Loop(flat, body,
                 "parallel" if plan.parallel else "serial"),), tuple(wide.values()) + tuple(builder.registers)


def _widen(write: Write, wide: dict[Buffer, Buffer], lane: Axis) -> Write:
    """A write whose scratch buffers hold an element for each lane."""
    def widened(e: Expr) -> Expr | None:
        if e.op != "load" or e.attribute not in wide:
            return None
        *index, valid = (substitute(operand, widened) for operand in e.operands)
        return load(wide[e.attribute], (*index, axis(lane)), valid)

    index = tuple(substitute(i, widened) for i in write.index)
    target = wide.get(write.target, write.target)
    return replace(write, target=target, index=(*index, axis(lane)) if write.target in wide else index,
                   value=substitute(write.value, widened), valid=substitute(write.valid, widened))


@dataclass(slots=True)
class Builder:
    """Builds the loops of groups; collects the register buffers it makes. `lane`: the lanes that all groups run in."""
    registers: list[Buffer] = field(default_factory=list)
    lane: Axis | None = None

    def register(self, write: Write, shape: tuple[int, ...]) -> Buffer:
        buffer = Buffer(f"sum{len(self.registers)}", array_type(shape, write.value.dtype), "register")
        self.registers.append(buffer)
        return buffer

    def group(self, group: Group) -> Body:
        if group.rows and group.tile is not None:
            return self.tiled(group)
        if not group.reduced:
            return self.map(group)
        if self.lane is not None:
            return self.in_lanes(group, self.lane)
        if group.vector is None or group.vector in group.reduced:
            return self.along(group)
        return self.streamed(group) if group.rows else self.across(group)

    # -- chunks of vectors -------------------------------------------------------------------------------------------

    def chunks(self, group: Group, body: Callable[[Expr, Piece], Body], parallel: bool) -> Body:
        """Run `body(start, piece)` for every chunk of the vector axis."""
        a = group.vector
        assert a is not None
        found = pieces(a.extent, group.lanes, group.unroll)
        if parallel and group.block:
            return self.blocks(group, found, body)
        result: Body = ()
        for piece in found:
            chunk = Axis(a.name + "_chunk", piece.count)
            start = index_constant(piece.base) if piece.count == 1 else plus(times(axis(chunk), piece.stride),
                                                                             piece.base)
            inside = body(start, piece)
            result += (Loop(chunk, inside),) if piece.count > 1 else inside
        return result

    def blocks(self, group: Group, found: list[Piece], body: Callable[[Expr, Piece], Body]) -> Body:
        """Blocks of chunks in parallel; the last block also does what is left over."""
        a, main = group.vector, found[0]
        assert a is not None
        whole = main.count if main.base == 0 else 0
        per_block = max(group.block // main.stride, 1)
        count = max(-(-whole // per_block), 1)
        block = Axis(a.name + "_block", count)
        chunk = Axis(a.name + "_chunk", min(per_block, whole))
        first = times(axis(block), per_block)
        stop = None
        if whole % per_block and count > 1:
            left = operation("sub", index_constant(whole), first)
            stop = operation("min", index_constant(per_block), left)
        start = times(operation("add", first, axis(chunk)), main.stride)
        inside: Body = (Loop(chunk, body(start, main), "serial", stop),)
        rest: Body = ()
        for piece in found[1:]:
            extra = Axis(a.name + "_rest", piece.count)
            rest += (Loop(extra, body(plus(times(axis(extra), piece.stride), piece.base), piece)),)
        if rest:
            inside += guarded(operation("eq", axis(block), index_constant(count - 1)) if count > 1 else TRUE, rest)
        return (Loop(block, inside, "parallel"),)

    def vectors(self, group: Group, start: Expr, piece: Piece, body: Callable[[Expr, Expr, Expr], Body]) -> Body:
        """`body(position, slot, lane)` for every element of a chunk."""
        a = group.vector
        assert a is not None
        lane = Axis(a.name + "_lane", group.lanes)
        slot = Axis(a.name + "_slot", piece.vectors)
        position = operation("add", start, axis(lane))
        if piece.vectors > 1:
            position = operation("add", operation("add", start, times(axis(slot), group.lanes)), axis(lane))
        which = axis(slot) if piece.vectors > 1 else index_constant(0)
        inside = body(position, which, axis(lane))
        if piece.active < group.lanes:
            inside = (If(operation("lt", axis(lane), index_constant(piece.active)), inside),)
        vector: Body = (Loop(lane, inside, "vector"),)
        return (Loop(slot, vector, "unroll"),) if piece.vectors > 1 else vector

    def around(self, group: Group, axes: Sequence[Axis], body: Body) -> Body:
        """Loops over the axes outside the vector loops; the first may run in parallel."""
        if not axes:
            return body
        body = nested(axes[1:], body)
        first = axes[0]
        if group.block <= 1 or group.block >= first.extent:
            return (Loop(first, body, "parallel" if group.block else "serial"),)
        return self.row_blocks(first, group.block, body)

    def row_blocks(self, a: Axis, size: int, body: Body) -> Body:
        """Blocks of `size` values of an axis, in parallel."""
        count = -(-a.extent // size)
        block = Axis(a.name + "_block", count)
        inner = Axis(a.name + "_in", size)
        position = operation("add", times(axis(block), size), axis(inner))
        stop = None
        if a.extent % size:
            stop = operation("min", index_constant(size),
                             operation("sub", index_constant(a.extent), times(axis(block), size)))
        return (Loop(block, (Loop(inner, replace_in(body, {a: position}), "serial", stop),), "parallel"),)

    # -- groups ------------------------------------------------------------------------------------------------------

    def map(self, group: Group) -> Body:
        """Plain stores."""
        if group.vector is None:
            return self.around(group, group.axes, tuple(leaf for write in group.writes for leaf in store(write)))
        outer = [a for a in group.axes if a is not group.vector]
        vector = group.vector

        def chunk(start: Expr, piece: Piece) -> Body:
            return self.vectors(group, start, piece, lambda position, slot, lane: tuple(
                leaf for write in group.writes for leaf in store(write, {vector: position})))

        return self.around(group, outer, self.chunks(group, chunk, not outer))

    def along(self, group: Group) -> Body:
        """Reductions whose vector axis is reduced (or that have none)."""
        unroll = 1
        if group.vector is not None:
            unroll = pieces(group.vector.extent, group.lanes, group.unroll)[0].vectors
        shape = (unroll, group.lanes)
        sums = {write: self.register(write, shape) for write in group.writes if write.reduced}
        slot, lane = Axis("slot", unroll), Axis("lane", group.lanes)
        start: Body = tuple(Store(buffer, (axis(slot), axis(lane)), start_value(write)) for write,
                            buffer in sums.items())
        body: Body = (Loop(slot, (Loop(lane, start, "vector"),), "unroll"),)
        inner = [a for a in group.axes if a in group.reduced and a is not group.vector]
        body += nested(inner, self.accumulate(group, sums))
        for write, buffer in sums.items():
            body += self.fold(write, buffer, unroll, group.lanes)
        return self.around(group, group.kept, body)

    def in_lanes(self, group: Group, lane: Axis) -> Body:
        """Reductions inside a vector loop: one accumulator a lane."""
        shape, place = (lane.extent,), (axis(lane),)
        sums = {write: self.register(write, shape) for write in group.writes if write.reduced}
        body: Body = tuple(Store(buffer, place, start_value(write)) for write, buffer in sums.items())
        inner: Body = ()
        for write in group.writes:
            if write in sums:
                inner += guarded(write.valid, (Store(sums[write], place, write.value, write.combine),))
            else:
                inner += store(write)
        body += nested([a for a in group.axes if a in group.reduced], inner)
        for write, buffer in sums.items():
            body += finish(write, write.index, load(buffer, place))
        return nested(group.kept, body)

    def accumulate(self, group: Group, sums: dict[Write, Buffer]) -> Body:
        vector = group.vector

        def element(position: Expr | None, slot: Expr, lane: Expr) -> Body:
            by = {} if vector is None or position is None else {vector: position}
            result: Body = ()
            for write in group.writes:
                if write in sums:
                    value = Store(sums[write], (slot, lane), replace_axes(write.value, by), write.combine)
                    result += guarded(replace_axes(write.valid, by), (value,))
                else:
                    result += store(write, by)
            return result

        if vector is None:
            return element(None, index_constant(0), index_constant(0))
        return self.chunks(group, lambda start, piece: self.vectors(group, start, piece, element), False)

    def fold(self, write: Write, buffer: Buffer, count: int, lanes: int) -> Body:
        """Combine the accumulators pairwise, then their lanes, and store the result."""
        body: Body = ()
        while count > 1:
            half = (count + 1) // 2
            for number in range(count - half):
                lane = Axis("lane", lanes)
                other = load(buffer, (index_constant(number + half), axis(lane)))
                body += (Loop(lane, (Store(buffer, (index_constant(number), axis(lane)), other, write.combine),),
                              "vector"),)
            count = half
        total = self.register(write, ())
        lane = Axis("lane", lanes)
        body += (Store(total, (), start_value(write)),
                 Loop(lane, (Store(total, (), load(buffer, (index_constant(0), axis(lane))), write.combine),),
                      "vector"))
        return body + finish(write, write.index, load(total, ()))

    def across(self, group: Group) -> Body:
        """Reductions whose vector axis is kept: one accumulator a lane."""
        vector = group.vector
        assert vector is not None
        outer = [a for a in group.kept if a is not vector]
        inner = [a for a in group.axes if a in group.reduced]

        def chunk(start: Expr, piece: Piece) -> Body:
            shape = (piece.vectors, group.lanes)
            sums = [(write, self.register(write, shape)) for write in group.writes]

            def begin(position: Expr, slot: Expr, lane: Expr) -> Body:
                return tuple(Store(buffer, (slot, lane), start_value(write)) for write, buffer in sums)

            def step(position: Expr, slot: Expr, lane: Expr) -> Body:
                by, result = {vector: position}, ()
                for write, buffer in sums:
                    value = Store(buffer, (slot, lane), replace_axes(write.value, by), write.combine)
                    result += guarded(replace_axes(write.valid, by), (value,))
                return result

            def end(position: Expr, slot: Expr, lane: Expr) -> Body:
                by, result = {vector: position}, ()
                for write, buffer in sums:
                    index = tuple(replace_axes(i, by) for i in write.index)
                    kept = replace(write, valid=replace_axes(write.valid, by))
                    result += finish(kept, index, load(buffer, (slot, lane)))
                return result

            return (self.vectors(group, start, piece, begin)
                    + nested(inner, self.vectors(group, start, piece, step))
                    + self.vectors(group, start, piece, end))

        return self.around(group, outer, self.chunks(group, chunk, not outer))

    def streamed(self, group: Group) -> Body:
        """A column reduction in the order of memory: a few rows at a time are added to the results."""
        vector, rows = group.vector, group.rows
        (reduced,) = group.reduced
        assert vector is not None
        outer = [a for a in group.kept if a is not vector]

        def begin(start: Expr, piece: Piece) -> Body:
            return self.vectors(group, start, piece, lambda position, slot, lane: tuple(
                Store(w.target, tuple(replace_axes(i, {vector: position}) for i in w.index), start_value(w))
                for w in group.writes))

        def add(row: Callable[[Expr], Expr], count: int) -> Callable[[Expr, Piece], Body]:
            def chunk(start: Expr, piece: Piece) -> Body:
                return self.vectors(group, start, piece, lambda position, slot, lane: self.add_rows(
                    group, {vector: position}, reduced, row, count))
            return chunk

        body = self.chunks(group, begin, False)
        whole, left = divmod(reduced.extent, rows)
        for count, base, step in ((whole, 0, rows), (left, whole * rows, 1)):
            if count:
                block = Axis(reduced.name + "_rows", count)
                body += (Loop(block, self.chunks(group, add(_row(block, step, base), step), False)),)
        return self.around(group, outer, body)

    def add_rows(self, group: Group, by: dict[Axis, Expr], reduced: Axis, row: Callable[[Expr], Expr],
                 count: int) -> Body:
        result: Body = ()
        for w in group.writes:
            index = tuple(replace_axes(i, by) for i in w.index)
            lane = _lane_of(by)
            total = self.register(w, (lane.extent,))
            q = Axis("row", count)
            value = replace_axes(w.value, by | {reduced: row(axis(q))})
            result += (Store(total, (axis(lane),), load(w.target, index)),
                       Loop(q, (Store(total, (axis(lane),), value, w.combine),), "unroll"),
                       Store(w.target, index, load(total, (axis(lane),))))
        return result

    def tiled(self, group: Group) -> Body:
        """Blocks of `rows` x `lanes`: reads that run along the tile axis are vectors, transposed in registers."""
        vector, tile = group.vector, group.tile
        assert vector is not None and tile is not None
        outer = [a for a in group.axes if a not in (vector, tile)]
        found = pieces(tile.extent, group.rows, TILES)
        result = [self.tile_loop(group, vector, tile, piece) for piece in found]
        if group.block and not outer:   # one parallel loop: all pieces by the number of their blocks
            return (_parallel_pieces(tile, found, result),)
        return self.around(group, outer, tuple(result))

    def tile_loop(self, group: Group, vector: Axis, tile: Axis, piece: Piece) -> Loop:
        """All blocks of one piece of the tile axis: for each, all chunks of the vector axis."""
        block, inner = Axis(tile.name + "_block", piece.count), Axis(tile.name + "_tile", piece.vectors)
        corner = plus(operation("add", times(axis(block), piece.stride), times(axis(inner), group.rows)), piece.base)
        row = Axis(tile.name + "_row", piece.active)
        whole = piece.active == group.rows
        position = operation("add", corner, axis(row))

        def chunk(start: Expr, part: Piece) -> Body:
            square = whole and part.active == group.rows == group.lanes and part.vectors == 1
            staged = self.staged(group, vector, tile) if square else {}
            body: Body = ()
            for e, buffer in staged.items():
                body += self.read_square(group, e, buffer, {vector: start, tile: corner})

            def element(at: Expr, slot: Expr, lane: Expr) -> Body:
                writes = [_with_staged(w, staged, lane, axis(row)) for w in group.writes]
                return tuple(leaf for w in writes for leaf in store(w, {vector: at, tile: position}))

            rows = Loop(row, self.vectors(group, start, part, element), "unroll" if whole else "serial")
            return (Loop(inner, (*body, rows)),)

        return Loop(block, self.chunks(group, chunk, False))

    def staged(self, group: Group, vector: Axis, tile: Axis) -> dict[Expr, Buffer]:
        """The reads that are consecutive along the tile axis and strided along the lanes, with a square of registers
        each.
        """
        analysis, found = Analysis(), {}
        written = {w.target for w in group.writes}   # in this very loop: not to be read before it
        for e in toposort([w.value for w in group.writes], lambda e: e.operands):
            if e.op != "load" or e.operands[-1] is not TRUE or e.attribute in written:
                continue
            form = offset_form(analysis, e.operands[:-1], e.attribute.type.shape)
            simple = all(atom.op == "axis" or not {vector, tile} & analysis.axes(atom) for atom, _ in form.terms)
            if simple and form.coefficient(tile) == 1 and abs(form.coefficient(vector)) > 1:
                found[e] = Buffer(f"square{len(self.registers)}", array_type((group.lanes, group.lanes), e.dtype),
                                  "register")
                self.registers.append(found[e])
        return found

    def read_square(self, group: Group, e: Expr, buffer: Buffer, corner: dict[Axis, Expr]) -> Body:
        """buffer[r, l] = the read at r along the vector axis and l along the tile axis."""
        r, lane = Axis("r", group.lanes), Axis("l", group.lanes)
        (vector, first), (tile, base) = corner.items()
        read = replace_axes(e, {vector: operation("add", first, axis(r)), tile: operation("add", base, axis(lane))})
        return (Loop(r, (Loop(lane, (Store(buffer, (axis(r), axis(lane)), read),), "vector"),), "unroll"),)


def _with_staged(write: Write, staged: dict[Expr, Buffer], lane: Expr, row: Expr) -> Write:
    """A write that takes its staged reads from their squares."""
    if not staged:
        return write
    value = substitute(write.value, lambda e: load(staged[e], (lane, row)) if e in staged else None)
    return replace(write, value=value)


def _row(block: Axis, step: int, base: int) -> Callable[[Expr], Expr]:
    return lambda q: operation("add", plus(times(axis(block), step), base), q)


def _lane_of(by: dict[Axis, Expr]) -> Axis:
    """The vector axis in a position made by `Builder.vectors`."""
    (position,) = by.values()
    return position.operands[1].attribute


def _parallel_pieces(tile: Axis, found: list[Piece], loops: list[Loop]) -> Loop:
    """One parallel loop over the blocks of all pieces."""
    every = Axis(tile.name + "_blocks", sum(piece.count for piece in found))
    if len(loops) == 1:
        return replace(loops[0], kind="parallel")
    body: Body = ()
    first = 0
    for piece, loop in zip(found, loops, strict=True):
        inside = replace_in(loop.body, {loop.axis: plus(axis(every), -first)})
        low = operation("ge", axis(every), index_constant(first))
        high = operation("lt", axis(every), index_constant(first + piece.count))
        body += (If(operation("and", low, high), inside),)
        first += piece.count
    return Loop(every, body, "parallel")


def store(write: Write, by: dict[Axis, Expr] | None = None) -> Body:
    """One element of a write."""
    by = by or {}
    index = tuple(replace_axes(i, by) for i in write.index)
    return guarded(replace_axes(write.valid, by),
                   (Store(write.target, index, replace_axes(write.value, by), write.combine),))


def start_value(write: Write) -> Expr:
    assert write.combine is not None
    dtype = write.value.dtype
    return constant(identity(write.combine, dtype), dtype)


def finish(write: Write, index: tuple[Expr, ...], total: Expr) -> Body:
    """Store a reduction's result; where its `valid` looks at reduced axes, only the contributions were guarded."""
    result = (Store(write.target, index, narrowed(total, write.target.type.dtype)),)
    return result if any(a in write.reduced for a in _axes_of(write.valid)) else guarded(write.valid, result)


def _axes_of(e: Expr) -> Iterator[Axis]:
    stack = [e]
    while stack:
        e = stack.pop()
        if e.op == "axis":
            yield e.attribute
        stack.extend(e.operands)


def replace_in(body: Body, by: dict[Axis, Expr]) -> Body:
    """Statements with expressions in place of axes."""
    result: list[Statement] = []
    for s in body:
        if isinstance(s, Store):
            result.append(Store(s.target, tuple(replace_axes(i, by) for i in s.index), replace_axes(s.value, by),
                                s.combine))
        elif isinstance(s, Loop):
            stop = None if s.stop is None else replace_axes(s.stop, by)
            result.append(Loop(s.axis, replace_in(s.body, by), s.kind, stop))
        else:
            result.append(replace(s, condition=replace_axes(s.condition, by), body=replace_in(s.body, by)))
    return tuple(result)

"""Loop tree -> instruction list (see ir/instructions.py for the grammar of the result).

Every subexpression is emitted once, in the outermost loop where what it depends on is known. Values that are the same
in all lanes of a vector loop stay scalar until they meet a vector. A read or write is classified by the coefficient of
the vector axis in its offset: 0 is a scalar, 1 a vector, anything else a gather or scatter.

What moves where: arithmetic has no effects and moves freely. A load stays inside every open loop that stores to its
buffer, and inside every open `If`, `While` and loop that may run zero times (it could read outside its buffer there).
A quotient of integers stays there too (its divisor could be 0).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import CompilationError
from ..ir.expr import BOOL, COMPARISONS, INDEX, Axis, Buffer, Expr
from ..ir.instructions import InstructionList
from ..ir.kernel import If, Kernel, Loop, Statement, Store, While
from ..ir.target import Target
from ..util import toposort
from .affine import Analysis, Form, offset_form
from .index_placement import IndexPlacement
from .lane_transpose import transpose
from .placement import Block, Value, is_constant, number_values

SCRATCH_ALIGNMENT = 64
STEPS = (-1, 2, 3, 4)   # strides at which vectors and shuffles beat a gather
_UNKNOWN_ROUNDS = 16   # how often a `while` is taken to run, in estimates of work


def expressions(statements: Iterable[Statement]) -> Iterator[Expr]:
    """Every expression that statements hold directly."""
    for statement in statements:
        if isinstance(statement, Store):
            yield from statement.index
            yield statement.value
            continue
        if isinstance(statement, (If, While)):
            yield statement.condition
        elif statement.stop is not None:
            yield statement.stop
        yield from expressions(statement.body)


def stored_buffers(statements: Iterable[Statement]) -> frozenset[Buffer]:
    """The buffers that statements write."""
    found: set[Buffer] = set()
    for statement in statements:
        if isinstance(statement, Store):
            found.add(statement.target)
        else:
            found |= stored_buffers(statement.body)
    return frozenset(found)


def _loops(statements: Iterable[Statement]) -> Iterator[Loop]:
    for statement in statements:
        if isinstance(statement, Store):
            continue
        if isinstance(statement, Loop):
            yield statement
        yield from _loops(statement.body)


def to_instructions(kernel: Kernel, target: Target) -> InstructionList:
    """The instruction list of a scheduled kernel; its expressions hold core operations only.

    Raises CompilationError for a body that cannot be expressed: nested vector loops, a `while` that differs between
    lanes, a register buffer at an index that is not constant after unrolling.
    """
    if kernel.body is None:
        raise CompilationError(f"kernel {kernel.name} is not scheduled")
    return Emitter(kernel, target).run()


class Emitter(IndexPlacement):
    """Builds the instruction list of one kernel."""

    def __init__(self, kernel: Kernel, target: Target):
        assert kernel.body is not None
        super().__init__(kernel.name)
        self.kernel = kernel
        self.target = target
        self.stream_bytes = target.caches[2] or 16 * target.caches[1]
        self.pointers: dict[Buffer, Value] = {}
        self.registers: dict[Buffer, Value] = {}
        self.register_lanes = _register_lanes(kernel.body, self.analysis)
        self.state |= dict.fromkeys(stored_buffers(kernel.body), 0)
        self.state |= {loop.axis: None for loop in _loops(kernel.body) if loop.kind in ("unroll", "vector")
                       or loop.axis.extent == 1}
        self.find_dependences(expressions(kernel.body))
        self.read_back = {e.attribute for e in self.depends if e.op == "load"}

    def run(self) -> InstructionList:
        kernel, body = self.kernel, self.kernel.body
        assert body is not None
        extent = 1
        if len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
            extent = body[0].axis.extent
        offsets, scratch_bytes = _place_scratch(kernel.scratch)
        for buffer in kernel.outputs + kernel.inputs + tuple(b for b, _ in offsets):
            self.pointers[buffer] = self.place(Value("parameter", (), buffer, None, 1), 0)
        self.statements(body)
        instructions, flops = number_values(self.blocks[0].items)
        moved = sum(buffer.type.nbytes for buffer in kernel.outputs + kernel.inputs)
        return InstructionList(kernel.name, kernel.outputs + kernel.inputs, offsets, scratch_bytes, extent,
                               instructions, flops, moved)

    # -- expressions -------------------------------------------------------------------------------------------------

    def of_index(self, e: Expr) -> bool:
        """Whether an expression is a comparison or a cast of such index arithmetic."""
        return (e.op == "cast" or e.op in COMPARISONS) and e.operands[0].dtype == INDEX and \
            all(operand not in self.loading for operand in e.operands)

    def key(self, e: Expr) -> Any:
        slots = self.depends.get(e)
        if slots is None:   # made by index simplification
            self.find_dependences([e])
            slots = self.depends[e]
        if not slots:
            return e
        state = self.state
        return (e, *[state[slot] for slot in slots])

    def emit(self, root: Expr) -> Value:
        """The value of an expression here."""
        found = self.find(self.key(root))
        if found is not None:
            return found
        stack = [root]
        while True:
            e = stack[-1]
            waiting = [operand for operand in self._emitted_before(e) if self.find(self.key(operand)) is None]
            if waiting:
                stack.extend(waiting)
                continue
            found = self.known[self.key(e)] = self.make(e)
            while stack and self.find(self.key(stack[-1])) is not None:
                stack.pop()
            if not stack:
                return found

    def _emitted_before(self, e: Expr) -> tuple[Expr, ...]:
        if e.op == "load":
            return e.operands[-1:]
        if e.attribute == "rare":
            return e.operands[::2]
        return () if self.is_index(e) or self.of_index(e) else e.operands

    def make(self, e: Expr) -> Value:
        """The instruction of one expression, whose operands are known."""
        if e.op == "constant":
            return self.constant(e.attribute, e.dtype)
        if e.op == "axis":
            return self.axis_value(e.attribute)
        if e.op == "load":
            return self.load(e)
        if e.attribute == "rare":
            return self.rare(e)
        if self.of_index(e):
            return self.compare(e) if e.op in COMPARISONS else self.cast_index(e)
        if self.is_index(e):
            form = self.analysis.form(e)
            if form.terms != ((e, 1),):
                return self.emit_form(form)
            if e.op in ("div", "rem"):
                return self.quotient(e)
        return self.operation(e.op, tuple(self.emit(operand) for operand in e.operands), e.dtype)

    def rare(self, e: Expr) -> Value:
        """A selection whose first value is computed only where some lane needs it: a branch around it."""
        condition, usual = self.emit(e.operands[0]), self.emit(e.operands[2])
        if condition.op == "constant":
            return self.emit(e.operands[1]) if condition.attribute.value else usual
        lanes = max(condition.lanes, usual.lanes)
        register = self.place(Value("register", (), (1, e.dtype), e.dtype, lanes), 0)
        self.effect("set", (register, self.splat(usual, lanes)), 0)
        some = self.uniform_mask(condition)
        block = self.open((), guard=True)
        self.effect("if", (some,))
        floor, self.floor = self.floor, len(self.blocks) - 1      # nothing of it leaves the branch
        chosen = self.operation("select", (condition, self.emit(e.operands[1]), usual), e.dtype)
        self.effect("set", (register, self.splat(chosen, lanes)), 0)
        self.floor = floor
        self.close(block, "end_if")
        return self.effect("get", (register,), 0, e.dtype, lanes)

    # -- memory ------------------------------------------------------------------------------------------------------

    def position(self, form: Form) -> tuple[Value, Value | None, bool]:
        """(scalar offset, vector part, whether the vector part is just the lanes)."""
        consecutive = False
        if self.vector is not None and form.coefficient(self.vector) == 1:
            rest = Form(form.constant, tuple(term for term in form.terms if term[0].attribute is not self.vector))
            scalar, vector = self.split_form(rest)
            if vector is None:
                return scalar, self.pure("lanes", (), None, INDEX, self.lanes), True
        scalar, vector = self.split_form(form)
        return scalar, vector, consecutive

    def zero(self, dtype: np.dtype) -> Value:
        return self.constant(0, dtype)

    def load(self, e: Expr) -> Value:
        buffer: Buffer = e.attribute
        valid = self.emit(e.operands[-1])
        form = offset_form(self.analysis, e.operands[:-1], buffer.type.shape)
        if buffer.type.size == 0 or is_constant(valid, False):
            return self.zero(buffer.type.dtype)
        if buffer.scope == "register":
            value = self.get(buffer, form)
            return value if is_constant(valid, True) else \
                self.operation("select", (valid, value, self.zero(e.dtype)), e.dtype)
        mask = self.blocks[-1].mask
        mask = valid if mask is None else self.operation("and", (mask, valid), BOOL)
        if is_constant(mask, True) and self.vector is not None and form.coefficient(self.vector) in STEPS:
            rest = Form(form.constant, tuple(term for term in form.terms if term[0].attribute is not self.vector))
            if not self.varies(rest):
                return self.strided(buffer, self.emit_form(rest), form.coefficient(self.vector))
        scalar, vector, consecutive = self.position(form)
        return self.read(buffer, scalar, vector, consecutive, mask, self.load_level(buffer))

    def strided(self, buffer: Buffer, base: Value, step: int) -> Value:
        """Every step-th element from `base` on: vectors that cover them, none past the last one, and shuffles."""
        lanes, level = self.lanes, self.load_level(buffer)
        dtype, pointer = buffer.type.dtype, self.pointer(buffer)
        last = (step - 1) * (lanes - 1)
        starts = [1 - lanes] if step < 0 else [min(k * lanes, last) for k in range(step)]
        vectors = []
        for start in starts:
            offset = self.operation("add", (base, self.index(start)), INDEX) if start else base
            vectors.append(self._memory("load", (pointer, offset), dtype, lanes, level))
        places = [next((k, step * i - start) for k, start in enumerate(starts) if start <= step * i < start + lanes)
                  for i in range(lanes)]
        first = tuple(at if k == 0 else 0 for k, at in places)
        result = self.pure("shuffle", (vectors[0], vectors[0]), first, dtype, lanes)
        for number, vector in enumerate(vectors[1:], 1):
            picks = tuple(lanes + at if k == number else i for i, (k, at) in enumerate(places))
            result = self.pure("shuffle", (result, vector), picks, dtype, lanes)
        return result

    def read(self, buffer: Buffer, scalar: Value, vector: Value | None, consecutive: bool, mask: Value,
             level: int) -> Value:
        """Load at a position (see `position`); 0 where `mask` is false."""
        pointer, dtype = self.pointer(buffer), buffer.type.dtype
        always = is_constant(mask, True)
        if vector is None:
            masks = () if always else (self.uniform_mask(mask),)
            value = self._memory("load", (pointer, scalar, *masks), dtype, 1, level)
            return value if mask.lanes == 1 else self.operation("select", (mask, value, self.zero(dtype)), dtype)
        masks = () if always else (self.splat(mask, vector.lanes),)
        if consecutive:
            return self._memory("load", (pointer, scalar, *masks), dtype, vector.lanes, level)
        offsets = self.operation("add", (vector, scalar), INDEX) if not is_constant(scalar, 0) else vector
        return self._memory("gather", (pointer, offsets, *masks), dtype, vector.lanes, level)

    def _memory(self, op: str, operands: tuple[Value, ...], dtype: np.dtype, lanes: int, level: int) -> Value:
        level = max(level, *[operand.level for operand in operands])
        buffer = operands[0].attribute
        if buffer not in self.state:   # read-only: equal loads are one
            return self.pure(op, operands, None, dtype, lanes, level)
        return self.place(Value(op, operands, None, dtype, lanes), level)

    def pointer(self, buffer: Buffer) -> Value:
        if buffer not in self.pointers:
            raise CompilationError(f"{buffer} is not among the buffers of kernel {self.kernel.name}")
        return self.pointers[buffer]

    def store(self, s: Store) -> None:
        buffer = s.target
        if buffer.type.size == 0:
            return
        value = self.emit(s.value)
        form = offset_form(self.analysis, s.index, buffer.type.shape)
        mask = self.blocks[-1].mask
        if buffer.scope == "register":
            self.set(buffer, form, value, mask, s.combine)
        else:
            self._store(buffer, form, value, mask, s.combine)
        self.state[buffer] += 1

    def _store(self, buffer: Buffer, form: Form, value: Value, mask: Value | None, combine: str | None) -> None:
        scalar, vector, consecutive = self.position(form)
        level = len(self.blocks) - 1
        pointer, dtype = self.pointer(buffer), buffer.type.dtype
        if vector is None:
            masks = () if mask is None else (self.uniform_mask(mask),)
            if combine is not None:
                value = self._fold_lanes(value, mask, combine)
                old = self.place(Value("load", (pointer, scalar, *masks), None, dtype, 1), level)
                value = self.operation(combine, (old, value), dtype)
            else:
                value = self._last_lane(value, mask)
            self.effect("store", (pointer, scalar, value, *masks))
            return
        if combine is not None and not self._distinct(form):
            self._serial_store(pointer, scalar, vector, value, mask, combine)
            return
        masks = () if mask is None else (self.splat(mask, vector.lanes),)
        where = scalar if consecutive else self.operation("add", (vector, scalar), INDEX)
        if combine is not None:
            read = Value("load" if consecutive else "gather", (pointer, where, *masks), None, dtype, vector.lanes)
            value = self.operation(combine, (self.place(read, level), value), dtype)
        streams = consecutive and combine is None and mask is None and self.streams(buffer, form, vector.lanes)
        self.effect("store" if consecutive else "scatter", (pointer, where, self.splat(value, vector.lanes), *masks),
                    "stream" if streams else None)

    def streams(self, buffer: Buffer, form: Form, lanes: int) -> bool:
        """Whether a vector store should go past the caches: into an array that they cannot hold, at multiples of a
        vector.

        The array must not be read here. That its first element is aligned is looked at when the code runs.
        """
        size = buffer.type.dtype.itemsize
        if buffer.type.nbytes < self.stream_bytes or buffer.scope != "global" or buffer in self.read_back:
            return False
        steps = [form.constant] + [c for atom, c in form.terms if atom.attribute is not self.vector]
        return lanes * size % self.target.vector_bytes == 0 and all(step * size % self.target.vector_bytes == 0
                                                                    for step in steps)

    def _distinct(self, form: Form) -> bool:
        """Whether the lanes of the vector axis surely meet different elements."""
        assert self.vector is not None
        others = [atom for atom, _ in form.terms if atom.attribute is not self.vector or atom.op != "axis"]
        return form.coefficient(self.vector) != 0 and not any(
            self.vector in self.analysis.axes(atom) or _loads(atom) for atom in others)

    def _serial_store(self, pointer: Value, scalar: Value, vector: Value, value: Value, mask: Value | None,
                      combine: str) -> None:
        """Combine lane after lane: several lanes may meet one element."""
        offsets = self.operation("add", (vector, scalar), INDEX)
        value = self.splat(value, vector.lanes)
        dtype = value.dtype
        assert dtype is not None
        for lane in range(vector.lanes):
            offset = self.pure("extract", (offsets,), lane, INDEX, 1)
            masks = () if mask is None else (self.pure("extract", (self.splat(mask, vector.lanes),), lane, BOOL, 1),)
            old = self.place(Value("load", (pointer, offset, *masks), None, dtype, 1), len(self.blocks) - 1)
            one = self.pure("extract", (value,), lane, dtype, 1)
            self.effect("store", (pointer, offset, self.operation(combine, (old, one), dtype), *masks))

    def _fold_lanes(self, value: Value, mask: Value | None, combine: str) -> Value:
        """All lanes of the open vector loop combined (a scalar outside one is itself)."""
        dtype = value.dtype
        assert dtype is not None
        if self.vector is None:
            return value
        value = self.splat(value, self.lanes)
        if mask is not None and mask.lanes > 1:
            value = self.operation("select", (mask, value, self.constant(identity(combine, dtype), dtype)), dtype)
        return self.pure("fold", (value,), combine, dtype, 1)

    def _last_lane(self, value: Value, mask: Value | None) -> Value:
        if value.lanes == 1:
            return value
        if mask is not None and mask.lanes > 1:
            raise CompilationError(f"kernel {self.kernel.name}: lanes of a masked vector loop store to one element")
        assert value.dtype is not None
        return self.pure("extract", (value,), value.lanes - 1, value.dtype, 1)

    # -- registers ---------------------------------------------------------------------------------------------------

    def register(self, buffer: Buffer) -> Value:
        if buffer not in self.registers:
            lanes = self.register_lanes.get(buffer, 1)
            count = -(-buffer.type.size // lanes)
            self.registers[buffer] = self.place(
                Value("register", (), (count, buffer.type.dtype), buffer.type.dtype, lanes), 0)
        return self.registers[buffer]

    def _slot(self, buffer: Buffer, form: Form) -> tuple[int, int | None]:
        """(slot, lane): the slot of a register buffer; the lane is None for all of them."""
        lanes = self.register_lanes.get(buffer, 1)
        coefficient = form.coefficient(self.vector) if self.vector is not None else 0
        terms = form.terms
        if coefficient:
            terms = tuple(term for term in terms if term[0].attribute is not self.vector)
        scalar, vector = self.split_form(Form(form.constant, terms))
        if scalar.op != "constant" or vector is not None or coefficient not in (0, 1):
            raise CompilationError(f"kernel {self.kernel.name}: register buffer {buffer} needs a constant index")
        offset = scalar.attribute.value
        if coefficient == 0:
            return offset // lanes, None if lanes == 1 else offset % lanes
        if lanes != self.lanes or offset % lanes:
            raise CompilationError(f"kernel {self.kernel.name}: {buffer} is read across its register boundaries")
        return offset // lanes, None

    def get(self, buffer: Buffer, form: Form) -> Value:
        lanes = self.register_lanes.get(buffer, 1)
        if self.vector is not None and lanes == self.lanes and form.coefficient(self.vector) == lanes:
            return self._column(buffer, form)
        slot, lane = self._slot(buffer, form)
        register, dtype = self.register(buffer), buffer.type.dtype
        whole = self.place(Value("get", (register,), slot, dtype, register.lanes), self.load_level(buffer))
        return whole if lane is None else self.pure("extract", (whole,), lane, dtype, 1, whole.level)

    def _column(self, buffer: Buffer, form: Form) -> Value:
        """An element of each of `lanes` neighbouring slots: the square that they form is transposed in registers."""
        rest = Form(form.constant, tuple(term for term in form.terms if term[0].attribute is not self.vector))
        scalar, vector = self.split_form(rest)
        if scalar.op != "constant" or vector is not None:
            raise CompilationError(f"kernel {self.kernel.name}: register buffer {buffer} needs a constant index")
        lanes, dtype = self.lanes, buffer.type.dtype
        first, column = divmod(scalar.attribute.value, lanes)
        key = ("column", buffer, self.state.get(buffer), first)
        found = self.find((*key, column))
        if found is not None:
            return found
        register = self.register(buffer)
        level = max((n for n, block in enumerate(self.blocks) if buffer in block.stored), default=0)
        rows = [self.place(Value("get", (register,), first + row, dtype, lanes), level) for row in range(lanes)]
        for number, value in enumerate(transpose(
                rows, dtype.itemsize, lambda a, b, mask: self.pure("shuffle", (a, b), mask, dtype, lanes, level))):
            self.known[(*key, number)] = value
        return self.known[(*key, column)]

    def set(self, buffer: Buffer, form: Form, value: Value, mask: Value | None, combine: str | None) -> None:
        slot, lane = self._slot(buffer, form)
        register, dtype = self.register(buffer), buffer.type.dtype
        lanes = register.lanes
        coefficient = form.coefficient(self.vector) if self.vector is not None else 0
        if coefficient == 0:   # one element for all lanes
            value = self._fold_lanes(value, mask, combine) if combine is not None else self._last_lane(value, mask)
            mask = None if mask is None else self.uniform_mask(mask)
        if combine is None and mask is None and lane is None:
            self.effect("set", (register, self.splat(value, lanes)), slot)
            return
        old = self.effect("get", (register,), slot, dtype, lanes)
        part = old if lane is None else self.pure("extract", (old,), lane, dtype, 1, old.level)
        if combine is not None:
            value = self.operation(combine, (part, value), dtype)
        if mask is not None:
            value = self.operation("select", (mask, value, part), dtype)
        if lane is not None:
            value = self.pure("insert", (old, value), lane, dtype, lanes, old.level)
        self.effect("set", (register, self.splat(value, lanes)), slot)

    # -- statements --------------------------------------------------------------------------------------------------

    def statements(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            if isinstance(statement, Store):
                self.store(statement)
            elif isinstance(statement, Loop):
                self.loop(statement)
            elif isinstance(statement, If):
                self.condition(statement)
            else:
                self.repeat(statement)

    def loop(self, loop: Loop) -> None:
        extent = loop.axis.extent
        if extent == 0:
            return
        if loop.kind == "vector" and extent > 1:
            self.vector_loop(loop)
        elif loop.kind == "unroll" or (extent == 1 and loop.kind != "parallel"):
            self.unrolled_loop(loop)
        else:
            self.native_loop(loop)

    def unrolled_loop(self, loop: Loop) -> None:
        if loop.stop is not None and loop.axis.extent > 1:
            raise CompilationError(f"kernel {self.kernel.name}: the unrolled loop {loop.axis} has a stop")
        for value in range(loop.axis.extent):
            self.unrolled[loop.axis] = self.state[loop.axis] = value
            self.statements(loop.body)
        del self.unrolled[loop.axis]

    def vector_loop(self, loop: Loop) -> None:
        if self.vector is not None:
            raise CompilationError(f"kernel {self.kernel.name}: vector loop {loop.axis} inside {self.vector}")
        if loop.stop is not None:
            raise CompilationError(f"kernel {self.kernel.name}: the vector loop {loop.axis} has a stop")
        extent = loop.axis.extent
        self.vector, self.lanes = loop.axis, 1 << (extent - 1).bit_length()
        self.state[loop.axis] = "vector"
        if self.lanes == extent:
            self.statements(loop.body)
        else:
            lanes = self.pure("lanes", (), None, INDEX, self.lanes)
            mask = self.operation("lt", (lanes, self.index(extent)), BOOL)
            self.masked(mask, loop.body)
        self.vector, self.lanes = None, 1

    def masked(self, mask: Value, body: tuple[Statement, ...]) -> None:
        outer = self.blocks[-1].mask
        if outer is not None:
            mask = self.operation("and", (outer, mask), BOOL)
        block = self.open(body, guard=True, mask=mask)
        self.statements(body)
        self.close(block)

    def open(self, body: tuple[Statement, ...], guard: bool, mask: Value | None = None) -> Block:
        block = Block(stored_buffers(body), guard, mask if mask is not None else self.blocks[-1].mask)
        for buffer in block.stored:
            self.state[buffer] += 1
        self.blocks.append(block)
        return block

    def close(self, block: Block, end: str | None = None) -> None:
        if end is not None:
            self.effect(end, ())
        popped = self.blocks.pop()
        assert popped is block
        self.blocks[-1].items.extend(block.items)

    def native_loop(self, loop: Loop) -> None:
        if loop.kind == "parallel":
            if len(self.blocks) > 1 or self.kernel.body != (loop,):
                raise CompilationError(f"kernel {self.kernel.name}: the parallel loop {loop.axis} is not outermost")
            start, stop = self.effect("begin", (), None, INDEX), self.effect("end", (), None, INDEX)
        else:
            start = self.index(0)
            stop = self.index(loop.axis.extent) if loop.stop is None else self.emit(loop.stop)
        if loop.axis in self.state:
            self.state[loop.axis] = "serial"
        block = self.open(loop.body, guard=loop.stop is not None)
        index = self.effect("loop", (start, stop), 1, INDEX)
        index.rounds = loop.axis.extent
        self.axes[loop.axis] = index
        self.statements(loop.body)
        del self.axes[loop.axis]
        self.close(block, "end_loop")

    def condition(self, statement: If) -> None:
        condition = self.emit(statement.condition)
        if condition.op == "constant":
            if condition.attribute.value:
                self.statements(statement.body)
        elif condition.lanes > 1:
            self.masked(condition, statement.body)
        else:
            block = self.open(statement.body, guard=True)
            self.effect("if", (condition,))
            self.statements(statement.body)
            self.close(block, "end_if")

    def repeat(self, statement: While) -> None:
        block = self.open(statement.body, guard=True)
        self.effect("while", ()).rounds = _UNKNOWN_ROUNDS
        condition = self.emit(statement.condition)
        if condition.lanes > 1:
            raise CompilationError(f"kernel {self.kernel.name}: a while loop differs between lanes")
        self.effect("while_test", (condition,))
        self.statements(statement.body)
        self.close(block, "end_loop")


def _loads(e: Expr) -> bool:
    return e.op == "load" or any(_loads(operand) for operand in e.operands)


def identity(combine: str, dtype: np.dtype) -> bool | int | float:
    """The value that leaves others as they are under `combine`."""
    if combine in ("add", "or", "xor"):
        return False if dtype == BOOL else 0
    if combine == "mul":
        return 1
    if combine == "and":
        return True if dtype == BOOL else -1 if dtype.kind == "i" else int(np.iinfo(dtype).max)
    if dtype == BOOL:
        return combine == "min"
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min if combine == "max" else np.iinfo(dtype).max)
    return float("-inf") if combine == "max" else float("inf")


def _place_scratch(scratch: tuple[Buffer, ...]) -> tuple[tuple[tuple[Buffer, int], ...], int]:
    """Byte offsets of the scratch buffers in one block."""
    offset, places = 0, []
    for buffer in scratch:
        if buffer.scope == "register":
            continue
        places.append((buffer, offset))
        offset += -(-buffer.type.nbytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return tuple(places), offset


def _register_lanes(body: tuple[Statement, ...], analysis: Analysis) -> dict[Buffer, int]:
    """How wide the elements of register buffers are: as the vector loops that run along them."""
    widths: dict[Buffer, int] = {}

    def note(buffer: Buffer, index: tuple[Expr, ...], a: Axis) -> None:
        if buffer.scope == "register" and offset_form(analysis, index, buffer.type.shape).coefficient(a) == 1:
            widths[buffer] = max(widths.get(buffer, 1), 1 << (a.extent - 1).bit_length())

    def stores(statements: tuple[Statement, ...], a: Axis) -> None:
        for statement in statements:
            if isinstance(statement, Store):
                note(statement.target, statement.index, a)
            else:
                stores(statement.body, a)

    for loop in _loops(body):
        if loop.kind == "vector" and loop.axis.extent > 1:
            stores(loop.body, loop.axis)
            for e in toposort(expressions(loop.body), lambda e: e.operands):
                if e.op == "load" and e.attribute.scope == "register":
                    note(e.attribute, e.operands[:-1], loop.axis)
    return widths

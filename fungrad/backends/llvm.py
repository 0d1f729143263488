"""Instruction list -> text of one LLVM function (LLVM 22, opaque pointers).

    define void @NAME(ptr noalias %arg0, ..., ptr noalias %scratch, i64 %begin, i64 %end)

Arguments: the kernel's global buffers in order, a thread-private block for its scratch buffers (aligned to 64 bytes),
and the range of the parallel axis. The text is near its final form: vectors are explicit, loops are rotated and loads
are hoisted, so that a light pass list suffices (`PASSES`). Multiplications and additions carry the `contract` flag, so
that they become fused multiply-adds; no other floating-point liberty is given.

bool is i1 in registers and a byte in memory; bfloat16 is its 16 bits (arithmetic on it is decomposed before).
"""
from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from ..dtypes import (
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    is_bfloat16,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..errors import CompilationError
from ..ir.expr import COMPARISONS
from ..ir.instructions import Instruction, InstructionList
from ..ir.target import Target
from ..ir.types import Literal

PASSES = ("sroa", "instcombine", "simplifycfg")
"""The function passes that the text needs, in the order in which they pay."""

_TYPES = {bool_: "i1", int8: "i8", int16: "i16", int32: "i32", int64: "i64", uint8: "i8", uint16: "i16", uint32: "i32",
          uint64: "i64", float16: "half", float32: "float", float64: "double"}
_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}
_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_ARITHMETIC = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv",
                     "rem": "frem"}
_INTEGER_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor",
                       "shift_left": "shl"}
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt", "abs": "fabs"}

_STATIC: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}


def render(code: InstructionList, target: Target) -> str:
    """The text of an LLVM function, with the declarations that it needs."""
    return Renderer(code, target).text()


def scalar_type(dtype: np.dtype) -> str:
    """The LLVM type of one element in a register."""
    return "i16" if is_bfloat16(dtype) else _TYPES[dtype]


def memory_type(dtype: np.dtype) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if dtype == bool_ else scalar_type(dtype)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f"


def literal_text(value: Literal) -> str:
    """A constant in LLVM's notation: floats by their bits."""
    dtype = value.dtype
    if dtype == bool_:
        return "true" if value.value else "false"
    bits = int.from_bytes(value.bits, "little")
    if is_bfloat16(dtype):
        return str(bits)
    if dtype == float16:
        return f"0xH{bits:04X}"
    if dtype == float64:
        return f"0x{bits:016X}"
    if dtype == float32:   # written as the float64 of equal value
        number = struct.unpack("<f", value.bits)[0]
        return _nan_text(bits) if number != number else f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    return str(value.value)


def _nan_text(bits: int) -> str:
    """A float32 NaN with its sign and payload, as LLVM's float64 notation."""
    return f"0x{(bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29:016X}"


class Renderer:
    """Writes one function. `names[i]` is the text of value i; `type_of(i)` its LLVM type."""

    def __init__(self, code: InstructionList, target: Target):
        self.code = code
        self.vector_bytes = target.vector_bytes
        self.can_stream = "sse2" in target.features       # a fence must follow such stores
        self.instructions = code.instructions
        self.names: list[str] = []
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.declarations: dict[str, str] = {}
        self.label = "entry"
        self.labels = 0
        self.temporaries = 0
        self.open: list[tuple[str, ...]] = []
        self.static: dict[int, tuple[int, ...] | None] = {}
        self.aligned: str | None = None             # whether stores may go past the caches
        self.rules: dict[str, Callable[[int, Instruction], str]] = {
            op: getattr(self, f"_{op}") for op in (
                "constant", "parameter", "begin", "end", "loop", "end_loop", "if", "end_if", "while", "while_test",
                "register", "get", "set", "load", "gather", "store", "scatter", "splat", "lanes", "extract", "insert",
                "shuffle", "fold", "select", "cast", "bitcast", "neg", "not", "fma")}

    def text(self) -> str:
        streamed = sorted({i.operands[0] for i in self.instructions if i.op == "store" and i.attribute == "stream"})
        if streamed and self.can_stream:
            self.find_aligned(streamed)
        for number, instruction in enumerate(self.instructions):
            rule = self.rules.get(instruction.op, self._operation)
            self.names.append(rule(number, instruction))
        if self.aligned is not None:
            self.line(f"call void @{self.declare('llvm.x86.sse.sfence', 'void')}()")
        arguments = [f"ptr noalias %arg{i}" for i in range(len(self.code.parameters))]
        arguments += ["ptr noalias %scratch", "i64 %begin", "i64 %end"]
        head = f"define void @{self.code.name}({', '.join(arguments)})"
        body = [f"{head} nounwind {{", "entry:", *self.allocas, *self.lines, "  ret void", "}"]
        metadata = ["!0 = !{i32 1}"] if self.aligned is not None else []
        return "\n".join([*body, *self.declarations.values(), *metadata]) + "\n"

    def find_aligned(self, pointers: list[int]) -> None:
        """A truth value: all arrays that are stored past the caches are aligned."""
        every: str | None = None
        for pointer in pointers:
            address = self.emit(f"ptrtoint ptr {self._parameter(pointer, self.instructions[pointer])} to i64")
            every = address if every is None else self.emit(f"or i64 {every}, {address}")
        low = self.emit(f"and i64 {every}, {self.vector_bytes - 1}")
        self.aligned = self.emit(f"icmp eq i64 {low}, 0")

    def stream(self, type: str, text: str, address: str, align: str) -> None:
        """A store past the caches where the array is aligned, else a plain one."""
        past, plain, done = self.new_label(), self.new_label(), self.new_label()
        self.line(f"br i1 {self.aligned}, label %{past}, label %{plain}")
        self.start(past)
        self.line(f"store {type} {text}, ptr {address}, align {self.vector_bytes}, !nontemporal !0")
        self.line(f"br label %{done}")
        self.start(plain)
        self.line(f"store {type} {text}, ptr {address}, {align}")
        self.line(f"br label %{done}")
        self.start(done)

    # -- small parts -------------------------------------------------------------------------------------------------

    def type(self, dtype: np.dtype, lanes: int) -> str:
        scalar = scalar_type(dtype)
        return scalar if lanes == 1 else f"<{lanes} x {scalar}>"

    def type_of(self, number: int) -> str:
        instruction = self.instructions[number]
        assert instruction.dtype is not None
        return self.type(instruction.dtype, instruction.lanes)

    def typed(self, number: int) -> str:
        return f"{self.type_of(number)} {self.names[number]}"

    def name(self, number: int) -> str:
        """The name of the result of an instruction."""
        return f"%v{number}"

    def emit(self, text: str, name: str | None = None) -> str:
        """A line that defines a value; its name."""
        if name is None:
            name = f"%t{self.temporaries}"
            self.temporaries += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def new_label(self) -> str:
        self.labels += 1
        return f"b{self.labels}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def declare(self, name: str, result: str, *arguments: str) -> str:
        self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"
        return name

    def call(self, name: str, result: str, arguments: list[str], types: list[str], flags: str = "") -> str:
        """The text of a call of an intrinsic."""
        self.declare(name, result, *types)
        operands = ", ".join(f"{type} {argument}" for type, argument in zip(types, arguments, strict=True))
        return f"call {flags}{result} @{name}({operands})"

    @staticmethod
    def suffix(type: str) -> str:
        """How an intrinsic's name spells a type: v16f32."""
        if type.startswith("<"):
            lanes, _, scalar = type[1:-1].split(" ")
            return f"v{lanes}{_SUFFIXES.get(scalar, scalar)}"
        return _SUFFIXES.get(type, type)

    def fill(self, text: str, scalar: str, lanes: int) -> str:
        """A constant in all lanes."""
        return text if lanes == 1 else f"splat ({scalar} {text})"

    # -- values ------------------------------------------------------------------------------------------------------

    def _constant(self, number: int, i: Instruction) -> str:
        return literal_text(i.attribute)

    def _parameter(self, number: int, i: Instruction) -> str:
        for position, buffer in enumerate(self.code.parameters):
            if buffer is i.attribute:
                return f"%arg{position}"
        for buffer, offset in self.code.scratch:
            if buffer is i.attribute:
                return self.emit(f"getelementptr i8, ptr %scratch, i64 {offset}", self.name(number))
        raise CompilationError(f"{i.attribute} is not a parameter of {self.code.name}")

    def _begin(self, number: int, i: Instruction) -> str:
        return "%begin"

    def _end(self, number: int, i: Instruction) -> str:
        return "%end"

    def _splat(self, number: int, i: Instruction) -> str:
        source = self.instructions[i.operands[0]]
        assert i.dtype is not None
        if source.op == "constant":
            return self.fill(self.names[i.operands[0]], scalar_type(i.dtype), i.lanes)
        type = self.type(i.dtype, i.lanes)
        first = self.emit(f"insertelement {type} poison, {self.typed(i.operands[0])}, i64 0")
        return self.emit(f"shufflevector {type} {first}, {type} poison, <{i.lanes} x i32> zeroinitializer",
                         self.name(number))

    def _lanes(self, number: int, i: Instruction) -> str:
        return "<" + ", ".join(f"i64 {lane}" for lane in range(i.lanes)) + ">"

    def _extract(self, number: int, i: Instruction) -> str:
        return self.emit(f"extractelement {self.typed(i.operands[0])}, i64 {i.attribute}", self.name(number))

    def _insert(self, number: int, i: Instruction) -> str:
        vector, scalar = i.operands
        text = f"insertelement {self.typed(vector)}, {self.typed(scalar)}, i64 {i.attribute}"
        return self.emit(text, self.name(number))

    def _shuffle(self, number: int, i: Instruction) -> str:
        a, b = i.operands
        mask = ", ".join(f"i32 {lane}" for lane in i.attribute)
        return self.emit(f"shufflevector {self.typed(a)}, {self.typed(b)}, <{len(i.attribute)} x i32> <{mask}>",
                         self.name(number))

    def _fold(self, number: int, i: Instruction) -> str:
        """Halves are combined until one lane is left."""
        lanes = self.instructions[i.operands[0]].lanes
        value = self.names[i.operands[0]]
        assert i.dtype is not None
        if i.dtype == bool_ and i.attribute in ("or", "and", "max", "min"):
            bits = self.emit(f"bitcast <{lanes} x i1> {value} to i{lanes}")
            every = i.attribute in ("and", "min")
            return self.emit(f"icmp {'eq' if every else 'ne'} i{lanes} {bits}, {-1 if every else 0}", self.name(number))
        while lanes > 2:
            type, half = self.type(i.dtype, lanes), lanes // 2
            low, high = (self.emit(f"shufflevector {type} {value}, {type} poison, <{half} x i32> <"
                                   + ", ".join(f"i32 {lane}" for lane in range(first, first + half)) + ">")
                         for first in (0, half))
            value = self.arithmetic(i.attribute, i.dtype, half, low, high)
            lanes = half
        pair = [self.emit(f"extractelement {self.type(i.dtype, 2)} {value}, i64 {lane}") for lane in (0, 1)]
        return self.arithmetic(i.attribute, i.dtype, 1, *pair, name=self.name(number))

    # -- control flow ------------------------------------------------------------------------------------------------

    def _loop(self, number: int, i: Instruction) -> str:
        """A rotated loop: tested at its end, and before it only where it may run zero times."""
        start, stop = (self.names[operand] for operand in i.operands)
        body, done, before = self.new_label(), self.new_label(), self.label
        if start.lstrip("-").isdigit() and stop.lstrip("-").isdigit() and int(start) < int(stop):
            self.line(f"br label %{body}")
        else:
            self.line(f"br i1 {self.emit(f'icmp slt i64 {start}, {stop}')}, label %{body}, label %{done}")
        self.start(body)
        index, following = self.name(number), f"%v{number}.next"
        self.lines.append("")   # the phi, written when the loop's last block is known
        self.open.append(("loop", body, done, before, str(len(self.lines) - 1), index, following, start, stop,
                          str(i.attribute)))
        return index

    def _end_loop(self, number: int, i: Instruction) -> str:
        opened = self.open.pop()
        if opened[0] == "while":
            _, head, done = opened
            self.line(f"br label %{head}")
            self.start(done)
            return ""
        _, body, done, before, line, index, following, start, stop, step = opened
        self.lines[int(line)] = f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{self.label} ]"
        self.emit(f"add nuw nsw i64 {index}, {step}", following)
        self.line(f"br i1 {self.emit(f'icmp slt i64 {following}, {stop}')}, label %{body}, label %{done}")
        self.start(done)
        return ""

    def _while(self, number: int, i: Instruction) -> str:
        head, done = self.new_label(), self.new_label()
        self.line(f"br label %{head}")
        self.start(head)
        self.open.append(("while", head, done))
        return ""

    def _while_test(self, number: int, i: Instruction) -> str:
        body = self.new_label()
        self.line(f"br i1 {self.names[i.operands[0]]}, label %{body}, label %{self.open[-1][2]}")
        self.start(body)
        return ""

    def _if(self, number: int, i: Instruction) -> str:
        body, done = self.new_label(), self.new_label()
        self.line(f"br i1 {self.names[i.operands[0]]}, label %{body}, label %{done}")
        self.start(body)
        self.open.append(("if", done))
        return ""

    def _end_if(self, number: int, i: Instruction) -> str:
        done = self.open.pop()[1]
        self.line(f"br label %{done}")
        self.start(done)
        return ""

    # -- registers: stack slots that `sroa` turns into values --------------------------------------------------------

    def _register(self, number: int, i: Instruction) -> str:
        count, dtype = i.attribute
        for slot in range(count):
            self.allocas.append(f"  %v{number}.{slot} = alloca {self.type(dtype, i.lanes)}")
        return f"%v{number}"

    def _get(self, number: int, i: Instruction) -> str:
        assert i.dtype is not None
        return self.emit(f"load {self.type(i.dtype, i.lanes)}, ptr {self.names[i.operands[0]]}.{i.attribute}",
                         self.name(number))

    def _set(self, number: int, i: Instruction) -> str:
        register, value = i.operands
        self.line(f"store {self.typed(value)}, ptr {self.names[register]}.{i.attribute}")
        return ""

    # -- memory ------------------------------------------------------------------------------------------------------

    def address(self, pointer: int, offset: str) -> str:
        buffer = self.instructions[pointer].attribute
        if offset == "0":
            return self.names[pointer]
        return self.emit(f"getelementptr {memory_type(buffer.type.dtype)}, ptr {self.names[pointer]}, i64 {offset}")

    def addresses(self, pointer: int, offsets: int) -> str:
        buffer = self.instructions[pointer].attribute
        return self.emit(f"getelementptr {memory_type(buffer.type.dtype)}, ptr {self.names[pointer]}, "
                         f"{self.typed(offsets)}")

    def from_memory(self, value: str, dtype: np.dtype, lanes: int, name: str) -> str:
        """A bool as i1; anything else as it is."""
        if dtype != bool_:
            return value
        memory = "i8" if lanes == 1 else f"<{lanes} x i8>"
        return self.emit(f"icmp ne {memory} {value}, {'0' if lanes == 1 else 'zeroinitializer'}", name)

    def to_memory(self, number: int) -> tuple[str, str]:
        """(type, text) of a value as it is stored."""
        i = self.instructions[number]
        assert i.dtype is not None
        if i.dtype != bool_:
            return self.type_of(number), self.names[number]
        memory = "i8" if i.lanes == 1 else f"<{i.lanes} x i8>"
        return memory, self.emit(f"zext {self.typed(number)} to {memory}")

    def memory_vector(self, dtype: np.dtype, lanes: int) -> str:
        scalar = memory_type(dtype)
        return scalar if lanes == 1 else f"<{lanes} x {scalar}>"

    def _load(self, number: int, i: Instruction) -> str:
        dtype = i.dtype
        assert dtype is not None
        type, align = self.memory_vector(dtype, i.lanes), f"align {dtype.itemsize}"
        name = self.name(number) if dtype != bool_ else None
        pointer, offset = i.operands[:2]
        if len(i.operands) == 2:
            value = self.emit(f"load {type}, ptr {self.address(pointer, self.names[offset])}, {align}", name)
        elif i.lanes == 1:   # branchless: where the mask is off, element 0 is read and dropped
            mask = self.names[i.operands[2]]
            safe = self.emit(f"select i1 {mask}, i64 {self.names[offset]}, i64 0")
            read = self.emit(f"load {type}, ptr {self.address(pointer, safe)}, {align}")
            zero = self.zero(type)
            value = self.emit(f"select i1 {mask}, {type} {read}, {type} {zero}", name)
        else:
            mask_type = f"<{i.lanes} x i1>"
            address = self.address(pointer, self.names[offset])
            value = self.emit(self.masked("load", type, f"ptr {align} {address}", i.operands[2], "zeroinitializer",
                                          ("ptr", mask_type, type)), name)
        return self.from_memory(value, dtype, i.lanes, self.name(number))

    @staticmethod
    def zero(type: str) -> str:
        return "0.0" if type in _SUFFIXES else "0"

    def masked(self, op: str, type: str, address: str, mask: int, otherwise: str, types: tuple[str, ...]) -> str:
        """A masked load or gather."""
        pointer = "p0" if op == "load" else f"v{self.instructions[mask].lanes}p0"
        name = self.declare(f"llvm.masked.{op}.{self.suffix(type)}.{pointer}", type, *types)
        return f"call {type} @{name}({address}, {self.typed(mask)}, {type} {otherwise})"

    def _gather(self, number: int, i: Instruction) -> str:
        dtype = i.dtype
        assert dtype is not None
        type, lanes = self.memory_vector(dtype, i.lanes), i.lanes
        addresses = self.addresses(i.operands[0], i.operands[1])
        mask = self.typed(i.operands[2]) if len(i.operands) > 2 else f"<{lanes} x i1> splat (i1 true)"
        name = self.declare(f"llvm.masked.gather.{self.suffix(type)}.v{lanes}p0", type, f"<{lanes} x ptr>",
                            f"<{lanes} x i1>", type)
        value = self.emit(f"call {type} @{name}(<{lanes} x ptr> align {dtype.itemsize} {addresses}, {mask}, "
                          f"{type} zeroinitializer)", self.name(number) if dtype != bool_ else None)
        return self.from_memory(value, dtype, lanes, self.name(number))

    def _store(self, number: int, i: Instruction) -> str:
        pointer, offset, value = i.operands[:3]
        type, text = self.to_memory(value)
        lanes = self.instructions[value].lanes
        align = f"align {self.instructions[pointer].attribute.type.dtype.itemsize}"
        if len(i.operands) == 3:
            address = self.address(pointer, self.names[offset])
            if self.aligned is not None and i.attribute == "stream":
                self.stream(type, text, address, align)
            else:
                self.line(f"store {type} {text}, ptr {address}, {align}")
        elif lanes == 1:
            body, done = self.new_label(), self.new_label()
            self.line(f"br i1 {self.names[i.operands[3]]}, label %{body}, label %{done}")
            self.start(body)
            self.line(f"store {type} {text}, ptr {self.address(pointer, self.names[offset])}, {align}")
            self.line(f"br label %{done}")
            self.start(done)
        elif sum(active := self.static_mask(i.operands[3]) or ()) == 1:
            # LLVM 22 makes a store of 4 bytes of a masked vector of one narrow element
            lane = active.index(1)
            one = self.emit(f"extractelement {type} {text}, i64 {lane}")
            place = self.names[offset] if lane == 0 else self.emit(f"add i64 {self.names[offset]}, {lane}")
            self.line(f"store {type.split(' ')[2][:-1]} {one}, ptr {self.address(pointer, place)}, {align}")
        else:
            name = self.declare(f"llvm.masked.store.{self.suffix(type)}.p0", "void", type, "ptr", f"<{lanes} x i1>")
            self.line(f"call void @{name}({type} {text}, ptr {align} {self.address(pointer, self.names[offset])}, "
                      f"{self.typed(i.operands[3])})")
        return ""

    def static_mask(self, number: int) -> tuple[int, ...] | None:
        """The lanes of an integer or truth value (1 for true) that is made of lane numbers and constants, else None."""
        if number not in self.static:
            i = self.instructions[number]
            self.static[number] = None
            if i.op == "lanes":
                self.static[number] = tuple(range(i.lanes))
            elif i.op == "constant" and i.dtype is not None and i.dtype.kind in "iub":
                self.static[number] = (int(i.attribute.value),)
            elif i.op == "cast" and i.dtype is not None and i.dtype.kind == "i":   # of numbers that fit
                self.static[number] = self.static_mask(i.operands[0])
            elif i.op == "splat":
                inner = self.static_mask(i.operands[0])
                self.static[number] = None if inner is None else inner * i.lanes
            elif i.op in _STATIC:
                operands = [self.static_mask(operand) for operand in i.operands]
                if None not in operands:
                    self.static[number] = tuple(int(_STATIC[i.op](*lanes)) for lanes in zip(*operands, strict=True))
        return self.static[number]

    def _scatter(self, number: int, i: Instruction) -> str:
        pointer, offsets, value = i.operands[:3]
        type, text = self.to_memory(value)
        lanes = self.instructions[value].lanes
        addresses = self.addresses(pointer, offsets)
        mask = self.typed(i.operands[3]) if len(i.operands) > 3 else f"<{lanes} x i1> splat (i1 true)"
        name = self.declare(f"llvm.masked.scatter.{self.suffix(type)}.v{lanes}p0", "void", type, f"<{lanes} x ptr>",
                            f"<{lanes} x i1>")
        align = f"align {self.instructions[pointer].attribute.type.dtype.itemsize}"
        self.line(f"call void @{name}({type} {text}, <{lanes} x ptr> {align} {addresses}, {mask})")
        return ""

    # -- operations --------------------------------------------------------------------------------------------------

    def _operation(self, number: int, i: Instruction) -> str:
        first = self.instructions[i.operands[0]]
        assert first.dtype is not None
        operands = [self.names[operand] for operand in i.operands]
        self.refuse_bfloat16(i.op, first.dtype)
        return self.arithmetic(i.op, first.dtype, i.lanes, *operands, name=self.name(number))

    def refuse_bfloat16(self, op: str, dtype: np.dtype) -> None:
        if is_bfloat16(dtype):
            raise CompilationError(f"{op} on bfloat16 must be decomposed before rendering")

    def arithmetic(self, op: str, dtype: np.dtype, lanes: int, *operands: str, name: str | None = None) -> str:
        """One operation on values of one type; the name of the result."""
        type = self.type(dtype, lanes)
        a = operands[0]
        if op in COMPARISONS:
            if _is_float(dtype):
                return self.emit(f"fcmp {_FLOAT_PREDICATES[op]} {type} {a}, {operands[1]}", name)
            signed = "" if op in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
            return self.emit(f"icmp {signed}{op} {type} {a}, {operands[1]}", name)
        if op in ("max", "min"):
            return self.extremum(op, dtype, lanes, a, operands[1], name)
        if _is_float(dtype):
            if op in _FLOAT_ARITHMETIC:
                return self.emit(f"{_FLOAT_ARITHMETIC[op]} {type} {a}, {operands[1]}", name)
            if op in _ROUNDINGS:
                intrinsic = f"llvm.{_ROUNDINGS[op]}.{self.suffix(type)}"
                return self.emit(self.call(intrinsic, type, [a], [type]), name)
        elif dtype == bool_:
            op = {"add": "or", "mul": "and"}.get(op, op)
            if op in ("and", "or", "xor"):
                return self.emit(f"{op} {type} {a}, {operands[1]}", name)
        else:
            return self.integer(op, dtype, type, operands, name)
        raise CompilationError(f"LLVM renders no {op} of {dtype}")

    def integer(self, op: str, dtype: np.dtype, type: str, operands: tuple[str, ...], name: str | None) -> str:
        signed = dtype.kind == "i"
        if op == "abs":
            if not signed:
                return operands[0]
            intrinsic = f"llvm.abs.{self.suffix(type)}"
            return self.emit(self.call(intrinsic, type, [operands[0], "false"], [type, "i1"]), name)
        if op in ("floor", "ceil", "trunc", "round"):
            return operands[0]
        opcode = _INTEGER_ARITHMETIC.get(op)
        if op in ("div", "rem"):
            opcode = ("s" if signed else "u") + op
        elif op == "shift_right":
            opcode = "ashr" if signed else "lshr"
        if opcode is None:
            raise CompilationError(f"LLVM renders no {op} of {dtype}")
        return self.emit(f"{opcode} {type} {operands[0]}, {operands[1]}", name)

    def extremum(self, op: str, dtype: np.dtype, lanes: int, a: str, b: str, name: str | None) -> str:
        """max and min; on floats either zero may be taken for the other, which saves half of the instructions."""
        type = self.type(dtype, lanes)
        if dtype == bool_:
            return self.emit(f"{'or' if op == 'max' else 'and'} {type} {a}, {b}", name)
        if _is_float(dtype):
            intrinsic = f"llvm.{op}imum.{self.suffix(type)}"
            return self.emit(self.call(intrinsic, type, [a, b], [type, type], "nsz "), name)
        intrinsic = f"llvm.{'s' if dtype.kind == 'i' else 'u'}{op}.{self.suffix(type)}"
        return self.emit(self.call(intrinsic, type, [a, b], [type, type]), name)

    def _fma(self, number: int, i: Instruction) -> str:
        assert i.dtype is not None
        type = self.type_of(number)
        operands = [self.names[operand] for operand in i.operands]
        if not _is_float(i.dtype):
            self.refuse_bfloat16("fma", i.dtype)
            product = self.emit(f"mul {type} {operands[0]}, {operands[1]}")
            return self.emit(f"add {type} {product}, {operands[2]}", self.name(number))
        return self.emit(self.call(f"llvm.fma.{self.suffix(type)}", type, operands, [type] * 3), self.name(number))

    def _neg(self, number: int, i: Instruction) -> str:
        assert i.dtype is not None
        self.refuse_bfloat16("neg", i.dtype)
        if _is_float(i.dtype):
            return self.emit(f"fneg {self.typed(i.operands[0])}", self.name(number))
        zero = "0" if i.lanes == 1 else "zeroinitializer"
        return self.emit(f"sub {self.type_of(number)} {zero}, {self.names[i.operands[0]]}", self.name(number))

    def _not(self, number: int, i: Instruction) -> str:
        assert i.dtype is not None
        ones = self.fill("true" if i.dtype == bool_ else "-1", scalar_type(i.dtype), i.lanes)
        return self.emit(f"xor {self.typed(i.operands[0])}, {ones}", self.name(number))

    def _select(self, number: int, i: Instruction) -> str:
        condition, a, b = i.operands
        return self.emit(f"select {self.typed(condition)}, {self.typed(a)}, {self.typed(b)}", self.name(number))

    def _bitcast(self, number: int, i: Instruction) -> str:
        source, result = self.type_of(i.operands[0]), self.type_of(number)
        if source == result:
            return self.names[i.operands[0]]
        return self.emit(f"bitcast {self.typed(i.operands[0])} to {result}", self.name(number))

    def _cast(self, number: int, i: Instruction) -> str:
        source, result = self.instructions[i.operands[0]].dtype, i.dtype
        assert source is not None and result is not None
        value, type = self.typed(i.operands[0]), self.type_of(number)
        if is_bfloat16(source) or is_bfloat16(result):
            raise CompilationError("casts of bfloat16 must be decomposed before rendering")
        if source == result or (source.kind in "iu" and result.kind in "iu" and source.itemsize == result.itemsize):
            return self.names[i.operands[0]]
        if result == bool_:
            zero = self.fill(self.zero(scalar_type(source)), scalar_type(source), i.lanes)
            compare = "fcmp une" if _is_float(source) else "icmp ne"
            return self.emit(f"{compare} {value}, {zero}", self.name(number))
        if _is_float(source) and not _is_float(result):
            intrinsic = f"llvm.fpto{'s' if result.kind == 'i' else 'u'}i.sat.{self.suffix(type)}." \
                        f"{self.suffix(self.type_of(i.operands[0]))}"
            return self.emit(self.call(intrinsic, type, [self.names[i.operands[0]]],
                                       [self.type_of(i.operands[0])]), self.name(number))
        return self.emit(f"{_cast_opcode(source, result)} {value} to {type}", self.name(number))


def _cast_opcode(source: np.dtype, result: np.dtype) -> str:
    """The LLVM instruction that converts between two different types (not from float to integer)."""
    if _is_float(source):
        return "fptrunc" if result.itemsize < source.itemsize else "fpext"
    if _is_float(result):
        return "sitofp" if source.kind == "i" else "uitofp"
    if source != bool_ and result.itemsize < source.itemsize:
        return "trunc"
    return "sext" if source.kind == "i" else "zext"

"""Where instructions go: single-assignment values in nested open blocks, each placed once, as far out as it may stand.

A value's `level` is the number of blocks around it. An operation without effects goes to the innermost level of its
operands; an equal one that stands in a block that is still open is used again.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import CompilationError
from ..ir.expr import BOOL, INDEX, Buffer
from ..ir.instructions import Instruction
from ..ir.types import Literal, literal

UINT64 = np.dtype("uint64")


class Value:
    """An instruction under construction: operands are Values, `level` is the number of open blocks around its place."""

    __slots__ = ("op", "operands", "attribute", "dtype", "lanes", "level", "block", "number", "rounds")

    def __init__(self, op: str, operands: tuple[Value, ...], attribute: Any, dtype: np.dtype | None, lanes: int):
        self.op = op
        self.operands = operands
        self.attribute = attribute
        self.dtype = dtype
        self.lanes = lanes
        self.level = 0
        self.block: Block | None = None
        self.number = -1
        self.rounds = 1


class Block:
    """The inside of an open loop or `if`: its instructions so far, and what loads must not move out of it."""

    __slots__ = ("items", "stored", "guard", "mask")

    def __init__(self, stored: frozenset[Buffer], guard: bool, mask: Value | None):
        self.items: list[Value] = []
        self.stored = stored
        self.guard = guard
        self.mask = mask


class Placement:
    """The open blocks of a list under construction, and what is known to stand in them.

    `state` tells what an expression's value may change with besides the open loops: stored buffers (a number that grows
    with every store), unrolled and vector axes.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks = [Block(frozenset(), False, None)]
        self.known: dict[Any, Value] = {}          # expressions and operations -> their instruction
        self.state: dict[Any, Any] = {}
        self.floor = 0                             # no instruction is placed further out than this level

    def place(self, value: Value, level: int) -> Value:
        """Append an instruction to the open block at `level`."""
        block = self.blocks[level]
        value.level = level
        value.block = block
        block.items.append(value)
        return value

    def find(self, key: Any) -> Value | None:
        """The instruction for a key, if it stands in a block that is still open."""
        value = self.known.get(key)
        if value is None:
            return None
        level = value.level
        return value if level < len(self.blocks) and self.blocks[level] is value.block else None

    def pure(self, op: str, operands: tuple[Value, ...], attribute: Any, dtype: np.dtype, lanes: int,
             level: int = 0) -> Value:
        """An instruction without effects, shared with an equal one, in the outermost block (from `level`) it may be
        in.
        """
        key = (op, operands, attribute, dtype, lanes)
        found = self.find(key)
        if found is None:
            level = max(level, self.floor)
            for operand in operands:
                level = max(level, operand.level)
            found = self.known[key] = self.place(Value(op, operands, attribute, dtype, lanes), level)
        return found

    def constant(self, value: bool | int | float | Literal, dtype: np.dtype) -> Value:
        bits = value if isinstance(value, Literal) else literal(value, dtype)
        return self.pure("constant", (), bits, dtype, 1)

    def index(self, value: int) -> Value:
        return self.constant(value, INDEX)

    def splat(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise CompilationError(f"a value of {value.lanes} lanes meets one of {lanes} in kernel {self.name}")
        assert value.dtype is not None
        return self.pure("splat", (value,), None, value.dtype, lanes)

    def operation(self, op: str, operands: tuple[Value, ...], dtype: np.dtype) -> Value:
        """A core operation on values of any lanes; scalars are splatted where they meet vectors."""
        lanes = max(value.lanes for value in operands)
        if lanes == 1 and all(value.op == "constant" for value in operands):
            folded = _fold(op, operands, dtype)
            if folded is not None:
                return self.constant(folded, dtype)
        if lanes > 1:
            operands = tuple(self.splat(value, lanes) for value in operands)
        if op == "and" and dtype == BOOL:
            simpler = _simplify_and(*operands)
            if simpler is not None:
                return simpler
        level = 0
        if op in ("div", "rem") and dtype.kind in "iu" and operands[1].op != "constant":
            level = self.guard_level()
            mask = self.blocks[-1].mask
            if mask is not None:   # lanes that are off may hold a divisor of 0
                mask = mask if lanes > 1 else self.uniform_mask(mask)
                operands = (operands[0], self.operation("select", (mask, operands[1], self.constant(1, dtype)), dtype))
        return self.pure(op, operands, None, dtype, lanes, level)

    def guard_level(self) -> int:
        """The level of the innermost open block that may not run."""
        for level in range(len(self.blocks) - 1, 0, -1):
            if self.blocks[level].guard:
                return level
        return 0

    def load_level(self, buffer: Buffer) -> int:
        """The outermost level at which a load from `buffer` means what it means here."""
        level = self.guard_level()
        if buffer in self.state:
            for number in range(len(self.blocks) - 1, level, -1):
                if buffer in self.blocks[number].stored:
                    return number
        return level

    def uniform_mask(self, mask: Value) -> Value:
        """Whether a mask is on in any lane."""
        return mask if mask.lanes == 1 else self.pure("fold", (mask,), "or", BOOL, 1)

    def effect(self, op: str, operands: tuple[Value, ...], attribute: Any = None, dtype: np.dtype | None = None,
               lanes: int = 1) -> Value:
        """An instruction that stays where it is."""
        return self.place(Value(op, operands, attribute, dtype, lanes), len(self.blocks) - 1)


def is_constant(value: Value, of: bool | int) -> bool:
    return value.op == "constant" and value.attribute.value == of


def _simplify_and(a: Value, b: Value) -> Value | None:
    """`a and b` where one of them is a constant (perhaps splatted)."""
    for this, other in ((a, b), (b, a)):
        plain = this.operands[0] if this.op == "splat" else this
        if is_constant(plain, True):
            return other
        if plain.op == "constant":
            return this
    return None


_FOLDERS = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
            "div": lambda a, b: a // b if a >= 0 and b > 0 else None,
            "rem": lambda a, b: a % b if a >= 0 and b > 0 else None,
            "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "not": lambda a: not a,
            "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
            "bitcast": lambda a: a if a >= 0 else None}


def _fold(op: str, operands: tuple[Value, ...], dtype: np.dtype) -> bool | int | None:
    """The value of an index or truth operation on constants; None where this is not known to be it."""
    folder = _FOLDERS.get(op)
    if folder is None or any(value.dtype not in (INDEX, UINT64, BOOL) for value in operands):
        return None
    if op == "not" and dtype != BOOL:
        return None
    result = folder(*[value.attribute.value for value in operands])
    return result if result is None or -(2**63) <= result < 2**63 else None


_EFFECTS = frozenset({"loop", "end_loop", "while", "while_test", "if", "end_if", "set", "store", "scatter"})
_FREE = frozenset({"constant", "parameter", "begin", "end", "register", "get", "set", "load", "gather", "store",
                   "scatter",
                   "splat", "lanes", "extract", "insert", "shuffle", "bitcast"}) | (_EFFECTS - {"set"})


def number_values(values: list[Value]) -> tuple[tuple[Instruction, ...], int]:
    """Drop what nobody uses, number the rest, and count the arithmetic."""
    live: set[Value] = set()
    for value in reversed(values):
        if value.op in _EFFECTS or value in live:
            live.add(value)
            live.update(value.operands)
    instructions: list[Instruction] = []
    flops, rounds = 0, [1]
    for value in values:
        if value not in live:
            continue
        value.number = len(instructions)
        instructions.append(Instruction(value.op, tuple(operand.number for operand in value.operands),
                                        value.attribute, value.dtype, value.lanes))
        if value.op in ("loop", "while"):
            rounds.append(rounds[-1] * value.rounds)
        elif value.op == "end_loop":
            rounds.pop()
        elif value.op not in _FREE:
            flops += rounds[-1] * value.lanes
    return tuple(instructions), flops

"""The meaning of instruction lists (ir/instructions.py), in NumPy: one instruction after another. Slow and obvious."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import VerificationError
from .expr import Buffer
from .instructions import Instruction, InstructionList
from .interpret_expr import COMBINE, apply_operation

_OPENING = frozenset({"loop", "while", "if"})
_CLOSING = frozenset({"end_loop", "end_if"})


def run_instructions(code: InstructionList, memory: dict[Buffer, np.ndarray], begin: int = 0,
                     end: int | None = None) -> None:
    """Run the list for a range of its parallel axis on the arrays of its parameters, which must be contiguous."""
    Machine(code, memory, begin, code.parallel_extent if end is None else end).run()


class Machine:
    """The state of one run: values by instruction number, memory as flat arrays."""

    def __init__(self, code: InstructionList, memory: dict[Buffer, np.ndarray], begin: int, end: int):
        self.instructions = code.instructions
        self.begin, self.end = begin, end
        self.values: list[Any] = [None] * len(code.instructions)
        self.memory: dict[Buffer, np.ndarray] = {buffer: np.reshape(memory[buffer], -1) for buffer in code.parameters}
        for buffer in code.parameters:
            if not np.shares_memory(self.memory[buffer], memory[buffer]) and memory[buffer].size:
                raise VerificationError(f"the array for {buffer} is not contiguous")
        for buffer, _ in code.scratch:
            self.memory[buffer] = np.zeros(buffer.type.size, buffer.type.dtype)
        self.closing = _match(code.instructions)

    def run(self) -> None:
        """Run from the first instruction to the last."""
        self.block(0, len(self.instructions))

    def block(self, first: int, last: int) -> None:
        number = first
        while number < last:
            i = self.instructions[number]
            if i.op == "loop":
                start, stop = (int(self.values[operand]) for operand in i.operands)
                for index in range(start, stop, i.attribute):
                    self.values[number] = np.int64(index)
                    self.block(number + 1, self.closing[number])
                number = self.closing[number]
            elif i.op == "while":
                while self.round(number + 1, self.closing[number]):
                    pass
                number = self.closing[number]
            elif i.op == "if":
                if self.values[i.operands[0]]:
                    self.block(number + 1, self.closing[number])
                number = self.closing[number]
            else:
                self.values[number] = self.evaluate(i)
            number += 1

    def round(self, first: int, last: int) -> bool:
        """One round of a `while`; whether its test held."""
        depth = 0
        for number in range(first, last):
            op = self.instructions[number].op
            depth += (op in _OPENING) - (op in _CLOSING)
            if op == "while_test" and depth == 0:
                self.block(first, number)
                if not self.values[self.instructions[number].operands[0]]:
                    return False
                self.block(number + 1, last)
                return True
        raise VerificationError("a `while` without a test")

    def evaluate(self, i: Instruction) -> Any:
        rule = getattr(self, f"_{i.op}", None)
        operands = [self.values[operand] for operand in i.operands]
        if rule is not None:
            return rule(i, *operands)
        assert i.dtype is not None
        result = apply_operation(i.op, operands, i.dtype)
        if np.shape(result) != (() if i.lanes == 1 else (i.lanes,)):
            raise VerificationError(f"{i} has {np.shape(result)} lanes")
        return result

    def _constant(self, i: Instruction) -> Any:
        return np.frombuffer(i.attribute.bits, i.attribute.dtype)[0]

    def _parameter(self, i: Instruction) -> Any:
        return self.memory[i.attribute]

    def _begin(self, i: Instruction) -> Any:
        return np.int64(self.begin)

    def _end(self, i: Instruction) -> Any:
        return np.int64(self.end)

    def _register(self, i: Instruction) -> Any:
        count, dtype = i.attribute
        return [np.zeros(() if i.lanes == 1 else (i.lanes,), dtype) for _ in range(count)]

    def _get(self, i: Instruction, register: Any) -> Any:
        return register[i.attribute]

    def _set(self, i: Instruction, register: Any, value: Any) -> None:
        register[i.attribute] = np.array(value)

    def _places(self, array: np.ndarray, offsets: Any, mask: Any) -> Any:
        inside = (offsets >= 0) & (offsets < array.size)
        if not np.all(inside | ~np.asarray(mask)):
            raise VerificationError("an offset outside its buffer")
        return np.where(inside, offsets, 0)

    def _load(self, i: Instruction, array: np.ndarray, offset: Any, mask: Any = True) -> Any:
        return self._gather(i, array, offset + np.arange(i.lanes) if i.lanes > 1 else offset, mask)

    def _gather(self, i: Instruction, array: np.ndarray, offsets: Any, mask: Any = True) -> Any:
        places = self._places(array, offsets, mask)
        return np.where(mask, array[places] if array.size else 0, array.dtype.type(0)).astype(array.dtype)

    def _store(self, i: Instruction, array: np.ndarray, offset: Any, value: Any, mask: Any = True) -> None:
        lanes = np.size(value)
        self._scatter(i, array, offset + np.arange(lanes) if np.ndim(value) else offset, value, mask)

    def _scatter(self, i: Instruction, array: np.ndarray, offsets: Any, value: Any, mask: Any = True) -> None:
        places = np.atleast_1d(self._places(array, offsets, mask))
        for place, one, on in zip(places, np.broadcast_to(value, places.shape), np.broadcast_to(mask, places.shape),
                                  strict=True):
            if on:
                array[place] = one

    def _splat(self, i: Instruction, value: Any) -> Any:
        return np.full(i.lanes, value)

    def _lanes(self, i: Instruction) -> Any:
        return np.arange(i.lanes, dtype=np.int64)

    def _extract(self, i: Instruction, vector: Any) -> Any:
        return vector[i.attribute]

    def _insert(self, i: Instruction, vector: Any, scalar: Any) -> Any:
        result = vector.copy()
        result[i.attribute] = scalar
        return result

    def _shuffle(self, i: Instruction, a: Any, b: Any) -> Any:
        return np.concatenate([a, b])[list(i.attribute)]

    def _fold(self, i: Instruction, vector: Any) -> Any:
        while len(vector) > 1:
            half = len(vector) // 2
            vector = np.asarray(COMBINE[i.attribute](vector[:half], vector[half:])).astype(vector.dtype)
        return vector[0]


def _match(instructions: tuple[Instruction, ...]) -> dict[int, int]:
    """The number of the closing instruction of each opening one."""
    open_at: list[int] = []
    found: dict[int, int] = {}
    for number, i in enumerate(instructions):
        if i.op in _OPENING:
            open_at.append(number)
        elif i.op in _CLOSING:
            found[open_at.pop()] = number
    if open_at:
        raise VerificationError("a loop that is not closed")
    return found

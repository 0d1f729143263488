"""The definition as a device: a Program runs by the NumPy references of its primitives, one node after another.

Slow and obvious. It shares nothing with the compiled devices but the Program, so what differs from it is wrong.
"""
from __future__ import annotations

import struct
import time

from ..errors import CompilationError
from ..ir.instructions import InstructionList
from ..ir.interpret import interpret
from ..ir.lowered import Lowered
from ..ir.target import Target
from .base import HostBackend, Loaded, ObjectStore, host_view, table


class ReferenceBackend(HostBackend):
    """NumPy in this process."""

    name = "reference"
    lowers = False

    def target(self) -> Target:
        return Target("reference", 0, 0, (0, 0, 0), 1, frozenset(), "reference")

    def render(self, code: InstructionList) -> str:
        raise CompilationError("the reference device has no kernels")

    def assembly(self, code: InstructionList) -> str:
        raise CompilationError("the reference device has no kernels")

    def compile(self, lowered: Lowered, store: ObjectStore) -> ReferenceLoaded:
        return ReferenceLoaded(lowered)


class ReferenceLoaded(Loaded):
    """Interprets the program on NumPy views of the table's memory."""

    __slots__ = ("_layout",)

    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self.arena_bytes = 0
        self._layout = table(lowered)

    def run(self, words: bytes) -> None:
        program, fused = self.lowered.program, self.lowered.fused
        addresses = struct.unpack(f"{len(words) // 8}q", words)
        arrays = [host_view(address, None, type) for address, type in zip(addresses, program.input_types)]
        results = dict(zip(fused.outputs, interpret(program, arrays), strict=True))
        for address, slot in zip(addresses[self._layout.inputs:], self._layout.results):
            host_view(address, None, fused.slots[slot], writable=True)[...] = results[slot]

    def profile(self, words: bytes) -> list[float]:
        start = time.perf_counter()
        self.run(words)
        return [time.perf_counter() - start]

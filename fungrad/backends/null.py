"""Everything but execution: lowers and renders for a fixed, made-up machine, so that what is generated can be looked
at and compared on any machine. Results are zeros."""
from __future__ import annotations

import ctypes
import struct

from ..errors import CompilationError
from ..ir.instructions import InstructionList
from ..ir.lowered import Lowered
from ..ir.target import Target
from . import llvm
from .base import HostBackend, Loaded, ObjectStore, table

TARGET = Target("null", 32, 16, (32 << 10, 512 << 10, 4 << 20), 4, frozenset({"avx2", "fma", "f16c"}), "null")


class NullBackend(HostBackend):
    """A device that runs nothing."""

    name = "null"

    def target(self) -> Target:
        return TARGET

    def render(self, code: InstructionList) -> str:
        return llvm.render(code, TARGET)

    def assembly(self, code: InstructionList) -> str:
        raise CompilationError("the null device makes no machine code")

    def compile(self, lowered: Lowered, store: ObjectStore) -> NullLoaded:
        for code in {id(code): code for code in lowered.code}.values():
            self.render(code)
        return NullLoaded(lowered)


class NullLoaded(Loaded):
    """Fills the results with zeros."""

    __slots__ = ("_layout",)

    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self.arena_bytes = lowered.memory.arena_bytes
        self._layout = table(lowered)

    def run(self, words: bytes) -> None:
        addresses = struct.unpack(f"{len(words) // 8}q", words)
        for address, slot in zip(addresses[self._layout.inputs:], self._layout.results):
            ctypes.memset(address, 0, self.lowered.fused.slots[slot].nbytes)

    def profile(self, words: bytes) -> list[float]:
        return [0.0] * len(self.lowered.code)

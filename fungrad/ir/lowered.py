"""What lowering hands to a backend: kernels as instruction lists, the launch sequence and the memory plan."""
from __future__ import annotations

from dataclasses import dataclass

from .instructions import InstructionList
from .kernel import Fused
from .program import Program


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the temporaries of a program lie in one arena.

    offsets: byte offset of each slot in the arena, or None for inputs and outputs. donated: pairs (output number, input
    number): the output takes over the donated input's memory. nested: for every loop or choice among the launches,
    in order, where in the arena that of its bodies lies, and the bodies' plans.
    """
    arena_bytes: int
    offsets: tuple[int | None, ...]
    donated: tuple[tuple[int, int], ...] = ()
    nested: tuple[tuple[int, tuple[MemoryPlan, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program ready to be rendered. `code[i]` is the code of `fused.kernel_launches()[i]`; equal kernels share
    one.
    """
    program: Program
    fused: Fused
    code: tuple[InstructionList, ...]
    memory: MemoryPlan

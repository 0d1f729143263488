"""Instruction lists: the grammar of stage 4, which every backend renders.

A list of instructions in single-assignment form with structured loops. Value i is the result of instruction i.

    op            operands                        attribute              result
    constant                                      Literal                scalar
    parameter                                     Buffer                 pointer to a buffer's first element
    begin, end                                                           int64: this call's range of the parallel axis
    loop          start, stop                     step: int              int64: the index; closed by end_loop
    while                                                                opens a loop; its condition comes next ...
    while_test    condition                                              ... and leaves the loop where false
    if            condition                                              closed by end_if
    end_loop, end_if
    register                                      (count, dtype)         a small array of `lanes` wide elements
    get, set      register, (value)               slot: int              read, write one element of a register array
    load          pointer, offset, [mask]                                lanes consecutive elements; 0 without mask
    gather        pointer, offsets, [mask]                               an element a lane
    store         pointer, offset, value, [mask]  None or "stream"       "stream": past the caches, where it is aligned
    scatter       pointer, offsets, value, [mask]
    splat         scalar                                                 the value in every lane
    lanes                                                                int64 vector 0, 1, ... lanes-1
    extract       vector                          lane: int              scalar
    insert        vector, scalar                  lane: int              vector with one lane replaced
    shuffle       vector, vector                  tuple of lane numbers
    fold          vector                          combine                scalar: all lanes combined, in a fixed tree
    CORE op       operands of equal lanes                                the operation, lane by lane (ir/expr.py)

Offsets are int64, counted in elements. `lanes` is 1 for a scalar.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .expr import Buffer


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; operands are numbers of earlier instructions."""
    op: str
    operands: tuple[int, ...]
    attribute: Any
    dtype: np.dtype | None
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class InstructionList:
    """The code of one kernel.

    parameters: global buffers, outputs first. scratch: thread-private buffers with their byte offsets in one block of
    `scratch_bytes`. The body runs for a range [begin, end) of an axis of extent `parallel_extent` (1: not parallel).
    flops, bytes: work estimates of the whole kernel.
    """
    name: str
    parameters: tuple[Buffer, ...]
    scratch: tuple[tuple[Buffer, int], ...]
    scratch_bytes: int
    parallel_extent: int
    instructions: tuple[Instruction, ...]
    flops: int = 0
    bytes: int = 0

"""The values of every stage for the cases of `tests/ops/cases.py`, and small hand-made ones."""
from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fungrad.ir.instructions import InstructionList
from fungrad.ir.kernel import Fused, Kernel
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ir.program import Program, apply, input_node, program
from fungrad.ir.target import Target
from fungrad.ir.types import array_type
from fungrad.lower.decompose import decompose
from fungrad.lower.fuse import fuse
from fungrad.lower.instructions import to_instructions
from fungrad.lower.pipeline import schedule_kernel
from tests.ops.cases import Case

TARGET = Target("cpu", 64, 32, (48 << 10, 1 << 20, 16 << 20), 2, frozenset(), "test")


def case_program(case: Case, dtype: np.dtype) -> tuple[Program, list[np.ndarray]]:
    """A program that applies a case's primitive, and arrays for it."""
    arrays = list(case.operands(dtype, np.random.default_rng(zlib.crc32(f"{case} {dtype}".encode()))))
    types = tuple(array_type(a.shape, a.dtype) for a in arrays)
    operands = tuple(input_node(number, type) for number, type in enumerate(types))
    return program(types, (apply(PRIMITIVES[case.primitive], operands, case.parameters(dtype)),)), arrays


def stages(p: Program, target: Target = TARGET) -> Iterator[Any]:
    """What lowering makes of a program: Fused, then for each kernel the fused, the scheduled one, its instructions."""
    fused: Fused = fuse(p, target)
    yield fused
    for launch in fused.launches:
        kernel: Kernel = launch.kernel
        yield kernel
        scheduled = schedule_kernel(decompose(kernel, target), target)
        yield scheduled
        code: InstructionList = to_instructions(scheduled, target)
        yield code

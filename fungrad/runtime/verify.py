"""FUNGRAD_VERIFY=1: every call is compared with the meaning of the program, and a difference is put down to a stage.

The program is interpreted on the real inputs, node by node, with its primitives' NumPy references. If the
Executable's results differ by more than rounding explains, the Program after each pass is interpreted as well, and
the error names the first stage whose value computes something else.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import backends, dtypes
from ..errors import VerificationError
from ..ir.interpret import interpret
from ..ir.program import Program
from ..lower import pipeline
from .array import Array
from .executable import Executable

# Relative to the largest value of a result: sums are rounded in another order, functions have errors of a few ULP.
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-4, "float64": 1e-9}


def verified(executable: Executable) -> Callable[[Sequence[Array]], list[Array]]:
    """The Executable's call with the comparison after it."""
    inner = executable.call

    def call(arrays: Sequence[Array]) -> list[Array]:
        inputs = [array._numpy().copy() for array in arrays]
        results = inner(arrays)
        check(executable, inputs, [result._numpy() for result in results])
        return results
    return call


def check(executable: Executable, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Raise VerificationError if the results are not what the program means."""
    with np.errstate(all="ignore"):
        expected = interpret(executable.program, inputs)
    wrong = first_difference(expected, results)
    if wrong is not None:
        stage = _guilty_stage(executable, inputs, expected)
        raise VerificationError(f"{executable.name or 'a program'} on {executable.device} computes something else than "
                                f"its Program: {wrong}. The first stage that differs: {stage}.\n{executable.program}")


def first_difference(expected: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> str | None:
    """Where the first result that is not close enough differs, in words; None if all agree."""
    for number, (right, given) in enumerate(zip(expected, results, strict=True)):
        far = _far(right, given)
        if far.any():
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
            return (f"output {number} at {list(index)} is {given[index]}, not {right[index]} "
                    f"({int(far.sum())} of {far.size} differ)")
    return None


def _far(right: np.ndarray, given: np.ndarray) -> np.ndarray:
    if not dtypes.is_float(right.dtype):
        return np.asarray(right != given)
    a, b = right.astype(np.float64), given.astype(np.float64)
    finite = np.isfinite(a)
    scale = float(np.max(np.abs(a), where=finite, initial=0.0))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= TOLERANCE[right.dtype.name] * np.maximum(np.abs(a), scale if scale < 1 else scale / 10)
    return ~np.where(finite, near, (a == b) | (np.isnan(a) & np.isnan(b)))


def _guilty_stage(executable: Executable, inputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """The pass after which the Program means something else, or the stages behind Programs."""
    programs: list[tuple[str, Program]] = []

    def record(stage: str, name: str, value: Any, seconds: float) -> None:
        if isinstance(value, Program):
            programs.append((f"{stage}: {name}", value))
    pipeline.lower(executable.program, backends.get(executable.device).target(), record=record)
    for name, program in programs:
        with np.errstate(all="ignore"):
            wrong = first_difference(expected, interpret(program, inputs))
        if wrong is not None:
            return f"{name} ({wrong})"
    return "one after the last Program (fuse, schedule, decompose, instructions or the backend)"

"""FUNGRAD_VERIFY=1: every call is compared with the meaning of the program, and a difference is put down to a pass.

The program is interpreted on the real inputs, node by node, with its primitives' NumPy references. If the Executable's
results differ by more than rounding explains, the value after each pass is interpreted as well: Programs by references,
fused kernels nest by nest, scheduled kernels statement by statement, instruction lists one instruction after another.
The error names the first pass whose value computes something else. Kernels with too many points are not interpreted;
the error says so.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import backends, dtypes
from ..errors import VerificationError
from ..ir.expr import Buffer
from ..ir.instructions import InstructionList
from ..ir.interpret import interpret
from ..ir.interpret_instructions import run_instructions
from ..ir.interpret_kernel import run_control, run_kernel
from ..ir.kernel import Control, Fused, Kernel, Launch, Loop, Statement, Store
from ..ir.program import Program
from ..ir.target import Target
from ..lower import pipeline
from .array import Array, allocator
from .executable import ALIGNMENT, Executable

# Relative to the largest value of a result: sums are rounded in another order, functions have errors of a few ULP.
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-4, "float64": 1e-9}
MOST_ELEMENTS = 20_000_000   # points of a nest that are interpreted at once
MOST_STATEMENTS = 200_000    # statements and instructions that are interpreted one by one

Passes = tuple[pipeline.Pass, ...]


def verified(executable: Executable) -> Callable[[Sequence[Array]], list[Array]]:
    """The Executable's call with the comparison after it."""
    inner, passes = executable.call, pipeline.current_passes()

    def call(arrays: Sequence[Array]) -> list[Array]:
        inputs = [array._numpy().copy() for array in arrays]
        spoil_memory(executable)
        results = inner(arrays)
        check(executable, passes, inputs, [result._numpy() for result in results])
        return results
    return call


def spoil_memory(executable: Executable) -> None:
    """Fill the memory that the next call will be given with noise, lest an element that nothing writes holds the right
    value from an earlier call."""
    if not backends.get(executable.device).host:
        return
    types = [executable.lowered.fused.slots[slot] for slot in executable.lowered.fused.outputs]
    padded = [-(-type.nbytes // ALIGNMENT) * ALIGNMENT for type in types]
    blocks = [(size, allocator(executable.device).allocate(size))
              for size in (*padded, sum(padded), executable.loaded.arena_bytes) if size]
    for size, block in blocks:
        ctypes.memset(block.address, 0xA5, size)


def check(executable: Executable, passes: Passes, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Raise VerificationError if the results are not what the program means."""
    with np.errstate(all="ignore"):
        expected = interpret(executable.program, inputs)
        wrong = first_difference(expected, results)
        if wrong is None:
            return
        target = backends.get(executable.device).target()
        guilty = guilty_pass(executable.program, passes, target, inputs, expected)
    raise VerificationError(f"{executable.name or 'a program'} on {executable.device} computes something else than "
                            f"its Program: {wrong}. The first that differs: {guilty}.\n{executable.program}")


def guilty_pass(program: Program, passes: Passes, target: Target, inputs: Sequence[np.ndarray],
                expected: Sequence[np.ndarray]) -> str:
    """The first pass after which the program means something else, in words."""
    value: Any = program
    for entry in passes:
        if entry.stage not in ("program", "fuse", "fused"):
            continue
        value = entry.run(value, target)
        try:
            results = interpret(value, inputs) if isinstance(value, Program) else run_fused(value, inputs)
            if results is None:
                return f"unknown: after {entry.name}, a kernel is too large to be interpreted"
            wrong = first_difference(expected, results)
        except VerificationError as error:
            wrong = str(error)
        if wrong is not None:
            return f"pass {entry.name} ({wrong})"
    if not isinstance(value, Fused):
        return "unknown: no pass gives fused kernels"
    kernel_passes = tuple([entry for entry in passes if entry.stage not in ("program", "fuse", "fused", "memory")])
    return _guilty_kernel_pass(value, kernel_passes, target, inputs)


class _Found(Exception):
    """A pass is to blame."""


def _guilty_kernel_pass(fused: Fused, passes: Passes, target: Target, inputs: Sequence[np.ndarray]) -> str:
    """Run the launches one after another, those of loops' bodies included, and each as every pass leaves it."""
    skipped: list[str] = []

    def run(body: Fused, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        slots = dict(zip(body.inputs, given, strict=True))
        for launch in body.launches:
            if isinstance(launch, Control):
                right = run_control(launch, inputs_of(launch, body, slots), run)
            else:
                right = run_launch(launch, launch.kernel, body, slots)
                suspicion = _compare_passes(launch, passes, target, body, slots, right, skipped)
                if suspicion is not None:
                    raise _Found(suspicion)
            slots.update(zip(launch.slots, right))
        return outputs_of(body, slots)
    try:
        run(fused, inputs)
    except _Found as found:
        return str(found)
    note = f" (not interpreted, too large: {', '.join(skipped)})" if skipped else ""
    return f"the backend: rendering, compiling or running{note}"


def _compare_passes(launch: Launch, passes: Passes, target: Target, fused: Fused, slots: dict[int, np.ndarray],
                    right: list[np.ndarray], skipped: list[str]) -> str | None:
    """The first pass after which a kernel computes something else than `right`."""
    value: Any = launch.kernel
    for entry in passes:
        value = entry.run(value, target)
        if too_large(value):
            skipped.append(f"{launch.kernel.name} after {entry.name}")
            continue
        try:
            wrong = first_difference(right, run_launch(launch, value, fused, slots))
        except VerificationError as error:
            wrong = str(error)
        if wrong is not None:
            return f"pass {entry.name} of kernel {launch.kernel.name} ({wrong})"
    return None


def run_fused(fused: Fused, inputs: Sequence[np.ndarray],
              values: Mapping[Kernel, Kernel | InstructionList] | None = None) -> list[np.ndarray] | None:
    """The outputs by interpretation, each kernel as it is in `values` (or as fused); None if one is too large."""
    kernels = [launch.kernel for launch in fused.kernel_launches()]
    if any(too_large(kernel if values is None else values.get(kernel, kernel)) for kernel in kernels):
        return None

    def run(body: Fused, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        slots = dict(zip(body.inputs, given, strict=True))
        for launch in body.launches:
            if isinstance(launch, Control):
                right = run_control(launch, inputs_of(launch, body, slots), run)
            else:
                value = launch.kernel if values is None else values.get(launch.kernel, launch.kernel)
                right = run_launch(launch, value, body, slots)
            slots.update(zip(launch.slots, right))
        return outputs_of(body, slots)
    return run(fused, inputs)


def inputs_of(launch: Control, fused: Fused, slots: dict[int, np.ndarray]) -> list[np.ndarray]:
    """What a loop or choice reads, in the shapes of its slots."""
    numbers = launch.slots[launch.outputs:launch.outputs + launch.inputs]
    return [_in_slot(fused, slots, slot) for slot in numbers]


def outputs_of(fused: Fused, slots: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program whose launches have run."""
    return [_in_slot(fused, slots, slot) for slot in fused.outputs]


def _in_slot(fused: Fused, slots: dict[int, np.ndarray], slot: int) -> np.ndarray:
    type = fused.slots[slot]
    return np.reshape(slots.get(slot, np.zeros(type.shape, type.dtype)), type.shape)


def run_launch(launch: Launch, value: Kernel | InstructionList, fused: Fused,
               slots: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a launch whose kernel is `value`, by interpretation."""
    outputs = len(launch.kernel.outputs)
    buffers: Sequence[Buffer]
    buffers = value.parameters if isinstance(value, InstructionList) else (*value.outputs, *value.inputs)
    memory = {}
    for number, (buffer, slot) in enumerate(zip(buffers, launch.slots, strict=True)):
        kind = fused.slots[slot]
        fresh = slot not in slots or number < outputs and slot not in fused.inputs   # else it is updated in place
        array = np.zeros(kind.shape, kind.dtype) if fresh else slots[slot]
        array = np.array(array) if number < outputs else np.ascontiguousarray(array)
        memory[buffer] = array.reshape(buffer.type.shape)
    if isinstance(value, InstructionList):
        run_instructions(value, memory)
    else:
        run_kernel(value, memory)
    return [memory[buffer] for buffer in buffers[:outputs]]


def too_large(value: Kernel | InstructionList) -> bool:
    """Whether interpreting a kernel, as a pass left it, would take too long."""
    if isinstance(value, InstructionList):
        return sum(_instruction_counts(value)) > MOST_STATEMENTS
    return points(value) > (MOST_ELEMENTS if value.body is None else MOST_STATEMENTS)


def points(kernel: Kernel) -> int:
    """How many points of nests or statements a kernel has; a `while` counts as one round."""
    outer = prod(a.extent for a in kernel.outer)
    if kernel.body is None:
        return sum(outer * prod(a.extent for a in (*nest.axes, *nest.reduce_axes)) for nest in kernel.nests)
    return outer * _statements(kernel.body)


def _statements(body: tuple[Statement, ...]) -> int:
    return sum(1 if isinstance(s, Store) else _statements(s.body) * (s.axis.extent if isinstance(s, Loop) else 1)
               for s in body)


def _instruction_counts(code: InstructionList) -> Iterator[int]:
    """For each instruction, how often it runs; loops with unknown bounds count as the parallel axis's extent."""
    times = [1]
    for i in code.instructions:
        yield times[-1]
        if i.op == "loop":
            bounds = [code.instructions[operand] for operand in i.operands]
            known = all(bound.op == "constant" for bound in bounds)
            rounds = (bounds[1].attribute.value
                      - bounds[0].attribute.value) // i.attribute if known else code.parallel_extent
            times.append(times[-1] * max(int(rounds), 0))
        elif i.op in ("while", "if"):
            times.append(times[-1])
        elif i.op in ("end_loop", "end_if"):
            times.pop()


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

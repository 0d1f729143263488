"""Every stage of the compiler on the same arrays: which is the first that computes something else than the one before?

`run_stages` interprets a Program as it is, after every pass on Programs, as fused kernels after every pass on those,
with all kernels as every pass on kernels leaves them (loop trees statement by statement, instruction lists one
instruction after another), and runs the native Executable. `first_difference` compares each with the one before;
`check_stages` raises. The passes are those in force (`fungrad.passes(...)`), and interpretation is that of
FUNGRAD_VERIFY (`runtime/verify.py`), which looks for a difference only after a call gave a wrong result.

How much two stages may differ is worked out for the program and the arrays at hand (`uncertainty`), so that neither
ill-conditioned expressions give false alarms nor well-conditioned ones hide errors. Integers must be equal, except
where rounding decides (an argmax among equal numbers, a float cut to an integer).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import backends, dtypes
from ..errors import VerificationError
from ..ir.check import check_fused, check_instructions, check_program
from ..ir.instructions import InstructionList
from ..ir.interpret import evaluate_node, interpret
from ..ir.kernel import Fused, Kernel
from ..ir.kernel_text import instructions_text, kernel_text
from ..ir.program import Node, Program
from ..ir.target import Target
from ..lower import pipeline
from ..lower.simplify import inline_calls
from ..runtime import verify
from ..runtime.array import from_numpy
from ..runtime.compile import build as build_executable

Arrays = list[np.ndarray]


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage computes. results: None where it is too large to be interpreted. text: the stage's value."""
    name: str
    results: Arrays | None
    text: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first stage that differs from the one before."""
    stage: str
    before: str
    message: str
    text: str
    text_before: str

    def __str__(self) -> str:
        return (f"stage {self.stage!r} computes something else than {self.before!r}: {self.message}\n"
                f"---- {self.before}\n{self.text_before}\n---- {self.stage}\n{self.text}")


# ---- stages ---------------------------------------------------------------------------------------------------------

def run_stages(program: Program, arrays: Sequence[np.ndarray], device: str = "cpu") -> Iterator[Stage]:
    """The stages of a program one after another. Every value is checked for being well formed (VerificationError)."""
    target = backends.get(device).target()
    passes = pipeline.current_passes()
    value: Any = program
    with np.errstate(all="ignore"):
        yield Stage("the program", interpret(program, arrays), lambda: str(program))
        for entry in passes:
            if entry.stage in ("program", "fuse", "fused"):
                value = entry.run(value, target)
                yield _checked_stage(entry.name, value, arrays)
        yield from _kernel_stages(value, passes, arrays, target)
        yield native_stage(program, arrays, device)


def _checked_stage(name: str, value: Program | Fused, arrays: Sequence[np.ndarray]) -> Stage:
    text = lambda: str(value)
    try:
        if isinstance(value, Program):
            check_program(value)
            return Stage(name, interpret(value, arrays), text)
        check_fused(value)
        return Stage(name, verify.run_fused(value, arrays), lambda: fused_text(value, {}))
    except VerificationError as error:
        raise VerificationError(f"after pass {name!r}: {error}") from error


def _kernel_stages(fused: Fused, passes: Sequence[pipeline.Pass], arrays: Sequence[np.ndarray],
                   target: Target) -> Iterator[Stage]:
    values: dict[Kernel, Any] = {launch.kernel: launch.kernel for launch in fused.kernel_launches()}
    for entry in passes:
        if entry.stage not in ("kernel", "instructions", "code"):
            continue
        values = {kernel: entry.run(value, target) for kernel, value in values.items()}
        current = dict(values)
        try:
            for value in current.values():
                if isinstance(value, InstructionList):
                    check_instructions(value)
            results = verify.run_fused(fused, arrays, current)
        except VerificationError as error:
            raise VerificationError(f"after pass {entry.name!r}: {error}\n{fused_text(fused, current)}") from error
        yield Stage(entry.name, results, lambda current=current: fused_text(fused, current))


def native_stage(program: Program, arrays: Sequence[np.ndarray], device: str = "cpu") -> Stage:
    """What the compiled program computes; built anew, past the cache of Executables."""
    executable = build_executable(program, backends.get(device), frozenset(), "stages", "")
    inputs = [from_numpy(array, device) for array in arrays]
    verify.spoil_memory(executable)
    results = [np.array(result._numpy()) for result in executable(inputs)]
    again = [np.array(result._numpy()) for result in executable(inputs)]   # in memory that holds the first results
    for number, (first, second) in enumerate(zip(results, again, strict=True)):
        if first.tobytes() != second.tobytes():
            raise VerificationError(f"output {number} of two equal calls differs: {first} and {second}\n{program}")
    render = backends.get(device).render
    return Stage("native", results, lambda: "\n".join(render(code) for code in dict.fromkeys(executable.lowered.code)))


def fused_text(fused: Fused, values: dict[Kernel, Any]) -> str:
    """The launches in order with every kernel's text, each as in `values` (or as fused)."""
    lines = []
    for launch in fused.kernel_launches():
        value = values.get(launch.kernel, launch.kernel)
        text = instructions_text(value) if isinstance(value, InstructionList) else kernel_text(value)
        lines.append(f"slots {launch.slots}: {text}")
    return "\n".join(lines)


# ---- comparison -----------------------------------------------------------------------------------------------------

def first_difference(program: Program, arrays: Sequence[np.ndarray], device: str = "cpu") -> Difference | None:
    """The first stage whose results differ from those of the stage before; None if all agree."""
    allowed = uncertainty(program, arrays)
    before: Stage | None = None
    for stage in run_stages(program, arrays, device):
        if stage.results is None:
            continue
        if before is not None:
            assert before.results is not None
            sinks = before.name == "the program"   # mask sinking makes numbers of NaNs
            message = _difference(before.results, stage.results, allowed, sinks)
            if message is not None:
                return Difference(stage.name, before.name, message, stage.text(), before.text())
        before = stage
    return None


def check_stages(program: Program, arrays: Sequence[np.ndarray], device: str = "cpu") -> None:
    """Raise VerificationError with the texts of two adjacent stages that differ, or of one that is not well formed."""
    difference = first_difference(program, arrays, device)
    if difference is not None:
        raise VerificationError(f"{difference}\nfor the inputs\n" + "\n".join(map(repr, arrays)))


def _difference(expected: Sequence[np.ndarray], given: Sequence[np.ndarray], allowed: Sequence[np.ndarray],
                sinks: bool) -> str | None:
    for number, (right, found, tolerance) in enumerate(zip(expected, given, allowed, strict=True)):
        if (right.shape, right.dtype) != (found.shape, found.dtype):
            return f"output {number} is {found.dtype}{list(found.shape)}, not {right.dtype}{list(right.shape)}"
        far = ~close(right, found, tolerance)
        if sinks and dtypes.is_float(right.dtype):
            far &= ~np.isnan(right.astype(np.float64))
        if far.any():
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
            return (f"output {number} at {list(at)} is {found[at]}, not {right[at]} (+- {tolerance[at]:.3g}); "
                    f"{int(far.sum())} of {far.size} differ")
    return None


def close(right: np.ndarray, found: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    """Where two arrays agree: equal integers, NaNs and infinities, floats within the tolerance (inf: anything)."""
    if not dtypes.is_float(right.dtype):
        return (right == found) | np.isinf(tolerance)
    a, b = right.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance
    return (a == b) | (np.isnan(a) & np.isnan(b)) | (near & np.isfinite(a) & np.isfinite(b)) | np.isinf(tolerance)


# ---- uncertainty ----------------------------------------------------------------------------------------------------

RUNS = 10
UNITS = 3.0     # the last places by which a function is moved
SAFETY = 4.0    # the tolerance, in deviations of the moved programs

# Operations whose results are the same however they are compiled, given the same operands. A product is not among them:
# it may be fused with an addition.
_EXACT = frozenset({
    "neg", "abs", "sign", "floor", "ceil", "trunc", "round", "is_finite", "stop_gradient", "max", "min", "select",
    "add", "sub", "rem", "nextafter", "bitcast", "convert", "reduce_max", "reduce_min", "cummax", "cummin", "sort",
    "gather", "dynamic_slice", "dynamic_update_slice", "full", "iota", "reshape", "transpose", "broadcast", "slice",
    "pad", "flip", "concatenate", "window", "input", "result"})
_SUMS = frozenset({"reduce_sum", "reduce_prod", "dot_general", "conv", "cumsum", "cumprod", "linear_recurrence",
                   "window_sum", "scatter"})


def uncertainty(program: Program, arrays: Sequence[np.ndarray], seed: int = 0) -> Arrays:
    """How far results of a correct compiler may lie from those of the references, for each element of each output.

    Stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993): the program is
    interpreted several times with every rounded result moved at random by a few units in the last place; the spread of
    the outputs is what rounding can do. Infinite where the runs disagree about NaN or infinity, or about an integer.
    """
    generator = np.random.default_rng(seed)
    inlined = inline_calls(program)
    with np.errstate(all="ignore"):
        expected = _moved_run(inlined, arrays, None)
        allowed = [_rounding(array) for array in expected]
        for _ in range(RUNS):
            moved = _moved_run(inlined, arrays, generator)
            allowed = [np.maximum(total, _deviation(right, given))
                       for total, right, given in zip(allowed, expected, moved, strict=True)]
    return [np.asarray(total) for total in allowed]


def _rounding(array: np.ndarray) -> np.ndarray:
    """The least tolerance: some units in the last place, also of the least normal number."""
    if not dtypes.is_float(array.dtype):
        return np.zeros(array.shape)
    info = dtypes.finfo(array.dtype)
    size = np.abs(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    return np.maximum(size, float(info.tiny) * 4) * float(info.eps) * 2 * UNITS


def _deviation(right: np.ndarray, moved: np.ndarray) -> np.ndarray:
    if not dtypes.is_float(right.dtype):
        return np.where(right == moved, 0.0, np.inf)
    a, b = right.astype(np.float64), moved.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), SAFETY * np.abs(a - b), np.inf))


def _moved_run(program: Program, arrays: Sequence[np.ndarray], generator: np.random.Generator | None) -> Arrays:
    values: dict[Node, Any] = dict(zip(program.inputs, arrays, strict=True))
    exact = set(program.inputs)
    for node in program.nodes():
        if node in values:
            continue
        operands = [values[operand] for operand in node.operands]
        name = node.primitive.name
        if name in _EXACT and all(operand in exact for operand in node.operands):
            exact.add(node)
        if generator is not None and name in _SUMS:
            operands = [_moved(operand, generator) for operand in operands]
        elif generator is not None and name in ("add", "sub"):   # with a product that is rounded elsewhere but not here
            operands = [value if operand in exact else _moved(value, generator)
                        for operand, value in zip(node.operands, operands, strict=True)]
        result = evaluate_node(node, operands)
        if generator is not None and name not in _EXACT:
            result = tuple(_moved(part, generator) for part in result) if isinstance(result, tuple) \
                else _moved(result, generator)
        if generator is not None and name in _SUMS:   # a sum of -0.0 may begin with 0.0
            result = tuple(_either_zero(part, generator) for part in result) if isinstance(result, tuple) \
                else _either_zero(result, generator)
        values[node] = result
    return [np.asarray(values[output]) for output in program.outputs]


def _either_zero(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Floating zeros with a random sign."""
    if not dtypes.is_float(array.dtype):
        return array
    zeros = np.where(generator.random(array.shape) < 0.5, 0.0, -0.0).astype(array.dtype)
    return np.where(array == 0, zeros, array)


def _moved(array: Any, generator: np.random.Generator) -> Any:
    """Floats moved up or down by between half of UNITS and UNITS units in the last place."""
    if not isinstance(array, np.ndarray) or not dtypes.is_float(array.dtype):
        return array
    step = generator.uniform(0.5, 1.0, array.shape) * generator.choice([-1.0, 1.0], array.shape)
    wide = array.astype(np.float64)
    moved = wide * (1 + step * UNITS * float(dtypes.finfo(array.dtype).eps))
    return moved.astype(array.dtype)

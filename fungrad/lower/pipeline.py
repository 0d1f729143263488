"""The compiler: THE list of passes from Program to instruction lists, and its runner.

    Program --simplify--> Program --fuse--> Fused --split...--> Fused
        each distinct kernel:  Kernel --decompose--> Kernel --schedule--> Kernel --instructions--> InstructionList
        Fused --memory--> MemoryPlan                                                 all together: Lowered

A pass is `def name(value, target) -> value`, pure. `with passes(after="fuse", add=my_pass):` inserts one for a block
(in this thread), `replace={"schedule": mine}` and `drop=("simplify",)` do what they say. One hook sees
every intermediate value: `lower(program, target, record=...)` calls `record(stage, pass name, value, seconds)`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace as changed
from time import perf_counter
from typing import Any, Protocol

from .. import config
from ..errors import CompilationError, VerificationError
from ..ir.check import check
from ..ir.instructions import InstructionList
from ..ir.kernel import Fused, Kernel
from ..ir.lowered import Lowered, MemoryPlan
from ..ir.program import Program
from ..ir.target import Target
from .contraction import schedule_contraction
from .contraction_split import split_long_contractions
from .control import in_bodies
from .decompose import decompose
from .fuse import fuse
from .instructions import to_instructions
from .memory import plan
from .schedule import schedule
from .simplify import simplify
from .split import split_reductions


def schedule_kernel(kernel: Kernel, target: Target) -> Kernel:
    """The loop tree of a kernel, by the scheduler of its kind."""
    return schedule_contraction(kernel, target) if kernel.kind == "contraction" else schedule(kernel, target)


class Codes(Protocol):
    """Where the instruction lists of kernels are kept between processes."""

    def get(self, kernel: Kernel) -> InstructionList | None:
        """The code of an equal kernel, or None."""

    def put(self, kernel: Kernel, code: InstructionList) -> None:
        """Keep the code of a kernel."""


Record = Callable[[str, str, Any, float], None]
Run = Callable[[Any, Target], Any]

_KERNEL_STAGES = ("kernel", "instructions", "code")

# What a pass of each stage takes and gives. Passes of one stage follow one another in the list.
STAGES: dict[str, tuple[type, type]] = {
    "program": (Program, Program),
    "fuse": (Program, Fused),
    "fused": (Fused, Fused),
    "kernel": (Kernel, Kernel),                    # once for each distinct kernel
    "instructions": (Kernel, InstructionList),     # likewise
    "code": (InstructionList, InstructionList),    # likewise
    "memory": (Fused, MemoryPlan),
}


@dataclass(frozen=True, slots=True)
class Pass:
    """A named pass and the stage to which it belongs."""
    stage: str
    name: str
    run: Run


PASSES: tuple[Pass, ...] = (
    Pass("program", "simplify", simplify),
    Pass("fuse", "fuse", fuse),
    Pass("fused", "split_contractions", split_long_contractions),
    Pass("fused", "split", split_reductions),
    Pass("kernel", "decompose", decompose),
    Pass("kernel", "schedule", schedule_kernel),
    Pass("instructions", "instructions", to_instructions),
    Pass("memory", "memory", plan),
)


def current_passes() -> tuple[Pass, ...]:
    """The passes that `lower` runs in this thread now: part of every cache's key."""
    return config.get("passes") or PASSES


@contextmanager
def passes(*, after: str | None = None, before: str | None = None, add: Run | Sequence[Run] = (),
           replace: Mapping[str, Run] | None = None, drop: str | Sequence[str] = ()) -> Iterator[None]:
    """Change the list of passes within a `with` block.

    add: a pass (or several, in order), put after or before the pass of that name; it takes and gives that pass's result
    (after) or operand (before). replace: other functions for named passes. drop: names of passes to leave out, which is
    possible where operand and result are of one kind. Raises ValueError for names that do not exist.
    """
    edited = _edited(current_passes(), after, before, (add,) if callable(add) else tuple(add), replace or {},
                     (drop,) if isinstance(drop, str) else tuple(drop))
    with config.settings(passes=edited):
        yield


def _edited(old: tuple[Pass, ...], after: str | None, before: str | None, add: tuple[Run, ...],
            replace: Mapping[str, Run], drop: tuple[str, ...]) -> tuple[Pass, ...]:
    if (after is not None and before is not None) or (bool(add) and after is None and before is None):
        raise ValueError("passes: say after=NAME or before=NAME for the passes to add")
    names = [entry.name for entry in old]
    for name in (*([after] if after else []), *([before] if before else []), *replace, *drop):
        if name not in names:
            raise ValueError(f"there is no pass {name!r}; there are {', '.join(names)}")
    result: list[Pass] = []
    for entry in old:
        takes, gives = STAGES[entry.stage]
        if entry.name in drop and takes is not gives:
            raise ValueError(f"pass {entry.name!r} makes a {gives.__name__} of a {takes.__name__}; "
                             f"it cannot be dropped")
        here = entry.name in (before, after)
        added = [Pass(_stage_of(takes if before else gives), _name(run), run) for run in add] if here else []
        if entry.name == before:
            result += added
        if entry.name not in drop:
            result.append(changed(entry, run=replace[entry.name]) if entry.name in replace else entry)
        if entry.name == after:
            result += added
    return tuple(result)


def _stage_of(kind: type) -> str:
    for stage, (takes, gives) in STAGES.items():
        if takes is kind and gives is kind:
            return stage
    raise ValueError(f"no pass can be put here: it would have to take and give a {kind.__name__}")


def _name(run: Run) -> str:
    return getattr(run, "__name__", type(run).__name__)


# ---- the runner -----------------------------------------------------------------------------------------------------

_code: dict[tuple[Kernel, Target, tuple[Pass, ...]], InstructionList] = {}
_MAX_CODE = 4096


def lower(program: Program, target: Target, record: Record | None = None,
          donate: frozenset[int] = frozenset(), ready: Callable[[InstructionList], None] | None = None,
          codes: Codes | None = None) -> Lowered:
    """Run the passes of this context.

    record(stage, pass, value, seconds) is called after each one. donate: numbers of the inputs whose memory may be
    taken over by outputs (the memory pass gets them as keyword `donate`). ready(code) is called as soon as a kernel's
    code is there, so that a backend can compile it while the next one is lowered. codes: where the code of kernels is
    kept between processes; it is asked with the usual passes only, and not if `record` wants to see the passes.
    """
    listed = current_passes()
    value: Any = program
    memory: MemoryPlan | None = None
    for entry in listed:
        if entry.stage in ("program", "fuse", "fused"):
            value = _run(entry, value, target, record)
        if entry.stage == "fused":
            value = in_bodies(value, lambda body, entry=entry: entry.run(body, target))
    fused: Fused = value
    kernel_passes = tuple([entry for entry in listed if entry.stage in _KERNEL_STAGES])
    done: dict[Kernel, InstructionList] = {}
    launches = fused.kernel_launches()
    for launch in launches:
        if launch.kernel not in done:
            done[launch.kernel] = kernel_code(launch.kernel, target, kernel_passes, record, codes)
            if ready is not None:
                ready(done[launch.kernel])
    for entry in listed:
        if entry.stage == "memory":
            memory = _run(entry, fused, target, record, **({"donate": donate} if donate else {}))
    assert memory is not None
    return Lowered(program, fused, tuple([done[launch.kernel] for launch in launches]), memory)


def kernel_code(kernel: Kernel, target: Target, entries: tuple[Pass, ...] | None = None,
                record: Record | None = None, codes: Codes | None = None) -> InstructionList:
    """The instruction list of one fused kernel, computed once (unless `record` wants to see how)."""
    if entries is None:
        entries = tuple([entry for entry in current_passes() if entry.stage in _KERNEL_STAGES])
    key = (kernel, target, entries)
    found = _code.get(key) if record is None else None
    if record is not None or current_passes() is not PASSES:
        codes = None
    if found is None and codes is not None:
        found = codes.get(kernel)
        if found is not None:
            _code[key] = found
    if found is None:
        value: Any = kernel
        for entry in entries:
            value = _run(entry, value, target, record)
        if len(_code) >= _MAX_CODE:
            _code.clear()
        found = _code[key] = value
        if codes is not None:
            codes.put(kernel, found)
    return found


def _run(entry: Pass, value: Any, target: Target, record: Record | None, **options: Any) -> Any:
    start = perf_counter()
    result = entry.run(value, target, **options)
    gives = STAGES[entry.stage][1]
    if not isinstance(result, gives):
        raise CompilationError(f"pass {entry.name!r} gave a {type(result).__name__} instead of a {gives.__name__}")
    if config.get("check") and gives is not MemoryPlan:
        _check(entry, result)
    if record is not None:
        record(entry.stage, entry.name, result, perf_counter() - start)
    return result


def _check(entry: Pass, result: Any) -> None:
    """FUNGRAD_CHECK=1: raise VerificationError, with the pass's name, for a value that is not well formed."""
    try:
        check(result)
    except VerificationError as error:
        raise VerificationError(f"pass {entry.name!r} gave a {type(result).__name__} that is not well formed: "
                                f"{error}") from error

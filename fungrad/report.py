"""`fungrad.show`: what happens to a function between its call and the machine, stage by stage.

    report = fungrad.show(fungrad.jit(fungrad.grad(loss)))(params, x, y)     # prints every stage
    fungrad.show(f, stage="fused")(x)                                        # prints one
    report.kernels[0].source, report.kernels[0].flops                        # the same as data
"""
from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import backends, config, tree
from .errors import CompilationError
from .ir.kernel import Control, Fused, If, Kernel, Loop, Statement, While, outputs_of
from .ir.kernel_text import instructions_text, kernel_text
from .ir.lowered import Lowered, MemoryPlan
from .ir.program import INPUT, Node, Program, program_text
from .lower import pipeline
from .trace import trace_program
from .transforms.api import type_of
from .transforms.flat import FlatFunction, function_name, is_weak
from .transforms.jit import Jitted, jit

STAGES = ("trace", "transformed", "simplified", "fused", "schedule", "instructions", "source", "assembly", "memory")
_TITLES = {
    "trace": "1. trace: the function as its operations were recorded",
    "transformed": "2. transformed: the program after grad, vmap and the other transforms",
    "simplified": "3. simplified: common subexpressions shared, algebra applied, calls inlined",
    "fused": "4. fused: kernels, and why they are what they are",
    "schedule": "5. schedule: each kernel's loops",
    "instructions": "6. instructions: each kernel in single-assignment form",
    "source": "7. source: each kernel in the backend's language",
    "assembly": "8. assembly: each kernel's machine code",
    "memory": "9. memory: launches in order, and where their values lie",
}


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One distinct kernel.

    flops, bytes: of one launch. loops: names and kinds of the loops, outermost first, with their depth. reasons: one
    line a
    fusion decision. schedule: the Opts. launches: how often the program runs it.
    """
    name: str
    kind: str
    flops: int
    bytes: int
    loops: tuple[str, ...]
    reasons: tuple[str, ...]
    schedule: tuple[str, ...]
    fused: str
    scheduled: str
    instructions: str
    source: str
    assembly: str
    launches: int


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass that ran: its stage, name, seconds, and the text of what it gave."""
    stage: str
    name: str
    seconds: float
    text: str


@dataclass(frozen=True)
class Report:
    """Every stage of one function for one signature, as text (`stages`) and as data."""
    name: str
    stages: Mapping[str, str]
    kernels: tuple[KernelReport, ...]
    passes: tuple[PassReport, ...]
    lowered: Lowered
    shown: tuple[str, ...] = STAGES
    locations: Mapping[Node, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{_TITLES[stage]}\n{'-' * len(_TITLES[stage])}\n{self.stages[stage]}" for stage in self.shown]
        return f"{self.name}\n{'=' * len(self.name)}\n\n" + "\n\n".join(parts)

    def __repr__(self) -> str:
        return f"<report on {self.name}: {len(self.kernels)} kernels>"

    def _repr_html_(self) -> str:
        opened = {stage: " open" if stage in ("trace", "fused") else "" for stage in STAGES}
        parts = [f"<details{opened[stage]}><summary>{html.escape(_TITLES[stage])}</summary>"
                 f"<pre>{html.escape(self.stages[stage])}</pre></details>" for stage in self.shown]
        return f"<div><b>{html.escape(self.name)}</b>{''.join(parts)}</div>"


def show(f: Callable[..., Any], stage: str | None = None, file: Any = None) -> Callable[..., Report]:
    """Look at a function's stages: `show(f)(*args)` prints them all (or one) and answers a `Report`.

    f: a jitted function, or any function (it is shown as `jit(f)`). stage: one of `fungrad.report.STAGES`. file:
    where to
    print (standard output); the report is computed without running the function.
    Raises ValueError for a stage that does not exist.
    """
    if stage is not None and stage not in STAGES:
        raise ValueError(f"there is no stage {stage!r}; write one of {', '.join(STAGES)}")
    jitted = f if isinstance(f, Jitted) else jit(f)

    def shown(*args: Any, **kwargs: Any) -> Report:
        built = report(jitted, args, kwargs, STAGES if stage is None else (stage,))
        print(built, file=file or sys.stdout)
        return built
    return shown


def report(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any], shown: tuple[str, ...] = STAGES) -> Report:
    """The report on a jitted function for these arguments, without printing."""
    traced = jitted.trace(*args, **kwargs)
    backend = backends.get(config.get("device"))
    passes: list[PassReport] = []
    scheduled: dict[str, Kernel] = {}
    values: dict[str, Any] = {}

    def record(stage: str, name: str, value: Any, seconds: float) -> None:
        passes.append(PassReport(stage, name, seconds, _text(value)))
        values[name] = value
        if stage == "kernel" and isinstance(value, Kernel) and value.body is not None:
            scheduled[value.name] = value
    lowered = pipeline.lower(traced.program, backend.target(), record=record)
    kernels = _kernels(lowered, scheduled, backend)
    programs = [values[entry.name] for entry in passes if isinstance(values[entry.name], Program)]
    simplified = programs[-1] if programs else traced.program
    stages = {
        "trace": _innermost_trace(jitted, args, kwargs),
        "transformed": located_text(traced.program, traced.locations),
        "simplified": located_text(simplified, traced.locations),
        "fused": "\n\n".join(_fused_text(kernel) for kernel in kernels) or "no kernel: the outputs are inputs",
        "schedule": "\n\n".join(f"{k.name}: {'; '.join(k.schedule) or 'as it is'}\n{k.scheduled}" for k in kernels),
        "instructions": "\n\n".join(k.instructions for k in kernels),
        "source": "\n\n".join(k.source for k in kernels),
        "assembly": "\n\n".join(k.assembly for k in kernels),
        "memory": _memory_text(lowered),
    }
    return Report(function_name(jitted), stages, kernels, tuple(passes), lowered, shown, traced.locations)


def _text(value: Any) -> str:
    if isinstance(value, Program):
        return program_text(value)
    if isinstance(value, Kernel):
        return kernel_text(value)
    if isinstance(value, Fused):
        return "\n\n".join(kernel_text(launch.kernel) for launch in value.kernel_launches())
    return str(value)


def located_text(program: Program, locations: Mapping[Node, str]) -> str:
    """The program's text with the user's line behind each operation that has one."""
    lines = program_text(program).split("\n")
    nodes = [node for node in program.nodes() if node.primitive is not INPUT]
    positions = [i for i, line in enumerate(lines) if line.startswith("  v")]
    if len(positions) != len(nodes):   # nested programs have lines of their own
        return "\n".join(lines)
    width = max((len(lines[i]) for i in positions), default=0)
    for i, node in zip(positions, nodes, strict=True):
        if node in locations:
            lines[i] = f"{lines[i]:<{min(width, 90)}}  # {_short_location(locations[node])}"
    return "\n".join(lines)


def _short_location(location: str) -> str:
    """`file.py:12 (function)` without the folder."""
    return location.replace("\\", "/").rsplit("/", 1)[-1]


def _innermost_trace(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The user's own function traced alone, below the transforms that wrap it."""
    inner: Any = jitted
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    leaves, structure = tree.flatten((args, kwargs))
    flat = FlatFunction(lambda a, k: inner(*a, **k), structure)
    try:
        traced = trace_program(flat, [type_of(leaf) for leaf in leaves], [is_weak(leaf) for leaf in leaves])
    except Exception as error:   # under vmap, say, the inner function takes other shapes: the story starts at stage 2
        return f"{function_name(inner)} cannot be traced alone on these arguments ({type(error).__name__}); see stage 2"
    return f"{function_name(inner)}\n{located_text(traced.program, traced.locations)}"


def _kernels(lowered: Lowered, scheduled: Mapping[str, Kernel], backend: Any) -> tuple[KernelReport, ...]:
    found: dict[Kernel, KernelReport] = {}
    counts: dict[Kernel, int] = {}
    for launch in lowered.fused.kernel_launches():
        counts[launch.kernel] = counts.get(launch.kernel, 0) + 1
    for launch, code in zip(lowered.fused.kernel_launches(), lowered.code, strict=True):
        kernel = launch.kernel
        if kernel in found:
            continue
        final = scheduled.get(code.name, kernel)
        try:
            assembly = backend.assembly(code)
        except CompilationError as error:
            assembly = f"not available: {error}"
        found[kernel] = KernelReport(
            code.name, kernel.kind, code.flops, code.bytes, tuple(_loops(final.body or (), 0)), kernel.reasons,
            tuple(map(str, final.schedule)), kernel_text(kernel), kernel_text(final), instructions_text(code),
            backend.render(code), assembly, counts[kernel])
    return tuple(found.values())


def _loops(body: tuple[Statement, ...], depth: int) -> list[str]:
    lines: list[str] = []
    for statement in body:
        if isinstance(statement, Loop):
            lines.append(f"{'  ' * depth}{statement.kind} {statement.axis.name} < {statement.axis.extent}")
            lines += _loops(statement.body, depth + 1)
        elif isinstance(statement, (If, While)):
            lines += _loops(statement.body, depth)
    return lines


def _fused_text(kernel: KernelReport) -> str:
    times = f", launched {kernel.launches} times" if kernel.launches > 1 else ""
    head = f"{kernel.name} ({kernel.kind}{times}): {kernel.flops:,} flops, {kernel.bytes:,} bytes"
    return "\n".join([head, *(f"  because {reason}" for reason in kernel.reasons), kernel.fused])


def _memory_text(lowered: Lowered) -> str:
    lines = [f"arena of {lowered.memory.arena_bytes:,} bytes"]
    return "\n".join(lines + _launch_lines(lowered.fused, lowered.memory, iter(lowered.code), "  "))


def _launch_lines(fused: Fused, plan: MemoryPlan, code: Iterator[Any], indent: str) -> list[str]:
    """The launches of a program or of a loop's body, and where their values lie."""
    names: dict[int, str] = {}
    for number, slot in enumerate(fused.inputs):
        names.setdefault(slot, f"input {number}")
    for number, slot in enumerate(fused.outputs):
        names.setdefault(slot, f"output {number}")
    lines: list[str] = []
    nested = iter(plan.nested)
    for launch in fused.launches:
        count = outputs_of(launch)
        places = [names.get(slot) or f"arena[{plan.offsets[slot]}] {fused.slots[slot]}" for slot in launch.slots]
        arrow = f"{', '.join(places[:count])} <- {', '.join(places[count:]) or 'nothing'}"
        if not isinstance(launch, Control):
            lines.append(f"{indent}{next(code).name}: {arrow}")
            continue
        offset, plans = next(nested)
        times = {"scan": f" {launch.length} times{' in reverse' if launch.reverse else ''}"}.get(launch.kind, "")
        lines.append(f"{indent}{launch.kind}{times}: {arrow}")
        for body, body_plan in zip(launch.bodies, plans, strict=True):
            lines.append(f"{indent}  body with an arena of {body_plan.arena_bytes:,} bytes at arena[{offset}]")
            lines += _launch_lines(body, body_plan, code, indent + "    ")
    return lines

"""Kernels: the grammar of stages 2 to 4.

    Kernel ::= name, buffers (global arguments: outputs first, then inputs), scratch buffers, outer axes, nests
    (fused)
             | name, buffers, scratch, body of statements
             (scheduled)

    nest   ::= target[index] <combine>= value, for every point of the nest's axes (and reduce axes)
    stmt   ::= Loop(axis, kind, body, stop) | Store(target, index, value, combine) | If(condition, body) |
    While(condition, body)

A fused kernel runs, for every point of its outer axes (in any order, in parallel), its nests one after another. Nests
talk
through scratch buffers, which are private to a point of the outer axes. So softmax is one kernel: outer axis the row;
nests
max, exp and sum, divide. A nest with reduce axes first sets its target to the identity of `combine`.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .expr import TRUE, Axis, Buffer, Expr


@dataclass(frozen=True, slots=True)
class Nest:
    """One loop nest: `target[index] = value` (or `combine`d over `reduce_axes`) for every point of `axes`.

    `index` uses the kernel's outer axes and the nest's `axes` only. `value` holds no `reduce` expression. Stores happen
    where `valid` holds.
    """
    target: Buffer
    index: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    value: Expr
    combine: str | None = None
    reduce_axes: tuple[Axis, ...] = ()
    valid: Expr = TRUE


@dataclass(frozen=True, slots=True)
class Store:
    """`target[index] = value`, or `target[index] = combine(target[index], value)`."""
    target: Buffer
    index: tuple[Expr, ...]
    value: Expr
    combine: str | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` for axis = 0 .. extent-1, or for axis < `stop` (never above the extent) where that is given.

    kind: "serial" (in order), "parallel" (any order, on the thread pool), "vector" (the axis becomes lanes),
    "unroll" (written out).
    """
    axis: Axis
    body: tuple[Statement, ...]
    kind: str = "serial"
    stop: Expr | None = None


@dataclass(frozen=True, slots=True)
class If:
    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While:
    """Run `body` while `condition`, evaluated before each round, holds."""
    condition: Expr
    body: tuple[Statement, ...]


Statement = Loop | Store | If | While


@dataclass(frozen=True, slots=True)
class Opt:
    """One step of a schedule, as plain data: e.g. Opt("split", ("i", 64)), Opt("vectorize", ("j", 16))."""
    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fused kernel (see the module's grammar). `body` is None until it is scheduled.

    kind: "nests", "contraction" (one nest whose value is a product of two reads, reduced by add; more nests may
    follow as
    its epilogue) or "loops" (an op with a loop of its own kind, given as `body` from the start).
    reasons: why it is this kernel: one line for each fusion decision.
    """
    name: str
    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...] = ()
    outer: tuple[Axis, ...] = ()
    nests: tuple[Nest, ...] = ()
    body: tuple[Statement, ...] | None = None
    kind: str = "nests"
    schedule: tuple[Opt, ...] = ()
    reasons: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a lowered program with the slots of its buffers: outputs, then inputs."""
    kernel: Kernel
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Control:
    """A launch that runs other programs: a loop or a choice. Their inputs and outputs are bound to slots of this one.

    scan:  bodies (body,). For k = 0 .. length-1, in reverse if so said: [consts, carry, slices of xs] -> [carry,
           slices of ys]. slots: carry, ys | consts, carry, xs | one further slot for each carry.
    while: bodies (condition, body). slots: carry | the condition's consts, the body's consts, carry | one further
           slot for each carry, and one for the condition's result.
    cond:  the body whose number is the first input (moved into the range) runs. slots: results | index, operands.

    slots: `outputs` outputs, then `inputs` inputs, then memory for the loop itself: iterations write the carry
    alternately to its output slot and to its further slot, so that none reads what it writes. consts: of a scan (one
    number), of a while (two). A body writes each of its outputs (`lower/control.py`); they are none of its inputs.
    in_place: numbers of carries for which that is not so: the body's output is its input, of which it writes a part.
    """
    kind: str
    bodies: tuple[Fused, ...]
    slots: tuple[int, ...]
    outputs: int
    inputs: int
    consts: tuple[int, ...] = ()
    carry: int = 0
    length: int = 0
    reverse: bool = False
    in_place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fused:
    """A program after fusion: launches in order over numbered slots.

    slots: the type of every slot. inputs, outputs: the slots of the program's inputs and outputs (an output may be an
    input's
    slot: the value is forwarded, as it is where two outputs share a slot). Every other slot is a temporary. A kernel
    may see
    a slot under another shape with as many elements. Slots without elements need not be written.
    """
    launches: tuple[Launch | Control, ...]
    slots: tuple[Any, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def kernel_launches(self) -> list[Launch]:
        """The launches of kernels, those in the bodies of loops and choices at their place."""
        found: list[Launch] = []
        for launch in self.launches:
            if isinstance(launch, Control):
                for body in launch.bodies:
                    found += body.kernel_launches()
            else:
                found.append(launch)
        return found


def outputs_of(launch: Launch | Control) -> int:
    """How many of a launch's slots it writes: they come first."""
    return launch.outputs if isinstance(launch, Control) else len(launch.kernel.outputs)


@dataclass(frozen=True, slots=True)
class Fragment:
    """What the `lower` rule of an op with loops of its own answers instead of an expression (sort, scatter,
    cumulative ops).

    outputs, inputs: global buffers standing for the op's results and operands, in order; scratch: further memory;
    outer: axes over which the body may run in parallel; body: what runs for each of their points.
    """
    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    outer: tuple[Axis, ...]
    body: tuple[Statement, ...]

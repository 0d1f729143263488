"""Loops and choices: the launch of a node with trait "control", whose bodies are fused programs of their own.

A body writes each of its outputs to memory of its own: where an output is an input of the body, or stands twice among
the outputs, a copy is added.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..errors import CompilationError
from ..ir.expr import Buffer, axis, load
from ..ir.kernel import Control, Fused, Kernel, Launch, Nest
from ..ir.program import Node, Program
from ..ir.types import Type, array_type
from .fuse_names import canonical_axis, canonical_buffer, intern_kernel
from .in_place import windows, with_updates, without_wholes
from .small_loops import small_loop

FuseBody = Callable[[Program], Fused]


def control_launch(node: Node, slots: dict[Buffer, int], results: Sequence[Buffer], operands: Sequence[Buffer],
                   fuse: FuseBody) -> Control | Launch:
    """The launch of a scan, while or cond; adds what it needs to `slots`. A small loop is a kernel."""
    def number(buffers: Sequence[Buffer]) -> tuple[int, ...]:
        return tuple([slots.setdefault(buffer, len(slots)) for buffer in buffers])

    def memory(types: Sequence[Type]) -> tuple[int, ...]:
        return number([Buffer(f"loop{len(slots) + i}", type) for i, type in enumerate(types)])

    def body(name: str) -> Fused:
        return with_own_outputs(fuse(node.param(name)))

    def updating(name: str, consts: int, carry: int) -> tuple[Fused, tuple[int, ...]]:
        return _updating_body(node.param(name), consts, carry, fuse)
    name, given = node.primitive.name, (*number(results), *number(operands))
    small = small_loop(node)
    if small is not None:
        return Launch(small, given)
    count = len(results), len(operands)
    if name == "scan":
        consts, carry = node.param("consts"), node.param("carry")
        further = memory(node.type[:carry])
        step, places = updating("program", consts, carry)
        return Control("scan", (step,), (*given, *further), *count, (consts,), carry, node.param("length"),
                       node.param("reverse"), places)
    if name == "while":
        further = memory([*node.type, array_type((), np.dtype(bool))])
        consts = node.param("condition_consts"), node.param("body_consts")
        step, places = updating("body", consts[1], len(node.type))
        return Control("while", (body("condition"), step), (*given, *further), *count, consts, len(node.type),
                       in_place=places)
    if name == "cond":
        return Control(
            "cond", tuple([with_own_outputs(fuse(branch)) for branch in node.param("branches")]), given, *count
        )
    raise CompilationError(f"{name} cannot be compiled: it is none of scan, while and cond")


def _updating_body(program: Program, consts: int, carry: int, fuse: FuseBody) -> tuple[Fused, tuple[int, ...]]:
    """A loop's body, and the carries that it updates in place."""
    updates = windows(program, consts, carry)
    if not updates:
        return with_own_outputs(fuse(program)), ()
    changed, places = without_wholes(program, updates)
    return with_updates(with_own_outputs(fuse(changed)), updates, places, consts, len(program.outputs)), tuple(places)


def with_own_outputs(fused: Fused) -> Fused:
    """The program with every output in a slot of its own that is no input."""
    taken = set(fused.inputs)
    launches, slots, outputs = list(fused.launches), list(fused.slots), []
    for slot in fused.outputs:
        if slot in taken:
            type = fused.slots[slot]
            slots.append(type)
            if type.size:
                launches.append(Launch(copy_kernel(type), (len(slots) - 1, slot)))
            slot = len(slots) - 1
        taken.add(slot)
        outputs.append(slot)
    return replace(fused, launches=tuple(launches), slots=tuple(slots), outputs=tuple(outputs))


def copy_kernel(type: Type) -> Kernel:
    """A kernel that copies an array, as one run of elements."""
    size = math.prod(type.shape)
    flat = array_type((size,) if size > 1 else (), type.dtype)
    target, source = canonical_buffer("out0", flat, "global"), canonical_buffer("in0", flat, "global")
    axes = (canonical_axis("i0", size),) if size > 1 else ()
    index = tuple([axis(a) for a in axes])
    return intern_kernel(
        Kernel(
            f"copy_{size}",
            (target,),
            (source,),
            nests=(Nest(target, index, axes, load(source, index)),),
            reasons=("a loop's body forwards a value",),
        )
    )


def in_bodies(fused: Fused, change: Callable[[Fused], Fused]) -> Fused:
    """Apply a pass to the bodies of all loops and choices, and to those inside them."""
    if not any(isinstance(launch, Control) for launch in fused.launches):
        return fused

    def inside(launch: Launch | Control) -> Launch | Control:
        if not isinstance(launch, Control):
            return launch
        return replace(launch, bodies=tuple([in_bodies(change(body), change) for body in launch.bodies]))
    return replace(fused, launches=tuple([inside(launch) for launch in fused.launches]))

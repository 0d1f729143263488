"""Program -> Fused: fusion in five steps.

    fuse_choose   which values are computed once; the rest is index arithmetic in their readers
    fuse_stages   their loop nests
    fuse_groups   which of them share a kernel, under which outer axes
    fuse_recompute  which values are computed again rather than read from another kernel
    fuse_kernels  where each lives (global, scratch, nowhere), canonical names, one object for equal kernels

Conventions of the kernels made here:
- `outer` holds the axes that all nests share and at whose points they talk through scratch: the rows of a row kernel.
  Nests without scratch between them have their axes to themselves (`fuse_arrange`): an elementwise kernel has no outer
  axes.
- A scratch buffer is indexed by inner axes only; a row's scalar has rank 0.
- A nest may read an output of its own kernel that an earlier nest wrote at the same outer point.
- kind "contraction": `nests[0]` is the sum of products (over `outer`, no inner axes); further nests are its epilogue.
- Axes of extent 1 do not appear. Kernels without elements are not launched.
Every decision leaves a line in `Kernel.reasons`.
"""
from __future__ import annotations

from ..ir.expr import Buffer
from ..ir.kernel import Fused, Launch
from ..ir.program import Program
from ..ir.target import Target
from .control import control_launch
from .fuse_choose import choose_stages
from .fuse_groups import Group, Grouper
from .fuse_kernels import KernelBuilder, fragment_kernel
from .fuse_recompute import recompute
from .fuse_stages import StageBuilder
from .index import Simplifier


def fuse(program: Program, target: Target) -> Fused:
    """The kernels of a program, in order, over numbered slots."""
    simplify = Simplifier()
    whole = frozenset(
        operand for node in program.nodes() if "control" in node.primitive.traits for operand in node.operands
    )
    builder = StageBuilder(simplify, program.outputs, whole)
    inputs = [builder.buffer(type) for type in program.input_types]
    builder.definer.buffers.update(zip(program.inputs, inputs, strict=True))
    for node in choose_stages(program):
        builder.build(node)
    outputs = [builder.buffer_of(output) for output in program.outputs]
    grouper = Grouper(simplify)
    for stage in builder.stages:
        grouper.add(stage)
    recompute(grouper, outputs, simplify)
    fused = _assemble(grouper, inputs, outputs, target, simplify)
    types = list(fused.slots)             # an output may be a reshape of what its kernel wrote
    for slot, type in zip(fused.outputs, program.output_types, strict=True):
        types[slot] = type
    return Fused(fused.launches, tuple(types), fused.inputs, fused.outputs)


def _assemble(grouper: Grouper, inputs: list[Buffer], outputs: list[Buffer], target: Target,
              simplify: Simplifier) -> Fused:
    slots: dict[Buffer, int] = {buffer: number for number, buffer in enumerate(inputs)}
    groups = grouper.ordered()
    exported = set(outputs) | {buffer for group in groups for buffer in _read_elsewhere(group, grouper)}
    launches = []
    for group in groups:
        if group.kind == "loops":
            stage = group.stages[0]
            if stage.control is not None:
                launches.append(control_launch(stage.control, slots, stage.results, stage.operands,
                                               lambda body: fuse(body, target)))
                continue
            kernel, written, read = fragment_kernel(stage, tuple(group.reasons)), stage.results, stage.operands
        else:
            kernel, written, read = KernelBuilder(group, exported, target, simplify).build()
        for buffer in written:
            slots.setdefault(buffer, len(slots))
        if any(buffer.type.size for buffer in written):
            launches.append(Launch(kernel, tuple([slots[buffer] for buffer in (*written, *read)])))
    for buffer in outputs:
        slots.setdefault(buffer, len(slots))          # without elements
    return Fused(tuple(launches), tuple([buffer.type for buffer in slots]), tuple(range(len(inputs))),
                 tuple([slots[buffer] for buffer in outputs]))


def _read_elsewhere(group: Group, grouper: Grouper) -> list[Buffer]:
    """The buffers of other groups that a group reads."""
    return [buffer for stage in group.stages for buffer in stage.read_buffers()
            if any(producer is not group for producer in grouper.producers(buffer))]

"""Third step of fusion: groups of stages -> Kernels.

Here it is decided where each stage lives: in a global buffer (an output, or read by another kernel), in scratch
(private to a point of the outer axes: a row's maximum, a row of exponentials), or nowhere (its expression stands in
its readers).

Axes and buffers are named canonically and shared between kernels (`o0: 512` is one Axis everywhere), so equal kernels
are equal values, and `intern_kernel` makes them one object: N equal layers compile once.
"""
from __future__ import annotations

import math

from ..ir.expr import (
    TRUE,
    Axis,
    Buffer,
    Expr,
    axis as axis_expr,
    constant,
    guarded,
    index_constant,
    load,
    operation,
    select,
    substitute,
)
from ..ir.kernel import Kernel, Nest
from ..ir.target import Target
from ..ir.types import array_type
from .fuse_arrange import arrange
from .fuse_axes import split_axes
from .fuse_blocks import BlockOf
from .fuse_choose import RECOMPUTE
from .fuse_groups import Group
from .fuse_names import canonical_axis, canonical_buffer, intern_kernel
from .fuse_stages import Stage
from .index import Simplifier


class KernelBuilder:
    """Builds the kernel of one group. `exported`: the buffers that other kernels or the program need."""

    def __init__(self, group: Group, exported: set[Buffer], target: Target, simplify: Simplifier) -> None:
        self.group = group
        self.exported = exported
        self.target = target
        self.simplify = simplify
        self.outer = {a: canonical_axis(f"o{number}", a.extent // self._rows(a))
                      for number, a in enumerate(self._outer_order())}
        self.own = {stage.buffer: stage for stage in group.stages}
        self.global_of: dict[Buffer, Buffer] = {}      # program buffer -> the kernel's argument
        self.outputs: list[Buffer] = []                # program buffers
        self.inputs: list[Buffer] = []
        self.scratch: list[Buffer] = []
        self.scratch_of: dict[Buffer, Buffer] = {}
        self.values: dict[Buffer, tuple[Expr, tuple[Axis, ...]]] = {}   # their expression stands in their readers
        self.nests: list[Nest] = []
        self.evaluations = self._count_evaluations()

    def _outer_order(self) -> list[Axis]:
        """The outer axes in the order of the largest output's dimensions, so that it is written row by row."""
        outputs = [stage for stage in self.group.stages if self._is_exported(stage)]
        largest = max(outputs, key=lambda stage: stage.buffer.type.size, default=self.group.stages[-1])
        bound = [a for a in self.group.bind[largest] if isinstance(a, Axis)]
        return bound if len(bound) == len(self.group.outer) else list(self.group.outer)

    def _is_exported(self, stage: Stage) -> bool:
        """Whether other kernels or the program need a stage's values."""
        return stage.buffer in self.exported or stage.whole is not None

    def _rows(self, a: Axis) -> int:
        """The rows in a block of an outer axis."""
        return self.group.block if self.group.block and a is self.group.outer[-1] else 1

    def _count_evaluations(self) -> dict[Buffer, int]:
        """How many elements of each buffer are wanted: by readers in the group, or by the readers of inlined ones."""
        counts: dict[Buffer, int] = {}
        for stage in reversed(self.group.stages):
            wanted = stage.points
            if stage.buffer in counts and not self._is_exported(stage) and self._is_inlined(stage, counts):
                wanted = counts[stage.buffer]
            for e in stage.reads:
                counts[e.attribute] = counts.get(e.attribute, 0) + wanted
        return counts

    def build(self) -> tuple[Kernel, tuple[Buffer, ...], tuple[Buffer, ...]]:
        """The interned kernel, and the program buffers of its outputs and inputs."""
        for stage in self.group.stages:
            self._stage(stage)
        outer, nests = split_axes(tuple(self.outer.values()), self.nests, self.simplify, canonical_axis)
        kind, scratch = "contraction" if self.group.kind == "contraction" else "nests", tuple(self.scratch)
        if kind == "nests":
            outer, nests, scratch = arrange(outer, nests, scratch, self.simplify, canonical_axis, canonical_buffer)
        kernel = Kernel(self._name(), tuple([self.global_of[b] for b in self.outputs]),
                        tuple([self.global_of[b] for b in self.inputs]), scratch,
                        outer, tuple(nests), kind=kind, reasons=tuple(dict.fromkeys(self.group.reasons)))
        return intern_kernel(kernel), tuple(self.outputs), tuple(self.inputs)

    # ---- one stage ------------------------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        places, inner = self._places(stage)
        reduce_axes = tuple([canonical_axis(f"r{number}", a.extent) for number, a in enumerate(stage.reduce_axes)])
        places.update(zip(stage.reduce_axes, map(axis_expr, reduce_axes), strict=True))
        assert stage.value is not None
        value = self._rewrite(stage.value, places)
        full = tuple([self.simplify(self._rewrite(e, places)) for e in stage.place] if stage.whole is not None else
                     [places[a] for a in stage.axes])
        exported, read = self._is_exported(stage), self.evaluations.get(stage.buffer, 0)
        if stage.kind == "map" and not inner or not exported and self._is_inlined(stage, self.evaluations):
            self.values[stage.buffer] = value, inner
            if exported:
                self._store(self._output(stage), full, inner, value, stage, reduce_axes)
        elif exported and (inner or not read):
            self._store(self._output(stage), full, inner, value, stage, reduce_axes)
        else:
            scratch = self._scratch(stage, inner)
            index = tuple([axis_expr(a) for a in inner])
            self._store(scratch, index, inner, value, stage, reduce_axes)
            if exported:
                self.nests.append(Nest(self._output(stage), full, inner, load(scratch, index)))

    def _places(self, stage: Stage) -> tuple[dict[Axis, Expr], tuple[Axis, ...]]:
        """Where the axes of a stage are in the kernel, and its inner axes."""
        places: dict[Axis, Expr] = {}
        inner: list[Axis] = []
        for a, bound in zip(stage.axes, self.group.bind[stage], strict=True):
            if a.extent == 1:
                places[a] = index_constant(0)
            elif isinstance(bound, BlockOf):
                places[a] = axis_expr(self.outer[bound.axis])
            elif bound is not None and self._rows(bound) == 1:
                places[a] = axis_expr(self.outer[bound])
            elif bound is not None:
                inner.append(canonical_axis(f"i{len(inner)}", self._rows(bound)))
                places[a] = operation("add", self._first_row(bound), axis_expr(inner[-1]))
            else:
                inner.append(canonical_axis(f"i{len(inner)}", a.extent))
                places[a] = axis_expr(inner[-1])
        return places, tuple(inner)

    def _first_row(self, bound: Axis) -> Expr:
        """The first row of the current block."""
        return operation("mul", axis_expr(self.outer[bound]), index_constant(self._rows(bound)))

    def _is_inlined(self, stage: Stage, evaluations: dict[Buffer, int]) -> bool:
        """Whether a stage that only this kernel reads is recomputed by its readers."""
        if stage.kind != "map":
            return False
        again = evaluations.get(stage.buffer, 0) / max(stage.buffer.type.size, 1) - 1
        if again <= 0 or stage.cost * again <= RECOMPUTE:
            return True
        size = math.prod(self._inner_extents(stage)) * stage.buffer.type.dtype.itemsize
        return size == stage.buffer.type.dtype.itemsize or size > self.target.caches[1] // 4

    def _inner_extents(self, stage: Stage) -> list[int]:
        """The extents of a stage's inner axes."""
        return [a.extent if bound is None else self._rows(bound)
                for a, bound in zip(stage.axes, self.group.bind[stage], strict=True) if not isinstance(bound, BlockOf)]

    def _store(self, target: Buffer, index: tuple[Expr, ...], inner: tuple[Axis, ...], value: Expr, stage: Stage,
               reduce_axes: tuple[Axis, ...]) -> None:
        self.nests.append(Nest(target, index, inner, value, stage.combine, reduce_axes))

    def _output(self, stage: Stage) -> Buffer:
        """The argument to which an exported stage's values are written."""
        buffer = stage.whole or stage.buffer
        if buffer not in self.global_of:
            self.global_of[buffer] = canonical_buffer(f"out{len(self.outputs)}", buffer.type, "global")
            self.outputs.append(buffer)
        return self.global_of[buffer]

    def _scratch(self, stage: Stage, inner: tuple[Axis, ...]) -> Buffer:
        type = array_type(tuple([a.extent for a in inner]), stage.buffer.type.dtype)
        scratch = canonical_buffer(f"s{len(self.scratch)}", type, "scratch")
        self.scratch.append(scratch)
        self.scratch_of[stage.buffer] = scratch
        return scratch

    # ---- expressions ------------------------------------------------------------------------------------------------

    def _rewrite(self, value: Expr, places: dict[Axis, Expr]) -> Expr:
        """A stage's expression in the kernel's axes and buffers."""
        def replace(e: Expr) -> Expr | None:
            if e.op == "axis":
                return places[e.attribute]
            if e.op == "load":
                index = tuple([substitute(i, replace) for i in e.operands[:-1]])
                return self._read(e.attribute, index, substitute(e.operands[-1], replace))
            return None
        return substitute(value, replace)

    def _read(self, buffer: Buffer, index: tuple[Expr, ...], valid: Expr) -> Expr:
        stage = self.own.get(buffer)
        if stage is None:
            argument = self.global_of.get(buffer)
            if argument is None:
                argument = canonical_buffer(f"in{len(self.inputs)}", buffer.type, "global")
                self.inputs.append(buffer)
                self.global_of[buffer] = argument
            return load(argument, index, valid)
        inner = self._inner_index(index, stage)
        if buffer in self.values:
            return self._inlined(*self.values[buffer], inner, valid)
        if buffer in self.scratch_of:
            return load(self.scratch_of[buffer], inner, valid)
        return load(self.global_of[buffer], index, valid)

    def _inner_index(self, index: tuple[Expr, ...], stage: Stage) -> tuple[Expr, ...]:
        """The part of an index into a stage that the outer axes do not fix."""
        inner: list[Expr] = []
        for i, a, bound in zip(index, stage.axes, self.group.bind[stage], strict=True):
            if a.extent == 1 or isinstance(bound, BlockOf):
                continue
            if bound is None:
                inner.append(i)
            elif self._rows(bound) > 1:
                inner.append(self.simplify(operation("sub", i, self._first_row(bound))))
        return tuple(inner)

    def _inlined(self, value: Expr, axes: tuple[Axis, ...], index: tuple[Expr, ...], valid: Expr) -> Expr:
        """A stage's expression over `axes` at another inner index, reading nothing where it is not valid."""
        places = {a: i for a, i in zip(axes, index, strict=True) if i.op != "axis" or i.attribute is not a}
        if places:
            value = self.simplify(substitute(value, lambda e: places.get(e.attribute) if e.op == "axis" else None))
        if valid is TRUE:
            return value
        return select(valid, guarded(value, valid), constant(0, value.dtype))

    def _name(self) -> str:
        """A name that says the kind and the extents: rows_4096_1024, contraction_512x512_784."""
        outer = "x".join(str(a.extent) for a in self.outer.values())
        inner: dict[str, None] = {}
        for nest in self.nests:
            if nest.axes or nest.reduce_axes:
                inner["x".join(str(a.extent) for a in (*nest.axes, *nest.reduce_axes))] = None
        kind = self.group.kind
        if kind == "reduce" and len(self.nests) > 1:
            kind = "rows" if self.group.outer else "block"
        return "_".join([kind, *([outer] if outer else []), *list(inner)[:3]])


def fragment_kernel(stage: Stage, reasons: tuple[str, ...]) -> Kernel:
    """The kernel of an op with loops of its own."""
    fragment = stage.fragment
    assert fragment is not None
    shape = "x".join(map(str, fragment.outputs[0].type.shape)) if fragment.outputs else ""
    return intern_kernel(Kernel(f"{stage.label}_{shape}" if shape else stage.label, fragment.outputs, fragment.inputs,
                                fragment.scratch, fragment.outer, (), fragment.body, "loops", reasons=reasons))


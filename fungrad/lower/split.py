"""Long reductions in blocks: one kernel becomes a kernel of partial results, in parallel, and one that combines them.

    total[] add= x[r]     r: 16777216
 -> part[b] add= x[b*16384 + r]     b: 1024, r: 16384          (b in parallel)
    total[] add= part[b]            b: 1024

Block sizes depend on shapes only, never on the number of threads, so that results are the same bits everywhere. Nests
that follow a split reduction in its kernel (a variance after a mean, a division after a sum) become kernels of their
own where they are long, and what they shared through scratch becomes a temporary.

Left as it is: a kernel with enough rows to occupy threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..dtypes import accumulation
from ..ir.expr import Axis, Buffer, Expr, axis, cast, conjunction, index_constant, load, operation, substitute
from ..ir.kernel import Control, Fused, Kernel, Launch, Nest
from ..ir.target import Target
from ..ir.types import array_type
from ..util import toposort
from .affine import Analysis
from .fuse_kernels import canonical_axis, canonical_buffer, intern_kernel
from .plan import Access, Group, replace_axes, touched, write_of

LONG = 1 << 17  # elements of a nest from which threads help
BLOCK = 1 << 14  # elements of a block of a reduction along memory
COLUMN_BLOCK = 1 << 16  # elements of a block of a reduction across rows
LEAST_ROWS = 8  # rows of a block of a reduction across rows
ENOUGH = 32  # points that run in parallel anyhow


def split_reductions(fused: Fused, target: Target) -> Fused:
    """The pass: every launch of a kernel with long reductions becomes several launches."""
    launches: list[Launch | Control] = []
    slots = list(fused.slots)
    for launch in fused.launches:
        if isinstance(launch, Control) or (parts := _split(launch.kernel)) is None:
            launches.append(launch)
            continue
        place = dict(zip(launch.kernel.outputs + launch.kernel.inputs, launch.slots, strict=True))
        for buffer in parts.temporaries:
            place[buffer] = len(slots)
            slots.append(buffer.type)
        launches += [Launch(kernel, tuple([place[buffer] for buffer in buffers])) for kernel, buffers in parts.kernels]
    return (
        fused if len(launches) == len(fused.launches) else replace(fused, launches=tuple(launches), slots=tuple(slots))
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """Kernels with the buffers (of the original kernel, or temporaries) that stand for their arguments."""

    kernels: tuple[tuple[Kernel, tuple[Buffer, ...]], ...]
    temporaries: tuple[Buffer, ...]


@lru_cache(maxsize=2048)
def _split(kernel: Kernel) -> Parts | None:
    if kernel.kind != "nests" or kernel.body is not None or not any(nest.reduce_axes for nest in kernel.nests):
        return None
    rows = _points(kernel.outer)
    if rows >= ENOUGH and len(kernel.nests) > 1:
        return None
    splitter = Splitter(kernel)
    if not any(splitter.block(nest) is not None for nest in splitter.nests):
        return None
    return splitter.run()


def _points(axes: tuple[Axis, ...]) -> int:
    return math.prod([a.extent for a in axes])


@dataclass(slots=True)
class Splitter:
    """Takes one kernel apart. Its outer axes become axes of each nest, its scratch buffers arrays over them."""

    kernel: Kernel
    nests: list[Nest] = field(default_factory=list)
    analysis: Analysis = field(default_factory=Analysis)
    groups: list[list[Nest]] = field(default_factory=list)  # nests of the kernels to come
    parts: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        outer = tuple(a for a in self.kernel.outer)
        shape = tuple(a.extent for a in outer)
        wide = {b: Buffer(b.name, array_type(shape + b.type.shape, b.type.dtype)) for b in self.kernel.scratch}
        index = tuple(axis(a) for a in outer)

        def widened(e: Expr) -> Expr | None:
            if e.op != "load" or e.attribute not in wide:
                return None
            *own, valid = (substitute(operand, widened) for operand in e.operands)
            return load(wide[e.attribute], (*index, *own), valid)

        for nest in self.kernel.nests:
            own = tuple(substitute(i, widened) for i in nest.index)
            if nest.target in wide:
                own = index + own
            self.nests.append(
                Nest(
                    wide.get(nest.target, nest.target),
                    own,
                    outer + nest.axes,
                    substitute(nest.value, widened),
                    nest.combine,
                    nest.reduce_axes,
                    substitute(nest.valid, widened),
                )
            )

    def block(self, nest: Nest) -> tuple[Axis, int] | None:
        """The reduce axis to split and the size of its blocks, or None for a nest that stays whole."""
        if not nest.reduce_axes or _points(nest.axes) * _points(nest.reduce_axes) < LONG:
            return None
        facts = touched(Group(nest.axes + nest.reduce_axes, (write_of(nest),)), self.analysis)
        reads = [access for access in facts.accesses if not access.write]
        first = max(nest.reduce_axes, key=lambda a: (_stride(a, reads), a.extent))
        columns = any(access.form.coefficient(a) == 1 for access in reads for a in nest.axes)
        inside = _points(nest.reduce_axes) // first.extent
        if columns:
            width = max(a.extent for a in nest.axes if any(access.form.coefficient(a) == 1 for access in reads))
            others = _points(nest.axes) // width
            size = COLUMN_BLOCK // max(width * inside, 1)
            if size < LEAST_ROWS:  # then blocks of columns are enough
                return None
        else:
            others = _points(nest.axes)
            size = BLOCK // max(inside, 1)
        size = _divisor_near(first.extent, max(size, 1))
        return (first, size) if others < ENOUGH and size * 2 <= first.extent else None

    def run(self) -> Parts:
        for nest in self.nests:
            chosen = self.block(nest)
            if chosen is not None:
                partial, combination = self.split(nest, *chosen)
                self.groups.append([partial])
                self.groups.append([combination])
            elif _points(nest.axes) * _points(nest.reduce_axes) >= LONG or not self.groups or _long(self.groups[-1][0]):
                self.groups.append([nest])
            else:
                self.groups[-1].append(nest)
        return self.kernels()

    def split(self, nest: Nest, a: Axis, size: int) -> tuple[Nest, Nest]:
        """(the nest of partial results, the nest that combines them)."""
        count = -(-a.extent // size)
        block, inner = canonical_axis("block", count), canonical_axis(f"{a.name}_in", size)
        kept = tuple(b for b in nest.axes if b.extent > 1)
        position = operation("add", operation("mul", axis(block), index_constant(size)), axis(inner))
        part = Buffer(
            f"part{len(self.parts)}", array_type((count, *[b.extent for b in kept]), accumulation(nest.value.dtype))
        )
        self.parts.append(part)
        given = cast(nest.value, accumulation(nest.value.dtype))
        value, valid = replace_axes(given, {a: position}), replace_axes(nest.valid, {a: position})
        if count * size != a.extent:
            valid = conjunction(valid, operation("lt", position, index_constant(a.extent)))
        index = tuple(axis(b) for b in kept)
        reduce_axes = tuple(inner if b is a else b for b in nest.reduce_axes)
        partial = Nest(part, (axis(block), *index), (block, *nest.axes), value, nest.combine, reduce_axes, valid)
        return partial, Nest(
            nest.target, nest.index, nest.axes, load(part, (axis(block), *index)), nest.combine, (block,)
        )

    def kernels(self) -> Parts:
        """Each group of nests as a kernel; buffers that only one group touches become its scratch."""
        given = {*self.kernel.outputs, *self.kernel.inputs}
        touching: dict[Buffer, set[int]] = {}
        for number, group in enumerate(self.groups):
            for nest in group:
                for buffer in _buffers(nest):
                    touching.setdefault(buffer, set()).add(number)
        temporaries = tuple(b for b, numbers in touching.items() if b not in given and len(numbers) > 1)
        shared = given | set(temporaries)
        kernels = []
        for number, group in enumerate(self.groups):
            written = dict.fromkeys(nest.target for nest in group if nest.target in shared)
            read = dict.fromkeys(b for nest in group for b in _reads(nest) if b in shared and b not in written)
            kernels.append((self._kernel(number, group, tuple(written), tuple(read)), (*written, *read)))
        return Parts(tuple(kernels), temporaries)

    def _kernel(
        self, number: int, group: list[Nest], outputs: tuple[Buffer, ...], inputs: tuple[Buffer, ...]
    ) -> Kernel:
        """A kernel over canonical buffers, so that equal ones are one."""
        names: dict[Buffer, Buffer] = {}
        for kind, buffers in (("out", outputs), ("in", inputs)):
            for position, buffer in enumerate(buffers):
                names[buffer] = canonical_buffer(f"{kind}{position}", buffer.type, "global")
        local = [b for b in dict.fromkeys(b for nest in group for b in _buffers(nest)) if b not in names]
        scratch = [canonical_buffer(f"s{position}", b.type, "scratch") for position, b in enumerate(local)]
        names |= dict(zip(local, scratch, strict=True))

        def renamed(e: Expr) -> Expr | None:
            if e.op != "load":
                return None
            *index, valid = (substitute(operand, renamed) for operand in e.operands)
            return load(names[e.attribute], tuple(index), valid)

        nests = tuple(
            Nest(
                names[n.target],
                tuple(substitute(i, renamed) for i in n.index),
                n.axes,
                substitute(n.value, renamed),
                n.combine,
                n.reduce_axes,
                substitute(n.valid, renamed),
            )
            for n in group
        )
        return intern_kernel(
            Kernel(
                f"{self.kernel.name}_part{number}",
                tuple(names[b] for b in outputs),
                tuple(names[b] for b in inputs),
                tuple(scratch),
                (),
                nests,
                reasons=(*self.kernel.reasons, "a long reduction in blocks"),
            )
        )


def _long(nest: Nest) -> bool:
    return _points(nest.axes) * _points(nest.reduce_axes) >= LONG


def _stride(a: Axis, reads: list[Access]) -> int:
    return max([abs(access.form.coefficient(a)) for access in reads], default=0)


def _divisor_near(extent: int, size: int) -> int:
    """A block size near `size`: a divisor of the extent if there is one between half and twice the size."""
    if size >= extent:
        return extent
    for distance in range(size):
        for candidate in (size - distance, size + distance):
            if 2 * candidate >= size and candidate <= 2 * size and extent % candidate == 0:
                return candidate
        if distance > 4096:
            break
    return size


def _reads(nest: Nest) -> list[Buffer]:
    return [
        e.attribute for e in toposort([nest.value, nest.valid, *nest.index], lambda e: e.operands) if e.op == "load"
    ]


def _buffers(nest: Nest) -> list[Buffer]:
    return [nest.target, *_reads(nest)]

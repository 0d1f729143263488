"""Plans: a fused kernel on its way to a loop tree, changed by Opts one at a time.

    plan  ::= outer axes, groups             groups run one after another for every point of the outer axes
    group ::= axes, writes, decisions        one loop nest that makes all its writes at every point of its axes
    write ::= target[index] <combine>= value, over the group's axes; `reduced` are those that the target's index lacks

An Opt (`ir/kernel.py`) is a name and arguments. A group is given by its number, an axis by its name:

    merge(g)                    groups g and g+1 become one loop nest
    inline(g)                   the values that group g writes to scratch are computed where they are read
    absorb()                    the loops of the only group and the outer ones are scheduled together
    reorder(g, names...)        the order of the loops, outermost first
    split(g, a, size)           axis a becomes two: blocks of `size`, which divides its extent, and places inside them
    fuse(g, a, b)               adjacent axes a, b become one axis (g = -1: outer axes)
    vectorize(g, a, lanes)      axis a becomes the innermost loop, in vectors (g = -1: outer points side by side)
    unroll(g, count)            count vectors an iteration (of a reduction: count accumulators)
    tile(g, a, rows)            loop over `rows` values of axis a inside the vector loop's block (transposes)
    parallel(g, block)          the group's outermost axis runs in parallel, in blocks (g = -1: the outer axes)
    stream(g, rows)             a column reduction reads `rows` rows at a time and keeps its results in memory

A step that does not apply raises ScheduleError, so a search may try any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from inspect import signature

import numpy as np

from ..errors import CompilationError
from ..ir.expr import TRUE, Axis, Buffer, Expr, axis, index_constant, operation, substitute
from ..ir.kernel import Kernel, Nest, Opt
from ..util import toposort
from .affine import Analysis, Form, offset_form
from .decompose.dtypes import from_float32
from .decompose.formula import Formula


class ScheduleError(CompilationError):
    """An Opt that does not apply to a kernel."""


@dataclass(frozen=True, slots=True)
class Write:
    """One result of a group. `reduced`: the axes over which values are combined (none: a plain store)."""

    target: Buffer
    index: tuple[Expr, ...]
    value: Expr
    combine: str | None
    reduced: frozenset[Axis]
    valid: Expr


@dataclass(frozen=True, slots=True)
class Group:
    """A loop nest and the decisions about it. `vector` is the vectorised axis; 0 in a number means "not decided"."""

    axes: tuple[Axis, ...]
    writes: tuple[Write, ...]
    vector: Axis | None = None
    lanes: int = 1
    unroll: int = 1
    tile: Axis | None = None
    rows: int = 0
    block: int = 0

    @property
    def reduced(self) -> frozenset[Axis]:
        return self.writes[0].reduced.union(*[write.reduced for write in self.writes])

    @property
    def kept(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a not in self.reduced)

    def find(self, name: str) -> Axis:
        for a in self.axes:
            if a.name == name:
                return a
        raise ScheduleError(f"there is no axis {name!r} among {self.axes}")


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module's text. `parallel`: the outer axes run in parallel. `vector`: the outer axis that is lanes."""

    outer: tuple[Axis, ...]
    groups: tuple[Group, ...]
    parallel: bool = False
    vector: Axis | None = None
    lanes: int = 1

    def with_group(self, number: int, *groups: Group) -> Plan:
        return replace(self, groups=self.groups[:number] + groups + self.groups[number + 1 :])


# -- what a group touches --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write: the affine form of its offset, and whether it is a write."""

    buffer: Buffer
    form: Form
    write: bool


@dataclass(frozen=True, slots=True)
class Touched:
    """The accesses of a group, the axes it uses for more than affine offsets, and its number of operations a point."""

    accesses: tuple[Access, ...]
    bare: frozenset[Axis]
    operations: int


def touched(group: Group, analysis: Analysis) -> Touched:
    """Analyse a group's expressions."""
    accesses: dict[tuple[Buffer, Form, bool], Access] = {}
    bare: set[Axis] = set()

    def access(buffer: Buffer, index: tuple[Expr, ...], write: bool) -> list[Expr]:
        form = offset_form(analysis, index, buffer.type.shape)
        accesses.setdefault((buffer, form, write), Access(buffer, form, write))
        return [atom for atom, _ in form.terms if atom.op != "axis"]

    def inside(e: Expr) -> Iterable[Expr]:
        if e.op == "load":
            return [*access(e.attribute, e.operands[:-1], False), e.operands[-1]]
        return e.operands

    roots: list[Expr] = []
    for write in group.writes:
        roots += [write.value, write.valid, *access(write.target, write.index, True)]
    operations = 0
    for e in toposort(roots, inside):
        if e.op == "axis":
            bare.add(e.attribute)
        elif e.op not in ("constant", "load"):
            operations += 1
    return Touched(tuple(accesses.values()), frozenset(bare), operations)


def contiguous(first: Axis, second: Axis, facts: Touched) -> bool:
    """Whether two adjacent axes can be one loop: everything advances over them as over one longer axis."""
    if first in facts.bare or second in facts.bare:
        return False
    return all(
        access.form.coefficient(first) == access.form.coefficient(second) * second.extent for access in facts.accesses
    )


# -- building a plan -------------------------------------------------------------------------------------------------


def replace_axes(e: Expr, by: dict[Axis, Expr]) -> Expr:
    """`e` with expressions in place of axes."""
    if not by:
        return e
    return substitute(e, lambda x: by.get(x.attribute) if x.op == "axis" else x if x.op == "constant" else None)


def write_of(nest: Nest) -> Write:
    """What a nest writes."""
    reduced = frozenset(nest.reduce_axes)
    if nest.combine is None and reduced:
        raise CompilationError(f"the nest that writes {nest.target} has reduce axes but no combination")
    return Write(nest.target, nest.index, nest.value, nest.combine, reduced, nest.valid)


def _renamed(a: Axis, taken: set[str]) -> Axis:
    """`a`, or an axis like it whose name is not taken yet."""
    if a.name not in taken:
        taken.add(a.name)
        return a
    number = 1
    while f"{a.name}_{number}" in taken:
        number += 1
    taken.add(f"{a.name}_{number}")
    return Axis(f"{a.name}_{number}", a.extent)


def rewrite(write: Write, by: dict[Axis, Expr]) -> Write:
    """A write with expressions in place of axes; a replaced reduced axis is given up by the caller."""
    return replace(
        write,
        index=tuple(replace_axes(i, by) for i in write.index),
        value=replace_axes(write.value, by),
        valid=replace_axes(write.valid, by),
    )


def make_plan(kernel: Kernel) -> Plan:
    """The plan of a fused kernel before any decision: a group for each nest. Axis names become unique."""
    taken: set[str] = set()
    by: dict[Axis, Expr] = {}
    outer = _axes(kernel.outer, taken, by)
    groups = []
    for nest in kernel.nests:
        local = dict(by)
        kept = _axes(nest.axes, taken, local)
        reduced = _axes(nest.reduce_axes, taken, local)
        write = rewrite(write_of(nest), local)
        write = replace(write, reduced=frozenset(reduced))
        if not reduced:  # over one value, a reduction is that value
            write = replace(write, combine=None, value=narrowed(write.value, write.target.type.dtype))
        groups.append(Group(kept + reduced, (write,)))
    if all(not group.axes for group in groups) and groups:  # plain stores at every point of the outer axes
        return Plan(outer, (Group((), tuple(write for group in groups for write in group.writes)),))
    return Plan(outer, tuple(groups))


def narrowed(value: Expr, dtype: np.dtype) -> Expr:
    """A value as it is stored: what is accumulated in float32 for a 16-bit float is rounded."""
    return value if value.dtype == dtype else from_float32(Formula(value), dtype).expr


def _axes(axes: tuple[Axis, ...], taken: set[str], by: dict[Axis, Expr]) -> tuple[Axis, ...]:
    """Axes under unique names; axes of one element go away."""
    result = []
    for a in axes:
        if a.extent == 1:
            by[a] = index_constant(0)
            continue
        made = _renamed(a, taken)
        if made is not a:
            by[a] = axis(made)
        result.append(made)
    return tuple(result)


# -- the Opts --------------------------------------------------------------------------------------------------------


def apply(plan: Plan, opt: Opt) -> Plan:
    """One step. Raises ScheduleError where it does not apply."""
    if opt.name not in OPTS:
        raise ScheduleError(f"there is no step {opt.name!r}; there are {', '.join(OPTS)}")
    number = opt.arguments[0] if opt.arguments else 0
    if not (0 <= number < len(plan.groups) or (number == -1 and opt.name in ("fuse", "parallel", "vectorize"))):
        raise ScheduleError(f"{opt}: the kernel has {len(plan.groups)} groups")
    try:
        _SIGNATURES[opt.name].bind(plan, *opt.arguments)
    except TypeError as error:
        raise ScheduleError(f"{opt}: {error}") from None
    return OPTS[opt.name](plan, *opt.arguments)


def _fuse(plan: Plan, number: int, first: str, second: str) -> Plan:
    axes = plan.outer if number == -1 else plan.groups[number].axes
    places = [place for place, a in enumerate(axes[:-1]) if a.name == first and axes[place + 1].name == second]
    if not places:
        raise ScheduleError(f"{first} and {second} are not adjacent among {axes}")
    place = places[0]
    a, b = axes[place : place + 2]
    made = Axis(a.name + b.name, a.extent * b.extent)
    by = {
        a: operation("div", axis(made), index_constant(b.extent)),
        b: operation("rem", axis(made), index_constant(b.extent)),
    }
    merged = (*axes[:place], made, *axes[place + 2:])
    if number == -1:
        if plan.vector in (a, b):
            raise ScheduleError(f"{a} and {b} cannot be one loop")
        groups = tuple(replace(g, writes=tuple(rewrite(w, by) for w in g.writes)) for g in plan.groups)
        return replace(plan, outer=merged, groups=groups)
    group = plan.groups[number]
    if (a in group.reduced) != (b in group.reduced) or group.vector in (a, b):
        raise ScheduleError(f"{a} and {b} cannot be one loop")
    writes = tuple(
        replace(rewrite(w, by), reduced=frozenset(made if r is a else r for r in w.reduced if r is not b))
        for w in group.writes
    )
    return plan.with_group(number, replace(group, axes=merged, writes=writes))


def _split(plan: Plan, number: int, name: str, size: int) -> Plan:
    group = plan.groups[number]
    a = group.find(name)
    if not 1 < size < a.extent or a.extent % size or a is group.tile:
        raise ScheduleError(f"{a} is not split into blocks of {size}")
    block, inner = Axis(a.name + "_block", a.extent // size), Axis(a.name + "_in", size)
    by = {a: operation("add", operation("mul", axis(block), index_constant(size)), axis(inner))}
    place = group.axes.index(a)
    axes = (*group.axes[:place], block, inner, *group.axes[place + 1:])
    writes = tuple(
        replace(
            rewrite(w, by), reduced=frozenset(made for r in w.reduced for made in ((block, inner) if r is a else (r,)))
        )
        for w in group.writes
    )
    vector = inner if group.vector is a else group.vector
    return plan.with_group(number, replace(group, axes=axes, writes=writes, vector=vector))


def _reorder(plan: Plan, number: int, *names: str) -> Plan:
    group = plan.groups[number]
    axes = tuple(group.find(name) for name in names)
    if set(axes) != set(group.axes) or len(axes) != len(group.axes):
        raise ScheduleError(f"{names} is not an order of {group.axes}")
    return plan.with_group(number, replace(group, axes=axes))


def _absorb(plan: Plan) -> Plan:
    if len(plan.groups) != 1:
        raise ScheduleError("there are several groups")
    group = plan.groups[0]
    if plan.outer and any(write.target.scope != "global" for write in group.writes):
        raise ScheduleError("scratch values are private to a point of the outer axes")
    return replace(plan, outer=(), groups=(replace(group, axes=plan.outer + group.axes),))


def _vectorize(plan: Plan, number: int, name: str, lanes: int) -> Plan:
    if lanes < 2 or lanes & (lanes - 1):
        raise ScheduleError(f"{lanes} lanes")
    if number == -1:
        found = [a for a in plan.outer if a.name == name]
        if not found or any(group.vector is not None for group in plan.groups):
            raise ScheduleError(f"{name} is not an outer axis, or the groups are vectorised")
        return replace(plan, vector=found[0], lanes=lanes)
    if plan.vector is not None:
        raise ScheduleError(f"the outer axis {plan.vector} is vectorised")
    group = plan.groups[number]
    vector = group.find(name)
    order = (*tuple(a for a in group.axes if a is not vector), vector)
    return plan.with_group(number, replace(group, axes=order, vector=vector, lanes=lanes))


def _unroll(plan: Plan, number: int, count: int) -> Plan:
    group = plan.groups[number]
    if count < 1 or group.vector is None:
        raise ScheduleError("only vectorised groups are unrolled")
    return plan.with_group(number, replace(group, unroll=count))


def _tile(plan: Plan, number: int, name: str, rows: int) -> Plan:
    group = plan.groups[number]
    tile = group.find(name)
    if group.vector is None or tile is group.vector or group.reduced or rows < 2:
        raise ScheduleError(f"{tile} cannot be tiled")
    return plan.with_group(number, replace(group, tile=tile, rows=rows))


def _stream(plan: Plan, number: int, rows: int) -> Plan:
    group = plan.groups[number]
    if len(group.reduced) != 1 or group.vector is None or group.vector in group.reduced or rows < 1:
        raise ScheduleError("only a column reduction over one axis is streamed")
    if any(write.valid is not TRUE or not write.reduced for write in group.writes):
        raise ScheduleError("a streamed reduction writes everywhere")
    if any(write.value.dtype != write.target.type.dtype for write in group.writes):
        raise ScheduleError("a streamed reduction accumulates in its result")
    return plan.with_group(number, replace(group, rows=rows))


def _parallel(plan: Plan, number: int, block: int = 1) -> Plan:
    if number == -1:
        if not plan.outer:
            raise ScheduleError("there are no outer axes")
        return replace(plan, parallel=True)
    group = plan.groups[number]
    if plan.outer or len(plan.groups) > 1 or not group.kept or block < 1:
        raise ScheduleError("only a kernel's only group is run in parallel")
    return plan.with_group(number, replace(group, block=block))


def _inline(plan: Plan, number: int) -> Plan:
    """Values written to scratch once are computed where they are read, if all reads are in later groups."""
    group = plan.groups[number]
    if len(group.writes) != 1 or number == len(plan.groups) - 1:
        raise ScheduleError("only a group with one write is inlined")
    write = group.writes[0]
    if write.target.scope == "global" or write.combine is not None or write.valid is not TRUE:
        raise ScheduleError(f"{write.target} is not a plain scratch value")
    if any(w.target is write.target for g in plan.groups for w in g.writes if w is not write):
        raise ScheduleError(f"{write.target} is written twice")
    positions = _plain_index(write, group)

    def inlined(e: Expr) -> Expr | None:
        if e.op != "load" or e.attribute is not write.target:
            return None
        if e.operands[-1] is not TRUE:
            raise ScheduleError(f"{write.target} is read under a condition")
        return replace_axes(write.value, {a: e.operands[place] for place, a in positions})

    later = tuple(
        replace(
            g,
            writes=tuple(
                replace(
                    w,
                    value=substitute(w.value, inlined),
                    valid=substitute(w.valid, inlined),
                    index=tuple(substitute(i, inlined) for i in w.index),
                )
                for w in g.writes
            ),
        )
        for g in plan.groups[number + 1 :]
    )
    return replace(plan, groups=plan.groups[:number] + later)


def _plain_index(write: Write, group: Group) -> list[tuple[int, Axis]]:
    """(dimension, axis) where every axis of the group is one dimension of the write's index."""
    positions = [
        (place, e.attribute) for place, e in enumerate(write.index) if e.op == "axis" and e.attribute in group.axes
    ]
    if {a for _, a in positions} != set(group.axes) or len(positions) != len(group.axes):
        raise ScheduleError(f"{write.target} is not written at plain indices")
    if any(e.op != "constant" and (place, e.attribute) not in positions for place, e in enumerate(write.index)):
        raise ScheduleError(f"{write.target} is not written at plain indices")
    return positions


def _merge(plan: Plan, number: int) -> Plan:
    """Two groups with equal loops become one, where no point of the second needs another point of the first."""
    if number + 1 >= len(plan.groups):
        raise ScheduleError("there is no next group")
    first, second = plan.groups[number : number + 2]
    by = _match(first, second)
    renamed = {b: axis(a) for b, a in by.items()}
    writes = tuple(replace(rewrite(w, renamed), reduced=frozenset(by[r] for r in w.reduced)) for w in second.writes)
    reductions = {w.reduced for w in first.writes + writes if w.reduced}
    if len(reductions) > 1:
        raise ScheduleError("reductions over different axes")
    if reductions and any(not w.reduced for w in first.writes + writes) and next(iter(reductions)) != set(first.axes):
        raise ScheduleError("a partial reduction and a plain store")
    _check_dependences(first, writes)
    group = replace(first, writes=first.writes + writes)
    return replace(plan, groups=(*plan.groups[:number], group, *plan.groups[number + 2:]))


def _match(first: Group, second: Group) -> dict[Axis, Axis]:
    """Axes of the second group -> axes of the first, of equal extents in order; reduced axes may stand anywhere."""
    if first.vector or second.vector:
        raise ScheduleError("groups are merged before they are vectorised")
    if [a.extent for a in first.axes] != [a.extent for a in second.axes]:
        raise ScheduleError("groups of different extents")
    return dict(zip(second.axes, first.axes, strict=True))


def _check_dependences(first: Group, writes: tuple[Write, ...]) -> None:
    written = {w.target: w for w in first.writes}
    for write in writes:
        if write.target in written:
            raise ScheduleError(f"both groups write {write.target}")
        for e in toposort([write.value, write.valid, *write.index], lambda e: e.operands):
            if e.op != "load":
                continue
            source = written.get(e.attribute)
            if source is not None and (source.reduced or e.operands[:-1] != source.index):
                raise ScheduleError(f"{e.attribute} is read at another point than it is written")
    read = {
        e.attribute
        for w in first.writes
        for e in toposort([w.value, w.valid, *w.index], lambda e: e.operands)
        if e.op == "load"
    }
    if any(write.target in read for write in writes):
        raise ScheduleError("the second group overwrites what the first reads")


OPTS = {
    "merge": _merge,
    "inline": _inline,
    "absorb": _absorb,
    "split": _split,
    "reorder": _reorder,
    "fuse": _fuse,
    "vectorize": _vectorize,
    "unroll": _unroll,
    "tile": _tile,
    "stream": _stream,
    "parallel": _parallel,
}
_SIGNATURES = {name: signature(step) for name, step in OPTS.items()}

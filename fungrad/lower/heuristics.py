"""Good schedules in microseconds: the Opts with which a kernel starts (and from which BEAM searches).

The rules, in order: nests over the same range become one loop; short rows, and rows that run across memory, are taken
side by side; loops follow the memory order of the stores; adjacent axes over which everything advances evenly become
one; the axis along which most reads and writes are consecutive is vectorised; the rest runs in parallel where it is
worth it.
"""

from __future__ import annotations

from ..ir.expr import Axis
from ..ir.kernel import Kernel, Opt
from ..ir.target import Target
from .affine import Analysis
from .instructions import STEPS
from .plan import Group, ScheduleError, Touched, apply, contiguous, make_plan, touched

PARALLEL_WORK = 1 << 16  # element-operations below which threads cost more than they bring
BLOCK = 1 << 14  # elements of a parallel block of a flat loop
INLINE_LIMIT = 12  # operations of a scratch value that may be computed again in a second place
ACCUMULATORS = 4
FEW_ROWS = 32  # outer points below which the vector axis is cut into parallel blocks, too


def heuristics(kernel: Kernel, target: Target) -> tuple[Opt, ...]:
    """The Opts of a kernel of kind "nests"."""
    return Chooser(kernel, target).choose()


class Chooser:
    """Applies Opts to a plan as it chooses them."""

    def __init__(self, kernel: Kernel, target: Target):
        self.kernel = kernel
        self.target = target
        self.plan = make_plan(kernel)
        self.analysis = Analysis()
        self.opts: list[Opt] = []
        self.known: dict[int, tuple[Group, Touched]] = {}

    def step(self, name: str, *arguments: object) -> bool:
        """Apply a step if it applies."""
        opt = Opt(name, arguments)
        try:
            self.plan = apply(self.plan, opt)
        except ScheduleError:
            return False
        self.opts.append(opt)
        return True

    def facts(self, group: Group) -> Touched:
        known = self.known.get(id(group))
        if known is None:
            known = self.known[id(group)] = (group, touched(group, self.analysis))  # keeps the group: ids stay unique
        return known[1]

    def choose(self) -> tuple[Opt, ...]:
        self.merge_groups()
        self.step("absorb")
        self.fuse_contiguous_outer()
        if self.vectorize_outer():
            return tuple(self.opts)
        self.fuse_outer()
        for number in range(len(self.plan.groups)):
            self.order(number)
            self.fuse_axes(number)
            self.vectorize(number)
        self.parallel()
        return tuple(self.opts)

    def merge_groups(self) -> None:
        number = 0
        while number < len(self.plan.groups) - 1:
            if not self.step("merge", number):
                number += 1

    def fuse_contiguous_outer(self) -> None:
        """Adjacent outer axes over which everything advances evenly become one."""
        place = 0
        while place < len(self.plan.outer) - 1:
            a, b = self.plan.outer[place:place + 2]
            even = all(contiguous(a, b, self.facts(group)) for group in self.plan.groups)
            if even and self.step("fuse", -1, a.name, b.name):
                place = max(place - 1, 0)
            else:
                place += 1

    def vectorize_outer(self) -> bool:
        """Points of the last outer axis side by side, where rows are short or memory runs along that axis."""
        plan = self.plan
        if not plan.outer or len(plan.groups) < 2:
            return False
        last = max(plan.outer, key=lambda a: sum(self.runs(group, a) for group in plan.groups))
        inner = sum(max((self.runs(group, a) for a in group.axes), default=0.0) for group in plan.groups)
        longest = max((_points(group.axes) for group in plan.groups), default=1)
        lanes = min(self.lanes(group, last) for group in plan.groups)
        short = longest <= lanes // 4
        along = sum(self.runs(group, last) for group in plan.groups) > inner
        if lanes < 4 or last.extent < lanes or not (short or along) or longest * lanes * 8 > self.target.caches[1]:
            return False
        self.step("vectorize", -1, last.name, lanes)
        if self.work() >= PARALLEL_WORK:
            self.step("parallel", -1)
        return True

    def runs(self, group: Group, a: Axis) -> float:
        """How many accesses of a group to global memory are consecutive along an axis."""
        return sum(
            1.0
            for access in self.facts(group).accesses
            if access.buffer.scope == "global" and access.form.coefficient(a) == 1
        )

    def fuse_outer(self) -> None:
        """All outer axes become one."""
        while len(self.plan.outer) > 1:
            a, b = self.plan.outer[-2:]
            if not self.step("fuse", -1, a.name, b.name):
                return

    def order(self, number: int) -> None:
        """Kept axes by falling stride of the stores, then reduced axes by falling stride of the reads."""
        group = self.plan.groups[number]
        facts = self.facts(group)

        def stride(a: Axis) -> int:
            writes = [abs(access.form.coefficient(a)) for access in facts.accesses if access.write]
            reads = [abs(access.form.coefficient(a)) for access in facts.accesses if not access.write]
            return max(reads, default=0) if a in group.reduced else max(writes, default=0)

        kept = sorted(group.kept, key=stride, reverse=True)
        reduced = sorted((a for a in group.axes if a in group.reduced), key=stride, reverse=True)
        order = (*kept, *reduced)
        if order != group.axes:
            self.step("reorder", number, *[a.name for a in order])

    def fuse_axes(self, number: int) -> None:
        place = 0
        while place < len(self.plan.groups[number].axes) - 1:
            group = self.plan.groups[number]
            a, b = group.axes[place : place + 2]
            same = (a in group.reduced) == (b in group.reduced)
            if same and contiguous(a, b, self.facts(group)) and self.step("fuse", number, a.name, b.name):
                place = max(place - 1, 0)
            else:
                place += 1

    def vectorize(self, number: int) -> None:
        group = self.plan.groups[number]
        if not group.axes:
            return
        facts = self.facts(group)
        vector = max(reversed(group.axes), key=lambda a: self.score(group, a, facts))
        lanes = self.lanes(group, vector)
        if lanes < 2:
            return
        self.step("vectorize", number, vector.name, lanes)
        if group.reduced and vector not in group.kept:
            self.step("unroll", number, ACCUMULATORS if facts.operations < 8 else 2 if facts.operations < 24 else 1)
        elif group.reduced:
            self.columns(number, facts)
        else:
            self.transpose(number, facts)

    def score(self, group: Group, a: Axis, facts: Touched) -> float:
        """How well an axis serves as lanes."""
        total = 0.0
        for access in facts.accesses:
            coefficient = access.form.coefficient(a)
            weight = 1.5 if access.write and not group.reduced else 1.0
            if coefficient == 1:
                total += weight
            elif coefficient == 0:
                total += 0.25
            elif access.write or coefficient not in STEPS:   # a gather or scatter costs
                total -= weight
        widest = self.lanes(group, None)
        return total * min(a.extent, widest) / widest if total > 0 else total

    def lanes(self, group: Group, vector: Axis | None) -> int:
        """As many lanes as fill a register with the widest values that are stored."""
        width = max(max(write.target.type.dtype.itemsize, write.value.dtype.itemsize) for write in group.writes)
        lanes = max(self.target.vector_bytes // max(width, 4), 1)
        if vector is None:
            return lanes
        while lanes > 1 and lanes // 2 >= vector.extent:
            lanes //= 2
        if lanes > vector.extent and any(access.form.coefficient(vector) in STEPS and not access.write
                                         for access in self.facts(group).accesses):
            lanes //= 2          # small strides are shuffles in whole vectors only
        return lanes

    def columns(self, number: int, facts: Touched) -> None:
        plan = self.plan
        group = plan.groups[number]
        vector = group.vector
        assert vector is not None
        alone = not plan.outer and len(plan.groups) == 1 and len(group.kept) == 1  # then blocks of it run in parallel
        divisible = vector.extent % group.lanes == 0 or _points(group.axes) < PARALLEL_WORK
        if (
            len(group.reduced) == 1
            and vector.extent > 8 * group.lanes
            and (divisible or not alone)
            and self.step("stream", number, 8)
        ):
            return
        self.step("unroll", number, min(ACCUMULATORS, max(vector.extent // group.lanes, 1)))

    def transpose(self, number: int, facts: Touched) -> None:
        """Reads that are consecutive along another axis than the lanes: tiles."""
        group = self.plan.groups[number]
        vector = group.vector
        assert vector is not None
        for a in reversed(group.axes):
            if (
                a is not vector
                and a.extent >= group.lanes
                and any(
                    access.form.coefficient(a) == 1 and abs(access.form.coefficient(vector)) > 1
                    for access in facts.accesses
                    if not access.write
                )
            ):
                self.step("tile", number, a.name, group.lanes)
                return

    def parallel(self) -> None:
        plan = self.plan
        if plan.outer:
            if self.work() >= PARALLEL_WORK:
                self.step("parallel", -1)
            return
        if len(plan.groups) != 1 or self.work() < PARALLEL_WORK or not plan.groups[0].kept:
            return
        group = plan.groups[0]
        if group.tile is not None and not self.outside():
            self.step("parallel", 0, 1)
            return
        self.spread(group)
        while len(outside := self.outside()) > 1 and self.step("fuse", 0, outside[0].name, outside[1].name):
            pass
        group = self.plan.groups[0]
        if outside:
            inside = self.work() // outside[0].extent
            self.step("parallel", 0, max(min(BLOCK // max(inside, 1), outside[0].extent // 16), 1))
        elif not group.rows:
            self.step("parallel", 0, self.block(group))

    def outside(self) -> list[Axis]:
        """The kept axes of the only group around its vectors and tiles."""
        group = self.plan.groups[0]
        return [a for a in group.kept if a is not group.vector and a is not group.tile]

    def spread(self, group: Group) -> None:
        """Few rows, or columns in the order of memory: blocks of the vector axis run in parallel too."""
        vector, outside = group.vector, self.outside()
        if vector is None or vector in group.reduced or group.tile is not None:
            return
        if _points(tuple(outside)) >= FEW_ROWS or not (outside or group.rows):
            return
        chunk = group.lanes * group.unroll
        most = max(min(BLOCK, vector.extent * _points(tuple(outside)) // 16), 8 * chunk)
        sizes = [size for size in range(chunk, min(most, vector.extent // 2) + 1, chunk) if vector.extent % size == 0]
        if sizes:
            self.step("split", 0, vector.name, sizes[-1])

    def block(self, group: Group) -> int:
        """Elements of the vector axis in one parallel block."""
        assert group.vector is not None
        chunk = group.lanes * group.unroll
        inside = max(self.work() // group.vector.extent, 1) if group.reduced else 1
        size = max(min(BLOCK // inside, group.vector.extent // 16), chunk)
        return size // chunk * chunk

    def work(self) -> int:
        """Element-operations of the whole kernel."""
        return _points(self.plan.outer) * sum(
            _points(group.axes) * max(self.facts(group).operations, 1) for group in self.plan.groups
        )


def _points(axes: tuple[Axis, ...]) -> int:
    total = 1
    for a in axes:
        total *= a.extent
    return total

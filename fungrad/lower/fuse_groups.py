"""Second step of fusion: which stages share a kernel, and which of their axes are the kernel's outer axes.

A group's stages run one after another for every point of its outer axes, so a stage may read another one of its group
only at the same outer point. Two groups are merged by matching their outer axes through what one reads of the other
(or through what both read): an outer axis survives where every such read uses it unchanged. So

    max[i], exp[i,j], sum[i], div[i,j]   share outer axis i: softmax is one kernel
    m[i,j], v[i,j], p[i,j]               share i and j: an Adam update is one kernel
    contraction[i,j], relu[i,j]          share i and j: the second is the epilogue of the first

Stages are added in program order, each joining the groups from which it saves most bytes; everything is deterministic.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..ir.expr import Axis, Buffer, Expr
from .fuse_blocks import BlockOf, Bound, match_rows, partial_type, rows_in_block, split_rows
from .fuse_stages import Stage
from .index import Simplifier

SMALL = 32768          # points of work below which a kernel need not be parallel
MIN_PARALLEL = 32      # points that the outer axes must have in a kernel of more work
MIN_RUN = 64           # neighbouring elements that an inner nest must touch in a kernel of more work
MAX_BUFFERS = 32
MAX_CODE = 3000        # cost of all expressions of a kernel
MIN_SHARED = 4096      # bytes that unrelated stages must both read to be put in one kernel
MAX_CANDIDATES = 6     # groups tried because they read the same buffer

Binding = tuple[Bound, ...]


@dataclass(slots=True, eq=False)
class Group:
    """Stages of one kernel.

    bind[stage][d]: the outer axis that dimension d of the stage is, or the block of one; None: an inner axis.
    block: the rows in a block of the last outer axis (see `fuse_blocks`), 0 where it is not cut into blocks.
    """
    number: int
    stages: list[Stage]
    outer: list[Axis]
    bind: dict[Stage, Binding]
    kind: str
    block: int = 0
    reasons: list[str] = field(default_factory=list)
    before: set[Group] = field(default_factory=set)   # groups that this one reads
    after: set[Group] = field(default_factory=set)    # groups that read this one

    @property
    def points(self) -> int:
        return sum(stage.points for stage in self.stages)

    def reads(self) -> dict[Buffer, tuple[Stage, Expr]]:
        """One read of every buffer that the group reads."""
        return {e.attribute: (stage, e) for stage in self.stages for e in stage.reads}


class Grouper:
    """Puts stages into groups, one after another."""

    __slots__ = ("groups", "group_of", "stage_of", "parts", "readers", "simplify", "_count")

    def __init__(self, simplify: Simplifier) -> None:
        self.simplify = simplify
        self.groups: dict[Group, None] = {}
        self.group_of: dict[Buffer, Group] = {}
        self.stage_of: dict[Buffer, Stage] = {}
        self.parts: dict[Buffer, list[Buffer]] = {}        # an array made in pieces -> the pieces
        self.readers: dict[Buffer, list[Stage]] = {}
        self._count = 0

    def add(self, stage: Stage) -> None:
        """Make a group of the stage and merge it with those from which it saves memory traffic."""
        alone = group = self._group(stage)
        candidates = self._candidates(stage, group)
        for buffer in stage.read_buffers():
            self.readers.setdefault(buffer, []).append(stage)
        for _, candidate, why in candidates:
            if candidate in self.groups and candidate is not group and group.kind not in ("contraction", "loops"):
                group = self._try(candidate, group, why)
        if group is alone and stage.kind == "reduce" and stage.points > SMALL:
            for _, candidate, why in candidates:
                if candidate.kind in ("map", "reduce") and candidate in self.groups \
                        and self._join_in_blocks(candidate, group, stage, why):
                    break

    def _group(self, stage: Stage) -> Group:
        """A group of one stage."""
        axes = tuple([a if a.extent != 1 else None for a in stage.axes])
        group = Group(self._count, [stage], [a for a in axes if a is not None], {stage: axes}, stage.kind)
        self._count += 1
        self.groups[group] = None
        for target in (stage.results or (stage.buffer,)):
            self.group_of[target] = group
            self.stage_of[target] = stage
        if stage.whole is not None:
            self.parts.setdefault(stage.whole, []).append(stage.buffer)
        self._connect(group, stage)
        return group

    def producers(self, buffer: Buffer) -> list[Group]:
        """The groups that compute a buffer."""
        return [self.group_of[part] for part in self.parts.get(buffer, (buffer,)) if part in self.group_of]

    def _connect(self, group: Group, stage: Stage) -> None:
        for buffer in stage.read_buffers():
            for producer in self.producers(buffer):
                if producer is not group:
                    group.before.add(producer)
                    producer.after.add(group)

    def _candidates(self, stage: Stage, group: Group) -> list[tuple[int, Group, str]]:
        """Groups that share data with a stage, the most bytes first."""
        saved: dict[Group, int] = {}
        why: dict[Group, str] = {}
        for buffer in stage.read_buffers():
            producer = self.group_of.get(buffer)
            if producer is not None:
                saved[producer] = saved.get(producer, 0) + 2 * buffer.type.nbytes
                why[producer] = f"{stage.label} reads {self.stage_of[buffer].label}"
            if buffer.type.nbytes < MIN_SHARED:
                continue
            sharing = dict.fromkeys(self.group_of[reader.buffer] for reader in
                                    self.readers.get(buffer, ())[-MAX_CANDIDATES:])
            for other in sharing:
                saved[other] = saved.get(other, 0) + buffer.type.nbytes
                why.setdefault(other, f"{stage.label} reads what {other.stages[0].label} reads")
        saved.pop(group, None)
        order = sorted(saved, key=lambda other: (-saved[other], -other.number))
        return [(saved[other], other, why[other]) for other in order]

    def _join_in_blocks(self, rows_group: Group, group: Group, stage: Stage, why: str) -> bool:
        """Compute a reduction over the rows of another group in it, block by block (see `fuse_blocks`)."""
        rows = match_rows(rows_group.stages, rows_group.bind, rows_group.outer, stage)
        if rows is None or self._cycle(rows_group, group) or self._reads_pieces(rows_group, group):
            return False
        kept = [a for a, _ in rows.pairs]
        block = rows_in_block(rows, rows_group.stages, stage)
        if block is None or (rows_group.block and (rows_group.outer[-1] is not kept[-1] or len(kept) < len(
                rows_group.outer))) or any(_short_runs(other, binding, set(kept)) for other, binding in
                                           rows_group.bind.items()):
            return False
        block = rows_group.block or block
        partial = Buffer(f"{stage.buffer.name}_partial", partial_type(stage, rows, block))
        first, binding = split_rows(stage, rows, block, partial, self.simplify)
        rows_group.bind = {other: tuple([a if isinstance(a, BlockOf) or a in kept else None for a in bound])
                           for other, bound in rows_group.bind.items()}
        rows_group.outer, rows_group.block, rows_group.kind = kept, block, "reduce"
        rows_group.bind[first] = binding
        rows_group.stages = sorted([*rows_group.stages, first], key=lambda other: other.number)
        rows_group.reasons.append(f"fused in blocks of {block} rows: {why}")
        self.group_of[partial], self.stage_of[partial] = rows_group, first
        self._connect(rows_group, first)
        for other in list(group.before):
            other.after.discard(group)
        group.before.clear()
        self._connect(group, stage)
        for buffer in first.read_buffers():
            self.readers[buffer] = [other for other in self.readers[buffer] if other is not stage] + [first]
        self.readers.setdefault(partial, []).append(stage)
        return True

    # ---- merging --------------------------------------------------------------------------------------------------

    def _try(self, first: Group, second: Group, why: str) -> Group:
        """Merge two groups if that is possible and wise; the group of `second` afterwards."""
        if "loops" in (first.kind, second.kind):
            second.reasons.append(f"not fused ({why}): an op with loops of its own")
            return second
        if self._reads_pieces(first, second):
            second.reasons.append(f"not fused ({why}): it reads an array of which the other makes a piece")
            return second
        pairs = _match(first, second)
        reason = _objection(first, second, pairs) or self._cycle(first, second)
        if reason:
            second.reasons.append(f"not fused ({why}): {reason}")
            return second
        return self._merge(first, second, pairs, why)

    def _reads_pieces(self, first: Group, second: Group) -> bool:
        """Whether `second` reads, as a whole, an array of which `first` makes a piece."""
        return any(first in self.producers(buffer) for stage in second.stages for buffer in stage.read_buffers()
                   if buffer in self.parts)

    def _cycle(self, first: Group, second: Group) -> str:
        """Whether a third group must run between the two."""
        for start, goal in ((first, second), (second, first)):
            seen = {start, goal}
            stack = [group for group in start.after if group is not goal]
            while stack:
                group = stack.pop()
                if group in seen:
                    continue
                seen.add(group)
                if goal in group.after:
                    return "another kernel lies between them"
                stack.extend(group.after)
        return ""

    def _merge(self, first: Group, second: Group, pairs: dict[Axis, Axis], why: str) -> Group:
        renamed = {theirs: mine for mine, theirs in pairs.items()}
        for stage, binding in first.bind.items():
            first.bind[stage] = tuple([a if isinstance(a, BlockOf) or a in pairs else None for a in binding])
        for stage, binding in second.bind.items():
            first.bind[stage] = tuple([BlockOf(renamed[a.axis]) if isinstance(a, BlockOf) else
                                       renamed.get(a) if a is not None else None for a in binding])
        first.block = first.block or second.block
        first.outer = [a for a in first.outer if a in pairs]
        first.stages = sorted([*first.stages, *second.stages], key=lambda stage: stage.number)
        if first.kind != "contraction":
            first.kind = "reduce" if "reduce" in (first.kind, second.kind) else "map"
        first.reasons += [f"fused: {why}", *second.reasons]
        for stage in second.stages:
            self.group_of[stage.buffer] = first
        for mine, theirs in ((first.before, second.before), (first.after, second.after)):
            mine |= theirs
            mine -= {first, second}
        for group in second.before:
            group.after.discard(second)
            group.after.add(first)
        for group in second.after:
            group.before.discard(second)
            group.before.add(first)
        for group in (first, second):
            group.after.discard(group)
            group.before.discard(group)
        del self.groups[second]
        return first

    def rebuild_edges(self) -> None:
        """Find again which groups read which, after expressions have changed."""
        for group in self.groups:
            group.before, group.after = set(), set()
        for group in self.groups:
            for stage in group.stages:
                self._connect(group, stage)

    def ordered(self) -> list[Group]:
        """The groups, those that are read first; otherwise in program order."""
        waiting = {group: len(group.before) for group in self.groups}
        ready = sorted([group for group, count in waiting.items() if not count],
                       key=lambda group: -group.stages[0].number)
        result: list[Group] = []
        while ready:
            group = ready.pop()
            result.append(group)
            freed = []
            for reader in group.after:
                waiting[reader] -= 1
                if not waiting[reader]:
                    freed.append(reader)
            if freed:
                ready = sorted([*ready, *freed], key=lambda group: -group.stages[0].number)
        return result


def _match(first: Group, second: Group) -> dict[Axis, Axis]:
    """Which outer axis of `first` is which outer axis of `second`: those that every read between them keeps."""
    pairs: dict[Axis, Axis] = {}
    dropped: set[Axis] = set()
    between = False
    own = {stage.buffer: stage for stage in first.stages}
    for reader in second.stages:
        mine = {a: bound for a, bound in zip(reader.axes, second.bind[reader], strict=True) if isinstance(bound, Axis)}
        for e in reader.reads:
            producer = own.get(e.attribute)
            if producer is None:
                continue
            between = True
            for a, position in zip(first.bind[producer], e.operands[:-1], strict=True):
                if a is None:
                    continue
                if isinstance(a, BlockOf):
                    dropped.add(a.axis)
                    continue
                b = mine.get(position.attribute) if position.op == "axis" else None
                if b is None or pairs.setdefault(a, b) is not b:
                    dropped.add(a)
    if not between:
        _match_shared(first, second, pairs, dropped)
    taken: set[Axis] = set()
    for a in first.outer:
        b = pairs.get(a)
        if a in dropped or b is None or b in taken or b.extent != a.extent:
            pairs.pop(a, None)
        else:
            taken.add(b)
    return {a: pairs[a] for a in first.outer if a in pairs}


def _match_shared(first: Group, second: Group, pairs: dict[Axis, Axis], dropped: set[Axis]) -> None:
    """Match axes through buffers that both groups read, the largest first."""
    theirs = first.reads()
    shared = [(buffer, read) for buffer, read in second.reads().items() if buffer in theirs]
    shared.sort(key=lambda item: -item[0].type.nbytes)
    for buffer, (reader, e) in shared:
        other, f = theirs[buffer]
        outer_first = {a: bound for a, bound in zip(other.axes, first.bind[other], strict=True)}
        outer_second = {a: bound for a, bound in zip(reader.axes, second.bind[reader], strict=True)}
        for x, y in zip(f.operands[:-1], e.operands[:-1], strict=True):
            if x.op != "axis" or y.op != "axis":
                continue
            a, b = outer_first.get(x.attribute), outer_second.get(y.attribute)
            if isinstance(a, Axis) and isinstance(b, Axis):
                pairs.setdefault(a, b)


def _objection(first: Group, second: Group, pairs: dict[Axis, Axis]) -> str:
    """Why two groups should not share a kernel, or ""."""
    shrinks = len(pairs) < len(first.outer)
    if first.kind == "contraction" and (shrinks or len(pairs) < len(second.outer) or not _is_epilogue(first, second)):
        return "not an elementwise epilogue of the contraction"
    if (first.block or second.block) and not _keeps_blocks(first, second, pairs):
        return "its rows are computed in blocks"
    points = first.points + second.points
    if points > SMALL:
        parallel = math.prod(a.extent for a in pairs)
        if parallel < MIN_PARALLEL and (first.outer or second.outer):
            return f"only {parallel} common outer points for {points} points of work"
        kept = set(pairs) | set(pairs.values())
        for group in (first, second):
            for stage, binding in group.bind.items():
                if _short_runs(stage, binding, kept):
                    return f"{stage.label} would be walked across its rows"
    elif not pairs and points > 1 and not _reads_between(first, second):
        return "they share no axis"
    buffers = {buffer for group in (first, second) for stage in group.stages for buffer in stage.read_buffers()}
    buffers |= {stage.buffer for group in (first, second) for stage in group.stages}
    if len(buffers) > MAX_BUFFERS:
        return f"{len(buffers)} buffers"
    if sum(stage.cost for group in (first, second) for stage in group.stages) > MAX_CODE:
        return "too much code"
    if not _reads_between(first, second) and (shrinks or not pairs):
        return "they only read the same data"
    return ""


def _keeps_blocks(first: Group, second: Group, pairs: dict[Axis, Axis]) -> bool:
    """Whether groups that are computed in blocks of rows keep them when they are merged."""
    if first.block and second.block and first.block != second.block:
        return False
    for group, kept in ((first, list(pairs)), (second, list(pairs.values()))):
        if group.block and (not kept or kept[-1] is not group.outer[-1] or len(kept) < len(group.outer)):
            return False
    return True


def _is_epilogue(first: Group, second: Group) -> bool:
    """Whether `second` is maps over the points of the contraction `first`, and reads what it computes."""
    return (_reads_between(first, second) and
            all(stage.kind == "map" and all(a is not None or d.extent == 1 for a, d in
                                            zip(second.bind[stage], stage.axes, strict=True))
                for stage in second.stages))


def _reads_between(first: Group, second: Group) -> bool:
    own = {stage.buffer for stage in first.stages}
    return any(e.attribute in own for stage in second.stages for e in stage.reads)


def _short_runs(stage: Stage, binding: Binding, kept: set[Axis]) -> bool:
    """Whether binding only `kept` would make a map's inner loop jump through memory."""
    if stage.kind != "map":
        return False
    inner, last = 1, 1
    for a, bound in zip(reversed(stage.axes), reversed(binding), strict=True):
        if isinstance(bound, Axis) and bound in kept:
            break
        inner *= a.extent
    for a, bound in zip(stage.axes, binding, strict=True):
        if not isinstance(bound, Axis) or bound not in kept:
            last *= a.extent
    return last > 1 and inner < min(MIN_RUN, last)

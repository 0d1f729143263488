"""Between grouping and building kernels: values that other kernels rather recompute than read.

A value that only needs cheap arithmetic on arrays which its reader reads anyway (a normalised row from the row and its
two statistics) is not worth a round trip through memory. For every stage that other kernels read, latest first, the
bytes of writing and reading it are weighed against the further bytes and the arithmetic of computing it again.
"""
from __future__ import annotations

from ..ir.expr import TRUE, Buffer, Expr, constant, guarded, select, substitute
from .cost import expression_cost
from .fuse_choose import MAX_COST
from .fuse_groups import Group, Grouper
from .fuse_stages import Stage
from .index import Simplifier
from .walk import loads_of

BYTES_PER_OPERATION = 0.4     # what one simple operation on an element may cost, in bytes of traffic
MAX_PROLOGUE = 8              # cost of what a contraction recomputes while it packs an operand
PACKINGS = 4                  # how often it does


def inline_at(value: Expr, stage: Stage, index: tuple[Expr, ...], valid: Expr) -> Expr:
    """The expression of a map stage at another index, reading nothing where it is not valid."""
    places = dict(zip(stage.axes, index, strict=True))

    def replace(e: Expr) -> Expr | None:
        return places.get(e.attribute) if e.op == "axis" else None
    result = substitute(value, replace)
    if valid is TRUE:
        return result
    return select(valid, guarded(result, valid), constant(0, result.dtype))


class Recompute:
    """Applies the decision described in the module's text to all groups."""

    def __init__(self, grouper: Grouper, outputs: frozenset[Buffer], simplify: Simplifier) -> None:
        self.grouper = grouper
        self.outputs = outputs
        self.simplify = simplify
        self.readers: dict[Buffer, dict[Stage, None]] = {}
        for group in grouper.groups:
            for stage in group.stages:
                for buffer in stage.read_buffers():
                    self.readers.setdefault(buffer, {})[stage] = None

    def run(self) -> None:
        stages = [stage for group in self.grouper.groups for stage in group.stages if stage.kind == "map"]
        for stage in sorted(stages, key=lambda stage: -stage.number):
            if stage.buffer not in self.outputs:
                self._consider(stage)

    def _elsewhere(self, buffer: Buffer, home: Group | None) -> list[Stage]:
        """The stages of other groups that read a buffer."""
        return [reader for reader in self.readers.get(buffer, ()) if self._group(reader) is not home]

    def _group(self, stage: Stage) -> Group:
        return self.grouper.group_of[stage.buffer]

    def _consider(self, stage: Stage) -> None:
        home = self._group(stage)
        readers = self._elsewhere(stage.buffer, home)
        if not readers or any(reader.kind == "loops" or reader.cost + stage.cost > MAX_COST for reader in readers):
            return
        groups = dict.fromkeys(map(self._group, readers))
        saved = stage.buffer.type.nbytes * (1 + len(groups))
        extra = sum(self._further_bytes(stage, group) for group in groups)
        for buffer in stage.read_buffers():       # what must become global for it
            if self._is_private(buffer):
                extra += buffer.type.nbytes
        work = 0.0
        for reader in readers:
            if reader.kind == "contraction":
                if stage.cost > MAX_PROLOGUE:
                    return
                work += PACKINGS * stage.cost * stage.buffer.type.size
            else:
                work += stage.cost * reader.points
        if saved <= extra + BYTES_PER_OPERATION * work:
            return
        for reader in readers:
            self._inline(stage, reader)
        for group in groups:
            group.reasons.append(f"recomputes {stage.label} instead of reading it")

    def _further_bytes(self, stage: Stage, group: Group) -> int:
        """Bytes that a group would read because it recomputes a stage."""
        known = {buffer for other in group.stages for buffer in other.read_buffers()}
        return sum(min(e.attribute.type.nbytes, stage.buffer.type.size * e.attribute.type.dtype.itemsize)
                   for e in stage.reads if e.attribute not in known)

    def _is_private(self, buffer: Buffer) -> bool:
        """Whether a buffer lives inside one kernel only."""
        producer = self.grouper.group_of.get(buffer)
        if producer is None or buffer in self.outputs:
            return False
        return not self._elsewhere(buffer, producer)

    def _inline(self, stage: Stage, reader: Stage) -> None:
        value = stage.value
        assert value is not None and reader.value is not None

        def replace(e: Expr) -> Expr | None:
            if e.op != "load" or e.attribute is not stage.buffer:
                return None
            return inline_at(value, stage, e.operands[:-1], e.operands[-1])
        reader.value = self.simplify(substitute(reader.value, replace))
        for buffer in reader.read_buffers():
            self.readers[buffer].pop(reader, None)
        reader.reads = tuple(loads_of(reader.value))
        reader.cost = expression_cost(reader.value)
        for buffer in reader.read_buffers():
            self.readers.setdefault(buffer, {})[reader] = None


def recompute(grouper: Grouper, outputs: list[Buffer], simplify: Simplifier) -> None:
    """Decide for every value that crosses kernels whether it does."""
    Recompute(grouper, frozenset(outputs), simplify).run()
    grouper.rebuild_edges()


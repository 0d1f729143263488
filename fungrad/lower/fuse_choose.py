"""Which values of a program are computed once (stages), by one walk over its nodes, operands first.

A value is a stage if it must be in memory (a program output, an operand or result of an op with loops of its own), if
it holds a reduction, if several values read what follows a reduction, or if recomputing it in its readers would cost
more than keeping it. Everything else is inlined into its readers.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import CompilationError
from ..ir.expr import TRUE, Axis, Buffer, Expr, Reader, axis as axis_expr, load
from ..ir.primitive import Primitive, Refused
from ..ir.program import INPUT, RESULT, Node, Params, Program
from ..ir.types import Type, array_type
from .cost import expression_cost
from .fuse_fragments import evaluations, fragment_of, made_of_nothing
from .index import Simplifier
from .walk import subexpressions

CHEAP = 5              # at most this cost: recomputed by every reader
RECOMPUTE = 6          # cost * (evaluations an element - 1) above which a value is computed once
MAX_COST = 400         # of an inlined expression, in case of many uses
MAX_DEPTH = 48         # of inlining: bounds recursion and code size
CONTRACTION_REUSE = 4  # how often a contraction's packing evaluates an operand's element, at a guess
MAX_MERGED = 32        # points of an inner reduction that is merged into the one that reads it
MAX_ABSORBED = 12      # cost of what an op with loops of its own computes where it reads it
MAX_ABSORBED_WORK = 32  # the same times the evaluations an element


# ---- what one primitive costs ---------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Profile:
    """What a node does to one element. reduces: its expression holds reductions, over `reduced` points.

    combine: of the reduction that is all of the expression (but for casts), if it is one. small: it held a reduction
    of a few terms, which is written out.
    """
    cost: int
    reduces: bool
    reduced: int = 1
    combine: str | None = None
    small: bool = False


_profiles: dict[tuple[Primitive, Params, tuple[Any, ...], Any], Profile] = {}
_MAX_PROFILES = 8192
_NOTHING = Profile(0, False)
_WITH_LOOPS = frozenset({"loops", "control"})
_ONCE = _WITH_LOOPS | {"reduction"}   # readers that evaluate each element of an operand once


def profile(node: Node) -> Profile:
    """The profile of a node, from what its `lower` rule answers over plain loads."""
    traits = node.primitive.traits
    if "movement" in traits:
        return Profile(1, False)
    types: tuple[Any, ...] = tuple([operand.type for operand in node.operands])
    result = node.type
    if "elementwise" in traits:
        types = tuple([array_type((), type.dtype) for type in types])
        result = tuple([array_type((), type.dtype) for type in result]) if isinstance(result, tuple) else \
            array_type((), result.dtype)
    key = (node.primitive, node.params, types, result)
    found = _profiles.get(key)
    if found is None:
        if len(_profiles) > _MAX_PROFILES:
            _profiles.clear()
        found = _profiles[key] = _measure(node, types, result)
    return found


def _measure(node: Node, types: tuple[Any, ...], result: Any) -> Profile:
    if isinstance(node.primitive.lower, Refused):
        raise CompilationError(f"{node.primitive.name} cannot be compiled: {node.primitive.lower.reason}")

    def reader(type: Type) -> Reader:
        buffer = Buffer("x", type)
        return Reader(type, lambda index, valid: load(buffer, index, valid))
    shape = result[0].shape if isinstance(result, tuple) else result.shape
    index = tuple([axis_expr(Axis(f"i{number}", extent)) for number, extent in enumerate(shape)])
    from_rule = node.primitive.lower([reader(type) for type in types], index, TRUE, result, **dict(node.params))
    simplify = Simplifier()
    raw = from_rule if isinstance(from_rule, tuple) else (from_rule,)
    expressions: list[Expr] = [simplify.written_out(e) for e in raw]
    reduced = [math.prod(a.extent for a in e.attribute[1]) for e in subexpressions(*expressions) if e.op == "reduce"]
    top = expressions[0]
    combine = top.attribute[0] if top.op == "reduce" and len(expressions) == len(reduced) == 1 else None
    return Profile(expression_cost(*expressions), bool(reduced), max(reduced, default=1), combine,
                   any(e.op == "reduce" for e in subexpressions(*raw)))


# ---- the walk -------------------------------------------------------------------------------------------------------

def consumers_of(nodes: list[Node], outputs: tuple[Node, ...]) -> dict[Node, list[Node | None]]:
    """The readers of every value; None stands for the program's result. Results of a tuple count as its own values."""
    consumers: dict[Node, list[Node | None]] = {node: [] for node in nodes}
    for node in nodes:
        for operand in dict.fromkeys(node.operands):
            consumers[operand].append(node)
    for output in dict.fromkeys(outputs):
        consumers[output].append(None)
    return consumers


def choose_stages(program: Program) -> dict[Node, str]:
    """The nodes that become stages, with the reason."""
    chooser = _Chooser(program)
    for node in chooser.nodes:
        if node.primitive is not INPUT:
            chooser.visit(node)
    return chooser.chosen


@dataclass(slots=True)
class _Facts:
    """Of a value that is inlined (or an input): what inlining it brings with it."""
    cost: int = 0
    depth: int = 0
    holds: bool = False      # a reduction that nothing else reads
    follows: bool = False    # some reduction
    tied: bool = False       # something that ops with loops of their own do not take in


_NO_FACTS = _Facts()


class _Chooser:
    def __init__(self, program: Program) -> None:
        self.nodes = program.nodes()
        self.outputs = frozenset(program.outputs)
        self.consumers = consumers_of(self.nodes, program.outputs)
        self.uses = self._count_uses()
        self.chosen: dict[Node, str] = {}
        self.facts: dict[Node, _Facts] = {}

    def _count_uses(self) -> dict[Node, int]:
        """How many times, at a guess, elements of each value would be evaluated if it were inlined everywhere."""
        uses: dict[Node, int] = {}
        for node in reversed(self.nodes):
            total = 0
            size = node.type.size if isinstance(node.type, Type) else node.type[0].size
            for reader in self.consumers[node]:
                if reader is None or reader.primitive.traits & _ONCE:
                    total += size
                elif reader.primitive is RESULT or "movement" in reader.primitive.traits:
                    total += uses[reader]
                elif "contraction" in reader.primitive.traits:
                    total += CONTRACTION_REUSE * size
                else:
                    type = reader.type if isinstance(reader.type, Type) else reader.type[0]
                    total += type.size * profile(reader).reduced
            uses[node] = total
        return uses

    def visit(self, node: Node) -> None:
        """Decide on one node whose operands are decided."""
        loops = bool(node.primitive.traits & _WITH_LOOPS)
        own = _NOTHING if node.primitive is RESULT or loops else profile(node)
        facts = self._facts(node, own)
        self.facts[node] = facts
        if isinstance(node.type, tuple) and not loops:
            return                            # its results are the values
        reduces = own.reduces
        if own.combine and self._merges(node, own, facts):
            own = _NOTHING                    # inlined into the one reduction that reads it
        reason = self._must(node, facts, reduces) or self._should(node, own, facts)
        if reason:
            self.chosen[node] = reason
            self.facts[node] = _Facts(holds=own.reduces and len(self.consumers[node]) == 1,
                                      follows=reduces or facts.follows)
        elif reduces:
            facts.follows = True

    def _facts(self, node: Node, own: Profile) -> _Facts:
        read = [self.facts.get(operand, _NO_FACTS) for operand in node.operands]
        spreads = isinstance(node.type, Type) and any(node.type.size > operand.type.size for operand in node.operands
                                                      if isinstance(operand.type, Type))
        return _Facts(own.cost + sum([facts.cost for facts in read]),
                      1 + max([facts.depth for facts in read], default=0),
                      not spreads and any([facts.holds for facts in read]), any([facts.follows for facts in read]),
                      node.primitive.name == "reshape" or own.small or any([facts.tied for facts in read]))

    def _must(self, node: Node, facts: _Facts, reduces: bool) -> str:
        """Why a value has to be in memory, or ""."""
        traits = node.primitive.traits
        if node in self.outputs:
            return "an output of the program"
        for reader in self.consumers[node]:
            if reader is not None and "loops" in reader.primitive.traits and (
                    reduces or not self._is_absorbed(node, facts, reader)):
                return "an operand of an op with loops of its own"
            if reader is not None and "control" in reader.primitive.traits:
                return "an operand of a loop or choice"
            if reader is not None and "barrier" in reader.primitive.traits:
                return "an operand of a barrier"
        if traits & _WITH_LOOPS or (node.primitive is RESULT and node.operands[0].primitive.traits & _WITH_LOOPS):
            return "computed by an op with loops of its own"
        return "a barrier" if "barrier" in traits else ""

    def _is_absorbed(self, node: Node, facts: _Facts, reader: Node) -> bool:
        """Whether an op with loops of its own computes this operand where it reads it."""
        if made_of_nothing(node):
            return True
        if len(self.consumers[node]) > 1 or facts.cost > MAX_ABSORBED or facts.tied \
                or reader.operands.count(node) > 1 or "loops" in node.primitive.traits or node.primitive is RESULT:
            return False
        fragment = fragment_of(reader, tuple([operand.type for operand in reader.operands]))
        buffer = fragment.inputs[reader.operands.index(node)]
        return facts.cost * evaluations(fragment, buffer) <= MAX_ABSORBED_WORK * max(buffer.type.size, 1)

    def _merges(self, node: Node, own: Profile, facts: _Facts) -> bool:
        """Whether a reduction is read by one reduction of its kind only (through movement), so that they are one."""
        if (own.reduced > MAX_MERGED or facts.follows) and "contraction" not in node.primitive.traits:
            return False
        while len(self.consumers[node]) == 1:
            (reader,) = self.consumers[node]
            if reader is None:
                return False
            if "movement" in reader.primitive.traits and "cheap" in reader.primitive.traits \
                    and reader.type.size <= node.type.size:
                node = reader
                continue
            return "reduction" in reader.primitive.traits and profile(reader).combine == own.combine
        return False

    def _should(self, node: Node, own: Profile, facts: _Facts) -> str:
        """Why a value is better computed once, or ""."""
        readers = len(self.consumers[node])
        again = self.uses[node] / max(node.type.size, 1) - 1 if isinstance(node.type, Type) else 0
        if own.reduces:
            return "a reduction"
        if facts.holds and readers > 1:
            return f"{readers} consumers of what follows a reduction"
        if facts.cost > CHEAP and facts.cost * again > RECOMPUTE:
            return f"{readers} consumers, recompute {again + 1:.3g}x"
        if facts.depth > MAX_DEPTH:
            return "a long chain of operations"
        return "much code with several consumers" if facts.cost > MAX_COST and readers > 1 else ""

"""First step of fusion: which values of a program get a loop nest of their own.

A *stage* is a value that is computed once into memory of some kind: a program output, a reduction, an operand or result
of an op with loops of its own, and a value that would be expensive to recompute in each of its readers. Everything
else is inlined into its readers as index arithmetic. A stage is only a candidate: when its readers land in its kernel,
at the same point, it is an expression again and costs nothing (`fuse_kernels`).
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import CompilationError
from ..ir.expr import TRUE, Axis, Buffer, Expr, Reader, axis as axis_expr, constant, load, reduce, substitute
from ..ir.kernel import Fragment
from ..ir.primitive import Primitive, Refused
from ..ir.program import INPUT, RESULT, Node, Params, Program, result_node
from ..ir.types import Type, array_type
from .cost import expression_cost
from .define import Definer, axes_for
from .fuse_fragments import inline_operands, made_of_nothing
from .fuse_pieces import MIN_ELEMENTS, pieces_of
from .index import Simplifier
from .walk import axes_of, loads_of, subexpressions

CHEAP = 5              # at most this cost: recomputed by every reader
RECOMPUTE = 6          # cost * (evaluations an element - 1) above which a value is computed once
MAX_COST = 400         # of an inlined expression, in case of many uses
MAX_DEPTH = 48         # of inlining: bounds recursion and code size
CONTRACTION_REUSE = 4  # how often a contraction's packing evaluates an operand's element, at a guess
MIN_CONTRACTION = 4096  # multiply-adds below which a sum of products is an ordinary reduction
MIN_CONTRACTED = 4
MAX_MERGED = 32        # points of an inner reduction that is merged into the one that reads it


@dataclass(slots=True, eq=False)
class Stage:
    """One value with a loop nest of its own: `buffer[axes] = value`, combined over `reduce_axes`.

    kind: "map", "reduce", "contraction" or "loops" (then `fragment` and `results`, and no value).
    whole, place: of a piece (see `fuse_pieces`): the array of which it is a part, and where its elements lie there.
    """
    number: float      # the order of computation
    buffer: Buffer
    axes: tuple[Axis, ...]
    value: Expr | None
    combine: str | None = None
    reduce_axes: tuple[Axis, ...] = ()
    kind: str = "map"
    label: str = ""
    reads: tuple[Expr, ...] = ()
    cost: int = 0
    fragment: Fragment | None = None
    operands: tuple[Buffer, ...] = ()
    results: tuple[Buffer, ...] = ()
    whole: Buffer | None = None
    place: tuple[Expr, ...] = ()

    @property
    def points(self) -> int:
        return self.buffer.type.size * math.prod(a.extent for a in self.reduce_axes)

    def read_buffers(self) -> tuple[Buffer, ...]:
        return self.operands if self.kind == "loops" else tuple(dict.fromkeys(e.attribute for e in self.reads))


# ---- what one primitive costs ---------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Profile:
    """What a node does to one element. reduces: its expression holds reductions, over `reduced` points.

    combine: of the reduction that is all of the expression (but for casts), if it is one.
    """
    cost: int
    reduces: bool
    reduced: int = 1
    combine: str | None = None


_profiles: dict[tuple[Primitive, Params, tuple[Any, ...], Any], Profile] = {}
_MAX_PROFILES = 8192


def profile(node: Node) -> Profile:
    """The profile of a node, from what its `lower` rule answers over plain loads."""
    traits = node.primitive.traits
    if "movement" in traits:
        return Profile(1, False)
    types: tuple[Any, ...] = tuple([operand.type for operand in node.operands])
    result = node.type
    if "elementwise" in traits:
        types = tuple([array_type((), type.dtype) for type in types])
        result = array_type((), result.dtype) if isinstance(result, Type) else \
            tuple([array_type((), type.dtype) for type in result])
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
    expressions = [simplify.written_out(e) for e in (from_rule if isinstance(from_rule, tuple) else (from_rule,))]
    reduced = [math.prod(a.extent for a in e.attribute[1]) for e in subexpressions(*expressions) if e.op == "reduce"]
    top = expressions[0]
    combine = top.attribute[0] if top.op == "reduce" and len(expressions) == len(reduced) == 1 else None
    return Profile(expression_cost(*expressions), bool(reduced), max(reduced, default=1), combine)



# ---- which values are stages ----------------------------------------------------------------------------------------

def consumers_of(nodes: list[Node], outputs: tuple[Node, ...]) -> dict[Node, list[Node | None]]:
    """The readers of every value; None stands for the program's result. Results of a tuple count as its own values."""
    consumers: dict[Node, list[Node | None]] = {node: [] for node in nodes}
    for node in nodes:
        for operand in dict.fromkeys(node.operands):
            consumers[operand].append(node)
    for output in dict.fromkeys(outputs):
        consumers[output].append(None)
    return consumers


def _evaluations(nodes: list[Node], consumers: dict[Node, list[Node | None]]) -> dict[Node, int]:
    """How many times, at a guess, elements of each value would be evaluated if the value were inlined everywhere."""
    uses: dict[Node, int] = {}
    for node in reversed(nodes):
        total = 0
        size = node.type.size if isinstance(node.type, Type) else node.type[0].size
        for consumer in consumers[node]:
            if consumer is None or "reduction" in consumer.primitive.traits or "loops" in consumer.primitive.traits:
                total += size
            elif consumer.primitive is RESULT or "movement" in consumer.primitive.traits:
                total += uses[consumer]
            elif "contraction" in consumer.primitive.traits:
                total += CONTRACTION_REUSE * size
            else:
                type = consumer.type if isinstance(consumer.type, Type) else consumer.type[0]
                total += type.size * profile(consumer).reduced
        uses[node] = total
    return uses


def choose_stages(program: Program) -> dict[Node, str]:
    """The nodes that become stages, with the reason."""
    nodes = program.nodes()
    consumers = consumers_of(nodes, program.outputs)
    uses = _evaluations(nodes, consumers)
    outputs = set(program.outputs)
    needed = {operand for node in nodes if node.primitive.traits & {"loops", "barrier"} for operand in node.operands
              if "barrier" in node.primitive.traits or not made_of_nothing(operand)}
    chosen: dict[Node, str] = {}
    heavy: set[Node] = set()
    cost: dict[Node, int] = {}
    depth: dict[Node, int] = {}
    pending: dict[Node, bool] = {}   # holds a reduction that only this value reads
    follows: dict[Node, bool] = {}   # reads a reduction
    for node in nodes:
        cost[node], depth[node], pending[node] = 0, 0, False
        follows[node] = any(follows[operand] or operand in heavy for operand in node.operands)
        if node.primitive is INPUT:
            continue
        inlined = [operand for operand in node.operands if operand not in chosen]
        loops = "loops" in node.primitive.traits
        own = Profile(0, False) if node.primitive is RESULT or loops else profile(node)
        total = own.cost + sum(cost[operand] for operand in inlined)
        deepest = 1 + max((depth[operand] for operand in inlined), default=0)
        spreads = isinstance(node.type, Type) and any(node.type.size > operand.type.size for operand in node.operands
                                                      if isinstance(operand.type, Type))
        holds = not spreads and any(pending[operand] for operand in node.operands)
        if isinstance(node.type, tuple) and not loops:
            cost[node], depth[node] = total, deepest     # its results are the values
            continue
        factor = uses[node] / max(node.type.size, 1) if isinstance(node.type, Type) else 1.0
        if own.reduces:
            heavy.add(node)
        if own.combine and (own.reduced <= MAX_MERGED and not follows[node] or "contraction" in node.primitive.traits) \
                and _merges(node, own.combine, consumers):
            own = Profile(0, False)           # inlined into the one reduction that reads it
        reason = _reason(node, own, total, deepest, holds, len(consumers[node]), factor)
        if node in outputs:
            reason = "an output of the program"
        elif node in needed:
            reason = "an operand of an op with loops of its own"
        elif loops or (node.primitive is RESULT and "loops" in node.operands[0].primitive.traits):
            reason = "computed by an op with loops of its own"
        elif "barrier" in node.primitive.traits:
            reason = "a barrier"
        if reason:
            chosen[node] = reason
            pending[node] = own.reduces and len(consumers[node]) == 1
        else:
            cost[node], depth[node], pending[node] = total, deepest, holds
    return chosen


def _merges(node: Node, combine: str, consumers: dict[Node, list[Node | None]]) -> bool:
    """Whether a reduction is read by one reduction of the same kind only (through movement), so that they are one."""
    while len(consumers[node]) == 1:
        (reader,) = consumers[node]
        if reader is None:
            return False
        if "movement" in reader.primitive.traits and "cheap" in reader.primitive.traits \
                and reader.type.size <= node.type.size:
            node = reader
            continue
        return "reduction" in reader.primitive.traits and profile(reader).combine == combine
    return False


def _reason(node: Node, own: Profile, cost: int, depth: int, pending: bool, readers: int, factor: float) -> str:
    if own.reduces:
        return "a reduction"
    if pending and readers > 1:
        return f"{readers} consumers of what follows a reduction"
    if cost > CHEAP and cost * (factor - 1) > RECOMPUTE:
        return f"{readers} consumers, recompute {factor:.3g}x"
    if depth > MAX_DEPTH:
        return "a long chain of operations"
    if cost > MAX_COST and readers > 1:
        return "much code with several consumers"
    return ""


# ---- building stages ------------------------------------------------------------------------------------------------

class StageBuilder:
    """Turns the chosen nodes into stages, operands first."""

    __slots__ = ("simplify", "definer", "stages", "views", "outputs", "_count")

    def __init__(self, simplify: Simplifier, outputs: tuple[Node, ...]) -> None:
        self.simplify = simplify
        self.definer = Definer(simplify)
        self.stages: list[Stage] = []
        self.outputs = frozenset(outputs)
        self.views: dict[Node, Buffer] = {}    # stages that are reshapes: the buffer of the reshaped value
        self._count = 0

    def buffer_of(self, node: Node) -> Buffer:
        """The buffer that holds a stage's value, possibly under another shape."""
        return self.views.get(node) or self.definer.buffers[node]

    def buffer(self, type: Type) -> Buffer:
        """A new buffer for a value; what it becomes is decided later."""
        self._count += 1
        return Buffer(f"v{self._count}", type)

    def build(self, node: Node) -> None:
        """Add the stage of one node (and of the reductions inside its expression)."""
        if "loops" in node.primitive.traits:
            self._loops(node)
            return
        if node in self.definer.buffers:      # a result of an op with loops, or under a reshape that came before
            return
        source = node
        while source.primitive.name == "reshape":
            source = source.operands[0]
        if source is not node and source in self.definer.buffers and node not in self.outputs:
            self.views[node] = self.definer.buffers[source]
            return
        target = self._value(source, node in self.outputs)
        if target is None:                    # a constant, after all
            return
        if source is not node:                # a reshape is the same memory under another shape
            self.views[node] = target

    def _value(self, node: Node, wanted: bool = False) -> Buffer | None:
        """The buffer of a value: its own stage's, or a copy where it has one already. None for a constant, unless the
        program wants it.
        """
        axes = axes_for(node.type)
        target = self.buffer(node.type)
        label = node.operands[0].primitive.name if node.primitive is RESULT else node.primitive.name
        if not node.type.size:                # nothing to compute, nothing to read
            self.definer.buffers.setdefault(node, target)
        elif node in self.definer.buffers:
            value = load(self.definer.buffers[node], tuple([axis_expr(a) for a in axes]))
            self._add(target, axes, self.simplify(value), "copy")
        else:
            value = self.definer.value(node, axes)
            if value.op == "constant" and not wanted:
                return None
            if _loses_contraction(value, axes):
                inner = _inner_reduction(node)
                if inner is not None:         # better computed as a contraction and summed after
                    self.definer.forget()
                    self._value(inner)
                    value = self.definer.value(node, axes)
            self._add_pieces(target, axes, value, label)
            self.definer.buffers[node] = target
        return target

    def _add_pieces(self, target: Buffer, axes: tuple[Axis, ...], value: Expr, label: str) -> None:
        """The stages of a value: one, or one for each part of a large array that is put together from parts."""
        pieces = pieces_of(value, axes, self.simplify) if target.type.size >= MIN_ELEMENTS else []
        if len(pieces) < 2:
            self._add(target, axes, self._split(value, axes, label), label)
            return
        for piece in pieces:
            buffer = self.buffer(array_type(tuple([a.extent for a in piece.axes]), target.type.dtype))
            self._add(buffer, piece.axes, self._split(piece.value, piece.axes, label), label)
            self.stages[-1].whole, self.stages[-1].place = target, piece.place

    def _add(self, target: Buffer, axes: tuple[Axis, ...], value: Expr, label: str) -> None:
        combine, reduce_axes, kind = None, (), "map"
        if value.op == "reduce":
            (combine, reduce_axes), value = value.attribute, value.operands[0]
            if any(not a.extent for a in reduce_axes):
                value = constant(0, value.dtype)       # never computed; reads nothing
            kind = "contraction" if _is_contraction(value, combine, axes, reduce_axes) else "reduce"
        self.stages.append(Stage(len(self.stages), target, axes, value, combine, reduce_axes, kind, label,
                                 tuple(loads_of(value)), expression_cost(value)))

    def _split(self, value: Expr, axes: tuple[Axis, ...], label: str) -> Expr:
        """`value` with every reduction inside it (but not one that is all of it) made a stage of its own."""
        reductions = [e for e in subexpressions(value) if e.op == "reduce"]
        if not reductions or reductions == [value]:
            return value
        replaced: dict[Expr, Expr] = {}
        for e in reductions:
            if e is not value:
                self._extract(e, axes, replaced, label)
        return substitute(value, replaced.get)

    def _extract(self, e: Expr, axes: tuple[Axis, ...], replaced: dict[Expr, Expr], label: str) -> None:
        for inner in subexpressions(e.operands[0]):
            if inner.op == "reduce" and inner not in replaced:
                self._extract(inner, axes, replaced, label)
        if e in replaced:
            return
        body = substitute(e.operands[0], replaced.get)
        whole = e.attribute[1]
        free = [a for a in axes_of(body) if a not in whole]
        free.sort(key=lambda a: axes.index(a) if a in axes else len(axes))
        own = tuple([Axis(f"i{number}", a.extent) for number, a in enumerate(free)])
        renamed = {axis_expr(a): axis_expr(b) for a, b in zip(free, own, strict=True)}
        target = self.buffer(array_type(tuple(a.extent for a in free), e.dtype))
        inside = substitute(body, renamed.get)
        self._add(target, own, self.simplify(reduce(e.attribute[0], inside, whole)), label)
        replaced[e] = load(target, tuple([axis_expr(a) for a in free]))

    def _loops(self, node: Node) -> None:
        types = tuple([operand.type for operand in node.operands])
        fragment = fragment_of(node, types)
        result_types = node.type if isinstance(node.type, tuple) else (node.type,)
        results = tuple([self.buffer(type) for type in result_types])
        kept = [operand for operand in node.operands if operand in self.views or operand in self.definer.buffers]
        if len(kept) < len(node.operands):
            fragment = inline_operands(fragment, {
                buffer: partial(self.definer.element, operand)
                for buffer, operand in zip(fragment.inputs, node.operands, strict=True) if operand not in kept})
        operands = tuple([self.buffer_of(operand) for operand in kept])
        self.stages.append(Stage(len(self.stages), results[0], (), None, kind="loops", label=node.primitive.name,
                                 fragment=fragment, operands=operands, results=results))
        if isinstance(node.type, tuple):
            for number, result in enumerate(results):
                self.definer.buffers[result_node(node, number)] = result
        else:
            self.definer.buffers[node] = results[0]


_fragments: dict[tuple[Primitive, Params, tuple[Type, ...]], Fragment] = {}


def fragment_of(node: Node, types: tuple[Type, ...]) -> Fragment:
    """What an op with loops of its own lowers to; equal nodes share one."""
    key = (node.primitive, node.params, types)
    found = _fragments.get(key)
    if found is None:
        if len(_fragments) > _MAX_PROFILES:
            _fragments.clear()
        found = _fragments[key] = node.primitive.lower(types, node.type, **dict(node.params))
    return found


def _inner_reduction(node: Node) -> Node | None:
    """The reduction that was merged into this one."""
    inner = node.operands[0]
    while "movement" in inner.primitive.traits:
        inner = inner.operands[0]
    return inner if inner.primitive is not INPUT and inner.operands and profile(inner).reduces else None


def _loses_contraction(value: Expr, axes: tuple[Axis, ...]) -> bool:
    """Whether a sum of products is summed over an axis of one factor only: the inner sum alone is a contraction."""
    if value.op != "reduce" or value.attribute[0] != "add" or value.operands[0].op != "mul":
        return False
    reduced = value.attribute[1]
    left, right = (set(axes_of(operand)) for operand in value.operands[0].operands)
    one_sided = [a for a in reduced if (a in left) != (a in right)]
    return bool(one_sided) and any(a in left and a in right for a in reduced)


def _is_contraction(value: Expr, combine: str, axes: tuple[Axis, ...], reduce_axes: tuple[Axis, ...]) -> bool:
    """Whether a reduction is a sum of products whose operands each lack an axis of the result that the other has."""
    if combine != "add" or value.op != "mul" or value.dtype == np.dtype(bool):
        return False
    extent = math.prod(a.extent for a in reduce_axes)
    if extent < MIN_CONTRACTED or extent * math.prod(a.extent for a in axes) < MIN_CONTRACTION:
        return False
    left, right = map(_whole_axes, value.operands)
    outer = [a for a in axes if a.extent > 1]
    return (any(a in left and a not in right for a in outer) and any(a in right and a not in left for a in outer)
            and any(a in left and a in right for a in reduce_axes))


def _whole_axes(value: Expr) -> set[Axis]:
    """The axes of an expression but for those of which it sees quotients only (the group of a grouped convolution)."""
    return {operand.attribute for e in subexpressions(value) for number, operand in enumerate(e.operands)
            if operand.op == "axis" and not (e.op == "div" and number == 0 and e.operands[1].op == "constant")}

"""First step of fusion: the values that `fuse_choose` picks, as stages.

A *stage* is a value that is computed once into memory of some kind: a program output, a reduction, an operand or result
of an op with loops of its own, and a value that would be expensive to recompute in each of its readers. Everything
else is inlined into its readers as index arithmetic. A stage is only a candidate: when its readers land in its kernel,
at the same point, it is an expression again and costs nothing (`fuse_kernels`).
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..ir.expr import Axis, Buffer, Expr, axis as axis_expr, constant, load, reduce, substitute
from ..ir.kernel import Fragment
from ..ir.program import INPUT, RESULT, Node, result_node
from ..ir.types import Type, array_type
from .cost import expression_cost
from .define import Definer, axes_for
from .fuse_choose import profile
from .fuse_fragments import adopt_inputs, fragment_of, inline_operands
from .fuse_names import canonical_buffer
from .fuse_pieces import MIN_ELEMENTS, pieces_of
from .index import Simplifier
from .walk import axes_of, loads_of, subexpressions

MIN_CONTRACTION = 4096  # multiply-adds below which a sum of products is an ordinary reduction
MIN_CONTRACTED = 4


@dataclass(slots=True, eq=False)
class Stage:
    """One value with a loop nest of its own: `buffer[axes] = value`, combined over `reduce_axes`.

    kind: "map", "reduce", "contraction" or "loops" (then `results`, and `fragment` or `control` instead of a value).
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
    control: Node | None = None
    whole: Buffer | None = None
    place: tuple[Expr, ...] = ()

    @property
    def points(self) -> int:
        return self.buffer.type.size * math.prod(a.extent for a in self.reduce_axes)

    def read_buffers(self) -> tuple[Buffer, ...]:
        return self.operands if self.kind == "loops" else tuple(dict.fromkeys(e.attribute for e in self.reads))


# ---- building stages ------------------------------------------------------------------------------------------------

class StageBuilder:
    """Turns the chosen nodes into stages, operands first."""

    __slots__ = ("simplify", "definer", "stages", "views", "outputs", "whole", "_count")

    def __init__(self, simplify: Simplifier, outputs: tuple[Node, ...], whole: frozenset[Node] = frozenset()) -> None:
        self.whole = whole     # operands of loops and choices: they need memory, even a constant
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
        if "control" in node.primitive.traits:
            self._control(node)
            return
        if node in self.definer.buffers:      # a result of an op with loops, or under a reshape that came before
            return
        source = node
        while source.primitive.name == "reshape":
            source = source.operands[0]
        if source is not node and source in self.definer.buffers and node not in self.outputs:
            self.views[node] = self.definer.buffers[source]
            return
        target = self._value(source, node in self.outputs or node in self.whole)
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

    def _control(self, node: Node) -> None:
        results = tuple([self.buffer(type) for type in node.type])
        operands = tuple([self.buffer_of(operand) for operand in node.operands])
        self.stages.append(Stage(len(self.stages), (results or (self.buffer(array_type((0,), np.dtype(bool))),))[0], (),
                                 None, kind="loops", label=node.primitive.name, operands=operands, results=results,
                                 control=node))
        for number, result in enumerate(results):
            self.definer.buffers[result_node(node, number)] = result

    def _loops(self, node: Node) -> None:
        types = tuple([operand.type for operand in node.operands])
        fragment = fragment_of(node, types)
        result_types = node.type if isinstance(node.type, tuple) else (node.type,)
        results = tuple([self.buffer(type) for type in result_types])
        kept = [operand for operand in node.operands if operand in self.views or operand in self.definer.buffers]
        if len(kept) < len(node.operands):
            fragment = inline_operands(fragment, {
                buffer: partial(self._written_out, operand)
                for buffer, operand in zip(fragment.inputs, node.operands, strict=True) if operand not in kept})
        fragment, foreign = adopt_inputs(fragment, canonical_buffer)
        operands = (*[self.buffer_of(operand) for operand in kept], *foreign)
        self.stages.append(Stage(len(self.stages), results[0], (), None, kind="loops", label=node.primitive.name,
                                 fragment=fragment, operands=operands, results=results))
        if isinstance(node.type, tuple):
            for number, result in enumerate(results):
                self.definer.buffers[result_node(node, number)] = result
        else:
            self.definer.buffers[node] = results[0]

    def _written_out(self, operand: Node, index: tuple[Expr, ...], valid: Expr) -> Expr:
        """An element without reductions: what vanished because it is constant may be a reduction of constants."""
        return self.simplify.written_out(self.definer.element(operand, index, valid))


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

"""Simplification of scans from outside and inside.

- Results that nothing reads, carries that only serve those, and operands that no iteration reads are dropped.
- A carry that stays what it is becomes a const; its result is its first value.
- Constants move into the body; xs that are the same in every iteration become consts.
- What an iteration computes from consts alone is computed once, before the loop.
- The product of a slice of xs with a const is one product of all of xs, before the loop. A sum of products in a carry
  that nothing else reads is one product over all iterations, after the loop. One large product is faster than many
  small ones, and the carry need not be read and written each time. (The terms of the sum are added in another order.)
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.primitive import PRIMITIVES
from ..ir.program import (
    INPUT,
    RESULT,
    Node,
    Program,
    apply,
    input_node,
    node as make_node,
    program as make_program,
    result_node,
)
from ..ir.types import Type
from ..util import toposort

MOST_STACKED = 64 << 20    # bytes that a product outside the loop may keep for it
LEAST_ROUNDS = 4
LEAST_PRODUCT = 4096       # multiplications of one iteration's product that is worth it
MOST_GROWTH = 4            # how much larger than a slice its product may be
_CHEAP = frozenset({"movement", "creation"})


def simplify_loops(program: Program) -> Program:
    """The program with its scans simplified; bodies are expected to be simplified, and may be simplified further."""
    nodes = program.nodes()
    if not any(n.primitive.name == "scan" for n in nodes):
        return program
    used: dict[Node, set[int]] = {}
    for n in nodes:
        if n.primitive is RESULT:
            used.setdefault(n.operands[0], set()).add(n.param("number"))
    at: dict[Node, Any] = {}
    for n in nodes:
        operands = tuple([at[operand] for operand in n.operands])
        if n.primitive is RESULT and isinstance(operands[0], tuple):
            at[n] = operands[0][n.param("number")]
        elif n.primitive.name == "scan":
            at[n] = _Scan(n, operands).results(used.get(n, set()))
        else:
            at[n] = n if operands == n.operands else make_node(n.primitive, operands, dict(n.params), n.type)
    return make_program(program.input_types, tuple([at[output] for output in program.outputs]))


@dataclass(slots=True)
class _Value:
    """An input of the body under construction: its operand outside, and the node that stands for it inside."""
    operand: Node
    inside: Node


@dataclass(slots=True)
class _Body:
    """A body under construction. Its inputs are numbered when it is finished, and have numbers of their own before."""
    consts: list[_Value] = field(default_factory=list)
    carry: list[_Value] = field(default_factory=list)
    xs: list[_Value] = field(default_factory=list)
    count: int = 0

    def new(self, kind: list[_Value], operand: Node, type: Type) -> Node:
        for value in kind:
            if value.operand is operand and kind is not self.carry:
                return value.inside
        inside = input_node(1_000_000 + self.count, type)
        self.count += 1
        kind.append(_Value(operand, inside))
        return inside


def substitute(outputs: Sequence[Node], given: dict[Node, Node]) -> list[Node]:
    """Nodes over other nodes in the place of some."""
    at: dict[Node, Node] = dict(given)
    for n in toposort(outputs, lambda n: () if n in given else n.operands):
        if n not in at:
            operands = tuple([at[operand] for operand in n.operands])
            at[n] = n if operands == n.operands else make_node(n.primitive, operands, dict(n.params), n.type)
    return [at[output] for output in outputs]


class _Scan:
    """One scan that is being simplified."""

    def __init__(self, node: Node, operands: tuple[Node, ...]) -> None:
        self.node = node
        self.program: Program = node.param("program")
        self.length: int = node.param("length")
        self.consts: int = node.param("consts")
        self.carry: int = node.param("carry")
        self.operands = operands

    def results(self, used: set[int]) -> tuple[Node, ...]:
        """The results of the simplified scan, by their old numbers (one that nothing reads is whatever it was)."""
        program, first = self.program, self.consts + self.carry
        kept = self._kept(used)
        stays = [j for j in range(self.carry) if program.outputs[j] is program.inputs[self.consts + j]]
        body = _Body()
        given: dict[Node, Node] = {}
        for number, (inside, operand) in enumerate(zip(program.inputs, self.operands, strict=True)):
            if number >= first:
                given[inside] = self._slice(body, operand, inside.type)
            elif number < self.consts or number - self.consts in stays:
                given[inside] = self._const(body, operand)
        moving = [j for j in range(self.carry) if j in kept and j not in stays]
        for j in moving:
            inside = program.inputs[self.consts + j]
            given[inside] = body.new(body.carry, self.operands[self.consts + j], inside.type)
        ys = [number for number in range(self.carry, len(program.outputs)) if number in used]
        outputs = substitute([program.outputs[number] for number in (*moving, *ys)], given)
        outputs = _hoisted(body, self._products_before(body, outputs))
        sums = self._sums_after(body, outputs, len(moving))
        left = [n for n in range(len(moving)) if n not in sums]
        stacked = list(dict.fromkeys(source for s in sums.values() for source in s.sources if s.stacks(source, body)))
        kept_outputs = [outputs[n] for n in left] + outputs[len(moving):] + stacked
        body.carry = [body.carry[n] for n in left]
        found = self._finished(body, kept_outputs, len(left))
        rest = len(kept_outputs) - len(stacked)
        whole = {value.inside: value.operand for value in body.xs} | dict(zip(stacked, found[rest:], strict=True))
        in_order = {n: found[i] for i, n in enumerate(left)} | {n: s.outside(whole) for n, s in sums.items()}
        found = [in_order[n] for n in range(len(moving))] + found[len(left):rest]
        results: list[Node] = [result_node(self.node, number) for number in range(len(program.outputs))]
        for j in stays:
            results[j] = self.operands[self.consts + j]
        for number, result in zip((*moving, *ys), found, strict=True):
            results[number] = result
        return tuple(results)

    def _kept(self, used: set[int]) -> set[int]:
        """The outputs that something needs: a result that is used, or a carry on which such an output depends."""
        program = self.program
        kept = {number for number in used}
        while True:
            nodes = set(toposort([program.outputs[number] for number in sorted(kept)], lambda n: n.operands))
            more = {j for j in range(self.carry) if program.inputs[self.consts + j] in nodes} - kept
            if not more:
                return kept
            kept |= more

    def _const(self, body: _Body, operand: Node) -> Node:
        return operand if operand.primitive.name == "full" else body.new(body.consts, operand, operand.type)

    def _slice(self, body: _Body, operand: Node, type: Type) -> Node:
        """What stands for a slice of an operand: a constant, a const, or a slice."""
        name = operand.primitive.name
        if name == "full":
            return apply(operand.primitive, (), {"type": type, "value": operand.param("value")})
        if name == "broadcast" and 0 not in operand.param("axes"):
            axes = tuple([a - 1 for a in operand.param("axes")])
            source = operand.operands[0]
            if source.type.shape == type.shape and axes == tuple(range(type.rank)):
                return self._const(body, source)
            return self._const(body, apply(operand.primitive, (source,), {"shape": type.shape, "axes": axes}))
        return body.new(body.xs, operand, type)

    def _products_before(self, body: _Body, outputs: list[Node]) -> list[Node]:
        """The outputs with products of a slice of xs and a const as slices of one product."""
        if self.length < LEAST_ROUNDS:
            return outputs
        slices = {value.inside: value.operand for value in body.xs}
        consts = {value.inside: value.operand for value in body.consts}
        given: dict[Node, Node] = {}
        for n in toposort(outputs, lambda n: n.operands):
            if not _is_product(n):
                continue
            x, w = n.operands
            (of_x, of_w), _ = n.param("dimension_numbers")
            swapped = w in slices and x in consts
            if swapped:
                x, w, of_x, of_w = w, x, of_w, of_x
            if x not in slices or w not in consts or n.type.size > MOST_GROWTH * x.type.size \
                    or self.length * n.type.nbytes > MOST_STACKED:
                continue
            numbers = ((tuple([a + 1 for a in of_x]), of_w), ((), ()))
            product = apply(n.primitive, (slices[x], consts[w]), {**dict(n.params), "dimension_numbers": numbers})
            free_x, free_w = x.type.rank - len(of_x), w.type.rank - len(of_w)
            inside = body.new(body.xs, product, product.type.with_shape(product.type.shape[1:]))
            if swapped and free_x and free_w:
                order = (*range(free_x, free_x + free_w), *range(free_x))
                inside = apply(PRIMITIVES["transpose"], (inside,), {"permutation": order})
            given[n] = inside
        return substitute(outputs, given) if given else outputs

    def _sums_after(self, body: _Body, outputs: list[Node], carry: int) -> dict[int, _Sum]:
        """The carries (by their places among the outputs) that only sum up products, and how to do that afterwards."""
        found: dict[int, _Sum] = {}
        if self.length < LEAST_ROUNDS:
            return found
        varying = _varying(body, outputs)
        for place, value in enumerate(body.carry[:carry]):
            summed = _summed(outputs[place], value.inside)
            if summed is None:
                continue
            others = [output for i, output in enumerate(outputs) if i != place]
            product = summed
            while "movement" in product.primitive.traits and len(product.operands) == 1:
                product = product.operands[0]
            if not _is_product(product) or value.inside in toposort([summed, *others], lambda n: n.operands) \
                    or not all(operand in varying for operand in product.operands):
                continue
            entry = _Sum(value.operand, summed, product)
            new = [source.type.nbytes for source in entry.sources if entry.stacks(source, body)]
            if sum(new) < 2 * value.inside.type.nbytes and self.length * sum(new) <= MOST_STACKED:
                found[place] = entry
        return found

    def _finished(self, body: _Body, outputs: list[Node], carry: int) -> list[Node]:
        """The nodes of the results of the new scan."""
        if not outputs:
            return []
        read = set(toposort(outputs, lambda n: n.operands))
        consts = [value for value in body.consts if value.inside in read]
        xs = [value for value in body.xs if value.inside in read]
        inputs = [*consts, *body.carry, *xs]
        numbered: dict[Node, Node] = {value.inside: input_node(i, value.inside.type) for i, value in enumerate(inputs)}
        program = make_program(tuple([value.inside.type for value in inputs]), tuple(substitute(outputs, numbered)))
        operands = tuple([value.operand for value in inputs])
        params = {"program": program, "consts": len(consts), "carry": carry, "length": self.length,
                  "reverse": self.node.param("reverse")}
        made = apply(self.node.primitive, operands, params)
        return [result_node(made, number) for number in range(len(outputs))]


@dataclass(frozen=True, slots=True)
class _Sum:
    """A carry that starts as `first` and to which every iteration adds `summed`, a product or one with its axes
    moved.
    """
    first: Node
    summed: Node
    product: Node

    @property
    def sources(self) -> tuple[Node, ...]:
        return self.product.operands

    def stacks(self, source: Node, body: _Body) -> bool:
        """Whether an operand of the product has to be stacked by the loop."""
        return all(value.inside is not source for value in body.xs)

    def outside(self, whole: dict[Node, Node]) -> Node:
        """The sum over all iterations, from the operands of all of them."""
        (left, right), _ = self.product.param("dimension_numbers")
        numbers = (((0, *[a + 1 for a in left]), (0, *[a + 1 for a in right])), ((), ()))
        operands = tuple([whole[source] for source in self.sources])
        product = apply(self.product.primitive, operands, {**dict(self.product.params), "dimension_numbers": numbers})
        (moved,) = substitute([self.summed], {self.product: product})
        return apply(PRIMITIVES["add"], (self.first, moved), {})


def _summed(output: Node, before: Node) -> Node | None:
    """What an iteration adds to a carry; None if it does something else."""
    if output.primitive.name != "add" or before not in output.operands:
        return None
    first, second = output.operands
    return second if first is before else first


def _is_product(n: Node) -> bool:
    """A matrix product without batch dimensions, of some size."""
    if n.primitive.name != "dot_general":
        return False
    (left, _), (batch, _) = n.param("dimension_numbers")
    if batch:
        return False
    contracted = 1
    for a in left:
        contracted *= n.operands[0].type.shape[a]
    return contracted * n.type.size >= LEAST_PRODUCT


def _varying(body: _Body, outputs: list[Node]) -> set[Node]:
    """The nodes that differ between iterations."""
    found = {value.inside for value in (*body.carry, *body.xs)}
    for n in toposort(outputs, lambda n: n.operands):
        if any(operand in found for operand in n.operands):
            found.add(n)
    return found


def _hoisted(body: _Body, outputs: list[Node]) -> list[Node]:
    """The outputs with what depends on consts alone, and is no mere movement of elements, as further consts."""
    outside = {value.inside: value.operand for value in body.consts}
    fixed: dict[Node, bool] = {}
    order = toposort(outputs, lambda n: n.operands)
    for n in order:
        fixed[n] = n in outside if n.primitive is INPUT else bool(n.operands) and all(
            fixed[operand] or _is_constant(operand) for operand in n.operands) and any(
            fixed[operand] for operand in n.operands)
    wanted: dict[Node, None] = {}
    stack = [operand for n in order if not fixed[n] for operand in n.operands if fixed[operand]]
    stack += [output for output in outputs if fixed[output]]
    while stack:
        n = stack.pop()
        if n.primitive is INPUT or n in wanted:
            continue
        if n.primitive.traits & _CHEAP or not isinstance(n.type, Type) or n.primitive is RESULT or _grows(n):
            stack += [operand for operand in n.operands if fixed[operand]]
        else:
            wanted[n] = None
    if not wanted:
        return outputs
    sources = substitute(list(wanted), outside)
    given = {n: body.new(body.consts, source, n.type) for n, source in zip(wanted, sources, strict=True)}
    return substitute(outputs, given)


def _is_constant(n: Node) -> bool:
    return n.primitive.name in ("full", "iota")


def _grows(n: Node) -> bool:
    """Whether a value is larger than what it is computed from, and so better computed in each iteration."""
    return n.type.size > max([operand.type.size for operand in n.operands if not _is_constant(operand)], default=0)

"""Rewriting of Programs by tables of (pattern, replacement, name), without recursion over the program.

    pattern ::= Pattern(primitive, pattern...)      a node of the primitive with this name (or with this "trait:...")
              | Constant(condition)                 a `full` node whose literal satisfies the condition
              | "name"                              any node; the same name twice means the same node

A rule's replacement is a function of the matched node and the captured nodes; it answers the new node, or None where
the rule does not apply after all. Results are rewritten again until no rule matches, operands first; every match can
be recorded. Time is linear in the number of nodes, old and new.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CompilationError
from .program import Node, Program, node as make_node, program as make_program

MAX_REWRITES = 200   # of one node: a table that needs more goes round in circles


@dataclass(frozen=True, slots=True)
class Constant:
    """Matches a `full` node by its value."""
    condition: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Matches a node by its primitive and operands. `operands` None: any; `name` captures the node."""
    primitive: str
    operands: tuple[Pattern | Constant | str, ...] | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table of rewrites."""
    name: str
    pattern: Pattern
    replace: Callable[..., Node | None]


@dataclass(frozen=True, slots=True)
class Match:
    """A rewrite that took place."""
    rule: str
    before: Node
    after: Node


def match(pattern: Pattern | Constant | str, node: Node, captured: dict[str, Node]) -> bool:
    """Whether `node` has the form of `pattern`; adds to `captured`."""
    if isinstance(pattern, str):
        return captured.setdefault(pattern, node) is node
    if isinstance(pattern, Constant):
        return node.primitive.name == "full" and pattern.condition(node.param("value").value)
    if pattern.primitive.startswith("trait:"):
        if pattern.primitive[6:] not in node.primitive.traits:
            return False
    elif pattern.primitive != node.primitive.name:
        return False
    if pattern.name and captured.setdefault(pattern.name, node) is not node:
        return False
    if pattern.operands is None:
        return True
    return len(pattern.operands) == len(node.operands) and all(
        [match(inner, operand, captured) for inner, operand in zip(pattern.operands, node.operands, strict=True)])


class Rewriter:
    """Applies a table of rules to programs."""

    __slots__ = ("_by_name", "_by_trait", "_for_primitive")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_name: dict[str, list[Rule]] = {}
        self._by_trait: dict[str, list[Rule]] = {}
        for rule in rules:
            root = rule.pattern.primitive
            table = self._by_trait if root.startswith("trait:") else self._by_name
            table.setdefault(root.removeprefix("trait:"), []).append(rule)
        self._for_primitive: dict[Any, tuple[Rule, ...]] = {}

    def _rules(self, node: Node) -> tuple[Rule, ...]:
        found = self._for_primitive.get(node.primitive)
        if found is None:
            by_trait = [rule for trait in sorted(node.primitive.traits) for rule in self._by_trait.get(trait, ())]
            found = self._for_primitive[node.primitive] = (*self._by_name.get(node.primitive.name, ()), *by_trait)
        return found

    def once(self, node: Node) -> tuple[Rule, Node] | None:
        """The first rule that changes `node`, and what it makes of it."""
        for rule in self._rules(node):
            captured: dict[str, Node] = {}
            if match(rule.pattern, node, captured):
                result = rule.replace(node, **captured)
                if result is not None and result is not node:
                    return rule, result
        return None

    def __call__(self, program: Program, record: Callable[[Match], None] | None = None) -> Program:
        """The program rewritten until no rule matches."""
        done: dict[Node, Node] = {}
        forward: dict[Node, Node] = {}       # node -> what it was replaced by, still to be rewritten itself
        rewrites: dict[Node, int] = {}
        for output in program.outputs:
            self._walk(output, done, forward, rewrites, record)
        outputs = tuple([done[output] for output in program.outputs])
        return program if outputs == program.outputs else make_program(program.input_types, outputs)

    def _walk(self, root: Node, done: dict[Node, Node], forward: dict[Node, Node], rewrites: dict[Node, int],
              record: Callable[[Match], None] | None) -> None:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            replaced = forward.get(node)
            if replaced is not None:
                if replaced in done:
                    done[node] = done[replaced]
                    stack.pop()
                else:
                    stack.append(replaced)
                continue
            missing = [operand for operand in node.operands if operand not in done]
            if missing:
                stack.extend(missing)
                continue
            rebuilt = _with_operands(node, tuple([done[operand] for operand in node.operands]))
            if rebuilt is not node:
                forward[node] = rebuilt
                rewrites[rebuilt] = max(rewrites.get(rebuilt, 0), rewrites.get(node, 0))
                continue
            changed = self.once(node)
            if changed is None:
                done[node] = node
                stack.pop()
                continue
            rule, result = changed
            count = rewrites.get(node, 0) + 1
            if count > MAX_REWRITES or _leads_to(result, node, forward):
                raise CompilationError(f"rewriting does not end: rule {rule.name!r} on {node}")
            rewrites[result] = max(rewrites.get(result, 0), count)
            if record is not None:
                record(Match(rule.name, node, result))
            forward[node] = result


def _leads_to(start: Node, goal: Node, forward: dict[Node, Node]) -> bool:
    """Whether following replacements from `start` arrives at `goal`."""
    current: Node | None = start
    while current is not None:
        if current is goal:
            return True
        current = forward.get(current)
    return False


def _with_operands(node: Node, operands: tuple[Node, ...]) -> Node:
    if operands == node.operands:
        return node
    return make_node(node.primitive, operands, dict(node.params), node.type)

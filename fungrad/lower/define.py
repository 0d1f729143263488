"""Program -> index expressions: asks each node's primitive for the element of its result.

A value is either *materialised* (it has a buffer, and reading it is a load) or *inlined* (reading it asks its
primitive, whose operands are read in turn). Who is materialised is decided by `fuse`; this file knows no operation and
no policy.
"""
from __future__ import annotations

from typing import Any

from ..errors import CompilationError
from ..ir.expr import FALSE, TRUE, Axis, Buffer, Expr, Reader, axis as axis_expr, constant, load
from ..ir.primitive import Refused
from ..ir.program import INPUT, RESULT, Node
from ..ir.types import Type
from .index import Simplifier


class Definer:
    """Gives the elements of a program's values as expressions over loads of `buffers`."""

    __slots__ = ("simplify", "buffers", "_elements", "_readers")

    def __init__(self, simplify: Simplifier) -> None:
        self.simplify = simplify
        self.buffers: dict[Node, Buffer] = {}
        self._elements: dict[tuple[Node, tuple[Expr, ...], Expr], Any] = {}
        self._readers: dict[Node, Reader] = {}

    def element(self, node: Node, index: tuple[Expr, ...], valid: Expr = TRUE) -> Expr:
        """The element of `node` at `index`, looked at only where `valid` holds."""
        index = self.simplify.all(index)
        valid = self.simplify(valid)
        if valid is FALSE or not node.type.size:
            return constant(0, node.type.dtype)
        key = (node, index, valid)
        found = self._elements.get(key)
        if found is None:
            buffer = self.buffers.get(node)
            found = self._inline(node, index, valid) if buffer is None else load(buffer, index, valid)
            self._elements[key] = found
        return found

    def value(self, node: Node, axes: tuple[Axis, ...]) -> Expr:
        """The element of `node` over `axes`, by its primitive even if the node is materialised; simplified."""
        return self.simplify.written_out(self._inline(node, tuple([axis_expr(a) for a in axes]), TRUE))

    def forget(self) -> None:
        """Drop what was found so far, because another value is materialised now."""
        self._elements.clear()

    def _inline(self, node: Node, index: tuple[Expr, ...], valid: Expr) -> Expr:
        if node.primitive is RESULT:
            return self._results(node.operands[0], index, valid)[node.param("number")]
        return self._lower(node, index, valid)

    def _results(self, node: Node, index: tuple[Expr, ...], valid: Expr) -> tuple[Expr, ...]:
        key = (node, index, valid)
        found = self._elements.get(key)
        if found is None:
            found = self._elements[key] = self._lower(node, index, valid)
        return found

    def _lower(self, node: Node, index: tuple[Expr, ...], valid: Expr) -> Any:
        primitive = node.primitive
        if primitive is INPUT:
            raise CompilationError(f"internal error: {node} has no buffer")
        if isinstance(primitive.lower, Refused):
            raise CompilationError(f"{primitive.name} cannot be compiled: {primitive.lower.reason}")
        readers = [self._reader(operand) for operand in node.operands]
        return primitive.lower(readers, index, valid, node.type, **dict(node.params))

    def _reader(self, node: Node) -> Reader:
        reader = self._readers.get(node)
        if reader is None:
            def read(index: tuple[Expr, ...], valid: Expr) -> Expr:
                return self.element(node, index, valid)
            reader = self._readers[node] = Reader(node.type, read)
        return reader


def axes_for(type: Type, prefix: str = "i") -> tuple[Axis, ...]:
    """New axes, one for each dimension of a type."""
    return tuple([Axis(f"{prefix}{number}", extent) for number, extent in enumerate(type.shape)])

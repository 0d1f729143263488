"""The backward pass: from cotangents of a linear program's outputs to cotangents of its linear inputs."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..ir.primitive import Linear, Zero
from ..ir.program import INPUT, RESULT, Node, Program
from ..ops.rules import add_tangents, instantiate
from ..trace import at_location, bind, trace_program


def backward_pass(program: Program, linear: Sequence[bool], values: Sequence[Any], cotangents: Sequence[Any],
                  locations: Mapping[Node, str] | None = None) -> list[Any]:
    """Cotangents of the inputs marked linear (Zero where nothing flows), under the current trace.

    values: the other inputs' values, in order. cotangents: one an output, entries may be Zero.
    """
    order = program.nodes()
    is_linear, known = _forward(program, order, linear, values)
    gathered: dict[Node, Any] = {}

    def accumulate(node: Node, cotangent: Any) -> None:
        if cotangent is None or type(cotangent) is Zero or node not in is_linear:
            return
        gathered[node] = add_tangents(gathered[node], cotangent) if node in gathered else cotangent

    for output, cotangent in zip(program.outputs, cotangents, strict=True):
        accumulate(output, cotangent)
    of_results: dict[Node, list[Any]] = {}
    for node in reversed(order):
        if node not in is_linear or node.primitive is INPUT:
            continue
        if node.primitive is RESULT:
            source = node.operands[0]
            if node in gathered:
                entries = of_results.setdefault(source, [Zero(type) for type in source.type])
                entries[node.param("number")] = gathered.pop(node)
            continue
        if node.primitive.multiple_results:
            cotangent = of_results.pop(node, None)
        else:
            cotangent = gathered.pop(node, None)
        if cotangent is None:
            continue
        operands = [Linear(operand.type) if operand in is_linear else known[operand] for operand in node.operands]
        with at_location(locations.get(node) if locations else None):
            results = node.primitive.transpose(tuple(cotangent) if isinstance(cotangent, list) else cotangent, operands,
                                               **dict(node.params))
            for operand, result in zip(node.operands, results, strict=True):
                accumulate(operand, result)
    inputs = [node for node, flag in zip(program.inputs, linear, strict=True) if flag]
    return [gathered.get(node, Zero(node.type)) for node in inputs]


def _forward(program: Program, order: Sequence[Node], linear: Sequence[bool],
             values: Sequence[Any]) -> tuple[set[Node], dict[Node, Any]]:
    """Which nodes depend on the linear inputs, and the values of all others."""
    given = iter(values)
    is_linear: set[Node] = set()
    known: dict[Node, Any] = {}
    for node, flag in zip(program.inputs, linear, strict=True):
        if flag:
            is_linear.add(node)
        else:
            known[node] = next(given)
    for node in order:
        if node.primitive is INPUT:
            continue
        if any([operand in is_linear for operand in node.operands]):
            is_linear.add(node)
        elif node.primitive is RESULT:
            known[node] = known[node.operands[0]][node.param("number")]
        else:
            known[node] = bind(node.primitive, *[known[operand] for operand in node.operands], **dict(node.params))
    return is_linear, known


@lru_cache(maxsize=1024)
def transpose_program(program: Program, linear: tuple[bool, ...],
                      nonzero: tuple[bool, ...], whole: bool = False) -> tuple[Program, tuple[bool, ...]]:
    """The transposed program with respect to the inputs marked linear.

    [other inputs..., cotangents of the outputs marked nonzero...] -> [cotangents of the linear inputs that are not
    Zero...], and which linear inputs those are (all of them if `whole`).
    """
    others = [type for type, flag in zip(program.input_types, linear, strict=True) if not flag]
    out_types = program.output_types
    kept: list[bool] = []

    def backward(*values: Any) -> list[Any]:
        given = iter(values[len(others):])
        cotangents = [next(given) if flag else Zero(type) for type, flag in zip(out_types, nonzero, strict=True)]
        results = backward_pass(program, linear, values[:len(others)], cotangents)
        if whole:
            results = [instantiate(result) for result in results]
        kept[:] = [type(result) is not Zero for result in results]
        return [result for result in results if type(result) is not Zero]
    traced = trace_program(backward, (*others, *(t for t, flag in zip(out_types, nonzero, strict=True) if flag)))
    return traced.program, tuple(kept)

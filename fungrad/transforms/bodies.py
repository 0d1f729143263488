"""What loops and choices share: programs as bodies, their inputs and outputs in groups, and fixpoints over the
carry.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ..dtypes import promote
from ..ir.primitive import Zero
from ..ir.program import INPUT, RESULT, Node, Program, program as make_program
from ..ir.types import Type
from ..ops.linear import convert
from ..trace import bind, evaluate, trace_program

Mask = tuple[bool, ...]


def groups(items: Sequence[Any], *sizes: int) -> list[list[Any]]:
    """Cut a sequence into parts of these sizes; what is left is the last part."""
    bounds = [0, *accumulate(sizes)]
    parts = [list(items[start:stop]) for start, stop in zip(bounds, bounds[1:], strict=False)]
    return [*parts, list(items[bounds[-1]:])]


@lru_cache(maxsize=1024)
def regrouped(
    program: Program,
    input_sizes: tuple[int, ...],
    input_order: tuple[int, ...],
    output_sizes: tuple[int, ...],
    output_order: tuple[int, ...],
) -> Program:
    """The program with groups of its inputs and of its outputs in another order.

    The sizes cut inputs (outputs) into groups as `groups` does; group k of the new ones is old group order[k].
    """
    def run(*values: Any) -> list[Any]:
        sizes = [len(part) for part in groups(program.input_types, *input_sizes)]
        given = groups(values, *[sizes[k] for k in input_order[:-1]])
        old: list[Any] = [value for k in range(len(sizes)) for value in given[input_order.index(k)]]
        parts = groups(evaluate(program, old), *output_sizes)
        return [value for k in output_order for value in parts[k]]
    types = groups(program.input_types, *input_sizes)
    return trace_program(run, [type for k in input_order for type in types[k]]).program


def fixpoint(step: Callable[[Mask], Mask], start: Mask) -> Mask:
    """The least mask above `start` that `step` (from a mask over the carry to that of its next value) keeps."""
    mask = start
    while True:
        grown = tuple([a or b for a, b in zip(mask, step(mask), strict=True)])
        if grown == mask:
            return mask
        mask = grown


def dependent(program: Program, inputs: Mask) -> Mask:
    """Which outputs depend on the marked inputs."""
    marked = {node for node, flag in zip(program.inputs, inputs, strict=True) if flag}
    for node in program.nodes():
        if node.primitive is not INPUT and any([operand in marked for operand in node.operands]):
            marked.add(node)
    return tuple([output in marked for output in program.outputs])


def nonzero(tangents: Sequence[Any]) -> Mask:
    return tuple([type(t) is not Zero for t in tangents])


def chosen(mask: Sequence[bool], items: Sequence[Any]) -> list[Any]:
    """The items whose mask is true."""
    return [item for flag, item in zip(mask, items, strict=True) if flag]


def with_zeros(types: Sequence[Type], mask: Sequence[bool], found: Sequence[Any]) -> list[Any]:
    """Tangents of all outputs from those of the marked ones."""
    given = iter(found)
    return [next(given) if flag else Zero(type) for flag, type in zip(mask, types, strict=True)]


def retyped(program: Program, types: Sequence[Type]) -> Program:
    """The program for inputs of other element types: operands that had one type are brought to a common one again.

    For weak scalars, of which it turns out only at the end of a loop's body that they are floats.
    """
    def run(*values: Any) -> list[Any]:
        at: dict[Node, Any] = dict(zip(program.inputs, values, strict=True))
        for node in program.nodes():
            if node in at:
                continue
            if node.primitive is RESULT:
                at[node] = at[node.operands[0]][node.param("number")]
                continue
            operands = [at[operand] for operand in node.operands]
            if any(x.type != operand.type for x, operand in zip(operands, node.operands, strict=True)):
                common = {old.type.dtype: promote(*[x.dtype for x, other in zip(operands, node.operands, strict=True)
                                                    if other.type.dtype == old.type.dtype]) for old in node.operands}
                operands = [convert(x, common[old.type.dtype]) for x, old in zip(operands, node.operands, strict=True)]
            at[node] = bind(node.primitive, *operands, **dict(node.params))
        return [at[output] for output in program.outputs]
    return trace_program(run, types).program


def with_outputs(program: Program, outputs: Sequence[Node]) -> Program:
    """A program over the same inputs with other outputs."""
    return make_program(program.input_types, tuple(outputs))

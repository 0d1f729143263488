"""The meaning of a Program: every node's NumPy reference, one after another. Slow and obvious."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import VerificationError
from .primitive import Refused
from .program import INPUT, RESULT, Node, Program
from .types import Type


def interpret(program: Program, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The outputs of `program` for these arrays, which must have exactly its input types.

    A reference whose result is not of its declared type is a VerificationError that names the node.
    """
    if len(arrays) != len(program.input_types):
        raise VerificationError(f"the program takes {len(program.input_types)} arrays, got {len(arrays)}")
    values: dict[Node, Any] = {}
    for node, given in zip(program.inputs, arrays, strict=True):
        array = np.asarray(given)
        if (array.shape, array.dtype) != (node.type.shape, node.type.dtype):
            raise VerificationError(f"input {node.param('number')} is {array.dtype.name}{list(array.shape)}, "
                                    f"the program takes {node.type}")
        values[node] = array
    for node in program.nodes():
        if node not in values:
            values[node] = evaluate_node(node, [values[operand] for operand in node.operands])
    return [values[output] for output in program.outputs]


def evaluate_node(node: Node, operands: Sequence[Any]) -> Any:
    """The value of one node; a tuple for a primitive with several results."""
    primitive = node.primitive
    if primitive is RESULT:
        return operands[0][node.param("number")]
    if primitive is INPUT:
        raise VerificationError(f"{node} is not an input of this program")
    if isinstance(primitive.reference, Refused):
        raise VerificationError(f"{node} has no reference: {primitive.reference.reason}")
    result = primitive.reference(*operands, **dict(node.params))
    if not primitive.multiple_results:
        return _typed(node, result, node.type)
    if len(result) != len(node.type):
        raise VerificationError(f"the reference of {node} gave {len(result)} results")
    return tuple(_typed(node, array, type) for array, type in zip(result, node.type, strict=True))


def _typed(node: Node, result: Any, type: Type) -> np.ndarray:
    array = np.asarray(result)
    if (array.shape, array.dtype) != (type.shape, type.dtype):
        raise VerificationError(f"the reference of {node} gave {array.dtype.name}{list(array.shape)}")
    return array

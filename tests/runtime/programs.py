"""Small programs for the tests of the runtime."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fungrad.ops.elementwise
import fungrad.ops.reduce  # noqa: F401  (declares the primitives)
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ir.program import Node, Program, apply, input_node, program
from fungrad.ir.types import Type, array_type

FLOAT = np.dtype("float32")


def of(name: str, *operands: Node, **params: Any) -> Node:
    """A node of the primitive of this name."""
    return apply(PRIMITIVES[name], operands, params)


def make(types: Sequence[Type], body: Callable[..., Sequence[Node]]) -> Program:
    """The program with these input types whose outputs `body` computes from the input nodes."""
    return program(tuple(types), tuple(body(*[input_node(number, type) for number, type in enumerate(types)])))


def vector(size: int, dtype: Any = FLOAT) -> Type:
    return array_type((size,), np.dtype(dtype))

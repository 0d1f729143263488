"""Programs: the grammar of stage 1.

    Program ::= input types, outputs (nodes)
    node    ::= input{number}                               an input of the program
              | PRIMITIVE{params}(node...)                  one of `fungrad/ops`
              | result{number}(node)                        one result of a primitive with several

Nodes are interned: equal nodes are one object, across programs, so a Program is its own cache key and common
subexpressions are shared from the start. Constants are `full` nodes (a Literal); arrays that a function closes over
are inputs (`trace.py` hands them over beside the Program).
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..util import toposort
from .intern import InternTable
from .primitive import Primitive, Refused
from .types import Literal, Type, literal

Params = tuple[tuple[str, Any], ...]


def _structural(reason: str) -> Refused:
    return Refused(f"{reason} is part of every program and has no rule of its own")


def _structural_primitive(name: str) -> Primitive:
    rule = _structural(name)
    return Primitive(name, rule, rule, rule, rule, rule, rule)


INPUT = _structural_primitive("input")
RESULT = _structural_primitive("result")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Node:
    """One operation of a Program. `type` is a tuple of types for a primitive with several results."""
    primitive: Primitive
    operands: tuple[Node, ...]
    params: Params
    type: Any

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.primitive.name}{{{inside}}}: {self.type}"

    def param(self, name: str) -> Any:
        """The value of one parameter."""
        for key, value in self.params:
            if key == name:
                return value
        raise KeyError(name)


_nodes: InternTable[Node] = InternTable()


def _key(value: Any) -> Any:
    """A key in which True, 1 and 1.0 differ, as do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, float):
        return (float, value.hex())
    return (bool, value) if isinstance(value, bool) else value


def node(primitive: Primitive, operands: tuple[Node, ...], params: dict[str, Any], type: Any) -> Node:
    """The node with these parts."""
    items: Params = tuple(sorted(params.items())) if params else ()
    return _nodes.get((primitive, operands, tuple((name, _key(value)) for name, value in items), type),
                      lambda: Node(primitive, operands, items, type))


def input_node(number: int, type: Type) -> Node:
    return node(INPUT, (), {"number": number}, type)


def result_node(of: Node, number: int) -> Node:
    return node(RESULT, (of,), {"number": number}, of.type[number])


def apply(primitive: Primitive, operands: tuple[Node, ...], params: dict[str, Any]) -> Node:
    """A node for `primitive`, typed by its type rule."""
    return node(primitive, operands, params, primitive.type(*[operand.type for operand in operands], **params))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """A pure function from arrays to arrays. Interned: equal programs are one object."""
    input_types: tuple[Type, ...]
    outputs: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(input_node(number, type) for number, type in enumerate(self.input_types))

    @property
    def output_types(self) -> tuple[Type, ...]:
        return tuple(output.type for output in self.outputs)

    def nodes(self) -> list[Node]:
        """Every node that the outputs need, operands first."""
        return toposort(self.outputs, lambda n: n.operands)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes())

    def __str__(self) -> str:
        return program_text(self)


def program_text(p: Program) -> str:
    """The program as text, one node a line; `ir/text.py` parses it back.

        program (a: float32[3]) {
          b: float32[3] = sin(a)
          return b
        }
    """
    names = {id(n): f"v{number}" for number, n in enumerate(p.inputs)}
    lines = []
    for n in p.nodes():
        if n.primitive is INPUT:
            continue
        names[id(n)] = f"v{len(names)}"
        inside = ", ".join(f"{key}={param_text(value)}" for key, value in n.params)
        types = ", ".join(map(str, n.type)) if isinstance(n.type, tuple) else str(n.type)
        operands = ", ".join(names[id(operand)] for operand in n.operands)
        lines.append(f"  {names[id(n)]}: {types} = {n.primitive.name}{{{inside}}}({operands})")
    header = ", ".join(f"v{number}: {type}" for number, type in enumerate(p.input_types))
    result = ", ".join(names[id(output)] for output in p.outputs)
    return "\n".join([f"program ({header}) {{", *lines, f"  return {result}", "}"])


def param_text(value: Any) -> str:
    """A parameter as text: programs nested with deeper indentation, dtypes by name."""
    if isinstance(value, Program):
        return program_text(value).replace("\n", "\n    ")
    if isinstance(value, tuple) and type(value) is not tuple:   # a NamedTuple
        fields = zip(value._fields, value, strict=True)  # type: ignore[attr-defined]
        return f"{type(value).__name__}({', '.join(f'{name}={param_text(item)}' for name, item in fields)})"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(param_text, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, Literal):
        return literal_text(value)
    return str(value) if not isinstance(value, str) else repr(value)


def literal_text(value: Literal) -> str:
    """A literal with its type, such as `float32(0.5)`; by its bits if it is not the usual NaN."""
    number = value.value
    if number != number:
        number = float("nan")   # without the payload that a NaN from the bits would carry
    if literal(number, value.dtype) == value:
        return f"{value.dtype.name}({number!r})"
    return f"{value.dtype.name}(0x{value.bits[::-1].hex()})"


_programs: InternTable[Program] = InternTable()


def program(input_types: tuple[Type, ...], outputs: tuple[Node, ...]) -> Program:
    """The Program with these inputs and outputs."""
    return _programs.get((input_types, outputs), lambda: Program(input_types, outputs))

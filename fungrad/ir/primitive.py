"""Primitive: the declaration of a stage-1 operation, with all its rules side by side.

    type(*types, **params) -> Type | tuple[Type, ...]
        Checks the operands (ShapeError, DTypeError) and gives the result's type.
    reference(*arrays, **params) -> ndarray | tuple
        The meaning, in NumPy. Slow and obvious. Results have exactly the declared types.
    jvp(primals, tangents, **params) -> (result, tangent)
        Operands as values; a tangent is a value of the primal's type or a `Zero`. Several results: tuples.
    transpose(cotangent, operands, **params) -> tuple[cotangent | None, ...]
        One entry an operand. Linear operands come as `Linear(type)`, others as values (they are None in the answer).
        Several results: `cotangent` is a tuple, entries may be `Zero`.
    batch(size, operands, axes, **params) -> (result, axis)
        `axes[i]` is the axis of operand i that is mapped, or None. Several results: tuples of results and of axes.
    lower(readers, index, valid, type, **params) -> Expr
        The element of the result at `index`, where `valid` holds. Several results: a tuple of Exprs (one index serves
        all, so
        the results must have one shape). An op with loops of its own: `lower(types, type, **params) -> Fragment`,
        trait "loops".

    expand(**params) -> Program
        For the trait "call": the Program for which the operation stands, where that is not the parameter `program`.
    linearize(trace, primals, tangents, **params) -> (result, tangent)
        Instead of `jvp`, where what forward mode does is not what should be saved for the backward pass.
    collect(size, operands, axes, **params) -> (result, axis)
        For collectives: `batch` over the axis whose name is the parameter `axis_name`.

A rule that does not exist is `Refused("reason")`; the reason is the error's text.
Data are positional, parameters keywords. Parameters are hashable: ints, strings, dtypes, tuples of them, Literals,
Programs.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import RefusedError
from .types import Type


@dataclass(frozen=True, slots=True)
class Zero:
    """The tangent or cotangent that is known to be zero; never computed with."""
    type: Type


@dataclass(frozen=True, slots=True)
class Linear:
    """Stands for the operand with respect to which a transpose rule transposes."""
    type: Type


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule that a primitive does not have, and why."""
    reason: str

    def __call__(self, *args: Any, **params: Any) -> Any:
        raise RefusedError(self.reason)


Rule = Callable[..., Any]

# What passes may ask of a primitive instead of its name.
TRAITS = frozenset({
    "elementwise",   # every result element depends on the same element of each operand
    "movement",      # the result's elements are the operand's, elsewhere
    "linear",        # linear in all its operands together
    "reduction",     # reduces axes given by the parameter `axes`
    "contraction",   # a sum of products of two operands
    "creation",      # no operands
    "loops",         # lowers to a Fragment
    "cheap",         # may be recomputed in every consumer
    "call",          # stands for a Program (`expansion`), inlined before lowering
    "control",       # runs Programs (its parameters) of which each is compiled by itself: loops and choices
    "barrier",       # not merged, not simplified, not fused across
})


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """One operation of stage 1. See the module's text for the rules' signatures."""
    name: str
    type: Rule
    reference: Rule | Refused
    jvp: Rule | Refused
    transpose: Rule | Refused
    batch: Rule | Refused
    lower: Rule | Refused
    traits: frozenset[str] = frozenset()
    doc: str = ""
    multiple_results: bool = False
    linearize: Rule | None = None
    expand: Rule | None = None
    collect: Rule | None = None

    def __repr__(self) -> str:
        return self.name

    def expansion(self, params: dict[str, Any]) -> Any:
        """The Program for which an operation with trait "call" stands: its parameter `program`, unless `expand` gives
        it.
        """
        return params["program"] if self.expand is None else self.expand(**params)


PRIMITIVES: dict[str, Primitive] = {}
PARAMETER_TYPES: dict[str, type] = {}


def parameter_type(cls: type) -> type:
    """Register a NamedTuple that is used as a parameter, so that a program's text can be parsed back."""
    PARAMETER_TYPES[cls.__name__] = cls
    return cls


def declare(primitive: Primitive) -> Primitive:
    """Register a primitive under its name; a name is declared once."""
    if primitive.name in PRIMITIVES:
        raise ValueError(f"primitive {primitive.name!r} is declared twice")
    unknown = primitive.traits - TRAITS
    if unknown:
        raise ValueError(f"primitive {primitive.name!r} has unknown traits {sorted(unknown)}")
    PRIMITIVES[primitive.name] = primitive
    return primitive

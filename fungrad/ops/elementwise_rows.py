"""How a row of the elementwise table becomes a primitive and its function.

A row says which element types it takes, its meaning in NumPy, its derivative and its operation in `ir.expr`. All rows
share the same type, batch and lowering bodies. Operands have equal shapes and element types; a Python scalar operand
stands for an array of the other operand's type.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..dtypes import is_float, is_integer
from ..errors import DTypeError
from ..ir.expr import BOOL, Expr, operation
from ..ir.primitive import PRIMITIVES, Primitive, Refused, Rule, Zero, declare
from ..ir.types import Type, array_type
from ..trace import bind
from .create import full_like
from .rules import NOT_LINEAR, elementwise_batch, elementwise_lower, is_zero, same_type, zero_tangent

# What a row takes: a test for an element type, and the words for an error.
Takes = tuple[Callable[[np.dtype], bool], str]
FLOAT: Takes = (is_float, "floating types. Write x.astype('float32') for the operand")
INTEGER: Takes = (is_integer, "integers. Write x.astype('int32') for the operand")
NUMBER: Takes = (lambda dtype: dtype != BOOL, "integers and floating types. Write x.astype('int32') for the operand")
BITS: Takes = (lambda dtype: not is_float(dtype), "bool and integers. Write x.astype('int32') or x != 0")
ANY: Takes = (lambda dtype: True, "every type")

Scalar = (bool, int, float, np.generic)


def check(name: str, takes: Takes, dtype: np.dtype) -> None:
    """DTypeError, naming what to write, unless a row takes `dtype`."""
    if not takes[0](dtype):
        raise DTypeError(f"{name} does not take {dtype.name}: it takes {takes[1]}.")


def row_type(name: str, takes: Takes, result: np.dtype | None = None) -> Rule:
    """The type rule of a row: operands of one type; the same type, or `result`, for the answer."""
    @cache
    def answer(x: Type) -> Type:
        check(name, takes, x.dtype)
        return x if result is None else array_type(x.shape, result)

    def type_rule(*types: Type, **params: Any) -> Type:
        return answer(types[0] if len(types) == 1 else same_type(name, *types))
    return type_rule


def rounded(function: Callable[..., Any], result: np.dtype | None = None) -> Rule:
    """A reference from a NumPy function: floats narrower than 64 bits are computed in float64 and rounded once."""
    def reference(*arrays: np.ndarray, **params: Any) -> np.ndarray:
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            wide = [a.astype(np.float64) if is_float(dtype) else a for a in arrays]
            return np.asarray(function(*wide, **params)).astype(dtype if result is None else result)
    return reference


def scalar_like(name: str, value: Any, other: Any) -> Any:
    """An array of `other`'s type from a Python scalar; DTypeError for a float beside integers."""
    if isinstance(other, Scalar):
        raise TypeError(f"{name}: one operand must be an array, got two scalars: {value!r} and {other!r}")
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float) and not is_float(other.dtype):
        raise DTypeError(f"{name}: the float {item} does not fit an array of {other.dtype.name}. "
                         f"Write x.astype('float32') for the array.")
    return full_like(other, item)


Derivative = Callable[[Any, Any], Any]


def _unary_jvp(name: str, derivative: Derivative | None, over: Derivative | None) -> Rule:
    """y, and tangent * derivative(x, y) or tangent / over(x, y)."""
    if derivative is None and over is None:
        return zero_tangent(name)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (tangent,) = primals, tangents
        y = bind(PRIMITIVES[name], x)
        if is_zero(tangent) or not is_float(x.dtype):
            return y, Zero(y.type)
        if derivative is not None:
            return y, bind(PRIMITIVES["mul"], tangent, derivative(x, y))
        assert over is not None
        return y, bind(PRIMITIVES["div"], tangent, over(x, y))
    return jvp


def _traits(*traits: str, cheap: bool) -> frozenset[str]:
    return frozenset({"elementwise", *traits} | ({"cheap"} if cheap else set()))


def unary(name: str, takes: Takes, reference: Callable[..., Any], doc: str, *, derivative: Derivative | None = None,
          over: Derivative | None = None, jvp: Rule | None = None, transpose: Rule | Refused = NOT_LINEAR,
          lower: Callable[[Expr], Expr] | None = None, result: np.dtype | None = None, cheap: bool = False,
          traits: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Declare a primitive of one operand and answer its function.

    takes: the element types. reference: its meaning, a NumPy function (given float64 for every floating type).
    derivative: dy/dx as derivative(x, y), or over: its inverse, where a division is the better formula; neither:
    locally constant. jvp: the whole rule instead. lower: the expression; by default the operation of the row's name.
    result: the result's element type, where it is not the operand's.
    """
    primitive = declare(Primitive(
        name, row_type(name, takes, result), rounded(reference, result), jvp or _unary_jvp(name, derivative, over),
        transpose, elementwise_batch(name),
        elementwise_lower(lower or (lambda x: operation(name, x))), _traits(*traits, cheap=cheap), doc))

    def apply(x: Any) -> Any:
        return bind(primitive, x)
    return _named(apply, name, doc)


def binary(name: str, takes: Takes, reference: Callable[..., Any], doc: str, *, jvp: Rule | None = None,
           transpose: Rule | Refused = NOT_LINEAR, lower: Callable[[Expr, Expr], Expr] | None = None,
           result: np.dtype | None = None, cheap: bool = False,
           traits: tuple[str, ...] = ()) -> Callable[[Any, Any], Any]:
    """Declare a primitive of two operands of one type and answer its function, which also takes one Python scalar.

    jvp: the rule of a differentiable row; without it the result is locally constant. The rest as in `unary`.
    """
    primitive = declare(Primitive(
        name, row_type(name, takes, result), rounded(reference, result), jvp or zero_tangent(name), transpose,
        elementwise_batch(name), elementwise_lower(lower or (lambda x, y: operation(name, x, y))),
        _traits(*traits, cheap=cheap), doc))

    def apply(x: Any, y: Any) -> Any:
        if isinstance(y, Scalar):
            return bind(primitive, x, scalar_like(name, y, x))
        if isinstance(x, Scalar):
            return bind(primitive, scalar_like(name, x, y), y)
        return bind(primitive, x, y)
    return _named(apply, name, doc)


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def differentiable(name: str, tangent_rule: Callable[..., Any]) -> Rule:
    """The jvp of an operation of two operands: `tangent_rule(x, y, z, tx, ty)`, z the result, for floating operands.

    A tangent that is a symbolic zero comes as None; both are never None.
    """
    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        x, y = primals
        z = bind(PRIMITIVES[name], x, y)
        tx, ty = (None if is_zero(tangent) else tangent for tangent in tangents)
        if (tx is None and ty is None) or not is_float(x.dtype):
            return z, Zero(z.type)
        return z, tangent_rule(x, y, z, tx, ty)
    return jvp


def by_parts(name: str, along_x: Callable[..., Any], along_y: Callable[..., Any]) -> Rule:
    """The jvp tx * along_x(x, y, z) + ty * along_y(x, y, z), z the result."""
    def tangent_rule(x: Any, y: Any, z: Any, tx: Any, ty: Any) -> Any:
        multiply, parts = PRIMITIVES["mul"], []
        if tx is not None:
            parts.append(bind(multiply, tx, along_x(x, y, z)))
        if ty is not None:
            parts.append(bind(multiply, ty, along_y(x, y, z)))
        return parts[0] if len(parts) == 1 else bind(PRIMITIVES["add"], *parts)
    return differentiable(name, tangent_rule)

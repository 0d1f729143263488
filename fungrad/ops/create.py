"""Primitives without operands: full, iota."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.expr import Expr, Reader, cast, constant
from ..ir.primitive import Primitive, Refused, declare
from ..ir.types import Literal, Type, array_type, literal
from ..trace import bind

_NO_OPERAND = Refused("an operation without operands is never differentiated, transposed or batched")


def _lower_full(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, result: Type, /, *, type: Type,
                value: Literal) -> Expr:
    return constant(value, type.dtype)


full_p = declare(Primitive(
    "full",
    type=lambda *, type, value: type,
    reference=lambda *, type, value: np.full(type.shape, np.frombuffer(value.bits, type.dtype)[0], type.dtype),
    jvp=_NO_OPERAND, transpose=_NO_OPERAND, batch=_NO_OPERAND,
    lower=_lower_full,
    traits=frozenset({"creation", "cheap"}),
    doc="An array whose elements all equal one literal.",
))


def full(shape: tuple[int, ...], value: bool | int | float, dtype: np.dtype) -> Any:
    """An array of `shape` and `dtype`, every element `value`."""
    return bind(full_p, type=array_type(shape, dtype), value=literal(value, dtype))


def full_like(x: Any, value: bool | int | float) -> Any:
    """An array of x's type, every element `value`."""
    return bind(full_p, type=x.type, value=literal(value, x.dtype))


def zeros(type: Type) -> Any:
    return bind(full_p, type=type, value=literal(0, type.dtype))


def _reference_iota(*, type: Type, axis: int) -> np.ndarray:
    shape = [1] * type.rank
    shape[axis] = -1
    return np.broadcast_to(np.arange(type.shape[axis]).astype(type.dtype).reshape(shape), type.shape)


def _lower_iota(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, result: Type, /, *, type: Type,
                axis: int) -> Expr:
    return cast(index[axis], type.dtype)


iota_p = declare(Primitive(
    "iota",
    type=lambda *, type, axis: type,
    reference=_reference_iota,
    jvp=_NO_OPERAND, transpose=_NO_OPERAND, batch=_NO_OPERAND,
    lower=_lower_iota,
    traits=frozenset({"creation", "cheap"}),
    doc="0, 1, 2, ... along one axis, repeated along the others.",
))


def iota(shape: tuple[int, ...], axis: int, dtype: np.dtype) -> Any:
    """An array whose element at index i is i[axis]."""
    return bind(iota_p, type=array_type(shape, dtype), axis=axis)

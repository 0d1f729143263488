"""Comparisons, logic and bits, element by element; tests of whole arrays (allclose, array_equal)."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..errors import DTypeError
from ..ir.value import Value
from ..lax.arguments import one_axis
from ..lax.conversion import as_value, operand, place
from ..lax.promotion import common_dtype, to_common, to_common_inexact, to_common_pair, to_comparable
from ..ops import elementwise as ops
from ..ops.create import full, full_like, iota
from ..ops.linear import convert, reduce_sum, reshape as linear_reshape
from ..ops.reduce import reduce_and
from ..ops.slicing import pad
from .elementwise import named

BOOL = dtypes.bool_


def comparison(name: str, operation: Callable[[Any, Any], Any], doc: str) -> Callable[[Any, Any], Value]:
    """A comparison of two arrays."""
    def function(x: Any, y: Any, /) -> Value:
        first, second = to_comparable(name, x, y)
        return operation(first, second)
    return named(function, name, doc)


equal = comparison("equal", ops.eq, "Whether x equals y; NaN equals nothing.")
not_equal = comparison("not_equal", ops.ne, "Whether x differs from y; NaN differs from everything.")
less = comparison("less", ops.lt, "Whether x < y.")
less_equal = comparison("less_equal", ops.le, "Whether x <= y.")
greater = comparison("greater", ops.gt, "Whether x > y.")
greater_equal = comparison("greater_equal", ops.ge, "Whether x >= y.")


def truth(name: str, x: Any) -> Value:
    """Whether each element differs from 0."""
    return convert(as_value(name, x), BOOL)


def logical(name: str, operation: Callable[[Any, Any], Any], doc: str) -> Callable[[Any, Any], Value]:
    """A logical function of two arrays' truth values."""
    def function(x: Any, y: Any, /) -> Value:
        first, second = to_common_pair(name, truth(name, x), truth(name, y))
        return operation(first, second)
    return named(function, name, doc)


logical_and = logical("logical_and", ops.bitwise_and, "Whether both elements differ from 0.")
logical_or = logical("logical_or", ops.bitwise_or, "Whether an element differs from 0.")
logical_xor = logical("logical_xor", ops.bitwise_xor, "Whether exactly one element differs from 0.")


def logical_not(x: Any, /) -> Value:
    """Whether the element is 0."""
    return ops.bitwise_not(truth("logical_not", x))


def _bits(name: str, x: Any, y: Any) -> tuple[Value, Value]:
    first, second = to_common_pair(name, x, y)
    if dtypes.is_float(first.type.dtype):
        raise DTypeError(f"{name} takes bool and integers, got {first.type.dtype.name}. "
                         f"Write x.astype('int32'), or compare first: (x > 0) & (y > 0).")
    return first, second


def bitwise(name: str, operation: Callable[[Any, Any], Any], doc: str) -> Callable[[Any, Any], Value]:
    """A function of two integers' (or bools') bits."""
    def function(x: Any, y: Any, /) -> Value:
        first, second = _bits(name, x, y)
        return operation(first, second)
    return named(function, name, doc)


bitwise_and = bitwise("bitwise_and", ops.bitwise_and, "The bits set in both; logical and for bool.")
bitwise_or = bitwise("bitwise_or", ops.bitwise_or, "The bits set in either; logical or for bool.")
bitwise_xor = bitwise("bitwise_xor", ops.bitwise_xor, "The bits set in exactly one; logical xor for bool.")


def bitwise_not(x: Any, /) -> Value:
    """Every bit reversed; logical not for bool."""
    value = as_value("bitwise_not", x)
    if dtypes.is_float(value.dtype):
        raise DTypeError(f"bitwise_not takes bool and integers, got {value.dtype.name}. Write logical_not(x).")
    return ops.bitwise_not(value)


invert = bitwise_invert = bitwise_not


def _shifted(name: str, x: Any, y: Any) -> tuple[Value, Value]:
    first, second = _bits(name, x, y)
    if first.type.dtype == BOOL:
        first, second = convert(first, dtypes.int32), convert(second, dtypes.int32)
    return first, second


def left_shift(x: Any, y: Any, /) -> Value:
    """x shifted left by y bits; 0 where y reaches the number of bits."""
    return ops.shift_left(*_shifted("left_shift", x, y))


def right_shift(x: Any, y: Any, /) -> Value:
    """x shifted right by y bits, the sign bit coming in for signed types."""
    first, second = _shifted("right_shift", x, y)
    return (ops.shift_right_arithmetic if first.type.dtype.kind == "i" else ops.shift_right_logical)(first, second)


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


def bitwise_count(x: Any, /) -> Value:
    """The number of one bits of the absolute value, as uint8."""
    value = as_value("bitwise_count", x)
    if dtypes.is_float(value.dtype):
        raise DTypeError(f"bitwise_count takes bool and integers, got {value.dtype.name}.")
    if value.dtype == BOOL:
        return convert(value, dtypes.uint8)
    magnitude = ops.abs(value) if value.dtype.kind == "i" else value
    return convert(ops.population_count(magnitude), dtypes.uint8)


# ---- kinds of numbers -----------------------------------------------------------------------------------------------

def float_test(name: str, operation: Callable[[Any], Any], on_integers: bool, doc: str) -> Callable[[Any], Value]:
    """A test of floating numbers, whose answer for integers and bool is fixed."""
    def function(x: Any, /) -> Value:
        value = as_value(name, x)
        return operation(value) if dtypes.is_float(value.dtype) else full(value.shape, on_integers, BOOL)
    return named(function, name, doc)


isnan = float_test("isnan", lambda x: ops.ne(x, x), False, "Whether x is NaN.")
isinf = float_test("isinf", lambda x: ops.eq(ops.abs(x), math.inf), False, "Whether x is an infinity.")
isfinite = float_test("isfinite", ops.is_finite, True, "Whether x is neither NaN nor an infinity.")
isposinf = float_test("isposinf", lambda x: ops.eq(x, math.inf), False, "Whether x is positive infinity.")
isneginf = float_test("isneginf", lambda x: ops.eq(x, -math.inf), False, "Whether x is negative infinity.")


def isreal(x: Any) -> Value:
    """True everywhere: arrays are real."""
    return full_like(truth("isreal", x), True)


def iscomplex(x: Any) -> Value:
    """False everywhere: arrays are real."""
    return full_like(truth("iscomplex", x), False)


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Value:
    """Whether |a - b| <= atol + rtol * |b|; equal infinities are close; NaNs are if equal_nan."""
    operands = operand("isclose", a), operand("isclose", b)
    if not dtypes.is_float(common_dtype("isclose", *operands)):
        operands = to_common("isclose", *operands, dtype=dtypes.float64)
    x, y = to_common_inexact("isclose", *operands)
    _, relative = to_common("isclose", y, rtol, dtype=x.dtype)
    _, absolute = to_common("isclose", y, atol, dtype=x.dtype)
    near = ops.le(ops.abs(ops.sub(x, y)), ops.add(absolute, ops.mul(relative, ops.abs(y))))
    finite = ops.bitwise_and(ops.is_finite(x), ops.is_finite(y))
    result = ops.select(finite, near, ops.eq(x, y))
    return ops.bitwise_or(result, ops.bitwise_and(ops.ne(x, x), ops.ne(y, y))) if equal_nan else result


def _everywhere(x: Value) -> Value:
    return reduce_and(x, tuple(range(x.ndim)))


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Value:
    """Whether all elements are close; see `isclose`."""
    return _everywhere(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Value:
    """Whether two arrays have one shape and equal elements."""
    x, y = as_value("array_equal", a1), as_value("array_equal", a2)
    if x.shape != y.shape:
        return full((), False, BOOL)
    return _everywhere(_same(x, y, equal_nan))


def array_equiv(a1: Any, a2: Any) -> Value:
    """Whether two arrays are equal after broadcasting."""
    x, y = as_value("array_equiv", a1), as_value("array_equiv", a2)
    try:
        return _everywhere(equal(x, y))
    except ValueError:
        return full((), False, BOOL)


def _same(x: Value, y: Value, equal_nan: bool) -> Value:
    x, y = to_comparable("array_equal", x, y)
    same = ops.eq(x, y)
    if equal_nan and dtypes.is_float(x.dtype):
        same = ops.bitwise_or(same, ops.bitwise_and(ops.ne(x, x), ops.ne(y, y)))
    return same


# ---- bits in bytes --------------------------------------------------------------------------------------------------

def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Value:
    """Eight truth values to a uint8 along an axis (of the flattened array for None), zeros filling the last."""
    value = truth("packbits", a)
    if axis is None:
        value, axis = linear_reshape(value, (value.size,)), 0
    number = one_axis("packbits", axis, value.shape)
    extent = value.shape[number]
    groups = -(-extent // 8)
    config = tuple((0, 8 * groups - extent if k == number else 0, 0) for k in range(value.ndim))
    padded = pad(value, full((), False, BOOL), config)
    split = linear_reshape(padded, (*value.shape[:number], groups, 8, *value.shape[number + 1:]))
    bits = convert(split, dtypes.int32)
    weights = ops.shift_left(full(bits.shape, 1, dtypes.int32), _bit_places(bits.shape, number + 1, bitorder))
    return convert(reduce_sum(ops.mul(bits, weights), (number + 1,)), dtypes.uint8)


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Value:
    """The bits of uint8 along an axis (of the flattened array for None), cut or filled with zeros to `count`."""
    value = as_value("unpackbits", a)
    if value.dtype != dtypes.uint8:
        raise DTypeError(f"unpackbits takes uint8, got {value.dtype.name}.")
    if axis is None:
        value, axis = linear_reshape(value, (value.size,)), 0
    number = one_axis("unpackbits", axis, value.shape)
    wide = linear_reshape(convert(value, dtypes.int32), (*value.shape[:number + 1], 1, *value.shape[number + 1:]))
    shape = (*value.shape[:number + 1], 8, *value.shape[number + 1:])
    spread = place(wide, shape, dtypes.int32)
    bits = ops.bitwise_and(ops.shift_right_logical(spread, _bit_places(shape, number + 1, bitorder)), 1)
    flat = linear_reshape(convert(bits, dtypes.uint8), (*value.shape[:number], 8 * value.shape[number],
                                                        *value.shape[number + 1:]))
    if count is None:
        return flat
    extent = flat.shape[number]
    wanted = count if count >= 0 else max(0, extent + count)
    return pad(flat, full((), 0, dtypes.uint8), tuple((0, wanted - extent if k == number else 0, 0)
                                                      for k in range(flat.ndim)))


def _bit_places(shape: tuple[int, ...], axis: int, bitorder: str) -> Value:
    if bitorder not in ("big", "little"):
        raise ValueError(f"bitorder must be 'big' or 'little', got {bitorder!r}.")
    places = iota(shape, axis, dtypes.int32)
    return places if bitorder == "little" else ops.sub(full(shape, 7, dtypes.int32), places)

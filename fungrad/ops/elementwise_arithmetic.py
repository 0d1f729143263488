"""Elementwise arithmetic, comparison, logic, bits and choice.

Derivatives by convention: abs'(0) = 0; equal operands of max and min share the tangent, a half each; sqrt'(0) = inf;
rounding, comparisons, bits and everything on integers are locally constant.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import accumulation, is_float, is_signed
from ..errors import DTypeError, RefusedError, ShapeError
from ..ir import expr
from ..ir.expr import BOOL, Expr, constant, operation
from ..ir.primitive import Linear, Primitive, Zero, declare
from ..ir.types import Type
from ..trace import bind
from .create import full_like
from .elementwise_rows import (
    ANY,
    BITS,
    FLOAT,
    INTEGER,
    NUMBER,
    Scalar,
    binary,
    by_parts,
    check,
    differentiable,
    rounded,
    row_type,
    scalar_like,
    unary,
)
from .rules import (
    NOT_LINEAR,
    add_tangents,
    elementwise_batch,
    elementwise_lower,
    instantiate,
    is_zero,
    linear_jvp,
    zero_tangent,
)

# ---- one operand ----------------------------------------------------------------------------------------------------


def _lower_sign(x: Expr) -> Expr:
    if x.dtype.kind == "u":
        return expr.cast(operation("ne", x, constant(0, x.dtype)), x.dtype)
    return operation("sign", x)


def _lower_is_finite(x: Expr) -> Expr:
    return operation("lt", operation("abs", x), constant(float("inf"), x.dtype))


neg = unary(
    "neg", NUMBER, np.negative, "-x; integers wrap.", jvp=linear_jvp("neg"),
    transpose=lambda cotangent, operands: (neg(cotangent),), cheap=True, traits=("linear",))
abs = unary(
    "abs", NUMBER, np.abs, "The absolute value; the least integer stays itself.", derivative=lambda x, y: sign(x),
    lower=lambda x: x if x.dtype.kind == "u" else operation("abs", x), cheap=True)
sign = unary("sign", NUMBER, lambda x: np.where(x == 0, x, np.sign(x)), "-1, 0 or 1; NaN and -0 stay as they are.",
             lower=_lower_sign, cheap=True)
floor = unary("floor", FLOAT, np.floor, "The greatest whole number that is not above x.", cheap=True)
ceil = unary("ceil", FLOAT, np.ceil, "The least whole number that is not below x.", cheap=True)
trunc = unary("trunc", FLOAT, np.trunc, "x without its fraction.", cheap=True)
round = unary("round", FLOAT, np.rint, "The nearest whole number, halves to even.", cheap=True)
sqrt = unary("sqrt", FLOAT, np.sqrt, "The square root; NaN below 0.", over=lambda x, y: add(y, y))
is_finite = unary("is_finite", FLOAT, np.isfinite, "Whether x is neither NaN nor infinite.", result=BOOL,
                  lower=_lower_is_finite, cheap=True)
stop_gradient = unary("stop_gradient", ANY, lambda x: x, "x, with a derivative of zero.", lower=lambda x: x, cheap=True)


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    rest, count = _unsigned(np.array(x)), np.full(x.shape, bits)
    while rest.any():
        count = count - (rest != 0)
        rest = rest >> 1
    return count


bitwise_not = unary("not", BITS, np.invert, "The bitwise complement; logical on bool.", cheap=True)
population_count = unary("population_count", INTEGER, lambda x: np.bitwise_count(_unsigned(np.array(x))),
                         "The number of one bits, in the operand's type.")
count_leading_zeros = unary("count_leading_zeros", INTEGER, _leading_zeros,
                            "The number of zero bits above the highest one bit, in the operand's type.")

# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _is_linear(operand: Any) -> bool:
    return type(operand) is Linear


def _add_transpose(cotangent: Any, operands: Sequence[Any]) -> tuple[Any, Any]:
    x, y = operands
    return cotangent if _is_linear(x) else None, cotangent if _is_linear(y) else None


def _sub_transpose(cotangent: Any, operands: Sequence[Any]) -> tuple[Any, Any]:
    x, y = operands
    return cotangent if _is_linear(x) else None, neg(cotangent) if _is_linear(y) else None


def _mul_transpose(cotangent: Any, operands: Sequence[Any]) -> tuple[Any, Any]:
    x, y = operands
    if _is_linear(x) and _is_linear(y):
        raise RefusedError("mul is linear in one operand at a time, so it has no transpose with respect to both")
    return (mul(cotangent, y), None) if _is_linear(x) else (None, mul(x, cotangent))


def _div_transpose(cotangent: Any, operands: Sequence[Any]) -> tuple[Any, Any]:
    if _is_linear(operands[1]):
        raise RefusedError("div is not linear in its divisor, so it has no transpose with respect to it")
    return div(cotangent, operands[1]), None


def _sub_tangent(x: Any, y: Any, z: Any, tx: Any, ty: Any) -> Any:
    if ty is None:
        return tx
    return neg(ty) if tx is None else sub(tx, ty)


def _div_tangent(x: Any, y: Any, z: Any, tx: Any, ty: Any) -> Any:
    if ty is None:
        return div(tx, y)
    change = mul(ty, z)
    return div(neg(change) if tx is None else sub(tx, change), y)


def _integer_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Truncated; x / 0 = -1, and the least integer over -1 wraps to itself."""
    if y.dtype.kind == "f":
        return np.true_divide(x, y)
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    quotient = np.floor_divide(x, safe)
    inexact = (quotient * safe != x) & ((x < 0) != (safe < 0))
    return np.where(y == 0, np.array(-1).astype(y.dtype), quotient + inexact.astype(y.dtype))


def _integer_remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """With the sign of x; x rem 0 = x."""
    if y.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y).astype(y.dtype)))


def _lower_by_kind(on_floats: str, on_integers: str) -> Any:
    return lambda x, y: operation(on_floats if is_float(x.dtype) else on_integers, x, y)


def _lower_bool_as(on_numbers: str, on_bool: str) -> Any:
    return lambda x, y: operation(on_bool if x.dtype == BOOL else on_numbers, x, y)


def _extremum_tangent(above: Any) -> Any:
    """The tangent of the chosen operand; of equal ones (and NaNs), the mean."""
    def tangent_rule(x: Any, y: Any, z: Any, tx: Any, ty: Any) -> Any:
        mean = mul(add_tangents(Zero(x.type) if tx is None else tx, Zero(y.type) if ty is None else ty), 0.5)
        tx = full_like(x, 0) if tx is None else tx
        ty = full_like(y, 0) if ty is None else ty
        return select(above(x, y), tx, select(above(y, x), ty, mean))
    return tangent_rule


def _rem_tangent(x: Any, y: Any, z: Any, tx: Any, ty: Any) -> Any:
    """tx - trunc(x / y) ty, from the exact remainder so that a rounded x / y cannot reach the next whole number."""
    if ty is None:
        return tx
    change = mul(ty, round(div(sub(x, z), y)))
    return neg(change) if tx is None else sub(tx, change)


add = binary(
    "add", NUMBER, np.add, "x + y; integers wrap.",
    jvp=differentiable("add", lambda x, y, z, tx, ty: ty if tx is None else tx if ty is None else add(tx, ty)),
    transpose=_add_transpose, cheap=True, traits=("linear",))
sub = binary("sub", NUMBER, np.subtract, "x - y; integers wrap.", jvp=differentiable("sub", _sub_tangent),
             transpose=_sub_transpose, cheap=True, traits=("linear",))
mul = binary("mul", NUMBER, np.multiply, "x * y; integers wrap.",
             jvp=by_parts("mul", lambda x, y, z: y, lambda x, y, z: x), transpose=_mul_transpose, cheap=True)
div = binary("div", NUMBER, _integer_quotient,
             "x / y; integers: truncated towards 0, -1 where y is 0.",
             jvp=differentiable("div", _div_tangent), transpose=_div_transpose,
             lower=_lower_by_kind("div", "integer_div"))
rem = binary("rem", NUMBER, _integer_remainder,
             "The remainder of the truncated division, with the sign of x; integers: x where y is 0.",
             jvp=differentiable("rem", _rem_tangent), lower=_lower_by_kind("rem", "integer_rem"))
max = binary("max", ANY, np.maximum, "The larger; NaN if either is.",
             jvp=differentiable("max", _extremum_tangent(lambda x, y: gt(x, y))), lower=_lower_bool_as("max", "or"),
             cheap=True)
min = binary("min", ANY, np.minimum, "The smaller; NaN if either is.",
             jvp=differentiable("min", _extremum_tangent(lambda x, y: lt(x, y))), lower=_lower_bool_as("min", "and"),
             cheap=True)

# ---- integer power --------------------------------------------------------------------------------------------------


def _integer_pow_type(x: Type, *, exponent: int) -> Type:
    check("integer_pow", NUMBER, x.dtype)
    if exponent < 0 and not is_float(x.dtype):
        raise DTypeError(f"integer_pow: {x.dtype.name} has no negative power {exponent}. Write x.astype('float32').")
    return x


def _integer_pow_reference(x: np.ndarray, *, exponent: int) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.power(x, float(exponent))
    result = np.ones_like(x)
    while exponent:
        result = result * x if exponent & 1 else result
        x, exponent = x * x, exponent >> 1
    return result


def _integer_pow_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, exponent: int) -> tuple[Any, Any]:
    (x,), (tangent,) = primals, tangents
    y = integer_pow(x, exponent)
    if is_zero(tangent) or not is_float(x.dtype) or exponent == 0:
        return y, Zero(y.type)
    return y, mul(tangent, mul(integer_pow(x, exponent - 1), float(exponent)))


def _integer_pow_lower(x: Expr, *, exponent: int) -> Expr:
    """Repeated squaring, in float32 for 16-bit floats; a negative power is the inverse of the positive one."""
    base, result, rest = expr.cast(x, accumulation(x.dtype)), None, exponent if exponent >= 0 else -exponent
    while rest:
        if rest & 1:
            result = base if result is None else operation("mul", result, base)
        rest >>= 1
        base = operation("mul", base, base) if rest else base
    one = constant(1, base.dtype)
    result = one if result is None else result
    return expr.cast(operation("div", one, result) if exponent < 0 else result, x.dtype)


integer_pow_p = declare(Primitive(
    "integer_pow", _integer_pow_type,
    rounded(_integer_pow_reference), _integer_pow_jvp, NOT_LINEAR, elementwise_batch("integer_pow"),
    elementwise_lower(_integer_pow_lower),
    frozenset({"elementwise", "cheap"}), "x to the power of a fixed whole number; integers wrap."))


def integer_pow(x: Any, exponent: int) -> Any:
    """x ** exponent for a Python integer; negative exponents need a floating type."""
    return x if exponent == 1 else bind(integer_pow_p, x, exponent=int(exponent))


# ---- comparison, logic, bits ----------------------------------------------------------------------------------------

eq = binary("eq", ANY, np.equal, "Whether x equals y; NaN equals nothing.", result=BOOL, cheap=True)
ne = binary("ne", ANY, np.not_equal, "Whether x differs from y; NaN differs from everything.", result=BOOL, cheap=True)
lt = binary("lt", ANY, np.less, "Whether x < y.", result=BOOL, cheap=True)
le = binary("le", ANY, np.less_equal, "Whether x <= y.", result=BOOL, cheap=True)
gt = binary("gt", ANY, np.greater, "Whether x > y.", result=BOOL, cheap=True)
ge = binary("ge", ANY, np.greater_equal, "Whether x >= y.", result=BOOL, cheap=True)

bitwise_and = binary("and", BITS, np.bitwise_and, "Bitwise and; logical on bool.", cheap=True)
bitwise_or = binary("or", BITS, np.bitwise_or, "Bitwise or; logical on bool.", cheap=True)
bitwise_xor = binary("xor", BITS, np.bitwise_xor, "Bitwise exclusive or; logical on bool.", cheap=True)


def _shift(shifted: Any, beyond: Any) -> Any:
    """A shift by a count taken as unsigned; `beyond(x)` where it reaches the number of bits."""
    def reference(x: np.ndarray, count: np.ndarray) -> np.ndarray:
        bits = x.dtype.itemsize * 8
        unsigned = _unsigned(np.array(count))
        inside = np.minimum(unsigned, bits - 1).astype(unsigned.dtype)
        return np.where(unsigned < bits, shifted(np.array(x), inside), beyond(np.array(x)))
    return reference


def _arithmetic(x: np.ndarray, count: np.ndarray) -> np.ndarray:
    signed = x.view(f"i{x.dtype.itemsize}")
    return np.right_shift(signed, count.view(signed.dtype)).view(x.dtype)


def _signed(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"int{dtype.itemsize * 8}")


def _lower_arithmetic_shift(x: Expr, count: Expr) -> Expr:
    if is_signed(x.dtype):
        return operation("safe_shift_right", x, count)
    signed = _signed(x.dtype)
    shifted = operation("safe_shift_right", *(operation("bitcast", e, dtype=signed) for e in (x, count)))
    return operation("bitcast", shifted, dtype=x.dtype)


shift_left = binary(
    "shift_left", INTEGER, _shift(lambda x, count: np.left_shift(x, count.view(x.dtype)), np.zeros_like),
    "x shifted left by y bits; 0 for a count outside the type's bits.",
    lower=lambda x, y: operation("safe_shift_left", x, y))
shift_right_logical = binary(
    "shift_right_logical", INTEGER,
    _shift(lambda x, count: np.right_shift(_unsigned(x), count).view(x.dtype), np.zeros_like),
    "x shifted right by y bits, zeros coming in; 0 for a count outside the type's bits.",
    lower=lambda x, y: operation("safe_shift_right_logical", x, y))
shift_right_arithmetic = binary(
    "shift_right_arithmetic", INTEGER,
    _shift(_arithmetic, lambda x: _arithmetic(x, np.full(x.shape, x.dtype.itemsize * 8 - 1, f"u{x.dtype.itemsize}"))),
    "x shifted right by y bits, the sign bit coming in (also for unsigned types).", lower=_lower_arithmetic_shift)


def _nextafter_reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """By counting in the ordered integers behind the floats."""
    x, y = np.array(x), np.array(y)
    bits = x.view(f"u{x.dtype.itemsize}")
    sign_bit = np.array(1 << (8 * x.dtype.itemsize - 1), bits.dtype)
    away = (y > x) == (x > 0)
    stepped = np.where(away, bits + np.array(1, bits.dtype), bits - np.array(1, bits.dtype))
    from_zero = np.where(y > 0, np.array(1, bits.dtype), sign_bit + np.array(1, bits.dtype))
    result = np.where(x == 0, from_zero, stepped).astype(bits.dtype).view(x.dtype)
    result = np.where(x == y, y, result)
    return np.where(np.isnan(x) | np.isnan(y), np.array(np.nan, x.dtype), result).astype(x.dtype)


def _nextafter_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    z = nextafter(*primals)
    return z, tangents[0] if not is_zero(tangents[0]) else Zero(z.type)


nextafter_p = declare(Primitive(
    "nextafter", row_type("nextafter", FLOAT), _nextafter_reference, _nextafter_jvp, NOT_LINEAR,
    elementwise_batch("nextafter"), elementwise_lower(lambda x, y: operation("nextafter", x, y)),
    frozenset({"elementwise"}), "The next representable number from x towards y."))


def nextafter(x: Any, y: Any) -> Any:
    """The next representable number from x towards y."""
    if isinstance(y, Scalar):
        return bind(nextafter_p, x, scalar_like("nextafter", y, x))
    return bind(nextafter_p, scalar_like("nextafter", x, y) if isinstance(x, Scalar) else x, y)


# ---- bitcast, select, clamp -----------------------------------------------------------------------------------------


def _bitcast_type(x: Type, *, dtype: np.dtype) -> Type:
    if BOOL in (x.dtype, dtype) or x.dtype.itemsize != dtype.itemsize:
        raise DTypeError(f"bitcast: {x.dtype.name} and {dtype.name} are not numbers of one size. "
                         f"Use convert (x.astype) to convert values.")
    return x.with_dtype(dtype)


bitcast_p = declare(Primitive(
    "bitcast", _bitcast_type, lambda x, *, dtype: np.array(x, order="C").view(dtype), zero_tangent("bitcast"),
    NOT_LINEAR, elementwise_batch("bitcast"),
    elementwise_lower(lambda x, *, dtype: x if x.dtype == dtype else operation("bitcast", x, dtype=dtype)),
    frozenset({"elementwise", "cheap"}), "The same bits read as another number type of the same size."))


def bitcast(x: Any, dtype: np.dtype) -> Any:
    """The bits of `x` as elements of another number type of the same size."""
    return x if x.dtype == dtype else bind(bitcast_p, x, dtype=dtype)


def _select_type(predicate: Type, on_true: Type, on_false: Type) -> Type:
    if predicate.dtype != BOOL:
        raise DTypeError(f"select: the predicate must be bool, not {predicate.dtype.name}. Write x != 0.")
    if on_true.dtype != on_false.dtype:
        raise DTypeError(f"select: element types {on_true.dtype} and {on_false.dtype} differ. Convert one with "
                         f"x.astype(...).")
    if not predicate.shape == on_true.shape == on_false.shape:
        raise ShapeError(f"select: shapes {predicate.shape}, {on_true.shape} and {on_false.shape} differ. Broadcast "
                         f"first, or use fungrad.numpy.where, which does.")
    return on_true


def _select_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    predicate, *branches = primals
    result = select(predicate, *branches)
    if is_zero(tangents[1]) and is_zero(tangents[2]):
        return result, Zero(result.type)
    return result, select(predicate, instantiate(tangents[1]), instantiate(tangents[2]))


def _select_transpose(cotangent: Any, operands: Sequence[Any]) -> tuple[Any, Any, Any]:
    predicate, on_true, on_false = operands
    nothing = full_like(cotangent, 0)
    return (None, select(predicate, cotangent, nothing) if _is_linear(on_true) else None,
            select(predicate, nothing, cotangent) if _is_linear(on_false) else None)


select_p = declare(Primitive(
    "select", _select_type, lambda predicate, x, y: np.where(predicate, x, y).astype(x.dtype), _select_jvp,
    _select_transpose, elementwise_batch("select"), elementwise_lower(expr.select),
    frozenset({"elementwise", "cheap"}), "on_true where the predicate holds, else on_false."))


def select(predicate: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where the bool `predicate` holds, else `on_false`; one branch may be a Python scalar."""
    if isinstance(on_true, Scalar):
        on_true = scalar_like("select", on_true, on_false)
    elif isinstance(on_false, Scalar):
        on_false = scalar_like("select", on_false, on_true)
    return bind(select_p, predicate, on_true, on_false)


def clamp(low: Any, x: Any, high: Any) -> Any:
    """`x` limited to the range from `low` to `high` (`high` wins where they cross)."""
    return min(max(x, low), high)

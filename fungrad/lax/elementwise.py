"""Elementwise functions under JAX's names in lax: operands of one shape and element type, or scalars.

Nothing is promoted but Python scalars; use `fungrad.numpy` for broadcasting and promotion.
"""
from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..ops import elementwise as ops
from ..ops.create import full, full_like
from ..ops.linear import convert, reshape
from ..ops.slicing import concatenate
from .conversion import as_value, is_weak, operand, place
from .promotion import check_fits, common_dtype, shape_of


def aligned(name: str, *xs: Any) -> list[Value]:
    """The operands as values of one shape and type; scalars repeat, Python scalars take the arrays' type."""
    operands = [operand(name, x) for x in xs]
    strong = {x.dtype for x in operands if not is_weak(x)}
    if len(strong) > 1:
        listed = " and ".join(sorted(dtype.name for dtype in strong))
        raise DTypeError(f"lax.{name}: element types {listed} differ. Convert with x.astype(...), or use the function "
                         f"of fungrad.numpy, which promotes.")
    dtype = strong.pop() if strong else common_dtype(name, *operands)
    shapes = {shape_of(x) for x in operands} - {()}
    if len(shapes) > 1:
        listed = " and ".join(str(shape_of(x)) for x in operands)
        raise ShapeError(f"lax.{name}: shapes {listed} differ. Use the function of fungrad.numpy, which broadcasts.")
    shape = shapes.pop() if shapes else ()
    for x in operands:
        check_fits(name, x, dtype)
        if isinstance(x, float) and not dtypes.is_float(dtype):
            raise DTypeError(f"lax.{name}: the float {x} does not fit an array of {dtype.name}.")
    return [place(x, shape, dtype) for x in operands]


def _unary(name: str, operation: Callable[[Any], Any], doc: str) -> Callable[[Any], Value]:
    def function(x: Any) -> Value:
        return operation(as_value(name, x))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _binary(name: str, operation: Callable[[Any, Any], Any], doc: str) -> Callable[[Any, Any], Value]:
    def function(x: Any, y: Any) -> Value:
        if isinstance(x, Value) and isinstance(y, Value) and x.type == y.type:
            return operation(x, y)
        return operation(*aligned(name, x, y))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# ---- one operand ----------------------------------------------------------------------------------------------------

abs = _unary("abs", ops.abs, "The absolute value.")
acos = _unary("acos", ops.acos, "The arc cosine.")
acosh = _unary("acosh", ops.acosh, "The inverse of cosh.")
asin = _unary("asin", ops.asin, "The arc sine.")
asinh = _unary("asinh", ops.asinh, "The inverse of sinh.")
atan = _unary("atan", ops.atan, "The arc tangent.")
atanh = _unary("atanh", ops.atanh, "The inverse of tanh.")
bitwise_not = _unary("bitwise_not", ops.bitwise_not, "Every bit reversed; logical not for bool.")
cbrt = _unary("cbrt", ops.cbrt, "The real cube root.")
ceil = _unary("ceil", ops.ceil, "The least whole number not below x.")
clz = _unary("clz", ops.count_leading_zeros, "The number of zero bits above the highest one bit.")
cos = _unary("cos", ops.cos, "The cosine.")
cosh = _unary("cosh", ops.cosh, "The hyperbolic cosine.")
digamma = _unary("digamma", ops.digamma, "The derivative of lgamma.")
erf = _unary("erf", ops.erf, "The error function.")
erf_inv = _unary("erf_inv", ops.erf_inv, "The inverse of erf.")
erfc = _unary("erfc", ops.erfc, "1 - erf(x), exact for large x.")
exp = _unary("exp", ops.exp, "e to the power x.")
exp2 = _unary("exp2", ops.exp2, "2 to the power x.")
expm1 = _unary("expm1", ops.expm1, "exp(x) - 1, exact near 0.")
floor = _unary("floor", ops.floor, "The greatest whole number not above x.")
is_finite = _unary("is_finite", ops.is_finite, "Whether x is neither NaN nor infinite.")
lgamma = _unary("lgamma", ops.lgamma, "The logarithm of |gamma(x)|.")
log = _unary("log", ops.log, "The natural logarithm.")
log1p = _unary("log1p", ops.log1p, "log(1 + x), exact near 0.")
logistic = _unary("logistic", ops.logistic, "1 / (1 + exp(-x)).")
neg = _unary("neg", ops.neg, "-x.")
population_count = _unary("population_count", ops.population_count, "The number of one bits.")
reciprocal = _unary("reciprocal", lambda x: ops.div(full_like(x, 1), x), "1 / x.")
rsqrt = _unary("rsqrt", ops.rsqrt, "1 / sqrt(x).")
sign = _unary("sign", ops.sign, "-1, 0 or 1 by the sign; NaN stays NaN.")
sin = _unary("sin", ops.sin, "The sine.")
sinh = _unary("sinh", ops.sinh, "The hyperbolic sine.")
sqrt = _unary("sqrt", ops.sqrt, "The square root.")
square = _unary("square", lambda x: ops.integer_pow(x, 2), "x * x.")
tan = _unary("tan", ops.tan, "The tangent.")
tanh = _unary("tanh", ops.tanh, "The hyperbolic tangent.")
real = _unary("real", lambda x: x, "x: arrays are real.")
imag = _unary("imag", lambda x: full_like(x, 0), "Zeros: arrays are real.")
conj = _unary("conj", lambda x: x, "x: arrays are real.")


class RoundingMethod(enum.IntEnum):
    """How `round` treats halves."""
    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Value:
    """The nearest whole number; halves away from zero, or to even."""
    value = as_value("round", x)
    nearest = ops.round(value)
    if RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN:
        return nearest
    whole = ops.trunc(value)
    half = ops.eq(ops.abs(ops.sub(value, whole)), 0.5)
    return ops.select(half, ops.add(whole, ops.sign(value)), nearest)


def integer_pow(x: Any, y: int) -> Value:
    """x ** y for a fixed integer y."""
    return ops.integer_pow(as_value("integer_pow", x), int(y))


def stop_gradient(x: Any) -> Any:
    """x (any pytree of arrays), with derivatives of zero.

    >>> from fungrad import lax
    >>> float(lax.stop_gradient(3.0))
    3.0
    """
    return tree.map(lambda leaf: ops.stop_gradient(as_value("stop_gradient", leaf)), x)


# ---- two operands ---------------------------------------------------------------------------------------------------

add = _binary("add", ops.add, "x + y.")
atan2 = _binary("atan2", ops.atan2, "The angle of the point (y, x), given as atan2(y, x).")
bitwise_and = _binary("bitwise_and", ops.bitwise_and, "The bits set in both.")
bitwise_or = _binary("bitwise_or", ops.bitwise_or, "The bits set in either.")
bitwise_xor = _binary("bitwise_xor", ops.bitwise_xor, "The bits set in exactly one.")
div = _binary("div", ops.div, "x / y; integers: truncated towards 0.")
eq = _binary("eq", ops.eq, "Whether x equals y.")
ge = _binary("ge", ops.ge, "Whether x >= y.")
gt = _binary("gt", ops.gt, "Whether x > y.")
le = _binary("le", ops.le, "Whether x <= y.")
lt = _binary("lt", ops.lt, "Whether x < y.")
max = _binary("max", ops.max, "The larger; NaN if either is.")
min = _binary("min", ops.min, "The smaller; NaN if either is.")
mul = _binary("mul", ops.mul, "x * y.")
ne = _binary("ne", ops.ne, "Whether x differs from y.")
nextafter = _binary("nextafter", ops.nextafter, "The next representable number from x towards y.")
rem = _binary("rem", ops.rem, "The remainder of the truncated division, with the sign of x.")
shift_left = _binary("shift_left", ops.shift_left, "x shifted left by y bits.")
shift_right_arithmetic = _binary("shift_right_arithmetic", ops.shift_right_arithmetic,
                                 "x shifted right by y bits, the sign coming in.")
shift_right_logical = _binary("shift_right_logical", ops.shift_right_logical,
                              "x shifted right by y bits, zeros coming in.")
sub = _binary("sub", ops.sub, "x - y.")


def pow(x: Any, y: Any) -> Value:
    """x ** y for floating x; y may be of integers."""
    base, exponent = operand("pow", x), operand("pow", y)
    if type(exponent) is int and isinstance(base, Value):
        return ops.integer_pow(base, exponent)
    if isinstance(base, Value) and isinstance(exponent, Value) and dtypes.is_float(base.dtype) \
            and dtypes.is_integer(exponent.dtype):
        exponent = convert(exponent, base.dtype)
    return ops.pow(*aligned("pow", base, exponent))


def clamp(min: Any, x: Any, max: Any) -> Value:
    """x limited to the range from min to max, which are scalars or of x's shape."""
    low, value, high = aligned("clamp", min, x, max)
    return ops.min(ops.max(value, low), high)


def select(pred: Any, on_true: Any, on_false: Any) -> Value:
    """on_true where the bool pred (of their shape, or a scalar) holds, else on_false."""
    chosen = as_value("select", pred)
    first, second = aligned("select", on_true, on_false)
    return ops.select(place(chosen, first.shape, chosen.dtype) if not chosen.ndim else chosen, first, second)


def select_n(which: Any, *cases: Any) -> Value:
    """cases[which] element by element; `which` is bool (two cases) or int32, of the cases' shape or a scalar."""
    chosen = as_value("select_n", which)
    if not cases:
        raise ValueError("select_n needs at least one case.")
    values = aligned("select_n", *cases)
    if chosen.dtype == dtypes.bool_:
        if len(values) != 2:
            raise ValueError(f"select_n: a bool chooses between 2 cases, got {len(values)}.")
        return select(chosen, values[1], values[0])
    result = values[0]
    for number, case in enumerate(values[1:], 1):
        result = select(ops.ge(chosen, number), case, result)
    return result


def logaddexp(x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)) of floating values of one type: the larger, plus log1p(exp(smaller - larger)).

    Equal infinities have no difference, so none is formed, in the value or in the derivative.
    """
    larger, smaller = ops.max(x, y), ops.min(x, y)
    zero = full_like(x, 0.0)
    infinite = ops.eq(ops.abs(larger), float("inf"))
    difference = ops.select(infinite, zero, ops.sub(smaller, larger))
    return ops.add(larger, ops.select(infinite, zero, ops.log1p(ops.exp(difference))))


# ---- types ----------------------------------------------------------------------------------------------------------

def convert_element_type(operand: Any, new_dtype: Any) -> Value:
    """The elements in another type: floats to integers truncate and saturate, NaN gives 0."""
    return convert(as_value("convert_element_type", operand), dtypes.canonical(new_dtype))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Value:
    """The bits as elements of another type. A narrower type adds a last axis, a wider one takes the last axis in.

    >>> from fungrad import lax
    >>> lax.bitcast_convert_type(1.0, "int32").tolist()
    1065353216
    """
    value, target = as_value("bitcast_convert_type", operand), dtypes.canonical(new_dtype)
    old, new = value.dtype.itemsize, target.itemsize
    if old == new:
        return ops.bitcast(value, target)
    if dtypes.bool_ in (value.dtype, target):
        raise DTypeError("bitcast_convert_type does not take bool.")
    if old > new:
        return _narrowed(value, target, old // new)
    if value.ndim == 0 or value.shape[-1] != new // old:
        raise ShapeError(f"bitcast_convert_type: from {value.dtype} to {target} the last axis needs {new // old} "
                         f"elements, got shape {value.shape}.")
    return _widened(value, target, new // old)


def _narrowed(x: Value, target: np.dtype, parts: int) -> Value:
    wide = ops.bitcast(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))
    small = np.dtype(f"uint{8 * target.itemsize}")
    pieces = [reshape(convert(ops.shift_right_logical(wide, 8 * target.itemsize * n) if n else wide, small),
                      (*x.shape, 1))
              for n in range(parts)]
    return ops.bitcast(concatenate(pieces, x.ndim), target)


def _widened(x: Value, target: np.dtype, parts: int) -> Value:
    bits = 8 * x.dtype.itemsize
    wide = convert(ops.bitcast(x, np.dtype(f"uint{bits}")), np.dtype(f"uint{8 * target.itemsize}"))
    result = full(x.shape[:-1], 0, wide.dtype)
    for n in range(parts):
        piece = wide[..., n]
        result = ops.bitwise_or(result, ops.shift_left(piece, bits * n) if n else piece)
    return ops.bitcast(result, target)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Value:
    """The elements rounded to the numbers of float16 (5, 10), bfloat16 (8, 7), float32 (8, 23) or float64 (11, 52)."""
    formats = {(5, 10): dtypes.float16, (8, 7): dtypes.bfloat16, (8, 23): dtypes.float32, (11, 52): dtypes.float64}
    found = formats.get((exponent_bits, mantissa_bits))
    if found is None:
        raise NotImplementedError(f"reduce_precision: there is no type with {exponent_bits} exponent and "
                                  f"{mantissa_bits} mantissa bits here; there are {', '.join(map(str, formats))}.")
    value = as_value("reduce_precision", operand)
    return value if found.itemsize >= value.dtype.itemsize else convert(convert(value, found), value.dtype)

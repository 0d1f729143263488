"""Functions of one or more arrays, element by element: arithmetic, exponentials, trigonometry, rounding.

Operands broadcast and promote (`promotion.py`). Functions with values between the integers give floating results:
integers and bool become the default float. Rows say what a function takes and which operation it is.
"""
from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError
from ..ir.value import Value
from ..lax.conversion import as_value, operand
from ..lax.elementwise import logaddexp as lax_logaddexp
from ..lax.promotion import common_dtype, inexact, refuse_out, to_common, to_common_inexact, to_common_pair
from ..ops import elementwise as ops
from ..ops.create import full, full_like
from ..ops.linear import convert

BOOL = dtypes.bool_


def named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """Give a row's function its name and text."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def floating(name: str, operation: Callable[[Any], Any], doc: str) -> Callable[[Any], Value]:
    """A function of one array that is computed in floating numbers."""
    def function(x: Any, /) -> Value:
        return operation(inexact(name, x))
    return named(function, name, doc)


def floating_pair(name: str, operation: Callable[[Any, Any], Any], doc: str) -> Callable[[Any, Any], Value]:
    """A function of two arrays that is computed in floating numbers."""
    def function(x1: Any, x2: Any, /) -> Value:
        first, second = to_common_inexact(name, x1, x2)
        return operation(first, second)
    return named(function, name, doc)


def rounding(name: str, operation: Callable[[Any], Any], doc: str) -> Callable[[Any], Value]:
    """A rounding of one array: integers and bool are whole already and stay as they are."""
    def function(x: Any, /) -> Value:
        value = as_value(name, x)
        return operation(value) if dtypes.is_float(value.dtype) else value
    return named(function, name, doc)


# ---- arithmetic -----------------------------------------------------------------------------------------------------

def add(x: Any, y: Any, /) -> Value:
    """x + y. For bool: or."""
    x, y = to_common_pair("add", x, y)
    return ops.bitwise_or(x, y) if x.type.dtype == BOOL else ops.add(x, y)


def subtract(x: Any, y: Any, /) -> Value:
    """x - y. There is none for bool: use logical_xor."""
    x, y = to_common_pair("subtract", x, y)
    if x.type.dtype == BOOL:
        raise DTypeError("subtract: bool has no difference. Write logical_xor(x, y), or x.astype('int32') first.")
    return ops.sub(x, y)


def multiply(x: Any, y: Any, /) -> Value:
    """x * y. For bool: and."""
    x, y = to_common_pair("multiply", x, y)
    return ops.bitwise_and(x, y) if x.type.dtype == BOOL else ops.mul(x, y)


def true_divide(x: Any, y: Any, /) -> Value:
    """x / y in floating numbers."""
    if not (isinstance(x, Value) and dtypes.is_float(x.type.dtype)):
        return ops.div(*to_common_inexact("divide", x, y))
    x, y = to_common_pair("divide", x, y)     # a floating operand makes the common type floating
    return ops.div(x, y)


divide = true_divide


def _numbers(name: str, x: Any, y: Any) -> tuple[Value, Value]:
    x, y = to_common_pair(name, x, y)
    if x.type.dtype == BOOL:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    return x, y


def floor_divide(x: Any, y: Any, /) -> Value:
    """The greatest whole number not above x / y. An integer x // 0 is -1 (0 for unsigned types: their greatest)."""
    x, y = _numbers("floor_divide", x, y)
    return _floor_divide(x, y)


def _floor_divide(x: Value, y: Value) -> Value:
    dtype = x.type.dtype
    if dtypes.is_float(dtype):
        return _float_floor_divide(x, y)
    quotient = ops.div(x, y)
    if dtype.kind == "u":
        return quotient
    remainder = ops.rem(x, y)
    below = ops.bitwise_and(ops.ne(remainder, 0), ops.ne(ops.lt(remainder, 0), ops.lt(y, 0)))
    below = ops.bitwise_and(below, ops.ne(y, 0))
    return ops.select(below, ops.sub(quotient, 1), quotient)


def _float_floor_divide(x: Value, y: Value) -> Value:
    """Python's floored division of floats, from the exact remainder (as NumPy's `npy_divmod`)."""
    left = ops.rem(x, y)
    quotient = ops.div(ops.sub(x, left), y)
    adjust = ops.bitwise_and(ops.ne(left, 0.0), ops.ne(ops.lt(y, 0.0), ops.lt(left, 0.0)))
    quotient = ops.select(adjust, ops.sub(quotient, 1.0), quotient)
    whole = ops.round(quotient)                  # exact already but for the last bit of the division
    signed_zero = copysign(full_like(x, 0.0), ops.div(x, y))
    whole = ops.select(ops.eq(quotient, 0.0), signed_zero, whole)
    return ops.select(ops.eq(y, 0.0), ops.div(x, y), whole)


def remainder(x: Any, y: Any, /) -> Value:
    """The remainder of floor_divide, with the sign of y (Python's %). An integer x % 0 is x."""
    x, y = _numbers("remainder", x, y)
    return _remainder(x, y)


mod = remainder


def _remainder(x: Value, y: Value) -> Value:
    found = ops.rem(x, y)
    if x.type.dtype.kind == "u":
        return found
    zero = 0.0 if dtypes.is_float(x.type.dtype) else 0
    adjust = ops.bitwise_and(ops.ne(found, zero), ops.ne(ops.lt(found, zero), ops.lt(y, zero)))
    if not dtypes.is_float(x.type.dtype):
        return ops.select(ops.bitwise_and(adjust, ops.ne(y, 0)), ops.add(found, y), found)
    # A remainder of 0 gets the sign of y: -0.0 + 0.0 is 0.0. A choice of another zero would lose the derivative.
    result = ops.select(adjust, ops.add(found, y), found)
    return ops.select(ops.lt(y, 0.0), ops.neg(ops.add(ops.neg(result), 0.0)), ops.add(result, 0.0))


def fmod(x1: Any, x2: Any, /) -> Value:
    """The remainder of the truncated division, with the sign of x1 (C's fmod)."""
    x, y = _numbers("fmod", x1, x2)
    return ops.rem(x, y)


def divmod(x1: Any, x2: Any, /) -> tuple[Value, Value]:
    """(x1 // x2, x1 % x2)."""
    x, y = _numbers("divmod", x1, x2)
    if dtypes.is_float(x.type.dtype):
        return _float_floor_divide(x, y), _remainder(x, y)
    return _floor_divide(x, y), _remainder(x, y)


def power(x1: Any, x2: Any, /) -> Value:
    """x1 ** x2. A Python integer as exponent is multiplied out; integers to a negative power are an error."""
    base, exponent = operand("power", x1), operand("power", x2)
    if type(exponent) is int and isinstance(base, Value):
        return integer_power(base, exponent)
    dtype = common_dtype("power", base, exponent)
    if isinstance(exponent, float) and dtypes.is_float(dtype) and isinstance(base, Value):
        if exponent == 0.5:
            return ops.sqrt(convert(base, dtype))
        if math.fabs(exponent) <= 4.0 and exponent == math.floor(exponent):
            return ops.integer_pow(convert(base, dtype), int(exponent))
    base, exponent = to_common("power", base, exponent)
    if dtypes.is_float(dtype):
        return ops.pow(base, exponent)
    if dtype == BOOL:
        return ops.bitwise_or(base, ops.bitwise_not(exponent))
    return _integers_to_integers(base, exponent)


pow = power


def integer_power(base: Value, exponent: int) -> Value:
    """base ** exponent for a Python integer."""
    dtype = base.type.dtype
    if dtype == BOOL:
        base = convert(base, dtypes.int32)
    if exponent < 0 and not dtypes.is_float(base.type.dtype):
        raise ValueError(f"power: integers to the negative power {exponent} are not integers. "
                         f"Write x.astype('float32') ** {exponent}.")
    return ops.integer_pow(base, exponent)


def _integers_to_integers(base: Value, exponent: Value) -> Value:
    """Repeated squaring over the bits of the exponent; 0 for negative exponents (1 and -1 excepted), wrapping."""
    one, zero = full_like(base, 1), full_like(base, 0)
    result, square, rest = one, base, exponent
    for _ in range(8 * base.type.dtype.itemsize):
        odd = ops.ne(ops.bitwise_and(rest, one), zero)
        result = ops.select(odd, ops.mul(result, square), result)
        square, rest = ops.mul(square, square), ops.shift_right_logical(rest, one)
    if base.type.dtype.kind == "u":
        return result
    unit = ops.select(ops.eq(base, 1), one, ops.select(ops.eq(base, -1), ops.select(
        ops.ne(ops.bitwise_and(exponent, one), zero), base, one), zero))
    return ops.select(ops.lt(exponent, 0), unit, result)


def float_power(x1: Any, x2: Any, /) -> Value:
    """x1 ** x2 in floating numbers."""
    first, second = operand("float_power", x1), operand("float_power", x2)
    if type(second) is int:
        return ops.integer_pow(inexact("float_power", first), second)
    return ops.pow(*to_common_inexact("float_power", first, second))


def negative(x: Any, /) -> Value:
    """-x. There is none for bool: use logical_not."""
    value = as_value("negative", x)
    if value.type.dtype == BOOL:
        raise DTypeError("negative: bool has no negative. Write logical_not(x) (~x), or x.astype('int32') first.")
    return ops.neg(value)


def positive(x: Any, /) -> Value:
    """x."""
    return as_value("positive", x)


def absolute(x: Any, /) -> Value:
    """The absolute value; unsigned and bool stay as they are."""
    value = as_value("absolute", x)
    return value if value.type.dtype.kind in "bu" else ops.abs(value)


abs = absolute


def sign(x: Any, /) -> Value:
    """-1, 0 or 1 by the sign; NaN stays NaN."""
    value = as_value("sign", x)
    if value.type.dtype == BOOL:
        raise DTypeError("sign does not take bool. Write x.astype('int32') first.")
    return ops.sign(value)


def square(x: Any, /) -> Value:
    """x * x."""
    value = as_value("square", x)
    return value if value.type.dtype == BOOL else ops.integer_pow(value, 2)


def reciprocal(x: Any, /) -> Value:
    """1 / x in floating numbers."""
    value = inexact("reciprocal", x)
    return ops.div(full_like(value, 1.0), value)


def maximum(x: Any, y: Any, /) -> Value:
    """The larger of two elements; NaN if either is."""
    return ops.max(*to_common_pair("maximum", x, y))


def minimum(x: Any, y: Any, /) -> Value:
    """The smaller of two elements; NaN if either is."""
    return ops.min(*to_common_pair("minimum", x, y))


def fmax(x1: Any, x2: Any) -> Value:
    """The larger of two elements; a NaN loses to a number."""
    x, y = to_common_pair("fmax", x1, x2)
    if not dtypes.is_float(x.type.dtype):
        return ops.max(x, y)
    return ops.select(ops.bitwise_or(ops.gt(x, y), ops.ne(y, y)), x, y)


def fmin(x1: Any, x2: Any) -> Value:
    """The smaller of two elements; a NaN loses to a number."""
    x, y = to_common_pair("fmin", x1, x2)
    if not dtypes.is_float(x.type.dtype):
        return ops.min(x, y)
    return ops.select(ops.bitwise_or(ops.lt(x, y), ops.ne(y, y)), x, y)


def clip(arr: Any = None, /, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None,
         a_max: Any = None) -> Value:
    """The elements limited to the range from `min` to `max`; None leaves a side open; `max` wins where they cross."""
    arr = arr if arr is not None else a
    low, high = min if min is not None else a_min, max if max is not None else a_max
    value = as_value("clip", arr)
    if low is None and high is None:
        return value
    operands = [operand("clip", x) for x in (value, low, high) if x is not None]
    placed = to_common("clip", *operands)
    value = placed[0]
    if low is not None:
        value = ops.max(value, placed[1])
    return value if high is None else ops.min(value, placed[-1])


# ---- exponentials, logarithms, roots --------------------------------------------------------------------------------

exp = floating("exp", ops.exp, "e to the power x.")
exp2 = floating("exp2", ops.exp2, "2 to the power x.")
expm1 = floating("expm1", ops.expm1, "exp(x) - 1, exact near 0.")
log = floating("log", ops.log, "The natural logarithm; -inf at 0, NaN below.")
log2 = floating("log2", ops.log2, "The logarithm to base 2.")
log1p = floating("log1p", ops.log1p, "log(1 + x), exact near 0.")
sqrt = floating("sqrt", ops.sqrt, "The square root; NaN below 0.")
cbrt = floating("cbrt", ops.cbrt, "The real cube root.")
log10 = floating("log10", lambda x: ops.mul(ops.log(x), 1.0 / math.log(10.0)), "The logarithm to base 10.")


logaddexp = floating_pair("logaddexp", lax_logaddexp, "log(exp(x1) + exp(x2)) without overflow.")


def _logaddexp2(x: Value, y: Value) -> Value:
    return ops.mul(lax_logaddexp(ops.mul(x, math.log(2.0)), ops.mul(y, math.log(2.0))), 1.0 / math.log(2.0))


logaddexp2 = floating_pair("logaddexp2", _logaddexp2, "log2(2**x1 + 2**x2) without overflow.")


# ---- trigonometry ---------------------------------------------------------------------------------------------------

sin = floating("sin", ops.sin, "The sine.")
cos = floating("cos", ops.cos, "The cosine.")
tan = floating("tan", ops.tan, "The tangent.")
arcsin = asin = floating("arcsin", ops.asin, "The arc sine; NaN outside [-1, 1].")
arccos = acos = floating("arccos", ops.acos, "The arc cosine; NaN outside [-1, 1].")
arctan = atan = floating("arctan", ops.atan, "The arc tangent.")
sinh = floating("sinh", ops.sinh, "The hyperbolic sine.")
cosh = floating("cosh", ops.cosh, "The hyperbolic cosine.")
tanh = floating("tanh", ops.tanh, "The hyperbolic tangent.")
arcsinh = asinh = floating("arcsinh", ops.asinh, "The inverse of sinh.")
arccosh = acosh = floating("arccosh", ops.acosh, "The inverse of cosh; NaN below 1.")
arctanh = atanh = floating("arctanh", ops.atanh, "The inverse of tanh; NaN outside [-1, 1].")
arctan2 = atan2 = floating_pair("arctan2", ops.atan2, "The angle of the point (x2, x1), in (-pi, pi].")
deg2rad = floating("deg2rad", lambda x: ops.mul(x, math.pi / 180.0), "Degrees to radians.")
rad2deg = floating("rad2deg", lambda x: ops.mul(x, 180.0 / math.pi), "Radians to degrees.")
radians, degrees = deg2rad, rad2deg


def _hypot(x: Value, y: Value) -> Value:
    """Scaled by the larger leg, so that squares neither overflow nor vanish."""
    x, y = ops.abs(x), ops.abs(y)
    larger, smaller = ops.max(x, y), ops.min(x, y)
    infinite = ops.bitwise_or(ops.eq(x, math.inf), ops.eq(y, math.inf))
    divisor = ops.select(ops.eq(larger, 0.0), full_like(x, 1.0), larger)
    ratio = ops.div(smaller, divisor)
    length = ops.mul(larger, ops.sqrt(ops.add(ops.mul(ratio, ratio), 1.0)))
    return ops.select(infinite, full_like(x, math.inf), length)


hypot = floating_pair("hypot", _hypot, "sqrt(x1**2 + x2**2) without overflow.")


def _sinc(x: Value) -> Value:
    """sin(t) / t with t = pi x; near 0 the series in t * t, which also has the right derivatives there."""
    t = ops.mul(x, math.pi)
    small = ops.lt(ops.abs(t), 0.25)
    safe = ops.select(small, full_like(x, 1.0), t)
    square = ops.mul(t, t)
    series = full_like(x, 1.0)
    for n in (10, 8, 6, 4, 2):
        series = ops.sub(1.0, ops.mul(ops.mul(square, series), 1.0 / (n * (n + 1))))
    return ops.select(small, series, ops.div(ops.sin(safe), safe))


sinc = floating("sinc", _sinc, "sin(pi x) / (pi x), 1 at 0.")


# ---- rounding -------------------------------------------------------------------------------------------------------

floor = rounding("floor", ops.floor, "The greatest whole number not above x.")
ceil = rounding("ceil", ops.ceil, "The least whole number not below x.")
trunc = rounding("trunc", ops.trunc, "x without its fraction.")
fix = rounding("fix", ops.trunc, "x rounded towards 0.")
rint = rounding("rint", ops.round, "The nearest whole number, halves to even.")


def round(a: Any, decimals: int = 0, out: None = None) -> Value:
    """`a` rounded to `decimals` decimal places, halves to even."""
    refuse_out("round", out)
    value = as_value("round", a)
    if not dtypes.is_float(value.dtype):
        if decimals < 0:
            raise NotImplementedError("round: integers are not rounded to tens; write x // 10 * 10, or convert to "
                                      "float.")
        return value
    if decimals == 0:
        return ops.round(value)
    wide = convert(value, dtypes.accumulation(value.dtype))
    scale = 10.0 ** builtins.abs(decimals)
    scaled = ops.mul(wide, scale) if decimals > 0 else ops.div(wide, full_like(wide, scale))
    rounded = ops.round(scaled)
    result = ops.div(rounded, full_like(wide, scale)) if decimals > 0 else ops.mul(rounded, scale)
    result = ops.select(ops.is_finite(scaled), result, wide)
    return convert(result, value.dtype)


around = round


def modf(x: Any, /) -> tuple[Value, Value]:
    """The fraction and the whole part of x, both with its sign."""
    value = inexact("modf", x)
    whole = ops.trunc(value)
    infinite = ops.eq(ops.abs(value), math.inf)
    fraction = ops.select(infinite, full_like(value, 0.0), ops.sub(value, whole))
    return copysign(fraction, value), whole


def fabs(x: Any, /) -> Value:
    """The absolute value in floating numbers."""
    return ops.abs(inexact("fabs", x))


# ---- parts of floats ------------------------------------------------------------------------------------------------

_BITS = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
_MANTISSA = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}


def signbit(x: Any, /) -> Value:
    """Whether the sign bit is set (also for -0.0 and NaNs)."""
    value = as_value("signbit", x)
    if not dtypes.is_float(value.dtype):
        return ops.lt(value, 0) if value.dtype.kind == "i" else full(value.shape, False, BOOL)
    return ops.lt(ops.bitcast(value, _BITS[value.dtype.itemsize]), 0)


def copysign(x1: Any, x2: Any, /) -> Value:
    """The magnitude of x1 with the sign of x2."""
    x, y = to_common_inexact("copysign", x1, x2)
    magnitude = ops.abs(x)
    return ops.select(signbit(y), ops.neg(magnitude), magnitude)


def nextafter(x1: Any, x2: Any, /) -> Value:
    """The next representable number from x1 towards x2."""
    return ops.nextafter(*to_common_inexact("nextafter", x1, x2))


def spacing(x: Any, /) -> Value:
    """The distance from x to the next number away from 0."""
    value = inexact("spacing", x)
    outward = copysign(full_like(value, math.inf), value)
    distance = ops.sub(ops.nextafter(value, outward), value)
    return ops.select(ops.is_finite(value), distance, full_like(value, math.nan))


def ldexp(x1: Any, x2: Any, /) -> Value:
    """x1 * 2**x2 for an integer x2, exact unless it overflows or underflows."""
    exponent = as_value("ldexp", x2)
    if dtypes.is_float(exponent.dtype):
        raise DTypeError(f"ldexp takes integer exponents, got {exponent.dtype.name}. Write x1 * exp2(x2).")
    value = inexact("ldexp", x1)
    value, power_of_two = to_common("ldexp", value, convert(exponent, dtypes.int32), dtype=value.dtype)
    _, steps = to_common("ldexp", value, convert(exponent, dtypes.int32), dtype=dtypes.int32)
    bits, bias = _MANTISSA[value.dtype.name]
    limit = full_like(steps, bias - 1)
    # in three factors, each a normal power of two, so that no step rounds twice in the normal range
    for _ in range(3):
        part = ops.max(ops.min(steps, limit), ops.neg(limit))
        value = ops.mul(value, _power_of_two(part, value.dtype, bits, bias))
        steps = ops.sub(steps, part)
    return value


def _power_of_two(exponent: Value, dtype: np.dtype, bits: int, bias: int) -> Value:
    pattern = convert(ops.add(exponent, bias), _BITS[dtype.itemsize])
    return ops.bitcast(ops.shift_left(pattern, bits), dtype)


def frexp(x: Any, /) -> tuple[Value, Value]:
    """(m, e) with x = m * 2**e and 0.5 <= |m| < 1 (x itself and 0 for 0, infinities and NaN)."""
    value = inexact("frexp", x)
    bits, bias = _MANTISSA[value.dtype.name]
    integers = _BITS[value.dtype.itemsize]
    tiny = ops.lt(ops.abs(value), float(dtypes.finfo(value.dtype).smallest_normal))
    scaled = ops.select(tiny, ops.mul(value, float(2**bits)), value)
    pattern = ops.bitcast(scaled, integers)
    field = ops.bitwise_and(ops.shift_right_logical(pattern, bits), 2 * bias + 1)
    exponent = ops.sub(convert(field, dtypes.int32), bias - 1)
    exponent = ops.select(tiny, ops.sub(exponent, bits), exponent)
    half = ops.bitwise_and(pattern, ~((2 * bias + 1) << bits))
    mantissa = ops.bitcast(ops.bitwise_or(half, (bias - 1) << bits), value.dtype)
    plain = ops.bitwise_or(ops.bitwise_not(ops.is_finite(value)), ops.eq(value, 0.0))
    return ops.select(plain, value, mantissa), ops.select(plain, full_like(exponent, 0), exponent)


def heaviside(x1: Any, x2: Any, /) -> Value:
    """0 below 0, 1 above, x2 at 0."""
    x, at_zero = to_common_inexact("heaviside", x1, x2)
    step = ops.select(ops.lt(x, 0.0), full_like(x, 0.0), full_like(x, 1.0))
    step = ops.select(ops.eq(x, 0.0), at_zero, step)
    return ops.select(ops.ne(x, x), x, step)


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Value:
    """x with NaN and infinities replaced: by `nan`, and by `posinf` and `neginf` (the greatest finite numbers)."""
    value = as_value("nan_to_num", x)
    if not dtypes.is_float(value.dtype):
        return value
    greatest = float(dtypes.finfo(value.dtype).max)
    posinf, neginf = greatest if posinf is None else posinf, -greatest if neginf is None else neginf
    replacements = [to_common("nan_to_num", value, r, dtype=value.dtype)[1] for r in (nan, posinf, neginf)]
    result = ops.select(ops.ne(value, value), replacements[0], value)
    result = ops.select(ops.eq(value, math.inf), replacements[1], result)
    return ops.select(ops.eq(value, -math.inf), replacements[2], result)


def real(val: Any, /) -> Value:
    """x: arrays are real."""
    return as_value("real", val)


def imag(val: Any, /) -> Value:
    """Zeros: arrays are real."""
    return full_like(as_value("imag", val), 0)


def conjugate(x: Any, /) -> Value:
    """x: arrays are real."""
    return as_value("conjugate", x)


conj = conjugate


def angle(z: Any, deg: bool = False) -> Value:
    """The angle of a real number: 0, or pi (180 degrees) where it is negative."""
    value = inexact("angle", z)
    result = ops.select(signbit(value), full_like(value, 180.0 if deg else math.pi), full_like(value, 0.0))
    return ops.select(ops.ne(value, value), value, result)


# ---- integers -------------------------------------------------------------------------------------------------------

def _integers(name: str, x1: Any, x2: Any) -> tuple[Value, Value]:
    x, y = to_common_pair(name, x1, x2)
    if not dtypes.is_integer(x.type.dtype):
        raise DTypeError(f"{name} takes integers, got {x.type.dtype.name}. Write x.astype('int32') first.")
    return x, y


def gcd(x1: Any, x2: Any) -> Value:
    """The greatest common divisor of integers, by Euclid's algorithm with a fixed number of steps."""
    x, y = _integers("gcd", x1, x2)
    x, y = absolute(x), absolute(y)
    bits = 8 * x.dtype.itemsize
    for _ in range(int(bits * 1.4405) + 2):      # Fibonacci numbers are the worst case
        done = ops.eq(y, 0)
        x, y = ops.select(done, x, y), ops.select(done, y, ops.rem(x, ops.select(done, full_like(y, 1), y)))
    return absolute(x)   # the least integer stays negative until here


def lcm(x1: Any, x2: Any) -> Value:
    """The least common multiple of integers."""
    x, y = _integers("lcm", x1, x2)
    x, y = absolute(x), absolute(y)
    divisor = gcd(x, y)
    nothing = ops.eq(divisor, 0)
    return ops.mul(ops.div(x, ops.select(nothing, full_like(x, 1), divisor)), y)

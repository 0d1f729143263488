"""Elementwise functions that are approximated: powers, exponentials, trigonometry, error and gamma functions.

Derivatives are written for accuracy near the ends of a function's range, and reuse the result where that costs nothing:
tanh' = (1 - y)(1 + y), logistic' = y (1 - y), expm1' = exp(x), asin' = 1 / sqrt((1 - x)(1 + x)).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import is_float
from ..ir.expr import Expr, constant, operation, select as select_expr
from . import special
from .create import full_like
from .elementwise_arithmetic import add, bitwise_and, div, eq, gt, integer_pow, lt, mul, neg, round, select, sqrt, sub
from .elementwise_rows import FLOAT, NUMBER, binary, by_parts, unary

_LN2 = math.log(2)
_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _one_minus_square(x: Any) -> Any:
    """(1 - x)(1 + x), which keeps its relative accuracy near 1 and -1."""
    return mul(sub(1.0, x), add(x, 1.0))


def _gaussian(x: Any) -> Any:
    """erf's derivative."""
    return mul(exp(neg(mul(x, x))), _TWO_OVER_ROOT_PI)


# ---- exponentials and logarithms ------------------------------------------------------------------------------------

exp = unary("exp", FLOAT, np.exp, "e to the power x.", derivative=lambda x, y: y)
exp2 = unary("exp2", FLOAT, np.exp2, "2 to the power x.", derivative=lambda x, y: mul(y, _LN2))
expm1 = unary("expm1", FLOAT, np.expm1, "e to the power x, minus 1, exact near 0.", derivative=lambda x, y: exp(x))
log = unary("log", FLOAT, np.log, "The natural logarithm; -inf at 0, NaN below.", over=lambda x, y: x)
log2 = unary("log2", FLOAT, np.log2, "The logarithm to base 2.", over=lambda x, y: mul(x, _LN2))
log1p = unary("log1p", FLOAT, np.log1p, "The logarithm of 1 + x, exact near 0.", over=lambda x, y: add(x, 1.0))
rsqrt = unary("rsqrt", FLOAT, lambda x: 1 / np.sqrt(x), "1 / sqrt(x).", derivative=lambda x, y: mul(div(y, x), -0.5))
cbrt = unary("cbrt", FLOAT, np.cbrt, "The real cube root.", over=lambda x, y: mul(mul(y, y), 3.0))
logistic = unary("logistic", FLOAT, special.logistic, "1 / (1 + exp(-x)).", derivative=lambda x, y: mul(y, sub(1.0, y)))

# ---- trigonometric and hyperbolic functions -------------------------------------------------------------------------

sin = unary("sin", FLOAT, np.sin, "The sine.", derivative=lambda x, y: cos(x))
cos = unary("cos", FLOAT, np.cos, "The cosine.", derivative=lambda x, y: neg(sin(x)))
tan = unary("tan", FLOAT, np.tan, "The tangent.", derivative=lambda x, y: add(mul(y, y), 1.0))
asin = unary("asin", FLOAT, np.arcsin, "The arc sine; NaN outside [-1, 1].",
             over=lambda x, y: sqrt(_one_minus_square(x)))
acos = unary("acos", FLOAT, np.arccos, "The arc cosine; NaN outside [-1, 1].",
             over=lambda x, y: neg(sqrt(_one_minus_square(x))))
atan = unary("atan", FLOAT, np.arctan, "The arc tangent.", over=lambda x, y: add(mul(x, x), 1.0))
sinh = unary("sinh", FLOAT, np.sinh, "The hyperbolic sine.", derivative=lambda x, y: cosh(x))
cosh = unary("cosh", FLOAT, np.cosh, "The hyperbolic cosine.", derivative=lambda x, y: sinh(x))
tanh = unary("tanh", FLOAT, np.tanh, "The hyperbolic tangent.", derivative=lambda x, y: _one_minus_square(y))
asinh = unary("asinh", FLOAT, np.arcsinh, "The inverse of sinh.", over=lambda x, y: sqrt(add(mul(x, x), 1.0)))
acosh = unary("acosh", FLOAT, np.arccosh, "The inverse of cosh; NaN below 1.",
              over=lambda x, y: sqrt(mul(sub(x, 1.0), add(x, 1.0))))
atanh = unary("atanh", FLOAT, np.arctanh, "The inverse of tanh; NaN outside [-1, 1].",
              over=lambda x, y: _one_minus_square(x))


def _squared_radius(y: Any, x: Any) -> Any:
    return add(mul(x, x), mul(y, y))


atan2 = binary("atan2", FLOAT, np.arctan2, "The angle of the point (y, x), given as atan2(y, x).",
               jvp=by_parts("atan2", lambda y, x, z: div(x, _squared_radius(y, x)),
                            lambda y, x, z: neg(div(y, _squared_radius(y, x)))))

# ---- error and gamma functions --------------------------------------------------------------------------------------

erf = unary("erf", FLOAT, special.erf, "The error function.", derivative=lambda x, y: _gaussian(x))
erfc = unary("erfc", FLOAT, special.erfc, "1 - erf(x), accurate for large x.",
             derivative=lambda x, y: neg(_gaussian(x)))
erf_inv = unary("erf_inv", FLOAT, special.erf_inv, "The inverse of erf; infinite at -1 and 1, NaN beyond.",
                derivative=lambda x, y: mul(exp(mul(y, y)), 1 / _TWO_OVER_ROOT_PI))
lgamma = unary("lgamma", FLOAT, special.lgamma, "The logarithm of |gamma(x)|; inf at 0, -1, -2, ...",
               derivative=lambda x, y: digamma(x))
digamma = unary("digamma", FLOAT, special.digamma, "The derivative of lgamma; infinite at 0, NaN at -1, -2, ...",
                derivative=lambda x, y: trigamma(x))

_TRIGAMMA_SHIFT = 8
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)   # B2, B4, ...


def trigamma(x: Any) -> Any:
    """The derivative of digamma, composed: reflection below 1/2, recurrence up by 8, then the asymptotic series.

    Abramowitz and Stegun 6.4.6, 6.4.7 and 6.4.12. Relative error about 1e-14 in float64.
    """
    reflect = lt(x, 0.5)
    positive = select(reflect, sub(1.0, x), x)
    total = integer_pow(positive, -2)
    for step in range(1, _TRIGAMMA_SHIFT):
        total = add(total, integer_pow(add(positive, float(step)), -2))
    shifted = add(positive, float(_TRIGAMMA_SHIFT))
    inverse = div(1.0, shifted)
    square = mul(inverse, inverse)
    series = full_like(x, _BERNOULLI[-1])
    for coefficient in reversed(_BERNOULLI[:-1]):
        series = add(mul(series, square), coefficient)
    tail = mul(inverse, add(mul(inverse, 0.5), add(mul(series, square), 1.0)))
    positive_value = add(total, tail)
    sine = sin(mul(sub(x, round(x)), math.pi))   # its square has period 1; a small argument keeps it accurate
    reflected = sub(div(math.pi ** 2, mul(sine, sine)), positive_value)
    return select(reflect, reflected, positive_value)


# ---- pow ------------------------------------------------------------------------------------------------------------


def _pow_reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Integers wrap; a negative power is the truncated inverse (0 for a base of 0)."""
    if x.dtype.kind == "f":
        return np.power(x, y)
    result, base, rest = np.ones_like(x), x, np.where(y < 0, 0, y).astype(y.dtype)
    while rest.any():
        result, base, rest = np.where(rest & 1, result * base, result).astype(x.dtype), base * base, rest >> 1
    minus_one = np.where(y & 1, x, np.ones_like(x))
    return np.where(y < 0, np.where(x == 1, 1, np.where(x == -1, minus_one, 0)), result).astype(x.dtype) \
        if x.dtype.kind == "i" else result


def _lower_pow(x: Expr, y: Expr) -> Expr:
    """Floats: the operation. Integers: repeated squaring over every bit of the exponent."""
    if is_float(x.dtype):
        return operation("pow", x, y)
    zero, one = constant(0, x.dtype), constant(1, x.dtype)
    result, base = one, x
    bits = x.dtype.itemsize * 8 - (x.dtype.kind == "i")
    for bit in range(bits):
        chosen = operation("ne", operation("and", y, constant(1 << bit, y.dtype)), zero)
        result = select_expr(chosen, operation("mul", result, base), result)
        base = operation("mul", base, base) if bit + 1 < bits else base
    if x.dtype.kind == "u":
        return result
    odd = operation("ne", operation("and", y, one), zero)
    inverse = select_expr(operation("eq", x, one), one, select_expr(
        operation("eq", x, constant(-1, x.dtype)), select_expr(odd, x, one), zero))
    return select_expr(operation("lt", y, zero), inverse, result)


def _pow_along_base(x: Any, y: Any, z: Any) -> Any:
    """y x^(y - 1); 0 where y is 0, even at x = 0."""
    constant_power = eq(y, 0.0)
    safe = select(constant_power, 1.0, y)
    return select(constant_power, 0.0, mul(safe, pow(x, sub(safe, 1.0))))


def _pow_along_exponent(x: Any, y: Any, z: Any) -> Any:
    """x^y log x; 0 where x is 0 and y > 0."""
    vanishes = bitwise_and(eq(x, 0.0), gt(y, 0.0))
    return select(vanishes, 0.0, mul(z, log(select(vanishes, 1.0, x))))


pow = binary("pow", NUMBER, _pow_reference,
             "x to the power y; integers wrap, and negative powers of integers are truncated inverses.",
             jvp=by_parts("pow", _pow_along_base, _pow_along_exponent), lower=_lower_pow)

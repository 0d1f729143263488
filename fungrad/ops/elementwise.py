"""The elementwise primitives, by name. Operands have equal shapes and element types; one may be a Python scalar.

`abs`, `max`, `min`, `pow` and `round` are named like their primitives, so import the module rather than its names:
`from . import elementwise`.
"""
from __future__ import annotations

from .elementwise_arithmetic import (abs, add, bitcast, bitwise_and, bitwise_not, bitwise_or, bitwise_xor,
                                     ceil, clamp, count_leading_zeros, div, eq, floor, ge, gt, integer_pow, is_finite,
                                     le, lt, max, min, mul, ne, neg, nextafter, population_count, rem, round, select,
                                     shift_left, shift_right_arithmetic, shift_right_logical, sign, sqrt,
                                     stop_gradient, sub, trunc)
from .elementwise_transcendental import (acos, acosh, asin, asinh, atan, atan2, atanh, cbrt, cos, cosh,
                                         digamma, erf, erf_inv, erfc, exp, exp2, expm1, lgamma, log, log1p, log2,
                                         logistic, pow, rsqrt, sin, sinh, tan, tanh, trigamma)

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitcast", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp", "cos", "cosh", "count_leading_zeros", "digamma", "div", "eq",
    "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "lgamma",
    "log", "log1p", "log2", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "population_count", "pow",
    "rem", "round", "rsqrt", "select", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin",
    "sinh", "sqrt", "stop_gradient", "sub", "tan", "tanh", "trigamma", "trunc",
]

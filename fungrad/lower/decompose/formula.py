"""Formulas: scalar expressions with Python's operators, for writing numerical algorithms.

A `Formula` wraps an Expr; numbers become constants of its dtype. `a * b + c` may be contracted by a backend; where a
rounding matters, `fma` is written out.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.expr import BOOL, Expr, cast, constant, operation, rare, select

FLOAT16, FLOAT32, FLOAT64 = (np.dtype(name) for name in ("float16", "float32", "float64"))
UINT32, UINT64 = np.dtype("uint32"), np.dtype("uint64")
INT32, INT64 = np.dtype("int32"), np.dtype("int64")

Number = bool | int | float


class Formula:
    """An expression under construction; arithmetic is element by element in its dtype."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr):
        self.expr = expr

    @property
    def dtype(self) -> np.dtype:
        return self.expr.dtype

    def like(self, value: Formula | Number) -> Formula:
        """A number as a constant of this dtype."""
        return value if isinstance(value, Formula) else Formula(constant(value, self.dtype))

    def _binary(self, op: str, other: Formula | Number) -> Formula:
        return Formula(operation(op, self.expr, self.like(other).expr))

    def _reversed(self, op: str, other: Number) -> Formula:
        return Formula(operation(op, self.like(other).expr, self.expr))

    def __add__(self, other: Formula | Number) -> Formula:
        return self._binary("add", other)

    def __radd__(self, other: Number) -> Formula:
        return self._reversed("add", other)

    def __sub__(self, other: Formula | Number) -> Formula:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Formula:
        return self._reversed("sub", other)

    def __mul__(self, other: Formula | Number) -> Formula:
        return self._binary("mul", other)

    def __rmul__(self, other: Number) -> Formula:
        return self._reversed("mul", other)

    def __truediv__(self, other: Formula | Number) -> Formula:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Formula:
        return self._reversed("div", other)

    def __and__(self, other: Formula | Number) -> Formula:
        return self._binary("and", other)

    def __or__(self, other: Formula | Number) -> Formula:
        return self._binary("or", other)

    def __xor__(self, other: Formula | Number) -> Formula:
        return self._binary("xor", other)

    def __lshift__(self, other: Formula | Number) -> Formula:
        return self._binary("shift_left", other)

    def __rshift__(self, other: Formula | Number) -> Formula:
        return self._binary("shift_right", other)

    def __lt__(self, other: Formula | Number) -> Formula:
        return self._binary("lt", other)

    def __le__(self, other: Formula | Number) -> Formula:
        return self._binary("le", other)

    def __gt__(self, other: Formula | Number) -> Formula:
        return self._binary("gt", other)

    def __ge__(self, other: Formula | Number) -> Formula:
        return self._binary("ge", other)

    def equals(self, other: Formula | Number) -> Formula:
        return self._binary("eq", other)

    def differs(self, other: Formula | Number) -> Formula:
        return self._binary("ne", other)

    def __neg__(self) -> Formula:
        return self._unary("neg")

    def __invert__(self) -> Formula:
        return self._unary("not")

    def __abs__(self) -> Formula:
        return self._unary("abs")

    def _unary(self, op: str) -> Formula:
        return Formula(operation(op, self.expr))

    def sqrt(self) -> Formula:
        return self._unary("sqrt")

    def round(self) -> Formula:
        return self._unary("round")

    def floor(self) -> Formula:
        return self._unary("floor")

    def trunc(self) -> Formula:
        return self._unary("trunc")

    def max(self, other: Formula | Number) -> Formula:
        return self._binary("max", other)

    def min(self, other: Formula | Number) -> Formula:
        return self._binary("min", other)

    def cast(self, dtype: np.dtype) -> Formula:
        return Formula(cast(self.expr, dtype))

    def bitcast(self, dtype: np.dtype) -> Formula:
        return self if self.dtype == dtype else Formula(operation("bitcast", self.expr, dtype=dtype))


def fma(a: Formula, b: Formula | Number, c: Formula | Number) -> Formula:
    """a*b + c, rounded once."""
    return Formula(operation("fma", a.expr, a.like(b).expr, a.like(c).expr))


def where(condition: Formula, if_true: Formula | Number, if_false: Formula | Number) -> Formula:
    """The element of one of two values; at least one is a Formula."""
    like = if_true if isinstance(if_true, Formula) else if_false
    assert isinstance(like, Formula) and condition.dtype == BOOL
    return Formula(select(condition.expr, like.like(if_true).expr, like.like(if_false).expr))


def rarely(condition: Formula, if_true: Formula, if_false: Formula) -> Formula:
    """`where` with a first value that is costly and seldom needed."""
    return Formula(rare(condition.expr, if_true.expr, if_false.expr))


def polynomial(x: Formula, coefficients: Sequence[float]) -> Formula:
    """The sum of coefficients[k] * x**k, by Horner's rule."""
    total = x.like(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = fma(total, x, coefficient)
    return total


class Layout:
    """How a float dtype is made of bits."""

    def __init__(self, float_dtype: str, signed: str, unsigned: str, mantissa: int, bias: int):
        self.dtype = np.dtype(float_dtype)
        self.signed, self.unsigned = np.dtype(signed), np.dtype(unsigned)
        self.bits = 8 * self.dtype.itemsize
        self.mantissa = mantissa          # stored bits
        self.bias = bias
        self.sign_mask = 1 << (self.bits - 1)
        self.least_normal = 2.0 ** (1 - bias)
        self.rounder = 1.5 * 2.0**mantissa   # adding it rounds to an integer that stands in the low bits


LAYOUTS = {FLOAT32: Layout("float32", "int32", "uint32", 23, 127),
           FLOAT64: Layout("float64", "int64", "uint64", 52, 1023)}
INFINITY, NAN = float("inf"), float("nan")


def layout(x: Formula) -> Layout:
    return LAYOUTS[x.dtype]


def copy_sign(magnitude: Formula, sign: Formula) -> Formula:
    """`magnitude` (which is not negative) with the sign bit of `sign`."""
    form = layout(magnitude)
    bit = sign.bitcast(form.unsigned) & form.sign_mask
    return (magnitude.bitcast(form.unsigned) | bit).bitcast(form.dtype)


def sign_bit(x: Formula) -> Formula:
    """Whether the sign bit is set (also of -0 and of NaN)."""
    return x.bitcast(layout(x).signed) < 0


def power_of_two(exponent: Formula, form: Layout) -> Formula:
    """2**exponent for an integer exponent that gives a normal number."""
    return ((exponent + form.bias) << form.mantissa).bitcast(form.dtype)

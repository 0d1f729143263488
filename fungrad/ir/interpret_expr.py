"""The meaning of every operation of index expressions (ir/expr.py), in NumPy: on scalars or arrays of equal shape."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .expr import BOOL

Array = Any   # a NumPy array or scalar

COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
                           "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def identity(combine: str, dtype: np.dtype) -> Any:
    """The value that leaves others as they are under `combine`."""
    if combine in ("add", "or", "xor"):
        return dtype.type(0)
    if combine == "mul":
        return dtype.type(1)
    if combine == "and":
        return np.invert(np.zeros((), dtype))[()]
    if dtype == BOOL:
        return np.bool_(combine == "min")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(info.min if combine == "max" else info.max)
    return dtype.type(-math.inf if combine == "max" else math.inf)


def convert(x: Array, dtype: np.dtype) -> Array:
    """A cast: floats to integers truncate and saturate, NaN becomes 0; integers wrap; other values are rounded."""
    x = np.asarray(x)
    if dtype == BOOL:
        return x != 0
    if x.dtype.kind in "iub" or dtype.kind not in "iu":
        if x.dtype == np.float64 and dtype.name in ("float16", "bfloat16"):
            return _rounded_once(x, dtype)
        return x.astype(dtype)
    info = np.iinfo(dtype)
    wide = np.trunc(x.astype(np.float64))
    inside = (wide >= float(info.min)) & (wide < float(info.max) + 1.0)
    result = np.where(inside, wide, 0.0).astype(dtype)
    result = np.where(wide >= float(info.max) + 1.0, dtype.type(info.max), result)
    return np.where(wide < float(info.min), dtype.type(info.min), result)


def _rounded_once(x: Array, dtype: np.dtype) -> Array:
    """float64 to 16 bits through a float32 rounded to odd, so that nothing is rounded twice."""
    near = x.astype(np.float32)
    bits = near.view(np.int32)
    back = near.astype(np.float64)
    inexact = (back != x) & np.isfinite(x) & ((bits & 1) == 0)
    moved = np.where(np.abs(back) < np.abs(x), bits + 1, bits - 1).astype(np.int32)
    return np.where(inexact, moved, bits).astype(np.int32).view(np.float32).astype(dtype)


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    safe = np.where(y == 0, y.dtype.type(1), y)
    return (x - np.fmod(x, safe)) // safe


def _integer_div(x: Array, y: Array) -> Array:
    least = (y == -1) if x.dtype.kind == "i" else np.zeros(np.shape(y), bool)
    quotient = _divide(x, np.where(least, y.dtype.type(1), y))
    return np.where(y == 0, np.invert(np.zeros((), x.dtype)), np.where(least, np.negative(x), quotient))


def _integer_rem(x: Array, y: Array) -> Array:
    unsafe = (y == 0) | ((y == -1) if x.dtype.kind == "i" else (y == 0))
    remainder = np.fmod(x, np.where(unsafe, y.dtype.type(1), y))
    return np.where(y == 0, x, np.where(unsafe, x.dtype.type(0), remainder))


def _bits(dtype: np.dtype) -> int:
    return 8 * dtype.itemsize


def _unsigned(x: Array) -> Array:
    return np.asarray(x).view(np.dtype(f"uint{_bits(x.dtype)}"))


def _shift(x: Array, count: Array, shift: Any) -> Array:
    small = _unsigned(count) < _bits(x.dtype)
    return small, shift(x, np.where(small, count, count.dtype.type(0)).astype(x.dtype))


def _shift_left(x: Array, count: Array) -> Array:
    small, shifted = _shift(x, count, np.left_shift)
    return np.where(small, shifted, x.dtype.type(0))


def _shift_right(x: Array, count: Array) -> Array:
    small, shifted = _shift(x, count, np.right_shift)
    if x.dtype.kind == "u":
        return np.where(small, shifted, x.dtype.type(0))
    return np.where(small, shifted, np.right_shift(x, x.dtype.type(_bits(x.dtype) - 1)))


def _shift_right_logical(x: Array, count: Array) -> Array:
    return _shift_right(_unsigned(x), _unsigned(count)).view(x.dtype)


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python floats on every element; errors of range and domain become infinities and NaN."""
    def element(v: float) -> float:
        try:
            return function(float(v))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan
    vectorized = np.vectorize(element, otypes=[np.float64])
    return lambda x: vectorized(np.asarray(x, np.float64))


def _lgamma(x: float) -> float:
    return math.inf if x <= 0.0 and x == math.floor(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    if x == 0.0:
        return -math.copysign(math.inf, x)
    if x < 0.0:
        return math.nan if x == math.floor(x) else _digamma(1.0 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 12.0:
        total, x = total - 1.0 / x, x + 1.0
    s = 1.0 / (x * x)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * 691 / 32760)))))
    return total + math.log(x) - 0.5 / x - series


def _erf_inv(y: float) -> float:
    if abs(y) >= 1.0 or y != y:
        return math.copysign(math.inf, y) if abs(y) == 1.0 else math.nan
    low, high = 0.0, 6.0
    if abs(y) < 0.5:
        x = y * 0.9
        for _ in range(8):
            x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
        return x
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > 1.0 - abs(y) else (low, middle)
    return math.copysign((low + high) / 2, y)


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, x.dtype.type(1)) / (x.dtype.type(1) + e)


def _population_count(x: Array) -> Array:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _count_leading_zeros(x: Array) -> Array:
    v, count = _unsigned(x), np.zeros(np.shape(x), np.int64)
    for shift in range(_bits(x.dtype)):
        count += (v >> v.dtype.type(shift)) != 0
    return (_bits(x.dtype) - count).astype(x.dtype)


def _mulhi(x: Array, y: Array) -> Array:
    bits = _bits(x.dtype)
    product = np.asarray(_unsigned(x)).astype(object) * np.asarray(_unsigned(y)).astype(object)
    high = np.asarray(product >> bits)
    return high.astype(f"uint{bits}").view(x.dtype)


def _sign(x: Array) -> Array:
    if x.dtype.kind == "u" or x.dtype == BOOL:
        return np.minimum(x, x.dtype.type(1))
    return np.where(x > 0, x.dtype.type(1), np.where(x < 0, x.dtype.type(-1), x))


def _nextafter(x: Array, y: Array) -> Array:
    return np.nextafter(x, y)


OPERATIONS: dict[str, Callable[..., Array]] = {
    **COMBINE, "sub": np.subtract, "div": _divide, "rem": np.fmod, "neg": np.negative, "abs": np.abs,
    "fma": lambda a, b, c: np.add(np.multiply(a, b), c), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "sqrt": np.sqrt, "not": np.invert, "shift_left": np.left_shift, "shift_right": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": np.where,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x), "cbrt": np.cbrt, "pow": np.power, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "logistic": _logistic, "erf": _each(math.erf), "erfc": _each(math.erfc), "erf_inv": _each(_erf_inv),
    "lgamma": _each(_lgamma), "digamma": _each(_digamma), "population_count": _population_count,
    "count_leading_zeros": _count_leading_zeros, "nextafter": _nextafter, "sign": _sign, "mulhi": _mulhi,
    "integer_div": _integer_div, "integer_rem": _integer_rem, "safe_shift_left": _shift_left,
    "safe_shift_right": _shift_right, "safe_shift_right_logical": _shift_right_logical,
}
# Where NumPy would compute in 16 bits what is defined as computed in float32 and rounded.
_IN_FLOAT32 = frozenset(OPERATIONS) - {"select", "nextafter", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs"}
_KEPT_INTEGERS = frozenset({"floor", "ceil", "trunc", "round"})


def apply_operation(op: str, operands: list[Array], dtype: np.dtype) -> Array:
    """The result of an operation; `fma` is rounded once (through a wider type where there is one)."""
    operands = [np.asarray(x) for x in operands]
    first = operands[0].dtype
    with np.errstate(all="ignore"):
        if op == "cast":
            return convert(operands[0], dtype)
        if op == "bitcast":
            return np.ascontiguousarray(operands[0]).view(dtype).reshape(operands[0].shape)
        if op in _KEPT_INTEGERS and first.kind in "iub":
            return operands[0]
        narrow = dtype.name in ("float16", "bfloat16")
        if op == "fma" and first == np.float32:
            return np.asarray(OPERATIONS[op](*[x.astype(np.float64) for x in operands])).astype(dtype)
        if op == "fma" and first == np.float64:
            return np.asarray(OPERATIONS[op](*[x.astype(np.longdouble) for x in operands])).astype(dtype)
        if narrow and op in _IN_FLOAT32:
            operands = [x.astype(np.float32) if x.dtype == dtype else x for x in operands]
        elif first.name == "bfloat16" and op in ("eq", "ne", "lt", "le", "gt", "ge"):
            operands = [x.astype(np.float32) for x in operands]
        return np.asarray(OPERATIONS[op](*operands)).astype(dtype)

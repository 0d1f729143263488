"""Uniform numbers and integers, coin tosses."""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError
from ..ir.value import Value
from ..lax.arguments import static_shape
from ..lax.conversion import as_value, place
from ..ops import elementwise as ew
from ..ops.create import full, full_like
from ..ops.linear import convert, reshape
from ..ops.slicing import slice_
from .keys import Shape, checked_key, float_dtype, random_bits, result_shape, split_list


def unit(key: Any, shape: Shape, dtype: np.dtype) -> Any:
    """Uniform in [0, 1): the mantissa of a number in [1, 2) filled with random bits, less 1."""
    info = dtypes.finfo(dtype)
    width = 8 * dtype.itemsize
    drawn = 8 if info.nmant < 8 else width
    unsigned = np.dtype(f"uint{width}")
    mantissa = ew.shift_right_logical(convert(random_bits(key, drawn, shape), unsigned), drawn - info.nmant)
    one = int(np.ones((), dtype).view(unsigned))
    return ew.sub(ew.bitcast(ew.bitwise_or(mantissa, one), dtype), 1.0)


def uniform_in(key: Any, shape: Shape, dtype: np.dtype, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Uniform in [low, high); the bounds are numbers or arrays of `shape`."""
    fraction = unit(key, shape, dtype)
    if isinstance(low, float) and isinstance(high, float):
        if (low, high) == (0.0, 1.0):
            return fraction
        low_number, high_number = np.asarray(low, dtype), np.asarray(high, dtype)
        span = full(shape, float(high_number - low_number), dtype)
        low = full(shape, float(low_number), dtype)
    else:
        low, high = place(low, shape, dtype), place(high, shape, dtype)
        span = ew.sub(high, low)
    return ew.max(low, ew.add(ew.mul(fraction, span), low))


def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Value:
    """Uniform numbers in [minval, maxval)."""
    key, kind = checked_key("uniform", key), float_dtype("uniform", dtype)
    bounds = [float(b) if isinstance(b, (int, float)) else as_value("uniform", b) for b in (minval, maxval)]
    shape = result_shape("uniform", shape, *[b for b in bounds if isinstance(b, Value)])
    return uniform_in(key, shape, kind, *bounds)


def _clipped(x: Any, dtype: np.dtype, low: int, high: int) -> Any:
    """An integer array in another integer type, its values moved into [low, high] as far as its own type reaches."""
    own = np.iinfo(x.dtype)
    return convert(ew.clamp(full_like(x, max(low, int(own.min))), x, full_like(x, min(high, int(own.max)))), dtype)


def _integer_bound(x: Any) -> Any:
    value = as_value("randint", x)
    return value if dtypes.is_integer(value.dtype) else convert(value, dtypes.default_int())


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Value:
    """Uniform integers in [minval, maxval); minval where the range is empty.

    Two words of random bits are reduced to the range, so that numbers differ in probability by range / 2**64 at most
    for types of up to 32 bits.
    """
    key = checked_key("randint", key)
    kind = dtypes.canonical(int if dtype is None else dtype)
    if not dtypes.is_integer(kind):
        raise DTypeError(f"randint: dtype must be an integer type, got {kind}")
    low, high = _integer_bound(minval), _integer_bound(maxval)
    shape = result_shape("randint", shape, low, high)
    limits = np.iinfo(kind)
    wide = kind if kind.itemsize >= 4 else np.dtype("int32")   # narrow types are drawn in 32 bits
    beyond = full(shape, False, np.dtype(bool))
    top = int(limits.max)
    if wide != kind:
        top += 1
    elif np.iinfo(high.dtype).max > top:
        beyond = place(ew.gt(high, top), shape, np.dtype(bool))
    low = place(_clipped(low, wide, int(limits.min), int(limits.max)), shape, wide)
    high = place(_clipped(high, wide, int(limits.min), top), shape, wide)
    return convert(_integers(key, shape, low, high, beyond), kind)


def _integers(key: Any, shape: Shape, low: Any, high: Any, beyond: Any) -> Any:
    """Integers in [low, high), or in [low, high] where `beyond` holds."""
    width = 8 * low.dtype.itemsize
    unsigned = np.dtype(f"uint{width}")
    first, second = split_list(key, 2)
    higher, lower = random_bits(first, width, shape), random_bits(second, width, shape)
    span = convert(ew.sub(high, low), unsigned)
    empty = ew.le(high, low)
    span = ew.select(empty, full_like(span, 1), span)
    span = ew.select(ew.bitwise_and(beyond, ew.bitwise_not(empty)), ew.add(span, 1), span)   # 0: the whole range
    # (higher * 2**width + lower) % span without wider integers, from (a * b) % n = ((a % n) * (b % n)) % n
    factor = ew.rem(full_like(span, 2**(width // 2)), span)
    factor = ew.rem(ew.mul(factor, factor), span)
    offset = ew.rem(ew.add(ew.mul(ew.rem(higher, span), factor), ew.rem(lower, span)), span)
    return ew.add(low, convert(offset, low.dtype))


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Value:
    """True with probability `p`. mode="high" resolves probabilities far below 1e-7, at twice the cost."""
    key, p = checked_key("bernoulli", key), as_value("bernoulli", p)
    if not dtypes.is_float(p.dtype):
        raise DTypeError(f"bernoulli: p must be floating, got {p.dtype}")
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli: mode must be 'high' or 'low', got {mode!r}")
    shape = result_shape("bernoulli", shape, p)
    chance = place(p, shape, p.dtype)
    if mode == "low":
        return ew.lt(unit(key, shape, p.dtype), chance)
    both = unit(key, (2, *shape), p.dtype)
    coarse, fine = (row(both, i) for i in range(2))
    return ew.lt(ew.mul(fine, 2.0**-dtypes.finfo(p.dtype).nmant), ew.sub(chance, coarse))


def row(x: Any, i: int) -> Any:
    """x[i]"""
    rest = x.shape[1:]
    return reshape(slice_(x, (i, *[0] * len(rest)), (i + 1, *rest)), rest)


def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """-1 or 1 with equal probability (of type int32 by default)."""
    kind = dtypes.canonical(int if dtype is None else dtype)
    heads = convert(bernoulli(key, 0.5, static_shape("rademacher", shape)), kind)
    return ew.sub(ew.mul(heads, 2), 1)

"""The 16-bit floats in core operations on float32 and integers.

Arithmetic on float16 and bfloat16 is done in float32 and rounded once. bfloat16 never meets a backend's own conversions
(LLVM would call library functions): it is the upper half of a float32, rounded to nearest even in integers, NaN kept. A
float64 reaches 16 bits through a float32 that is rounded to odd, so that the second rounding sees what the first lost.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import is_bfloat16
from ...ir.target import Target
from .formula import FLOAT16, FLOAT32, FLOAT64, UINT32, Formula, where

UINT16 = np.dtype("uint16")
INT32 = np.dtype("int32")


def is_narrow(dtype: np.dtype) -> bool:
    """Whether values of this type are computed in float32."""
    return dtype == FLOAT16 or is_bfloat16(dtype)


def converts_float16(target: Target) -> bool:
    """Whether a target converts float16 by itself (on x86 that takes F16C; elsewhere it is taken for granted)."""
    return "f16c" in target.features or "sse2" not in target.features


def to_float32(x: Formula) -> Formula:
    """A 16-bit float, exactly."""
    if is_bfloat16(x.dtype):
        return (x.bitcast(UINT16).cast(UINT32) << 16).bitcast(FLOAT32)
    return x.cast(FLOAT32)


def from_float32(x: Formula, dtype: np.dtype) -> Formula:
    """A float32 rounded to a 16-bit float."""
    if dtype == FLOAT16:
        return x.cast(FLOAT16)
    bits = x.bitcast(UINT32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    quiet = bits | 0x400000
    return (where(x.differs(x), quiet, rounded) >> 16).cast(UINT16).bitcast(dtype)


def half_to_float32(x: Formula) -> Formula:
    """float16 to float32 in integers: a product with 2**112 moves the exponent and makes subnormals normal."""
    bits = x.bitcast(UINT16).cast(UINT32)
    size = bits & 0x7FFF
    scaled = (size << 13).bitcast(FLOAT32) * 2.0**112
    special = ((size << 13) | 0x7F800000).bitcast(FLOAT32)
    value = where(size >= 0x7C00, special, scaled)
    return (value.bitcast(UINT32) | ((bits & 0x8000) << 16)).bitcast(FLOAT32)


def half_from_float32(x: Formula) -> Formula:
    """float32 to float16 in integers: rounded to even at bit 13; subnormals by adding 1/2, which lines them up."""
    bits = x.bitcast(UINT32)
    size = bits & 0x7FFFFFFF
    normal = (size + (0xFFF + ((112 * 0x800000) ^ 0xFFFFFFFF) + 1) + ((size >> 13) & 1)) >> 13
    subnormal = (size.bitcast(FLOAT32) + 0.5).bitcast(UINT32) - 0x3F000000
    value = where(size < 0x38800000, subnormal, normal)
    value = where(size >= 0x477FF000, value.like(0x7C00), value)
    value = where(size > 0x7F800000, value.like(0x7E00), value)
    return (value | ((bits >> 16) & 0x8000)).cast(UINT16).bitcast(FLOAT16)


def round_to_odd(x: Formula) -> Formula:
    """A float64 as the float32 next to it whose last bit is odd, unless it is exact."""
    near = x.cast(FLOAT32)
    back = near.cast(FLOAT64)
    bits = near.bitcast(INT32)
    even = (bits & 1).equals(0)
    outward = abs(back) < abs(x)
    moved = where(outward, bits + 1, bits - 1).bitcast(FLOAT32)
    inexact = (back < x) | (back > x)
    return where(inexact & even, moved, near)


def convert(x: Formula, dtype: np.dtype) -> Formula:
    """A cast that has a 16-bit float on one side or both."""
    if is_narrow(x.dtype):
        x = to_float32(x)
    elif x.dtype == FLOAT64:
        x = round_to_odd(x)
    if not is_narrow(dtype):
        return x.cast(dtype)
    return from_float32(x.cast(FLOAT32), dtype)

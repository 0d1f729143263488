"""The 16-bit floats in core operations on float32 and integers.

Arithmetic on float16 and bfloat16 is done in float32 and rounded once. bfloat16 never meets a backend's own conversions (LLVM
would call library functions): it is the upper half of a float32, rounded to nearest even in integers, NaN kept. A
float64 reaches 16 bits through a float32 that is rounded to odd, so that the second rounding sees what the first one lost.
"""
from __future__ import annotations

import numpy as np

from .formula import FLOAT16, FLOAT32, FLOAT64, UINT32, Formula, where

BFLOAT16_NAME = "bfloat16"
UINT16 = np.dtype("uint16")
INT32 = np.dtype("int32")


def is_narrow(dtype: np.dtype) -> bool:
    """Whether values of this type are computed in float32."""
    return dtype == FLOAT16 or dtype.name == BFLOAT16_NAME


def to_float32(x: Formula) -> Formula:
    """A 16-bit float, exactly."""
    if x.dtype.name == BFLOAT16_NAME:
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

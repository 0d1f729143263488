"""Integer operations with defined results everywhere, bit counting, and neighbours of floats, in core operations."""
from __future__ import annotations

import numpy as np

from ...ir.expr import BOOL
from .formula import FLOAT64, UINT32, UINT64, Formula, layout, where
from .trigonometric import multiply_high


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def _quotient(x: Formula, y: Formula) -> Formula:
    """x / y for y not 0 and not (least, -1). Narrow integers go through float64, which vectorises and is exact."""
    if x.dtype.itemsize <= 4 and y.expr.op != "constant":
        return (x.cast(FLOAT64) / y.cast(FLOAT64)).cast(x.dtype)
    return x / y


def integer_div(x: Formula, y: Formula) -> Formula:
    """x / y truncated; x / 0 = -1 (all bits set), least / -1 = least."""
    if x.dtype == BOOL:
        return x & y
    zero = y.equals(0)
    if x.dtype.kind == "u":
        return where(zero, x.like(int(np.iinfo(x.dtype).max)), _quotient(x, where(zero, y.like(1), y)))
    minus = y.equals(-1)
    quotient = _quotient(x, where(zero | minus, y.like(1), y))
    return where(zero, x.like(-1), where(minus, -x, quotient))


def integer_rem(x: Formula, y: Formula) -> Formula:
    """x - y * (x / y), with the sign of x; x % 0 = x, least % -1 = 0."""
    if x.dtype == BOOL:
        return x & ~y
    unsafe = y.equals(0) if x.dtype.kind == "u" else y.equals(0) | y.equals(-1)
    divisor = where(unsafe, y.like(1), y)
    remainder = x - _quotient(x, divisor) * divisor     # 0 for y = -1
    return where(y.equals(0), x, remainder)


def _count_is_small(count: Formula) -> tuple[Formula, Formula]:
    """(0 <= count < bits, a count that is safe to shift by)."""
    bits = 8 * count.dtype.itemsize
    small = count.bitcast(_unsigned(count.dtype)) < bits
    return small, where(small, count, count.like(bits - 1))


def safe_shift_left(x: Formula, count: Formula) -> Formula:
    small, safe = _count_is_small(count)
    return where(small, x << safe, x.like(0))


def safe_shift_right(x: Formula, count: Formula) -> Formula:
    """Arithmetic for signed integers: a large count leaves the sign."""
    small, safe = _count_is_small(count)
    return x >> safe if x.dtype.kind == "i" else where(small, x >> safe, x.like(0))


def safe_shift_right_logical(x: Formula, count: Formula) -> Formula:
    unsigned = _unsigned(x.dtype)
    small, safe = _count_is_small(count)
    return where(small, x.bitcast(unsigned) >> safe.bitcast(unsigned), x.bitcast(unsigned).like(0)).bitcast(x.dtype)


def population_count(x: Formula) -> Formula:
    """The number of bits set: sums of neighbouring pairs, fours, eights; then all bytes by one product."""
    wide = UINT64 if x.dtype.itemsize == 8 else UINT32
    v = _widened(x, wide)
    repeat = 0x0101010101010101 if wide == UINT64 else 0x01010101
    v = v - ((v >> 1) & (0x55 * repeat))
    v = (v & (0x33 * repeat)) + ((v >> 2) & (0x33 * repeat))
    v = (v + (v >> 4)) & (0x0F * repeat)
    return ((v * repeat) >> (8 * wide.itemsize - 8)).cast(x.dtype)


def count_leading_zeros(x: Formula) -> Formula:
    """The number of zero bits above the highest set bit: the complement of all bits at or below it."""
    bits = 8 * x.dtype.itemsize
    wide = UINT64 if bits == 64 else UINT32
    v = _widened(x, wide)
    step = 1
    while step < bits:
        v = v | (v >> step)
        step *= 2
    return bits - population_count(v).cast(x.dtype)


def _widened(x: Formula, wide: np.dtype) -> Formula:
    """The bits of x as an unsigned integer of 32 or 64 bits."""
    return x.bitcast(_unsigned(x.dtype)).cast(wide)


def mulhi(x: Formula, y: Formula) -> Formula:
    """The high half of an unsigned product."""
    if x.dtype.itemsize < 4:
        product = x.cast(UINT32) * y.cast(UINT32)
        return (product >> (8 * x.dtype.itemsize)).cast(x.dtype)
    unsigned = _unsigned(x.dtype)
    return multiply_high(x.bitcast(unsigned), y.bitcast(unsigned)).bitcast(x.dtype)


def sign(x: Formula) -> Formula:
    """-1, 0 or 1; a zero keeps its sign and a NaN stays."""
    if x.dtype == BOOL or x.dtype.kind == "u":
        return x if x.dtype == BOOL else x.min(1)
    return where(x > 0, x.like(1), where(x < 0, x.like(-1), x))


def nextafter(x: Formula, y: Formula) -> Formula:
    """The float after x in the direction of y."""
    form = layout(x)
    bits = x.bitcast(form.signed)
    away = (x < y) ^ (x < 0.0)        # the size grows
    step = where(away, bits + 1, bits - 1).bitcast(form.dtype)
    least = ((y.bitcast(form.unsigned) & form.sign_mask) | 1).bitcast(form.dtype)
    value = where(x.equals(0.0), least, step)
    value = where(x.equals(y), y, value)
    return where(x.differs(x) | y.differs(y), x + y, value)

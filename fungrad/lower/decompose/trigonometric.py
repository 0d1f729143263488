"""Sine, cosine, tangent and their inverses in core operations, for float32 and float64.

Arguments are reduced by pi/2 in three words (Cody and Waite, with fma); those too large for that by Payne and Hanek's
method: a window of the bits of 2/pi, times the mantissa, in integers, so that every argument up to the largest is
reduced exactly.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from .formula import (
    INFINITY,
    NAN,
    UINT32,
    UINT64,
    Formula,
    Layout,
    copy_sign,
    fma,
    layout,
    polynomial,
    rarely,
    sign_bit,
    where,
)

# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2/2) / r**4 as polynomials in r**2, |r| <= pi/4
_SIN = {32: (-0.16666654873258668, 0.008332173530382589, -0.00019516653989306906),
        64: (-0.16666666666666666, 0.008333333333333323, -0.0001984126984125499, 2.7557319214149074e-06,
             -2.5052104900591785e-08, 1.605836519916841e-10, -7.578625758501524e-13)}
_COS = {32: (0.04166664674780847, -0.0013887361449690131, 2.443772991941715e-05),
        64: (0.041666666666666664, -0.0013888888888888874, 2.480158730157138e-05, -2.755731921532583e-07,
             2.0876754354693444e-09, -1.1470291943124844e-11, 4.738048399613551e-14)}
# (atan(x) - x) / x**3 in x**2: float32 for |x| <= 1, float64 for |x| <= tan(pi/8)
_ATAN = {32: (-0.3333329907391628, 0.1999854769344938, -0.14264234026066308, 0.10952139312034113, -0.08403297391455015,
              0.05795469836662258, -0.031174696279108877, 0.010912776875181681, -0.0017931826897594522),
         64: (-0.333333333333332, 0.19999999999953666, -0.14285714280204212, 0.1111111078381734, -0.09090897767042941,
              0.07692060359835905, -0.06663105424489241, 0.05847897126497648, -0.05039329534031858, 0.03806492076152705,
              -0.017907305858821672)}
_HALF_PI = {32: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
            64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)}
_TWO_OVER_PI = 0.6366197723675814
_LARGE = {32: 2.0**16, 64: 2.0**20}    # arguments from here on go to `_payne_hanek`
# The bits of 2/pi after the point, in words of 64.
_BITS_OF_TWO_OVER_PI = (
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB, 0xF0CFBC209AF4361D)


def _periodic(x: Formula, evaluate: Callable[[Formula, Formula], Formula]) -> Formula:
    """evaluate(r, n) for |x| = n pi/2 + r with |r| <= pi/4; n is an integer of which the lowest two bits count."""
    form = layout(x)
    size = abs(x)
    shifted = fma(size, _TWO_OVER_PI, form.rounder)
    whole = shifted - form.rounder
    r = size
    for word in _HALF_PI[form.bits]:
        r = fma(whole, -word, r)
    usual = evaluate(r, shifted.bitcast(form.signed))
    value = rarely(size > _LARGE[form.bits], evaluate(*_payne_hanek(size, form)), usual)
    return where(size < INFINITY, value, value.like(NAN))


def _window(words: list[Formula], which: Formula, count: int) -> list[Formula]:
    """words[which : which+count], chosen bit by bit of `which`."""
    step = 1
    while step < len(words):
        step *= 2
    while step > 1:
        step //= 2
        upper = (which & step).differs(0)
        needed = min(len(words), count + step - 1)
        words = [where(upper, words[i + step], words[i]) if i + step < len(words) else words[i] for i in range(needed)]
    return words[:count]


def _payne_hanek(size: Formula, form: Layout) -> tuple[Formula, Formula]:
    """The reduction for large arguments: (r, n). The window is three words wide, as the words of the mantissa.

    size = m * 2**(e - bits + 1) with the top bit of the integer m set. Bits of 2/pi whose product with m is a multiple
    of 4 are left out: the window starts at bit e - bits - 1 (a word of zeros stands in front, for small e).
    """
    width, unsigned = form.bits, form.unsigned
    table = _BITS_OF_TWO_OVER_PI if width == 64 else tuple(
        part for word in _BITS_OF_TWO_OVER_PI[:4] for part in (word >> 32, word & 0xFFFFFFFF))
    words = [size.bitcast(unsigned).like(word) for word in (0, *table[:19 if width == 64 else 7])]
    bits = size.bitcast(unsigned)
    m = ((bits & ((1 << form.mantissa) - 1)) | (1 << form.mantissa)) << (width - 1 - form.mantissa)
    start = (bits >> form.mantissa) - (form.bias + 1)     # e - bits - 1 + bits: counted from the word of zeros
    which, shift = start >> (5 if width == 32 else 6), start & (width - 1)
    chosen = _window(words, which, 4)
    v = [(chosen[i] << shift) | ((chosen[i + 1] >> 1) >> ((width - 1) - shift)) for i in range(3)]
    high, middle, low = _triple_product(m, v)
    quadrant = high >> (width - 2)
    upper, lower = (high << 2) | (middle >> (width - 2)), (middle << 2) | (low >> (width - 2))
    round_up = upper >> (width - 1)                        # a fraction of 1/2 or more
    flip = -round_up                                       # all ones where rounding up
    upper, lower = upper ^ flip, lower ^ flip
    unit = 2.0**-width
    fraction = fma(lower.cast(form.dtype), unit, upper.cast(form.dtype)) * unit
    r = fma(fraction, _HALF_PI[width][0], fraction * _HALF_PI[width][1])
    return where(round_up.differs(0), -r, r), (quadrant + round_up).bitcast(form.signed)


def _triple_product(m: Formula, v: list[Formula]) -> tuple[Formula, Formula, Formula]:
    """The three low words, highest first, of m * (v0 v1 v2)."""
    lows = [m * word for word in v]
    highs = [multiply_high(m, word) for word in v[1:]]
    middle = highs[1] + lows[1]
    carry = where(middle < highs[1], m.like(1), m.like(0))
    return highs[0] + lows[0] + carry, middle, lows[2]


def multiply_high(a: Formula, b: Formula) -> Formula:
    """The high half of the product of unsigned integers of 32 or 64 bits."""
    if a.dtype == UINT32:
        return ((a.cast(UINT64) * b.cast(UINT64)) >> 32).cast(UINT32)
    mask = 0xFFFFFFFF
    a_high, a_low, b_high, b_low = a >> 32, a & mask, b >> 32, b & mask
    low = a_low * b_low
    cross = a_high * b_low + (low >> 32)
    other = a_low * b_high + (cross & mask)
    return a_high * b_high + (cross >> 32) + (other >> 32)


def sin_cos(r: Formula) -> tuple[Formula, Formula]:
    """(sin(r), cos(r)) for |r| <= pi/4."""
    bits = layout(r).bits
    z = r * r
    sine = fma(polynomial(z, _SIN[bits]) * z, r, r)
    cosine = fma(polynomial(z, _COS[bits]) * z, z, fma(z, -0.5, 1.0))
    return sine, cosine


def _negate_where(bit: Formula, value: Formula) -> Formula:
    """`value` with its sign flipped where bit 0 of `bit` is set."""
    form = layout(value)
    flip = bit.bitcast(form.unsigned) << (form.bits - 1)
    return (value.bitcast(form.unsigned) ^ flip).bitcast(form.dtype)


def _is_odd(quadrant: Formula) -> Formula:
    return (quadrant & 1).differs(0)


def sin(x: Formula) -> Formula:
    def evaluate(r: Formula, quadrant: Formula) -> Formula:
        sine, cosine = sin_cos(r)
        return _negate_where(quadrant >> 1, where(_is_odd(quadrant), cosine, sine))

    return where(x.equals(0.0), x, _negate_where(_sign(x), _periodic(x, evaluate)))


def _sign(x: Formula) -> Formula:
    """1 for negative x, else 0, as an integer."""
    form = layout(x)
    return (x.bitcast(form.unsigned) >> (form.bits - 1)).bitcast(form.signed)


def cos(x: Formula) -> Formula:
    def evaluate(r: Formula, quadrant: Formula) -> Formula:
        sine, cosine = sin_cos(r)
        return _negate_where((quadrant + 1) >> 1, where(_is_odd(quadrant), sine, cosine))

    return _periodic(x, evaluate)


def tan(x: Formula) -> Formula:
    def evaluate(r: Formula, quadrant: Formula) -> Formula:
        sine, cosine = sin_cos(r)
        odd = _is_odd(quadrant)
        return where(odd, cosine, sine) / where(odd, -sine, cosine)

    return where(x.equals(0.0), x, _negate_where(_sign(x), _periodic(x, evaluate)))


def _atan_of_quotient(small: Formula, large: Formula) -> Formula:
    """atan(small / large) for 0 <= small <= large."""
    ratio = small / large
    bits = layout(ratio).bits
    if bits == 32:
        z = ratio * ratio
        return fma(polynomial(z, _ATAN[32]) * z, ratio, ratio)
    above = ratio > math.tan(math.pi / 8)
    t = where(above, (ratio - 1.0) / (ratio + 1.0), ratio)
    z = t * t
    value = fma(polynomial(z, _ATAN[64]) * z, t, t)
    return where(above, (value + 0.5 * _HALF_PI[64][1]) + 0.5 * _HALF_PI[64][0], value)


def _complement(angle: Formula, times: float) -> Formula:
    """times * pi/2 - angle."""
    high, low, _ = _HALF_PI[layout(angle).bits]
    return times * high - (angle - times * low)


def atan(x: Formula) -> Formula:
    size = abs(x)
    steep = size > 1.0
    angle = _atan_of_quotient(where(steep, size.like(1.0), size), where(steep, size, size.like(1.0)))
    return copy_sign(where(steep, _complement(angle, 1.0), angle), x)


def atan2(y: Formula, x: Formula) -> Formula:
    """The angle of the point (x, y), for all signs of zero and infinity as in C."""
    width, height = abs(x), abs(y)
    steep = height > width
    small, large = where(steep, width, height), where(steep, height, width)
    both = small.equals(INFINITY)           # then both are infinite
    small, large = where(both, small.like(1.0), small), where(both, large.like(1.0), large)
    angle = _atan_of_quotient(small, where(large.equals(0.0), large.like(1.0), large))
    angle = where(steep, _complement(angle, 1.0), angle)
    angle = where(sign_bit(x), _complement(angle, 2.0), angle)
    unordered = x.differs(x) | y.differs(y)
    return where(unordered, x + y, copy_sign(angle, y))


# (asin(x) - x) / x**3 in x**2, |x| <= 1/2
_ASIN = {32: (0.16666754116628327, 0.0749523316370563, 0.0454782938301407, 0.024141181900662737, 0.04223028576044427),
         64: (0.16666666666666763, 0.07499999999970099, 0.04464285717528552, 0.030381942675303038, 0.022372215905501057,
              0.017351595502334918, 0.013981018561080772, 0.011397292486695297, 0.010789325929571809,
              0.0036721618920796525, 0.021790714159679942, -0.02111682694251102, 0.032702236260776466)}


def _asin_small(x: Formula, z: Formula) -> Formula:
    return fma(polynomial(z, _ASIN[layout(x).bits]) * z, x, x)


def _asin_parts(x: Formula) -> tuple[Formula, Formula, Formula]:
    """(|x| > 1/2, asin of |x| or of sqrt((1-|x|)/2), |x|)."""
    size = abs(x)
    large = size > 0.5
    z = where(large, (1.0 - size) * 0.5, size * size)
    return large, _asin_small(where(large, z.sqrt(), size), z), size


def asin(x: Formula) -> Formula:
    large, angle, _ = _asin_parts(x)
    return copy_sign(where(large, _complement(angle * 2.0, 1.0), angle), x)


def acos(x: Formula) -> Formula:
    large, angle, _ = _asin_parts(x)
    signed = copy_sign(angle, x)
    beyond = where(x < 0.0, _complement(angle * 2.0, 2.0), angle * 2.0)
    return where(large, beyond, _complement(signed, 1.0))

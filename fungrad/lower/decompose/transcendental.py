"""Exponentials, logarithms, powers, hyperbolic functions and roots in core operations, for float32 and float64.

Straight-line code without tables: arguments are reduced exactly or in two words, the rest is a minimax polynomial
(Remez exchange in 200 bits), so that every lane of a vector does the same. Errors are at most 4 ULP over the whole
range, subnormals included; special values are IEEE's. The reductions follow Cody and Waite, "Software Manual for the
Elementary Functions", and fdlibm; the double-word arithmetic is Dekker's, with fma.
"""
from __future__ import annotations

import math

from .formula import (
    FLOAT32,
    INFINITY,
    NAN,
    Formula,
    Layout,
    copy_sign,
    fma,
    layout,
    polynomial,
    power_of_two,
    sign_bit,
    where,
)

# (e**r - 1 - r) / r**2 for |r| <= log(2)/2: relative errors 3e-9 and 5e-20 of e**r
_EXP = {32: (0.4999999341457533, 0.16666520108708496, 0.04166839375597156, 0.008368780398144517, 0.0013814491126446949),
        64: (0.5, 0.16666666666666682, 0.04166666666666609, 0.008333333333316916, 0.0013888888889117274,
             0.00019841269896682113, 2.4801586924594794e-05, 2.7557234557727183e-06, 2.755758279818447e-07,
             2.5112144834545147e-08, 2.082653689588323e-09)}
# the same, for relative errors 3e-10 and 3e-21 of e**r - 1
_EXPM1 = {32: (0.5000000053349213, 0.16666666904051197, 0.0416663257346197, 0.008333219528776187, 0.001394330933367964,
               0.0001996242409838437),
          64: (0.5, 0.16666666666666666, 0.0416666666666667, 0.008333333333333345, 0.0013888888888870083,
               0.0001984126984120715, 2.480158735391346e-05, 2.755731936359652e-06, 2.755724844837224e-07,
               2.505196671145428e-08, 2.0922709481107403e-09, 1.6120371225890127e-10)}
# (2**r - 1) / r for |r| <= 1/2
_EXP2 = {32: (0.6931472151826931, 0.24022652794479588, 0.055503101341303075, 0.009617691414360386,
              0.0013406795542092525,
              0.00015594991117331102),
         64: (0.6931471805599453, 0.24022650695910072, 0.055504108664821736, 0.009618129107628562,
              0.0013333558146381352,
              0.0001540353039316995, 1.5252733865222323e-05, 1.3215487004853732e-06, 1.0178047372125333e-07,
              7.054814389823099e-09, 4.4572634775989636e-10, 2.585567094502236e-11)}
# float32: (log(1+f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1+f <= sqrt(2): relative error 8e-10
_LOG = (0.33333312540028903, -0.250000095141481, 0.2000212352455477, -0.16668005164969565, 0.1421945184742996,
        -0.124053396490191, 0.11888704524733434, -0.11677521411725642, 0.06747721509569682)
# (2 atanh(s) - 2 s) / s**3 as a polynomial in s**2, s = f / (2 + f)
_ATANH = {32: (0.666667770540392, 0.39977449401105075, 0.29874423226206964),
          64: (0.6666666666666666, 0.4000000000000633, 0.2857142856905844, 0.22222222650949044, 0.18181775331870997,
               0.15387105405032894, 0.13249786519400125, 0.1325435671661647)}
_LN2 = {32: (0.693145751953125, 1.4286068203094173e-06), 64: (0.6931471803691238, 1.9082149292705877e-10)}
_LOG2E = {32: (1.4426950216293335, 1.925963033500011e-08), 64: (1.4426950408889634, 2.0355273740931033e-17)}
_TWO_LOG2E = {32: (2.885390043258667, 3.851926067000022e-08), 64: (2.8853900817779268, 4.0710547481862066e-17)}
_LEAST_EXP = {32: -104.0, 64: -746.0}     # e**x is 0 below ...
_MOST_EXP = {32: 89.0, 64: 710.0}         # ... and infinite above


def _integer_part(x: Formula, scale: float) -> tuple[Formula, Formula]:
    """The integer nearest to x*scale (below 2**21 in size), as a float and as an integer."""
    form = layout(x)
    shifted = fma(x, scale, form.rounder)
    whole = shifted - form.rounder
    rounder_bits = int.from_bytes(_bits(form), "little")
    return whole, shifted.bitcast(form.signed) - rounder_bits


def _bits(form: Layout) -> bytes:
    return form.dtype.type(form.rounder).tobytes()


def _scale(x: Formula, exponent: Formula) -> Formula:
    """x * 2**exponent for x near 1, in two steps so that infinite and subnormal results come out right."""
    form = layout(x)
    half = exponent >> 1
    return x * power_of_two(half, form) * power_of_two(exponent - half, form)


def _reduce(x: Formula) -> tuple[Formula, Formula]:
    """x = n log(2) + r with |r| <= log(2)/2: (r, n)."""
    high, low = _LN2[layout(x).bits]
    whole, exponent = _integer_part(x, _LOG2E[layout(x).bits][0])
    r = fma(whole, -high, x)
    return fma(whole, -low, r), exponent


def exp(x: Formula, offset: int = 0) -> Formula:
    """e**x, times 2**offset without an overflow in between."""
    bits = layout(x).bits
    x = x.max(_LEAST_EXP[bits]).min(_MOST_EXP[bits] - 0.6 * min(offset, 0))
    r, exponent = _reduce(x)
    value = fma(polynomial(r, _EXP[bits]) * r, r, r) + 1.0
    return _scale(value, exponent + offset if offset else exponent)


def exp2(x: Formula) -> Formula:
    form = layout(x)
    x = x.max(-150.0 if form.bits == 32 else -1076.0).min(129.0 if form.bits == 32 else 1025.0)
    whole, exponent = _integer_part(x, 1.0)
    return _scale(_exp2_of_fraction(x - whole), exponent)


def exp2_normal(x: Formula) -> Formula:
    """2**x where that is a normal number."""
    whole, exponent = _integer_part(x, 1.0)
    return _exp2_of_fraction(x - whole) * power_of_two(exponent, layout(x))


def _exp2_of_fraction(r: Formula) -> Formula:
    return fma(polynomial(r, _EXP2[layout(r).bits]), r, 1.0)


def expm1(x: Formula) -> Formula:
    form = layout(x)
    argument = x.max(-18.0 if form.bits == 32 else -40.0).min(_MOST_EXP[form.bits])
    r, exponent = _reduce(argument)
    q = fma(polynomial(r, _EXPM1[form.bits]) * r, r, r)
    half = power_of_two(exponent - 1, form)     # 2**n itself may overflow
    value = fma(half, q, half - 0.5) * 2.0
    return where(abs(x) < 2.0 ** -form.mantissa, x, value)


def _normalize(x: Formula) -> tuple[Formula, Formula]:
    """x = (1 + f) * 2**e with sqrt(1/2) <= 1+f < sqrt(2), for positive finite x: (f, e as a float)."""
    form = layout(x)
    tiny = x < form.least_normal
    scaled = where(tiny, x * 2.0**form.mantissa, x)
    root = int(form.dtype.type(math.sqrt(0.5)).view(form.signed))
    bits = scaled.bitcast(form.signed)
    above = bits - root
    mantissa_mask = (1 << form.mantissa) - 1
    f = ((above & mantissa_mask) + root).bitcast(form.dtype) - 1.0
    exponent = (above >> form.mantissa).cast(form.dtype)
    return f, where(tiny, exponent - float(form.mantissa), exponent)


def _log1p_rest(f: Formula) -> Formula:
    """log(1+f) - f for the range of `_normalize`."""
    square = f * f
    if f.dtype == FLOAT32:
        return fma(polynomial(f, _LOG) * f, square, square * -0.5)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return fma(s, fma(polynomial(z, _ATANH[64]), z, half), -half)


def _log_specials(x: Formula, value: Formula) -> Formula:
    """The value of a logarithm where x is 0, negative, infinite or NaN."""
    value = where(x < INFINITY, value, x)
    return where(x <= 0.0, where(x.equals(0.0), x.like(-INFINITY), x.like(NAN)), value)


def _log_finite(x: Formula, correction: Formula | None = None) -> Formula:
    high, low = _LN2[layout(x).bits]
    f, exponent = _normalize(x)
    rest = fma(exponent, low, _log1p_rest(f))
    if correction is not None:
        rest = rest + correction
    return fma(exponent, high, f + rest)


def log(x: Formula) -> Formula:
    return _log_specials(x, _log_finite(x))


def log2(x: Formula) -> Formula:
    high, low = _LOG2E[layout(x).bits]
    f, exponent = _normalize(x)
    small = fma(f, low, _log1p_rest(f) * high)
    return _log_specials(x, fma(f, high, small) + exponent)


def log1p(x: Formula) -> Formula:
    """log(1+x): the error of 1+x is made good by its first-order term."""
    one_more = x + 1.0
    error = where(x > 1.0, 1.0 - (one_more - x), x - (one_more - 1.0))
    value = _log_specials(one_more, _log_finite(one_more, error / one_more))
    return where(one_more.equals(1.0), x, value)


# -- powers ----------------------------------------------------------------------------------------------------------


def _product(a: Formula, b: Formula | float) -> tuple[Formula, Formula]:
    """a*b as a sum of two words."""
    high = a * b
    return high, fma(a, b, -high)


def _log2_two_words(x: Formula) -> tuple[Formula, Formula]:
    """log2 of a positive finite x as an unevaluated sum, with about 10 bits more than one word.

    s = f / (2 + f) in two words; log2(1+f) = 2/ln(2) * (s + s**3/3 + s**5 * ...), the first two terms in two words.
    """
    form = layout(x)
    f, exponent = _normalize(x)
    below = f + 2.0
    below_low = f - (below - 2.0)
    s = f / below
    s_low = fma(-s, below_low, fma(-s, below, f)) / below
    c, c_low = _TWO_LOG2E[form.bits]
    high, error = _product(s, c)
    low = fma(s, c_low, fma(s_low, c, error))
    z, z_error = _product(s, s)
    z_low = fma(s * 2.0, s_low, z_error)
    third, third_low = (0.9617967009544373, -7.028461812552678e-09) if form.bits == 32 \
        else (0.9617966939259756, 5.0577616648125907e-17)
    cube, cube_error = _product(z, s)
    cube_low = fma(z_low, s, fma(z, s_low, cube_error))
    term, term_error = _product(cube, third)
    term_low = fma(cube, third_low, fma(cube_low, third, term_error))
    more = tuple(k / 2.0 * c for k in _ATANH[form.bits][1:]) if form.bits == 64 else (0.57707802, 0.41219859,
                                                                                      0.32059889)
    low = low + fma(polynomial(z, more) * z, cube, term_low)
    total = exponent + high          # |exponent| >= 1 > |high|, or it is 0
    rest = (exponent - total) + high
    with_term = total + term
    rest = rest + ((total - with_term) + term) + low
    result = with_term + rest
    return result, rest - (result - with_term)


def power(x: Formula, y: Formula) -> Formula:
    """x**y as IEEE 754 defines pow."""
    form = layout(x)
    size = abs(x)
    high, low = _log2_two_words(size)
    product, error = _product(y, high)
    limit = 151.0 if form.bits == 32 else 1077.0
    bounded = product.max(-limit).min(limit)
    rest = where(abs(product) < limit, fma(y, low, error), 0.0)
    whole, exponent = _integer_part(bounded, 1.0)
    value = _scale(_exp2_of_fraction((bounded - whole) + rest), exponent)
    # 0 and infinity: the logarithm is infinite, only signs matter
    extreme = size.equals(0.0) | size.equals(INFINITY)
    grows = (size > 1.0) ^ (y < 0.0)
    value = where(extreme, where(grows, value.like(INFINITY), value.like(0.0)), value)
    infinite_power = abs(y).equals(INFINITY)
    value = where(infinite_power, where(grows, value.like(INFINITY), value.like(0.0)), value)
    integral = y.trunc().equals(y)
    half = y * 0.5
    odd = integral & half.trunc().differs(half) & (abs(y) < INFINITY)
    value = where(odd & sign_bit(x), -value, value)
    invalid = (x < 0.0) & ~integral & (size < INFINITY)
    value = where(invalid | x.differs(x) | y.differs(y), value.like(NAN), value)
    one = x.equals(1.0) | y.equals(0.0) | (size.equals(1.0) & infinite_power)
    return where(one, value.like(1.0), value)


def rsqrt(x: Formula) -> Formula:
    return 1.0 / x.sqrt()


def cbrt(x: Formula) -> Formula:
    """A third of the exponent bits as a first guess, then Halley's iteration t + t (1-r) / (2r+1), r = t**3 / x."""
    form = layout(x)
    size = abs(x)
    tiny = size < form.least_normal
    scale = 24 if form.bits == 32 else 54
    scaled = where(tiny, size * 2.0**scale, size)
    third = scaled.bitcast(form.signed).cast(form.dtype) * (1.0 / 3.0)
    offset = 709958130 if form.bits == 32 else 715094163 << 32
    guess = (third.cast(form.signed) + offset).bitcast(form.dtype)
    for _ in range(2 if form.bits == 32 else 3):
        r = guess / scaled * guess * guess     # in this order nothing overflows
        guess = fma(guess, (1.0 - r) / fma(r, 2.0, 1.0), guess)
    value = where(tiny, guess * 2.0 ** (-scale // 3), guess)
    plain = (size > 0.0) & (size < INFINITY)
    return where(plain, copy_sign(value, x), x)


# -- hyperbolic functions --------------------------------------------------------------------------------------------


def tanh(x: Formula) -> Formula:
    """-t / (t + 2) with t = expm1(-2|x|), which is between -1 and 0: small arguments lose nothing, large ones give
    1.
    """
    form = layout(x)
    r, exponent = _reduce(abs(x).min(9.1 if form.bits == 32 else 20.0) * -2.0)
    q = fma(polynomial(r, _EXPM1[form.bits]) * r, r, r)
    scale = power_of_two(exponent, form)
    t = fma(scale, q, scale - 1.0)
    return copy_sign(abs(t / (t + 2.0)), x)


def logistic(x: Formula) -> Formula:
    """1 / (1 + e**-x), without losing the small values of negative x."""
    e = exp(-abs(x))
    return where(x < 0.0, e, e.like(1.0)) / (e + 1.0)


def sinh(x: Formula) -> Formula:
    size = abs(x)
    t = expm1(size)
    value = (t + t / (t + 1.0)) * 0.5
    value = where(size > 20.0, exp(size, -1), value)
    return copy_sign(value, x)


def cosh(x: Formula) -> Formula:
    half = exp(abs(x), -1)
    return half + 0.25 / half


def asinh(x: Formula) -> Formula:
    size = abs(x)
    square = size * size
    value = log1p(size + square / ((square + 1.0).sqrt() + 1.0))
    large = log(size) + 0.6931471805599453
    return copy_sign(where(size > 2.0 ** (layout(x).mantissa // 2 + 3), large, value), x)


def acosh(x: Formula) -> Formula:
    t = x - 1.0
    value = log1p(t + (t * 2.0 + t * t).sqrt())
    large = log(x) + 0.6931471805599453
    value = where(x > 2.0 ** (layout(x).mantissa // 2 + 3), large, value)
    return where(x < 1.0, value.like(NAN), value)


def atanh(x: Formula) -> Formula:
    size = abs(x)
    value = log1p(size * 2.0 / (1.0 - size)) * 0.5
    return copy_sign(where(size > 1.0, value.like(NAN), value), x)

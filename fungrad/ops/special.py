"""The meaning of special functions that NumPy lacks, in float64, for references: slow, accurate to about 1e-15."""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def elementwise(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of a Python float, applied to every element."""
    by_element = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(by_element(x)).astype(np.float64)


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), with relative accuracy in both tails."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


erf = elementwise(math.erf)
erfc = elementwise(math.erfc)


def _lgamma(x: float) -> float:
    if x > 1e306 or x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


lgamma = elementwise(_lgamma)


def _erf_inv(y: float) -> float:
    """Halley's method on erf or, near the ends, erfc; started from Winitzki's approximation."""
    if not -1 < y < 1:
        return math.copysign(math.inf, y) if y in (-1.0, 1.0) else math.nan
    if abs(y) < 1e-8:
        return y * (math.sqrt(math.pi) / 2)
    size, complement = abs(y), 1 - abs(y)
    a, logarithm = 0.147, math.log1p(-y * y)
    b = 2 / (math.pi * a) + logarithm / 2
    x = math.sqrt(math.sqrt(b * b - logarithm / a) - b)
    for _ in range(4):
        error = math.erf(x) - size if size < 0.5 else complement - math.erfc(x)
        step = error / (2 / math.sqrt(math.pi) * math.exp(-x * x))
        x -= step / (1 + x * step)
    return math.copysign(x, y)


erf_inv = elementwise(_erf_inv)

_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)   # B2k / 2k


def _digamma(x: float) -> float:
    """Reflection below 0, recurrence up to 10, then the asymptotic series: Abramowitz and Stegun 6.3.5, .7 and .18."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if math.isnan(x) or x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    if x == math.inf:
        return x
    if x < 0:
        from_whole = x - math.floor(x + 0.5)   # the tangent has period 1; a small argument keeps it accurate
        return _digamma(1 - x) - math.pi / math.tan(math.pi * from_whole)
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    square = 1 / (x * x)
    series = 0.0
    for coefficient in reversed(_DIGAMMA_SERIES):
        series = (series + coefficient) * square
    return shift + math.log(x) - 0.5 / x - series


digamma = elementwise(_digamma)

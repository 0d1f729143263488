"""Distributions that are a function of uniform numbers."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import RefusedError
from ..ir.value import Value
from ..lax.arguments import static_shape
from ..lax.conversion import as_value, place
from ..ops import elementwise as ew
from ..ops.create import full, full_like
from ..ops.linear import convert, reduce_sum
from .basic import rademacher, row, uniform_in, unit
from .keys import Shape, checked_key, float_dtype, result_shape, split_list


def standard_normal(key: Any, shape: Shape, dtype: np.dtype) -> Any:
    """sqrt(2) * erf_inv(u) for u uniform in (-1, 1)."""
    low = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
    return ew.mul(ew.erf_inv(uniform_in(key, shape, dtype, low, 1.0)), math.sqrt(2))


def normal(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers of the standard normal distribution."""
    return standard_normal(checked_key("normal", key), static_shape("normal", shape), float_dtype("normal", dtype))


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Value:
    """exp(sigma * normal)."""
    key, kind, sigma = checked_key("lognormal", key), float_dtype("lognormal", dtype), as_value("lognormal", sigma)
    shape = result_shape("lognormal", shape, sigma)
    return ew.exp(ew.mul(standard_normal(key, shape, kind), place(sigma, shape, kind)))


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Normal numbers within (lower, upper)."""
    key, kind = checked_key("truncated_normal", key), float_dtype("truncated_normal", dtype)
    lower, upper = as_value("truncated_normal", lower), as_value("truncated_normal", upper)
    shape = result_shape("truncated_normal", shape, lower, upper)
    low, high = place(lower, shape, kind), place(upper, shape, kind)
    root = full(shape, math.sqrt(2), kind)
    u = uniform_in(key, shape, kind, ew.erf(ew.div(low, root)), ew.erf(ew.div(high, root)))
    inside = (ew.nextafter(ew.stop_gradient(low), math.inf), ew.nextafter(ew.stop_gradient(high), -math.inf))
    return ew.clamp(inside[0], ew.mul(root, ew.erf_inv(u)), inside[1])


def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density exp(-x) on x >= 0."""
    u = unit(checked_key("exponential", key), static_shape("exponential", shape), float_dtype("exponential", dtype))
    return ew.neg(ew.log1p(ew.neg(u)))


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Value:
    """Numbers with cumulative distribution exp(-exp(-x)). mode="high" reaches further into the upper tail."""
    key, kind = checked_key("gumbel", key), float_dtype("gumbel", dtype)
    shape, mode, info = static_shape("gumbel", shape), mode or "low", dtypes.finfo(kind)
    if mode == "low":
        u = uniform_in(key, shape, kind, float(info.tiny), 1.0)
        return ew.neg(ew.log(ew.neg(ew.log(u))))
    if mode != "high":
        raise ValueError(f"gumbel: mode must be 'low' or 'high', got {mode!r}")
    both = unit(key, (2, *shape), kind)
    high, low = row(both, 0), row(both, 1)
    finer = ew.add(ew.add(high, ew.mul(low, 2.0**-info.nmant)), float(info.tiny))
    x = ew.select(ew.ge(high, 0.5), high, finer)
    return ew.neg(ew.log(ew.neg(ew.log1p(ew.neg(x)))))


def laplace(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density exp(-|x|) / 2."""
    key, kind = checked_key("laplace", key), float_dtype("laplace", dtype)
    u = uniform_in(key, static_shape("laplace", shape), kind, -1.0 + float(dtypes.finfo(kind).epsneg), 1.0)
    return ew.mul(ew.sign(u), ew.log1p(ew.neg(ew.abs(u))))


def logistic(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with cumulative distribution 1 / (1 + exp(-x))."""
    key, kind = checked_key("logistic", key), float_dtype("logistic", dtype)
    u = uniform_in(key, static_shape("logistic", shape), kind, float(dtypes.finfo(kind).tiny), 1.0)
    return ew.sub(ew.log(u), ew.log1p(ew.neg(u)))


def cauchy(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density 1 / (pi (1 + x^2))."""
    key, kind = checked_key("cauchy", key), float_dtype("cauchy", dtype)
    u = uniform_in(key, static_shape("cauchy", shape), kind, float(dtypes.finfo(kind).eps), 1.0)
    return ew.tan(ew.mul(ew.sub(u, 0.5), math.pi))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers with density b / x^(b + 1) on x >= 1."""
    kind, b = float_dtype("pareto", dtype), as_value("pareto", b)
    shape = result_shape("pareto", shape, b)
    return ew.exp(ew.div(exponential(key, shape, kind), place(b, shape, kind)))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers with density x exp(-x^2 / (2 scale^2)) / scale^2 on x >= 0."""
    key, kind, scale = checked_key("rayleigh", key), float_dtype("rayleigh", dtype), as_value("rayleigh", scale)
    shape = result_shape("rayleigh", shape, scale)
    return ew.mul(place(scale, shape, kind), ew.sqrt(ew.mul(ew.log(unit(key, shape, kind)), -2.0)))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with cumulative distribution 1 - exp(-(x / scale)^concentration)."""
    scale, concentration = as_value("weibull_min", scale), as_value("weibull_min", concentration)
    kind, shape = float_dtype("weibull_min", dtype), result_shape("weibull_min", shape, scale, concentration)
    power = ew.div(1.0, place(concentration, shape, kind))
    return ew.mul(ew.pow(exponential(key, shape, kind), power), place(scale, shape, kind))


def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers whose density rises linearly from `left` to `mode` and falls to `right`."""
    key, kind = checked_key("triangular", key), float_dtype("triangular", dtype)
    given = [as_value("triangular", x) for x in (left, mode, right)]
    shape = result_shape("triangular", shape, *given)
    a, c, b = (place(x, shape, kind) for x in given)
    u, width = unit(key, shape, kind), ew.sub(b, a)
    rising = ew.add(a, ew.sqrt(ew.mul(ew.mul(u, width), ew.sub(c, a))))
    falling = ew.sub(b, ew.sqrt(ew.mul(ew.mul(ew.sub(1.0, u), width), ew.sub(b, c))))
    return ew.select(ew.lt(u, ew.div(ew.sub(c, a), width)), rising, falling)


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """The length of a vector of three standard normal numbers."""
    shape = static_shape("maxwell", shape)
    x = normal(key, (*shape, 3), dtype)
    return ew.sqrt(reduce_sum(ew.mul(x, x), (len(shape),)))


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Value:
    """loc + scale * a Maxwell number of either sign. As in JAX, the parameters' shape is appended to `shape`."""
    kind = float_dtype("double_sided_maxwell", dtype)
    loc, scale = as_value("double_sided_maxwell", loc), as_value("double_sided_maxwell", scale)
    own = result_shape("double_sided_maxwell", None, loc, scale)
    shape = (*(static_shape("double_sided_maxwell", shape) or own), *own)
    for_size, for_sign = split_list(checked_key("double_sided_maxwell", key), 2)
    signed = ew.mul(rademacher(for_sign, shape, kind), maxwell(for_size, shape, kind))
    return ew.add(ew.mul(signed, place(scale, shape, kind)), place(loc, shape, kind))


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The inverse Gaussian distribution with this mean (Michael, Schucany, Haas 1976)."""
    key, kind, mean = checked_key("wald", key), float_dtype("wald", dtype), as_value("wald", mean)
    shape = result_shape("wald", shape, mean)
    for_normal, for_choice = split_list(key, 2)
    m, v, z = place(mean, shape, kind), standard_normal(for_normal, shape, kind), unit(for_choice, shape, kind)
    y = ew.mul(v, v)
    my, square = ew.mul(m, y), ew.mul(m, m)
    root = ew.sqrt(ew.add(ew.mul(my, 4.0), ew.mul(my, my)))
    x = ew.sub(ew.add(m, ew.div(ew.mul(m, my), 2.0)), ew.mul(ew.div(m, 2.0), root))
    return ew.select(ew.le(z, ew.div(m, ew.add(m, x))), x, ew.div(square, x))


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The number of trials, each of probability `p`, up to the first success (of type int32 by default)."""
    key, p = checked_key("geometric", key), as_value("geometric", p)
    inexact = dtypes.to_inexact(p.dtype)
    shape = result_shape("geometric", shape, p)
    u = unit(key, shape, inexact)
    u = ew.select(ew.eq(u, 0.0), full_like(u, 1), u)
    trials = ew.floor(ew.div(ew.log(u), ew.log1p(ew.neg(place(p, shape, inexact)))))
    return convert(ew.add(trials, 1.0), dtypes.canonical(int if dtype is None else dtype))


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Value:
    """Not offered: a uniformly distributed orthogonal matrix."""
    raise RefusedError("random.orthogonal is not offered. Take the first factor of the QR factorisation of a normal "
                       "matrix (numpy.linalg.qr), its columns times the signs of the second factor's diagonal.")

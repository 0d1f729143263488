"""The gamma distribution and its relatives, Poisson numbers: drawn until accepted (`ops/samplers`)."""
from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..lax.arguments import static_int, static_shape
from ..lax.conversion import as_value, place
from ..ops import elementwise as ew
from ..ops.linear import broadcast, convert, reduce_sum, reshape
from ..ops.reduce import reduce_max
from ..ops.samplers import random_gamma, random_poisson
from .basic import rademacher
from .continuous import exponential, standard_normal
from .keys import Shape, checked_key, counters, float_dtype, result_shape, scalar, split_list, spread, words


def _element_keys(key: Any, shape: Shape) -> tuple[Any, Any]:
    """The words of a key for each element: those that splitting `key` among all elements gives."""
    first, second = words(key, (math.prod(shape),))
    return reshape(first, shape), reshape(second, shape)


def _gamma(name: str, key: Any, a: Any, shape: Any, dtype: Any, log_space: bool) -> Any:
    key, kind, a = checked_key(name, key), float_dtype(name, dtype), as_value(name, a)
    shape = result_shape(name, shape, a)
    wide = dtypes.accumulation(kind)
    return convert(random_gamma(*_element_keys(key, shape), place(a, shape, wide), log_space), kind)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers with density x^(a - 1) exp(-x) / gamma(a) on x >= 0; differentiable in `a`."""
    return _gamma("gamma", key, a, shape, dtype, False)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The logarithm of a gamma number, exact where the number itself would be 0."""
    return _gamma("loggamma", key, a, shape, dtype, True)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers with density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1]."""
    key, a, b = checked_key("beta", key), as_value("beta", a), as_value("beta", b)
    shape = result_shape("beta", shape, a, b)
    first, second = split_list(key, 2)
    x, y = loggamma(first, a, shape, dtype), loggamma(second, b, shape, dtype)
    largest = ew.max(x, y)
    x, y = ew.exp(ew.sub(x, largest)), ew.exp(ew.sub(y, largest))
    return ew.div(x, ew.add(x, y))


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Vectors of positive numbers with sum 1, along the last axis of `alpha`; `shape` is that of the other axes."""
    alpha = as_value("dirichlet", alpha)
    if alpha.ndim == 0:
        raise ShapeError("dirichlet: alpha needs an axis along which the numbers sum to 1, got a scalar")
    shape = alpha.shape[:-1] if shape is None else static_shape("dirichlet", shape)
    x = loggamma(key, alpha, (*shape, alpha.shape[-1]), dtype)
    every, last = tuple(range(len(shape))), (len(shape),)
    x = ew.exp(ew.sub(x, broadcast(ew.stop_gradient(reduce_max(x, last)), x.shape, every)))
    return ew.div(x, broadcast(reduce_sum(x, last), x.shape, every))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The sum of the squares of `df` standard normal numbers."""
    kind, df = float_dtype("chisquare", dtype), as_value("chisquare", df)
    half = ew.div(convert(df, kind), 2.0)
    return ew.mul(ew.exp(loggamma(key, half, shape, kind)), 2.0)


def t(key: Any, df: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Student's t distribution with `df` degrees of freedom."""
    key, kind, df = checked_key("t", key), float_dtype("t", dtype), as_value("t", df)
    shape = result_shape("t", shape, df)
    for_normal, for_gamma = split_list(key, 2)
    half = ew.div(place(df, shape, kind), 2.0)
    return ew.mul(standard_normal(for_normal, shape, kind), ew.sqrt(ew.div(half, gamma(for_gamma, half, shape, kind))))


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The ratio of two chi-square numbers, each over its degrees of freedom."""
    key, kind = checked_key("f", key), float_dtype("f", dtype)
    upper, lower = as_value("f", dfnum), as_value("f", dfden)
    shape = result_shape("f", shape, upper, lower)
    for_lower, for_upper = split_list(key, 2)
    top, bottom = (ew.div(chisquare(k, df, shape, kind), place(df, shape, kind))
                   for k, df in ((for_upper, upper), (for_lower, lower)))
    return ew.div(top, bottom)


def generalized_normal(key: Any, p: float, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density proportional to exp(-|x|^p)."""
    key, kind = checked_key("generalized_normal", key), float_dtype("generalized_normal", dtype)
    shape = static_shape("generalized_normal", shape)
    inverse = ew.div(1.0, place(as_value("generalized_normal", p), shape, kind))
    for_size, for_sign = split_list(key, 2)
    return ew.mul(rademacher(for_sign, shape, kind), ew.pow(gamma(for_size, inverse, shape, kind), inverse))


def ball(key: Any, d: int, p: float = 2, shape: Any = (), dtype: Any = None) -> Value:
    """Points uniform in the unit ball of the p-norm in `d` dimensions (Barthe, Guedon, Mendelson, Naor 2005)."""
    key, kind, shape = checked_key("ball", key), float_dtype("ball", dtype), static_shape("ball", shape)
    for_direction, for_size = split_list(key, 2)
    points = (*shape, static_int("ball", "d", d))
    x = generalized_normal(for_direction, p, points, kind)
    power = place(as_value("ball", p), points, kind)
    size = ew.add(reduce_sum(ew.pow(ew.abs(x), power), (len(shape),)), exponential(for_size, shape, kind))
    return ew.div(x, ew.pow(broadcast(size, points, tuple(range(len(shape)))), ew.div(1.0, power)))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers of events at the rate `lam` (of type int32 by default). Below a rate of 10 they are JAX's."""
    key, lam = checked_key("poisson", key), as_value("poisson", lam)
    kind = dtypes.canonical(int if dtype is None else dtype)
    if not dtypes.is_integer(kind):
        raise DTypeError(f"poisson: dtype must be an integer type, got {kind}")
    shape = result_shape("poisson", shape, lam)
    rate = place(lam, shape, dtypes.float64 if lam.dtype == dtypes.float64 else dtypes.float32)
    first, second = (spread(scalar(key, i), shape) for i in range(2))
    return convert(random_poisson(first, second, counters(shape)[1], rate), kind)

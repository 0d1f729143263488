"""Random numbers, with JAX's names, arguments and bits.

A key is a uint32 array of shape (2,). Functions of a key are pure: equal keys give equal numbers, so split a key before
each use. Bits, `split`, `fold_in`, `randint` and `uniform` in [0, 1) agree with JAX's default generator (threefry2x32,
partitionable) bit by bit; the other distributions follow its formulas (`jax/_src/random`) and agree up to rounding.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import dtypes
from .errors import DTypeError, RefusedError, ShapeError
from .ir.value import Value
from .lax.arguments import static_int, static_shape
from .lax.conversion import as_value, place
from .lax.promotion import broadcast_shape
from .ops import elementwise as ew
from .ops.bits import threefry2x32
from .ops.create import full, full_like, iota
from .ops.cumulative import cumsum
from .ops.index import take
from .ops.linear import broadcast, convert, reduce_sum, reshape, transpose
from .ops.reduce import argmax, reduce_max
from .ops.samplers import random_gamma, random_poisson
from .ops.slicing import concatenate, slice_
from .ops.sort import searchsorted, sort, top_k
from .util import canonical_axis

Shape = tuple[int, ...]
UINT32, UINT64 = np.dtype("uint32"), np.dtype("uint64")
_WORD = 2**32


# ---- arguments ------------------------------------------------------------------------------------------------------


def _checked_key(name: str, key: Any) -> Value:
    """`key` as a value, or an error that says what a key is."""
    key = as_value(name, key)
    if key.dtype != UINT32 or key.shape != (2,):
        several = key.dtype == UINT32 and key.ndim > 1
        raise TypeError(f"{name}: a random key is a uint32 array of shape (2,), made by fungrad.random.key(seed), "
                        f"got {key.type}.{' For a result per key, use fungrad.vmap over the keys.' if several else ''}")
    return key


def _float_dtype(name: str, dtype: Any) -> np.dtype:
    kind = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_float(kind):
        raise DTypeError(f"{name}: dtype must be a floating type, got {kind}")
    return kind


def _result_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """The given shape, checked to be one to which the parameters broadcast; without one, that of the parameters."""
    shapes = [p.shape for p in parameters]
    if shape is None:
        return broadcast_shape(name, *shapes)
    shape = static_shape(name, shape)
    if broadcast_shape(name, shape, *shapes) != shape:
        raise ShapeError(f"{name}: parameters of shapes {', '.join(map(str, shapes))} do not broadcast to the "
                         f"requested shape {shape}")
    return shape


def _scalar(x: Any, position: int) -> Any:
    """Element `position` of a vector."""
    return reshape(slice_(x, (position,), (position + 1,)), ())


def _stacked(parts: Sequence[Any]) -> Any:
    """Arrays of one shape side by side along a new last axis."""
    return concatenate([reshape(part, (*part.shape, 1)) for part in parts], parts[0].ndim)


def _spread(x: Any, shape: Shape) -> Any:
    return broadcast(x, shape, ()) if x.ndim == 0 else x


# ---- keys and bits --------------------------------------------------------------------------------------------------


def key(seed: Any) -> Value:
    """A random key from an integer seed: its high and low 32 bits (a seed of 32 bits, of either sign, has no high)."""
    if isinstance(seed, (Value, np.ndarray, np.generic)):
        value = as_value("key", seed)
        if not dtypes.is_integer(value.dtype) or value.ndim:
            raise TypeError(f"key: the seed must be an integer scalar, got {value.type}")
        high = full((), 0, UINT32)
        if value.dtype.itemsize == 8:
            high = convert(ew.shift_right_logical(convert(value, UINT64), 32), UINT32)
        return _stacked([high, convert(value, UINT32)])
    seed = static_int("key", "the seed", seed)
    if not -(2**63) <= seed < 2**64:
        raise OverflowError(f"key: the seed {seed} does not fit 64 bits")
    bits64 = seed % _WORD if -(2**31) <= seed < _WORD else seed % 2**64
    return _stacked([full((), bits64 // _WORD, UINT32), full((), bits64 % _WORD, UINT32)])


PRNGKey = key


def _counters(shape: Shape) -> tuple[Any, Any]:
    """The high and low words of every element's row-major position."""
    size = math.prod(shape)
    if size <= _WORD:
        return full(shape, 0, UINT32), reshape(iota((size,), 0, UINT32), shape)
    position = reshape(iota((size,), 0, UINT64), shape)
    return convert(ew.shift_right_logical(position, 32), UINT32), convert(position, UINT32)


def _words(key: Any, shape: Shape) -> tuple[Any, Any]:
    """Two random words for each element of an array of `shape`."""
    high, low = _counters(shape)
    return threefry2x32(_spread(_scalar(key, 0), shape), _spread(_scalar(key, 1), shape), high, low)


def split(key: Any, num: int | Shape = 2) -> Value:
    """`num` (a number or a shape) new keys from one, of shape (num, 2): `key, subkey = split(key)`."""
    key = _checked_key("split", key)
    return _stacked(_words(key, static_shape("split", num)))


def _split(key: Any, num: int) -> list[Any]:
    first, second = _words(key, (num,))
    return [_stacked([_scalar(first, i), _scalar(second, i)]) for i in range(num)]


def fold_in(key: Any, data: Any) -> Value:
    """A new key from a key and an integer (its lowest 32 bits)."""
    key = _checked_key("fold_in", key)
    if isinstance(data, int):
        word = full((), data % _WORD, UINT32)
    else:
        word = as_value("fold_in", data)
        if not dtypes.is_integer(word.dtype) or word.ndim:
            raise TypeError(f"fold_in: data must be an integer scalar, got {word.type}")
        word = convert(word, UINT32)
    return _stacked(threefry2x32(_scalar(key, 0), _scalar(key, 1), full((), 0, UINT32), word))


def _random_bits(key: Any, width: int, shape: Shape) -> Any:
    """An unsigned integer of `width` random bits for each element."""
    first, second = _words(key, shape)
    if width == 64:
        high = ew.shift_left(convert(first, UINT64), 32)
        return ew.bitwise_or(high, convert(second, UINT64))
    return convert(ew.bitwise_xor(first, second), np.dtype(f"uint{width}"))


def bits(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Random bits: an array of an unsigned integer type (uint32 by default)."""
    kind = UINT32 if dtype is None else dtypes.canonical(dtype)
    if kind.kind != "u":
        raise DTypeError(f"bits: dtype must be an unsigned integer type, got {kind}")
    return _random_bits(_checked_key("bits", key), 8 * kind.itemsize, static_shape("bits", shape))


# ---- uniform --------------------------------------------------------------------------------------------------------


def _unit(key: Any, shape: Shape, dtype: np.dtype) -> Any:
    """Uniform in [0, 1): the mantissa of a number in [1, 2) filled with random bits, less 1."""
    info = dtypes.finfo(dtype)
    width = 8 * dtype.itemsize
    drawn = 8 if info.nmant < 8 else width
    unsigned = np.dtype(f"uint{width}")
    mantissa = ew.shift_right_logical(convert(_random_bits(key, drawn, shape), unsigned), drawn - info.nmant)
    one = int(np.ones((), dtype).view(unsigned))
    return ew.sub(ew.bitcast(ew.bitwise_or(mantissa, one), dtype), 1.0)


def _uniform(key: Any, shape: Shape, dtype: np.dtype, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Uniform in [low, high); the bounds are numbers or arrays of `shape`."""
    unit = _unit(key, shape, dtype)
    if isinstance(low, float) and isinstance(high, float):
        if (low, high) == (0.0, 1.0):
            return unit
        low_number, high_number = np.asarray(low, dtype), np.asarray(high, dtype)
        span = full(shape, float(high_number - low_number), dtype)
        low = full(shape, float(low_number), dtype)
    else:
        low, high = place(low, shape, dtype), place(high, shape, dtype)
        span = ew.sub(high, low)
    return ew.max(low, ew.add(ew.mul(unit, span), low))


def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Value:
    """Uniform numbers in [minval, maxval)."""
    key, kind = _checked_key("uniform", key), _float_dtype("uniform", dtype)
    bounds = [float(b) if isinstance(b, (int, float)) else as_value("uniform", b) for b in (minval, maxval)]
    shape = _result_shape("uniform", shape, *[b for b in bounds if isinstance(b, Value)])
    return _uniform(key, shape, kind, *bounds)


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
    key = _checked_key("randint", key)
    kind = dtypes.canonical(int if dtype is None else dtype)
    if not dtypes.is_integer(kind):
        raise DTypeError(f"randint: dtype must be an integer type, got {kind}")
    low, high = _integer_bound(minval), _integer_bound(maxval)
    shape = _result_shape("randint", shape, low, high)
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
    first, second = _split(key, 2)
    higher, lower = _random_bits(first, width, shape), _random_bits(second, width, shape)
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
    key, p = _checked_key("bernoulli", key), as_value("bernoulli", p)
    if not dtypes.is_float(p.dtype):
        raise DTypeError(f"bernoulli: p must be floating, got {p.dtype}")
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli: mode must be 'high' or 'low', got {mode!r}")
    shape = _result_shape("bernoulli", shape, p)
    chance = place(p, shape, p.dtype)
    if mode == "low":
        return ew.lt(_unit(key, shape, p.dtype), chance)
    both = _unit(key, (2, *shape), p.dtype)
    coarse, fine = (_row(both, i) for i in range(2))
    return ew.lt(ew.mul(fine, 2.0**-dtypes.finfo(p.dtype).nmant), ew.sub(chance, coarse))


def _row(x: Any, i: int) -> Any:
    """x[i]"""
    rest = x.shape[1:]
    return reshape(slice_(x, (i, *[0] * len(rest)), (i + 1, *rest)), rest)


def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """-1 or 1 with equal probability (of type int32 by default)."""
    kind = dtypes.canonical(int if dtype is None else dtype)
    heads = convert(bernoulli(key, 0.5, static_shape("rademacher", shape)), kind)
    return ew.sub(ew.mul(heads, 2), 1)


# ---- continuous distributions ---------------------------------------------------------------------------------------


def _normal(key: Any, shape: Shape, dtype: np.dtype) -> Any:
    """sqrt(2) * erf_inv(u) for u uniform in (-1, 1)."""
    low = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
    return ew.mul(ew.erf_inv(_uniform(key, shape, dtype, low, 1.0)), math.sqrt(2))


def normal(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers of the standard normal distribution."""
    return _normal(_checked_key("normal", key), static_shape("normal", shape), _float_dtype("normal", dtype))


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Value:
    """exp(sigma * normal)."""
    key, kind, sigma = _checked_key("lognormal", key), _float_dtype("lognormal", dtype), as_value("lognormal", sigma)
    shape = _result_shape("lognormal", shape, sigma)
    return ew.exp(ew.mul(_normal(key, shape, kind), place(sigma, shape, kind)))


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Normal numbers within (lower, upper)."""
    key, kind = _checked_key("truncated_normal", key), _float_dtype("truncated_normal", dtype)
    lower, upper = as_value("truncated_normal", lower), as_value("truncated_normal", upper)
    shape = _result_shape("truncated_normal", shape, lower, upper)
    low, high = place(lower, shape, kind), place(upper, shape, kind)
    root = full(shape, math.sqrt(2), kind)
    u = _uniform(key, shape, kind, ew.erf(ew.div(low, root)), ew.erf(ew.div(high, root)))
    inside = (ew.nextafter(ew.stop_gradient(low), math.inf), ew.nextafter(ew.stop_gradient(high), -math.inf))
    return ew.clamp(inside[0], ew.mul(root, ew.erf_inv(u)), inside[1])


def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density exp(-x) on x >= 0."""
    u = _unit(_checked_key("exponential", key), static_shape("exponential", shape), _float_dtype("exponential", dtype))
    return ew.neg(ew.log1p(ew.neg(u)))


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Value:
    """Numbers with cumulative distribution exp(-exp(-x)). mode="high" reaches further into the upper tail."""
    key, kind = _checked_key("gumbel", key), _float_dtype("gumbel", dtype)
    shape, mode, info = static_shape("gumbel", shape), mode or "low", dtypes.finfo(kind)
    if mode == "low":
        u = _uniform(key, shape, kind, float(info.tiny), 1.0)
        return ew.neg(ew.log(ew.neg(ew.log(u))))
    if mode != "high":
        raise ValueError(f"gumbel: mode must be 'low' or 'high', got {mode!r}")
    both = _unit(key, (2, *shape), kind)
    high, low = _row(both, 0), _row(both, 1)
    finer = ew.add(ew.add(high, ew.mul(low, 2.0**-info.nmant)), float(info.tiny))
    x = ew.select(ew.ge(high, 0.5), high, finer)
    return ew.neg(ew.log(ew.neg(ew.log1p(ew.neg(x)))))


def laplace(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density exp(-|x|) / 2."""
    key, kind = _checked_key("laplace", key), _float_dtype("laplace", dtype)
    u = _uniform(key, static_shape("laplace", shape), kind, -1.0 + float(dtypes.finfo(kind).epsneg), 1.0)
    return ew.mul(ew.sign(u), ew.log1p(ew.neg(ew.abs(u))))


def logistic(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with cumulative distribution 1 / (1 + exp(-x))."""
    key, kind = _checked_key("logistic", key), _float_dtype("logistic", dtype)
    u = _uniform(key, static_shape("logistic", shape), kind, float(dtypes.finfo(kind).tiny), 1.0)
    return ew.sub(ew.log(u), ew.log1p(ew.neg(u)))


def cauchy(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with density 1 / (pi (1 + x^2))."""
    key, kind = _checked_key("cauchy", key), _float_dtype("cauchy", dtype)
    u = _uniform(key, static_shape("cauchy", shape), kind, float(dtypes.finfo(kind).eps), 1.0)
    return ew.tan(ew.mul(ew.sub(u, 0.5), math.pi))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers with density b / x^(b + 1) on x >= 1."""
    kind, b = _float_dtype("pareto", dtype), as_value("pareto", b)
    shape = _result_shape("pareto", shape, b)
    return ew.exp(ew.div(exponential(key, shape, kind), place(b, shape, kind)))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers with density x exp(-x^2 / (2 scale^2)) / scale^2 on x >= 0."""
    key, kind, scale = _checked_key("rayleigh", key), _float_dtype("rayleigh", dtype), as_value("rayleigh", scale)
    shape = _result_shape("rayleigh", shape, scale)
    return ew.mul(place(scale, shape, kind), ew.sqrt(ew.mul(ew.log(_unit(key, shape, kind)), -2.0)))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Numbers with cumulative distribution 1 - exp(-(x / scale)^concentration)."""
    scale, concentration = as_value("weibull_min", scale), as_value("weibull_min", concentration)
    kind, shape = _float_dtype("weibull_min", dtype), _result_shape("weibull_min", shape, scale, concentration)
    power = ew.div(1.0, place(concentration, shape, kind))
    return ew.mul(ew.pow(exponential(key, shape, kind), power), place(scale, shape, kind))


def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers whose density rises linearly from `left` to `mode` and falls to `right`."""
    key, kind = _checked_key("triangular", key), _float_dtype("triangular", dtype)
    given = [as_value("triangular", x) for x in (left, mode, right)]
    shape = _result_shape("triangular", shape, *given)
    a, c, b = (place(x, shape, kind) for x in given)
    u, width = _unit(key, shape, kind), ew.sub(b, a)
    rising = ew.add(a, ew.sqrt(ew.mul(ew.mul(u, width), ew.sub(c, a))))
    falling = ew.sub(b, ew.sqrt(ew.mul(ew.mul(ew.sub(1.0, u), width), ew.sub(b, c))))
    return ew.select(ew.lt(u, ew.div(ew.sub(c, a), width)), rising, falling)


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """The length of a vector of three standard normal numbers."""
    shape = static_shape("maxwell", shape)
    x = normal(key, (*shape, 3), dtype)
    return ew.sqrt(reduce_sum(ew.mul(x, x), (len(shape),)))


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The number of trials, each of probability `p`, up to the first success (of type int32 by default)."""
    key, p = _checked_key("geometric", key), as_value("geometric", p)
    inexact = dtypes.to_inexact(p.dtype)
    shape = _result_shape("geometric", shape, p)
    u = _unit(key, shape, inexact)
    u = ew.select(ew.eq(u, 0.0), full_like(u, 1), u)
    trials = ew.floor(ew.div(ew.log(u), ew.log1p(ew.neg(place(p, shape, inexact)))))
    return convert(ew.add(trials, 1.0), dtypes.canonical(int if dtype is None else dtype))


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Value:
    """Not offered: a uniformly distributed orthogonal matrix."""
    raise RefusedError("random.orthogonal is not offered. Take the first factor of fungrad.numpy.linalg.qr of a normal "
                       "matrix, its columns times the signs of the second factor's diagonal.")


# ---- gamma and its relatives ----------------------------------------------------------------------------------------


def _element_keys(key: Any, shape: Shape) -> tuple[Any, Any]:
    """The words of a key for each element: those that splitting `key` among all elements gives."""
    first, second = _words(key, (math.prod(shape),))
    return reshape(first, shape), reshape(second, shape)


def _gamma(name: str, key: Any, a: Any, shape: Any, dtype: Any, log_space: bool) -> Any:
    key, kind, a = _checked_key(name, key), _float_dtype(name, dtype), as_value(name, a)
    shape = _result_shape(name, shape, a)
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
    key, a, b = _checked_key("beta", key), as_value("beta", a), as_value("beta", b)
    shape = _result_shape("beta", shape, a, b)
    first, second = _split(key, 2)
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
    kind, df = _float_dtype("chisquare", dtype), as_value("chisquare", df)
    half = ew.div(convert(df, kind), 2.0)
    return ew.mul(ew.exp(loggamma(key, half, shape, kind)), 2.0)


def t(key: Any, df: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Student's t distribution with `df` degrees of freedom."""
    key, kind, df = _checked_key("t", key), _float_dtype("t", dtype), as_value("t", df)
    shape = _result_shape("t", shape, df)
    for_normal, for_gamma = _split(key, 2)
    half = ew.div(place(df, shape, kind), 2.0)
    return ew.mul(_normal(for_normal, shape, kind), ew.sqrt(ew.div(half, gamma(for_gamma, half, shape, kind))))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Numbers of events at the rate `lam` (of type int32 by default). Below a rate of 10 they are JAX's."""
    key, lam = _checked_key("poisson", key), as_value("poisson", lam)
    kind = dtypes.canonical(int if dtype is None else dtype)
    if not dtypes.is_integer(kind):
        raise DTypeError(f"poisson: dtype must be an integer type, got {kind}")
    shape = _result_shape("poisson", shape, lam)
    rate = place(lam, shape, dtypes.float64 if lam.dtype == dtypes.float64 else dtypes.float32)
    words = [_spread(_scalar(key, i), shape) for i in range(2)]
    return convert(random_poisson(*words, _counters(shape)[1], rate), kind)


# ---- choosing -------------------------------------------------------------------------------------------------------


def _shuffled(key: Any, x: Any, axis: int) -> Any:
    """Sort by random 32-bit keys, again and again until ties in all rounds are improbable (as JAX; after tjablin@)."""
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(_WORD - 1))
    for _ in range(rounds):
        key, subkey = _split(key, 2)
        _, x = sort((_random_bits(subkey, 32, x.shape), x), axis)
    return x


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Value:
    """`x` (arange of an integer) shuffled along `axis`: slices as a whole, or each line by itself if `independent`."""
    key = _checked_key("permutation", key)
    if isinstance(x, (int, np.integer)):
        return _shuffled(key, iota((int(x),), 0, dtypes.default_int()), 0)
    x = as_value("permutation", x)
    if x.ndim == 0:
        return permutation(key, static_int("permutation", "x", x))
    axis = canonical_axis(axis, x.ndim)
    if independent or x.ndim == 1:
        return _shuffled(key, x, axis)
    return take(x, _shuffled(key, iota((x.shape[axis],), 0, dtypes.default_int()), 0), axis, "promise_in_bounds")


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
           mode: str | None = None) -> Value:
    """Random elements (or slices along `axis`) of `a`, or of arange(a), with probabilities `p` (uniform without).

    mode: of the Gumbel numbers used for drawing without replacement by `p`.
    """
    key, shape = _checked_key("choice", key), static_shape("choice", shape)
    source = None if isinstance(a, (int, np.integer)) else as_value("choice", a)
    if source is not None and source.ndim == 0:
        a, source = static_int("choice", "a", source), None
    axis = 0 if source is None else canonical_axis(axis, source.ndim)
    count, draws = int(a) if source is None else source.shape[axis], math.prod(shape)
    if draws and count <= 0:
        raise ValueError("choice: there is nothing to choose from")
    if not replace and draws > count:
        raise ValueError(f"choice: {draws} draws without replacement from {count} elements")
    if draws == 0:
        chosen = full((0,), 0, dtypes.default_int())
    elif p is not None:
        chosen = _weighted(key, as_value("choice", p), count, draws, replace, mode)
    elif replace:
        chosen = randint(key, (draws,), 0, count)
    elif source is not None and source.ndim == 1:
        return reshape(slice_(_shuffled(key, source, 0), (0,), (draws,)), shape)
    else:
        chosen = slice_(permutation(key, count), (0,), (draws,))
    if source is None:
        return reshape(chosen, shape)
    result = take(source, chosen, axis, "promise_in_bounds" if draws else "clip") if count else \
        full((*source.shape[:axis], 0, *source.shape[axis + 1:]), 0, source.dtype)
    return reshape(result, (*source.shape[:axis], *shape, *source.shape[axis + 1:]))


def _weighted(key: Any, p: Any, count: int, draws: int, replace: bool, mode: str | None) -> Any:
    """Positions drawn with probabilities `p`: by the inverse of their sums, or as the largest of log p + Gumbel."""
    if p.shape != (count,):
        raise ShapeError(f"choice: p of shape {p.shape} needs one probability for each of {count} elements")
    p = convert(p, dtypes.to_inexact(p.dtype))
    if replace:
        sums = cumsum(p, 0)
        total = _scalar(sums, count - 1)
        r = ew.mul(_spread(total, (draws,)), ew.sub(1.0, _unit(key, (draws,), p.dtype)))
        return searchsorted(sums, r)
    return top_k(ew.add(gumbel(key, (count,), p.dtype, mode), ew.log(p)), draws)[1]


def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
                mode: str | None = None) -> Value:
    """Positions along `axis` drawn with probabilities softmax(logits).

    shape: extra leading axes, then the shape of `logits` without `axis`; by default the latter.
    """
    key, logits = _checked_key("categorical", key), as_value("categorical", logits)
    logits = convert(logits, dtypes.to_inexact(logits.dtype))
    axis = canonical_axis(axis, logits.ndim)
    batch = (*logits.shape[:axis], *logits.shape[axis + 1:])
    shape = batch if shape is None else static_shape("categorical", shape)
    extra = shape[:len(shape) - len(batch)]
    if len(shape) < len(batch) or broadcast_shape("categorical", shape, batch) != shape:
        raise ShapeError(f"categorical: logits of shape {logits.shape} without axis {axis} do not fit the requested "
                         f"shape {shape}")
    if not replace:
        return _without_replacement(key, logits, axis, shape, extra, mode)
    rest = list(shape[len(extra):])
    rest.insert(axis, logits.shape[axis])
    noise = gumbel(key, (*extra, *rest), logits.dtype, mode)
    return argmax(ew.add(noise, place(logits, noise.shape, logits.dtype)), len(extra) + axis)


def _without_replacement(key: Any, logits: Any, axis: int, shape: Shape, extra: Shape, mode: str | None) -> Any:
    count = math.prod(extra)
    if count > logits.shape[axis]:
        raise ValueError(f"categorical: {count} draws without replacement from {logits.shape[axis]} categories")
    noisy = ew.add(logits, gumbel(key, logits.shape, logits.dtype, mode))
    last = noisy.ndim - 1
    moved = transpose(noisy, (*[a for a in range(noisy.ndim) if a != axis], axis))
    positions = top_k(moved, count)[1]
    return reshape(transpose(positions, (last, *range(last))), shape)

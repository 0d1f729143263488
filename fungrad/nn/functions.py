"""Activations and other functions of jax.nn: plain functions of arrays, differentiable and batchable like any other.

Shapes are kept unless a function says otherwise. Integer inputs are computed in the default float type, except by
`relu`, `relu6`, `leaky_relu` and `hard_tanh`, which keep them.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import lax, numpy as fnp
from ..dtypes import canonical, default_float, is_float
from ..errors import DTypeError, ShapeError

Array = Any      # a fungrad array or a tracer
ArrayLike = Any  # an Array, a NumPy array or a Python scalar
Axis = int | tuple[int, ...] | None


def _floating(x: ArrayLike) -> Array:
    """`x` as an array of a floating type."""
    x = fnp.asarray(x)
    return x if is_float(x.dtype) else x.astype(default_float())


def identity(x: ArrayLike) -> Array:
    """`x` itself, as an array."""
    return fnp.asarray(x)


def relu(x: ArrayLike) -> Array:
    """max(x, 0), with derivative 0 at 0 (https://dl.acm.org/doi/10.5555/3540261.3540297) and NaN for NaN."""
    x = fnp.asarray(x)
    return fnp.where(x <= 0, 0, x)  # a choice, not a maximum, whose derivative at a tie is a half


def relu6(x: ArrayLike) -> Array:
    """min(max(x, 0), 6), with derivative 0 at 0 and at 6."""
    x = fnp.asarray(x)
    return fnp.where(x <= 0, 0, fnp.where(x >= 6, 6, x))


def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """(x + sqrt(x^2 + b)) / 2, a smooth relu without exponentials (https://arxiv.org/abs/2112.11687)."""
    x = _floating(x)
    return (x + fnp.sqrt(x * x + b)) / 2


def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)), without overflow."""
    return fnp.logaddexp(_floating(x), 0.0)


def sparse_plus(x: ArrayLike) -> Array:
    """0 below -1, x above 1 and (x + 1)^2 / 4 between: the twin of `softplus` that reaches zero."""
    x = _floating(x)
    return fnp.where(x <= -1.0, 0.0, fnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


def sparse_sigmoid(x: ArrayLike) -> Array:
    """The derivative of `sparse_plus`: 0 below -1, 1 above 1, (x + 1) / 2 between."""
    return 0.5 * fnp.clip(_floating(x) + 1.0, 0.0, 2.0)


def soft_sign(x: ArrayLike) -> Array:
    """x / (|x| + 1)."""
    x = _floating(x)
    return x / (fnp.abs(x) + 1)


def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x))."""
    return lax.logistic(_floating(x))


def log_sigmoid(x: ArrayLike) -> Array:
    """log(sigmoid(x)) = -softplus(-x)."""
    return -softplus(-_floating(x))


def silu(x: ArrayLike) -> Array:
    """x * sigmoid(x)."""
    x = _floating(x)
    return x * sigmoid(x)


swish = silu


def mish(x: ArrayLike) -> Array:
    """x * tanh(softplus(x)) (https://arxiv.org/abs/1908.08681)."""
    x = _floating(x)
    return x * fnp.tanh(softplus(x))


def tanh(x: ArrayLike) -> Array:
    """The hyperbolic tangent."""
    return fnp.tanh(x)


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x above 0, alpha * (exp(x) - 1) below."""
    x = _floating(x)
    return fnp.where(x > 0, x, alpha * fnp.expm1(fnp.where(x > 0, 0.0, x)))


def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x above 0, alpha * (exp(x / alpha) - 1) below (https://arxiv.org/abs/1704.07483)."""
    x = _floating(x)
    return fnp.where(x > 0, x, alpha * fnp.expm1(fnp.where(x > 0, 0.0, x) / alpha))


def selu(x: ArrayLike) -> Array:
    """The scaled `elu` of self-normalising networks (https://arxiv.org/abs/1706.02515)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Array:
    """x from 0 on, negative_slope * x below."""
    x = fnp.asarray(x)
    return fnp.where(x >= 0, x, negative_slope * x)


def hard_tanh(x: ArrayLike) -> Array:
    """x limited to [-1, 1]."""
    x = fnp.asarray(x)
    return fnp.where(x > 1, 1, fnp.where(x < -1, -1, x))


def hard_sigmoid(x: ArrayLike) -> Array:
    """relu6(x + 3) / 6."""
    return relu6(_floating(x) + 3.0) / 6.0


def hard_silu(x: ArrayLike) -> Array:
    """x * hard_sigmoid(x)."""
    x = _floating(x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """x * P(normal <= x) (https://arxiv.org/abs/1606.08415): by tanh if `approximate`, else by erfc."""
    x = _floating(x)
    if approximate:
        return x * (0.5 * (1.0 + fnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))))
    return 0.5 * x * lax.erfc(-x * math.sqrt(0.5))


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half of `axis` times the sigmoid of the second; the axis is halved."""
    x = _floating(x)
    if x.shape[axis] % 2:
        raise ShapeError(f"glu halves axis {axis} of an array of shape {x.shape}, but {x.shape[axis]} is odd.")
    first, second = fnp.split(x, 2, axis)
    return first * sigmoid(second)


def log1mexp(x: ArrayLike) -> Array:
    """log(1 - exp(-x)) for x >= 0, accurate for small and large x.

    After M. Mächler, "Accurately computing log(1 - exp(-|a|))". Each branch is computed on inputs of its own, so that
    the other one's infinities stay out of the derivative.
    """
    x = _floating(x)
    small = x < math.log(2.0)
    by_expm1 = fnp.log(-fnp.expm1(-fnp.where(small, x, 0.5)))
    return fnp.where(small, by_expm1, fnp.log1p(-fnp.exp(-fnp.where(small, 1.0, x))))


def _masked_maximum(x: Array, axis: Axis, where: ArrayLike | None) -> Array:
    """The maximum over `axis`, axes kept, as a constant to differentiation; -inf where nothing is included."""
    masked = x if where is None else fnp.where(where, x, -np.inf)
    return lax.stop_gradient(fnp.max(masked, axis, keepdims=True, initial=-np.inf))


def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """exp(x) / sum(exp(x)) over `axis` (an axis, several, or None for all), without overflow.

    Elements that `where` leaves out get 0 and do not count.
    """
    x = _floating(x)
    included = x if where is None else fnp.where(where, x, -np.inf)
    unnormalized = fnp.exp(included - _masked_maximum(x, axis, where))
    if where is not None:
        unnormalized = fnp.where(where, unnormalized, 0)
    return unnormalized / fnp.sum(unnormalized, axis, keepdims=True)


def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """log(softmax(x)), computed without forming the softmax. Elements that `where` leaves out get -inf."""
    x = _floating(x)
    shifted = x - _masked_maximum(x, axis, where)
    if where is None:
        return shifted - fnp.log(fnp.sum(fnp.exp(shifted), axis, keepdims=True))
    exponentials = fnp.where(where, fnp.exp(fnp.where(where, shifted, 0.0)), 0.0)
    return fnp.where(where, shifted - fnp.log(fnp.sum(exponentials, axis, keepdims=True)), -np.inf)


def logsumexp(a: ArrayLike, axis: Axis = None, b: ArrayLike | None = None, keepdims: bool = False,
              return_sign: bool = False, where: ArrayLike | None = None) -> Any:
    """log(sum(b * exp(a))) over `axis`, without overflow; with `return_sign` the pair (log |sum|, sign of the sum).

    `b` weighs the terms (NaN where the sum is negative, unless the sign is asked for); `where` leaves terms out.
    """
    a = _floating(a)
    if b is not None:
        b = fnp.asarray(b)
        a, b = fnp.broadcast_arrays(fnp.where(b != 0, a, -np.inf), b)
    maximum = _masked_maximum(a, axis, where)
    maximum = fnp.where(fnp.isfinite(maximum), maximum, 0)
    terms = fnp.exp(a - maximum)
    if b is not None:
        terms = terms * b
    if where is not None:
        terms = fnp.where(where, terms, 0)
    total = fnp.sum(terms, axis, keepdims=keepdims)
    shift = maximum if keepdims else fnp.reshape(maximum, total.shape)
    if b is None and not return_sign:
        return fnp.log(total) + shift
    sign = lax.stop_gradient(fnp.sign(total))
    result = fnp.log(fnp.abs(total)) + shift
    return (result, sign) if return_sign else fnp.where(sign < 0, np.nan, result)


def logmeanexp(x: ArrayLike, axis: Axis = None, where: ArrayLike | None = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) over `axis`, without overflow."""
    x = _floating(x)
    included = fnp.ones_like(x) if where is None else fnp.where(where, fnp.ones_like(x), 0)
    return logsumexp(x, axis, keepdims=keepdims, where=where) - fnp.log(fnp.sum(included, axis, keepdims=keepdims))


def standardize(x: ArrayLike, axis: Axis = -1, mean: ArrayLike | None = None, variance: ArrayLike | None = None,
                epsilon: ArrayLike = 1e-5, where: ArrayLike | None = None) -> Array:
    """(x - mean) / sqrt(variance + epsilon) over `axis`.

    A missing mean or variance is computed from the elements that `where` includes. The variance is the mean of the
    squared deviations (JAX's algorithm="stable"), which does not cancel as the difference of two means does.
    """
    x = _floating(x)
    if mean is None:
        mean = fnp.mean(x, axis, keepdims=True, where=where)
    centred = x - mean
    if variance is None:
        variance = fnp.mean(centred * centred, axis, keepdims=True, where=where)
    return centred * lax.rsqrt(fnp.asarray(variance) + epsilon)


def one_hot(x: ArrayLike, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Array:
    """1 where the new `axis` of `num_classes` positions equals the integer `x`, else 0; all 0 for an x out of range."""
    x = fnp.asarray(x)
    if is_float(x.dtype):
        raise DTypeError(f"one_hot takes integers, got {x.dtype}. Convert with x.astype(int).")
    if x.dtype.kind == "b" or np.iinfo(x.dtype).max < num_classes:
        x = x.astype(np.int32)  # the class numbers must fit the type in which they are compared
    axis = axis + x.ndim + 1 if axis < 0 else axis
    classes = fnp.reshape(fnp.arange(num_classes, dtype=x.dtype), (num_classes,) + (1,) * (x.ndim - axis))
    return (fnp.expand_dims(x, axis) == classes).astype(default_float() if dtype is None else canonical(dtype))

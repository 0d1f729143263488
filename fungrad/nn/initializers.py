"""Initializers of parameters, named as in jax.nn.initializers: functions `(key, shape, dtype) -> array`.

`zeros` and `ones` are initializers themselves; the other names make one.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import numpy as fnp, random
from ..dtypes import canonical, default_float
from ..errors import ShapeError

Array = Any
Axes = int | Sequence[int]
Initializer = Callable[..., Array]

# The standard deviation of a standard normal distribution truncated to [-2, 2].
TRUNCATED_DEVIATION = 0.87962566103423978


def _dtype(dtype: Any) -> Any:
    return default_float() if dtype is None else canonical(dtype)


@dataclass(frozen=True, slots=True)
class _Made:
    """An initializer as a value: equal parameters make equal initializers (and layers), and it can be pickled.

    `draw(key, shape, dtype, *parameters)` makes the array.
    """
    name: str
    draw: Callable[..., Array]
    parameters: tuple[Any, ...]
    dtype: Any = None

    def __call__(self, key: Array, shape: Sequence[int], dtype: Any = None) -> Array:
        return self.draw(key, tuple(shape), _dtype(self.dtype if dtype is None else dtype), *self.parameters)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.parameters))})"


def zeros(key: Array, shape: Sequence[int], dtype: Any = None) -> Array:
    """Zeros; the key is not used."""
    return fnp.zeros(tuple(shape), _dtype(dtype))


def ones(key: Array, shape: Sequence[int], dtype: Any = None) -> Array:
    """Ones; the key is not used."""
    return fnp.ones(tuple(shape), _dtype(dtype))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """`value`, broadcast to the shape."""
    return _Made("constant", _constant, (value,), dtype)


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform in [0, scale)."""
    return _Made("uniform", _scaled_uniform, (scale,), dtype)


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with mean 0 and the given standard deviation."""
    return _Made("normal", _scaled_normal, (stddev,), dtype)


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """A standard normal truncated to [lower, upper], times `stddev` (not corrected for the truncation)."""
    return _Made("truncated_normal", _scaled_truncated_normal, (stddev, lower, upper), dtype)


def _constant(key: Array, shape: tuple[int, ...], dtype: Any, value: Any) -> Array:
    return fnp.full(shape, value, dtype)


def _scaled_uniform(key: Array, shape: tuple[int, ...], dtype: Any, scale: Any) -> Array:
    return random.uniform(key, shape, dtype) * scale


def _scaled_normal(key: Array, shape: tuple[int, ...], dtype: Any, stddev: Any) -> Array:
    return random.normal(key, shape, dtype) * stddev


def _scaled_truncated_normal(key: Array, shape: tuple[int, ...], dtype: Any, stddev: Any, lower: float,
                             upper: float) -> Array:
    return random.truncated_normal(key, lower, upper, shape, dtype) * stddev


def _extent(shape: Sequence[int], axes: Axes) -> int:
    return math.prod(shape[a] for a in ((axes,) if isinstance(axes, int) else axes))


def _fans(shape: Sequence[int], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many inputs an output sums over and how many outputs an input goes to; other axes are a receptive field."""
    if in_axis == -2 and len(shape) < 2:
        raise ShapeError(f"an array of shape {tuple(shape)} has no input axis -2 by which to scale. "
                         f"Give in_axis=, or use an initializer that needs no scale, such as zeros.")
    inputs, outputs = _extent(shape, in_axis), _extent(shape, out_axis)
    field = math.prod(shape) / (inputs * outputs * _extent(shape, batch_axis)) if math.prod(shape) else 0.0
    return inputs * field, outputs * field


_MEANS: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: math.sqrt(fan_in * fan_out),
}


def _truncated(key: Array, shape: tuple[int, ...], dtype: Any, deviation: float) -> Array:
    return random.truncated_normal(key, -2.0, 2.0, shape, dtype) * (deviation / TRUNCATED_DEVIATION)


def _normal(key: Array, shape: tuple[int, ...], dtype: Any, deviation: float) -> Array:
    return random.normal(key, shape, dtype) * deviation


def _uniform(key: Array, shape: tuple[int, ...], dtype: Any, deviation: float) -> Array:
    return random.uniform(key, shape, dtype, -1.0, 1.0) * (math.sqrt(3) * deviation)


_DISTRIBUTIONS = {"truncated_normal": _truncated, "normal": _normal, "uniform": _uniform}


def variance_scaling(scale: float, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1,
                     batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Mean 0 and variance scale / n, where n is the `mode` of the fans: fan_in, fan_out, fan_avg or fan_geo_avg.

    `distribution` is "truncated_normal" (at two standard deviations, corrected), "normal" or "uniform". Axes that are
    neither `in_axis`, `out_axis` nor `batch_axis` count as a convolution's receptive field.
    """
    for what, value, known in (("mode", mode, _MEANS), ("distribution", distribution, _DISTRIBUTIONS)):
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}: write one of {', '.join(known)}")
    axes = tuple(a if isinstance(a, int) else tuple(a) for a in (in_axis, out_axis, batch_axis))
    return _Made("variance_scaling", _scaled_by_fan, (scale, mode, distribution, *axes), dtype)


def _scaled_by_fan(key: Array, shape: tuple[int, ...], dtype: Any, scale: float, mode: str, distribution: str,
                   in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> Array:
    fan = _MEANS[mode](*_fans(shape, in_axis, out_axis, batch_axis))
    deviation = math.sqrt(scale / fan) if fan else 0.0   # an empty array needs no scale
    return _DISTRIBUTIONS[distribution](key, shape, dtype, deviation)


def glorot_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Uniform with variance 1 / mean(fan_in, fan_out) (Glorot and Bengio, 2010)."""
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Truncated normal with variance 1 / mean(fan_in, fan_out) (Glorot and Bengio, 2010)."""
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Uniform with variance 1 / fan_in (LeCun et al., 1998)."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Truncated normal with variance 1 / fan_in (LeCun et al., 1998)."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Uniform with variance 2 / fan_in, for relu (He et al., 2015)."""
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Truncated normal with variance 2 / fan_in, for relu (He et al., 2015)."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform = glorot_uniform
xavier_normal = glorot_normal
kaiming_uniform = he_uniform
kaiming_normal = he_normal

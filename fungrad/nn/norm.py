"""Normalisation layers. Statistics of the 16-bit floats are computed in float32; the result has the input's type."""
from __future__ import annotations

from typing import Any

from .. import lax, numpy as fnp
from ..dtypes import accumulation
from ..errors import ShapeError
from .functions import Array
from .initializers import Initializer, ones, zeros
from .layer import check_features, layer


def _affine_parameters(key: Array, features: int, scale: Initializer | None, bias: Initializer | None,
                       dtype: Any) -> dict[str, Array]:
    params = {"scale": scale, "bias": bias}
    return {name: init(key, (features,), dtype) for name, init in params.items() if init is not None}


def _affine(params: dict[str, Array], x: Array) -> Array:
    if "scale" in params:
        x = x * params["scale"]
    return x + params["bias"] if "bias" in params else x


def _moments(x: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    """`x` less its mean over `axes`, and the mean of the squares of that (two passes: no cancellation)."""
    centred = x - fnp.mean(x, axes, keepdims=True)
    return centred, fnp.mean(centred * centred, axes, keepdims=True)


@layer
class LayerNorm:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis (https://arxiv.org/abs/1607.06450)."""
    num_features: int
    epsilon: float = 1e-6
    use_bias: bool = True
    use_scale: bool = True
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        return _affine_parameters(key, self.num_features, ones if self.use_scale else None,
                                  zeros if self.use_bias else None, self.dtype)

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        check_features("LayerNorm", x, self.num_features)
        centred, variance = _moments(x.astype(accumulation(x.dtype)), -1)
        return _affine(params, centred * lax.rsqrt(variance + self.epsilon)).astype(x.dtype)


@layer
class RMSNorm:
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis (https://arxiv.org/abs/1910.07467)."""
    num_features: int
    epsilon: float = 1e-6
    use_scale: bool = True
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        return _affine_parameters(key, self.num_features, ones if self.use_scale else None, None, self.dtype)

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        check_features("RMSNorm", x, self.num_features)
        wide = x.astype(accumulation(x.dtype))
        square = fnp.mean(wide * wide, -1, keepdims=True)
        return _affine(params, wide * lax.rsqrt(square + self.epsilon)).astype(x.dtype)


@layer
class GroupNorm:
    """Normalisation over the spatial axes and groups of channels (https://arxiv.org/abs/1803.08494).

    (batch, *spatial, num_features) -> the same shape; axis 0 alone is the batch.
    """
    num_features: int
    num_groups: int = 32
    epsilon: float = 1e-6
    use_bias: bool = True
    use_scale: bool = True
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.num_groups < 1 or self.num_features % self.num_groups:
            raise ShapeError(f"{self.num_features} features do not divide into {self.num_groups} groups.")

    def init(self, key: Array) -> dict[str, Array]:
        return _affine_parameters(key, self.num_features, ones if self.use_scale else None,
                                  zeros if self.use_bias else None, self.dtype)

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        check_features("GroupNorm", x, self.num_features)
        grouped = fnp.reshape(x.astype(accumulation(x.dtype)),
                              (*x.shape[:-1], self.num_groups, self.num_features // self.num_groups))
        axes = (*range(1, x.ndim - 1), x.ndim)
        centred, variance = _moments(grouped, axes)
        normal = fnp.reshape(centred * lax.rsqrt(variance + self.epsilon), x.shape)
        return _affine(params, normal).astype(x.dtype)


@layer
class BatchNorm:
    """Normalisation over every axis but `axis`, the channels (https://arxiv.org/abs/1502.03167). Its state is explicit.

    `y, state = norm(params, state, x)` normalises by the batch and returns the updated running mean and (biased)
    variance; with `use_running_average=True` it normalises by the state and returns it unchanged. `init_state()` is
    the first state.
    """
    num_features: int
    axis: int = -1
    momentum: float = 0.99
    epsilon: float = 1e-5
    use_bias: bool = True
    use_scale: bool = True
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        return _affine_parameters(key, self.num_features, ones if self.use_scale else None,
                                  zeros if self.use_bias else None, self.dtype)

    def init_state(self) -> dict[str, Array]:
        return {"mean": fnp.zeros((self.num_features,)), "var": fnp.ones((self.num_features,))}

    def __call__(self, params: dict[str, Array], state: dict[str, Array], x: Array, *,
                 use_running_average: bool = False) -> tuple[Array, dict[str, Array]]:
        moved = fnp.moveaxis(x, self.axis, -1)
        check_features("BatchNorm", moved, self.num_features)
        wide = moved.astype(accumulation(x.dtype))
        if use_running_average:
            centred, variance = wide - state["mean"], state["var"]
        else:
            mean = fnp.mean(wide, tuple(range(wide.ndim - 1)))
            centred = wide - mean
            variance = fnp.mean(centred * centred, tuple(range(wide.ndim - 1)))
            kept = self.momentum
            state = {"mean": lax.stop_gradient((kept * state["mean"] + (1 - kept) * mean).astype(state["mean"].dtype)),
                     "var": lax.stop_gradient((kept * state["var"] + (1 - kept) * variance).astype(state["var"].dtype))}
        result = _affine(params, centred * lax.rsqrt(variance + self.epsilon)).astype(x.dtype)
        return fnp.moveaxis(result, -1, self.axis), state

"""Convolutions of one to three spatial axes, channels last: (..., *spatial, features)."""
from __future__ import annotations

import math
from typing import Any

from .. import lax, numpy as fnp, random
from ..errors import ShapeError
from .functions import Array
from .initializers import Initializer, lecun_normal, zeros
from .layer import check_features, layer

Extents = int | tuple[int, ...]
Padding = str | int | tuple[int | tuple[int, int], ...]

_LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def extents(value: Extents, rank: int, what: str) -> tuple[int, ...]:
    """One integer for each spatial axis, from one for all or a sequence."""
    result = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(result) != rank:
        raise ShapeError(f"{what}={value!r} has {len(result)} elements, but there are {rank} spatial axes.")
    return result


def explicit_padding(padding: Padding, rank: int) -> str | tuple[tuple[int, int], ...]:
    """"SAME" and "VALID" as they are; integers and pairs as one (low, high) for each spatial axis."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ValueError(f'padding={padding!r}: write "SAME", "VALID", an integer, or one integer or pair an axis.')
        return padding.upper()
    each = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    if len(each) != rank:
        raise ShapeError(f"padding={padding!r} has {len(each)} elements, but there are {rank} spatial axes.")
    return tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in each)


def _batched(x: Array, rank: int) -> Array:
    """`x` with exactly one batch axis."""
    if x.ndim < rank + 1:
        raise ShapeError(f"a convolution over {rank} spatial axes takes (..., *spatial, features), "
                         f"got shape {x.shape}.")
    return fnp.reshape(x, (math.prod(x.shape[:-rank - 1]), *x.shape[-rank - 1:])) if x.ndim != rank + 2 else x


def _layout(kernel_size: Extents) -> tuple[tuple[int, ...], tuple[str, str, str]]:
    size = (kernel_size,) if isinstance(kernel_size, int) else tuple(kernel_size)
    if len(size) not in _LAYOUTS:
        raise ShapeError(f"kernel_size={kernel_size!r}: there are convolutions over 1, 2 or 3 spatial axes.")
    return size, _LAYOUTS[len(size)]


@layer
class Conv:
    """A convolution: (..., *spatial, in_features) -> (..., *spatial', out_features). Parameters: {"kernel", "bias"}.

    The kernel has shape (*kernel_size, in_features / feature_group_count, out_features); an integer `kernel_size` is
    one spatial axis. Padding is "SAME", "VALID", an integer, or an integer or pair for each spatial axis.
    """
    in_features: int
    out_features: int
    kernel_size: Extents
    strides: Extents = 1
    padding: Padding = "SAME"
    input_dilation: Extents = 1
    kernel_dilation: Extents = 1
    feature_group_count: int = 1
    use_bias: bool = True
    kernel_init: Initializer = lecun_normal()
    bias_init: Initializer = zeros
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        size, _ = _layout(self.kernel_size)
        groups = self.feature_group_count
        if self.in_features % groups or self.out_features % groups:
            raise ShapeError(f"{self.in_features} and {self.out_features} features do not divide into {groups} groups.")
        kernel_key, bias_key = random.split(key)
        shape = (*size, self.in_features // groups, self.out_features)
        params = {"kernel": self.kernel_init(kernel_key, shape, self.dtype)}
        if self.use_bias:
            params["bias"] = self.bias_init(bias_key, (self.out_features,), self.dtype)
        return params

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        size, layout = _layout(self.kernel_size)
        rank = len(size)
        check_features("Conv", x, self.in_features)
        batched = _batched(x, rank)
        result = lax.conv_general_dilated(
            batched, params["kernel"], extents(self.strides, rank, "strides"), explicit_padding(self.padding, rank),
            extents(self.input_dilation, rank, "input_dilation"),
            extents(self.kernel_dilation, rank, "kernel_dilation"),
            dimension_numbers=layout, feature_group_count=self.feature_group_count)
        result = fnp.reshape(result, (*x.shape[:-rank - 1], *result.shape[1:]))
        return result + params["bias"] if self.use_bias else result


def transposed_padding(size: int, stride: int, padding: str) -> tuple[int, int]:
    """The padding of the stretched input that undoes a convolution's, for a kernel of `size` (as
    jax.lax.conv_transpose).
    """
    if padding == "SAME":
        total = size + stride - 2
        low = size - 1 if stride > size - 1 else math.ceil(total / 2)
    else:
        total = size + stride - 2 + max(size - stride, 0)
        low = size - 1
    return low, total - low


@layer
class ConvTranspose:
    """A convolution over the input stretched by `strides`: (..., *spatial, in_features) -> (..., *spatial',
    out_features).

    With "SAME" the spatial axes grow by the factor `strides`; with "VALID" to (n - 1) * stride + kernel size (if the
    kernel is not smaller than the stride); explicit padding applies to the stretched input. The kernel,
    (*kernel_size, in_features, out_features), is not flipped, as in jax.lax.conv_transpose.
    """
    in_features: int
    out_features: int
    kernel_size: Extents
    strides: Extents = 1
    padding: Padding = "SAME"
    kernel_dilation: Extents = 1
    use_bias: bool = True
    kernel_init: Initializer = lecun_normal()
    bias_init: Initializer = zeros
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        size, _ = _layout(self.kernel_size)
        kernel_key, bias_key = random.split(key)
        params = {"kernel": self.kernel_init(kernel_key, (*size, self.in_features, self.out_features), self.dtype)}
        if self.use_bias:
            params["bias"] = self.bias_init(bias_key, (self.out_features,), self.dtype)
        return params

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        size, layout = _layout(self.kernel_size)
        rank = len(size)
        check_features("ConvTranspose", x, self.in_features)
        strides = extents(self.strides, rank, "strides")
        dilation = extents(self.kernel_dilation, rank, "kernel_dilation")
        padding = explicit_padding(self.padding, rank)
        if isinstance(padding, str):
            padding = tuple(transposed_padding((k - 1) * d + 1, s, padding)
                            for k, d, s in zip(size, dilation, strides, strict=True))
        result = lax.conv_general_dilated(_batched(x, rank), params["kernel"], (1,) * rank, padding, strides, dilation,
                                          dimension_numbers=layout)
        result = fnp.reshape(result, (*x.shape[:-rank - 1], *result.shape[1:]))
        return result + params["bias"] if self.use_bias else result

"""Pooling over windows, channels last: (..., *spatial, features)."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import lax, numpy as fnp
from ..dtypes import highest, lowest
from ..errors import ShapeError
from .conv import Extents, Padding, explicit_padding, extents
from .functions import Array


def _windows(x: Array, start: Any, combine: Callable[..., Array], window_shape: Sequence[int], strides: Extents | None,
             padding: Padding) -> Array:
    """Combine the elements of every window of the spatial axes."""
    window = tuple(window_shape)
    rank = len(window)
    if x.ndim < rank + 1:
        raise ShapeError(f"pooling over windows {window} takes (..., *spatial, features), got shape {x.shape}.")
    steps = extents(window if strides is None else strides, rank, "strides")
    pads = explicit_padding(padding, rank)
    outer = x.ndim - rank - 1
    if not isinstance(pads, str):
        pads = ((0, 0),) * outer + pads + ((0, 0),)
    ones = (1,) * outer
    return lax.reduce_window(x, np.asarray(start, x.dtype), combine, (*ones, *window, 1), (*ones, *steps, 1), pads)


def max_pool(inputs: Array, window_shape: Sequence[int], strides: Extents | None = None,
             padding: Padding = "VALID") -> Array:
    """The maximum of every window; padding never wins. `strides` are the window's extents unless given."""
    return _windows(inputs, lowest(inputs.dtype), lax.max, window_shape, strides, padding)


def min_pool(inputs: Array, window_shape: Sequence[int], strides: Extents | None = None,
             padding: Padding = "VALID") -> Array:
    """The minimum of every window; padding never wins."""
    return _windows(inputs, highest(inputs.dtype), lax.min, window_shape, strides, padding)


def avg_pool(inputs: Array, window_shape: Sequence[int], strides: Extents | None = None, padding: Padding = "VALID",
             count_include_pad: bool = True) -> Array:
    """The mean of every window; padding counts as zeros, or not at all if `count_include_pad` is false."""
    total = _windows(inputs, 0, lax.add, window_shape, strides, padding)
    if count_include_pad:
        return total / math.prod(window_shape)
    rank = len(tuple(window_shape))
    ones = fnp.ones((*inputs.shape[-rank - 1:-1], 1), inputs.dtype)
    return total / _windows(ones, 0, lax.add, window_shape, strides, padding)

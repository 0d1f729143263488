"""Dropout: its randomness is an argument."""
from __future__ import annotations

from .. import numpy as fnp, random
from .functions import Array
from .layer import layer


@layer
class Dropout:
    """Elements set to zero with probability `rate`, the others divided by 1 - rate (Srivastava et al., 2014).

    It has no parameters: `init` gives (). Calls without a key change nothing, as in evaluation. Elements along
    `broadcast_dims` share one decision.
    """
    rate: float
    broadcast_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"a dropout rate is a probability, got {self.rate}.")

    def init(self, key: Array) -> tuple[()]:
        return ()

    def __call__(self, params: tuple[()], x: Array, *, key: Array | None = None) -> Array:
        if key is None or self.rate == 0.0:
            return x
        if self.rate == 1.0:
            return fnp.zeros_like(x)
        shape = list(x.shape)
        for axis in self.broadcast_dims:
            shape[axis] = 1
        keep = 1.0 - self.rate
        return fnp.where(random.bernoulli(key, keep, tuple(shape)), x / keep, 0)

"""The type of a value: its shape and element type."""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """An array's shape and element type; printed `float32[2,3]`."""
    shape: Shape
    dtype: np.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__

    def with_shape(self, shape: Shape) -> Type:
        return array_type(shape, self.dtype)

    def with_dtype(self, dtype: np.dtype) -> Type:
        return array_type(self.shape, dtype)


@lru_cache(maxsize=4096)
def array_type(shape: Shape, dtype: np.dtype) -> Type:
    """The type with this shape and element type, shared between equal calls."""
    return Type(shape, dtype)


@dataclass(frozen=True, slots=True)
class Literal:
    """A scalar constant, identified by its bits: NaN equals itself and -0.0 differs from 0.0."""
    bits: bytes
    dtype: np.dtype

    @property
    def value(self) -> bool | int | float:
        """The constant as a Python scalar."""
        item = np.frombuffer(self.bits, self.dtype)[0]
        return float(item) if self.dtype.kind == "V" or self.dtype.name == "bfloat16" else item.item()

    def __str__(self) -> str:
        return f"{self.value!r}"


@lru_cache(maxsize=4096, typed=True)
def _literal(value: bool | int | float, dtype: np.dtype) -> Literal:
    with np.errstate(all="ignore"):
        return Literal(np.asarray(value).astype(dtype).tobytes(), dtype)


def literal(value: bool | int | float, dtype: np.dtype) -> Literal:
    """The literal of a Python scalar in an element type (integers wrap)."""
    if value == 0 and isinstance(value, float):  # lru_cache would take -0.0 for 0.0
        with np.errstate(all="ignore"):
            return Literal(np.asarray(value).astype(dtype).tobytes(), dtype)
    return _literal(value, dtype)

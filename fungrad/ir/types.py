"""The type of a value: its shape and element type."""
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

Shape = tuple[int, ...]


class Type:
    """An array's shape and element type; printed `float32[2,3]`. Equal types are one object, so comparing is cheap."""

    __slots__ = ("shape", "dtype")
    shape: Shape
    dtype: np.dtype
    _interned: ClassVar[dict[tuple[Shape, np.dtype], Type]] = {}

    def __new__(cls, shape: Shape, dtype: np.dtype) -> Type:
        found = cls._interned.get((shape, dtype))
        if found is None:
            found = object.__new__(cls)
            object.__setattr__(found, "shape", tuple(int(extent) for extent in shape))
            object.__setattr__(found, "dtype", np.dtype(dtype))
            found = cls._interned.setdefault((found.shape, found.dtype), found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Type is immutable")

    def __reduce__(self) -> tuple:
        return Type, (self.shape, self.dtype)

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
        return Type(shape, self.dtype)

    def with_dtype(self, dtype: np.dtype) -> Type:
        return Type(self.shape, dtype)


array_type = Type


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

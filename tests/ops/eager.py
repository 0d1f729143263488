"""A trace that runs every primitive's NumPy reference at once: rules are tested without any transform or compiler."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fungrad.ir.primitive import Primitive, Zero
from fungrad.ir.types import array_type
from fungrad.ir.value import Value
from fungrad.trace import Trace, active


class EagerValue(Value):
    """A value that is a NumPy array."""

    __slots__ = ("array", "type", "weak")

    def __init__(self, array: Any):
        self.array = np.asarray(array)
        self.type = array_type(self.array.shape, self.array.dtype)
        self.weak = False

    def __repr__(self) -> str:
        return f"EagerValue({self.array!r})"


class EagerTrace(Trace):
    """Runs references, and checks that each result has the type that the type rule declares."""

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        declared = primitive.type(*[value.type for value in values], **params)
        results = primitive.reference(*[value.array for value in values], **params)
        if not primitive.multiple_results:
            return self._checked(primitive, declared, results)
        return tuple(self._checked(primitive, *pair) for pair in zip(declared, results, strict=True))

    @staticmethod
    def _checked(primitive: Primitive, declared: Any, result: Any) -> EagerValue:
        value = EagerValue(result)
        assert value.type == declared, f"{primitive}: reference gave {value.type}, the type rule says {declared}"
        return value


def wrap(x: Any) -> Any:
    """Arrays as EagerValues, leaving anything else alone."""
    return EagerValue(x) if isinstance(x, (np.ndarray, np.generic)) else x


def unwrap(x: Any) -> Any:
    """The arrays in a value or (nested) tuple of values; a Zero becomes zeros, None stays."""
    if isinstance(x, (tuple, list)):
        return tuple(map(unwrap, x))
    if isinstance(x, Zero):
        return np.zeros(x.type.shape, x.type.dtype)
    return x.array if isinstance(x, EagerValue) else x


def run(function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Call a function over ops on NumPy arrays; arrays come back."""
    with active(EagerTrace()):
        return unwrap(function(*[wrap(arg) for arg in args], **params))

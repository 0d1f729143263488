"""Hash-consing: equal values are one object, so equality is identity and a value is its own key.

Serves every grammar: Program nodes, index expressions, kernels. A table holds its values weakly.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class InternTable(Generic[T]):
    """The values of one grammar, by structural key. Safe under threads."""

    __slots__ = ("_values", "_lock")

    def __init__(self) -> None:
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The value with this key, built once."""
        found = self._values.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._values.get(key)
            if found is None:
                found = build()
                self._values[key] = found
            return found

    def __len__(self) -> int:
        return len(self._values)

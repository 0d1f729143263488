"""Devices as users see them: which there are, moving arrays between them, waiting for results."""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import backends, config, tree
from ..ir.value import OPERATORS, Value
from ..trace import Tracer
from .array import Array, from_numpy


def devices() -> tuple[str, ...]:
    """The names of the devices that can be used now; the first is the default."""
    default = config.get("device")
    return (default, *(name for name in backends.known() if name != default))


def device_put(x: Any, device: str | None = None) -> Any:
    """The pytree `x` with every leaf an array on `device` (the default device if None)."""
    name = device or config.get("device")
    backends.get(name)   # raises DeviceError with what is known
    return tree.tree_map(lambda leaf: _move(leaf, name), x)


def _move(leaf: Any, device: str) -> Any:
    if isinstance(leaf, Tracer):
        return leaf
    value = leaf if isinstance(leaf, Value) else OPERATORS["asarray"](leaf)
    if isinstance(value, Array) and value.device != device:
        return from_numpy(np.asarray(value), device)
    return value


def device_get(x: Any) -> Any:
    """The pytree `x` with every array as a NumPy array."""
    return tree.tree_map(lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x)


def block_until_ready(x: Any) -> Any:
    """Wait until every array of the pytree `x` is computed; answers `x`."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, Array):
            leaf.block_until_ready()
    return x

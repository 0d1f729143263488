"""Layers one after another."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import random, tree
from ..errors import TreeError
from .dropout import Dropout
from .functions import Array
from .norm import BatchNorm
from .recurrent import GRUCell, LSTMCell


class Sequential:
    """Layers and plain functions applied in order: `y = model(params, x)`.

    `init(key)` gives a tuple with each layer's parameters, () for a function. A key given to the call is split among
    the Dropout layers; without one they change nothing. Layers with a state or a carry of their own are refused.

    >>> from fungrad import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.relu, nn.Linear(8, 2))
    """

    __slots__ = ("layers",)

    def __init__(self, *layers: Any):
        for layer in layers:
            if isinstance(layer, (BatchNorm, GRUCell, LSTMCell)):
                raise TypeError(f"{type(layer).__name__} takes and returns a state, which Sequential does not thread: "
                                f"call it in a function of your own.")
        self.layers: tuple[Callable[..., Any], ...] = layers

    def __repr__(self) -> str:
        return f"Sequential({', '.join(getattr(layer, '__name__', repr(layer)) for layer in self.layers)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequential) and self.layers == other.layers

    def __hash__(self) -> int:
        return hash(self.layers)

    def init(self, key: Array) -> tuple[Any, ...]:
        keys = random.split(key, max(len(self.layers), 1))
        return tuple(layer.init(keys[number]) if hasattr(layer, "init") else ()
                     for number, layer in enumerate(self.layers))

    def __call__(self, params: tuple[Any, ...], x: Array, *, key: Array | None = None) -> Array:
        if len(params) != len(self.layers):
            raise TreeError(f"a Sequential of {len(self.layers)} layers got the parameters of {len(params)}.")
        for number, (layer, own) in enumerate(zip(self.layers, params, strict=True)):
            if isinstance(layer, (Dropout, Sequential)):
                x = layer(own, x, key=None if key is None else random.fold_in(key, number))
            else:
                x = layer(own, x) if hasattr(layer, "init") else layer(x)
        return x


tree.register_static(Sequential)

"""What a layer is: a frozen description of itself, whose parameters live outside it.

`init(key)` makes the parameters, a pytree, and `layer(params, x)` is a pure function of them, so that jit, grad and
vmap apply to it as to any function. In a pytree a layer is structure without leaves, so it may be passed to a jitted
function.
"""
from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, dataclass_transform

from .. import tree
from ..errors import ShapeError

Cls = TypeVar("Cls", bound=type)


@dataclass_transform(frozen_default=True)
def layer(cls: Cls) -> Cls:
    """Class decorator: a frozen dataclass whose instances are static in pytrees."""
    frozen: Any = dataclass(frozen=True, slots=True, repr=False)(cls)
    frozen.__repr__ = _repr
    registered: Any = tree.register_static(frozen)
    return registered


def _repr(self: Any) -> str:
    """The arguments that differ from their defaults."""
    given = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)
             if field.default is MISSING or getattr(self, field.name) != field.default]
    return f"{type(self).__name__}({', '.join(given)})"


def check_features(name: str, x: Any, features: int) -> None:
    """ShapeError unless the last axis of `x` has `features` elements."""
    if x.ndim == 0 or x.shape[-1] != features:
        raise ShapeError(f"{name} of {features} features got an array of shape {x.shape}: its last axis must have "
                         f"{features} elements.")

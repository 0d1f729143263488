"""Arguments that are no arrays: integers and shapes that must be known while tracing, axes."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..errors import ConcretizationError, ShapeError
from ..trace import Tracer

Shape = tuple[int, ...]
Axis = int | tuple[int, ...] | list[int] | None
Axes = tuple[int, ...]


def static_int(name: str, what: str, x: Any) -> int:
    """A Python integer from an argument that must be known while tracing."""
    if isinstance(x, Tracer):
        try:
            return operator.index(x)
        except ConcretizationError as error:
            raise ConcretizationError(f"{name}: {what} must be known while tracing, but is a traced {x.type}. "
                                      f"Mark it as static (static_argnums=, static_argnames=).") from error
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name}: {what} must be an integer, got {type(x).__name__}: {x!r}") from None


def static_shape(name: str, shape: Any) -> Shape:
    """A tuple of non-negative integers from a shape argument."""
    if not isinstance(shape, (tuple, list)):
        shape = (shape,) if not (hasattr(shape, "__len__") and np.ndim(shape) == 1) else tuple(shape)
    result = tuple([s if type(s) is int else static_int(name, "each extent of a shape", s) for s in shape])
    if any(extent < 0 for extent in result):
        raise ShapeError(f"{name}: the shape {result} has a negative extent.")
    return result


def one_axis(name: str, axis: Any, shape: tuple[int, ...]) -> int:
    """A non-negative axis of an array of this shape; ValueError naming the function and the shape otherwise."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"{name}: an axis must be an integer, got {type(axis).__name__}: {axis!r}") from None
    if not -len(shape) <= number < len(shape):
        raise ValueError(f"{name}: axis {number} is out of bounds for an array of shape {shape} "
                         f"(axes {-len(shape)} to {len(shape) - 1}).")
    return number % len(shape)


def axes_of(name: str, axis: Axis, shape: tuple[int, ...]) -> Axes:
    """The sorted non-negative axes that `axis` names in an array of this shape."""
    if axis is None:
        return tuple(range(len(shape)))
    if not isinstance(axis, (tuple, list)):
        return (one_axis(name, axis, shape),)
    axes = tuple(sorted(one_axis(name, a, shape) for a in axis))
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: axis {tuple(axis)} names an axis of an array of shape {shape} twice.")
    return axes

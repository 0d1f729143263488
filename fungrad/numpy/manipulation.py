"""Shapes and axes: reshape, transpose, moveaxis, broadcast_to, squeeze, flip, roll, rot90 and their kin."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.arguments import axes_of, one_axis, static_int, static_shape
from ..lax.conversion import as_value, place
from ..lax.promotion import broadcast_shape
from ..ops import elementwise as ops, linear, slicing
from ..ops.create import iota
from ..trace import Tracer

Shape = tuple[int, ...]


def _extents(name: str, shape: Any) -> Shape:
    if isinstance(shape, (tuple, list)):
        return tuple([s if type(s) is int else static_int(name, "each extent of a shape", s) for s in shape])
    if hasattr(shape, "__len__") and np.ndim(shape) == 1:
        return _extents(name, list(shape))
    return (static_int(name, "each extent of a shape", shape),)


def resolved_shape(name: str, old: Shape, shape: Any) -> Shape:
    """`shape` with its one -1, if any, replaced by what the elements of an array of shape `old` leave."""
    wanted = _extents(name, shape)
    size = math.prod(old)
    if -1 in wanted:
        if wanted.count(-1) > 1:
            raise ShapeError(f"{name}: {wanted} has more than one -1.")
        known = math.prod(extent for extent in wanted if extent != -1)
        if known == 0 or size % known:
            raise ShapeError(f"{name}: an array of shape {old} ({size} elements) cannot take the shape {wanted}: "
                             f"{size} is not a multiple of {known}.")
        wanted = tuple(size // known if extent == -1 else extent for extent in wanted)
    if any(extent < 0 for extent in wanted):
        raise ShapeError(f"{name}: the shape {wanted} has a negative extent.")
    if math.prod(wanted) != size:
        raise ShapeError(f"{name}: an array of shape {old} ({size} elements) cannot take the shape {wanted} "
                         f"({math.prod(wanted)} elements).")
    return wanted


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Value:
    """The same elements under another shape; one extent may be -1. order "F" counts the first axis fastest.

    >>> import fungrad.numpy as fnp
    >>> fnp.reshape(fnp.arange(6), (2, -1)).shape
    (2, 3)
    """
    value = as_value("reshape", a)
    wanted = resolved_shape("reshape", value.shape, shape)
    if order == "F":
        return transpose(linear.reshape(transpose(value), wanted[::-1]))
    if order not in ("C", "A", "K"):
        raise ValueError(f"reshape: order must be 'C' or 'F', got {order!r}.")
    return linear.reshape(value, wanted)


def ravel(a: Any, order: str = "C") -> Value:
    """The elements as a vector."""
    return reshape(a, (-1,) if as_value("ravel", a).size else (0,), order)


def transpose(a: Any, axes: Any = None) -> Value:
    """The array with its axes in the given order, by default reversed."""
    value = as_value("transpose", a)
    if axes is None:
        return linear.transpose(value, tuple(range(value.ndim - 1, -1, -1)))
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    order = tuple(one_axis("transpose", axis, value.shape) for axis in given)
    if sorted(order) != list(range(value.ndim)):
        raise ShapeError(f"transpose: {tuple(given)} does not name each axis of an array of shape {value.shape} once.")
    return linear.transpose(value, order)


def permute_dims(a: Any, /, axes: Any) -> Value:
    """The array with its axes in the given order."""
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Value:
    """The array with its last two axes exchanged."""
    value = as_value("matrix_transpose", x)
    if value.ndim < 2:
        raise ShapeError(f"matrix_transpose takes an array with at least two axes, got shape {value.shape}.")
    return swapaxes(value, -1, -2)


def moveaxis(a: Any, source: Any, destination: Any) -> Value:
    """The array with axes `source` moved to `destination`; the others keep their order."""
    value = as_value("moveaxis", a)
    sources = [one_axis("moveaxis", s, value.shape) for s in (source if isinstance(source, Sequence) else (source,))]
    places = [one_axis("moveaxis", d, value.shape) for d in
              (destination if isinstance(destination, Sequence) else (destination,))]
    if len(sources) != len(places) or len(set(sources)) != len(sources) or len(set(places)) != len(places):
        raise ValueError(f"moveaxis: source {source} and destination {destination} must be equally many distinct axes.")
    order = [axis for axis in range(value.ndim) if axis not in sources]
    for where, axis in sorted(zip(places, sources, strict=True)):
        order.insert(where, axis)
    return linear.transpose(value, tuple(order))


def rollaxis(a: Any, axis: int, start: int = 0) -> Value:
    """The array with `axis` moved before position `start`."""
    value = as_value("rollaxis", a)
    number = one_axis("rollaxis", axis, value.shape)
    where = start + value.ndim if start < 0 else start
    return moveaxis(value, number, where - 1 if where > number else where)


def swapaxes(a: Any, axis1: int, axis2: int) -> Value:
    """The array with two axes exchanged."""
    value = as_value("swapaxes", a)
    order = list(range(value.ndim))
    first, second = one_axis("swapaxes", axis1, value.shape), one_axis("swapaxes", axis2, value.shape)
    order[first], order[second] = second, first
    return linear.transpose(value, tuple(order))


def expand_dims(a: Any, axis: Any) -> Value:
    """The array with new axes of extent 1 at the places `axis` of the result."""
    value = as_value("expand_dims", a)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = value.ndim + len(given)
    if any(not -rank <= a < rank for a in given):
        raise ValueError(f"expand_dims: axis {axis} is out of bounds for a result with {rank} axes.")
    places = {a % rank for a in given}
    if len(places) != len(given):
        raise ValueError(f"expand_dims: axis {axis} names a place twice.")
    rest = iter(value.shape)
    return linear.reshape(value, tuple(1 if a in places else next(rest) for a in range(rank)))


def squeeze(a: Any, axis: Any = None) -> Value:
    """The array without axes of extent 1: all of them, or those named."""
    value = as_value("squeeze", a)
    if axis is None:
        return linear.reshape(value, tuple(extent for extent in value.shape if extent != 1))
    axes = axes_of("squeeze", axis, value.shape)
    for number in axes:
        if value.shape[number] != 1:
            raise ShapeError(f"squeeze: axis {number} of an array of shape {value.shape} has {value.shape[number]} "
                             f"elements, not 1.")
    return linear.reshape(value, tuple(e for number, e in enumerate(value.shape) if number not in axes))


def broadcast_to(array: Any, shape: Any) -> Value:
    """The array repeated to a shape by NumPy's broadcasting rules."""
    value, extents = as_value("broadcast_to", array), static_shape("broadcast_to", shape)
    if len(extents) < value.ndim or broadcast_shape("broadcast_to", value.shape, extents) != extents:
        raise ShapeError(f"broadcast_to: an array of shape {value.shape} does not broadcast to {extents}.")
    return place(value, extents, value.dtype)


def broadcast_arrays(*args: Any) -> list[Value]:
    """The arrays repeated to their common shape."""
    values = [as_value("broadcast_arrays", a) for a in args]
    shape = broadcast_shape("broadcast_arrays", *[v.shape for v in values])
    return [place(v, shape, v.dtype) for v in values]


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape to which arrays of these shapes broadcast.

    >>> broadcast_shapes((3, 1), (4,), 1)
    (3, 4)
    """
    return broadcast_shape("broadcast_shapes", *[static_shape("broadcast_shapes", s) for s in shapes])


def _at_least(rank: int, name: str, arrays: tuple[Any, ...], extend: Any) -> Any:
    results = []
    for a in arrays:
        value = as_value(name, a)
        results.append(value if value.ndim >= rank else linear.reshape(value, extend(value.shape)))
    return results[0] if len(results) == 1 else results


def atleast_1d(*arys: Any) -> Any:
    """Arrays with at least one axis: a scalar becomes a vector of one element."""
    return _at_least(1, "atleast_1d", arys, lambda shape: (1,))


def atleast_2d(*arys: Any) -> Any:
    """Arrays with at least two axes, new ones in front."""
    return _at_least(2, "atleast_2d", arys, lambda shape: (1,) * (2 - len(shape)) + shape)


def atleast_3d(*arys: Any) -> Any:
    """Arrays with at least three axes: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1)."""
    new = {0: lambda shape: (1, 1, 1), 1: lambda shape: (1, *shape, 1), 2: lambda shape: (*shape, 1)}
    return _at_least(3, "atleast_3d", arys, lambda shape: new[len(shape)](shape))


# ---- order of elements ----------------------------------------------------------------------------------------------

def flip(m: Any, axis: Any = None) -> Value:
    """The elements in reverse order along axes (all of them for None)."""
    value = as_value("flip", m)
    return slicing.flip(value, axes_of("flip", axis, value.shape))


def fliplr(m: Any) -> Value:
    """The second axis reversed."""
    value = as_value("fliplr", m)
    if value.ndim < 2:
        raise ShapeError(f"fliplr takes an array with at least two axes, got shape {value.shape}.")
    return slicing.flip(value, (1,))


def flipud(m: Any) -> Value:
    """The first axis reversed."""
    value = as_value("flipud", m)
    if value.ndim < 1:
        raise ShapeError("flipud takes an array with at least one axis, got a scalar.")
    return slicing.flip(value, (0,))


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """The plane of two axes turned by k quarter turns, from the first towards the second axis."""
    value = as_value("rot90", m)
    first, second = (one_axis("rot90", axis, value.shape) for axis in axes)
    if first == second:
        raise ValueError(f"rot90: the axes {axes} must differ.")
    turns = k % 4
    if turns == 0:
        return value
    if turns == 2:
        return slicing.flip(value, (first, second))
    if turns == 1:
        return swapaxes(slicing.flip(value, (second,)), first, second)
    return slicing.flip(swapaxes(value, first, second), (second,))


def roll(a: Any, shift: Any, axis: Any = None) -> Value:
    """The elements moved by `shift` places along axes, those that fall off the end coming in at the start.

    A traced shift is allowed; it reads through computed positions.
    """
    value = as_value("roll", a)
    if axis is None:
        return linear.reshape(roll(linear.reshape(value, (value.size,)), shift, 0), value.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = list(shift) if isinstance(shift, (tuple, list)) or getattr(shift, "ndim", 0) else [shift]
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) == 1 and len(shifts) > 1:
        axes = tuple(axes) * len(shifts)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes.")
    for by, one in zip(shifts, axes, strict=True):
        value = _rolled(value, by, one_axis("roll", one, value.shape))
    return value


def _rolled(x: Value, shift: Any, axis: int) -> Value:
    extent = x.shape[axis]
    if extent == 0:
        return x
    if isinstance(shift, Tracer):
        return _rolled_by_tracer(x, shift, axis)
    by = static_int("roll", "shift", shift) % extent
    if by == 0:
        return x
    low, high = [0] * x.ndim, list(x.shape)
    low[axis], high[axis] = extent - by, extent - by
    zeros, ends = (0,) * x.ndim, x.shape
    return slicing.concatenate([slicing.slice_(x, tuple(low), ends), slicing.slice_(x, zeros, tuple(high))], axis)


def _rolled_by_tracer(x: Value, shift: Value, axis: int) -> Value:
    extent = x.shape[axis]
    wide = linear.convert(shift, dtypes.int64 if shift.dtype.itemsize == 8 else dtypes.int32)
    places = iota((extent,), 0, wide.dtype)
    moved = ops.sub(places, place(wide, (extent,), wide.dtype))
    positions = ops.rem(ops.add(ops.rem(moved, extent), extent), extent)
    return x[(slice(None),) * axis + (positions,)]


def resize(a: Any, new_shape: Any) -> Value:
    """The elements, repeated as often as needed, in a new shape."""
    value, shape = as_value("resize", a), static_shape("resize", new_shape)
    size = math.prod(shape)
    flat = linear.reshape(value, (value.size,))
    if value.size == 0:
        if size:
            raise ShapeError(f"resize: an array of shape {value.shape} has no elements to fill {shape}.")
        return linear.reshape(flat, shape)
    count = -(-size // value.size)
    repeated = flat if count <= 1 else linear.reshape(linear.broadcast(flat, (count, value.size), (1,)),
                                                      (count * value.size,))
    return linear.reshape(slicing.slice_(repeated, (0,), (size,)), shape)


def view(a: Any, dtype: Any = None) -> Value:
    """The bits of the array read as another element type of the same size."""
    value = as_value("view", a)
    return value if dtype is None else ops.bitcast(value, dtypes.canonical(dtype))


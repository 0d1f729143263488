"""Running sums and products, differences, and sums over a line (trapezoid)."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.arguments import one_axis
from ..lax.conversion import as_value, operand, place
from ..lax.promotion import common_dtype, inexact, refuse_out, to_same_dtype
from ..ops import cumulative, elementwise as ops
from ..ops.create import full
from ..ops.linear import convert, reduce_sum, reshape
from ..ops.slicing import concatenate, slice_
from .elementwise import absolute, add, remainder, subtract
from .logic import equal, greater, less, not_equal
from .reductions import masked, present, summed_dtype


def _along(name: str, operation: Callable[[Any, int], Any], value: Value, axis: int | None, dtype: Any) -> Value:
    """A running reduction along an axis (of the flattened array for None); bool counts as int32, nothing else
    widens.
    """
    value = convert(value, summed_dtype(name, value.dtype, dtype, promote_integers=False))
    if axis is None:
        value, axis = reshape(value, (value.size,)), 0
    number = one_axis(name, axis, value.shape)
    return operation(value, number)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Value:
    """The sums of the elements up to each one, along an axis or in the flattened array.

    >>> import fungrad.numpy as fnp
    >>> fnp.cumsum(fnp.arange(4)).tolist()
    [0, 1, 3, 6]
    """
    refuse_out("cumsum", out)
    return _along("cumsum", cumulative.cumsum, as_value("cumsum", a), axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Value:
    """The products of the elements up to each one, along an axis or in the flattened array."""
    refuse_out("cumprod", out)
    return _along("cumprod", cumulative.cumprod, as_value("cumprod", a), axis, dtype)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Value:
    """`cumsum`, NaN counting as 0."""
    refuse_out("nancumsum", out)
    return _along("nancumsum", cumulative.cumsum, masked("nancumsum", *present("nancumsum", a), 0), axis, dtype)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Value:
    """`cumprod`, NaN counting as 1."""
    refuse_out("nancumprod", out)
    return _along("nancumprod", cumulative.cumprod, masked("nancumprod", *present("nancumprod", a), 1), axis, dtype)


def _standard(name: str, function: Callable[..., Value], start: int, x: Any, axis: int | None, dtype: Any,
              include_initial: bool) -> Value:
    value = as_value(name, x)
    if axis is None:
        if value.ndim != 1:
            raise ValueError(f"{name}: an array of shape {value.shape} needs axis=.")
        axis = 0
    result = function(value, axis, dtype)
    if include_initial:
        number = one_axis(name, axis, value.shape)
        first = tuple(1 if a == number else e for a, e in enumerate(value.shape))
        result = concatenate([full(first, start, result.dtype), result], number)
    return result


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Value:
    """`cumsum` of the array API standard: a vector needs no axis; a leading 0 if include_initial."""
    return _standard("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Value:
    """`cumprod` of the array API standard: a vector needs no axis; a leading 1 if include_initial."""
    return _standard("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


# ---- differences ----------------------------------------------------------------------------------------------------

def _part(x: Value, axis: int, start: int, stop: int) -> Value:
    low, high = [0] * x.ndim, list(x.shape)
    low[axis], high[axis] = start, stop
    return slice_(x, tuple(low), tuple(high))


def neighbours(x: Value, axis: int) -> tuple[Value, Value]:
    """All elements along an axis but the first, and all but the last."""
    extent = x.shape[axis]
    return _part(x, axis, min(1, extent), extent), _part(x, axis, 0, max(0, extent - 1))


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Value:
    """The n-th differences along an axis, after putting `prepend` before and `append` behind. For bool: xor."""
    value = as_value("diff", a)
    if n < 0:
        raise ValueError(f"diff: n must not be negative, got {n}.")
    if value.ndim == 0:
        raise ShapeError("diff takes an array with at least one axis, got a scalar.")
    number = one_axis("diff", axis, value.shape)
    if n == 0:
        return value
    parts = [operand("diff", x) for x in (prepend, value, append) if x is not None]
    if len(parts) > 1:
        kind = common_dtype("diff", *parts)
        column = tuple(1 if x == number else extent for x, extent in enumerate(value.shape))
        parts = [place(x, column, kind) if not isinstance(x, Value) or x.ndim == 0 else convert(x, kind) for x in parts]
        value = concatenate(parts, number)
    for _ in range(n):
        later, earlier = neighbours(value, number)
        value = not_equal(later, earlier) if value.dtype == dtypes.bool_ else ops.sub(later, earlier)
    return value


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Value:
    """The differences of the flattened array's neighbours, with `to_begin` before and `to_end` behind."""
    value = as_value("ediff1d", ary)
    result = diff(reshape(value, (value.size,)))
    parts = []
    for extra in (to_begin, to_end):
        extra = full((0,), 0, result.dtype) if extra is None else convert(as_value("ediff1d", extra), result.dtype)
        parts.append(reshape(extra, (extra.size,)))
    return concatenate([parts[0], result, parts[1]], 0)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Value:
    """The integral along an axis by the trapezoid rule, at points x or at distance dx."""
    value = inexact("trapezoid", y)
    number = one_axis("trapezoid", axis, value.shape)
    if x is None:
        value, width = to_same_dtype("trapezoid", value, dx) if not isinstance(dx, (int, float)) else (value, dx)
    else:
        points = inexact("trapezoid", x)
        if points.ndim == 1:
            points = reshape(points, tuple(points.shape[0] if a == number else 1 for a in range(value.ndim)))
        value, points = to_same_dtype("trapezoid", value, points)
        later, earlier = neighbours(points, number)
        width = ops.sub(later, earlier)
    later, earlier = neighbours(value, number)
    heights = ops.mul(ops.add(later, earlier), 0.5)
    widths = place(width, heights.shape, heights.dtype)
    return reduce_sum(ops.mul(heights, widths), (number,))


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Central differences along axes (one-sided at the ends), for a distance or one for each axis.

    A list of arrays, one for each axis; a single array for one axis.
    """
    value = inexact("gradient", f)
    if edge_order not in (None, 1):
        raise NotImplementedError("gradient: only edge_order=1 is there.")
    numbers = list(range(value.ndim)) if axis is None else [
        one_axis("gradient", a, value.shape) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(varargs) not in (0, 1, len(numbers)):
        raise TypeError(f"gradient: {len(varargs)} distances for {len(numbers)} axes; give none, one, or one for each.")
    distances = list(varargs) * (len(numbers) if len(varargs) == 1 else 1) or [1.0] * len(numbers)
    results = [_central(value, number, distance) for number, distance in zip(numbers, distances, strict=True)]
    return results[0] if len(results) == 1 else results


def _central(x: Value, axis: int, distance: Any) -> Value:
    extent = x.shape[axis]
    if extent < 2:
        raise ShapeError(f"gradient: axis {axis} of an array of shape {x.shape} needs at least two elements.")
    if getattr(distance, "ndim", 0):
        raise NotImplementedError("gradient: coordinates along an axis are not there; give one distance.")
    middle = ops.mul(ops.sub(_part(x, axis, 2, extent), _part(x, axis, 0, extent - 2)), 0.5)
    first = subtract(_part(x, axis, 1, 2), _part(x, axis, 0, 1))
    last = subtract(_part(x, axis, extent - 1, extent), _part(x, axis, extent - 2, extent - 1))
    result = concatenate([first, middle, last], axis)
    return ops.div(result, place(operand("gradient", distance), result.shape, result.dtype))


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * math.pi) -> Value:
    """Angles with jumps of more than half a period (or `discont`) made up by multiples of the period."""
    value = as_value("unwrap", p)
    value = value if isinstance(period, int) and dtypes.is_integer(value.dtype) else inexact("unwrap", value)
    number = one_axis("unwrap", axis, value.shape)
    if value.shape[number] < 2:
        return value
    step = diff(value, axis=number)
    half = period // 2 if dtypes.is_integer(value.dtype) else period / 2
    wrapped = subtract(remainder(add(step, half), period), half)
    at_end = ops.bitwise_and(equal(wrapped, -half), greater(step, 0))
    wrapped = ops.select(at_end, place(operand("unwrap", half), wrapped.shape, wrapped.dtype), wrapped)
    correction = subtract(wrapped, step)
    limit = half if discont is None or discont < half else discont
    correction = ops.select(less(absolute(step), limit), full(step.shape, 0, step.dtype), correction)
    first = _part(value, number, 0, 1)
    rest = ops.add(_part(value, number, 1, value.shape[number]), cumulative.cumsum(correction, number))
    return concatenate([first, rest], number)

"""Reductions over axes: sum, prod, max, min, all, any, argmax, argmin, mean, var, std and their NaN-skipping kin.

`axis` is None (all axes), an integer or a tuple; `where` masks elements out; `keepdims` leaves reduced axes with extent
1. Sums and products of bool and of integers below 32 bits are int32 (uint32), those of 16-bit floats are accumulated in
float32 and rounded once.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..lax.arguments import Axes, Axis, axes_of, one_axis
from ..lax.conversion import as_value, operand, place
from ..lax.promotion import broadcast_shape, inexact, refuse_out, requested, to_same_dtype
from ..ops import elementwise as ops, reduce as reductions
from ..ops.create import full, full_like
from ..ops.linear import convert, reduce_sum, reshape
from .elementwise import add, maximum, minimum, multiply
from .logic import isnan, truth

BOOL = dtypes.bool_


def keep(result: Value, shape: tuple[int, ...], axes: Axes, keepdims: bool) -> Value:
    """The result of a reduction with its axes put back with extent 1, if so told."""
    if not keepdims:
        return result
    return reshape(result, tuple([1 if axis in axes else extent for axis, extent in enumerate(shape)]))


def masked(name: str, value: Value, where: Any, other: Any) -> Value:
    """`value` with `other` (a scalar) where the mask `where` is false; broadcast against the mask."""
    if where is None or where is True:
        return value
    mask = as_value(name, where)
    if mask.dtype != BOOL:
        raise DTypeError(f"{name}: where= must be a bool array, got {mask.dtype.name}. Write where=(x != 0).")
    shape = broadcast_shape(name, value.shape, mask.shape)
    value = place(value, shape, value.dtype)
    return ops.select(place(mask, shape, BOOL), value, full_like(value, other))


def summed_dtype(name: str, dtype: np.dtype, given: Any, promote_integers: bool = True) -> np.dtype:
    """The element type of a sum: `given`, or int32 for bool and small signed integers, uint32 for small unsigned
    ones.
    """
    wanted = requested(name, given)
    if wanted is not None:
        return wanted
    if dtype == BOOL:
        return dtypes.default_int()
    if promote_integers and dtypes.is_integer(dtype) and dtype.itemsize < 4:
        return dtypes.int32 if dtypes.is_signed(dtype) else dtypes.uint32
    return dtype


# ---- sums and products ----------------------------------------------------------------------------------------------

def sum(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False,
        initial: Any = None, where: Any = None, promote_integers: bool = True) -> Value:
    """The sum over axes, plus `initial`.

    >>> import fungrad.numpy as fnp
    >>> fnp.sum(fnp.ones((2, 3)), axis=0, keepdims=True).shape
    (1, 3)
    """
    refuse_out("sum", out)
    value = as_value("sum", a)
    value = masked("sum", convert(value, summed_dtype("sum", value.dtype, dtype, promote_integers)), where, 0)
    if value.dtype == BOOL:
        return any(value, axis, keepdims=keepdims)
    axes = axes_of("sum", axis, value.shape)
    result = keep(reduce_sum(value, axes), value.shape, axes, keepdims)
    return result if initial is None else convert(add(result, initial), value.dtype)


def prod(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
         where: Any = None, promote_integers: bool = True) -> Value:
    """The product over axes, times `initial`."""
    refuse_out("prod", out)
    value = as_value("prod", a)
    value = masked("prod", convert(value, summed_dtype("prod", value.dtype, dtype, promote_integers)), where, 1)
    if value.dtype == BOOL:
        return all(value, axis, keepdims=keepdims)
    axes = axes_of("prod", axis, value.shape)
    result = keep(reductions.reduce_prod(value, axes), value.shape, axes, keepdims)
    return result if initial is None else convert(multiply(result, initial), value.dtype)


def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """How many elements differ from 0, as int32."""
    return sum(truth("count_nonzero", a), axis, keepdims=keepdims)


def _number_of(name: str, shape: tuple[int, ...], axes: Axes, where: Any, dtype: np.dtype, keepdims: bool) -> Any:
    """How many elements a reduction takes in: a Python integer, or an array if a mask chooses them."""
    if where is None or where is True:
        return math.prod(shape[axis] for axis in axes)
    mask = place(as_value(name, where), shape, BOOL)
    return convert(sum(convert(mask, dtypes.int32), axes, keepdims=keepdims), dtype)


def _divided(total: Value, count: Any) -> Value:
    """total / count, NaN for a count of 0."""
    return ops.div(total, full_like(total, float(count)) if isinstance(count, int) else convert(count, total.dtype))


def mean(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
         where: Any = None) -> Value:
    """The arithmetic mean over axes; integers and bool give the default float."""
    refuse_out("mean", out)
    value = as_value("mean", a)
    kind = requested("mean", dtype) or dtypes.to_inexact(value.dtype)
    wide = masked("mean", convert(value, dtypes.accumulation(dtypes.to_inexact(kind))), where, 0)
    axes = axes_of("mean", axis, wide.shape)
    total = keep(reduce_sum(wide, axes), wide.shape, axes, keepdims)
    return convert(_divided(total, _number_of("mean", wide.shape, axes, where, wide.dtype, keepdims)), kind)


def var(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: float | None = None) -> Value:
    """The variance over axes in two passes: the mean square distance from the mean, with n - ddof as divisor."""
    refuse_out("var", out)
    less = ddof if correction is None else correction
    if correction is not None and ddof:
        raise ValueError("var: give ddof or correction, not both.")
    value = as_value("var", a)
    kind = requested("var", dtype) or dtypes.to_inexact(value.dtype)
    wide = convert(value, dtypes.accumulation(dtypes.to_inexact(kind)))
    kept = masked("var", wide, where, 0)
    axes = axes_of("var", axis, kept.shape)
    count = _number_of("var", kept.shape, axes, where, kept.dtype, True)
    if mean is None:
        centre = _divided(keep(reduce_sum(kept, axes), kept.shape, axes, True), count)
    else:
        centre = convert(as_value("var", mean), kept.dtype)
    distance = masked("var", ops.sub(place(wide, kept.shape, kept.dtype), place(centre, kept.shape, kept.dtype)), where,
                      0)
    total = keep(reduce_sum(ops.mul(distance, distance), axes), kept.shape, axes, True)
    divisor = max_of_zero(count, less, total)
    result = ops.div(total, divisor)
    return convert(result if keepdims else reshape(result, _without(kept.shape, axes)), kind)


def max_of_zero(count: Any, less: float, like: Value) -> Value:
    """max(count - less, 0) as an array like `like`."""
    if isinstance(count, int):
        return full_like(like, float(count - less if count > less else 0))
    return ops.max(ops.sub(count, full_like(count, float(less))), full_like(count, 0.0))


def _without(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def std(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: float | None = None) -> Value:
    """The standard deviation over axes: the square root of `var`."""
    return ops.sqrt(inexact("std", var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean,
                                       correction=correction)))


def average(a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """The mean over axes with weights (of a's shape, or a vector along one axis); with the weights' sum if
    `returned`.
    """
    value = as_value("average", a)
    if weights is None:
        result = mean(value, axis, keepdims=keepdims)
        count = math.prod(value.shape[x] for x in axes_of("average", axis, value.shape))
        return (result, full_like(result, count)) if returned else result
    value, heavy = to_same_dtype("average", inexact("average", value), inexact("average", weights))
    if heavy.shape != value.shape:
        if not isinstance(axis, int) or heavy.ndim != 1 or heavy.shape[0] != value.shape[axis]:
            raise ShapeError(f"average: weights of shape {heavy.shape} fit neither the array's shape {value.shape} nor "
                             f"one axis of it (axis={axis}).")
        extents = [1] * value.ndim
        extents[axis] = heavy.shape[0]
        heavy = place(reshape(heavy, tuple(extents)), value.shape, value.dtype)
    total = sum(heavy, axis, keepdims=keepdims)
    result = ops.div(sum(ops.mul(value, heavy), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


# ---- extrema --------------------------------------------------------------------------------------------------------

def _extremum(name: str, reduction: Callable[[Any, Axes], Any], identity: Callable[[np.dtype], Any],
              combine: Callable[[Any, Any], Any], a: Any, axis: Axis, keepdims: bool, initial: Any,
              where: Any) -> Value:
    value = as_value(name, a)
    if where is not None and where is not True and initial is None:
        raise ValueError(f"{name}: where= needs initial=, the result where no element is chosen.")
    value = masked(name, value, where, identity(value.dtype))
    axes = axes_of(name, axis, value.shape)
    if initial is None and 0 in [value.shape[axis] for axis in axes]:
        raise ValueError(f"{name} of no elements: the array of shape {value.shape} is empty along axis "
                         f"{axes if len(axes) != 1 else axes[0]}. Give initial=.")
    result = keep(reduction(value, axes), value.shape, axes, keepdims)
    return result if initial is None else combine(result, initial)


def max(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None) -> Value:
    """The largest element over axes; NaN if there is one."""
    refuse_out("max", out)
    return _extremum("max", reductions.reduce_max, dtypes.lowest, maximum, a, axis, keepdims, initial, where)


def min(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None) -> Value:
    """The smallest element over axes; NaN if there is one."""
    refuse_out("min", out)
    return _extremum("min", reductions.reduce_min, dtypes.highest, minimum, a, axis, keepdims, initial, where)


amax, amin = max, min


def ptp(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Value:
    """The largest minus the smallest element over axes."""
    refuse_out("ptp", out)
    return ops.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def all(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Value:
    """Whether all elements differ from 0."""
    refuse_out("all", out)
    value = masked("all", truth("all", a), where, True)
    axes = axes_of("all", axis, value.shape)
    return keep(reductions.reduce_and(value, axes), value.shape, axes, keepdims)


def any(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Value:
    """Whether any element differs from 0."""
    refuse_out("any", out)
    value = masked("any", truth("any", a), where, False)
    axes = axes_of("any", axis, value.shape)
    return keep(reductions.reduce_or(value, axes), value.shape, axes, keepdims)


def _position(name: str, operation: Callable[..., Any], a: Any, axis: int | None, keepdims: bool | None) -> Value:
    value = as_value(name, a)
    shape = value.shape
    if axis is None:
        value, number = reshape(value, (value.size,)), 0
    else:
        number = one_axis(name, axis, shape)
    if value.shape[number] == 0:
        raise ValueError(f"{name} of no elements: the array of shape {shape} is empty along axis {axis}.")
    kind = dtypes.int32 if value.shape[number] <= 2**31 else dtypes.int64
    result = operation(value, number, kind)
    if not keepdims:
        return result
    return reshape(result, (1,) * len(shape)) if axis is None else keep(result, shape, (number,), True)


def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Value:
    """The first position of the largest element (or of a NaN), as int32: along an axis, or in the flattened array."""
    refuse_out("argmax", out)
    return _position("argmax", reductions.argmax, a, axis, keepdims)


def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Value:
    """The first position of the smallest element (or of a NaN), as int32: along an axis, or in the flattened array."""
    refuse_out("argmin", out)
    return _position("argmin", reductions.argmin, a, axis, keepdims)


# ---- skipping NaN ---------------------------------------------------------------------------------------------------

def present(name: str, a: Any, where: Any = None) -> tuple[Value, Value | None]:
    """The array, and the mask of the elements that are no NaN (None: all of an array without NaNs)."""
    value = as_value(name, a)
    if not dtypes.is_float(value.dtype):
        return value, None if where is None else as_value(name, where)
    mask = ops.bitwise_not(isnan(value))
    if where is not None:
        shape = broadcast_shape(name, value.shape, operand(name, where).shape)
        mask = ops.bitwise_and(place(mask, shape, BOOL), place(as_value(name, where), shape, BOOL))
        value = place(value, shape, value.dtype)
    return value, mask


def nansum(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Value:
    """`sum`, NaN counting as 0."""
    value, mask = present("nansum", a, where)
    return sum(masked("nansum", value, mask, 0), axis, dtype, out, keepdims, initial)


def nanprod(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Value:
    """`prod`, NaN counting as 1."""
    value, mask = present("nanprod", a, where)
    return prod(masked("nanprod", value, mask, 1), axis, dtype, out, keepdims, initial)


def nanmean(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
            where: Any = None) -> Value:
    """`mean` of the elements that are no NaN; NaN if there are none."""
    value, mask = present("nanmean", a, where)
    return mean(value if mask is None else masked("nanmean", value, mask, 0), axis, dtype, out, keepdims, where=mask)


def nanvar(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: bool = False, *,
           where: Any = None) -> Value:
    """`var` of the elements that are no NaN; NaN if there are not more than ddof."""
    value, mask = present("nanvar", a, where)
    cleaned = value if mask is None else masked("nanvar", value, mask, 0)
    return var(cleaned, axis, dtype, out, ddof, keepdims, where=mask)


def nanstd(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: bool = False, *,
           where: Any = None) -> Value:
    """The square root of `nanvar`."""
    return ops.sqrt(inexact("nanstd", nanvar(a, axis, dtype, out, ddof, keepdims, where=where)))


def _nan_extremum(name: str, function: Callable[..., Value], identity: Callable[[np.dtype], Any], a: Any, axis: Axis,
                  keepdims: bool, initial: Any, where: Any) -> Value:
    value, mask = present(name, a, where)
    if mask is None:
        return function(value, axis, None, keepdims, initial)
    result = function(masked(name, value, mask, identity(value.dtype)), axis, None, keepdims, initial)
    if initial is not None:
        return result
    nothing = ops.bitwise_not(any(mask, axis, keepdims=keepdims))
    return ops.select(nothing, full_like(result, math.nan if dtypes.is_float(result.dtype) else 0), result)


def nanmax(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Value:
    """The largest element that is no NaN; NaN if all are."""
    refuse_out("nanmax", out)
    return _nan_extremum("nanmax", max, dtypes.lowest, a, axis, keepdims, initial, where)


def nanmin(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Value:
    """The smallest element that is no NaN; NaN if all are."""
    refuse_out("nanmin", out)
    return _nan_extremum("nanmin", min, dtypes.highest, a, axis, keepdims, initial, where)


def _nan_position(name: str, function: Callable[..., Value], other: Callable[[np.dtype], Any], a: Any, axis: int | None,
                  keepdims: bool | None) -> Value:
    value, mask = present(name, a)
    if mask is None:
        return function(value, axis, None, keepdims)
    found = function(masked(name, value, mask, other(value.dtype)), axis, None, keepdims)
    nothing = ops.bitwise_not(any(mask, axis, keepdims=bool(keepdims)))
    return ops.select(nothing, full(found.shape, -1, found.dtype), found)


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Value:
    """The position of the largest element that is no NaN; -1 if all are."""
    refuse_out("nanargmax", out)
    return _nan_position("nanargmax", argmax, dtypes.lowest, a, axis, keepdims)


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Value:
    """The position of the smallest element that is no NaN; -1 if all are."""
    refuse_out("nanargmin", out)
    return _nan_position("nanargmin", argmin, dtypes.highest, a, axis, keepdims)

"""Updated copies of arrays: x.at[index].set(value), .add, .subtract, .multiply, .divide, .power, .min, .max, .apply,
.get.

An update at slices and integers writes one window (no scatter); at a traced integer it writes a window at a computed
place; at a boolean mask with values that do not depend on the mask's count it is a choice by element; at arrays of
positions it scatters, where repeated positions add up (multiply, ...) and the last of repeated `set`s wins. Positions
outside the array are dropped, unless mode="clip" moves them inside or mode="promise_in_bounds" says there are none.

>>> import fungrad.numpy as fnp
>>> fnp.zeros(4).at[fnp.array([1, 1, 3])].add(1.0).tolist()
[0.0, 2.0, 0.0, 1.0]
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..errors import DTypeError, RefusedError
from ..ir.value import Value
from ..lax.conversion import as_value, dtype_of, is_python_scalar, operand, place
from ..lax.promotion import check_fits, shape_of
from ..ops import elementwise as ops, index as indexed, linear, slicing
from ..ops.create import full, full_like
from ..ops.dynamic import dynamic_slice, dynamic_update_slice
from ..trace import Tracer
from .elementwise import power, true_divide
from .index_plan import Plan, check_mask, check_updates, plan
from .indexing import (
    INT32,
    all_scalars,
    flipped_axes,
    intervals,
    numbers_of,
    one_type,
    read,
    read_mode,
    rows_of,
    sliced,
    starts_of,
    static_part,
    window_of,
    without_integers,
)

WRITE_MODES = {None: "drop", "drop": "drop", "fill": "drop", "clip": "clip", "promise_in_bounds": "promise_in_bounds"}

# combine -> (element by element, what a scatter calls it)
_COMBINES: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, new: new,
    "add": lambda old, new: ops.bitwise_or(old, new) if old.dtype == dtypes.bool_ else ops.add(old, new),
    "mul": lambda old, new: ops.bitwise_and(old, new) if old.dtype == dtypes.bool_ else ops.mul(old, new),
    "min": ops.min,
    "max": ops.max,
}
_ON_BOOL = {"add": "max", "mul": "min"}


class At:
    """`x.at`: an index gives the place to update."""

    __slots__ = ("_array",)

    def __init__(self, array: Value) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Place:
        return Place(self._array, index)

    def __repr__(self) -> str:
        return f"<at of {self._array.type}: write x.at[index].set(value), .add(value), ...>"


class Place:
    """`x.at[index]`: its methods give updated copies of x (get: the elements)."""

    __slots__ = ("_array", "_index")

    def __init__(self, array: Value, index: Any) -> None:
        self._array = array
        self._index = index

    def get(self, *, mode: str | None = None, fill_value: Any = None, indices_are_sorted: bool = False,
            unique_indices: bool = False) -> Value:
        """x[index] with a mode for positions outside: "clip" (the default), "fill" with `fill_value`, "wrap"."""
        chosen = read_mode(".at[].get", mode)
        return read(self._array, plan(self._array.shape, self._index, mode is not None), chosen, fill_value)

    def _update(self, name: str, values: Any, combine: str, mode: str | None, unique: bool) -> Value:
        return update(f".at[].{name}", self._array, self._index, values, combine, mode, unique)

    def set(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
            unique_indices: bool = False) -> Value:
        """A copy with x[index] = values."""
        return self._update("set", values, "set", mode, unique_indices)

    def add(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
            unique_indices: bool = False) -> Value:
        """A copy with x[index] += values."""
        return self._update("add", values, "add", mode, unique_indices)

    def subtract(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False) -> Value:
        """A copy with x[index] -= values."""
        if self._array.dtype == dtypes.bool_:
            raise DTypeError(".at[].subtract: bool has no difference. Write x.astype('int32') first.")
        values = _fitting(".at[].subtract", self._array, values)
        values = -values if is_python_scalar(values) else ops.neg(values)
        return update(".at[].subtract", self._array, self._index, values, "add", mode, unique_indices, fits=True)

    def multiply(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False) -> Value:
        """A copy with x[index] *= values."""
        return self._update("multiply", values, "mul", mode, unique_indices)

    mul = multiply

    def divide(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
               unique_indices: bool = False) -> Value:
        """A copy with x[index] /= values; integers become floating."""
        return true_divide(self._array, self._factors("divide", values, mode, unique_indices))

    def power(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
              unique_indices: bool = False) -> Value:
        """A copy with x[index] **= values."""
        return power(self._array, self._factors("power", values, mode, unique_indices))

    def _factors(self, name: str, values: Any, mode: str | None, unique: bool) -> Value:
        return update(f".at[].{name}", full_like(self._array, 1), self._index, values, "mul", mode, unique)

    def min(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
            unique_indices: bool = False) -> Value:
        """A copy with x[index] = minimum(x[index], values)."""
        return self._update("min", values, "min", mode, unique_indices)

    def max(self, values: Any, *, mode: str | None = None, indices_are_sorted: bool = False,
            unique_indices: bool = False) -> Value:
        """A copy with x[index] = maximum(x[index], values)."""
        return self._update("max", values, "max", mode, unique_indices)

    def apply(self, ufunc: Callable[[Any], Any], *, mode: str | None = None, indices_are_sorted: bool = False,
              unique_indices: bool = False) -> Value:
        """A copy with x[index] = ufunc(x[index]), applied once even at repeated positions."""
        return self._update("apply", ufunc(self._array[self._index]), "set", mode, unique_indices)


def _fitting(name: str, x: Value, values: Any) -> Any:
    """The updates in x's element type, or a Python scalar that fits it; a float into integers is an error."""
    values = operand(name, values)
    if is_python_scalar(values):
        check_fits(name, values, x.dtype)
    kind = dtype_of(name, values)
    if (dtypes.is_float(kind) and not dtypes.is_float(x.dtype)) or (x.dtype == dtypes.bool_ and kind != dtypes.bool_):
        raise DTypeError(f"{name}: {kind.name} updates do not fit an array of {x.dtype.name}. Convert one of them, for "
                         f"example x.astype('{kind.name}').")
    return values if is_python_scalar(values) else linear.convert(values, x.dtype)


def update(name: str, x: Value, index: Any, values: Any, combine: str, mode: str | None, unique: bool,
           fits: bool = False) -> Value:
    """A copy of `x` with `values` combined into x[index]; `fits` says that `_fitting` has seen the values."""
    if mode not in WRITE_MODES:
        raise ValueError(f"{name}: mode must be 'drop', 'clip' or 'promise_in_bounds', got {mode!r}.")
    written = WRITE_MODES[mode]
    values = values if fits else _fitting(name, x, values)
    masked = _masked_update(x, index, values, combine)
    if masked is not None:
        return masked
    p = plan(x.shape, index, lenient=mode is not None)
    shape = check_updates(shape_of(values), p.result, name)
    values = linear.reshape(values, shape) if shape else values
    if 0 in p.result:
        return x
    if p.shape != x.shape:      # a scalar bool added an axis of extent 1
        return linear.reshape(_planned(linear.reshape(x, p.shape), p, values, combine, written, unique), x.shape)
    return _planned(x, p, values, combine, written, unique)


def _planned(x: Value, p: Plan, values: Any, combine: str, mode: str, unique: bool) -> Value:
    if not p.arrays:
        return _write_static(x, p, values, combine)
    if any(p.shape[part.axis] == 0 for part in p.arrays):
        return x
    values = place(values, p.result, x.dtype)
    if not p.rows and all_scalars(p):
        return _write_window(x, p, values, combine, mode)
    part = static_part(x, p)
    windowed = linear.reshape(part, without_integers(p))
    positions, known = rows_of(p, mode)
    numbers = numbers_of(p)
    kept = [part.count for part in p.windows]
    updates = linear.reshape(values, (*kept[:p.first], *p.rows, *kept[p.first:]))
    how = _ON_BOOL.get(combine, combine) if x.dtype == dtypes.bool_ else combine
    changed = indexed.scatter(windowed, positions, updates, numbers, how, "promise_in_bounds" if known else mode,
                              unique)
    return _write_region(x, p, linear.reshape(changed, part.shape))


def _write_static(x: Value, p: Plan, values: Any, combine: str) -> Value:
    """An update at slices and integers alone."""
    if combine == "set" and not shape_of(values) and not _unit_steps(p):
        return ops.select(_region_mask(p), place(values, x.shape, x.dtype), x)
    values = place(values, p.result, x.dtype)
    new = slicing.flip(linear.reshape(values, window_of(p)), flipped_axes(p))
    return _write_ascending(x, p, new if combine == "set" else _COMBINES[combine](sliced(x, p), new))


def _write_region(x: Value, p: Plan, part: Value) -> Value:
    """`x` with its static part (slices in their own order) replaced."""
    return _write_ascending(x, p, slicing.flip(part, flipped_axes(p)))


def _unit_steps(p: Plan) -> bool:
    return all(stride == 1 for _, _, stride in intervals(p))


def _write_ascending(x: Value, p: Plan, part: Value) -> Value:
    """`x` with the elements of the plan's intervals replaced by `part`."""
    if part.shape == x.shape and _unit_steps(p):
        return part
    if _unit_steps(p):
        return dynamic_update_slice(x, part, [full((), start, INT32 if start < 2**31 else dtypes.int64)
                                              for start, _, _ in intervals(p)])
    spread = slicing.pad(part, full((), 0, x.dtype), _padding(p, part.shape))
    return ops.select(_region_mask(p), spread, x)


def _padding(p: Plan, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    config = []
    for extent, (start, _, stride), count in zip(p.shape, intervals(p), shape, strict=True):
        covered = (count - 1) * stride + 1
        config.append((start, extent - start - covered, stride - 1))
    return tuple(config)


def _region_mask(p: Plan) -> Value:
    """Which elements lie in the plan's intervals."""
    shape = tuple(len(range(start, limit, stride)) for start, limit, stride in intervals(p))
    return slicing.pad(full(shape, True, dtypes.bool_), full((), False, dtypes.bool_), _padding(p, shape))


def _write_window(x: Value, p: Plan, values: Value, combine: str, mode: str) -> Value:
    """An update at traced integers and slices of step 1: one window at a computed place; outside, none."""
    extents = window_of(p)
    starts = starts_of(p)
    valid = None
    if mode == "drop":
        for part in p.arrays:
            start, extent = starts[part.axis], p.shape[part.axis]
            inside = ops.lt(start, extent)
            if start.dtype.kind == "i":
                inside = ops.bitwise_and(inside, ops.ge(start, 0))
            valid = inside if valid is None else ops.bitwise_and(valid, inside)
    for axis, (first, _, _) in enumerate(intervals(p)):
        if first:
            starts[axis] = full((), first, INT32)
    values = linear.reshape(values, extents)
    starts = one_type(starts)
    old = None if combine == "set" and valid is None else dynamic_slice(x, starts, extents)
    new = values if old is None else _COMBINES[combine](old, values)
    if valid is not None and old is not None:
        new = ops.select(place(valid, extents, dtypes.bool_), new, old)
    return dynamic_update_slice(x, new, starts)


# ---- masks ----------------------------------------------------------------------------------------------------------

def _masked_update(x: Value, index: Any, values: Any, combine: str) -> Value | None:
    """The update at one boolean mask (beside whole slices) as a choice by element; None where it is something else."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(_is_mask(item) for item in items):
        return None
    axis, mask = _only_mask(x.ndim, items)
    if mask is None:
        return None
    mask = as_value(".at[]", mask)
    check_mask(mask.shape, x.shape, axis)
    behind = x.ndim - axis - mask.ndim
    shape = shape_of(values)
    if len(shape) > behind:
        counted = len(shape) - behind - 1
        if shape[counted] != 1:
            if isinstance(mask, Tracer) and mask.concrete() is None:
                raise RefusedError(f"x.at[mask] with a traced mask takes values that do not depend on the number of "
                                   f"elements "
                                   f"it selects, got shape {shape}. Write fungrad.numpy.where(mask, values, x) with "
                                   f"values of x's shape {x.shape}.")
            return None
        shape = (*shape[:counted], *[1] * mask.ndim, *shape[counted + 1:])
        values = linear.reshape(values, shape)
    shape = check_updates(shape, x.shape, ".at[mask]")
    values = linear.reshape(values, shape) if shape else values
    new = _COMBINES[combine](x, place(values, x.shape, x.dtype))
    chosen = linear.broadcast(mask, x.shape, tuple(range(axis, axis + mask.ndim)))
    return ops.select(chosen, new, x)


def _only_mask(rank: int, items: tuple[Any, ...]) -> tuple[int, Any]:
    """The axis and the mask of an index that is one mask beside whole slices; (0, None) for any other."""
    masks = [item for item in items if _is_mask(item)]
    others = [item for item in items if not _is_mask(item)]
    whole = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in others)
    if len(masks) != 1 or not whole or sum(item is Ellipsis for item in others) > 1:
        return 0, None
    before = items[:next(number for number, item in enumerate(items) if _is_mask(item))]
    if Ellipsis in before:
        behind = len(items) - len(before) - 1
        return rank - behind - masks[0].ndim, masks[0]
    return len(before), masks[0]


def _is_mask(item: Any) -> bool:
    return getattr(item, "dtype", None) == dtypes.bool_ and getattr(item, "ndim", 0) > 0

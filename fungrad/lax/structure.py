"""Making and reshaping arrays, slices, windows at computed places, gather and scatter, sorting: JAX's names in lax."""
from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..ops import dynamic, elementwise as ops, index as indexed, linear, slicing, sort as sorting
from ..ops.create import full as filled, iota as counted
from .arguments import axes_of, one_axis, static_int, static_shape
from .conversion import as_value, is_python_scalar, operand as operand_of, place
from .promotion import broadcast_shape, requested, to_same_dtype

Shape = tuple[int, ...]
INT32 = dtypes.int32


# ---- making ---------------------------------------------------------------------------------------------------------

def full(shape: Any, fill_value: Any, dtype: Any = None) -> Value:
    """An array whose elements all are the scalar `fill_value`."""
    value = operand_of("full", fill_value)
    if is_python_scalar(value):
        return filled(static_shape("full", shape), value, requested("full", dtype) or dtypes.of_scalar(value))
    if value.ndim:
        raise ShapeError(f"lax.full takes a scalar, got shape {value.shape}. Use fungrad.numpy.full.")
    return place(value, static_shape("full", shape), requested("full", dtype) or value.dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Value:
    """`full` of x's shape and type."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        x = as_value("full_like", x)
    return full(tuple(x.shape) if shape is None else shape, fill_value, dtypes.canonical(x.dtype) if dtype is None
                else dtype)


def zeros_like_array(x: Any) -> Value:
    """Zeros of x's shape and type."""
    return full_like(x, 0)


def empty(shape: Any, dtype: Any) -> Value:
    """An array whose elements you do not care about; they are zeros."""
    return filled(static_shape("empty", shape), 0, dtypes.canonical(dtype))


def iota(dtype: Any, size: int) -> Value:
    """0, 1, ..., size - 1."""
    return counted((static_int("iota", "size", size),), 0, dtypes.canonical(dtype))


def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Value:
    """An array whose element at an index is the index's entry `dimension`."""
    extents = static_shape("broadcasted_iota", shape)
    return counted(extents, one_axis("broadcasted_iota", dimension, extents), dtypes.canonical(dtype))


# ---- shapes ---------------------------------------------------------------------------------------------------------

def broadcast(operand: Any, sizes: Any) -> Value:
    """The array repeated along new leading axes of these extents."""
    value, new = as_value("broadcast", operand), static_shape("broadcast", sizes)
    shape = (*new, *value.shape)
    return linear.broadcast(value, shape, tuple(range(len(new), len(shape))))


def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Sequence[int]) -> Value:
    """The array with axis i placed at broadcast_dimensions[i] of `shape` (repeated if its extent is 1)."""
    value = as_value("broadcast_in_dim", operand)
    return linear.broadcast(value, static_shape("broadcast_in_dim", shape), tuple(broadcast_dimensions))


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape to which arrays of these shapes broadcast."""
    return broadcast_shape("broadcast_shapes", *[static_shape("broadcast_shapes", s) for s in shapes])


def broadcast_to_rank(x: Any, rank: int) -> Value:
    """The array with as many new leading axes of extent 1 as `rank` needs."""
    value = as_value("broadcast_to_rank", x)
    return linear.reshape(value, (1,) * (rank - value.ndim) + value.shape)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Value:
    """The array with axes start to stop joined into one."""
    value = as_value("collapse", operand)
    start, stop, _ = slice(start_dimension, stop_dimension).indices(value.ndim)
    shape = (*value.shape[:start], math.prod(value.shape[start:stop]), *value.shape[stop:])
    return linear.reshape(value, shape)


def expand_dims(array: Any, dimensions: Sequence[int]) -> Value:
    """The array with new axes of extent 1 at these places of the result."""
    value = as_value("expand_dims", array)
    rank = value.ndim + len(dimensions)
    places = {d % rank for d in dimensions}
    rest = iter(value.shape)
    return linear.reshape(value, tuple(1 if axis in places else next(rest) for axis in range(rank)))


def squeeze(array: Any, dimensions: Sequence[int]) -> Value:
    """The array without these axes, of extent 1."""
    value = as_value("squeeze", array)
    axes = axes_of("squeeze", tuple(dimensions), value.shape)
    if any(value.shape[axis] != 1 for axis in axes):
        raise ShapeError(f"squeeze: axes {axes} of an array of shape {value.shape} do not all have extent 1.")
    return linear.reshape(value, tuple(e for axis, e in enumerate(value.shape) if axis not in axes))


def reshape(operand: Any, new_sizes: Any, dimensions: Sequence[int] | None = None) -> Value:
    """The elements in row-major order (of the axes in the order `dimensions`) under another shape."""
    value = as_value("reshape", operand)
    if dimensions is not None:
        value = linear.transpose(value, tuple(dimensions))
    return linear.reshape(value, static_shape("reshape", new_sizes))


def transpose(operand: Any, permutation: Sequence[int]) -> Value:
    """Axis i of the result is axis permutation[i] of the operand."""
    return linear.transpose(as_value("transpose", operand), tuple(int(axis) for axis in permutation))


def rev(operand: Any, dimensions: Sequence[int]) -> Value:
    """The elements in reverse order along these axes."""
    value = as_value("rev", operand)
    return slicing.flip(value, axes_of("rev", tuple(dimensions), value.shape))


def concatenate(operands: Sequence[Any], dimension: int) -> Value:
    """The arrays, of one element type, one after another along an axis."""
    values = [as_value("concatenate", x) for x in operands]
    if not values:
        raise ValueError("lax.concatenate needs at least one array.")
    number = one_axis("concatenate", dimension, values[0].shape)
    return values[0] if len(values) == 1 else slicing.concatenate(values, number)


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Value:
    """The array with padding_config[i] = (before, after, between) elements of the value added along axis i.

    Negative numbers before and after cut elements away.
    """
    value = as_value("pad", operand)
    filler, = to_same_dtype("pad", padding_value, dtype=value.dtype)
    config = tuple((int(low), int(high), int(interior)) for low, high, interior in padding_config)
    return slicing.pad(value, filler, config)


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Value]:
    """Consecutive pieces of these sizes along an axis."""
    value = as_value("split", operand)
    number = one_axis("split", axis, value.shape)
    if sum(sizes) != value.shape[number]:
        raise ShapeError(f"split: sizes {tuple(sizes)} do not add up to {value.shape[number]}, axis {number} of an "
                         f"array of shape {value.shape}.")
    bounds = np.cumsum([0, *sizes]).tolist()
    return [slice_in_dim(value, a, b, axis=number) for a, b in zip(bounds, bounds[1:], strict=False)]


def stack(arrays: Sequence[Any], axis: int = 0) -> Value:
    """The arrays, of one shape and type, along a new axis."""
    values = [as_value("stack", x) for x in arrays]
    if not values:
        raise ValueError("lax.stack needs at least one array.")
    number = axis % (values[0].ndim + 1)
    return concatenate([linear.reshape(v, (*v.shape[:number], 1, *v.shape[number:])) for v in values], number)


def unstack(operand: Any, axis: int = 0) -> tuple[Value, ...]:
    """The slices of the array along an axis."""
    value = as_value("unstack", operand)
    number = one_axis("unstack", axis, value.shape)
    return tuple(index_in_dim(value, i, number, keepdims=False) for i in range(value.shape[number]))


def dtype(x: Any) -> np.dtype:
    """The element type of an array or number."""
    return as_value("dtype", x).dtype


def shape_as_value(shape: Any) -> Value:
    """A shape as a vector of integers."""
    extents = static_shape("shape_as_value", shape)
    parts = [filled((1,), extent, INT32) for extent in extents]
    return slicing.concatenate(parts, 0) if len(parts) > 1 else parts[0] if parts else filled((0,), 0, INT32)


def tile(operand: Any, reps: Sequence[int]) -> Value:
    """The array repeated reps[i] times along axis i."""
    value = as_value("tile", operand)
    shape = tuple(x for pair in zip(reps, value.shape, strict=True) for x in pair)
    spread = linear.broadcast(value, shape, tuple(range(1, 2 * value.ndim, 2)))
    return linear.reshape(spread, tuple(r * e for r, e in zip(reps, value.shape, strict=True)))


# ---- slices ---------------------------------------------------------------------------------------------------------

def slice_(operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int],
           strides: Sequence[int] | None = None) -> Value:
    """operand[start:limit:strides] along every axis, bounds within the array."""
    value = as_value("slice", operand)
    return slicing.slice_(value, tuple(map(int, start_indices)), tuple(map(int, limit_indices)),
                          None if strides is None else tuple(map(int, strides)))


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1,
                 axis: int = 0) -> Value:
    """operand[start:limit:stride] along one axis; negative bounds count from the end."""
    value = as_value("slice_in_dim", operand)
    number = one_axis("slice_in_dim", axis, value.shape)
    low, high, strides = [0] * value.ndim, list(value.shape), [1] * value.ndim
    start, limit, step = slice(start_index, limit_index, stride).indices(value.shape[number])
    low[number], high[number], strides[number] = start, max(start, limit), step
    return slicing.slice_(value, tuple(low), tuple(high), tuple(strides))


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Value:
    """The slice at one static position along an axis."""
    value = as_value("index_in_dim", operand)
    number = one_axis("index_in_dim", axis, value.shape)
    extent = value.shape[number]
    if not -extent <= index < extent:
        raise IndexError(f"index_in_dim: index {index} is out of bounds for axis {number} with size {extent}.")
    at = index % extent
    result = slice_in_dim(value, at, at + 1, axis=number)
    return result if keepdims else linear.reshape(result, (*value.shape[:number], *value.shape[number + 1:]))


def _starts(name: str, x: Value, start_indices: Any) -> list[Value]:
    """One scalar for each axis; negative starts count from the end, as in JAX."""
    given = start_indices
    if isinstance(given, (Value, np.ndarray)):
        given = [given[i] for i in range(given.shape[0])]
    if len(given) != x.ndim:
        raise ShapeError(f"{name}: an array of shape {x.shape} needs {x.ndim} start indices, got {len(given)}.")
    starts = [_from_end(as_value(name, start), extent) for start, extent in zip(given, x.shape, strict=True)] \
        if not all(is_python_scalar(start) or isinstance(start, np.integer) for start in given) else [
            filled((), int(start) + (extent if start < 0 else 0), INT32 if extent < 2**31 else dtypes.int64)
            for start, extent in zip(given, x.shape, strict=True)]
    if len({start.dtype for start in starts}) > 1:
        starts = [linear.convert(start, dtypes.int64 if any(s.dtype.itemsize > 4 or s.dtype == dtypes.uint32
                                                            for s in starts)
                                 else INT32) for start in starts]
    return starts


def _from_end(start: Value, extent: int) -> Value:
    if start.ndim or not dtypes.is_integer(start.dtype):
        raise TypeError(f"a start index must be an integer scalar, got {start.type}.")
    if start.dtype.kind == "u":
        return start
    if extent > np.iinfo(start.dtype).max:
        start = linear.convert(start, INT32 if extent < 2**31 else dtypes.int64)
    return ops.select(ops.lt(start, 0), ops.add(start, extent), start)


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any) -> Value:
    """The window of shape `slice_sizes` at computed starts, which are moved so that it lies within.

    >>> import fungrad.numpy as fnp
    >>> from fungrad import lax
    >>> lax.dynamic_slice(fnp.arange(5), (4,), (2,)).tolist()
    [3, 4]
    """
    value, sizes = as_value("dynamic_slice", operand), static_shape("dynamic_slice", slice_sizes)
    return dynamic.dynamic_slice(value, _starts("dynamic_slice", value, start_indices), sizes)


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Value:
    """`dynamic_slice` along one axis."""
    value = as_value("dynamic_slice_in_dim", operand)
    number = one_axis("dynamic_slice_in_dim", axis, value.shape)
    starts, sizes = _along(value, start_index, slice_size, number)
    return dynamic_slice(value, starts, sizes)


def _along(x: Value, start: Any, size: int, axis: int) -> tuple[list[Any], Shape]:
    starts: list[Any] = [0] * x.ndim
    starts[axis] = start
    return starts, tuple(size if a == axis else extent for a, extent in enumerate(x.shape))


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Value:
    """The slice at a computed position along an axis."""
    value = as_value("dynamic_index_in_dim", operand)
    number = one_axis("dynamic_index_in_dim", axis, value.shape)
    result = dynamic_slice_in_dim(value, index, 1, number)
    return result if keepdims else linear.reshape(result, (*value.shape[:number], *value.shape[number + 1:]))


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Value:
    """A copy with the window at computed starts replaced by `update`; starts are moved so that it lies within."""
    value = as_value("dynamic_update_slice", operand)
    new, = to_same_dtype("dynamic_update_slice", update, dtype=value.dtype)
    return dynamic.dynamic_update_slice(value, new, _starts("dynamic_update_slice", value, start_indices))


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Value:
    """`dynamic_update_slice` along one axis."""
    value = as_value("dynamic_update_slice_in_dim", operand)
    number = one_axis("dynamic_update_slice_in_dim", axis, value.shape)
    return dynamic_update_slice(value, update, _along(value, start_index, 1, number)[0])


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Value:
    """A copy with the slice at a computed position along an axis replaced."""
    value = as_value("dynamic_update_index_in_dim", operand)
    number = one_axis("dynamic_update_index_in_dim", axis, value.shape)
    new, = to_same_dtype("dynamic_update_index_in_dim", update, dtype=value.dtype)
    if new.ndim != value.ndim:
        new = linear.reshape(new, (*value.shape[:number], 1, *value.shape[number + 1:]))
    return dynamic_update_slice_in_dim(value, new, index, number)


# ---- gather and scatter ---------------------------------------------------------------------------------------------

class GatherDimensionNumbers(NamedTuple):
    """JAX's description of a gather: see `fungrad.ops.index.IndexNumbers`."""
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """JAX's description of a scatter: see `fungrad.ops.index.IndexNumbers`."""
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """What happens to windows outside the operand."""
    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(s: Any) -> GatherScatterMode:
        """The mode of this name (None and "drop": FILL_OR_DROP)."""
        if isinstance(s, GatherScatterMode):
            return s
        if s in (None, "drop", "fill"):
            return GatherScatterMode.FILL_OR_DROP
        return GatherScatterMode(s)


def gather(operand: Any, start_indices: Any, dimension_numbers: GatherDimensionNumbers, slice_sizes: Any, *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
           fill_value: Any = None) -> Value:
    """Windows of `operand` of shape `slice_sizes`, one for each row (last axis) of `start_indices`."""
    value = as_value("gather", operand)
    return indexed.gather(value, as_value("gather", start_indices),
                          indexed.IndexNumbers(*map(tuple, dimension_numbers)),
                          static_shape("gather", slice_sizes), GatherScatterMode.from_any(mode).value, fill_value)


def _scatter(name: str, combine: str) -> Callable[..., Value]:
    def function(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: ScatterDimensionNumbers, *,
                 indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Value:
        value = as_value(name, operand)
        new = linear.convert(as_value(name, updates), value.dtype)
        chosen = GatherScatterMode.from_any(mode)
        if combine == "sub":
            new = ops.neg(new)
        return indexed.scatter(value, as_value(name, scatter_indices), new,
                               indexed.IndexNumbers(*map(tuple, dimension_numbers)),
                               "add" if combine == "sub" else combine,
                               "drop" if chosen is GatherScatterMode.FILL_OR_DROP else chosen.value, unique_indices)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"A copy of `operand` with the windows of `updates` combined ({combine}) at the indices' rows."
    return function


scatter = _scatter("scatter", "set")
scatter_add = _scatter("scatter_add", "add")
scatter_sub = _scatter("scatter_sub", "sub")
scatter_mul = _scatter("scatter_mul", "mul")
scatter_min = _scatter("scatter_min", "min")
scatter_max = _scatter("scatter_max", "max")


def scatter_apply(operand: Any, scatter_indices: Any, func: Callable[[Any], Any],
                  dimension_numbers: ScatterDimensionNumbers, *, update_shape: Any = (),
                  indices_are_sorted: bool = False,
                  unique_indices: bool = False, mode: Any = None) -> Value:
    """A copy of `operand` with `func` applied to the windows at the indices' rows, once even at repeated ones."""
    value, rows = as_value("scatter_apply", operand), as_value("scatter_apply", scatter_indices)
    numbers = indexed.IndexNumbers(*map(tuple, dimension_numbers))
    updates = filled(static_shape("scatter_apply", update_shape), 0, value.dtype)
    chosen = GatherScatterMode.from_any(mode)
    sizes = indexed.window_sizes(value.type, updates.type, numbers)
    old = indexed.gather(value, rows, numbers, sizes, chosen.value, 0 if chosen is GatherScatterMode.FILL_OR_DROP
                         else None)
    return scatter(value, rows, func(old), dimension_numbers, unique_indices=unique_indices, mode=mode)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Value:
    """src at the rows of index vectors along several axes; the rows come first."""
    value = as_value("index_take", src)
    columns = [linear.reshape(v, (*v.shape, 1)) for v in (as_value("index_take", i) for i in idxs)]
    rows = slicing.concatenate(columns, columns[0].ndim - 1) if len(columns) > 1 else columns[0]
    named = tuple(one_axis("index_take", axis, value.shape) for axis in axes)
    sizes = tuple(1 if axis in named else extent for axis, extent in enumerate(value.shape))
    lead = rows.ndim - 1
    numbers = indexed.IndexNumbers(tuple(range(lead, lead + value.ndim - len(named))), tuple(sorted(named)), named)
    return indexed.gather(value, rows, numbers, sizes, "fill")


# ---- sorting --------------------------------------------------------------------------------------------------------

def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The operand (or operands, by the first num_keys of them) sorted along an axis, NaN last."""
    given = operand if isinstance(operand, (tuple, list)) else (operand,)
    values = [as_value("sort", x) for x in given]
    number = one_axis("sort", dimension, values[0].shape)
    results = sorting.sort(values, number, num_keys, is_stable)
    return results if isinstance(operand, (tuple, list)) else results[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Value, Value]:
    """Keys sorted along an axis, and values in the keys' order."""
    first, second = sort((keys, values), dimension, is_stable, 1)
    return first, second


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Value, Value]:
    """The k greatest elements along an axis, descending, and their positions."""
    value = as_value("top_k", operand)
    number = one_axis("top_k", axis, value.shape)
    order = (*(a for a in range(value.ndim) if a != number), number)
    back = tuple(int(a) for a in np.argsort(order))
    values, positions = sorting.top_k(linear.transpose(value, order), static_int("top_k", "k", k))
    return linear.transpose(values, back), linear.transpose(positions, back)


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> tuple[Value, Value]:
    """`top_k`: the greatest elements along an axis and their positions, exactly."""
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> tuple[Value, Value]:
    """The k least elements along an axis, ascending, and their positions, exactly."""
    value = as_value("approx_min_k", operand)
    number = one_axis("approx_min_k", reduction_dimension, value.shape)
    keys, positions = sort_key_val(value, counted(value.shape, number, INT32), number)
    return slice_in_dim(keys, 0, k, axis=number), slice_in_dim(positions, 0, k, axis=number)

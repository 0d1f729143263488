"""Reading parts of arrays: x[index], take, take_along_axis.

What is known while tracing costs index arithmetic (slice, flip, reshape); a traced integer reads a window
(dynamic_slice); arrays of positions gather. Negative positions count from the end. Outside the array an integer known
while tracing is an IndexError; positions in arrays are moved inside (mode "clip") unless another mode is given:
"fill" reads `fill_value` (NaN by default), "promise_in_bounds" checks nothing.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..ir.value import Value
from ..lax.arguments import one_axis
from ..lax.conversion import as_value, place
from ..lax.promotion import broadcast_shape, refuse_out, to_same_dtype
from ..ops import elementwise as ops, index as indexed, linear, slicing
from ..ops.create import full
from ..ops.cumulative import cumsum
from ..ops.dynamic import dynamic_slice
from ..runtime.array import Array, from_numpy, from_scalar
from ..trace import is_base
from .index_plan import Part, Plan, plan

Shape = tuple[int, ...]
INT32 = dtypes.int32
READ_MODES = {None: "clip", "clip": "clip", "fill": "fill", "drop": "fill", "promise_in_bounds": "promise_in_bounds",
              "wrap": "wrap"}


def getitem(x: Value, index: Any) -> Value:
    """x[index]."""
    return read(x, plan(x.type.shape, index), "clip", None)


def read(x: Value, p: Plan, mode: str, fill_value: Any) -> Value:
    """The elements of `x` that a plan names."""
    x = linear.reshape(x, p.shape)
    if not p.arrays:
        if isinstance(x, Array) and is_base() and _is_window(p):
            starts = [from_scalar(start, INT32 if start < 2**31 else dtypes.int64, x.device)
                      for start, _, _ in intervals(p)]
            return linear.reshape(dynamic_slice(x, one_type(starts), window_of(p)), p.result)
        return linear.reshape(static_part(x, p), p.result)
    if 0 in p.rows:
        return full(p.result, 0, x.dtype)
    _check_not_empty(p, mode)
    if not p.rows and mode in ("clip", "promise_in_bounds") and all_scalars(p):
        x = sliced(x, p)
        return linear.reshape(dynamic_slice(x, one_type(starts_of(p)), window_of(p)), p.result)
    x = linear.reshape(static_part(x, p), without_integers(p))
    positions, known = rows_of(p, mode)
    if mode == "wrap" or (known and mode == "clip"):
        mode = "promise_in_bounds"
    return linear.reshape(indexed.gather(x, positions, numbers_of(p), window_sizes(p, x.shape), mode, fill_value),
                          p.result)


def _is_window(p: Plan) -> bool:
    """Whether a static plan names one window at a place of its own: outside jit that place is then data, so that
    x[0], x[1], ... and x[:8], x[8:16], ... share one compiled program each.
    """
    axes = [part for part in p.parts if part.kind != "new"]
    return all(part.step == 1 and part.count > 0 for part in axes) and any(
        part.count != p.shape[part.axis] for part in axes)


def _check_not_empty(p: Plan, mode: str) -> None:
    for part in p.arrays:
        if p.shape[part.axis] == 0 and mode != "fill":
            raise IndexError(f"an array of shape {p.shape} has no elements along axis {part.axis} to index.")


# ---- the static part ------------------------------------------------------------------------------------------------

def _interval(part: Part, extent: int) -> tuple[int, int, int]:
    """(start, limit, stride) of the elements that a part names, in ascending order; the whole axis for an array."""
    if part.kind == "array":
        return 0, extent, 1
    if part.count == 0:
        return 0, 0, 1
    last = part.start + (part.count - 1) * part.step
    return min(part.start, last), max(part.start, last) + 1, abs(part.step)


def intervals(p: Plan) -> list[tuple[int, int, int]]:
    """(start, limit, stride) for each axis."""
    return [_interval(part, p.shape[part.axis]) for part in p.parts if part.kind != "new"]


def flipped_axes(p: Plan) -> tuple[int, ...]:
    """The axes whose slices run backwards."""
    return tuple(part.axis for part in p.parts if part.kind == "slice" and part.step < 0)


def sliced(x: Value, p: Plan) -> Value:
    """`x` cut to the elements of the slices and integers, in ascending order."""
    start, limit, strides = zip(*intervals(p), strict=True) if x.ndim else ((), (), ())
    return slicing.slice_(x, start, limit, strides)


def static_part(x: Value, p: Plan) -> Value:
    """`x` cut to the slices (in their order) and integers (with extent 1); axes of arrays are whole."""
    return slicing.flip(sliced(x, p), flipped_axes(p))


def without_integers(p: Plan) -> Shape:
    """The shape of the static part without the integers' axes."""
    return tuple(p.shape[part.axis] if part.kind == "array" else part.count
                 for part in p.parts if part.kind in ("array", "slice"))


# ---- traced integers ------------------------------------------------------------------------------------------------

def all_scalars(p: Plan) -> bool:
    """Whether every position is a scalar and every slice has step 1."""
    return all(part.positions.ndim == 0 for part in p.arrays) and all(part.step == 1 for part in p.windows)


def one_type(positions: Sequence[Value]) -> list[Value]:
    """Integer values in a common type."""
    kind = dtypes.promote(*[position.dtype for position in positions])
    kind = kind if dtypes.is_integer(kind) else dtypes.int64
    return [linear.convert(position, kind) for position in positions]


def starts_of(p: Plan) -> list[Value]:
    """Where the window of a plan with scalar positions begins in its static part."""
    starts = [full((), 0, INT32)] * len(p.shape)
    for part in p.arrays:
        starts[part.axis] = wrapped(part.positions, p.shape[part.axis])
    return starts


def window_of(p: Plan) -> Shape:
    """The shape of that window: 1 on the axes of integers and positions."""
    return tuple(part.count if part.kind == "slice" else 1 for part in p.parts if part.kind != "new")


# ---- arrays of positions --------------------------------------------------------------------------------------------

def wrapped(positions: Any, extent: int) -> Value:
    """Positions with negative ones counted from the end, in a type that holds the extent."""
    if isinstance(positions, np.ndarray):
        wide = _as_int64(positions)
        moved = np.where(wide < 0, wide + extent, wide) if positions.dtype.kind == "i" else wide
        small = extent < 2**31 and (moved.size == 0 or (int(moved.min()) >= -2**31 and int(moved.max()) < 2**31))
        return from_numpy(moved.astype(np.int32 if small else np.int64)) if moved.ndim else full(
            (), int(moved), dtypes.int32 if small else dtypes.int64)
    positions = widened(positions, extent)
    if positions.dtype.kind == "u":
        return positions
    return ops.select(ops.lt(positions, 0), ops.add(positions, extent), positions)


def _as_int64(positions: np.ndarray) -> np.ndarray:
    """Positions in a type in which an extent can be added; unsigned ones that it does not hold become its greatest."""
    if positions.dtype == np.uint64:
        positions = np.minimum(positions, np.uint64(2**63 - 1))
    return positions.astype(np.int64)


def widened(positions: Value, extent: int) -> Value:
    """Positions in an integer type that holds the extent."""
    if extent > np.iinfo(positions.dtype).max:
        return linear.convert(positions, INT32 if extent < 2**31 else dtypes.int64)
    return positions


def rows_of(p: Plan, mode: str) -> tuple[Value, bool]:
    """The index rows, of shape (*rows, number of arrays); and whether all of them are known to lie within."""
    known = all(isinstance(part.positions, np.ndarray) and _inside(part.positions, p.shape[part.axis])
                for part in p.arrays)
    columns = []
    for part in p.arrays:
        extent = p.shape[part.axis]
        columns.append(_taken_modulo(part.positions, extent) if mode == "wrap" else wrapped(part.positions, extent))
    placed = [linear.reshape(place(column, p.rows, column.dtype), (*p.rows, 1)) for column in one_type(columns)]
    return (placed[0] if len(placed) == 1 else slicing.concatenate(placed, len(p.rows))), known


def _inside(positions: np.ndarray, extent: int) -> bool:
    return positions.size == 0 or (int(positions.min()) >= -extent and int(positions.max()) < extent)


def _taken_modulo(positions: Any, extent: int) -> Value:
    if isinstance(positions, np.ndarray):
        return wrapped(positions % positions.dtype.type(extent) if positions.dtype == np.uint64 else
                       _as_int64(positions) % extent, extent)
    positions = widened(positions, extent)
    rest = ops.rem(positions, extent)
    return rest if rest.dtype.kind == "u" else ops.select(ops.lt(rest, 0), ops.add(rest, extent), rest)


def numbers_of(p: Plan) -> indexed.IndexNumbers:
    """The gather's (scatter's) numbers for the static part without the integers' axes."""
    axes = [part for part in p.parts if part.kind in ("array", "slice")]
    arrays = tuple(axis for axis, part in enumerate(axes) if part.kind == "array")
    kept = len(axes) - len(arrays)
    windows = (*range(p.first), *range(p.first + len(p.rows), kept + len(p.rows)))
    return indexed.IndexNumbers(windows, arrays, arrays)


def window_sizes(p: Plan, shape: Shape) -> Shape:
    """The windows' shape: whole axes, but one element of the axes of positions."""
    kinds = [part.kind for part in p.parts if part.kind in ("array", "slice")]
    return tuple(min(1, extent) if kind == "array" else extent for kind, extent in zip(kinds, shape, strict=True))


# ---- functions ------------------------------------------------------------------------------------------------------

def read_mode(name: str, mode: str | None) -> str:
    """A reading mode, by the name the user gave it."""
    if mode == "raise" or mode not in READ_MODES:
        raise ValueError(f"{name}: mode must be 'clip', 'fill', 'wrap' or 'promise_in_bounds', got {mode!r}."
                         + (" Compiled code cannot raise; check the indices first." if mode == "raise" else ""))
    return READ_MODES[mode]


def take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
         unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None) -> Value:
    """The elements at positions `indices` along an axis (of the flattened array for None).

    mode: "fill" (the default: positions outside read `fill_value`, by default NaN, or the extreme integer), "clip",
    "wrap".

    >>> import fungrad.numpy as fnp
    >>> fnp.take(fnp.arange(4) * 10, fnp.array([3, 0])).tolist()
    [30, 0]
    """
    refuse_out("take", out)
    value, positions = as_value("take", a), _positions("take", indices)
    if axis is None:
        value, axis = linear.reshape(value, (value.size,)), 0
    number = one_axis("take", axis, value.shape)
    chosen = read_mode("take", mode or "fill")
    if chosen == "clip":      # here, unlike in x[index], a negative position is moved to 0
        top = max(0, value.shape[number] - 1)
        if isinstance(positions, np.ndarray):
            positions = np.clip(positions, 0, top)
        else:
            positions = ops.min(ops.max(widened(positions, top), 0), top)
    index = (*([slice(None)] * number), positions)
    return read(value, plan(value.shape, index, lenient=True), chosen, fill_value)


def _positions(name: str, indices: Any) -> Any:
    found = np.asarray(indices) if isinstance(indices, (int, np.integer, np.ndarray)) else as_value(name, indices)
    if not dtypes.is_integer(found.dtype) and not (isinstance(found, np.ndarray) and found.size == 0):
        raise TypeError(f"{name}: positions must be integers, got {found.dtype.name}. Write indices.astype('int32').")
    return found


def _along(name: str, arr: Any, indices: Any, axis: int | None) -> tuple[Value, Value, int]:
    """The array and its wrapped positions, broadcast against each other on all axes but one."""
    value, positions = as_value(name, arr), as_value(name, indices)
    if not dtypes.is_integer(positions.dtype):
        raise TypeError(f"{name}: positions must be integers, got {positions.dtype.name}. Write "
                        f"indices.astype('int32').")
    if axis is None:
        value, positions, axis = linear.reshape(value, (value.size,)), linear.reshape(positions, (positions.size,)), 0
    number = one_axis(name, axis, value.shape)
    if positions.ndim != value.ndim:
        raise ValueError(f"{name}: the positions, of shape {positions.shape}, need as many axes as the array, of shape "
                         f"{value.shape}. Insert axes, for example positions[..., None].")
    rest = [broadcast_shape(name, (a,), (b,))[0] if axis != number else 0
            for axis, (a, b) in enumerate(zip(value.shape, positions.shape, strict=True))]
    extents = tuple(value.shape[number] if axis == number else extent for axis, extent in enumerate(rest))
    places = tuple(positions.shape[number] if axis == number else extent for axis, extent in enumerate(rest))
    return (place(value, extents, value.dtype),
            place(wrapped(positions, value.shape[number]), places, widened(positions, value.shape[number]).dtype),
            number)


def along_numbers(rank: int, axis: int) -> indexed.IndexNumbers:
    """The gather's (scatter's) numbers for one position for each element of an axis, the others walked in step."""
    batch = tuple(a for a in range(rank) if a != axis)
    return indexed.IndexNumbers((), (axis,), (axis,), batch, batch)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None,
                    fill_value: Any = None) -> Value:
    """result[i, j, k] = arr[i, indices[i, j, k], k] for axis=1; other axes broadcast. Modes as in `take`."""
    value, positions, number = _along("take_along_axis", arr, indices, axis)
    chosen = read_mode("take_along_axis", mode or "fill")
    if chosen == "wrap":
        positions, chosen = _taken_modulo(positions, value.shape[number]), "promise_in_bounds"
    sizes = tuple(min(1, extent) for extent in value.shape)
    rows = linear.reshape(positions, (*positions.shape, 1))
    return indexed.gather(value, rows, along_numbers(value.ndim, number), sizes, chosen, fill_value)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = False, *,
                   mode: str | None = None) -> Value:
    """A copy of `arr` with arr[i, indices[i, j, k], k] = values[i, j, k] (for axis=1); positions outside are
    dropped.
    """
    if inplace:
        raise ValueError("put_along_axis: arrays cannot be changed in place; write inplace=False and use the result.")
    shape = as_value("put_along_axis", arr).shape
    value, positions, number = _along("put_along_axis", arr, indices, axis)
    new = place(to_same_dtype("put_along_axis", values, dtype=value.dtype)[0], positions.shape, value.dtype)
    rows = linear.reshape(positions, (*positions.shape, 1))
    written = "clip" if mode == "clip" else "promise_in_bounds" if mode == "promise_in_bounds" else "drop"
    result = indexed.scatter(value, rows, new, along_numbers(value.ndim, number), "set", written)
    return linear.reshape(result, shape) if axis is None else result


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Value:
    """A copy of `a` with the elements at flattened positions `ind` set to `v`, repeated as often as needed."""
    if inplace:
        raise ValueError("put: arrays cannot be changed in place; write inplace=False and use the result.")
    if mode not in (None, "clip", "wrap"):
        raise ValueError(f"put: mode must be 'clip' or 'wrap', got {mode!r}.")
    value, positions = as_value("put", a), as_value("put", ind)
    positions = linear.reshape(positions, (positions.size,))
    new = to_same_dtype("put", v, dtype=value.dtype)[0]
    new = linear.reshape(new, (new.size,))
    if not positions.size or not new.size:
        return value
    if new.size < positions.size:
        repeats = -(-positions.size // new.size)
        new = linear.reshape(linear.broadcast(new, (repeats, new.size), (1,)), (repeats * new.size,))
    new = slicing.slice_(new, (0,), (positions.size,))
    flat = linear.reshape(value, (value.size,))
    wanted = _taken_modulo(positions, value.size) if mode == "wrap" else positions
    written = "clip" if mode == "clip" else "drop"
    return linear.reshape(flat.at[wanted].set(new, mode=written), value.shape)


def place_elements(arr: Any, mask: Any, vals: Any, *, inplace: bool = False) -> Value:
    """A copy of `arr` with the elements where the mask holds set to `vals` in turn, repeated as often as needed."""
    if inplace:
        raise ValueError("place: arrays cannot be changed in place; write inplace=False and use the result.")
    value, chosen = as_value("place", arr), linear.convert(as_value("place", mask), dtypes.bool_)
    new = to_same_dtype("place", vals, dtype=value.dtype)[0]
    new = linear.reshape(new, (new.size,))
    if chosen.size != value.size:
        raise ValueError(f"place: the mask, of shape {chosen.shape}, and the array, of shape {value.shape}, differ.")
    if not new.size or not value.size:
        return value
    flat = linear.reshape(chosen, (value.size,))
    rank = ops.sub(cumsum(linear.convert(flat, INT32), 0), 1)      # the how manieth chosen element each one is
    turn = take(new, ops.rem(ops.max(rank, 0), new.size), mode="promise_in_bounds")
    return linear.reshape(ops.select(flat, turn, linear.reshape(value, (value.size,))), value.shape)

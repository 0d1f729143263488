"""Putting arrays together and taking them apart: concatenate, stack, split, tile, repeat, pad, insert, delete."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.arguments import one_axis, static_int
from ..lax.conversion import as_value, concrete, is_python_scalar, operand, place
from ..lax.promotion import requested, to_same_dtype
from ..ops import elementwise as ops, linear, slicing
from ..ops.create import full, iota
from ..runtime.array import from_numpy
from ..trace import Tracer
from .cumulative import cumsum
from .manipulation import atleast_1d, atleast_2d, atleast_3d


def _rows(name: str, arrays: Any) -> list[Any]:
    if isinstance(arrays, (Value, np.ndarray)):
        if arrays.ndim == 0:
            raise ValueError(f"{name} takes a sequence of arrays, got an array without axes.")
        return [arrays[i] for i in range(arrays.shape[0])]
    rows = list(arrays)
    if not rows:
        raise ValueError(f"{name} needs at least one array.")
    return rows


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Value:
    """The arrays one after another along an existing axis (flattened for axis=None).

    >>> import fungrad.numpy as fnp
    >>> fnp.concatenate([fnp.ones((2, 3)), fnp.zeros((1, 3))]).shape
    (3, 3)
    """
    values = to_same_dtype("concatenate", *_rows("concatenate", arrays), dtype=requested("concatenate", dtype))
    if axis is None:
        values, axis = [linear.reshape(v, (v.size,)) for v in values], 0
    first = values[0]
    if first.ndim == 0:
        raise ShapeError("concatenate: arrays without axes cannot be joined. Use stack.")
    number = one_axis("concatenate", axis, first.shape)
    for value in values[1:]:
        if value.ndim != first.ndim or any(
                a != b for i, (a, b) in enumerate(zip(first.shape, value.shape, strict=True)) if i != number):
            raise ShapeError(f"concatenate: shapes {first.shape} and {value.shape} differ outside axis {number}. "
                             f"All other axes must agree; use stack for a new axis.")
    return first if len(values) == 1 else slicing.concatenate(values, number)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Value:
    """`concatenate` under the name of the array API standard."""
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Value:
    """The arrays, of one shape, along a new axis."""
    if isinstance(arrays, (Value, np.ndarray)) and axis == 0 and dtype is None and arrays.ndim:
        return as_value("stack", arrays)
    values = to_same_dtype("stack", *_rows("stack", arrays), dtype=requested("stack", dtype))
    first = values[0].shape
    for value in values:
        if value.shape != first:
            raise ShapeError(f"stack: all arrays need one shape, got {first} and {value.shape}.")
    rank = len(first) + 1
    if not -rank <= axis < rank:
        raise ValueError(f"stack: axis {axis} is out of bounds for a result with {rank} axes.")
    number = axis % rank
    shape = (*first[:number], 1, *first[number:])
    rows = [linear.reshape(value, shape) for value in values]
    return rows[0] if len(rows) == 1 else slicing.concatenate(rows, number)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Value, ...]:
    """The parts of an array along an axis, which they lack."""
    value = as_value("unstack", x)
    number = one_axis("unstack", axis, value.shape)
    return tuple(value[(slice(None),) * number + (i,)] for i in range(value.shape[number]))


def vstack(tup: Any, dtype: Any = None) -> Value:
    """The arrays one below another, vectors as rows."""
    return concatenate([atleast_2d(a) for a in _rows("vstack", tup)], 0, dtype)


def hstack(tup: Any, dtype: Any = None) -> Value:
    """The arrays side by side: along the second axis, vectors along their only one."""
    rows = [atleast_1d(a) for a in _rows("hstack", tup)]
    return concatenate(rows, 0 if rows[0].ndim == 1 else 1, dtype)


def dstack(tup: Any, dtype: Any = None) -> Value:
    """The arrays along the third axis."""
    return concatenate([atleast_3d(a) for a in _rows("dstack", tup)], 2, dtype)


def column_stack(tup: Any) -> Value:
    """Vectors (and matrices) side by side as columns of a matrix."""
    columns = [as_value("column_stack", a) for a in _rows("column_stack", tup)]
    return concatenate([c if c.ndim == 2 else linear.reshape(c, (c.size, 1)) for c in columns], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Value:
    """`values` behind `arr`, along an axis or both flattened."""
    return concatenate([arr, values], axis)


def block(arrays: Any) -> Value:
    """An array from a nested list of blocks: the innermost lists are joined along the last axis."""
    depth = _depth(arrays)
    rank = max(depth, _rank(arrays))

    def joined(part: Any, level: int) -> Value:
        if not isinstance(part, list):
            value = as_value("block", part)
            return linear.reshape(value, (1,) * (rank - value.ndim) + value.shape)
        return concatenate([joined(p, level + 1) for p in part], rank - depth + level)
    return joined(arrays, 0)


def _depth(part: Any) -> int:
    return 1 + max(map(_depth, part)) if isinstance(part, list) and part else 0


def _rank(part: Any) -> int:
    return max(map(_rank, part)) if isinstance(part, list) and part else as_value("block", part).ndim


# ---- splitting ------------------------------------------------------------------------------------------------------

def _cut(x: Value, axis: int, bounds: Sequence[int]) -> list[Value]:
    pieces = []
    for start, stop in zip(bounds, bounds[1:], strict=False):
        low, high = [0] * x.ndim, list(x.shape)
        low[axis], high[axis] = start, max(start, stop)
        pieces.append(slicing.slice_(x, tuple(low), tuple(high)))
    return pieces


def _split(name: str, ary: Any, indices_or_sections: Any, axis: int, equal: bool) -> list[Value]:
    value = as_value(name, ary)
    number = one_axis(name, axis, value.shape)
    extent = value.shape[number]
    given = indices_or_sections
    if isinstance(given, (list, tuple)) or (isinstance(given, (np.ndarray, Value)) and given.ndim):
        places = [static_int(name, "each index", i) for i in given]
        bounds = [min(max(p + extent if p < 0 else p, 0), extent) for p in places]
        return _cut(value, number, [0, *bounds, extent])
    count = static_int(name, "the number of sections", given)
    if count < 1:
        raise ValueError(f"{name}: the number of sections must be positive, got {count}.")
    if equal and extent % count:
        raise ValueError(f"{name}: axis {number} of an array of shape {value.shape} does not split into {count} equal "
                         f"parts. Use array_split, or give the indices at which to cut.")
    small, larger = divmod(extent, count)
    sizes = [small + 1] * larger + [small] * (count - larger)
    return _cut(value, number, [0, *np.cumsum(sizes).tolist()])


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """The array cut along an axis into equal sections (an integer) or at indices (a sequence).

    >>> import fungrad.numpy as fnp
    >>> [x.shape for x in fnp.split(fnp.arange(6), [1, 4])]
    [(1,), (3,), (2,)]
    """
    return _split("split", ary, indices_or_sections, axis, True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """`split` that allows sections which differ by one element."""
    return _split("array_split", ary, indices_or_sections, axis, False)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Value]:
    """`split` along the first axis."""
    return _split("vsplit", ary, indices_or_sections, 0, True)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Value]:
    """`split` along the second axis (the first of a vector)."""
    value = as_value("hsplit", ary)
    return _split("hsplit", value, indices_or_sections, min(1, value.ndim - 1), True)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Value]:
    """`split` along the third axis."""
    return _split("dsplit", ary, indices_or_sections, 2, True)


# ---- repeating ------------------------------------------------------------------------------------------------------

def tile(A: Any, reps: Any) -> Value:
    """The array repeated as a whole: reps times along the last axis, or a number for each of the last axes."""
    value = as_value("tile", A)
    counts = [static_int("tile", "reps", r) for r in (reps if isinstance(reps, (tuple, list)) else (reps,))]
    rank = max(len(counts), value.ndim)
    counts = [1] * (rank - len(counts)) + counts
    extents = (1,) * (rank - value.ndim) + value.shape
    value = linear.reshape(value, extents)
    spread, places = [], []
    for count, extent in zip(counts, extents, strict=True):
        if count != 1:
            spread.append(count)
        places.append(len(spread))
        spread.append(extent)
    repeated = linear.broadcast(value, tuple(spread), tuple(places))
    return linear.reshape(repeated, tuple(c * e for c, e in zip(counts, extents, strict=True)))


def repeat(a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Value:
    """Each element repeated along an axis (of the flattened array for None), by one number or a number for each
    element.

    Traced numbers need `total_repeat_length`, the length of the result (cut off, or filled with the last element).
    """
    value = as_value("repeat", a)
    if axis is None:
        value, axis = linear.reshape(value, (value.size,)), 0
    number = one_axis("repeat", axis, value.shape)
    extent = value.shape[number]
    if not isinstance(repeats, Tracer) and np.size(np.asarray(repeats)) == 1 and total_repeat_length is None:
        count = int(np.asarray(repeats).reshape(()))
        spread = (*value.shape[:number + 1], count, *value.shape[number + 1:])
        places = tuple(i if i <= number else i + 1 for i in range(value.ndim))
        wide = linear.broadcast(value, spread, places)
        return linear.reshape(wide, (*value.shape[:number], extent * count, *value.shape[number + 1:]))
    where = (slice(None),) * number
    if not isinstance(repeats, Tracer):
        counts = np.broadcast_to(np.asarray(repeats), (extent,))
        positions = np.repeat(np.arange(extent, dtype=np.int32), counts)
        if total_repeat_length is not None:
            length = static_int("repeat", "total_repeat_length", total_repeat_length)
            last = np.full(max(0, length - len(positions)), positions[-1] if len(positions) else 0, np.int32)
            positions = np.concatenate([positions, last])[:length]
        return value[(*where, from_numpy(positions))]
    if total_repeat_length is None:
        concrete(repeats, "the numbers of repeat (or give total_repeat_length=)")
    return value[(*where, _traced_repeats(repeats, extent,
                                          static_int("repeat", "total_repeat_length", total_repeat_length)))]


def _traced_repeats(repeats: Value, extent: int, length: int) -> Value:
    """The element at each position of the result: how many runs end at or before it."""
    counts = place(linear.convert(repeats, dtypes.int32), (extent,), dtypes.int32)
    starts = cumsum(counts)                       # the ends of the runs
    marks = full((length,), 0, dtypes.int32).at[starts].add(1, mode="drop")
    return ops.min(cumsum(marks), full((length,), max(0, extent - 1), dtypes.int32))


# ---- padding --------------------------------------------------------------------------------------------------------

def _pairs(name: str, given: Any, rank: int) -> list[tuple[Any, Any]]:
    """(before, after) for each axis, from one number, one pair or a pair for each axis."""
    if isinstance(given, dict):
        pairs = [(0, 0)] * rank
        for axis, value in given.items():
            pairs[axis] = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        return pairs
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, (tuple, list)):
        return [(given, given)] * rank
    entries = [tuple(e) if isinstance(e, (tuple, list)) else e for e in given]
    if all(isinstance(e, tuple) for e in entries):
        if len(entries) == 1:
            entries = entries * rank
        if len(entries) == rank and all(len(e) in (1, 2) for e in entries):
            return [(e[0], e[-1]) for e in entries]
    elif len(entries) == 2 and not any(isinstance(e, tuple) for e in entries):
        return [(entries[0], entries[1])] * rank
    elif len(entries) == 1:
        return [(entries[0], entries[0])] * rank
    raise ValueError(f"pad: {name} must be a number, a pair (before, after) or {rank} such pairs, one for each axis; "
                     f"got {given!r}.")


def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Value:
    """The array extended at the ends of its axes.

    pad_width: one number, one pair (before, after), or a pair for each axis. mode: constant (constant_values=), edge,
    reflect, symmetric, wrap, linear_ramp (end_values=), maximum, minimum, mean, empty.

    >>> import fungrad.numpy as fnp
    >>> fnp.pad(fnp.arange(3), 2, mode="reflect").tolist()
    [2, 1, 0, 1, 2, 1, 0]
    """
    value = as_value("pad", array)
    widths = [(static_int("pad", "pad_width", a), static_int("pad", "pad_width", b))
              for a, b in _pairs("pad_width", pad_width, value.ndim)]
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError(f"pad: pad_width {pad_width} must not be negative. Slice the array to make it smaller.")
    allowed = {"constant": {"constant_values"}, "reflect": {"reflect_type"}, "symmetric": {"reflect_type"},
               "linear_ramp": {"end_values"}, "maximum": {"stat_length"}, "minimum": {"stat_length"},
               "mean": {"stat_length"}, "edge": set(), "wrap": set(), "empty": set()}
    if mode not in allowed:
        raise NotImplementedError(f"pad: mode {mode!r} is not there; use one of {', '.join(allowed)}.")
    unknown = set(kwargs) - allowed[mode]
    if unknown:
        raise TypeError(f"pad: mode {mode!r} does not take {', '.join(sorted(unknown))}.")
    if kwargs.get("reflect_type", "even") != "even" or kwargs.get("stat_length") is not None:
        raise NotImplementedError("pad: reflect_type='odd' and stat_length are not there.")
    if mode in ("constant", "empty"):
        return _pad_constant(value, widths, kwargs.get("constant_values", 0))
    if mode == "linear_ramp":
        return _pad_ramp(value, widths, _pairs("end_values", kwargs.get("end_values", 0), value.ndim))
    for axis, pair in enumerate(widths):
        if pair != (0, 0):
            value = _pad_axis(value, axis, pair, mode)
    return value


def _pad_constant(x: Value, widths: list[tuple[int, int]], values: Any) -> Value:
    if is_python_scalar(values) or getattr(values, "ndim", 1) == 0:
        filler = place(operand("pad", values), (), x.dtype)
        return slicing.pad(x, filler, tuple((a, b, 0) for a, b in widths))
    for axis, ((before, after), pair) in enumerate(zip(widths, _pairs("constant_values", values, x.ndim), strict=True)):
        for low, high, value in ((before, 0, pair[0]), (0, after, pair[1])):
            config = [(0, 0, 0)] * x.ndim
            config[axis] = (low, high, 0)
            x = slicing.pad(x, place(operand("pad", value), (), x.dtype), tuple(config))
    return x


def _positions(extent: int, before: int, after: int, mode: str) -> np.ndarray:
    """The element of an axis that each place of the padded axis shows."""
    places = np.arange(-before, extent + after)
    if mode == "edge":
        return np.clip(places, 0, extent - 1)
    if mode == "wrap":
        return places % extent
    period = 2 * extent if mode == "symmetric" else max(1, 2 * extent - 2)
    folded = places % period
    last = extent - 1 if mode == "reflect" else extent - 0.5
    return np.where(folded <= last, folded, period - folded - (mode == "symmetric"))


def _pad_axis(x: Value, axis: int, pair: tuple[int, int], mode: str) -> Value:
    extent = x.shape[axis]
    if extent == 0:
        raise ValueError(f"pad: axis {axis} of an array of shape {x.shape} has no elements to extend; use "
                         f"mode='constant'.")
    if mode in ("maximum", "minimum", "mean"):
        found = getattr(x, {"maximum": "max", "minimum": "min", "mean": "mean"}[mode])(axis, keepdims=True)
        if mode == "mean" and not dtypes.is_float(x.dtype):
            found = ops.round(found)
        filler = linear.convert(found, x.dtype)
        ends = [linear.broadcast(filler, (*x.shape[:axis], n, *x.shape[axis + 1:]), tuple(range(x.ndim))) for n in pair]
        return slicing.concatenate([ends[0], x, ends[1]], axis)
    runs = _runs(_positions(extent, *pair, mode))
    parts = []
    for start, length, step in runs:
        low, high = [0] * x.ndim, list(x.shape)
        low[axis], high[axis] = (start, start + length) if step >= 0 else (start - length + 1, start + 1)
        if step == 0:
            high[axis] = start + 1
        part = slicing.slice_(x, tuple(low), tuple(high))
        if step == 0:
            part = linear.broadcast(part, (*x.shape[:axis], length, *x.shape[axis + 1:]), tuple(range(x.ndim)))
        parts.append(slicing.flip(part, (axis,)) if step < 0 else part)
    return parts[0] if len(parts) == 1 else slicing.concatenate(parts, axis)


def _runs(positions: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, length, step) of the runs with step 1, -1 or 0 that make up the positions, in order."""
    values = [int(p) for p in positions]
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < len(values):
        step = values[at + 1] - values[at] if at + 1 < len(values) else 1
        step = step if step in (-1, 0, 1) else 1
        length = 1
        while at + length < len(values) and values[at + length] - values[at + length - 1] == step:
            length += 1
        runs.append((values[at], length, step))
        at += length
    return runs


def _pad_ramp(x: Value, widths: list[tuple[int, int]], ends: list[tuple[Any, Any]]) -> Value:
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, ends, strict=True)):
        extent = x.shape[axis]
        low = slicing.slice_(x, (0,) * x.ndim, tuple(1 if a == axis else e for a, e in enumerate(x.shape)))
        high = slicing.slice_(x, tuple(extent - 1 if a == axis else 0 for a in range(x.ndim)), x.shape)
        x = slicing.concatenate([_ramp(low, axis, before, first, False), x, _ramp(high, axis, after, last, True)], axis)
    return x


def _ramp(edge: Value, axis: int, count: int, end: Any, outward: bool) -> Value:
    """`count` steps from `end` to the edge (from the edge to `end`), without the edge itself."""
    shape = tuple(count if a == axis else e for a, e in enumerate(edge.shape))
    if count == 0:
        return full(shape, 0, edge.dtype)
    work = dtypes.to_inexact(edge.dtype)
    step = linear.convert(iota(shape, axis, dtypes.int32), work)
    fraction = ops.mul(ops.sub(float(count), step) if not outward else ops.add(step, 1.0), 1.0 / count)
    near, far = place(linear.convert(edge, work), shape, work), place(operand("pad", end), shape, work)
    return linear.convert(ops.add(near, ops.mul(ops.sub(far, near), fraction)), edge.dtype)


# ---- inserting and deleting -----------------------------------------------------------------------------------------

def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Value:
    """`values` inserted before the (static) positions `obj` along an axis (of the flattened array for None)."""
    value = as_value("insert", arr)
    if axis is None:
        value, axis = linear.reshape(value, (value.size,)), 0
    number = one_axis("insert", axis, value.shape)
    extent = value.shape[number]
    places = np.arange(extent)[obj] if isinstance(obj, slice) else concrete(obj, "the positions of insert")
    if places.dtype == bool:
        places = np.flatnonzero(places)
    where = np.where(places < 0, places + extent, places).reshape(-1)
    if np.any((where < 0) | (where > extent)):
        raise IndexError(f"insert: a position in {places} is out of bounds for axis {number} with size {extent}.")
    new = linear.convert(as_value("insert", values), value.dtype)
    if places.ndim == 0 and new.ndim:
        new = new.swapaxes(0, number) if new.ndim == value.ndim and number else new
        new = linear.reshape(new, (1,) * (value.ndim - new.ndim) + new.shape)
        count = new.shape[number]
        where = np.repeat(where, count)
    else:
        count = len(where)
    extents = tuple(count if a == number else e for a, e in enumerate(value.shape))
    new = place(new, extents, value.dtype)
    order = np.argsort(where, kind="stable")
    positions = np.empty(extent + count, np.int32)
    taken = where[order] + np.arange(count)
    mask = np.zeros(extent + count, bool)
    mask[taken] = True
    positions[taken] = extent + order
    positions[~mask] = np.arange(extent)
    joined = slicing.concatenate([value, new], number)
    return joined[(slice(None),) * number + (from_numpy(positions),)]


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Value:
    """The array without the elements at the (static) positions `obj` along an axis (of the flattened array for
    None).
    """
    value = as_value("delete", arr)
    if axis is None:
        value, axis = linear.reshape(value, (value.size,)), 0
    number = one_axis("delete", axis, value.shape)
    extent = value.shape[number]
    kept = np.delete(np.arange(extent, dtype=np.int32),
                     obj if isinstance(obj, slice) else concrete(obj, "the positions of delete"))
    parts = [slice(int(run[0]), int(run[0]) + run[1]) for run in _runs(kept)] if len(kept) else [slice(0, 0)]
    if len(parts) > 8:
        return value[(slice(None),) * number + (from_numpy(kept),)]
    return concatenate([value[(slice(None),) * number + (part,)] for part in parts], number)


def trim_zeros(filt: Any, trim: Any = "fb") -> Value:
    """A concrete vector without its leading and trailing zeros."""
    return as_value("trim_zeros", from_numpy(np.trim_zeros(concrete(filt, "trim_zeros"), trim)))


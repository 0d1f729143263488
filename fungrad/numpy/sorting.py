"""Sorting and searching: sort, argsort, lexsort, top_k, searchsorted, digitize; sets (unique, isin, ...); bincount,
histogram.

NaN sorts last. `unique` and its kin have results whose shape depends on the elements: they need concrete arrays, or
`size=`.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..lax.arguments import one_axis, static_int
from ..lax.conversion import as_value, is_python_scalar, operand, place
from ..lax.promotion import common_dtype, inexact, to_same_dtype
from ..ops import elementwise as ops, linear, slicing, sort as sorting
from ..ops.create import full, iota
from ..ops.cumulative import cumsum
from ..runtime.array import from_numpy
from .creation import linspace
from .indexing import take
from .manipulation import moveaxis
from .reductions import max as largest, min as smallest, sum
from .selection import known_elements, nonzero

INT32 = dtypes.int32


def _flat_or_axis(name: str, a: Any, axis: int | None) -> tuple[Value, int]:
    value = as_value(name, a)
    if axis is None:
        return linear.reshape(value, (value.size,)), 0
    return value, one_axis(name, axis, value.shape)


def sort(a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
         descending: bool = False) -> Value:
    """The elements in ascending order along an axis (of the flattened array for None), NaN last."""
    value, number = _flat_or_axis("sort", a, axis)
    if descending:
        return sorting.sorted_descending((value,), number)[0]
    return sorting.sort((value,), number, 1, False)[0]


def argsort(a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
            descending: bool = False) -> Value:
    """The positions, as int32, that sort the array along an axis; equal elements keep their order.

    >>> import fungrad.numpy as fnp
    >>> fnp.argsort(fnp.array([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    value, number = _flat_or_axis("argsort", a, axis)
    return sorting.argsort(value, number, True, descending)


def lexsort(keys: Any, axis: int = -1) -> Value:
    """The positions that sort by several keys, the last key first."""
    arrays = [as_value("lexsort", keys[i]) for i in range(len(keys))]
    if not arrays:
        raise TypeError("lexsort needs at least one key.")
    shape = arrays[0].shape
    if any(x.shape != shape for x in arrays):
        raise ShapeError(f"lexsort: the keys need one shape, got {', '.join(str(x.shape) for x in arrays)}.")
    if not shape:
        return full((), 0, INT32)
    number = one_axis("lexsort", axis, shape)
    positions = iota(shape, number, INT32)
    return sorting.sort([*reversed(arrays), positions], number, len(arrays))[-1]


def partition(a: Any, kth: int, axis: int = -1) -> Value:
    """An array whose kth element along an axis is where sorting puts it, the smaller ones before: sorted altogether."""
    _check_kth("partition", a, kth, axis)
    return sort(a, axis)


def argpartition(a: Any, kth: int, axis: int = -1) -> Value:
    """The positions of `partition`'s elements: those of a sort."""
    _check_kth("argpartition", a, kth, axis)
    return argsort(a, axis)


def _check_kth(name: str, a: Any, kth: int, axis: int) -> None:
    value = as_value(name, a)
    extent = value.shape[one_axis(name, axis, value.shape)]
    if not -extent <= static_int(name, "kth", kth) < extent:
        raise ValueError(f"{name}: kth={kth} is out of bounds for axis {axis} with size {extent}.")


def top_k(a: Any, k: int, axis: int = -1) -> tuple[Value, Value]:
    """The k greatest elements along an axis, descending, and their positions."""
    value, number = _flat_or_axis("top_k", a, axis)
    count = static_int("top_k", "k", k)
    if not 0 <= count <= value.shape[number]:
        raise ValueError(f"top_k: k={count} is not within axis {number} of an array of shape {value.shape}.")
    values, positions = sorting.top_k(moveaxis(value, number, -1), count)
    return moveaxis(values, -1, number), moveaxis(positions, -1, number)


# ---- searching ------------------------------------------------------------------------------------------------------

def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Value:
    """Where each element of v would be inserted into the ascending vector a: before (left) or after (right) equal
    ones.
    """
    array, queries = to_same_dtype("searchsorted", a, v)
    if array.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted array must be a vector, got shape {array.shape}.")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}.")
    if sorter is not None:
        array = take(array, sorter)
    return sorting.searchsorted(array, queries, side)


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Value:
    """The number of the bin of each element: how many of the monotonic edges lie at or below it (below, if right)."""
    edges = as_value("digitize", bins)
    if edges.ndim != 1:
        raise ShapeError(f"digitize: the bins must be a vector, got shape {edges.shape}.")
    side = "left" if right else "right"
    if edges.size == 0:
        return full(as_value("digitize", x).shape, 0, INT32)
    ascending = searchsorted(edges, x, side)
    descending = ops.sub(full(ascending.shape, edges.size, ascending.dtype), searchsorted(
        slicing.flip(edges, (0,)), x, side))
    rising = ops.ge(edges[-1], edges[0])
    return ops.select(place(rising, ascending.shape, dtypes.bool_), ascending, descending)


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Value:
    """How often each of 0, 1, ... occurs in a vector of integers (or the sums of their weights).

    Inside jit `length`, the length of the result, must be given; larger elements are then dropped, negative ones count
    as 0.
    """
    value = as_value("bincount", x)
    if not dtypes.is_integer(value.dtype) and value.dtype != dtypes.bool_:
        raise DTypeError(f"bincount takes integers, got {value.dtype.name}. Write x.astype('int32').")
    if value.ndim != 1:
        raise ShapeError(f"bincount takes a vector, got shape {value.shape}. Write x.ravel().")
    value = linear.convert(value, INT32) if value.dtype == dtypes.bool_ else value
    if length is None:
        known = known_elements(value, "bincount")
        count = max(minlength, int(known.max()) + 1 if known.size else 0)
    else:
        count = max(minlength, static_int("bincount", "length", length))
    heavy = full(value.shape, 1, INT32) if weights is None else as_value("bincount", weights)
    if heavy.shape != value.shape:
        raise ShapeError(f"bincount: weights of shape {heavy.shape} for elements of shape {value.shape}.")
    positions = ops.max(value, 0) if value.dtype.kind == "i" else value
    return full((count,), 0, heavy.dtype).at[positions].add(heavy, mode="drop")


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Value:
    """The edges of equally wide bins between the extremes of `a` (or `range`); an array of bins is taken as it is."""
    if isinstance(bins, str):
        raise NotImplementedError(f"histogram_bin_edges: the rule {bins!r} is not there; give a number of bins or "
                                  f"edges.")
    if not is_python_scalar(bins) and as_value("histogram", bins).ndim:
        return as_value("histogram", bins)
    value = as_value("histogram", a)
    kind = dtypes.to_inexact(value.dtype)
    if range is not None:
        low, high = (place(operand("histogram", r), (), kind) for r in range)
    elif value.size == 0:
        low, high = full((), 0, kind), full((), 1, kind)
    else:
        low, high = linear.convert(smallest(value), kind), linear.convert(largest(value), kind)
    flat = ops.eq(low, high)
    low, high = ops.select(flat, ops.sub(low, 0.5), low), ops.select(flat, ops.add(high, 0.5), high)
    return linspace(low, high, static_int("histogram", "bins", bins) + 1)


def histogram(a: Any, bins: Any = 10, range: Any = None, weights: Any = None,
              density: bool | None = None) -> tuple[Value, Value]:
    """How many elements lie in each bin, and the bins' edges; the last bin includes its right edge."""
    value = as_value("histogram", a)
    edges = histogram_bin_edges(value, bins, range)
    number = _bin_numbers(linear.reshape(value, (value.size,)), edges)
    heavy = full(number.shape, 1, dtypes.default_float()) if weights is None else linear.reshape(
        as_value("histogram", weights), number.shape)
    counts = full((edges.size - 1,), 0, heavy.dtype).at[number].add(heavy, mode="drop")
    if density:
        widths = ops.sub(edges[1:], edges[:-1])
        counts = counts / widths / sum(counts)
    return counts, edges


def _bin_numbers(points: Value, edges: Value) -> Value:
    """The bin of each point; the number of bins, which is out of bounds, for a point in none."""
    work = common_dtype("histogram", linear.convert(points, dtypes.to_inexact(points.dtype)), edges)
    points, limits = linear.convert(points, work), linear.convert(edges, work)
    number = ops.sub(searchsorted(limits, points, "right"), 1)
    last = limits.size - 2
    at_end = ops.eq(points, place(limits[-1], points.shape, work))
    number = ops.select(at_end, full(number.shape, last, number.dtype), number)
    outside = ops.bitwise_or(ops.lt(number, 0), ops.gt(number, last))
    return ops.select(outside, full(number.shape, last + 1, number.dtype), number)


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: bool | None = None) -> tuple[Value, list[Value]]:
    """How many points (rows of `sample`) lie in each box of a grid of bins, and the bins' edges along each axis."""
    points = sample.T if isinstance(sample, Value) or hasattr(sample, "T") else sample
    columns = [linear.reshape(c, (c.size,)) for c in (as_value("histogramdd", p) for p in points)]
    counts = bins if isinstance(bins, (tuple, list)) else [bins] * len(columns)
    ranges = [None] * len(columns) if range is None else range
    if len(counts) != len(columns) or len(ranges) != len(columns):
        raise ValueError(f"histogramdd: {len(columns)} coordinates take as many bins and ranges, or one number "
                         f"of bins.")
    edges = [histogram_bin_edges(c, b, r) for c, b, r in zip(columns, counts, ranges, strict=True)]
    numbers = [_bin_numbers(c, e) for c, e in zip(columns, edges, strict=True)]
    shape = tuple(e.size - 1 for e in edges)
    heavy = full(columns[0].shape, 1, dtypes.default_float()) if weights is None else as_value("histogramdd", weights)
    result = full(shape, 0, heavy.dtype).at[tuple(numbers)].add(heavy, mode="drop")
    if density:
        result = result / sum(result)
        for axis, e in enumerate(edges):
            widths = ops.sub(e[1:], e[:-1])
            result = result / linear.reshape(widths, tuple(widths.size if a == axis else 1 for a in _axes(shape)))
    return result, edges


def _axes(shape: tuple[int, ...]) -> list[int]:
    return [axis for axis, _ in enumerate(shape)]


def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: bool | None = None) -> tuple[Value, Value, Value]:
    """How many points (x, y) lie in each box of a grid of bins, and the edges along x and y."""
    points = [as_value("histogram2d", x), as_value("histogram2d", y)]
    counts = bins if isinstance(bins, (tuple, list)) and len(bins) == 2 else [bins, bins]
    both = slicing.concatenate([linear.reshape(p, (p.size, 1)) for p in to_same_dtype("histogram2d", *points)], 1)
    result, edges = histogramdd(both, list(counts), range, weights, density)
    return result, edges[0], edges[1]


# ---- interpolation --------------------------------------------------------------------------------------------------

def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Value:
    """Linear interpolation at x between the points (xp, fp), xp ascending; fp's ends (or left, right) beyond them."""
    if period is not None:
        raise NotImplementedError("interp: period= is not there; write x % period and extend xp by one period.")
    points, knots, values = to_same_dtype("interp", *[inexact("interp", v) for v in (x, xp, fp)])
    if knots.ndim != 1 or values.shape != knots.shape or knots.size == 0:
        raise ShapeError(f"interp: xp and fp must be equally long vectors with elements, got shapes {knots.shape} and "
                         f"{values.shape}.")
    last = knots.shape[0] - 1
    above = ops.min(ops.max(sorting.searchsorted(knots, points, "right"), min(1, last)), last)
    below = ops.max(ops.sub(above, 1), 0)
    x0, x1, y0, y1 = (take(v, i, mode="promise_in_bounds") for v, i in
                      ((knots, below), (knots, above), (values, below), (values, above)))
    width = ops.sub(x1, x0)
    level = ops.eq(width, 0.0)
    slope = ops.div(ops.sub(points, x0), ops.select(level, full(width.shape, 1, width.dtype), width))
    result = ops.add(y0, ops.mul(slope, ops.sub(y1, y0)))
    low = values[0] if left is None else place(operand("interp", left), (), values.dtype)
    high = values[-1] if right is None else place(operand("interp", right), (), values.dtype)
    result = ops.select(ops.lt(points, place(knots[0], points.shape, knots.dtype)),
                        place(low, points.shape, values.dtype), result)
    return ops.select(ops.gt(points, place(knots[-1], points.shape, knots.dtype)),
                      place(high, points.shape, values.dtype), result)


# ---- sets -----------------------------------------------------------------------------------------------------------

class UniqueAllResult(NamedTuple):
    """The results of `unique_all`."""
    values: Value
    indices: Value
    inverse_indices: Value
    counts: Value


class UniqueCountsResult(NamedTuple):
    """The results of `unique_counts`."""
    values: Value
    counts: Value


class UniqueInverseResult(NamedTuple):
    """The results of `unique_inverse`."""
    values: Value
    inverse_indices: Value


def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
           sorted: bool = True) -> Any:
    """The sorted distinct elements (slices, for an axis), with first positions, the inverse and counts if asked for.

    Inside jit `size` must give the number of results: surplus ones are cut, missing ones are `fill_value` (by default
    the first result), with count 0.
    """
    value = as_value("unique", ar)
    if size is None:
        found = np.unique(known_elements(value, "unique"), return_index, return_inverse, return_counts, axis,
                          equal_nan=equal_nan)
        parts = found if isinstance(found, tuple) else (found,)
        results = [from_numpy(parts[0]), *(from_numpy(part.astype(np.int32)) for part in parts[1:])]
        return results[0] if len(results) == 1 else tuple(results)
    if axis is not None and value.ndim > 1:
        raise NotImplementedError("unique with size= works on flattened arrays (axis=None).")
    return _sized_unique(value, return_index, return_inverse, return_counts, equal_nan,
                         static_int("unique", "size", size), fill_value)


def _sized_unique(x: Value, return_index: bool, return_inverse: bool, return_counts: bool, equal_nan: bool, size: int,
                  fill_value: Any) -> Any:
    """Sort with positions, mark the first of each run, and take the marks' positions."""
    flat = linear.reshape(x, (x.size,))
    if x.size == 0:
        raise ValueError("unique with size= needs an array with elements.")
    ordered, positions = sorting.sort((flat, iota(flat.shape, 0, INT32)), 0)
    same = ops.eq(ordered[1:], ordered[:-1])
    if equal_nan and dtypes.is_float(x.dtype):
        same = ops.bitwise_or(same, ops.bitwise_and(ops.ne(ordered[1:], ordered[1:]),
                                                    ops.ne(ordered[:-1], ordered[:-1])))
    first = slicing.concatenate([full((1,), True, dtypes.bool_), ops.bitwise_not(same)], 0)
    runs, = nonzero(first, size=size, fill_value=x.size)
    beyond = ops.ge(runs, x.size)
    filler = ordered[0] if fill_value is None else place(operand("unique", fill_value), (), x.dtype)
    values = ops.select(beyond, place(filler, (size,), x.dtype), take(ordered, runs, mode="clip"))
    results = [values]
    if return_index:
        results.append(ops.select(beyond, place(positions[0], (size,), INT32), take(positions, runs, mode="clip")))
    if return_inverse:
        run_number = ops.sub(cumsum(linear.convert(first, INT32), 0), 1)
        inverse = full(flat.shape, 0, INT32).at[positions].set(run_number, unique_indices=True,
                                                               mode="promise_in_bounds")
        results.append(linear.reshape(inverse, x.shape))
    if return_counts:
        ends = slicing.concatenate([runs[1:], full((1,), x.size, INT32)], 0)
        if size == 0:
            ends = runs
        results.append(ops.sub(ends, runs))
    return results[0] if len(results) == 1 else tuple(results)


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Value:
    """The sorted distinct elements; every NaN counts by itself."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCountsResult:
    """The sorted distinct elements and how often each occurs."""
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverseResult:
    """The sorted distinct elements and, for each element of x, the number of its own."""
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAllResult:
    """The sorted distinct elements with first positions, inverse and counts."""
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         method: str = "auto") -> Value:
    """Whether each element occurs among the test elements: a binary search in them, sorted."""
    x, tests = to_same_dtype("isin", element, test_elements)
    if tests.size == 0:
        return full(x.shape, invert, dtypes.bool_)
    ordered = sort(linear.reshape(tests, (tests.size,)))
    place_of = ops.min(sorting.searchsorted(ordered, x, "left"), tests.size - 1)
    found = ops.eq(take(ordered, place_of, mode="promise_in_bounds"), x)
    return ops.bitwise_not(found) if invert else found


def _host_set(name: str, function: Any, ar1: Any, ar2: Any) -> Value:
    x, y = to_same_dtype(name, ar1, ar2)
    return from_numpy(function(known_elements(x, name), known_elements(y, name)))


def intersect1d(ar1: Any, ar2: Any) -> Value:
    """The sorted distinct elements that both (concrete) arrays have."""
    return _host_set("intersect1d", np.intersect1d, ar1, ar2)


def setdiff1d(ar1: Any, ar2: Any) -> Value:
    """The sorted distinct elements of ar1 that ar2 lacks (both concrete)."""
    return _host_set("setdiff1d", np.setdiff1d, ar1, ar2)


def setxor1d(ar1: Any, ar2: Any) -> Value:
    """The sorted distinct elements that exactly one of the (concrete) arrays has."""
    return _host_set("setxor1d", np.setxor1d, ar1, ar2)


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Value:
    """The sorted distinct elements of both arrays."""
    x, y = to_same_dtype("union1d", ar1, ar2)
    flat = slicing.concatenate([linear.reshape(x, (x.size,)), linear.reshape(y, (y.size,))], 0)
    return unique(flat, size=size, fill_value=fill_value)

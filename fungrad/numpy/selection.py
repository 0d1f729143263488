"""Choice by element (where, select, choose) and the positions of true elements (nonzero, argwhere, compress, extract).

The number of true elements sets a shape, so the mask must be concrete, or `size=` must give the number; surplus places
take `fill_value`, positions beyond `size` are cut off.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ConcretizationError
from ..ir.value import Value
from ..lax.arguments import one_axis, static_int
from ..lax.conversion import as_value, concrete, operand, place
from ..lax.promotion import broadcast_shape, common_dtype, shape_of, to_common
from ..ops import cumulative, elementwise as ops, linear, sort as sorting
from ..ops.create import full, iota
from ..ops.linear import reduce_sum
from ..ops.slicing import concatenate
from ..runtime.array import from_numpy
from ..trace import Tracer
from .indexing import take
from .logic import truth

INT32 = dtypes.int32


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """x where the condition holds, else y; broadcast and promoted. With the condition alone: `nonzero`.

    >>> import fungrad.numpy as fnp
    >>> fnp.where(fnp.arange(4) < 2, 1.0, 0.0).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("where takes a condition alone, or a condition and two arrays.")
    if size is not None or fill_value is not None:
        raise ValueError("where: size= and fill_value= belong to where(condition) without arrays.")
    chosen = truth("where", condition)
    first, second = operand("where", x), operand("where", y)
    dtype = common_dtype("where", first, second)
    shape = broadcast_shape("where", chosen.shape, shape_of(first), shape_of(second))
    return ops.select(place(chosen, shape, dtypes.bool_), place(first, shape, dtype), place(second, shape, dtype))


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Value:
    """The choice of the first condition that holds at each element, else `default`."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ValueError(f"select: {len(condlist)} conditions and {len(choicelist)} choices; give equally many, at "
                         f"least one.")
    *choices, result = to_common("select", *choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        result = where(condition, choice, result)
    return result


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Value:
    """Each function (or number) of `x` where its condition holds; of several, the last; a further function elsewhere.

    Every function sees all of x, and the results are chosen from.
    """
    value = as_value("piecewise", x)
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) or getattr(condlist, "ndim",
                                                                                  0) > value.ndim else [condlist]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ValueError(f"piecewise: {len(conditions)} conditions take as many functions or one more, got "
                         f"{len(functions)}.")
    otherwise = functions.pop() if len(functions) > len(conditions) else 0
    result = linear.convert(place(as_value("piecewise", _applied(otherwise, value, args, kw)), value.shape,
                                  value.dtype),
                            value.dtype)
    for condition, function in zip(conditions, functions, strict=True):
        result = linear.convert(where(condition, _applied(function, value, args, kw), result), value.dtype)
    return result


def _applied(function: Any, x: Value, args: Any, kw: Any) -> Any:
    return function(x, *args, **kw) if isinstance(function, Callable) else function


def choose(a: Any, choices: Any, out: None = None, mode: str = "clip") -> Value:
    """choices[a] element by element: `a` numbers the array from which each element comes (mode "clip" or "wrap")."""
    arrays = [choices[i] for i in range(len(choices))]
    number = as_value("choose", a)
    count = len(arrays)
    if mode not in ("clip", "wrap"):
        raise ValueError(f"choose: mode must be 'clip' or 'wrap', got {mode!r}; compiled code cannot raise.")
    placed = to_common("choose", *arrays)
    shape = broadcast_shape("choose", number.shape, placed[0].shape)
    number = place(number if mode == "clip" else number % count, shape, number.dtype)
    result = place(placed[0], shape, placed[0].dtype)
    for i in range(1, count):
        result = ops.select(ops.ge(number, i), place(placed[i], shape, placed[i].dtype), result)
    return result


# ---- positions of true elements -------------------------------------------------------------------------------------

def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Value, ...]:
    """The positions of the elements that differ from 0, in row-major order: one int32 array for each axis.

    Inside jit the number of positions must be given as `size`.

    >>> import fungrad.numpy as fnp
    >>> fnp.nonzero(fnp.array([0, 5, 0, 7]))[0].tolist()
    [1, 3]
    """
    value = as_value("nonzero", a)
    if value.ndim == 0:
        value = linear.reshape(value, (1,))
    fills = _fills("nonzero", fill_value, value.ndim)
    if size is None:
        return tuple(from_numpy(p.astype(np.int32)) for p in np.nonzero(known_elements(value, "nonzero")))
    places, count = _flat_positions(truth("nonzero", value), static_int("nonzero", "size", size))
    present = ops.lt(iota(places.shape, 0, INT32), place(count, places.shape, INT32))
    result, rest = [], places
    for extent, fill in reversed(list(zip(value.shape, fills, strict=True))):
        steps = full(rest.shape, max(1, extent), INT32)
        position = ops.rem(rest, steps)
        rest = ops.div(rest, steps)
        filler = place(operand("nonzero", fill), position.shape, INT32)
        result.append(ops.select(present, position, filler))
    return tuple(reversed(result))


def _fills(name: str, fill_value: Any, rank: int) -> list[Any]:
    if fill_value is None:
        return [0] * rank
    if isinstance(fill_value, (tuple, list)):
        if len(fill_value) != rank:
            raise ValueError(f"{name}: fill_value needs one number, or one for each of {rank} axes; got "
                             f"{fill_value!r}.")
        return list(fill_value)
    return [fill_value] * rank


def known_elements(x: Value, name: str) -> np.ndarray:
    """The elements of a concrete array; for a traced one an error that names size=."""
    if isinstance(x, Tracer) and x.concrete() is None:
        raise ConcretizationError(f"{name}: the shape of the result depends on the elements of a traced "
                                  f"{x.type}. Give size=, "
                                  f"the number of elements of the result, or write where(mask, x, other).")
    return concrete(x, name)


def _flat_positions(mask: Value, size: int) -> tuple[Value, Value]:
    """The row-major positions of the first `size` true elements (the number of elements where there are fewer), and how
    many there are: the k-th is where the running count first reaches k.
    """
    flat = linear.reshape(mask, (mask.size,))
    if mask.size == 0:
        return full((size,), 0, INT32), full((), 0, INT32)
    counts = cumulative.cumsum(linear.convert(flat, INT32), 0)
    wanted = ops.add(iota((size,), 0, INT32), 1)
    found = sorting.searchsorted(counts, wanted, "left")
    return ops.min(linear.convert(found, INT32), max(0, mask.size - 1)), reduce_sum(linear.convert(flat, INT32), (0,))


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Value:
    """`nonzero` of the flattened array."""
    value = as_value("flatnonzero", a)
    return nonzero(linear.reshape(value, (value.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Value:
    """The positions of the elements that differ from 0, one row each."""
    value = as_value("argwhere", a)
    if value.ndim == 0:
        count = nonzero(linear.reshape(value, (1,)), size=size)[0].shape[0]
        return full((count, 0), 0, INT32)
    found = nonzero(value, size=size, fill_value=fill_value)
    columns = [linear.reshape(f, (*f.shape, 1)) for f in found]
    return columns[0] if len(columns) == 1 else concatenate(columns, 1)


def compress(condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0,
             out: None = None) -> Value:
    """The slices of `a` along an axis (elements of the flattened array for None) at which the condition holds."""
    value, mask = as_value("compress", a), truth("compress", condition)
    if axis is None:
        value, axis = linear.reshape(value, (value.size,)), 0
    number = one_axis("compress", axis, value.shape)
    if mask.ndim != 1 or mask.shape[0] > value.shape[number]:
        raise ValueError(f"compress: the condition, of shape {mask.shape}, must be a vector that is not longer "
                         f"than axis {number} of the array of shape {value.shape}.")
    if size is None:
        return take(value, from_numpy(np.flatnonzero(known_elements(mask, "compress")).astype(np.int32)), number)
    positions = flatnonzero(mask, size=size, fill_value=value.shape[number])
    return take(value, positions, number, mode="fill", fill_value=fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Value:
    """The elements at which the condition holds, as a vector."""
    mask = truth("extract", condition)
    return compress(linear.reshape(mask, (mask.size,)), arr, size=size, fill_value=fill_value)


# ---- functions along axes -------------------------------------------------------------------------------------------

def unravel_index(indices: Any, shape: Any) -> tuple[Value, ...]:
    """The index tuple of row-major positions in an array of this shape; positions outside are moved inside."""
    extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    rest = as_value("unravel_index", indices)
    size = int(np.prod(extents, dtype=np.int64))
    rest = ops.select(ops.lt(rest, 0), ops.add(rest, size), rest)
    rest = ops.min(ops.max(rest, 0), max(0, size - 1))
    result = []
    for extent in reversed(extents):
        steps = full(rest.shape, max(1, extent), rest.dtype)
        result.append(ops.rem(rest, steps))
        rest = ops.div(rest, steps)
    return tuple(reversed(result))


def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], mode: str = "clip", order: str = "C") -> Value:
    """The row-major positions of index tuples in an array of shape `dims` (mode "clip" or "wrap")."""
    if mode not in ("clip", "wrap") or order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: mode must be 'clip' or 'wrap' and order 'C' or 'F', got {mode!r}, "
                         f"{order!r}.")
    parts = to_common("ravel_multi_index", *multi_index)
    pairs = list(zip(parts, dims, strict=True))
    result: Value | None = None
    for part, extent in pairs if order == "C" else reversed(pairs):
        inside = part % extent if mode == "wrap" else ops.min(ops.max(part, 0), extent - 1)
        result = inside if result is None else ops.add(ops.mul(result, extent), inside)
    assert result is not None
    return result


def ix_(*args: Any) -> tuple[Value, ...]:
    """Index arrays for the open grid of vectors: x[ix_(rows, columns)] takes a rectangle."""
    result = []
    for axis, sequence in enumerate(args):
        value = as_value("ix_", sequence)
        if value.ndim != 1:
            raise ValueError(f"ix_ takes vectors, got shape {value.shape}.")
        if value.dtype == dtypes.bool_:
            value = nonzero(value)[0]
        result.append(linear.reshape(value, tuple(value.shape[0] if a == axis else 1 for a in range(len(args)))))
    return tuple(result)


def apply_over_axes(func: Any, a: Any, axes: Any) -> Value:
    """`func(a, axis)` for one axis after another; results that lost their axis get it back with extent 1."""
    value = as_value("apply_over_axes", a)
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        number = one_axis("apply_over_axes", axis, value.shape)
        result = func(value, number)
        if result.ndim == value.ndim - 1:
            result = linear.reshape(result, (*result.shape[:number], 1, *result.shape[number:]))
        value = result
    return value


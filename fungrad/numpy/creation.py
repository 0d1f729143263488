"""Making arrays: array, asarray, zeros, ones, full, arange, linspace, eye, tri, meshgrid and their kin.

A shape may be an integer or a sequence of them. The default element type is the default float (int32 for arange of
integers); see `fungrad.dtypes`.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ConcretizationError, DTypeError, ShapeError
from ..ir.value import Value
from ..lax.arguments import static_int, static_shape
from ..lax.conversion import as_value, is_python_scalar, of_numpy, of_sequence, operand, place
from ..lax.promotion import broadcast_shape, check_fits, requested, to_common_inexact
from ..ops import elementwise as ops
from ..ops.create import full as filled, iota
from ..ops.linear import broadcast, convert, reshape
from ..ops.slicing import concatenate
from ..runtime.array import Array, from_numpy
from ..trace import Tracer, is_base

Shape = tuple[int, ...]


# ---- from data ------------------------------------------------------------------------------------------------------

def array(object: Any, dtype: Any = None, copy: bool = True, order: str | None = "K", ndmin: int = 0) -> Value:
    """An array of a number, a NumPy array, an array or a (nested) list of these.

    Python numbers take the default types (int32, float32), NumPy arrays keep theirs. Arrays are immutable, so `copy`
    has nothing to do; `order` other than C and K is refused.

    >>> import fungrad.numpy as fnp
    >>> fnp.array([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if order not in (None, "K", "C", "A"):
        raise NotImplementedError(f"array: order={order!r} is not supported; arrays are stored row by row. Use .T.")
    kind = requested("array", dtype)
    value = _array(object, kind)
    if copy and value is object:
        value = _copied(value)
    if value.ndim < ndmin:
        value = reshape(value, (1,) * (ndmin - value.ndim) + value.shape)
    return value


def _array(object: Any, kind: np.dtype | None) -> Value:
    if isinstance(object, Value):
        return object if kind is None else convert(object, kind)
    if isinstance(object, (list, tuple, range)):
        return of_sequence("array", object, kind)
    if is_python_scalar(object):
        kind = kind or dtypes.of_scalar(object)
        check_fits("array", object, kind)
        return filled((), object, kind)
    if isinstance(object, np.ndarray) and kind is not None:
        of_numpy("array", object[:0] if object.ndim else object)    # the type is checked before it is converted
        return from_numpy(object.astype(kind))
    value = operand("array", object)
    return value if kind is None else convert(value, kind)


def _copied(x: Value) -> Value:
    """A copy of a concrete array's memory; traced values are never donated, so they are their own copies."""
    return from_numpy(np.asarray(x), x.device) if isinstance(x, Array) and is_base() else x


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None) -> Value:
    """`a` as an array; see `array`. Copies an array only if `copy` is true."""
    return array(a, dtype=dtype, order=order, copy=bool(copy))


def copy(a: Any, order: str | None = None) -> Value:
    """A copy of an array, which outlives a donation of it."""
    return _copied(as_value("copy", a))


def astype(x: Any, dtype: Any, /, *, copy: bool = False) -> Value:
    """`x` in another element type: floats to integers truncate towards 0 and saturate, NaN gives 0."""
    return convert(as_value("astype", x), dtypes.canonical(dtype))


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Value:
    """An array of the elements in a bytes-like object."""
    return from_numpy(np.frombuffer(buffer, dtypes.canonical(dtype), count, offset))


def fromiter(iter: Any, dtype: Any, count: int = -1) -> Value:
    """A one-dimensional array of an iterable's numbers."""
    return from_numpy(np.fromiter(iter, dtypes.canonical(dtype), count))


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Value:
    """`function` of one index array for each axis of `shape`."""
    return as_value("fromfunction", function(*indices(static_shape("fromfunction", shape), dtype=dtype), **kwargs))


# ---- filled ---------------------------------------------------------------------------------------------------------

def _kind(name: str, dtype: Any) -> np.dtype:
    return requested(name, dtype) or dtypes.default_float()


def zeros(shape: Any, dtype: Any = None) -> Value:
    """An array of zeros."""
    return filled(static_shape("zeros", shape), 0, _kind("zeros", dtype))


def ones(shape: Any, dtype: Any = None) -> Value:
    """An array of ones."""
    return filled(static_shape("ones", shape), 1, _kind("ones", dtype))


def empty(shape: Any, dtype: Any = None) -> Value:
    """An array whose elements you do not care about; they are zeros."""
    return filled(static_shape("empty", shape), 0, _kind("empty", dtype))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Value:
    """An array whose elements all are `fill_value`, which may be an array that broadcasts to `shape`."""
    extents = static_shape("full", shape)
    value = operand("full", fill_value)
    if is_python_scalar(value):
        kind = requested("full", dtype) or dtypes.of_scalar(value)
        check_fits("full", value, kind)
        return filled(extents, value, kind)
    if broadcast_shape("full", value.shape, extents) != extents:
        raise ShapeError(f"full: fill_value of shape {value.shape} does not broadcast to {extents}.")
    return place(value, extents, requested("full", dtype) or value.dtype)


def _like(name: str, a: Any, dtype: Any, shape: Any) -> tuple[Shape, np.dtype]:
    kind = requested(name, dtype)
    if hasattr(a, "shape") and hasattr(a, "dtype"):     # also a ShapeDtypeStruct
        found_shape, found_kind = tuple(a.shape), dtypes.canonical(a.dtype)
    else:
        value = as_value(name, a)
        found_shape, found_kind = value.shape, value.dtype
    return found_shape if shape is None else static_shape(name, shape), kind or found_kind


def zeros_like(a: Any, dtype: Any = None, shape: Any = None) -> Value:
    """Zeros of a's shape and type."""
    extents, kind = _like("zeros_like", a, dtype, shape)
    return filled(extents, 0, kind)


def ones_like(a: Any, dtype: Any = None, shape: Any = None) -> Value:
    """Ones of a's shape and type."""
    extents, kind = _like("ones_like", a, dtype, shape)
    return filled(extents, 1, kind)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None) -> Value:
    """Zeros of the prototype's shape and type."""
    extents, kind = _like("empty_like", prototype, dtype, shape)
    return filled(extents, 0, kind)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Value:
    """`fill_value` in an array of a's shape and type."""
    extents, kind = _like("full_like", a, dtype, shape)
    return full(extents, fill_value, kind)


# ---- ranges ---------------------------------------------------------------------------------------------------------

def _static_number(name: str, what: str, x: Any) -> int | float:
    if isinstance(x, Tracer):
        raise ConcretizationError(f"{name}: {what} must be known while tracing, since it sets the result's shape, but "
                                  f"is a traced {x.type}. Mark it as static, or build iota-like ranges with a fixed "
                                  f"length.")
    if isinstance(x, Value):
        x = np.asarray(x)
    if isinstance(x, (np.ndarray, np.generic)):
        if np.ndim(x):
            raise TypeError(f"{name}: {what} must be a number, got an array of shape {np.shape(x)}")
        x = x.item()
    if not is_python_scalar(x):
        raise TypeError(f"{name}: {what} must be a number, got {type(x).__name__}: {x!r}")
    return x


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Value:
    """start, start + step, ... below stop (0, 1, ... below start, if it is the only argument).

    The type is int32 for integers (wider where they do not fit) and the default float otherwise.

    >>> import fungrad.numpy as fnp
    >>> fnp.arange(2, 10, 3).shape
    (3,)
    """
    given = [x for x in (start, stop, step) if x is not None]
    kind = requested("arange", dtype) or _range_kind(given)
    first, last = (0, start) if stop is None else (start, stop)
    first, last = _static_number("arange", "start", first), _static_number("arange", "stop", last)
    by = 1 if step is None else _static_number("arange", "step", step)
    if by == 0:
        raise ValueError("arange: step must not be 0.")
    count = max(0, math.ceil((last - first) / by))
    if kind == dtypes.bool_ and count > 2:
        raise DTypeError("arange: no range of bool has more than two elements.")
    if first == 0 and by == 1:
        return iota((count,), 0, kind)
    if all(isinstance(x, int) for x in (first, by)) and dtypes.is_integer(kind):
        steps = iota((count,), 0, kind)
        scaled = steps if by == 1 else ops.mul(steps, filled((count,), by, kind))
        return scaled if first == 0 else ops.add(scaled, filled((count,), first, kind))
    return from_numpy((first + by * np.arange(count, dtype=np.float64)).astype(kind))


def _range_kind(given: Sequence[Any]) -> np.dtype:
    numbers = [_static_number("arange", "each bound", x) for x in given]
    strong = tuple(x.dtype for x in given if isinstance(x, (np.ndarray, Value)) or
                   (isinstance(x, np.generic) and not is_python_scalar(x)))
    weak = tuple(dtypes.of_scalar(n) for n in numbers)
    kind = dtypes.promote_with_scalars(strong, weak)
    return dtypes.int32 if kind == dtypes.bool_ else kind


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0) -> Any:
    """`num` evenly spaced numbers from start to stop, both exact (without stop if not endpoint).

    start and stop may be arrays, which broadcast; the numbers then run along a new axis `axis` of the result.

    >>> import fungrad.numpy as fnp
    >>> fnp.linspace(0, 1, 5).shape
    (5,)
    """
    count = static_int("linspace", "num", num)
    if count < 0:
        raise ValueError(f"linspace: num must not be negative, got {count}.")
    kind = requested("linspace", dtype)
    if all(is_python_scalar(x) for x in (start, stop)):
        result, step = _host_linspace(float(start), float(stop), count, endpoint, kind)
        return (result, step) if retstep else result
    first, last = to_common_inexact("linspace", start, stop)
    work, parts = first.dtype, max(1, count - 1 if endpoint else count)
    shape = (count, *first.shape)
    step = ops.mul(ops.sub(last, first), 1.0 / parts)
    fraction = ops.mul(convert(iota(shape, 0, dtypes.int32), work), 1.0 / parts)
    lower, upper = (place(x, shape, work) for x in (first, last))
    # A mean with weights, exact at both ends, instead of start + i * step, which is not.
    result = ops.add(ops.mul(lower, ops.sub(1.0, fraction)), ops.mul(upper, fraction))
    if endpoint and count > 1:
        at_end = ops.eq(iota(shape, 0, dtypes.int32), count - 1)
        result = ops.select(at_end, upper, result)
    result = _move_first_axis(_to_integers(result, kind) if kind else result, axis)
    return (result, step) if retstep else result


def _host_linspace(start: float, stop: float, count: int, endpoint: bool, kind: np.dtype | None) -> tuple[Value, Value]:
    result, step = np.linspace(start, stop, count, endpoint=endpoint, retstep=True)
    final = kind or dtypes.default_float()
    if dtypes.is_integer(final):
        result = np.floor(result)
    return from_numpy(result.astype(final)), filled((), float(step), dtypes.default_float())


def _to_integers(x: Value, kind: np.dtype) -> Value:
    return convert(ops.floor(x) if dtypes.is_integer(kind) else x, kind)


def _move_first_axis(x: Value, axis: int) -> Value:
    from_first = axis % x.ndim if x.ndim else 0
    order = list(range(1, x.ndim))
    order.insert(from_first, 0)
    return x.transpose(*order) if from_first else x


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Value:
    """base ** linspace(start, stop, num)."""
    kind = requested("logspace", dtype)
    if all(is_python_scalar(x) for x in (start, stop, base)):
        powers = np.logspace(start, stop, num, endpoint=endpoint, base=base)
        return from_numpy(powers.astype(kind or dtypes.default_float()))
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    powers, bases = to_common_inexact("logspace", exponents, base)
    result = ops.pow(bases, powers)
    return _to_integers(result, kind) if kind else result


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Value:
    """`num` numbers from start to stop, each a fixed multiple of the one before; both ends are exact."""
    kind = requested("geomspace", dtype)
    if all(is_python_scalar(x) for x in (start, stop)):
        return from_numpy(np.geomspace(start, stop, num, endpoint=endpoint).astype(kind or dtypes.default_float()))
    first, last = to_common_inexact("geomspace", start, stop)
    signs = ops.sign(first)
    exponents = linspace(ops.log(ops.abs(first)), ops.log(ops.abs(last)), num, endpoint)
    result = ops.mul(place(signs, exponents.shape, exponents.dtype), ops.exp(exponents))
    number = iota(result.shape, 0, dtypes.int32)
    result = ops.select(ops.eq(number, 0), place(first, result.shape, result.dtype), result)
    if endpoint and num > 1:
        result = ops.select(ops.eq(number, num - 1), place(last, result.shape, result.dtype), result)
    return _move_first_axis(_to_integers(result, kind) if kind else result, axis)


# ---- matrices and grids ---------------------------------------------------------------------------------------------

def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Value:
    """An N x M matrix with ones on the k-th diagonal and zeros elsewhere."""
    rows = static_int("eye", "N", N)
    shape = static_shape("eye", (rows, rows if M is None else M))
    on_diagonal = ops.eq(_shifted_rows(shape, static_int("eye", "k", k)), iota(shape, 1, dtypes.int32))
    return convert(on_diagonal, _kind("eye", dtype))


def identity(n: int, dtype: Any = None) -> Value:
    """The n x n identity matrix."""
    return eye(n, dtype=dtype)


def _shifted_rows(shape: Shape, k: int) -> Value:
    rows = iota(shape, len(shape) - 2, dtypes.int32)
    return ops.add(rows, k) if k else rows


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Value:
    """An N x M matrix with ones at and below the k-th diagonal."""
    rows = static_int("tri", "N", N)
    shape = static_shape("tri", (rows, rows if M is None else M))
    return convert(_lower_triangle(shape, static_int("tri", "k", k)), _kind("tri", dtype))


def _lower_triangle(shape: Shape, k: int) -> Value:
    return ops.ge(_shifted_rows(shape, k), iota(shape, len(shape) - 1, dtypes.int32))


def _matrix(name: str, m: Any) -> Value:
    value = as_value(name, m)
    if value.ndim < 2:
        raise ShapeError(f"{name} takes an array with at least two axes, got shape {value.shape}. Use {name} on "
                         f"x[None, :] or build the matrix with diag.")
    return value


def tril(m: Any, k: int = 0) -> Value:
    """The lower triangles of matrices in the last two axes: elements above the k-th diagonal become 0."""
    value = _matrix("tril", m)
    return ops.select(_lower_triangle(value.shape, static_int("tril", "k", k)), value,
                      filled(value.shape, 0, value.dtype))


def triu(m: Any, k: int = 0) -> Value:
    """The upper triangles of matrices in the last two axes: elements below the k-th diagonal become 0."""
    value = _matrix("triu", m)
    below = _lower_triangle(value.shape, static_int("triu", "k", k) - 1)
    return ops.select(below, filled(value.shape, 0, value.dtype), value)


def tri_indices(name: str, n: int, k: int, m: int | None) -> tuple[Value, Value]:
    """The row and column numbers of a triangle, computed on the host."""
    rows, columns = getattr(np, name)(n, k, n if m is None else m)
    return from_numpy(rows.astype(np.int32)), from_numpy(columns.astype(np.int32))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Value, Value]:
    """The row and column numbers of the lower triangle of an n x m matrix."""
    return tri_indices("tril_indices", n, k, m)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Value, Value]:
    """The row and column numbers of the upper triangle of an n x m matrix."""
    return tri_indices("triu_indices", n, k, m)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Value, Value]:
    """`tril_indices` for the shape of a matrix."""
    rows, columns = as_value("tril_indices_from", arr).shape
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Value, Value]:
    """`triu_indices` for the shape of a matrix."""
    rows, columns = as_value("triu_indices_from", arr).shape
    return triu_indices(rows, k, columns)


def diag_indices(n: int, ndim: int = 2) -> tuple[Value, ...]:
    """The index arrays of the main diagonal of an array with `ndim` axes of extent n."""
    return (iota((n,), 0, dtypes.int32),) * ndim


def diag_indices_from(arr: Any) -> tuple[Value, ...]:
    """`diag_indices` for an array whose axes have equal extents."""
    value = as_value("diag_indices_from", arr)
    if value.ndim < 2 or len(set(value.shape)) != 1:
        raise ShapeError(f"diag_indices_from takes an array with equal extents and two or more axes, got "
                         f"{value.shape}.")
    return diag_indices(value.shape[0], value.ndim)


def diag(v: Any, k: int = 0) -> Value:
    """The k-th diagonal of a matrix, or the matrix with the vector `v` on its k-th diagonal.

    >>> import fungrad.numpy as fnp
    >>> fnp.diag(fnp.ones(2), k=1).shape
    (3, 3)
    """
    value, offset = as_value("diag", v), static_int("diag", "k", k)
    if value.ndim == 2:
        return diagonal(value, offset)
    if value.ndim != 1:
        raise ShapeError(f"diag takes a vector or a matrix, got shape {value.shape}. Use diagonal for more axes.")
    extent = value.shape[0] + abs(offset)
    shape = (extent, extent)
    on_diagonal = ops.eq(_shifted_rows(shape, offset), iota(shape, 1, dtypes.int32))
    if offset:
        rest = filled((abs(offset),), 0, value.dtype)
        value = concatenate([rest, value] if offset > 0 else [value, rest], 0)
    return ops.select(on_diagonal, broadcast(value, shape, (1,)), filled(shape, 0, value.dtype))


def diagflat(v: Any, k: int = 0) -> Value:
    """The matrix with the flattened `v` on its k-th diagonal."""
    value = as_value("diagflat", v)
    return diag(reshape(value, (value.size,)), k)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The diagonal a[..., i, i + offset, ...] of two axes, as the last axis of the result.

    A diagonal is every (columns + 1)-th element of the flattened matrix, so it costs a strided slice.
    """
    value, shift = as_value("diagonal", a), static_int("diagonal", "offset", offset)
    if value.ndim < 2:
        raise ShapeError(f"diagonal takes an array with at least two axes, got shape {value.shape}.")
    first, second = axis1 % value.ndim, axis2 % value.ndim
    if first == second:
        raise ValueError(f"diagonal: axis1 and axis2 must differ, both are axis {first}.")
    rest = [axis for axis in range(value.ndim) if axis not in (first, second)]
    value = value.transpose(*rest, first, second)
    *outer, rows, columns = value.shape
    count = max(0, min(rows + min(shift, 0), columns - max(shift, 0)))
    flat = reshape(value, (*outer, rows * columns))
    start = shift if shift >= 0 else -shift * columns
    if count == 0:
        return filled((*outer, 0), 0, value.dtype)
    stop = start + (count - 1) * (columns + 1) + 1
    return flat[..., start:stop:columns + 1]


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Value:
    """A copy of `a` with `val` on the main diagonal. Write inplace=False: arrays cannot be changed in place."""
    if inplace:
        raise ValueError("fill_diagonal: arrays cannot be changed in place; write fill_diagonal(a, val, "
                         "inplace=False) and use the result.")
    value = as_value("fill_diagonal", a)
    if value.ndim != 2 or wrap:
        raise NotImplementedError("fill_diagonal is there for matrices and wrap=False.")
    count = min(value.shape)
    where = diag_indices(count)
    return value.at[where].set(as_value("fill_diagonal", val).astype(value.dtype))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Value]:
    """Coordinate arrays of a grid from coordinate vectors, with "xy" (second axis first) or "ij" order of axes.

    >>> import fungrad.numpy as fnp
    >>> [x.shape for x in fnp.meshgrid(fnp.arange(3), fnp.arange(2))]
    [(2, 3), (2, 3)]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}.")
    vectors = [as_value("meshgrid", x) for x in xi]
    vectors = [reshape(v, (v.size,)) for v in vectors]
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        places[:2] = [1, 0]
    shape = [1] * len(vectors)
    for vector, where in zip(vectors, places, strict=True):
        shape[where] = vector.shape[0]
    grids = []
    for vector, where in zip(vectors, places, strict=True):
        extents = tuple(e if axis == where or not sparse else 1 for axis, e in enumerate(shape))
        grids.append(broadcast(vector, extents, (where,)))
    return grids


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The index of every element of an array of this shape, one array for each axis (stacked unless sparse)."""
    shape = static_shape("indices", dimensions)
    kind = requested("indices", dtype) or dtypes.int32
    if sparse:
        return tuple(iota(tuple(e if a == axis else 1 for a, e in enumerate(shape)), axis, kind)
                     for axis in range(len(shape)))
    rows = [reshape(iota(shape, axis, kind), (1, *shape)) for axis in range(len(shape))]
    return concatenate(rows, 0) if rows else filled((0,), 0, kind)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Value:
    """The Vandermonde matrix: powers N-1, ..., 1, 0 of the vector x as columns."""
    value = as_value("vander", x)
    if value.ndim != 1:
        raise ShapeError(f"vander takes a vector, got shape {value.shape}.")
    count = value.shape[0] if N is None else static_int("vander", "N", N)
    powers = range(count) if increasing else range(count - 1, -1, -1)
    columns = [reshape(ops.integer_pow(value, p), (*value.shape, 1)) for p in powers]
    return concatenate(columns, 1) if columns else filled((*value.shape, 0), 0, value.dtype)


# ---- windows --------------------------------------------------------------------------------------------------------

def _window(name: str, M: int, *rest: float) -> Value:
    points = static_int(name, "M", M)
    return from_numpy(getattr(np, name)(points, *rest).astype(dtypes.default_float()))


def bartlett(M: int) -> Value:
    """The triangular Bartlett window of M points."""
    return _window("bartlett", M)


def blackman(M: int) -> Value:
    """The Blackman window of M points."""
    return _window("blackman", M)


def hamming(M: int) -> Value:
    """The Hamming window of M points."""
    return _window("hamming", M)


def hanning(M: int) -> Value:
    """The Hann window of M points."""
    return _window("hanning", M)


def kaiser(M: int, beta: float) -> Value:
    """The Kaiser window of M points."""
    return _window("kaiser", M, beta)


# ---- grids by index -------------------------------------------------------------------------------------------------

class _Grid:
    """`mgrid[0:2, 0:3]` and `ogrid[...]`: the coordinates of a grid from slices (a step such as 5j counts points)."""

    __slots__ = ("sparse",)

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        single = isinstance(key, slice)
        ranges = [_from_slice(part) for part in ((key,) if single else key)]
        if single:
            return ranges[0]
        kind = dtypes.promote(*[r.dtype for r in ranges])
        grids = meshgrid(*[convert(r, kind) for r in ranges], indexing="ij", sparse=self.sparse)
        return tuple(grids) if self.sparse else concatenate([reshape(g, (1, *g.shape)) for g in grids], 0)


class _Joined:
    """`r_[1:4, 0, x]` and `c_[x, y]`: ranges, numbers and arrays joined (as columns for c_)."""

    __slots__ = ("columns",)

    def __init__(self, columns: bool) -> None:
        self.columns = columns

    def __getitem__(self, key: Any) -> Value:
        parts = key if isinstance(key, tuple) else (key,)
        values = [_from_slice(p) if isinstance(p, slice) else as_value("r_", p) for p in parts]
        values = [reshape(v, (1,)) if v.ndim == 0 else v for v in values]
        if self.columns:
            values = [reshape(v, (v.size, 1)) if v.ndim == 1 else v for v in values]
        kind = dtypes.promote(*[v.dtype for v in values])
        values = [convert(v, kind) for v in values]
        return values[0] if len(values) == 1 else concatenate(values, values[0].ndim - 1)


def _from_slice(part: slice) -> Value:
    """The numbers that a slice names; a step of nj is n points, both ends included."""
    start, step = part.start or 0, 1 if part.step is None else part.step
    if isinstance(step, complex):
        return linspace(start, part.stop, int(abs(step)))
    return arange(start, part.stop, step)


mgrid, ogrid = _Grid(False), _Grid(True)
r_, c_ = _Joined(False), _Joined(True)


def mask_indices(n: int, mask_func: Any, k: int = 0, *, size: int | None = None) -> tuple[Value, ...]:
    """The positions in an n x n matrix that `mask_func(ones, k)`, such as triu, keeps."""
    return mask_func(ones((n, n)), k).nonzero(size=size)

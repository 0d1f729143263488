"""Quantiles over axes by sorting (median, percentile, quantile), and statistics of several variables (cov,
corrcoef).
"""
from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..ir.value import Value
from ..lax.arguments import one_axis
from ..lax.conversion import as_value, is_python_scalar, operand, place
from ..lax.promotion import inexact, to_same_dtype
from ..ops import elementwise as ops, linear, slicing
from ..ops.create import full
from .indexing import take_along_axis
from .manipulation import moveaxis
from .reductions import any, sum
from .sorting import sort

INT32 = dtypes.int32


_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def quantile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: bool = False, *, weights: None = None) -> Value:
    """The q-quantiles (0 <= q <= 1) over axes, by sorting; methods linear, lower, higher, nearest, midpoint.

    An array q gives its axes in front of the result's. NaN in the data gives NaN.
    """
    return _quantile("quantile", a, q, axis, method, keepdims, weights, False)


def nanquantile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
                method: str = "linear", keepdims: bool = False, *, weights: None = None) -> Value:
    """`quantile` of the elements that are no NaN."""
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights, True)


def percentile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
               method: str = "linear", keepdims: bool = False, *, weights: None = None) -> Value:
    """`quantile` with q from 0 to 100."""
    return _quantile("percentile", a, _hundredth(q), axis, method, keepdims, weights, False)


def nanpercentile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: bool = False, *, weights: None = None) -> Value:
    """`nanquantile` with q from 0 to 100."""
    return _quantile("nanpercentile", a, _hundredth(q), axis, method, keepdims, weights, True)


def _hundredth(q: Any) -> Any:
    return q / 100 if is_python_scalar(q) else inexact("percentile", q) / 100.0


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Value:
    """The middle element over axes (the mean of the two middle ones); NaN if there is a NaN."""
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, None, False)


def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
              keepdims: bool = False) -> Value:
    """`median` of the elements that are no NaN."""
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, None, True)


def _quantile(name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any, skip_nan: bool) -> Value:
    if method not in _METHODS or weights is not None:
        raise NotImplementedError(f"{name}: method must be one of {', '.join(_METHODS)}, without weights; got "
                                  f"{method!r}.")
    value = inexact(name, a)
    rows, kept = _reduced_last(name, value, axis)
    if rows.shape[-1] == 0:
        raise ValueError(f"{name} of no elements: the array of shape {value.shape} is empty along axis {axis}.")
    wide = dtypes.accumulation(rows.dtype)
    exact = dtypes.float64 if rows.shape[-1] > 2**22 else wide      # positions beyond 2**24 are not exact in float32
    fractions = place(operand(name, q), shape_of_q(q), exact)
    ordered = linear.convert(sort(rows), wide)
    has_nan = ops.ne(ordered, ordered)
    count = sum(linear.convert(ops.bitwise_not(has_nan), INT32), -1)
    size = rows.shape[-1]
    last = ops.max(ops.sub(count, 1), 0) if skip_nan else full(count.shape, size - 1, INT32)
    shape = (*fractions.shape, *last.shape)
    where_ = linear.broadcast(fractions, shape, tuple(range(fractions.ndim)))
    highest = place(linear.convert(last, exact), shape, exact)
    position = ops.mul(where_, highest)
    result = _between(ordered, position, highest, method, shape)
    bad = place(ops.eq(count, 0) if skip_nan else any(has_nan, -1), shape, dtypes.bool_)
    result = linear.convert(ops.select(bad, full(shape, math.nan, wide), result), rows.dtype)
    return linear.reshape(result, (*fractions.shape, *kept)) if keepdims else result


def shape_of_q(q: Any) -> tuple[int, ...]:
    """The shape of the fractions asked for."""
    return () if is_python_scalar(q) else as_value("quantile", q).shape


def _reduced_last(name: str, x: Value, axis: Any) -> tuple[Value, tuple[int, ...]]:
    """`x` with the reduced axes as its last one, and the shape of a result that keeps them."""
    axes = range(x.ndim) if axis is None else sorted(
        one_axis(name, a, x.shape) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    rest = [a for a in range(x.ndim) if a not in axes]
    moved = linear.transpose(x, (*rest, *axes))
    extents = tuple(x.shape[a] for a in rest)
    flat = linear.reshape(moved, (*extents, math.prod(x.shape[a] for a in axes)))
    return flat, tuple(1 if a in axes else e for a, e in enumerate(x.shape))


def _between(ordered: Value, position: Value, highest: Value, method: str, shape: tuple[int, ...]) -> Value:
    """The elements of sorted rows at fractional positions."""
    low, high = ops.floor(position), ops.ceil(position)
    if method in ("lower", "higher", "nearest"):
        return _at(ordered, {"lower": low, "higher": high, "nearest": ops.round(position)}[method], highest)
    below, above = _at(ordered, low, highest), _at(ordered, high, highest)
    if method == "midpoint":
        return ops.mul(ops.add(below, above), 0.5)
    fraction = linear.convert(ops.sub(position, low), below.dtype)
    equal = ops.eq(below, above)       # also where both are one infinity, whose difference is NaN
    return ops.select(equal, below, ops.add(below, ops.mul(fraction, ops.sub(above, below))))


def _at(ordered: Value, position: Value, highest: Value) -> Value:
    """ordered[..., position], the leading axes of position beyond the rows' being those of q."""
    number = linear.convert(ops.min(ops.max(position, 0.0), highest), INT32)
    extra = number.ndim - (ordered.ndim - 1)
    extents = number.shape[extra:]
    flat = linear.reshape(number, (math.prod(number.shape[:extra]), *extents))
    columns = moveaxis(flat, 0, -1)
    found = take_along_axis(ordered, columns, -1, mode="promise_in_bounds")
    return linear.reshape(moveaxis(found, -1, 0), number.shape)


# ---- statistics of several variables --------------------------------------------------------------------------------

def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: None = None,
        aweights: None = None, dtype: Any = None) -> Value:
    """The covariance matrix of variables in rows (columns, unless rowvar)."""
    if fweights is not None or aweights is not None:
        raise NotImplementedError("cov: weights are not there.")
    value = inexact("cov", m)
    variables = value if value.ndim == 2 else linear.reshape(value, (1, value.size))
    if not rowvar and value.ndim == 2 and value.shape[0] != 1:
        variables = variables.T
    if y is not None:
        other = inexact("cov", y)
        other = other if other.ndim == 2 else linear.reshape(other, (1, other.size))
        variables = slicing.concatenate(to_same_dtype("cov", variables, other.T if not rowvar and other.shape[0] != 1
                                                      else other), 0)
    count = variables.shape[1]
    divisor = count - ((0 if bias else 1) if ddof is None else ddof)
    centred = variables - variables.mean(1, keepdims=True)
    result = (centred @ centred.T) / max(0.0, float(divisor)) if divisor > 0 else (centred @ centred.T) / 0.0
    return linear.reshape(result, ()) if result.shape == (1, 1) else result


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Value:
    """The matrix of correlation coefficients, between -1 and 1."""
    matrix = cov(x, y, rowvar)
    if matrix.ndim == 0:
        return matrix / matrix
    deviations = ops.sqrt(matrix.diagonal())
    result = matrix / deviations[:, None] / deviations[None, :]
    return ops.min(ops.max(result, -1.0), 1.0)

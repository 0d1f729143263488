"""Reductions: reduce_max, reduce_min, reduce_prod, reduce_and, reduce_or, reduce_xor, argmax, argmin (reduce_sum is in
`linear.py`, beside its transpose). An empty reduction gives the identity; NaN propagates through max and min.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import accumulation, highest, int32, is_float, is_integer, lowest
from ..errors import DTypeError, ShapeError
from ..ir.expr import (
    BOOL,
    Axis,
    Expr,
    Reader,
    axis as axis_expr,
    cast,
    constant,
    operation,
    reduce,
    select as select_expr,
)
from ..ir.primitive import Primitive, Rule, Zero, declare
from ..ir.types import Type, array_type
from ..trace import bind
from .create import full_like
from .cumulative import cumprod, previous
from .elementwise import bitwise_or, div, eq, mul, ne, select
from .elementwise_rows import ANY, BITS, NUMBER, Takes, check
from .linear import broadcast, convert, reduce_sum, reduced_shape, reduction_batch, reduction_index, reshape, transpose
from .rules import NOT_LINEAR, is_zero, move_axis, zero_tangent

Axes = tuple[int, ...]


def _type(name: str, takes: Takes) -> Rule:
    def type_rule(x: Type, *, axes: Axes) -> Type:
        check(name, takes, x.dtype)
        return x.with_shape(reduced_shape(name, x, axes))
    return type_rule


def _reference(function: np.ufunc, identity: Callable[[np.dtype], Any]) -> Rule:
    def reference(x: np.ndarray, *, axes: Axes) -> np.ndarray:
        wide = x.astype(accumulation(x.dtype))
        with np.errstate(all="ignore"):
            return np.asarray(function.reduce(wide, axes, initial=identity(x.dtype), dtype=wide.dtype)).astype(x.dtype)
    return reference


def _lower(combine: str, on_bool: str | None = None) -> Rule:
    """Reduce by `combine` (`on_bool` for bool), in float32 for 16-bit floats."""
    def lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *, axes: Axes) -> Expr:
        (x,) = readers
        inner, loops = reduction_index(index, x.shape, axes)
        wide = accumulation(type.dtype)
        chosen = on_bool if on_bool and type.dtype == BOOL else combine
        return cast(reduce(chosen, cast(x(inner, valid), wide), loops), type.dtype)
    return lower


def _reduction(name: str, takes: Takes, function: np.ufunc, identity: Callable[[np.dtype], Any], combine: str,
               jvp: Rule, doc: str, on_bool: str | None = None) -> Callable[[Any, Axes], Any]:
    """Declare a reduction over `axes` and answer its function."""
    def apply(x: Any, axes: Axes) -> Any:
        return bind(primitive, x, axes=tuple(sorted(axes))) if axes else x
    primitive = declare(Primitive(
        name, _type(name, takes), _reference(function, identity), jvp, NOT_LINEAR, reduction_batch(apply),
        _lower(combine, on_bool), frozenset({"reduction"}), doc))
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc
    return apply


def _kept(rank: int, axes: Axes) -> Axes:
    return tuple(a for a in range(rank) if a not in axes)


def _extremum_jvp(name: str) -> Rule:
    """The mean of the tangents where the extremum is attained (where NaN is, if the result is NaN).

    Counted, summed and divided in the accumulation type: 70,000 equal float16 elements have a count beyond float16.
    """
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[Any, Any]:
        (x,), (tangent,) = primals, tangents
        y = _FUNCTIONS[name](x, axes)
        if is_zero(tangent) or not is_float(x.dtype):
            return y, Zero(y.type)
        wide = accumulation(x.dtype)
        attained = bitwise_or(eq(x, broadcast(y, x.shape, _kept(x.ndim, axes))), ne(x, x))
        count = reduce_sum(convert(attained, wide), axes)
        tangent = convert(tangent, wide)
        total = reduce_sum(select(attained, tangent, full_like(tangent, 0)), axes)
        return y, convert(div(total, count), x.dtype)
    return jvp


def _prod_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[Any, Any]:
    """The sum of each tangent times the product of all other elements: those before it and those after it."""
    (x,), (tangent,) = primals, tangents
    y = reduce_prod(x, axes)
    if is_zero(tangent) or not is_float(x.dtype):
        return y, Zero(y.type)
    wide = accumulation(x.dtype)
    rows, row_tangents = (_as_rows(convert(v, wide), axes) for v in (x, tangent))
    last = rows.ndim - 1
    before = previous(cumprod(rows, last), last, False, 1)
    after = previous(cumprod(rows, last, True), last, True, 1)
    return y, convert(reduce_sum(mul(row_tangents, mul(before, after)), (last,)), x.dtype)


def _as_rows(x: Any, axes: Axes) -> Any:
    """`x` with `axes` flattened into one last axis."""
    kept = _kept(x.ndim, axes)
    moved = transpose(x, (*kept, *axes))
    return reshape(moved, (*(x.shape[a] for a in kept), math.prod(x.shape[a] for a in axes)))


def _ones(dtype: np.dtype) -> int:
    return True if dtype == BOOL else -1 if dtype.kind == "i" else int(np.iinfo(dtype).max)


reduce_max = _reduction("reduce_max", ANY, np.maximum, lowest, "max", _extremum_jvp("reduce_max"),
                        "The largest element over `axes`; NaN if there is one.", "or")
reduce_min = _reduction("reduce_min", ANY, np.minimum, highest, "min", _extremum_jvp("reduce_min"),
                        "The smallest element over `axes`; NaN if there is one.", "and")
reduce_prod = _reduction("reduce_prod", NUMBER, np.multiply, lambda dtype: 1, "mul", _prod_jvp,
                         "The product over `axes`; 16-bit floats are accumulated in float32.")
reduce_and = _reduction("reduce_and", BITS, np.bitwise_and, _ones, "and", zero_tangent("reduce_and"),
                        "The bitwise and over `axes`; for bool, whether all hold.")
reduce_or = _reduction("reduce_or", BITS, np.bitwise_or, lambda dtype: 0, "or", zero_tangent("reduce_or"),
                       "The bitwise or over `axes`; for bool, whether any holds.")
reduce_xor = _reduction("reduce_xor", BITS, np.bitwise_xor, lambda dtype: 0, "xor", zero_tangent("reduce_xor"),
                        "The bitwise exclusive or over `axes`; for bool, whether an odd number hold.")
_FUNCTIONS = {"reduce_max": reduce_max, "reduce_min": reduce_min}

# ---- argmax, argmin -------------------------------------------------------------------------------------------------


def _arg_type(name: str) -> Rule:
    def type_rule(x: Type, *, axis: int, dtype: np.dtype) -> Type:
        shape = reduced_shape(name, x, (axis,))
        if not is_integer(dtype) or x.shape[axis] - 1 > np.iinfo(dtype).max:
            raise DTypeError(f"{name}: {dtype.name} does not hold the positions along an axis of {x.shape[axis]} "
                             f"elements. Write dtype='int32' or 'int64'.")
        if x.shape[axis] == 0:
            raise ShapeError(f"{name}: axis {axis} of an array of shape {x.shape} is empty")
        return array_type(shape, dtype)
    return type_rule


def _arg_reference(function: Callable[..., Any]) -> Rule:
    def reference(x: np.ndarray, *, axis: int, dtype: np.dtype) -> np.ndarray:
        return np.asarray(function(x.astype(accumulation(x.dtype)), axis)).astype(dtype)
    return reference


def _arg_lower(combine: str, on_bool: str) -> Rule:
    """The least position among those that attain the extremum, or that hold a NaN."""
    def lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *, axis: int,
              dtype: np.dtype) -> Expr:
        (x,) = readers
        wide = accumulation(x.dtype)
        inner, loops = reduction_index(index, x.shape, (axis,))
        extremum = reduce(on_bool if x.dtype == BOOL else combine, cast(x(inner, valid), wide), loops)
        loop = Axis(f"r{axis}", x.shape[axis])
        element = cast(x((*index[:axis], axis_expr(loop), *index[axis:]), valid), wide)
        attained = operation("eq", element, extremum)
        if is_float(x.dtype):
            attained = operation("or", attained, operation("ne", element, element))
        position = select_expr(attained, cast(axis_expr(loop), dtype), constant(highest(dtype), dtype))
        return reduce("min", position, (loop,))
    return lower


def _declare_arg(name: str, function: Callable[..., Any], combine: str, on_bool: str, doc: str) -> Primitive:
    def batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, axis: int, dtype: np.dtype) -> Any:
        mapped = axes[0]
        assert mapped is not None
        return bind(primitive, move_axis(operands[0], mapped, 0), axis=axis + 1, dtype=dtype), 0
    primitive = declare(Primitive(name, _arg_type(name), _arg_reference(function), zero_tangent(name), NOT_LINEAR,
                                  batch, _arg_lower(combine, on_bool), doc=doc))
    return primitive


argmax_p = _declare_arg("argmax", np.argmax, "max", "or", "The first position of the largest element, or of a NaN.")
argmin_p = _declare_arg("argmin", np.argmin, "min", "and", "The first position of the smallest element, or of a NaN.")


def argmax(x: Any, axis: int, dtype: np.dtype = int32) -> Any:
    """The first position along `axis` of the largest element, or of a NaN; an empty axis is a ShapeError."""
    return bind(argmax_p, x, axis=axis, dtype=dtype)


def argmin(x: Any, axis: int, dtype: np.dtype = int32) -> Any:
    """The first position along `axis` of the smallest element, or of a NaN; an empty axis is a ShapeError."""
    return bind(argmin_p, x, axis=axis, dtype=dtype)

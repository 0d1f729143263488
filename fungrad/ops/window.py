"""All windows of an array as a view, and its transpose, the sum of overlapping windows: window | window_sum.

Pooling is `pad` with the reduction's identity, `window`, and a reduction over the window axes. Both act on the last
len(shape) axes; axes before them stay.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import accumulation
from ..errors import DTypeError, ShapeError
from ..ir.expr import (
    BOOL,
    TRUE,
    Axis,
    Expr,
    Reader,
    axis as axis_expr,
    cast,
    conjunction,
    constant,
    index_constant,
    operation,
    reduce,
    select,
)
from ..ir.primitive import Primitive, declare
from ..ir.types import Shape, Type
from ..trace import bind
from .rules import linear_jvp, move_axis


def window_count(extent: int, size: int, stride: int, dilation: int) -> int:
    """How many windows fit in an axis."""
    return max(0, (extent - (size - 1) * dilation - 1) // stride + 1)


def _checked(name: str, rank: int, shape: Shape, strides: Shape, dilation: Shape) -> None:
    if not len(shape) == len(strides) == len(dilation) <= rank:
        raise ShapeError(f"{name}: shape {shape}, strides {strides} and dilation {dilation} need one entry for each of "
                         f"the last axes of an array of rank {rank}")
    if any(value < 1 for value in (*shape, *strides, *dilation)):
        raise ShapeError(f"{name}: shape {shape}, strides {strides} and dilation {dilation} must be at least 1")


def _counts(extents: Shape, shape: Shape, strides: Shape, dilation: Shape) -> Shape:
    return tuple(map(window_count, extents, shape, strides, dilation))


def _positions(counts: Shape, shape: Shape, strides: Shape, dilation: Shape) -> list[np.ndarray]:
    """For each axis, the element at (window, offset), shaped to index the result of `window`."""
    rank = len(shape)
    result = []
    for a in range(rank):
        position = np.arange(counts[a])[:, None] * strides[a] + np.arange(shape[a]) * dilation[a]
        spread = [1] * (2 * rank)
        spread[a], spread[rank + a] = position.shape
        result.append(position.reshape(spread))
    return result


def _affine(i: Expr, factor: int) -> Expr:
    return operation("mul", i, index_constant(factor)) if factor != 1 else i


# ---- window ---------------------------------------------------------------------------------------------------------


def _window_type(x: Type, *, shape: Shape, strides: Shape, dilation: Shape) -> Type:
    _checked("window", x.rank, shape, strides, dilation)
    lead = x.rank - len(shape)
    return x.with_shape((*x.shape[:lead], *_counts(x.shape[lead:], shape, strides, dilation), *shape))


def _window_reference(x: np.ndarray, *, shape: Shape, strides: Shape, dilation: Shape) -> np.ndarray:
    extents = x.shape[x.ndim - len(shape):]
    return x[(..., *_positions(_counts(extents, shape, strides, dilation), shape, strides, dilation))]


def _window_transpose(cotangent: Any, operands: Sequence[Any], *, shape: Shape, strides: Shape,
                      dilation: Shape) -> tuple[Any]:
    extents = operands[0].type.shape[operands[0].type.rank - len(shape):]
    return (window_sum(cotangent, extents, strides, dilation),)


def _window_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *, shape: Shape,
                  strides: Shape, dilation: Shape) -> Expr:
    (x,) = readers
    rank, lead = len(shape), len(x.shape) - len(shape)
    inner = [operation("add", _affine(index[lead + a], strides[a]), _affine(index[lead + rank + a], dilation[a]))
             for a in range(rank)]
    return x((*index[:lead], *inner), valid)


window_p = declare(Primitive(
    "window", _window_type, _window_reference, linear_jvp("window"), _window_transpose,
    lambda size, operands, axes, **params: (bind(window_p, move_axis(operands[0], axes[0], 0), **params), 0),
    _window_lower, frozenset({"movement", "linear", "cheap"}),
    "(lead..., d...) -> (lead..., windows..., shape...): element (o, k) is the operand's at o strides + k dilation."))


def window(x: Any, shape: Shape, strides: Shape | None = None, dilation: Shape | None = None) -> Any:
    """All windows of `shape` over the last axes of `x`: (lead..., d...) -> (lead..., windows..., shape...)."""
    ones = (1,) * len(shape)
    return bind(window_p, x, shape=tuple(shape), strides=strides or ones, dilation=dilation or ones)


# ---- window_sum -----------------------------------------------------------------------------------------------------


def _window_sum_type(y: Type, *, extents: Shape, strides: Shape, dilation: Shape) -> Type:
    rank = len(extents)
    if y.dtype == BOOL:
        raise DTypeError("window_sum: bool has no sum. Write y.astype('int32').")
    if y.rank < 2 * rank:
        raise ShapeError(f"window_sum: an array of shape {y.shape} has no windows over {rank} axes")
    lead = y.rank - 2 * rank
    shape = y.shape[lead + rank:]
    _checked("window_sum", y.rank, shape, strides, dilation)
    counts = _counts(extents, shape, strides, dilation)
    if y.shape[lead:lead + rank] != counts:
        raise ShapeError(f"window_sum: windows of shape {shape} over {extents} are {counts} in number, not "
                         f"{y.shape[lead:lead + rank]}")
    return y.with_shape((*y.shape[:lead], *extents))


def _window_sum_reference(y: np.ndarray, *, extents: Shape, strides: Shape, dilation: Shape) -> np.ndarray:
    rank = len(extents)
    lead = y.ndim - 2 * rank
    counts, shape = y.shape[lead:lead + rank], y.shape[lead + rank:]
    result = np.zeros((*y.shape[:lead], *extents), accumulation(y.dtype))
    positions: Any = (..., *_positions(counts, shape, strides, dilation))
    with np.errstate(all="ignore"):
        np.add.at(result, positions, y.astype(result.dtype))
        return result.astype(y.dtype)


def _window_sum_transpose(cotangent: Any, operands: Sequence[Any], *, extents: Shape, strides: Shape,
                          dilation: Shape) -> tuple[Any]:
    shape = operands[0].type.shape[operands[0].type.rank - len(extents):]
    return (window(cotangent, shape, strides, dilation),)


def _contributions(p: Expr, name: str, size: int, stride: int, dilation: int,
                   count: int) -> tuple[Axis, Expr, Expr, Expr]:
    """The (window, offset) pairs that hold position p along one axis: a loop, the window, the offset, and a condition.

    Without dilation the windows around p are p // stride - q, so only ceil(size / stride) of them are visited; else
    every offset is, and p - offset * dilation must be a multiple of the stride.
    """
    zero = index_constant(0)
    if dilation == 1:
        loop = Axis(name, -(-size // stride))
        q = axis_expr(loop)
        if stride == 1:
            offset, position = q, operation("sub", p, q)
        else:
            offset = operation("add", operation("rem", p, index_constant(stride)), _affine(q, stride))
            position = operation("sub", operation("div", p, index_constant(stride)), q)
        exists = TRUE if size % stride == 0 else operation("lt", offset, index_constant(size))
    else:
        loop = Axis(name, size)
        offset = axis_expr(loop)
        first = operation("sub", p, _affine(offset, dilation))
        # Moved up by whole strides, so that the division sees no negative number.
        rounds = -(-(size - 1) * dilation // stride)
        moved = operation("add", first, index_constant(rounds * stride))
        position = operation("sub", operation("div", moved, index_constant(stride)), index_constant(rounds))
        exists = TRUE if stride == 1 else operation("eq", operation("rem", moved, index_constant(stride)), zero)
    inside = conjunction(operation("ge", position, zero), operation("lt", position, index_constant(count)))
    return loop, position, offset, conjunction(exists, inside)


def _window_sum_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *, extents: Shape,
                      strides: Shape, dilation: Shape) -> Expr:
    (y,) = readers
    rank = len(extents)
    lead = len(y.shape) - 2 * rank
    loops, windows, offsets, exists = [], [], [], TRUE
    for a in range(rank):
        loop, position, offset, there = _contributions(index[lead + a], f"r{a}", y.shape[lead + rank + a], strides[a],
                                                       dilation[a], y.shape[lead + a])
        loops.append(loop)
        windows.append(position)
        offsets.append(offset)
        exists = conjunction(exists, there)
    wide = accumulation(type.dtype)
    element = cast(y((*index[:lead], *windows, *offsets), conjunction(valid, exists)), wide)
    return cast(reduce("add", select(exists, element, constant(0, wide)), tuple(loops)), type.dtype)


window_sum_p = declare(Primitive(
    "window_sum", _window_sum_type, _window_sum_reference, linear_jvp("window_sum"), _window_sum_transpose,
    lambda size, operands, axes, **params: (bind(window_sum_p, move_axis(operands[0], axes[0], 0), **params), 0),
    _window_sum_lower, frozenset({"linear"}),
    "(lead..., windows..., shape...) -> (lead..., extents...): every window's elements, added where they come from."))


def window_sum(y: Any, extents: Shape, strides: Shape | None = None, dilation: Shape | None = None) -> Any:
    """The transpose of `window` over axes of `extents`: overlapping windows add up."""
    ones = (1,) * len(extents)
    return bind(window_sum_p, y, extents=tuple(extents), strides=strides or ones, dilation=dilation or ones)

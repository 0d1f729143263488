"""Structural linear operations, each beside its transpose:
reshape, transpose, convert, broadcast | reduce_sum. (slice | pad, flip and concatenate: `slicing.py`.)
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import accumulation, is_float
from ..errors import DTypeError, ShapeError
from ..ir.expr import Axis, Expr, Reader, axis as axis_expr, cast, index_constant, operation, reduce
from ..ir.primitive import Primitive, Zero, declare
from ..ir.types import Type
from ..trace import bind
from .rules import is_zero, linear_jvp, move_axis

# ---- reshape --------------------------------------------------------------------------------------------------------


def _reshape_type(x: Type, *, shape: tuple[int, ...]) -> Type:
    if math.prod(shape) != x.size:
        raise ShapeError(f"reshape: an array of shape {x.shape} ({x.size} elements) cannot take the shape {shape} "
                         f"({math.prod(shape)} elements)")
    return x.with_shape(shape)


def _reshape_transpose(cotangent: Any, operands: Sequence[Any], *, shape: tuple[int, ...]) -> tuple[Any]:
    return (reshape(cotangent, operands[0].type.shape),)


def _reshape_batch(size: int, operands: Sequence[Any], axes: Sequence[Any], *, shape: tuple[int, ...]) -> Any:
    return reshape(move_axis(operands[0], axes[0], 0), (size, *shape)), 0


def flat_index(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The row-major position of `index` in an array of `shape`."""
    position = index_constant(0)
    for i, extent in zip(index, shape, strict=True):
        position = operation("add", operation("mul", position, index_constant(extent)), i)
    return position


def unflatten_index(position: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """The index at a row-major position: the inverse of `flat_index`."""
    index: list[Expr] = []
    for axis in range(len(shape) - 1, -1, -1):
        if axis == 0:
            index.append(position)
        else:
            index.append(operation("rem", position, index_constant(shape[axis])))
            position = operation("div", position, index_constant(shape[axis]))
    return tuple(reversed(index))


def _factor_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """Ranges of axes of `old` and `new` that cover the same elements, as fine as possible: ((2,6),(2,3,2)) -> 2|2,
    6|3,2."""
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        size_old = old[i] if i < len(old) else 1
        size_new = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while size_old != size_new:
            if size_old < size_new:
                size_old *= old[i]
                i += 1
            else:
                size_new *= new[j]
                j += 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def reshape_index(index: tuple[Expr, ...], new: tuple[int, ...], old: tuple[int, ...]) -> tuple[Expr, ...]:
    """The index into an array of shape `old` of the element that its reshape to `new` has at `index`."""
    if 0 in old:
        return tuple(index_constant(0) for _ in old)
    result: list[Expr] = [index_constant(0)] * len(old)
    for olds, news in _factor_groups(old, new):
        if len(olds) == 1 and len(news) == 1:
            result[olds[0]] = index[news[0]]
            continue
        position = flat_index([index[j] for j in news], [new[j] for j in news])
        for axis, part in zip(olds, unflatten_index(position, [old[i] for i in olds]), strict=True):
            result[axis] = part
    return tuple(result)


def _reshape_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                   shape: tuple[int, ...]) -> Expr:
    (x,) = readers
    return x(reshape_index(index, shape, x.shape), valid)


reshape_p = declare(Primitive(
    "reshape", _reshape_type, lambda x, *, shape: x.reshape(shape), linear_jvp("reshape"), _reshape_transpose,
    _reshape_batch, _reshape_lower, frozenset({"movement", "linear", "cheap"}),
    "The same elements in row-major order under another shape."))


def reshape(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` under another shape with as many elements."""
    return x if x.shape == shape else bind(reshape_p, x, shape=shape)


# ---- transpose ------------------------------------------------------------------------------------------------------


def _transpose_type(x: Type, *, permutation: tuple[int, ...]) -> Type:
    if sorted(permutation) != list(range(x.rank)):
        raise ShapeError(f"transpose: {permutation} is not a permutation of the axes of an array of shape {x.shape}")
    return x.with_shape(tuple(x.shape[i] for i in permutation))


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(permutation))


def _transpose_batch(size: int, operands: Sequence[Any], axes: Sequence[Any], *,
                     permutation: tuple[int, ...]) -> Any:
    batch_axis = axes[0]
    moved = tuple(i if i < batch_axis else i + 1 for i in permutation)
    return transpose(operands[0], (batch_axis, *moved)), 0


def _transpose_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                     permutation: tuple[int, ...]) -> Expr:
    return readers[0](tuple(index[i] for i in _inverse(permutation)), valid)


transpose_p = declare(Primitive(
    "transpose", _transpose_type, lambda x, *, permutation: np.ascontiguousarray(x.transpose(permutation)),
    linear_jvp("transpose"),
    lambda cotangent, operands, *, permutation: (transpose(cotangent, _inverse(permutation)),),
    _transpose_batch, _transpose_lower, frozenset({"movement", "linear", "cheap"}),
    "Axis i of the result is axis permutation[i] of the operand."))


def transpose(x: Any, permutation: tuple[int, ...]) -> Any:
    """`x` with its axes in the order `permutation`."""
    return x if permutation == tuple(range(x.ndim)) else bind(transpose_p, x, permutation=permutation)


# ---- convert --------------------------------------------------------------------------------------------------------


def convert_array(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The meaning of a cast: floats to integers truncate and saturate, NaN gives 0; everything else as NumPy."""
    if dtype == np.dtype(bool):
        return x != 0
    with np.errstate(all="ignore"):
        if is_float(x.dtype) and not is_float(dtype):
            limits = np.iinfo(dtype)
            wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
            inside = np.clip(wide, float(limits.min), float(limits.max))
            result = inside.astype(dtype)
            result = np.where(wide >= float(limits.max), np.asarray(limits.max, dtype), result)
            return np.where(wide <= float(limits.min), np.asarray(limits.min, dtype), result).astype(dtype)
        return x.astype(dtype)


def _convert_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, dtype: np.dtype) -> tuple[Any, Any]:
    result = convert(primals[0], dtype)
    if is_zero(tangents[0]) or not is_float(dtype) or not is_float(primals[0].dtype):
        return result, Zero(result.type)
    return result, convert(tangents[0], dtype)


def _convert_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                   dtype: np.dtype) -> Expr:
    x = readers[0](index, valid)
    if dtype == np.dtype(bool):
        return operation("ne", x, cast(index_constant(0), x.dtype)) if x.dtype != dtype else x
    return cast(x, dtype)


convert_p = declare(Primitive(
    "convert", lambda x, *, dtype: x.with_dtype(dtype), lambda x, *, dtype: convert_array(x, dtype), _convert_jvp,
    lambda cotangent, operands, *, dtype: (convert(cotangent, operands[0].type.dtype),),
    lambda size, operands, axes, *, dtype: (convert(operands[0], dtype), axes[0]),
    _convert_lower, frozenset({"elementwise", "linear", "cheap"}),
    "The elements in another element type: floats to integers truncate and saturate, NaN gives 0."))


def convert(x: Any, dtype: np.dtype) -> Any:
    """`x` in another element type."""
    return x if x.dtype == dtype else bind(convert_p, x, dtype=dtype)


# ---- broadcast | reduce_sum -----------------------------------------------------------------------------------------


def _broadcast_type(x: Type, *, shape: tuple[int, ...], axes: tuple[int, ...]) -> Type:
    if len(axes) != x.rank or list(axes) != sorted(set(axes)) or any(not 0 <= a < len(shape) for a in axes):
        raise ShapeError(f"broadcast: axes {axes} do not place an array of shape {x.shape} in {shape}")
    for extent, axis in zip(x.shape, axes, strict=True):
        if extent not in (1, shape[axis]):
            raise ShapeError(f"broadcast: an array of shape {x.shape} does not fit axes {axes} of {shape}")
    return x.with_shape(shape)


def _broadcast_reference(x: np.ndarray, *, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    spread = [1] * len(shape)
    for extent, axis in zip(x.shape, axes, strict=True):
        spread[axis] = extent
    return np.broadcast_to(x.reshape(spread), shape)


def _broadcast_transpose(cotangent: Any, operands: Sequence[Any], *, shape: tuple[int, ...],
                         axes: tuple[int, ...]) -> tuple[Any]:
    old = operands[0].type.shape
    new = tuple(a for a in range(len(shape)) if a not in axes)
    stretched = tuple(a for extent, a in zip(old, axes, strict=True) if extent == 1 and shape[a] != 1)
    return (reshape(reduce_sum(cotangent, (*new, *stretched)), old),)


def _broadcast_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                     shape: tuple[int, ...], axes: tuple[int, ...]) -> Expr:
    (x,) = readers
    return x(tuple(index[a] if extent == shape[a] else index_constant(0)
                   for extent, a in zip(x.shape, axes, strict=True)), valid)


broadcast_p = declare(Primitive(
    "broadcast", _broadcast_type, _broadcast_reference, linear_jvp("broadcast"), _broadcast_transpose,
    lambda size, operands, batch_axes, *, shape, axes: (
        broadcast(move_axis(operands[0], batch_axes[0], 0), (size, *shape), (0, *(a + 1 for a in axes))), 0),
    _broadcast_lower, frozenset({"movement", "linear", "cheap"}),
    "The operand's axis i becomes axis axes[i] of `shape` (repeated if its extent is 1); the other axes repeat it."))


def broadcast(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """`x` placed at `axes` (ascending) of an array of `shape` and repeated along the others."""
    if x.shape == shape and axes == tuple(range(len(shape))):
        return x
    return bind(broadcast_p, x, shape=shape, axes=axes)


def reduced_shape(name: str, x: Type, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `x` without `axes`; ShapeError if they are not distinct axes of it."""
    if len(set(axes)) != len(axes) or any(not 0 <= a < x.rank for a in axes):
        raise ShapeError(f"{name}: axes {axes} are not distinct axes of an array of shape {x.shape}")
    return tuple(extent for a, extent in enumerate(x.shape) if a not in axes)


def reduction_batch(bind_reduction: Any) -> Any:
    """Batch a reduction over `axes`: the mapped axis stays, the others move around it."""
    def batch(size: int, operands: Sequence[Any], batch_axes: Sequence[Any], *, axes: tuple[int, ...],
              **params: Any) -> Any:
        moved = move_axis(operands[0], batch_axes[0], 0)
        return bind_reduction(moved, tuple(a + 1 for a in axes), **params), 0
    return batch


def reduction_index(index: tuple[Expr, ...], shape: tuple[int, ...],
                    axes: tuple[int, ...]) -> tuple[tuple[Expr, ...], tuple[Axis, ...]]:
    """The operand's full index for a reduction over `axes`, with new loop axes in their places."""
    kept = iter(index)
    loops = {a: Axis(f"r{a}", shape[a]) for a in sorted(axes)}
    full_index = tuple(axis_expr(loops[a]) if a in loops else next(kept) for a in range(len(shape)))
    return full_index, tuple(loops.values())


def _sum_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
               axes: tuple[int, ...]) -> Expr:
    (x,) = readers
    inner, loops = reduction_index(index, x.shape, axes)
    return cast(reduce("add", cast(x(inner, valid), accumulation(type.dtype)), loops), type.dtype)


def _sum_transpose(cotangent: Any, operands: Sequence[Any], *, axes: tuple[int, ...]) -> tuple[Any]:
    shape = operands[0].type.shape
    return (broadcast(cotangent, shape, tuple(a for a in range(len(shape)) if a not in axes)),)


def _sum_type(x: Type, *, axes: tuple[int, ...]) -> Type:
    if x.dtype == np.dtype(bool):
        raise DTypeError("reduce_sum: bool has no sum; convert to an integer type first")
    return x.with_shape(reduced_shape("reduce_sum", x, axes))


def _sum_reference(x: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
    return np.asarray(x.astype(accumulation(x.dtype)).sum(axes, dtype=accumulation(x.dtype))).astype(x.dtype)


reduce_sum_p = declare(Primitive(
    "reduce_sum", _sum_type, _sum_reference, linear_jvp("reduce_sum"), _sum_transpose,
    reduction_batch(lambda x, axes: reduce_sum(x, axes)), _sum_lower, frozenset({"reduction", "linear"}),
    "The sum over `axes`; 16-bit floats are accumulated in float32."))


def reduce_sum(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum of `x` over `axes`."""
    return bind(reduce_sum_p, x, axes=tuple(sorted(axes))) if axes else x

"""Contractions of two operands: dot_general, the bilinear sum of products behind matmul, einsum and dense layers.

dimension_numbers = ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)), as in JAX: paired batch axes lead the
result, then the free axes of the left operand, then those of the right one; contracted axes are summed.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import accumulation, is_float, promote
from ..errors import DTypeError, ShapeError
from ..ir.expr import Axis, Expr, Reader, axis as axis_expr, cast, operation, reduce
from ..ir.primitive import Linear, Primitive, Zero, declare
from ..ir.types import Type, array_type
from ..trace import bind
from .linear import transpose
from .rules import add_tangents, is_zero

Axes = tuple[int, ...]
DimensionNumbers = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]
BOOL = np.dtype(bool)


def free_axes(rank: int, *taken: Sequence[int]) -> Axes:
    """The axes of an array of this rank that are in none of `taken`, ascending."""
    used = {a for group in taken for a in group}
    return tuple(a for a in range(rank) if a not in used)


def _check_axes(side: str, shape: tuple[int, ...], contract: Axes, batch: Axes) -> None:
    both = (*contract, *batch)
    if len(set(both)) != len(both) or any(not 0 <= a < len(shape) for a in both):
        raise ShapeError(f"dot_general: the {side} contracted axes {contract} and batch axes {batch} are not distinct "
                         f"axes of an array of shape {shape}")


def _check_extents(kind: str, lhs: Type, rhs: Type, lhs_axes: Axes, rhs_axes: Axes) -> None:
    if len(lhs_axes) != len(rhs_axes):
        raise ShapeError(f"dot_general: {len(lhs_axes)} {kind} axes {lhs_axes} of the left operand, of shape "
                         f"{lhs.shape}, but {len(rhs_axes)} {rhs_axes} of the right one, of shape {rhs.shape}")
    for a, b in zip(lhs_axes, rhs_axes, strict=True):
        if lhs.shape[a] != rhs.shape[b]:
            raise ShapeError(f"dot_general: shapes {lhs.shape} and {rhs.shape} do not fit: {kind} axis {a} of the left "
                             f"operand has {lhs.shape[a]} elements, axis {b} of the right one {rhs.shape[b]}")


def check_product_types(name: str, lhs: np.dtype, rhs: np.dtype, result: np.dtype) -> None:
    """DTypeError unless sums of products of `lhs` and `rhs` elements may be formed and given as `result`."""
    if BOOL in (lhs, rhs, result):
        raise DTypeError(f"{name}: there is no sum of products of bool (got {lhs} and {rhs} -> {result}). "
                         f"Convert to an integer or floating type, or combine with logical operations and any().")
    if len({is_float(dtype) for dtype in (lhs, rhs, result)}) != 1:
        raise DTypeError(f"{name}: element types {lhs} and {rhs} -> {result} mix integers and floats. "
                         f"Convert with x.astype(...).")


def product_accumulation(lhs: np.dtype, rhs: np.dtype, result: np.dtype) -> np.dtype:
    """The type in which products of `lhs` and `rhs` elements are formed and summed.

    Floats: the widest of the three, at least float32. Integers: the result's, since wrapping sums need no more.
    """
    return accumulation(promote(lhs, rhs, result)) if is_float(result) else result


def _dot_general_type(lhs: Type, rhs: Type, *, dimension_numbers: DimensionNumbers, dtype: np.dtype) -> Type:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    check_product_types("dot_general", lhs.dtype, rhs.dtype, dtype)
    _check_axes("left", lhs.shape, lhs_contract, lhs_batch)
    _check_axes("right", rhs.shape, rhs_contract, rhs_batch)
    _check_extents("contracted", lhs, rhs, lhs_contract, rhs_contract)
    _check_extents("batch", lhs, rhs, lhs_batch, rhs_batch)
    lhs_free, rhs_free = free_axes(lhs.rank, lhs_contract, lhs_batch), free_axes(rhs.rank, rhs_contract, rhs_batch)
    return array_type((*(lhs.shape[a] for a in (*lhs_batch, *lhs_free)), *(rhs.shape[a] for a in rhs_free)), dtype)


def _dot_general_reference(lhs: np.ndarray, rhs: np.ndarray, *, dimension_numbers: DimensionNumbers,
                           dtype: np.dtype) -> np.ndarray:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    letters = list(range(lhs.ndim))
    right = list(range(lhs.ndim, lhs.ndim + rhs.ndim))
    for a, b in (*zip(lhs_contract, rhs_contract, strict=True), *zip(lhs_batch, rhs_batch, strict=True)):
        right[b] = letters[a]
    result = [*lhs_batch, *free_axes(lhs.ndim, lhs_contract, lhs_batch),
              *(right[b] for b in free_axes(rhs.ndim, rhs_contract, rhs_batch))]
    wide = product_accumulation(lhs.dtype, rhs.dtype, dtype)
    with np.errstate(all="ignore"):
        return np.asarray(np.einsum(lhs.astype(wide), letters, rhs.astype(wide), right, result)).astype(dtype)


def _dot_general_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, dimension_numbers: DimensionNumbers,
                     dtype: np.dtype) -> tuple[Any, Any]:
    (lhs, rhs), (lhs_tangent, rhs_tangent) = primals, tangents
    result = dot_general(lhs, rhs, dimension_numbers, dtype)
    tangent: Any = Zero(result.type)
    if not is_zero(lhs_tangent):
        tangent = dot_general(lhs_tangent, rhs, dimension_numbers, dtype)
    if not is_zero(rhs_tangent):
        tangent = add_tangents(tangent, dot_general(lhs, rhs_tangent, dimension_numbers, dtype))
    return result, tangent


def _swapped(dimension_numbers: DimensionNumbers) -> DimensionNumbers:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    return (rhs_contract, lhs_contract), (rhs_batch, lhs_batch)


def _transpose_one(cotangent: Any, linear: Type, other: Any, dimension_numbers: DimensionNumbers, first: bool) -> Any:
    """The cotangent of the operand of type `linear`; `dimension_numbers` name its axes before those of `other`.

    `first` says whether it is the left operand, whose free axes precede those of `other` in the result. The formula is
    JAX's: contract the cotangent with `other` over its free axes, then put the axes in the operand's order.
    """
    (contract, other_contract), (batch, other_batch) = dimension_numbers
    kept = free_axes(linear.rank, contract, batch)
    other_kept = free_axes(other.ndim, other_contract, other_batch)
    start = len(batch) + (len(kept) if first else 0)
    numbers = ((tuple(range(start, start + len(other_kept))), other_kept), (tuple(range(len(batch))), other_batch))
    product = dot_general(cotangent, other, numbers, linear.dtype)
    contract_in_order = [a for _, a in sorted(zip(other_contract, contract, strict=True))]
    order = [*batch, *kept, *contract_in_order]      # axis i of `product` is axis order[i] of the operand
    return transpose(product, tuple(int(i) for i in np.argsort(order)))


def _dot_general_transpose(cotangent: Any, operands: Sequence[Any], *, dimension_numbers: DimensionNumbers,
                           dtype: np.dtype) -> tuple[Any, Any]:
    lhs, rhs = operands
    if isinstance(lhs, Linear):
        return _transpose_one(cotangent, lhs.type, rhs, dimension_numbers, True), None
    return None, _transpose_one(cotangent, rhs.type, lhs, _swapped(dimension_numbers), False)


def _shift(axes: Axes, mapped: int) -> Axes:
    """The axes' numbers after an axis was inserted at `mapped`."""
    return tuple(a + (a >= mapped) for a in axes)


def _dot_general_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *,
                       dimension_numbers: DimensionNumbers, dtype: np.dtype) -> tuple[Any, int]:
    """Two mapped operands: a further batch axis. One: its mapped axis is one more free axis, wherever it stands."""
    lhs, rhs = operands
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    lhs_axis, rhs_axis = axes
    if lhs_axis is not None:
        lhs_contract, lhs_batch = _shift(lhs_contract, lhs_axis), _shift(lhs_batch, lhs_axis)
    if rhs_axis is not None:
        rhs_contract, rhs_batch = _shift(rhs_contract, rhs_axis), _shift(rhs_batch, rhs_axis)
    if lhs_axis is not None and rhs_axis is not None:
        lhs_batch, rhs_batch, place = (lhs_axis, *lhs_batch), (rhs_axis, *rhs_batch), 0
    elif lhs_axis is not None:
        place = len(lhs_batch) + free_axes(lhs.ndim, lhs_contract, lhs_batch).index(lhs_axis)
    else:
        lhs_free = lhs.ndim - len(lhs_contract) - len(lhs_batch)
        place = len(lhs_batch) + lhs_free + free_axes(rhs.ndim, rhs_contract, rhs_batch).index(rhs_axis)
    return dot_general(lhs, rhs, ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)), dtype), place


def _dot_general_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                       dimension_numbers: DimensionNumbers, dtype: np.dtype) -> Expr:
    lhs, rhs = readers
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    loops = tuple(Axis(f"k{number}", lhs.shape[a]) for number, a in enumerate(lhs_contract))
    lhs_free = free_axes(len(lhs.shape), lhs_contract, lhs_batch)
    rhs_free = free_axes(len(rhs.shape), rhs_contract, rhs_batch)
    batch_index, rest = index[:len(lhs_batch)], index[len(lhs_batch):]
    sums = tuple(map(axis_expr, loops))
    lhs_index, rhs_index = rest[:len(lhs_free)], rest[len(lhs_free):]
    lhs_at = dict(zip((*lhs_batch, *lhs_free, *lhs_contract), (*batch_index, *lhs_index, *sums), strict=True))
    rhs_at = dict(zip((*rhs_batch, *rhs_free, *rhs_contract), (*batch_index, *rhs_index, *sums), strict=True))
    wide = product_accumulation(lhs.dtype, rhs.dtype, dtype)
    left = cast(lhs(tuple(lhs_at[a] for a in range(len(lhs.shape))), valid), wide)
    right = cast(rhs(tuple(rhs_at[a] for a in range(len(rhs.shape))), valid), wide)
    return cast(reduce("add", operation("mul", left, right), loops), dtype)


dot_general_p = declare(Primitive(
    "dot_general", _dot_general_type, _dot_general_reference, _dot_general_jvp, _dot_general_transpose,
    _dot_general_batch, _dot_general_lower, frozenset({"contraction"}),
    "Sums of products over paired contracted axes, for each index of paired batch axes; 16-bit floats accumulate in "
    "float32."))


def dot_general(lhs: Any, rhs: Any, dimension_numbers: DimensionNumbers, dtype: np.dtype | None = None) -> Any:
    """Contract `lhs` with `rhs`.

    dimension_numbers: ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)). The result's axes are the batch axes, the
    free axes of `lhs`, those of `rhs`; its element type is `dtype`, by default the operands' common type.
    """
    return bind(dot_general_p, lhs, rhs, dimension_numbers=dimension_numbers,
                dtype=promote(lhs.dtype, rhs.dtype) if dtype is None else dtype)

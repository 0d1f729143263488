"""dynamic_slice and its transpose, dynamic_update_slice: one window of an array at a computed position.

Starts are moved so that the window lies within the array, as in JAX. The leading `batch_dims` axes of the array, of the
window and of every start correspond: each of their points has a window of its own (what vmap over starts gives).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import is_float, is_integer, is_signed
from ..errors import DTypeError, ShapeError
from ..ir.expr import INDEX, TRUE, Expr, Reader, cast, conjunction, constant, index_constant, operation, select
from ..ir.primitive import Linear, Primitive, Zero, declare
from ..ir.types import Shape, Type
from ..trace import bind
from .create import full
from .fragments import plus
from .rules import batch_to_front, instantiate, is_zero


def _check(name: str, x: Type, window: Shape, starts: Sequence[Type], batch_dims: int) -> None:
    if len(window) != x.rank or len(starts) != x.rank - batch_dims or not 0 <= batch_dims <= x.rank:
        raise ShapeError(f"{name}: an array of shape {x.shape} needs a window with as many axes, and one start for "
                         f"each of {x.rank - batch_dims}; got a window of shape {window} and {len(starts)} starts")
    if any(not 0 <= size <= extent for size, extent in zip(window, x.shape, strict=True)) or \
            window[:batch_dims] != x.shape[:batch_dims]:
        raise ShapeError(f"{name}: a window of shape {window} does not fit an array of shape {x.shape}")
    for start in starts:
        if not is_integer(start.dtype):
            raise DTypeError(f"{name}: starts must be integers, got {start}. Convert with x.astype('int32').")
        if start.shape != x.shape[:batch_dims]:
            raise ShapeError(f"{name}: starts must have the shape {x.shape[:batch_dims]}, got {start}")


def _clamped(start: np.ndarray, limit: int) -> int:
    return min(max(int(start), 0), limit)


def _windows(shape: Shape, window: Shape, starts: Sequence[np.ndarray], batch_dims: int) -> Any:
    """For every point of the batch axes: the index (integers, then slices) of its window."""
    for point in np.ndindex(*shape[:batch_dims]):
        sides = zip(starts, window[batch_dims:], shape[batch_dims:], strict=True)
        first = [(_clamped(start[point], extent - size), size) for start, size, extent in sides]
        yield point, (*point, *(slice(at, at + size) for at, size in first))


def _start(start: Reader, index: tuple[Expr, ...], valid: Expr, limit: int) -> Expr:
    """The start at an index of the batch axes, moved into [0, limit]."""
    if limit == 0:
        return index_constant(0)
    entry = start(index, valid)
    if entry.dtype == np.dtype("uint64"):   # a large one would become negative
        return cast(operation("min", entry, constant(limit, entry.dtype)), INDEX)
    moved = operation("min", cast(entry, INDEX), index_constant(limit))
    return operation("max", moved, index_constant(0)) if is_signed(entry.dtype) else moved


def _batched_starts(size: int, starts: Sequence[Any], axes: Sequence[int | None], batch_dims: int) -> list[Any] | None:
    """The starts with the mapped axis in front; None if they are the same for every element of the batch."""
    if not starts or (batch_dims == 0 and all(axis is None for axis in axes)):
        return None
    return [batch_to_front(size, start, axis) for start, axis in zip(starts, axes, strict=True)]


def _zero_like(starts: Sequence[Any]) -> Any:
    return full((), 0, starts[0].dtype if starts else np.dtype("int32"))


# ---- dynamic_slice --------------------------------------------------------------------------------------------------


def _slice_type(x: Type, *starts: Type, sizes: Shape, batch_dims: int) -> Type:
    _check("dynamic_slice", x, sizes, starts, batch_dims)
    return x.with_shape(sizes)


def _slice_reference(x: np.ndarray, *starts: np.ndarray, sizes: Shape, batch_dims: int) -> np.ndarray:
    result = np.empty(sizes, x.dtype)
    for point, window in _windows(x.shape, sizes, starts, batch_dims):
        result[point] = x[window]
    return result


def _slice_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    x, *starts = primals
    result = bind(dynamic_slice_p, x, *starts, **params)
    if is_zero(tangents[0]):
        return result, Zero(result.type)
    return result, bind(dynamic_slice_p, tangents[0], *starts, **params)


def _slice_transpose(cotangent: Any, operands: Sequence[Any], *, sizes: Shape, batch_dims: int) -> tuple[Any, ...]:
    x, *starts = operands
    zeros = full(x.type.shape, 0, x.type.dtype)
    answer = bind(dynamic_update_slice_p, zeros, cotangent, *starts, batch_dims=batch_dims)
    return answer, *[None for _ in starts]


def _slice_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, sizes: Shape,
                 batch_dims: int) -> tuple[Any, int]:
    x, *starts = operands
    mapped = _batched_starts(size, starts, axes[1:], batch_dims)
    if mapped is None:
        x = batch_to_front(size, x, axes[0])
        return bind(dynamic_slice_p, x, _zero_like(starts), *starts, sizes=(size, *sizes), batch_dims=0), 0
    x = batch_to_front(size, x, axes[0])
    return bind(dynamic_slice_p, x, *mapped, sizes=(size, *sizes), batch_dims=batch_dims + 1), 0


def _slice_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *, sizes: Shape,
                 batch_dims: int) -> Expr:
    x, *starts = readers
    batch, inner = index[:batch_dims], index[batch_dims:]
    sides = zip(starts, inner, x.shape[batch_dims:], sizes[batch_dims:], strict=True)
    return x((*batch, *(plus(i, _start(start, batch, valid, extent - size)) if extent != size else i
                        for start, i, extent, size in sides)), valid)


dynamic_slice_p = declare(Primitive(
    "dynamic_slice", _slice_type, _slice_reference, _slice_jvp, _slice_transpose, _slice_batch, _slice_lower,
    frozenset({"movement"}), "The window of shape `sizes` at computed starts."))


def dynamic_slice(x: Any, starts: Sequence[Any], sizes: Shape) -> Any:
    """The window of `x` of shape `sizes` that begins at `starts` (integer scalars, moved so that it lies within)."""
    if tuple(sizes) == x.shape:
        return x
    return bind(dynamic_slice_p, x, *starts, sizes=tuple(sizes), batch_dims=0)


# ---- dynamic_update_slice -------------------------------------------------------------------------------------------


def _update_type(x: Type, update: Type, *starts: Type, batch_dims: int) -> Type:
    _check("dynamic_update_slice", x, update.shape, starts, batch_dims)
    if x.dtype != update.dtype:
        raise DTypeError(f"dynamic_update_slice: an array of {x.dtype} and an update of {update.dtype} differ. "
                         f"Convert with x.astype(...).")
    return x


def _update_reference(x: np.ndarray, update: np.ndarray, *starts: np.ndarray, batch_dims: int) -> np.ndarray:
    result = x.copy()
    for point, window in _windows(x.shape, update.shape, starts, batch_dims):
        result[window] = update[point]
    return result


def _update_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, batch_dims: int) -> tuple[Any, Any]:
    x, update, *starts = primals
    result = bind(dynamic_update_slice_p, x, update, *starts, batch_dims=batch_dims)
    if (is_zero(tangents[0]) and is_zero(tangents[1])) or not is_float(x.dtype):
        return result, Zero(result.type)
    return result, bind(dynamic_update_slice_p, instantiate(tangents[0]), instantiate(tangents[1]), *starts,
                        batch_dims=batch_dims)


def _update_transpose(cotangent: Any, operands: Sequence[Any], *, batch_dims: int) -> tuple[Any, ...]:
    x, update, *starts = operands
    to_x = to_update = None
    update_type = update.type
    if isinstance(x, Linear):
        zeros = full(update_type.shape, 0, update_type.dtype)
        to_x = bind(dynamic_update_slice_p, cotangent, zeros, *starts, batch_dims=batch_dims)
    if isinstance(update, Linear):
        to_update = bind(dynamic_slice_p, cotangent, *starts, sizes=update_type.shape, batch_dims=batch_dims)
    return to_x, to_update, *[None for _ in starts]


def _update_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *,
                  batch_dims: int) -> tuple[Any, int]:
    x, update, *starts = operands
    mapped = _batched_starts(size, starts, axes[2:], batch_dims)
    x, update = batch_to_front(size, x, axes[0]), batch_to_front(size, update, axes[1])
    if mapped is None:
        return bind(dynamic_update_slice_p, x, update, _zero_like(starts), *starts, batch_dims=0), 0
    return bind(dynamic_update_slice_p, x, update, *mapped, batch_dims=batch_dims + 1), 0


def _update_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                  batch_dims: int) -> Expr:
    x, update, *starts = readers
    batch = index[:batch_dims]
    inside = TRUE
    at = list(batch)
    for start, i, extent, size in zip(starts, index[batch_dims:], x.shape[batch_dims:], update.shape[batch_dims:],
                                      strict=True):
        if extent != size:
            i = operation("sub", i, _start(start, batch, valid, extent - size))
            inside = conjunction(inside, operation("ge", i, index_constant(0)))
            inside = conjunction(inside, operation("lt", i, index_constant(size)))
        at.append(i)
    if inside is TRUE:
        return update(tuple(at), valid)
    return select(inside, update(tuple(at), conjunction(valid, inside)), x(index, valid))


dynamic_update_slice_p = declare(Primitive(
    "dynamic_update_slice", _update_type, _update_reference, _update_jvp, _update_transpose, _update_batch,
    _update_lower, frozenset({"movement"}), "The array with the window at computed starts replaced."))


def dynamic_update_slice(x: Any, update: Any, starts: Sequence[Any]) -> Any:
    """`x` with the window of update's shape that begins at `starts` (moved so that it lies within) replaced by it."""
    return update if update.shape == x.shape else bind(dynamic_update_slice_p, x, update, *starts, batch_dims=0)

"""Linear operations on parts of arrays, each beside its transpose: slice | pad, flip, concatenate."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..ir.expr import TRUE, Expr, Reader, conjunction, index_constant, operation, select
from ..ir.primitive import PRIMITIVES, Linear, Primitive, Zero, declare
from ..ir.types import Type
from ..trace import bind
from .create import full
from .linear import reduce_sum
from .rules import batch_to_front, broadcast, instantiate, is_zero, linear_jvp, move_axis

# ---- slice ----------------------------------------------------------------------------------------------------------


def _extent(start: int, limit: int, stride: int) -> int:
    return max(0, -(-(limit - start) // stride))


def _slice_type(x: Type, *, start: tuple[int, ...], limit: tuple[int, ...], strides: tuple[int, ...]) -> Type:
    if not len(start) == len(limit) == len(strides) == x.rank:
        raise ShapeError(f"slice: start {start}, limit {limit} and strides {strides} need one entry for each axis of "
                         f"an array of shape {x.shape}")
    for axis, extent in enumerate(x.shape):
        if not 0 <= start[axis] <= limit[axis] <= extent or strides[axis] < 1:
            raise ShapeError(f"slice: {start[axis]}:{limit[axis]}:{strides[axis]} does not lie within axis {axis} of "
                             f"an array of shape {x.shape}")
    return x.with_shape(tuple(map(_extent, start, limit, strides)))


def _slice_reference(x: np.ndarray, *, start: tuple[int, ...], limit: tuple[int, ...],
                     strides: tuple[int, ...]) -> np.ndarray:
    return x[tuple(map(slice, start, limit, strides))]


def _slice_transpose(cotangent: Any, operands: Sequence[Any], *, start: tuple[int, ...], limit: tuple[int, ...],
                     strides: tuple[int, ...]) -> tuple[Any]:
    """The cotangent spread over a window of zeros: a pad with interior stride - 1."""
    shape = operands[0].type.shape
    config = []
    for extent, first, step, count in zip(shape, start, strides, cotangent.shape, strict=True):
        covered = 0 if count == 0 else (count - 1) * step + 1
        config.append((first, extent - first - covered, step - 1))
    return (pad(cotangent, full((), 0, cotangent.dtype), tuple(config)),)


def _slice_batch(size: int, operands: Sequence[Any], axes: Sequence[Any], *, start: tuple[int, ...],
                 limit: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    moved = move_axis(operands[0], axes[0], 0)
    return slice_(moved, (0, *start), (size, *limit), (1, *strides)), 0


def _slice_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                 start: tuple[int, ...], limit: tuple[int, ...], strides: tuple[int, ...]) -> Expr:
    places = tuple(_affine(i, step, first) for i, first, step in zip(index, start, strides, strict=True))
    return readers[0](places, valid)


def _affine(i: Expr, factor: int, offset: int) -> Expr:
    if factor != 1:
        i = operation("mul", i, index_constant(factor))
    return operation("add", i, index_constant(offset)) if offset else i


slice_p = declare(Primitive(
    "slice", _slice_type, _slice_reference, linear_jvp("slice"), _slice_transpose, _slice_batch, _slice_lower,
    frozenset({"movement", "linear", "cheap"}),
    "Elements start, start + stride, ... below limit of every axis."))


def slice_(x: Any, start: tuple[int, ...], limit: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """x[start:limit:strides], all axes given, bounds within the array, strides positive."""
    steps: tuple[int, ...] = strides or (1,) * x.ndim
    if limit == x.shape and not any(start) and all(step == 1 for step in steps):
        return x
    return bind(slice_p, x, start=start, limit=limit, strides=steps)


# ---- pad ------------------------------------------------------------------------------------------------------------

PadConfig = tuple[tuple[int, int, int], ...]


def _padded_extent(extent: int, low: int, high: int, interior: int) -> int:
    return low + high + extent + max(0, extent - 1) * interior


def _pad_type(x: Type, value: Type, *, config: PadConfig) -> Type:
    if value.rank or value.dtype != x.dtype:
        raise DTypeError(f"pad: the padding value must be a scalar {x.dtype}, got {value}")
    if len(config) != x.rank or any(interior < 0 for _, _, interior in config):
        raise ShapeError(f"pad: {config} needs (low, high, interior >= 0) for each axis of an array of shape {x.shape}")
    shape = tuple(_padded_extent(extent, *entry) for extent, entry in zip(x.shape, config, strict=True))
    if min(shape, default=0) < 0:
        raise ShapeError(f"pad: {config} removes more than an array of shape {x.shape} has")
    return x.with_shape(shape)


def _pad_reference(x: np.ndarray, value: np.ndarray, *, config: PadConfig) -> np.ndarray:
    spread = [extent + max(0, extent - 1) * interior for extent, (_, _, interior) in zip(x.shape, config, strict=True)]
    inner = np.full(spread, value, x.dtype)
    inner[tuple(slice(None, None, interior + 1) for _, _, interior in config)] = x
    outer: np.ndarray = np.pad(inner, [(max(low, 0), max(high, 0)) for low, high, _ in config],
                               constant_values=value[()])
    crop = tuple(slice(max(-low, 0), extent - max(-high, 0)) for extent, (low, high, _) in
                 zip(outer.shape, config, strict=True))
    return outer[crop].astype(x.dtype)


def _pad_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, config: PadConfig) -> tuple[Any, Any]:
    result = pad(primals[0], primals[1], config)
    if all(map(is_zero, tangents)):
        return result, Zero(result.type)
    return result, pad(instantiate(tangents[0]), instantiate(tangents[1]), config)


def _pad_transpose(cotangent: Any, operands: Sequence[Any], *, config: PadConfig) -> tuple[Any, Any]:
    x, value = operands
    inner = unpad(cotangent, config, x.type.shape)
    to_value = None
    if isinstance(value, Linear):
        every = tuple(range(cotangent.ndim))
        to_value = bind(PRIMITIVES["sub"], reduce_sum(cotangent, every), reduce_sum(inner, every))
    return (inner if isinstance(x, Linear) else None), to_value


def unpad(y: Any, config: PadConfig, shape: tuple[int, ...]) -> Any:
    """The elements of `y` that `pad` with `config` takes from an operand of `shape` (0 for those it cuts away)."""
    if 0 in shape:
        return full(shape, 0, y.dtype)
    restored = pad(y, full((), 0, y.dtype), tuple((max(-low, 0), max(-high, 0), 0) for low, high, _ in config))
    start = tuple(max(low, 0) for low, _, _ in config)
    strides = tuple(interior + 1 for _, _, interior in config)
    limit = tuple(first + (extent - 1) * step + 1 for first, extent, step in zip(start, shape, strides, strict=True))
    return slice_(restored, start, limit, strides)


def _pad_batch(size: int, operands: Sequence[Any], axes: Sequence[Any], *, config: PadConfig) -> Any:
    x, value = operands
    x_axis, value_axis = axes
    if value_axis is None:
        return pad(move_axis(x, x_axis, 0), value, ((0, 0, 0), *config)), 0
    # A padding value for each element of the batch: pad with zeros, and put the values where a padded mask says.
    x = batch_to_front(size, x, x_axis)
    padded = pad(x, full((), 0, x.dtype), ((0, 0, 0), *config))
    inside = pad(full(x.shape, True, np.dtype(bool)), full((), False, np.dtype(bool)), ((0, 0, 0), *config))
    return bind(PRIMITIVES["select"], inside, padded, broadcast(value, padded.shape, (0,))), 0


def _pad_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
               config: PadConfig) -> Expr:
    x, value = readers
    inside = TRUE
    inner = []
    for i, extent, (low, high, interior) in zip(index, x.shape, config, strict=True):
        position = _affine(i, 1, -low)
        if interior:
            step = index_constant(interior + 1)
            # Offset by a multiple of the step so that the division sees no negative number.
            rounds = -(-max(low, 0) // (interior + 1))
            shifted = _affine(position, 1, rounds * (interior + 1))
            inside = conjunction(inside, operation("eq", operation("rem", shifted, step), index_constant(0)))
            position = _affine(operation("div", shifted, step), 1, -rounds)
        if low > 0:
            inside = conjunction(inside, operation("ge", position, index_constant(0)))
        if high > 0:
            inside = conjunction(inside, operation("lt", position, index_constant(extent)))
        inner.append(position)
    if inside is TRUE:
        return x(tuple(inner), valid)
    return select(inside, x(tuple(inner), conjunction(valid, inside)), value((), valid))


pad_p = declare(Primitive(
    "pad", _pad_type, _pad_reference, _pad_jvp, _pad_transpose, _pad_batch, _pad_lower,
    frozenset({"movement", "linear", "cheap"}),
    "config[i] = (low, high, interior) elements of the value before, after and between the elements of axis i; "
    "negative low and high cut."))


def pad(x: Any, value: Any, config: PadConfig) -> Any:
    """`x` surrounded by `value` (a scalar of its dtype)."""
    return x if not any(map(any, config)) else bind(pad_p, x, value, config=config)


# ---- flip -----------------------------------------------------------------------------------------------------------


def _flip_type(x: Type, *, axes: tuple[int, ...]) -> Type:
    if any(not 0 <= a < x.rank for a in axes):
        raise ShapeError(f"flip: axes {axes} are not axes of an array of shape {x.shape}")
    return x


def _flip_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                axes: tuple[int, ...]) -> Expr:
    return readers[0](tuple(operation("sub", index_constant(type.shape[a] - 1), i) if a in axes else i
                            for a, i in enumerate(index)), valid)


flip_p = declare(Primitive(
    "flip", _flip_type, lambda x, *, axes: np.flip(x, axes).copy(), linear_jvp("flip"),
    lambda cotangent, operands, *, axes: (flip(cotangent, axes),),
    lambda size, operands, batch_axes, *, axes: (
        flip(move_axis(operands[0], batch_axes[0], 0), tuple(a + 1 for a in axes)), 0),
    _flip_lower, frozenset({"movement", "linear", "cheap"}), "The elements in reverse order along `axes`."))


def flip(x: Any, axes: tuple[int, ...]) -> Any:
    """`x` reversed along `axes`."""
    return bind(flip_p, x, axes=tuple(sorted(axes))) if axes else x


# ---- concatenate ----------------------------------------------------------------------------------------------------


def _concatenate_type(*types: Type, axis: int) -> Type:
    first = types[0]
    if not 0 <= axis < first.rank:
        raise ShapeError(f"concatenate: axis {axis} is not an axis of an array of shape {first.shape}")
    for type in types[1:]:
        same = type.rank == first.rank and all(a == axis or type.shape[a] == first.shape[a] for a in range(first.rank))
        if not same:
            raise ShapeError(f"concatenate: shapes {first.shape} and {type.shape} differ outside axis {axis}")
        if type.dtype != first.dtype:
            raise DTypeError(f"concatenate: element types {first.dtype} and {type.dtype} differ")
    extent = sum(type.shape[axis] for type in types)
    return first.with_shape((*first.shape[:axis], extent, *first.shape[axis + 1:]))


def _concatenate_transpose(cotangent: Any, operands: Sequence[Any], *, axis: int) -> tuple[Any, ...]:
    parts = []
    start = 0
    for operand in operands:
        extent = operand.type.shape[axis]
        if isinstance(operand, Linear):
            low = [0] * cotangent.ndim
            high = list(cotangent.shape)
            low[axis], high[axis] = start, start + extent
            parts.append(slice_(cotangent, tuple(low), tuple(high)))
        else:
            parts.append(None)
        start += extent
    return tuple(parts)


def _concatenate_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, axis: int) -> Any:
    return concatenate([batch_to_front(size, x, a) for x, a in zip(operands, axes, strict=True)], axis + 1), 0


def _concatenate_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                       axis: int) -> Expr:
    """A choice between the operands by the index along `axis`, as a balanced tree of selects."""
    bounds = np.cumsum([0, *(reader.shape[axis] for reader in readers)]).tolist()

    def choose(first: int, last: int, valid: Expr) -> Expr:
        if last - first == 1:
            inner = _affine(index[axis], 1, -bounds[first])
            return readers[first]((*index[:axis], inner, *index[axis + 1:]), valid)
        middle = (first + last) // 2
        below = operation("lt", index[axis], index_constant(bounds[middle]))
        above = operation("ge", index[axis], index_constant(bounds[middle]))
        return select(below, choose(first, middle, conjunction(valid, below)),
                      choose(middle, last, conjunction(valid, above)))
    return choose(0, len(readers), valid)


concatenate_p = declare(Primitive(
    "concatenate", _concatenate_type, lambda *xs, axis: np.concatenate(xs, axis), linear_jvp("concatenate"),
    _concatenate_transpose, _concatenate_batch, _concatenate_lower, frozenset({"movement", "linear"}),
    "The operands one after another along `axis`."))


def concatenate(xs: Sequence[Any], axis: int) -> Any:
    """The arrays `xs`, equal outside `axis`, one after another along it."""
    return xs[0] if len(xs) == 1 else bind(concatenate_p, *xs, axis=axis)

"""conv: the N-dimensional convolution (cross-correlation) of deep learning, with strides, padding, dilation and groups.

One canonical layout: operand (N, C, spatial...), kernel (O, I, spatial...), result (N, O, spatial...); front ends
transpose other layouts into it, which costs index arithmetic only. The derivatives are convolutions again (the formulas
are those of JAX's `lax/convolution.py`: swap the roles of batch and feature axes, of strides and dilations).
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import promote
from ..errors import ShapeError
from ..ir.expr import (
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
from ..ir.primitive import Linear, Primitive, Zero, declare
from ..ir.types import Shape, Type, array_type
from ..trace import bind
from .contract import check_product_types, product_accumulation
from .create import full
from .linear import reshape, transpose
from .rules import add_tangents, is_zero, move_axis
from .slicing import flip, pad, pad_p, slice_

Extents = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]


def dilated(extent: int, dilation: int) -> int:
    """The extent of an axis with `dilation - 1` holes between its elements."""
    return 0 if extent == 0 else (extent - 1) * dilation + 1


def convolved_extents(operand: Extents, kernel: Extents, strides: Extents, padding: Padding, lhs_dilation: Extents,
                      rhs_dilation: Extents) -> Extents:
    """The spatial shape of the result: how often the dilated kernel fits into the dilated, padded operand."""
    result = []
    for x, k, stride, (low, high), spread, kernel_spread in zip(operand, kernel, strides, padding, lhs_dilation,
                                                                rhs_dilation, strict=True):
        room = dilated(x, spread) + low + high - dilated(k, kernel_spread)
        result.append(0 if room < 0 else room // stride + 1)
    return tuple(result)


def _check_parameters(rank: int, strides: Extents, padding: Padding, lhs_dilation: Extents,
                      rhs_dilation: Extents) -> None:
    positive = {"strides": strides, "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    for name, value in (positive | {"padding": padding}).items():
        if len(value) != rank:
            raise ShapeError(f"conv: {name}={value} needs one entry for each of the {rank} spatial axes")
    for name, value in positive.items():
        if any(entry < 1 for entry in value):
            raise ShapeError(f"conv: {name}={value} must be positive")


def _conv_type(lhs: Type, rhs: Type, *, strides: Extents, padding: Padding, lhs_dilation: Extents,
               rhs_dilation: Extents, feature_group_count: int, batch_group_count: int, dtype: np.dtype) -> Type:
    check_product_types("conv", lhs.dtype, rhs.dtype, dtype)
    if lhs.rank < 2 or lhs.rank != rhs.rank:
        raise ShapeError(f"conv: the operand (N, C, spatial...) and the kernel (O, I, spatial...) need the same number "
                         f"of axes, at least two; got shapes {lhs.shape} and {rhs.shape}")
    _check_parameters(lhs.rank - 2, strides, padding, lhs_dilation, rhs_dilation)
    (batch, channels), (features, inputs) = lhs.shape[:2], rhs.shape[:2]
    if feature_group_count < 1 or batch_group_count < 1 or min(feature_group_count, batch_group_count) != 1:
        raise ShapeError(f"conv: feature_group_count={feature_group_count} and batch_group_count={batch_group_count} "
                         f"must be positive, and one of them 1")
    if channels != inputs * feature_group_count:
        raise ShapeError(f"conv: an operand of shape {lhs.shape} has {channels} channels, but a kernel of shape "
                         f"{rhs.shape} in {feature_group_count} feature groups takes {inputs * feature_group_count}")
    if features % (feature_group_count * batch_group_count) or batch % batch_group_count:
        raise ShapeError(f"conv: {features} output features of a kernel of shape {rhs.shape} and a batch of {batch} do "
                         f"not divide into feature_group_count={feature_group_count}, "
                         f"batch_group_count={batch_group_count} groups")
    spatial = convolved_extents(lhs.shape[2:], rhs.shape[2:], strides, padding, lhs_dilation, rhs_dilation)
    return array_type((batch // batch_group_count, features, *spatial), dtype)


def _conv_reference(lhs: np.ndarray, rhs: np.ndarray, *, strides: Extents, padding: Padding, lhs_dilation: Extents,
                    rhs_dilation: Extents, feature_group_count: int, batch_group_count: int,
                    dtype: np.dtype) -> np.ndarray:
    """For every position of the kernel: the operand's elements under it times its weights."""
    wide = product_accumulation(lhs.dtype, rhs.dtype, dtype)
    config = ((0, 0, 0), (0, 0, 0), *((low, high, d - 1) for (low, high), d in zip(padding, lhs_dilation, strict=True)))
    spatial = convolved_extents(lhs.shape[2:], rhs.shape[2:], strides, padding, lhs_dilation, rhs_dilation)
    groups, batch_groups = feature_group_count, batch_group_count
    batch, features = lhs.shape[0] // batch_groups, rhs.shape[0]
    result = np.zeros((batch, batch_groups, groups, features // (groups * batch_groups), *spatial), wide)
    if result.size:
        operand = pad_p.reference(lhs.astype(wide), np.zeros((), wide), config=config)
        weights = rhs.astype(wide).reshape(batch_groups, groups, result.shape[3], *rhs.shape[1:])
        for k in itertools.product(*map(range, rhs.shape[2:])):
            window = operand[(slice(None), slice(None), *(
                slice(at * d, at * d + (count - 1) * stride + 1, stride)
                for at, d, count, stride in zip(k, rhs_dilation, spatial, strides, strict=True)))]
            grouped = window.reshape(batch_groups, batch, groups, rhs.shape[1], *spatial)
            result += np.einsum("bngi...,bgoi->nbgo...", grouped, weights[(..., *k)])
    return result.reshape(batch, features, *spatial).astype(dtype)


def _conv_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    (lhs, rhs), (lhs_tangent, rhs_tangent) = primals, tangents
    result = bind(conv_p, lhs, rhs, **params)
    tangent: Any = Zero(result.type)
    if not is_zero(lhs_tangent):
        tangent = bind(conv_p, lhs_tangent, rhs, **params)
    if not is_zero(rhs_tangent):
        tangent = add_tangents(tangent, bind(conv_p, lhs, rhs_tangent, **params))
    return result, tangent


# ---- transpose ------------------------------------------------------------------------------------------------------


def _swap_leading(x: Any) -> Any:
    return transpose(x, (1, 0, *range(2, x.ndim)))


def _regroup(x: Any, groups: int) -> Any:
    """(groups * A, B, ...) -> (A, groups * B, ...)."""
    first, second, *rest = x.shape
    split = reshape(x, (groups, first // groups, second, *rest))
    return reshape(transpose(split, (1, 0, *range(2, split.ndim))), (first // groups, groups * second, *rest))


def _conv_transpose_lhs(cotangent: Any, lhs: Type, rhs: Any, *, strides: Extents, padding: Padding,
                        lhs_dilation: Extents, rhs_dilation: Extents, feature_group_count: int, batch_group_count: int,
                        dtype: np.dtype) -> Any:
    """Convolve the cotangent, dilated by the strides, with the kernel reversed in space; its O and I change places."""
    spatial = range(2, rhs.ndim)
    groups = feature_group_count * batch_group_count     # one of them is 1; both are feature groups of the cotangent
    weights = _swap_leading(_regroup(rhs, groups)) if groups > 1 else _swap_leading(rhs)
    new_padding = []
    for a in spatial:
        kernel = dilated(rhs.shape[a], rhs_dilation[a - 2])
        before = kernel - padding[a - 2][0] - 1
        total = dilated(lhs.shape[a], lhs_dilation[a - 2]) + kernel - 1 - dilated(cotangent.shape[a], strides[a - 2])
        new_padding.append((before, total - before))
    result = conv(cotangent, flip(weights, tuple(spatial)), strides=lhs_dilation, padding=tuple(new_padding),
                  lhs_dilation=strides, rhs_dilation=rhs_dilation, feature_group_count=groups, dtype=lhs.dtype)
    if batch_group_count > 1:                            # (N', groups * C, ...) -> (groups * N', C, ...)
        batch, channels, *rest = result.shape
        split = reshape(result, (batch, groups, channels // groups, *rest))
        result = reshape(transpose(split, (1, 0, *range(2, split.ndim))), lhs.shape)
    return result


def _conv_transpose_rhs(cotangent: Any, lhs: Any, rhs: Type, *, strides: Extents, padding: Padding,
                        lhs_dilation: Extents, rhs_dilation: Extents, feature_group_count: int, batch_group_count: int,
                        dtype: np.dtype) -> Any:
    """Convolve the operand with the cotangent, summing over the batch; the two kinds of groups change places."""
    new_padding = []
    for a in range(2, rhs.rank):
        low = padding[a - 2][0]
        difference = dilated(cotangent.shape[a], strides[a - 2]) - dilated(lhs.shape[a], lhs_dilation[a - 2])
        new_padding.append((low, difference + dilated(rhs.shape[a], rhs_dilation[a - 2]) - low - 1))
    result = conv(_swap_leading(lhs), _swap_leading(cotangent), strides=rhs_dilation, padding=tuple(new_padding),
                  lhs_dilation=lhs_dilation, rhs_dilation=strides, feature_group_count=batch_group_count,
                  batch_group_count=feature_group_count, dtype=rhs.dtype)
    return _swap_leading(result)


def _conv_transpose(cotangent: Any, operands: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    lhs, rhs = operands
    linear = lhs.type if isinstance(lhs, Linear) else rhs.type
    if cotangent.size == 0 or linear.size == 0:
        answer = full(linear.shape, 0, linear.dtype)
    elif isinstance(lhs, Linear):
        answer = _conv_transpose_lhs(cotangent, linear, rhs, **params)
    else:
        answer = _conv_transpose_rhs(cotangent, lhs, linear, **params)
    return (answer, None) if isinstance(lhs, Linear) else (None, answer)


# ---- batch ----------------------------------------------------------------------------------------------------------


def _fold(x: Any, mapped: int, into: int, groups: int) -> Any:
    """Fold the mapped axis into axis `into` (counted without it), whose extent groups * A becomes groups * size * A."""
    size = x.shape[mapped]
    x = move_axis(x, mapped, into)
    shape = (*x.shape[:into], *x.shape[into + 1:])
    if groups > 1:
        per_group = shape[into] // groups
        split = reshape(x, (*shape[:into], size, groups, per_group, *shape[into + 1:]))
        x = move_axis(split, into, into + 1)
    return reshape(x, (*shape[:into], size * shape[into], *shape[into + 1:]))


def _unfold(x: Any, size: int, axis: int, groups: int) -> tuple[Any, int]:
    """The inverse of `_fold`: an array with the mapped axis in front."""
    per_group = x.shape[axis] // (size * groups)
    split = reshape(x, (*x.shape[:axis], groups, size, per_group, *x.shape[axis + 1:]))
    moved = move_axis(split, axis + 1, 0)
    return reshape(moved, (size, *x.shape[:axis], groups * per_group, *x.shape[axis + 1:])), 0


def _conv_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, int]:
    """Two mapped operands: further groups. Only the operand: a larger batch. Only the kernel: more output features."""
    (lhs, rhs), (lhs_axis, rhs_axis) = operands, axes
    features, batches = params["feature_group_count"], params["batch_group_count"]
    if lhs_axis is not None and rhs_axis is not None:
        kernel = _fold(rhs, rhs_axis, 0, 1)
        if batches > 1:
            operand, groups = _fold(lhs, lhs_axis, 0, 1), {"batch_group_count": batches * size}
        else:
            operand, groups = _fold(lhs, lhs_axis, 1, 1), {"feature_group_count": features * size}
        result = bind(conv_p, operand, kernel, **params | groups)
        return _unfold(result, size, 1, 1)
    if lhs_axis is not None:
        return _unfold(bind(conv_p, _fold(lhs, lhs_axis, 0, batches), rhs, **params), size, 0, 1)
    assert rhs_axis is not None
    every = features * batches
    return _unfold(bind(conv_p, lhs, _fold(rhs, rhs_axis, 0, every), **params), size, 1, every)


# ---- lower ----------------------------------------------------------------------------------------------------------


def _affine(terms: Sequence[tuple[Expr, int]], offset: int) -> Expr:
    total = None
    for x, factor in terms:
        scaled = x if factor == 1 else operation("mul", x, index_constant(factor))
        total = scaled if total is None else operation("add", total, scaled)
    assert total is not None
    return total if offset == 0 else operation("add", total, index_constant(offset))


def _position(place: Expr, tap: Expr, extent: int, count: int, taps: int, stride: int, low: int, spread: int,
              kernel_spread: int) -> tuple[Expr, Expr]:
    """The operand's index under tap `tap` of the kernel at result position `place`, and where it lies within."""
    position = _affine([(place, stride), (tap, kernel_spread)], -low)
    inside = TRUE
    if low > 0:
        inside = operation("ge", position, index_constant(0))
    if (count - 1) * stride + (taps - 1) * kernel_spread - low > (extent - 1) * spread:
        inside = conjunction(inside, operation("le", position, index_constant((extent - 1) * spread)))
    if spread > 1:
        rounds = -(-max(low, 0) // spread)    # the division must see no negative number
        shifted = _affine([(place, stride), (tap, kernel_spread)], rounds * spread - low)
        on_element = operation("eq", operation("rem", shifted, index_constant(spread)), index_constant(0))
        inside = conjunction(inside, on_element)
        position = _affine([(operation("div", shifted, index_constant(spread)), 1)], -rounds)
    return position, inside


def _group(index: Expr, members: int, groups: int) -> Expr | None:
    """The number of the group that a feature belongs to; None for a single group."""
    if groups == 1:
        return None
    return index if members == 1 else operation("div", index, index_constant(members))


def _in_group(index: Expr, group: Expr | None, members: int) -> Expr:
    if group is None:
        return index
    return group if members == 1 else _affine([(group, members), (index, 1)], 0)


def _conv_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *, strides: Extents,
                padding: Padding, lhs_dilation: Extents, rhs_dilation: Extents, feature_group_count: int,
                batch_group_count: int, dtype: np.dtype) -> Expr:
    lhs, rhs = readers
    batch, feature, *places = index
    inputs, kernel = rhs.shape[1], rhs.shape[2:]
    channel_loop = Axis("i", inputs)
    tap_loops = tuple(Axis(f"k{number}", taps) for number, taps in enumerate(kernel))
    channel = axis_expr(channel_loop)
    groups = feature_group_count * batch_group_count
    group = _group(feature, type.shape[1] // groups, groups)
    positions, inside = [], TRUE
    for a, (place, loop) in enumerate(zip(places, tap_loops, strict=True)):
        position, within = _position(place, axis_expr(loop), lhs.shape[2 + a], type.shape[2 + a], loop.extent,
                                     strides[a], padding[a][0], lhs_dilation[a], rhs_dilation[a])
        positions.append(position)
        inside = conjunction(inside, within)
    row = _in_group(batch, group, type.shape[0]) if batch_group_count > 1 else batch
    column = _in_group(channel, group, inputs) if feature_group_count > 1 else channel
    wide = product_accumulation(lhs.dtype, rhs.dtype, dtype)
    element = lhs((row, column, *positions), conjunction(valid, inside))
    left = cast(select(inside, element, constant(0, lhs.dtype)), wide)
    right = cast(rhs((feature, channel, *map(axis_expr, tap_loops)), valid), wide)
    return cast(reduce("add", operation("mul", left, right), (channel_loop, *tap_loops)), dtype)


conv_p = declare(Primitive(
    "conv", _conv_type, _conv_reference, _conv_jvp, _conv_transpose, _conv_batch, _conv_lower,
    frozenset({"contraction"}),
    "(N, C, spatial...) with a kernel (O, I, spatial...) to (N, O, spatial...); 16-bit floats accumulate in float32."))


# ---- functions ------------------------------------------------------------------------------------------------------


def conv(lhs: Any, rhs: Any, *, strides: Extents | None = None, padding: Padding | None = None,
         lhs_dilation: Extents | None = None, rhs_dilation: Extents | None = None, feature_group_count: int = 1,
         batch_group_count: int = 1, dtype: np.dtype | None = None) -> Any:
    """Convolve `lhs` (N, C, spatial...) with the kernel `rhs` (O, I, spatial...), without flipping the kernel.

    Result position p sees the operand, with lhs_dilation - 1 zeros between its elements and `padding` (low, high; may
    be negative) zeros around, at p * stride + k * rhs_dilation. feature_group_count G: C = G * I, and features o and
    channels are split into G groups that do not see one another. batch_group_count: the same over the batch, N.
    """
    ones = (1,) * (lhs.ndim - 2)
    params = {"strides": strides or ones, "padding": padding or ((0, 0),) * len(ones),
              "lhs_dilation": lhs_dilation or ones, "rhs_dilation": rhs_dilation or ones,
              "feature_group_count": feature_group_count, "batch_group_count": batch_group_count,
              "dtype": promote(lhs.dtype, rhs.dtype) if dtype is None else dtype}
    if any(spread > 1 for spread in params["lhs_dilation"]):
        result = conv_p.type(lhs.type, rhs.type, **params)
        if result.size and lhs.size and rhs.size:
            return _dilated_conv(lhs, rhs, result.shape, params)
    return bind(conv_p, lhs, rhs, **params)


@dataclass(frozen=True, slots=True)
class _Phases:
    """How one axis with `spread` > 1 is convolved without holes: each of the `spread` phases of the result sees every
    spread-th tap of the kernel, so the phases are further features of a convolution with `taps` taps (sub-pixel
    convolution, Shi et al. 2016). The first `skip` results of the phases side by side are not asked for."""
    spread: int
    taps: int
    padding: tuple[int, int]
    skip: int


def _phases(extent: int, kernel: int, count: int, low: int, spread: int) -> _Phases:
    """Tap k = spread * m + spread - 1 - r meets x[a + m - whole] at position spread * a + r - skip."""
    skip = (spread - 1 - low) % spread
    whole = (low + skip) // spread
    taps = -(-kernel // spread)
    positions = -(-(count + skip) // spread)
    return _Phases(spread, taps, (whole, positions - extent - whole + taps - 1), skip)


def _dilated_conv(lhs: Any, rhs: Any, shape: Shape, params: dict[str, Any]) -> Any:
    """A convolution of an operand with holes (a transposed convolution) that does not multiply the holes, where it can.

    An axis with one tap is convolved without holes and spread afterwards; one with more taps by phases. Sums have
    further zero terms, so that an infinite operand makes NaN in the other phases of its result, too.
    """
    strides, padding, spreads = list(params["strides"]), list(params["padding"]), list(params["lhs_dilation"])
    holes: list[tuple[int, int, int]] = [(0, 0, 0)] * lhs.ndim
    phases: dict[int, _Phases] = {}
    for a, spread in enumerate(spreads):
        if spread == 1 or strides[a] != 1 or params["rhs_dilation"][a] != 1:
            continue
        kernel, low = rhs.shape[2 + a], padding[a][0]
        if kernel == 1:
            holes[2 + a] = (low, padding[a][1], spread - 1)
            spreads[a], padding[a] = 1, (0, 0)
            continue
        phase = _phases(lhs.shape[2 + a], kernel, shape[2 + a], low, spread)
        if phase.taps < kernel:
            phases[a] = phase
            spreads[a], padding[a] = 1, phase.padding
    params = params | {"padding": tuple(padding), "lhs_dilation": tuple(spreads)}
    if phases:
        rhs = _phase_kernel(rhs, phases)
    result = bind(conv_p, lhs, rhs, **params)
    if phases:
        result = _interleaved(result, shape, phases, [a for a in range(len(spreads)) if any(holes[2 + a])])
    return pad(result, full((), 0, result.dtype), tuple(holes))


def _phase_kernel(rhs: Any, phases: dict[int, _Phases]) -> Any:
    """(O, I, k...) -> (O * phases, I, taps...): the taps of each phase."""
    rank = rhs.ndim - 2
    config = [(0, 0, 0), (0, 0, 0)]
    split: list[int] = list(rhs.shape[:2])
    tap_axes, phase_axes = [], []
    for a in range(rank):
        phase = phases.get(a)
        config.append((0, 0, 0) if phase is None else (0, phase.taps * phase.spread - rhs.shape[2 + a], 0))
        tap_axes.append(len(split))
        split.append(rhs.shape[2 + a] if phase is None else phase.taps)
        if phase is not None:
            phase_axes.append(len(split))
            split.append(phase.spread)
    padded = reshape(pad(rhs, full((), 0, rhs.dtype), tuple(config)), tuple(split))
    moved = transpose(flip(padded, tuple(phase_axes)), (0, *phase_axes, 1, *tap_axes))
    features = rhs.shape[0] * math.prod(p.spread for p in phases.values())
    return reshape(moved, (features, rhs.shape[1], *(split[a] for a in tap_axes)))


def _interleaved(result: Any, shape: Shape, phases: dict[int, _Phases], with_holes: Sequence[int]) -> Any:
    """(N, O * phases, a...) -> (N, O, spatial...): the phases side by side again."""
    order = sorted(phases)
    spreads = [phases[a].spread for a in order]
    batch, features, *places = result.shape
    split = reshape(result, (batch, features // math.prod(spreads), *spreads, *places))
    permutation = [0, 1]
    merged = [batch, features // math.prod(spreads)]
    for a, extent in enumerate(places):
        permutation.append(2 + len(order) + a)
        if a in phases:
            permutation.append(2 + order.index(a))
        merged.append(extent * phases[a].spread if a in phases else extent)
    whole = reshape(transpose(split, tuple(permutation)), tuple(merged))
    first = [phases[a].skip if a in phases else 0 for a in range(len(places))]
    limit = [merged[2 + a] if a in with_holes else first[a] + shape[2 + a] for a in range(len(places))]
    return slice_(whole, (0, 0, *first), (*merged[:2], *limit))

"""Permutations, choices, categories."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.arguments import static_int, static_shape
from ..lax.conversion import as_value, place
from ..lax.promotion import broadcast_shape
from ..ops import elementwise as ew
from ..ops.create import full, iota
from ..ops.cumulative import cumsum
from ..ops.index import take
from ..ops.linear import convert, reshape, transpose
from ..ops.reduce import argmax
from ..ops.slicing import slice_
from ..ops.sort import searchsorted, sort, top_k
from ..util import canonical_axis
from .basic import randint, unit
from .continuous import gumbel
from .keys import WORD, Shape, checked_key, random_bits, scalar, split_list, spread


def _shuffled(key: Any, x: Any, axis: int) -> Any:
    """Sort by random 32-bit keys, again and again until ties in all rounds are improbable (as JAX; after tjablin@)."""
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(WORD - 1))
    for _ in range(rounds):
        key, subkey = split_list(key, 2)
        _, x = sort((random_bits(subkey, 32, x.shape), x), axis)
    return x


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Value:
    """`x` (arange of an integer) shuffled along `axis`: slices as a whole, or each line by itself if `independent`."""
    key = checked_key("permutation", key)
    if isinstance(x, (int, np.integer)):
        return _shuffled(key, iota((int(x),), 0, dtypes.default_int()), 0)
    x = as_value("permutation", x)
    if x.ndim == 0:
        return permutation(key, static_int("permutation", "x", x))
    axis = canonical_axis(axis, x.ndim)
    if independent or x.ndim == 1:
        return _shuffled(key, x, axis)
    return take(x, _shuffled(key, iota((x.shape[axis],), 0, dtypes.default_int()), 0), axis, "promise_in_bounds")


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
           mode: str | None = None) -> Value:
    """Random elements (or slices along `axis`) of `a`, or of arange(a), with probabilities `p` (uniform without).

    mode: of the Gumbel numbers used for drawing without replacement by `p`.
    """
    key, shape = checked_key("choice", key), static_shape("choice", shape)
    source = None if isinstance(a, (int, np.integer)) else as_value("choice", a)
    if source is not None and source.ndim == 0:
        a, source = static_int("choice", "a", source), None
    axis = 0 if source is None else canonical_axis(axis, source.ndim)
    count, draws = int(a) if source is None else source.shape[axis], math.prod(shape)
    if draws and count <= 0:
        raise ValueError("choice: there is nothing to choose from")
    if not replace and draws > count:
        raise ValueError(f"choice: {draws} draws without replacement from {count} elements")
    if draws == 0:
        chosen = full((0,), 0, dtypes.default_int())
    elif p is not None:
        chosen = _weighted(key, as_value("choice", p), count, draws, replace, mode)
    elif replace:
        chosen = randint(key, (draws,), 0, count)
    elif source is not None and source.ndim == 1:
        return reshape(slice_(_shuffled(key, source, 0), (0,), (draws,)), shape)
    else:
        chosen = slice_(permutation(key, count), (0,), (draws,))
    if source is None:
        return reshape(chosen, shape)
    result = take(source, chosen, axis, "promise_in_bounds" if draws else "clip") if count else \
        full((*source.shape[:axis], 0, *source.shape[axis + 1:]), 0, source.dtype)
    return reshape(result, (*source.shape[:axis], *shape, *source.shape[axis + 1:]))


def _weighted(key: Any, p: Any, count: int, draws: int, replace: bool, mode: str | None) -> Any:
    """Positions drawn with probabilities `p`: by the inverse of their sums, or as the largest of log p + Gumbel."""
    if p.shape != (count,):
        raise ShapeError(f"choice: p of shape {p.shape} needs one probability for each of {count} elements")
    p = convert(p, dtypes.to_inexact(p.dtype))
    if replace:
        sums = cumsum(p, 0)
        total = scalar(sums, count - 1)
        r = ew.mul(spread(total, (draws,)), ew.sub(1.0, unit(key, (draws,), p.dtype)))
        return searchsorted(sums, r)
    return top_k(ew.add(gumbel(key, (count,), p.dtype, mode), ew.log(p)), draws)[1]


def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
                mode: str | None = None) -> Value:
    """Positions along `axis` drawn with probabilities softmax(logits).

    shape: extra leading axes, then the shape of `logits` without `axis`; by default the latter.
    """
    key, logits = checked_key("categorical", key), as_value("categorical", logits)
    logits = convert(logits, dtypes.to_inexact(logits.dtype))
    axis = canonical_axis(axis, logits.ndim)
    batch = (*logits.shape[:axis], *logits.shape[axis + 1:])
    shape = batch if shape is None else static_shape("categorical", shape)
    extra = shape[:len(shape) - len(batch)]
    if len(shape) < len(batch) or broadcast_shape("categorical", shape, batch) != shape:
        raise ShapeError(f"categorical: logits of shape {logits.shape} without axis {axis} do not fit the requested "
                         f"shape {shape}")
    if not replace:
        return _without_replacement(key, logits, axis, shape, extra, mode)
    rest = list(shape[len(extra):])
    rest.insert(axis, logits.shape[axis])
    noise = gumbel(key, (*extra, *rest), logits.dtype, mode)
    return argmax(ew.add(noise, place(logits, noise.shape, logits.dtype)), len(extra) + axis)


def _without_replacement(key: Any, logits: Any, axis: int, shape: Shape, extra: Shape, mode: str | None) -> Any:
    count = math.prod(extra)
    if count > logits.shape[axis]:
        raise ValueError(f"categorical: {count} draws without replacement from {logits.shape[axis]} categories")
    noisy = ew.add(logits, gumbel(key, logits.shape, logits.dtype, mode))
    last = noisy.ndim - 1
    moved = transpose(noisy, (*[a for a in range(noisy.ndim) if a != axis], axis))
    positions = top_k(moved, count)[1]
    return reshape(transpose(positions, (last, *range(last))), shape)

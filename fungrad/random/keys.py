"""Random keys and bits: threefry2x32 in the counter mode that JAX calls partitionable."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..lax.arguments import static_int, static_shape
from ..lax.conversion import as_value
from ..lax.promotion import broadcast_shape
from ..ops import elementwise as ew
from ..ops.bits import threefry2x32
from ..ops.create import full, iota
from ..ops.linear import broadcast, convert, reshape
from ..ops.slicing import concatenate, slice_

Shape = tuple[int, ...]
UINT32, UINT64 = np.dtype("uint32"), np.dtype("uint64")
WORD = 2**32


# ---- arguments ------------------------------------------------------------------------------------------------------


def checked_key(name: str, key: Any) -> Value:
    """`key` as a value, or an error that says what a key is."""
    key = as_value(name, key)
    if key.dtype != UINT32 or key.shape != (2,):
        several = key.dtype == UINT32 and key.ndim > 1
        raise TypeError(f"{name}: a random key is a uint32 array of shape (2,), made by fungrad.random.key(seed), "
                        f"got {key.type}.{' For a result per key, use fungrad.vmap over the keys.' if several else ''}")
    return key


def float_dtype(name: str, dtype: Any) -> np.dtype:
    kind = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_float(kind):
        raise DTypeError(f"{name}: dtype must be a floating type, got {kind}")
    return kind


def result_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """The given shape, checked to be one to which the parameters broadcast; without one, that of the parameters."""
    shapes = [p.shape for p in parameters]
    if shape is None:
        return broadcast_shape(name, *shapes)
    shape = static_shape(name, shape)
    if broadcast_shape(name, shape, *shapes) != shape:
        raise ShapeError(f"{name}: parameters of shapes {', '.join(map(str, shapes))} do not broadcast to the "
                         f"requested shape {shape}")
    return shape


def scalar(x: Any, position: int) -> Any:
    """Element `position` of a vector."""
    return reshape(slice_(x, (position,), (position + 1,)), ())


def stacked(parts: Sequence[Any]) -> Any:
    """Arrays of one shape side by side along a new last axis."""
    return concatenate([reshape(part, (*part.shape, 1)) for part in parts], parts[0].ndim)


def spread(x: Any, shape: Shape) -> Any:
    return broadcast(x, shape, ()) if x.ndim == 0 else x


# ---- keys and bits --------------------------------------------------------------------------------------------------


def key(seed: Any) -> Value:
    """A random key from an integer seed: its high and low 32 bits (a seed of 32 bits, of either sign, has no high)."""
    if isinstance(seed, (Value, np.ndarray, np.generic)):
        value = as_value("key", seed)
        if not dtypes.is_integer(value.dtype) or value.ndim:
            raise TypeError(f"key: the seed must be an integer scalar, got {value.type}")
        high = full((), 0, UINT32)
        if value.dtype.itemsize == 8:
            high = convert(ew.shift_right_logical(convert(value, UINT64), 32), UINT32)
        return stacked([high, convert(value, UINT32)])
    seed = static_int("key", "the seed", seed)
    if not -(2**63) <= seed < 2**64:
        raise OverflowError(f"key: the seed {seed} does not fit 64 bits")
    bits64 = seed % WORD if -(2**31) <= seed < WORD else seed % 2**64
    return stacked([full((), bits64 // WORD, UINT32), full((), bits64 % WORD, UINT32)])


PRNGKey = key


def wrap_key_data(key_bits_array: Any) -> Value:
    """A key from its two uint32 words; in fungrad a key is these words."""
    return checked_key("wrap_key_data", key_bits_array)


def key_data(keys: Any) -> Value:
    """The words of a key, which is the key itself."""
    return as_value("key_data", keys)


clone = key_data


def counters(shape: Shape) -> tuple[Any, Any]:
    """The high and low words of every element's row-major position."""
    size = math.prod(shape)
    if size <= WORD:
        return full(shape, 0, UINT32), reshape(iota((size,), 0, UINT32), shape)
    position = reshape(iota((size,), 0, UINT64), shape)
    return convert(ew.shift_right_logical(position, 32), UINT32), convert(position, UINT32)


def words(key: Any, shape: Shape) -> tuple[Any, Any]:
    """Two random words for each element of an array of `shape`."""
    high, low = counters(shape)
    return threefry2x32(spread(scalar(key, 0), shape), spread(scalar(key, 1), shape), high, low)


def split(key: Any, num: int | Shape = 2) -> Value:
    """`num` (a number or a shape) new keys from one, of shape (num, 2): `key, subkey = split(key)`."""
    key = checked_key("split", key)
    return stacked(words(key, static_shape("split", num)))


def split_list(key: Any, num: int) -> list[Any]:
    first, second = words(key, (num,))
    return [stacked([scalar(first, i), scalar(second, i)]) for i in range(num)]


def fold_in(key: Any, data: Any) -> Value:
    """A new key from a key and an integer (its lowest 32 bits)."""
    key = checked_key("fold_in", key)
    if isinstance(data, int):
        word = full((), data % WORD, UINT32)
    else:
        word = as_value("fold_in", data)
        if not dtypes.is_integer(word.dtype) or word.ndim:
            raise TypeError(f"fold_in: data must be an integer scalar, got {word.type}")
        word = convert(word, UINT32)
    return stacked(threefry2x32(scalar(key, 0), scalar(key, 1), full((), 0, UINT32), word))


def random_bits(key: Any, width: int, shape: Shape) -> Any:
    """An unsigned integer of `width` random bits for each element."""
    first, second = words(key, shape)
    if width == 64:
        high = ew.shift_left(convert(first, UINT64), 32)
        return ew.bitwise_or(high, convert(second, UINT64))
    return convert(ew.bitwise_xor(first, second), np.dtype(f"uint{width}"))


def bits(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Random bits: an array of an unsigned integer type (uint32 by default)."""
    kind = UINT32 if dtype is None else dtypes.canonical(dtype)
    if kind.kind != "u":
        raise DTypeError(f"bits: dtype must be an unsigned integer type, got {kind}")
    return random_bits(checked_key("bits", key), 8 * kind.itemsize, static_shape("bits", shape))

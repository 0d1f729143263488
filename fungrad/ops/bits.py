"""threefry2x32: the counter-based random number generator behind `fungrad.random`.

Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011). Twenty rounds of additions, rotations
and exclusive ors turn a key and a counter, two words each, into two random words; the same function as JAX's.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..ir.expr import Expr, Reader, constant, operation
from ..ir.primitive import Primitive, declare
from ..ir.types import Type
from ..trace import bind
from .rules import NOT_LINEAR, elementwise_batch, same_type, zero_tangent

UINT32 = np.dtype("uint32")
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA   # the third word of the key is the exclusive or of its two and this


def _threefry_type(k0: Type, k1: Type, x0: Type, x1: Type) -> tuple[Type, Type]:
    common = same_type("threefry2x32", k0, k1, x0, x1)
    if common.dtype != UINT32:
        raise DTypeError(f"threefry2x32: keys and counters must be uint32, got {common.dtype}")
    return common, common


def _rounds(keys: tuple[Any, Any, Any], x0: Any, x1: Any, add: Any, rotate_xor: Any, number: Any) -> tuple[Any, Any]:
    """The twenty rounds, over whatever arithmetic the arguments give; `rotate_xor(a, b, r)` is (a rotated by r) ^ b."""
    x0, x1 = add(x0, keys[0]), add(x1, keys[1])
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = add(x0, x1)
            x1 = rotate_xor(x1, x0, rotation)
        x0 = add(x0, keys[(group + 1) % 3])
        x1 = add(x1, add(keys[(group + 2) % 3], number(group + 1)))
    return x0, x1


def _threefry_reference(k0: np.ndarray, k1: np.ndarray, x0: np.ndarray,
                        x1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):
        keys = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
        first, second = _rounds(keys, x0, x1, lambda a, b: a + b,
                                lambda a, b, r: ((a << np.uint32(r)) | (a >> np.uint32(32 - r))) ^ b, np.uint32)
    return np.asarray(first), np.asarray(second)


def threefry_expressions(k0: Expr, k1: Expr, x0: Expr, x1: Expr) -> tuple[Expr, Expr]:
    """The two random words of a key and a counter, as expressions."""
    def number(value: int) -> Expr:
        return constant(value, UINT32)

    def rotate_xor(a: Expr, b: Expr, r: int) -> Expr:
        left, right = operation("shift_left", a, number(r)), operation("shift_right", a, number(32 - r))
        return operation("xor", operation("or", left, right), b)
    third = operation("xor", operation("xor", k0, k1), number(PARITY))
    return _rounds((k0, k1, third), x0, x1, lambda a, b: operation("add", a, b), rotate_xor, number)


def _threefry_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr,
                    type: tuple[Type, Type]) -> tuple[Expr, Expr]:
    k0, k1, x0, x1 = [reader(index, valid) for reader in readers]
    return threefry_expressions(k0, k1, x0, x1)


threefry2x32_p = declare(Primitive(
    "threefry2x32", _threefry_type, _threefry_reference, zero_tangent("threefry2x32"), NOT_LINEAR,
    elementwise_batch("threefry2x32"), _threefry_lower, frozenset({"elementwise"}),
    "Two random words for each key (k0, k1) and counter (x0, x1).", multiple_results=True))


def threefry2x32(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Two uint32 arrays of random bits from four uint32 arrays of one shape."""
    first, second = bind(threefry2x32_p, k0, k1, x0, x1)
    return first, second

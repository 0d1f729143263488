"""Transposing a square of vectors in registers with two-operand shuffles, log2(lanes) of them a vector.

Two networks. Where a machine has shuffles of two whole vectors by any pattern (64-byte vectors: vpermt2), elements 1,
2, 4, ... lanes apart are exchanged between rows as far apart. LLVM compiles that network fastest. Elsewhere every
block of `unit` x `unit` elements is first transposed in place by interleaving (the unpack instructions, which stay
inside 128 bits), then the blocks are moved by taking even and odd ones of two vectors (perm2f128).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")
Shuffle = Callable[[V, V, tuple[int, ...]], V]


def transpose(rows: list[V], itemsize: int, shuffle: Shuffle[V]) -> list[V]:
    """The columns of a square of a power of 2 of rows, with elements of `itemsize` bytes.

    shuffle(a, b, lanes) picks lanes of a followed by b.
    """
    lanes = len(rows)
    if lanes * itemsize >= 64:
        return exchange(rows, shuffle)
    return interleave(rows, min(max(16 // itemsize, 1), lanes), shuffle)


def exchange(rows: list[V], shuffle: Shuffle[V]) -> list[V]:
    """`transpose` by exchanging elements at growing distances."""
    lanes, columns, distance = len(rows), list(rows), 1
    while distance < lanes:
        low = tuple(i if not i & distance else lanes + i - distance for i in range(lanes))
        high = tuple(i + distance if not i & distance else lanes + i for i in range(lanes))
        for i in range(lanes):
            if not i & distance:
                a, b = columns[i], columns[i + distance]
                columns[i], columns[i + distance] = shuffle(a, b, low), shuffle(a, b, high)
        distance *= 2
    return columns


def interleave(rows: list[V], unit: int, shuffle: Shuffle[V]) -> list[V]:
    """`transpose` by blocks of `unit` x `unit` elements."""
    lanes = len(rows)
    blocks = [_inside(rows[first:first + unit], lanes, unit, shuffle) for first in range(0, lanes, unit)]
    columns: list[V] = [rows[0]] * lanes
    for c in range(unit):
        for q, vector in enumerate(_gather([block[c] for block in blocks], lanes, unit, shuffle)):
            columns[q * unit + c] = vector
    return columns


def _inside(rows: list[V], lanes: int, unit: int, shuffle: Shuffle[V]) -> list[V]:
    """Vector c holds, in every unit, element c of that unit of each row."""
    lists = [[row] for row in rows]
    width = 1
    while len(lists) > 1:
        low, high = (_pieces(lanes, unit, width, half) for half in (0, unit // 2))
        lists = [[shuffle(x, y, mask) for x, y in zip(a, b, strict=True) for mask in (low, high)]
                 for a, b in zip(lists[::2], lists[1::2], strict=True)]
        width *= 2
    return lists[0]


def _pieces(lanes: int, unit: int, width: int, start: int) -> tuple[int, ...]:
    """Half of every unit, from `start`, of two vectors, interleaved in pieces of `width`."""
    mask: list[int] = []
    for base in range(0, lanes, unit):
        for piece in range(start, start + unit // 2, width):
            mask += [base + piece + i for i in range(width)]
            mask += [lanes + base + piece + i for i in range(width)]
    return tuple(mask)


def _gather(vectors: list[V], lanes: int, unit: int, shuffle: Shuffle[V]) -> list[V]:
    """Vector q holds unit q of each vector, in order."""
    number = lanes // unit
    even, odd = (tuple(source * lanes + u * unit + i for source in (0, 1) for u in range(parity, number, 2)
                       for i in range(unit)) for parity in (0, 1))
    result: list[list[V]] = [vectors]
    while len(result[0]) > 1:
        result = [[shuffle(a, b, mask) for a, b in zip(some[::2], some[1::2], strict=True)]
                  for mask in (even, odd) for some in result]
    return [some[0] for some in result]

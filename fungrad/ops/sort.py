"""sort along an axis by one or several keys, and its compositions: argsort, top_k, searchsorted.

NaN comes last, -0.0 equals 0.0. A row is sorted in linear time by a stable radix sort, eight bits a pass from the
lowest (Knuth, TAOCP 3, 5.2.5): keys are mapped to unsigned integers of the same order and carried with their positions;
several keys are sorted from the last to the first. Passes whose digit is the same for all keys copy. Short rows are
sorted by insertion. Rows run in parallel.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import is_float
from ..errors import ShapeError
from ..ir.expr import (
    BOOL,
    INDEX,
    TRUE,
    Axis,
    Buffer,
    Expr,
    axis as axis_expr,
    cast,
    conjunction,
    constant,
    index_constant,
    load,
    operation,
    select,
)
from ..ir.kernel import Fragment, If, Statement, Store, While
from ..ir.primitive import Primitive, Zero, declare
from ..ir.types import Type, array_type
from ..trace import bind
from . import elementwise
from .create import full, iota
from .fragments import loop, plus, vector_loop
from .index import IndexNumbers, gather, take_along_axis
from .linear import reshape
from .rules import NOT_LINEAR, batch_to_front, is_zero
from .slicing import flip, slice_

UINT32, UINT64 = np.dtype("uint32"), np.dtype("uint64")
_INSERTION_LENGTH = 32   # rows up to this length are sorted by insertion
_RADIX = 256


def _sort_type(*types: Type, axis: int, num_keys: int, stable: bool) -> tuple[Type, ...]:
    first = types[0]
    for type in types[1:]:
        if type.shape != first.shape:
            raise ShapeError(f"sort: operands of shapes {first.shape} and {type.shape} differ")
    if not 0 <= axis < first.rank or not 1 <= num_keys <= len(types):
        raise ShapeError(f"sort: axis {axis} of operands of shape {first.shape}, by the first {num_keys} of "
                         f"{len(types)}")
    return types


def _sort_reference(*arrays: np.ndarray, axis: int, num_keys: int, stable: bool) -> tuple[np.ndarray, ...]:
    keys = [a.astype(np.float64) if is_float(a.dtype) else a for a in arrays[:num_keys]]
    order = np.lexsort(tuple(reversed(keys)), axis=axis)
    return tuple(np.take_along_axis(a, order, axis) for a in arrays)


def _sort_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, num_keys: int,
              stable: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The tangents in the order in which the sort leaves the positions."""
    if all(map(is_zero, tangents)):
        results = sort(primals, axis, num_keys, stable)
        return results, tuple(Zero(r.type) for r in results)
    positions = iota(primals[0].shape, axis, _position_dtype(primals[0].shape[axis]))
    *results, order = sort((*primals, positions), axis, num_keys, stable)
    moved = tuple(Zero(r.type) if is_zero(t) else take_along_axis(t, order, axis)
                  for r, t in zip(results, tangents, strict=True))
    return tuple(results), moved


def _sort_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, axis: int, num_keys: int,
                stable: bool) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    moved = [batch_to_front(size, x, a) for x, a in zip(operands, axes, strict=True)]
    return sort(moved, axis + 1, num_keys, stable), tuple(0 for _ in moved)


def _position_dtype(length: int) -> np.dtype:
    return np.dtype("int32" if length < 2**31 else "int64")


# ---- keys as unsigned integers --------------------------------------------------------------------------------------


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def encode_key(x: Expr) -> Expr:
    """An unsigned integer whose order is that of `x`: NaN is the greatest, -0.0 equals 0.0."""
    if x.dtype == BOOL:
        return cast(x, np.dtype("uint8"))
    kind = _unsigned(x.dtype)
    if x.dtype == kind:
        return x
    sign, ones = constant(1 << (8 * kind.itemsize - 1), kind), constant((1 << 8 * kind.itemsize) - 1, kind)
    bits = operation("bitcast", x, dtype=kind)
    if not is_float(x.dtype):
        return operation("xor", bits, sign)
    zero = constant(0, x.dtype)
    bits = select(operation("eq", x, zero), constant(0, kind), bits)
    negative = operation("ge", bits, sign)
    ordered = operation("xor", bits, select(negative, ones, sign))
    return select(operation("ne", x, x), ones, ordered)


def decode_key(key: Expr, dtype: np.dtype) -> Expr:
    """The inverse of `encode_key` (for NaN, one of them)."""
    if dtype == BOOL:
        return operation("ne", key, constant(0, key.dtype))
    kind = _unsigned(dtype)
    if dtype == kind:
        return key
    sign, ones = constant(1 << (8 * kind.itemsize - 1), kind), constant((1 << 8 * kind.itemsize) - 1, kind)
    if not is_float(dtype):
        return operation("bitcast", operation("xor", key, sign), dtype=dtype)
    bits = operation("xor", key, select(operation("ge", key, sign), sign, ones))
    value = operation("bitcast", bits, dtype=dtype)
    return select(operation("eq", key, ones), constant(float("nan"), dtype), value)


# ---- the loops of a row ---------------------------------------------------------------------------------------------


class _Layout:
    """How a key and its position are held while a row is sorted: one word (key above position), or an array of each.

    A row of one operand whose equal keys are equal in every bit needs no positions: `only_keys`.
    """

    def __init__(self, types: Sequence[Type], num_keys: int, stable: bool, length: int):
        width = max(_unsigned(t.dtype).itemsize * 8 for t in types[:num_keys])
        self.only_keys = len(types) == 1 and (not is_float(types[0].dtype) or not stable)
        if self.only_keys:
            shift, dtypes = 0, [np.dtype(f"uint{width}")]
        elif width <= 16 and length <= 2**16:
            shift, dtypes = 16, [UINT32]
        elif width <= 32 and length <= 2**32:
            shift, dtypes = 32, [UINT64]
        else:
            shift, dtypes = 0, [UINT64, UINT32 if length <= 2**32 else UINT64]
        self.shift, self.dtypes = shift, tuple(dtypes)

    def words(self, key: Expr, position: Expr) -> tuple[Expr, ...]:
        """What is stored for a key and its position in the row."""
        word = cast(key, self.dtypes[0])
        if self.shift:
            moved = operation("shift_left", word, constant(self.shift, word.dtype))
            return (operation("or", moved, cast(position, word.dtype)),)
        return (word,) if self.only_keys else (word, cast(position, self.dtypes[1]))

    def position(self, words: Sequence[Expr]) -> Expr:
        """The position in the row that words hold."""
        if not self.shift:
            return cast(words[1], INDEX)
        return cast(operation("and", words[0], constant((1 << self.shift) - 1, words[0].dtype)), INDEX)

    def key(self, words: Sequence[Expr]) -> Expr:
        if not self.shift:
            return words[0]
        return operation("shift_right", words[0], constant(self.shift, words[0].dtype))

    def digit(self, words: Sequence[Expr], number: int) -> Expr:
        """The key's eight bits number `number` from the lowest, as an index."""
        word, amount = words[0], self.shift + 8 * number
        shifted = operation("shift_right", word, constant(amount, word.dtype)) if amount else word
        return cast(operation("and", shifted, constant(_RADIX - 1, word.dtype)), INDEX)


class _RowSort:
    """Builds the statements that sort one row."""

    def __init__(self, types: Sequence[Type], axis: int, num_keys: int, stable: bool):
        self.types, self.axis, self.num_keys = types, axis, num_keys
        shape = types[0].shape
        self.length = shape[axis]
        self.layout = _Layout(types, num_keys, stable, self.length)
        self.inputs = tuple(Buffer(f"x{i}", t) for i, t in enumerate(types))
        self.outputs = tuple(Buffer(f"y{i}", t) for i, t in enumerate(types))
        self.outer = tuple(Axis(f"i{a}", extent) for a, extent in enumerate(shape) if a != axis)
        self.scratch: list[Buffer] = []
        self.here, self.there = self._row_buffers("here"), self._row_buffers("there")
        self.word = tuple(self._state(f"word{i}", d) for i, d in enumerate(self.layout.dtypes))
        self.place = self._state("place", INDEX)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype, scope: str) -> Buffer:
        buffer = Buffer(name, array_type(shape, dtype), scope)
        self.scratch.append(buffer)
        return buffer

    def _row_buffers(self, name: str) -> tuple[Buffer, ...]:
        return tuple(self._buffer(f"{name}{i}", (self.length,), dtype, "scratch")
                     for i, dtype in enumerate(self.layout.dtypes))

    def _state(self, name: str, dtype: np.dtype) -> Buffer:
        return self._buffer(name, (), dtype, "register")

    def _at(self, i: Expr) -> tuple[Expr, ...]:
        index = list(map(axis_expr, self.outer))
        index.insert(self.axis, i)
        return tuple(index)

    def _words(self, buffers: Sequence[Buffer], index: tuple[Expr, ...] = (), valid: Expr = TRUE) -> tuple[Expr, ...]:
        return tuple(load(buffer, index, valid) for buffer in buffers)

    def _keep(self, buffers: Sequence[Buffer], index: tuple[Expr, ...], words: Sequence[Expr]) -> tuple[Statement, ...]:
        return tuple(Store(buffer, index, word) for buffer, word in zip(buffers, words, strict=True))

    def fragment(self) -> Fragment:
        body: list[Statement] = []
        if self.length and self.types[0].size:
            short = self.length <= _INSERTION_LENGTH
            for number in reversed(range(self.num_keys)):
                first = number == self.num_keys - 1
                body += self._by_insertion(number, first) if short else self._by_digits(number, first)
            body.append(loop("out", self.length, self._write))
        return Fragment(self.outputs, self.inputs, tuple(self.scratch), self.outer, tuple(body))

    def _write(self, i: Expr) -> tuple[Statement, ...]:
        words = self._words(self.here, (i,))
        if self.layout.only_keys:
            return (Store(self.outputs[0], self._at(i), decode_key(words[0], self.types[0].dtype)),)
        source = self._at(self.layout.position(words))
        return tuple(Store(y, self._at(i), load(x, source)) for x, y in zip(self.inputs, self.outputs, strict=True))

    def _next_words(self, number: int, first: bool, i: Expr) -> tuple[Expr, ...]:
        """The words of key `number` for the element at place i: of the row, or of the order found so far."""
        position = i if first else self.layout.position(self._words(self.here, (i,)))
        return self.layout.words(encode_key(load(self.inputs[number], self._at(position))), position)

    # -- insertion -----------------------------------------------------------------------------------------------------

    def _by_insertion(self, number: int, first: bool) -> list[Statement]:
        """Move each element down past the greater ones before it."""
        place, before = load(self.place, ()), plus(load(self.place, ()), -1)
        above_first = operation("gt", place, index_constant(0))
        previous = self._words(self.here, (before,), above_first)
        greater = operation("gt", self.layout.key(previous), self.layout.key(self._words(self.word)))
        shift = (*self._keep(self.here, (place,), previous), Store(self.place, (), before))

        def insert(i: Expr) -> tuple[Statement, ...]:
            return (*self._keep(self.word, (), self._next_words(number, first, i)), Store(self.place, (), i),
                    While(conjunction(above_first, greater), shift),
                    *self._keep(self.here, (place,), self._words(self.word)))
        return [loop("i", self.length, insert)]

    # -- radix ---------------------------------------------------------------------------------------------------------

    def _by_digits(self, number: int, first: bool) -> list[Statement]:
        digits = _unsigned(self.types[number].dtype).itemsize
        counts = self._buffer(f"counts{number}", (digits, _RADIX), INDEX, "scratch")
        total = tuple(self._state(f"total{number}_{d}", INDEX) for d in range(digits))
        zero, one = index_constant(0), index_constant(1)
        word = self._words(self.word)

        def clear(i: Expr) -> tuple[Statement, ...]:
            return tuple(Store(counts, (index_constant(d), i), zero) for d in range(digits))

        def count(i: Expr) -> tuple[Statement, ...]:
            tally = [Store(counts, (index_constant(d), self.layout.digit(word, d)), one, "add") for d in range(digits)]
            return (*self._keep(self.word, (), self._next_words(number, first, i)), *self._keep(self.here, (i,), word),
                    *tally)

        def accumulate(i: Expr) -> tuple[Statement, ...]:
            steps: list[Statement] = []
            for d in range(digits):
                at = (index_constant(d), i)
                steps += [Store(self.place, (), load(counts, at)), Store(counts, at, load(total[d], ())),
                          Store(total[d], (), load(self.place, ()), "add")]
            return tuple(steps)
        body: list[Statement] = [*vector_loop("clear", _RADIX, INDEX.itemsize, clear), loop("i", self.length, count)]
        uniform = tuple(self._state(f"uniform{number}_{d}", BOOL) for d in range(digits))
        for d in range(digits):
            same = load(counts, (index_constant(d), self.layout.digit(self._words(self.here, (zero,)), d)))
            body += [Store(uniform[d], (), operation("eq", same, index_constant(self.length))),
                     Store(total[d], (), zero)]
        body.append(loop("digit", _RADIX, accumulate))
        for d in range(digits):
            body += self._pass(counts, d, load(uniform[d], ()))
        return body

    def _pass(self, counts: Buffer, d: int, uniform: Expr) -> list[Statement]:
        """Distribute `here` to `there` by digit d, in order; copy it if all digits are equal."""
        here, there = self.here, self.there
        self.here, self.there = there, here
        word, place = self._words(self.word), load(self.place, ())
        at = (index_constant(d), self.layout.digit(word, d))

        def distribute(i: Expr) -> tuple[Statement, ...]:
            return (*self._keep(self.word, (), self._words(here, (i,))), Store(self.place, (), load(counts, at)),
                    *self._keep(there, (place,), word), Store(counts, at, plus(place, 1)))

        def copy(i: Expr) -> tuple[Statement, ...]:
            return self._keep(there, (i,), self._words(here, (i,)))
        return [If(operation("not", uniform), (loop("i", self.length, distribute),)),
                If(uniform, vector_loop("i", self.length, self.layout.dtypes[0].itemsize, copy))]


def _sort_lower(types: Sequence[Type], type: tuple[Type, ...], *, axis: int, num_keys: int, stable: bool) -> Fragment:
    return _RowSort(types, axis, num_keys, stable).fragment()


sort_p = declare(Primitive(
    "sort", _sort_type, _sort_reference, _sort_jvp, NOT_LINEAR, _sort_batch, _sort_lower, frozenset({"loops"}),
    "All operands in the order of the first `num_keys`, compared one after another; equal keys keep their order if "
    "`stable`.", multiple_results=True))


# ---- functions ------------------------------------------------------------------------------------------------------


def sort(operands: Sequence[Any], axis: int, num_keys: int = 1, stable: bool = True) -> tuple[Any, ...]:
    """All operands (of one shape) sorted along `axis` by the first `num_keys` of them.

    A single floating operand is sorted faster with stable=False, which differs only in the order of -0.0 and 0.0.
    """
    return tuple(bind(sort_p, *operands, axis=axis, num_keys=num_keys, stable=stable))


def argsort(x: Any, axis: int, stable: bool = True, descending: bool = False) -> Any:
    """The positions along `axis` in the order of their elements; equal ones by position. Descending puts NaN first."""
    positions = iota(x.shape, axis, _position_dtype(x.shape[axis]))
    return sorted_descending((x, positions), axis)[1] if descending else sort((x, positions), axis, 1, stable)[1]


def sorted_descending(operands: Sequence[Any], axis: int, num_keys: int = 1) -> tuple[Any, ...]:
    """`sort` from the greatest (NaN first) to the least; equal keys keep their order."""
    results = sort([flip(x, (axis,)) for x in operands], axis, num_keys, True)
    return tuple(flip(r, (axis,)) for r in results)


def top_k(x: Any, k: int) -> tuple[Any, Any]:
    """The k greatest elements along the last axis, descending (NaN first), and their positions; ties by position."""
    last = x.ndim - 1
    if x.ndim == 0 or not 0 <= k <= x.shape[last]:
        raise ShapeError(f"top_k: k={k} is not within the last axis of an array of shape {x.shape}")
    positions = iota(x.shape, last, _position_dtype(x.shape[last]))
    limit = (*x.shape[:last], k)
    values, order = sorted_descending((x, positions), last)
    return slice_(values, (0,) * x.ndim, limit), slice_(order, (0,) * x.ndim, limit)


def _before(a: Any, b: Any) -> Any:
    """Whether a sorts before b: a < b, or b is NaN and a is not."""
    less = elementwise.lt(a, b)
    if not is_float(a.dtype):
        return less
    return elementwise.bitwise_or(less, elementwise.bitwise_and(elementwise.ne(b, b), elementwise.eq(a, a)))


def searchsorted(array: Any, queries: Any, side: str = "left") -> Any:
    """Where each query would be inserted into the ascending one-dimensional `array` of the same element type.

    side "left": before the elements equal to it, "right": after them. A binary search of log2(n) steps, all of which
    fuse into one kernel.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    if array.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted array must have one axis, got shape {array.shape}")
    length, shape = array.shape[0], queries.shape
    kind = _position_dtype(length)
    found = full(shape, 0, kind)
    if length == 0:
        return found
    numbers = IndexNumbers((), (0,), (0,))
    for step in (1 << bit for bit in reversed(range(length.bit_length()))):
        candidate = elementwise.add(found, step)
        last = reshape(elementwise.sub(candidate, 1), (*shape, 1))
        element = gather(array, last, numbers, (1,), "clip")
        passes = _before(element, queries) if side == "left" else elementwise.bitwise_not(_before(queries, element))
        fits = elementwise.le(candidate, length)
        found = elementwise.select(elementwise.bitwise_and(fits, passes), candidate, found)
    return found

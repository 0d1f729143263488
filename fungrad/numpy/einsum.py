"""einsum: sums of products written by naming axes.

The operands are contracted pair by pair, cheapest pair first (greedy, as opt_einsum's default: least result minus
inputs), each pair by one `dot_general`. A name repeated within an operand takes its diagonal; "..." stands for leading
axes that broadcast; without "->" the result has the names that occur once, in alphabetical order.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.conversion import as_value
from ..lax.promotion import common_dtype, requested
from ..ops import linear
from .contractions import contract
from .creation import diagonal
from .reductions import sum

Labels = tuple[Any, ...]


def einsum(subscripts: Any, /, *operands: Any, out: None = None, optimize: Any = "auto", precision: Any = None,
           preferred_element_type: Any = None) -> Value:
    """The sum of products of `operands` that `subscripts` describes, such as "ij,jk->ik".

    Also einsum(operand, axes, operand, axes, ..., result_axes) with lists of integers.

    >>> import fungrad.numpy as fnp
    >>> fnp.einsum("bqd,bkd->bqk", fnp.ones((2, 3, 4)), fnp.ones((2, 5, 4))).shape
    (2, 3, 5)
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    values = [as_value("einsum", x) for x in operands]
    terms, result = _parsed(subscripts, tuple(v.ndim for v in values))
    kind = requested("einsum", preferred_element_type)
    common = common_dtype("einsum", *values)
    values = [linear.convert(v, common) for v in values] if common != dtypes.bool_ else values
    extents = _extents(subscripts, terms, values)
    pairs = [_diagonals(v, t) for v, t in zip(values, terms, strict=True)]
    answer = _contracted(pairs, result, extents, kind)
    return linear.convert(answer, kind or common)


def _from_lists(items: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts of the form with axis lists, as a string."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def text(axes: Sequence[Any]) -> str:
        return "".join("..." if axis is Ellipsis else letters[axis] for axis in axes)
    operands = tuple(items[0:len(items) - len(items) % 2:2])
    terms = [text(axes) for axes in items[1:len(items) - len(items) % 2:2]]
    return ",".join(terms) + ("->" + text(items[-1]) if len(items) % 2 else ""), operands


@lru_cache(maxsize=512)
def _parsed(subscripts: str, ranks: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of each operand's axes and of the result's. The axes of an Ellipsis are numbered from the last, -1."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ValueError(f"einsum: {subscripts!r} names {len(texts)} operands, but {len(ranks)} were given.")
    terms = tuple(_labels(subscripts, text, rank) for text, rank in zip(texts, ranks, strict=True))
    names = [label for term in terms for label in term]
    dots = sorted({label for label in names if isinstance(label, int)})
    if arrow:
        result = _labels(subscripts, right, len(right.replace("...", "")) + len(dots) * ("..." in right))
        if dots and "..." not in right:
            raise ValueError(f"einsum: {subscripts!r} has '...' on the left that the result lacks; write '->...' and "
                             f"sum afterwards, or name the axes.")
    else:
        letters = sorted({label for label in names if isinstance(label, str)})
        result = (*dots, *(k for k in letters if names.count(k) == 1))
    if len(set(result)) != len(result):
        raise ValueError(f"einsum: the result {right!r} of {subscripts!r} names an axis twice.")
    unknown = [label for label in result if label not in names]
    if unknown:
        raise ValueError(f"einsum: the result of {subscripts!r} names {unknown[0]!r}, which no operand has.")
    return terms, result


def _labels(subscripts: str, text: str, rank: int) -> Labels:
    before, dots, after = text.partition("...")
    letters = before + after
    if not all(letter.isalpha() for letter in letters):
        raise ValueError(f"einsum: {text!r} in {subscripts!r} is not made of letters and one '...'.")
    missing = rank - len(letters)
    if missing < 0 or (missing and not dots):
        raise ShapeError(f"einsum: {text!r} in {subscripts!r} names {len(letters)} axes, but the operand has {rank}.")
    return (*before, *range(-missing, 0), *after)


def _extents(subscripts: str, terms: Sequence[Labels], values: Sequence[Value]) -> dict[Any, int]:
    """The extent of each label; ShapeError naming the operands' shapes where they differ."""
    extents: dict[Any, int] = {}
    for term, value in zip(terms, values, strict=True):
        for label, extent in zip(term, value.shape, strict=True):
            known = extents.get(label, 1)
            if extent != known and 1 not in (extent, known):
                shapes = " and ".join(str(v.shape) for v in values)
                where = f"axis {label!r}" if isinstance(label, str) else "an axis of '...'"
                raise ShapeError(f"einsum {subscripts!r}: shapes {shapes} do not fit: {where} has {known} and {extent} "
                                 f"elements.")
            extents[label] = max(extent, known) if 0 not in (extent, known) else 0
    return extents


def _diagonals(x: Value, labels: Labels) -> tuple[Value, Labels]:
    """The operand with each repeated label's axes replaced by their diagonal."""
    while len(set(labels)) != len(labels):
        label = next(k for k in labels if labels.count(k) > 1)
        first, second = [axis for axis, k in enumerate(labels) if k == label][:2]
        if x.shape[first] != x.shape[second]:
            raise ShapeError(f"einsum: axis {label!r} occurs twice in an operand of shape {x.shape}, with "
                             f"{x.shape[first]} and {x.shape[second]} elements.")
        x = diagonal(x, 0, first, second)
        labels = (*(k for axis, k in enumerate(labels) if axis not in (first, second)), label)
    return x, labels


def _contracted(pairs: list[tuple[Value, Labels]], result: Labels, extents: dict[Any, int], kind: Any) -> Value:
    """Contract pairs of operands, the cheapest first, until one is left."""
    while len(pairs) > 1:
        i, j = _cheapest([labels for _, labels in pairs], result, extents) if len(pairs) > 2 else (0, 1)
        (x, x_labels), (y, y_labels) = pairs[i], pairs[j]
        rest = [pair for number, pair in enumerate(pairs) if number not in (i, j)]
        if rest:
            wanted = {*result, *(label for _, labels in rest for label in labels)}
            kept = _kept(x_labels, y_labels, wanted)
        else:
            kept = result
        pairs = [*rest, (contract(x, y, x_labels, y_labels, kept, kind), kept)]
    (x, labels), = pairs
    return _single(x, labels, result)


def _kept(x: Labels, y: Labels, wanted: set[Any]) -> Labels:
    """The labels of an intermediate product: shared ones first, as dot_general gives them."""
    shared = [k for k in x if k in y and k in wanted]
    return (*shared, *(k for k in x if k not in y and k in wanted), *(k for k in y if k not in x and k in wanted))


def _cheapest(terms: list[Labels], result: Labels, extents: dict[Any, int]) -> tuple[int, int]:
    """The pair whose product has the least elements beyond those it replaces."""
    def size(labels: Any) -> int:
        return math.prod(extents[k] for k in labels)
    best: tuple[int, int, int] | None = None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            others = {k for number, term in enumerate(terms) if number not in (i, j) for k in term}
            product = {k for k in (*terms[i], *terms[j]) if k in others or k in result}
            cost = size(product) - size(terms[i]) - size(terms[j])
            if not set(terms[i]) & set(terms[j]):
                cost += size(product)     # outer products last
            if best is None or cost < best[0]:
                best = (cost, i, j)
    assert best is not None
    return best[1], best[2]


def _single(x: Value, labels: Labels, result: Labels) -> Value:
    """One operand summed over the labels that the result lacks, its axes in the result's order."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in result)
    if axes:
        x, labels = sum(x, axes, None if x.dtype == dtypes.bool_ else x.dtype), tuple(k for k in labels if k in result)
    return linear.transpose(x, tuple(labels.index(label) for label in result))


def einsum_path(subscripts: str, /, *operands: Any, optimize: Any = "greedy") -> tuple[list[Any], str]:
    """The order in which `einsum` contracts its operands, in NumPy's form, and a description."""
    values = [as_value("einsum_path", x) for x in operands]
    terms, result = _parsed(subscripts, tuple(v.ndim for v in values))
    extents = _extents(subscripts, terms, values)
    remaining = [tuple(dict.fromkeys(term)) for term in terms]
    path: list[Any] = ["einsum_path"]
    while len(remaining) > 1:
        i, j = _cheapest(remaining, result, extents) if len(remaining) > 2 else (0, 1)
        rest = [term for number, term in enumerate(remaining) if number not in (i, j)]
        wanted = {*result, *(label for term in rest for label in term)}
        remaining = [*rest, _kept(remaining[i], remaining[j], wanted)]
        path.append((i, j))
    if len(path) == 1:
        path.append((0,))
    return path, f"greedy order of {subscripts}: {path[1:]}"

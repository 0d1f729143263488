"""Affine forms and intervals of index expressions: what `index` decides by."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

import numpy as np

from ..ir.expr import INDEX, MOST_TEXT, Expr, index_constant, node_text, operation
from ..util import toposort

Interval = tuple[int | None, int | None]           # inclusive; None: no bound known
Affine = tuple[tuple[tuple[Expr, int], ...], int]  # ((term, coefficient), ...), constant

UNBOUNDED: Interval = (None, None)
AFFINE_OPERATIONS = frozenset({"add", "sub", "mul", "neg"})


def integer_value(x: Expr) -> int | None:
    """The value of an integer constant, None for any other expression."""
    return x.attribute.value if x.op == "constant" and x.dtype.kind in "iu" else None


class Forms:
    """Finds affine forms and intervals and keeps them. Calling it simplifies an expression (`index.Simplifier`)."""

    __slots__ = ("_affine", "_bounds", "_order")

    def __init__(self) -> None:
        self._affine: dict[Expr, Affine] = {}
        self._bounds: dict[Expr, Interval] = {}
        self._order: dict[Expr, str] = {}

    def __call__(self, x: Expr) -> Expr:
        raise NotImplementedError

    def affine(self, x: Expr) -> Affine:
        """`x` (of dtype INDEX) as a sum of terms with coefficients and a constant."""
        found = self._affine.get(x)
        if found is not None:
            return found
        result: Affine
        if x.dtype != INDEX:
            raise TypeError(f"an affine form of a {x.dtype} expression: {x}")
        value = integer_value(x)
        if value is not None:
            result = ((), value)
        elif x.op == "axis" and x.attribute.extent <= 1:
            result = ((), 0)
        elif x.op not in AFFINE_OPERATIONS:
            result = (((x, 1),), 0)
        elif x.op == "mul":
            result = self._affine_product(x)
        else:
            terms, offset = self.affine(x.operands[-1])
            sign = 1 if x.op == "add" else -1
            total = {term: sign * coefficient for term, coefficient in terms}
            offset *= sign
            if x.op != "neg":
                more, first = self.affine(x.operands[0])
                for term, coefficient in more:
                    total[term] = total.get(term, 0) + coefficient
                offset += first
            result = self._sorted(total), offset
        self._affine[x] = result
        return result

    def _affine_product(self, x: Expr) -> Affine:
        left, right = self.affine(x.operands[0]), self.affine(x.operands[1])
        if left[0] and right[0]:
            return ((x, 1),), 0
        terms, factor = (left[0], right[1]) if left[0] else (right[0], left[1])
        offset = left[1] * right[1]
        return (tuple((term, coefficient * factor) for term, coefficient in terms) if factor else ()), offset

    def _text(self, term: Expr) -> str:
        """A text that decides the order of terms; long ones are cut short, with a digest of what is left out."""
        if term.op == "axis":
            return term.attribute.name
        order = self._order
        if term not in order:
            for e in toposort([term], lambda e: () if e in order else e.operands):
                if e not in order:
                    text = node_text(e, [order[operand] for operand in e.operands])
                    order[e] = text if len(text) <= MOST_TEXT else \
                        f"{e.op}({blake2b(text.encode(), digest_size=16).hexdigest()})"
        return order[term]

    def _sorted(self, total: dict[Expr, int]) -> tuple[tuple[Expr, int], ...]:
        self._recombine(total)
        pairs = [pair for pair in total.items() if pair[1]]
        if len(pairs) > 1:
            pairs.sort(key=lambda pair: (-abs(pair[1]), self._text(pair[0])))
        return tuple(pairs)

    def _recombine(self, total: dict[Expr, int]) -> None:
        """(y div n)*n*k + (y rem n)*k -> y*k."""
        for term in list(total):
            if term.op != "rem":
                continue
            coefficient = total.get(term, 0)
            y, n = term.operands[0], integer_value(term.operands[1])
            if not coefficient or not n:
                continue
            quotient = self(operation("div", y, term.operands[1]))
            if total.get(quotient) == coefficient * n:
                del total[term], total[quotient]
                more, offset = self.affine(y)
                if offset:
                    total[term], total[quotient] = coefficient, coefficient * n
                    continue
                for other, factor in more:
                    total[other] = total.get(other, 0) + factor * coefficient

    def build(self, terms: Iterable[tuple[Expr, int]], offset: int) -> Expr:
        """The expression of an affine form."""
        result: Expr | None = None
        for term, coefficient in terms:
            scaled = term if coefficient == 1 else operation("mul", term, index_constant(coefficient))
            result = scaled if result is None else operation("add", result, scaled)
        if result is None:
            return index_constant(offset)
        return operation("add", result, index_constant(offset)) if offset else result

    def bounds(self, x: Expr) -> Interval:
        """An interval that holds every value of an integer expression, while its axes stay in their ranges."""
        found = self._bounds.get(x)
        if found is None:
            found = self._bounds[x] = self._find_bounds(x)
        return found

    def _find_bounds(self, x: Expr) -> Interval:
        op = x.op
        value = integer_value(x)
        if value is not None:
            return value, value
        if op == "axis":
            return 0, max(x.attribute.extent - 1, 0)
        if op in AFFINE_OPERATIONS and x.dtype == INDEX:
            terms, offset = self.affine(x)
            if terms == ((x, 1),):
                return self._product_bounds(x)
            return self.affine_bounds(terms, offset)
        if op in ("div", "rem"):
            return self._quotient_bounds(x)
        if op in ("min", "max"):
            (a, b), (c, d) = map(self.bounds, x.operands)
            if op == "min":
                return both(min, a, c), min((h for h in (b, d) if h is not None), default=None)
            return max((lo for lo in (a, c) if lo is not None), default=None), both(max, b, d)
        if op == "select":
            (a, b), (c, d) = map(self.bounds, x.operands[1:])
            return both(min, a, c), both(max, b, d)
        if op == "cast" and x.operands[0].dtype.kind in "iub":
            inside = self.bounds(x.operands[0]) if x.operands[0].dtype.kind != "b" else (0, 1)
            if fits(inside, x.dtype):
                return inside
        if x.dtype.kind in "iu" and x.dtype.itemsize < 8:
            limits = np.iinfo(x.dtype)
            return int(limits.min), int(limits.max)
        return UNBOUNDED

    def affine_bounds(self, terms: Iterable[tuple[Expr, int]], offset: int) -> Interval:
        """The interval of an affine form; unbounded where the sum of some elements may wrap around."""
        terms = tuple(terms)
        low: int | None = offset
        high: int | None = offset
        for term, coefficient in terms:
            a, b = self.bounds(term)
            if coefficient < 0:
                a, b = b, a
            low = None if low is None or a is None else low + a * coefficient
            high = None if high is None or b is None else high + b * coefficient
        return self.without_wrapping(terms, offset, low, high)

    @staticmethod
    def without_wrapping(terms: tuple[tuple[Expr, int], ...], offset: int, low: int | None,
                         high: int | None) -> Interval:
        """The interval of an affine form, if the form is one value or its sum stays within 64 bits."""
        itself = not offset and len(terms) == 1 and terms[0][1] == 1
        return (low, high) if itself or fits((low, high), INDEX) else UNBOUNDED

    def _product_bounds(self, x: Expr) -> Interval:
        if x.op != "mul":
            return UNBOUNDED
        (a, b), (c, d) = map(self.bounds, x.operands)
        if a is None or b is None or c is None or d is None:
            return UNBOUNDED
        corners = (a * c, a * d, b * c, b * d)
        found = min(corners), max(corners)
        return found if fits(found, INDEX) else UNBOUNDED

    def _quotient_bounds(self, x: Expr) -> Interval:
        n = integer_value(x.operands[1])
        low, high = self.bounds(x.operands[0])
        if n is None or n <= 0:
            return UNBOUNDED
        if x.op == "div":
            return (None if low is None else truncated(low, n)), (None if high is None else truncated(high, n))
        if low is not None and low >= 0:
            return 0, n - 1 if high is None else min(high, n - 1)
        return 1 - n, n - 1


def both(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else choose(a, b)


def truncated(x: int, n: int) -> int:
    return x // n if x >= 0 else -(-x // n)


def fits(interval: Interval, dtype: np.dtype) -> bool:
    low, high = interval
    if low is None or high is None or dtype.kind not in "iu":
        return False
    limits = np.iinfo(dtype)
    return int(limits.min) <= low and high <= int(limits.max)

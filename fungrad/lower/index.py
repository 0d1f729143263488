"""Simplification of index expressions: affine normal forms, intervals, decided conditions, merged reductions.

An integer expression of dtype `INDEX` is seen as a sum of terms with constant coefficients, where a term is an axis or
an expression that is not affine (a quotient, a remainder, a loaded index). Everything follows from that form and from
the interval of each term:

    (a*n + b) div n  ->  a        where 0 <= b < n
    (a*n + b) rem n  ->  b        where 0 <= b < n
    (x div n)*n + x rem n -> x
    x < y, x == y, min, max       decided where the intervals of x and y do not overlap

`Simplifier` holds memo tables, so one object serves a whole program; its results are interned expressions.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from math import gcd, prod

import numpy as np

from ..ir.expr import (
    BOOL,
    COMPARISONS,
    CORE,
    FALSE,
    INDEX,
    TRUE,
    Expr,
    conjunction,
    constant,
    index_constant,
    load,
    operation,
    rebuild,
    reduce,
    substitute,
)
from ..ir.types import Literal
from .index_forms import AFFINE_OPERATIONS, UNBOUNDED, Forms, Interval, fits, integer_value
from .walk import conjuncts, subexpressions

MAX_TERMS = 9         # of a reduction that is written out
MAX_WRITTEN = 64      # operations in all its terms

_ZERO = index_constant(0)
_FREE = frozenset({"constant", "axis", "load"})
_CHEAP = _FREE | frozenset(CORE) - {"div", "rem", "sqrt"}
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_INVERTED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


class Simplifier(Forms):
    """Simplifies expressions; see the module's text. Keeps what it has found for as long as it lives."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[Expr, Expr] = {}

    # ---- the walk -----------------------------------------------------------------------------------------------

    def __call__(self, x: Expr) -> Expr:
        """`x` simplified, with the same value for every value of its axes."""
        done = self._done
        if x in done:
            return done[x]
        stack = [x]
        while stack:
            e = stack[-1]
            if e in done:
                stack.pop()
                continue
            missing = [operand for operand in e.operands if operand not in done]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            result = self._node(rebuild(e, tuple([done[operand] for operand in e.operands])))
            done[e] = result
            done[result] = result
        return done[x]

    def all(self, expressions: Iterable[Expr]) -> tuple[Expr, ...]:
        return tuple([self(e) for e in expressions])

    def _node(self, e: Expr) -> Expr:
        """One node whose operands are simplified."""
        op = e.op
        if op == "axis":
            return _ZERO if e.attribute.extent <= 1 else e
        if op == "constant":
            return e
        if op == "load":
            return self._load(e)
        rule = _RULES.get(op)
        if rule is not None:
            return rule(self, e)
        return e

    # ---- rules, one a group of operations ------------------------------------------------------------------------

    def _arithmetic(self, e: Expr) -> Expr:
        if e.dtype != INDEX:
            return _fold(e)
        terms, offset = self.affine(e)
        if terms == ((e, 1),):
            return e
        return self.build(terms, offset)

    def _divide(self, e: Expr) -> Expr:
        """Quotient and remainder by a positive constant of something that is not negative."""
        if e.dtype != INDEX:
            return _fold(e)
        x, n = e.operands[0], integer_value(e.operands[1])
        if n is None or n <= 0:
            return e
        if n == 1:
            return x if e.op == "div" else _ZERO
        low, high = self.bounds(x)
        if low is None or low < 0:
            return e
        if high is not None and high < n:
            return _ZERO if e.op == "div" else x
        terms, offset = self.affine(x)
        rest = tuple((term, coefficient % n) for term, coefficient in terms if coefficient % n)
        rest_low, rest_high = self.affine_bounds(rest, offset % n)
        if rest_low is None or rest_low < 0:
            return e
        whole = [(term, coefficient // n) for term, coefficient in terms if coefficient // n]
        fits = rest_high is not None and rest_high < n
        if e.op == "div":
            if fits:
                return self.build(self._sorted(dict(whole)), offset // n)
            inner = self._divide_rest("div", rest, offset % n, n, e)
            if not whole and 0 <= offset < n:
                return inner
            total = dict(whole)
            more, extra = self.affine(inner)
            for term, coefficient in more:
                total[term] = total.get(term, 0) + coefficient
            return self.build(self._sorted(total), offset // n + extra)
        if fits:
            return self.build(self._sorted(dict(rest)), offset % n)
        return self._divide_rest("rem", rest, offset % n, n, e)

    def _divide_rest(self, op: str, rest: tuple[tuple[Expr, int], ...], offset: int, n: int, e: Expr) -> Expr:
        """Quotient or remainder of what is left, taking common factors out: (g*y + c) div (g*m) -> y div m."""
        factor = n
        for _, coefficient in rest:
            factor = gcd(factor, coefficient)
        if factor > 1:
            smaller = tuple((term, coefficient // factor) for term, coefficient in rest)
            x = self.build(self._sorted(dict(smaller)), offset // factor)
            inner = self(operation(op, x, index_constant(n // factor)))
            if op == "div":
                return inner
            terms, more = self.affine(inner)
            return self.build([(term, coefficient * factor) for term, coefficient in terms],
                              more * factor + offset % factor)
        x = self.build(self._sorted(dict(rest)), offset)
        inner_n = integer_value(x.operands[1]) if x.op in ("div", "rem") else None
        if x.op == "div" and inner_n and inner_n > 0 and op == "div" and (self.bounds(x.operands[0])[0] or 0) >= 0:
            return self(operation("div", x.operands[0], index_constant(inner_n * n)))
        if x.op == "rem" and inner_n and inner_n % n == 0 and op == "rem":
            return self(operation("rem", x.operands[0], index_constant(n)))
        if x.op == "rem" and inner_n and inner_n % n == 0 and op == "div":
            return self(operation("rem", operation("div", x.operands[0], index_constant(n)),
                                  index_constant(inner_n // n)))
        return operation(op, x, index_constant(n))

    def _extremum(self, e: Expr) -> Expr:
        if e.dtype.kind not in "iu":
            return _fold(e)
        a, b = e.operands
        if a is b:
            return a
        (a_low, a_high), (b_low, b_high) = self.bounds(a), self.bounds(b)
        if a_high is not None and b_low is not None and a_high <= b_low:
            return a if e.op == "min" else b
        if b_high is not None and a_low is not None and b_high <= a_low:
            return b if e.op == "min" else a
        return e

    def _compare(self, e: Expr) -> Expr:
        """Decide a comparison of integers, or bring it to `terms (lt|ge|eq|ne) constant`."""
        a, b = (self._widened(operand) for operand in e.operands)
        if a.dtype.kind not in "iu" or a.dtype != b.dtype:
            return e
        if a.dtype != INDEX:
            return self._compare_bounds(e.op, self.bounds(a), self.bounds(b)) or e
        terms, offset = self.affine(self(operation("sub", a, b)))
        if not self._never_wraps(a, b, terms, offset):
            return self._compare_bounds(e.op, self.bounds(a), self.bounds(b)) or e
        decided = self._compare_bounds(e.op, self.affine_bounds(terms, offset), (0, 0))
        if decided is not None:
            return decided
        op, limit = e.op, -offset                         # terms OP limit
        if terms[0][1] < 0:
            terms, limit, op = tuple((term, -coefficient) for term, coefficient in terms), -limit, _SWAPPED[op]
        if op in ("le", "gt"):
            op, limit = ("lt" if op == "le" else "ge"), limit + 1
        factor = 0
        for _, coefficient in terms:
            factor = gcd(factor, coefficient)
        if factor > 1:
            if op in ("eq", "ne") and limit % factor:
                return FALSE if op == "eq" else TRUE
            terms, limit = tuple((term, c // factor) for term, c in terms), -(-limit // factor)
        return operation(op, self.build(terms, 0), index_constant(limit))

    def _never_wraps(self, a: Expr, b: Expr, terms: tuple[tuple[Expr, int], ...], offset: int) -> bool:
        """Whether a - b stays within 64 bits, as sums of axes do; data need not. `x < constant` is as good."""
        limit = integer_value(b)
        if limit is not None and terms == ((a, 1),) and -limit == offset and limit < 2**63 - 1:
            return True
        return fits(self.bounds(a), INDEX) and fits(self.bounds(b), INDEX) and \
            fits(self.affine_bounds(terms, offset), INDEX)

    def _widened(self, x: Expr) -> Expr:
        """An integer without the casts that do not change its value, in INDEX where it comes from there."""
        if x.dtype == INDEX or x.dtype.kind not in "iu":
            return x
        value = integer_value(x)
        if value is not None and -(2**63) <= value < 2**63:
            return index_constant(value)
        if x.op == "cast" and x.operands[0].dtype == INDEX and fits(self.bounds(x.operands[0]), x.dtype):
            return x.operands[0]
        return x

    @staticmethod
    def _compare_bounds(op: str, a: Interval, b: Interval) -> Expr | None:
        (a_low, a_high), (b_low, b_high) = a, b
        below = a_high is not None and b_low is not None and a_high < b_low
        above = a_low is not None and b_high is not None and a_low > b_high
        not_above = a_high is not None and b_low is not None and a_high <= b_low
        not_below = a_low is not None and b_high is not None and a_low >= b_high
        same = not_above and not_below
        true, false = {"lt": (below, not_below), "ge": (not_below, below), "le": (not_above, above),
                       "gt": (above, not_above), "eq": (same, below or above), "ne": (below or above, same)}[op]
        return TRUE if true else FALSE if false else None

    def _logic(self, e: Expr) -> Expr:
        """and, or, not of truth values."""
        if e.dtype != BOOL:
            return _fold(e)
        if e.op == "not":
            x = e.operands[0]
            if x.op == "constant":
                return FALSE if x is TRUE else TRUE
            if x.op == "not":
                return x.operands[0]
            if x.op in COMPARISONS and x.operands[0].dtype.kind in "iu":
                return operation(_INVERTED[x.op], *x.operands)
            return e
        a, b = e.operands
        if e.op == "xor":
            return b if a is FALSE else a if b is FALSE else e
        if e.op == "or":
            if a is TRUE or b is TRUE:
                return TRUE
            return b if a is FALSE or a is b else a if b is FALSE else e
        return self.conjunction(a, b)

    def conjunction(self, a: Expr, b: Expr) -> Expr:
        """Logical and, without repeated conditions and FALSE where two of them contradict each other."""
        parts = conjuncts(a)
        for part in conjuncts(b):
            if part not in parts:
                parts.append(part)
        if FALSE in parts or self._contradict(parts):
            return FALSE
        result = TRUE
        for part in self._strongest(parts):
            result = conjunction(result, part)
        return result

    def _limits(self, parts: list[Expr]) -> dict[Expr, Interval]:
        limits: dict[Expr, Interval] = {}
        for part in parts:
            limit = integer_value(part.operands[1]) if part.op in ("lt", "ge", "eq") else None
            if limit is None or part.operands[0].dtype != INDEX:
                continue
            low, high = limits.get(part.operands[0], UNBOUNDED)
            if part.op in ("lt", "eq"):
                top = limit - 1 if part.op == "lt" else limit
                high = top if high is None else min(high, top)
            if part.op in ("ge", "eq"):
                low = limit if low is None else max(low, limit)
            limits[part.operands[0]] = low, high
        return limits

    def _contradict(self, parts: list[Expr]) -> bool:
        return any(low is not None and high is not None and low > high for low, high in self._limits(parts).values())

    def _strongest(self, parts: list[Expr]) -> list[Expr]:
        """The conditions without those that another one implies (x < 3 makes x < 5 needless)."""
        limits = self._limits(parts)
        if len(limits) == len(parts):
            return parts
        kept = []
        for part in parts:
            low, high = limits.get(part.operands[0], UNBOUNDED) if part.operands else UNBOUNDED
            limit = integer_value(part.operands[1]) if part.op in ("lt", "ge") else None
            bounded = part.operands[0] in limits if part.operands else False   # only indices have limits
            if not bounded or limit is None or (part.op == "lt" and high == limit - 1) or (
                    part.op == "ge" and low == limit):
                kept.append(part)
        return kept

    def _select(self, e: Expr) -> Expr:
        condition, if_true, if_false = e.operands
        if condition is TRUE or if_true is if_false:
            return if_true
        if condition is FALSE:
            return if_false
        if condition.op == "not":
            return self._select(operation("select", condition.operands[0], if_false, if_true))
        if if_true is TRUE and if_false is FALSE:
            return condition
        if if_true.op == "select" and if_true.operands[0] is condition:
            if_true = if_true.operands[1]
        if if_false.op == "select" and if_false.operands[0] is condition:
            if_false = if_false.operands[2]
        if if_true.op == "load" and _is_zero(if_false) and \
                set(conjuncts(if_true.operands[-1])) == set(conjuncts(condition)):
            return if_true                               # a load gives 0 where it is not valid
        return operation("select", condition, if_true, if_false)

    def _cast(self, e: Expr) -> Expr:
        x = e.operands[0]
        if x.dtype == e.dtype:
            return x
        if x.op == "constant" and x.dtype.kind in "iub" and e.dtype.kind in "iu":
            return constant(int(x.attribute.value), e.dtype)
        if x.op == "constant" and x.dtype.kind in "iub" and abs(int(x.attribute.value)) < 256 and e.dtype != BOOL:
            return constant(int(x.attribute.value), e.dtype)
        if x.op == "cast" and x.dtype.kind in "iu" and x.operands[0].dtype == e.dtype \
                and fits(self.bounds(x.operands[0]), x.dtype):
            return x.operands[0]
        return e

    def _reduce(self, e: Expr) -> Expr:
        """Drop axes of extent 1 and merge a reduction of a reduction (see `merge_reductions`)."""
        combine, axes = e.attribute
        kept = tuple(a for a in axes if a.extent != 1)
        if len(kept) != len(axes):
            return self(reduce(combine, e.operands[0], kept))
        return merge_reductions(e)

    def written_out(self, x: Expr) -> Expr:
        """`x`, simplified, with reductions of a few cheap terms (a pooling window of 2 x 2) as plain expressions."""
        x = self(x)
        while True:
            reductions = {e: self._terms(e) for e in subexpressions(x) if e.op == "reduce"}
            changed = {e: terms for e, terms in reductions.items() if terms is not e}
            if not changed:
                return x
            x = self(substitute(x, changed.get))

    def _terms(self, e: Expr) -> Expr:
        """A reduction written out, or itself where that is too much."""
        combine, axes = e.attribute
        count = prod(a.extent for a in axes)
        if not 0 < count <= MAX_TERMS:
            return e
        work = 0
        for inner in subexpressions(e.operands[0]):
            if inner.op not in _CHEAP:
                return e
            work += inner.op not in _FREE and inner.dtype != INDEX
        if work * count > MAX_WRITTEN:
            return e
        result: Expr | None = None
        for point in product(*(range(a.extent) for a in axes)):
            at = {axis: index_constant(i) for axis, i in zip(axes, point, strict=True)}
            term = self(substitute(e.operands[0], lambda x, at=at: at.get(x.attribute) if x.op == "axis" else None))
            result = term if result is None else operation(combine, result, term)
        assert result is not None
        return result

    def _load(self, e: Expr) -> Expr:
        valid = e.operands[-1]
        if valid is FALSE:
            return constant(0, e.dtype)
        parts = conjuncts(valid)
        if not parts:
            return e
        index = self.under(e.operands[:-1], parts)
        return load(e.attribute, index, valid) if index != e.operands[:-1] else e

    def under(self, expressions: tuple[Expr, ...], conditions: list[Expr]) -> tuple[Expr, ...]:
        """Expressions simplified where `conditions` hold: their intervals narrow what the conditions bound."""
        if not any(e.op in ("div", "rem", "min", "max", "select") for x in expressions for e in subexpressions(x)):
            return expressions
        limits = self._limits(conditions)
        if not limits:
            return expressions
        inner = _Conditional(self, limits)
        for e in subexpressions(*expressions):
            if e.op == "load":   # is carried out where the conditions do not hold as well
                inner._done[e] = e
        return tuple([inner(x) for x in expressions])


class _Conditional(Simplifier):
    """A simplifier that knows intervals of some affine sums."""

    __slots__ = ("_limits_known",)

    def __init__(self, outer: Simplifier, limits: dict[Expr, Interval]) -> None:
        super().__init__()
        self._affine = outer._affine
        self._order = outer._order
        self._limits_known = limits

    def affine_bounds(self, terms: Iterable[tuple[Expr, int]], offset: int) -> Interval:
        terms = tuple(terms)
        low, high = super().affine_bounds(terms, offset)
        factor = 0
        for _, coefficient in terms:
            factor = gcd(factor, coefficient)
        if not factor:
            return low, high
        if terms[0][1] < 0:
            return low, high
        known = self._limits_known.get(self.build(tuple((term, c // factor) for term, c in terms), 0))
        if known is not None:
            known_low, known_high = known
            if known_low is not None:
                narrowed = known_low * factor + offset
                low = narrowed if low is None else max(low, narrowed)
            if known_high is not None:
                narrowed = known_high * factor + offset
                high = narrowed if high is None else min(high, narrowed)
        return self.without_wrapping(terms, offset, low, high)

    def _find_bounds(self, x: Expr) -> Interval:
        low, high = super()._find_bounds(x)
        if x in self._limits_known:
            known_low, known_high = self._limits_known[x]
            low = known_low if low is None else low if known_low is None else max(low, known_low)
            high = known_high if high is None else high if known_high is None else min(high, known_high)
        return low, high


_RULES: dict[str, Callable[[Simplifier, Expr], Expr]] = {
    "add": Simplifier._arithmetic, "sub": Simplifier._arithmetic, "mul": Simplifier._arithmetic,
    "neg": Simplifier._arithmetic, "div": Simplifier._divide, "rem": Simplifier._divide,
    "min": Simplifier._extremum, "max": Simplifier._extremum,
    "and": Simplifier._logic, "or": Simplifier._logic, "not": Simplifier._logic, "xor": Simplifier._logic,
    "select": Simplifier._select, "cast": Simplifier._cast, "reduce": Simplifier._reduce,
    **{op: Simplifier._compare for op in COMPARISONS},
}


def _is_zero(x: Expr) -> bool:
    """Whether an expression is the constant whose bits are all zero (so not -0.0)."""
    return x.op == "constant" and not any(x.attribute.bits)


_FOLDED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
           "max": np.maximum, "min": np.minimum, "sqrt": np.sqrt}


def _fold(e: Expr) -> Expr:
    """Arithmetic on constants (integers wrap), and x + 0, x * 1 where that keeps every bit."""
    constants = [operand.attribute if operand.op == "constant" else None for operand in e.operands]
    if e.op not in _FOLDED or e.dtype == BOOL or e.dtype.kind in "iu" and e.op not in AFFINE_OPERATIONS:
        return e
    if None not in constants:
        values = [np.frombuffer(literal.bits, e.dtype) for literal in constants if literal is not None]
        with np.errstate(all="ignore"):
            return constant(Literal(np.asarray(_FOLDED[e.op](*values), e.dtype).tobytes(), e.dtype), e.dtype)
    if len(constants) < 2:
        return e
    first, second = (None if literal is None else literal.value for literal in constants)
    if e.op == "mul" and 1 in (first, second):
        return e.operands[0] if second == 1 else e.operands[1]
    if e.dtype.kind in "iu" and (e.op in ("add", "sub") and second == 0 or e.op == "add" and first == 0):
        return e.operands[0] if second == 0 else e.operands[1]
    return e


# ---- reductions of reductions -------------------------------------------------------------------------------------

def merge_reductions(e: Expr) -> Expr:
    """reduce_add[r](select(c, reduce_add[q](body), 0)) -> reduce_add[r, q](select(c, body, 0)), and likewise max,
    min and mul.

    The condition of a select is moved inside for add only, where its other branch is 0. Floating sums are
    re-associated, as every reduction is.
    """
    combine, axes = e.attribute
    body = e.operands[0]
    wrappers: list[Expr] = []
    while combine == "add" and body.op == "select" and _is_zero(body.operands[2]):
        wrappers.append(body.operands[0])
        body = body.operands[1]
    if body.op != "reduce" or body.attribute[0] != combine:
        return e
    inner = body.operands[0]
    for condition in reversed(wrappers):
        inner = operation("select", condition, inner, constant(0, inner.dtype))
    return reduce(combine, inner, (*axes, *body.attribute[1]))

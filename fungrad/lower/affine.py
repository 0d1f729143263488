"""Affine forms of index expressions, with interval bounds.

    form ::= constant + coefficient * atom + ...        over int64, modulo 2**64
    atom ::= an axis, or an index expression that is not affine (a quotient, a load, ...)

Quotients and remainders by constants are taken apart where the bounds of the operand show how: with 0 <= r < k,

    (k*a + r) div (k*m) = a div m          (k*a + r) rem (k*m) = k*(a rem m) + r

and put together again in sums: n*(x div n) + (x rem n) = x. So collapsed loops over contiguous arrays become flat ones.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import gcd, inf

from ..ir.expr import INDEX, Axis, Expr, axis, index_constant, operation

Bounds = tuple[float, float]
UNBOUNDED: Bounds = (-inf, inf)
_WRAP = 1 << 64


def wrap(value: int) -> int:
    """`value` modulo 2**64, as a signed number."""
    if -(1 << 63) <= value < (1 << 63):
        return value
    return (value + (1 << 63)) % _WRAP - (1 << 63)


@dataclass(frozen=True, slots=True)
class Form:
    """constant + sum of coefficient * atom; no coefficient is 0."""
    constant: int
    terms: tuple[tuple[Expr, int], ...] = ()

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, a: Axis) -> int:
        """The coefficient of an axis (0 where it does not occur as an atom)."""
        for atom, coefficient in self.terms:
            if atom.attribute is a and atom.op == "axis":
                return coefficient
        return 0


ZERO = Form(0)


class Analysis:
    """Affine forms and bounds of the index expressions of one kernel, computed once each."""

    __slots__ = ("_forms", "_bounds", "_axes")

    def __init__(self) -> None:
        self._forms: dict[Expr, Form] = {}
        self._bounds: dict[Expr, Bounds] = {}
        self._axes: dict[Expr, frozenset[Axis]] = {}

    def form(self, e: Expr) -> Form:
        """The affine form of an int64 expression."""
        found = self._forms.get(e)
        if found is None:
            found = self._forms[e] = self._make_form(e)
        return found

    def _make_form(self, e: Expr) -> Form:
        op = e.op
        if op == "constant":
            return Form(int(e.attribute.value))
        if op == "axis":
            return ZERO if e.attribute.extent == 1 else Form(0, ((e, 1),))
        if op == "add":
            return self.add(self.form(e.operands[0]), self.form(e.operands[1]))
        if op == "sub":
            return self.add(self.form(e.operands[0]), self.scale(self.form(e.operands[1]), -1))
        if op == "neg":
            return self.scale(self.form(e.operands[0]), -1)
        if op == "mul":
            left, right = self.form(e.operands[0]), self.form(e.operands[1])
            if left.is_constant:
                return self.scale(right, left.constant)
            if right.is_constant:
                return self.scale(left, right.constant)
        if op in ("div", "rem"):
            divisor = self.form(e.operands[1])
            if divisor.is_constant and divisor.constant > 0:
                return self.divide(op, self.form(e.operands[0]), divisor.constant, e)
        return Form(0, ((e, 1),))

    def scale(self, form: Form, factor: int) -> Form:
        if factor == 1:
            return form
        terms = ((atom, wrap(coefficient * factor)) for atom, coefficient in form.terms)
        return Form(wrap(form.constant * factor), tuple(term for term in terms if term[1]))

    def add(self, left: Form, right: Form) -> Form:
        if not right.terms:
            return left if not right.constant else Form(wrap(left.constant + right.constant), left.terms)
        if not left.terms and not left.constant:
            return right
        sums = dict(left.terms)
        for atom, coefficient in right.terms:
            sums[atom] = wrap(sums.get(atom, 0) + coefficient)
        terms = tuple(term for term in sums.items() if term[1])
        form = Form(wrap(left.constant + right.constant), terms)
        return self._recombine(form) if any(atom.op == "rem" for atom, _ in terms) else form

    def _recombine(self, form: Form) -> Form:
        """n*c*(x div n) + c*(x rem n) -> c*x."""
        terms = dict(form.terms)
        for atom, coefficient in form.terms:
            if atom.op != "rem":
                continue
            quotient = operation("div", *atom.operands)
            divisor = self.form(atom.operands[1])
            if divisor.is_constant and terms.get(quotient) == wrap(coefficient * divisor.constant):
                del terms[atom], terms[quotient]
                rest = Form(form.constant, tuple(terms.items()))
                return self.add(rest, self.scale(self.form(atom.operands[0]), coefficient))
        return form

    def divide(self, op: str, form: Form, divisor: int, original: Expr | None = None) -> Form:
        """The quotient or remainder (`op`) of a form by a positive constant."""
        if divisor == 1:
            return form if op == "div" else ZERO
        low, high = self.form_bounds(form)
        if low < 0:
            atom = original if original is not None else operation(op, self.expression(form), index_constant(divisor))
            return Form(0, ((atom, 1),))
        if high < divisor:
            return ZERO if op == "div" else form
        for factor in sorted({gcd(coefficient, divisor) for _, coefficient in form.terms} | {divisor}, reverse=True):
            if factor == 1:
                continue
            split = self._split(form, factor)
            if split is None:
                continue
            quotient, rest = split
            if op == "div":
                return self.divide("div", quotient, divisor // factor)
            inner = self.divide("rem", quotient, divisor // factor)
            return self.add(self.scale(inner, factor), rest)
        atom = operation(op, self.expression(form), index_constant(divisor))
        return Form(0, ((atom, 1),))

    def _split(self, form: Form, factor: int) -> tuple[Form, Form] | None:
        """form = factor * quotient + rest with 0 <= rest < factor, or None."""
        quotient = tuple((atom, c // factor) for atom, c in form.terms if c % factor == 0)
        if not quotient and form.constant < factor:
            return None
        rest = Form(form.constant % factor, tuple(term for term in form.terms if term[1] % factor))
        low, high = self.form_bounds(rest)
        if low < 0 or high >= factor:
            return None
        return Form(form.constant // factor, quotient), rest

    def expression(self, form: Form) -> Expr:
        """A form as an expression again."""
        total: Expr | None = None
        for atom, coefficient in form.terms:
            term = atom if coefficient == 1 else operation("mul", atom, index_constant(coefficient))
            total = term if total is None else operation("add", total, term)
        if total is None:
            return index_constant(form.constant)
        return operation("add", total, index_constant(form.constant)) if form.constant else total

    def form_bounds(self, form: Form) -> Bounds:
        low: float = form.constant
        high: float = form.constant
        for atom, coefficient in form.terms:
            least, most = self.bounds(atom)
            ends = (least * coefficient, most * coefficient)
            low += min(ends)
            high += max(ends)
        return low, high

    def bounds(self, e: Expr) -> Bounds:
        """An interval that holds every value of an integer expression."""
        found = self._bounds.get(e)
        if found is None:
            found = self._bounds[e] = self._make_bounds(e)
        return found

    def _make_bounds(self, e: Expr) -> Bounds:
        op = e.op
        if op == "axis":
            return 0, max(e.attribute.extent - 1, 0)
        if op == "constant":
            return (e.attribute.value, e.attribute.value) if e.dtype.kind in "iub" else UNBOUNDED
        if e.dtype != INDEX:
            return _dtype_bounds(e)
        if op in ("add", "sub", "mul", "neg"):
            form = self.form(e)
            if form.terms == ((e, 1),):
                return self._product_bounds(e) if op == "mul" else UNBOUNDED
            return _representable(self.form_bounds(form))
        if op in ("div", "rem"):
            return self._quotient_bounds(e)
        if op in ("min", "max"):
            (a, b), (c, d) = (self.bounds(operand) for operand in e.operands)
            return (min(a, c), min(b, d)) if op == "min" else (max(a, c), max(b, d))
        if op == "select":
            (a, b), (c, d) = (self.bounds(operand) for operand in e.operands[1:])
            return min(a, c), max(b, d)
        if op == "cast" and e.operands[0].dtype.kind in "iub":
            return self.bounds(e.operands[0]) if e.operands[0].dtype.name != "uint64" else UNBOUNDED
        return UNBOUNDED

    def _product_bounds(self, e: Expr) -> Bounds:
        (a, b), (c, d) = (self.bounds(operand) for operand in e.operands)
        if inf in (b, d) or -inf in (a, c):
            return UNBOUNDED
        ends = (a * c, a * d, b * c, b * d)
        return _representable((min(ends), max(ends)))

    def _quotient_bounds(self, e: Expr) -> Bounds:
        divisor = self.form(e.operands[1])
        low, high = self.bounds(e.operands[0])
        if not divisor.is_constant or divisor.constant <= 0 or low < 0:
            return UNBOUNDED
        if e.op == "rem":
            return 0, min(high, divisor.constant - 1)
        return low // divisor.constant, high if high == inf else high // divisor.constant

    def axes(self, e: Expr) -> frozenset[Axis]:
        """The axes that an expression depends on."""
        found = self._axes.get(e)
        if found is None:
            if e.op == "axis":
                found = frozenset((e.attribute,))
            else:
                found = frozenset().union(*[self.axes(operand) for operand in e.operands])
            self._axes[e] = found
        return found


def _representable(bounds: Bounds) -> Bounds:
    return bounds if -(2.0**63) < bounds[0] and bounds[1] < 2.0**63 else UNBOUNDED


def _dtype_bounds(e: Expr) -> Bounds:
    if e.dtype.kind == "b":
        return 0, 1
    if e.dtype.kind not in "iu":
        return UNBOUNDED
    bits = 8 * e.dtype.itemsize
    return (0, 2**bits - 1) if e.dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def axis_form(a: Axis) -> Form:
    return Form(0, ((axis(a), 1),)) if a.extent != 1 else ZERO


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major array."""
    strides = [1] * len(shape)
    for number in range(len(shape) - 2, -1, -1):
        strides[number] = strides[number + 1] * shape[number + 1]
    return tuple(strides)


def offset_form(analysis: Analysis, index: tuple[Expr, ...], shape: tuple[int, ...]) -> Form:
    """The offset, in elements, of an index into a row-major array."""
    total = ZERO
    for position, stride in zip(index, row_major(shape), strict=True):
        total = analysis.add(total, analysis.scale(analysis.form(position), stride))
    return total

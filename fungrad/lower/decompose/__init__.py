"""Rewrites expressions until they hold core operations only (see ir/expr.py): what every backend renders.

`decompose(kernel, target)` does it for a kernel, `decompose_expression` for one expression. Rules are formulas, one for
an operation; arithmetic on 16-bit floats is done in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from ...errors import CompilationError
from ...ir.expr import COMPARISONS, DECOMPOSED, OPERATIONS, Expr, constant, load, operation, rebuild
from ...ir.kernel import If, Kernel, Loop, Nest, Statement, Store
from ...ir.target import Target
from ...util import toposort
from . import integers, special, transcendental, trigonometric
from .dtypes import convert, converts_float16, from_float32, half_from_float32, half_to_float32, is_narrow, to_float32
from .formula import FLOAT16, FLOAT32, FLOAT64, Formula, where

Rule = Callable[..., Formula]

RULES: dict[str, Rule] = {
    "exp": transcendental.exp,
    "exp2": transcendental.exp2,
    "expm1": transcendental.expm1,
    "log": transcendental.log,
    "log2": transcendental.log2,
    "log1p": transcendental.log1p,
    "rsqrt": transcendental.rsqrt,
    "cbrt": transcendental.cbrt,
    "pow": transcendental.power,
    "sinh": transcendental.sinh,
    "cosh": transcendental.cosh,
    "tanh": transcendental.tanh,
    "asinh": transcendental.asinh,
    "acosh": transcendental.acosh,
    "atanh": transcendental.atanh,
    "logistic": transcendental.logistic,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "atan": trigonometric.atan,
    "atan2": trigonometric.atan2,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erf_inv,
    "lgamma": special.lgamma,
    "digamma": special.digamma,
    "population_count": integers.population_count,
    "count_leading_zeros": integers.count_leading_zeros,
    "nextafter": integers.nextafter,
    "sign": integers.sign,
    "mulhi": integers.mulhi,
    "integer_div": integers.integer_div,
    "integer_rem": integers.integer_rem,
    "safe_shift_left": integers.safe_shift_left,
    "safe_shift_right": integers.safe_shift_right,
    "safe_shift_right_logical": integers.safe_shift_right_logical,
}
_FLOAT_ONLY = frozenset(RULES) - {
    "population_count",
    "count_leading_zeros",
    "sign",
    "mulhi",
    "integer_div",
    "integer_rem",
    "safe_shift_left",
    "safe_shift_right",
    "safe_shift_right_logical",
}
_MOVES = frozenset({"constant", "axis", "load", "reduce", "bitcast"})


def decompose(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with every expression in core operations."""
    rewriter = Rewriter(target)
    nests = tuple([rewriter.nest(nest) for nest in kernel.nests])
    body = None if kernel.body is None else rewriter.body(kernel.body)
    if nests == kernel.nests and body == kernel.body:
        return kernel
    return replace(kernel, nests=nests, body=body)


def decompose_expression(e: Expr, target: Target) -> Expr:
    """One expression in core operations."""
    return Rewriter(target).expression(e)


class Rewriter:
    """Rewrites expressions, each once."""

    def __init__(self, target: Target):
        self.target = target
        self.has_float16 = converts_float16(target)
        self.done: dict[Expr, Expr] = {}

    def expression(self, e: Expr) -> Expr:
        done = self.done
        if e not in done:
            for x in toposort([e], lambda x: () if x in done else x.operands):
                if x not in done:
                    done[x] = self.rewrite(rebuild(x, tuple([done[operand] for operand in x.operands])))
        return done[e]

    def rewrite(self, x: Expr) -> Expr:
        """One expression whose operands are core operations already."""
        if x.op in _MOVES or x.op not in OPERATIONS:
            return x
        narrow = any(is_narrow(operand.dtype) for operand in x.operands) or is_narrow(x.dtype)
        if narrow:
            made = self.narrow(x)
            return x if made is x else self.expression(made)
        if x.op not in DECOMPOSED:
            return x
        return self.expression(self.apply(x))

    def apply(self, x: Expr) -> Expr:
        """The formula of a decomposed operation."""
        dtype = x.operands[0].dtype
        if x.op in _FLOAT_ONLY and dtype not in (FLOAT32, FLOAT64):
            raise CompilationError(f"{x.op} of {dtype} is not defined: cast to a float first")
        if x.op == "pow":
            special_case = _simple_power(x)
            if special_case is not None:
                return special_case
        return RULES[x.op](*[Formula(operand) for operand in x.operands]).expr

    def narrow(self, x: Expr) -> Expr:
        """An operation that meets 16-bit floats, in float32. Selections and float16 casts to and from float32 stay."""
        source = x.operands[0].dtype
        if x.op == "select":
            return x
        if x.op == "cast":
            pair = {source, x.dtype}
            if pair == {FLOAT16, FLOAT32}:
                return x if self.has_float16 else self.half(x)
            return convert(Formula(x.operands[0]), x.dtype).expr
        operands = tuple(
            [to_float32(Formula(operand)).expr if is_narrow(operand.dtype) else operand for operand in x.operands]
        )
        if x.op == "nextafter":
            return _narrow_nextafter(x)
        if x.op in COMPARISONS:
            return operation(x.op, *operands)
        return from_float32(Formula(operation(x.op, *operands)), x.dtype).expr

    def half(self, x: Expr) -> Expr:
        """A cast between float16 and float32 on a machine that has none."""
        operand = Formula(x.operands[0])
        return (half_to_float32(operand) if operand.dtype == FLOAT16 else half_from_float32(operand)).expr

    def all(self, expressions: Iterable[Expr]) -> tuple[Expr, ...]:
        return tuple([self.expression(e) for e in expressions])

    def nest(self, nest: Nest) -> Nest:
        given = nest.value
        if nest.combine is not None and is_narrow(given.dtype):  # 16-bit floats are accumulated in float32
            given = to_float32(Formula(given)).expr
        index, value, valid = self.all(nest.index), self.expression(given), self.expression(nest.valid)
        if value is nest.value and valid is nest.valid and index == nest.index:
            return nest
        return replace(nest, index=index, value=value, valid=valid)

    def body(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple([self.statement(statement) for statement in body])

    def store(self, s: Store) -> Store:
        """A store; one that combines 16-bit floats reads, combines in float32 and writes."""
        if s.combine is None or not is_narrow(s.target.type.dtype):
            return Store(s.target, self.all(s.index), self.expression(s.value), s.combine)
        old = load(s.target, s.index)
        return Store(s.target, self.all(s.index), self.expression(operation(s.combine, old, s.value)))

    def statement(self, s: Statement) -> Statement:
        if isinstance(s, Store):
            return self.store(s)
        if isinstance(s, Loop):
            stop = None if s.stop is None else self.expression(s.stop)
            return Loop(s.axis, self.body(s.body), s.kind, stop)
        made = replace(s, condition=self.expression(s.condition), body=self.body(s.body))
        assert isinstance(made, If) or made.condition is not None
        return made


def _simple_power(x: Expr) -> Expr | None:
    """x**2, x**3, 1/x and the like without logarithms."""
    base, exponent = (Formula(operand) for operand in x.operands)
    if exponent.expr.op != "constant":
        return None
    value = exponent.expr.attribute.value
    if value in (0.0, 1.0):
        return constant(1.0, x.dtype) if value == 0.0 else base.expr
    if value < 0.0:  # 1 / x**2 would lose bits where x**2 is subnormal
        base = 1.0 / base
    square = base * base
    results = {1.0: base, 2.0: square, 3.0: square * base, 4.0: square * square}
    return results[abs(value)].expr if abs(value) in results else None


def _narrow_nextafter(x: Expr) -> Expr:
    """The neighbour of a 16-bit float, in 16-bit integers."""
    a, b = (Formula(operand) for operand in x.operands)
    one, other = to_float32(a), to_float32(b)
    bits = a.bitcast(np.dtype("int16"))
    step = where((one < other) ^ (one < 0.0), bits + 1, bits - 1)
    least = (b.bitcast(np.dtype("int16")) & -0x8000) | 1
    value = where(one.equals(0.0), least, step).bitcast(x.dtype)
    value = where(one.equals(other), b, value)
    return where(one.differs(one) | other.differs(other), from_float32(one + other, x.dtype), value).expr

"""Index arithmetic in instructions: what all lanes share apart, 32 bits a lane where the bounds allow."""
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import CompilationError
from ..ir.expr import BOOL, INDEX, Axis, Expr
from ..util import toposort
from .affine import Analysis, Form
from .placement import UINT64, Placement, Value, is_constant

UINT32, INT32 = np.dtype("uint32"), np.dtype("int32")
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_SAFE = 2.0**62     # differences of smaller numbers do not wrap


class IndexPlacement(Placement):
    """Placement that knows the open loops' axes. `emit` gives the value of any expression."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.analysis = Analysis()
        self.axes: dict[Axis, Value] = {}          # axes of open loops
        self.unrolled: dict[Axis, int] = {}
        self.vector: Axis | None = None
        self.lanes = 1
        self.depends: dict[Expr, tuple[Any, ...]] = {}
        self.loading: set[Expr] = set()            # expressions that read memory

    @abstractmethod
    def emit(self, root: Expr) -> Value:
        """The value of an expression here."""

    def find_dependences(self, roots: Iterable[Expr]) -> None:
        depends, loading = self.depends, self.loading
        for e in toposort(roots, lambda e: () if e in depends else e.operands):
            if e in depends:
                continue
            found: tuple[Any, ...] = ()
            for operand in e.operands:
                more = depends[operand]
                if more and more != found:
                    found = more if not found else found + tuple(slot for slot in more if slot not in found)
                if operand in loading:
                    loading.add(e)
            if e.op in ("load", "axis") and e.attribute in self.state and e.attribute not in found:
                found = (*found, e.attribute)
            if e.op == "load":
                loading.add(e)
            depends[e] = found

    def is_index(self, e: Expr) -> bool:
        """Whether an expression is index arithmetic over loop axes only."""
        return e.dtype == INDEX and e.op in ("add", "sub", "mul", "neg", "div", "rem") and e not in self.loading

    def axis_value(self, a: Axis) -> Value:
        if a is self.vector:
            return self.pure("lanes", (), None, INDEX, self.lanes)
        if a in self.unrolled:
            return self.index(self.unrolled[a])
        if a not in self.axes:
            if a.extent == 1:
                return self.index(0)
            raise CompilationError(f"axis {a} is used outside its loop in kernel {self.name}")
        return self.axes[a]

    def quotient(self, e: Expr) -> Value:
        """A quotient or remainder of indices, unsigned (and in 32 bits a lane) where the bounds allow."""
        low, high = self.analysis.bounds(e.operands[0])
        divisor_low, divisor_high = self.analysis.bounds(e.operands[1])
        if low < 0 or divisor_low < 0:
            return self.operation(e.op, tuple(self.emit(operand) for operand in e.operands), INDEX)
        forms = [self.analysis.form(operand) for operand in e.operands]
        if max(high, divisor_high) < 2.0**31 and any(map(self.varies, forms)):
            unsigned = tuple(self.operation("bitcast", (self.narrow(form),), UINT32) for form in forms)
            return self.operation("cast", (self.operation(e.op, unsigned, UINT32),), INDEX)
        unsigned = tuple(self.operation("bitcast", (self.emit(operand),), UINT64) for operand in e.operands)
        return self.operation("bitcast", (self.operation(e.op, unsigned, UINT64),), INDEX)

    def varies(self, form: Form) -> bool:
        """Whether a form differs between the lanes."""
        return self.vector is not None and any(self.vector in self.analysis.axes(atom) for atom, _ in form.terms)

    def fits_int32(self, form: Form) -> bool:
        low, high = self.analysis.form_bounds(form)
        return low >= -(2.0**31) and high < 2.0**31

    def is_safe(self, form: Form) -> bool:
        """Whether a form is a number that differences do not wrap."""
        low, high = self.analysis.form_bounds(form)
        return low > -_SAFE and high < _SAFE

    def narrow(self, form: Form) -> Value:
        """A form that fits 32 bits, computed in them lane by lane (what the lanes share in 64)."""
        shared = Form(form.constant, tuple(term for term in form.terms if not self.varies(Form(0, (term,)))))
        total = self.to_int32(self.emit_form(shared))
        for atom, coefficient in form.terms:
            if (atom, coefficient) not in shared.terms:
                value = self.to_int32(self.emit(atom))
                if coefficient != 1:
                    value = self.operation("mul", (value, self.constant(coefficient, INT32)), INT32)
                total = value if is_constant(total, 0) else self.operation("add", (value, total), INT32)
        return total

    def to_int32(self, value: Value) -> Value:
        if value.op == "constant":
            return self.constant(value.attribute.value, INT32)
        return self.operation("cast", (value,), INT32)

    def compare(self, e: Expr) -> Value:
        """A comparison of indices; where lanes differ, of lane numbers with one bound, or in 32 bits, if it can be."""
        a, b = (self.analysis.form(operand) for operand in e.operands)
        difference = self.analysis.add(a, self.analysis.scale(b, -1))
        if self.varies(difference) and all(map(self.is_safe, (a, b))):
            assert self.vector is not None
            step = difference.coefficient(self.vector)
            others = tuple(term for term in difference.terms if term[0].attribute is not self.vector)
            rest = Form(difference.constant, others)
            if step in (1, -1) and not self.varies(rest):
                return self.compare_lanes(e.op if step == 1 else _SWAPPED[e.op], self.analysis.scale(rest, -step))
            if self.fits_int32(a) and self.fits_int32(b):
                return self.operation(e.op, (self.narrow(a), self.narrow(b)), BOOL)
        return self.operation(e.op, (self.emit_form(a), self.emit_form(b)), BOOL)

    def compare_lanes(self, op: str, bound: Form) -> Value:
        """lane number <op> bound, in 32 bits: bounds outside the lanes are brought next to them."""
        limit = self.emit_form(bound)
        limit = self.operation("max", (limit, self.index(-2)), INDEX)
        limit = self.to_int32(self.operation("min", (limit, self.index(self.lanes + 1)), INDEX))
        lanes = self.pure("lanes", (), None, INDEX, self.lanes)
        return self.operation(op, (self.to_int32(lanes), limit), BOOL)

    def cast_index(self, e: Expr) -> Value:
        form = self.analysis.form(e.operands[0])
        if self.varies(form) and self.fits_int32(form):
            value = self.narrow(form)
            return value if e.dtype == INT32 else self.operation("cast", (value,), e.dtype)
        return self.operation("cast", (self.emit_form(form),), e.dtype)

    def emit_form(self, form: Form) -> Value:
        scalar, vector = self.split_form(form)
        if vector is None:
            return scalar
        return vector if scalar.op == "constant" and scalar.attribute.value == 0 else \
            self.operation("add", (vector, scalar), INDEX)

    def split_form(self, form: Form) -> tuple[Value, Value | None]:
        """The part of a form that is equal in all lanes, and the rest (None: 0)."""
        constant = form.constant
        scalars: list[Value] = []
        vectors: list[Value] = []
        for atom, coefficient in form.terms:
            if atom.op == "axis" and atom.attribute in self.unrolled:
                constant += coefficient * self.unrolled[atom.attribute]
                continue
            value = self.emit(atom)
            if value.op == "constant":
                constant += coefficient * value.attribute.value
                continue
            if coefficient != 1:
                value = self.operation("mul", (value, self.index(coefficient)), INDEX)
            (scalars if value.lanes == 1 else vectors).append(value)
        scalars.sort(key=lambda value: value.level)   # stable: equal forms give equal sums
        total: Value | None = None
        for value in scalars:
            total = value if total is None else self.operation("add", (total, value), INDEX)
        if total is None:
            total = self.index(constant)
        elif constant:
            total = self.operation("add", (total, self.index(constant)), INDEX)
        vector: Value | None = None
        for value in vectors:
            vector = value if vector is None else self.operation("add", (vector, value), INDEX)
        return total, vector

"""What a contraction is: the two operands, their classes of axes, and what happens to each sum.

    target[batch, m, n] = sum over k of a(batch, m, k) * b(batch, n, k)

An axis is *batch* if both operands depend on it, *m* if only `a` does, *n* if only `b` does, *k* if it is summed over.
A matrix product, a convolution and both gradients of one are this, with several axes a class.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import CompilationError
from ..ir.expr import INDEX, TRUE, Axis, Buffer, Expr, axis, conjunction, constant, index_constant, load, substitute
from ..ir.kernel import Kernel, Nest
from ..ir.types import array_type
from .affine import Analysis, Form, offset_form, row_major


@dataclass(frozen=True, slots=True)
class Output:
    """A store of the epilogue: `target[index] = value` where `valid`; `value` reads the sum from `total`."""
    target: Buffer
    index: tuple[Expr, ...]
    value: Expr
    valid: Expr


@dataclass(frozen=True, slots=True)
class Contraction:
    """A contraction in the terms of the module's text. `total` stands for the sum in the outputs' values."""
    a: Expr
    b: Expr
    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    total: Buffer
    outputs: tuple[Output, ...]

    @property
    def dtype(self) -> np.dtype:
        """The type in which products are formed and summed."""
        return self.a.dtype

    def swapped(self) -> Contraction:
        """The same sums with the roles of the operands exchanged."""
        return Contraction(self.b, self.a, self.batch, self.n, self.m, self.k, self.total, self.outputs)


def replace_axes(e: Expr, values: dict[Axis, Expr]) -> Expr:
    """`e` with other expressions in the place of axes."""
    if not values:
        return e
    return substitute(e, lambda x: values.get(x.attribute) if x.op == "axis" else None)


def guarded(e: Expr, condition: Expr) -> Expr:
    """`e` with every read limited to where `condition` holds (what is read elsewhere is 0)."""
    if condition is TRUE:
        return e
    return substitute(e, lambda x: load(x.attribute, x.operands[:-1], conjunction(condition, x.operands[-1]))
                      if x.op == "load" and x.attribute.scope != "register" else None)


def loads(e: Expr) -> Iterator[Expr]:
    """Every load in `e`, once, outermost first."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op == "load":
            yield x
        stack.extend(x.operands)


def forms(exprs: Iterable[Expr]) -> list[Form]:
    """The affine forms through which expressions depend on axes: of offsets of loads, and of all other index
    arithmetic.

    Quotients, remainders and loads in a form are atoms, whose operands are forms of their own. Nothing is simplified
    by the extents of axes, so that what holds for all these forms also holds where an axis runs further than it did.
    """
    found: list[Form] = []
    seen: set[Expr] = set()
    stack = list(exprs)
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op == "load":
            sizes = row_major(x.attribute.type.shape)
            form = _sum([(plain_form(i), size) for i, size in zip(x.operands[:-1], sizes, strict=True)])
            stack.append(x.operands[-1])
        elif x.dtype == INDEX:
            form = plain_form(x)
        else:
            stack.extend(x.operands)
            continue
        found.append(form)
        for atom, _ in form.terms:
            stack.extend(atom.operands)
    return found


def _sum(parts: Iterable[tuple[Form, int]]) -> Form:
    constant, terms = 0, {}
    for form, factor in parts:
        constant += form.constant * factor
        for atom, coefficient in form.terms:
            terms[atom] = terms.get(atom, 0) + coefficient * factor
    return Form(constant, tuple(term for term in terms.items() if term[1]))


def plain_form(e: Expr) -> Form:
    """The affine form of an index expression, as it is written."""
    op = e.op
    if op == "constant":
        return Form(int(e.attribute.value))
    if op == "add":
        return _sum([(plain_form(operand), 1) for operand in e.operands])
    if op == "sub":
        return _sum([(plain_form(e.operands[0]), 1), (plain_form(e.operands[1]), -1)])
    if op == "neg":
        return _sum([(plain_form(e.operands[0]), -1)])
    if op == "mul":
        left, right = map(plain_form, e.operands)
        if left.is_constant or right.is_constant:
            return _sum([(right, left.constant)] if left.is_constant else [(left, right.constant)])
    return Form(0, ((e, 1),))


def analyse(kernel: Kernel) -> Contraction:
    """Read a kernel of kind "contraction". CompilationError where it is not of the promised form."""
    if not kernel.nests:
        raise CompilationError(f"kernel {kernel.name}: a contraction without nests")
    nest = kernel.nests[0]
    if nest.value.op != "mul" or (nest.combine != "add" and nest.reduce_axes):
        raise CompilationError(f"kernel {kernel.name}: the first nest is not a sum of products")
    analysis = Analysis()
    single = {a: index_constant(0) for a in (*kernel.outer, *nest.axes, *nest.reduce_axes) if a.extent == 1}
    a, b = (replace_axes(operand, single) for operand in nest.value.operands)
    in_a, in_b = analysis.axes(a), analysis.axes(b)
    classes: dict[str, list[Axis]] = {"batch": [], "m": [], "n": []}
    for one in (*kernel.outer, *nest.axes):
        if one.extent != 1:
            kind = "m" if one in in_a and one not in in_b else "n" if one in in_b and one not in in_a else "batch"
            classes[kind].append(one)
    total = Buffer("total", array_type((), a.dtype), "register")
    outputs = _outputs(kernel, nest, total, single)
    k = tuple(one for one in nest.reduce_axes if one.extent != 1)
    if any(one.extent == 0 for one in k):   # a sum of nothing
        a, b, k = constant(0, a.dtype), constant(0, b.dtype), ()
    return Contraction(a, b, tuple(classes["batch"]), tuple(classes["m"]), tuple(classes["n"]), k, total, outputs)


def _outputs(kernel: Kernel, first: Nest, total: Buffer, single: dict[Axis, Expr]) -> tuple[Output, ...]:
    """The stores of a contraction and its epilogue, over the axes of the first nest."""
    index = tuple(replace_axes(i, single) for i in first.index)
    known: dict[Buffer, tuple[tuple[Expr, ...], Expr]] = {first.target: (index, load(total, ()))}
    outputs: list[Output] = []
    stored = frozenset(kernel.outputs)
    if first.target in stored:
        outputs.append(Output(first.target, index, load(total, ()), replace_axes(first.valid, single)))
    for nest in kernel.nests[1:]:
        if nest.reduce_axes or nest.combine is not None:
            raise CompilationError(f"kernel {kernel.name}: the epilogue of a contraction reduces")
        values = single | _match_axes(kernel, first, nest, known)
        index = tuple(replace_axes(i, values) for i in nest.index)
        value, valid = (_inline(kernel, replace_axes(e, values), known) for e in (nest.value, nest.valid))
        known[nest.target] = (index, value)
        if nest.target in stored:
            outputs.append(Output(nest.target, index, value, valid))
    return tuple(outputs)


def _match_axes(kernel: Kernel, first: Nest, nest: Nest,
                known: dict[Buffer, tuple[tuple[Expr, ...], Expr]]) -> dict[Axis, Expr]:
    """The axes of an epilogue nest in terms of the first nest's, found where it reads what was computed before."""
    values: dict[Axis, Expr] = {}
    for read in loads(nest.value):
        if read.attribute not in known:
            continue
        for position, meant in zip(read.operands[:-1], known[read.attribute][0], strict=True):
            if position.op == "axis" and position.attribute in nest.axes:
                values.setdefault(position.attribute, meant)
    if not values and [a.extent for a in nest.axes] == [a.extent for a in first.axes]:
        values = {mine: axis(theirs) for mine, theirs in zip(nest.axes, first.axes, strict=True)}
    for one in nest.axes:
        if one.extent == 1:
            values.setdefault(one, index_constant(0))
        elif one not in values:
            raise CompilationError(f"kernel {kernel.name}: axis {one} of the epilogue is not one of the contraction's")
    single = {a: index_constant(0) for a in first.axes if a.extent == 1}
    return {mine: replace_axes(meant, single) for mine, meant in values.items()}


def _inline(kernel: Kernel, e: Expr, known: dict[Buffer, tuple[tuple[Expr, ...], Expr]]) -> Expr:
    """`e` with reads of what this element's earlier nests computed replaced by its value."""
    analysis = Analysis()

    def replace(x: Expr) -> Expr | None:
        if x.op != "load" or x.attribute not in known:
            return None
        index, value = known[x.attribute]
        shape = x.attribute.type.shape
        here, there = offset_form(analysis, x.operands[:-1], shape), offset_form(analysis, index, shape)
        if here.constant != there.constant or dict(here.terms) != dict(there.terms):
            raise CompilationError(f"kernel {kernel.name}: the epilogue reads another element of {x.attribute}")
        return value
    return substitute(e, replace)

"""Work and traffic estimates: of expressions (for fusion decisions) and of kernels (for reports and search)."""
from __future__ import annotations

import math
from dataclasses import dataclass

from ..ir.expr import Buffer, Expr
from ..ir.kernel import Kernel, Nest
from .walk import subexpressions

# Rough cost of one operation on one element, in simple vector instructions.
_COST = {
    "div": 10, "rem": 12, "sqrt": 10, "integer_div": 12, "integer_rem": 12, "mulhi": 4,
    "exp": 12, "exp2": 10, "expm1": 16, "log": 16, "log2": 16, "log1p": 18, "rsqrt": 12, "cbrt": 30, "pow": 40,
    "sin": 24, "cos": 24, "tan": 34, "asin": 20, "acos": 20, "atan": 24, "atan2": 34,
    "sinh": 26, "cosh": 24, "tanh": 24, "asinh": 30, "acosh": 30, "atanh": 30, "logistic": 24,
    "erf": 24, "erfc": 34, "erf_inv": 40, "lgamma": 80, "digamma": 80,
    "population_count": 8, "count_leading_zeros": 8, "nextafter": 8, "sign": 3,
}
_FREE = frozenset({"constant", "axis", "load", "reduce"})


def operation_cost(x: Expr) -> int:
    """The cost of one node of an expression, without its operands. Index arithmetic counts little: it is hoisted."""
    if x.op in _FREE:
        return 0
    return _COST.get(x.op, 1)


def expression_cost(*expressions: Expr) -> int:
    """The cost of evaluating expressions once, each distinct subexpression counted once."""
    return sum(map(operation_cost, subexpressions(*expressions)))


@dataclass(frozen=True, slots=True)
class Work:
    """What running a kernel takes. flops: on elements. read, written: bytes of global memory, each array once."""
    flops: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        return self.read + self.written


def nest_points(kernel: Kernel, nest: Nest) -> int:
    """How many times the value of a nest is computed."""
    return math.prod(a.extent for a in (*kernel.outer, *nest.axes, *nest.reduce_axes))


def _flops(nest: Nest) -> int:
    counted = sum(1 for e in subexpressions(nest.value) if e.op not in _FREE and e.dtype.kind not in "b"
                  and e.op not in ("cast", "bitcast", "select") and e.dtype.kind not in "iu")
    return counted + (1 if nest.combine else 0)


def work(kernel: Kernel) -> Work:
    """The work of a fused kernel. An array that is read at fewer places than it has counts with those."""
    flops = sum(nest_points(kernel, nest) * _flops(nest) for nest in kernel.nests)
    read: dict[Buffer, int] = {}
    for nest in kernel.nests:
        points = nest_points(kernel, nest)
        for e in subexpressions(nest.value, nest.valid, *nest.index):
            if e.op == "load" and e.attribute.scope == "global":
                touched = min(e.attribute.type.nbytes, points * e.attribute.type.dtype.itemsize)
                read[e.attribute] = max(read.get(e.attribute, 0), touched)
    if kernel.kind == "loops":
        read = {buffer: buffer.type.nbytes for buffer in kernel.inputs}
    return Work(flops, sum(read.values()), sum(buffer.type.nbytes for buffer in kernel.outputs))

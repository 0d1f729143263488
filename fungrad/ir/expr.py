"""Index expressions: the scalar language of stages 2 to 4.

    expr ::= constant{literal}                      a scalar
           | axis{Axis}                             a loop index (dtype int64)
           | load{buffer}(index..., valid)          an element of a buffer; 0 where `valid` is false (nothing is read)
           | reduce{combine, axes}(body)            combine body over reduce axes (before scheduling only)
           | OP(operand...)                         a core or decomposable operation, see OPERATIONS

An expression is interned: equal ones are one object. Index arithmetic is in int64 (`INDEX`); truth values are bool.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..util import toposort
from .intern import InternTable
from .types import Literal, Shape, Type, literal

INDEX = np.dtype("int64")
BOOL = np.dtype("bool")

# Core operations: what every backend renders. name -> number of operands.
CORE = {
    "add": 2, "sub": 2, "mul": 2, "fma": 3,              # integers wrap
    "div": 2, "rem": 2,                                   # floats: IEEE; integers: truncated (the divisor is never 0)
    "neg": 1, "abs": 1, "max": 2, "min": 2,               # max, min: NaN if either is NaN
    "floor": 1, "ceil": 1, "trunc": 1, "round": 1,        # round: to even
    "sqrt": 1,
    "and": 2, "or": 2, "xor": 2, "not": 1,                # bitwise on integers, logical on bool
    "shift_left": 2, "shift_right": 2,                    # arithmetic for signed, logical for unsigned; count < bits
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,  # result bool; ne(NaN, NaN) is true, the others false
    "select": 3,                                          # select(condition: bool, if true, if false)
    "cast": 1, "bitcast": 1,                              # float -> integer truncates, saturates; NaN -> 0
}
# Operations that `lower/decompose` rewrites to core ones before rendering.
DECOMPOSED = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log1p": 1, "rsqrt": 1, "cbrt": 1, "pow": 2,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2,
    "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "logistic": 1,
    "erf": 1, "erfc": 1, "erf_inv": 1, "lgamma": 1, "digamma": 1,
    "population_count": 1, "count_leading_zeros": 1, "nextafter": 2, "sign": 1,
    "mulhi": 2,                                           # high half of an unsigned product
    "integer_div": 2, "integer_rem": 2,                   # as JAX: x / 0 = -1, x % 0 = x, INT_MIN / -1 = INT_MIN
    "safe_shift_left": 2, "safe_shift_right": 2, "safe_shift_right_logical": 2,  # a count >= bits gives 0 (or the sign)
}
OPERATIONS = {**CORE, **DECOMPOSED}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
COMBINES = ("add", "mul", "max", "min", "and", "or", "xor")   # what reduce and accumulating stores may use


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Axis:
    """A loop index running over range(extent); its identity is the object, its name is for printing."""
    name: str
    extent: int

    def __repr__(self) -> str:
        return f"{self.name}:{self.extent}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Buffer:
    """A piece of memory that holds a row-major array. Its identity is the object.

    scope: "global" (an argument of the kernel), "scratch" (private to one iteration of the kernel's outer axes)
    or "register" (a few values in machine registers).
    """
    name: str
    type: Type
    scope: str = "global"

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type} {self.scope}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Expr:
    """One node of an index expression. `attribute` is a Literal, an Axis, a Buffer or (combine, axes), by `op`."""
    op: str
    operands: tuple[Expr, ...]
    attribute: Any
    dtype: np.dtype

    def __repr__(self) -> str:
        return to_text(self)


_table: InternTable[Expr] = InternTable()


def _expr(op: str, operands: tuple[Expr, ...], attribute: Any, dtype: np.dtype) -> Expr:
    return _table.get((op, operands, attribute, dtype), lambda: Expr(op, operands, attribute, dtype))


def constant(value: bool | int | float | Literal, dtype: np.dtype) -> Expr:
    """A scalar constant."""
    bits = value if isinstance(value, Literal) else literal(value, dtype)
    return _expr("constant", (), bits, dtype)


TRUE = constant(True, BOOL)
FALSE = constant(False, BOOL)


def index_constant(value: int) -> Expr:
    return constant(value, INDEX)


def axis(a: Axis) -> Expr:
    """The current index of a loop axis."""
    return _expr("axis", (), a, INDEX)


def load(buffer: Buffer, index: tuple[Expr, ...], valid: Expr = TRUE) -> Expr:
    """The element of `buffer` at `index` (one expression a dimension), or 0 without a read where `valid` is false."""
    if len(index) != buffer.type.rank:
        raise ValueError(f"{len(index)} indices for {buffer}")
    return _expr("load", (*index, valid), buffer, buffer.type.dtype)


def reduce(combine: str, body: Expr, axes: tuple[Axis, ...]) -> Expr:
    """Combine `body` over all values of `axes`; the identity of `combine` where an extent is 0."""
    return _expr("reduce", (body,), (combine, axes), body.dtype) if axes else body


def operation(op: str, *operands: Expr, dtype: np.dtype | None = None) -> Expr:
    """An operation of OPERATIONS. The result has the operands' dtype; comparisons give bool; casts need `dtype`."""
    if len(operands) != OPERATIONS[op]:
        raise ValueError(f"{op} takes {OPERATIONS[op]} operands, got {len(operands)}")
    if dtype is None:
        dtype = BOOL if op in COMPARISONS else operands[-1].dtype
    return _expr(op, operands, None, dtype)


def cast(x: Expr, dtype: np.dtype) -> Expr:
    return x if x.dtype == dtype else operation("cast", x, dtype=dtype)


def select(condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
    if condition is TRUE:
        return if_true
    if condition is FALSE:
        return if_false
    return operation("select", condition, if_true, if_false)


def rare(condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
    """A `select` whose first value is costly and seldom needed: a backend may compute it only where it is."""
    return _expr("select", (condition, if_true, if_false), "rare", if_true.dtype)


def conjunction(a: Expr, b: Expr) -> Expr:
    """Logical and of two truth values."""
    if a is TRUE or a is b:
        return b
    if b is TRUE:
        return a
    if a is FALSE or b is FALSE:
        return FALSE
    return operation("and", a, b)


def rebuild(x: Expr, operands: tuple[Expr, ...]) -> Expr:
    """`x` with other operands."""
    return x if operands == x.operands else _expr(x.op, operands, x.attribute, x.dtype)


def substitute(x: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `x` bottom-up without recursion; `replace(e)` answers for `e` itself, or None to rebuild it from its
    operands."""
    done: dict[Expr, Expr] = {}
    stack = [x]
    while stack:
        e = stack[-1]
        if e in done:
            stack.pop()
            continue
        chosen = replace(e)
        if chosen is not None:
            done[e] = chosen
            stack.pop()
            continue
        missing = [operand for operand in e.operands if operand not in done]
        if missing:
            stack.extend(missing)
            continue
        done[e] = rebuild(e, tuple(done[operand] for operand in e.operands))
        stack.pop()
    return done[x]


def guarded(x: Expr, valid: Expr) -> Expr:
    """`x` with every load, those within the indices of other loads included, carried out only where `valid` holds."""
    done: dict[Expr, Expr] = {}
    for e in toposort([x], lambda e: e.operands):
        operands = tuple([done[operand] for operand in e.operands])
        if e.op == "load":
            done[e] = load(e.attribute, operands[:-1], conjunction(valid, operands[-1]))
        else:
            done[e] = rebuild(e, operands)
    return done[x]


MOST_TEXT = 1000   # characters of an expression's text; operands of longer ones are left out


def to_text(x: Expr) -> str:
    """One line of text (for messages; `ir/text.py` prints shared expressions once)."""
    texts: dict[Expr, str] = {}
    for e in toposort([x], lambda e: e.operands):
        text = node_text(e, [texts[operand] for operand in e.operands])
        texts[e] = text if len(text) <= MOST_TEXT else node_text(e, ["..."] * len(e.operands))
    return texts[x]


def node_text(x: Expr, operands: list[str]) -> str:
    """The text of one node over its operands' texts."""
    if x.op == "constant":
        return str(x.attribute)
    if x.op == "axis":
        return x.attribute.name
    if x.op == "load":
        valid = "" if x.operands[-1] is TRUE else f" if {operands[-1]}"
        return f"{x.attribute.name}[{', '.join(operands[:-1])}{valid}]"
    inner = ", ".join(operands)
    if x.op == "reduce":
        return f"reduce_{x.attribute[0]}[{', '.join(a.name for a in x.attribute[1])}]({inner})"
    return f"{x.op}({inner})" if x.op not in ("cast", "bitcast") else f"{x.op}<{x.dtype.name}>({inner})"


class Reader:
    """How a primitive's `lower` rule sees an operand: call it with an index to get the element's expression.

    `reader(index, valid)` promises that the value is looked at only where `valid` holds: what is read elsewhere is 0
    or anything else, but no memory outside the operand is touched. A rule passes its own `valid` on, narrowed.
    """

    __slots__ = ("type", "_read")

    def __init__(self, type: Type, read: Callable[[tuple[Expr, ...], Expr], Expr]):
        self.type = type
        self._read = read

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    def __call__(self, index: tuple[Expr, ...], valid: Expr = TRUE) -> Expr:
        return self._read(index, valid)

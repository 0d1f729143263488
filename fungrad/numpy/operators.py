"""The functions behind the operators and methods of values; `fungrad/__init__.py` puts TABLE into `ir.value.OPERATORS`.

An operator between weak operands (Python scalars, and traced values that stand for them) gives a weak result, so that
`jit(f)(x, 2.0)` has the element types of `f(x, 2.0)`. For an operand that is no array it answers NotImplemented.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.value import Value
from ..lax.conversion import is_operand, is_weak
from ..lax.promotion import refuse_out
from ..trace import Tracer
from . import (
    contractions,
    creation,
    cumulative,
    elementwise,
    indexing,
    joining,
    logic,
    manipulation,
    reductions,
    selection,
    sorting,
    updates,
)

_SCALARS = (int, float)     # bool is an int


def _weakened(result: Any, *operands: Any) -> Any:
    """`result`, marked as weak if all operands are."""
    if isinstance(result, Tracer) and all(map(is_weak, operands)):
        result.weak = True
    return result


def binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator of two operands."""
    def operator(x: Any, y: Any) -> Any:
        if not (isinstance(x, Value) and (isinstance(y, (Value, *_SCALARS)) or is_operand(y))) and not is_operand(x):
            return NotImplemented
        result = function(x, y)
        if (isinstance(x, Tracer) and x.weak) or (isinstance(y, Tracer) and y.weak):
            return _weakened(result, x, y)
        return result
    operator.__name__ = function.__name__
    return operator


def comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison operator, whose result is bool and never weak."""
    def operator(x: Any, y: Any) -> Any:
        return function(x, y) if is_operand(y) else NotImplemented
    operator.__name__ = function.__name__
    return operator


def unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An operator of one operand."""
    def operator(x: Any) -> Any:
        result = function(x)
        return _weakened(result, x) if isinstance(x, Tracer) and x.weak else result
    operator.__name__ = function.__name__
    return operator


def _divmod(x: Any, y: Any) -> Any:
    if not is_operand(x) or not is_operand(y):
        return NotImplemented
    quotient, remainder = elementwise.divmod(x, y)
    return _weakened(quotient, x, y), _weakened(remainder, x, y)


def _clip(x: Value, min: Any = None, max: Any = None, out: None = None) -> Value:
    refuse_out("clip", out)
    return elementwise.clip(x, min, max)


def _compress(x: Value, condition: Any, axis: int | None = None, out: None = None, *, size: int | None = None,
              fill_value: Any = 0) -> Value:
    return selection.compress(condition, x, axis, size=size, fill_value=fill_value, out=out)


TABLE: dict[str, Callable[..., Any]] = {
    "add": binary(elementwise.add),
    "sub": binary(elementwise.subtract),
    "mul": binary(elementwise.multiply),
    "truediv": binary(elementwise.true_divide),
    "floordiv": binary(elementwise.floor_divide),
    "mod": binary(elementwise.remainder),
    "pow": binary(elementwise.power),
    "matmul": binary(contractions.matmul),
    "and": binary(logic.bitwise_and),
    "or": binary(logic.bitwise_or),
    "xor": binary(logic.bitwise_xor),
    "lshift": binary(logic.left_shift),
    "rshift": binary(logic.right_shift),
    "divmod": _divmod,
    "eq": comparison(logic.equal),
    "ne": comparison(logic.not_equal),
    "lt": comparison(logic.less),
    "le": comparison(logic.less_equal),
    "gt": comparison(logic.greater),
    "ge": comparison(logic.greater_equal),
    "neg": unary(elementwise.negative),
    "pos": unary(elementwise.positive),
    "abs": unary(elementwise.absolute),
    "invert": unary(logic.bitwise_not),
    "getitem": indexing.getitem,
    "at": updates.At,
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "asarray": creation.asarray,
    "astype": creation.astype,
    "choose": selection.choose,
    "clip": _clip,
    "compress": _compress,
    "copy": creation.copy,
    "cumprod": cumulative.cumprod,
    "cumsum": cumulative.cumsum,
    "diagonal": creation.diagonal,
    "dot": contractions.dot,
    "matrix_transpose": manipulation.matrix_transpose,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": selection.nonzero,
    "partition": sorting.partition,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": manipulation.ravel,
    "repeat": joining.repeat,
    "reshape": manipulation.reshape,
    "round": elementwise.round,
    "searchsorted": sorting.searchsorted,
    "sort": sorting.sort,
    "squeeze": manipulation.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": manipulation.swapaxes,
    "take": indexing.take,
    "transpose": manipulation.transpose,
    "var": reductions.var,
    "view": manipulation.view,
    "zeros_like": creation.zeros_like,
}

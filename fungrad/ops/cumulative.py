"""Operations that run along an axis: cumsum, cumprod, cummax, cummin, and the linear recurrence of their derivatives.

`reverse` runs from the last element to the first. 16-bit floats are carried in float32.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import accumulation, highest, is_float, lowest
from ..errors import RefusedError, ShapeError
from ..ir.expr import operation
from ..ir.kernel import Fragment
from ..ir.primitive import Linear, Primitive, Rule, Zero, declare
from ..ir.types import Type
from ..trace import bind
from .create import full, full_like
from .cumulative_loops import Step, run_fragment
from .elementwise import add, eq, gt, lt, mul, ne, select, sub
from .elementwise_rows import NUMBER, check
from .rules import NOT_LINEAR, batch_to_front, is_zero, linear_jvp, same_type
from .slicing import pad


def _checked(name: str, x: Type, axis: int) -> Type:
    check(name, NUMBER, x.dtype)
    if not 0 <= axis < x.rank:
        raise ShapeError(f"{name}: axis {axis} is not an axis of an array of shape {x.shape}")
    return x


def previous(x: Any, axis: int, reverse: bool, fill: float) -> Any:
    """x moved one place along `axis` in the direction of running: element k holds element k - 1, the first `fill`."""
    one = (-1, 1, 0) if reverse else (1, -1, 0)
    config = tuple(one if a == axis else (0, 0, 0) for a in range(x.ndim))
    return pad(x, full((), fill, x.dtype), config)


def _run(first: Callable[[tuple[int, ...], np.dtype], np.ndarray], step: Callable[..., np.ndarray]) -> Rule:
    """A reference that steps along the axis, carrying in the accumulation type."""
    def reference(*arrays: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
        dtype = arrays[0].dtype
        moved = [np.moveaxis(a.astype(accumulation(dtype)), axis, 0) for a in arrays]
        result = np.empty_like(moved[0])
        carry = first(result.shape[1:], result.dtype)
        order = range(len(result))
        with np.errstate(all="ignore"):
            for k in reversed(order) if reverse else order:
                result[k] = carry = np.asarray(step(carry, *(m[k] for m in moved))).astype(result.dtype)
            return np.ascontiguousarray(np.moveaxis(result, 0, axis)).astype(dtype)
    return reference


def _batch(name: str) -> Rule:
    def batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, axis: int, reverse: bool) -> Any:
        moved = [batch_to_front(size, x, a) for x, a in zip(operands, axes, strict=True)]
        return bind(_NAMED[name], *moved, axis=axis + 1, reverse=reverse), 0
    return batch


_NAMED: dict[str, Primitive] = {}


def _declare(name: str, first: Callable[[np.dtype], Any], numpy_step: Callable[..., Any], step: Step, jvp: Rule,
             transpose: Any, doc: str, traits: tuple[str, ...] = (), regroup: bool = True) -> Primitive:
    """regroup: the operation is associative, and regrouping it neither overflows nor rounds much differently."""
    def type_rule(*types: Type, axis: int, reverse: bool) -> Type:
        return _checked(name, same_type(name, *types), axis)

    def reference_first(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.full(shape, first(dtype), dtype)

    def lower(types: Sequence[Type], type: Type, *, axis: int, reverse: bool) -> Fragment:
        return run_fragment(types, type, axis, reverse, first(type.dtype), step, regroup)
    _NAMED[name] = declare(Primitive(
        name, type_rule, _run(reference_first, numpy_step), jvp, transpose, _batch(name), lower,
        frozenset({"loops", *traits}), doc))
    return _NAMED[name]


# ---- linear recurrence ----------------------------------------------------------------------------------------------


def _recurrence_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
    """dh_k = a_k dh_{k-1} + (da_k h_{k-1} + db_k)."""
    factor, term = primals
    h = linear_recurrence(factor, term, axis, reverse)
    if all(map(is_zero, tangents)) or not is_float(h.dtype):
        return h, Zero(h.type)
    source = tangents[1]
    if not is_zero(tangents[0]):
        change = mul(tangents[0], previous(h, axis, reverse, 0))
        source = change if is_zero(source) else add(change, source)
    return h, linear_recurrence(factor, source, axis, reverse)


def _recurrence_transpose(cotangent: Any, operands: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
    """The recurrence the other way, with each factor one place earlier."""
    if isinstance(operands[0], Linear):
        raise RefusedError("linear_recurrence is not linear in its factors, so it has no transpose for them")
    return None, linear_recurrence(previous(operands[0], axis, not reverse, 0), cotangent, axis, not reverse)


_declare("linear_recurrence", lambda dtype: 0, lambda h, a, b: a * h + b,
         lambda h, a, b: operation("add", operation("mul", a, h), b), _recurrence_jvp, _recurrence_transpose,
         "h_k = a_k h_{k-1} + b_k along `axis`, from 0.",
         regroup=False)


def linear_recurrence(factor: Any, term: Any, axis: int, reverse: bool = False) -> Any:
    """h_k = factor_k * h_{k-1} + term_k along `axis`, starting from h = 0. Linear in `term`."""
    return bind(_NAMED["linear_recurrence"], factor, term, axis=axis, reverse=reverse)


# ---- cumulative sum, product, maximum, minimum ----------------------------------------------------------------------


def _cumsum_transpose(cotangent: Any, operands: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any]:
    return (cumsum(cotangent, axis, not reverse),)


def _cumprod_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
    """dy_k = x_k dy_{k-1} + y_{k-1} dx_k: no division, so zeros do no harm."""
    (x,), (tangent,) = primals, tangents
    y = cumprod(x, axis, reverse)
    if is_zero(tangent) or not is_float(x.dtype):
        return y, Zero(y.type)
    return y, linear_recurrence(x, mul(previous(y, axis, reverse, 1), tangent), axis, reverse)


def _extremum_jvp(function: Callable[..., Any], beyond: Callable[..., Any], start: Callable[[np.dtype], Any]) -> Rule:
    """dy_k = dx_k where x_k is a new extremum (or NaN), dy_{k-1} where it is not, their mean at an equal one."""
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
        (x,), (tangent,) = primals, tangents
        y = function(x, axis, reverse)
        if is_zero(tangent) or not is_float(x.dtype):
            return y, Zero(y.type)
        before = previous(y, axis, reverse, start(x.dtype))
        one, nothing = full_like(x, 1), full_like(x, 0)
        replaces = select(ne(x, x), select(ne(before, before), nothing, one), select(
            beyond(x, before), one, select(eq(x, before), full_like(x, 0.5), nothing)))
        source = select(eq(replaces, 0.0), full_like(x, 0), mul(tangent, replaces))
        return y, linear_recurrence(sub(1.0, replaces), source, axis, reverse)
    return jvp


_declare("cumsum", lambda dtype: 0, np.add, lambda c, x: operation("add", c, x), linear_jvp("cumsum"),
         _cumsum_transpose, "The sums of the elements up to each one.", ("linear",))
_declare("cumprod", lambda dtype: 1, np.multiply, lambda c, x: operation("mul", c, x), _cumprod_jvp, NOT_LINEAR,
         "The products of the elements up to each one.", regroup=False)
_declare("cummax", lowest, np.maximum, lambda c, x: operation("max", c, x),
         _extremum_jvp(lambda *args: cummax(*args), gt, lowest), NOT_LINEAR,
         "The largest of the elements up to each one; NaN from the first NaN on.")
_declare("cummin", highest, np.minimum, lambda c, x: operation("min", c, x),
         _extremum_jvp(lambda *args: cummin(*args), lt, highest), NOT_LINEAR,
         "The smallest of the elements up to each one; NaN from the first NaN on.")


def cumsum(x: Any, axis: int, reverse: bool = False) -> Any:
    """The sums of the elements up to each one along `axis`."""
    return bind(_NAMED["cumsum"], x, axis=axis, reverse=reverse)


def cumprod(x: Any, axis: int, reverse: bool = False) -> Any:
    """The products of the elements up to each one along `axis`."""
    return bind(_NAMED["cumprod"], x, axis=axis, reverse=reverse)


def cummax(x: Any, axis: int, reverse: bool = False) -> Any:
    """The largest of the elements up to each one along `axis`; NaN from the first NaN on."""
    return bind(_NAMED["cummax"], x, axis=axis, reverse=reverse)


def cummin(x: Any, axis: int, reverse: bool = False) -> Any:
    """The smallest of the elements up to each one along `axis`; NaN from the first NaN on."""
    return bind(_NAMED["cummin"], x, axis=axis, reverse=reverse)

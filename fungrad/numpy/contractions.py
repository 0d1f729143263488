"""Sums of products: dot, matmul, tensordot, inner, outer, vecdot, kron, cross, trace, convolve, correlate, polyval.

Each is one `dot_general` over labelled axes (`contract`) where it can be: batch axes stay batch axes, an axis that only
one operand repeats is never broadcast. Sums of 16-bit floats are accumulated in float32.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.arguments import one_axis, static_int
from ..lax.conversion import as_value, operand, place
from ..lax.promotion import common_dtype, inexact, requested, to_same_dtype
from ..ops import elementwise as ops, linear
from ..ops.contract import dot_general
from ..ops.convolution import conv
from ..ops.create import full
from ..ops.slicing import concatenate, flip
from .creation import diagonal
from .reductions import sum

Labels = tuple[Any, ...]
Shape = tuple[int, ...]


class _Steps(NamedTuple):
    """How `contract` goes about its operands: for each, the shape without repeated axes (None: as it is) and the axes
    summed beforehand; whether the operands change places; the dot_general's numbers; what its result goes through.
    """
    shapes: tuple[Shape | None, Shape | None]
    summed: tuple[tuple[int, ...], tuple[int, ...]]
    swapped: bool
    numbers: Any
    permutation: tuple[int, ...]
    result: Shape | None


def contract(x: Value, y: Value, x_labels: Labels, y_labels: Labels, result: Labels, dtype: Any = None) -> Value:
    """The sum over the labels that are not in `result` of products of elements with equal labels.

    A label occurs once in each operand at most; with extent 1 in one operand and more in the other it broadcasts.
    `dtype` is the result's element type (None: the operands').
    """
    steps = _steps(x.type.shape, y.type.shape, x_labels, y_labels, result)
    x, y = (_prepared(v, shape, axes) for v, shape, axes in zip((x, y), steps.shapes, steps.summed, strict=True))
    x, y, kind = _product_types(x, y, dtype)
    if steps.swapped:
        x, y = y, x
    product = linear.transpose(dot_general(x, y, steps.numbers, kind), steps.permutation)
    return product if steps.result is None else linear.reshape(product, steps.result)


def _prepared(x: Value, shape: Shape | None, axes: tuple[int, ...]) -> Value:
    if shape is not None:
        x = linear.reshape(x, shape)
    return sum(x, axes, x.dtype if x.dtype != dtypes.bool_ else None) if axes else x


@lru_cache(maxsize=1024)
def _steps(x_shape: Shape, y_shape: Shape, x_labels: Labels, y_labels: Labels, result: Labels) -> _Steps:
    x_extents, y_extents = dict(zip(x_labels, x_shape, strict=True)), dict(zip(y_labels, y_shape, strict=True))
    x, y = _without_repeats(x_extents, y_extents), _without_repeats(y_extents, x_extents)
    shapes = tuple(None if len(kept) == len(all_) else tuple(kept.values()) for kept, all_ in
                   ((x, x_extents), (y, y_extents)))
    summed = tuple(tuple(axis for axis, label in enumerate(one) if label not in other and label not in result)
                   for one, other in ((x, y), (y, x)))
    x = {label: e for label, e in x.items() if label in y or label in result}
    y = {label: e for label, e in y.items() if label in x or label in result}
    shared = [label for label in x if label in y]
    batch, inner = [k for k in result if k in shared], [k for k in shared if k not in result]
    present = [label for label in result if label in x or label in y]
    swapped = _product_labels(x, y, batch, inner) != present and _product_labels(y, x, batch, inner) == present
    if swapped:
        x, y = y, x
    first, second = list(x), list(y)
    numbers = ((tuple(map(first.index, inner)), tuple(map(second.index, inner))),
               (tuple(map(first.index, batch)), tuple(map(second.index, batch))))
    order = _product_labels(x, y, batch, inner)
    extents = {**y, **x}
    final = None if len(present) == len(result) else tuple(extents.get(label, 1) for label in result)
    return _Steps((shapes[0], shapes[1]), (summed[0], summed[1]), swapped, numbers,
                  tuple(map(order.index, present)), final)


def _without_repeats(extents: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
    """The labels without those of extent 1 that have another extent in the other operand."""
    return {label: e for label, e in extents.items() if e != 1 or other.get(label, 1) == 1}


def _product_labels(x: dict[Any, int], y: dict[Any, int], batch: list[Any], inner: list[Any]) -> list[Any]:
    """The labels of dot_general's result."""
    return batch + [k for k in x if k not in batch and k not in inner] + [
        k for k in y if k not in batch and k not in inner]


def _product_types(x: Value, y: Value, dtype: Any) -> tuple[Value, Value, Any]:
    """The operands in types whose products may be summed, and the result's type."""
    kind = common_dtype("contraction", x, y) if dtype is None else dtype
    if dtypes.bool_ in (x.dtype, y.dtype) or dtypes.is_float(x.dtype) != dtypes.is_float(y.dtype):
        both = common_dtype("contraction", x, y)
        both = dtypes.int32 if both == dtypes.bool_ else both
        x, y = linear.convert(x, both), linear.convert(y, both)
    if dtypes.is_float(kind) != dtypes.is_float(x.dtype):
        x, y = linear.convert(x, kind), linear.convert(y, kind)
    return x, y, dtypes.int32 if kind == dtypes.bool_ else kind


def _finished(name: str, product: Value, x: Value, y: Value, dtype: Any) -> Value:
    """bool operands give bool, by logical or of ands, unless another type is asked for."""
    if dtype is None and x.dtype == dtypes.bool_ and y.dtype == dtypes.bool_:
        return linear.convert(product, dtypes.bool_)
    return product if dtype is None else linear.convert(product, dtype)


def _operands(name: str, a: Any, b: Any) -> tuple[Value, Value]:
    """Two operands as values; a weak scalar takes the other's type."""
    first, second = operand(name, a), operand(name, b)
    if isinstance(first, Value) and isinstance(second, Value) and first.type.dtype == second.type.dtype:
        return first, second
    x, y = to_same_dtype(name, first, second)
    return x, y


# ---- products -------------------------------------------------------------------------------------------------------

def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The matrix product over the last two axes; leading axes broadcast; a vector is a row (left) or a column (right).

    >>> import fungrad.numpy as fnp
    >>> fnp.matmul(fnp.ones((5, 2, 3)), fnp.ones((3, 4))).shape
    (5, 2, 4)
    """
    x, y = _operands("matmul", a, b)
    if not x.ndim or not y.ndim:
        raise ShapeError(f"matmul takes arrays with axes, got shapes {x.shape} and {y.shape}. Use multiply for "
                         f"scalars.")
    inner = x.shape[-1], y.shape[-2 if y.ndim > 1 else -1]
    if inner[0] != inner[1]:
        raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} do not fit: the last axis of the left operand has "
                         f"{inner[0]} elements, the {'second last' if y.ndim > 1 else 'only'} axis of the right one "
                         f"{inner[1]}." + _transpose_hint(x.shape, y.shape))
    _check_batch("matmul", x.shape, y.shape, x.shape[:-2], y.shape[:-2])
    rank = max(x.ndim, y.ndim, 2) - 2
    x_batch, y_batch = tuple(range(rank - max(0, x.ndim - 2), rank)), tuple(range(rank - max(0, y.ndim - 2), rank))
    x_labels = (*x_batch, "m", "k") if x.ndim > 1 else ("k",)
    y_labels = (*y_batch, "k", "n") if y.ndim > 1 else ("k",)
    result = (*range(rank), *(("m",) if x.ndim > 1 else ()), *(("n",) if y.ndim > 1 else ()))
    kind = requested("matmul", preferred_element_type)
    return _finished("matmul", contract(x, y, x_labels, y_labels, result, kind), x, y, kind)


def _transpose_hint(x: tuple[int, ...], y: tuple[int, ...]) -> str:
    if len(y) > 1 and x[-1] == y[-1]:
        return " With y transposed they would: x @ y.mT."
    return ""


def _check_batch(name: str, x: tuple[int, ...], y: tuple[int, ...], x_batch: Sequence[int],
                 y_batch: Sequence[int]) -> None:
    for a, b in zip(reversed(x_batch), reversed(y_batch), strict=False):
        if a != b and 1 not in (a, b):
            raise ShapeError(f"{name}: shapes {x} and {y} do not fit: their leading axes {tuple(x_batch)} and "
                             f"{tuple(y_batch)} do not broadcast together.")


def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The sum over the last axis of `a` and the second last (the only) axis of `b`; a product with a scalar."""
    x, y = _operands("dot", a, b)
    kind = requested("dot", preferred_element_type)
    x_labels = tuple(("a", axis) for axis in range(x.ndim))
    y_labels = tuple(("b", axis) for axis in range(y.ndim))
    if x.ndim and y.ndim:
        at = max(0, y.ndim - 2)
        if x.shape[-1] != y.shape[at]:
            raise ShapeError(f"dot: shapes {x.shape} and {y.shape} do not fit: the last axis of the left operand has "
                             f"{x.shape[-1]} elements, axis {at} of the right one {y.shape[at]}."
                             + _transpose_hint(x.shape, y.shape))
        y_labels = (*y_labels[:at], x_labels[-1], *y_labels[at + 1:])
    result = tuple(k for k in (*x_labels, *y_labels) if not (k in x_labels and k in y_labels))
    return _finished("dot", contract(x, y, x_labels, y_labels, result, kind), x, y, kind)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The sum of products of the flattened arrays' elements."""
    x, y = as_value("vdot", a), as_value("vdot", b)
    return dot(linear.reshape(x, (x.size,)), linear.reshape(y, (y.size,)),
               preferred_element_type=preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The sum over the last axes of both operands; a product with a scalar."""
    x, y = _operands("inner", a, b)
    if not x.ndim or not y.ndim:
        return dot(x, y, preferred_element_type=preferred_element_type)
    return tensordot(x, y, ((x.ndim - 1,), (y.ndim - 1,)), preferred_element_type=preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Value:
    """All products of an element of `a` with one of `b`, as a matrix."""
    x, y = _operands("outer", a, b)
    x, y = linear.reshape(x, (x.size, 1)), linear.reshape(y, (1, y.size))
    shape = (x.shape[0], y.shape[1])
    x, y = place(x, shape, x.dtype), place(y, shape, y.dtype)
    return ops.bitwise_and(x, y) if x.dtype == dtypes.bool_ else ops.mul(x, y)


def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The sum over pairs of axes: the last `axes` of `a` with the first of `b`, or two lists of axes.

    >>> import fungrad.numpy as fnp
    >>> fnp.tensordot(fnp.ones((2, 3, 4)), fnp.ones((4, 3)), axes=((1, 2), (1, 0))).shape
    (2,)
    """
    x, y = _operands("tensordot", a, b)
    if isinstance(axes, (tuple, list)):
        lists = [list(g) if isinstance(g, (tuple, list)) else [g] for g in axes]
        if len(lists) != 2 or len(lists[0]) != len(lists[1]):
            raise ValueError(f"tensordot: axes must be a number or two equally long lists of axes, got {axes!r}.")
        left = [one_axis("tensordot", k, x.shape) for k in lists[0]]
        right = [one_axis("tensordot", k, y.shape) for k in lists[1]]
    else:
        count = static_int("tensordot", "axes", axes)
        if count > min(x.ndim, y.ndim):
            raise ValueError(f"tensordot: axes={count} is more than arrays of shapes {x.shape} and {y.shape} have.")
        left, right = list(range(x.ndim - count, x.ndim)), list(range(count))
    for i, j in zip(left, right, strict=True):
        if x.shape[i] != y.shape[j]:
            raise ShapeError(f"tensordot: shapes {x.shape} and {y.shape} do not fit: axis {i} of the left operand has "
                             f"{x.shape[i]} elements, axis {j} of the right one {y.shape[j]}.")
    x_labels = tuple(("a", axis) for axis in range(x.ndim))
    pairs = dict(zip(right, left, strict=True))
    y_labels = tuple(("a", pairs[axis]) if axis in pairs else ("b", axis) for axis in range(y.ndim))
    result = (*(k for k in x_labels if k[1] not in left), *(k for k in y_labels if k[0] == "b"))
    kind = requested("tensordot", preferred_element_type)
    return _finished("tensordot", contract(x, y, x_labels, y_labels, result, kind), x, y, kind)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The sum of products along an axis; other axes broadcast."""
    x, y = _operands("vecdot", x1, x2)
    x = linear.transpose(x, _to_last(one_axis("vecdot", axis, x.shape), x.ndim))
    y = linear.transpose(y, _to_last(one_axis("vecdot", axis, y.shape), y.ndim))
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"vecdot: shapes {x.shape} and {y.shape} do not fit: {x.shape[-1]} and {y.shape[-1]} elements "
                         f"along axis {axis}.")
    _check_batch("vecdot", x.shape, y.shape, x.shape[:-1], y.shape[:-1])
    rank = max(x.ndim, y.ndim) - 1
    x_labels, y_labels = (*range(rank - x.ndim + 1, rank), "k"), (*range(rank - y.ndim + 1, rank), "k")
    kind = requested("vecdot", preferred_element_type)
    return _finished("vecdot", contract(x, y, x_labels, y_labels, tuple(range(rank)), kind), x, y, kind)


def _to_last(axis: int, rank: int) -> tuple[int, ...]:
    return (*(a for a in range(rank) if a != axis), axis)


def matvec(x1: Any, x2: Any, /) -> Value:
    """Matrices times vectors: the last axis of x1 with the last of x2; leading axes broadcast."""
    y = as_value("matvec", x2)
    return linear_squeeze(matmul(x1, linear.reshape(y, (*y.shape, 1))), -1)


def vecmat(x1: Any, x2: Any, /) -> Value:
    """Vectors times matrices: the last axis of x1 with the second last of x2; leading axes broadcast."""
    x = as_value("vecmat", x1)
    return linear_squeeze(matmul(linear.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), x2), -2)


def linear_squeeze(x: Value, axis: int) -> Value:
    """`x` without an axis of extent 1."""
    number = axis % x.ndim
    return linear.reshape(x, (*x.shape[:number], *x.shape[number + 1:]))


def kron(a: Any, b: Any) -> Value:
    """The Kronecker product: blocks a[i, j] * b."""
    x, y = _operands("kron", a, b)
    rank = max(x.ndim, y.ndim)
    x = linear.reshape(x, (1,) * (rank - x.ndim) + x.shape)
    y = linear.reshape(y, (1,) * (rank - y.ndim) + y.shape)
    shape = tuple(extent for pair in zip(x.shape, y.shape, strict=True) for extent in pair)
    wide = [linear.broadcast(v, shape, tuple(range(side, 2 * rank, 2))) for side, v in enumerate((x, y))]
    product = (ops.bitwise_and if x.dtype == dtypes.bool_ else ops.mul)(*wide)
    return linear.reshape(product, tuple(i * j for i, j in zip(x.shape, y.shape, strict=True)))


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Value:
    """The cross product of vectors with three elements (the third 0 for two; two twos give the third component
    alone).
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = _operands("cross", a, b)
    x = linear.transpose(x, _to_last(one_axis("cross", axisa, x.shape), x.ndim))
    y = linear.transpose(y, _to_last(one_axis("cross", axisb, y.shape), y.ndim))
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ShapeError(f"cross takes vectors of 2 or 3 elements, got shapes {x.shape} and {y.shape}.")
    u, v = [x[..., i] for i in range(x.shape[-1])], [y[..., i] for i in range(y.shape[-1])]
    third = u[0] * v[1] - u[1] * v[0]
    if len(u) == 2 and len(v) == 2:
        return third
    u3, v3 = u[2] if len(u) == 3 else 0, v[2] if len(v) == 3 else 0
    parts = [u[1] * v3 - u3 * v[1], u3 * v[0] - u[0] * v3, third]
    result = concatenate([linear.reshape(place(p, third.shape, third.dtype), (*third.shape, 1)) for p in parts],
                         third.ndim)
    where = axisc % result.ndim
    order = list(range(result.ndim - 1))
    order.insert(where, result.ndim - 1)
    return linear.transpose(result, tuple(order))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Value:
    """The sum of a diagonal."""
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


# ---- one-dimensional convolution ------------------------------------------------------------------------------------

def _convolved(name: str, a: Any, v: Any, mode: str, kind: Any, correlated: bool) -> Value:
    x, y = _operands(name, a, v)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"{name} takes vectors, got shapes {x.shape} and {y.shape}. Use "
                         f"fungrad.lax.conv_general_dilated for more axes.")
    if not x.size or not y.size:
        raise ShapeError(f"{name} takes vectors with elements, got shapes {x.shape} and {y.shape}.")
    reversed_result = x.size < y.size
    if reversed_result:
        x, y = y, x
    taps = y if correlated else flip(y, (0,))
    if correlated and reversed_result:      # the longer one slides: correlate(a, v) is correlate(v, a) backwards
        taps = y
    count = y.size
    padding = {"full": (count - 1, count - 1), "valid": (0, 0), "same": (count // 2, count - 1 - count // 2)}
    if mode not in padding:
        raise ValueError(f"{name}: mode must be 'full', 'same' or 'valid', got {mode!r}.")
    if x.dtype == dtypes.bool_:
        x, taps = linear.convert(x, dtypes.int32), linear.convert(taps, dtypes.int32)
    pair = padding[mode]
    if mode == "same" and not correlated:
        pair = (count - 1 - (count - 1) // 2, (count - 1) // 2)
    if mode == "same" and correlated and reversed_result:
        pair = (pair[1], pair[0])
    result = conv(linear.reshape(x, (1, 1, x.size)), linear.reshape(taps, (1, 1, count)), padding=(pair,), dtype=kind
                  or x.dtype)
    result = linear.reshape(result, (result.size,))
    return flip(result, (0,)) if correlated and reversed_result else result


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The discrete convolution of two vectors."""
    return _convolved("convolve", a, v, mode, requested("convolve", preferred_element_type), False)


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None,
              preferred_element_type: Any = None) -> Value:
    """The cross-correlation of two vectors."""
    return _convolved("correlate", a, v, mode, requested("correlate", preferred_element_type), True)


# ---- polynomials ----------------------------------------------------------------------------------------------------

def polyval(p: Any, x: Any, *, unroll: int = 16) -> Value:
    """The polynomial with coefficients p (the highest power first) at x, by Horner's rule."""
    coefficients, points = _operands("polyval", p, x)
    shape = points.shape
    result = full(shape, 0, points.dtype)
    for i in range(coefficients.shape[0]):
        result = ops.add(ops.mul(result, points), place(coefficients[i], shape, points.dtype))
    return result


def polyadd(a1: Any, a2: Any) -> Value:
    """The coefficients of the sum of two polynomials."""
    return _aligned_sum("polyadd", a1, a2, ops.add)


def polysub(a1: Any, a2: Any) -> Value:
    """The coefficients of the difference of two polynomials."""
    return _aligned_sum("polysub", a1, a2, ops.sub)


def _aligned_sum(name: str, a1: Any, a2: Any, operation: Any) -> Value:
    x, y = _operands(name, a1, a2)
    count = max(x.size, y.size)
    padded = [concatenate([full((count - v.size,), 0, v.dtype), linear.reshape(v, (v.size,))], 0) for v in (x, y)]
    return operation(*padded)


def polymul(a1: Any, a2: Any) -> Value:
    """The coefficients of the product of two polynomials."""
    return convolve(a1, a2)


def polyder(p: Any, m: int = 1) -> Value:
    """The coefficients of the m-th derivative of a polynomial."""
    value = as_value("polyder", p)
    for _ in range(m):
        powers = as_value("polyder", list(range(value.size - 1, 0, -1)) or [0])
        value = value[:-1] * powers if value.size > 1 else full((0,), 0, value.dtype)
    return value


def polyint(p: Any, m: int = 1, k: Any = 0) -> Value:
    """The coefficients of the m-th integral of a polynomial, with the constants k."""
    value = as_value("polyint", p) / 1.0
    constants = k if isinstance(k, (list, tuple)) else [k] * m
    for i in range(m):
        powers = as_value("polyint", [float(n) for n in range(value.size, 0, -1)])
        value = concatenate([value / powers, place(operand("polyint", constants[i]), (1,), value.dtype)], 0)
    return value


def poly(seq_of_zeros: Any) -> Value:
    """The coefficients (the highest power first) of the polynomial with these zeros."""
    zeros = inexact("poly", seq_of_zeros)
    if zeros.ndim != 1:
        raise ShapeError(f"poly takes a vector of zeros, got shape {zeros.shape}.")
    result = full((1,), 1, zeros.dtype)
    for i in range(zeros.shape[0]):
        factor = concatenate([full((1,), 1, zeros.dtype), linear.reshape(ops.neg(zeros[i]), (1,))], 0)
        result = convolve(result, factor)
    return result


def polydiv(u: Any, v: Any) -> tuple[Value, Value]:
    """Quotient and remainder of polynomials; unlike NumPy's, the remainder keeps leading zeros, so that its shape is
    known while tracing.
    """
    x, y = to_same_dtype("polydiv", inexact("polydiv", u), inexact("polydiv", v))
    count = x.size - y.size + 1
    if count < 1:
        return full((1,), 0, x.dtype), x
    rest, parts = x, []
    for i in range(count):
        factor = ops.div(rest[i], y[0])
        parts.append(linear.reshape(factor, (1,)))
        rest = rest.at[i:i + y.size].add(-factor * y)
    return concatenate(parts, 0), rest[count:] if y.size > 1 else full((1,), 0, x.dtype)

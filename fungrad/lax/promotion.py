"""Common element types and shapes of operands: NEP 50 promotion and NumPy broadcasting.

The rules for element types are those of `fungrad.dtypes`; here they meet operands. Python scalars, and traced values
that stand for them (`.weak`), are weak: they take the arrays' type unless their kind (bool < int < float) is above it.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..ops.create import full
from ..ops.linear import convert
from .conversion import as_value, dtype_of, is_python_scalar, is_weak, operand, place

Shape = tuple[int, ...]


def broadcast_shape(name: str, *shapes: Shape) -> Shape:
    """The shape to which these broadcast by NumPy's rules; ShapeError naming all of them if there is none.

    >>> broadcast_shape("add", (3, 1), (4,))
    (3, 4)
    """
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if extent != 1:
                if result[axis] not in (1, extent):
                    raise ShapeError(_misfit(name, shapes))
                result[axis] = extent
    return tuple(result)


def _misfit(name: str, shapes: Sequence[Shape]) -> str:
    listed = " and ".join(map(str, shapes)) if len(shapes) == 2 else ", ".join(map(str, shapes))
    advice = "Axes are matched from the last; each pair must be equal or hold a 1."
    if len(shapes) == 2 and sorted(shapes[0]) == sorted(shapes[1]) and shapes[0] != shapes[1]:
        advice += " Is a transpose missing?"
    else:
        advice += " Insert axes of extent 1 with x[:, None] or reshape where they should repeat."
    return f"{name}: shapes {listed} do not broadcast together. {advice}"


def common_dtype(name: str, *xs: Any) -> np.dtype:
    """The element type in which operands (of `operand`) meet."""
    strong, weak = [], []
    for x in xs:
        (weak if is_weak(x) else strong).append(dtype_of(name, x))
    return dtypes.promote_with_scalars(tuple(strong), tuple(weak)) if weak else dtypes.promote(*strong)


def check_fits(name: str, x: Any, dtype: np.dtype) -> None:
    """OverflowError for a Python integer outside an integer type, as in NumPy."""
    if isinstance(x, int) and dtypes.is_integer(dtype):
        limits = np.iinfo(dtype)
        if not limits.min <= x <= limits.max:
            raise OverflowError(f"{name}: the Python integer {x} does not fit {dtype.name}. Convert the array first, "
                                f"for instance x.astype('int64').")


def shape_of(x: Any) -> Shape:
    """The shape of an operand (of `operand`)."""
    return x.type.shape if isinstance(x, Value) else ()


def to_common(name: str, *xs: Any, dtype: np.dtype | None = None) -> list[Value]:
    """The operands in their common element type (or in `dtype`) and shape."""
    operands = [operand(name, x) for x in xs]
    if dtype is None:
        dtype = common_dtype(name, *operands)
    for x in operands:
        check_fits(name, x, dtype)
    shape = broadcast_shape(name, *map(shape_of, operands))
    return [place(x, shape, dtype) for x in operands]


def to_common_pair(name: str, x: Any, y: Any) -> tuple[Value, Value]:
    """`to_common` of two operands, fast where they have one type already or one is a Python scalar that takes it."""
    if isinstance(x, Value):
        if isinstance(y, Value):
            if x.type == y.type:
                return x, y
        elif _takes(x, y):
            return x, full(x.type.shape, y, x.type.dtype)
    elif isinstance(y, Value) and _takes(y, x):
        return full(y.type.shape, x, y.type.dtype), y
    first, second = to_common(name, x, y)
    return first, second


def _takes(array: Value, scalar: Any) -> bool:
    """Whether a Python scalar certainly takes the array's floating type."""
    kind = type(scalar)
    return (kind is float or kind is int) and dtypes.is_float(array.type.dtype)


def to_common_inexact(name: str, *xs: Any) -> list[Value]:
    """The operands in a common shape and floating type (integers and bool become the default float)."""
    operands = [operand(name, x) for x in xs]
    return to_common(name, *operands, dtype=dtypes.to_inexact(common_dtype(name, *operands)))


def to_comparable(name: str, x: Any, y: Any) -> tuple[Value, Value]:
    """Two operands for a comparison; a Python integer that the array's type cannot hold is compared exactly."""
    if isinstance(x, Value) and isinstance(y, Value) and x.type == y.type:
        return x, y
    operands = operand(name, x), operand(name, y)
    dtype = common_dtype(name, *operands)
    if dtypes.is_integer(dtype):
        for one in operands:
            limits = np.iinfo(dtype)
            if is_python_scalar(one) and not limits.min <= one <= limits.max:
                dtype = dtypes.uint64 if one >= 2**63 else dtypes.int64
    first, second = to_common(name, *operands, dtype=dtype)
    return first, second


def to_same_dtype(name: str, *xs: Any, dtype: np.dtype | None = None) -> list[Value]:
    """The operands as values of their common element type (or `dtype`), their shapes unchanged."""
    operands = [operand(name, x) for x in xs]
    if dtype is None:
        dtype = common_dtype(name, *operands)
    for x in operands:
        check_fits(name, x, dtype)
    return [place(x, shape_of(x), dtype) for x in operands]


def inexact(name: str, x: Any) -> Value:
    """`x` as a value of a floating type."""
    value = as_value(name, x)
    dtype = value.type.dtype
    return value if dtypes.is_float(dtype) else convert(value, dtypes.default_float())


def requested(name: str, dtype: Any) -> np.dtype | None:
    """The element type that an argument `dtype=` names; None for None."""
    if dtype is None:
        return None
    try:
        return dtypes.canonical(dtype)
    except DTypeError as error:
        raise DTypeError(f"{name}: {error}") from None


def refuse_out(name: str, out: Any) -> None:
    """The argument `out=` exists for NumPy's signature; arrays here are immutable."""
    if out is not None:
        raise NotImplementedError(f"{name}: out= is not supported, since arrays cannot be changed in place. "
                                  f"Use the result instead.")

"""What counts as an array: values, NumPy arrays and scalars, Python scalars, and (nested) lists of these.

NumPy arrays and scalars keep their element type; Python scalars and lists of them take the default types (int32,
float32, see `fungrad.dtypes`). A `numpy.float64` scalar is a Python float by inheritance and counts as one.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..ops.create import full
from ..ops.linear import broadcast, convert, reshape
from ..ops.slicing import concatenate
from ..runtime.array import from_numpy
from ..trace import Tracer

PYTHON_SCALARS = (bool, int, float)
LIKE_ARRAYS = (Value, np.ndarray, np.generic, bool, int, float)
_FEW = 16   # so many concrete arrays are stacked lazily; more are stacked on the host


def is_weak(x: Any) -> bool:
    """Whether `x` is a Python scalar, or a traced value that stands for one."""
    return isinstance(x, PYTHON_SCALARS) or (isinstance(x, Tracer) and x.weak)


def is_operand(x: Any) -> bool:
    """Whether an operator takes `x` (otherwise it answers NotImplemented, so that Python asks x's class)."""
    return isinstance(x, LIKE_ARRAYS) or (hasattr(x, "__array__") and not isinstance(x, type))


def is_python_scalar(x: Any) -> TypeGuard[bool | int | float]:
    """Whether `x` is a bool, int or float of Python (`numpy.float64` is one)."""
    return isinstance(x, PYTHON_SCALARS)


def operand(name: str, x: Any) -> Any:
    """`x` as a Value or a Python scalar; TypeError, in the name of the function `name`, for anything else."""
    if isinstance(x, (Value, *PYTHON_SCALARS)):
        return x
    if isinstance(x, np.generic):
        return _of_numpy_scalar(name, x)
    if isinstance(x, np.ndarray):
        return of_numpy(name, x)
    if isinstance(x, (list, tuple, range)):
        return of_sequence(name, x)
    if hasattr(x, "__array__") and not isinstance(x, type):
        return of_numpy(name, np.asarray(x))
    raise TypeError(f"{name} takes arrays and numbers, not {type(x).__name__}: {_shortened(x)}.{_hint(x)}")


def _shortened(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def _hint(x: Any) -> str:
    if isinstance(x, complex):
        return " Complex numbers are not supported; keep real and imaginary parts as two arrays."
    if x is None:
        return " None is not an array; was a result forgotten in a return statement?"
    return ""


def _of_numpy_scalar(name: str, x: np.generic) -> Value:
    dtype = _checked_dtype(name, x.dtype)
    kind = bool if dtype.kind == "b" else int if dtype.kind in "iu" else float
    return full((), kind(x), dtype)


def _checked_dtype(name: str, dtype: np.dtype) -> np.dtype:
    try:
        return dtypes.canonical(dtype)
    except DTypeError as error:
        raise DTypeError(f"{name}: {error}") from None


def of_numpy(name: str, x: np.ndarray) -> Value:
    """A concrete array of a NumPy array's elements and type."""
    dtype = _checked_dtype(name, x.dtype)
    return from_numpy(np.asarray(x, dtype))


def as_value(name: str, x: Any) -> Value:
    """`x` as a Value: Python scalars in their default type."""
    if isinstance(x, Value):
        return x
    x = operand(name, x)
    return x if isinstance(x, Value) else full((), x, dtypes.of_scalar(x))


def concrete(x: Any, what: str) -> np.ndarray:
    """The elements of a concrete array in NumPy; for a traced one an error, which says how to do `what` instead."""
    if isinstance(x, Tracer):
        x = x.concretize(what)
    return np.asarray(x)


# ---- sequences ------------------------------------------------------------------------------------------------------

def of_sequence(name: str, items: Sequence[Any], dtype: np.dtype | None = None) -> Value:
    """An array of a list (of lists ...) of scalars and equally shaped arrays, in their common type."""
    kinds = _leaf_kinds(items)
    if kinds <= {bool, int, float}:
        return from_numpy(_host_array(name, items, dtype))
    if not any(issubclass(kind, Value) for kind in kinds):
        found = np.asarray(items) if dtype is None else _host_array(name, items, dtype)
        if dtype is None and found.dtype.kind != "O":
            found = found.astype(_common_dtype(name, items))
        return of_numpy(name, found)
    common = _common_dtype(name, items) if dtype is None else dtype
    parts = _leaves(items)
    if len(parts) > _FEW and not any(isinstance(part, Tracer) for part in parts):
        return from_numpy(np.asarray(_realized(items)).astype(common))
    return _stacked(name, items, common)


def _leaf_kinds(items: Sequence[Any]) -> set[type]:
    kinds = set(map(type, items))
    nested = {kind for kind in kinds if issubclass(kind, (list, tuple, range))}
    for item in items if nested else ():
        if type(item) in nested:
            kinds |= _leaf_kinds(item)
    return kinds - nested


def _leaves(items: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        found.extend(_leaves(item) if isinstance(item, (list, tuple, range)) else [item])
    return found


def _host_array(name: str, items: Sequence[Any], dtype: np.dtype | None) -> np.ndarray:
    """A NumPy array of a list of Python scalars, in the default type of its kind (or in `dtype`)."""
    try:
        found = np.asarray(items) if dtype is None else _fitting(items, dtype)
    except ValueError:
        raise ShapeError(f"{name}: the parts of {_shortened(items)} differ in length; an array needs equal "
                         f"ones.") from None
    if dtype is not None or found.dtype.kind == "b":
        return found
    if found.dtype.kind == "f":
        return found.astype(dtypes.default_float())
    if found.size and found.dtype.kind in "iu" and not (found.min() >= -2**31 and found.max() < 2**31):
        return found
    if found.dtype.kind == "O":
        raise DTypeError(f"{name}: an integer in {_shortened(items)} does not fit 64 bits.")
    return found.astype(dtypes.default_int())


def _fitting(items: Sequence[Any], dtype: np.dtype) -> np.ndarray:
    """The items in `dtype`; integers that do not fit are an error, as in NumPy."""
    return np.asarray(items).astype(dtype) if dtypes.is_float(dtype) else np.asarray(items, dtype)


def _common_dtype(name: str, items: Sequence[Any]) -> np.dtype:
    strong, weak = [], []
    for leaf in _leaves(items):
        (weak if is_weak(leaf) else strong).append(dtype_of(name, leaf))
    return dtypes.promote_with_scalars(tuple(strong), tuple(weak))


def dtype_of(name: str, x: Any) -> np.dtype:
    """The element type of an operand; the default type for a Python scalar."""
    if isinstance(x, Value):
        return x.type.dtype
    if isinstance(x, PYTHON_SCALARS):
        return dtypes.of_scalar(x)
    if isinstance(x, (np.generic, np.ndarray)):
        return _checked_dtype(name, x.dtype)
    return operand(name, x).dtype


def _realized(items: Any) -> Any:
    if isinstance(items, (list, tuple, range)):
        return [_realized(item) for item in items]
    return np.asarray(items)


def _stacked(name: str, items: Any, dtype: np.dtype) -> Value:
    if not isinstance(items, (list, tuple, range)):
        return convert(as_value(name, items), dtype) if not is_python_scalar(items) else full((), items, dtype)
    if not items:
        return full((0,), 0, dtype)
    parts = [_stacked(name, item, dtype) for item in items]
    first = parts[0].shape
    for part in parts:
        if part.shape != first:
            raise ShapeError(f"{name}: a list of arrays of shapes {first} and {part.shape} is not an array; "
                             f"broadcast them to one shape first.")
    rows = [reshape(part, (1, *first)) for part in parts]
    return rows[0] if len(rows) == 1 else concatenate(rows, 0)


# ---- placing --------------------------------------------------------------------------------------------------------

def place(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> Value:
    """An operand (of `operand`) in `dtype`, broadcast to `shape`."""
    if not isinstance(x, Value):
        return full(shape, x, dtype)
    x = convert(x, dtype)
    if x.shape == shape:
        return x
    return broadcast(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))

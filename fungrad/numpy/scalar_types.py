"""Element types by name: `float32`, `int8`, `bfloat16`, ... as dtype arguments and as functions that make arrays.

>>> from fungrad.numpy import float32
>>> float32.dtype.name, str(float32(1).dtype)
('float32', 'float32')
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..ir.value import Value
from ..lax.conversion import as_value, dtype_of, is_python_scalar, operand
from ..lax.promotion import common_dtype
from ..ops.linear import convert


class ScalarType:
    """One element type. Usable wherever a dtype is (it has `.dtype`), equal to that dtype, and callable."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def dtype(self) -> np.dtype:
        return dtypes.canonical(self._name)   # bfloat16 is made on first use

    def __call__(self, x: Any = 0) -> Value:
        """`x` (a number, an array, a list) as an array of this element type."""
        return convert(as_value(self.dtype.name, x), self.dtype)

    def __eq__(self, other: Any) -> bool:
        return self.dtype == (other.dtype if isinstance(other, ScalarType) else other)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"fungrad.numpy.{self._name}"

    @property
    def __name__(self) -> str:
        return self._name


bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64 = map(
    ScalarType, dtypes.NAMES)

# NumPy's abstract types, for issubdtype.
generic, number, inexact, floating = np.generic, np.number, np.inexact, np.floating
integer, signedinteger, unsignedinteger, complexfloating = (
    np.integer, np.signedinteger, np.unsignedinteger, np.complexfloating)


def dtype(kind: Any) -> np.dtype:
    """The element type that `kind` names, as a `numpy.dtype`: a name, a type of this module, a Python type.

    >>> dtype("bfloat16").name, dtype(float).name
    ('bfloat16', 'float32')
    """
    return dtypes.canonical(kind)


def finfo(dtype: Any) -> Any:
    """The limits of a floating type (or of an array's): eps, max, tiny, bits, ...

    >>> float(finfo("float32").eps)
    1.1920928955078125e-07
    """
    return dtypes.finfo(getattr(dtype, "dtype", dtype))


def iinfo(dtype: Any) -> Any:
    """The limits of an integer type (or of an array's): min, max, bits."""
    return np.iinfo(dtypes.canonical(getattr(dtype, "dtype", dtype)))


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The element type of an operation between these arrays, Python scalars and element types.

    >>> result_type("float16", 2.0).name, result_type("int8", "uint8").name, result_type(1, 2.0).name
    ('float16', 'int16', 'float32')
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type needs at least one array or element type.")
    kinds = [_as_dtype_or_operand(x) for x in arrays_and_dtypes]
    strong = tuple(kind for kind in kinds if isinstance(kind, np.dtype))
    rest = [kind for kind in kinds if not isinstance(kind, np.dtype)]
    weak = tuple(dtypes.of_scalar(x) for x in rest if is_python_scalar(x))
    values = [x for x in rest if not is_python_scalar(x)]
    if not strong and not weak:
        return common_dtype("result_type", *values)
    weak += tuple(x.dtype for x in values if getattr(x, "weak", False))
    strong += tuple(x.dtype for x in values if not getattr(x, "weak", False))
    return dtypes.promote_with_scalars(strong, weak)


def _as_dtype_or_operand(x: Any) -> Any:
    if isinstance(x, (str, type, np.dtype, ScalarType)):
        return dtypes.canonical(x)
    return operand("result_type", x)


def promote_types(a: Any, b: Any) -> np.dtype:
    """The common element type of arrays of types `a` and `b`. See `docs/decisions/001-promotion.md`."""
    return dtypes.promote(dtypes.canonical(a), dtypes.canonical(b))


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether elements of `from_` (a type or an array) convert to `to` under NumPy's casting rule."""
    source = dtypes.canonical(from_) if isinstance(from_, (str, type, np.dtype, ScalarType)) else dtype_of("can_cast",
                                                                                                           from_)
    return bool(np.can_cast(source, dtypes.canonical(to), casting=casting))  # type: ignore[arg-type]


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether element type `arg1` is `arg2` or of the abstract kind `arg2` (floating, integer, ...).

    >>> issubdtype("bfloat16", floating), issubdtype("int8", integer), issubdtype("float32", "float64")
    (True, True, False)
    """
    first = _kind_or_dtype(arg1)
    second = _kind_or_dtype(arg2)
    if isinstance(second, np.dtype):
        return isinstance(first, np.dtype) and first == second
    if isinstance(first, np.dtype):
        first = np.floating if dtypes.is_float(first) else first.type
    return issubclass(first, second)


_ABSTRACT = frozenset({np.generic, np.number, np.inexact, np.floating, np.integer, np.signedinteger, np.unsignedinteger,
                       np.complexfloating})


def _kind_or_dtype(kind: Any) -> Any:
    if isinstance(kind, type) and kind in _ABSTRACT:
        return kind
    return dtypes.canonical(getattr(kind, "dtype", kind) if not isinstance(kind, type) else kind)


_ISDTYPE = {"bool": lambda d: d == dtypes.bool_, "signed integer": dtypes.is_signed,
            "unsigned integer": lambda d: d in dtypes.UNSIGNED, "integral": dtypes.is_integer,
            "real floating": dtypes.is_float, "complex floating": lambda d: False,
            "numeric": lambda d: d != dtypes.bool_}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether an element type is of a kind of the array API standard ("integral", "real floating", ...), or equals
    it.
    """
    found = dtypes.canonical(dtype)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any(_ISDTYPE[k](found) if isinstance(k, str) and k in _ISDTYPE else dtypes.canonical(k) == found
               for k in kinds)


def isscalar(element: Any) -> bool:
    """Whether `element` is a number or an array without axes."""
    return is_python_scalar(element) or isinstance(element, np.generic) or (isinstance(element, Value)
                                                                            and not element.shape)


def iscomplexobj(x: Any) -> bool:
    """False: there are no complex arrays."""
    return False


def isrealobj(x: Any) -> bool:
    """True: there are no complex arrays."""
    return True


def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array or of what becomes one."""
    return a.shape if isinstance(a, Value) else as_value("shape", a).shape


def ndim(a: Any) -> int:
    """The number of axes of an array or of what becomes one."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, altogether or along one axis."""
    extents = shape(a)
    return int(np.prod(extents, dtype=np.int64)) if axis is None else extents[axis]

"""The element types, their promotion and the defaults for Python scalars.

An element type is a `numpy.dtype`; bfloat16 comes from `ml_dtypes`, which takes longer to import than NumPy and so is
imported when bfloat16 is first named (`bfloat16`, `FLOATS` and `ALL` are made then). Promotion follows NumPy 2 (NEP
50) with one
departure, taken from JAX: an integer or bool array with a floating array gives the floating array's type, so that
indices and masks never widen a float32 (or bfloat16) computation to float64. See `docs/decisions/001-promotion.md`.
"""
from __future__ import annotations

import importlib
from functools import cache, lru_cache
from typing import Any

import numpy as np

from . import config
from .errors import DTypeError

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
bfloat16: np.dtype
FLOATS: tuple[np.dtype, ...]
ALL: tuple[np.dtype, ...]

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "bfloat16", "float32", "float64")
_FLOAT_SET = {float16, float32, float64}
_BY_NAME = {dtype.name: dtype for dtype in (bool_, *INTEGERS, *_FLOAT_SET)} | {"bool_": bool_}

Scalar = bool | int | float


def _load_bfloat16() -> np.dtype:
    found = _BY_NAME.get("bfloat16")
    if found is None:
        found = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        _FLOAT_SET.add(found)
        _BY_NAME["bfloat16"] = found
        floats = (float16, found, float32, float64)
        globals().update(bfloat16=found, FLOATS=floats, ALL=(bool_, *INTEGERS, *floats))
    return found


def __getattr__(name: str) -> Any:
    """PEP 562: the names that need bfloat16, on first use."""
    if name not in ("bfloat16", "FLOATS", "ALL"):
        raise AttributeError(f"module 'fungrad.dtypes' has no attribute {name!r}")
    _load_bfloat16()
    return globals()[name]


def is_bfloat16(dtype: np.dtype) -> bool:
    """Whether `dtype` is bfloat16, without importing it: the one element type of NumPy's kind "V"."""
    return dtype.kind == "V"


def is_float(dtype: np.dtype) -> bool:
    """Whether `dtype` is one of float16, bfloat16, float32, float64."""
    return dtype in _FLOAT_SET


def is_integer(dtype: np.dtype) -> bool:
    """Whether `dtype` is a signed or unsigned integer (bool is not)."""
    return dtype.kind in "iu"


def is_signed(dtype: np.dtype) -> bool:
    """Whether `dtype` is a signed integer."""
    return dtype.kind == "i"



@lru_cache(maxsize=512)
def _canonical(kind: Any) -> np.dtype:
    if isinstance(kind, str):
        if kind == "bfloat16":
            return _load_bfloat16()
        if kind in _BY_NAME:
            return _BY_NAME[kind]
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise DTypeError(f"{kind!r} is not an element type. Write one of {', '.join(NAMES)}.") from None
    dtype = dtype.newbyteorder("=")
    if dtype.name == "bfloat16":
        return _load_bfloat16()
    if dtype not in _BY_NAME.values():
        raise DTypeError(f"arrays of {dtype} are not supported. Write one of {', '.join(NAMES)}.")
    return dtype


def canonical(kind: Any) -> np.dtype:
    """The element type that `kind` names: a name, a NumPy dtype or scalar type, or Python's bool, int or float.

    >>> canonical("bfloat16").name, canonical(float).name, canonical(np.int8).name
    ('bfloat16', 'float32', 'int8')
    """
    if kind is float:
        return default_float()
    if kind is int:
        return default_int()
    if kind is bool:
        return bool_
    return _canonical(kind)


def default_float() -> np.dtype:
    """The type of a Python float: float32 unless `fungrad.default_float` or FUNGRAD_DEFAULT_FLOAT says otherwise."""
    return _canonical(config.get("default_float"))


def default_int() -> np.dtype:
    """The type of a Python integer: int32, as in JAX; `of_scalar` widens values that do not fit."""
    return int32


def of_scalar(value: Scalar) -> np.dtype:
    """The default type of a Python scalar.

    >>> of_scalar(True).name, of_scalar(3).name, of_scalar(2**40).name, of_scalar(0.5).name
    ('bool', 'int32', 'int64', 'float32')
    """
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return int32
        if -(2**63) <= value < 2**63:
            return int64
        if value < 2**64:
            return uint64
        raise DTypeError(f"the integer {value} does not fit 64 bits.")
    return default_float()


def _category(dtype: np.dtype) -> int:
    return 0 if dtype == bool_ else 1 if is_integer(dtype) else 2


@cache
def _promote_pair(a: np.dtype, b: np.dtype) -> np.dtype | None:
    if a == b:
        return a
    if _category(a) != _category(b):
        return a if _category(a) > _category(b) else b
    if _category(a) == 2:
        if a.itemsize == b.itemsize == 2:   # float16 and bfloat16
            return float32
        return a if a.itemsize > b.itemsize else b
    result = np.promote_types(a, b)
    return None if result.kind == "f" else result  # uint64 with a signed type has no common integer


def promote(*dtypes: np.dtype) -> np.dtype:
    """The common type of arrays with these element types.

    >>> promote(int8, uint8).name, promote(int32, float16).name, promote(float16, canonical("bfloat16")).name
    ('int16', 'float16', 'float32')
    """
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _promote_pair(result, dtype) or default_float()
    return result


def promote_with_scalars(dtypes: tuple[np.dtype, ...], weak: tuple[np.dtype, ...]) -> np.dtype:
    """The common type of arrays of `dtypes` with weak scalars whose default types are `weak` (NEP 50).

    A weak scalar matters only if its kind (bool < integer < float) is above that of every array.
    """
    if not dtypes:
        return promote(*weak)
    strong = promote(*dtypes)
    highest = max(weak, key=_category, default=strong)
    if _category(highest) <= _category(strong):
        return strong
    return default_float() if _category(highest) == 2 else default_int()


def to_inexact(dtype: np.dtype) -> np.dtype:
    """The floating type in which a function such as `sin` of this type is computed."""
    return dtype if is_float(dtype) else default_float()


def accumulation(dtype: np.dtype) -> np.dtype:
    """The type in which sums and products of this type are accumulated: float32 for the 16-bit floats."""
    return float32 if is_float(dtype) and dtype.itemsize == 2 else dtype


def lowest(dtype: np.dtype) -> Scalar:
    """The identity of `max`: -inf, the least integer, or False."""
    if is_float(dtype):
        return float("-inf")
    return False if dtype == bool_ else int(np.iinfo(dtype).min)


def highest(dtype: np.dtype) -> Scalar:
    """The identity of `min`: inf, the greatest integer, or True."""
    if is_float(dtype):
        return float("inf")
    return True if dtype == bool_ else int(np.iinfo(dtype).max)


def finfo(dtype: Any) -> Any:
    """Like `numpy.finfo`, for every floating type here (bfloat16 included)."""
    found = canonical(dtype)
    return importlib.import_module("ml_dtypes").finfo(found) if is_bfloat16(found) else np.finfo(found)

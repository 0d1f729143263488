"""Arrays as text, in files and from other libraries; all of these need concrete arrays."""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..ir.value import Value
from ..lax.conversion import concrete
from ..runtime import array as runtime_array
from ..runtime.array import from_numpy

get_printoptions, set_printoptions, printoptions = np.get_printoptions, np.set_printoptions, np.printoptions


def array_repr(arr: Any, max_line_width: int | None = None, precision: int | None = None,
               suppress_small: bool | None = None) -> str:
    """The array as Python text."""
    return np.array_repr(concrete(arr, "array_repr"), max_line_width, precision, suppress_small)


def array_str(a: Any, max_line_width: int | None = None, precision: int | None = None,
              suppress_small: bool | None = None) -> str:
    """The array's elements as text."""
    return np.array_str(concrete(a, "array_str"), max_line_width, precision, suppress_small)


def save(file: Any, arr: Any) -> None:
    """Write an array to a .npy file."""
    np.save(file, concrete(arr, "save"), allow_pickle=False)


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write several arrays to a .npz file."""
    arrays: dict[str, Any] = {k: concrete(a, "savez") for k, a in kwds.items()}
    np.savez(file, *[concrete(a, "savez") for a in args], allow_pickle=False, **arrays)


def load(file: Any) -> Any:
    """The array of a .npy file, or a dict of the arrays of a .npz file. Pickled objects are refused."""
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return from_numpy(found)
    with found:
        return {name: from_numpy(found[name]) for name in found.files}


def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0) -> Value:
    """An array of the numbers in a file, binary or (with sep) text."""
    return from_numpy(np.fromfile(file, dtypes.canonical(dtype), count, sep, offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Value:
    """A vector of the numbers in a text."""
    return from_numpy(np.fromstring(string, dtypes.canonical(dtype), count, sep=sep))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Value:
    """An array of anything with `__dlpack__`; the memory is copied."""
    return runtime_array.from_dlpack(x, copy)


def iterable(y: Any) -> bool:
    """Whether `iter(y)` works."""
    return np.iterable(y)

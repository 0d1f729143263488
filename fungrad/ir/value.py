"""Value: what a user's function computes with; the base of Tracer and Array.

Its operators and methods look their functions up in one table, which `fungrad/__init__.py` connects with
`fungrad.numpy.operators`. A method takes the arguments of the function of the same name in `fungrad.numpy`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .types import Shape, Type


class Operators(dict[str, Callable[..., Any]]):
    """The functions behind the operators and methods of values, by name; `load` gives them when the first one is
    used.
    """

    load: Callable[[], dict[str, Callable[..., Any]]]

    def __missing__(self, name: str) -> Callable[..., Any]:
        self.update(self.load())
        if name not in self:
            raise KeyError(name)
        return self[name]


OPERATORS = Operators()


class Value:
    """A typed array value. `weak` marks a Python scalar inside a trace, whose dtype gives way to an array's."""

    __slots__ = ()
    __array_priority__ = 1000     # numpy_array + value calls value.__radd__
    __hash__ = None  # type: ignore[assignment]   # == compares elements, so a value cannot be a key
    type: Type
    weak: bool

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return self.type.size

    @property
    def itemsize(self) -> int:
        return self.type.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.type.nbytes

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of an array without axes (shape ())")
        return self.type.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.type.shape:
            raise TypeError("iteration over an array without axes (shape ())")
        return (self[i] for i in range(self.type.shape[0]))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    # ---- indexing ---------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        return OPERATORS["getitem"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(f"arrays cannot be changed in place. Instead of x[index] = value write "
                        f"x = x.at[index].set(value) (x is {self.type}; x[index] += value is x.at[index].add(value)).")

    @property
    def at(self) -> Any:
        """`x.at[index].set(value)` and its kin: updated copies. See `fungrad.numpy.updates`."""
        return OPERATORS["at"](self)

    # ---- operators --------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return OPERATORS["add"](self, other)

    def __radd__(self, other: Any) -> Any:
        return OPERATORS["add"](other, self)

    def __sub__(self, other: Any) -> Any:
        return OPERATORS["sub"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return OPERATORS["sub"](other, self)

    def __mul__(self, other: Any) -> Any:
        return OPERATORS["mul"](self, other)

    def __rmul__(self, other: Any) -> Any:
        return OPERATORS["mul"](other, self)

    def __truediv__(self, other: Any) -> Any:
        return OPERATORS["truediv"](self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return OPERATORS["truediv"](other, self)

    def __floordiv__(self, other: Any) -> Any:
        return OPERATORS["floordiv"](self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return OPERATORS["floordiv"](other, self)

    def __mod__(self, other: Any) -> Any:
        return OPERATORS["mod"](self, other)

    def __rmod__(self, other: Any) -> Any:
        return OPERATORS["mod"](other, self)

    def __pow__(self, other: Any) -> Any:
        return OPERATORS["pow"](self, other)

    def __rpow__(self, other: Any) -> Any:
        return OPERATORS["pow"](other, self)

    def __matmul__(self, other: Any) -> Any:
        return OPERATORS["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return OPERATORS["matmul"](other, self)

    def __and__(self, other: Any) -> Any:
        return OPERATORS["and"](self, other)

    def __rand__(self, other: Any) -> Any:
        return OPERATORS["and"](other, self)

    def __or__(self, other: Any) -> Any:
        return OPERATORS["or"](self, other)

    def __ror__(self, other: Any) -> Any:
        return OPERATORS["or"](other, self)

    def __xor__(self, other: Any) -> Any:
        return OPERATORS["xor"](self, other)

    def __rxor__(self, other: Any) -> Any:
        return OPERATORS["xor"](other, self)

    def __lshift__(self, other: Any) -> Any:
        return OPERATORS["lshift"](self, other)

    def __rlshift__(self, other: Any) -> Any:
        return OPERATORS["lshift"](other, self)

    def __rshift__(self, other: Any) -> Any:
        return OPERATORS["rshift"](self, other)

    def __rrshift__(self, other: Any) -> Any:
        return OPERATORS["rshift"](other, self)

    def __divmod__(self, other: Any) -> Any:
        return OPERATORS["divmod"](self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return OPERATORS["divmod"](other, self)

    def __eq__(self, other: Any) -> Any:  # type: ignore[override]
        return OPERATORS["eq"](self, other)

    def __ne__(self, other: Any) -> Any:  # type: ignore[override]
        return OPERATORS["ne"](self, other)

    def __lt__(self, other: Any) -> Any:
        return OPERATORS["lt"](self, other)

    def __le__(self, other: Any) -> Any:
        return OPERATORS["le"](self, other)

    def __gt__(self, other: Any) -> Any:
        return OPERATORS["gt"](self, other)

    def __ge__(self, other: Any) -> Any:
        return OPERATORS["ge"](self, other)

    def __neg__(self) -> Any:
        return OPERATORS["neg"](self)

    def __pos__(self) -> Any:
        return OPERATORS["pos"](self)

    def __abs__(self) -> Any:
        return OPERATORS["abs"](self)

    def __invert__(self) -> Any:
        return OPERATORS["invert"](self)

    def __round__(self, decimals: int = 0) -> Any:
        return OPERATORS["round"](self, decimals)

    # ---- properties -------------------------------------------------------------------------------------------------

    @property
    def T(self) -> Any:
        """The array with its axes reversed."""
        return OPERATORS["transpose"](self)

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return OPERATORS["matrix_transpose"](self)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return OPERATORS["zeros_like"](self)

    @property
    def flat(self) -> Any:
        raise NotImplementedError("arrays have no `flat`. Write x.ravel() (and x.ravel()[i]) instead.")

    # ---- methods ----------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """The same elements in row-major order under another shape, given as one tuple or as several integers."""
        return OPERATORS["reshape"](self, shape[0] if len(shape) == 1 else shape, order)

    def transpose(self, *axes: Any) -> Any:
        """The array with its axes in the given order (one tuple or several integers), by default reversed."""
        return OPERATORS["transpose"](self, axes[0] if len(axes) == 1 else axes or None)

    def flatten(self, order: str = "C") -> Any:
        return OPERATORS["ravel"](self, order)

    def conj(self) -> Any:
        return self

    conjugate = conj

    def all(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["all"](self, *args, **params)

    def any(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["any"](self, *args, **params)

    def argmax(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["argmax"](self, *args, **params)

    def argmin(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["argmin"](self, *args, **params)

    def argpartition(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["argpartition"](self, *args, **params)

    def argsort(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["argsort"](self, *args, **params)

    def astype(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["astype"](self, *args, **params)

    def choose(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["choose"](self, *args, **params)

    def clip(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["clip"](self, *args, **params)

    def compress(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["compress"](self, *args, **params)

    def copy(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["copy"](self, *args, **params)

    def cumprod(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["cumprod"](self, *args, **params)

    def cumsum(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["cumsum"](self, *args, **params)

    def diagonal(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["diagonal"](self, *args, **params)

    def dot(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["dot"](self, *args, **params)

    def max(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["max"](self, *args, **params)

    def mean(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["mean"](self, *args, **params)

    def min(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["min"](self, *args, **params)

    def nonzero(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["nonzero"](self, *args, **params)

    def partition(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["partition"](self, *args, **params)

    def prod(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["prod"](self, *args, **params)

    def ptp(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["ptp"](self, *args, **params)

    def ravel(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["ravel"](self, *args, **params)

    def repeat(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["repeat"](self, *args, **params)

    def round(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["round"](self, *args, **params)

    def searchsorted(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["searchsorted"](self, *args, **params)

    def sort(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["sort"](self, *args, **params)

    def squeeze(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["squeeze"](self, *args, **params)

    def std(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["std"](self, *args, **params)

    def sum(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["sum"](self, *args, **params)

    def swapaxes(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["swapaxes"](self, *args, **params)

    def take(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["take"](self, *args, **params)

    def var(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["var"](self, *args, **params)

    def view(self, *args: Any, **params: Any) -> Any:
        return OPERATORS["view"](self, *args, **params)

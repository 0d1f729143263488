"""Array: an immutable array on a device: a type, memory, or an operation outside `jit` that has not run yet.

The operators and NumPy methods are `Value`'s; here is what concerns memory: making arrays, looking at them, exchange
with NumPy and DLPack, copies, pickles, deletion.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import backends, config, dtypes
from ..backends.base import host_view
from ..errors import DeletedArrayError
from ..ir.types import Shape, Type, array_type
from ..ir.value import Value
from . import dlpack
from .alloc import Allocator


def _no_realize(array: Array) -> None:
    raise RuntimeError("arrays that have not run yet need fungrad.transforms.lazy")


# Set by `transforms/lazy.py`: runs what an array with a pending node waits for, and calls its `_fill`.
REALIZE: Callable[[Array], None] = _no_realize

_SCALARS: dict[np.dtype, Any] = {
    dtypes.bool_: ctypes.c_bool, dtypes.int8: ctypes.c_int8, dtypes.int16: ctypes.c_int16, dtypes.int32: ctypes.c_int32,
    dtypes.int64: ctypes.c_int64, dtypes.uint8: ctypes.c_uint8, dtypes.uint16: ctypes.c_uint16,
    dtypes.uint32: ctypes.c_uint32, dtypes.uint64: ctypes.c_uint64,
    dtypes.float32: ctypes.c_float, dtypes.float64: ctypes.c_double,
}


class Deleted:
    """Stands in an array's `_pending` after its memory was given away; says to whom."""

    __slots__ = ("reason",)

    def __init__(self, reason: str):
        self.reason = reason


class Array(Value):
    """An immutable array. Make one with `fungrad.numpy.asarray`, or `from_numpy` here.

    _address: the memory's address (or the device's handle); None while an operation is pending and after deletion.
    _owner: what keeps the memory alive. _pending: the operation that will compute it, None, or `Deleted`.
    """

    __slots__ = ("type", "_address", "_owner", "_pending", "device", "__weakref__")
    type: Type
    device: str
    weak = False

    def __init__(self, type: Type, address: int | None, owner: Any, device: str = "cpu", pending: Any = None):
        self.type = type
        self._address = address
        self._owner = owner
        self.device = device
        self._pending = pending

    # memory

    def _fill(self, address: int, owner: Any) -> None:
        """Give a pending array its memory."""
        self._owner = owner
        self._address = address
        self._pending = None

    def _ready(self) -> int:
        """The memory's address, after running what is pending. Raises DeletedArrayError."""
        if self._address is None:
            if isinstance(self._pending, Deleted):
                raise DeletedArrayError(f"this {self.type} array was {self._pending.reason}; its memory is gone. "
                                        "Keep using the result instead, or call the function without donating it.")
            REALIZE(self)
            if self._address is None:
                raise RuntimeError(f"a pending {self.type} array was not realized")
        return self._address

    def _delete(self, reason: str) -> None:
        """Let go of the memory; a later use raises DeletedArrayError with this reason ("donated to f at file:line")."""
        self._address = None
        self._owner = None
        self._pending = Deleted(reason)

    def delete(self) -> None:
        """Give the memory back now."""
        self._delete("deleted")

    def is_deleted(self) -> bool:
        """Whether the array was deleted or donated."""
        return isinstance(self._pending, Deleted)

    def block_until_ready(self) -> Array:
        """Wait until the array's value is computed; returns the array."""
        self._ready()
        if self.device != "cpu":
            backends.get(self.device).synchronize()
        return self

    # looking at the value

    def _numpy(self) -> np.ndarray:
        """A read-only NumPy array of the value, without a copy where the host reaches the memory."""
        address = self._ready()
        if self.device == "cpu":
            return host_view(address, self._owner, self.type)
        return backends.get(self.device).read(address, self._owner, self.type)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self._numpy()
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise ValueError(f"an array of {np.dtype(dtype)} cannot be made of {self.type} without a copy")
            return view.astype(dtype)
        return view.copy() if copy else view

    def item(self, *index: int) -> bool | int | float:
        """One element as a Python scalar; without an index the array must hold exactly one."""
        kind = _SCALARS.get(self.type.dtype)
        if not index and kind is not None and self.device == "cpu" and self.type.size == 1:
            return kind.from_address(self._ready()).value
        value = self._numpy().item(*index)
        return value if isinstance(value, (bool, int, float)) else float(value)  # bfloat16's items are of its own type

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        view = self._numpy()
        return (view.astype(np.float32) if dtypes.is_bfloat16(self.type.dtype) else view).tolist()

    def tobytes(self) -> bytes:
        """The elements' bytes, in C order."""
        return self._numpy().tobytes()

    def _scalar(self, what: str) -> bool | int | float:
        if self.type.size != 1:
            raise TypeError(f"{what} needs an array with one element, got {self.type}. "
                            "Reduce it first, for example with .sum(), .all() or an index.")
        return self.item()

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __bool__(self) -> bool:
        return bool(self._scalar("the truth value"))

    def __index__(self) -> int:
        if self.type.shape != () or not dtypes.is_integer(self.type.dtype):
            raise TypeError(f"only an integer array without axes can be an index, got {self.type}")
        return int(self.item())

    def __repr__(self) -> str:
        if isinstance(self._pending, Deleted):
            return f"Array(<{self._pending.reason}>, shape={self.type.shape}, dtype={self.type.dtype.name})"
        text = np.array2string(self._numpy(), separator=", ", prefix="Array(")
        return f"Array({text}, dtype={self.type.dtype.name})"

    def __str__(self) -> str:
        return repr(self) if self.is_deleted() else str(self._numpy())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.type.shape == () else format(str(self), spec)

    # copies and exchange

    def __copy__(self) -> Array:
        self._ready()
        return Array(self.type, self._address, self._owner, self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.__copy__()  # nobody can change the memory

    def __reduce__(self) -> tuple[Any, ...]:
        content = np.ascontiguousarray(self._numpy()).tobytes()
        return _unpickle, (self.type.shape, self.type.dtype.name, content, self.device)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        if dl_device is not None and tuple(dl_device) != dlpack.CPU_DEVICE:
            raise BufferError(f"a DLPack export to device {dl_device} is not offered; only to the CPU")
        view = self._numpy()
        if copy:
            view = view.copy()
        versioned = max_version is not None and max_version[0] >= 1
        return dlpack.export(view, self.type, readonly=not copy, versioned=versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU_DEVICE


_allocators: dict[str, Allocator] = {}
DEVICES_IN_USE = _allocators.keys()   # with more than one, a call looks at the devices of its arguments


def allocator(device: str) -> Allocator:
    """The allocator of a device's memory."""
    found = _allocators.get(device)
    if found is None:
        backend = backends.get(device)
        found = _allocators.setdefault(device, Allocator(backend.allocate, divisible=backend.host))
    return found


def from_numpy(array: Any, device: str | None = None) -> Array:
    """A copy of a NumPy array (any order and byte order) on a device.

    Raises DTypeError for an element type that does not exist here.
    """
    device = device or str(config.get("device"))
    source = np.asarray(array)
    type = array_type(source.shape, dtypes.canonical(source.dtype))
    block = allocator(device).allocate(type.nbytes)
    backends.get(device).write(block.address, source.astype(type.dtype, copy=False))
    return Array(type, block.address, block, device)


def from_scalar(value: bool | int | float, dtype: np.dtype, device: str | None = None) -> Array:
    """A Python scalar as an array without axes; integers wrap."""
    device = device or str(config.get("device"))
    kind = _SCALARS.get(dtype)
    if device != "cpu" or kind is None:
        with np.errstate(all="ignore"):
            return from_numpy(np.asarray(value).astype(dtype), device)
    block = (_scalar_blocks or _make_scalar_blocks())[0]()
    plain = bool(value) if dtype.kind == "b" else int(value) if dtype.kind in "iu" else value
    kind.from_address(block.address).value = plain
    return Array(array_type((), dtype), block.address, block, device)


_scalar_blocks: list[Callable[[], Any]] = []


def _make_scalar_blocks() -> list[Callable[[], Any]]:
    _scalar_blocks.append(allocator("cpu").maker(8))
    return _scalar_blocks


def from_dlpack(source: Any, copy: bool | None = None) -> Array:
    """An array of anything with `__dlpack__` whose memory the host reaches. Memory is always copied: arrays are
    immutable.

    Raises ValueError for copy=False.
    """
    if copy is False:
        raise ValueError("from_dlpack always copies: the exporter could change the memory of an immutable array")
    if isinstance(source, Array):
        return source.__copy__()
    return from_numpy(dlpack.copied(source))


def _unpickle(shape: Shape, dtype: str, data: bytes, device: str) -> Array:
    return from_numpy(np.frombuffer(data, dtypes.canonical(dtype)).reshape(shape), device)

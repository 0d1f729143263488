"""DLPack (https://dmlc.github.io/dlpack/latest/) through ctypes, because NumPy's own export knows neither bfloat16 nor,
in its old form, read-only memory.

The structs are those of dlpack.h 1.0. An exported tensor owns a Python reference to the NumPy view; its deleter, a C
callback that lives as long as the process, drops it.
"""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError
from ..ir.types import Type

CPU_DEVICE = (1, 0)
_HOST_DEVICES = frozenset({1, 3, 13})    # CPU, CUDA host, CUDA managed
_READ_ONLY = 1
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
# A capsule keeps a pointer to its name, so the names live as long as the module.
_PLAIN, _USED_PLAIN = b"dltensor", b"used_dltensor"
_VERSIONED, _USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", _DELETER), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


# Tensors that are exported: address of the struct -> everything that it points to.
_exported: dict[int, tuple[Any, ...]] = {}


@_DELETER
def _delete(address: int) -> None:
    _exported.pop(address, None)


_CAPSULE_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _CAPSULE_DESTRUCTOR)(
    ("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))


@_CAPSULE_DESTRUCTOR
def _destroy_capsule(capsule: int) -> None:
    """Free a tensor that nobody took: a consumer renames the capsule and calls the deleter itself."""
    for name in (_PLAIN, _VERSIONED):
        if _is_valid(capsule, name):
            _exported.pop(_raw_pointer(capsule, name), None)


def export(view: np.ndarray, type: Type, readonly: bool, versioned: bool) -> Any:
    """A capsule for a contiguous view. Without a version the consumer is not told that memory is read-only."""
    bfloat = dtypes.is_bfloat16(type.dtype)
    code = _BFLOAT if bfloat else _CODES[type.dtype.kind]
    shape = (ctypes.c_int64 * max(type.rank, 1))(*type.shape)
    strides = (ctypes.c_int64 * max(type.rank, 1))(*[step // type.dtype.itemsize for step in view.strides])
    tensor = _DLTensor(view.ctypes.data, *CPU_DEVICE, type.rank, code, type.dtype.itemsize * 8, 1, shape, strides, 0)
    if versioned:
        managed: Any = _ManagedVersioned(1, 0, None, _delete, _READ_ONLY if readonly else 0, tensor)
    else:
        managed = _Managed(tensor, None, _delete)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, strides, view)
    return _new_capsule(address, _VERSIONED if versioned else _PLAIN, _destroy_capsule)


def copied(source: Any) -> np.ndarray:
    """A copy of an exporter's tensor in NumPy's memory. Raises BufferError, DTypeError."""
    if source.__dlpack_device__()[0] not in _HOST_DEVICES:
        raise BufferError(f"memory on DLPack device {source.__dlpack_device__()} cannot be read by the host; "
                          "copy it to the CPU first")
    try:
        capsule = source.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter older than version 1
        capsule = source.__dlpack__()
    versioned = bool(_valid(capsule, _VERSIONED))
    name, used = (_VERSIONED, _USED_VERSIONED) if versioned else (_PLAIN, _USED_PLAIN)
    address = _pointer(capsule, name)
    managed = (_ManagedVersioned if versioned else _Managed).from_address(address)
    _rename(capsule, used)
    try:
        return _tensor_view(managed.tensor).copy()
    finally:
        if managed.deleter:
            managed.deleter(address)


def _tensor_view(tensor: _DLTensor) -> np.ndarray:
    words = {_CODES["i"]: "int", _CODES["u"]: "uint", _CODES["f"]: "float"}
    names = {(code, bits): f"{word}{bits}" for code, word in words.items() for bits in (8, 16, 32, 64)}
    names |= {(_BFLOAT, 16): "bfloat16", (_CODES["b"], 8): "bool"}
    name = names.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise DTypeError(f"no element type has DLPack's code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    dtype = dtypes.canonical(name)
    shape = tuple(tensor.shape[:tensor.ndim])
    if 0 in shape:
        return np.zeros(shape, dtype)
    if tensor.strides:
        strides = tuple(step * dtype.itemsize for step in tensor.strides[:tensor.ndim])
    else:
        strides = tuple(np.zeros(shape, dtype).strides)
    low = sum(min(0, step * (size - 1)) for step, size in zip(strides, shape, strict=True))
    high = sum(max(0, step * (size - 1)) for step, size in zip(strides, shape, strict=True)) + dtype.itemsize
    memory = (ctypes.c_uint8 * (high - low)).from_address(tensor.data + tensor.byte_offset + low)
    return np.ndarray(shape, dtype, memory, -low, strides)  # type: ignore[arg-type]

"""Arrays: exchange with NumPy and DLPack, scalars, copies, pickles, deletion."""
from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

from fungrad import dtypes
from fungrad.errors import DeletedArrayError, DTypeError
from fungrad.ir.types import array_type
from fungrad.runtime import array as module
from fungrad.runtime.array import Array, from_dlpack, from_numpy, from_scalar

SHAPES = [(), (1,), (3,), (2, 3), (0,), (2, 0, 3)]


def values(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return (np.arange(int(np.prod(shape))).reshape(shape) % 2).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_numpy_round_trip(shape: tuple[int, ...], dtype: np.dtype) -> None:
    source = values(shape, dtype)
    array = from_numpy(source)
    back = np.asarray(array)
    assert back.dtype == dtype and back.shape == shape and (back == source).all()
    assert array._address % 64 == 0
    assert array.tolist() == source.astype(np.float32 if dtype == dtypes.bfloat16 else dtype).tolist()
    assert array.tobytes() == source.astype(dtype).tobytes()
    assert np.asarray(pickle.loads(pickle.dumps(array))).tobytes() == source.tobytes()


def test_immutable() -> None:
    source = np.zeros(3, np.float32)
    array = from_numpy(source)
    source[0] = 1
    view = np.asarray(array)
    assert view.tolist() == [0, 0, 0] and not view.flags.writeable
    with pytest.raises(ValueError):
        view[0] = 1
    assert np.shares_memory(view, np.asarray(array))


@pytest.mark.parametrize("source", [np.arange(6.0).reshape(2, 3).T, np.arange(6.0)[::-2], np.arange(3, dtype=">i4")],
                         ids=["transposed", "reversed", "big-endian"])
def test_any_layout_and_byte_order(source: np.ndarray) -> None:
    assert np.asarray(from_numpy(source)).tolist() == source.tolist()


def test_array_protocol_arguments() -> None:
    array = from_numpy(np.array([1.5, 2.5], np.float32))
    assert np.array(array, dtype=np.int32).tolist() == [1, 2]
    fresh = np.array(array, copy=True)
    fresh[0] = 9
    assert array.tolist() == [1.5, 2.5]
    assert not np.array(array, copy=False).flags.writeable
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, dtype=np.int32, copy=False)


def test_a_view_keeps_the_memory() -> None:
    array = from_numpy(np.arange(100_000.0))
    view = np.asarray(array)
    del array
    gc.collect()
    others = [from_numpy(np.zeros(100_000)) for _ in range(3)]
    assert view[12345] == 12345 and len(others) == 3


def test_scalars() -> None:
    x = from_numpy(np.float32(2.5))
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5 + 0j, True, 2.5)
    assert not bool(from_numpy(np.zeros((1, 1))))
    assert [10, 20, 30][from_numpy(np.int64(1))] == 20
    assert float(from_numpy(np.array(1.5, ml_dtypes.bfloat16))) == 1.5
    assert float(from_numpy(np.float16(1.5))) == 1.5
    assert type(from_numpy(np.array(1.5, ml_dtypes.bfloat16)).item()) is float
    assert from_numpy(np.arange(6).reshape(2, 3)).item(1, 2) == 5
    assert f"{x:.3f}" == "2.500"
    assert len(from_numpy(np.zeros((4, 2)))) == 4


@pytest.mark.parametrize(("action", "message"), [
    (lambda x: bool(x), "truth value needs an array with one element, got float64\\[3\\]"),
    (lambda x: float(x), "float\\(\\) needs"), (lambda x: [1][x], "can be an index"), (hash, "unhashable"),
    (lambda x: len(from_numpy(np.float32(1))), "len\\(\\) of"),
    (lambda x: from_numpy(np.float32(1)).__index__(), "integer array")])
def test_refusals(action, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        action(from_numpy(np.zeros(3)))


def test_from_numpy_refuses_other_types() -> None:
    with pytest.raises(DTypeError, match="complex128"):
        from_numpy(np.zeros(2, np.complex128))


@pytest.mark.parametrize(("value", "dtype", "expected"), [
    (3, "float32", 3.0), (2.5, "float64", 2.5), (300, "uint8", 44), (-1, "uint64", 2**64 - 1), (2, "bool", True),
    (1.5, "bfloat16", 1.5), (1.5, "float16", 1.5), (1e300, "float32", np.inf)])
def test_from_scalar(value, dtype: str, expected) -> None:
    array = from_scalar(value, dtypes.canonical(dtype))
    assert array.shape == () and array.dtype.name == dtype and array.item() == expected


def test_repr() -> None:
    assert repr(from_numpy(np.array([1, 2], np.float32))) == "Array([1., 2.], dtype=float32)"
    assert repr(from_numpy(np.int32(3))) == "Array(3, dtype=int32)"
    assert str(from_numpy(np.array([1, 2]))) == "[1 2]"


def test_copies_share_memory() -> None:
    array = from_numpy(np.arange(3.0))
    for other in (copy.copy(array), copy.deepcopy(array)):
        assert other is not array and np.shares_memory(np.asarray(other), np.asarray(array))
    array.delete()
    assert other.tolist() == [0, 1, 2]


def test_deletion() -> None:
    array = from_numpy(np.arange(3.0))
    array._delete("donated to step")
    assert array.is_deleted() and "donated to step" in repr(array) and array.shape == (3,)
    for use in (np.asarray, lambda x: x.item(), lambda x: x.block_until_ready(), copy.copy, pickle.dumps):
        with pytest.raises(DeletedArrayError, match="donated to step"):
            use(array)


def test_pending_arrays_realize(monkeypatch: pytest.MonkeyPatch) -> None:
    def realize(array: Array) -> None:
        made = from_numpy(np.full(array.shape, array._pending, array.dtype))
        array._fill(made._ready(), made._owner)
    monkeypatch.setattr(module, "REALIZE", realize)
    array = Array(array_type((2,), dtypes.float32), None, None, "cpu", 7)
    assert array.block_until_ready() is array and array.tolist() == [7, 7] and array._pending is None


def test_weak_references_and_cost() -> None:
    array = from_numpy(np.arange(3.0))
    reference = weakref.ref(array)
    del array
    assert reference() is None
    assert not hasattr(Array(array_type((), dtypes.float32), 64, None), "__dict__")


class Exporter:
    """Something else with DLPack, which knows a certain version."""

    def __init__(self, array: Array, version: tuple[int, int] | None):
        self.array = array
        self.version = version

    def __dlpack__(self, max_version: tuple[int, int]) -> object:
        return self.array.__dlpack__(max_version=self.version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_dlpack_round_trip(dtype: np.dtype) -> None:
    for shape in SHAPES:
        array = from_numpy(values(shape, dtype))
        for versioned in (None, (1, 0)):
            assert np.asarray(from_dlpack(Exporter(array, versioned))).tobytes() == np.asarray(array).tobytes()


def test_dlpack_with_numpy() -> None:
    array = from_numpy(np.arange(6.0).reshape(2, 3))
    view = np.from_dlpack(array)
    assert np.shares_memory(view, np.asarray(array)) and not view.flags.writeable
    assert from_dlpack(np.arange(6.0).reshape(2, 3).T).tolist() == np.arange(6.0).reshape(2, 3).T.tolist()
    assert from_dlpack(np.arange(6.0)[::-2]).tolist() == [5, 3, 1]
    del array
    assert view[1, 2] == 5
    with pytest.raises(ValueError, match="copies"):
        from_dlpack(np.arange(3.0), copy=False)


def test_dlpack_frees_what_nobody_takes() -> None:
    array = from_numpy(np.arange(1000.0))
    counts = [sys.getrefcount(array._owner)]
    capsule = array.__dlpack__(max_version=(1, 0))
    counts.append(sys.getrefcount(array._owner))
    del capsule
    counts.append(sys.getrefcount(array._owner))
    taken = np.from_dlpack(array)
    del taken
    gc.collect()
    counts.append(sys.getrefcount(array._owner))
    assert np.diff(counts).tolist() == [1, -1, 0]

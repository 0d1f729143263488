"""Making arrays, and element types by name."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fungrad.numpy as fnp
from fungrad.errors import ConcretizationError, DTypeError, ShapeError
from tests.numpy.support import near, same, staged


def test_array_takes_the_default_types():
    for data, dtype in ((1, "int32"), (1.5, "float32"), (True, "bool"), ([1, 2], "int32"), ([1, 2.5], "float32"),
                        ([True, False], "bool"), ([[1], [2]], "int32"), ([2**40], "int64"), (2**40, "int64"),
                        ([], "float32"),
                        ([[]], "float32"), (range(3), "int32"), ([True, 2], "int32")):
        same(fnp.array(data), np.array(data))
        assert fnp.array(data).dtype.name == dtype, data


def test_numpy_arrays_keep_their_type():
    for dtype in ("float64", "int64", "uint8", "float16", "bool", ml_dtypes.bfloat16):
        assert fnp.asarray(np.ones(2, dtype)).dtype == np.dtype(dtype)
    assert fnp.array(np.float16(1)).dtype == np.float16
    assert fnp.array([np.float16(1), 2.0]).dtype == np.float16
    assert fnp.array([np.ones(2, "int8"), [1, 2]]).dtype == np.int8
    assert fnp.asarray(np.ones(2, ">f4")).dtype == np.float32


def test_lists_of_arrays_are_stacked():
    x = fnp.arange(3)
    same(fnp.array([x, x + 1]), [[0, 1, 2], [1, 2, 3]])
    same(fnp.array([[x[0], 5], [x[1], 2]]), [[0, 5], [1, 2]])
    same(staged(lambda a: fnp.array([a, 1.0, a * 2]), np.float32(3)), [3, 1, 6])
    same(fnp.array([fnp.array(float(i)) for i in range(40)]), np.arange(40.0))
    with pytest.raises(ShapeError, match=r"\(3,\) and \(2,\)"):
        fnp.array([x, x[:2]])
    with pytest.raises(ValueError, match="differ in length"):
        fnp.array([[1, 2], [3]])


def test_array_arguments():
    assert fnp.array(1.5, ndmin=3).shape == (1, 1, 1)
    same(fnp.array([1.7, -1.7], dtype="int32"), [1, -1])
    same(fnp.array(np.array([300.0]), dtype="float16"), [300.0])
    assert fnp.asarray(fnp.ones(2), "int8").dtype == np.int8
    with pytest.raises(OverflowError):
        fnp.array(300, "int8")
    with pytest.raises(DTypeError, match="complex"):
        fnp.array(np.ones(2, complex))
    with pytest.raises(TypeError, match="dict"):
        fnp.array({})


def test_filled():
    near(fnp.zeros((2, 3)), np.zeros((2, 3)), dtype="float32")
    near(fnp.ones(4, int), np.ones(4), dtype="int32")
    near(fnp.empty((2, 0)), np.zeros((2, 0)))
    near(fnp.full((2, 2), 7), np.full((2, 2), 7), dtype="int32")
    near(fnp.full((2, 3), np.arange(3.0)), np.broadcast_to(np.arange(3.0), (2, 3)), dtype="float64")
    near(fnp.full((), 2.5, "float16"), 2.5, dtype="float16")
    x = fnp.zeros((2, 3), "int8")
    for name in ("zeros_like", "ones_like", "empty_like"):
        if name != "empty_like":   # NumPy's holds anything
            same(getattr(fnp, name)(x), getattr(np, name)(np.zeros((2, 3), "int8")))
        assert getattr(fnp, name)(x).dtype == np.int8
        assert getattr(fnp, name)(x, float).dtype == np.float32
        assert getattr(fnp, name)(x, shape=(4,)).shape == (4,)
    same(fnp.full_like(x, 3), np.full((2, 3), 3))
    assert fnp.zeros_like(2.0).dtype == np.float32
    with pytest.raises(ShapeError, match="negative"):
        fnp.zeros((2, -1))
    with pytest.raises(ShapeError):
        fnp.full((2, 2), np.ones(3))


@pytest.mark.parametrize("args", [(5,), (2, 7), (2, 10, 3), (10, 2, -3), (5, 2), (0,), (-3,), (0.0, 1.0, 0.25), (3.5,),
                                  (1, 2, 0.3)])
def test_arange(args):
    want = np.arange(*args)
    near(fnp.arange(*args), want, dtype="int32" if want.dtype.kind == "i" else "float32")


def test_arange_types():
    assert fnp.arange(3, dtype="float16").dtype == np.float16
    assert fnp.arange(np.int64(3)).dtype == np.int64
    assert fnp.arange(2**40, 2**40 + 2).dtype == np.int64
    with pytest.raises(ConcretizationError, match="known while tracing"):
        staged(lambda n: fnp.arange(n), np.int32(3))
    with pytest.raises(ValueError, match="0"):
        fnp.arange(0, 3, 0)


@pytest.mark.parametrize("kwargs", [{}, {"endpoint": False}, {"num": 1}, {"num": 0}, {"num": 7, "dtype": "int32"}])
def test_linspace(kwargs):
    near(fnp.linspace(-1, 2.5, **kwargs), np.linspace(-1, 2.5, **kwargs), 1e-6)
    a, b = np.array([0.1, 1.0], "f"), np.array([[2.0], [3.0]], "f")
    for axis in (0, -1, 1):
        near(fnp.linspace(a, b, axis=axis, **kwargs), np.linspace(a, b, axis=axis, **kwargs), 1e-5)


def test_linspace_ends_are_exact():
    a, b = np.float32(0.1), np.float32(0.7)
    for x in (fnp.linspace(fnp.array(a), fnp.array(b), 11), fnp.linspace(float(a), float(b), 11)):
        assert np.asarray(x)[0] == a and np.asarray(x)[-1] == b
    points, step = fnp.linspace(0, 1, 5, retstep=True)
    near(step, 0.25)
    near(staged(lambda a, b: fnp.linspace(a, b, 4), a, b), np.linspace(a, b, 4), 1e-6)


def test_logarithmic_ranges():
    near(fnp.logspace(0, 2, 5), np.logspace(0, 2, 5))
    near(fnp.geomspace(1, 256, 9), np.geomspace(1, 256, 9))
    near(fnp.geomspace(np.float32(-1) * np.ones(1, "f"), np.full(1, -1000, "f"), 4),
         np.geomspace(-1, -1000, 4)[:, None], 1e-4)
    near(fnp.logspace(np.array([0.0, 1.0], "f"), 3.0, 4), np.logspace(np.array([0.0, 1.0]), 3.0, 4), 1e-4)


@pytest.mark.parametrize("k", [-3, -1, 0, 1, 2, 7])
def test_triangles_and_diagonals(k):
    m = np.arange(1.0, 13.0, dtype="f").reshape(3, 4)
    same(fnp.eye(3, 4, k), np.eye(3, 4, k))
    same(fnp.tri(3, 4, k), np.tri(3, 4, k))
    same(fnp.tril(m, k), np.tril(m, k))
    same(fnp.triu(np.stack([m, -m]), k), np.triu(np.stack([m, -m]), k))
    same(fnp.diag(m[0], k), np.diag(m[0], k))
    same(fnp.diag(m, k), np.diag(m, k))
    same(fnp.diagonal(m, k), np.diagonal(m, k))
    x = np.arange(60).reshape(3, 4, 5)
    same(fnp.diagonal(x, k, 2, 0), np.diagonal(x, k, 2, 0))
    same(fnp.diagflat(m[:2, :2], k), np.diagflat(m[:2, :2], k))
    for name in ("tril_indices", "triu_indices"):
        for got, want in zip(getattr(fnp, name)(3, k, 4), getattr(np, name)(3, k, 4), strict=True):
            same(got, want)


def test_identity_and_masks():
    same(fnp.identity(3), np.identity(3))
    same(fnp.tril(fnp.ones((3, 3), bool)), np.tril(np.ones((3, 3), bool)))
    with pytest.raises(ShapeError, match="tril"):
        fnp.tril(np.ones(3))
    same(fnp.fill_diagonal(np.ones((2, 3), "f"), 5.0, inplace=False), [[5, 1, 1], [1, 5, 1]])


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
def test_meshgrid(indexing, sparse):
    vectors = [np.arange(n) for n in (2, 3, 4)]
    for count in (1, 2, 3):
        got = fnp.meshgrid(*vectors[:count], indexing=indexing, sparse=sparse)
        for g, w in zip(got, np.meshgrid(*vectors[:count], indexing=indexing, sparse=sparse), strict=True):
            same(g, w)


def test_indices_vander_and_windows():
    same(fnp.indices((2, 3)), np.indices((2, 3)))
    for got, want in zip(fnp.indices((2, 3), sparse=True), np.indices((2, 3), sparse=True), strict=True):
        same(got, want)
    same(fnp.vander(np.array([1.0, 2, 3])), np.vander([1.0, 2, 3]))
    same(fnp.vander(np.array([1.0, 2, 3]), 2, increasing=True), np.vander([1.0, 2, 3], 2, increasing=True))
    near(fnp.hanning(5), np.hanning(5))
    near(fnp.kaiser(5, 2.0), np.kaiser(5, 2.0))


# ---- element types --------------------------------------------------------------------------------------------------

def test_scalar_types():
    assert fnp.float32(1).dtype == np.float32
    assert fnp.int8([1, 2]).shape == (2,)
    assert fnp.zeros(2, fnp.bfloat16).dtype == ml_dtypes.bfloat16
    assert np.dtype(fnp.float16) == np.float16
    assert fnp.zeros(2).dtype == fnp.float32
    assert fnp.float32 == np.dtype("float32") and fnp.float32 != fnp.float64
    assert fnp.ones(2).astype(fnp.int32).dtype == "int32"
    assert {fnp.float32: 1}[np.dtype("float32")] == 1


def test_type_questions():
    assert fnp.issubdtype(fnp.bfloat16, fnp.floating) and fnp.issubdtype(np.int8, np.integer)
    assert not fnp.issubdtype("float32", fnp.integer) and fnp.issubdtype("float32", np.float32)
    assert fnp.issubdtype(fnp.ones(2).dtype, np.inexact)
    assert fnp.isdtype("bfloat16", "real floating") and fnp.isdtype("int8", ("bool", "integral"))
    assert fnp.finfo(fnp.bfloat16).bits == 16 and fnp.iinfo("int8").max == 127
    assert fnp.can_cast("int8", "int16") and not fnp.can_cast("float32", "int32")
    assert fnp.isscalar(3) and fnp.isscalar(fnp.array(2.0)) and not fnp.isscalar([1])
    assert fnp.shape([[1, 2]]) == (1, 2) and fnp.ndim(3) == 0 and fnp.size(np.ones((2, 3)), 1) == 3
    with pytest.raises(DTypeError, match="complex64"):
        fnp.zeros(2, "complex64")

"""vectorize and apply_along_axis, grids by index, packed bits, files, unwrap, polynomials, histograms over several
axes.
"""
from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import fungrad.numpy as fnp
from tests.numpy.support import near, same, staged

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype("float32")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_apply_along_axis(axis):
    for function in (lambda v, lib: v.sum(), lambda v, lib: v[::-1] * 2, lambda v, lib: lib.outer(v, v[:2])):
        got = fnp.apply_along_axis(lambda v, f=function: f(v, fnp), axis, X)
        near(got, np.apply_along_axis(lambda v, f=function: f(v, np), axis, X))


def test_vectorize():
    step = lambda x, y: fnp.where(x > 0, x * y, y)
    near(fnp.vectorize(step)(X, X[0, :, :1]), np.where(X > 0, X * X[0, :, :1], X[0, :, :1]))
    near(fnp.vectorize(lambda a, b: a @ b, signature="(n,m),(m)->(n)")(X, X[0, 0]), X @ X[0, 0])
    first, second = fnp.vectorize(lambda v: (v.sum(), v * 2), signature="(n)->(),(n)")(X)
    near(first, X.sum(-1))
    near(second, X * 2)
    near(fnp.vectorize(lambda x, n: x ** n, excluded={1})(X, 2), X**2)
    near(fnp.vectorize(lambda x, *, scale: x * scale, excluded={"scale"})(X, scale=3.0), X * 3)
    near(staged(lambda x: fnp.vectorize(lambda a, b: a - b)(x, x[0, 0, 0]), X), X - X[0, 0, 0])
    with pytest.raises(ValueError, match="signature"):
        fnp.vectorize(step, signature="n->n")(X, X)
    with pytest.raises(ValueError, match="fewer than 2 core axes"):
        fnp.vectorize(lambda m: m, signature="(n,m)->(n)")(X[0, 0])


def test_grids():
    same(fnp.mgrid[0:3, 1:5:2], np.mgrid[0:3, 1:5:2])
    near(fnp.mgrid[0:1:4j], np.mgrid[0:1:4j])
    for got, want in zip(fnp.ogrid[0:3, 0:2], np.ogrid[0:3, 0:2], strict=True):
        same(got, want)
    near(fnp.r_[1:4, 0, X[0, 0]], np.r_[1:4, 0, X[0, 0]])
    near(fnp.c_[X[0, 0], X[0, 1]], np.c_[X[0, 0], X[0, 1]])
    for got, want in zip(fnp.mask_indices(3, fnp.triu, 1), np.mask_indices(3, np.triu, 1), strict=True):
        same(got, want)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("bitorder", ["big", "little"])
def test_packed_bits(axis, bitorder):
    bits = RNG.random((5, 19)) > 0.5
    packed = np.packbits(bits, axis, bitorder)
    same(fnp.packbits(bits, axis, bitorder), packed)
    same(fnp.unpackbits(packed, axis, bitorder=bitorder), np.unpackbits(packed, axis, bitorder=bitorder))
    for count in (3, -2, 50):
        same(fnp.unpackbits(packed, axis, count, bitorder), np.unpackbits(packed, axis, count, bitorder))


@pytest.mark.parametrize("axis", [0, -1])
def test_unwrap(axis):
    p = (X * 6).astype("f")
    near(fnp.unwrap(p, axis=axis), np.unwrap(p, axis=axis), 1e-4)
    near(fnp.unwrap(p, discont=4.0, axis=axis), np.unwrap(p, discont=4.0, axis=axis), 1e-4)
    near(fnp.unwrap(p, axis=axis, period=5.0), np.unwrap(p, axis=axis, period=5.0), 1e-4)
    whole = np.array([0, 3, 1, 7, 2])
    same(fnp.unwrap(whole, period=4), np.unwrap(whole, period=4))


def test_polynomials():
    near(fnp.poly(np.array([1.0, -2.0, 3.0])), np.poly([1.0, -2.0, 3.0]))
    u, v = np.array([1.0, 5.0, -2.0, 3.0]), np.array([2.0, 1.0])
    quotient, rest = fnp.polydiv(u, v)
    want = np.polydiv(u, v)
    near(quotient, want[0])
    near(rest, want[1])


@pytest.mark.parametrize("density", [None, True])
def test_histograms_of_points(density):
    points = RNG.random((50, 2)).astype("f")
    for bins in (3, [2, 4], [np.array([0, 0.2, 1.0]), 3]):
        got, want = fnp.histogramdd(points, bins, density=density), np.histogramdd(points, bins, density=density)
        near(got[0], want[0], 1e-4)
        for g, w in zip(got[1], want[1], strict=True):
            near(g, w)
    got, want = fnp.histogram2d(*points.T, bins=4, density=density), np.histogram2d(*points.T, bins=4, density=density)
    near(got[0], want[0], 1e-4)


def test_place_and_put():
    for positions, values in (([0, 7, -1], [1.0, 2.0]), ([3], 9.0), ([], [1.0]), ([0, 1], [])):
        want = X.copy()
        np.put(want, np.array(positions, int), values)
        same(fnp.put(X, np.array(positions, int), np.array(values, "f")), want)
    want = X.copy()
    np.put(want, [3, 99], [1, 2], mode="wrap")
    same(fnp.put(X, np.array([3, 99]), np.array([1.0, 2.0], "f"), "wrap"), want)
    want = X.copy()
    np.place(want, X > 0, [1, 2, 3])
    same(fnp.place(X, X > 0, np.array([1.0, 2.0, 3.0], "f")), want)
    with pytest.raises(ValueError, match="in place"):
        fnp.put(X, 0, 0.0, inplace=True)


def test_files_and_text(tmp_path: Path):
    fnp.save(tmp_path / "x.npy", fnp.array(X))
    same(fnp.load(tmp_path / "x.npy"), X)
    fnp.savez(tmp_path / "x.npz", fnp.array(X), y=fnp.ones(2))
    assert set(fnp.load(tmp_path / "x.npz")) == {"arr_0", "y"}
    buffer = io.BytesIO()
    fnp.save(buffer, X)
    assert fnp.array_repr(fnp.arange(2)) == "array([0, 1], dtype=int32)"
    same(fnp.fromstring("1 2 3", int, sep=" "), [1, 2, 3])
    same(fnp.from_dlpack(np.arange(3.0)), np.arange(3.0))
    same(fnp.frombuffer(b"\x01\x02", "uint8"), [1, 2])
    assert fnp.iterable([1]) and not fnp.iterable(1)

"""Sorting, searching, choosing, sets, histograms, quantiles against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

import fungrad.numpy as fnp
from fungrad.errors import ConcretizationError
from tests.numpy.support import near, same, staged

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype("float32")
TIES = RNG.integers(0, 4, (3, 6)).astype("int32")
HOLES = np.where(RNG.random((3, 8)) < 0.3, np.nan, RNG.standard_normal((3, 8))).astype("float32")


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_sort_and_argsort(axis):
    for x in (X, TIES, HOLES, X > 0, np.zeros((2, 0, 3))):
        if axis == 1 and x.ndim < 2:
            continue
        same(fnp.sort(x, axis), np.sort(x, axis))
        same(fnp.argsort(x, axis), np.argsort(x, axis, kind="stable"))
    near(fnp.sort(X, axis, descending=True), -np.sort(-X, axis))
    same(fnp.argsort(X, axis, descending=True), np.argsort(-X, axis, kind="stable"))
    same(fnp.array(X).sort(axis), np.sort(X, axis))


def test_partial_sorts():
    same(fnp.partition(X, 2), np.sort(X))
    same(fnp.argpartition(X, 2, 0), np.argsort(X, 0))
    values, positions = fnp.top_k(X, 2, axis=1)
    same(values, -np.sort(-X, 1)[:, :2])
    same(positions, np.argsort(-X, 1)[:, :2])
    with pytest.raises(ValueError, match="top_k"):
        fnp.top_k(X, 9)
    with pytest.raises(ValueError, match="kth"):
        fnp.partition(X, 9)


def test_lexsort():
    keys = RNG.integers(0, 3, (3, 10))
    same(fnp.lexsort(keys), np.lexsort(keys))
    same(fnp.lexsort([X[0], X[1]], axis=0), np.lexsort([X[0], X[1]], axis=0))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side):
    a = np.sort(RNG.integers(0, 10, 17)).astype("f")
    v = RNG.integers(-2, 12, (3, 5)).astype("f")
    same(fnp.searchsorted(a, v, side), np.searchsorted(a, v, side))
    same(fnp.searchsorted(a, 4, side), np.searchsorted(a, 4, side))
    order = RNG.permutation(17)
    same(fnp.searchsorted(a[np.argsort(order)], v, side, sorter=order), np.searchsorted(a, v, side))
    same(fnp.digitize(v, np.unique(a), right=side == "right"), np.digitize(v, np.unique(a), right=side == "right"))
    same(fnp.digitize(v, np.unique(a)[::-1], right=side == "right"),
         np.digitize(v, np.unique(a)[::-1], right=side == "right"))


# ---- choosing -------------------------------------------------------------------------------------------------------

def test_where():
    same(fnp.where(X > 0, X, 0), np.where(X > 0, X, 0))
    same(fnp.where(X[:, :1] > 0, X, -X[0]), np.where(X[:, :1] > 0, X, -X[0]))
    same(fnp.where(TIES, 1, 2), np.where(TIES, 1, 2))
    assert fnp.where(X > 0, np.ones((), "int8"), 2).dtype == np.int8
    assert fnp.where(X > 0, fnp.ones((), "bfloat16"), 2.0).dtype == fnp.bfloat16
    for got, want in zip(fnp.where(TIES), np.where(TIES), strict=True):
        same(got, want)
    with pytest.raises(ValueError, match="two arrays"):
        fnp.where(TIES, 1)


def test_select_choose_piecewise():
    conditions, choices = [X < -1, X < 0, X > 1], [X, X * 2, 5.0]
    near(fnp.select(conditions, choices, 7.0), np.select(conditions, choices, 7.0))
    same(fnp.choose(TIES % 3, [TIES, TIES * 10, 99]), np.choose(TIES % 3, [TIES, TIES * 10, 99]))
    same(fnp.choose(TIES, [TIES, 99], mode="wrap"), np.choose(TIES, [TIES, 99], mode="wrap"))
    near(fnp.piecewise(X, [X < 0, X > 1], [lambda x: -x, 3.0, lambda x: x * 2]),
         np.piecewise(X, [X < 0, X > 1], [lambda x: -x, 3.0, lambda x: x * 2]))


@pytest.mark.parametrize("size", [None, 3, 18, 30])
def test_nonzero(size):
    for x in (TIES, TIES[0], np.zeros((2, 3)), X > 0):
        want = np.nonzero(x)
        got = fnp.nonzero(x, size=size, fill_value=-1)
        traced = staged(lambda x: fnp.nonzero(x, size=size, fill_value=-1), x) if size else got
        for g, t, w in zip(got, traced if isinstance(traced, tuple) else (traced,), want, strict=True):
            padded = w if size is None else np.concatenate([w, np.full(max(0, size - len(w)), -1)])[:size]
            same(g, padded)
            same(t, padded)


def test_nonzero_kin():
    same(fnp.flatnonzero(TIES), np.flatnonzero(TIES))
    same(fnp.argwhere(TIES), np.argwhere(TIES))
    same(fnp.argwhere(TIES[0]), np.argwhere(TIES[0]))
    same(fnp.compress([True, False, True], X, 1), np.compress([True, False, True], X, 1))
    same(fnp.extract(X > 0, X), np.extract(X > 0, X))
    same(fnp.extract(X > 0, X, size=100)[:5], np.extract(X > 0, X)[:5])
    with pytest.raises(ConcretizationError, match="size="):
        staged(lambda x: fnp.nonzero(x), TIES)


def test_flat_positions():
    for got, want in zip(fnp.unravel_index(np.array([3, 17]), (3, 6)), np.unravel_index([3, 17], (3, 6)), strict=True):
        same(got, want)
    index = (np.array([1, 2]), np.array([3, 0]))
    same(fnp.ravel_multi_index(index, (3, 6)), np.ravel_multi_index(index, (3, 6)))
    same(fnp.ravel_multi_index(index, (3, 6), order="F"), np.ravel_multi_index(index, (3, 6), order="F"))
    same(fnp.array(X)[fnp.ix_([0, 2], [1, 3], [True, False, True, False, True])], X[np.ix_([0, 2], [1, 3], [0, 2, 4])])
    near(fnp.apply_over_axes(fnp.sum, X, [0, 2]), np.apply_over_axes(np.sum, X, [0, 2]))


# ---- counting -------------------------------------------------------------------------------------------------------

def test_bincount():
    x, w = RNG.integers(0, 7, 30), RNG.random(30).astype("f")
    same(fnp.bincount(x), np.bincount(x))
    near(fnp.bincount(x, w, minlength=10), np.bincount(x, w, minlength=10))
    same(staged(lambda x: fnp.bincount(x, length=4), x), np.bincount(x)[:4])
    with pytest.raises(ConcretizationError):
        staged(lambda x: fnp.bincount(x), x)
    with pytest.raises(TypeError, match="integers"):
        fnp.bincount(w)


@pytest.mark.parametrize("bins", [5, np.array([-2.0, -0.5, 0.1, 3.0])])
@pytest.mark.parametrize("density", [None, True])
def test_histogram(bins, density):
    for data, kwargs in ((X, {}), (X, {"weights": np.abs(X)}), (X, {"range": (-1, 1)} if np.ndim(bins) == 0 else {})):
        got, want = fnp.histogram(data, bins, density=density, **kwargs), np.histogram(data.astype("f8"), bins,
                                                                                       density=density, **kwargs)
        near(got[0], want[0], 1e-4)
        near(got[1], want[1], 1e-5)


def test_interp():
    xp, fp = np.sort(RNG.random(6)).astype("f"), RNG.random(6).astype("f")
    x = np.linspace(-0.5, 1.5, 23).astype("f")
    near(fnp.interp(x, xp, fp), np.interp(x, xp, fp))
    near(fnp.interp(x, xp, fp, left=-1, right=9), np.interp(x, xp, fp, left=-1, right=9))
    near(fnp.interp(xp, xp, fp), fp)
    near(fnp.interp(x, xp[:1], fp[:1]), np.interp(x, xp[:1], fp[:1]))


# ---- sets -----------------------------------------------------------------------------------------------------------

def test_unique():
    flags = {"return_index": True, "return_inverse": True, "return_counts": True}
    for x in (TIES, HOLES, X[0] > 0):
        for got, want in zip(fnp.unique(x, **flags), np.unique(x, **flags), strict=True):
            near(got, want, 0)
        count = len(np.unique(x))
        for got, want in zip(staged(lambda x, n=count: fnp.unique(x, **flags, size=n), x), np.unique(x, **flags),
                             strict=True):
            near(got, want, 0)
    values, counts = fnp.unique(TIES, return_counts=True, size=6, fill_value=-5)
    assert np.asarray(values)[-1] == -5 and np.asarray(counts)[-1] == 0 and np.asarray(counts).sum() == TIES.size
    same(fnp.unique(TIES, axis=1), np.unique(TIES, axis=1))
    assert fnp.unique_all(TIES).inverse_indices.shape == TIES.shape
    same(fnp.unique_counts(TIES).counts, np.unique_counts(TIES).counts)


def test_set_operations():
    a, b = np.array([3, 1, 2, 3]), np.array([2, 3, 9])
    for name in ("intersect1d", "setdiff1d", "setxor1d", "union1d"):
        same(getattr(fnp, name)(a, b), getattr(np, name)(a, b))
    same(fnp.isin(TIES, [1, 3]), np.isin(TIES, [1, 3]))
    same(fnp.isin(TIES, [1, 3], invert=True), np.isin(TIES, [1, 3], invert=True))
    same(fnp.isin(TIES, []), np.isin(TIES, []))


# ---- quantiles ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_quantile(method, axis):
    for q in (0.0, 0.3, 1.0, [0.1, 0.5], [[0.25], [0.9]]):
        for keepdims in (False, True):
            want = np.quantile(X.astype("f8"), q, axis=axis, method=method, keepdims=keepdims)
            near(fnp.quantile(X, q if np.ndim(q) == 0 else np.array(q), axis=axis, method=method, keepdims=keepdims),
                 want, 1e-4)


def test_median_and_percentile():
    for axis in (None, 0, (1, 2)):
        near(fnp.median(X, axis), np.median(X, axis))
        near(fnp.percentile(X, 30, axis), np.percentile(X, 30, axis))
    near(fnp.median(HOLES, 1), np.median(HOLES, 1))
    near(fnp.nanmedian(HOLES, 1), np.nanmedian(HOLES, 1))
    near(fnp.nanquantile(HOLES, 0.3, 1), np.nanquantile(HOLES.astype("f8"), 0.3, 1), 1e-4)
    near(fnp.nanpercentile(HOLES, np.array([20.0, 60.0]), 1), np.nanpercentile(HOLES.astype("f8"), [20, 60], 1), 1e-4)
    near(fnp.median(TIES), np.median(TIES), dtype="float32")
    near(fnp.median(np.array([np.inf, np.inf, 1.0], "f")), np.inf)
    near(staged(lambda x, q: fnp.quantile(x, q, 1), X, np.float32(0.3)), np.quantile(X, 0.3, 1), 1e-4)


def test_covariance():
    x, y = X[0], X[1]
    near(fnp.cov(x), np.cov(x))
    near(fnp.cov(x, rowvar=False, ddof=0), np.cov(x, rowvar=False, ddof=0))
    near(fnp.cov(x, y), np.cov(x, y))
    near(fnp.cov(x[0]), np.cov(x[0]))
    near(fnp.corrcoef(x), np.corrcoef(x))
    near(fnp.corrcoef(x[0]), np.corrcoef(x[0]))

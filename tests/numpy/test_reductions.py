"""Reductions and running reductions against NumPy: axes, keepdims, masks, element types, empty and 0-d arrays."""
from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import fungrad.numpy as fnp
from tests.numpy.support import near, same

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype("float32")
HOLES = np.where(RNG.random((3, 4, 5)) < 0.3, np.nan, X).astype("float32")
MASK = RNG.random((3, 4, 5)) < 0.6
AXES = [None, 0, -1, (0, 2), (), (2, 1, 0)]


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "std", "var", "max", "min", "ptp", "all", "any", "amax",
                                  "amin",
                                  "count_nonzero", "nansum", "nanprod"])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_over_axes(name, axis, keepdims):
    if name == "count_nonzero" and axis == ():
        return
    want = getattr(np, name)(X.astype("f8"), axis=axis, keepdims=keepdims)
    near(getattr(fnp, name)(X, axis=axis, keepdims=keepdims), want, 1e-5)


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanstd", "nanvar"])
@pytest.mark.parametrize("axis", [None, 0, (1, 2)])
def test_skipping_nan(name, axis):
    near(getattr(fnp, name)(HOLES, axis=axis, keepdims=True),
         getattr(np, name)(HOLES.astype("f8"), axis=axis, keepdims=True))
    whole = np.arange(6).reshape(2, 3)
    near(getattr(fnp, name)(whole, axis=0), getattr(np, name)(whole, axis=0))


def test_nothing_but_nan():
    x = np.full((2, 3), np.nan, "f")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("nansum", "nanmean", "nanmax", "nanmin", "nanvar"):
            near(getattr(fnp, name)(x, axis=1), getattr(np, name)(x, axis=1))
    same(fnp.nanargmax(x, axis=1), [-1, -1])
    same(fnp.nanargmin(HOLES, axis=1), np.nanargmin(HOLES, axis=1))
    same(fnp.nanargmax(HOLES), np.nanargmax(HOLES))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_positions(name, axis):
    for x in (X, np.round(X), HOLES):
        want = getattr(np, name)(x, axis=axis)
        same(getattr(fnp, name)(x, axis=axis), want)
        same(getattr(fnp, name)(x, axis=axis, keepdims=True), getattr(np, name)(x, axis=axis, keepdims=True))
    with pytest.raises(ValueError, match="empty"):
        getattr(fnp, name)(np.zeros((0, 3)))


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "all", "any", "prod"])
@pytest.mark.parametrize("axis", [None, 1])
def test_masks(name, axis):
    near(getattr(fnp, name)(X, axis=axis, where=MASK), getattr(np, name)(X.astype("f8"), axis=axis, where=MASK), 1e-5)
    near(getattr(fnp, name)(X[0], axis=axis, where=MASK[0, 0]),
         getattr(np, name)(X[0].astype("f8"), axis=axis, where=MASK[0, 0]))


@pytest.mark.parametrize("name", ["max", "min"])
def test_masked_extrema_need_an_initial(name):
    near(getattr(fnp, name)(X, axis=0, where=MASK, initial=0.0), getattr(np, name)(X, axis=0, where=MASK, initial=0.0))
    with pytest.raises(ValueError, match="initial"):
        getattr(fnp, name)(X, where=MASK)
    near(getattr(fnp, name)(np.zeros((0, 2), "f"), axis=0, initial=3.0), [3, 3])


def test_initial_values():
    near(fnp.sum(X, axis=0, initial=2.5), np.sum(X, axis=0, initial=2.5))
    near(fnp.prod(X, axis=0, initial=2.5), np.prod(X, axis=0, initial=2.5))


@pytest.mark.parametrize("dtype, summed, mean", [
    ("bool", "int32", "float32"), ("int8", "int32", "float32"), ("uint8", "uint32", "float32"),
    ("int32", "int32", "float32"),
    ("int64", "int64", "float32"), ("uint64", "uint64", "float32"), ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "bfloat16"), ("float64", "float64", "float64")])
def test_element_types(dtype, summed, mean):
    x = np.ones((2, 3), dtype)
    assert fnp.sum(x).dtype.name == summed
    assert fnp.prod(x).dtype.name == summed
    assert fnp.mean(x).dtype.name == mean
    assert fnp.var(x).dtype.name == mean
    assert fnp.max(x).dtype.name == dtype
    assert fnp.cumsum(x).dtype.name == ("int32" if dtype == "bool" else dtype)
    assert fnp.sum(x, dtype="float32").dtype == np.float32
    near(fnp.sum(x), 6)


def test_16_bit_means_are_accumulated_wide():
    near(fnp.mean(np.full(5000, 3.0, "float16")), 3.0, 0)
    near(fnp.var(np.full(70000, 1.0, ml_dtypes.bfloat16)), 0.0, 0)
    x = np.full(4096, 300.0, "float16")
    near(fnp.mean(x), 300.0, 0)          # the sum overflows float16
    near(fnp.std(x), 0.0, 0)


def test_degrees_of_freedom():
    near(fnp.var(X, axis=1, ddof=1), np.var(X.astype("f8"), axis=1, ddof=1))
    near(fnp.std(X, correction=1), np.std(X.astype("f8"), ddof=1))
    assert np.isnan(np.asarray(fnp.var(np.ones(1, "f"), ddof=1)))


def test_empty_arrays():
    near(fnp.sum(np.zeros((0, 3), "f"), axis=0), np.zeros(3))
    near(fnp.prod(np.zeros((0, 3), "f"), axis=0), np.ones(3))
    assert fnp.sum(np.zeros((0, 3)), axis=1).shape == (0,)
    assert np.isnan(np.asarray(fnp.mean(np.zeros(0, "f"))))
    same(fnp.all(np.zeros(0)), True)
    same(fnp.any(np.zeros(0)), False)
    with pytest.raises(ValueError, match=r"max of no elements.*\(0, 3\)"):
        fnp.max(np.zeros((0, 3)), axis=0)
    assert fnp.max(np.zeros((0, 3)), axis=1).shape == (0,)


def test_scalars():
    near(fnp.sum(2.0), 2.0)
    near(fnp.max(np.float32(3.0)), 3.0)
    same(fnp.argmax(np.float32(3.0)), 0)
    near(fnp.mean(3), 3.0, dtype="float32")


def test_methods():
    x = fnp.array(X)
    near(x.sum(0), X.sum(0))
    near(x.mean((0, 1), keepdims=True), X.mean((0, 1), keepdims=True))
    near(x.max(-1), X.max(-1))
    near(x.std(), X.std())
    same((x > 0).any(1), (X > 0).any(1))
    same(x.argmax(-1), X.argmax(-1))


def test_axis_errors_name_the_function():
    with pytest.raises(ValueError, match=r"sum: axis 3 is out of bounds for an array of shape \(3, 4, 5\)"):
        fnp.sum(X, axis=3)
    with pytest.raises(ValueError, match="twice"):
        fnp.sum(X, axis=(1, 1))
    with pytest.raises(TypeError, match="integer"):
        fnp.sum(X, axis=1.5)
    with pytest.raises(NotImplementedError, match="out="):
        fnp.sum(X, out=X)


def test_average():
    w = RNG.random(4).astype("f")
    near(fnp.average(X, axis=1, weights=w), np.average(X.astype("f8"), axis=1, weights=w))
    near(fnp.average(X, weights=np.abs(X)), np.average(X.astype("f8"), weights=np.abs(X)))
    for got, want in zip(fnp.average(X, 1, w, returned=True), np.average(X, 1, w, returned=True), strict=True):
        near(got, want)
    near(fnp.average(X), X.mean())


# ---- running --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_running(name, axis):
    x = HOLES if name.startswith("nan") else X
    near(getattr(fnp, name)(x, axis=axis), getattr(np, name)(x.astype("f8"), axis=axis))
    assert getattr(fnp, name)(np.zeros((0, 2), "f"), axis=0).shape == (0, 2)


def test_running_of_the_standard():
    near(fnp.cumulative_sum(X[0, 0], include_initial=True), np.cumulative_sum(X[0, 0], include_initial=True))
    near(fnp.cumulative_prod(X, axis=1), np.cumulative_prod(X, axis=1))


@pytest.mark.parametrize("n", [0, 1, 2, 6])
def test_differences(n):
    near(fnp.diff(X, n), np.diff(X, n))
    near(fnp.diff(X, n, axis=0), np.diff(X, n, axis=0))
    near(fnp.diff(X, n, prepend=0.0, append=X[:, :, :2]), np.diff(X, n, prepend=0.0, append=X[:, :, :2]))


def test_differences_of_bool_and_flattened():
    same(fnp.diff(MASK), np.diff(MASK))
    near(fnp.ediff1d(X, to_end=9.0, to_begin=[1.0, 2.0]),
         np.ediff1d(X, to_end=np.float32(9), to_begin=np.array([1, 2], "f")))


def test_trapezoid_and_gradient():
    points = np.sort(RNG.random(5)).astype("f")
    near(fnp.trapezoid(X, dx=0.5), np.trapezoid(X, dx=0.5))
    near(fnp.trapezoid(X, points), np.trapezoid(X, points))
    near(fnp.trapezoid(X, axis=0), np.trapezoid(X, axis=0))
    for got, want in zip(fnp.gradient(X, 2.0), np.gradient(X, 2.0), strict=True):
        near(got, want)
    near(fnp.gradient(X, 0.5, axis=1), np.gradient(X, 0.5, axis=1))

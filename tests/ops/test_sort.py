"""sort by insertion and by digits against NumPy, for every element type; argsort, top_k, searchsorted."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.dtypes import ALL
from fungrad.errors import ShapeError
from fungrad.ir.types import array_type
from fungrad.ops.sort import argsort, searchsorted, sort_p, top_k
from tests.ops.eager import run
from tests.ops.evaluate import lowered
from tests.ops.helpers import assert_same, check_batch, check_jvp, check_lower, reference

INT8 = np.dtype("int8")
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40, 3.0]


def _values(dtype: np.dtype, length: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed)
    if dtype.kind == "b":
        return noise.integers(0, 2, length).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = noise.integers(info.min, info.max, length, dtype, endpoint=True)
        return np.where(noise.random(length) < 0.5, wide, noise.integers(0, 3, length).astype(dtype)).astype(dtype)
    special, normal = noise.choice(SPECIAL, length), noise.standard_normal(length)
    with np.errstate(all="ignore"):
        return np.where(noise.random(length) < 0.5, special, normal).astype(dtype)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("length", [7, 40])
def test_every_element_type(dtype, length):
    x = _values(dtype, length)
    check_lower(sort_p, x, axis=0, num_keys=1, stable=False)
    positions = np.arange(length, dtype=np.int32)
    with_positions = lowered(sort_p, x, positions, axis=0, num_keys=1, stable=True)
    expected = reference(sort_p, x, positions, axis=0, num_keys=1, stable=True)
    assert_same(with_positions[1], expected[1])
    assert_same(_bits(with_positions[0]), _bits(x[expected[1]]))
    alone, = lowered(sort_p, x, axis=0, num_keys=1, stable=True)
    assert np.array_equal(np.signbit(alone.astype(float)), np.signbit(with_positions[0].astype(float)))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=36), st.integers(1, 3))
def test_several_keys(pairs, num_keys):
    first, second = (np.array(column, np.int8) for column in zip(*pairs, strict=True))
    third = np.arange(len(pairs)).astype(np.float64)[::-1].copy()
    check_lower(sort_p, first, second.astype(np.float32), third, axis=0, num_keys=num_keys, stable=True)


def test_rows_of_any_axis():
    x = np.random.default_rng(0).integers(0, 9, (2, 35, 2)).astype(np.int16)
    check_lower(sort_p, x, axis=1, num_keys=1, stable=True)
    check_lower(sort_p, x[:, :3], np.arange(12).reshape(2, 3, 2), axis=0, num_keys=1, stable=True)


def test_digits_that_are_all_equal_are_copied():
    x = np.arange(40, dtype=np.int64)[::-1] + 2**40
    check_lower(sort_p, np.ascontiguousarray(x), axis=0, num_keys=1, stable=True)


def test_empty():
    for shape in ((0,), (0, 3), (3, 0)):
        check_lower(sort_p, np.zeros(shape), np.zeros(shape, np.int8), axis=len(shape) - 1, num_keys=1, stable=True)


def test_jvp_and_batch():
    x, y = np.random.default_rng(0).standard_normal((2, 3, 5))
    check_jvp(sort_p, x, y, wrt=(0, 1), axis=1, num_keys=1, stable=True)
    check_jvp(sort_p, x, y, wrt=(0,), axis=0, num_keys=2, stable=True)
    check_batch(sort_p, x, y, axes=(1, 1), axis=0, num_keys=1, stable=True)
    check_batch(sort_p, x, y[0], axes=(0, None), axis=0, num_keys=1, stable=True)


@pytest.mark.parametrize("descending", [False, True])
def test_argsort_keeps_the_order_of_equal_elements(descending):
    x = np.array([2., np.nan, 1., 2., 1., np.nan])
    expected = [1, 5, 0, 3, 2, 4] if descending else [2, 4, 0, 3, 1, 5]
    assert_same(run(argsort, x, 0, descending=descending), np.array(expected, np.int32))


def test_top_k():
    x = np.array([[1., 3., 3., 2.], [0., -1., -2., 5.]])
    values, positions = run(top_k, x, 2)
    assert_same(values, np.array([[3., 3.], [5., 0.]]))
    assert_same(positions, np.array([[1, 2], [3, 0]], np.int32))
    with pytest.raises(ShapeError, match="k=5"):
        run(top_k, x, 5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([-1., 0., 0.5, 2., np.inf, np.nan]), max_size=9), st.sampled_from(["left", "right"]))
def test_searchsorted(values, side):
    array, queries = np.sort(np.array(values, np.float32)), np.array([[-2, -1, 0], [0.25, np.inf, np.nan]], np.float32)
    assert_same(run(searchsorted, array, queries, side), np.searchsorted(array, queries, side).astype(np.int32))


def test_errors():
    with pytest.raises(ShapeError, match="differ"):
        sort_p.type(array_type((3,), INT8), array_type((4,), INT8), axis=0, num_keys=1, stable=True)
    with pytest.raises(ShapeError, match="by the first 2 of 1"):
        sort_p.type(array_type((3,), INT8), axis=0, num_keys=2, stable=True)

"""window and window_sum: against a loop, and as pooling."""
from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.errors import DTypeError, ShapeError
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ops import create, reduce, slicing
from fungrad.ops.window import window, window_count, window_sum
from tests.ops.eager import run
from tests.ops.helpers import assert_same, check_lower, check_transpose


@st.composite
def windows(draw):
    """(extents, shape, strides, dilation) of one or two axes."""
    rank = draw(st.integers(1, 2))
    entry = st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
    return tuple(zip(*[draw(entry) for _ in range(rank)], strict=True))


@settings(max_examples=60)
@given(windows(), st.lists(st.integers(1, 2), max_size=1))
def test_windows_by_hand(config, lead):
    extents, shape, strides, dilation = config
    x = np.random.default_rng(0).standard_normal((*lead, *extents))
    counts = tuple(map(window_count, extents, shape, strides, dilation))
    expected = np.zeros((*lead, *counts, *shape))
    for o in itertools.product(*map(range, counts)):
        for k in itertools.product(*map(range, shape)):
            at = tuple(i * s + j * d for i, s, j, d in zip(o, strides, k, dilation, strict=True))
            expected[(..., *o, *k)] = x[(..., *at)]
    assert_same(run(window, x, shape=shape, strides=strides, dilation=dilation), expected)
    params = {"shape": shape, "strides": strides, "dilation": dilation}
    check_lower(PRIMITIVES["window"], x, **params)
    if expected.size:
        check_transpose(PRIMITIVES["window"], x, wrt=(0,), **params)
    params = {"extents": extents, "strides": strides, "dilation": dilation}
    check_lower(PRIMITIVES["window_sum"], expected, **params)


def test_max_pooling():
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)

    def pool(x):
        padded = slicing.pad(x, create.full((), float("-inf"), x.dtype), ((0, 0, 0), (0, 0, 0), (1, 1, 0), (0, 0, 0)))
        return reduce.reduce_max(window(padded, (2, 3), (2, 3)), (4, 5))
    assert run(pool, x)[0, 0].tolist() == [[2, 5], [14, 17], [20, 23]]


def test_a_window_that_does_not_fit_gives_none():
    assert run(window, np.ones(3), shape=(4,)).shape == (0, 4)
    assert run(window_sum, np.ones((0, 4)), extents=(3,)).tolist() == [0, 0, 0]


def test_windows_are_checked():
    with pytest.raises(ShapeError, match="must be at least 1"):
        run(window, np.ones(3), shape=(0,))
    with pytest.raises(ShapeError, match="last axes of an array of rank 1"):
        run(window, np.ones(3), shape=(2, 2))
    with pytest.raises(ShapeError, match=r"windows of shape \(2,\) over \(4,\) are \(3,\) in number, not \(2,\)"):
        run(window_sum, np.ones((2, 2)), extents=(4,))
    with pytest.raises(DTypeError, match="window_sum: bool"):
        run(window_sum, np.ones((3, 2), bool), extents=(4,))

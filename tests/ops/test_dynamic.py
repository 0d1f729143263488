"""dynamic_slice and dynamic_update_slice: every rule, with starts inside and outside."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.errors import DTypeError, ShapeError
from fungrad.ir.types import array_type
from fungrad.ops.dynamic import dynamic_slice, dynamic_slice_p, dynamic_update_slice, dynamic_update_slice_p
from tests.ops.eager import run
from tests.ops.helpers import assert_same, check_batch, check_jvp, check_lower, check_transpose, reference

F32, I32 = np.dtype("float32"), np.dtype("int32")


@st.composite
def windows(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    sizes = tuple(draw(st.integers(0, extent)) for extent in shape)
    starts = tuple(np.asarray(draw(st.integers(-2, 5)), np.int32) for _ in shape)
    return shape, sizes, starts


def _noise(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@settings(max_examples=40, deadline=None)
@given(windows())
def test_every_rule(case):
    shape, sizes, starts = case
    x, update = _noise(shape), _noise(sizes, 1)
    params = {"sizes": sizes, "batch_dims": 0}
    check_lower(dynamic_slice_p, x, *starts, **params)
    check_jvp(dynamic_slice_p, x, *starts, wrt=(0,), **params)
    check_transpose(dynamic_slice_p, x, *starts, wrt=(0,), **params)
    check_lower(dynamic_update_slice_p, x, update, *starts, batch_dims=0)
    check_jvp(dynamic_update_slice_p, x, update, *starts, wrt=(0, 1), batch_dims=0)
    check_transpose(dynamic_update_slice_p, x, update, *starts, wrt=(0, 1), batch_dims=0)


@settings(max_examples=30, deadline=None)
@given(windows(), st.booleans(), st.booleans())
def test_batch_once_and_twice(case, map_array, map_starts):
    shape, sizes, starts = case
    map_starts = map_starts and bool(shape)
    map_array = map_array or not map_starts
    x, update = _noise((*shape, 3) if map_array else shape), _noise((3, *sizes), 1)
    axis = len(shape) if map_array else None
    moved = [np.stack([s, s + 1, s - 1]) if map_starts else s for s in starts]
    axes = [0 if map_starts else None] * len(starts)
    check_batch(dynamic_slice_p, x, *moved, axes=(axis, *axes), sizes=sizes, batch_dims=0)
    check_batch(dynamic_update_slice_p, x, update, *moved, axes=(axis, 0, *axes), batch_dims=0)


def test_batch_dims_have_every_rule():
    x, update = _noise((2, 3, 4)), _noise((2, 2, 4), 1)
    starts = np.array([1, 0]), np.array([0, 0])
    params = {"sizes": (2, 2, 4), "batch_dims": 1}
    assert_same(reference(dynamic_slice_p, x, *starts, **params), np.stack([x[0, 1:3], x[1, 0:2]]))
    check_lower(dynamic_slice_p, x, *starts, **params)
    check_transpose(dynamic_slice_p, x, *starts, wrt=(0,), **params)
    check_lower(dynamic_update_slice_p, x, update, *starts, batch_dims=1)
    check_transpose(dynamic_update_slice_p, x, update, *starts, wrt=(0, 1), batch_dims=1)
    both = np.stack([x, x + 1], 2)
    check_batch(dynamic_slice_p, both, *starts, axes=(2, None, None), **params)
    check_batch(dynamic_update_slice_p, both, update, np.stack([starts[0], 1 - starts[0]]), starts[1],
                axes=(2, None, 0, None), batch_dims=1)


def test_starts_are_moved_inside():
    x = np.arange(5.)
    for start, expected in ((-3, [0., 1.]), (2, [2., 3.]), (9, [3., 4.])):
        assert_same(run(lambda x, s: dynamic_slice(x, (s,), (2,)), x, np.int64(start)), np.array(expected))
    update = run(lambda x, u, s: dynamic_update_slice(x, u, (s,)), x, np.array([7., 8.]), np.int8(9))
    assert_same(update, np.array([0., 1., 2., 7., 8.]))
    check_lower(dynamic_slice_p, x, np.uint64(2**64 - 1), sizes=(2,), batch_dims=0)


def test_errors():
    x, start = array_type((4,), F32), array_type((), I32)
    with pytest.raises(ShapeError, match=r"\(5,\) does not fit an array of shape \(4,\)"):
        dynamic_slice_p.type(x, start, sizes=(5,), batch_dims=0)
    with pytest.raises(ShapeError, match="and 2 starts"):
        dynamic_slice_p.type(x, start, start, sizes=(2,), batch_dims=0)
    with pytest.raises(DTypeError, match="integers"):
        dynamic_slice_p.type(x, array_type((), F32), sizes=(2,), batch_dims=0)
    with pytest.raises(DTypeError, match="differ"):
        dynamic_update_slice_p.type(x, array_type((2,), np.dtype("float64")), start, batch_dims=0)

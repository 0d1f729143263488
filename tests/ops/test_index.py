"""gather and scatter: every rule on random dimension numbers; values by hand; the loops of scatter."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.errors import DTypeError, RefusedError, ShapeError
from fungrad.ir.types import array_type, literal
from fungrad.ops import index
from fungrad.ops.index import IndexNumbers, gather, gather_p, scatter, scatter_p, take_along_axis
from fungrad.trace import active
from tests.ops.eager import EagerTrace, run, unwrap, wrap
from tests.ops.evaluate import lowered
from tests.ops.helpers import assert_same, check_batch, check_jvp, check_lower, check_transpose, reference

F32, F64, I32 = np.dtype("float32"), np.dtype("float64"), np.dtype("int32")
ROWS = IndexNumbers(window_dims=(1,), dropped_dims=(0,), index_map=(0,))   # rows of a matrix
POINTS = IndexNumbers(window_dims=(), dropped_dims=(0,), index_map=(0,))   # elements of a vector
NAN = literal(float("nan"), F64)


@st.composite
def cases(draw):
    """(operand shape, indices, numbers, slice sizes, shape of the result or the updates)."""
    batch = draw(st.lists(st.integers(1, 2), max_size=1))
    kinds = draw(st.lists(st.sampled_from(["dropped", "window", "whole"]), min_size=1, max_size=3))
    axes = [("batch", i, extent) for i, extent in enumerate(batch)]
    axes += [(kind, i, draw(st.integers(1, 4))) for i, kind in enumerate(kinds)]
    axes = draw(st.permutations(axes))
    shape = tuple(extent for _, _, extent in axes)
    sizes = tuple(1 if kind in ("batch", "dropped") else extent if kind == "whole" else draw(st.integers(1, extent))
                  for kind, _, extent in axes)
    indexed = draw(st.permutations([a for a, (kind, _, _) in enumerate(axes) if kind in ("dropped", "window")]))
    rows = draw(st.permutations([("batch", i, extent) for i, extent in enumerate(batch)]
                                + [("row", 0, draw(st.integers(0, 3)))]))
    pairs = [(a, next(r for r, row in enumerate(rows) if row[:2] == axis[:2]))
             for a, axis in enumerate(axes) if axis[0] == "batch"]
    windows = [a for a, axis in enumerate(axes) if axis[0] in ("window", "whole")]
    rank = len(rows) + len(windows)
    numbers = IndexNumbers(tuple(sorted(draw(st.permutations(range(rank)))[:len(windows)])),
                           tuple(a for a, axis in enumerate(axes) if axis[0] == "dropped"), tuple(indexed),
                           tuple(a for a, _ in pairs), tuple(r for _, r in pairs))
    row_shape = tuple(extent for _, _, extent in rows)
    values = st.integers(-2, 5)
    count = int(np.prod((*row_shape, len(indexed))))
    flat = draw(st.lists(values, min_size=count, max_size=count))
    indices = np.array(flat, np.int32).reshape(*row_shape, len(indexed))
    left, right = iter(row_shape), iter(sizes[a] for a in windows)
    result = tuple(next(right) if a in numbers.window_dims else next(left) for a in range(rank))
    return shape, indices, numbers, sizes, result


def _noise(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["clip", "fill"]))
def test_every_rule_of_gather(case, mode):
    shape, indices, numbers, sizes, result = case
    x = _noise(shape)
    params = {"dimension_numbers": numbers, "slice_sizes": sizes, "mode": mode,
              "fill_value": NAN if mode == "fill" else None}
    assert gather_p.type(array_type(shape, F64), array_type(indices.shape, I32), **params).shape == result
    check_lower(gather_p, x, indices, **params)
    zero = params | {"fill_value": literal(0.0, F64)} if mode == "fill" else params
    check_jvp(gather_p, x, indices, wrt=(0,), **zero)
    check_transpose(gather_p, x, indices, wrt=(0,), **zero)
    check_batch(gather_p, np.stack([x, x + 1], -1), indices, axes=(x.ndim, None), **params)
    check_batch(gather_p, x, np.stack([indices, indices + 1], 1), axes=(None, 1), **params)
    check_batch(gather_p, np.stack([x, x + 1]), np.stack([indices, indices + 1], 1), axes=(0, 1), **params)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["clip", "drop"]), st.sampled_from(["set", "add", "mul", "max"]))
def test_every_rule_of_scatter(case, mode, combine):
    shape, indices, numbers, _, updates_shape = case
    x, updates = _noise(shape), _noise(updates_shape, 1)
    params = {"dimension_numbers": numbers, "combine": combine, "mode": mode, "unique": False}
    check_lower(scatter_p, x, indices, updates, **params)
    check_jvp(scatter_p, x, indices, updates, wrt=(0,) if combine == "mul" else (0, 2), **params)
    if combine in ("set", "add"):
        check_transpose(scatter_p, x, indices, updates, wrt=(0, 2), **params)
        check_transpose(scatter_p, np.zeros_like(x), indices, updates, wrt=(2,), **params)
    if combine == "mul":
        check_transpose(scatter_p, x, indices, updates, wrt=(0,), **params)
    two = np.stack([updates, updates + 1], 1)
    check_batch(scatter_p, np.stack([x, x + 1]), indices, two, axes=(0, None, 1), **params)
    check_batch(scatter_p, x, np.stack([indices, indices + 1]), updates, axes=(None, 0, None), **params)
    indices = np.stack([indices, indices + 1])
    check_batch(scatter_p, np.stack([x, x + 1], -1), indices, two, axes=(x.ndim, 0, 1), **params)


def test_gather_modes_outside_the_operand():
    x, indices = np.arange(4.), np.array([[-1], [1], [4]], np.int8)
    assert_same(run(gather, x, indices, POINTS, (1,)), np.array([np.nan, 1., np.nan]))
    assert_same(run(gather, x, indices, POINTS, (1,), "clip"), np.array([0., 1., 3.]))
    assert_same(run(gather, x, indices, POINTS, (1,), "fill", 7), np.array([7., 1., 7.]))
    assert_same(run(gather, x.astype(np.int32), indices, POINTS, (1,)), np.array([-2**31, 1, -2**31], np.int32))
    assert_same(run(gather, x.astype(np.uint8), indices, POINTS, (1,)), np.array([255, 1, 255], np.uint8))


def test_huge_unsigned_indices_are_beyond_the_end():
    x, indices = np.arange(4.), np.array([[2**64 - 1], [2]], np.uint64)
    for mode, expected in (("clip", [3., 2.]), ("fill", [np.nan, 2.])):
        params = {"dimension_numbers": POINTS, "slice_sizes": (1,), "mode": mode,
                  "fill_value": NAN if mode == "fill" else None}
        assert_same(reference(gather_p, x, indices, **params), np.array(expected))
        check_lower(gather_p, x, indices, **params)


def test_scatter_order_and_combines():
    x, indices, updates = np.ones(3), np.array([[0], [2], [0], [5]]), np.array([2., 3., 4., 9.])
    expected = {"set": [4., 1., 3.], "add": [7., 1., 4.], "mul": [8., 1., 3.], "min": [1., 1., 1.], "max": [4., 1., 3.]}
    for combine, values in expected.items():
        assert_same(run(scatter, x, indices, updates, POINTS, combine), np.array(values))
    clipped = run(scatter, x, indices, updates, POINTS, "add", mode="clip")
    assert_same(clipped, np.array([7., 1., 13.]))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float32"])
def test_scatter_lowers_for_every_kind(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, updates = np.array([1, 0, 3]).astype(kind), np.array([1, 0, 2]).astype(kind)
    for combine in ("set", "max", "min", "mul") if dtype == "bool" else ("set", "add", "mul", "min", "max"):
        check_lower(scatter_p, x, np.array([[2], [1], [2]]), updates, dimension_numbers=POINTS, combine=combine,
                    mode="drop", unique=False)


def test_embedding_gradient_runs_in_row_blocks(monkeypatch):
    monkeypatch.setattr(index, "_BLOCK_BYTES", 4096)
    params = {"dimension_numbers": ROWS, "combine": "add", "mode": "drop", "unique": False}
    x, updates = _noise((67, 130)).astype(F32), _noise((6, 130), 1).astype(F32)
    indices = np.array([[66], [0], [34], [33], [66], [70]])
    types = [array_type(a.shape, a.dtype) for a in (x, indices, updates)]
    fragment = scatter_p.lower(types, types[0], **params)
    assert [a.extent for a in fragment.outer] == [8]
    check_lower(scatter_p, x, indices, updates, **params)
    check_lower(scatter_p, x, indices, updates, **params | {"mode": "clip"})


def test_product_needs_unique_indices_for_its_updates_derivative():
    params = {"dimension_numbers": POINTS, "combine": "mul", "mode": "drop"}
    x, indices, updates = _noise((4,)), np.array([[2], [0]]), _noise((2,), 1)
    check_jvp(scatter_p, x, indices, updates, wrt=(0, 2), unique=True, **params)
    with pytest.raises(RefusedError, match="unique_indices=True"):
        check_jvp(scatter_p, x, indices, updates, wrt=(2,), unique=False, **params)


def test_extremum_shares_ties_evenly():
    x, indices, updates = np.array([1., 5.]), np.array([[0], [0]]), np.array([1., 1.])
    with active(EagerTrace()):
        _, tangent = scatter_p.jvp([wrap(a) for a in (x, indices, updates)],
                                   [wrap(np.array([3., 1.])), None, wrap(np.array([6., 0.]))],
                                   dimension_numbers=POINTS, combine="max", mode="drop", unique=False)
    assert_same(unwrap(tangent), np.array([3., 1.]))


def test_take_along_axis():
    x, indices = _noise((3, 4, 2)), np.random.default_rng(0).integers(0, 4, (3, 5, 2))
    assert_same(run(take_along_axis, x, indices, 1), np.take_along_axis(x, indices, 1))


def test_take():
    x, indices = _noise((3, 4, 2)), np.array([[3, 0, 1], [1, 1, 2]])
    for axis in range(2):
        clipped = np.minimum(indices, x.shape[axis] - 1)
        assert_same(run(index.take, x, indices, axis, "clip"), np.take(x, clipped, axis))
    assert_same(run(index.take, x, np.array(7), 1), np.full((3, 2), np.nan))


def test_empty_operands():
    params = {"dimension_numbers": ROWS, "combine": "add", "mode": "drop", "unique": False}
    x = np.zeros((0, 3))
    assert_same(reference(scatter_p, x, np.array([[0]]), np.ones((1, 3)), **params), x)
    assert_same(lowered(scatter_p, x, np.array([[0]]), np.ones((1, 3)), **params), x)
    check_transpose(scatter_p, x, np.array([[0]]), np.ones((1, 3)), wrt=(0, 2), **params)
    with pytest.raises(ShapeError, match="do not fit"):
        gather_p.type(array_type((0,), F64), array_type((1, 1), I32), dimension_numbers=POINTS, slice_sizes=(1,),
                      mode="clip", fill_value=None)


def test_errors():
    x, rows = array_type((4, 3), F32), array_type((2, 1), I32)
    params = {"slice_sizes": (1, 3), "mode": "clip", "fill_value": None}
    assert gather_p.type(x, rows, dimension_numbers=ROWS, **params).shape == (2, 3)
    with pytest.raises(DTypeError, match="must be integers"):
        gather_p.type(x, array_type((2, 1), F32), dimension_numbers=ROWS, **params)
    with pytest.raises(ShapeError, match="needs 1 entries"):
        gather_p.type(x, array_type((2, 2), I32), dimension_numbers=ROWS, **params)
    with pytest.raises(ShapeError, match="do not fit an operand of shape"):
        gather_p.type(x, rows, dimension_numbers=ROWS, **params | {"slice_sizes": (1, 4)})
    with pytest.raises(ShapeError, match="window axes"):
        gather_p.type(x, rows, dimension_numbers=ROWS._replace(window_dims=()), **params)
    scatter_params = {"dimension_numbers": ROWS, "combine": "add", "mode": "drop", "unique": False}
    with pytest.raises(ShapeError, match="one window for each row"):
        scatter_p.type(x, rows, array_type((3, 3), F32), **scatter_params)
    with pytest.raises(DTypeError, match="differ"):
        scatter_p.type(x, rows, array_type((2, 3), F64), **scatter_params)

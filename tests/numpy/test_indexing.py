"""x[index] and x.at[index] against NumPy: by hand, and random index expressions."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fungrad
import fungrad.numpy as fnp
from fungrad.ir.types import array_type
from fungrad.trace import trace_program
from tests.numpy.support import near, same, staged

X = np.arange(2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)
I, J = np.array([0, 2, 1, 2]), np.array([[1], [3]])
MASK = np.arange(12).reshape(3, 4) % 3 == 0


def operations(function, *arrays):
    types = [array_type(np.shape(a), np.asarray(a).dtype) for a in arrays]
    program = trace_program(lambda *xs: [function(*xs)], types).program
    return [node.primitive.name for node in program.nodes() if node.primitive.name not in ("input", "full")]


INDICES = [
    0, -1, (1, 2), (1, 2, 3, -1), slice(None), slice(1, None), slice(None, None, -1), slice(-1, None, -2), slice(5, 1),
    (slice(None), slice(2, 0, -1)), (..., 0), (0, ...), (..., None), (None, 1, ..., None), (slice(0, 2), None, 1),
    (slice(None), I), (slice(None), slice(None), J), (0, I), (I[:2] % 2, slice(None), J),
    (slice(None), I, slice(1, 3)), (slice(None), I, slice(3, 0, -2)), (slice(None), I, I),
    (slice(None), I, slice(None), I),
    (slice(None), 1, I), (0, slice(None), I), (slice(None), I, None, I), (None, slice(None), I),
    (slice(None), None, I, 0),
    (slice(None), MASK), (0, MASK), (slice(None), MASK, slice(1, 3)), (np.array([True, False]),),
    (slice(None), MASK, 1), (True,), (False,), (None, True), (0, True), (slice(None), I, True), np.True_, [1, 0],
    [[1, 0], [0, 0]],
    (slice(None), [], 1), (slice(None), []), np.array([], int), (I[:0],), np.int64(1), (slice(None), np.array(2)),
    (Ellipsis, I, slice(None)), (slice(None), I[:, None], I[None, :]), (slice(None, None, -1), -I),
    np.zeros((2, 3, 4, 5), bool)]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading(index):
    same(fnp.array(X)[index], X[index])
    arrays = [i for i in (index if isinstance(index, tuple) else (index,)) if isinstance(i, np.ndarray)
              and i.dtype != bool]
    if arrays:      # the same positions as traced arrays
        rebuilt = lambda traced: tuple(traced.pop(0) if isinstance(i, np.ndarray) and i.dtype != bool else i
                                       for i in (index if isinstance(index, tuple) else (index,)))
        same(staged(lambda x, *traced: x[rebuilt(list(traced))], X, *arrays), X[index])


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("method", ["set", "add"])
def test_writing(index, method):
    value = np.float32(7) if method == "set" else np.arange(1, 1 + X[index].size,
                                                            dtype="float32").reshape(X[index].shape)
    same(getattr(fnp.array(X).at[index], method)(value), written(X, index, value, method))


def written(x, index, value, method):
    result = x.copy()
    if method == "set":
        result[index] = value
    else:
        {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum,
         "subtract": np.subtract}[method].at(result, index, value)
    return result


@pytest.mark.parametrize("method", ["multiply", "min", "max", "subtract"])
@pytest.mark.parametrize("index", [0, (slice(None, None, -2), 1), (slice(None), I), (slice(None), I, 2),
                                   (slice(None), MASK)], ids=str)
def test_other_updates(method, index):
    value = np.random.default_rng(0).standard_normal(X[index].shape).astype("f") * 50
    near(getattr(fnp.array(X).at[index], method)(value), written(X, index, value, method), 1e-5)


def test_division_power_and_apply():
    x = np.arange(1.0, 7.0, dtype="f")
    near(fnp.array(x).at[1:3].divide(2.0), [1, 1, 1.5, 4, 5, 6])
    near(fnp.array(x).at[[0, 0, 1]].divide(2.0), [0.25, 1, 3, 4, 5, 6])
    near(fnp.array(x).at[[1, 2]].power(2), [1, 4, 9, 4, 5, 6])
    near(fnp.array(x).at[::2].apply(fnp.negative), [-1, 2, -3, 4, -5, 6])


def test_repeated_positions():
    x = fnp.zeros(4)
    same(x.at[np.array([1, 1, 2])].add(1.0), [0, 2, 1, 0])
    same(x.at[np.array([1, 1, 2])].set(np.array([5.0, 6.0, 7.0], "f")), [0, 6, 7, 0])
    same(fnp.ones(3).at[np.array([1, 1])].multiply(3.0), [1, 9, 1])


# ---- traced integers, out of bounds ---------------------------------------------------------------------------------

def test_traced_integers():
    for i in (0, 2, -1, -3):
        same(staged(lambda x, i: x[:, i], X, np.int32(i)), X[:, i])
        same(staged(lambda x, i: x[1, i, 1:3], X, np.int32(i)), X[1, i, 1:3])
        same(staged(lambda x, i: x[::-1, i, ::2], X, np.int32(i)), X[::-1, i, ::2])
        same(staged(lambda x, i: x.at[:, i].set(9.0), X, np.int32(i)), written(X, (slice(None), i), 9.0, "set"))
        same(staged(lambda x, i: x.at[1, i, 1:3].add(9.0), X, np.int32(i)), written(X, (1, i, slice(1, 3)), 9.0, "add"))
        same(staged(lambda x, i: x.at[::-1, i, ::2].add(9.0), X, np.int32(i)),
             written(X, (slice(None, None, -1), i, slice(None, None, 2)), 9.0, "add"))
    for kind in ("int8", "uint8", "int64", "uint64"):
        same(staged(lambda x, i, j: x[i, j], X, np.array(1, kind), np.array(2, "int32")), X[1, 2])
    wide = np.arange(300, dtype="f")
    same(staged(lambda x, i: x[i], wide, np.int8(-5)), wide[-5])
    same(staged(lambda x, i: x[i], wide, np.array([-5, 7], "int8")), wide[[-5, 7]])


def test_traced_out_of_bounds():
    x = np.arange(5.0, dtype="f")
    for i, clamped in ((7, 4), (-9, 0)):
        same(staged(lambda x, i: x[i], x, np.int32(i)), x[clamped])
        same(staged(lambda x, i: x[i], x, np.array([i, 1])), x[[clamped, 1]])
        same(staged(lambda x, i: x.at[i].set(9.0), x, np.int32(i)), x)
        same(staged(lambda x, i: x.at[i].add(9.0), x, np.array([i])), x)
        same(staged(lambda x, i: x.at[i].get(mode="fill", fill_value=-1.0), x, np.int32(i)), -1)
        near(staged(lambda x, i: fnp.take(x, i), x, np.array([i, 2])), [np.nan, 2])
        same(staged(lambda x, i: fnp.take(x, i, mode="wrap"), x, np.array([i])), x[[i % 5]])
    same(staged(lambda x, i: x.at[i].set(9.0, mode="clip"), x, np.int32(7)), [0, 1, 2, 3, 9])
    same(staged(lambda x, i: fnp.take(x, i, mode="clip"), x, np.array([-3, 9])), [0, 4])


def test_static_out_of_bounds():
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 5"):
        fnp.arange(5)[7]
    with pytest.raises(IndexError, match="axis 1 with size 3"):
        fnp.array(X).at[0, -4].set(0.0)
    with pytest.raises(IndexError, match="too many indices"):
        fnp.arange(5)[0, 0]
    with pytest.raises(IndexError, match="no elements"):
        fnp.zeros((0, 2))[np.array([0])]
    same(fnp.arange(5).at[7].set(1, mode="drop"), np.arange(5))
    same(fnp.arange(5).at[7].get(mode="fill", fill_value=-1), -1)
    same(fnp.arange(5)[np.array([7, -9])], [4, 0])
    same(fnp.zeros((0, 2)).at[np.array([0])].set(1.0), np.zeros((0, 2)))


def test_errors():
    x = fnp.arange(5)
    with pytest.raises(TypeError, match=r"x\.at\[index\]\.set"):
        x[0] = 1
    with pytest.raises(TypeError, match="not with float"):
        x[1.5]
    with pytest.raises(TypeError, match="not with an array of float32"):
        x[fnp.ones(2)]
    with pytest.raises(TypeError, match="not with str"):
        x["a"]
    with pytest.raises(IndexError, match=r"boolean index of shape \(3,\)"):
        x[np.ones(3, bool)]
    with pytest.raises(IndexError, match="one Ellipsis"):
        x[..., ...]
    with pytest.raises(ValueError, match=r"indexing: shapes \(2,\) and \(3,\)"):
        fnp.array(X)[np.zeros(2, int), np.zeros(3, int)]
    with pytest.raises(ValueError, match=r"updates of shape \(3,\) do not broadcast to \(2,\)"):
        x.at[:2].set(np.zeros(3, int))
    with pytest.raises(TypeError, match="where"):
        staged(lambda x, m: x[m], np.arange(3), np.ones(3, bool))
    with pytest.raises(TypeError, match="dynamic_slice_in_dim"):
        staged(lambda x, i: x[i:], np.arange(3), np.int32(1))
    with pytest.raises(TypeError, match="float32 updates do not fit"):
        x.at[0].add(1.5)
    with pytest.raises(ValueError, match="mode"):
        x.at[0].set(1, mode="wrong")


def test_masks():
    x = X[0]
    value = np.arange(MASK.sum(), dtype="f")
    same(fnp.array(X).at[:, MASK].set(-1.0), written(X, (slice(None), MASK), -1.0, "set"))
    same(fnp.array(x).at[MASK].set(value[:, None]), written(x, MASK, value[:, None], "set"))
    same(staged(lambda x, m: x.at[m].add(1.0), x, MASK), written(x, MASK, 1.0, "add"))
    same(staged(lambda x, m: x.at[m].set(x[0, 0]), x, MASK), written(x, MASK, x[0, 0], "set"))
    same(staged(lambda x, m: x.at[:, m].multiply(2.0), x[..., 0], MASK[0]),
         written(x[..., 0], (slice(None), MASK[0]), 2.0, "multiply"))
    same(staged(lambda x, m: x.at[..., m].set(0.0) if x.ndim == 1 else x, x[0, :, 0], MASK[0]),
         written(x[0, :, 0], MASK[0], 0.0, "set"))
    with pytest.raises(NotImplementedError, match="where"):
        staged(lambda x, m, v: x.at[m].set(v), x[..., 0], MASK, value)


# ---- what it costs --------------------------------------------------------------------------------------------------

def test_static_indices_cost_no_gather():
    assert operations(lambda x: x[0], X) == ["slice", "reshape"]
    assert operations(lambda x: x[:, 1:], X) == ["slice"]
    assert operations(lambda x: x[::-1], X) == ["flip"]
    assert operations(lambda x: x[:, None], X) == ["reshape"]
    assert operations(lambda x: x[...], X) == []
    assert "dynamic_slice" in operations(lambda x, i: x[i], X, np.int32(0))
    assert operations(lambda x, i: x[i], X, np.array([0, 1], "uint32")) == ["reshape", "gather"]
    assert operations(lambda x: x.at[1:, :2].set(0.0), X) == ["dynamic_update_slice"]
    assert "scatter" not in operations(lambda x: x.at[:, ::2].add(1.0), X)
    assert operations(lambda x: x.at[:].set(0.0), X) == []


# ---- random expressions ---------------------------------------------------------------------------------------------

@st.composite
def expressions(draw) -> tuple[np.ndarray, Any]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    rows = draw(st.sampled_from([(), (2,), (1, 3), (2, 1)]))
    entries: list[Any] = []
    axis = 0
    while axis < len(shape):
        extent = shape[axis]
        kind = draw(st.sampled_from(["slice", "slice", "integer", "array", "new", "mask", "dots", "stop"]))
        if kind == "stop":
            break
        if kind == "new":
            entries.append(None)
            if sum(e is None for e in entries) > 2:
                break
            continue
        if kind == "dots":
            if Ellipsis in [e for e in entries if not isinstance(e, np.ndarray)]:
                continue
            entries.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis))
            continue
        if kind == "slice":
            bound = st.one_of(st.none(), st.integers(-6, 6))
            entries.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))))
        elif kind == "integer":
            entries.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "array":
            own = draw(st.sampled_from([rows, rows[-1:]]))
            entries.append(np.array(draw(st.lists(st.integers(-extent, extent - 1), min_size=int(np.prod(own)),
                                                  max_size=int(np.prod(own)))), np.int64).reshape(own))
        else:
            entries.append(np.array(draw(st.lists(st.booleans(), min_size=extent, max_size=extent))))
        axis += 1
    return np.arange(np.prod(shape), dtype="f").reshape(shape), tuple(entries)


def test_an_empty_ellipsis_separates_arrays() -> None:
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    for index in ((None, 0, ..., np.array([0, 1])), (None, 0, ..., np.array([False, True, True])), (0, ..., [1, 2])):
        same(fnp.array(x)[index], x[index])


@given(expressions())
@settings(max_examples=200)
def test_random_indices(case):
    x, index = case
    try:
        want = x[index]
    except IndexError as error:
        if "out of bounds" not in str(error):      # masks and arrays that do not broadcast; arrays clamp here
            with pytest.raises((IndexError, ValueError)):
                fnp.array(x)[index]
        return
    same(fnp.array(x)[index], want)
    same(fnp.array(x).at[index].set(-1.0), written(x, index, -1.0, "set"))
    updates = np.arange(want.size, dtype="f").reshape(want.shape)
    same(fnp.array(x).at[index].add(updates), written(x, index, updates, "add"))
    same(staged(lambda x: x.at[index].add(updates), x), written(x, index, updates, "add"))


# ---- functions ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("axis", [None, 0, 2, -1])
def test_take(axis):
    for positions in (2 if axis != 0 else 1, np.array([0, 1, -1]), np.array([[1], [0]]), np.zeros((0, 2), int)):
        same(fnp.take(X, positions, axis), np.take(X, positions, axis))
    same(fnp.array(X).take(np.array([1, 0]), 1), X.take([1, 0], 1))
    with pytest.raises(ValueError, match="raise"):
        fnp.take(X, 0, mode="raise")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_axis(axis):
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype("f")
    order = np.argsort(x, axis)
    same(fnp.take_along_axis(x, order, axis), np.take_along_axis(x, order, axis))
    best = np.argmax(x, axis, keepdims=True) - x.shape[axis]
    same(fnp.take_along_axis(x, best, axis), np.take_along_axis(x, best, axis))
    want = x.copy()
    np.put_along_axis(want, best, 9.0, axis)
    same(fnp.put_along_axis(x, best, 9.0, axis, inplace=False), want)
    narrow = order[tuple(slice(None) if a == axis % 3 else slice(0, 1) for a in range(3))]
    same(fnp.take_along_axis(x, narrow, axis), np.take_along_axis(x, np.broadcast_to(narrow, x.shape), axis))
    same(fnp.take_along_axis(x, order.ravel(), None), np.take_along_axis(x, order.ravel(), None))
    near(fnp.take_along_axis(x, np.full((1, 1, 1), 9), axis),
         np.full([1 if a == axis % 3 else n for a, n in enumerate(x.shape)], np.nan))


def test_python_protocols():
    x = fnp.array(X)
    assert len(x) == 2
    for row, want in zip(x, X, strict=True):
        same(row, want)
    assert operator.index(fnp.array(3)) == 3   # type: ignore[arg-type]  # an Array outside jit has __index__
    assert 7.0 in x
    same(staged(lambda x: sum(row.sum() for row in x), X), X.sum())
    with pytest.raises(TypeError, match="len"):
        staged(lambda x: x * len(x), np.float32(1))


def test_positions_in_types_that_do_not_hold_the_extent():
    x = np.arange(200.0, dtype=np.float32)
    y = fnp.asarray(x)
    for positions in (np.array([-1, 127, -128], np.int8), np.array([3, 255], np.uint8)):
        np.testing.assert_array_equal(np.asarray(y[positions]), x[np.minimum(positions.astype(int), 199)])
        np.testing.assert_array_equal(np.asarray(fnp.take(y, positions, mode="wrap")), x[positions.astype(int) % 200])
        compiled = fungrad.jit(lambda y, i: y[i])(y, positions)
        np.testing.assert_array_equal(np.asarray(compiled), np.asarray(y[positions]))
    far = np.array([2**64 - 1, 1], np.uint64)
    np.testing.assert_array_equal(np.asarray(y[far]), [199, 1])   # clamped, as other positions beyond the end
    np.testing.assert_array_equal(np.asarray(y.at[far].set(7.0))[:2], [0, 7])

"""vmap: against stacking the calls, in every position of axes, and what it says of wrong ones."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fungrad
import fungrad.numpy as fnp
from fungrad.errors import ShapeError, TreeError


def near(got, want, tolerance=1e-5):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@settings(max_examples=20)
@given(st.integers(0, 2), st.integers(-3, 1) | st.none(), st.integers(0, 2), st.integers(0, 3))
def test_axes(x_axis, y_axis, out_axis, size):
    rng = np.random.default_rng(0)
    x = np.moveaxis(rng.standard_normal((size, 2, 3)).astype("float32"), 0, x_axis)
    y = rng.standard_normal((3, 4)).astype("float32") if y_axis is None else \
        np.moveaxis(rng.standard_normal((size, 3, 4)).astype("float32"), 0, y_axis)
    got = fungrad.vmap(lambda a, b: a @ b, in_axes=(x_axis, y_axis), out_axes=out_axis)(fnp.asarray(x), fnp.asarray(y))
    rows = [np.take(x, i, x_axis) @ (y if y_axis is None else np.take(y, i, y_axis)) for i in range(size)]
    near(got, np.stack(rows, out_axis) if size else np.moveaxis(np.zeros((0, 2, 4)), 0, out_axis))


def test_trees_of_axes():
    x = fnp.arange(6.0).reshape(2, 3)
    got = fungrad.vmap(lambda t, s: {"r": t["k"].sum() * s, "t": t["c"]}, in_axes=({"k": 0, "c": None}, None),
                       out_axes={"r": 0, "t": None})({"k": x, "c": fnp.ones(2)}, 2.0)
    near(got["r"], [6, 24])
    near(got["t"], np.ones(2))


def test_nested_maps_and_other_transforms():
    x = fnp.arange(12.0).reshape(3, 4)
    near(fungrad.vmap(fungrad.vmap(lambda a: a * a))(x), np.arange(12.0).reshape(3, 4) ** 2)
    near(fungrad.vmap(fungrad.grad(lambda a: (a ** 3).sum()))(x), 3 * np.arange(12.0).reshape(3, 4) ** 2)
    near(fungrad.grad(lambda x: fungrad.vmap(fnp.sin)(x).sum())(x), np.cos(np.arange(12.0)).reshape(3, 4))
    near(fungrad.jit(fungrad.vmap(fungrad.jit(lambda a: a + 1)))(x), np.arange(12.0).reshape(3, 4) + 1)


def test_an_unmapped_result_is_repeated():
    near(fungrad.vmap(lambda x: fnp.ones(2))(fnp.zeros(3)), np.ones((3, 2)))
    near(fungrad.vmap(lambda x: fnp.ones(2), out_axes=1)(fnp.zeros(3)), np.ones((2, 3)))


def test_axis_size():
    near(fungrad.vmap(lambda: fnp.ones(2), axis_size=3)(), np.ones((3, 2)))


@pytest.mark.parametrize("call, error, words", [
    (lambda: fungrad.vmap(lambda x, y: x)(fnp.ones(3), fnp.ones(4)), ShapeError, "x has 3.*y has 4"),
    (lambda: fungrad.vmap(lambda x: x)(1.0), ShapeError, "x.*in_axes"),
    (lambda: fungrad.vmap(lambda x: x, in_axes=(0, 0))(fnp.ones(3)), TreeError, "2 entries"),
    (lambda: fungrad.vmap(lambda x: x, in_axes=2)(fnp.ones((3, 2))), ShapeError, "axis 2"),
    (lambda: fungrad.vmap(lambda x: x, in_axes=None)(fnp.ones(3)), ShapeError, "no argument is mapped"),
    (lambda: fungrad.vmap(lambda x: x, out_axes=None)(fnp.ones(3)), ShapeError, "out_axes"),
    (lambda: fungrad.vmap(lambda x: x, in_axes="a")(fnp.ones(3)), TypeError, "integers and None"),
    (lambda: fungrad.vmap(lambda t: t["a"], in_axes=({"b": 0},))({"a": fnp.ones(3)}), TreeError, "in_axes"),
])
def test_wrong_axes(call, error, words):
    with pytest.raises(error, match=words):
        call()

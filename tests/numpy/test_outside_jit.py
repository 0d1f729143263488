"""The front end on concrete arrays under the lazy base trace, and through jit, grad and vmap."""
from __future__ import annotations

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad.ir.value import Value
from fungrad.trace import active
from tests.numpy.support import near, same

X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")


@pytest.fixture(autouse=True)
def base_trace(eager_operations):
    with active(None):
        yield


def test_windows_at_static_places():
    x = fnp.array(X)
    for i in range(-3, 3):
        same(x[i], X[i])
    for i in range(3):
        same(x[:, i:i + 2], X[:, i:i + 2])
    same(x[1:2, 2], X[1:2, 2])
    same(x[::-1, ::2], X[::-1, ::2])


def test_python_conversions():
    x = fnp.array(X)
    assert float(x[0, 0]) == X[0, 0] and bool(x[0, 0] == X[0, 0]) and int(fnp.argmax(x)) == X.argmax()
    assert [float(v) for v in x[0]] == X[0].tolist()
    assert (x.sum() > -1e9) and not (x.max() > 1e9)
    assert x.shape == np.asarray(x).shape and x.tolist() == X.tolist()
    assert f"{fnp.array(1.5):.2f}" == "1.50"


def test_copies_do_not_share_memory():
    x = fnp.array(X)
    assert np.asarray(fnp.copy(x)).ctypes.data != np.asarray(x).ctypes.data
    assert np.asarray(fnp.array(x)).ctypes.data != np.asarray(x).ctypes.data
    assert fnp.asarray(x) is x


def test_masks_of_concrete_arrays():
    x = fnp.array(X)
    same(x[x > 0], X[X > 0])
    same(x[fnp.nonzero(x > 1)], X[np.nonzero(X > 1)])
    same(fnp.unique(fnp.sign(x)), np.unique(np.sign(X)))


def test_weak_arguments_of_jitted_functions():
    for name in ("float16", "bfloat16", "float32", "float64"):
        x = fnp.array(X).astype(name)
        f = lambda x, s, n: (x * s + n) ** 2 / (s * n + 1)
        assert fungrad.jit(f)(x, 2.5, 3).dtype == x.dtype == f(x, 2.5, 3).dtype
    assert fungrad.jit(lambda x, s: x * s)(fnp.arange(3, dtype="int8"), 2).dtype == np.int8


def test_transforms_of_indexing():
    x = fnp.array(X)
    index = fnp.array([[0, 2], [1, 1], [3, 0]])
    near(fungrad.vmap(lambda row, i: row[i])(x, index), np.take_along_axis(X, np.asarray(index), 1))
    near(fungrad.vmap(lambda row, i: row[i], in_axes=(0, None))(x, index[0]), X[:, [0, 2]])
    near(fungrad.vmap(lambda row, i: row.at[i[0]].set(0.0))(x, index),
         np.where(np.arange(4) == np.asarray(index)[:, :1], 0, X))
    got = fungrad.jit(fungrad.grad(lambda x: (x[np.array([0, 0, 1])] ** 2).sum()))(x)
    near(got, 2 * X * np.array([[2], [1], [0]]))
    got = fungrad.grad(lambda x: (x.at[1:, ::2].multiply(3.0) ** 2).sum())(x)
    factor = np.ones_like(X)
    factor[1:, ::2] = 9
    near(got, 2 * X * factor)


def test_plain_grad_may_look_at_values():
    def f(x):
        assert isinstance(x[x > 0], Value)
        return x[x > 0].sum() if x[0, 0] > 0 else -x[x > 0].sum()
    near(fungrad.grad(f)(fnp.array(X)), np.where(X > 0, 1.0, 0.0) * (1 if X[0, 0] > 0 else -1))

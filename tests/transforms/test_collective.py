"""Collectives over the named axis of a vmap: values, gradients from outside and inside, and errors."""
import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import lax
from fungrad.errors import ShapeError

X = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")


def near(got, want, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tolerance,
                               atol=tolerance)


def over(f, *args, **options):
    return fungrad.vmap(f, axis_name="i", **options)(*map(fnp.asarray, args))


@pytest.mark.parametrize("wrap", [lambda f: f, fungrad.jit], ids=["plain", "jit"])
def test_reductions(wrap):
    near(over(wrap(lambda v: lax.psum(v, "i")), X), np.broadcast_to(X.sum(0), X.shape), 1e-5)
    near(over(wrap(lambda v: lax.pmean(v, "i")), X), np.broadcast_to(X.mean(0), X.shape))
    near(over(wrap(lambda v: lax.pmax(v, "i")), X), np.broadcast_to(X.max(0), X.shape))
    near(over(wrap(lambda v: lax.pmin(v, "i")), X), np.broadcast_to(X.min(0), X.shape))
    near(over(wrap(lambda v: v + lax.psum(1, "i")), X), X + 4)
    near(over(wrap(lambda v: v + lax.psum(fnp.ones(3), "i")), X), X + 4)


def test_lanes_and_permutations():
    near(over(lambda v: v * 0 + lax.axis_index("i"), X), np.broadcast_to(np.arange(4)[:, None], X.shape))
    assert over(lambda v: v + lax.axis_size("i"), X).shape == X.shape
    near(over(lambda v: lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 0)]), X), np.stack([X[2], X[0], X[1], 0 * X[3]]))
    near(over(lambda v: lax.pshuffle(v, "i", [3, 2, 1, 0]), X), X[::-1])


def test_gathering_and_exchanging():
    near(over(lambda v: lax.all_gather(v, "i"), X), np.broadcast_to(X, (4, 4, 3)))
    near(over(lambda v: lax.all_gather(v, "i", axis=1), X), np.broadcast_to(X.T, (4, 3, 4)))
    near(over(lambda v: lax.all_gather(v, "i", tiled=True), X), np.broadcast_to(X.reshape(-1), (4, 12)))
    y = np.arange(4 * 4 * 2, dtype="float32").reshape(4, 4, 2)
    near(over(lambda v: lax.all_to_all(v, "i", 0, 0), y), y.transpose(1, 0, 2))
    near(over(lambda v: lax.all_to_all(v, "i", 0, 1), y), y.transpose(1, 2, 0))
    z = np.arange(4 * 8 * 2, dtype="float32").reshape(4, 8, 2)
    want = np.stack([np.concatenate([z[i, 2 * j:2 * j + 2] for i in range(4)], 1) for j in range(4)])
    near(over(lambda v: lax.all_to_all(v, "i", 0, 1, tiled=True), z), want)
    near(over(lambda v: lax.psum_scatter(v, "i"), y), y.sum(0))
    near(over(lambda v: lax.psum_scatter(v, "i", tiled=True), z), z.sum(0).reshape(4, 2, 2))


COLLECTIVES = {
    "psum": lambda v: lax.psum(v, "i"), "pmean": lambda v: lax.pmean(v, "i"), "pmax": lambda v: lax.pmax(v, "i"),
    "pmin": lambda v: lax.pmin(v, "i"), "all_gather": lambda v: lax.all_gather(v, "i").sum(0) * v,
    "ppermute": lambda v: lax.ppermute(v, "i", [(0, 1), (1, 2), (3, 0)]),
    "all_to_all": lambda v: lax.all_to_all(fnp.broadcast_to(v, (4, 3)) * v[0], "i", 0, 0).sum(0),
    "psum_scatter": lambda v: lax.psum_scatter(fnp.stack([v, v * v, v, v * v * v]), "i"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_gradients_from_outside_and_inside(name):
    """Of the sum over lanes, so that both are the gradient of one function of all lanes."""
    weights = fnp.asarray(np.random.default_rng(1).standard_normal((4, 3)))
    lane = lambda v, w: (fnp.sin(COLLECTIVES[name](v)) * w).sum()
    whole = lambda x: fungrad.vmap(lane, axis_name="i")(x, weights).sum()
    x, step = X.astype("float64"), 1e-6
    exact = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        e = np.zeros_like(x)
        e[index] = step
        exact[index] = float(whole(fnp.asarray(x + e)) - whole(fnp.asarray(x - e))) / (2 * step)
    near(fungrad.grad(whole)(fnp.asarray(x)), exact, 1e-6)
    near(fungrad.jit(fungrad.vmap(fungrad.grad(lane), axis_name="i"))(fnp.asarray(x), weights), exact, 1e-6)
    direction = fnp.asarray(np.random.default_rng(2).standard_normal(x.shape))
    near(fungrad.jvp(whole, (fnp.asarray(x),), (direction,))[1], (exact * np.asarray(direction)).sum(), 1e-6)


def test_nested_names():
    x = fnp.asarray(np.arange(6.0).reshape(2, 3))
    f = lambda v: lax.psum(v, "a") * 10 + lax.psum(v, "b") + lax.psum(v, ("a", "b"))
    got = fungrad.vmap(fungrad.vmap(f, axis_name="b"), axis_name="a")(x)
    want = np.asarray(x)
    near(got, want.sum(0) * 10 + want.sum(1)[:, None] + want.sum())
    g = lambda v: lax.all_gather(v, "a") + lax.axis_index(("a", "b"))
    got = fungrad.vmap(fungrad.vmap(g, axis_name="b"), axis_name="a")(x)
    near(got, np.broadcast_to(want.T[None], (2, 3, 2)) + np.arange(6).reshape(2, 3, 1))
    exchange = lambda v: lax.all_to_all(v, "a", 0, 0)
    y = np.arange(2 * 3 * 2.0).reshape(2, 3, 2)
    near(fungrad.vmap(fungrad.vmap(exchange, axis_name="b"), axis_name="a")(fnp.asarray(y)), y.transpose(2, 1, 0))


def test_a_jitted_function_is_traced_anew_for_another_size():
    f = fungrad.jit(lambda v: lax.all_gather(v, "i").sum() + lax.axis_size("i"))
    for size in (2, 3):
        near(fungrad.vmap(f, axis_name="i")(fnp.ones(size)), np.full(size, 2.0 * size))


def test_errors():
    with pytest.raises(NameError, match="axis named 'j'"):
        over(lambda v: lax.psum(v, "j"), X)
    with pytest.raises(NameError, match="names: none"):
        lax.psum(fnp.ones(3), "i")
    with pytest.raises(ValueError, match="ppermute"):
        over(lambda v: lax.ppermute(v, "i", [(0, 1), (2, 1)]), X)
    with pytest.raises(ShapeError, match="all_to_all"):
        over(lambda v: lax.all_to_all(v, "i", 0, 0), X)

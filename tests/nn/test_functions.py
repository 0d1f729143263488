"""The functions of jax.nn against closed forms in float64, at the places where they are awkward, and their
derivatives.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import nn, numpy as fnp

POINTS = np.array([-80.0, -7.5, -3.0, -1.5, -1.0, -0.3, -1e-4, 1e-4, 0.25, 1.0, 2.0, 2.9, 5.9, 6.1, 9.0, 70.0])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


REFERENCES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "identity": (nn.identity, lambda x: x),
    "relu": (nn.relu, lambda x: np.maximum(x, 0)),
    "relu6": (nn.relu6, lambda x: np.clip(x, 0, 6)),
    "squareplus": (nn.squareplus, lambda x: (x + np.sqrt(x * x + 4)) / 2),
    "softplus": (nn.softplus, softplus),
    "sparse_plus": (nn.sparse_plus, lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))),
    "sparse_sigmoid": (nn.sparse_sigmoid, lambda x: np.clip((x + 1) / 2, 0, 1)),
    "soft_sign": (nn.soft_sign, lambda x: x / (1 + np.abs(x))),
    "sigmoid": (nn.sigmoid, sigmoid),
    "log_sigmoid": (nn.log_sigmoid, lambda x: -softplus(-x)),
    "silu": (nn.silu, lambda x: x * sigmoid(x)),
    "swish": (nn.swish, lambda x: x * sigmoid(x)),
    "mish": (nn.mish, lambda x: x * np.tanh(softplus(x))),
    "tanh": (nn.tanh, np.tanh),
    "elu": (lambda x: nn.elu(x, 0.7), lambda x: elu(x, 0.7)),
    "celu": (lambda x: nn.celu(x, 0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0) / 0.7))),
    "selu": (nn.selu, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.2), lambda x: np.where(x >= 0, x, 0.2 * x)),
    "hard_tanh": (nn.hard_tanh, lambda x: np.clip(x, -1, 1)),
    "hard_sigmoid": (nn.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "hard_silu": (nn.hard_silu, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hard_swish": (nn.hard_swish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "gelu": (nn.gelu, lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))),
    "gelu exact": (lambda x: nn.gelu(x, approximate=False), lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2)))),
}


def near(got: Any, want: Any, rtol: float = 2e-6, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", REFERENCES)
def test_values_and_slopes(name: str) -> None:
    function, reference = REFERENCES[name]
    x = fnp.asarray(POINTS.astype(np.float32))
    exact = np.asarray(x, np.float64)
    near(function(x), reference(exact), rtol=4e-6, atol=2e-6 if name == "squareplus" else 1e-7)   # it cancels at -80
    slope = fungrad.vmap(fungrad.grad(function))(x)
    step = 1e-6 * np.maximum(np.abs(exact), 1e-3)
    far = np.min(np.abs(exact[:, None] - np.array([-3.0, -1.0, 0.0, 1.0, 3.0, 6.0])), axis=1) > 1e-5  # from every kink
    difference = (reference(exact + step) - reference(exact - step)) / (2 * step)
    near(np.asarray(slope)[far], difference[far], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFERENCES)
def test_types_are_kept(name: str) -> None:
    function, reference = REFERENCES[name]
    for dtype in ("bfloat16", "float16"):
        x = fnp.asarray([-1.5, 0.25, 2.0], dtype=dtype)
        assert function(x).dtype == x.dtype
        near(function(x), reference(np.asarray(x, np.float64)), rtol=4e-2, atol=4e-3)


def test_kinks_and_special_values() -> None:
    assert fungrad.grad(nn.relu)(0.0) == 0 and fungrad.grad(nn.relu6)(0.0) == 0 and fungrad.grad(nn.relu6)(6.0) == 0
    x = fnp.asarray([np.nan, np.inf, -np.inf], dtype="float32")
    np.testing.assert_array_equal(nn.relu(x), [np.nan, np.inf, 0])
    np.testing.assert_array_equal(nn.relu6(x), [np.nan, 6, 0])
    np.testing.assert_array_equal(nn.sigmoid(x), [np.nan, 1, 0])
    np.testing.assert_array_equal(nn.softplus(x), [np.nan, np.inf, 0])
    np.testing.assert_array_equal(nn.elu(x), [np.nan, np.inf, -1])
    assert np.isfinite(fungrad.grad(nn.elu)(200.0)) and np.isfinite(fungrad.grad(nn.celu)(200.0))


def test_integers() -> None:
    x = fnp.asarray([-2, 0, 3, 9])
    assert nn.relu(x).dtype == np.int32 and nn.relu6(x).dtype == np.int32
    np.testing.assert_array_equal(nn.relu6(x), [0, 0, 3, 6])
    near(nn.silu(x), np.array([-2, 0, 3, 9]) * sigmoid(np.array([-2.0, 0, 3, 9])))


def test_log1mexp() -> None:
    x = np.array([1e-6, 0.1, math.log(2), 1.0, 30.0])
    near(nn.log1mexp(fnp.asarray(x, dtype="float32")), np.log(-np.expm1(-x.astype(np.float32).astype(np.float64))))
    slopes = fungrad.vmap(fungrad.grad(nn.log1mexp))(fnp.asarray(x, dtype="float32"))
    near(slopes, 1 / np.expm1(x.astype(np.float32).astype(np.float64)), rtol=2e-5)


def test_glu() -> None:
    x = np.linspace(-2, 3, 24).reshape(2, 6, 2).astype(np.float32)
    near(nn.glu(fnp.asarray(x), axis=1), x[:, :3].astype(np.float64) * sigmoid(x[:, 3:].astype(np.float64)))
    with pytest.raises(ValueError, match=r"halves axis 0 .*\(3, 2\)"):
        nn.glu(fnp.ones((3, 2)), axis=0)


def random_array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 3


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_softmax_family(axis: Any) -> None:
    x = random_array(3, 4, 5)
    wide = x.astype(np.float64)
    total = np.exp(wide).sum(axis, keepdims=True)
    near(nn.softmax(fnp.asarray(x), axis), np.exp(wide) / total)
    near(nn.log_softmax(fnp.asarray(x), axis), wide - np.log(total), rtol=1e-5, atol=1e-6)
    near(nn.logsumexp(fnp.asarray(x), axis, keepdims=True), np.log(total))
    near(nn.logsumexp(fnp.asarray(x), axis), np.log(np.exp(wide).sum(axis)))
    near(nn.logmeanexp(fnp.asarray(x), axis), np.log(np.exp(wide).mean(axis)), atol=1e-6)


def test_softmax_of_large_and_infinite() -> None:
    near(nn.softmax(fnp.asarray([1e30, 1e30, -1e30])), [0.5, 0.5, 0])
    near(nn.softmax(fnp.asarray([-np.inf, 0.0, 0.0])), [0, 0.5, 0.5])
    near(nn.log_softmax(fnp.asarray([1e5, 0.0])), [0, -1e5])
    assert nn.logsumexp(fnp.asarray([-np.inf, -np.inf])) == -np.inf
    assert nn.logsumexp(fnp.asarray([np.inf, 1.0])) == np.inf
    assert nn.logsumexp(fnp.zeros((0,))) == -np.inf


def test_softmax_where() -> None:
    x, where = random_array(4, 6), np.arange(24).reshape(4, 6) % 3 != 0
    weights = np.where(where, np.exp(x.astype(np.float64)), 0)
    expected = weights / weights.sum(-1, keepdims=True)
    near(nn.softmax(fnp.asarray(x), where=where), expected)
    logs = np.asarray(nn.log_softmax(fnp.asarray(x), where=where))
    near(logs[where], np.log(expected[where]), atol=1e-6)
    assert (logs[~where] == -np.inf).all()
    near(nn.logsumexp(fnp.asarray(x), -1, where=where), np.log(weights.sum(-1)))
    near(nn.logmeanexp(fnp.asarray(x), -1, where=where), np.log(weights.sum(-1) / where.sum(-1)), atol=1e-6)
    huge = fnp.asarray(np.where(where, x, 1e30))
    slope = fungrad.grad(lambda x: (nn.softmax(x, where=where) ** 2).sum())(huge)
    assert np.isfinite(np.asarray(slope)).all() and (np.asarray(slope)[~where] == 0).all()


def test_logsumexp_weights_and_sign() -> None:
    a, b = random_array(3, 5), random_array(3, 5, seed=1)
    b[0, 0] = 0
    total = (b * np.exp(a.astype(np.float64))).sum(-1)
    value, sign = nn.logsumexp(fnp.asarray(a), -1, b=b, return_sign=True)
    near(value, np.log(np.abs(total)), rtol=1e-4)
    np.testing.assert_array_equal(sign, np.sign(total))
    plain = np.asarray(nn.logsumexp(fnp.asarray(a), -1, b=b))
    assert (np.isnan(plain) == (total < 0)).all()


def test_softmax_derivative() -> None:
    x, t = random_array(3, 5), random_array(3, 5, seed=1)
    slope = fungrad.grad(lambda x: (nn.softmax(x) * t).sum())(fnp.asarray(x))
    p = np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum(-1, keepdims=True)
    near(slope, p * (t - (p * t).sum(-1, keepdims=True)), rtol=1e-4, atol=1e-6)
    slope = fungrad.grad(lambda x: (nn.log_softmax(x) * t).sum())(fnp.asarray(x))
    near(slope, t - p * t.sum(-1, keepdims=True), rtol=1e-4, atol=1e-5)


def test_standardize() -> None:
    x = random_array(4, 50) + 1000
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    near(nn.standardize(fnp.asarray(x)), expected, rtol=1e-3, atol=1e-3)
    given = nn.standardize(fnp.asarray(x), mean=1000.0, variance=9.0, epsilon=0.0)
    near(given, (wide - 1000) / 3, rtol=1e-5, atol=1e-5)
    where = np.arange(50) < 20
    part = wide[:, :20]
    expected = (wide - part.mean(-1, keepdims=True)) / np.sqrt(part.var(-1, keepdims=True) + 1e-5)
    near(nn.standardize(fnp.asarray(x), where=where), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    x = np.array([[0, 3], [-1, 2]])
    expected = np.moveaxis((x[..., None] == np.arange(3)).astype(np.float32), -1, axis)
    result = nn.one_hot(fnp.asarray(x), 3, axis=axis)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


def test_one_hot_types() -> None:
    result = nn.one_hot(fnp.asarray([0, 255, 3], dtype="uint8"), 300, dtype="int8")
    assert result.shape == (3, 300) and result.dtype == np.int8
    np.testing.assert_array_equal(np.asarray(result).argmax(-1), [0, 255, 3])
    with pytest.raises(TypeError, match="one_hot takes integers, got float32"):
        nn.one_hot(fnp.asarray([0.5]), 3)

"""random_gamma, its derivative and random_poisson: loops against references, and derivatives against definitions."""
from __future__ import annotations

import mpmath
import numpy as np
import pytest

from fungrad.errors import DTypeError, RefusedError
from fungrad.ir.primitive import Zero
from fungrad.ir.types import array_type
from fungrad.ops.samplers import gamma_derivative_p, random_gamma_p, random_poisson_p
from fungrad.trace import active
from tests.ops.eager import EagerTrace, unwrap, wrap
from tests.ops.helpers import check_batch, reference


def keys(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, (2, *shape), np.uint32)


def test_batch():
    a = np.array([0.5, 2.0], np.float32)
    check_batch(random_gamma_p, *keys((2, 2)), a, axes=(0, 0, None), log_space=False)
    check_batch(gamma_derivative_p, a, np.array([[1.0, 2.0], [0.1, 3.0]], np.float32), axes=(None, 1))
    places, rates = np.zeros(2, np.uint32), np.full((2, 2), 3, np.float32)
    check_batch(random_poisson_p, *keys((2, 2)), places, rates, axes=(0, 1, None, 0))


@pytest.mark.parametrize("alpha", [0.3, 1.0, 7.0])
def test_gamma_has_its_mean_and_variance(alpha):
    sample = reference(random_gamma_p, *keys((400,)), np.full(400, alpha), log_space=False)
    assert abs(sample.mean() - alpha) < 4 * np.sqrt(alpha / 400)
    assert 0.5 * alpha < sample.var() < 1.7 * alpha
    logarithm = reference(random_gamma_p, *keys((400,)), np.full(400, alpha), log_space=True)
    np.testing.assert_allclose(np.exp(logarithm), sample, 1e-10)


@pytest.mark.parametrize("rate", [0.7, 12.0, 60.0])
def test_poisson_has_its_mean_and_variance(rate):
    count = reference(random_poisson_p, *keys((400,)), np.zeros(400, np.uint32), np.full(400, rate, np.float32))
    assert abs(count.mean() - rate) < 4 * np.sqrt(rate / 400)
    assert 0.6 * rate < count.var() < 1.5 * rate


def test_odd_rates_end():
    rates = np.array([0.0, -1.0, np.nan, 1e30, np.inf], np.float32)
    counts = reference(random_poisson_p, *keys((5,)), np.zeros(5, np.uint32), rates)
    assert counts[:4].tolist() == [0, -1, -1, 2**31 - 1]


@pytest.mark.parametrize("alpha,sample", [(0.1, 1e-5), (0.5, 0.2), (1.0, 3.0), (5.0, 2.0), (5.0, 20.0), (300.0, 310.0)])
def test_gamma_derivative_keeps_the_place_in_the_distribution(alpha, sample):
    with mpmath.workdps(40):
        a, x = mpmath.mpf(alpha), mpmath.mpf(sample)
        by_alpha = mpmath.diff(lambda a: mpmath.gammainc(a, 0, x, regularized=True), a)
        density = x**(a - 1) * mpmath.exp(-x) / mpmath.gamma(a)
        expected = float(-by_alpha / density)
    found = reference(gamma_derivative_p, np.array(alpha), np.array(sample))
    np.testing.assert_allclose(found, expected, 1e-7)


def test_gamma_derivative_of_large_alpha_and_limits():
    small, large = (reference(gamma_derivative_p, np.array(a), np.array(a * 1.01)) for a in (9999.0, 10001.0))
    np.testing.assert_allclose(small, large, 1e-5)
    odd = reference(gamma_derivative_p, np.array([2.0, 2.0, np.nan]), np.array([0.0, np.inf, 1.0]))
    assert odd[0] == 0 and np.isnan(odd[2])


@pytest.mark.parametrize("log_space", [False, True])
def test_gamma_jvp(log_space):
    words, alpha = keys((3,)), np.array([0.5, 2.0, 9.0])
    with active(EagerTrace()):
        zeros = [Zero(array_type((3,), np.dtype("uint32")))] * 2
        sample, tangent = unwrap(random_gamma_p.jvp([*map(wrap, words), wrap(alpha)], [*zeros, wrap(np.full(3, 2.0))],
                                                    log_space=log_space))
    value = np.exp(sample) if log_space else sample
    expected = 2 * reference(gamma_derivative_p, alpha, value) / (value if log_space else 1)
    np.testing.assert_allclose(tangent, expected, 1e-12)


def test_errors():
    word, alpha = array_type((3,), np.dtype("uint32")), array_type((3,), np.dtype("float16"))
    with pytest.raises(DTypeError, match="float32 or float64"):
        random_gamma_p.type(word, word, alpha, log_space=False)
    with pytest.raises(DTypeError, match="keys must be uint32"):
        random_poisson_p.type(alpha, alpha, word, array_type((3,), np.dtype("float32")))
    with pytest.raises(RefusedError, match="second derivative"):
        gamma_derivative_p.jvp((), ())

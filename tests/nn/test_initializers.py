"""Initializers: shapes, types, moments and bounds."""
from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fungrad import nn, numpy as fnp, random

initializers = nn.initializers
KEY = random.key(3)
FAN_IN, FAN_OUT = 9 * 20, 9 * 50   # of a kernel (3, 3, 20, 50)
AVERAGE = (FAN_IN + FAN_OUT) / 2


@pytest.mark.parametrize(("make", "variance", "bound"), [
    (initializers.lecun_normal, 1 / FAN_IN, 2 / 0.8796),
    (initializers.lecun_uniform, 1 / FAN_IN, math.sqrt(3)),
    (initializers.he_normal, 2 / FAN_IN, 2 / 0.8796),
    (initializers.kaiming_uniform, 2 / FAN_IN, math.sqrt(3)),
    (initializers.glorot_normal, 1 / AVERAGE, 2 / 0.8796),
    (initializers.xavier_uniform, 1 / AVERAGE, math.sqrt(3)),
    (lambda: initializers.variance_scaling(3.0, "fan_out", "normal"), 3 / FAN_OUT, math.inf),
    (lambda: initializers.variance_scaling(1.0, "fan_geo_avg", "uniform"), (FAN_IN * FAN_OUT) ** -0.5, math.sqrt(3)),
])
def test_variance(make: Callable[[], Any], variance: float, bound: float) -> None:
    x = np.asarray(make()(KEY, (3, 3, 20, 50)), np.float64)
    assert x.shape == (3, 3, 20, 50)
    assert abs(x.var() / variance - 1) < 0.06
    assert abs(x.mean()) < 4 * math.sqrt(variance / x.size)
    assert np.abs(x).max() <= bound * math.sqrt(variance) * 1.001


def test_axes() -> None:
    table = np.asarray(initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)(KEY, (1000, 50)))
    assert abs(table.var() * 50 - 1) < 0.05
    batched = np.asarray(initializers.lecun_normal(batch_axis=0)(KEY, (10, 20, 50)))
    assert abs(batched.var() * 20 - 1) < 0.06


def test_plain() -> None:
    np.testing.assert_array_equal(initializers.zeros(KEY, (2, 3)), np.zeros((2, 3)))
    np.testing.assert_array_equal(initializers.ones(KEY, (2,)), [1, 1])
    np.testing.assert_array_equal(initializers.constant(fnp.asarray([1.0, 2.0]))(KEY, (3, 2)), [[1, 2]] * 3)
    x = np.asarray(initializers.uniform(4.0)(KEY, (2000,)))
    assert 0 <= x.min() and x.max() < 4 and abs(x.mean() - 2) < 0.15
    assert abs(np.asarray(initializers.normal(2.0)(KEY, (2000,))).std() - 2) < 0.15
    x = np.asarray(initializers.truncated_normal(2.0, lower=-1.0, upper=0.5)(KEY, (2000,)))
    assert -2 <= x.min() and x.max() <= 1


def test_types() -> None:
    for make in (initializers.zeros, initializers.normal(), initializers.he_uniform(dtype="bfloat16")):
        assert make(KEY, (2, 2), "bfloat16").dtype.name == "bfloat16"
    assert initializers.he_uniform(dtype="bfloat16")(KEY, (2, 2)).dtype.name == "bfloat16"
    assert initializers.he_uniform()(KEY, (2, 2)).dtype == np.float32


def test_errors_and_empty() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\) has no input axis"):
        initializers.he_normal()(KEY, (3,))
    with pytest.raises(ValueError, match="unknown mode 'fan'"):
        initializers.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(ValueError, match="unknown distribution 'gamma'"):
        initializers.variance_scaling(1.0, "fan_in", "gamma")
    assert initializers.lecun_normal()(KEY, (0, 4)).shape == (0, 4)


def test_they_are_values() -> None:
    assert initializers.he_normal() == initializers.he_normal() != initializers.he_uniform()
    assert hash(initializers.normal(2.0)) == hash(initializers.normal(2.0))
    assert repr(initializers.normal(2.0)) == "normal(2.0)"
    copy = pickle.loads(pickle.dumps(initializers.lecun_normal(in_axis=[0, 1])))
    np.testing.assert_array_equal(copy(KEY, (2, 3, 4)), initializers.lecun_normal(in_axis=(0, 1))(KEY, (2, 3, 4)))

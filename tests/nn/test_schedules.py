"""Schedules at their corners, as Optax defines them."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import nn, numpy as fnp


def values(schedule: nn.schedules.Schedule, steps: list[int]) -> np.ndarray:
    """By Python integers; the same must come of traced arrays."""
    by_number = np.array([float(schedule(step)) for step in steps])
    traced = fungrad.jit(fungrad.vmap(lambda count: fnp.asarray(schedule(count), dtype="float32")))(
        fnp.asarray(steps, dtype="int32"))
    np.testing.assert_allclose(traced, by_number, rtol=1e-6, atol=1e-7)
    return by_number


def near(schedule: nn.schedules.Schedule, steps: list[int], expected: Any) -> None:
    np.testing.assert_allclose(values(schedule, steps), expected, rtol=1e-5, atol=1e-7)


def test_constant() -> None:
    near(nn.constant_schedule(0.3), [0, 7], [0.3, 0.3])


def test_linear_and_polynomial() -> None:
    near(nn.linear_schedule(1.0, 0.2, 4, transition_begin=2), [0, 2, 3, 4, 6, 9], [1, 1, 0.8, 0.6, 0.2, 0.2])
    near(nn.polynomial_schedule(1.0, 0.0, 2, 4), [0, 1, 2, 4, 5], [1, 0.5625, 0.25, 0, 0])
    near(nn.linear_schedule(1.0, 0.0, 0), [0, 5], [1, 1])


def test_exponential() -> None:
    near(nn.exponential_decay(1.0, 4, 0.5), [0, 2, 4, 8], [1, math.sqrt(0.5), 0.5, 0.25])
    near(nn.exponential_decay(1.0, 4, 0.5, staircase=True), [0, 3, 4, 7, 8], [1, 1, 0.5, 0.5, 0.25])
    near(nn.exponential_decay(1.0, 4, 0.5, transition_begin=4, end_value=0.3), [0, 4, 8, 12, 20], [1, 1, 0.5, 0.3, 0.3])
    near(nn.exponential_decay(1.0, 1, 2.0, end_value=3.0), [0, 1, 2, 3], [1, 2, 3, 3])
    near(nn.exponential_decay(1.0, 4, 0.0), [0, 9], [1, 1])


def test_cosine() -> None:
    near(nn.cosine_decay_schedule(2.0, 10, alpha=0.1), [0, 5, 10, 20], [2, 1.1, 0.2, 0.2])
    near(nn.cosine_decay_schedule(1.0, 8, exponent=2.0), [2], [(0.5 + math.sqrt(0.125)) ** 2])
    with pytest.raises(ValueError, match="positive number of decay_steps, got 0"):
        nn.cosine_decay_schedule(1.0, 0)


def test_warmup() -> None:
    near(nn.warmup_cosine_decay_schedule(0.0, 1.0, 4, 12, end_value=0.1), [0, 2, 4, 8, 12, 99],
         [0, 0.5, 1, 0.55, 0.1, 0.1])
    near(nn.warmup_constant_schedule(0.0, 1.0, 4), [0, 1, 4, 9], [0, 0.25, 1, 1])
    near(nn.warmup_exponential_decay_schedule(0.0, 1.0, 4, 2, 0.5), [0, 2, 4, 6, 8], [0, 0.5, 1, 0.5, 0.25])


def test_piecewise_and_joined() -> None:
    near(nn.piecewise_constant_schedule(1.0, {6: 0.1, 3: 0.5}), [0, 2, 3, 5, 6, 9], [1, 1, 0.5, 0.5, 0.05, 0.05])
    near(nn.piecewise_constant_schedule(1.0), [0, 9], [1, 1])
    joined = nn.join_schedules([nn.constant_schedule(1.0), nn.linear_schedule(2.0, 0.0, 4)], [3])
    near(joined, [0, 2, 3, 5, 7], [1, 1, 2, 1, 0])
    with pytest.raises(ValueError, match="1 boundaries, got 0"):
        nn.join_schedules([nn.constant_schedule(1.0)] * 2, [])
    with pytest.raises(ValueError, match="not negative"):
        nn.piecewise_constant_schedule(1.0, {2: -1.0})

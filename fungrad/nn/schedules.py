"""Learning-rate schedules, named as in Optax: functions from the step's number (an integer, traced or not) to a
value.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import numpy as fnp
from .functions import Array

Count = Any
Schedule = Callable[[Count], Any]


def constant_schedule(value: float) -> Schedule:
    """`value` at every step."""
    return lambda count: value


def polynomial_schedule(init_value: float, end_value: float, power: float, transition_steps: int,
                        transition_begin: int = 0) -> Schedule:
    """From `init_value` to `end_value` within `transition_steps` from `transition_begin`: (1 - progress)^power."""
    if transition_steps <= 0:
        return constant_schedule(init_value)
    if transition_begin < 0:
        raise ValueError(f"transition_begin={transition_begin} is negative.")

    def schedule(count: Count) -> Array:
        steps = fnp.clip(fnp.asarray(count) - transition_begin, 0, transition_steps)
        return (init_value - end_value) * (1 - steps / transition_steps) ** power + end_value
    return schedule


def linear_schedule(init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """From `init_value` to `end_value` in a straight line within `transition_steps` from `transition_begin`."""
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(init_value: float, transition_steps: int, decay_rate: float, transition_begin: int = 0,
                      staircase: bool = False, end_value: float | None = None) -> Schedule:
    """init_value * decay_rate^(count / transition_steps) from `transition_begin` on, in whole steps if `staircase`.

    `end_value` bounds it: from below if the rate is under 1, from above otherwise. No steps or no rate: constant.
    """
    if transition_steps <= 0 or decay_rate == 0:
        return constant_schedule(init_value)
    if transition_begin < 0:
        raise ValueError(f"transition_begin={transition_begin} is negative.")

    def schedule(count: Count) -> Array:
        steps = fnp.asarray(count) - transition_begin
        exponent = steps / transition_steps
        if staircase:
            exponent = fnp.floor(exponent)
        value = fnp.where(steps <= 0, init_value, init_value * fnp.power(decay_rate, exponent))
        if end_value is None:
            return value
        return fnp.maximum(value, end_value) if decay_rate < 1 else fnp.minimum(value, end_value)
    return schedule


def cosine_decay_schedule(init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0) -> Schedule:
    """From `init_value` to alpha * init_value along half a cosine within `decay_steps`
    (https://arxiv.org/abs/1608.03983).
    """
    if not decay_steps > 0:
        raise ValueError(f"cosine_decay_schedule needs a positive number of decay_steps, got {decay_steps}.")

    def schedule(count: Count) -> Array:
        progress = fnp.minimum(fnp.asarray(count), decay_steps) / decay_steps
        cosine = 0.5 * (1 + fnp.cos(math.pi * progress))
        return init_value * ((1 - alpha) * cosine ** exponent + alpha)
    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Schedules one after another: each counts from the boundary at which it takes over."""
    if len(boundaries) != len(schedules) - 1:
        raise ValueError(f"{len(schedules)} schedules are joined at {len(schedules) - 1} boundaries, "
                         f"got {len(boundaries)}.")

    def schedule(count: Count) -> Array:
        count = fnp.asarray(count)
        value = schedules[0](count)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            value = fnp.where(count < boundary, value, following(count - boundary))
        return value
    return schedule


def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Schedule:
    """A straight line to `peak_value`, which then stays."""
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(init_value: float, peak_value: float, warmup_steps: int, decay_steps: int,
                                 end_value: float = 0.0, exponent: float = 1.0) -> Schedule:
    """A straight line to `peak_value`, then half a cosine to `end_value`; `decay_steps` counts both."""
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), decay], [warmup_steps])


def warmup_exponential_decay_schedule(init_value: float, peak_value: float, warmup_steps: int, transition_steps: int,
                                      decay_rate: float, transition_begin: int = 0, staircase: bool = False,
                                      end_value: float | None = None) -> Schedule:
    """A straight line to `peak_value`, then an exponential decay."""
    decay = exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), decay], [warmup_steps])


def piecewise_constant_schedule(init_value: float,
                                boundaries_and_scales: Mapping[int, float] | None = None) -> Schedule:
    """`init_value`, multiplied by a boundary's scale from that step on."""
    pieces = sorted((boundaries_and_scales or {}).items())
    if any(scale < 0 for _, scale in pieces):
        raise ValueError(f"piecewise_constant_schedule multiplies by scales, which are not negative: {pieces}.")

    def schedule(count: Count) -> Array:
        value: Any = init_value
        for boundary, scale in pieces:
            value = fnp.where(fnp.asarray(count) < boundary, value, scale * value)
        return value
    return schedule

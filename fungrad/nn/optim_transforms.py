"""Gradient transformations, the parts of which `optim.py` makes optimizers, and what combines them.

A GradientTransformation is a pair of pure functions: `init(params) -> state` and `update(updates, state, params) ->
(updates, state)`. States are named tuples of pytrees shaped like the parameters, named as Optax's.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import lax, numpy as fnp, tree
from ..dtypes import float32
from .functions import Array
from .schedules import Schedule

Tree = Any
ScalarOrSchedule = Any   # a number, a scalar array or a Schedule


class GradientTransformation(NamedTuple):
    """`init(params) -> state` and `update(updates, state, params=None) -> (updates, state)`."""
    init: Callable[..., Any]
    update: Callable[..., tuple[Tree, Any]]


class EmptyState(NamedTuple):
    """The state of a transformation without one."""


class TraceState(NamedTuple):
    trace: Tree


class ScaleByAdamState(NamedTuple):
    count: Array
    mu: Tree
    nu: Tree


class ScaleByRmsState(NamedTuple):
    count: Array
    nu: Tree


class ScaleByStddevState(NamedTuple):
    count: Array
    mu: Tree
    nu: Tree


class ScaleByRssState(NamedTuple):
    sum_of_squares: Tree


class ScaleByLionState(NamedTuple):
    mu: Tree


class ScaleByScheduleState(NamedTuple):
    count: Array


class MaskedState(NamedTuple):
    inner_state: Any


class MaskedNode(NamedTuple):
    """Stands in a tree for a leaf that a mask hides: a node without leaves."""


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """params + updates, leaf by leaf, in the parameters' types; None updates change nothing."""
    def add(update: Array | None, param: Array) -> Array:
        return param if update is None else (param + update).astype(param.dtype)
    return tree.map(add, updates, params, is_leaf=lambda update: update is None)


def global_norm(updates: Tree) -> Array:
    """The Euclidean norm of all leaves together."""
    squares = [fnp.sum(leaf * leaf) for leaf in tree.leaves(updates)]
    return fnp.sqrt(sum(squares[1:], squares[0])) if squares else fnp.zeros(())


def _zeros_like(params: Tree) -> Tree:
    return tree.map(fnp.zeros_like, params)


def _first_count() -> Array:
    return fnp.zeros((), np.int32)


def _increment(count: Array) -> Array:
    """count + 1, staying at the greatest integer instead of wrapping."""
    return fnp.where(count < np.iinfo(np.int32).max, count + 1, count)


def _average(old: Tree, new: Tree, decay: float) -> Tree:
    """decay * old + (1 - decay) * new, leaf by leaf."""
    return tree.map(lambda o, n: decay * o + (1 - decay) * n, old, new)


def _average_square(old: Tree, new: Tree, decay: float) -> Tree:
    return tree.map(lambda o, n: decay * o + (1 - decay) * (n * n), old, new)


def _unbiased(average: Tree, decay: float, count: Array) -> Tree:
    """An average that started at zero, divided by the share of it that `count` terms have filled."""
    filled = 1 - fnp.power(fnp.asarray(decay, float32), count)
    return tree.map(lambda a: a / filled.astype(a.dtype), average)


def _stateless(change: Callable[[Array], Array]) -> GradientTransformation:
    return GradientTransformation(lambda params: EmptyState(),
                                  lambda updates, state, params=None: (tree.map(change, updates), state))


def identity() -> GradientTransformation:
    """Updates as they are."""
    return GradientTransformation(lambda params: EmptyState(), lambda updates, state, params=None: (updates, state))


def scale(step_size: Any) -> GradientTransformation:
    """Updates times `step_size`."""
    return _stateless(lambda u: (step_size * u).astype(u.dtype))


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Updates times the schedule's value at the number of updates before this one."""
    def update(updates: Tree, state: ScaleByScheduleState, params: Tree = None) -> tuple[Tree, ScaleByScheduleState]:
        step_size = step_size_fn(state.count)
        scaled = tree.map(lambda u: (step_size * u).astype(u.dtype), updates)
        return scaled, ScaleByScheduleState(_increment(state.count))
    return GradientTransformation(lambda params: ScaleByScheduleState(_first_count()), update)


def scale_by_learning_rate(learning_rate: ScalarOrSchedule, *, flip_sign: bool = True) -> GradientTransformation:
    """Updates times minus the learning rate, a number or a schedule."""
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        schedule: Schedule = learning_rate
        return scale_by_schedule(lambda count: sign * schedule(count))
    return scale(sign * learning_rate)


def scale_by_sign() -> GradientTransformation:
    """The updates' signs."""
    return _stateless(fnp.sign)


def trace(decay: float, nesterov: bool = False) -> GradientTransformation:
    """The sum of past updates that momentum keeps: t = u + decay * t; Nesterov's adds u + decay * t once more."""
    def update(updates: Tree, state: TraceState, params: Tree = None) -> tuple[Tree, TraceState]:
        kept = tree.map(lambda u, t: u + decay * t, updates, state.trace)
        return (tree.map(lambda u, t: u + decay * t, updates, kept) if nesterov else kept), TraceState(kept)
    return GradientTransformation(lambda params: TraceState(_zeros_like(params)), update)


def scale_by_adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0, *,
                  nesterov: bool = False) -> GradientTransformation:
    """m / (sqrt(v + eps_root) + eps) of the unbiased averages of updates and of their squares (Adam)."""
    def update(updates: Tree, state: ScaleByAdamState, params: Tree = None) -> tuple[Tree, ScaleByAdamState]:
        count = _increment(state.count)
        mu, nu = _average(state.mu, updates, b1), _average_square(state.nu, updates, b2)
        if nesterov:
            mean = tree.map(lambda m, u: b1 * m + (1 - b1) * u,
                            _unbiased(mu, b1, _increment(count)), _unbiased(updates, b1, count))
        else:
            mean = _unbiased(mu, b1, count)
        square = _unbiased(nu, b2, count)
        scaled = tree.map(lambda m, v: m / (fnp.sqrt(v + eps_root) + eps), mean, square)
        return scaled, ScaleByAdamState(count, mu, nu)
    return GradientTransformation(
        lambda params: ScaleByAdamState(_first_count(), _zeros_like(params), _zeros_like(params)), update)


def scale_by_adamax(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> GradientTransformation:
    """The unbiased average of updates, divided by a decaying maximum of their magnitudes (Adamax)."""
    def update(updates: Tree, state: ScaleByAdamState, params: Tree = None) -> tuple[Tree, ScaleByAdamState]:
        count = _increment(state.count)
        mu = _average(state.mu, updates, b1)
        nu = tree.map(lambda u, v: fnp.maximum(fnp.abs(u) + eps, b2 * v), updates, state.nu)
        scaled = tree.map(lambda m, v: m / v, _unbiased(mu, b1, count), nu)
        return scaled, ScaleByAdamState(count, mu, nu)
    return GradientTransformation(
        lambda params: ScaleByAdamState(_first_count(), _zeros_like(params), _zeros_like(params)), update)


def _by_root(updates: Tree, square: Tree, eps: float, eps_in_sqrt: bool) -> Tree:
    if eps_in_sqrt:
        return tree.map(lambda u, s: u * lax.rsqrt(s + eps), updates, square)
    return tree.map(lambda u, s: u / (fnp.sqrt(s) + eps), updates, square)


def _full_like(params: Tree, value: float) -> Tree:
    return tree.map(lambda p: fnp.full_like(p, value), params)


def scale_by_rms(decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True,
                 bias_correction: bool = False) -> GradientTransformation:
    """Updates divided by the root of the average of their squares (RMSProp)."""
    def update(updates: Tree, state: ScaleByRmsState, params: Tree = None) -> tuple[Tree, ScaleByRmsState]:
        count = _increment(state.count)
        nu = _average_square(state.nu, updates, decay)
        square = _unbiased(nu, decay, count) if bias_correction else nu
        return _by_root(updates, square, eps, eps_in_sqrt), ScaleByRmsState(count, nu)
    return GradientTransformation(
        lambda params: ScaleByRmsState(_first_count(), _full_like(params, initial_scale)), update)


def scale_by_stddev(decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True,
                    bias_correction: bool = False) -> GradientTransformation:
    """Updates divided by their running standard deviation (centred RMSProp)."""
    def update(updates: Tree, state: ScaleByStddevState, params: Tree = None) -> tuple[Tree, ScaleByStddevState]:
        count = _increment(state.count)
        mu, nu = _average(state.mu, updates, decay), _average_square(state.nu, updates, decay)
        mean, square = (_unbiased(mu, decay, count), _unbiased(nu, decay, count)) if bias_correction else (mu, nu)
        variance = tree.map(lambda m, s: s - m * m, mean, square)
        return _by_root(updates, variance, eps, eps_in_sqrt), ScaleByStddevState(count, mu, nu)
    def init(params: Tree) -> ScaleByStddevState:
        return ScaleByStddevState(_first_count(), _zeros_like(params), _full_like(params, initial_scale))

    return GradientTransformation(init, update)


def scale_by_rss(initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> GradientTransformation:
    """Updates divided by the root of the sum of all their squares (AdaGrad)."""
    def update(updates: Tree, state: ScaleByRssState, params: Tree = None) -> tuple[Tree, ScaleByRssState]:
        total = tree.map(lambda u, t: u * u + t, updates, state.sum_of_squares)
        inverse = tree.map(lambda t: fnp.where(t > 0, lax.rsqrt(t + eps), 0.0), total)
        return tree.map(lambda u, i: i * u, updates, inverse), ScaleByRssState(total)
    return GradientTransformation(lambda params: ScaleByRssState(_full_like(params, initial_accumulator_value)), update)


def scale_by_lion(b1: float = 0.9, b2: float = 0.99) -> GradientTransformation:
    """The sign of an average of updates (Lion)."""
    def update(updates: Tree, state: ScaleByLionState, params: Tree = None) -> tuple[Tree, ScaleByLionState]:
        signs = tree.map(fnp.sign, _average(state.mu, updates, b1))
        return signs, ScaleByLionState(_average(state.mu, updates, b2))
    return GradientTransformation(lambda params: ScaleByLionState(_zeros_like(params)), update)


def clip(max_delta: float) -> GradientTransformation:
    """Every element limited to [-max_delta, max_delta]."""
    return _stateless(lambda u: fnp.clip(u, -max_delta, max_delta))


def clip_by_global_norm(max_norm: float) -> GradientTransformation:
    """All updates shortened together so that their global norm is `max_norm` at most
    (https://arxiv.org/abs/1211.5063).
    """
    def update(updates: Tree, state: EmptyState, params: Tree = None) -> tuple[Tree, EmptyState]:
        norm = global_norm(updates)
        return tree.map(lambda u: fnp.where(norm < max_norm, u, u / norm.astype(u.dtype) * max_norm), updates), state
    return GradientTransformation(lambda params: EmptyState(), update)


def clip_by_block_rms(threshold: float) -> GradientTransformation:
    """Each leaf shortened so that the root of the mean of its squares is `threshold` at most."""
    return _stateless(lambda u: u / fnp.maximum(1.0, fnp.sqrt(fnp.mean(u * u)) / threshold))


def add_decayed_weights(weight_decay: Any = 0.0, mask: Any = None) -> GradientTransformation:
    """Updates plus weight_decay * parameters, for the leaves that `mask` chooses (all without one)."""
    def update(updates: Tree, state: EmptyState, params: Tree = None) -> tuple[Tree, EmptyState]:
        if params is None:
            raise ValueError("add_decayed_weights needs the parameters: call update(updates, state, params).")
        return tree.map(lambda u, p: u + weight_decay * p, updates, params), state
    decay = GradientTransformation(lambda params: EmptyState(), update)
    return decay if mask is None else masked(decay, mask)


def chain(*transforms: GradientTransformation) -> GradientTransformation:
    """Transformations one after another; the state is the tuple of theirs."""
    def init(params: Tree) -> tuple[Any, ...]:
        return tuple(transform.init(params) for transform in transforms)

    def update(updates: Tree, state: tuple[Any, ...], params: Tree = None) -> tuple[Tree, tuple[Any, ...]]:
        if len(state) != len(transforms):
            raise ValueError(f"a chain of {len(transforms)} transformations got a state of {len(state)}: "
                             f"call init(params) of this chain first.")
        states = []
        for transform, own in zip(transforms, state, strict=True):
            updates, own = transform.update(updates, own, params)
            states.append(own)
        return updates, tuple(states)
    return GradientTransformation(init, update)


def _hide(chosen: Tree, values: Tree) -> Tree:
    """`values` with MaskedNode instead of each subtree that the mask (a prefix tree of bools) does not choose."""
    return tree.map(lambda keep, value: value if keep else MaskedNode(), chosen, values)


def masked(inner: GradientTransformation, mask: Any) -> GradientTransformation:
    """`inner` on the leaves that `mask` chooses, a tree of bools or a function of the parameters; others pass
    unchanged.
    """
    def mask_of(values: Tree) -> Tree:
        return mask(values) if callable(mask) else mask

    def init(params: Tree) -> MaskedState:
        return MaskedState(inner.init(_hide(mask_of(params), params)))

    def update(updates: Tree, state: MaskedState, params: Tree = None) -> tuple[Tree, MaskedState]:
        chosen = mask_of(updates)
        shown = None if params is None else _hide(chosen, params)
        changed, inner_state = inner.update(_hide(chosen, updates), state.inner_state, shown)
        merged = tree.map(lambda keep, new, old: new if keep else old, chosen, changed, updates)
        return merged, MaskedState(inner_state)
    return GradientTransformation(init, update)

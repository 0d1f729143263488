"""Optimizers against the papers' recurrences written out in float64, and what combines them."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import nn, numpy as fnp, tree
from fungrad.nn import optim_transforms as parts

STEPS = 5
START = {"w": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": (np.array([0.1, -0.2]), None)}
GRADIENTS = [tree.map(lambda p, s=s: np.sin(7.0 * p + s) * 10.0 ** (s - 2), START) for s in range(STEPS)]

Rule = Iterator[Any]


def follow(optimizer: nn.GradientTransformation, gradients: list[Any] = GRADIENTS, jit: bool = True) -> list[Any]:
    """The parameters after every step."""
    def step(params: Any, state: Any, gradient: Any) -> Any:
        updates, state = optimizer.update(gradient, state, params)
        return nn.apply_updates(params, updates), state
    params = tree.map(lambda p: fnp.asarray(p, dtype="float32"), START)
    state, path = optimizer.init(params), []
    step = fungrad.jit(step) if jit else step
    for gradient in gradients:
        params, state = step(params, state, tree.map(lambda g: fnp.asarray(g, dtype="float32"), gradient))
        path.append(params)
    return path


def expect(rule: Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]) -> list[Any]:
    """Apply a rule (start, gradients) -> path to every leaf."""
    leaves, structure = tree.flatten(START)
    columns = [rule(leaf.astype(np.float64), [tree.leaves(g)[n] for g in GRADIENTS]) for n, leaf in enumerate(leaves)]
    return [tree.unflatten(structure, [column[s] for column in columns]) for s in range(STEPS)]


def near(got: list[Any], want: list[Any], tolerance: float = 2e-5) -> None:
    for a, b in zip(got, want, strict=True):
        for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
            assert x.dtype == np.float32
            np.testing.assert_allclose(np.asarray(x), y, rtol=tolerance, atol=tolerance)


def walk(p: np.ndarray, updates: Iterator[np.ndarray]) -> list[np.ndarray]:
    path = []
    for update in updates:
        p = p + update
        path.append(p)
    return path


@pytest.mark.parametrize(("momentum", "nesterov"), [(None, False), (0.9, False), (0.9, True)])
def test_sgd(momentum: float | None, nesterov: bool) -> None:
    def rule(p: np.ndarray, gradients: list[np.ndarray]) -> list[np.ndarray]:
        def updates() -> Rule:
            t = np.zeros_like(p)
            for g in gradients:
                t = g + (momentum or 0) * t
                yield -0.1 * (g + (momentum or 0) * t if nesterov else t)
        return walk(p, updates())
    near(follow(nn.sgd(0.1, momentum, nesterov)), expect(rule))


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam(nesterov: bool) -> None:
    b1, b2, eps, root = 0.8, 0.95, 1e-3, 1e-4

    def rule(p: np.ndarray, gradients: list[np.ndarray]) -> list[np.ndarray]:
        def updates() -> Rule:
            m = v = np.zeros_like(p)
            for t, g in enumerate(gradients, 1):
                m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
                mean = m / (1 - b1 ** t)
                if nesterov:
                    mean = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1 ** t)
                yield -0.1 * mean / (np.sqrt(v / (1 - b2 ** t) + root) + eps)
        return walk(p, updates())
    near(follow(nn.adam(0.1, b1, b2, eps, root, nesterov=nesterov)), expect(rule))


def test_adam_defaults_step_by_the_learning_rate_first() -> None:
    moved = follow(nn.adam(0.01))[0]
    for before, after, gradient in zip(tree.leaves(START), tree.leaves(moved), tree.leaves(GRADIENTS[0]), strict=True):
        np.testing.assert_allclose(after, before - 0.01 * np.sign(gradient), atol=1e-5)


def test_adamw_decays_what_the_mask_chooses() -> None:
    plain = follow(nn.adam(0.1), GRADIENTS[:1])[0]
    masked = follow(nn.adamw(0.1, weight_decay=0.5, mask={"w": True, "b": False}), GRADIENTS[:1])[0]
    np.testing.assert_allclose(masked["w"], plain["w"] - 0.1 * 0.5 * START["w"], rtol=1e-5)
    np.testing.assert_array_equal(masked["b"][0], plain["b"][0])
    chosen = follow(nn.adamw(0.1, weight_decay=0.5, mask=lambda params: tree.map(lambda p: p.ndim > 1, params)))
    near(chosen, follow(nn.adamw(0.1, weight_decay=0.5, mask={"w": True, "b": (False, None)})), 0)


def test_adamax() -> None:
    def rule(p: np.ndarray, gradients: list[np.ndarray]) -> list[np.ndarray]:
        def updates() -> Rule:
            m = v = np.zeros_like(p)
            for t, g in enumerate(gradients, 1):
                m, v = 0.9 * m + 0.1 * g, np.maximum(np.abs(g) + 1e-8, 0.999 * v)
                yield -0.1 * m / (1 - 0.9 ** t) / v
        return walk(p, updates())
    near(follow(nn.adamax(0.1)), expect(rule))


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("unbiased", [False, True])
def test_rmsprop(centered: bool, inside: bool, unbiased: bool) -> None:
    def rule(p: np.ndarray, gradients: list[np.ndarray]) -> list[np.ndarray]:
        def updates() -> Rule:
            m, v, kept = np.zeros_like(p), np.full_like(p, 0.3), np.zeros_like(p)
            for t, g in enumerate(gradients, 1):
                m, v = 0.9 * m + 0.1 * g, 0.9 * v + 0.1 * g * g
                filled = 1 - 0.9 ** t if unbiased else 1
                spread = v / filled - (m / filled) ** 2 * centered
                kept = 0.5 * kept - 0.1 * g / (np.sqrt(spread + 1e-2) if inside else np.sqrt(spread) + 1e-2)
                yield kept
        return walk(p, updates())
    optimizer = nn.rmsprop(0.1, 0.9, 1e-2, 0.3, inside, centered, momentum=0.5, bias_correction=unbiased)
    near(follow(optimizer), expect(rule), 1e-4)


def test_adagrad() -> None:
    def rule(p: np.ndarray, gradients: list[np.ndarray]) -> list[np.ndarray]:
        def updates() -> Rule:
            total = np.full_like(p, 0.1)
            for g in gradients:
                total = total + g * g
                yield -0.1 * g / np.sqrt(total + 1e-7)
        return walk(p, updates())
    near(follow(nn.adagrad(0.1)), expect(rule))


def test_lion() -> None:
    def rule(p: np.ndarray, gradients: list[np.ndarray]) -> list[np.ndarray]:
        m, path = np.zeros_like(p), []
        for g in gradients:
            p = p - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.02 * p)
            m = 0.99 * m + 0.01 * g
            path.append(p)
        return path
    near(follow(nn.lion(0.1, weight_decay=0.02)), expect(rule))


def test_sign_sgd() -> None:
    near(follow(nn.sign_sgd(0.1)), expect(lambda p, gradients: walk(p, (-0.1 * np.sign(g) for g in gradients))))


def test_schedule_counts_from_zero() -> None:
    rates = [0.3, 0.2, 0.1, 0.0, 0.0]
    near(follow(nn.sgd(nn.linear_schedule(0.3, 0.0, 3))),
         expect(lambda p, gradients: walk(p, (-r * g for r, g in zip(rates, gradients, strict=True)))))


def test_unjitted_is_the_same() -> None:
    near(follow(nn.adam(0.1), jit=False), follow(nn.adam(0.1)), 1e-6)


def update(transform: nn.GradientTransformation, updates: Any, params: Any = None) -> Any:
    return transform.update(updates, transform.init(updates if params is None else params), params)[0]


def test_clipping() -> None:
    updates = {"a": fnp.asarray([3.0, -4.0]), "b": fnp.asarray([[12.0]])}
    assert nn.global_norm(updates) == 13.0
    np.testing.assert_allclose(update(nn.clip_by_global_norm(1.3), updates)["a"], [0.3, -0.4], rtol=1e-6)
    np.testing.assert_array_equal(update(nn.clip_by_global_norm(20.0), updates)["b"], [[12.0]])
    np.testing.assert_array_equal(update(nn.clip(3.5), updates)["a"], [3.0, -3.5])
    np.testing.assert_allclose(update(nn.clip_by_block_rms(6.0), updates)["b"], [[6.0]])
    np.testing.assert_array_equal(update(nn.clip_by_block_rms(6.0), updates)["a"], [3.0, -4.0])
    zeros = update(nn.clip_by_global_norm(1.0), {"a": fnp.zeros(3)})
    np.testing.assert_array_equal(zeros["a"], np.zeros(3))
    assert nn.global_norm({}) == 0


def test_chain_and_masked() -> None:
    updates = {"a": fnp.ones(2), "b": fnp.ones(2)}
    transform = nn.chain(nn.scale(3.0), nn.masked(nn.scale(-1.0), {"a": True, "b": False}))
    changed = update(transform, updates)
    np.testing.assert_array_equal(changed["a"], [-3, -3])
    np.testing.assert_array_equal(changed["b"], [3, 3])
    with pytest.raises(ValueError, match="chain of 2 transformations got a state of 1"):
        transform.update(updates, transform.init(updates)[:1])


def test_masked_states_hold_what_is_chosen_only() -> None:
    params = {"a": fnp.ones(2), "b": {"c": fnp.ones(3), "d": fnp.ones(4)}}
    state = nn.masked(nn.adam(0.1), {"a": False, "b": True}).init(params)
    assert [leaf.shape for leaf in tree.leaves(state)] == [(), (3,), (4,), (3,), (4,)]


def test_weight_decay_needs_parameters() -> None:
    transform = nn.add_decayed_weights(0.1)
    with pytest.raises(ValueError, match="needs the parameters"):
        transform.update(fnp.ones(2), transform.init(fnp.ones(2)))


def test_types_are_kept() -> None:
    params = fnp.ones(3, dtype="bfloat16")
    for optimizer in (nn.sgd(0.1, 0.9), nn.adam(nn.linear_schedule(0.1, 0.0, 3)), nn.rmsprop(0.1), nn.lion(0.1)):
        updates, state = optimizer.update(params * 0.5, optimizer.init(params), params)
        assert nn.apply_updates(params, updates).dtype == params.dtype
        assert all(leaf.dtype in (params.dtype, np.int32) for leaf in tree.leaves(state))


def test_updates_of_none_change_nothing() -> None:
    params = {"a": fnp.ones(2), "b": fnp.ones(3)}
    changed = nn.apply_updates(params, {"a": None, "b": fnp.ones(3)})
    np.testing.assert_array_equal(changed["a"], [1, 1])
    np.testing.assert_array_equal(changed["b"], [2, 2, 2])


def test_count_stays_at_the_greatest_integer() -> None:
    state = parts.ScaleByScheduleState(fnp.asarray(np.iinfo(np.int32).max, dtype="int32"))
    transform = parts.scale_by_schedule(lambda count: 1.0)
    assert int(transform.update(fnp.ones(1), state)[1].count) == np.iinfo(np.int32).max

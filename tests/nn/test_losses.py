"""Losses against their formulas in float64, their derivatives where they matter, and their refusals."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import nn, numpy as fnp

GENERATOR = np.random.default_rng(0)
P = (GENERATOR.normal(size=(4, 5)) * 2).astype(np.float32)
T = (GENERATOR.normal(size=(4, 5)) * 2).astype(np.float32)
P64, T64 = P.astype(np.float64), T.astype(np.float64)
LABELS = np.array([3, 0, 4, 1], np.int32)


def near(got: Any, want: Any, tolerance: float = 3e-6) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_regression() -> None:
    error = np.abs(P64 - T64)
    near(nn.squared_error(P, T), error ** 2)
    near(nn.l2_loss(P, T), error ** 2 / 2)
    near(nn.l2_loss(P), P64 ** 2 / 2)
    near(nn.huber_loss(P, T, 0.7), np.where(error <= 0.7, error ** 2 / 2, 0.7 * (error - 0.35)))
    near(nn.log_cosh(P, T), np.log(np.cosh(error)))
    near(nn.log_cosh(fnp.asarray([300.0])), [300 - np.log(2)])


def test_binary() -> None:
    labels = (T > 0).astype(np.float32)
    probability = 1 / (1 + np.exp(-P64))
    entropy = -labels * np.log(probability) - (1 - labels) * np.log(1 - probability)
    near(nn.sigmoid_binary_cross_entropy(P, labels), entropy)
    near(nn.sigmoid_binary_cross_entropy(P, labels.astype(bool)), entropy)
    near(nn.sigmoid_binary_cross_entropy(fnp.asarray([-500.0, 500.0]), fnp.asarray([1, 1])), [500, 0])
    of_label = np.where(labels == 1, probability, 1 - probability)
    weight = np.where(labels == 1, 0.25, 0.75)
    near(nn.sigmoid_focal_loss(P, labels, alpha=0.25, gamma=3.0), weight * (1 - of_label) ** 3 * entropy, 1e-5)
    near(nn.hinge_loss(P, np.sign(T)), np.maximum(0, 1 - P64 * np.sign(T)))


def test_cross_entropy() -> None:
    probabilities = np.exp(log_softmax(T64))
    near(nn.softmax_cross_entropy(P, probabilities.astype(np.float32)), -(probabilities * log_softmax(P64)).sum(-1))
    near(nn.softmax_cross_entropy(P.T, probabilities.T.astype(np.float32), axis=0),
         -(probabilities * log_softmax(P64)).sum(-1))
    where = np.arange(20).reshape(4, 5) % 4 != 0
    weights = np.where(where, np.exp(P64), 0)
    logs = np.where(where, P64 - np.log(weights.sum(-1, keepdims=True)), 0)
    near(nn.softmax_cross_entropy(P, probabilities.astype(np.float32), where=where),
         -(probabilities * logs).sum(-1), 1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_cross_entropy_with_integer_labels(dtype: Any) -> None:
    expected = -log_softmax(P64)[np.arange(4), LABELS]
    near(nn.softmax_cross_entropy_with_integer_labels(P, LABELS.astype(dtype)), expected)
    near(nn.softmax_cross_entropy_with_integer_labels(P.T, LABELS.astype(dtype), axis=0), expected)
    slope = fungrad.grad(lambda p: nn.softmax_cross_entropy_with_integer_labels(p, LABELS.astype(dtype)).sum())(P)
    near(slope, np.exp(log_softmax(P64)) - np.eye(5)[LABELS])


def test_labels_that_are_no_class() -> None:
    labels = np.array([-1, 0, 5, 2], np.int32)
    loss = np.asarray(nn.softmax_cross_entropy_with_integer_labels(P, labels))
    assert (np.isnan(loss) == [True, False, True, False]).all()
    valid = fnp.asarray((labels >= 0) & (labels < 5))
    slope = fungrad.grad(lambda p: fnp.where(
        valid, nn.softmax_cross_entropy_with_integer_labels(p, labels), 0).sum())(fnp.asarray(P))
    assert np.isfinite(np.asarray(slope)).all() and (np.asarray(slope)[[0, 2]] == 0).all()


def test_extreme_logits() -> None:
    logits = fnp.asarray([[1e4, 0.0], [0.0, 1e4]])
    near(nn.softmax_cross_entropy_with_integer_labels(logits, fnp.asarray([0, 0])), [0, 1e4])


def test_cosine() -> None:
    expected = (P64 * T64).sum(-1) / np.linalg.norm(P64, axis=-1) / np.linalg.norm(T64, axis=-1)
    near(nn.cosine_similarity(P, T), expected)
    near(nn.cosine_distance(P, T, axis=0),
         1 - (P64 * T64).sum(0) / np.linalg.norm(P64, axis=0) / np.linalg.norm(T64, axis=0))
    slope = fungrad.grad(lambda p: nn.cosine_similarity(p, T, epsilon=1e-3).sum())(fnp.zeros((4, 5)))
    assert np.isfinite(np.asarray(slope)).all()


def test_divergence() -> None:
    targets = np.exp(log_softmax(T64))
    targets[:, 0] = 0
    logs = np.log(np.where(targets > 0, targets, 1))
    near(nn.kl_divergence(log_softmax(P64).astype(np.float32), targets.astype(np.float32)),
         (targets * (logs - log_softmax(P64))).sum(-1), 1e-5)
    near(nn.kl_divergence_with_log_targets(log_softmax(P64).astype(np.float32), log_softmax(T64).astype(np.float32)),
         (np.exp(log_softmax(T64)) * (log_softmax(T64) - log_softmax(P64))).sum(-1), 1e-5)
    slope = fungrad.grad(lambda t: nn.kl_divergence(log_softmax(P64).astype(np.float32), t).sum())(
        fnp.asarray(targets.astype(np.float32)))
    assert np.isfinite(np.asarray(slope)).all()


def test_smooth_labels() -> None:
    near(nn.smooth_labels(fnp.asarray(np.eye(4, dtype=np.float32)), 0.2), 0.8 * np.eye(4) + 0.05)


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"\(4, 5\) and targets of shape \(4, 1\)"):
        nn.l2_loss(P, T[:, :1])
    with pytest.raises(TypeError, match="floating predictions, got int32"):
        nn.l2_loss(fnp.asarray([1, 2]))
    with pytest.raises(TypeError, match="integer labels, got float32"):
        nn.softmax_cross_entropy_with_integer_labels(P, LABELS.astype(np.float32))
    with pytest.raises(ValueError, match=r"need labels of shape \(4,\), got \(4, 1\)"):
        nn.softmax_cross_entropy_with_integer_labels(P, LABELS[:, None])

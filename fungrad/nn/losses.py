"""Losses by example, named as in Optax: each gives one value per example, to be averaged by the caller."""
from __future__ import annotations

import math

import numpy as np

from .. import numpy as fnp
from ..dtypes import is_float
from ..errors import DTypeError, ShapeError
from .functions import Array, ArrayLike, Axis, log_sigmoid, log_softmax, logsumexp, sigmoid


def _pair(name: str, predictions: ArrayLike, targets: ArrayLike | None) -> tuple[Array, Array | None]:
    """Both as arrays; ShapeError if their shapes differ, so that no accidental broadcast makes a matrix of losses."""
    predictions = fnp.asarray(predictions)
    if not is_float(predictions.dtype):
        raise DTypeError(f"{name} takes floating predictions, got {predictions.dtype}.")
    if targets is None:
        return predictions, None
    targets = fnp.asarray(targets)
    if predictions.shape != targets.shape:
        raise ShapeError(f"{name}: predictions of shape {predictions.shape} and targets of shape {targets.shape}. "
                         f"Reshape one to the other's shape.")
    return predictions, targets


def _errors(name: str, predictions: ArrayLike, targets: ArrayLike | None) -> Array:
    predictions, targets = _pair(name, predictions, targets)
    return predictions if targets is None else predictions - targets


def squared_error(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """(predictions - targets)^2, elementwise; missing targets are zeros."""
    errors = _errors("squared_error", predictions, targets)
    return errors * errors


def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Half the squared error, elementwise."""
    return 0.5 * squared_error(predictions, targets)


def huber_loss(predictions: ArrayLike, targets: ArrayLike | None = None, delta: float = 1.0) -> Array:
    """Half the squared error up to an error of `delta`, linear beyond (Huber, 1964), elementwise."""
    errors = fnp.abs(_errors("huber_loss", predictions, targets))
    quadratic = fnp.minimum(errors, delta)
    return 0.5 * quadratic * quadratic + delta * (errors - quadratic)


def log_cosh(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """log(cosh(predictions - targets)), elementwise, without overflow."""
    errors = _errors("log_cosh", predictions, targets)
    return fnp.logaddexp(errors, -errors) - math.log(2.0)


def hinge_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Array:
    """max(0, 1 - outputs * targets) for targets -1 and 1, elementwise."""
    outputs, targets = _pair("hinge_loss", predictor_outputs, targets)
    return fnp.maximum(0, 1 - outputs * targets)


def sigmoid_binary_cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Array:
    """The cross entropy of independent binary labels (or probabilities), elementwise; the two shapes broadcast."""
    logits, labels = fnp.asarray(logits), fnp.asarray(labels)
    labels = labels.astype(logits.dtype)
    return -labels * log_sigmoid(logits) - (1.0 - labels) * log_sigmoid(-logits)


def sigmoid_focal_loss(logits: ArrayLike, labels: ArrayLike, alpha: float | None = None, gamma: float = 2.0) -> Array:
    """The binary cross entropy times (1 - probability of the label)^gamma (https://arxiv.org/abs/1708.02002)."""
    logits, labels = fnp.asarray(logits), fnp.asarray(labels)
    labels = labels.astype(logits.dtype)
    probability = sigmoid(logits)
    of_label = probability * labels + (1 - probability) * (1 - labels)
    loss = sigmoid_binary_cross_entropy(logits, labels) * (1 - of_label) ** gamma
    return loss if alpha is None else (alpha * labels + (1 - alpha) * (1 - labels)) * loss


def softmax_cross_entropy(logits: ArrayLike, labels: ArrayLike, axis: Axis = -1,
                          where: ArrayLike | None = None) -> Array:
    """-sum(labels * log_softmax(logits)) over `axis`, which disappears; `labels` are probabilities of each class."""
    logits, labels = fnp.asarray(logits), fnp.asarray(labels)
    logs = log_softmax(logits, axis, where)
    if where is not None:
        logs = fnp.where(where, logs, 0)
    return -fnp.sum(labels * logs, axis)


def softmax_cross_entropy_with_integer_labels(logits: ArrayLike, labels: ArrayLike, axis: int = -1) -> Array:
    """-log_softmax(logits)[label] with `axis`, of the classes, gone from the shape; NaN for a label that is no class.

    The label's logit is picked by comparing class numbers, not by an indexed read: its derivative is then elementwise
    and fuses with the softmax instead of becoming a scatter.
    """
    logits, labels = fnp.asarray(logits), fnp.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"softmax_cross_entropy_with_integer_labels takes integer labels, got {labels.dtype}. "
                         f"For probabilities use softmax_cross_entropy.")
    axis = axis + logits.ndim if axis < 0 else axis
    expected = logits.shape[:axis] + logits.shape[axis + 1:]
    if labels.shape != expected:
        raise ShapeError(f"logits of shape {logits.shape} with classes in axis {axis} need labels of shape {expected}, "
                         f"got {labels.shape}.")
    classes = logits.shape[axis]
    labels = labels.astype(np.int64 if labels.dtype.itemsize > 4 else np.int32)
    numbers = fnp.reshape(fnp.arange(classes, dtype=labels.dtype), (classes,) + (1,) * (logits.ndim - 1 - axis))
    picked = fnp.sum(fnp.where(fnp.expand_dims(labels, axis) == numbers, logits, 0), axis)
    picked = fnp.where((labels >= 0) & (labels < classes), picked, np.nan)
    return logsumexp(logits, axis) - picked


def cosine_similarity(predictions: ArrayLike, targets: ArrayLike, axis: int = -1, epsilon: float = 0.0) -> Array:
    """The cosine of the angle between the vectors along `axis`, whose lengths count as `epsilon` at least."""
    predictions, targets = _pair("cosine_similarity", predictions, targets)

    def unit(x: Array) -> Array:
        square = fnp.sum(x * x, axis, keepdims=True)
        short = square <= epsilon * epsilon
        return x / fnp.where(short, epsilon, fnp.sqrt(fnp.where(short, 1.0, square)))
    return fnp.sum(unit(predictions) * unit(targets), axis)


def cosine_distance(predictions: ArrayLike, targets: ArrayLike, axis: int = -1, epsilon: float = 0.0) -> Array:
    """1 - cosine_similarity."""
    return 1.0 - cosine_similarity(predictions, targets, axis, epsilon)


def kl_divergence(log_predictions: ArrayLike, targets: ArrayLike, axis: Axis = -1) -> Array:
    """sum(targets * (log(targets) - log_predictions)) over `axis`; a target of 0 adds 0."""
    log_predictions, targets = _pair("kl_divergence", log_predictions, targets)
    logs = fnp.where(targets == 0, 0, fnp.log(fnp.where(targets == 0, 1, targets)))
    return fnp.sum(targets * (logs - log_predictions), axis)


def kl_divergence_with_log_targets(log_predictions: ArrayLike, log_targets: ArrayLike, axis: Axis = -1) -> Array:
    """sum(exp(log_targets) * (log_targets - log_predictions)) over `axis`."""
    log_predictions, log_targets = _pair("kl_divergence_with_log_targets", log_predictions, log_targets)
    return fnp.sum(fnp.exp(log_targets) * (log_targets - log_predictions), axis)


def smooth_labels(labels: ArrayLike, alpha: float) -> Array:
    """(1 - alpha) * labels + alpha / classes, with the classes in the last axis (https://arxiv.org/abs/1512.00567)."""
    probabilities: Array = fnp.asarray(labels)
    return (1.0 - alpha) * probabilities + alpha / probabilities.shape[-1]

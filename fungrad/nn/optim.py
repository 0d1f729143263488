"""Optimizers in Optax's manner: pairs of pure functions over pytrees, made of smaller such pairs.

    optimizer = adam(1e-3)
    state = optimizer.init(params)
    updates, state = optimizer.update(gradients, state, params)
    params = apply_updates(params, updates)

`optim_transforms.py` has the parts; names, argument order and arithmetic are Optax's.
"""
from __future__ import annotations

from typing import Any

from .optim_transforms import (
    GradientTransformation,
    ScalarOrSchedule,
    add_decayed_weights,
    chain,
    identity,
    scale_by_adam,
    scale_by_adamax,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    scale_by_sign,
    scale_by_stddev,
    trace,
)


def sgd(learning_rate: ScalarOrSchedule, momentum: float | None = None,
        nesterov: bool = False) -> GradientTransformation:
    """Gradient descent, with momentum (Polyak, 1964) or Nesterov's variant of it (Sutskever et al., 2013)."""
    first = identity() if momentum is None else trace(momentum, nesterov)
    return chain(first, scale_by_learning_rate(learning_rate))


def adam(learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
         *, nesterov: bool = False) -> GradientTransformation:
    """Adam (https://arxiv.org/abs/1412.6980)."""
    return chain(scale_by_adam(b1, b2, eps, eps_root, nesterov=nesterov), scale_by_learning_rate(learning_rate))


def nadam(learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
          eps_root: float = 0.0) -> GradientTransformation:
    """Adam with Nesterov momentum (Dozat, 2016)."""
    return adam(learning_rate, b1, b2, eps, eps_root, nesterov=True)


def adamw(learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
          weight_decay: float = 1e-4, mask: Any = None, *, nesterov: bool = False) -> GradientTransformation:
    """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101), of the leaves that `mask` chooses."""
    return chain(scale_by_adam(b1, b2, eps, eps_root, nesterov=nesterov), add_decayed_weights(weight_decay, mask),
                 scale_by_learning_rate(learning_rate))


def adamax(learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999,
           eps: float = 1e-8) -> GradientTransformation:
    """Adam by the infinity norm (https://arxiv.org/abs/1412.6980)."""
    return chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))


def rmsprop(learning_rate: ScalarOrSchedule, decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0,
            eps_in_sqrt: bool = True, centered: bool = False, momentum: float | None = None, nesterov: bool = False,
            bias_correction: bool = False) -> GradientTransformation:
    """RMSProp (Tieleman and Hinton, 2012); `centered` divides by the standard deviation. Momentum comes last, as in
    Optax.
    """
    first = scale_by_stddev if centered else scale_by_rms
    last = identity() if momentum is None else trace(momentum, nesterov)
    scaled = first(decay, eps, initial_scale, eps_in_sqrt, bias_correction)
    return chain(scaled, scale_by_learning_rate(learning_rate), last)


def adagrad(learning_rate: ScalarOrSchedule, initial_accumulator_value: float = 0.1,
            eps: float = 1e-7) -> GradientTransformation:
    """AdaGrad (Duchi et al., 2011)."""
    return chain(scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate))


def lion(learning_rate: ScalarOrSchedule, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 1e-3,
         mask: Any = None) -> GradientTransformation:
    """Lion (https://arxiv.org/abs/2302.06675)."""
    return chain(scale_by_lion(b1, b2), add_decayed_weights(weight_decay, mask), scale_by_learning_rate(learning_rate))


def sign_sgd(learning_rate: ScalarOrSchedule) -> GradientTransformation:
    """Steps of one length by the gradient's sign (https://arxiv.org/abs/1802.04434)."""
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))

"""Recurrent cells: `carry, y = cell(params, carry, x)`, the shape that `lax.scan` wants of its body."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import numpy as fnp, random
from .functions import Array, sigmoid
from .initializers import Initializer, glorot_uniform, lecun_normal, zeros
from .layer import check_features, layer


def _init(cell: Any, key: Array, gates: int) -> dict[str, Array]:
    """The kernels of all gates side by side, each gate drawn by itself so that its scale is that of one gate."""
    keys = random.split(key, 2 * gates + 1)
    inputs = [cell.kernel_init(keys[g], (cell.in_features, cell.hidden_features), cell.dtype) for g in range(gates)]
    hidden = [cell.recurrent_kernel_init(keys[gates + g], (cell.hidden_features, cell.hidden_features), cell.dtype)
              for g in range(gates)]
    return {"input_kernel": fnp.concatenate(inputs, axis=1), "hidden_kernel": fnp.concatenate(hidden, axis=1),
            "bias": cell.bias_init(keys[2 * gates], (gates * cell.hidden_features,), cell.dtype)}


@layer
class GRUCell:
    """A gated recurrent unit (https://arxiv.org/abs/1412.3555), as Flax's.

    r = sigmoid(x Wr + h Ur + br), z = sigmoid(x Wz + h Uz + bz), n = tanh(x Wn + bn + r * (h Un + cn)),
    h' = (1 - z) * n + z * h. The kernels hold r, z, n side by side; "hidden_bias" is cn. Carry: h, (...,
    hidden_features).
    """
    in_features: int
    hidden_features: int
    kernel_init: Initializer = lecun_normal()
    recurrent_kernel_init: Initializer = glorot_uniform()
    bias_init: Initializer = zeros
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        first, second = random.split(key)
        return _init(self, first, 3) | {"hidden_bias": self.bias_init(second, (self.hidden_features,), self.dtype)}

    def initial_carry(self, batch_shape: Sequence[int] = ()) -> Array:
        """Zeros for sequences of this batch shape."""
        return zeros(None, (*batch_shape, self.hidden_features), self.dtype)

    def __call__(self, params: dict[str, Array], carry: Array, x: Array) -> tuple[Array, Array]:
        check_features("GRUCell", x, self.in_features)
        width = self.hidden_features
        from_input = fnp.matmul(x, params["input_kernel"]) + params["bias"]
        from_hidden = fnp.matmul(carry, params["hidden_kernel"])
        gates = sigmoid(from_input[..., :2 * width] + from_hidden[..., :2 * width])
        reset, update = gates[..., :width], gates[..., width:]
        new = fnp.tanh(from_input[..., 2 * width:] + reset * (from_hidden[..., 2 * width:] + params["hidden_bias"]))
        hidden = (1 - update) * new + update * carry
        return hidden, hidden


@layer
class LSTMCell:
    """A long short-term memory cell (Hochreiter and Schmidhuber, 1997), as Flax's.

    i, f, o = sigmoid(x W + h U + b), g = tanh(x Wg + h Ug + bg), c' = f * c + i * g, h' = o * tanh(c').
    The kernels hold i, f, g, o side by side. Carry: the pair (c, h), each (..., hidden_features); the output is h'.
    """
    in_features: int
    hidden_features: int
    kernel_init: Initializer = lecun_normal()
    recurrent_kernel_init: Initializer = glorot_uniform()
    bias_init: Initializer = zeros
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        return _init(self, key, 4)

    def initial_carry(self, batch_shape: Sequence[int] = ()) -> tuple[Array, Array]:
        """Zeros for sequences of this batch shape."""
        zero = zeros(None, (*batch_shape, self.hidden_features), self.dtype)
        return zero, zero

    def __call__(self, params: dict[str, Array], carry: tuple[Array, Array],
                 x: Array) -> tuple[tuple[Array, Array], Array]:
        check_features("LSTMCell", x, self.in_features)
        cell, hidden = carry
        gates = (fnp.matmul(x, params["input_kernel"]) + fnp.matmul(hidden, params["hidden_kernel"])) + params["bias"]
        admit, forget, new, out = fnp.split(gates, 4, axis=-1)
        cell = sigmoid(forget) * cell + sigmoid(admit) * fnp.tanh(new)
        hidden = sigmoid(out) * fnp.tanh(cell)
        return (cell, hidden), hidden

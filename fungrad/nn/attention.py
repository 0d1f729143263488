"""Scaled dot-product attention, and the layer with its projections.

Letters of shapes: B batch, T queries, S keys and values, N query heads, K key/value heads, G = N / K, H width of a
head.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import lax, numpy as fnp, random
from ..dtypes import float32, promote
from ..errors import DTypeError, ShapeError
from .dropout import Dropout
from .functions import Array, ArrayLike, logsumexp, softmax
from .initializers import Initializer, lecun_normal, zeros
from .layer import layer
from .linear import Linear


def _four_axes(x: ArrayLike) -> Array:
    x = fnp.asarray(x)
    return fnp.reshape(x, (1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x


def _check_operands(query: Array, key: Array, value: Array) -> None:
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ShapeError(f"dot_product_attention takes query (B, T, N, H) and key and value (B, S, K, H), B optional; "
                         f"got {query.shape}, {key.shape} and {value.shape}.")
    if key.shape != value.shape or (query.shape[0], query.shape[3]) != (key.shape[0], key.shape[3]):
        raise ShapeError(f"dot_product_attention: query {query.shape}, key {key.shape} and value {value.shape} do not "
                         f"fit: key and value are equal, and B and H are those of the query.")
    if key.shape[2] == 0 or query.shape[2] % key.shape[2]:
        raise ShapeError(f"the number of query heads must be a multiple of the key/value heads, but they are "
                         f"{query.shape[2]} and {key.shape[2]}.")
    if not query.dtype == key.dtype == value.dtype:
        raise DTypeError(f"attention: query, key and value are {query.dtype}, {key.dtype} and {value.dtype}. "
                         f"Convert them to one type with x.astype(...).")


def _grouped(x: Array, heads: int) -> Array:
    """A bias or mask (B|1, N|1, T|1, S|1) with its heads split for K key/value heads: (B|1, K|1, G|1, T|1, S|1)."""
    split = (1, 1) if x.shape[1] == 1 else (heads, x.shape[1] // heads)
    return fnp.reshape(x, (x.shape[0], *split, *x.shape[2:]))


def _lengths(name: str, lengths: ArrayLike, batch: int) -> Array:
    lengths = fnp.asarray(lengths)
    if lengths.shape != (batch,) or lengths.dtype.kind not in "iu":
        raise ShapeError(f"{name} holds one integer for each of the {batch} sequences, got "
                         f"{lengths.dtype}{lengths.shape}.")
    return fnp.reshape(lengths, (batch, 1, 1, 1, 1))


def _included(batch: int, targets: int, sources: int, is_causal: bool, window: int | tuple[int, int] | None,
              query_lengths: Array | None, source_lengths: Array | None) -> Array | None:
    """Which (query, key) pairs the options leave in, broadcastable to (B, K, G, T, S); None for all."""
    query_at = fnp.reshape(fnp.arange(targets), (targets, 1))
    key_at = fnp.arange(sources)
    conditions = []
    if is_causal:
        conditions.append(query_at >= key_at)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        conditions.append((query_at <= key_at + left) & (query_at >= key_at - right))
    if query_lengths is not None:
        conditions.append(query_at < _lengths("query_seq_lengths", query_lengths, batch))
    if source_lengths is not None:
        conditions.append(key_at < _lengths("key_value_seq_lengths", source_lengths, batch))
    result = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result


def dot_product_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
                          mask: ArrayLike | None = None, *, scale: float | None = None, is_causal: bool = False,
                          query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None,
                          local_window_size: int | tuple[int, int] | None = None, implementation: str | None = None,
                          return_residual: bool = False) -> Any:
    """softmax(scale * query key^T + bias) value, by head, as jax.nn.dot_product_attention.

    query: (B, T, N, H) or (T, N, H). key, value: (B, S, K, H) or (S, K, H), where N is a multiple of K (grouped-query
    attention). bias is added to the logits and mask (bool, True: attend) chooses among them; both broadcast to (B, N,
    T, S). scale: 1 / sqrt(H) unless given. is_causal, local_window_size (left, right) and the sequence lengths (B,)
    mask as well. The softmax is computed in float32 at least. Returns the shape and dtype of query; with
    return_residual also the logsumexp of the logits, (B, T, N), a constant to differentiation.
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"implementation={implementation!r} is not there; leave it out.")
    shape = fnp.asarray(query).shape
    query, key, value = _four_axes(query), _four_axes(key), _four_axes(value)
    _check_operands(query, key, value)
    (batch, targets, heads, width), (_, sources, shared, _) = query.shape, key.shape
    wide = promote(query.dtype, float32)
    grouped = fnp.reshape(query, (batch, targets, shared, heads // shared, width))
    logits = fnp.einsum("btkgh,bskh->bkgts", grouped, key, preferred_element_type=wide)
    logits = logits * (1.0 / math.sqrt(width) if scale is None else scale)
    if bias is not None:
        logits = (logits + _grouped(_four_axes(bias), shared)).astype(wide)
    included = _included(batch, targets, sources, is_causal, local_window_size, query_seq_lengths,
                         key_value_seq_lengths)
    if mask is not None:
        chosen = _grouped(_four_axes(mask), shared)
        if chosen.dtype.kind != "b":
            raise DTypeError(f"mask is bool (True: attend), got {chosen.dtype}. Give an additive mask as bias=.")
        included = chosen if included is None else included & chosen
    if included is not None:
        logits = fnp.where(included, logits, -0.7 * float(np.finfo(np.float32).max))  # finite: a row may be all masked
    weights = softmax(logits, axis=-1).astype(value.dtype)
    result = fnp.einsum("bkgts,bskh->btkgh", weights, value)
    if query_seq_lengths is not None:
        position = fnp.reshape(fnp.arange(targets), (targets, 1, 1, 1))
        inside = position < _lengths("query_seq_lengths", query_seq_lengths, batch)
        result = fnp.where(inside, result, 0)
    result = fnp.reshape(result, shape)
    if not return_residual:
        return result
    residual = fnp.transpose(logsumexp(logits, axis=-1), (0, 3, 1, 2)).astype(value.dtype)
    return result, lax.stop_gradient(fnp.reshape(residual, shape[:-1]))


@layer
class MultiHeadAttention:
    """Attention with learned projections (https://arxiv.org/abs/1706.03762): (..., T, in_features) -> (..., T,
    out_features).

    Parameters: {"query", "key", "value", "out"}, each of a `Linear`. `key_value_heads` below `num_heads` shares keys
    and values among groups of heads. Missing widths are `in_features`.
    """
    num_heads: int
    in_features: int
    qkv_features: int | None = None
    out_features: int | None = None
    key_value_heads: int | None = None
    dropout_rate: float = 0.0
    use_bias: bool = True
    kernel_init: Initializer = lecun_normal()
    bias_init: Initializer = zeros
    dtype: Any = None

    def _layers(self) -> dict[str, Linear]:
        width = self.in_features if self.qkv_features is None else self.qkv_features
        if width % self.num_heads:
            raise ShapeError(f"{width} features cannot be shared among {self.num_heads} heads: it is no multiple.")
        shared = self.num_heads if self.key_value_heads is None else self.key_value_heads
        out = self.in_features if self.out_features is None else self.out_features
        sizes = {"query": (self.in_features, width), "key": (self.in_features, width // self.num_heads * shared),
                 "value": (self.in_features, width // self.num_heads * shared), "out": (width, out)}
        return {name: Linear(inputs, outputs, self.use_bias, self.kernel_init, self.bias_init, self.dtype)
                for name, (inputs, outputs) in sizes.items()}

    def init(self, key: Array) -> dict[str, Any]:
        layers = self._layers()
        keys = random.split(key, len(layers))
        return {name: layer.init(keys[number]) for number, (name, layer) in enumerate(layers.items())}

    def __call__(self, params: dict[str, Any], x: Array, source: Array | None = None, *, mask: Array | None = None,
                 bias: Array | None = None, is_causal: bool = False, key: Array | None = None) -> Array:
        """Attend from `x` to `source` (`x` itself where there is none). `key`: for dropout of the result; None: no
        dropout.
        """
        source = x if source is None else source
        layers = self._layers()
        heads = self.num_heads
        width = layers["query"].out_features // heads

        def project(name: str, inputs: Array) -> Array:
            projected = layers[name](params[name], inputs)
            return fnp.reshape(projected, (*projected.shape[:-1], projected.shape[-1] // width, width))
        attended = dot_product_attention(project("query", x), project("key", source), project("value", source),
                                         bias, mask, is_causal=is_causal)
        result = layers["out"](params["out"], fnp.reshape(attended, (*attended.shape[:-2], heads * width)))
        return Dropout(self.dropout_rate)((), result, key=key)

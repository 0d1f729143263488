"""Attention against its definition in float64: heads in groups, masks of every kind, the layer with its projections."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import nn, numpy as fnp, random


def inputs(batch: int = 2, targets: int = 4, sources: int = 5, heads: int = 4, shared: int = 2, width: int = 3,
           dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return (generator.normal(size=(batch, targets, heads, width)).astype(dtype),
            generator.normal(size=(batch, sources, shared, width)).astype(dtype),
            generator.normal(size=(batch, sources, shared, width)).astype(dtype))


def definition(q: Any, k: Any, v: Any, allowed: Any = True, bias: Any = 0.0, scale: float | None = None) -> np.ndarray:
    group = q.shape[2] // k.shape[2]
    q, k, v = (np.asarray(x, np.float64) for x in (q, np.repeat(k, group, 2), np.repeat(v, group, 2)))
    logits = np.einsum("btnh,bsnh->bnts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    logits = np.where(allowed, logits, -1e30)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)


def near(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (4, 1)])
def test_plain(heads: int, shared: int) -> None:
    q, k, v = inputs(heads=heads, shared=shared)
    near(nn.dot_product_attention(q, k, v), definition(q, k, v))
    near(nn.dot_product_attention(q, k, v, scale=0.3), definition(q, k, v, scale=0.3))
    near(nn.dot_product_attention(q[0], k[0], v[0]), definition(q, k, v)[0])


def test_masks() -> None:
    q, k, v = inputs(targets=5)
    generator = np.random.default_rng(1)
    row, column = np.arange(5)[:, None], np.arange(5)
    near(nn.dot_product_attention(q, k, v, is_causal=True), definition(q, k, v, row >= column))
    window = (column >= row - 2) & (column <= row + 1)
    near(nn.dot_product_attention(q, k, v, local_window_size=(2, 1)), definition(q, k, v, window))
    near(nn.dot_product_attention(q, k, v, local_window_size=1), definition(q, k, v, abs(row - column) <= 1))
    for shape in ((2, 4, 5, 5), (1, 1, 5, 5), (2, 1, 1, 5)):
        mask = generator.random(shape) > 0.3
        mask[..., 0] = True
        near(nn.dot_product_attention(q, k, v, mask=mask), definition(q, k, v, mask))
        near(nn.dot_product_attention(q, k, v, mask=mask, is_causal=True), definition(q, k, v, mask & (row >= column)))
    bias = generator.normal(size=(1, 4, 5, 5)).astype(np.float32)
    near(nn.dot_product_attention(q, k, v, bias), definition(q, k, v, bias=bias))


def test_sequence_lengths() -> None:
    q, k, v = inputs(targets=5)
    query_lengths, source_lengths = np.array([5, 2], np.int32), np.array([3, 4], np.int32)
    allowed = (np.arange(5) < source_lengths[:, None])[:, None, None, :]
    expected = definition(q, k, v, allowed)
    near(nn.dot_product_attention(q, k, v, key_value_seq_lengths=source_lengths), expected)
    expected = np.where((np.arange(5) < query_lengths[:, None])[:, :, None, None], expected, 0)
    near(nn.dot_product_attention(q, k, v, query_seq_lengths=query_lengths, key_value_seq_lengths=source_lengths),
         expected)


def test_residual_is_the_logsumexp() -> None:
    q, k, v = inputs()
    result, residual = nn.dot_product_attention(q, k, v, return_residual=True)
    logits = np.einsum("btnh,bsnh->bnts", q.astype(np.float64), np.repeat(k, 2, 2)) / np.sqrt(3)
    near(result, definition(q, k, v))
    near(residual, np.log(np.exp(logits).sum(-1)).transpose(0, 2, 1))


def test_a_fully_masked_row_is_finite_and_so_is_its_derivative() -> None:
    q, k, v = inputs()
    mask = np.zeros((1, 1, 4, 5), bool)
    loss = lambda q: nn.dot_product_attention(q, k, v, mask=mask).sum()
    assert np.isfinite(np.asarray(fungrad.grad(loss)(fnp.asarray(q)))).all()


def test_low_precision_keeps_its_type() -> None:
    q, k, v = (fnp.asarray(x, dtype="bfloat16") for x in inputs())
    result = nn.dot_product_attention(q, k, v)
    assert result.dtype == q.dtype
    near(result, definition(*(np.asarray(x, np.float32) for x in (q, k, v))), 0.03)


def test_errors() -> None:
    q, k, v = inputs()
    with pytest.raises(ValueError, match="multiple of the key/value heads"):
        nn.dot_product_attention(q[:, :, :3], k, v)
    with pytest.raises(ValueError, match="do not fit"):
        nn.dot_product_attention(q, k, v[:, :4])
    with pytest.raises(TypeError, match="Convert them to one type"):
        nn.dot_product_attention(q.astype(np.float16), k, v)
    with pytest.raises(TypeError, match="mask is bool"):
        nn.dot_product_attention(q, k, v, mask=np.ones((1, 1, 4, 5), np.float32))
    with pytest.raises(ValueError, match="implementation='cudnn'"):
        nn.dot_product_attention(q, k, v, implementation="cudnn")


def test_layer() -> None:
    layer = nn.MultiHeadAttention(num_heads=4, in_features=6, qkv_features=12, out_features=5, key_value_heads=2)
    params = layer.init(random.key(0))
    assert {name: leaf["kernel"].shape for name, leaf in params.items()} == \
        {"query": (6, 12), "key": (6, 6), "value": (6, 6), "out": (12, 5)}
    generator = np.random.default_rng(0)
    x, source = generator.normal(size=(2, 4, 6)).astype(np.float32), generator.normal(size=(2, 7, 6)).astype(np.float32)
    weights = {name: np.asarray(leaf["kernel"], np.float64) for name, leaf in params.items()}
    q = (x @ weights["query"]).reshape(2, 4, 4, 3)
    k, v = ((source @ weights[name]).reshape(2, 7, 2, 3) for name in ("key", "value"))
    near(layer(params, fnp.asarray(x), fnp.asarray(source)),
         definition(q, k, v).reshape(2, 4, 12) @ weights["out"], 1e-5)
    near(layer(params, fnp.asarray(x), is_causal=True)[:, 0],
         np.repeat((x @ weights["value"]).reshape(2, 4, 2, 3), 2, 2).reshape(2, 4, 12)[:, 0] @ weights["out"], 1e-5)
    with pytest.raises(ValueError, match="10 features cannot be shared among 4 heads"):
        nn.MultiHeadAttention(4, 10).init(random.key(0))


def test_layer_dropout_needs_a_key() -> None:
    layer = nn.MultiHeadAttention(2, 8, dropout_rate=0.5)
    params, x = layer.init(random.key(0)), fnp.ones((3, 8))
    still, dropped = np.asarray(layer(params, x)), np.asarray(layer(params, x, key=random.key(1)))
    assert (dropped == 0).any() and (dropped != 0).any()
    near(dropped[dropped != 0], 2 * still[dropped != 0])

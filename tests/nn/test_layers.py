"""Layers against their definitions written out in NumPy, as pure functions under jit, grad and vmap."""
from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import nn, numpy as fnp, random, tree

KEY = random.key(0)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


def near(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


def shapes(params: Any) -> Any:
    return tree.map(lambda leaf: leaf.shape, params)


def test_linear() -> None:
    layer = nn.Linear(3, 4, bias_init=nn.initializers.constant(0.5))
    params = layer.init(KEY)
    assert shapes(params) == {"kernel": (3, 4), "bias": (4,)}
    [x] = arrays((2, 5, 3))
    near(layer(params, x), x @ np.asarray(params["kernel"]) + 0.5)
    assert set(nn.Linear(3, 4, use_bias=False).init(KEY)) == {"kernel"}
    with pytest.raises(ValueError, match=r"Linear of 3 features got an array of shape \(2, 4\)"):
        layer(params, fnp.ones((2, 4)))


def test_layers_are_values_and_structure() -> None:
    assert nn.Linear(3, 4) == nn.Linear(3, 4) and hash(nn.Linear(3, 4)) == hash(nn.Linear(3, 4))
    assert tree.leaves({"model": nn.Sequential(nn.Linear(3, 4), nn.relu)}) == []
    layer = nn.Linear(3, 4)
    params = layer.init(KEY)
    x = fnp.ones((2, 3))
    near(fungrad.jit(lambda layer, params, x: layer(params, x))(layer, params, x), layer(params, x))
    with pytest.raises(AttributeError):
        layer.in_features = 5
    model = nn.Sequential(nn.Conv(1, 4, (3, 3), kernel_init=nn.initializers.he_normal()), nn.relu)
    assert pickle.loads(pickle.dumps(model)) == model
    assert repr(nn.Linear(3, 4, use_bias=False)) == "Linear(in_features=3, out_features=4, use_bias=False)"
    assert repr(nn.Sequential(nn.LayerNorm(4), nn.relu)) == "Sequential(LayerNorm(num_features=4), relu)"


def test_embedding() -> None:
    layer = nn.Embedding(10, 4)
    params = layer.init(KEY)
    table = np.asarray(params["embedding"])
    ids = np.array([[1, 9], [0, 1]])
    near(layer(params, fnp.asarray(ids)), table[ids])
    [x] = arrays((3, 4))
    near(layer.attend(params, fnp.asarray(x)), x @ table.T)
    slope = fungrad.grad(lambda p: layer(p, fnp.asarray(ids)).sum())(params)["embedding"]
    near(slope, np.bincount(ids.ravel(), minlength=10)[:, None] * np.ones(4))
    with pytest.raises(TypeError, match="looks up integers, got float32"):
        layer(params, fnp.ones(3))


def test_dropout() -> None:
    layer, x = nn.Dropout(0.25), fnp.ones((100, 100))
    near(layer((), x), np.ones((100, 100)))
    dropped = np.asarray(layer((), x, key=KEY))
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.02
    assert (np.asarray(layer((), x, key=random.key(1))) != dropped).any()
    rows = np.asarray(nn.Dropout(0.5, broadcast_dims=(1,))((), x, key=KEY))
    assert (rows == rows[:, :1]).all() and 0 < rows.mean() < 2
    near(nn.Dropout(1.0)((), x, key=KEY), np.zeros((100, 100)))
    with pytest.raises(ValueError, match=r"probability, got 1\.5"):
        nn.Dropout(1.5)


def convolve(x: np.ndarray, kernel: np.ndarray, strides: tuple[int, int], pads: Any, dilation: tuple[int, int],
             groups: int) -> np.ndarray:
    """A convolution of (B, H, W, I) with (h, w, I / groups, O), one output at a time."""
    x = np.pad(x, ((0, 0), *pads, (0, 0))).astype(np.float64)
    size = [(k - 1) * d + 1 for k, d in zip(kernel.shape, dilation, strict=False)]
    rows = (x.shape[1] - size[0]) // strides[0] + 1
    columns = (x.shape[2] - size[1]) // strides[1] + 1
    inputs, outputs = x.shape[3] // groups, kernel.shape[3] // groups
    result = np.zeros((x.shape[0], rows, columns, kernel.shape[3]))
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * strides[0]:i * strides[0] + size[0]:dilation[0],
                       j * strides[1]:j * strides[1] + size[1]:dilation[1]]
            for g in range(groups):
                own = slice(g * outputs, (g + 1) * outputs)
                part = window[..., g * inputs:(g + 1) * inputs]
                result[:, i, j, own] = np.einsum("bhwi,hwio->bo", part, kernel[..., own])
    return result


@pytest.mark.parametrize(("options", "pads"), [
    ({}, ((1, 1), (0, 1))),
    ({"padding": "VALID", "strides": 2}, ((0, 0), (0, 0))),
    ({"padding": "SAME", "strides": (2, 1)}, ((1, 1), (0, 1))),
    ({"padding": ((2, 0), 1), "kernel_dilation": (1, 2)}, ((2, 0), (1, 1))),
    ({"padding": 1, "feature_group_count": 2}, ((1, 1), (1, 1))),
])
def test_conv(options: dict[str, Any], pads: Any) -> None:
    layer = nn.Conv(4, 6, (3, 2), **options)
    params = layer.init(KEY)
    assert shapes(params) == {"kernel": (3, 2, 4 // layer.feature_group_count, 6), "bias": (6,)}
    [x] = arrays((2, 7, 6, 4))
    strides = layer.strides if isinstance(layer.strides, tuple) else (layer.strides,) * 2
    dilation = layer.kernel_dilation if isinstance(layer.kernel_dilation, tuple) else (layer.kernel_dilation,) * 2
    expected = convolve(x, np.asarray(params["kernel"]), strides, pads, dilation, layer.feature_group_count)
    near(layer(params, fnp.asarray(x)), expected)
    near(layer(params, fnp.asarray(x[0])), expected[0])
    near(layer(params, fnp.asarray(x[None])), expected[None])


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_of_other_ranks(rank: int) -> None:
    layer = nn.Conv(2, 3, (3,) * rank if rank > 1 else 3, use_bias=False)
    params = layer.init(KEY)
    x = fnp.ones((2, *(4,) * rank, 2))
    result = np.asarray(layer(params, x))
    assert result.shape == (2, *(4,) * rank, 3)
    near(result[(0, *(1,) * rank)], np.asarray(params["kernel"]).reshape(-1, 3).sum(0))


def test_conv_transpose() -> None:
    """It is the transpose of the convolution with the kernel flipped and its features exchanged."""
    for padding, size in (("SAME", 8), ("VALID", 9)):
        layer = nn.ConvTranspose(3, 2, (3, 3), strides=2, padding=padding, use_bias=False)
        params = layer.init(KEY)
        [x] = arrays((1, 4, 4, 3))
        result = layer(params, fnp.asarray(x))
        assert result.shape == (1, size, size, 2)
        kernel = fnp.asarray(np.asarray(params["kernel"])[::-1, ::-1].transpose(0, 1, 3, 2))
        forward = lambda y, kernel=kernel, padding=padding: nn.Conv(
            2, 3, (3, 3), strides=2, padding=padding, use_bias=False)({"kernel": kernel}, y)
        _, pull = fungrad.vjp(forward, fnp.zeros((1, size, size, 2)))
        near(result, pull(fnp.asarray(x))[0])


def test_conv_errors() -> None:
    with pytest.raises(ValueError, match="do not divide into 3 groups"):
        nn.Conv(4, 6, (3, 3), feature_group_count=3).init(KEY)
    layer = nn.Conv(4, 6, (3, 3), padding="FULL")
    params = layer.init(KEY)
    with pytest.raises(ValueError, match="padding='FULL'"):
        layer(params, fnp.ones((1, 5, 5, 4)))
    with pytest.raises(ValueError, match="takes .*spatial, features"):
        layer(params, fnp.ones((5, 4)))
    with pytest.raises(ValueError, match="over 1, 2 or 3 spatial axes"):
        nn.Conv(4, 6, (3, 3, 3, 3)).init(KEY)


def test_pooling() -> None:
    [x] = arrays((2, 6, 4, 3))
    blocks = x.reshape(2, 3, 2, 2, 2, 3)
    near(nn.max_pool(fnp.asarray(x), (2, 2)), blocks.max((2, 4)))
    near(nn.min_pool(fnp.asarray(x), (2, 2)), blocks.min((2, 4)))
    near(nn.avg_pool(fnp.asarray(x), (2, 2)), blocks.mean((2, 4)))
    near(nn.max_pool(fnp.asarray(x[0]), (2, 2)), blocks[0].max((1, 3)))
    ones = fnp.ones((1, 4, 4, 1))
    counts = np.outer([2, 3, 3, 2], [2, 3, 3, 2])[None, :, :, None]
    near(nn.avg_pool(ones, (3, 3), 1, "SAME"), counts / 9)
    near(nn.avg_pool(ones, (3, 3), 1, ((1, 1), (1, 1)), count_include_pad=False), np.ones((1, 4, 4, 1)))
    near(nn.max_pool(-ones, (3, 3), (2, 2), 1), -np.ones((1, 2, 2, 1)))
    near(nn.max_pool(fnp.asarray([[1], [3], [2], [5]]), (2,)), [[3], [5]])
    slope = fungrad.grad(lambda x: (nn.max_pool(x, (2, 2)) ** 2).sum())(fnp.asarray(x))
    largest = blocks.max((2, 4), keepdims=True)
    near(slope, np.where(blocks == largest, 2 * largest, 0).reshape(x.shape))


@pytest.mark.parametrize("layer", [nn.LayerNorm(6), nn.RMSNorm(6), nn.GroupNorm(6, num_groups=3)], ids=repr)
def test_norms(layer: Any) -> None:
    [x, scale, bias] = arrays((2, 4, 5, 6), (6,), (6,))
    wide = x.astype(np.float64) * 3 + 1
    params = layer.init(KEY)
    near(params["scale"], np.ones(6))
    if isinstance(layer, nn.GroupNorm):
        grouped = wide.reshape(2, 20, 3, 2)
        mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
        expected = ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(wide.shape)
    elif isinstance(layer, nn.LayerNorm):
        expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-6)
    else:
        expected = wide / np.sqrt((wide ** 2).mean(-1, keepdims=True) + 1e-6)
        bias = np.zeros(6)
    given = {name: fnp.asarray({"scale": scale, "bias": bias}[name]) for name in params}
    near(layer(given, fnp.asarray(wide, dtype="float32")), expected * scale + bias, 2e-5)
    low = fnp.asarray(wide, dtype="bfloat16")
    assert layer(params, low).dtype == low.dtype
    with pytest.raises(ValueError, match="6 features got an array"):
        layer(params, fnp.ones((2, 5)))


def test_batch_norm() -> None:
    layer = nn.BatchNorm(3, momentum=0.9)
    params, state = layer.init(KEY), layer.init_state()
    x = arrays((8, 5, 3))[0] * 2 + 1
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    y, new = layer(params, state, fnp.asarray(x))
    near(y, (x - mean) / np.sqrt(variance + 1e-5))
    near(new["mean"], 0.1 * mean)
    near(new["var"], 0.9 + 0.1 * variance)
    y, same = layer(params, new, fnp.asarray(x), use_running_average=True)
    near(y, (x - np.asarray(new["mean"])) / np.sqrt(np.asarray(new["var"]) + 1e-5))
    near(same["var"], new["var"])
    first = nn.BatchNorm(3, axis=1)
    near(first(params, state, fnp.asarray(x.transpose(0, 2, 1)))[0],
         ((x - mean) / np.sqrt(variance + 1e-5)).transpose(0, 2, 1))
    slope = fungrad.grad(lambda x: (layer(params, state, x)[0] ** 3).sum())(fnp.asarray(x))
    near(np.asarray(slope).sum((0, 1)), np.zeros(3), 1e-3)  # a common shift changes nothing


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_gru() -> None:
    cell = nn.GRUCell(3, 4, bias_init=nn.initializers.normal(1.0))
    params = cell.init(KEY)
    assert shapes(params) == {"input_kernel": (3, 12), "hidden_kernel": (4, 12), "bias": (12,), "hidden_bias": (4,)}
    x, h = arrays((2, 3), (2, 4))
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    gx, gh = np.split(x @ p["input_kernel"] + p["bias"], 3, -1), np.split(h @ p["hidden_kernel"], 3, -1)
    r, z = sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1])
    expected = (1 - z) * np.tanh(gx[2] + r * (gh[2] + p["hidden_bias"])) + z * h
    carry, y = cell(params, fnp.asarray(h), fnp.asarray(x))
    near(y, expected)
    near(carry, expected)
    assert cell.initial_carry((2,)).shape == (2, 4)


def test_lstm() -> None:
    cell = nn.LSTMCell(3, 4, bias_init=nn.initializers.normal(1.0))
    params = cell.init(KEY)
    assert shapes(params) == {"input_kernel": (3, 16), "hidden_kernel": (4, 16), "bias": (16,)}
    x, c, h = arrays((2, 3), (2, 4), (2, 4))
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    i, f, g, o = np.split(x @ p["input_kernel"] + h @ p["hidden_kernel"] + p["bias"], 4, -1)
    new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    (cell_state, hidden), y = cell(params, (fnp.asarray(c), fnp.asarray(h)), fnp.asarray(x))
    near(cell_state, new)
    near(hidden, sigmoid(o) * np.tanh(new))
    near(y, hidden)


def test_sequential() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.relu, nn.Dropout(0.5), nn.Sequential(nn.Linear(8, 2)))
    params = model.init(KEY)
    assert shapes(params) == ({"kernel": (3, 8), "bias": (8,)}, (), (), ({"kernel": (8, 2), "bias": (2,)},))
    [x] = arrays((5, 3))
    hidden = np.maximum(x @ np.asarray(params[0]["kernel"]), 0)
    near(model(params, fnp.asarray(x)), hidden @ np.asarray(params[3][0]["kernel"]))
    assert not np.allclose(model(params, fnp.asarray(x), key=KEY), model(params, fnp.asarray(x)))
    with pytest.raises(ValueError, match="4 layers got the parameters of 3"):
        model(params[:3], fnp.asarray(x))
    with pytest.raises(TypeError, match="BatchNorm takes and returns a state"):
        nn.Sequential(nn.BatchNorm(3))


def test_training_by_vmap_and_jit() -> None:
    """An ensemble learns xor: init, step and loss are pure functions, so they batch."""
    model = nn.Sequential(nn.Linear(2, 16), nn.tanh, nn.Linear(16, 1))
    x, y = fnp.asarray([[0.0, 0], [0, 1], [1, 0], [1, 1]]), fnp.asarray([0.0, 1, 1, 0])
    optimizer = nn.adam(0.05)
    loss = lambda params: nn.sigmoid_binary_cross_entropy(model(params, x)[:, 0], y).mean()

    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(fungrad.grad(loss)(params), state, params)
        return nn.apply_updates(params, updates), state
    params = fungrad.vmap(model.init)(random.split(KEY, 3))
    state = fungrad.vmap(optimizer.init)(params)
    step = fungrad.jit(fungrad.vmap(step))
    for _ in range(150):
        params, state = step(params, state)
    assert (np.asarray(fungrad.vmap(loss)(params)) < 0.05).all()

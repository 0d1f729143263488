"""fungrad.lax against NumPy and closed forms."""
from __future__ import annotations

import operator
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fungrad.numpy as fnp
from fungrad import lax
from fungrad.errors import DTypeError, RefusedError, ShapeError
from tests.numpy.support import eagerly, near, same, staged

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype("float32")


@pytest.fixture(autouse=True)
def eager_operations() -> Iterator[None]:
    with eagerly():
        yield


# ---- elementwise ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos",
                                  "cosh", "exp",
                                  "exp2", "expm1", "floor", "log", "log1p", "neg", "sign", "sin", "sinh", "sqrt",
                                  "square",
                                  "tan", "tanh", "reciprocal"])
def test_unary(name):
    x = np.abs(X[0]) * 0.3 + (1.5 if name == "acosh" else 0.1)
    reference = {"neg": "negative"}.get(name, name)
    near(getattr(lax, name)(x), getattr(np, reference)(x.astype("f8")), 1e-5)


def test_special_functions():
    x = np.array([-2.0, 0.0, 0.5, 3.0], "f")
    near(lax.rsqrt(np.abs(x) + 1), 1 / np.sqrt(np.abs(x) + 1))
    near(lax.logistic(x), 1 / (1 + np.exp(-x)))
    near(lax.erf(x), [-0.99532227, 0, 0.52049988, 0.99997791])
    near(lax.erfc(x), 1 - np.array([-0.99532227, 0, 0.52049988, 0.99997791]))
    near(lax.erf_inv(np.array([0.52049988], "f")), [0.5])
    near(lax.lgamma(np.array([5.0], "f")), [np.log(24.0)])
    near(lax.digamma(np.array([1.0], "f")), [-0.57721566])
    same(lax.is_finite(np.array([1, np.inf, np.nan])), [True, False, False])
    same(lax.clz(np.array([1, 255, -1, 0], "int32")), [31, 24, 0, 32])
    same(lax.population_count(np.array([7, 255, -1], "int32")), [3, 8, 32])


def test_rounding():
    x = np.array([0.5, 1.5, -0.5, -2.5, 0.49999997, 2.3, np.inf], "f")
    same(lax.round(x), [1, 2, -1, -3, 0, 2, np.inf])
    same(lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.rint(x))


@pytest.mark.parametrize("name, reference", [
    ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("div", operator.truediv), ("max", np.maximum),
    ("min", np.minimum), ("atan2", np.arctan2), ("eq", operator.eq), ("ne", operator.ne), ("lt", operator.lt),
    ("le", operator.le),
    ("gt", operator.gt), ("ge", operator.ge), ("rem", np.fmod), ("nextafter", np.nextafter)])
def test_binary(name, reference):
    near(getattr(lax, name)(X[0], X[1]), reference(X[0], X[1]), 1e-6)
    if name != "nextafter":
        near(getattr(lax, name)(X[0], 2.0), reference(X[0], np.float32(2)), 1e-6)
        assert getattr(lax, name)(2, X[0].astype("float16")).dtype in (np.float16, np.bool_)


def test_powers_and_integers():
    near(lax.pow(np.abs(X), 1.5), np.abs(X).astype("f8") ** 1.5)
    near(lax.pow(X, 3), X**3)
    near(lax.pow(X, np.full(X.shape, 2, "int32")), X**2)
    near(lax.integer_pow(X, -2), X.astype("f8") ** -2, 1e-4)
    same(lax.div(np.array([7, -7, 5], "int32"), np.array([2, 2, 0], "int32")), [3, -3, -1])
    same(lax.rem(np.array([7, -7], "int32"), 3), [1, -1])
    same(lax.shift_right_logical(np.array([-1], "int32"), 28), [15])
    same(lax.shift_right_arithmetic(np.array([-16], "int32"), 2), [-4])
    same(lax.shift_left(np.array([1], "int32"), 4), [16])


def test_nothing_is_promoted_or_broadcast():
    with pytest.raises(DTypeError, match="float32 and float64 differ"):
        lax.add(np.ones(2, "f"), np.ones(2))
    with pytest.raises(ShapeError, match=r"\(2,\) and \(2, 1\)"):
        lax.mul(np.ones(2, "f"), np.ones((2, 1), "f"))
    with pytest.raises(DTypeError, match="the float 1.5"):
        lax.add(np.ones(2, "int32"), 1.5)
    with pytest.raises(TypeError, match="exp does not take int32"):
        lax.exp(np.ones(2, "int32"))


def test_choice():
    same(lax.select(X > 0, X, -X), np.abs(X))
    same(lax.select(True, X, -X), X)
    same(lax.select_n(X > 0, -X, X), np.abs(X))
    same(lax.select_n(np.array([0, 2, 1]), np.zeros(3, "f"), np.ones(3, "f"), np.full(3, 2, "f")), [0, 2, 1])
    same(lax.clamp(-1.0, X, 0.5), np.clip(X, -1, 0.5))
    same(lax.clamp(X[0] - 1, X[0], X[0] - 0.5), X[0] - 0.5)


def test_types():
    same(lax.convert_element_type(np.array([1.7, -1.7, np.nan, 1e20]), "int32"), [1, -1, 0, 2**31 - 1])
    same(lax.bitcast_convert_type(X, "int32"), X.view("int32"))
    same(lax.bitcast_convert_type(X, "uint8"), X.view("uint8").reshape(*X.shape, 4))
    same(lax.bitcast_convert_type(X.view("uint8").reshape(*X.shape, 4), "float32"), X)
    same(lax.bitcast_convert_type(X.view("uint16").reshape(*X.shape, 2), np.float32), X)
    same(lax.reduce_precision(X, 8, 7), X.astype(ml_dtypes.bfloat16).astype("f"))
    assert set(lax.stop_gradient({"a": 1.0, "b": [X]})) == {"a", "b"}


# ---- structure ------------------------------------------------------------------------------------------------------

def test_making():
    same(lax.full((2, 3), 7.0), np.full((2, 3), 7))
    same(lax.full_like(X, 2), np.full_like(X, 2))
    same(lax.iota("int32", 4), np.arange(4))
    same(lax.broadcasted_iota("float32", (2, 3), 1), np.broadcast_to(np.arange(3), (2, 3)))
    same(lax.zeros_like_array(X), np.zeros_like(X))


def test_shapes():
    same(lax.broadcast(X, (2,)), np.broadcast_to(X, (2, *X.shape)))
    same(lax.broadcast_in_dim(X[0], (4, 2, 5), (0, 2)), np.broadcast_to(X[0][:, None], (4, 2, 5)))
    same(lax.collapse(X, 0, 2), X.reshape(12, 5))
    same(lax.expand_dims(X, (0, -1)), X[None, ..., None])
    same(lax.squeeze(X[:1], (0,)), X[0])
    same(lax.reshape(X, (5, 12)), X.reshape(5, 12))
    same(lax.reshape(X, (60,), (2, 0, 1)), X.transpose(2, 0, 1).reshape(60))
    same(lax.transpose(X, (1, 2, 0)), X.transpose(1, 2, 0))
    same(lax.rev(X, (0, 2)), X[::-1, :, ::-1])
    same(lax.concatenate([X, X], 1), np.concatenate([X, X], 1))
    same(lax.tile(X, (1, 2, 3)), np.tile(X, (1, 2, 3)))
    for got, want in zip(lax.split(X, (1, 3), 1), np.split(X, [1], 1), strict=True):
        same(got, want)
    same(lax.pad(np.arange(3), 9, [(1, -1, 1)]), [9, 0, 9, 1, 9])
    same(lax.pad(X, 0.0, [(-1, 0, 0), (0, 2, 0), (1, 0, 0)]), np.pad(X[1:], ((0, 0), (0, 2), (1, 0))))


def test_slices():
    same(lax.slice(X, (1, 0, 2), (3, 4, 5), (1, 2, 1)), X[1:3, 0:4:2, 2:5])
    same(lax.slice_in_dim(X, 1, -1, 2, axis=2), X[:, :, 1:-1:2])
    same(lax.index_in_dim(X, -1, 1, keepdims=False), X[:, -1])
    same(lax.dynamic_slice(X, (1, 9, -2), (2, 2, 2)), X[1:3, 2:4, 3:5])
    same(staged(lambda x, i: lax.dynamic_slice(x, (i, 0, i), (1, 4, 2)), X, np.int32(-1)), X[-1:, :, -2:])
    same(staged(lambda x, i: lax.dynamic_slice(x, i, (1, 4, 2)), X, np.array([1, 0, 3])), X[1:2, :, 3:5])
    same(lax.dynamic_slice_in_dim(X, 2, 3, axis=1), X[:, 1:4])
    same(staged(lambda x, i: lax.dynamic_index_in_dim(x, i, 1, keepdims=False), X, np.int32(2)), X[:, 2])
    want = X.copy()
    want[:, 1:3] = 7
    same(lax.dynamic_update_slice(X, np.full((3, 2, 5), 7, "f"), (0, 1, 0)), want)
    same(lax.dynamic_update_slice_in_dim(X, np.full((3, 2, 5), 7, "f"), 1, 1), want)
    want = X.copy()
    want[:, 2] = 3
    same(staged(lambda x, i: lax.dynamic_update_index_in_dim(x, np.full((3, 5), 3, "f"), i, 1), X, np.int32(2)), want)


def test_gather_and_scatter():
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    rows = np.array([[2], [0], [9]])
    near(lax.gather(X[0], rows, numbers, (1, 5)), np.concatenate([X[0][[2, 0]], np.full((1, 5), np.nan)]))
    same(lax.gather(X[0], rows, numbers, (1, 5), mode="clip"), X[0][[2, 0, 3]])
    same(lax.gather(X[0], rows, numbers, (1, 5), mode="fill", fill_value=0.0)[2], np.zeros(5))
    written = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    updates = np.ones((3, 5), "f")
    want = X[0].copy()
    want[[2, 0]] += 1
    same(lax.scatter_add(X[0], rows, updates, written), want)
    want[[2, 0]] = 1
    same(lax.scatter(X[0], rows, updates, written), want)
    for name, function in (("scatter_mul", np.multiply), ("scatter_min", np.minimum), ("scatter_max", np.maximum),
                           ("scatter_sub", np.subtract)):
        want = X[0].copy()
        function.at(want, [2, 0], np.float32(0.5))
        same(getattr(lax, name)(X[0], rows, updates * 0.5, written), want)
    same(lax.index_take(X, (np.array([0, 2]), np.array([1, 3])), (0, 1)), X[[0, 2], [1, 3]])


def test_sorting():
    same(lax.sort(X, 1), np.sort(X, 1))
    keys, values = lax.sort_key_val(X, np.arange(60).reshape(X.shape), 1)
    same(keys, np.sort(X, 1))
    same(values, np.take_along_axis(np.arange(60).reshape(X.shape), np.argsort(X, 1), 1))
    values, positions = lax.top_k(X, 2)
    same(positions, np.argsort(-X)[..., :2])
    same(values, -np.sort(-X)[..., :2])


# ---- reductions -----------------------------------------------------------------------------------------------------

def test_reductions():
    near(lax.reduce_sum(X, (0, 2)), X.sum((0, 2)))
    near(lax.reduce_prod(X, (1,)), X.prod(1))
    same(lax.reduce_max(X, (1,)), X.max(1))
    same(lax.reduce_and(X > 0, (1,)), (X > 0).all(1))
    same(lax.argmax(X, 1), X.argmax(1))
    assert lax.argmin(X, 1, "int64").dtype == np.int64
    near(lax.reduce(X, 0.0, lax.add, (0, 1)), X.sum((0, 1)))
    near(lax.reduce(X, 5.0, lax.add, (0, 1)), X.sum((0, 1)) + 5)
    same(lax.reduce(X, -np.inf, lax.max, (0,)), X.max(0))
    same(lax.reduce(X, np.float32(0), fnp.maximum, (0,)), np.maximum(X.max(0), 0))
    same(lax.reduce({"a": X > 0}, {"a": True}, lax.bitwise_and, (0,))["a"], (X > 0).all(0))
    same(lax.reduce(np.array([3, 5]), 0, operator.xor, (0,)), 6)
    with pytest.raises(RefusedError, match="associative_scan"):
        lax.reduce(X, 0.0, lambda a, b: a + b, (0,))


def windows_of(x, size, stride, function):
    return np.stack([function(x[..., i * stride:i * stride + size], -1)
                     for i in range((x.shape[-1] - size) // stride + 1)], -1)


def test_windows():
    x = RNG.standard_normal((2, 7)).astype("f")
    same(lax.reduce_window(x, -np.inf, lax.max, (1, 3), (1, 2)), windows_of(x, 3, 2, np.max))
    near(lax.reduce_window(x, 0.0, lax.add, (1, 3), (1, 1), "SAME"),
         windows_of(np.pad(x, ((0, 0), (1, 1))), 3, 1, np.sum))
    near(lax.reduce_window(x, 1.0, lax.add, (1, 2), (1, 1), [(0, 0), (1, 0)]),
         windows_of(np.pad(x, ((0, 0), (1, 0))), 2, 1, np.sum) + 1)
    near(lax.reduce_window(x, 0.0, lax.add, (1, 2), window_dilation=(1, 3)), x[:, :4] + x[:, 3:])
    spread = np.zeros((2, 13), "f")
    spread[:, ::2] = x
    near(lax.reduce_window(x, 0.0, lax.add, (1, 3), base_dilation=(1, 2)), windows_of(spread, 3, 1, np.sum))
    same(lax.reduce_window(x.astype("int32"), np.iinfo("int32").min, lax.max, (1, 3)),
         windows_of(x.astype("int32"), 3, 1, np.max))
    same(lax.reduce_window(x, np.inf, lax.min, (2, 1), (1, 1)), x.min(0, keepdims=True))
    image = RNG.standard_normal((1, 2, 6, 6)).astype("f")
    same(lax.reduce_window(image, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
         image.reshape(1, 2, 3, 2, 3, 2).max((3, 5)))
    same(lax.reduce_window(image.transpose(0, 2, 3, 1), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
         image.reshape(1, 2, 3, 2, 3, 2).max((3, 5)).transpose(0, 2, 3, 1))
    with pytest.raises(ShapeError, match="one entry for each axis"):
        lax.reduce_window(x, 0.0, lax.add, (3,))


def test_running():
    near(lax.cumsum(X, 1), X.cumsum(1))
    near(lax.cumsum(X, 1, reverse=True), X[:, ::-1].cumsum(1)[:, ::-1])
    near(lax.cumprod(X, 2), X.cumprod(2))
    same(lax.cummax(X, 0), np.maximum.accumulate(X, 0))
    same(lax.cummin(X, 0, reverse=True), np.minimum.accumulate(X[::-1], 0)[::-1])
    near(lax.cumlogsumexp(X, 1), np.logaddexp.accumulate(X.astype("f8"), 1))
    near(lax.cumlogsumexp(np.array([-np.inf, 0, 800, np.inf], "f")), [-np.inf, 0, 800, np.inf])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(count, reverse):
    x = RNG.standard_normal((2, count)).astype("f")
    step = -1 if reverse else 1
    near(lax.associative_scan(lambda a, b: a * b, x, reverse, axis=1), x[:, ::step].cumprod(1)[:, ::step], 1e-5)
    same(lax.associative_scan(lambda a, b: b, {"k": x}, axis=-1)["k"], x)      # the order of the operands is kept
    a, b = RNG.random(count).astype("f"), RNG.random(count).astype("f")        # y[i] = a[i] y[i-1] + b[i]
    _, got = lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b))
    y, want = 0.0, []
    for i in range(count):
        y = a[i] * y + b[i]
        want.append(y)
    near(got, np.array(want, "f"), 1e-5)


def test_associative_scan_is_linear_work():
    elements = []
    lax.associative_scan(lambda a, b: elements.append(a.size) or a + b, np.ones(1024, "f"))
    assert sum(elements) <= 2 * 1024 and len(elements) <= 20


# ---- contractions ---------------------------------------------------------------------------------------------------

def test_dots():
    a, b = X, RNG.standard_normal((3, 5, 2)).astype("f")
    near(lax.batch_matmul(a, b), a @ b)
    near(lax.dot(a[0], b[0]), a[0] @ b[0])
    near(lax.dot(a[0], b[0, :, 0]), a[0] @ b[0, :, 0])
    near(lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), a @ b)
    assert lax.dot(a[0], b[0], preferred_element_type="float64").dtype == np.float64
    with pytest.raises(ShapeError, match=r"lax\.dot"):
        lax.dot(a[0], b[1].T)
    with pytest.raises(DTypeError, match="mix"):
        lax.dot(a[0], np.ones((5, 2), int))


def direct_convolution(x, w, strides, pads, spread, gaps, groups):
    """NCHW, OIHW, by its definition."""
    full = np.zeros((*x.shape[:2], *[(n - 1) * d + 1 for n, d in zip(x.shape[2:], spread, strict=True)]))
    full[:, :, ::spread[0], ::spread[1]] = x
    full = np.pad(full, ((0, 0), (0, 0), *pads))
    shape = [(full.shape[2 + i] - ((w.shape[2 + i] - 1) * gaps[i] + 1)) // strides[i] + 1 for i in range(2)]
    result = np.zeros((x.shape[0], w.shape[0], *shape))
    per_group, inputs = w.shape[0] // groups, w.shape[1]
    for o in range(w.shape[0]):
        first = (o // per_group) * inputs
        for i in range(shape[0]):
            for j in range(shape[1]):
                patch = full[:, first:first + inputs, i * strides[0]:i * strides[0] + (w.shape[2] - 1) * gaps[0]
                             + 1:gaps[0],
                             j * strides[1]:j * strides[1] + (w.shape[3] - 1) * gaps[1] + 1:gaps[1]]
                result[:, o, i, j] = (patch * w[o]).sum((1, 2, 3))
    return result


@given(st.tuples(st.integers(1, 2), st.integers(1, 2)), st.tuples(st.integers(0, 2), st.integers(0, 2)),
       st.tuples(st.integers(1, 2), st.integers(1, 2)), st.tuples(st.integers(1, 2), st.integers(1, 2)),
       st.sampled_from([1, 2]),
       st.sampled_from([("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("HCNW", "HOIW", "CNHW")]))
@settings(max_examples=25)
def test_convolution(strides, pads, spread, gaps, groups, layouts):
    x, w = RNG.standard_normal((2, 4, 5, 6)).astype("f"), RNG.standard_normal((6, 4 // groups, 3, 2)).astype("f")
    pads = [(pads[0], 1), (1, pads[1])]
    want = direct_convolution(x, w, strides, pads, spread, gaps, groups)
    place = [["NCHW".index(k) for k in layouts[0]], ["OIHW".index(k) for k in layouts[1]],
             ["NCHW".index(k) for k in layouts[2]]]
    got = lax.conv_general_dilated(x.transpose(place[0]), w.transpose(place[1]), strides, pads, spread, gaps, layouts,
                                   groups)
    near(got, want.transpose(place[2]), 1e-4)


def test_padding_names():
    assert lax.padtype_to_pads((7, 8), (3, 3), (2, 2), "SAME") == [(1, 1), (0, 1)]
    assert lax.padtype_to_pads((7, 8), (3, 3), (2, 2), "same_lower") == [(1, 1), (1, 0)]
    x, w = X[:, None], np.ones((1, 1, 3, 3), "f")
    near(lax.conv(x, w, (1, 1), "SAME"), lax.conv(x, w, (1, 1), [(1, 1), (1, 1)]))
    with pytest.raises(ValueError, match="padding must be"):
        lax.conv(x, w, (1, 1), "FULL")
    with pytest.raises(ShapeError, match="dimension_numbers"):
        lax.conv(x, np.ones((1, 2, 3, 3), "f"), (1, 1), "SAME")
    with pytest.raises(ValueError, match="layout"):
        lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHW", "OIHW", "NCHW"))


@pytest.mark.parametrize("padding, extents", [("SAME", (6, 8)), ("VALID", (7, 9)), ([(2, 1), (1, 1)], (6, 7))])
@pytest.mark.parametrize("flipped", [False, True])
def test_conv_transpose(padding, extents, flipped):
    x, w = RNG.standard_normal((1, 3, 4, 2)).astype("f"), RNG.standard_normal((3, 3, 2, 5)).astype("f")
    kernel = w[::-1, ::-1].transpose(0, 1, 3, 2) if flipped else w
    got = lax.conv_transpose(x, np.ascontiguousarray(kernel), (2, 2), padding, transpose_kernel=flipped)
    assert got.shape == (1, *extents, 5)
    pads = {"SAME": [(2, 1), (2, 1)], "VALID": [(2, 2), (2, 2)]}.get(padding if isinstance(padding, str) else "",
                                                                     padding)
    want = direct_convolution(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (1, 1), pads, (2, 2), (1, 1), 1)
    near(got, want.transpose(0, 2, 3, 1), 1e-4)


def test_patches():
    x = RNG.standard_normal((2, 3, 5, 6)).astype("f")
    patches = np.asarray(lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "VALID"))
    w = RNG.standard_normal((4, 3, 2, 3)).astype("f")
    near(lax.conv(x, w, (1, 2), "VALID"), np.einsum("npij,op->noij", patches, w.reshape(4, -1)), 1e-4)

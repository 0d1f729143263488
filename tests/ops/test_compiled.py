"""Contractions, indexing, sorting and sampling as compiled code, against their references."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fungrad
from fungrad.ir.types import literal
from fungrad.ops.bits import threefry2x32_p
from fungrad.ops.contract import dot_general_p
from fungrad.ops.convolution import conv_p
from fungrad.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fungrad.ops.index import IndexNumbers, gather_p, scatter_p
from fungrad.ops.samplers import gamma_derivative_p, random_gamma_p, random_poisson_p
from fungrad.ops.sort import sort_p
from fungrad.trace import bind
from tests.ops.helpers import assert_same, reference

F32, F64 = np.dtype("float32"), np.dtype("float64")
ROWS = IndexNumbers(window_dims=(1,), dropped_dims=(0,), index_map=(0,))
BATCHED = IndexNumbers((2,), (1,), (1,), (0,), (0,))
CONV = {"strides": (1, 1), "padding": ((1, 1), (0, 2)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
        "feature_group_count": 1, "batch_group_count": 1, "dtype": F32}


def check(primitive, *arrays, tolerance=None, **params):
    """The compiled primitive computes its reference."""
    result = fungrad.jit(lambda *xs: bind(primitive, *xs, **params))(*arrays)
    actual = tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)
    assert_same(actual, reference(primitive, *arrays, **params), str(primitive), tolerance)


def noise(*shape, dtype=F32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int8"])
def test_dot_general(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b = (noise(3, 17, 20) * 4).astype(kind), (noise(20, 3, 33) * 4).astype(kind)
    check(dot_general_p, a, b, dimension_numbers=(((2,), (0,)), ((0,), (1,))), dtype=kind)


@pytest.mark.parametrize("change", [
    {}, {"strides": (2, 1)}, {"rhs_dilation": (1, 2)}, {"lhs_dilation": (2, 3)}, {"feature_group_count": 2},
    {"batch_group_count": 2}, {"padding": ((-1, 2), (0, -1))}], ids=str)
def test_conv(change):
    inputs = 8 // change.get("feature_group_count", 1)
    check(conv_p, noise(4, 8, 9, 10), noise(16, inputs, 3, 3), tolerance=1e-4, **CONV | change)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gather(mode):
    fill = literal(float("nan"), F32) if mode == "fill" else None
    rows, batched = np.array([[7], [-1], [2]], np.int32), np.array([[[7], [-1]], [[2], [0]]], np.int8)
    check(gather_p, noise(6, 20), rows, dimension_numbers=ROWS, slice_sizes=(1, 20), mode=mode, fill_value=fill)
    params = {"dimension_numbers": BATCHED, "slice_sizes": (1, 1, 5), "mode": mode, "fill_value": fill}
    check(gather_p, noise(2, 6, 5), batched, **params)


@pytest.mark.parametrize("combine", ["set", "add", "mul", "min", "max"])
def test_scatter(combine):
    params = {"combine": combine, "mode": "drop", "unique": False}
    rows = np.array([[7], [-1], [2], [2]])
    check(scatter_p, noise(6, 21), rows, noise(4, 21), dimension_numbers=ROWS, **params)
    check(scatter_p, noise(2, 6, 5), rows.reshape(2, 2, 1), noise(2, 2, 5), dimension_numbers=BATCHED, **params)
    check(scatter_p, noise(900, 64), rows * 100, noise(4, 64), dimension_numbers=ROWS, **params)   # in row blocks


def test_dynamic_windows():
    starts = np.array([3, -1], np.int32), np.array([0, 9], np.int32)
    check(dynamic_slice_p, noise(2, 5, 6), *starts, sizes=(2, 2, 6), batch_dims=1)
    check(dynamic_update_slice_p, noise(2, 5, 6), noise(2, 2, 3), *starts, batch_dims=1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "int32", "float32", "float64"])
@pytest.mark.parametrize("length", [9, 50])
def test_sort(dtype, length):
    x = (noise(2, length) * 3).astype(dtype)
    if x.dtype.kind == "f":
        x[0, :4] = np.nan, 0.0, -0.0, -np.inf
    check(sort_p, x, axis=1, num_keys=1, stable=False)
    check(sort_p, x, np.arange(2 * length).reshape(2, length), axis=1, num_keys=1, stable=True)


def test_sort_by_two_keys_along_the_first_axis():
    first = np.random.default_rng(0).integers(0, 3, (50, 3)).astype(np.int8)
    check(sort_p, first, noise(50, 3), noise(50, 3, dtype=F64), axis=0, num_keys=2, stable=True)


def test_constants_and_positions_are_computed_in_the_loops():
    x = noise(60)
    positions = fungrad.jit(fungrad.numpy.argsort)(x)
    np.testing.assert_array_equal(np.asarray(positions), np.argsort(x, kind="stable"))
    indices = np.array([3, 1, 3, 7])
    total = fungrad.jit(lambda i: fungrad.numpy.zeros(8).at[i].add(2.0))(indices)
    np.testing.assert_array_equal(np.asarray(total), [0, 2, 0, 4, 0, 0, 0, 2])


def test_random_words_and_samples():
    words = np.random.default_rng(0).integers(0, 2**32, (4, 40), np.uint32)
    check(threefry2x32_p, *words)
    alpha = np.linspace(0.1, 20, 40)
    check(random_gamma_p, words[0], words[1], alpha, log_space=True, tolerance=1e-9)
    check(random_gamma_p, words[0], words[1], alpha.astype(F32), log_space=False, tolerance=1e-4)
    check(gamma_derivative_p, np.append(alpha, [2.0, 2e4]), np.append(alpha * 1.3, [0.0, 2.1e4]), tolerance=1e-9)
    check(random_poisson_p, words[0], words[1], words[2], (alpha * 2).astype(F32))

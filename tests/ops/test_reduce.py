"""Reductions, positions of extrema, running operations: values, ties, zeros, NaN, empty axes."""
from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.dtypes import ALL
from fungrad.errors import DTypeError, RefusedError, ShapeError
from fungrad.ir.primitive import PRIMITIVES, Linear
from fungrad.ir.types import array_type
from fungrad.ops import cumulative, reduce
from fungrad.ops.cumulative import cumsum, linear_recurrence
from fungrad.trace import active
from tests.ops.eager import EagerTrace, run, unwrap, wrap
from tests.ops.evaluate import lowered
from tests.ops.helpers import assert_same, check_jvp, check_lower, reference

F16, F32, BF16, I32 = np.dtype("float16"), np.dtype("float32"), np.dtype(ml_dtypes.bfloat16), np.dtype("int32")


def tangent_of(name, x, tangent, **params):
    with active(EagerTrace()):
        _, result = PRIMITIVES[name].jvp([wrap(x)], [wrap(tangent)], **params)
    return unwrap(result)


# ---- reductions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "identity"), [
    ("reduce_sum", 0), ("reduce_prod", 1), ("reduce_max", -math.inf), ("reduce_min", math.inf)])
def test_an_empty_reduction_is_the_identity(name, identity):
    x = np.zeros((2, 0), F32)
    assert run(getattr(reduce, name), x, axes=(1,)).tolist() == [identity] * 2
    check_lower(PRIMITIVES[name], x, axes=(1,))


def test_empty_reductions_of_integers_and_bool():
    assert run(reduce.reduce_max, np.zeros((0,), I32), axes=(0,)) == -2**31
    assert run(reduce.reduce_min, np.zeros((0,), np.uint8), axes=(0,)) == 255
    assert bool(run(reduce.reduce_and, np.zeros((0,), bool), axes=(0,)))
    assert not run(reduce.reduce_max, np.zeros((0,), bool), axes=(0,))


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_nan_propagates_and_takes_the_tangent(dtype):
    x = np.array([1, math.nan, 3], dtype)
    for name in ("reduce_max", "reduce_min"):
        assert np.isnan(run(getattr(reduce, name), x, axes=(0,)))
        assert float(tangent_of(name, x, np.array([5, 7, 9], dtype), axes=(0,))) == 7


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_equal_extrema_share_the_tangent(name):
    x = np.array([2.0, 2.0, 2.0, 2.0])
    assert tangent_of(name, x, np.array([1.0, 2.0, 3.0, 6.0]), axes=(0,)) == 3


def test_seventy_thousand_equal_float16():
    x = np.ones(70_000, F16)
    assert float(tangent_of("reduce_max", x, np.ones(70_000, F16), axes=(0,))) == 1
    # Backwards each element gets 1 / 70,000, which float16 holds although it does not hold 70,000.
    one = np.zeros(70_000, F16)
    one[7] = 1
    assert float(tangent_of("reduce_max", x, one, axes=(0,))) == pytest.approx(1 / 70_000, rel=1e-2)


@given(st.lists(st.sampled_from([0.0, 0.5, -2.0, 3.0]), min_size=1, max_size=6))
def test_the_derivative_of_a_product_with_zeros(elements):
    x = np.array(elements)
    for i in range(len(x)):
        others = np.prod(np.delete(x, i))
        assert tangent_of("reduce_prod", x, np.eye(len(x))[i], axes=(0,)) == others


def test_products_of_sixteen_bits_are_accumulated_in_float32():
    x = np.array([300, 300, 1 / 300, 1 / 300], F16)
    assert float(run(reduce.reduce_prod, x, axes=(0,))) == pytest.approx(1, rel=2e-3)
    check_lower(PRIMITIVES["reduce_prod"], x, axes=(0,))
    assert float(tangent_of("reduce_prod", x, np.array([0, 0, 1, 0], F16), axes=(0,))) == pytest.approx(300, rel=2e-3)


def test_bits_reduce_bit_by_bit():
    x = np.array([[0b1100, 0b1010], [0b0110, 0b0011]], I32)
    assert run(reduce.reduce_and, x, axes=(1,)).tolist() == [0b1000, 0b0010]
    assert run(reduce.reduce_or, x, axes=(1,)).tolist() == [0b1110, 0b0111]
    assert run(reduce.reduce_xor, x, axes=(1,)).tolist() == [0b0110, 0b0101]
    with pytest.raises(DTypeError, match="reduce_and does not take float32"):
        run(reduce.reduce_and, np.ones(2, F32), axes=(0,))


def test_axes_are_checked():
    with pytest.raises(ShapeError, match=r"reduce_max: axes \(2,\) are not distinct axes of an array"):
        run(reduce.reduce_max, np.ones((2, 3)), axes=(2,))
    assert_same(run(reduce.reduce_max, np.ones((2, 3)), axes=()), np.ones((2, 3)))


# ---- argmax, argmin -------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([1.0, 2.0, -math.inf, math.inf, math.nan]), min_size=1, max_size=6))
def test_positions_of_extrema_as_numpy(elements):
    x = np.array(elements, F32)
    for name in ("argmax", "argmin"):
        expected = np.asarray(getattr(np, name)(x), I32)
        assert_same(run(getattr(reduce, name), x, axis=0), expected)
        check_lower(PRIMITIVES[name], x, axis=0, dtype=I32)


def test_positions_in_bool_and_unsigned():
    assert run(reduce.argmax, np.array([False, True, True]), axis=0) == 1
    assert run(reduce.argmin, np.array([3, 0, 0], np.uint8), axis=0) == 1


def test_argmax_refuses_an_empty_axis_and_a_narrow_type():
    with pytest.raises(ShapeError, match=r"argmax: axis 1 of an array of shape \(2, 0\) is empty"):
        run(reduce.argmax, np.ones((2, 0)), axis=1)
    with pytest.raises(DTypeError, match="int8 does not hold the positions along an axis of 200"):
        run(reduce.argmax, np.ones(200), axis=0, dtype=np.dtype("int8"))


# ---- running operations ---------------------------------------------------------------------------------------------

RUNNING = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}


@settings(max_examples=60)
@given(st.sampled_from(sorted(RUNNING)), st.sampled_from([d for d in ALL if d != np.dtype(bool)]),
       st.sampled_from([(5,), (0,), (1, 3), (3, 7), (2, 3, 20), (70, 2), (2, 200), (3, 0)]), st.booleans(), st.data())
def test_running_operations_as_numpy(name, dtype, shape, reverse, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.random.default_rng(0).integers(-1, 2, shape).astype(dtype)   # small whole numbers: exact in every type
    turned = np.flip(x, axis) if reverse else x
    wide = turned if dtype.kind in "iu" else turned.astype(np.float64)
    expected = RUNNING[name](wide, axis).astype(dtype) if x.size else x
    expected = np.flip(expected, axis) if reverse else expected
    assert_same(run(getattr(cumulative, name), x, axis=axis, reverse=reverse), expected, tolerance=0)
    assert_same(lowered(PRIMITIVES[name], x, axis=axis, reverse=reverse), expected, tolerance=0)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extrema_keep_nan(name):
    x = np.array([1, 3, math.nan, 2, 5], F32)
    expected = [x[0], x[1] if name == "cummax" else 1, math.nan, math.nan, math.nan]
    np.testing.assert_array_equal(run(getattr(cumulative, name), x, axis=0), expected)
    np.testing.assert_array_equal(lowered(PRIMITIVES[name], x, axis=0, reverse=False), expected)
    tangent = tangent_of(name, x, np.array([1, 2, 3, 4, 5], F32), axis=0, reverse=False)
    assert tangent[2:].tolist() == [3, 3, 3]


def test_running_sums_of_sixteen_bits_are_carried_in_float32():
    x = np.full(4096, 1, F16)
    assert float(run(cumsum, x, axis=0)[-1]) == 4096
    assert float(lowered(PRIMITIVES["cumsum"], x, axis=0, reverse=False)[-1]) == 4096
    small = np.full(3000, 1e-3, BF16)
    assert float(run(cumsum, small, axis=0)[-1]) == pytest.approx(3, rel=1e-2)


@given(st.lists(st.sampled_from([0.0, 1.0, -2.0, 0.5]), min_size=1, max_size=6), st.booleans())
def test_the_derivative_of_a_running_product_with_zeros(elements, reverse):
    check_jvp(PRIMITIVES["cumprod"], np.array(elements), wrt=(0,), axis=0, reverse=reverse, tolerance=1e-4)


@given(st.integers(0, 6), st.booleans())
def test_linear_recurrence(length, reverse):
    random = np.random.default_rng(length)
    factor, term = random.standard_normal((2, length, 2))
    expected, h = np.zeros_like(term), np.zeros(2)
    for k in reversed(range(length)) if reverse else range(length):
        expected[k] = h = factor[k] * h + term[k]
    assert_same(run(linear_recurrence, factor, term, axis=0, reverse=reverse), expected)
    check_lower(PRIMITIVES["linear_recurrence"], factor, term, axis=0, reverse=reverse)


def test_a_recurrence_has_no_transpose_for_its_factors():
    x = np.ones(3)
    with pytest.raises(RefusedError, match="factors"):
        PRIMITIVES["linear_recurrence"].transpose(wrap(x), [Linear(array_type((3,), x.dtype)), wrap(x)], axis=0,
                                                  reverse=False)


def test_running_operations_check_their_axis():
    with pytest.raises(ShapeError, match=r"cumsum: axis 1 is not an axis of an array of shape \(3,\)"):
        reference(PRIMITIVES["cumsum"], np.ones(3), axis=1, reverse=False)
    with pytest.raises(DTypeError, match="cumprod does not take bool"):
        reference(PRIMITIVES["cumprod"], np.ones(3, bool), axis=0, reverse=False)

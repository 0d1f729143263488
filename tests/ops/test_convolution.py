"""conv: every rule against the NumPy reference, the reference against hand-written sums and JAX's numbers."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from fungrad.errors import DTypeError, ShapeError
from fungrad.ir.types import array_type
from fungrad.ops.convolution import conv, conv_p, convolved_extents
from fungrad.trace import trace_program
from tests.ops.eager import run
from tests.ops.helpers import assert_same, check_batch, check_jvp, check_lower, check_transpose, reference

F32, F64 = np.dtype("float32"), np.dtype("float64")
PLAIN = {"strides": (1,), "padding": ((0, 0),), "lhs_dilation": (1,), "rhs_dilation": (1,), "feature_group_count": 1,
         "batch_group_count": 1, "dtype": F64}


@st.composite
def convolutions(draw, max_rank=2):
    """Shapes and parameters of a convolution with a result."""
    rank = draw(st.integers(0, max_rank))
    each = lambda strategy: tuple(draw(strategy) for _ in range(rank))
    extents, kernel = each(st.integers(1, 5)), each(st.integers(1, 3))
    strides, spread, kernel_spread = each(st.integers(1, 3)), each(st.integers(1, 3)), each(st.integers(1, 2))
    padding = each(st.tuples(st.integers(-1, 3), st.integers(-1, 3)))
    assume(all(x > 0 for x in convolved_extents(extents, kernel, strides, padding, spread, kernel_spread)))
    assume(all((x - 1) * d + 1 + low >= 0 and (x - 1) * d + 1 + high >= 0 and (x - 1) * d + 1 + low + high >= 0
               for x, d, (low, high) in zip(extents, spread, padding, strict=True)))
    groups, batch_groups = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
    batch, inputs, features = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    lhs = (batch * batch_groups, inputs * groups, *extents)
    rhs = (features * groups * batch_groups, inputs, *kernel)
    return lhs, rhs, {"strides": strides, "padding": padding, "lhs_dilation": spread, "rhs_dilation": kernel_spread,
                      "feature_group_count": groups, "batch_group_count": batch_groups, "dtype": F64}


def _arrays(*shapes, seed=0):
    noise = np.random.default_rng(seed)
    return [noise.standard_normal(shape) for shape in shapes]


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_every_rule_on_random_convolutions(case):
    lhs, rhs, params = case
    a, b = _arrays(lhs, rhs)
    check_lower(conv_p, a, b, **params)
    check_transpose(conv_p, a, b, wrt=(0,), **params)
    check_transpose(conv_p, a, b, wrt=(1,), **params)


@settings(max_examples=30, deadline=None)
@given(convolutions(max_rank=1), st.data())
def test_batch_on_random_convolutions(case, data):
    lhs, rhs, params = case
    which = data.draw(st.sampled_from(["both", "left", "right"]))
    lhs_axis = None if which == "right" else data.draw(st.integers(0, len(lhs)))
    rhs_axis = None if which == "left" else data.draw(st.integers(0, len(rhs)))

    def with_axis(shape, axis):
        return shape if axis is None else (*shape[:axis], 3, *shape[axis:])
    a, b = _arrays(with_axis(lhs, lhs_axis), with_axis(rhs, rhs_axis))
    check_batch(conv_p, a, b, axes=(lhs_axis, rhs_axis), **params)


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_operands_with_holes_are_convolved_by_phases(case):
    lhs, rhs, params = case
    a, b = _arrays(lhs, rhs)
    assert_same(run(conv, a, b, **params), reference(conv_p, a, b, **params))


def test_a_transposed_convolution_multiplies_no_holes():
    def primitives(kernel):
        params = PLAIN | {"lhs_dilation": (2,), "padding": ((1, 1),)}
        x = array_type((1, 1, 5), F64)
        traced = trace_program(lambda x, w: [conv(x, w, **params)], [x, array_type((1, 1, kernel), F64)])
        return [n for n in traced.program if n.primitive is conv_p]
    for kernel, features, taps in ((1, 1, 1), (3, 2, 2), (4, 2, 2)):
        node, = primitives(kernel)
        assert node.param("lhs_dilation") == (1,)
        assert node.operands[1].type.shape == (features, 1, taps)


def test_jvp():
    a, b = _arrays((1, 2, 4), (3, 2, 2))
    check_jvp(conv_p, a, b, wrt=(0, 1), **PLAIN | {"padding": ((1, 0),), "strides": (2,)})


def test_one_dimension_by_hand():
    x, w = np.array([[[1., 2., 3., 4.]]]), np.array([[[1., 10.]]])
    assert run(conv, x, w).tolist() == [[[21., 32., 43.]]]
    assert run(conv, x, w, padding=((1, 0),)).tolist() == [[[10., 21., 32., 43.]]]
    assert run(conv, x, w, strides=(2,)).tolist() == [[[21., 43.]]]
    assert run(conv, x, w, rhs_dilation=(2,)).tolist() == [[[31., 42.]]]
    assert run(conv, x, w, lhs_dilation=(2,)).tolist() == [[[1., 20., 2., 30., 3., 40.]]]
    assert run(conv, x, w, padding=((-1, -1),)).tolist() == [[[32.]]]


def test_groups_as_in_jax():
    """jax.lax.conv_general_dilated on iota operands, feature and batch groups of two."""
    x, w = np.arange(12.).reshape(2, 2, 3), np.arange(4.).reshape(4, 1, 1) + 1
    by_feature = run(conv, x, w, feature_group_count=2)
    assert by_feature[:, :, 0].tolist() == [[0., 0., 9., 12.], [6., 12., 27., 36.]]
    by_batch = run(conv, x, np.repeat(w, 2, 1), batch_group_count=2)
    assert by_batch[:, :, 0].tolist() == [[3., 6., 45., 60.]]


def test_16_bit_floats_accumulate_in_float32():
    a, w = np.ones((1, 64, 1), np.float16), np.ones((1, 64, 1), np.float16)
    result = run(conv, a * 64, w)
    assert result.dtype == np.float16 and float(result[0, 0, 0]) == 4096.0
    params = PLAIN | {"dtype": np.dtype("float16")}
    check_lower(conv_p, a, w, **params)


def test_empty_operands_give_empty_or_zero_results():
    assert_same(run(conv, np.ones((0, 2, 3)), np.ones((4, 2, 2))), np.ones((0, 4, 2)))
    assert_same(run(conv, np.ones((1, 0, 3)), np.ones((4, 0, 2))), np.zeros((1, 4, 2)))
    assert run(conv, np.ones((1, 1, 2)), np.ones((1, 1, 3))).shape == (1, 1, 0)
    check_transpose(conv_p, np.ones((0, 2, 3)), np.ones((4, 2, 2)), wrt=(1,), **PLAIN)


def test_errors():
    kernel = array_type((4, 3, 3), F32)
    with pytest.raises(ShapeError, match=r"\(1, 2, 5\) has 2 channels.*\(4, 3, 3\).* takes 3"):
        conv_p.type(array_type((1, 2, 5), F32), kernel, **PLAIN | {"dtype": F32})
    with pytest.raises(ShapeError, match="strides=.*one entry for each of the 1"):
        conv_p.type(array_type((1, 3, 5), F32), kernel, **PLAIN | {"dtype": F32, "strides": (1, 1)})
    with pytest.raises(ShapeError, match="do not divide"):
        conv_p.type(array_type((1, 9, 5), F32), kernel, **PLAIN | {"dtype": F32, "feature_group_count": 3})
    with pytest.raises(DTypeError, match="mix"):
        conv_p.type(array_type((1, 3, 5), np.dtype("int32")), kernel, **PLAIN | {"dtype": F32})
    assert reference(conv_p, *_arrays((1, 3, 5), (4, 3, 3)), **PLAIN).shape == (1, 4, 3)

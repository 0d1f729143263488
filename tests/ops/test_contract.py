"""dot_general: every rule against NumPy."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.errors import DTypeError, ShapeError
from fungrad.ir.types import array_type
from fungrad.ops.contract import dot_general, dot_general_p
from tests.ops.eager import run
from tests.ops.helpers import assert_same, check_batch, check_jvp, check_lower, check_transpose, reference

F32, F64 = np.dtype("float32"), np.dtype("float64")
MATMUL = (((1,), (0,)), ((), ()))


@st.composite
def contractions(draw):
    """Dimension numbers with two shapes that fit them: random numbers of batch, contracted and free axes, shuffled."""
    extents = st.integers(1, 3)
    batch = draw(st.lists(extents, max_size=2))
    contract = draw(st.lists(st.integers(0, 3), max_size=2))
    sides = []
    for _ in range(2):
        free = draw(st.lists(extents, max_size=2))
        shape = [*batch, *contract, *free]
        order = draw(st.permutations(range(len(shape))))
        place = {axis: position for position, axis in enumerate(order)}
        sides.append((tuple(shape[a] for a in order), tuple(place[i] for i in range(len(batch))),
                      tuple(place[len(batch) + i] for i in range(len(contract)))))
    (lhs, lhs_batch, lhs_contract), (rhs, rhs_batch, rhs_contract) = sides
    return lhs, rhs, ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))


def _arrays(lhs, rhs, seed=0):
    noise = np.random.default_rng(seed)
    return noise.standard_normal(lhs), noise.standard_normal(rhs)


@settings(max_examples=30, deadline=None)
@given(contractions())
def test_every_rule_on_random_contractions(case):
    lhs, rhs, numbers = case
    a, b = _arrays(lhs, rhs)
    params = {"dimension_numbers": numbers, "dtype": F64}
    check_lower(dot_general_p, a, b, **params)
    check_transpose(dot_general_p, a, b, wrt=(0,), **params)
    check_transpose(dot_general_p, a, b, wrt=(1,), **params)
    check_jvp(dot_general_p, a, b, wrt=(0, 1), **params)


@settings(max_examples=30, deadline=None)
@given(contractions(), st.data())
def test_batch_on_random_contractions(case, data):
    lhs, rhs, numbers = case
    axes = data.draw(st.sampled_from(["both", "left", "right"]))
    lhs_axis = None if axes == "right" else data.draw(st.integers(0, len(lhs)))
    rhs_axis = None if axes == "left" else data.draw(st.integers(0, len(rhs)))

    def with_axis(shape, axis):
        return shape if axis is None else (*shape[:axis], 2, *shape[axis:])
    a, b = _arrays(with_axis(lhs, lhs_axis), with_axis(rhs, rhs_axis))
    check_batch(dot_general_p, a, b, axes=(lhs_axis, rhs_axis), dimension_numbers=numbers, dtype=F64)


def test_result_axes_are_batch_then_left_then_right():
    a, b = _arrays((2, 5, 3), (3, 4, 2))
    result = run(dot_general, a, b, (((2,), (0,)), ((0,), (2,))))
    assert_same(result, np.einsum("bik,kjb->bij", a, b))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_16_bit_floats_accumulate_in_float32(kind):
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    ones = np.ones((1, 4096), np.float32).astype(dtype)
    result = run(dot_general, ones, ones.T.copy(), MATMUL)
    assert result.dtype == dtype and float(result[0, 0]) == 4096.0
    assert run(dot_general, ones, ones.T.copy(), MATMUL, F32).dtype == F32
    check_lower(dot_general_p, ones[:, :40], ones[:, :40].T.copy(), dimension_numbers=MATMUL, dtype=dtype)


def test_integers_wrap_and_widen():
    a = np.full((1, 3), 100, np.int8)
    assert run(dot_general, a, a.T.copy(), MATMUL)[0, 0] == np.int8(30000 - 117 * 256)
    wide = run(dot_general, a, a.T.copy(), MATMUL, np.dtype("int32"))
    assert wide.dtype == np.int32 and wide[0, 0] == 30000
    check_lower(dot_general_p, a, a.T.copy(), dimension_numbers=MATMUL, dtype=np.dtype("int32"))


def test_mixed_floats_give_cotangents_of_the_operands_types():
    noise = np.random.default_rng(0)
    a, b = noise.standard_normal((2, 3)).astype(np.float32), noise.standard_normal((3, 4))
    assert reference(dot_general_p, a, b, dimension_numbers=MATMUL, dtype=F64).dtype == F64
    check_transpose(dot_general_p, a.astype(F64), b, wrt=(0,), dimension_numbers=MATMUL, dtype=F64)


def test_empty_contraction_is_zero():
    assert_same(run(dot_general, np.ones((2, 0)), np.ones((0, 3)), MATMUL), np.zeros((2, 3)))


def test_errors_name_both_shapes_and_the_extents():
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(4, 5\).*axis 1 .*3 elements, axis 0 .* 4"):
        dot_general_p.type(array_type((2, 3), F32), array_type((4, 5), F32), dimension_numbers=MATMUL, dtype=F32)
    with pytest.raises(ShapeError, match="distinct"):
        dot_general_p.type(array_type((2, 3), F32), array_type((3, 5), F32),
                           dimension_numbers=(((2,), (0,)), ((), ())), dtype=F32)
    with pytest.raises(DTypeError, match="bool"):
        boolean = array_type((2, 2), np.dtype(bool))
        dot_general_p.type(boolean, boolean, dimension_numbers=MATMUL, dtype=np.dtype(bool))
    with pytest.raises(DTypeError, match="mix"):
        dot_general_p.type(array_type((2, 2), F32), array_type((2, 2), np.dtype("int32")),
                           dimension_numbers=MATMUL, dtype=F32)

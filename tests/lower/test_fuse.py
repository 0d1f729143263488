"""Fusion keeps the meaning of programs and makes the kernels that it should."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.ir.types import array_type
from fungrad.lower import fuse_blocks, fuse_groups, fuse_stages
from fungrad.lower.fuse import fuse
from fungrad.ops import contract, create, cumulative, elementwise as e, linear, reduce, slicing
from fungrad.trace import evaluate
from fungrad.transforms.linearize import linearize_program
from fungrad.transforms.transpose import transpose_program
from tests.lower.programs import FLOAT32, TARGET, check, kernels, random_arrays, random_function, traced


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_programs_keep_their_meaning(data):
    shapes = data.draw(st.lists(st.lists(st.sampled_from([1, 2, 3, 4, 0]), max_size=3).map(tuple), min_size=1,
                                max_size=3))
    program = traced(random_function(data.draw), *shapes)
    check(program, random_arrays(program.input_types, data.draw(st.integers(0, 3))))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_programs_keep_their_meaning_under_the_rules_for_large_arrays(data):
    shapes = data.draw(st.lists(st.lists(st.sampled_from([1, 2, 8, 16]), min_size=1, max_size=3).map(tuple), min_size=1,
                                max_size=2))
    program = traced(random_function(data.draw), *shapes)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SMALL", 0), ("MIN_PARALLEL", 2), ("MIN_SHARED", 0), ("MIN_RUN", 2)):
            patch.setattr(fuse_groups, name, value)
        for name, value in (("MIN_BLOCK", 2), ("MIN_BLOCKS", 1), ("WORTH", 0)):
            patch.setattr(fuse_blocks, name, value)
        patch.setattr(fuse_stages, "MIN_CONTRACTION", 16)
        patch.setattr(fuse_stages, "MIN_ELEMENTS", 2)
        check(program, random_arrays(program.input_types))


def rows(x, n):
    return linear.broadcast(x, (x.shape[0], n), (0,))


def softmax(x):
    n = x.shape[1]
    exponentials = e.exp(e.sub(x, rows(reduce.reduce_max(x, (1,)), n)))
    return [e.div(exponentials, rows(linear.reduce_sum(exponentials, (1,)), n))]


def log_softmax(x):
    n = x.shape[1]
    shifted = e.sub(x, rows(reduce.reduce_max(x, (1,)), n))
    return [e.sub(shifted, rows(e.log(linear.reduce_sum(e.exp(shifted), (1,))), n))]


def layer_norm(x, gain, bias):
    shape = x.shape
    mean = e.mul(linear.reduce_sum(x, (1,)), create.full((shape[0],), 1 / shape[1], FLOAT32))
    centred = e.sub(x, rows(mean, shape[1]))
    variance = e.mul(linear.reduce_sum(e.mul(centred, centred), (1,)), create.full((shape[0],), 1 / shape[1], FLOAT32))
    scale = e.rsqrt(e.add(variance, create.full_like(variance, 1e-5)))
    return [e.add(e.mul(e.mul(centred, rows(scale, shape[1])), linear.broadcast(gain, shape, (1,))),
                  linear.broadcast(bias, shape, (1,)))]


def layer_norm_loss(x, gain, bias, weight):
    (y,) = layer_norm(x, gain, bias)
    return [linear.reduce_sum(e.mul(y, weight), (0, 1))]


def gradient(function, *shapes, count):
    """The program of the gradients of a scalar function with respect to its first operands."""
    program = traced(function, *shapes)
    marked = tuple(number < count for number in range(len(shapes)))
    forward, linear_part, _ = linearize_program(program, marked)
    backward, _ = transpose_program(linear_part, tuple(n < count for n in range(len(linear_part.input_types))), (True,))

    def function_and_gradients(*values):
        result, *residuals = evaluate(forward, values)
        return [result, *evaluate(backward, [*residuals, create.full((), 1, FLOAT32)])]
    return traced(function_and_gradients, *shapes)


def adam(p, m, v, gradient):
    def scaled(x, factor):
        return e.mul(x, create.full_like(x, factor))
    m = e.add(scaled(m, 0.9), scaled(gradient, 0.1))
    v = e.add(scaled(e.mul(v, v), 0.999), scaled(e.mul(gradient, gradient), 0.001))
    return [e.sub(p, e.div(scaled(m, 1e-3), e.add(e.sqrt(v), create.full_like(v, 1e-8)))), m, v]


def dense(x, w, bias):
    y = contract.dot_general(x, w, (((1,), (0,)), ((), ())))
    y = e.add(y, linear.broadcast(bias, y.shape, (1,)))
    return [e.max(y, create.full_like(y, 0))]


def test_softmax_is_one_kernel():
    assert kernels(softmax, (64, 33)) == ["nests"]


def test_log_softmax_is_one_kernel():
    assert kernels(log_softmax, (64, 33)) == ["nests"]


def test_layer_norm_is_one_kernel():
    assert kernels(layer_norm, (64, 33), (33,), (33,)) == ["nests"]


def test_rows_of_a_large_softmax_run_in_parallel():
    (launch,) = fuse(traced(softmax, (512, 512)), TARGET).launches
    assert [a.extent for a in launch.kernel.outer] == [512]


def test_an_adam_update_is_one_kernel():
    assert kernels(adam, *[(16, 24)] * 4) == ["nests"]


def test_equal_updates_are_the_same_kernel_and_different_parameters_different_launches():
    def updates(*values):
        return [*adam(*values[:4]), *adam(*values[4:])]
    first, second = check(traced(updates, *[(64, 64)] * 8)).launches
    assert first.kernel is second.kernel


def test_bias_and_relu_are_the_epilogue_of_a_matmul():
    assert kernels(dense, (32, 16), (16, 40), (40,)) == ["contraction"]


def test_an_adam_update_is_the_epilogue_of_a_weight_gradient():
    def update(x, cotangent, p, m, v):
        return adam(p, m, v, contract.dot_general(x, cotangent, (((0,), (0,)), ((), ()))))
    fused = check(traced(update, (64, 16), (64, 24), *[(16, 24)] * 3))
    (launch,) = fused.launches
    assert launch.kernel.kind == "contraction" and len(launch.kernel.outputs) == 3


def test_small_products_are_ordinary_reductions():
    assert kernels(dense, (2, 3), (3, 4), (4,)) == ["nests"]


def test_casts_and_transposes_are_read_through_by_a_contraction():
    def product(x, w):
        y = contract.dot_general(linear.transpose(linear.convert(x, FLOAT32), (1, 0)), w, (((1,), (0,)), ((), ())))
        return [y]
    fused = check(traced(product, array_type((32, 24), np.dtype("float16")), (32, 40)))
    assert [launch.kernel.kind for launch in fused.launches] == ["contraction"]


def test_an_expensive_operand_of_a_contraction_is_computed_once():
    def product(x, w):
        return [contract.dot_general(e.tanh(x), w, (((1,), (0,)), ((), ())))]
    assert kernels(product, (32, 32), (32, 32)) == ["nests", "contraction"]


def test_movement_is_never_a_kernel_of_its_own():
    def moved(x):
        y = linear.reshape(slicing.flip(linear.transpose(x, (1, 0)), (0,)), (6, 32))
        return [e.add(y, create.full_like(y, 1))]
    assert kernels(moved, (12, 16)) == ["nests"]


def test_forwarded_duplicate_and_constant_outputs():
    def outputs(x, unused):
        return [x, x, create.full((3,), 2, FLOAT32), create.iota((4,), 0, FLOAT32), linear.transpose(x, (1, 0))]
    fused = check(traced(outputs, (2, 3), (5,)))
    assert fused.outputs[0] == fused.outputs[1] == fused.inputs[0]
    assert len(fused.launches) == 3


def test_a_reshape_shares_the_memory_of_what_it_reshapes():
    fused = check(traced(lambda x: [linear.reshape(e.sin(x), (6,))], (2, 3)))
    assert len(fused.launches) == 1 and fused.slots[fused.outputs[0]].shape == (6,)


def test_arrays_without_elements_need_no_kernel_and_empty_sums_are_zero():
    assert kernels(lambda x: [e.exp(x)], (0, 3)) == []
    fused = check(traced(lambda x: [linear.reduce_sum(x, (0,))], (0, 3)))
    assert len(fused.launches) == 1


def test_scalars():
    assert kernels(lambda x, y: [e.sin(e.add(x, y))], (), ()) == ["nests"]


def test_long_chains_are_cut():
    def chain(x):
        y = x
        for _ in range(300):
            y = e.sin(e.add(y, x))
        return [y]
    assert len(kernels(chain, (3,))) < 8


def test_a_column_reduction_is_not_walked_inside_a_row_kernel():
    def normalized(x):
        total = linear.reduce_sum(x, (0,))
        return [e.div(x, linear.broadcast(total, x.shape, (1,)))]
    assert kernels(normalized, (512, 256)) == ["nests", "nests"]


def test_sums_over_rows_join_the_row_kernel_in_blocks():
    program = gradient(layer_norm_loss, (512, 128), (128,), (128,), (512, 128), count=3)
    first, *rest = check(program).launches
    assert [a.extent for a in first.kernel.outer] == [16] and len(first.kernel.outputs) == 4
    assert all(launch.kernel.nests[0].reduce_axes[0].extent == 16 for launch in rest) and len(rest) == 3


def test_cross_entropy_forward_and_backward_is_one_kernel_and_a_small_sum():
    def cross_entropy(x, labels):
        (scores,) = log_softmax(x)
        return [e.neg(linear.reduce_sum(linear.reduce_sum(e.mul(scores, labels), (1,)), (0,)))]
    fused = check(gradient(cross_entropy, (256, 200), (256, 200), count=1))
    assert len(fused.launches) == 2 and len(fused.launches[1].kernel.inputs) == 1


def test_the_parts_of_a_concatenation_are_written_where_they_are_computed():
    def parts(x, a, b):
        products = [contract.dot_general(x, w, (((1,), (0,)), ((), ()))) for w in (a, b)]
        y = slicing.concatenate([linear.transpose(p, (1, 0)) for p in products], 0)
        return [y, e.neg(y)]
    fused = check(traced(parts, (128, 32), (32, 64), (32, 128)))
    assert [launch.kernel.kind for launch in fused.launches] == ["contraction", "contraction", "nests"]
    assert fused.launches[0].slots[0] == fused.launches[1].slots[0] == fused.outputs[0]


def test_a_part_that_is_reshaped_has_the_axes_of_what_it_reads():
    def parts(x, y):
        heads = e.tanh(linear.transpose(linear.reshape(x, (64, 8, 32)), (1, 0, 2)))
        flat = linear.reshape(linear.transpose(heads, (1, 0, 2)), (64, 256))
        return [slicing.concatenate([flat, y], 1), heads]
    fused = check(traced(parts, (64, 256), (64, 256)))
    assert len(fused.launches) == 2


def test_a_cheap_operand_is_computed_where_an_op_with_loops_reads_it():
    def running(x, y):
        return [cumulative.cumsum(e.mul(x, e.add(y, x)), 1)]
    fused = check(traced(running, (16, 24), (16, 24)))
    (launch,) = fused.launches
    assert launch.kernel.kind == "loops" and len(launch.kernel.inputs) == 2


def test_an_expensive_or_shared_operand_of_an_op_with_loops_is_not():
    assert kernels(lambda x: [cumulative.cumsum(e.tanh(x), 1)], (16, 24)) == ["nests", "loops"]
    assert kernels(lambda x: [cumulative.cumsum(e.neg(x), 1), e.neg(x)], (16, 24)) == ["nests", "loops"]


def test_equal_ops_with_loops_and_operands_are_the_same_kernel():
    def twice(x, y):
        return [cumulative.cumsum(e.mul(x, x), 0), cumulative.cumsum(e.mul(y, y), 0)]
    first, second = check(traced(twice, (16, 24), (16, 24))).launches
    assert first.kernel is second.kernel


def test_reasons_are_given():
    (launch,) = fuse(traced(softmax, (64, 32)), TARGET).launches
    assert "fused: reduce_sum reads exp" in launch.kernel.reasons

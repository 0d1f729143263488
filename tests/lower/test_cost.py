"""Estimates of work: what kernels read, write and compute."""
from __future__ import annotations

from fungrad.lower.cost import expression_cost, work
from fungrad.lower.fuse import fuse
from fungrad.ops import contract, elementwise as e, linear
from tests.lower.programs import TARGET, traced


def kernel(function, *shapes):
    (launch,) = fuse(traced(function, *shapes), TARGET).launches
    return launch.kernel


def test_a_map_reads_its_operands_and_writes_its_result_once():
    found = work(kernel(lambda x, y: [e.add(e.mul(x, y), x)], (64, 32), (64, 32)))
    assert found.read == 2 * 64 * 32 * 4 and found.written == 64 * 32 * 4
    assert found.flops == 2 * 64 * 32 and found.bytes == found.read + found.written


def test_a_product_counts_two_operations_a_term():
    found = work(kernel(lambda x, y: [contract.dot_general(x, y, (((1,), (0,)), ((), ())))], (32, 16), (16, 24)))
    assert found.flops == 2 * 32 * 16 * 24
    assert found.read == (32 * 16 + 16 * 24) * 4


def test_a_slice_reads_only_its_elements():
    found = work(kernel(lambda x: [linear.reduce_sum(e.neg(linear.reshape(x, (32, 128))), (1,))], (64, 64)))
    assert found.read == 64 * 64 * 4 and found.written == 32 * 4


def test_a_shared_expression_costs_once_and_division_more_than_addition():
    single = kernel(lambda x: [e.exp(x)], (64,)).nests[0].value
    double = kernel(lambda x: [e.add(e.exp(x), e.exp(x))], (64,)).nests[0].value
    assert expression_cost(double) == expression_cost(single) + 1
    assert expression_cost(kernel(lambda x, y: [e.div(x, y)], (64,), (64,)).nests[0].value) > \
        expression_cost(kernel(lambda x, y: [e.add(x, y)], (64,), (64,)).nests[0].value)

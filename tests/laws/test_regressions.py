"""Programs on which a stage once computed something else, as random testing shrank them."""
from __future__ import annotations

import numpy as np
import pytest

from fungrad.ir.types import array_type
from fungrad.testing import stages
from fungrad.testing.programs import compiled_source
from fungrad.trace import trace_program

BIG = 2**63 - 1

CASES = {
    # The condition of an outer read was not pushed into the reads of its index: in1[-1] was read.
    "a computed position in a padded window": (
        [np.array([[0, 1, 0, 1, 1]] * 3, bool)], """
v1 = reduce.argmin(v0, 0, dtype('int32'))
v2 = sort.searchsorted(sort.sort([v1], 0)[0], v1, 'right')
taps = linear.reshape(create.iota((2,), 0, dtype("int32")), (2, 1, 1))
v3 = convolution.conv(linear.reshape(v2, (1, 1, 5)), taps, padding=((1, 0),), strides=(2,))
return [reduce.reduce_prod(v3, (1,))]"""),
    "rows at a computed position, put together": (
        [np.arange(24).reshape(8, 3), np.arange(12).reshape(2, 6) % 5 == 0], """
v3 = elementwise.max(v0, 0)
at = elementwise.rem(linear.broadcast(reduce.reduce_max(linear.convert(v3, dtype('int8')), (0, 1)), (2,), ()), 2)
v5 = index.take(v1, at, 0, 'clip')
any_of = linear.broadcast(reduce.reduce_max(linear.convert(v0, dtype('bool')), (0, 1)), (2, 6), ())
v6 = slicing.concatenate([v5, v5, any_of], 0)
return [reduce.reduce_min(v6, (1,))]"""),
    "elements at computed positions, padded": (
        [np.arange(3.0).reshape(1, 3)], """
at = elementwise.rem(linear.reshape(elementwise.mul(create.iota((6,), 0, dtype('int64')), 7), (2, 3)), 5)
v4 = index.take_along_axis(elementwise.integer_pow(v0, 3), at, 0, 'clip')
return [slicing.pad(v4, create.full((), 1, dtype('float64')), ((2, 0, 0), (-1, 1, 1)))]"""),
    # x > y became x - y >= 1, which wraps around.
    "comparison of far integers": (
        [np.array([2, -BIG - 1, BIG, 0]), np.array([5, 2, -1, -BIG - 1])], """
more = elementwise.le(elementwise.add(v0, 1), v1), elementwise.lt(elementwise.mul(v0, 2), 3)
return [elementwise.gt(v0, v1), *more, elementwise.eq(elementwise.sub(v0, v1), 4)]"""),
    # A reduction of a constant was taken into the loops of an op that reads it.
    "a sort of the positions in a constant": (
        [np.zeros(2)], """
v1 = reduce.argmax(create.full((3, 2), 2, dtype('uint16')), 1, dtype('int64'))
return [sort.argsort(v1, 0, True, False)]"""),
    "a scatter of the maximum of a constant": (
        [np.zeros(0, np.int32)], """
v1 = slicing.pad(v0, create.full((), 1, dtype('int32')), ((2, 0, 0),))
at = elementwise.rem(linear.reshape(elementwise.mul(create.iota((3,), 0, dtype('int8')), 7), (3, 1)), 2)
most = linear.broadcast(reduce.reduce_max(v1, (0,)), (3,), ())
return [index.scatter(v1, at, most, IndexNumbers((), (0,), (0,)), 'max', 'clip')]"""),
}


@pytest.mark.parametrize("name", CASES)
def test_all_stages_agree(name: str) -> None:
    arrays, body = CASES[name]
    lines = "\n    ".join(body.strip().split("\n"))
    function = compiled_source(f"def program({', '.join(f'v{i}' for i in range(len(arrays)))}):\n    {lines}")
    program = trace_program(function, [array_type(array.shape, array.dtype) for array in arrays]).program
    stages.check_stages(program, arrays)

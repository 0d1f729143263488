"""The interpreter: the meaning of a program."""
from __future__ import annotations

import numpy as np
import pytest

from fungrad.errors import VerificationError
from fungrad.ir.interpret import interpret
from fungrad.ir.primitive import Primitive, Refused
from fungrad.ir.program import input_node, node, program, result_node
from fungrad.ir.types import array_type
from fungrad.ops import elementwise, linear, reduce
from fungrad.trace import trace_program

F32 = np.dtype("float32")
_NONE = Refused("this primitive of a test has no such rule")


def test_softmax():
    def softmax(x):
        spread = lambda v: linear.broadcast(v, x.shape, (0,))
        powers = elementwise.exp(elementwise.sub(x, spread(reduce.reduce_max(x, (1,)))))
        return [elementwise.div(powers, spread(reduce.reduce_sum(powers, (1,))))]
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(F32)
    (actual,) = interpret(trace_program(softmax, [array_type((3, 4), F32)]).program, [x])
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(actual, expected, 1e-6)
    assert actual.dtype == F32


def two_results(*arrays):
    return arrays[0] + 1, arrays[0].astype(np.float64)


def test_several_results():
    types = (array_type((2,), F32), array_type((2,), np.dtype("float64")))
    primitive = Primitive("both", lambda x: types, two_results, _NONE, _NONE, _NONE, _NONE, multiple_results=True)
    both = node(primitive, (input_node(0, types[0]),), {}, types)
    p = program((types[0],), (result_node(both, 1), result_node(both, 0)))
    wide, more = interpret(p, [np.array([1, 2], F32)])
    assert wide.dtype == np.float64 and more.tolist() == [2, 3]


def test_wrong_inputs_and_wrong_references_are_named():
    p = trace_program(lambda x: [elementwise.sin(x)], [array_type((2,), F32)]).program
    with pytest.raises(VerificationError, match=r"input 0 is float64\[2\], the program takes float32\[2\]"):
        interpret(p, [np.ones(2)])
    with pytest.raises(VerificationError, match="takes 1 arrays, got 2"):
        interpret(p, [np.ones(2, F32)] * 2)
    liar = Primitive("liar", lambda x: x, lambda x: x[:1], _NONE, _NONE, _NONE, _NONE)
    wrong = program((array_type((2,), F32),), (node(liar, (input_node(0, array_type((2,), F32)),), {},
                                                    array_type((2,), F32)),))
    with pytest.raises(VerificationError, match=r"the reference of liar.* gave float32\[1\]"):
        interpret(wrong, [np.ones(2, F32)])
    without = Primitive("without", lambda x: x, Refused("it draws from the operating system"), *[_NONE] * 4)
    refused = program((), (node(without, (), {}, array_type((), F32)),))
    with pytest.raises(VerificationError, match="has no reference: it draws from the operating system"):
        interpret(refused, [])


def test_scalars_stay_arrays():
    p = trace_program(lambda x: [elementwise.exp(x)], [array_type((), F32)]).program
    (result,) = interpret(p, [np.array(0, F32)])
    assert isinstance(result, np.ndarray) and result.shape == () and result == 1



"""Program rewrites: what they do, what they must leave alone, and that random programs keep their meaning."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.errors import CompilationError
from fungrad.ir.interpret import interpret
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ir.program import program as make_program
from fungrad.ir.rewrite import Match, Pattern, Rewriter, Rule
from fungrad.ir.types import array_type
from fungrad.lower.simplify import RULES, inline_calls, simplify
from fungrad.ops import create, elementwise as e, linear, reduce, slicing
from fungrad.trace import trace_program
from fungrad.transforms.call import call
from tests.lower.programs import FLOAT32, TARGET, assert_same, random_arrays, random_function, traced

VECTOR = (4,)


def result(function, *shapes):
    """The one output node of a simplified function."""
    (node,) = simplify(traced(function, *shapes), TARGET).outputs
    return node


def like(x, value):
    return create.full_like(x, value)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_programs_keep_their_meaning(data):
    shapes = data.draw(st.lists(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=3).map(tuple), min_size=1, max_size=2))
    program = traced(random_function(data.draw), *shapes)
    arrays = random_arrays(program.input_types)
    with np.errstate(all="ignore"):
        assert_same(interpret(simplify(program, TARGET), arrays), interpret(program, arrays))


@pytest.mark.parametrize("function", [
    lambda x: e.mul(x, like(x, 1)), lambda x: e.mul(like(x, 1), x), lambda x: e.div(x, like(x, 1)),
    lambda x: e.sub(x, like(x, 0)), lambda x: e.add(x, like(x, -0.0)), lambda x: e.neg(e.neg(x)),
    lambda x: linear.reshape(linear.reshape(x, (2, 2)), (4,)),
    lambda x: linear.transpose(linear.transpose(linear.reshape(x, (4, 1)), (1, 0)), (1, 0)).type and x,
    lambda x: linear.convert(linear.convert(x, np.dtype("float64")), FLOAT32),
    lambda x: e.select(create.full((4,), True, np.dtype(bool)), x, like(x, 3)),
    lambda x: e.select(e.gt(x, like(x, 0)), x, x), lambda x: e.max(x, x), lambda x: e.stop_gradient(x),
])
def test_identities(function):
    assert result(lambda x: [function(x)], VECTOR) is traced(lambda x: [x], VECTOR).outputs[0]


@pytest.mark.parametrize("function", [
    lambda x: e.add(x, like(x, 0.0)),             # -0.0 + 0.0 is 0.0
    lambda x: e.mul(x, like(x, 0.0)),             # may be NaN
    lambda x: e.sub(x, like(x, -0.0)),            # -0.0 - -0.0 is 0.0
    lambda x: e.sub(x, x), lambda x: e.div(x, x),
    lambda x: e.div(x, like(x, 3.0)),             # 1/3 is not exact
    lambda x: linear.convert(linear.convert(x, np.dtype("float16")), FLOAT32),
])
def test_what_would_change_bits_stays(function):
    program = traced(lambda x: [function(x)], VECTOR)
    assert simplify(program, TARGET) is program


def test_division_by_powers_of_two_is_multiplication():
    node = result(lambda x: [e.div(x, like(x, 8))], VECTOR)
    assert node.primitive.name == "mul" and node.operands[1].param("value").value == 0.125


def test_constants_are_folded_through_operations_and_movement():
    def function(x):
        c = linear.broadcast(linear.reshape(e.add(create.full((2, 2), 1, FLOAT32), create.full((2, 2), 2, FLOAT32)),
                                            (4,)), (3, 4), (1,))
        return [e.exp(c)]
    node = result(function, VECTOR)
    assert node.primitive.name == "full" and node.param("value").value == pytest.approx(np.exp(3), rel=1e-6)


def test_a_sum_of_repeated_elements_is_a_product():
    node = result(lambda x: [linear.reduce_sum(linear.broadcast(x, (3, 4, 5), (1,)), (0, 2))], VECTOR)
    assert node.primitive.name == "mul" and node.operands[1].param("value").value == 15


def test_a_maximum_of_repeated_elements_is_the_element():
    program = traced(lambda x: [reduce.reduce_max(linear.broadcast(x, (3, 4), (1,)), (0,))], VECTOR)
    assert simplify(program, TARGET).outputs == program.inputs


def padded(x, low, high):
    return slicing.pad(x, create.full((), 0, FLOAT32), ((low, high, 0),))


def test_a_sum_of_padded_parts_is_their_concatenation():
    def function(x, y, z):
        return [e.add(e.add(padded(z, 6, 2), padded(y, 4, 6)), padded(x, 0, 8))]
    program = traced(function, (4,), (2,), (4,))
    simplified = simplify(program, TARGET)
    assert [n.primitive.name for n in simplified if n.operands] == ["concatenate", "pad"]
    assert len(simplified.outputs[0].operands[0].operands) == 3
    arrays = random_arrays(program.input_types)
    assert_same(interpret(simplified, arrays), interpret(program, arrays))


@pytest.mark.parametrize(("low", "high"), [(2, 4), (-1, 7)])
def test_padded_parts_that_overlap_or_are_cut_are_added(low, high):
    program = traced(lambda x, y: [e.add(padded(x, 0, 6), padded(y, low, high))], (4,), (4,))
    assert simplify(program, TARGET) is program


def test_parts_with_a_gap_between_them():
    program = traced(lambda x, y: [e.add(padded(y, 7, 0), padded(x, 0, 7))], (4,), (4,))
    simplified = simplify(program, TARGET)
    assert simplified.outputs[0].primitive.name == "concatenate" and len(simplified.outputs[0].operands) == 3
    arrays = random_arrays(program.input_types)
    assert_same(interpret(simplified, arrays), interpret(program, arrays))


def test_masks_sink_so_that_hidden_infinities_do_not_matter():
    def function(x):
        zero = like(x, 0)
        cotangent = e.select(e.gt(x, zero), like(x, 1), zero)
        return [e.mul(like(x, 3), e.neg(e.mul(cotangent, e.div(like(x, 0.5), e.sqrt(x)))))]
    program = traced(function, VECTOR)
    x = np.array([0.0, 4.0, -1.0, 1.0], FLOAT32)
    with np.errstate(all="ignore"):
        (found,) = interpret(simplify(program, TARGET), [x])
    np.testing.assert_allclose(found, [0, -0.75, 0, -1.5])


def test_masks_sink_through_movement_of_the_masked_value():
    def function(x, y):
        zero = like(x, 0)
        masked = linear.broadcast(e.select(e.gt(x, zero), x, zero), (2, 4), (1,))
        return [e.div(masked, y)]
    assert result(function, VECTOR, (2, 4)).primitive.name == "select"


def test_calls_are_inlined_however_deep():
    inner = traced(lambda x: [e.sin(x), e.cos(x)], VECTOR)
    middle = traced(lambda x: [e.add(*call(inner, [x], "inner"))], VECTOR)
    outer = traced(lambda x: [*call(middle, [e.neg(x)], "middle"), call(inner, [x], "inner")[0]], VECTOR)
    program = inline_calls(outer)
    assert [n.primitive.name for n in program if n.primitive.name != "input"] == ["neg", "sin", "cos", "add", "sin"]
    arrays = random_arrays(outer.input_types)
    assert_same(interpret(program, arrays), interpret(outer, arrays))


def test_every_rewrite_is_recorded_by_name():
    seen: list[Match] = []
    Rewriter(RULES)(traced(lambda x: [e.mul(like(x, 1), x)], VECTOR), seen.append)
    assert [m.rule for m in seen] == ["constant second in mul", "x * 1"]


def test_a_table_that_goes_round_in_circles_is_an_error():
    def swap(root, x, y):
        return make_program((array_type(VECTOR, FLOAT32),) * 2, (root,)) and trace_program(
            lambda a, b: [e.add(b, a)], [array_type(VECTOR, FLOAT32)] * 2).program.outputs[0] \
            if root.operands[0].param("number") == 0 else trace_program(
                lambda a, b: [e.add(a, b)], [array_type(VECTOR, FLOAT32)] * 2).program.outputs[0]
    rewriter = Rewriter([Rule("swap", Pattern("add", ("x", "y")), swap)])
    with pytest.raises(CompilationError, match="swap"):
        rewriter(traced(lambda a, b: [e.add(a, b)], VECTOR, VECTOR))


def test_every_rule_names_primitives_that_exist():
    def names(pattern):
        if isinstance(pattern, Pattern):
            yield pattern.primitive
            for inner in pattern.operands or ():
                yield from names(inner)
    for rule in RULES:
        for name in names(rule.pattern):
            assert name.startswith("trait:") or name in PRIMITIVES, (rule.name, name)


def test_long_programs_need_no_recursion():
    def chain(x):
        for _ in range(3000):
            x = e.neg(e.neg(e.sin(x)))
        return [x]
    assert len(simplify(traced(chain, VECTOR), TARGET).nodes()) == 3001

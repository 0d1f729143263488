"""Index expressions of programs: readers inline or load, one expression for one element."""
from __future__ import annotations

import numpy as np
import pytest

from fungrad.errors import CompilationError
from fungrad.ir.expr import FALSE, Axis, Buffer, axis, index_constant, operation
from fungrad.ir.primitive import PRIMITIVES
from fungrad.lower.define import Definer, axes_for
from fungrad.lower.index import Simplifier
from fungrad.lower.walk import loads_of
from fungrad.ops import bits, create, elementwise as e, linear
from fungrad.transforms.call import call
from tests.lower.programs import FLOAT32, traced


def defined(program):
    """A definer that knows the program's inputs, and their buffers."""
    definer = Definer(Simplifier())
    buffers = [Buffer(f"x{number}", type) for number, type in enumerate(program.input_types)]
    definer.buffers.update(zip(program.inputs, buffers, strict=True))
    return definer, buffers


def test_movement_is_index_arithmetic():
    program = traced(lambda x: [linear.transpose(linear.reshape(x, (4, 3)), (1, 0))], (2, 6))
    definer, (x,) = defined(program)
    axes = axes_for(program.outputs[0].type)
    value = definer.value(program.outputs[0], axes)
    assert value.op == "load" and value.attribute is x
    assert len(value.operands) == 3


def test_an_element_is_found_once():
    program = traced(lambda x: [e.mul(e.sin(x), e.sin(x))], (3,))
    definer, _ = defined(program)
    value = definer.value(program.outputs[0], axes_for(program.outputs[0].type))
    assert value.operands[0] is value.operands[1]


def test_a_materialised_value_is_loaded():
    program = traced(lambda x: [e.neg(e.sin(x))], (3,))
    definer, _ = defined(program)
    (output,) = program.outputs
    inner = Buffer("y", output.type)
    definer.buffers[output.operands[0]] = inner
    (read,) = loads_of(definer.value(output, axes_for(output.type)))
    assert read.attribute is inner


def test_nothing_is_read_where_nothing_is_valid_and_from_arrays_without_elements():
    program = traced(lambda x, y: [e.neg(x), e.neg(y)], (3,), (0,))
    definer, _ = defined(program)
    i = axis(Axis("i", 3))
    assert definer.element(program.outputs[0], (i,), FALSE).op == "constant"
    assert definer.element(program.outputs[0], (i,), operation("lt", i, index_constant(0))).op == "constant"
    assert definer.element(program.outputs[1], (i,)).op == "constant"


def test_results_of_one_primitive_share_its_expression():
    uint32 = np.dtype("uint32")

    def function(x):
        key = create.full((4,), 1, uint32)
        return list(bits.threefry2x32(key, key, linear.convert(x, uint32), linear.convert(x, uint32)))
    program = traced(function, (4,))
    definer, _ = defined(program)
    axes = axes_for(program.outputs[0].type)
    first, second = (definer.value(output, axes) for output in program.outputs)
    assert first is not second and loads_of(first) == loads_of(second)


def test_a_primitive_without_a_lowering_is_an_error_with_its_reason():
    inner = traced(lambda x: [e.sin(x)], (3,))
    program = traced(lambda x: list(call(inner, [x], "f")), (3,))
    definer, _ = defined(program)
    with pytest.raises(CompilationError, match="call cannot be compiled"):
        definer.value(program.outputs[0], axes_for(program.outputs[0].type))
    assert "call" in PRIMITIVES and FLOAT32.itemsize == 4

"""Text of programs, kernels and instruction lists: printed, parsed back, and what a wrong text says."""
from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fungrad.dtypes import ALL, FLOATS
from fungrad.errors import VerificationError
from fungrad.ir import expr
from fungrad.ir.expr import Axis, Buffer, axis, constant, load, operation, select
from fungrad.ir.instructions import InstructionList
from fungrad.ir.kernel import If, Kernel, Loop, Nest, Opt, Store, While
from fungrad.ir.kernel_text import instructions_text, kernel_text, parse_kernel
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ir.program import literal_text, program_text
from fungrad.ir.text import Scanner, parse_program
from fungrad.ir.types import Literal, array_type, literal
from fungrad.ops import create, cumulative, elementwise, linear, reduce
from fungrad.ops.index import IndexNumbers, gather
from fungrad.trace import trace_program
from tests.ir.lowering import case_program, stages
from tests.ops.cases import CASES

F32, I32 = np.dtype("float32"), np.dtype("int32")


def test_a_program_reads_like_this():
    def softmax(x):
        shifted = elementwise.sub(x, linear.broadcast(reduce.reduce_max(x, (1,)), x.shape, (0,)))
        return [elementwise.mul(elementwise.exp(shifted), 2.0), shifted]
    assert program_text(trace_program(softmax, [array_type((2, 3), F32)]).program) == """\
program (v0: float32[2,3]) {
  v1: float32[2] = reduce_max{axes=(1,)}(v0)
  v2: float32[2,3] = broadcast{axes=(0,), shape=(2, 3)}(v1)
  v3: float32[2,3] = sub{}(v0, v2)
  v4: float32[2,3] = exp{}(v3)
  v5: float32[2,3] = full{type=float32[2,3], value=float32(2.0)}()
  v6: float32[2,3] = mul{}(v4, v5)
  return v6, v3
}"""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_programs_are_parsed_back_to_themselves(case):
    for dtype in (case.dtypes[0], case.dtypes[-1]):
        p, _ = case_program(case, dtype)
        assert parse_program(program_text(p)) is p


def test_a_named_parameter_is_parsed_back():
    numbers = IndexNumbers(window_dims=(1,), dropped_dims=(0,), index_map=(0,))
    p = trace_program(lambda x, i: [gather(x, i, numbers, (1, 4), mode="clip")],
                      [array_type((5, 4), F32), array_type((3, 1), I32)]).program
    assert "IndexNumbers(window_dims=(1,)" in program_text(p)
    assert parse_program(program_text(p)) is p


@given(st.sampled_from(ALL), st.data())
def test_literals_are_parsed_back_bit_by_bit(dtype, data):
    bits = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    value = Literal(bytes([bits[0] & 1]) if dtype == np.dtype(bool) else bits, dtype)
    scanner = Scanner(literal_text(value))
    assert scanner.dtype() == dtype
    assert scanner.literal(dtype) == value


def test_literals_that_need_care():
    assert [literal_text(literal(x, F32)) for x in (-0.0, math.inf, math.nan)] == [
        "float32(-0.0)", "float32(inf)", "float32(nan)"]
    assert literal_text(Literal(struct.pack("<I", 0x7FC00001), F32)) == "float32(0x7fc00001)"
    for dtype in FLOATS:
        assert all(literal_text(literal(x, dtype)) != literal_text(literal(-x, dtype)) for x in (0.0, 1e-3, math.inf))


@pytest.mark.parametrize(("text", "message"), [
    ("program (v0: float32[2]) {\n  v1: float32[2] = sine{}(v0)\n  return v1\n}", "line 2: there is no primitive"),
    ("program (v0: float32[2]) {\n  v1: float32[3] = sin{}(v0)\n  return v1\n}", r"line 2: v1 is float32\[2\], not"),
    ("program (v0: float32[2]) {\n  return v1\n}", "line 2: 'v1' is not defined above"),
    ("program (v0: float31[2]) {\n  return v0\n}", "line 1: 'float31' is not an element type"),
    ("program () {\n  return\n} ;", "line 3: unexpected character ';'"),
    ("program () {\n  return\n} program", "line 3: unexpected 'program' after the program"),
    ("program (v0: float32[2]", "line 1: expected '\\)', found ''"),
])
def test_wrong_programs_are_refused_with_the_line(text, message):
    with pytest.raises(VerificationError, match=message):
        parse_program(text)


# ---- kernels --------------------------------------------------------------------------------------------------------


def hand_made() -> Kernel:
    """A kernel with one of everything."""
    x, y = Buffer("x", array_type((4, 5), F32)), Buffer("y", array_type((4,), F32))
    total = Buffer("x", array_type((), F32), "register")           # a name that clashes
    i, k = Axis("i", 4), Axis("k", 5)
    element = load(x, (axis(i), axis(k)), operation("lt", axis(k), expr.index_constant(3)))
    shared = operation("exp", element)
    summed = operation("mul", operation("add", shared, load(total, ())), shared)
    body = (Loop(i, (
        Store(total, (), constant(-0.0, F32)),
        Loop(k, (Store(total, (), summed, "add"),), "serial", operation("add", axis(i), expr.index_constant(1))),
        While(operation("gt", load(total, ()), constant(1.5, F32)), (
            Store(total, (), operation("mul", load(total, ()), constant(0.5, F32))),)),
        If(operation("eq", operation("cast", load(total, ()), dtype=I32), constant(1, I32)), (
            Store(y, (axis(i),), load(total, ())),)),
    ), "parallel"),)
    return Kernel("all", (y,), (x,), (total,), (), (), body, "loops", (Opt("split", ("i", 4, (1, 2))),), ("by hand",))


ALL_TEXT = """\
kernel all loops {
  # by hand
  output y: float32[4]
  input x: float32[4,5]
  register x_1: float32[]
  opt split('i', 4, (1, 2))
  body {
    for i:4 parallel {
      x_1[] = float32(-0.0)
      for k:5 serial stop add(i, 1) {
        let e0 = exp(x[i, k if lt(k, 3)])
        x_1[] add= mul(add(e0, x_1[]), e0)
      }
      while gt(x_1[], float32(1.5)) {
        x_1[] = mul(x_1[], float32(0.5))
      }
      if eq(cast<int32>(x_1[]), int32(1)) {
        y[i] = x_1[]
      }
    }
  }
}"""


def test_a_kernel_reads_like_this():
    assert kernel_text(hand_made()) == ALL_TEXT


def without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def test_a_kernel_is_parsed_back():
    parsed = parse_kernel(ALL_TEXT)
    assert kernel_text(parsed) == without_comments(ALL_TEXT)
    assert parsed.schedule == hand_made().schedule


def test_a_nest_reads_like_this():
    x, m, y = Buffer("x", array_type((4, 5), F32)), Buffer("m", array_type((), F32), "scratch"), Buffer(
        "y", array_type((4, 5), F32))
    i, r, j = Axis("i", 4), Axis("j", 5), Axis("j", 5)
    shifted = operation("sub", load(x, (axis(i), axis(j))), load(m, ()))
    kernel = Kernel("shift", (y,), (x,), (m,), (i,), (
        Nest(m, (), (), load(x, (axis(i), axis(r))), "max", (r,)),
        Nest(y, (axis(i), axis(j)), (j,), select(operation("ne", shifted, shifted), constant(0, F32), shifted),
             valid=operation("lt", axis(j), expr.index_constant(4)))))
    text = """\
kernel shift nests {
  output y: float32[4,5]
  input x: float32[4,5]
  scratch m: float32[]
  outer i:4
  nest m[] max= x[i, j] over () reduce (j:5)
  let e0 = sub(x[i, j_1], m[])
  nest y[i, j_1] = select(ne(e0, e0), float32(0.0), e0) over (j_1:5) where lt(j_1, 4)
}"""
    assert kernel_text(kernel) == text
    assert kernel_text(parse_kernel(text)) == text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_of_every_primitive_are_parsed_back(case):
    p, _ = case_program(case, case.dtypes[-1])
    for value in stages(p):
        if isinstance(value, Kernel):
            text = kernel_text(value)
            assert kernel_text(parse_kernel(text)) == without_comments(text)
        elif isinstance(value, InstructionList):
            assert instructions_text(value).count("\n") >= len(value.instructions)


def test_reductions_inside_an_expression_are_parsed_back():
    x, y = Buffer("x", array_type((4, 5), F32)), Buffer("y", array_type((4,), I32))
    i = Axis("i", 4)
    element = PRIMITIVES["argmax"].lower([expr.Reader(x.type, lambda index, valid: load(x, index, valid))], (axis(i),),
                                         expr.TRUE, y.type, axis=1, dtype=I32)
    text = kernel_text(Kernel("argmax", (y,), (x,), (), (), (Nest(y, (axis(i),), (i,), element),)))
    assert "reduce_min[r1:5]" in text
    assert kernel_text(parse_kernel(text)) == text


@pytest.mark.parametrize(("text", "message"), [
    ("kernel a nests {\n  nest y[] = 1 over ()\n}", "line 2: 'y' is not a buffer of this kernel"),
    ("kernel a nests {\n  output y: int64[]\n  nest y[] = z over ()\n}", "line 3: 'z' is not defined above"),
    ("kernel a nests {\n  outer i:3\n  outer i:4\n}", "axis i has the extents"),
    ("kernel a nests {\n  inner i:3\n}", "line 2: unexpected 'inner'"),
])
def test_wrong_kernels_are_refused_with_the_line(text, message):
    with pytest.raises(VerificationError, match=message):
        parse_kernel(text)


def test_instructions_read_like_this():
    def double(x):
        return [elementwise.add(x, x)]
    *_, code = stages(trace_program(double, [array_type((3,), F32)]).program)
    text = instructions_text(code)
    assert text.startswith(f"code {code.name} {{\n  parameter ")
    assert "%0 = parameter " in text and " = add %" in text and text.endswith("\n}")


assert create and cumulative   # their primitives are declared

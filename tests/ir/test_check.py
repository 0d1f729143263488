"""The verifiers accept what lowering makes and name what is wrong with anything else."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fungrad.errors import VerificationError
from fungrad.ir import expr
from fungrad.ir.check import check, check_expr, operation_problem
from fungrad.ir.expr import BOOL, INDEX, OPERATIONS, Axis, Buffer, axis, constant, index_constant, load, operation
from fungrad.ir.instructions import Instruction, InstructionList
from fungrad.ir.kernel import Fused, Kernel, Launch, Loop, Nest, Store
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ir.program import RESULT, input_node, node, program
from fungrad.ir.types import array_type, literal
from tests.ir.lowering import case_program, stages
from tests.ops.cases import CASES

F32, I32 = np.dtype("float32"), np.dtype("int32")
VECTOR = array_type((4,), F32)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_lowering_makes_is_well_formed(case):
    p, _ = case_program(case, case.dtypes[0])
    check(p)
    for value in stages(p):
        check(value)


# ---- programs -------------------------------------------------------------------------------------------------------


def test_a_node_of_the_wrong_type():
    wrong = node(PRIMITIVES["sin"], (input_node(0, VECTOR),), {}, array_type((5,), F32))
    with pytest.raises(VerificationError, match=r"sin\{\}: float32\[5\] should have the type float32\[4\]"):
        check(program((VECTOR,), (wrong,)))


def test_a_node_that_its_type_rule_refuses():
    wrong = node(PRIMITIVES["sin"], (input_node(0, array_type((4,), I32)),), {}, VECTOR)
    with pytest.raises(VerificationError, match="refused by its type rule: sin does not take int32"):
        check(program((array_type((4,), I32),), (wrong,)))


def test_inputs_and_results_that_do_not_exist():
    with pytest.raises(VerificationError, match="not among the program's 1 inputs"):
        check(program((VECTOR,), (input_node(1, VECTOR),)))
    with pytest.raises(VerificationError, match="another type than the program's input"):
        check(program((VECTOR,), (input_node(0, array_type((), F32)),)))
    single = node(PRIMITIVES["sin"], (input_node(0, VECTOR),), {}, VECTOR)
    check(program((VECTOR,), (single,)))
    with pytest.raises(VerificationError, match="which has only one"):
        check(program((VECTOR,), (node(RESULT, (single,), {"number": 0}, VECTOR),)))


# ---- expressions ----------------------------------------------------------------------------------------------------


def test_types_of_operations():
    assert operation_problem("add", (F32, F32), F32) is None
    assert operation_problem("add", (F32, I32), F32) == "add of different types float32, int32"
    assert operation_problem("lt", (F32, F32), F32) == "lt of float32 gives bool, not float32"
    assert operation_problem("select", (F32, F32, F32), F32) == "the condition of select is float32, not bool"
    assert operation_problem("exp", (I32,), I32) == "exp does not take int32"
    assert operation_problem("and", (F32, F32), F32) == "and does not take float32"
    assert operation_problem("bitcast", (F32,), np.dtype("float64")) == "bitcast between types of different size"
    assert operation_problem("add", (F32,), F32) == "add takes 2 operands, not 1"
    for name, count in OPERATIONS.items():
        assert any(operation_problem(name, (BOOL, *[d] * (count - 1)) if name == "select" else (d,) * count, r) is None
                   for d in (F32, I32, BOOL, np.dtype("uint32")) for r in (d, BOOL)), f"{name} takes no type"


def test_axes_and_buffers_out_of_scope():
    i, x = Axis("i", 4), Buffer("x", VECTOR)
    element = load(x, (axis(i),))
    check_expr(element, frozenset({i}), frozenset({x}))
    with pytest.raises(VerificationError, match="axis i:4 is used outside its loop"):
        check_expr(element, frozenset(), frozenset({x}))
    with pytest.raises(VerificationError, match="which the kernel does not have"):
        check_expr(element, frozenset({i}), frozenset())
    reduced = expr.reduce("add", element, (i,))
    check_expr(reduced, frozenset(), frozenset({x}), reduces=True)
    with pytest.raises(VerificationError, match="where none may be"):
        check_expr(reduced, frozenset(), frozenset({x}))
    with pytest.raises(VerificationError, match="binds an axis twice"):
        check_expr(reduced, frozenset({i}), frozenset({x}), reduces=True)
    with pytest.raises(VerificationError, match="exp is not a core operation"):
        check_expr(operation("exp", element), frozenset({i}), frozenset({x}), core=True)


def test_an_index_that_is_not_int64():
    x = Buffer("x", VECTOR)
    with pytest.raises(VerificationError, match=r"the index 1 of %x: .* is int32, not int64"):
        check_expr(load(x, (constant(1, I32),)), frozenset(), frozenset({x}))


# ---- kernels --------------------------------------------------------------------------------------------------------


def copying() -> Kernel:
    x, y, i = Buffer("x", VECTOR), Buffer("y", VECTOR), Axis("i", 4)
    return Kernel("copy", (y,), (x,), (), (), (Nest(y, (axis(i),), (i,), load(x, (axis(i),))),))


def test_kernels_that_are_malformed():
    good = copying()
    check(good)
    (nest,), (x,), (y,), (i,) = good.nests, good.inputs, good.outputs, good.nests[0].axes
    t = Buffer("t", VECTOR, "scratch")
    other = Axis("j", 4)
    for bad, message in [
        (replace(good, outer=(i,)), "the nest of %y.* binds an axis twice"),
        (replace(good, nests=()), "the output %y.* is never written"),
        (replace(good, nests=(replace(nest, target=x),)), "%x.* is neither output nor scratch"),
        (replace(good, nests=(replace(nest, index=()),)), "0 indices for %y"),
        (replace(good, nests=(replace(nest, value=constant(1, I32)),)), "a int32 is stored to %y"),
        (replace(good, nests=(replace(nest, value=load(t, (axis(i),))),), scratch=(t,)), "reads %t"),
        (replace(good, nests=(replace(nest, reduce_axes=(other,)),)), "reduces without a combine"),
        (replace(good, nests=(replace(nest, valid=axis(i)),)), "the mask i of %y.* is not bool"),
        (replace(good, scratch=(y,)), "a buffer is declared twice"),
        (replace(good, scratch=(Buffer("t", VECTOR),)), "scratch buffer %t.* is global"),
        (replace(good, kind="map"), "unknown kind map"),
    ]:
        with pytest.raises(VerificationError, match=f"kernel copy: .*{message}"):
            check(bad)


def test_loop_trees_that_are_malformed():
    x, y, i = Buffer("x", VECTOR), Buffer("y", VECTOR), Axis("i", 4)
    store = Store(y, (axis(i),), load(x, (axis(i),)))

    def kernel(*body):
        return Kernel("copy", (y,), (x,), body=body)
    check(kernel(Loop(i, (store,), "parallel")))
    for bad, message in [
        (kernel(store), "axis i:4 is used outside its loop"),
        (kernel(Loop(i, (Loop(i, (store,)),))), "axis i:4 is bound twice"),
        (kernel(Loop(i, (Loop(Axis("j", 2), (store,), "parallel"),))), "the parallel loop j:2 is not outermost"),
        (kernel(Loop(i, (store,), "warp")), "unknown kind warp"),
        (kernel(Loop(i, (store,), "serial", axis(i))), "axis i:4 is used outside its loop"),
        (kernel(Loop(i, (store,), "serial", constant(1, I32))), "is not int64"),
        (kernel(Loop(i, (Store(x, (axis(i),), load(x, (axis(i),))),))), "neither output nor scratch"),
        (kernel(Loop(i, (replace(store, combine="div"),))), "unknown combine div"),
    ]:
        with pytest.raises(VerificationError, match=message):
            check(bad)


def test_launches_that_do_not_fit():
    kernel = copying()
    check(Fused((Launch(kernel, (1, 0)),), (VECTOR, VECTOR), (0,), (1,)))
    for bad, message in [
        (Fused((Launch(kernel, (1,)),), (VECTOR, VECTOR), (0,), (1,)), "2 buffers, its launch 1 slots"),
        (Fused((Launch(kernel, (1, 2)),), (VECTOR,) * 3, (0,), (1,)), "reads slot 2 before it is written"),
        (Fused((Launch(kernel, (0, 0)),), (VECTOR,), (0,), (0,)), "writes an input"),
        (Fused((Launch(kernel, (1, 0)),), (VECTOR, array_type((5,), F32)), (0,), (1,)), "does not fit slot 1"),
        (Fused((), (VECTOR, VECTOR), (0,), (1,)), "output slot 1 is never written"),
    ]:
        with pytest.raises(VerificationError, match=message):
            check(bad)


# ---- instruction lists ----------------------------------------------------------------------------------------------


ZERO = Instruction("constant", (), literal(0, INDEX), INDEX)
ONE = Instruction("constant", (), literal(1, F32), F32)


def test_instruction_lists_that_are_malformed():
    y = Buffer("y", VECTOR)
    pointer = Instruction("parameter", (), y, None)
    end = Instruction("end_loop", (), None, None)
    loop = Instruction("loop", (0, 0), 1, INDEX)

    def listed(*instructions):
        return InstructionList("code", (y,), (), 0, 1, instructions)
    check(listed(ZERO, ONE, pointer, loop, Instruction("store", (2, 3, 1), None, None), end))
    for bad, message in [
        (listed(Instruction("neg", (0,), None, F32)), "operand %0 is not known there"),
        (listed(ZERO, ONE, Instruction("add", (0, 1), None, F32)), "add of different types int64, float32"),
        (listed(ONE, Instruction("neg", (0,), None, F32, 4)), "operands of 1 lanes for 4"),
        (listed(ZERO, loop, Instruction("neg", (1,), None, INDEX), end, Instruction("neg", (2,), None, INDEX)),
         "instruction %4 .neg.: operand %2 is not known there"),
        (listed(ZERO, loop), "block %1 is never closed"),
        (listed(end), "no block to close"),
        (listed(ZERO, ONE, pointer, Instruction("store", (2, 1, 1), None, None)), "the offset is float32, not int64"),
        (listed(ZERO, pointer, Instruction("store", (1, 0, 0), None, None)), "another type than %y"),
        (listed(ZERO, pointer, Instruction("gather", (1, 0), None, F32, 4)), "an offset of 1 lanes"),
        (listed(ZERO, ONE, Instruction("load", (1, 0), None, F32)), "the first operand is not a pointer"),
        (listed(ONE, Instruction("if", (0,), None, None)), "the condition is not a scalar bool"),
        (listed(ONE, Instruction("splat", (0,), None, INDEX, 4)), "not a scalar of this type"),
        (listed(ONE, Instruction("extract", (0,), 1, F32)), "lane 1 of 1"),
        (listed(ONE, Instruction("fma", (0, 0), None, F32)), "fma takes 3 operands, not 2"),
        (listed(Instruction("jump", (), None, None)), "unknown instruction"),
        (listed(Instruction("parameter", (), Buffer("z", VECTOR), None)), "is no buffer of this code"),
    ]:
        with pytest.raises(VerificationError, match=message):
            check(bad)


def test_only_values_of_stages_are_checked():
    with pytest.raises(TypeError, match="cannot check a int"):
        check(index_constant(1).attribute.value)

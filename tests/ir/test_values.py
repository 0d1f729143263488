"""Types, literals, expressions and programs: structural identity, construction, substitution."""
from __future__ import annotations

import copy
import gc
import math
import pickle

import numpy as np
import pytest

from fungrad.ir import expr
from fungrad.ir.expr import FALSE, INDEX, TRUE, Axis, Buffer, axis, constant, index_constant, load, operation
from fungrad.ir.intern import InternTable
from fungrad.ir.primitive import PRIMITIVES, Primitive, Refused, declare
from fungrad.ir.program import input_node, node, program
from fungrad.ir.types import array_type, literal
from fungrad.ops import elementwise  # noqa: F401  (declares its primitives)

F32 = np.dtype("float32")
VECTOR = array_type((4,), F32)


def test_equal_types_are_one_object():
    assert array_type((4,), F32) is VECTOR
    assert VECTOR.with_shape((2, 2)) is array_type((2, 2), F32)
    assert pickle.loads(pickle.dumps(VECTOR)) is VECTOR and copy.deepcopy(VECTOR) is VECTOR
    assert (VECTOR.rank, VECTOR.size, VECTOR.nbytes, str(VECTOR)) == (1, 4, 16, "float32[4]")
    with pytest.raises(AttributeError, match="immutable"):
        VECTOR.shape = (5,)


def test_literals_are_told_apart_by_bits_and_type():
    assert literal(math.nan, F32) == literal(math.nan, F32)
    assert literal(0.0, F32) != literal(-0.0, F32) and literal(-0.0, F32) != literal(0.0, F32)
    assert literal(1, F32) != literal(1, np.dtype("int32"))
    assert literal(True, np.dtype("int32")) == literal(1, np.dtype("int32"))
    assert literal(300, np.dtype("uint8")).value == 44 and literal(-1, np.dtype("uint8")).value == 255


def test_an_intern_table_holds_its_values_weakly():
    class Thing:
        pass
    table: InternTable[Thing] = InternTable()
    first = table.get("a", Thing)
    assert table.get("a", Thing) is first and len(table) == 1
    del first
    gc.collect()
    assert len(table) == 0


def test_equal_expressions_are_one_object():
    i, x = Axis("i", 4), Buffer("x", VECTOR)
    assert load(x, (axis(i),)) is load(x, (axis(i),))
    assert load(x, (axis(i),)) is not load(x, (axis(Axis("i", 4)),))
    assert constant(0.0, F32) is not constant(-0.0, F32)
    assert operation("lt", axis(i), index_constant(2)).dtype == np.dtype(bool)
    assert operation("cast", axis(i), dtype=F32).dtype == F32


def test_simple_expressions_simplify_themselves():
    i = Axis("i", 4)
    condition = operation("lt", axis(i), index_constant(2))
    assert expr.conjunction(TRUE, condition) is condition is expr.conjunction(condition, condition)
    assert expr.conjunction(condition, FALSE) is FALSE
    assert expr.select(TRUE, axis(i), index_constant(0)) is axis(i)
    assert expr.select(FALSE, axis(i), index_constant(0)) is index_constant(0)
    assert expr.cast(axis(i), INDEX) is axis(i)
    assert expr.reduce("add", axis(i), ()) is axis(i)


def test_substitution_rebuilds_what_it_must_and_does_not_recurse():
    i, j = Axis("i", 4), Axis("j", 4)
    deep = axis(i)
    for number in range(20_000):
        deep = operation("add", deep, index_constant(number))
    moved = expr.substitute(deep, lambda e: axis(j) if e is axis(i) else None)
    assert expr.substitute(moved, lambda e: axis(i) if e is axis(j) else None) is deep
    assert expr.substitute(deep, lambda e: None) is deep


def test_wrong_expressions_are_refused_at_once():
    with pytest.raises(ValueError, match="add takes 2 operands, got 1"):
        operation("add", index_constant(1))
    with pytest.raises(ValueError, match="0 indices for %x"):
        load(Buffer("x", VECTOR), ())


def test_equal_programs_are_one_object():
    def make(exponent):
        power = node(PRIMITIVES["integer_pow"], (input_node(0, VECTOR),), {"exponent": exponent}, VECTOR)
        return program((VECTOR,), (power,))
    assert make(2) is make(2)
    assert make(1) is not make(True)
    assert make(0.0) is not make(-0.0)


def test_a_long_program_is_listed_without_recursion():
    value = input_node(0, VECTOR)
    for _ in range(5000):
        value = node(PRIMITIVES["sin"], (value,), {}, VECTOR)
    assert len(program((VECTOR,), (value,)).nodes()) == 5001


def test_a_primitive_is_declared_once_with_known_traits():
    sin = PRIMITIVES["sin"]
    with pytest.raises(ValueError, match="declared twice"):
        declare(sin)
    none = Refused("a test")
    with pytest.raises(ValueError, match=r"unknown traits \['fast'\]"):
        declare(Primitive("quick", none, none, none, none, none, none, frozenset({"fast"})))

"""Index simplification: same values everywhere, and the forms that fusion and the schedule rely on."""
from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.ir.expr import (
    BOOL,
    FALSE,
    INDEX,
    TRUE,
    Axis,
    Buffer,
    axis,
    cast,
    conjunction,
    constant,
    guarded,
    index_constant as c,
    load,
    operation as op,
    reduce,
    select,
)
from fungrad.ir.types import array_type
from fungrad.lower.index import Simplifier
from fungrad.lower.walk import axes_of, conjuncts
from tests.lower.fused_interpreter import evaluate

I, J, K = Axis("i", 5), Axis("j", 4), Axis("k", 3)
i, j, k = axis(I), axis(J), axis(K)
FLOAT32 = np.dtype("float32")


def simple(e):
    return Simplifier()(e)


def values(e):
    """The value of an expression at all points of i, j, k."""
    found = []
    for a, b, d in itertools.product(range(5), range(4), range(3)):
        found.append(np.asarray(evaluate(e, {I: np.int64(a), J: np.int64(b), K: np.int64(d)}, {}, {})).item())
    return found


@st.composite
def integers(draw, depth=3):
    if depth == 0:
        return draw(st.sampled_from([i, j, k, c(0), c(1), c(2), c(3), c(12), c(-2)]))
    kind = draw(st.sampled_from(["leaf", "add", "sub", "mul", "div", "rem", "min", "max", "select", "neg"]))
    x = draw(integers(depth=depth - 1))
    if kind == "leaf":
        return x
    if kind == "neg":
        return op("neg", x)
    if kind in ("div", "rem"):
        return op(kind, x, c(draw(st.sampled_from([1, 2, 3, 4, 5, 12]))))
    y = draw(integers(depth=depth - 1))
    if kind == "select":
        return op("select", draw(conditions(depth=depth - 1)), x, y)
    return op(kind, x, y)


@st.composite
def conditions(draw, depth=2):
    kind = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"] if depth else ["lt", "ge"]))
    if kind in ("and", "or"):
        return op(kind, draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1)))
    if kind == "not":
        return op("not", draw(conditions(depth=depth - 1)))
    return op(kind, draw(integers(depth=max(depth - 1, 0))), draw(integers(depth=max(depth - 1, 0))))


@settings(max_examples=300, deadline=None)
@given(integers())
def test_integers_keep_their_values_and_stay_in_their_bounds(e):
    simplifier = Simplifier()
    found = values(e)
    assert values(simplifier(e)) == found
    low, high = simplifier.bounds(simplifier(e))
    assert low is None or low <= min(found)
    assert high is None or high >= max(found)


@settings(max_examples=200, deadline=None)
@given(conditions())
def test_conditions_keep_their_values(e):
    assert values(simple(e)) == values(e)


@settings(max_examples=200, deadline=None)
@given(conditions(), integers())
def test_indices_under_a_condition_keep_their_values_where_it_holds(condition, e):
    simplifier = Simplifier()
    condition, e = simplifier(condition), simplifier(e)
    (narrow,) = simplifier.under((e,), conjuncts(condition))
    for holds, a, b in zip(values(condition), values(e), values(narrow), strict=True):
        assert not holds or a == b


flat = op("add", op("mul", i, c(4)), j)


@pytest.mark.parametrize(("before", "after"), [
    (op("div", flat, c(4)), i),
    (op("rem", flat, c(4)), j),
    (op("add", op("mul", op("div", flat, c(4)), c(4)), op("rem", flat, c(4))), simple(flat)),
    (op("add", op("mul", op("div", i, c(2)), c(2)), op("rem", i, c(2))), i),
    (op("div", op("add", op("mul", flat, c(3)), k), c(12)), i),
    (op("rem", op("add", op("mul", flat, c(3)), k), c(12)), simple(op("add", op("mul", j, c(3)), k))),
    (op("div", op("div", op("add", op("mul", flat, c(3)), k), c(3)), c(4)), i),
    (op("sub", op("add", i, c(3)), c(3)), i),
    (op("max", i, c(0)), i),
    (op("min", i, c(4)), i),
    (op("min", op("max", i, c(0)), c(4)), i),
    (op("lt", i, c(5)), TRUE),
    (op("ge", op("sub", i, c(5)), c(0)), FALSE),
    (op("eq", op("mul", i, c(2)), c(3)), FALSE),
    (op("ge", op("add", op("mul", i, c(2)), c(-3)), c(0)), op("ge", i, c(2))),
    (op("lt", cast(i, np.dtype("int32")), cast(j, np.dtype("int32"))), simple(op("lt", op("sub", i, j), c(0)))),
    (axis(Axis("one", 1)), c(0)),
    (op("not", op("not", op("lt", i, j))), simple(op("lt", i, j))),
])
def test_normal_forms(before, after):
    assert simple(before) is after


def test_conjunctions_drop_repeated_implied_and_contradicting_conditions():
    s = Simplifier()
    low, high = op("ge", i, c(1)), op("lt", i, c(3))
    assert s(conjunction(conjunction(low, high), low)) is s(conjunction(low, high))
    assert s(op("and", high, op("lt", i, c(4)))) is high
    assert s(op("and", op("ge", i, c(3)), high)) is FALSE


def test_loads_where_nothing_is_valid_are_zero_and_selects_that_repeat_the_mask_vanish():
    x = Buffer("x", array_type((5,), FLOAT32))
    assert simple(load(x, (i,), op("lt", i, c(0)))) is constant(0, FLOAT32)
    mask = op("lt", i, c(3))
    assert simple(select(mask, load(x, (i,), mask), constant(0, FLOAT32))) is load(x, (i,), mask)
    kept = select(mask, load(x, (i,), mask), constant(-0.0, FLOAT32))
    assert simple(kept) is kept


def test_a_quotient_under_a_condition_that_makes_it_positive():
    x = Buffer("x", array_type((5,), FLOAT32))
    shifted = op("add", op("mul", i, c(4)), op("sub", j, c(2)))
    inside = op("ge", shifted, c(0))
    found = simple(load(x, (op("div", op("add", shifted, c(2)), c(4)),), inside))
    assert found.operands[0] is i


def test_reductions_of_reductions_merge():
    x = Buffer("x", array_type((5, 4, 3), FLOAT32))
    body = load(x, (i, j, k))
    inner = reduce("add", body, (K,))
    assert simple(reduce("add", inner, (J,))).attribute == ("add", (J, K))
    mask = op("lt", j, c(2))
    merged = simple(reduce("add", select(mask, inner, constant(0, FLOAT32)), (J,)))
    assert merged.attribute == ("add", (J, K)) and merged.operands[0].op == "select"
    assert simple(reduce("max", inner, (J,))).attribute == ("max", (J,))


def test_reductions_of_a_few_terms_are_written_out():
    x = Buffer("x", array_type((5, 4, 3), FLOAT32))
    found = Simplifier().written_out(reduce("max", load(x, (i, c(1), k)), (K,)))
    assert found is op("max", op("max", load(x, (i, c(1), c(0))), load(x, (i, c(1), c(1)))), load(x, (i, c(1), c(2))))
    many = reduce("max", load(x, (i, j, k)), (J, K))
    assert Simplifier().written_out(many) is many
    costly = reduce("add", op("exp", load(x, (i, c(1), k))), (K,))
    assert Simplifier().written_out(costly) is costly


def test_affine_forms():
    terms, offset = Simplifier().affine(op("add", op("mul", flat, c(3)), op("sub", k, c(7))))
    assert dict(terms) == {i: 12, j: 3, k: 1} and offset == -7


def test_free_axes_leave_out_reduced_ones():
    x = Buffer("x", array_type((5, 4), FLOAT32))
    assert axes_of(reduce("add", load(x, (i, j)), (J,))) == [I]


def test_floats_are_folded_where_that_keeps_every_bit():
    x = load(Buffer("x", array_type((5,), FLOAT32)), (i,))
    one, zero = constant(1.0, FLOAT32), constant(0.0, FLOAT32)
    assert simple(op("mul", x, one)) is x and simple(op("mul", one, x)) is x
    assert simple(op("add", one, op("div", one, constant(4.0, FLOAT32)))) is constant(1.25, FLOAT32)
    for kept in (op("add", x, zero), op("mul", x, zero), op("sub", zero, x)):
        assert simple(kept) is kept


def test_wrapping_integers_are_folded_as_they_wrap():
    int8 = np.dtype("int8")
    assert simple(op("add", constant(127, int8), constant(1, int8))) is constant(-128, int8)
    assert i.dtype == INDEX and TRUE.dtype == BOOL


# ---- integers that wrap around, and loads within indices -------------------------------------------------------------

INT64 = Buffer("data", array_type((5,), np.dtype("int64")))


def test_comparisons_of_data_do_not_subtract():
    """int64 data may differ by more than int64 holds: x > y is not x - y >= 1."""
    x, y = load(INT64, (i,)), load(INT64, (c(0),))
    memory = {INT64: np.array([2, -2**63, 2**63 - 1, 0, 7])}
    for e in (op("gt", x, y), op("lt", op("add", x, c(1)), c(5)), op("eq", op("mul", x, c(2)), c(-2)),
              op("le", x, c(2**63 - 1)), op("ge", op("add", y, x), c(3))):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(evaluate(simple(e), {I: np.arange(5)}, memory, {}),
                                          evaluate(e, {I: np.arange(5)}, memory, {}))


def test_a_condition_of_a_load_is_not_taken_from_the_loads_in_its_index():
    """The inner load is carried out, at -1, where the outer one is not."""
    inside = op("ge", i, c(1))
    inner = load(INT64, (op("sub", i, c(1)),), inside)
    outer = load(INT64, (op("max", op("min", inner, c(4)), c(0)),), inside)
    result = simple(outer)
    assert all(inside in conjuncts(e.operands[-1]) for e in (result, result.operands[0].operands[0].operands[0])
               if e.op == "load")
    evaluate(result, {I: np.arange(5)}, {INT64: np.arange(5)}, {})   # raises for a read outside the buffer


def test_guarding_an_expression_guards_the_loads_in_indices():
    inner = load(INT64, (i,))
    e = guarded(load(INT64, (op("rem", inner, c(5)),)), op("ge", j, c(1)))
    assert e.operands[-1] is op("ge", j, c(1)) and e.operands[0].operands[0].operands[-1] is op("ge", j, c(1))


def test_shared_expressions_take_linear_time():
    """Each level reads the one below twice: as a tree, 2^60 nodes."""
    x = load(INT64, (i,))
    for _ in range(60):
        x = op("add", load(INT64, (op("max", op("min", x, c(4)), c(0)),)), load(INT64, (op("rem", x, c(5)),)))
    assert simple(op("add", x, op("mul", x, x))).dtype == INDEX
    assert len(repr(x)) < 3000

"""Scans are simplified from both sides: what is dropped, hoisted, and moved into bodies; values stay."""
from __future__ import annotations

import numpy as np

import fungrad
import fungrad.numpy as fnp
from fungrad import backends, lax
from fungrad.ir.interpret import interpret
from fungrad.lower.simplify import simplify

TARGET = backends.get("null").target()


def array(*shape):
    return fnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32"))


def simplified(f, *args):
    """The simplified program, after comparing its meaning with that of the function's."""
    traced = fungrad.jit(f).trace(*args)
    program = simplify(traced.program, TARGET)
    arrays = [np.asarray(arg) for arg in (*args, *traced.captured)]
    for got, want in zip(interpret(program, arrays), interpret(traced.program, arrays), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    return program


def scans(program):
    return [n for n in program.nodes() if n.primitive.name == "scan"]


def names(program):
    return [n.primitive.name for n in program.nodes()]


def test_unread_results_and_the_carries_that_serve_them_are_dropped():
    def f(x):
        (a, b, c), (y, z) = lax.scan(lambda s, x: ((s[0] + x, s[1] * s[0], s[2] + s[1]), (s[2], s[0])), (x[0],) * 3, x)
        return z
    (scan,) = scans(simplified(f, array(5, 3)))
    assert scan.param("carry") == 1 and len(scan.type) == 2
    assert not scans(simplified(lambda x: lax.scan(lambda s, x: (s, None), x[0], x)[0], array(5, 3)))


def test_a_carry_that_stays_becomes_a_const():
    f = lambda x, w: lax.scan(lambda s, x: ((s[0] * s[1] + x, s[1]), s[0]), (x[0], w), x)
    program = simplified(f, array(5, 3), array(3))
    (scan,) = scans(program)
    assert scan.param("carry") == 1 and scan.param("consts") == 1
    assert program.outputs[1] is program.inputs[1]


def test_constants_move_into_the_body():
    f = lambda x: lax.scan(lambda s, x: (s * x[0] + x[1], None), x, (fnp.full((5, 3), 2.0), fnp.zeros((5, 3))))[0]
    (scan,) = scans(simplified(f, array(3)))
    assert len(scan.operands) == 1


def test_xs_that_are_the_same_in_every_iteration_are_consts():
    f = lambda x, w: lax.scan(lambda s, x: (s * x, None), x, fnp.broadcast_to(w, (5, 3)))[0]
    (scan,) = scans(simplified(f, array(3), array(3)))
    assert scan.param("consts") == 1 and scan.operands[0].type.shape == (3,)


def test_what_depends_on_consts_alone_is_computed_once():
    f = lambda x, w: lax.scan(lambda s, _: (s * fnp.exp(w) + (w @ w), None), x, None, length=5)[0]
    program = simplified(f, array(3), array(3))
    (scan,) = scans(program)
    assert "exp" in names(program) and "exp" not in names(scan.param("program"))
    assert "dot_general" not in names(scan.param("program"))
    g = lambda x, w: lax.scan(lambda s, _: (s + w[:, None], None), x, None, length=5)[0]
    (scan,) = scans(simplified(g, array(3, 7), array(3)))
    assert "broadcast" in names(scan.param("program"))      # not hoisted: it would grow


def test_equal_consts_are_one():
    f = lambda x, w: lax.scan(lambda s, _: (fungrad.jit(lambda a, b: a + b)(s * w, w), None), x, None, length=5)[0]
    (scan,) = scans(simplified(f, array(3), array(3)))
    assert scan.param("consts") == 1


def test_nested_loops():
    def f(x, w):
        inner = lambda s: lax.scan(lambda a, _: (fnp.sin(a) * fnp.exp(w), a), s, None, length=3)[0]
        return lax.scan(lambda s, x: (inner(s) + x, None), x[0], x)[0]
    program = simplified(f, array(4, 3), array(3))
    (scan,) = scans(program)
    assert "exp" in names(program)
    (inner,) = scans(scan.param("program"))
    assert len(inner.type) == 1


def test_simplifying_twice_changes_nothing():
    f = lambda x, w: lax.scan(lambda s, x: (s * fnp.exp(w) + x, (s, x, w)), x[0], x)
    program = simplified(f, array(5, 3), array(3))
    assert simplify(program, TARGET) is program


def test_a_product_of_slices_with_a_const_is_one_product():
    for product in (lambda w, x: x @ w, lambda w, x: lax.dot_general(w, x, (((0,), (1,)), ((), ())))):
        step = lambda s, x, w, product=product: fnp.tanh(s + (product(w, x) ** 2)[1, 2])
        f = lambda x, w, step=step: lax.scan(lambda s, x: (step(s, x, w), None), x[0, 0, 0], x)[0]
        program = simplified(f, array(6, 20, 30), array(30, 10))
        (scan,) = scans(program)
        assert "dot_general" in names(program) and "dot_general" not in names(scan.param("program"))


def test_a_sum_of_products_is_one_product():
    def f(s, x, y):
        def step(c, xy):
            x, y = xy
            h = fnp.tanh(c[1] + x)
            return (c[0] + (h.T @ y).T, h), h.sum()
        return lax.scan(step, (s, x[0]), (x, y), reverse=True)
    program = simplified(f, array(35, 10), array(6, 20, 10), array(6, 20, 35))
    (scan,) = scans(program)
    assert scan.param("carry") == 1 and "dot_general" not in names(scan.param("program"))
    read = lambda s, x, y: lax.scan(lambda c, xy: (c + xy[1].T @ xy[0], c.sum()), s, (x, y))   # the sum is read
    (scan,) = scans(simplified(read, array(15, 10), array(6, 20, 10), array(6, 20, 15)))
    assert scan.param("carry") == 1


def test_gradients_of_weights_are_one_product_each():
    def loss(w, u, xs):
        cell = lambda h, x: (fnp.tanh(x @ w + h @ u), None)
        return (lax.scan(cell, fnp.zeros((16, 32)), xs)[0] ** 2).sum()
    program = simplified(fungrad.grad(loss, (0, 1)), array(24, 32) * 0.1, array(32, 32) * 0.1, array(8, 16, 24))
    backward = scans(program)[-1]
    assert names(backward.param("program")).count("dot_general") == 1
    assert names(program).count("dot_general") == 3

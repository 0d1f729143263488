"""Loops and choices after fusion: which are one kernel, what is updated in place, what bodies write; and running
them.
"""
from __future__ import annotations

import io

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import backends, lax
from fungrad.ir.check import check
from fungrad.ir.interpret import interpret
from fungrad.ir.kernel import Control
from fungrad.lower.fuse import fuse
from fungrad.lower.memory import plan
from fungrad.lower.simplify import simplify
from fungrad.runtime.verify import run_fused

TARGET = backends.get("null").target()
RNG = np.random.default_rng(0)


def fused_of(f, *args):
    return check(fuse(simplify(fungrad.jit(f).program(*args), TARGET), TARGET))


def agrees(f, *args, tolerance=1e-5):
    """The compiled function, the interpreted fused program and the meaning of the Program are one."""
    traced = fungrad.jit(f).trace(*args)
    program, arrays = traced.program, [np.asarray(arg) for arg in (*args, *traced.captured)]
    want = interpret(program, arrays)
    for got in (run_fused(fused_of(f, *args), arrays), fungrad.tree.leaves(fungrad.jit(f)(*args))):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a).reshape(b.shape), b, tolerance, tolerance)


def controls(fused):
    return [launch for launch in fused.launches if isinstance(launch, Control)]


def array(*shape):
    return fnp.asarray(RNG.standard_normal(shape).astype("float32"))


def test_a_small_loop_is_one_kernel():
    step = lambda s, _: (s + 0.1 * fnp.stack([s[1], -s[0]]), s.sum())
    f = lambda x: lax.scan(step, x, None, length=100)
    fused = fused_of(f, array(2))
    assert not controls(fused) and len(fused.launches) == 1
    agrees(f, array(2))
    g = lambda x: lax.while_loop(lambda s: s[0] < 50, lambda s: (s[0] * 1.5 + 1, s[1] + 1), (x, 0))
    assert not controls(fused_of(g, fnp.asarray(1.0)))
    agrees(g, fnp.asarray(1.0))


def test_a_reverse_scan_in_one_kernel_with_slices():
    f = lambda c, xs, w: lax.scan(lambda c, x: (c * 0.5 + x @ w, c - x), c, xs, reverse=True)
    args = array(2), array(40, 2), array(2, 2)
    assert not controls(fused_of(f, *args))
    agrees(f, *args)


def test_a_loop_over_larger_values_calls_kernels():
    f = lambda x: lax.scan(lambda s, _: (fnp.sin(s) + s.sum(), s[0]), x, None, length=7)
    (control,) = controls(fused_of(f, array(100)))
    assert control.kind == "scan" and control.length == 7 and not control.in_place
    agrees(f, array(100))


UPDATES = {
    "set": lambda s, i: s.at[i].set(s[i] * 2 + 1),
    "add": lambda s, i: s.at[i].add(1.5),
    "row and column": lambda s, i: s.at[i, 1:3].set(7.0),
    "slices": lambda s, i: lax.dynamic_update_slice(s, s[:2] * 2, (i, i)),
    "two windows": lambda s, i: s.at[i].set(3.0).at[i + 1].add(s[i]),
    "beyond the end": lambda s, i: lax.dynamic_update_slice(s, fnp.ones((3, 20)), (i + 18, -5)),
}


@pytest.mark.parametrize("name", UPDATES)
def test_windows_are_written_in_place(name):
    f = lambda s: lax.fori_loop(0, 12, lambda i, s: UPDATES[name](s, i), s)
    (control,) = controls(fused_of(f, array(20, 20)))
    assert control.in_place, control
    agrees(f, array(20, 20))
    step = lambda c: (c[0] + 1, UPDATES[name](c[1], c[0]))
    g = lambda s: lax.while_loop(lambda c: c[0] < 9, step, (0, s))[1]
    (control,) = controls(fused_of(g, array(20, 20)))
    assert control.in_place
    agrees(g, array(20, 20))


def test_the_old_value_is_read_before_the_window_is_written():
    def body(c, i):
        new = c.at[i].set(c.sum(0))
        return new, (c[i], new.sum(), c.max())
    f = lambda c: lax.scan(body, c, fnp.arange(10))
    (control,) = controls(fused_of(f, array(12, 9)))
    assert control.in_place == (0,)
    agrees(f, array(12, 9), tolerance=1e-4)


def test_cotangents_of_indexed_operands_are_summed_in_place():
    """The gradient of T reads of an array costs O(T), not O(T) times the array."""
    loss = lambda t: lax.fori_loop(0, 30, lambda i, s: s * 0.5 + fnp.sin(t[i]), fnp.zeros(40)).sum()
    backward = controls(fused_of(fungrad.grad(loss), array(30, 40)))[-1]
    assert backward.reverse and backward.in_place
    agrees(fungrad.grad(loss), array(30, 40))


def test_outputs_of_bodies_have_memory_of_their_own():
    w = array(50)
    f = lambda c, xs: lax.scan(lambda c, x: ((c[1], c[0]), (x, c[0], c[0], w)), c, xs)
    (control,) = controls(fused_of(f, (array(50), array(50)), array(6, 50)))
    (body,) = control.bodies
    assert len(set(body.outputs)) == len(body.outputs) and not set(body.outputs) & set(body.inputs)
    agrees(lambda a, b, xs: f((a, b), xs), array(50), array(50), array(6, 50))


def test_the_arena_holds_those_of_bodies():
    step = lambda s, _: (fnp.sort(fnp.sin(s)) + fnp.cumsum(s), None)
    f = lambda x: lax.scan(step, x, None, length=3)[0]
    fused = fused_of(f, array(300))
    memory = plan(fused, TARGET)
    ((offset, (body,)),) = memory.nested
    assert body.arena_bytes > 0 and offset + body.arena_bytes <= memory.arena_bytes
    agrees(f, array(300), tolerance=1e-4)


def test_branches():
    branches = [lambda x: (fnp.sort(x), x), lambda x: (x, x * 2), lambda x: (x @ x, x)]
    f = lambda i, x: lax.switch(i, branches, x)
    (control,) = controls(fused_of(f, fnp.asarray(1), array(30, 30)))
    assert control.kind == "cond" and len(control.bodies) == 3
    for i in (-3, 0, 1, 2, 9):
        agrees(f, fnp.asarray(i), array(30, 30), tolerance=1e-4)


def test_show_prints_loops():
    f = fungrad.jit(lambda x: lax.scan(lambda s, _: (fnp.sin(s) + s.sum(), None), x, None, length=7)[0])
    text = fungrad.show(f, "memory", io.StringIO())(array(100)).stages["memory"]
    assert "scan 7 times" in text and "body with an arena" in text

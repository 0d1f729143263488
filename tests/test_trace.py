"""Tracing: programs are interned, closed-over arrays are inputs, leaks are reported."""
import math
import threading

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import dtypes
from fungrad.errors import ConcretizationError, LeakedTracerError
from fungrad.ir.types import array_type
from fungrad.trace import is_base, trace_program

F3 = array_type((3,), dtypes.float32)


def traced(f, *types):
    return trace_program(lambda *xs: [f(*xs)], types or (F3,))


def test_equal_functions_give_one_program():
    first, second = traced(lambda x: fnp.sin(x) * 2 + 1), traced(lambda y: fnp.sin(y) * 2 + 1)
    assert first.program is second.program
    assert first.program is not traced(lambda x: fnp.sin(x) * 2 + 2).program


def test_common_subexpressions_are_one_node():
    program = traced(lambda x: fnp.sin(x) + fnp.sin(x)).program
    assert sum(node.primitive.name == "sin" for node in program.nodes()) == 1


def test_constants_are_told_apart_by_their_bits():
    texts = {str(traced(lambda x, c=c: fnp.full(3, c) + x).program) for c in (0.0, -0.0, 1.0, float("nan"))}
    assert len(texts) == 4


def test_closed_over_arrays_become_trailing_inputs():
    c, d = fnp.ones(3), fnp.zeros(3)
    result = traced(lambda x: (x + c) * d + c)
    assert result.captured == (c, d) or all(a is b for a, b in zip(result.captured, (c, d), strict=True))
    assert len(result.program.input_types) == 3


def test_locations_name_the_users_line():
    result = traced(lambda x: fnp.sin(x))
    (location,) = [where for node, where in result.locations.items() if node.primitive.name == "sin"]
    assert "test_trace.py" in location


def test_leaks_are_reported_from_every_transform():
    kept = []
    fungrad.jit(lambda x: kept.append(x) or x)(1.0)
    fungrad.grad(lambda x: kept.append(x) or x)(1.0)
    fungrad.vmap(lambda x: kept.append(x) or x)(fnp.ones(2))
    fungrad.jvp(lambda x: kept.append(x) or x, (1.0,), (1.0,))
    for tracer in kept[:1]:
        with pytest.raises(LeakedTracerError, match="leak.*test_trace.py"):
            tracer + 1
        with pytest.raises(LeakedTracerError, match="leak"):
            fungrad.jit(lambda x, leaked=tracer: x + leaked)(1.0)


@pytest.mark.parametrize("use, advice", [(bool, "cond"), (float, "static"), (int, "static"),
                                         (np.asarray, "fungrad.numpy")])
def test_concretization_says_what_to_write(use, advice):
    with pytest.raises(ConcretizationError, match=advice):
        fungrad.jit(lambda x: use(x))(1.0)


def test_the_trace_is_restored_after_an_error():
    def broken(x):
        raise RuntimeError("user error")
    for transform in (fungrad.jit, fungrad.grad, fungrad.vmap):
        with pytest.raises(RuntimeError, match="user error"):
            transform(broken)(fnp.ones(3))
        assert is_base()


def test_a_tracer_of_another_thread_is_refused():
    failures = []

    def f(x):
        def use():
            try:
                x + 1
            except LeakedTracerError as error:
                failures.append(str(error))
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return x
    fungrad.jit(f)(1.0)
    assert len(failures) == 1 and "thread" in failures[0]


@pytest.mark.parametrize("use", [
    lambda x: np.sin(x), lambda x: np.sin(x) * x, lambda x: float(x) * x, lambda x: math.sin(x) * x,
    lambda x: np.float32(x) * x, lambda x: x.tolist() * x, lambda x: complex(x).real * x, lambda x: np.add(x, x)])
def test_a_derivative_is_not_lost_in_numpy(use):
    for derivative in (lambda: fungrad.grad(use)(1.0), lambda: fungrad.jvp(use, (1.0,), (1.0,))):
        with pytest.raises((ConcretizationError, TypeError), match="derivative|fungrad.numpy|not supported|ufunc"):
            derivative()


def test_concrete_values_still_steer_python_under_grad():
    def f(x):
        scale = 3.0 if x > 0 else 1.0
        return x * scale * x.item() * float(fungrad.lax.stop_gradient(x))
    assert float(fungrad.grad(f)(2.0)) == 12.0

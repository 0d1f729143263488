"""jit: signatures, static and donated arguments, weak scalars, threads, messages."""
import io
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad.errors import DeletedArrayError


def near(got, want, tolerance=1e-5):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def counted(f):
    traces = []

    def wrapped(*args, **kwargs):
        traces.append(1)
        return f(*args, **kwargs)
    return wrapped, traces


def test_one_trace_for_each_signature():
    f, traces = counted(lambda x: x * 2)
    g = fungrad.jit(f)
    for n in (3, 3, 4, 3, 4):
        near(g(fnp.ones(n)), 2 * np.ones(n))
    assert len(traces) == 2
    g(np.ones(3, "float32"))
    assert len(traces) == 2, "a NumPy array has the signature of an array"
    g(2.0), g(3.0)
    assert len(traces) == 3, "Python scalars share a signature"
    g(2)
    assert len(traces) == 4


def test_python_scalars_stay_weak_inside():
    f = lambda x, s: x * (s * 2) + s
    for name in ("float16", "bfloat16", "float64", "int8"):
        x = fnp.ones(3, name)
        s = 2 if name == "int8" else 2.0
        assert fungrad.jit(f)(x, s).dtype == f(x, s).dtype == x.dtype
    assert fungrad.jit(lambda x, s: x * fnp.sin(s))(fnp.ones(3, "float16"), 2.0).dtype == np.float32


def test_structures_of_arguments_and_results():
    @dataclass
    class State:
        a: object
        b: object
    got = fungrad.jit(lambda s, *, k: State(s.a + k["x"], None))(State(fnp.ones(2), None), k={"x": 1.0})
    assert isinstance(got, State) and got.b is None
    near(got.a, [2, 2])


def test_static_arguments():
    f = fungrad.jit(lambda x, n, *, scale=1.0: sum(x ** k for k in range(n)) * scale, static_argnums=1)
    near(f(2.0, 4), 15.0)
    near(f(2.0, 3, scale=2.0), 14.0)
    g = fungrad.jit(lambda x, mode: x + 1 if mode == "inc" else x - 1, static_argnames="mode")
    near([g(1.0, mode="inc"), g(1.0, "dec"), g(1.0, "inc")], [2, 0, 2])
    h = fungrad.jit(lambda x, n: x * n, static_argnums=(1,))
    near([h(1.5, 1), h(1.5, True), h(1.5, 1.0)], [1.5, 1.5, 1.5])
    assert h.statistics.traces == 3, "1, True and 1.0 are different static values"
    with pytest.raises(TypeError, match="hashable.*list"):
        h(1.0, [1])


def test_a_static_argument_given_by_keyword():
    f = fungrad.jit(lambda x, n: x * n, static_argnums=1)
    near(f(2.0, n=3), 6.0)


def test_static_and_donated_arguments_exist():
    def f(x, *, n=1):
        return x * n
    for options, text in (({"static_argnames": "m"}, "static_argnames has 'm', but the function takes x, n"),
                          ({"static_argnums": (0, 1)}, "static_argnums has 1, but the function takes 1 positional"),
                          ({"static_argnums": -2}, "static_argnums has -2"),
                          ({"donate_argnums": 3}, "donate_argnums has 3"),
                          ({"donate_argnames": "y"}, "donate_argnames has 'y'")):
        with pytest.raises(ValueError, match=text):
            fungrad.jit(f, **options)
    any_name = fungrad.jit(lambda *args, **options: args[2] + options["n"], static_argnums=2, static_argnames="n")
    near(any_name(0, 0, 1, n=2), 3)
    near(fungrad.jit(f, static_argnums=-1)(2), 2)


def test_methods():
    class Model:
        def __init__(self, w):
            self.w = w

        @fungrad.jit
        def scaled(x, w):
            return x * w
    near(Model.scaled(2.0, 3.0), 6.0)


def test_equal_programs_are_compiled_once():
    from fungrad.runtime.compile import compilations
    x = fnp.ones(7)
    fungrad.jit(lambda x: x * 3 + 11)(x)
    before = compilations()
    for _ in range(3):
        near(fungrad.jit(lambda x: x * 3 + 11)(x), 14 * np.ones(7))
    assert compilations() == before


def test_closed_over_arrays_are_passed_not_baked():
    fs = [fungrad.jit(lambda x, c=c: x * c) for c in (fnp.asarray([2.0]), fnp.asarray([3.0]))]
    near(fs[0](fnp.asarray([1.0])), [2.0])
    near(fs[1](fnp.asarray([1.0])), [3.0])


def test_results_are_fresh_and_inputs_stay():
    f = fungrad.jit(lambda x: x + 1)
    outs = [fnp.zeros(4)]
    for _ in range(5):
        outs.append(f(outs[-1]))
    for i, out in enumerate(outs):
        near(out, np.full(4, float(i)))
    a, b = fungrad.jit(lambda x: (x, x))(outs[2])
    near(a, np.full(4, 2.0))
    near(b, np.full(4, 2.0))


def test_donated_arguments_are_deleted():
    f = fungrad.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = fnp.ones(1000), fnp.ones(1000)
    near(f(x, y), 2 * np.ones(1000))
    with pytest.raises(DeletedArrayError, match="donated"):
        np.asarray(x)
    near(y, np.ones(1000))


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match=r"argument params\['name'\] of <lambda> is str"):
        fungrad.jit(lambda params: 1.0)({"name": "x"})
    with pytest.raises(TypeError, match="result of <lambda> at .'s'. is str"):
        fungrad.jit(lambda x: {"s": "text"})(1.0)
    with pytest.raises(TypeError, match="needs a function"):
        fungrad.jit(3)   # type: ignore[arg-type]  # the mistake under test


def test_looking_inside_is_no_trace_that_why_lists():
    f = fungrad.jit(lambda x: x + 1)
    f(1.0)
    f.program(1.0)
    fungrad.show(f, file=io.StringIO())(2)
    assert f.statistics.traces == 1 and "\n" not in fungrad.why(f)
    fungrad.jit(lambda x: f(x))(fnp.ones(2))
    assert f.statistics.traces == 2


def test_why_names_what_changed():
    f = fungrad.jit(lambda x, s: x * s)
    f(fnp.ones(3), 1.0)
    f(fnp.ones(4), 1.0)
    f(fnp.ones(4), fnp.asarray(1.0))
    text = fungrad.why(f)
    assert "the first call" in text
    assert "argument [0] changed from float32[3] to float32[4]" in text
    assert "argument [1] is now an array" in text


def test_threads_share_compilations():
    f, traces = counted(lambda x: (fnp.sin(x) ** 2).sum())
    g = fungrad.jit(f)
    results = []

    def run():
        for n in (10, 20):
            results.append(float(g(fnp.ones(n))) / n)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    near(results, np.full(8, np.sin(1.0) ** 2))


def test_empty_and_scalar_programs():
    near(fungrad.jit(lambda x: x.sum())(fnp.zeros((0, 3))), 0.0)
    assert fungrad.jit(lambda x: x @ fnp.zeros((3, 2)))(fnp.zeros((0, 3))).shape == (0, 2)
    near(fungrad.jit(lambda a: fnp.zeros((2, 0)) @ fnp.zeros((0, 3)) + a)(1.0), np.ones((2, 3)))
    near(fungrad.jit(lambda: fnp.ones(3))(), np.ones(3))
    assert fungrad.jit(lambda x: None)(1.0) is None


def test_default_float_is_part_of_the_signature():
    f = fungrad.jit(lambda: fnp.asarray(1.0) * 1)
    assert f().dtype == np.float32
    with fungrad.settings(default_float="float64"):
        assert f().dtype == np.float64


def test_eval_shape_and_make_program():
    shape = fungrad.eval_shape(lambda x: {"y": x @ x.T}, fungrad.ShapeDtypeStruct((2, 3), "bfloat16"))
    assert shape["y"] == fungrad.ShapeDtypeStruct((2, 2), "bfloat16")
    program = fungrad.make_program(lambda x: fnp.sin(x))(1.0)
    assert [n.primitive.name for n in program.nodes()] == ["input", "sin"]

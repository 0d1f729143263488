"""grad, vjp, jvp, linearize: values against closed forms and finite differences, pytrees, messages."""
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fungrad
import fungrad.numpy as fnp
from fungrad.errors import GradientError, ShapeError, TreeError


def near(got, want, tolerance=1e-5):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_third_derivative():
    third = fungrad.grad(fungrad.grad(fungrad.grad(lambda x: x ** 5)))
    near(third(2.0), 60 * 4.0)


def test_perturbations_are_not_confused():
    near(fungrad.grad(lambda x: x * fungrad.grad(lambda y: x + y)(1.0))(1.0), 1.0)
    near(fungrad.jvp(lambda x: fungrad.jvp(lambda y: x * y, (2.0,), (x,))[1], (3.0,), (1.0,))[1], 6.0)


class Point(NamedTuple):
    x: object
    y: object


def test_gradient_of_a_tree_has_its_structure():
    tree = {"a": Point(fnp.ones(2), [fnp.full((2, 2), 3.0)]), "none": None}
    gradient = fungrad.grad(lambda t: (t["a"].x ** 2).sum() + (t["a"].y[0] ** 3).sum())(tree)
    assert isinstance(gradient["a"], Point) and gradient["none"] is None
    near(gradient["a"].x, [2, 2])
    near(gradient["a"].y[0], np.full((2, 2), 27.0))


def test_argnums_select_and_keep_order():
    f = lambda x, y, z: x * y * y * z
    near(fungrad.grad(f, 1)(2.0, 3.0, 5.0), 60.0)
    second, first = fungrad.grad(f, (2, 0))(2.0, 3.0, 5.0)
    near(second, 18.0)
    near(first, 45.0)
    near(fungrad.grad(f, -1)(2.0, 3.0, 5.0), 18.0)
    with pytest.raises(TypeError, match="argument number 3"):
        fungrad.grad(f, 3)(1.0, 1.0, 1.0)


def test_keyword_arguments_pass_through():
    near(fungrad.grad(lambda x, *, scale: x * x * scale)(3.0, scale=2.0), 12.0)


def test_aux_is_returned_and_not_differentiated():
    (value, aux), gradient = fungrad.value_and_grad(lambda x: (x ** 2, {"double": 2 * x}), has_aux=True)(3.0)
    near([value, gradient, aux["double"]], [9.0, 6.0, 6.0])
    gradient, aux = fungrad.grad(lambda x: (x ** 2, x + 1), has_aux=True)(3.0)
    near([gradient, aux], [6.0, 4.0])
    with pytest.raises(TypeError, match="pair"):
        fungrad.grad(lambda x: x, has_aux=True)(1.0)


@pytest.mark.parametrize("f, argument, word", [
    (lambda x: x * 2, 3, "int"), (lambda x: x * 2, np.ones(3, "float32"), "scalar"),
    (lambda x: (x, x), 1.0, "2 arrays"),
    (lambda x: x > 0, 1.0, "bool"), (lambda x: {}, 1.0, "0 arrays"),
])
def test_wrong_uses_of_grad(f, argument, word):
    with pytest.raises(GradientError, match=word):
        fungrad.grad(f)(argument)


def test_integer_argument_is_named():
    with pytest.raises(GradientError, match=r"params\['step'\]"):
        def loss(params):
            return params["w"].sum()
        fungrad.grad(loss)({"w": fnp.ones(2), "step": fnp.asarray(1)})


def test_unused_argument_has_zero_gradient():
    near(fungrad.grad(lambda x, y: y * 2, 0)(1.0, 2.0), 0.0)
    near(fungrad.grad(lambda x: fnp.asarray(1.0))(fnp.ones(3)), np.zeros(3))


def test_vjp_of_integers_gives_zeros():
    y, pullback = fungrad.vjp(lambda x, i: x[i], fnp.arange(4.0), fnp.asarray([1, 1]))
    gx, gi = pullback(fnp.ones(2))
    near(gx, [0, 2, 0, 0])
    near(gi, np.zeros(2))


def test_vjp_checks_its_cotangent():
    _, pullback = fungrad.vjp(lambda x: (x, x * 2), fnp.ones(3))
    with pytest.raises(TreeError, match="structure"):
        pullback([fnp.ones(3)])
    with pytest.raises(ShapeError, match="cotangent"):
        pullback((fnp.ones(3), fnp.ones(2)))


def test_jvp_checks_its_tangents():
    with pytest.raises(ShapeError, match="tangent for x"):
        fungrad.jvp(lambda x: x, (fnp.ones(3),), (fnp.ones(2),))
    with pytest.raises(TypeError, match="one tangent"):
        fungrad.jvp(lambda x: x, (1.0,), (1.0, 2.0))


def test_jvp_accepts_integer_arguments():
    y, dy = fungrad.jvp(lambda x, n: x * n, (2.0, 3), (1.0, None))
    near([y, dy], [6.0, 3.0])


def test_linearize_runs_the_function_once():
    calls = []

    def f(x):
        calls.append(1)
        return fnp.sin(x) * x
    y, linear = fungrad.linearize(f, 2.0)
    for t in (1.0, 2.0, -1.0):
        near(linear(t), t * (np.cos(2.0) * 2 + np.sin(2.0)))
    assert len(calls) == 1


def test_linear_transpose():
    transposed = fungrad.linear_transpose(lambda x: 2 * x[1:] - x[:-1], fnp.zeros(4))
    near(transposed(fnp.ones(3))[0], [-1, 1, 1, 2])


def test_jacobians_agree():
    x = fnp.asarray([0.3, 0.7, 1.1])
    f = lambda x: {"a": fnp.sin(x) * x.sum(), "b": x[0] * x[1]}
    forward, reverse = fungrad.jacfwd(f)(x), fungrad.jacrev(f)(x)
    assert forward["a"].shape == (3, 3) and forward["b"].shape == (3,)
    near(forward["a"], reverse["a"])
    near(forward["b"], reverse["b"])
    near(forward["b"], [0.7, 0.3, 0.0])


def test_hessian():
    a = np.array([[3.0, 1.0], [1.0, 2.0]], "float32")
    near(fungrad.hessian(lambda x: 0.5 * x @ fnp.asarray(a) @ x)(fnp.ones(2)), a)
    near(fungrad.hvp(lambda x: (x ** 3).sum(), (fnp.asarray([1.0, 2.0]),), (fnp.asarray([1.0, 1.0]),)), [6.0, 12.0])


def test_stop_gradient():
    near(fungrad.grad(lambda x: x * fungrad.lax.stop_gradient(x))(3.0), 3.0)


def test_where_has_a_finite_gradient_beside_its_branch():
    f = lambda x: fnp.where(x > 0, fnp.sqrt(x), 0.0).sum()
    for g in (fungrad.grad(f), fungrad.jit(fungrad.grad(f))):
        near(g(fnp.asarray([4.0, 0.0, -1.0])), [0.25, 0.0, 0.0])


@pytest.mark.parametrize("x", [lambda: fnp.zeros(3), lambda: np.zeros(3, "float32"), lambda: fnp.asarray([0.0] * 3)])
def test_where_has_a_finite_gradient_at_constants_too(x):
    for safe, want in ((lambda x: fnp.sqrt(x), 0.0), (lambda x: fnp.log(x), 0.0), (lambda x: 1 / x, 0.0)):
        f = lambda x, safe=safe: fnp.where(x > 0, safe(x), 0.0).sum()
        near(fungrad.grad(f)(x()), np.full(3, want))
        near(fungrad.jit(fungrad.grad(f))(x()), np.full(3, want))
    near(fungrad.grad(lambda x: fnp.where(x > 0, fnp.log(x), 0.0))(0.0), 0.0)


FUNCTIONS = {
    "tanh": fnp.tanh, "exp": fnp.exp, "square": lambda x: x * x, "softmax": lambda x: fungrad.nn.softmax(x, axis=-1),
    "cumsum": lambda x: fnp.cumsum(x, axis=-1), "sort": lambda x: fnp.sort(x, axis=-1),
    "max": lambda x: x.max(-1, keepdims=True) + x, "slice": lambda x: x[:, 1:] * x[:, :-1], "matmul": lambda x: x @ x.T,
    "logsumexp": lambda x: fungrad.nn.logsumexp(x, axis=-1),
}


@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(FUNCTIONS)), min_size=1, max_size=2), st.integers(0, 100))
def test_modes_agree_on_compositions(names, seed):
    rng = np.random.default_rng(seed)
    x, v = (fnp.asarray(rng.standard_normal((3, 4)) * 0.5) for _ in range(2))

    def f(x):
        for name in names:
            y = FUNCTIONS[name](x)
            x = fnp.broadcast_to(y.sum(), (3, 4)) * 0.1 + x if y.shape != (3, 4) else y
        return x
    y, forward = fungrad.jvp(f, (x,), (v,))
    _, pullback = fungrad.vjp(f, x)
    w = fnp.asarray(rng.standard_normal((3, 4)))
    near((forward * w).sum(), (pullback(w)[0] * v).sum(), 1e-6)
    h = 1e-5
    near(forward, (np.asarray(f(x + h * v)) - np.asarray(f(x - h * v))) / (2 * h), 1e-4)
    near(fungrad.jit(lambda x, v: fungrad.jvp(f, (x,), (v,))[1])(x, v), forward, 1e-9)

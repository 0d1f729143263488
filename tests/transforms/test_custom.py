"""custom_jvp, custom_vjp, custom_gradient, closure_convert: in every transform, closures, and what goes wrong."""
import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad.errors import RefusedError, ShapeError, TreeError
from fungrad.transforms.linearize import linearize_program

X = np.random.default_rng(0).standard_normal(5)


def near(got, want, tolerance=1e-6):
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance
    )


def x64(x=X):
    return fnp.asarray(np.asarray(x, "float64"))


def jvp_sin():
    """sin whose derivative is said to be 10 cos, so that it shows which one was used."""
    f = fungrad.custom_jvp(lambda x: fnp.sin(x))
    f.defjvp(lambda primals, tangents: (f(*primals), 10 * fnp.cos(primals[0]) * tangents[0]))
    return f


def vjp_sin():
    f = fungrad.custom_vjp(lambda x: fnp.sin(x))
    f.defvjp(lambda x: (fnp.sin(x), (x, 10.0)), lambda saved, g: (saved[1] * fnp.cos(saved[0]) * g,))
    return f


def gradient_sin():
    return fungrad.custom_gradient(lambda x: (fnp.sin(x), lambda g: 10 * fnp.cos(x) * g))


KINDS = {"jvp": jvp_sin, "vjp": vjp_sin, "gradient": gradient_sin}
WRAPS = {
    "plain": lambda f: f,
    "jit": fungrad.jit,
    "vmap": fungrad.vmap,
    "jit(vmap)": lambda f: fungrad.jit(fungrad.vmap(f)),
    "vmap(jit)": lambda f: fungrad.vmap(fungrad.jit(f)),
    "checkpoint": fungrad.checkpoint,
    "checkpoint(jit(vmap))": lambda f: fungrad.checkpoint(fungrad.jit(fungrad.vmap(f))),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_rule_is_used_under_every_transform(kind, wrap):
    f = WRAPS[wrap](KINDS[kind]())
    near(f(x64()), np.sin(X))
    first = lambda x: fungrad.grad(lambda y: f(y).sum())(x)
    near(first(x64()), 10 * np.cos(X))
    near(fungrad.jit(first)(x64()), 10 * np.cos(X))
    near(fungrad.jvp(f, (x64(),), (x64(),))[1], 10 * np.cos(X) * X)
    near(fungrad.grad(lambda x: first(x).sum())(x64()), -10 * np.sin(X))
    near(fungrad.jvp(first, (x64(),), (x64(),))[1], -10 * np.sin(X) * X)
    near(fungrad.linearize(f, x64())[1](x64()), 10 * np.cos(X) * X)
    near(fungrad.jacrev(f)(x64()), np.diag(10 * np.cos(X)))
    near(fungrad.jacfwd(f)(x64()), np.diag(10 * np.cos(X)))


@pytest.mark.parametrize("kind", KINDS)
def test_per_example_gradients(kind):
    f = KINDS[kind]()
    near(fungrad.vmap(fungrad.grad(f))(x64()), 10 * np.cos(X))
    near(fungrad.jit(fungrad.vmap(fungrad.vmap(fungrad.grad(f))))(x64(X.reshape(5, 1))), 10 * np.cos(X).reshape(5, 1))
    near(fungrad.vmap(fungrad.grad(fungrad.grad(fungrad.jit(f))))(x64()), -10 * np.sin(X))


@pytest.mark.parametrize("transform", [lambda f: f, fungrad.jit], ids=["plain", "jit"])
@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_values_that_are_closed_over_are_differentiated_by_the_function_itself(kind, transform):
    def loss(x, c):
        if kind == "jvp":
            f = fungrad.custom_jvp(lambda x: x * c * c)
            f.defjvp(lambda p, t: (p[0] * c * c, 10 * c * t[0]))
        else:
            f = fungrad.custom_vjp(lambda x: x * c * c)
            f.defvjp(lambda x: (x * c * c, None), lambda _, g: (10 * c * g,))
        return transform(f)(x)
    gx, gc = fungrad.grad(loss, (0, 1))(3.0, 2.0)
    near([gx, gc], [20, 12])
    near(fungrad.jvp(loss, (3.0, 2.0), (1.0, 1.0))[1], 32)
    gx, gc = fungrad.jit(fungrad.vmap(fungrad.grad(loss, (0, 1)), in_axes=(0, None)))(x64([3.0, 5.0]), 2.0)
    near(gx, [20, 20])
    near(gc, [12, 20])
    near(fungrad.grad(lambda c: loss(1.0, c))(3.0), 6.0)


def test_python_control_flow_sees_concrete_values():
    @fungrad.custom_jvp
    def f(x):
        return x if x > 0 else -x

    @f.defjvp
    def _(primals, tangents):
        return f(*primals), tangents[0] * (7 if primals[0] > 0 else 8)
    near([fungrad.grad(f)(2.0), fungrad.grad(f)(-2.0)], [7, 8])
    g = fungrad.custom_vjp(f.fun)
    g.defvjp(lambda x: (x, 7.0) if x > 0 else (-x, 8.0), lambda k, ct: (k * ct,))
    near([fungrad.grad(g)(2.0), fungrad.grad(g)(-2.0)], [7, 8])


def test_static_arguments_and_keywords():
    f = fungrad.custom_jvp(lambda g, x, n=2: g(x) ** n, nondiff_argnums=(0, 2))
    f.defjvp(lambda g, n, p, t: (g(p[0]) ** n, 100.0 * n * t[0]))
    near(fungrad.grad(lambda x: f(fnp.sin, x))(0.3), 200)
    near(fungrad.jit(fungrad.grad(lambda x: f(fnp.sin, x, n=3)))(0.3), 300)
    h = fungrad.custom_vjp(lambda g, x: g(x), nondiff_argnums=0)
    h.defvjp(lambda g, x: (g(x), x), lambda g, x, ct: (g(ct) * x,))
    near(fungrad.grad(lambda x: h(fnp.exp, x))(0.5), np.exp(1) * 0.5)


def test_defjvps():
    f = fungrad.custom_jvp(lambda x, y, z: x * y + z)
    f.defjvps(lambda t, out, x, y, z: 10 * y * t, None, lambda t, out, x, y, z: out * t)
    near(fungrad.grad(f, (0, 1, 2))(2.0, 3.0, 4.0), [30, 0, 10])
    near(fungrad.jit(fungrad.grad(f, (0, 1, 2)))(2.0, 3.0, 4.0), [30, 0, 10])


def test_trees_integers_and_none():
    f = fungrad.custom_vjp(lambda d, n: {"s": d["x"] * n, "n": n})
    f.defvjp(lambda d, n: ({"s": d["x"] * n, "n": n}, n), lambda n, g: ({"x": g["s"] * n * 3.0, "y": None}, None))
    grads = fungrad.grad(lambda d: f(d, 2)["s"].sum())({"x": x64(), "y": x64()})
    near(grads["x"], np.full(5, 6.0))
    near(grads["y"], np.zeros(5))
    near(fungrad.jit(fungrad.grad(lambda d: f(d, 2)["s"].sum()))({"x": x64(), "y": x64()})["x"], np.full(5, 6.0))
    g = fungrad.custom_jvp(lambda x, n: (x * n, n + 1))
    g.defjvp(lambda p, t: ((p[0] * p[1], p[1] + 1), (t[0] * 5.0, None)))
    near(fungrad.jit(fungrad.grad(lambda x: g(x, 3)[0]))(2.0), 5.0)


def test_unmapped_arguments_get_the_sum_over_lanes():
    f = fungrad.custom_vjp(lambda x, w: x * w)
    f.defvjp(lambda x, w: (x * w, (x, w)), lambda saved, g: (g * saved[1], g * saved[0]))
    loss = lambda w: fungrad.vmap(f, in_axes=(0, None))(x64(), w).sum()
    near(fungrad.grad(loss)(2.0), X.sum())
    near(fungrad.jit(fungrad.grad(loss))(2.0), X.sum())
    near(fungrad.jvp(loss, (2.0,), (1.0,))[1], X.sum())
    near(fungrad.vmap(fungrad.grad(f, 1), in_axes=(0, None))(x64(), 2.0), X)


def test_a_jitted_function_is_compiled_once():
    f = jvp_sin()
    g = fungrad.jit(f)
    assert g.program(x64()) is g.program(x64())
    traced = []
    h = fungrad.custom_vjp(lambda x: traced.append(1) or fnp.sin(x))
    h.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (fnp.cos(x) * ct,))
    fungrad.jit(h)(x64())
    assert len(traced) == 1


def test_closure_convert():
    def f(x, c):
        converted, values = fungrad.closure_convert(lambda y: y * c + 1, x)
        return fungrad.grad(lambda v: converted(x, v))(values[0]) if len(values) == 1 else values
    near(fungrad.jit(f)(3.0, 4.0), 3.0)


def test_errors():
    with pytest.raises(TypeError, match="no rule"):
        fungrad.grad(fungrad.custom_jvp(lambda x: x))(1.0)
    with pytest.raises(TypeError, match="defvjp"):
        fungrad.custom_vjp(lambda x: x)(1.0)
    f = fungrad.custom_jvp(lambda x: (x, x))
    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(TreeError, match="structure"):
        fungrad.jit(fungrad.grad(lambda x: fungrad.jit(f)(x)[0]))(1.0)
    g = fungrad.custom_vjp(lambda x, y: x * y)
    g.defvjp(lambda x, y: (x * y, None), lambda saved, ct: (ct,))
    with pytest.raises(TypeError, match="2 arguments"):
        fungrad.grad(g)(1.0, 2.0)
    g.defvjp(lambda x, y: (x * y, None), lambda saved, ct: (ct, fnp.ones(3)))
    with pytest.raises(ShapeError, match=r"cotangent of y.*float32\[3\]"):
        fungrad.grad(g)(1.0, 2.0)
    g.defvjp(lambda x, y: (x * y, None), lambda saved, ct: (ct ** 2, ct))
    with pytest.raises(RefusedError, match="linear"):
        fungrad.jvp(g, (1.0, 2.0), (1.0, 1.0))


def test_the_linear_program_holds_the_backward_rule():
    program = fungrad.jit(vjp_sin()).program(x64())
    _, linear, _ = linearize_program(program, (True,))
    assert {n.primitive.name for n in linear.nodes()} == {"input", "custom_linear", "result"}

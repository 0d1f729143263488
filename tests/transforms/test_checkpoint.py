"""checkpoint: transparent in values under every transform, and the memory of the backward pass really falls."""
import itertools

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import backends
from fungrad.lower.simplify import simplify
from fungrad.transforms.linearize import linearize_program

X = np.random.default_rng(0).standard_normal(4)
HOST = backends.get("null").target()
POLICIES = [None, *vars(fungrad.checkpoint_policies).values()]


def near(got, want, tolerance=1e-7):
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance
    )


def f(x):
    return fnp.sin(fnp.exp(fnp.sin(x)) * x)


TRANSFORMS = {
    "jit": fungrad.jit,
    "vmap": fungrad.vmap,
    "jvp": lambda f: lambda x: fungrad.jvp(f, (x,), (x * 0.5,))[1],
    "grad": lambda f: fungrad.grad(lambda x: f(x).sum()),
    "linearize": lambda f: lambda x: fungrad.linearize(f, x)[1](x * 0.5),
    "checkpoint": fungrad.checkpoint,
}


@pytest.mark.parametrize("word", [
    word for word in itertools.product(TRANSFORMS, repeat=2) if word != ("vmap", "vmap")] + [
    ("grad", "grad", "grad"), ("jit", "grad", "vmap"), ("vmap", "grad", "jvp"), ("jvp", "jit", "grad"),
    ("grad", "checkpoint", "grad"), ("linearize", "grad", "jit")], ids="-".join)
def test_values_do_not_change(word):
    plain, kept = f, fungrad.checkpoint(f)
    for name in word:
        plain, kept = TRANSFORMS[name](plain), TRANSFORMS[name](kept)
    near(kept(fnp.asarray(X)), plain(fnp.asarray(X)))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p and p.__name__)
def test_policies(policy):
    w = fnp.asarray(np.random.default_rng(1).standard_normal((4, 4)))
    layer = lambda w, x: fnp.tanh(w @ fnp.sin(x))
    kept = fungrad.checkpoint(layer, policy=policy)
    loss = lambda layer: lambda w, x: (layer(w, layer(w, x)) ** 2).sum()
    for want, got in zip(fungrad.grad(loss(layer), (0, 1))(w, fnp.asarray(X)),
                         fungrad.jit(fungrad.grad(loss(kept), (0, 1)))(w, fnp.asarray(X)), strict=True):
        near(got, want)
    near(
        fungrad.hessian(lambda x: loss(kept)(w, x))(fnp.asarray(X)),
        fungrad.hessian(lambda x: loss(layer)(w, x))(fnp.asarray(X)),
    )


def test_the_backward_pass_computes_again():
    """The number of tanh in the program tells what is saved."""
    def count(policy, name="tanh"):
        layer = lambda w, x: fnp.tanh(w @ fnp.tanh(x))
        g = fungrad.checkpoint(layer, policy=policy) if policy != "none" else layer
        loss = fungrad.jit(fungrad.grad(lambda w, x: (g(w, x) ** 3).sum()))
        return str(simplify(loss.program(fnp.ones((3, 3)), fnp.ones(3)), HOST)).count(f"= {name}{{")
    assert count("none") == 2
    assert count(fungrad.checkpoint_policies.nothing_saveable) == 4
    assert count(fungrad.checkpoint_policies.everything_saveable) == 2


def arena(layer, depth=8, size=1 << 14):
    def loss(x):
        for _ in range(depth):
            x = layer(x)
        return x.sum()
    return fungrad.jit(fungrad.grad(loss)).executable(fnp.ones((size,))).lowered.memory.arena_bytes / (size * 4)


def test_peak_memory_falls():
    """Layers with a row sum in between, so that nothing of the forward pass is recomputed by fusion anyway."""
    def layer(x):
        for _ in range(4):
            y = x.reshape(128, -1)
            x = fnp.tanh(y * fnp.cos(y).sum(1, keepdims=True)).reshape(-1)
        return x
    plain, kept = arena(layer), arena(fungrad.checkpoint(layer))
    assert kept < 0.6 * plain, (plain, kept)


def test_keywords_static_arguments_and_decorator():
    @fungrad.checkpoint(static_argnums=(1,))
    def g(x, n, *, scale):
        return sum(fnp.sin(x) ** k for k in range(n)) * scale
    near(fungrad.grad(lambda x: g(x, 3, scale=2.0))(0.5), 2 * np.cos(0.5) * (1 + 2 * np.sin(0.5)), 1e-6)
    assert fungrad.remat is fungrad.checkpoint


def names(program):
    return {n.primitive.name for n in program.nodes()}


def test_what_the_linear_and_the_backward_program_hold():
    layer = fungrad.checkpoint(lambda x: fnp.sin(fnp.exp(x)), policy=lambda n: n.primitive.name == "exp")
    x = fnp.ones(3)
    forward, linear, _ = linearize_program(fungrad.jit(layer).program(x), (True,))
    assert "checkpoint" in names(forward) and names(linear) == {"input", "checkpoint_linear", "result"}
    (node,) = [n for n in linear.nodes() if n.primitive.name == "checkpoint_linear"]
    assert len(node.operands) == 3      # the argument, what the policy saves, the tangent
    assert "saved" in names(node.param("program"))
    backward = simplify(fungrad.jit(fungrad.grad(lambda x: layer(x).sum())).program(x), HOST)
    assert "barrier" in names(backward)

"""cond and switch: against Python's if under every transform, lanes that differ, agreement of branches."""
import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import lax
from fungrad.errors import DTypeError, ShapeError, TreeError
from tests.transforms.test_loops import near, transformed

X = fnp.asarray([0.3, -0.2, 0.9], "float64")


def branches(w):
    """Branches with consts, unequal residuals, a result without derivative and one that is an operand."""
    return [lambda x: (fnp.sin(w * x) * fnp.exp(x), x, 1),
            lambda x: (x * 0 + 2.0, fnp.cos(x) * w, 2),
            lambda x: (w * x * x, fnp.tanh(fnp.sin(x)), 3)]


def switched(i, choose):
    def f(x):
        a, b, n = choose(i, branches(x.sum()), x)
        return a * b + a * n
    return f


WORDS = [("jit",), ("grad",), ("jvp",), ("vmap",), ("linearize",), ("jacrev",), ("jit", "grad"), ("vmap", "grad"),
         ("grad", "vmap"), ("jvp", "grad"), ("grad", "grad"), ("jit", "vmap", "grad"), ("grad", "checkpoint"),
         ("checkpoint", "grad", "jit")]


@pytest.mark.parametrize("known", [True, False], ids=["known", "traced"])
@pytest.mark.parametrize("word", WORDS, ids="-".join)
def test_a_choice_is_the_chosen_branch(word, known):
    for i in range(3):
        direct = transformed(switched(i, lambda i, fs, x: fs[i](x)), word)(X)
        if known:
            near(transformed(switched(i, lax.switch), word)(X), direct)
        else:
            f = lambda x, i: transformed(switched(i, lax.switch), word)(x)
            near(fungrad.jit(f)(X, i), direct)


@pytest.mark.parametrize(
    "word", [("grad",), ("jvp",), ("linearize",), ("jvp", "grad"), ("checkpoint", "grad")], ids="-".join
)
def test_lanes_with_branches_of_their_own(word):
    f = lambda i, x: transformed(switched(i, lax.switch), word)(x)
    xs, index = fnp.stack([X, X * 2, X * 3, X]), fnp.asarray([2, 0, 1, 7])
    got = fungrad.jit(fungrad.vmap(f))(index, xs)
    near(got, np.stack([np.asarray(transformed(switched(min(int(i), 2), lambda i, fs, x: fs[i](x)), word)(x))
                        for i, x in zip(index.tolist(), xs, strict=True)]))


def test_untaken_branches_leave_no_nan():
    f = lambda p, x: lax.cond(p, lambda x: fnp.sqrt(x) / x, lambda x: x * 0.5, x)
    p, x = fnp.asarray([True, False, False]), fnp.asarray([4.0, 0.0, -1.0])
    for wrap in (lambda f: f, fungrad.jit):
        near(wrap(fungrad.vmap(f))(p, x), [0.5, 0, -0.5])
        near(wrap(fungrad.vmap(fungrad.grad(f, 1)))(p, x), [-1 / 16, 0.5, 0.5])
        near(wrap(fungrad.grad(lambda x: fungrad.vmap(f)(p, x).sum()))(x), [-1 / 16, 0.5, 0.5])
        near(
            wrap(lambda x: fungrad.jvp(lambda x: fungrad.vmap(f)(p, x), (x,), (x * 0 + 1,))[1])(x), [-1 / 16, 0.5, 0.5]
        )


def test_only_the_taken_branch_runs():
    forever = lambda x: lax.while_loop(lambda s: s == s, lambda s: s, x)
    near(fungrad.jit(lambda p, x: lax.cond(p, lambda x: x + 1, forever, x))(True, 1.0), 2.0)


def test_forwarded_results_and_closures():
    a, b = fnp.ones(3), fnp.zeros(3)
    f = fungrad.jit(lambda p, x: lax.cond(p, lambda: (x, x, a), lambda: (a, b, x)))
    near(f(True, a * 5), (a * 5, a * 5, a))
    near(f(False, a * 5), (a, b, a * 5))
    g = fungrad.jit(lambda i, x: lax.switch(i, [lambda: x], ) * 2)
    near(g(3, 4.0), 8.0)


def test_choices_in_loops_and_loops_in_choices():
    def f(x):
        body = lambda c, i: (lax.cond(i % 2 == 0, lambda c: fnp.sin(c) * x, lambda c: lax.fori_loop(
            0, 3, lambda k, s: s * fnp.cos(x) + k, c), c), c)
        return lax.scan(body, x, fnp.arange(4))[0]
    def direct(x):
        c = x
        for i in range(4):
            if i % 2 == 0:
                c = fnp.sin(c) * x
            else:
                for k in range(3):
                    c = c * fnp.cos(x) + k
        return c
    for word in [("jit",), ("grad",), ("jit", "vmap", "grad"), ("jvp", "grad")]:
        near(transformed(f, word)(X), transformed(direct, word)(X))


def test_index_types_and_conditions():
    fs = [lambda: 0, lambda: 1, lambda: 2]
    pick = fungrad.jit(lambda i: lax.switch(i, fs))
    for dtype in ("int8", "uint8", "int32", "int64", "uint64"):
        near([pick(fnp.asarray(i, dtype)) for i in (0, 1, 2, 100)], [0, 1, 2, 2])
    near(pick(fnp.asarray(-(2 ** 40))), 0)
    near(pick(fnp.asarray(2 ** 40)), 2)
    near(fungrad.jit(lambda p: lax.cond(p, lambda: 1, lambda: 0))(fnp.asarray(2.5)), 1)
    near(lax.cond(fnp.asarray(True), lambda x: x, lambda x: -x, 3.0), 3.0)
    near(lax.cond(False, lambda x: x, lambda x: -x, operand=3.0), -3.0)


def test_scalars_take_the_other_branchs_type():
    x = fnp.ones(3, "float16")
    assert str(fungrad.jit(lambda p: lax.cond(p, lambda: x.sum(), lambda: 0))(True).dtype) == "float16"


def test_errors():
    with pytest.raises(ShapeError, match=r"\['a'\].*float32\[2\].*float32\[3\]"):
        lax.cond(True, lambda: {"a": fnp.zeros(3)}, lambda: {"a": fnp.zeros(2)})
    with pytest.raises(DTypeError, match="int32.*float32|float32.*int32"):
        lax.cond(True, lambda: fnp.zeros(2), lambda: fnp.zeros(2, "int32"))
    with pytest.raises(TreeError, match="structure"):
        lax.cond(True, lambda: (1, 2), lambda: 1)
    with pytest.raises(TypeError, match="scalar"):
        lax.cond(fnp.asarray([True, False]), lambda: 1, lambda: 2)
    with pytest.raises(TypeError, match="functions"):
        lax.cond(True, 1, 2)
    with pytest.raises(TypeError, match="integer"):
        lax.switch(1.5, [lambda: 1])
    with pytest.raises(ValueError, match="non-empty"):
        lax.switch(0, [])

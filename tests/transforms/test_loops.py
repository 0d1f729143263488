"""scan, while_loop, fori_loop, map: against Python loops under every transform, and what they say of wrong bodies."""
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fungrad
import fungrad.numpy as fnp
from fungrad import lax
from fungrad.errors import DTypeError, GradientError, ShapeError, TreeError

RNG = np.random.default_rng(0)
XS = RNG.standard_normal((5, 3))


def near(got, want, tolerance=1e-7):
    if isinstance(want, list):
        got, want = np.asarray(got), np.asarray(want)
    got, want = fungrad.tree.leaves(got), fungrad.tree.leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)


def unrolled(f, init, xs=None, length=None, reverse=False):
    """scan as a Python loop."""
    leaves, structure = fungrad.tree.flatten(xs)
    count = leaves[0].shape[0] if leaves else length
    carry, ys = init, []
    for i in reversed(range(count)) if reverse else range(count):
        carry, y = f(carry, fungrad.tree.unflatten(structure, [x[i] for x in leaves]))
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    return carry, fungrad.tree.map(lambda *parts: fnp.stack(parts), *ys) if ys else None


def rnn(scan, reverse=False):
    """A body with consts, several carries (one an integer, one that only copies), residuals of every kind."""
    def f(x):
        w = fnp.sin(x)
        def body(c, s):
            h, old, n = c
            new = fnp.tanh(w * h + s) * fnp.cos(w)
            return (new, h, n + 1), (new * s, h + old * n)
        xs = fnp.asarray(XS) * x.sum()
        (h, old, n), (a, b) = scan(body, (x, x * 0, fnp.asarray(0)), xs, reverse=reverse)
        return h + a.sum(0) + (b * b).sum(0) + old * n
    return f


TRANSFORMS = {
    "jit": fungrad.jit,
    "jvp": lambda f: lambda x: fungrad.jvp(f, (x,), (x * 0.5 + 1,))[1],
    "grad": lambda f: fungrad.grad(lambda x: (f(x) ** 2).sum()),
    "linearize": lambda f: lambda x: fungrad.linearize(f, x)[1](x * 0.5),
    "vmap": lambda f: lambda x: fungrad.vmap(f)(fnp.stack([x, x * x])).sum(0),
    "jacfwd": lambda f: lambda x: fungrad.jacfwd(f)(x).sum(0),
    "jacrev": lambda f: lambda x: fungrad.jacrev(f)(x).sum(0),
    "checkpoint": fungrad.checkpoint,
}
WORDS = [(name,) for name in TRANSFORMS] + [
    ("jit", "grad"),
    ("grad", "jit"),
    ("vmap", "grad"),
    ("grad", "vmap"),
    ("jvp", "grad"),
    ("grad", "jvp"),
    ("grad", "grad"),
    ("jit", "vmap", "grad"),
    ("jit", "jvp", "grad"),
    ("vmap", "jit", "grad"),
    ("jvp", "jvp"),
    ("checkpoint", "grad"),
    ("grad", "checkpoint"),
    ("jit", "grad", "vmap"),
    ("linearize", "grad"),
    ("grad", "linearize"),
    ("vmap", "vmap", "grad"),
    ("jit", "vmap", "jvp"),
]


def transformed(f, word):
    for name in word:
        f = TRANSFORMS[name](f)
    return f


@pytest.mark.parametrize("word", WORDS, ids="-".join)
def test_scan_is_its_unrolled_loop(word):
    x = fnp.asarray([0.3, -0.2, 0.9], "float64")
    near(transformed(rnn(lax.scan), word)(x), transformed(rnn(unrolled), word)(x))


@pytest.mark.parametrize("word", [("grad",), ("jit", "vmap", "grad"), ("jvp", "grad")], ids="-".join)
def test_reverse(word):
    x = fnp.asarray([0.3, -0.2, 0.9], "float64")
    near(transformed(rnn(lax.scan, True), word)(x), transformed(rnn(unrolled, True), word)(x))


@pytest.mark.parametrize("wrap", [lambda f: f, fungrad.jit], ids=["plain", "jit"])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_lengths(wrap, length):
    xs = fnp.asarray(XS[:length])
    f = lambda xs, c: lax.scan(lambda c, x: (c + x, c * x), c, xs)
    end, ys = wrap(f)(xs, fnp.ones(3, "float64"))
    carry, rows = np.ones(3), []
    for x in XS[:length]:
        rows.append(carry * x)
        carry = carry + x
    near(end, carry)
    near(ys, np.array(rows).reshape(length, 3))
    near(wrap(fungrad.grad(lambda xs, c: f(xs, c)[0].sum(), (0, 1)))(xs, fnp.ones(3, "float64")),
         (np.ones((length, 3)), np.ones(3)))


def test_forwarded_values():
    """Carries that swap, that stay, slices and consts as results, results given twice."""
    k = fnp.asarray([7.0])
    f = lambda c, x: ((c[1], c[0], c[2]), (x, c[0], c[0], k, c[2]))
    args = (fnp.asarray([1.0]), fnp.asarray([2.0]), fnp.asarray([3.0])), fnp.arange(6.0).reshape(3, 2)
    near(fungrad.jit(lambda c, x: lax.scan(f, c, x))(*args), unrolled(f, *args))
    near(lax.scan(f, *args, reverse=True), unrolled(f, *args, reverse=True))
    two = (fnp.asarray([1.0]),) * 2
    near(
        lax.scan(lambda c, _: ((c[1], c[0] + c[1]), None), two, None, length=8)[0], (np.asarray([34]), np.asarray([55]))
    )


def test_trees_and_none():
    init = {"a": fnp.zeros(()), "b": [fnp.ones(2), None]}
    end, ys = lax.scan(lambda c, x: ({"a": c["a"] + x["u"], "b": [c["b"][0] * x["v"], None]}, None), init,
                       {"u": fnp.arange(3.0), "v": fnp.full(3, 2.0)})
    near(end["a"], 3.0)
    near(end["b"][0], [8, 8])
    assert ys is None and end["b"][1] is None


def test_nested_scans():
    def outer(scan):
        def f(x):
            def body(c, row):
                c, ys = scan(lambda d, e: (fnp.sin(d * e + c), d), c, row)
                return c, ys.sum() + c
            end, ys = scan(body, x.sum(), fnp.asarray(XS) * x)
            return end * ys
        return f
    x = fnp.asarray([0.3, -0.2, 0.9], "float64")
    for word in [("jit",), ("grad",), ("jit", "vmap", "grad"), ("jvp", "grad")]:
        near(transformed(outer(lax.scan), word)(x), transformed(outer(unrolled), word)(x))


def test_a_body_with_kernels_of_every_kind():
    """Contractions, sorts, gathers and scatters in a body."""
    w = fnp.asarray(RNG.standard_normal((40, 40)))
    def body(c, i):
        c = fnp.sort(fnp.tanh(w @ c), axis=0)
        return c.at[i].set(c[0]), c[i] + fnp.cumsum(c, 0)[3]
    c, i = fnp.asarray(RNG.standard_normal((40, 8))), fnp.asarray([3, 1, 2, 39])
    near(fungrad.jit(lambda c, i: lax.scan(body, c, i))(c, i), unrolled(body, c, i))
    loss = lambda scan: lambda c: scan(body, c, i)[1].sum()
    near(fungrad.jit(fungrad.grad(loss(lax.scan)))(c), fungrad.grad(loss(unrolled))(c))


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(0, 2), st.booleans(), st.sampled_from(["c", "x", "w", "cx", "xw", "cw", "cxw"]))
def test_vmap_of_any_operands(size, axis, reverse, mapped):
    x = np.stack([RNG.standard_normal((3, 2)) for _ in range(size)], axis)
    c, w = RNG.standard_normal((size, 2)), RNG.standard_normal((size, 2))
    if "x" not in mapped:
        x = x.take(0, axis)
    c, w = (c if "c" in mapped else c[0]), (w if "w" in mapped else w[0])
    axes = (0 if "c" in mapped else None, axis if "x" in mapped else None, 0 if "w" in mapped else None)
    def f(c, x, w):
        return lax.scan(lambda c, x: (c * w + x, c - x), c, x, reverse=reverse)
    got = fungrad.jit(fungrad.vmap(f, in_axes=axes))(*map(fnp.asarray, (c, x, w)))
    for i in range(size):
        one = [a if axis is None else a.take(i, axis) for a, axis in zip((c, x, w), axes, strict=True)]
        near(
            fungrad.tree.map(lambda leaf, i=i: leaf[i], got),
            unrolled(
                lambda c, x, w=one[2]: (c * w + x, c - x), fnp.asarray(one[0]), fnp.asarray(one[1]), reverse=reverse
            ),
        )


# ---- carries that are Python scalars --------------------------------------------------------------------------------

def test_a_scalar_carry_takes_the_bodys_type():
    xs = fnp.arange(3.0, dtype="float16")
    end, ys = lax.scan(lambda c, x: (c + x, c), 0, xs)
    assert str(end.dtype) == str(ys.dtype) == "float16"
    end, _ = lax.scan(lambda c, x: (c * 2.0 + x, None), 1.0, fnp.arange(3.0, dtype="float64"))
    assert str(end.dtype) == "float64"
    end, _ = lax.scan(lambda c, x: (c * 2, None), 1, None, length=3)
    assert str(end.dtype) == "int32" and int(end) == 8
    end, _ = lax.scan(lambda c, x: (c * 2.5, None), 1, None, length=2)
    assert str(end.dtype) == "float32" and float(end) == 6.25
    end, _ = lax.scan(lambda c, x: (1, None), fnp.asarray(0.5), None, length=2)
    assert str(end.dtype) == "float32"
    assert str(lax.fori_loop(0, 3, lambda i, s: s + i, fnp.ones(2, "float16")).dtype) == "float16"


def test_bodies_are_traced_once():
    """Whatever the nesting, the types of the carry and the transforms around."""
    traces = []
    def nest(depth):
        def body(c, x):
            if depth:
                return lax.scan(nest(depth - 1), c, None, length=2)[0], None
            traces.append(1)
            return c * 1.5, None
        return body
    lax.scan(nest(3), 1, None, length=2)
    assert len(traces) == 1
    traces.clear()
    fungrad.jit(fungrad.vmap(fungrad.grad(lambda x: lax.scan(nest(2), x, None, length=2)[0])))(fnp.ones(3))
    assert len(traces) == 1


# ---- memory and steps of gradients ----------------------------------------------------------------------------------

def slots_of(f, *args):
    fused = fungrad.jit(f).executable(*args).lowered.fused
    return fused, sum(type.nbytes for type in fused.slots)


def test_residuals_are_hoisted_forwarded_and_stacked_once():
    w, xs = fnp.ones((64,)), fnp.ones((100, 64))
    def loss(w, xs):
        def body(c, x):
            return fnp.sin(fnp.exp(w) * x) + c, None
        return lax.scan(body, fnp.zeros(64), xs)[0].sum()
    _, total = slots_of(fungrad.grad(loss), w, xs)
    assert total < 2.5 * xs.nbytes      # xs itself, and at most one stacked value
    _, total = slots_of(fungrad.grad(loss, (0, 1)), w, xs)
    assert total < 3.5 * xs.nbytes


def test_the_gradient_of_a_scan_has_linear_memory():
    def loss(xs):
        return lax.scan(lambda c, x: (fnp.tanh(c + x), None), fnp.zeros(16), xs)[0].sum()
    sizes = [slots_of(fungrad.grad(loss), fnp.ones((n, 16)))[1] for n in (100, 200, 400)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0]) and sizes[2] < 4 * 400 * 16 * 4


def test_checkpoint_of_a_scan_keeps_the_carries_only():
    def loss(kept):
        def body(c, x):
            for _ in range(6):
                c = fnp.sin(c * x + c.sum())
            return c, None
        return lambda xs: lax.scan(body, fnp.zeros(8), xs, checkpoint=kept)[0].sum()
    xs = fnp.asarray(RNG.standard_normal((50, 8)).astype("float32"))
    near(fungrad.grad(loss(True))(xs), fungrad.grad(loss(False))(xs), 1e-5)
    assert slots_of(fungrad.grad(loss(True)), xs)[1] < 0.5 * slots_of(fungrad.grad(loss(False)), xs)[1]


# ---- while and fori -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("wrap", [lambda f: f, fungrad.jit], ids=["plain", "jit"])
def test_while_loop(wrap):
    def collatz(n):
        return lax.while_loop(
            lambda s: s[0] != 1, lambda s: (fnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)
        )[1]
    want = [0, 1, 7, 2, 5, 8, 16, 3]
    near([wrap(collatz)(fnp.asarray(n)) for n in range(1, 9)], want)
    near(wrap(fungrad.vmap(collatz))(fnp.arange(1, 9)), want)
    near(wrap(lambda x: lax.while_loop(lambda s: False, lambda s: s * 2, x))(fnp.ones(3)), np.ones(3))


def power(x, loop=lax.while_loop, **options):
    """x ** 6 by a loop with consts in the condition and in the body, and a carry that is not differentiated."""
    limit, factor = fnp.abs(x) * 0 + 5.5, fnp.sin(x)
    return loop(lambda s: s[1] < limit, lambda s: (s[0] * factor, s[1] + 1.0), (x, 0.0), **options)[0]


@pytest.mark.parametrize("word", [("jvp",), ("jvp", "jvp"), ("jit", "jvp"), ("linearize",), ("vmap", "jvp"),
                                  ("jvp", "vmap"), ("jit", "vmap", "jvp"), ("checkpoint", "jvp")], ids="-".join)
def test_forward_mode_of_while(word):
    lane = lambda x: fungrad.vmap(power)(x)
    x = fnp.asarray([0.3, -0.2, 0.9], "float64")
    near(transformed(lane, word)(x), transformed(lambda x: x * fnp.sin(x) ** 6, word)(x))
    near(fungrad.jvp(power, (x[0],), (x[1],)), fungrad.jvp(lambda x: x * fnp.sin(x) ** 6, (x[0],), (x[1],)))


@pytest.mark.parametrize(
    "word", [("grad",), ("jit", "grad"), ("vmap", "grad"), ("jvp", "grad"), ("grad", "grad")], ids="-".join
)
def test_reverse_mode_of_a_bounded_while(word):
    lane = lambda x: fungrad.vmap(lambda x: power(x, max_steps=9))(x)
    x = fnp.asarray([0.3, -0.2, 0.9], "float64")
    near(transformed(lane, word)(x), transformed(lambda x: x * fnp.sin(x) ** 6, word)(x))
    near(fungrad.grad(lambda x: power(x, max_steps=9))(x[0]), fungrad.grad(lambda x: x * fnp.sin(x) ** 6)(x[0]))


def test_finished_lanes_keep_their_values():
    f = lambda n: lax.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] / (n - s[0]).astype("float32")), (0, 1.0)
    )
    near(fungrad.jit(fungrad.vmap(f))(fnp.asarray([0, 1, 3]))[1], [1, 1, 1 / 6], 1e-6)


def test_fori_loop():
    near(fungrad.jit(lambda n: lax.fori_loop(2, n, lambda i, s: s + i, 0))(fnp.asarray(6)), 14)
    near(lax.fori_loop(5, 2, lambda i, s: s + 1, 1.0), 1.0)
    table = fnp.asarray(XS)
    f = lambda t: lax.fori_loop(0, 5, lambda i, s: s * 0.5 + fnp.sin(t[i]), fnp.zeros(3, "float64")).sum()
    near(fungrad.jit(fungrad.grad(f))(table), np.cos(XS) * 0.5 ** np.arange(4, -1, -1)[:, None])
    update = lambda t: lax.fori_loop(0, 5, lambda i, s: s.at[i].set(s[i] * t[i].sum()), t)
    near(update(table), XS * XS.sum(1, keepdims=True))
    near(fungrad.jit(fungrad.grad(lambda t: update(t).sum()))(table), np.repeat(2 * XS.sum(1, keepdims=True), 3, 1))


def test_map():
    f = lambda x: {"s": fnp.sin(x).sum(), "x": x}
    xs = fnp.asarray(XS)
    for size in (None, 1, 2, 5, 7):
        got = lax.map(f, xs, batch_size=size)
        near(got["s"], np.sin(XS).sum(1))
        near(got["x"], XS)
    near(fungrad.grad(lambda x: lax.map(f, x)["s"].sum())(xs), np.cos(XS))


def test_linear_transpose_of_a_scan_with_a_counter():
    def f(x):
        return lax.scan(
            lambda c, _: ((c[0] + 1, c[1] * 2 + x * c[0]), c[1]), (fnp.asarray(1.0), x * 0), None, length=3
        )[0][1]
    (got,) = fungrad.linear_transpose(f, fnp.ones(2))(fnp.ones(2))
    near(got, np.full(2, 4 + 4 + 3))


# ---- errors ---------------------------------------------------------------------------------------------------------

def test_errors():
    with pytest.raises(ShapeError, match=r"c\['b'\] is float32\[3\] on entry and float32\[4\].*test_loops.py"):
        lax.scan(lambda c, x: ({"b": fnp.zeros(4)}, None), {"b": fnp.zeros(3)}, None, length=2)
    with pytest.raises(DTypeError, match=r"c is int32\[\] on entry and float32\[\]"):
        lax.scan(lambda c, x: (c * 1.5, None), fnp.asarray(1), None, length=2)
    with pytest.raises(TreeError, match="structure"):
        lax.scan(lambda c, x: ((c, c), None), 1.0, None, length=2)
    with pytest.raises(TypeError, match="pair"):
        lax.scan(lambda c, x: c, 1.0, None, length=2)
    with pytest.raises(ShapeError, match=r"xs\['u'\] 3, xs\['v'\] 4"):
        lax.scan(lambda c, x: (c, None), 1.0, {"u": fnp.ones(3), "v": fnp.ones(4)})
    with pytest.raises(ValueError, match="length"):
        lax.scan(lambda c, x: (c, None), 1.0)
    with pytest.raises(ShapeError, match="leading axis"):
        lax.scan(lambda c, x: (c, None), 1.0, 2.0)
    with pytest.raises(TypeError, match="boolean scalar"):
        lax.while_loop(lambda s: s, lambda s: s, 1.0)
    with pytest.raises(ShapeError, match=r"s\[1\] is"):
        lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0], fnp.zeros(3)), (0, fnp.zeros(2)))
    with pytest.raises(GradientError, match="max_steps"):
        fungrad.grad(power)(0.5)


def test_words_are_distinct():
    assert len(set(WORDS)) == len(WORDS) and all(name in TRANSFORMS for name in itertools.chain(*WORDS))

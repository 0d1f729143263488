"""The checks of derivatives, vmap, jit and transforms find what is wrong, and the counters count."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import lax
from fungrad.testing import check_grads, check_jit, check_transforms, check_vmap, laws

X = np.array([0.3, -0.7, 1.1])


def wrong(x: Any) -> Any:
    """Its derivative is that of a constant factor only."""
    return lax.stop_gradient(fnp.sin(x)) * x


@pytest.mark.parametrize("mode", ["fwd", "rev", "lin"])
def test_right_derivatives(mode: str) -> None:
    tree = {"a": X, "n": np.arange(3)}
    check_grads(lambda t, y: [fnp.sin(t["a"]) * y.sum() + t["n"], t["n"]], (tree, np.ones((2, 2))), 3, mode)
    check_grads(lambda x: fnp.tanh(x) @ x, (X.astype("float32"),), 2, mode)


def test_a_wrong_derivative_is_found() -> None:
    with pytest.raises(AssertionError, match=r"jvp\(f\) and finite differences differ in result 0 at \["):
        check_grads(wrong, (X,), modes="fwd")
    second = fungrad.custom_jvp(lambda x: x * x * x)
    slope = lambda x: 3 * x * lax.stop_gradient(x)
    second.defjvp(lambda primals, tangents: (primals[0] ** 3, slope(primals[0]) * tangents[0]))
    check_grads(second, (X,), order=1)
    with pytest.raises(AssertionError, match=r"jvp\(jvp\(f\)\)"):
        check_grads(second, (X,), order=2)
    with pytest.raises(ValueError, match="modes are fwd, rev, lin"):
        check_grads(wrong, (X,), modes="backward")


def test_vmap_and_jit() -> None:
    check_vmap(lambda x, y: x * y.sum(), (np.ones((3, 4)), np.arange(6.0).reshape(2, 3)), (0, 1))
    check_jit(lambda x: (x * 2, x > 1), (X,))
    calls = []

    def changing(x: Any) -> Any:
        calls.append(1)
        return x * len(calls)
    with pytest.raises(AssertionError, match="jit"):
        check_jit(changing, (X,))
    with pytest.raises(AssertionError, match="vmap"):
        check_vmap(changing, (np.ones((2, 3)),))


def test_words() -> None:
    assert len(laws.words(3)) == 84
    check_transforms(lambda x, n: [fnp.sin(x) * n, n], (X, np.arange(3)), laws.words(2))
    with pytest.raises(AssertionError, match="grad"):
        calls = []

        def changing(x: Any) -> Any:
            calls.append(1)
            return x * x * len(calls)
        check_transforms(changing, (X,), [("grad", "jit")])


def test_counters() -> None:
    f = fungrad.jit(lambda x: fnp.exp(x - x.max()).sum())
    with laws.count_traces(f) as count:
        for _ in range(3):
            f(X)
        f(X[:2])
    assert count.traces == 2 and count.compilations == 2
    assert laws.count_kernels(f, X) == 1
    large = fnp.zeros((1000, 100), "float32")
    assert laws.peak_memory(lambda x: x + 1, large) == 2 * large.nbytes
    assert laws.temporary_memory(lambda x: x + 1, large) == 0


def test_leaks() -> None:
    kept = []
    with laws.assert_no_leaks():
        float(fungrad.jit(fungrad.grad(lambda x: (x * x).sum()))(X).sum())
    with pytest.raises(AssertionError, match="tracers are still alive"), laws.assert_no_leaks():
        fungrad.jit(lambda x: kept.append(x) or x)(X)   # type: ignore[func-returns-value]
    kept.clear()

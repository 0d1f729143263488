"""Operations outside jit: lazily, fused, bounded, once."""
import gc

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad.errors import ShapeError
from fungrad.runtime.compile import COMPILATIONS, compilations
from fungrad.transforms.lazy import Result, run_pending


def near(got, want, tolerance=1e-5):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_operations_wait_until_a_value_is_looked_at():
    x = fnp.asarray(np.ones(5, "float32"))
    y = fnp.sin(x) + 1
    assert isinstance(y._pending, Result)
    near(y, np.sin(1.0) + np.ones(5))
    assert y._pending is None


def test_a_chain_is_one_kernel():
    run_pending(())
    x = fnp.asarray(np.linspace(0, 1, 64, dtype="float32"))
    near((fnp.tanh(x) * 3 + x).sum(), (np.tanh(np.linspace(0, 1, 64)) * 3 + np.linspace(0, 1, 64)).sum(), 1e-4)
    assert COMPILATIONS[-1].kernels == 1


def test_equal_chains_compile_once_whatever_their_scalars():
    x = fnp.asarray(np.ones(6, "float32"))
    near(x * 3.25 + 7.5, np.full(6, 10.75))
    before = compilations()
    for a in (1.5, 2.25, 1e-3):
        near(x * a + 0.1 * a, np.full(6, a + 0.1 * a))
    assert compilations() == before


def test_a_shape_error_is_raised_at_its_line():
    with pytest.raises(ShapeError, match=r"\(2, 3\).*\(2, 4\)"):
        fnp.ones((2, 3)) + fnp.ones((2, 4))


def test_pending_graphs_are_bounded():
    with fungrad.settings(pending_limit=50):
        x = fnp.zeros(3)
        for _ in range(300):
            x = x + 1
    near(x, np.full(3, 300.0))


def test_values_still_held_are_computed_together():
    x = fnp.asarray(np.arange(4, dtype="float32"))
    y = fnp.exp(x)
    z = y * 2
    np.asarray(z)
    assert y._pending is None   # type: ignore[attr-defined]  # an Array outside jit
    near(y, np.exp(np.arange(4)))


def test_dropped_values_are_not_computed():
    run_pending(())
    x = fnp.asarray(np.arange(4, dtype="float32"))
    dropped = fnp.sort(fnp.exp(x))
    del dropped
    gc.collect()
    near(x + 5, np.arange(4) + 5)
    assert COMPILATIONS[-1].kernels == 1


def test_lazy_and_jit_give_the_same_bits():
    x = fnp.asarray(np.random.default_rng(0).standard_normal((17, 33)).astype("float32"))
    f = lambda x: fungrad.nn.softmax(fnp.tanh(x) * 1.5, axis=-1)
    assert np.array_equal(np.asarray(f(x)), np.asarray(fungrad.jit(f)(x)))

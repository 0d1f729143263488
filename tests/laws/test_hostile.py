"""What a user may do to the library that it was not made for."""
from __future__ import annotations

import threading

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad.errors import DeletedArrayError, LeakedTracerError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_chains_of_thousands_of_operations() -> None:
    def chain(x):
        for _ in range(1500):
            x = x * 1.0001 + 0.001
        return x.sum()
    eager = float(chain(fnp.asarray(X)))
    np.testing.assert_allclose(float(fungrad.jit(chain)(X)), eager, 1e-4)
    gradient = np.asarray(fungrad.jit(fungrad.grad(chain))(X))
    np.testing.assert_allclose(gradient, 1.0001 ** 1500, 1e-3)


def test_a_network_of_hundreds_of_layers() -> None:
    def deep(weights, x):
        for w in weights:
            x = fnp.tanh(x @ w)
        return x.sum()
    weights = [np.eye(4, dtype=np.float32) * 0.9 for _ in range(200)]
    found = fungrad.jit(fungrad.grad(deep))(weights, np.ones((2, 4), np.float32))
    assert all(np.isfinite(np.asarray(g)).all() for g in found) and np.asarray(found[-1]).any()


def test_memory_of_arrays_that_something_waits_to_read_is_not_given_away() -> None:
    double = fungrad.jit(lambda a: a * 2 + 1, donate_argnums=0)
    a = fungrad.realize(fnp.asarray(X) + 0)
    waiting = a * 3
    np.testing.assert_array_equal(np.asarray(double(a)), X * 2 + 1)
    np.testing.assert_array_equal(np.asarray(waiting), X * 3)
    with pytest.raises(DeletedArrayError):
        a + 1


def test_donation_of_what_others_hold() -> None:
    give = fungrad.jit(lambda a, b: (a + b, a), donate_argnums=(0, 1))
    a = fungrad.realize(fnp.asarray(X) + 0)
    view, kept = np.asarray(a), X.copy()
    total, same = give(a, a)
    np.testing.assert_array_equal(np.asarray(total), 2 * X)
    np.testing.assert_array_equal(np.asarray(same), X)
    np.testing.assert_array_equal(view, kept)


def test_arrays_given_are_copied() -> None:
    for use in (fnp.asarray, lambda x: fnp.asarray(x) * 1, lambda x: fnp.add(x, 0), fungrad.jit(lambda x: x)):
        given = X.copy()
        taken = use(given)
        given[:] = 77
        np.testing.assert_array_equal(np.asarray(taken), X)


def test_tracers_that_escape_by_a_generator_or_a_thread() -> None:
    def parts(x):
        yield x * 2
        yield x * 3
    kept = []

    def first(x):
        kept.append(parts(x))
        return next(kept[0])
    fungrad.jit(first)(X)
    with pytest.raises(LeakedTracerError):
        next(kept[0])
    caught = []

    def elsewhere(x):
        def work():
            try:
                x + 1
            except LeakedTracerError as error:
                caught.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x
    fungrad.jit(elsewhere)(X)
    assert len(caught) == 1


def test_threads_realize_what_others_made() -> None:
    shared = [fnp.asarray(X) * i + i for i in range(20)]
    wrong = []

    def work(offset):
        for i in range(20):
            j = (i + offset) % 20
            if not np.array_equal(np.asarray(shared[j] + offset), X * j + j + offset):
                wrong.append((offset, j))
    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_recycled_memory_holds_no_old_results() -> None:
    f = fungrad.jit(lambda x: (fnp.exp(x - x.max()).sum(0), fnp.sort(x, 0), fnp.pad(x, 2), x.at[1].set(0.0)))
    other = fungrad.jit(lambda x: x * float("nan"))
    expected = [np.asarray(r).copy() for r in f(X)]
    for shape in ((3, 4), (7, 8), (4,), (3, 4)):
        np.asarray(other(np.ones(shape, np.float32)))
        for a, b in zip(f(X), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)

"""Operations outside jit: whatever is looked at, kept, dropped or computed in any order, the values are NumPy's."""
from __future__ import annotations

import threading

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp

BINARY = [("add", np.add), ("subtract", np.subtract), ("maximum", np.maximum), ("minimum", np.minimum)]


def stress(seed: int, rounds: int = 120) -> None:
    """A random growing and shrinking set of arrays (whole numbers, so that every result is exact)."""
    random = np.random.default_rng(seed)
    start = random.integers(-5, 6, (4, 6)).astype(np.float32)
    pairs = [(fnp.asarray(start), start)]
    negate = fungrad.jit(lambda x: (-x, x))
    for _ in range(rounds):
        (a, b), (c, d) = (pairs[int(random.integers(len(pairs)))] for _ in range(2))
        step = int(random.integers(9))
        if step < 3:
            name, function = BINARY[int(random.integers(len(BINARY)))]
            pairs.append((fnp.clip(getattr(fnp, name)(a, c), -50, 50), np.clip(function(b, d), -50, 50)))
        elif step == 3:
            row = int(random.integers(4))
            pairs.append((a.at[row].set(c[0]), np.concatenate([b[:row], d[:1], b[row + 1:]])))
        elif step == 4:
            pairs.append((fnp.broadcast_to(a.max(0), (4, 6)), np.broadcast_to(b.max(0), (4, 6))))
        elif step == 5:
            np.testing.assert_array_equal(np.asarray(a), b)
        elif step == 6:
            fungrad.realize([a, c])
        elif step == 7 and len(pairs) > 2:
            del pairs[int(random.integers(len(pairs)))]
        else:
            flipped, same = negate(a)
            pairs += [(flipped, -b), (same, b), (a[::-1, ::-1], b[::-1, ::-1])]
        pairs = pairs[-25:]
    for a, b in pairs:
        np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("seed", range(4))
def test_any_order(seed: int) -> None:
    with fungrad.settings(pending_limit=[512, 7, 1, 40][seed]):
        stress(seed)


def test_any_order_in_threads() -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            stress(seed, 60)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(10, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]

"""Both networks transpose, for every number of lanes."""
from __future__ import annotations

import numpy as np
import pytest

from fungrad.lower.lane_transpose import exchange, interleave, transpose


def shuffle(a: np.ndarray, b: np.ndarray, lanes: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([a, b])[list(lanes)]


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 64])
def test_columns(lanes):
    square = np.arange(lanes * lanes).reshape(lanes, lanes)
    networks = [exchange(list(square), shuffle)]
    networks += [interleave(list(square), unit, shuffle) for unit in (1, 2, 4, 8, 16) if unit <= lanes]
    networks += [transpose(list(square), itemsize, shuffle) for itemsize in (1, 2, 4, 8)]
    assert all(np.array_equal(columns, square.T) for columns in networks)

"""threefry2x32 against the published test vectors."""
from __future__ import annotations

import numpy as np
import pytest

from fungrad.errors import DTypeError
from fungrad.ir.types import array_type
from fungrad.ops.bits import threefry2x32_p
from tests.ops.helpers import assert_same, check_batch, check_lower, reference

# Random123's kat_vectors for threefry2x32 with 20 rounds: (counter, key, result).
KNOWN = [((0, 0), (0, 0), (0x6b200159, 0x99ba4efe)),
         ((0xffffffff, 0xffffffff), (0xffffffff, 0xffffffff), (0x1cb996fc, 0xbb002be7)),
         ((0x243f6a88, 0x85a308d3), (0x13198a2e, 0x03707344), (0xc4923a9c, 0x483df7a0))]


def test_published_vectors():
    counters, keys, results = (np.array(column, np.uint32).T for column in zip(*KNOWN, strict=True))
    assert_same(reference(threefry2x32_p, *keys, *counters), (results[0], results[1]))


def test_lower_and_batch():
    operands = np.random.default_rng(0).integers(0, 2**32, (4, 3, 2), np.uint32)
    check_lower(threefry2x32_p, *operands)
    check_batch(threefry2x32_p, operands[0], operands[1], operands[2][0], operands[3][0], axes=(0, 0, None, None))


def test_only_uint32():
    with pytest.raises(DTypeError, match="uint32"):
        threefry2x32_p.type(*[array_type((2,), np.dtype("int32"))] * 4)

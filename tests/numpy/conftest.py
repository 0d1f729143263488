"""Operators are wired, and every test runs under the eager trace of `support`."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from fungrad.ir.value import OPERATORS
from fungrad.numpy.operators import TABLE
from tests.numpy.support import eagerly

OPERATORS.update(TABLE)


@pytest.fixture(autouse=True)
def eager_operations() -> Iterator[None]:
    with eagerly():
        yield

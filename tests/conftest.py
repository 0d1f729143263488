"""What every test gets: a cache of compiled objects of its own, checks between passes, and a look for leaked traces."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from fungrad import trace

settings.register_profile("fungrad", deadline=None, print_blob=True)
settings.load_profile("fungrad")


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before any worker or subprocess starts; a setting from outside stays."""
    os.environ.setdefault("FUNGRAD_CHECK", "1")
    if "FUNGRAD_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="fungrad-tests-")
        os.environ["FUNGRAD_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(autouse=True)
def no_trace_left_behind() -> Iterator[None]:
    """Fail a test after which a transform is still active in this thread."""
    yield
    assert trace.is_base(), "a trace is still active after this test"

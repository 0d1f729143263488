"""The caching allocator: alignment, reuse, bounds, threads."""
from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fungrad.backends.reference import ReferenceBackend
from fungrad.errors import DeviceError
from fungrad.runtime import alloc
from fungrad.runtime.alloc import Allocator, round_up

raw = ReferenceBackend().allocate


@given(st.integers(0, 1 << 40))
def test_size_classes(nbytes: int) -> None:
    size = round_up(nbytes)
    assert size >= nbytes and size % 64 == 0
    assert size <= max(64, nbytes + max(63, nbytes // 8))
    assert round_up(size) == size


@pytest.mark.parametrize("nbytes", [0, 1, 64, 1000, 20_000, 40_000, 3_000_000])
def test_memory_is_aligned_and_reused(nbytes: int) -> None:
    allocator = Allocator(raw)
    block = allocator.allocate(nbytes)
    address = block.address
    assert address % 64 == 0
    other = allocator.allocate(nbytes)
    assert abs(other.address - address) >= nbytes
    del block
    assert allocator.allocate(nbytes).address == address


def test_indivisible_memory_is_never_cut() -> None:
    asked = []

    def handles(nbytes: int) -> tuple[int, object]:
        asked.append(nbytes)
        return len(asked), object()
    allocator = Allocator(handles, divisible=False)
    blocks = [allocator.allocate(100) for _ in range(3)]
    assert [block.address for block in blocks] == [1, 2, 3] and asked == [128] * 3


def test_idle_memory_is_bounded() -> None:
    allocator = Allocator(raw, keep=1 << 20)
    blocks = [allocator.allocate(300_000) for _ in range(8)]
    assert allocator.reserved_bytes >= 8 * 300_000
    blocks.clear()
    assert allocator.idle_bytes <= 1 << 20
    assert allocator.reserved_bytes == allocator.idle_bytes
    allocator.release()
    assert allocator.idle_bytes == allocator.reserved_bytes == 0


def test_stale_memory_goes_when_shapes_change() -> None:
    allocator = Allocator(raw, keep=1 << 30)
    allocator.allocate(1 << 20)
    for _ in range(alloc.STALE):
        allocator.allocate(1 << 16)
    before = allocator.reserved_bytes
    keep = allocator.allocate(900_000)
    assert allocator.reserved_bytes <= before
    del keep


def test_idle_memory_is_released_before_giving_up() -> None:
    living: list[int] = []

    def scarce(nbytes: int) -> tuple[int, object]:
        if sum(living) + nbytes > 1 << 20:
            raise DeviceError("none left")
        living.append(nbytes)

        class Owner:
            def __del__(self) -> None:
                living.remove(nbytes)
        return 64, Owner()
    allocator = Allocator(scarce, divisible=False)
    allocator.allocate(700_000)
    assert allocator.idle_bytes > 0
    block = allocator.allocate(900_000)
    with pytest.raises(DeviceError):
        allocator.allocate(500_000)
    del block


def test_a_block_collected_while_the_lock_is_held() -> None:
    allocator = Allocator(raw)
    block = allocator.allocate(1 << 20)
    address = block.address
    with allocator._lock:
        del block    # as the garbage collector may do: must not wait for the lock
    assert allocator.allocate(1 << 20).address == address


def test_threads() -> None:
    allocator = Allocator(raw, keep=1 << 22)
    errors = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        held = []
        for step in range(300):
            size = int(random.choice([64, 5000, 40_000, 300_000]))
            block = allocator.allocate(size)
            view = np.frombuffer((np.ctypeslib.ctypes.c_uint8 * 64).from_address(block.address), np.uint8)
            view[:] = seed
            held.append((block, view))
            if any((v != seed).any() for _, v in held):
                errors.append(step)
            if len(held) > 5:
                held.pop(int(random.integers(5)))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    gc.collect()
    assert allocator.reserved_bytes - allocator.idle_bytes == alloc.CHUNK * len(allocator._chunks)

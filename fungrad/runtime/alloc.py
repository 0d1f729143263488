"""The caching allocator: memory that programs give back is kept for the next one.

Fresh pages cost more than the arithmetic that fills them (a page fault a 4 KB, against 60 ns to write it), so a block
of a size class is reused while it is warm. Small blocks are cut from chunks and stay with the allocator; large ones
are kept up to a bound and returned to the system beyond it, the longest unused first.

A `Block` is what keeps memory in use: arrays and NumPy views hold it, and its memory goes back when the last lets go.
"""
from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ..backends.base import ALIGNMENT
from ..errors import DeviceError

SMALLEST = ALIGNMENT
CHUNK = 256 << 10
LARGE = 32 << 10           # from here on a block is an allocation of its own
STALE = 256                # a block unused for so many allocations goes first when memory must grow


def round_up(nbytes: int) -> int:
    """The size of the class that `nbytes` falls into: eight for each doubling, so that at most an eighth is wasted.

    >>> round_up(1), round_up(100), round_up(1 << 20), round_up((1 << 20) + 1)
    (64, 128, 1048576, 1179648)
    """
    if nbytes <= SMALLEST:
        return SMALLEST
    step = max(SMALLEST, 1 << ((nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


class Block:
    """A piece of memory in use; it returns to its allocator when the last reference is gone."""

    __slots__ = ("address", "_give_back")

    def __init__(self, address: int, give_back: Callable[[int], None]):
        self.address = address
        self._give_back = give_back

    def __del__(self) -> None:
        self._give_back(self.address)


class Allocator:
    """Blocks of one device's memory by size class. Safe under threads, and in the child of a fork.

    raw: gives (address, owner) of fresh memory. divisible: parts of an allocation may be handed out (addresses can be
    counted on). keep: bytes of large blocks kept while unused.
    """

    def __init__(self, raw: Callable[[int], tuple[int, Any]], divisible: bool = True, keep: int | None = None):
        self._raw = raw
        self._divisible = divisible
        self._keep = default_keep() if keep is None else keep
        self._lock = threading.Lock()
        self._small: dict[int, list[int]] = {}
        self._makers: dict[int, Callable[[], Block]] = {}
        self._chunks: list[Any] = []
        self._chunk_next = self._chunk_end = 0
        self._owners: dict[int, Any] = {}                        # large blocks: address -> what keeps the memory
        self._idle: dict[int, list[int]] = {}                    # size class -> unused large blocks, warmest last
        self._order: OrderedDict[int, tuple[int, int]] = OrderedDict()   # the same by age: address -> size, tick
        self._returned: deque[tuple[int, int]] = deque()         # given back, not filed yet
        self._tick = 0                                           # counts allocations of large blocks
        self.idle_bytes = 0
        self.reserved_bytes = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> Block:
        """A block of at least this size. Raises DeviceError where no memory is left."""
        return self.maker(nbytes)()

    def maker(self, nbytes: int) -> Callable[[], Block]:
        """A function that allocates blocks of this size: the fast path of a program that is called again and again."""
        size = round_up(nbytes)
        maker = self._makers.get(size)
        if maker is None:
            maker = self._small_maker(size) if size < LARGE and self._divisible else self._large_maker(size)
            maker = self._makers.setdefault(size, maker)
        return maker

    def _small_maker(self, size: int) -> Callable[[], Block]:
        free = self._small.setdefault(size, [])
        pop, append, carve = free.pop, free.append, self._carve

        def make() -> Block:
            try:
                return Block(pop(), append)
            except IndexError:
                return Block(carve(size), append)
        return make

    def _carve(self, size: int) -> int:
        with self._lock:
            if self._chunk_end - self._chunk_next < size:
                self._chunk_next, owner = self._raw(CHUNK)
                self._chunk_end = self._chunk_next + CHUNK
                self._chunks.append(owner)
                self.reserved_bytes += CHUNK
            address = self._chunk_next
            self._chunk_next += size
            return address

    def _large_maker(self, size: int) -> Callable[[], Block]:
        def give_back(address: int) -> None:
            self._returned.append((address, size))
            if self._lock.acquire(blocking=False):
                self._drain_and_unlock()
        return lambda: Block(self._take(size), give_back)

    def _drain_and_unlock(self) -> None:
        """File what was given back, return to the system what is too much, and let go of the lock.

        A block may be given back by the garbage collector while this very thread holds the lock; so it is only put on a
        queue, which whoever holds the lock next empties.
        """
        dropped = []
        try:
            while self._returned:
                address, size = self._returned.popleft()
                self._idle.setdefault(size, []).append(address)
                self._order[address] = (size, self._tick)
                self.idle_bytes += size
            while self.idle_bytes > self._keep:
                dropped.append(self._drop_oldest())
        finally:
            self._lock.release()
        del dropped  # outside the lock: freeing may take long

    def _take(self, size: int) -> int:
        self._lock.acquire()
        self._tick += 1
        self._drain_and_unlock()
        with self._lock:
            idle = self._idle.get(size)
            if idle:
                address = idle.pop()
                del self._order[address]
                self.idle_bytes -= size
                return address
            dropped = self._drop_stale(size)
        del dropped
        address, owner = self._fresh(size)
        with self._lock:
            self._owners[address] = owner
            self.reserved_bytes += size
        return address

    def _fresh(self, size: int) -> tuple[int, Any]:
        try:
            return self._raw(size)
        except DeviceError:
            if not self.idle_bytes:
                raise
        self.release()
        return self._raw(size)

    def _drop_oldest(self) -> Any:
        address, (size, _) = self._order.popitem(last=False)
        self._idle[size].remove(address)
        self.idle_bytes -= size
        self.reserved_bytes -= size
        return self._owners.pop(address)

    def _drop_stale(self, wanted: int) -> list[Any]:
        """Before memory grows: let go of as much that has lain unused for long, lest changing shapes pile up."""
        dropped = []
        freed = 0
        while self._order and freed < wanted:
            size, tick = next(iter(self._order.values()))
            if self._tick - tick < STALE:
                break
            dropped.append(self._drop_oldest())
            freed += size
        return dropped

    def release(self) -> None:
        """Return all unused large blocks to the system."""
        with self._lock:
            dropped = [self._drop_oldest() for _ in range(len(self._order))]
        del dropped


def default_keep() -> int:
    """How much unused memory may be kept: an eighth of the machine's, between 64 MiB and 4 GiB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = 8 << 30
    return min(max(total // 8, 64 << 20), 4 << 30)

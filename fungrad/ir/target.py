"""Facts about a device, as data: what lowering may know of it."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A device as lowering sees it.

    vector_bytes: width of the vector registers. vector_registers: their number. caches: bytes of L1, L2, L3 of one
    core. threads: how many run a kernel. features: names such as "avx512f". key: text that identifies the machine for
    caches.
    """
    name: str
    vector_bytes: int
    vector_registers: int
    caches: tuple[int, int, int]
    threads: int
    features: frozenset[str]
    key: str

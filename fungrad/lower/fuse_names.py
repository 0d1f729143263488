"""Names that kernels share, so that equal kernels are equal values, and one object for equal kernels."""
from __future__ import annotations

from functools import lru_cache

from ..ir.expr import Axis, Buffer
from ..ir.kernel import Kernel
from ..ir.types import Type

MAX_KERNELS = 4096


@lru_cache(maxsize=8192)
def canonical_axis(name: str, extent: int) -> Axis:
    """The one axis with this name and extent."""
    return Axis(name, extent)


@lru_cache(maxsize=8192)
def canonical_buffer(name: str, type: Type, scope: str) -> Buffer:
    """The one buffer with this name, type and scope."""
    return Buffer(name, type, scope)


_kernels: dict[Kernel, Kernel] = {}


def intern_kernel(kernel: Kernel) -> Kernel:
    """The first kernel equal to this one (reasons do not count)."""
    found = _kernels.get(kernel)
    if found is None:
        if len(_kernels) >= MAX_KERNELS:
            _kernels.clear()
        found = _kernels[kernel] = kernel
    return found

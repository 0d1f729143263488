"""Tools for tests of fungrad and of what is built on it.

check_grads, check_vmap, check_jit and check_transforms take any function; `stages` compares every stage of the
compiler; `programs` and `strategies` (which needs hypothesis) make random programs; `laws` also counts traces,
kernels and memory.
"""
from .gradcheck import check_grads, check_jit, check_vmap
from .laws import assert_no_leaks, check_transforms, count_kernels, count_traces, peak_memory
from .stages import check_stages

__all__ = ["assert_no_leaks", "check_grads", "check_jit", "check_stages", "check_transforms", "check_vmap",
           "count_kernels", "count_traces", "peak_memory"]

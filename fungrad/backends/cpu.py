"""The CPU: kernels rendered to LLVM IR, compiled in this process, run by native code on a thread pool.

A program becomes a list of launches in memory (see `threads.py`), so compiling one costs nothing beyond its new
kernels, and a kernel is compiled once, whatever the number of programs and processes that use it.
"""
from __future__ import annotations

import atexit
import ctypes
import math
import os
import re
import struct
import threading
import time
from collections.abc import Sequence
from weakref import WeakValueDictionary

from ..ir.instructions import InstructionList
from ..ir.lowered import Lowered
from ..ir.target import Target
from . import llvm, loops, threads
from .base import ALIGNMENT, HostBackend, Loaded, ObjectStore, table
from .engine import Code, Job, engine, function, machine_name
from .host import host_target, thread_count

ENTRY = "fungrad_kernel"
# A launch that takes less than this alone is not worth another thread; one worker more for each further such share.
WORTH_SHARING_SECONDS = 5e-6
OPERATIONS_PER_SECOND = 20e9
BYTES_PER_SECOND = 30e9
# Below this estimate a call keeps the GIL: giving it up and taking it again costs more than the call, or a thread
# switch.
KEEP_GIL_SECONDS = 2e-6


class Compiling:
    """A kernel between `prepare` and `compile`: being compiled by a native thread (`job`), or loaded."""

    __slots__ = ("code", "text", "key", "job", "loaded", "lock")

    def __init__(self, code: InstructionList, text: str, key: str, job: Job | None, loaded: Code | None):
        self.code = code   # keeps its identity, by which the kernel is found again
        self.text = text
        self.key = key
        self.job = job
        self.loaded = loaded
        self.lock = threading.Lock()


class CpuBackend(HostBackend):
    """The host's processor."""

    name = "cpu"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kernels: WeakValueDictionary[str, Code] = WeakValueDictionary()
        self._compiling: dict[int, Compiling] = {}
        self._abandoned: list[dict[int, Compiling]] = []
        self._pool: Pool | None = None
        self._target: Target | None = None
        atexit.register(self._wait_for_jobs)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """In the child no thread works on the jobs, and what they had begun cannot even be freed."""
        self._lock = threading.RLock()
        self._abandoned.append(self._compiling)
        self._compiling = {}
        if self._pool is not None:
            self._pool.initialize()

    def _wait_for_jobs(self) -> None:
        for kernel in list(self._compiling.values()):
            if kernel.job is not None and self._pool is not None:
                self._pool.wait(kernel.job.address)

    def target(self) -> Target:
        if self._target is None:
            self._target = host_target(engine())
        return self._target

    def render(self, code: InstructionList) -> str:
        return llvm.render(code, self.target())

    def assembly(self, code: InstructionList) -> str:
        return engine().assembly(kernel_module(self.render(code), code))

    def prepare(self, code: InstructionList, store: ObjectStore) -> None:
        self._begin(code, store)

    def compile(self, lowered: Lowered, store: ObjectStore) -> CpuLoaded:
        distinct = {id(code): code for code in lowered.code}   # by identity: hashing a list reads all of it
        begun = {number: self._begin(code, store) for number, code in distinct.items()}
        try:
            kernels = {number: self._finish(kernel, store) for number, kernel in begun.items()}
        finally:
            with self._lock:
                for number, kernel in begun.items():
                    if kernel.job is None:
                        self._compiling.pop(number, None)
        return CpuLoaded(lowered, kernels, self.pool(store))

    def _begin(self, code: InstructionList, store: ObjectStore) -> Compiling:
        """Find the kernel in this process or in the store, or give it to a native thread."""
        with self._lock:
            found = self._compiling.get(id(code))
            if found is not None:
                return found
            text = kernel_module(self.render(code), code)
            key = engine().key(text)
            loaded, job = self._kernels.get(key), None
            if loaded is None:
                data = store.get(key)
                if data is not None:
                    loaded = engine().load(data, (ENTRY,))
                else:
                    job = self._start(text, store)
            made = self._compiling[id(code)] = Compiling(code, text, key, job, loaded)
            return made

    def _start(self, text: str, store: ObjectStore) -> Job | None:
        pool = self.pool(store)
        job = Job(engine(), text)
        return job if pool.submit(job.address, pool.threads) else None

    def _finish(self, kernel: Compiling, store: ObjectStore) -> Code:
        """The loaded code of a kernel that was begun."""
        with kernel.lock:
            if kernel.loaded is None:
                data = self._object(kernel)
                store.put(kernel.key, data)
                kernel.loaded = engine().load(data, (ENTRY,))
        with self._lock:
            return self._kernels.setdefault(kernel.key, kernel.loaded)

    def _object(self, kernel: Compiling) -> bytes:
        job, pool = kernel.job, self._pool
        if job is None or pool is None:
            return engine().emit(kernel.text)
        pool.wait(job.address)
        kernel.job = None
        return job.result()

    def pool(self, store: ObjectStore) -> Pool:
        """The native launcher with its thread pool."""
        with self._lock:
            if self._pool is None:
                self._pool = Pool(load_launcher(store))
            wanted = thread_count()
            if wanted != self._pool.threads:
                self._pool.set_threads(wanted)
            return self._pool


def load_launcher(store: ObjectStore) -> Code:
    """The native code of `threads.py` and `jobs.py`, from the store if it is there."""
    text = threads.module_text(machine_name())
    key = engine().key(text)
    data = store.get(key)
    if data is None:
        data = engine().emit(text)
        store.put(key, data)
    return engine().load(data, threads.EXPORTS)


class Pool:
    """The functions of the native module of `threads.py` and `jobs.py`."""

    def __init__(self, code: Code):
        code.keep_forever()
        at = code.addresses
        self.execute_address = at["fungrad_execute"]
        self._initialize = function(at["fungrad_initialize"])
        self._reset_jobs = function(at["fungrad_reset_jobs"])
        self._submit = function(at["fungrad_submit"], ctypes.c_void_p, ctypes.c_int64, result=ctypes.c_int64)
        self.wait = function(at["fungrad_wait"], ctypes.c_void_p)
        self.workers = function(at["fungrad_workers"], result=ctypes.c_int64)
        self._stop = function(at["fungrad_stop"])
        self._set_threads = function(at["fungrad_set_threads"], ctypes.c_int64)
        arguments = (ctypes.c_void_p, ctypes.c_void_p)
        self.execute = function(self.execute_address, *arguments)
        self.execute_keeping_gil = function(self.execute_address, *arguments, keep_gil=True)
        self.threads = 1
        self.initialize()
        atexit.register(self._stop)

    def initialize(self) -> None:
        """Put the pool in its first state: at load, and in the child of a fork."""
        self._initialize()
        self._reset_jobs()

    def submit(self, job: int, limit: int) -> bool:
        """Let one of at most `limit` native threads compile a job; false where there are no such threads."""
        return bool(self._submit(job, limit))

    def set_threads(self, count: int) -> None:
        """Use this many threads, the caller included, from the next launch on."""
        self._stop()
        self._set_threads(count)
        self.threads = count


class CpuLoaded(Loaded):
    """A program as a list of launches in memory."""

    __slots__ = ("_kernels", "_program", "_pool", "run", "_single", "_keep")

    def __init__(self, lowered: Lowered, kernels: dict[int, Code], pool: Pool):
        self.lowered = lowered
        self._kernels = kernels
        self._pool = pool
        scratch = max((code.scratch_bytes for code in lowered.code), default=0)
        scratch_offset = -(-lowered.memory.arena_bytes // ALIGNMENT) * ALIGNMENT
        self.arena_bytes = scratch_offset + scratch if scratch or lowered.memory.arena_bytes else 0
        layout = table(lowered)
        encoder = loops.Encoder(lowered, self._command)
        program = encoder.whole(layout, scratch_offset)
        self._program = program.buffer
        self._single = [single.buffer for single in program.singles]
        seconds = loops.seconds(lowered, alone_seconds)
        execute = pool.execute_keeping_gil if seconds < KEEP_GIL_SECONDS else pool.execute
        address = ctypes.addressof(self._program)
        keep = (program, encoder.kept, kernels)   # a call may outlast this object
        self._keep = keep
        self.run = lambda words, keep=keep: execute(address, words)

    def _command(self, code: InstructionList, words: Sequence[tuple[int, int]]) -> bytes:
        address = self._kernels[id(code)].addresses[ENTRY]
        scratch = -(-code.scratch_bytes // ALIGNMENT) * ALIGNMENT
        flat = [value for pair in words for value in pair]
        head = (address, code.parallel_extent, scratch, helpers(code), len(words))
        return struct.pack(f"{5 + len(flat)}q", *head, *flat)

    def profile(self, words: bytes) -> list[float]:
        times = []
        for program in self._single:
            start = time.perf_counter()
            self._pool.execute(ctypes.addressof(program), words)
            times.append(time.perf_counter() - start)
        return times


def kernel_module(text: str, code: InstructionList) -> str:
    """A rendered kernel with the entry that the launcher calls: it takes the buffers' addresses from an array."""
    name = code.name if re.fullmatch(r"[\w.$-]+", code.name) else f'"{code.name}"'
    loads, arguments = [], []
    for number in range(len(code.parameters)):
        loads.append(f"  %at{number} = getelementptr ptr, ptr %buffers, i64 {number}\n"
                     f"  %arg{number} = load ptr, ptr %at{number}, align 8\n")
        arguments.append(f"ptr %arg{number}")
    arguments += ["ptr %scratch", "i64 %begin", "i64 %end"]
    return (f"{text}\ndefine void @{ENTRY}(ptr %buffers, ptr %scratch, i64 %begin, i64 %end) {{\n{''.join(loads)}"
            f"  call void @{name}({', '.join(arguments)})\n  ret void\n}}\n")


def alone_seconds(code: InstructionList) -> float:
    """A rough estimate of one thread's time for a kernel; infinite where its work is unknown."""
    if code.flops <= 0 and code.bytes <= 0:
        return math.inf
    return max(code.flops / OPERATIONS_PER_SECOND, code.bytes / BYTES_PER_SECOND)


def helpers(code: InstructionList) -> int:
    """How many threads besides the caller's a kernel is worth."""
    if code.parallel_extent <= 1:
        return 0
    shares = min(alone_seconds(code) / WORTH_SHARING_SECONDS, float(threads.MOST_THREADS))
    return max(0, min(int(shares) - 1, code.parallel_extent - 1))

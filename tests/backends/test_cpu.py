"""The CPU backend: host facts, the LLVM engine, the native launcher and its thread pool."""
from __future__ import annotations

import ctypes
import struct
import threading
import time

import numpy as np
import pytest

from fungrad import config
from fungrad.backends import host, threads
from fungrad.backends.base import table
from fungrad.backends.cpu import CpuBackend, CpuLoaded, Pool, alone_seconds, helpers, kernel_module
from fungrad.backends.engine import Job, engine, machine_name
from fungrad.errors import CompilationError
from fungrad.ir.expr import Buffer
from fungrad.ir.instructions import Instruction, InstructionList
from fungrad.ir.kernel import Fused, Kernel, Launch
from fungrad.ir.lowered import Lowered, MemoryPlan
from fungrad.ir.program import program
from fungrad.ir.types import array_type, literal
from fungrad.runtime.cache import NoCache

FLOAT = np.dtype("float32")

# out[i] = in[i] + 1, counting the calls in scratch; also a slow one for races.
ADD_ONE = """
define void @k(ptr %buffers, ptr %scratch, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %buffers
  %at = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %at
  store i64 %begin, ptr %scratch
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %exit
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %a = getelementptr float, ptr %in, i64 %i
  %v = load float, ptr %a
  %w = fadd float %v, 1.0
  %o = getelementptr float, ptr %out, i64 %i
  store float %w, ptr %o
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""


@pytest.fixture
def pool():
    made = Pool(engine().load(engine().emit(threads.module_text(machine_name())), threads.EXPORTS))
    yield made
    made.set_threads(1)


@pytest.fixture(scope="module")
def add_one():
    return engine().load(engine().emit(ADD_ONE), ("k",))


class Launched:
    """One launch of ADD_ONE over `extent` elements."""

    def __init__(self, code, extent: int, most: int = 100, launches: int = 1):
        self.source = np.arange(extent, dtype=FLOAT)
        self.result = np.zeros(extent, FLOAT)
        self.scratch = np.zeros(16, np.int64)
        command = struct.pack("5q4q", code.addresses["k"], extent, 64, most, 2, 0, 0, 1, 0)
        self.program = struct.pack("4q", launches, 2, 0, 2) + command * launches
        self.words = struct.pack("3q", *[a.ctypes.data for a in (self.result, self.source, self.scratch)])

    def run(self, pool: Pool) -> None:
        self.result[:] = 0
        pool.execute(self.program, self.words)
        assert (self.result == self.source + 1).all()


@pytest.mark.parametrize("count", [1, 2, 3, 8, 20])
def test_every_element_once(pool, add_one, count: int) -> None:
    pool.set_threads(count)
    for extent in (1, 2, 3, 7, 64, 1000, 4097):
        Launched(add_one, extent).run(pool)
    assert pool.workers() == (0 if count == 1 else count - 1)


def test_workers_start_lazily_and_end(pool, add_one) -> None:
    pool.set_threads(3)
    assert pool.workers() == 0
    Launched(add_one, 100, most=0).run(pool)
    assert pool.workers() == 0
    Launched(add_one, 100).run(pool)
    assert pool.workers() == 2
    pool.set_threads(1)
    assert pool.workers() == 0


def test_sleeping_workers_wake(pool, add_one) -> None:
    pool.set_threads(2)
    job = Launched(add_one, 50_000)
    for pause in (0, 0.002, 0, 0.0001, 0.002):
        job.run(pool)
        time.sleep(pause)


def test_idle_workers_do_not_burn_a_core(pool, add_one) -> None:
    pool.set_threads(3)
    Launched(add_one, 1000).run(pool)
    before = time.process_time()
    time.sleep(0.1)
    assert time.process_time() - before < 0.03


def test_callers_at_the_same_time(pool, add_one) -> None:
    pool.set_threads(2)
    errors = []

    def work() -> None:
        try:
            job = Launched(add_one, 5000, launches=10)
            for _ in range(50):
                job.run(pool)
        except AssertionError as error:
            errors.append(error)
    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert not errors and not any(caller.is_alive() for caller in callers)


def test_a_program_without_pthreads(monkeypatch: pytest.MonkeyPatch, add_one) -> None:
    monkeypatch.setattr(threads, "has_pthreads", lambda: False)
    made = Pool(engine().load(engine().emit(threads.module_text("x86_64")), threads.EXPORTS))
    made.set_threads(4)
    Launched(add_one, 1000).run(made)
    assert made.workers() == 0


def test_other_machines_get_their_own_pause() -> None:
    assert "llvm.aarch64.hint" in threads.module_text("arm64") and "$" not in threads.module_text("arm64")
    assert "pause" not in threads.module_text("riscv64").split("define", 1)[0].lower()


# whole programs, built by hand

def increment(name: str, extent: int, flops: int = 0) -> InstructionList:
    """out[i] = in[i] + 1 with the parallel axis over all elements."""
    kind = array_type((extent,), FLOAT)
    out, source = Buffer("out", kind), Buffer("in", kind)
    index = np.dtype("int64")
    steps = (Instruction("parameter", (), out, None), Instruction("parameter", (), source, None),
             Instruction("constant", (), literal(1.0, FLOAT), FLOAT), Instruction("begin", (), None, index),
             Instruction("end", (), None, index), Instruction("loop", (3, 4), 1, index),
             Instruction("load", (1, 5), None, FLOAT),
             Instruction("add", (6, 2), None, FLOAT), Instruction("store", (0, 5, 7), None, None),
             Instruction("end_loop", (), None, None))
    return InstructionList(name, (out, source), (), 0, extent, steps, flops, 0)


def test_a_hand_made_program_with_an_arena() -> None:
    extent = 1000
    code = increment("increment", extent)
    kernel = Kernel("increment", code.parameters[:1], code.parameters[1:])
    slots = (array_type((extent,), FLOAT),) * 4
    launches = (Launch(kernel, (1, 0)), Launch(kernel, (2, 1)), Launch(kernel, (3, 2)))
    lowered = Lowered(program((slots[0],), ()), Fused(launches, slots, (0,), (3,)), (code,) * 3,
                      MemoryPlan(8192, (None, 0, 4096, None)))
    assert table(lowered).words == ((0, 0), (2, 0), (2, 4096), (1, 0))
    loaded = CpuBackend().compile(lowered, NoCache())
    source, result = np.arange(extent, dtype=FLOAT), np.zeros(extent, FLOAT)
    arena = np.zeros(loaded.arena_bytes, np.uint8)
    words = struct.pack("3q", *[a.ctypes.data for a in (source, result, arena)])
    loaded.run(words)
    assert (result == source + 3).all()
    assert len(loaded.profile(words)) == 3


def program_of(backend: CpuBackend, code: InstructionList) -> CpuLoaded:
    """A loaded program of one launch."""
    kernel = Kernel(code.name, code.parameters[:1], code.parameters[1:])
    slots = tuple(buffer.type for buffer in code.parameters)
    fused = Fused((Launch(kernel, (0, 1)),), slots, (1,), (0,))
    return backend.compile(Lowered(program((slots[1],), ()), fused, (code,), MemoryPlan(0, (None, None))), NoCache())


def test_kernels_are_compiled_once_and_dropped_with_their_programs() -> None:
    backend = CpuBackend()
    first = program_of(backend, increment("same", 77))
    second = program_of(backend, increment("same", 77))
    assert list(first._kernels.values()) == list(second._kernels.values()) and len(backend._kernels) == 1
    del first, second
    assert len(backend._kernels) == 0


def test_helpers_follow_the_work() -> None:
    assert helpers(increment("k", 1)) == 0
    assert helpers(increment("k", 1000, flops=10)) == 0
    assert helpers(increment("k", 1000, flops=10**9)) == threads.MOST_THREADS - 1
    assert helpers(increment("k", 3, flops=10**9)) == 2
    assert alone_seconds(increment("k", 1000)) == float("inf")


def test_assembly_and_render() -> None:
    backend = CpuBackend()
    code = increment("k.1-x", 64)
    assert "define void @" in backend.render(code)
    assert "fungrad_kernel:" in backend.assembly(code)
    assert 'call void @"odd name"(ptr %arg0' in kernel_module("", increment("odd name", 3))


def test_llvm_errors_show_the_text() -> None:
    with pytest.raises(CompilationError, match="1 define nonsense"):
        engine().emit("define nonsense")
    with pytest.raises(CompilationError, match="cannot be loaded"):
        engine().load(engine().emit("declare void @no_such_function_anywhere()\ndefine void @k() {\n"
                                    "call void @no_such_function_anywhere()\nret void\n}"), ("k",))


def test_jobs_of_native_threads(pool) -> None:
    texts = [ADD_ONE.replace("1.0", f"{n}.0") for n in range(1, 9)]
    work = [Job(engine(), text) for text in texts]
    assert all(pool.submit(job.address, 2) for job in work)
    for number, job in enumerate(work, 1):
        pool.wait(job.address)
        code = engine().load(job.result(), ("k",))
        launch = Launched(code, 100)
        pool.execute(launch.program, launch.words)
        assert (launch.result == launch.source + number).all()


def test_prepared_kernels_are_taken_over() -> None:
    backend = CpuBackend()
    code = increment("prepared", 123)
    backend.prepare(code, NoCache())
    backend.prepare(code, NoCache())
    assert len(backend._compiling) == 1 and backend._compiling[id(code)].job is not None
    program_of(backend, code)
    assert not backend._compiling


# host facts

def test_target() -> None:
    target = CpuBackend().target()
    level1, level2, level3 = target.caches
    assert 8 << 10 <= level1 <= level2 <= level3
    assert target.vector_bytes in (16, 32, 64) and target.threads >= 1 and engine().cpu in target.key


@pytest.mark.parametrize(("text", "size"), [("48K\n", 48 << 10), ("32M", 32 << 20), ("7", 7)])
def test_sizes(text: str, size: int) -> None:
    assert host.parse_size(text) == size


def test_cpu_lists() -> None:
    assert host.cpu_list_length("0-3,8\n") == 5
    with pytest.raises(ValueError):
        host.parse_size("many")


def test_quota(tmp_path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000")
    (tmp_path / "outer" / "cpu.max").write_text("250000 100000")
    assert host._read_quota(tmp_path, "/outer/inner", "cpu.max", None) == 2.5
    (inner / "quota").write_text("-1")
    assert host._read_quota(tmp_path, "/outer/inner", "quota", "period") == float("inf")


def test_thread_count_setting() -> None:
    with config.settings(threads=7):
        assert host.thread_count() == 7
    with config.settings(threads=-1), pytest.raises(ValueError, match="must not be negative"):
        host.thread_count()
    with config.settings(threads=0):
        assert host.thread_count() == host.available_cores() >= 1


def test_vector_units() -> None:
    assert host.vector_units(frozenset({"avx512f", "avx512vl", "avx"}), "x86_64") == (64, 32)
    assert host.vector_units(frozenset({"avx"}), "x86_64") == (32, 16)
    assert host.vector_units(frozenset(), "arm64-apple-darwin") == (16, 32)


def test_missing_cache_facts_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_linux_caches", dict)
    monkeypatch.setattr(host, "_darwin_caches", dict)
    assert host.caches() == host.FALLBACK_CACHES
    assert ctypes.sizeof(ctypes.c_void_p) == 8   # words of the table are addresses

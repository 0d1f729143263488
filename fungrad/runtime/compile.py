"""compile(program, device) -> Executable: the pipeline, a backend and the caches, each program once.

The log (DEBUG=n, on stderr): 1 a line for each compilation; 2 time, GFLOP/s and GB/s of every launch of every call; 3
the schedule of every kernel; 4 its source; 5 its machine code.
"""
from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import perf_counter
from weakref import WeakValueDictionary

from .. import backends, config
from ..backends.base import Backend
from ..errors import CompilationError
from ..ir.kernel import Control, Fused
from ..ir.lowered import Lowered, MemoryPlan
from ..ir.program import Program
from ..lower import pipeline
from .array import Array, allocator
from .cache import disk_cache
from .codes import StoredCodes
from .executable import Executable
from .verify import verified

MOST_KEPT = 1024   # Executables kept although nobody else holds them


@dataclass(frozen=True, slots=True)
class Compilation:
    """What happened at one compilation. seconds: of lowering, and of rendering, compiling and loading."""
    program: Program
    device: str
    name: str
    origin: str
    kernels: int
    lower_seconds: float
    load_seconds: float


COMPILATIONS: list[Compilation] = []   # the latest ones, for tests and `fungrad.show`; `compilations()` counts them all
_count = 0
_MOST_RECORDED = 256

_lock = threading.Lock()
_kept: OrderedDict[Hashable, Executable] = OrderedDict()
_alive: WeakValueDictionary[Hashable, Executable] = WeakValueDictionary()
_running: dict[Hashable, threading.Event] = {}


def compile(program: Program, device: str | None = None, donate: frozenset[int] = frozenset(), name: str = "",
            origin: str = "") -> Executable:
    """The Executable of a program on a device (the setting `device` if None); compiled once, also under threads.

    donate: numbers of the inputs whose memory a call may take over (they are deleted by it). name, origin: the
    function's name and the user's line, for the log and for messages. Raises CompilationError, DeviceError.
    """
    device = device or str(config.get("device"))
    key = (program, device, donate, pipeline.current_passes(), config.get("debug"), config.get("verify"))
    while True:
        found = _alive.get(key)
        if found is not None:
            return found
        with _lock:
            waiting = _running.get(key)
            if waiting is None:
                done = _running[key] = threading.Event()
                break
        waiting.wait()
    try:
        return _remember(key, build(program, backends.get(device), donate, name, origin))
    finally:
        with _lock:
            del _running[key]
        done.set()


def compilations() -> int:
    """How many programs were compiled in this process so far."""
    return _count


def clear_caches() -> None:
    """Forget every Executable that nobody else holds."""
    with _lock:
        _kept.clear()


def _remember(key: Hashable, executable: Executable) -> Executable:
    with _lock:
        _alive[key] = _kept[key] = executable
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return executable


def build(program: Program, backend: Backend, donate: frozenset[int], name: str, origin: str) -> Executable:
    """Lower, render, compile and load a program, without any cache of Executables."""
    start = perf_counter()
    store = disk_cache()
    if backend.lowers:
        target = backend.target()
        lowered = pipeline.lower(program, target, donate=donate, ready=lambda code: backend.prepare(code, store),
                                 codes=StoredCodes(store, target))
    else:
        lowered = unlowered(program)
    between = perf_counter()
    loaded = backend.compile(lowered, store)
    executable = Executable(lowered, loaded, backend, allocator(backend.name), name, donate)
    record = Compilation(program, backend.name, name, origin, len({id(code) for code in lowered.code}), between - start,
                         perf_counter() - between)
    _record(record)
    if config.get("debug"):
        log_compilation(record, lowered, backend)
        if config.get("debug") >= 2 and backend.lowers:
            executable.call = profiled(executable)
    if config.get("verify") and backend.lowers:
        executable.call = verified(executable)
    return executable


def unlowered(program: Program) -> Lowered:
    """A Lowered without launches, for devices that execute Programs: a slot for each input and each distinct output."""
    outputs = {node: len(program.input_types) + n for n, node in enumerate(dict.fromkeys(program.outputs))}
    slots = (*program.input_types, *[node.type for node in outputs])
    fused = Fused((), slots, tuple(range(len(program.input_types))), tuple([outputs[node] for node in program.outputs]))
    return Lowered(program, fused, (), MemoryPlan(0, (None,) * len(slots)))


def _record(record: Compilation) -> None:
    global _count
    with _lock:
        _count += 1
        COMPILATIONS.append(record)
        del COMPILATIONS[:-_MOST_RECORDED]


# ---- the log ---------------------------------------------------------------------------------------------------------

def log(text: str) -> None:
    """One entry of the running log."""
    print(text, file=sys.stderr, flush=True)


def log_compilation(record: Compilation, lowered: Lowered, backend: Backend) -> None:
    """The lines of DEBUG=1, 3, 4 and 5 for one program."""
    level = config.get("debug")
    where = f" from {record.origin}" if record.origin else ""
    log(f"compiled {record.name or 'program'}{where} for {record.device}: {len(lowered.code)} launches, "
        f"{record.kernels} kernels, arena {lowered.memory.arena_bytes} bytes; "
        f"lowered in {record.lower_seconds * 1e3:.1f} ms, loaded in {record.load_seconds * 1e3:.1f} ms")
    if level < 3:
        return
    seen: set[int] = set()
    for launch, code in zip(lowered.fused.kernel_launches(), lowered.code, strict=True):
        if id(code) in seen:
            continue
        seen.add(id(code))
        steps = "; ".join(map(str, launch.kernel.schedule)) or "no schedule"
        log(f"  kernel {code.name}: {steps}; parallel over {code.parallel_extent}")
        if level >= 4:
            log(backend.render(code))
        if level >= 5:
            try:
                log(backend.assembly(code))
            except CompilationError as error:
                log(f"  no machine code: {error}")


def profiled(executable: Executable) -> Callable[[Sequence[Array]], list[Array]]:
    """A call that runs the program launch by launch first and writes each one's time (DEBUG=2)."""
    inner = executable.call

    def call(arrays: Sequence[Array]) -> list[Array]:
        times = executable.profile(arrays)
        log(f"{executable.name or 'program'}: {sum(times) * 1e6:.1f} us in {len(times)} launches")
        code_of = dict(zip(executable.lowered.fused.kernel_launches(), executable.lowered.code, strict=True))
        for launch, seconds in zip(executable.lowered.fused.launches, times):
            rate = max(seconds, 1e-9) * 1e9
            if isinstance(launch, Control):
                log(f"  {launch.kind:40} {seconds * 1e6:10.1f} us")
                continue
            code = code_of[launch]
            log(f"  {code.name:40} {seconds * 1e6:10.1f} us {code.flops / rate:8.1f} GFLOP/s "
                f"{code.bytes / rate:8.1f} GB/s")
        return inner(arrays)
    return call

"""LLVM in this process: text to machine code to callable addresses. Imports llvmlite on first use.

`Engine.emit` makes an object (relocatable machine code) of LLVM IR text, `Engine.load` maps an object into the
process. The two are apart because objects outlive the process, in a disk cache.

The pass pipeline is short on purpose: kernels arrive as explicit vector code with structured loops, so that what is
left is to put register arrays into registers, hoist address arithmetic and drop what is unused. LLVM's own O3 takes
three times as long and finds little more.
"""
from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import platform
import threading
from dataclasses import dataclass
from typing import Any

from ..errors import CompilationError
from . import jobs

PIPELINE_VERSION = "1"


class Code:
    """Machine code mapped into the process. Its addresses hold as long as this object lives."""

    __slots__ = ("_tracker", "addresses", "__weakref__")

    def __init__(self, tracker: Any, addresses: dict[str, int]):
        self._tracker = tracker
        self.addresses = addresses

    def keep_forever(self) -> None:
        """Never unmap this code, not even at the interpreter's end: threads that Python does not know run in it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


@dataclass(frozen=True, slots=True)
class Work:
    """A parsed module with what runs the passes and emits its object."""
    module: Any
    machine: Any
    builder: Any
    passes: Any
    options: Any


class Job:
    """A module that native threads compile (see `jobs.py`). `submit` it, then take `result`."""

    __slots__ = ("_engine", "_work", "_words", "address")

    def __init__(self, engine: Engine, text: str):
        self._engine = engine
        work = self._work = engine.prepare(text)
        operands = [engine.run_address, _address(work.passes), _address(work.module), _address(work.builder),
                    engine.emit_address, _address(work.machine)]
        self._words = (ctypes.c_int64 * len(jobs.WORDS))(*operands)
        self.address = ctypes.addressof(self._words)

    def result(self) -> bytes:
        """The object of a finished job; to be called once. Raises CompilationError."""
        message, buffer = self._words[6], self._words[7]
        if not buffer:
            text = ctypes.string_at(message).decode(errors="replace") if message else "no reason given"
            raise CompilationError(f"LLVM cannot compile a kernel: {text}")
        return self._engine.take_buffer(ctypes.cast(buffer, self._engine.buffer_type))


def _address(reference: Any) -> int:
    """The address of the LLVM object behind one of llvmlite's."""
    return ctypes.cast(reference._ptr, ctypes.c_void_p).value or 0


class Engine:
    """One per process; see the module's text. Safe under threads."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm
        self._llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        self._lock = threading.RLock()
        self.cpu = llvm.get_host_cpu_name()
        self.feature_map = dict(llvm.get_host_cpu_features())
        self.features = llvm.get_host_cpu_features().flatten()
        if self.feature_map.get("prefer-256-bit"):
            self.features += ",-prefer-256-bit"   # kernels ask for the width that they want
        self.triple = llvm.get_process_triple()
        self.version = ".".join(map(str, llvm.llvm_version_info))
        self._llvm_target = llvm.Target.from_triple(self.triple)
        self._jit = llvm.create_lljit_compiler(self._machine(), use_jit_link=False, suppress_errors=True)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._jit))   # its end would unmap everything
        self._numbers = itertools.count()
        self._data_layout = str(self._machine().target_data)
        self._run_passes = unlocked(llvm.ffi.lib.LLVMPY_RunNewModulePassManager)
        self._emit_to_memory = unlocked(llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory)
        self.run_address = ctypes.cast(self._run_passes, ctypes.c_void_p).value or 0
        self.emit_address = ctypes.cast(self._emit_to_memory, ctypes.c_void_p).value or 0
        self.buffer_type = self._emit_to_memory.restype
        self.fingerprint = "|".join((self.triple, self.cpu, self.features, self.version, PIPELINE_VERSION))
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    def _machine(self) -> Any:
        return self._llvm_target.create_target_machine(cpu=self.cpu, features=self.features, opt=2, reloc="pic",
                                                       jit=True)

    def key(self, text: str) -> str:
        """The content key of the object that `emit` makes of this text on this machine."""
        return hashlib.sha256(f"{self.fingerprint}\0{text}".encode()).hexdigest()

    def emit(self, text: str) -> bytes:
        """The object of one module of LLVM IR. Raises CompilationError with LLVM's message.

        Several threads may emit at once: each has a context and a target machine of its own, and the two calls that
        take long go past llvmlite's lock.
        """
        work = self.prepare(text)
        self._run_passes(work.passes, work.module, work.builder)
        with self._llvm.ffi.OutputString() as message:
            buffer = self._emit_to_memory(work.machine, work.module, 1, message)
            if not buffer:
                raise CompilationError(f"LLVM cannot compile a kernel: {message}")
        return self.take_buffer(buffer)

    def assembly(self, text: str) -> str:
        """The assembly text of one module of LLVM IR."""
        work = self.prepare(text)
        work.passes.run(work.module, work.builder)
        return work.machine.emit_assembly(work.module)

    def prepare(self, text: str) -> Work:
        """Everything up to the passes. Raises CompilationError for text that is not LLVM IR."""
        llvm, machine = self._llvm, self._machine()
        try:
            module = llvm.parse_assembly(text, llvm.create_context())
        except RuntimeError as error:
            raise CompilationError(f"LLVM refuses a kernel's text: {error}\n{numbered(text)}") from None
        module.triple = self.triple
        module.data_layout = self._data_layout
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        return Work(module, machine, builder, passes, options)

    def take_buffer(self, buffer: Any) -> bytes:
        """The bytes of LLVM's memory buffer, which is freed."""
        library = self._llvm.ffi.lib
        try:
            return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
        finally:
            library.LLVMPY_DisposeMemoryBuffer(buffer)

    def load(self, data: bytes, exports: tuple[str, ...]) -> Code:
        """Map an object and resolve the exported symbols; its own undefined symbols come from the process."""
        library = self._llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
        for name in exports:
            library.export_symbol(name)
        with self._lock:
            try:
                tracker = library.link(self._jit, f"fungrad{next(self._numbers)}")
            except RuntimeError as error:
                raise CompilationError(f"an object cannot be loaded: {error}") from None
        return Code(tracker, {name: tracker[name] for name in exports})


def unlocked(function: Any) -> Any:
    """A function of llvmlite's library without llvmlite's lock, which is there for users who share one LLVM context."""
    return getattr(function, "_cfn", function)


_engine: Engine | None = None
_engine_lock = threading.Lock()


def engine() -> Engine:
    """The process's engine, made on first use (llvmlite takes about 0.1 s to import)."""
    global _engine
    if _engine is None:
        with _engine_lock:
            if _engine is None:
                _engine = Engine()
    return _engine


def numbered(text: str) -> str:
    """Text with line numbers, for error messages."""
    return "\n".join(f"{number:4} {line}" for number, line in enumerate(text.splitlines(), 1))


def machine_name() -> str:
    """The processor's family: "x86_64", "arm64", ..."""
    return platform.machine()


def function(address: int, *types: Any, result: Any = None, keep_gil: bool = False) -> Any:
    """A Python callable for machine code at an address."""
    make = ctypes.PYFUNCTYPE if keep_gil else ctypes.CFUNCTYPE
    return make(result, *types)(address)

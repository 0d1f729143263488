"""Compile instruction lists in process and call them on NumPy arrays (tests only; the real thing is
backends/cpu.py).
"""
from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np

from fungrad.backends.llvm import PASSES, render
from fungrad.ir.instructions import InstructionList
from fungrad.ir.target import Target

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

FEATURES = llvm.get_host_cpu_features()
_LANES = 64 if FEATURES.get("avx512f") else 32 if FEATURES.get("avx2") else 16
HOST = Target("cpu", _LANES, 32 if FEATURES.get("avx512f") else 16, (48 << 10, 1 << 20, 32 << 20), 1,
              frozenset(name for name, on in FEATURES.items() if on), llvm.get_host_cpu_name())


def machine() -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=FEATURES.flatten() + ",-prefer-256-bit", opt=2, jit=True)


def optimise(module: llvm.ModuleRef, target_machine: llvm.TargetMachine) -> None:
    """Run the pass list that the renderer asks for."""
    builder = llvm.create_pass_builder(target_machine, llvm.create_pipeline_tuning_options(speed_level=1))
    manager = llvm.create_new_function_pass_manager()
    add = {"sroa": manager.add_sroa_pass, "instcombine": manager.add_instruction_combine_pass,
           "simplifycfg": manager.add_simplify_cfg_pass}
    for name in PASSES:
        add[name]()
    for function in module.functions:
        if not function.is_declaration:
            manager.run(function, builder)


class Native:
    """A compiled kernel: call it with its buffers' arrays (outputs first)."""

    def __init__(self, code: InstructionList, target: Target = HOST):
        self.code = code
        self.text = render(code, target)
        module = llvm.parse_assembly(self.text)
        module.verify()
        self.machine = machine()
        optimise(module, self.machine)
        self.engine = llvm.create_mcjit_compiler(module, self.machine)
        self.engine.finalize_object()
        types = [ctypes.c_void_p] * (len(code.parameters) + 1) + [ctypes.c_int64] * 2
        self.function = ctypes.CFUNCTYPE(None, *types)(self.engine.get_function_address(code.name))
        self.memory = np.zeros(code.scratch_bytes + 64, np.uint8)
        self.scratch = -(-self.memory.ctypes.data // 64) * 64

    def __call__(self, *arrays: np.ndarray, begin: int = 0, end: int | None = None) -> None:
        end = self.code.parallel_extent if end is None else end
        self.function(*[array.ctypes.data for array in arrays], self.scratch, begin, end)

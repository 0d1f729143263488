"""compile(): caches, concurrency, devices, the log, verification."""
from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fungrad import backends, config
from fungrad.backends.base import Backend
from fungrad.backends.reference import ReferenceBackend
from fungrad.errors import DeviceError, VerificationError
from fungrad.ir.expr import operation, substitute
from fungrad.ir.instructions import InstructionList
from fungrad.ir.kernel import Kernel
from fungrad.ir.program import Program
from fungrad.lower import pipeline
from fungrad.lower.fuse import fuse
from fungrad.runtime import compile as module
from fungrad.runtime.array import from_numpy
from fungrad.runtime.compile import COMPILATIONS, clear_caches, compilations, compile
from tests.runtime.programs import FLOAT, make, of, vector

_sizes = iter(range(1000, 2000))


def fresh(name: str = "add") -> Program:
    """A program that no other test has compiled."""
    return make([vector(next(_sizes))], lambda a: [of(name, a, a)])


def test_a_program_is_compiled_once() -> None:
    before = compilations()
    program = fresh()
    first = compile(program, name="double", origin="here:1")
    assert compile(program) is first and compilations() == before + 1
    assert COMPILATIONS[-1].program is program and COMPILATIONS[-1].origin == "here:1" and COMPILATIONS[-1].kernels == 1
    assert compile(program, "reference") is not first
    assert first.program is program and first.lowered.code


def test_threads_share_one_compilation() -> None:
    program = fresh()
    before = compilations()
    found = []
    threads = [threading.Thread(target=lambda: found.append(compile(program))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1 and compilations() == before + 1


def test_a_failed_compilation_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = fresh()

    def fail(value: Program, target: object) -> Program:
        raise RuntimeError("broken pass")
    with pipeline.passes(after="simplify", add=fail), pytest.raises(RuntimeError, match="broken pass"):
        compile(program)
    assert compile(program)([from_numpy(np.ones(program.input_types[0].shape, FLOAT))])[0].tolist()[0] == 2


def test_kept_executables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_caches()
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    for _ in range(5):
        compile(fresh(), "reference")
    assert len(module._kept) == 3
    clear_caches()
    assert not module._kept


def test_equal_kernels_of_different_programs_are_compiled_once() -> None:
    cpu = backends.get("cpu")
    size = next(_sizes)
    compile(make([vector(size)], lambda a: [of("add", a, a)]))
    before = len(cpu._kernels)  # type: ignore[attr-defined]
    keep = compile(make([vector(size), vector(3)], lambda a, b: [of("add", a, a), b]))
    assert len(cpu._kernels) == before and keep  # type: ignore[attr-defined]


# devices

def test_devices() -> None:
    assert {"cpu", "null", "reference"} <= set(backends.known())
    assert not {"base", "llvm", "engine", "threads", "host"} & set(backends.known())
    with pytest.raises(DeviceError, match="no device 'abacus'. Known: .*cpu"):
        backends.get("abacus")
    with pytest.raises(DeviceError):
        backends.get("../cpu")


class Elsewhere(ReferenceBackend):
    """A device of another package."""

    name = "elsewhere"


def test_devices_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> object:
            return Elsewhere

    class Broken:
        def load(self) -> object:
            raise ImportError("no driver")
    monkeypatch.setattr(backends, "_made", {})
    monkeypatch.setattr(backends, "_entry_points", lambda: {"elsewhere": Point(), "broken": Broken()})
    assert isinstance(backends.get("elsewhere"), Elsewhere) and "elsewhere" in backends.known()
    with pytest.raises(DeviceError, match="'broken' cannot be used here: no driver"):
        backends.get("broken")
    mine = Elsewhere()
    backends.register(mine)
    assert backends.get("elsewhere") is mine


def test_the_interface_is_small() -> None:
    methods = [name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")]
    assert len(methods) <= 10 and all(getattr(Backend, name).__doc__ for name in methods)


def test_null_lowers_and_renders_but_computes_nothing() -> None:
    program = fresh()
    result = compile(program, "null")([from_numpy(np.ones(program.input_types[0].shape, FLOAT), "null")])[0]
    assert result.device == "null" and not np.asarray(result).any()


def test_the_setting_chooses_the_device() -> None:
    with config.settings(device="reference"):
        assert compile(fresh()).device == "reference" and from_numpy(np.zeros(3)).device == "reference"


# log and verification

def test_log(capsys: pytest.CaptureFixture[str]) -> None:
    program = fresh()
    x = from_numpy(np.ones(program.input_types[0].shape, FLOAT))
    with config.settings(debug=5):
        assert compile(program, name="double", origin="file.py:3")([x])[0].tolist()[0] == 2
    text = capsys.readouterr().err
    assert "compiled double from file.py:3 for cpu: 1 launches" in text and "GB/s" in text
    assert "define void @" in text and "fungrad_kernel:" in text
    compile(fresh())
    assert capsys.readouterr().err == ""


def test_verification_accepts_what_is_right() -> None:
    program = make([vector(next(_sizes))], lambda a: [of("reduce_sum", of("sin", a), axes=(0,)), of("exp", a)])
    with config.settings(verify=True):
        executable = compile(program)
        executable([from_numpy(np.random.default_rng(0).standard_normal(program.input_types[0].shape).astype(FLOAT))])


def to_product(value: Program, target: object) -> Program:
    return make(value.input_types, lambda a: [of("mul", a, a)])


def swapped(value: Kernel, target: object) -> Kernel:
    """The kernel with every addition a subtraction."""
    nests = [replace(nest, value=substitute(nest.value, lambda e: operation("sub", *e.operands) if e.op == "add"
                                            else None))
             for nest in value.nests]
    return replace(value, nests=tuple(nests))


def lost(value: InstructionList, target: object) -> InstructionList:
    """The list with every addition a multiplication."""
    return replace(value, instructions=tuple([replace(i, op="mul") if i.op == "add" and i.dtype == FLOAT else i
                                              for i in value.instructions]))


@pytest.mark.parametrize(("after", "wrong"), [("simplify", to_product), ("fuse", None), ("decompose", swapped),
                                              ("instructions", lost)])
def test_verification_names_the_first_wrong_pass(after: str, wrong) -> None:
    program = fresh()
    x = from_numpy(np.full(program.input_types[0].shape, 3, FLOAT))

    def broken_fuse(value: Program, target) -> object:
        return fuse(to_product(value, target), target)
    change = {"replace": {"fuse": broken_fuse}} if wrong is None else {"after": after, "add": wrong}
    with config.settings(verify=True), pipeline.passes(**change):
        executable = compile(program, name="double")
    message = rf"double on cpu .* at \[0\] is [09].0, not 6.0 (.|\n)*pass {'fuse' if wrong is None else wrong.__name__}"
    with pytest.raises(VerificationError, match=message):
        executable([x])


def test_verification_blames_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    program = fresh()
    cpu = backends.get("cpu")
    render = cpu.render
    monkeypatch.setattr(cpu, "render", lambda code: render(code).replace("fadd", "fsub"))
    with config.settings(verify=True), pytest.raises(VerificationError, match="the backend"):
        compile(program)([from_numpy(np.full(program.input_types[0].shape, 3, FLOAT))])


# between processes

SCRIPT = """
import numpy as np
from tests.runtime.programs import make, of, vector
from fungrad.backends.engine import Engine
from fungrad.runtime.array import from_numpy
from fungrad.runtime.compile import compile
parsed = []
prepare = Engine.prepare
Engine.prepare = lambda self, text: parsed.append(text) or prepare(self, text)
executable = compile(make([vector(1 << 18)], lambda a: [of("exp", of("sin", a))]))
x = np.linspace(-9, 9, 1 << 18, dtype="float32")
assert np.allclose(executable([from_numpy(x)])[0], np.exp(np.sin(x)), rtol=1e-5)
print(len(parsed))
"""


def run_script(folder: Path, **environment: str) -> int:
    settings = {**os.environ, "FUNGRAD_CACHE_DIR": str(folder), **environment}
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], cwd=Path(__file__).parents[2], text=True,
                          check=True, capture_output=True, timeout=60, env=settings)
    assert done.stderr == ""
    return int(done.stdout)


def test_objects_are_reused_by_other_processes_and_survive_damage(tmp_path: Path) -> None:
    assert run_script(tmp_path) == 2          # the pool and one kernel
    assert run_script(tmp_path) == 0
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert run_script(tmp_path) == 2
    assert run_script(tmp_path, FUNGRAD_THREADS="1") == 0


def test_without_a_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run_script(tmp_path / "file" / "cache") == 2

"""Lowered kernels on disk: read back equal, never for another target or version, and worth reading."""
import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

import fungrad
import fungrad.numpy as fnp
from fungrad import backends
from fungrad.ir.instructions import Instruction
from fungrad.ir.kernel_text import instructions_text
from fungrad.lower import pipeline
from fungrad.runtime import codes


class Memory(dict):
    """An object store in memory."""

    def get(self, key):
        return super().get(key)

    def put(self, key, data):
        self[key] = data


def kernel_of(f, *arrays):
    program = fungrad.jit(f).program(*arrays)
    target = backends.get("cpu").target()
    lowered = pipeline.lower(program, target)
    return lowered.fused.kernel_launches()[0].kernel, lowered.code[0], target


@pytest.mark.parametrize("f", [lambda x: fnp.tanh(x) + 1, lambda x: x @ x.T, lambda x: fungrad.nn.softmax(x),
                               lambda x: fnp.sort(x), lambda x: (x * 2).astype("bfloat16")])
def test_code_read_back_is_equal(f):
    kernel, code, target = kernel_of(f, fnp.ones((40, 40)))
    store = Memory()
    stored = codes.StoredCodes(store, target)
    assert stored.get(kernel) is None
    stored.put(kernel, code)
    found = stored.get(kernel)
    assert found is not None and found is not code
    assert instructions_text(found) == instructions_text(code)
    assert isinstance(found.instructions[0], Instruction) and found.parallel_extent == code.parallel_extent
    other = dataclasses.replace(target, vector_bytes=target.vector_bytes // 2)
    assert codes.StoredCodes(store, other).get(kernel) is None


def test_another_version_of_the_compiler_is_another_key(monkeypatch):
    kernel, code, target = kernel_of(lambda x: x * 3, fnp.ones(100))
    store = Memory()
    codes.StoredCodes(store, target).put(kernel, code)
    monkeypatch.setattr(codes, "compiler_digest", lambda: "another")
    assert codes.StoredCodes(store, target).get(kernel) is None


def test_a_second_process_schedules_nothing(tmp_path):
    program = ("import numpy as np, fungrad, fungrad.numpy as fnp\n"
               "from fungrad.lower import pipeline\n"
               "ran = []\n"
               "real = pipeline._run\n"
               "def counted(entry, *args, **options):\n"
               "    ran.append(entry.name)\n"
               "    return real(entry, *args, **options)\n"
               "pipeline._run = counted\n"
               "x = np.linspace(0, 1, 48 * 48, dtype='float32').reshape(48, 48)\n"
               "y = fungrad.jit(lambda x: fnp.tanh(x @ x).sum())(x)\n"
               "print(ran.count('schedule'), float(y).hex())\n")
    environment = os.environ | {"FUNGRAD_CACHE_DIR": str(tmp_path)}
    first, second = (subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True,
                                    check=True).stdout.split() for _ in range(2))
    assert int(first[0]) > 0 and int(second[0]) == 0
    assert first[1] == second[1]


def test_other_passes_ask_no_cache():
    seen = []

    def look(value, target):
        seen.append(value)
        return value
    f = fungrad.jit(lambda x: fnp.cos(x) * 5)
    x = fnp.ones(10)
    np.testing.assert_allclose(f(x), np.cos(1.0) * 5 * np.ones(10), rtol=1e-6)
    with fungrad.passes(after="schedule", add=look):
        np.testing.assert_allclose(f(x), np.cos(1.0) * 5 * np.ones(10), rtol=1e-6)
    assert len(seen) == 1

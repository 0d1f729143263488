"""Random programs: every stage computes the same, texts parse back, and results do not depend on threads or caches.

`pytest tests/laws --hypothesis-profile=deep` runs many more programs, with seeds of its own.
"""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fungrad
from fungrad import backends, dtypes
from fungrad.ir.kernel_text import kernel_text, parse_kernel
from fungrad.ir.program import program_text
from fungrad.ir.text import parse_program
from fungrad.lower.fuse import fuse
from fungrad.lower.simplify import simplify
from fungrad.testing import stages, strategies
from fungrad.testing.programs import build, random_recipe
from tests.laws.profiles import law

ROOT = Path(__file__).parents[2]
REAL = st.sampled_from([dtypes.float32, dtypes.float64])


@law(60)
@given(strategies.programs(), st.integers(0, 99), st.sampled_from([0.0, 0.0, 0.15]))
def test_all_stages_agree(generated, seed, special):
    stages.check_stages(generated.program, generated.arrays(seed, special))


@law(40)
@given(strategies.programs(max_steps=5, types=strategies.dtypes()), st.integers(0, 99), st.sampled_from([0.0, 0.2]))
def test_all_stages_agree_for_every_element_type(generated, seed, special):
    stages.check_stages(generated.program, generated.arrays(seed, special))


@pytest.mark.parametrize("seed", range(40))
def test_all_stages_agree_on_long_programs(seed):
    """From a random generator, whose programs are longer than those that hypothesis likes to draw."""
    generated = build(random_recipe(7000 + seed, 14))
    stages.check_stages(generated.program, generated.arrays(seed))


@law(100)
@given(strategies.programs())
def test_texts_parse_back(generated):
    assert parse_program(program_text(generated.program)) is generated.program
    target = backends.get("cpu").target()
    for launch in fuse(simplify(generated.program, target), target).launches:
        text = kernel_text(replace(launch.kernel, reasons=()))   # which are comments
        assert kernel_text(parse_kernel(text)) == text


@law(30)
@given(strategies.programs(max_steps=6), st.integers(0, 99))
def test_lazy_results_are_those_of_jit_bit_by_bit(generated, seed):
    arrays = [fungrad.numpy.asarray(array) for array in generated.arrays(seed)[:len(generated.input_types)]]
    compiled = fungrad.jit(generated.function)(*arrays)
    pending = generated.function(*arrays)
    fungrad.realize(pending)
    for number, (a, b) in enumerate(zip(pending, compiled, strict=True)):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), f"output {number}: {a} and {b}\n{generated.source}"


# ---- between processes ----------------------------------------------------------------------------------------------

SCRIPT = """
import hashlib
import sys
import numpy as np
import fungrad
from fungrad.testing.programs import build, random_recipe
digest = hashlib.sha256()
for seed in range(12):
    generated = build(random_recipe(9000 + seed, 8))
    arrays = [fungrad.numpy.asarray(a) for a in generated.arrays(seed)[:len(generated.input_types)]]
    for result in fungrad.jit(generated.function)(*arrays):
        digest.update(np.asarray(result).tobytes())
def large(x, y):
    rows = fungrad.numpy.exp(x - x.max(1, keepdims=True))
    sums = x.sum(), x.sum(0), (x @ y).sum(1), x.cumsum(0)
    return rows / rows.sum(1, keepdims=True), *sums, fungrad.numpy.sort(x.ravel())
x = np.random.default_rng(0).standard_normal((600, 501)).astype("float32")
y = np.random.default_rng(1).standard_normal((501, 64)).astype("float32")
for result in fungrad.jit(large)(x, y):
    digest.update(np.asarray(result).tobytes())
print(digest.hexdigest())
"""


def run(folder: Path, **environment: str) -> str:
    variables = {**os.environ, "FUNGRAD_CACHE_DIR": str(folder), "FUNGRAD_CHECK": "0", **environment}
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], cwd=ROOT, text=True, capture_output=True,
                          timeout=120, env=variables, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert len(done.stdout.strip()) == 2 * hashlib.sha256().digest_size
    return done.stdout


def test_results_do_not_depend_on_threads_or_the_disk_cache(tmp_path):
    first = run(tmp_path, FUNGRAD_THREADS="1")
    assert run(tmp_path, FUNGRAD_THREADS="2") == first
    assert run(tmp_path, FUNGRAD_THREADS="7") == first
    assert run(tmp_path / "other", FUNGRAD_THREADS="7", FUNGRAD_DISK_CACHE="0") == first



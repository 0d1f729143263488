"""The public names: JAX's where JAX has the thing, listed in docs/FEATURES.md; and what importing them costs."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import features

# The least number of JAX's names in each module, so that a lost re-export does not pass as a smaller table.
AT_LEAST = {"jax": 15, "jax.numpy": 200, "jax.lax": 80, "jax.nn": 30, "jax.nn.initializers": 15, "jax.random": 15,
            "jax.tree": 8}
# What a program imports by these names must be there as such.
MODULES = ("numpy", "lax", "nn", "nn.initializers", "random", "tree")


def test_features_page_is_current() -> None:
    assert features.FILE.read_text(encoding="utf-8") == features.text(), "run `python -m tests.features`"


def test_features_page_lists_what_works() -> None:
    assert features.present("jax.Array", ["item", "tolist", "sharding"]) == ["item", "tolist"]
    assert features.present("jax.lax", ["custom_root", "scan"]) == ["scan"], "custom_root only says that it is missing"


@pytest.mark.parametrize("module", AT_LEAST)
def test_number_of_names(module: str) -> None:
    found = features.present(module, features.jax_names()[module])
    assert len(found) >= AT_LEAST[module], f"{features.own_path(module)} has {len(found)}: {found}"


@pytest.mark.parametrize("module", MODULES)
def test_importable_by_name(module: str) -> None:
    assert importlib.util.find_spec(f"fungrad.{module}") is not None


def run(code: str, environment: Mapping[str, str] = os.environ) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          env=environment).stdout


def test_import_loads_no_compiler_and_no_driver() -> None:
    loaded = set(run("import sys, fungrad; print(*sys.modules)").split())
    heavy = {name for name in loaded if name.split(".")[0] in
             ("llvmlite", "pyopencl", "cuda", "wgpu", "Metal", "scipy", "matplotlib", "sqlite3")}
    assert not heavy
    assert "fungrad.backends.cpu" not in loaded


def import_seconds(module: str, environment: dict[str, str]) -> float:
    """Processor time, which other work on the machine stretches less than the clock's."""
    return float(run(f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)",
                     environment))


def test_import_time(tmp_path: Path) -> None:
    """`import fungrad` takes at most 1.5 times as long as `import numpy`, once both are compiled to bytecode."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    pairs = [(import_seconds("numpy", environment), import_seconds("fungrad", environment)) for _ in range(10)]
    numpy, own = (min(column) for column in zip(*pairs[1:], strict=True))
    assert own <= 1.5 * numpy + 0.01, f"import fungrad takes {own:.3f} s, import numpy {numpy:.3f} s"


def test_a_first_gradient_imports_no_bfloat16() -> None:
    """ml_dtypes takes several times longer to import than NumPy: only programs that name bfloat16 pay for it."""
    code = ("import sys, numpy, fungrad, fungrad.numpy as fnp\n"
            "print(fungrad.jit(fungrad.grad(lambda x: (fnp.tanh(x) ** 2).sum()))(numpy.ones(3, 'float32')).shape)\n"
            "assert 'ml_dtypes' not in sys.modules")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "(3,)\n", result.stderr

"""Common element types: a table of pairs, Python scalars, and weak traced scalars."""
from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import fungrad.numpy as fnp
from fungrad import config, dtypes
from fungrad.ir.types import array_type
from fungrad.trace import trace_program

NAMES = [dtype.name for dtype in dtypes.ALL]


def expected(a: str, b: str) -> str:
    """NumPy's common type, but integers with floats give the floats' type, and there is bfloat16."""
    x, y = np.dtype(getattr(ml_dtypes, a, a)), np.dtype(getattr(ml_dtypes, b, b))
    floats = [d for d in (x, y) if dtypes.is_float(d)]
    if len(floats) == 1:
        return floats[0].name
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if "bfloat16" in (a, b):
        return b if a == "bfloat16" else a
    result = np.promote_types(x, y)
    return "float32" if result.kind == "f" and not floats else result.name


@pytest.mark.parametrize("a, b", list(itertools.product(NAMES, NAMES)))
def test_pairs(a, b):
    x, y = fnp.ones(2, a), fnp.ones(2, b)
    assert fnp.promote_types(a, b).name == expected(a, b)
    assert fnp.add(x, y).dtype.name == expected(a, b)
    assert fnp.result_type(x, b).name == expected(a, b)
    assert fnp.where(x, x, y).dtype.name == expected(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_python_scalars_are_weak(name):
    x = fnp.ones(2, name)
    kind = "bool" if name == "bool" else "integer" if np.dtype(x.dtype).kind in "iu" else "float"
    assert (x + 2).dtype.name == ("int32" if kind == "bool" else name)
    assert (x * 2.0).dtype.name == (name if kind == "float" else "float32")
    assert (x | True if kind != "float" else x + True).dtype.name == name
    assert fnp.maximum(x, 1.5).dtype.name == (name if kind == "float" else "float32")
    assert (x / 2).dtype.name == (name if kind == "float" else "float32")
    assert (2 ** x).dtype.name == ("int32" if kind == "bool" else name)


def test_default_float():
    with config.settings(default_float="float64"):
        assert fnp.sin(2.0).dtype == np.float64
        assert (fnp.ones(2, "int32") * 1.5).dtype == np.float64
        assert fnp.ones(2).dtype == np.float64
    assert fnp.sin(2.0).dtype == np.float32


# ---- weak tracers ---------------------------------------------------------------------------------------------------

def traced(function, *pairs):
    """The types and weakness of `function`'s result on traced scalars (type name, weak)."""
    found = []

    def run(*xs):
        result = function(*xs)
        found.append((result.dtype.name, result.weak))
        return [result]
    trace_program(run, [array_type((), np.dtype(getattr(ml_dtypes, name, name))) for name, _ in pairs],
                  [weak for _, weak in pairs])
    return found[0]


WEAK_FLOAT, WEAK_INT = ("float32", True), ("int32", True)


def test_weak_with_weak_stays_weak():
    assert traced(lambda x: x + 1, WEAK_INT) == ("int32", True)
    assert traced(lambda x: x * 2.5, WEAK_INT) == ("float32", True)
    assert traced(lambda x: -x, WEAK_FLOAT) == ("float32", True)
    assert traced(lambda x: abs(x) ** 2, WEAK_FLOAT) == ("float32", True)
    assert traced(lambda x, y: x / y, WEAK_INT, WEAK_INT) == ("float32", True)
    assert traced(lambda x, y: 2 - x * y, WEAK_FLOAT, WEAK_INT) == ("float32", True)
    assert traced(lambda x: (x // 2) % 3, WEAK_INT) == ("int32", True)
    assert traced(lambda x: divmod(x, 2)[0], WEAK_INT) == ("int32", True)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_weak_meets_an_array(name):
    for function in (lambda x, y: x * y, lambda x, y: y + x * 2 - 1, lambda x, y: fnp.where(x > 0, x, y), lambda x,
                     y: x ** y,
                     lambda x, y: fnp.maximum(y, x), lambda x, y: fnp.stack([x, y])):
        assert traced(function, WEAK_FLOAT, (name, False)) == (name, False)
        assert traced(function, WEAK_INT, (name, False)) == (name, False)
    assert traced(lambda x, y: x * y, WEAK_FLOAT, ("int8", False)) == ("float32", False)
    assert traced(lambda x, y: x * y, WEAK_INT, ("int8", False)) == ("int8", False)


def test_named_functions_give_strong_results():
    assert traced(lambda x: fnp.sin(x), WEAK_FLOAT) == ("float32", False)
    assert traced(lambda x: fnp.add(x, 1), WEAK_INT) == ("int32", False)
    assert traced(lambda x: x > 0, WEAK_INT) == ("bool", False)
    assert traced(lambda x: fnp.asarray(x, "float32") + 1, WEAK_INT) == ("float32", False)


def test_type_errors_name_the_function():
    with pytest.raises(TypeError, match="stack: .*complex128"):
        fnp.stack([np.ones(2, complex), np.ones(2)])

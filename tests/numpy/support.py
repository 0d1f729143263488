"""What the front end's tests share: a base trace that runs each primitive's NumPy reference, and comparisons with
NumPy.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

import fungrad
from fungrad.ir.primitive import Primitive
from fungrad.ir.types import array_type
from fungrad.ir.value import Value
from fungrad.runtime.array import Array, from_numpy
from fungrad.trace import Trace, Tracer, active, trace_program


class EagerTrace(Trace):
    """Runs references at once, and checks that each result has the type that the type rule declares."""

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        declared = primitive.type(*[value.type for value in values], **params)
        with np.errstate(all="ignore"):
            results = primitive.reference(*[np.asarray(value) for value in values], **params)
        if not primitive.multiple_results:
            return _checked(primitive, declared, results)
        return tuple(_checked(primitive, *pair) for pair in zip(declared, results, strict=True))


def _checked(primitive: Primitive, declared: Any, result: Any) -> Value:
    array = np.asarray(result)
    assert array_type(array.shape,
                      array.dtype) == declared, f"{primitive}: {array.dtype}{array.shape} is not {declared}"
    return from_numpy(array)


EAGER = EagerTrace()


# FRONT_END_COMPILED=1: the same tests through the compiler, which takes minutes.
COMPILED = os.environ.get("FRONT_END_COMPILED") == "1"


@contextmanager
def eagerly() -> Iterator[None]:
    """Operations run their references at once within the block."""
    with active(None if COMPILED else EAGER):
        yield


def staged(function: Any, *arrays: Any) -> Any:
    """`function` traced on arrays of these types and the program's references run: what jit would see."""
    values = [from_numpy(np.asarray(a)) if not isinstance(a, Value) else a for a in arrays]
    if COMPILED:
        return fungrad.jit(function)(*values)
    traced = trace_program(lambda *tracers: _flat(function(*tracers)), [value.type for value in values])
    environment: dict[Any, Any] = dict(zip(traced.program.inputs, [*values, *traced.captured], strict=True))
    for node in traced.program.nodes():
        if node in environment:
            continue
        operands = [environment[operand] for operand in node.operands]
        if node.primitive.name == "result":
            environment[node] = operands[0][node.param("number")]
        else:
            environment[node] = EAGER.process(node.primitive, tuple(operands), dict(node.params))
    results = [environment[output] for output in traced.program.outputs]
    return results[0] if len(results) == 1 else tuple(results)


def _flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def near(got: Any, want: Any, tolerance: float = 1e-5, dtype: Any = None) -> None:
    """Equal shapes, near elements; the element type if given."""
    assert isinstance(got, Value), f"{type(got)} is not an array"
    found, expected = np.asarray(got), np.asarray(want)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    if dtype is not None:
        assert got.dtype == np.dtype(dtype), f"{got.dtype}, expected {dtype}"
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    else:
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=tolerance,
                                   atol=tolerance)


def same(got: Any, want: Any) -> None:
    """Equal shapes and elements."""
    near(got, want, 0.0)


__all__ = ["Array", "Tracer", "eagerly", "fungrad", "ml_dtypes", "near", "same", "staged"]

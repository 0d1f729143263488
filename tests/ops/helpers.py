"""Checks of a primitive's rules against its NumPy reference: jvp, transpose, batch and lower."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fungrad.ops.elementwise  # noqa: F401  (rules look primitives up by name)
from fungrad.ir.primitive import Linear, Primitive, Zero
from fungrad.ir.types import array_type
from fungrad.trace import active
from tests.ops.eager import EagerTrace, EagerValue, unwrap, wrap
from tests.ops.evaluate import lowered

_TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-10}


def assert_same(actual: Any, expected: Any, message: str = "", tolerance: float | None = None) -> None:
    """Equal type and (to the type's precision) equal values; tuples item by item."""
    if isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_same(a, b, message, tolerance)
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, \
        f"{message}: {actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    close = _TOLERANCE.get(expected.dtype.name) if tolerance is None else tolerance
    if close is None:
        np.testing.assert_array_equal(actual, expected, message)
    else:
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), close, close,
                                   err_msg=message)


def reference(primitive: Primitive, *arrays: np.ndarray, **params: Any) -> Any:
    """The reference's result, after checking it against the type rule."""
    trace = EagerTrace()
    with active(trace):
        return unwrap(trace.process(primitive, tuple(map(wrap, arrays)), params))


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def check_lower(primitive: Primitive, *arrays: np.ndarray, **params: Any) -> None:
    """What `lower` answers computes the reference."""
    assert_same(lowered(primitive, *arrays, **params), reference(primitive, *arrays, **params), f"lower {primitive}")


def check_jvp(primitive: Primitive, *arrays: np.ndarray, wrt: Sequence[int], step: float = 1e-6,
              tolerance: float = 1e-5, seed: int = 0, **params: Any) -> None:
    """The jvp rule against central differences, for tangents of all of `wrt` together and of each alone (float64)."""
    noise = np.random.default_rng(seed)
    for chosen in {tuple(wrt), *((i,) for i in wrt)}:
        tangents = [noise.standard_normal(a.shape) if i in chosen else None for i, a in enumerate(arrays)]
        with active(EagerTrace()):
            symbolic = [Zero(array_type(a.shape, a.dtype)) if t is None else wrap(np.asarray(t, a.dtype))
                        for a, t in zip(arrays, tangents, strict=True)]
            result, tangent = primitive.jvp([wrap(a) for a in arrays], symbolic, **params)
        assert_same(unwrap(result), reference(primitive, *arrays, **params), f"primal of jvp {primitive}")
        moved = [[a if t is None else np.asarray(a + sign * step * t) for a, t in zip(arrays, tangents, strict=True)]
                 for sign in (1, -1)]
        high, low = (_tuple(reference(primitive, *m, **params)) for m in moved)
        for a, b, t in zip(high, low, _tuple(unwrap(tangent)), strict=True):
            if a.dtype.kind == "f":
                np.testing.assert_allclose(t, (a - b) / (2 * step), tolerance, tolerance,
                                           err_msg=f"jvp {primitive} wrt {chosen}")


def check_transpose(primitive: Primitive, *arrays: np.ndarray, wrt: Sequence[int], seed: int = 0,
                    **params: Any) -> None:
    """<f(x), w> = <x, f^T(w)>, where f is linear in the operands `wrt` together (float64)."""
    noise = np.random.default_rng(seed)
    result = reference(primitive, *arrays, **params)
    weights = noise.standard_normal(result.shape)
    operands = [Linear(array_type(a.shape, a.dtype)) if i in wrt else EagerValue(a) for i, a in enumerate(arrays)]
    with active(EagerTrace()):
        cotangents = unwrap(tuple(primitive.transpose(EagerValue(weights), operands, **params)))
    assert len(cotangents) == len(arrays)
    for i, (cotangent, array) in enumerate(zip(cotangents, arrays, strict=True)):
        assert (cotangent is None) == (i not in wrt)
        if cotangent is not None:
            assert (cotangent.shape, cotangent.dtype) == (array.shape, array.dtype), f"cotangent {i} of {primitive}"
    total = sum(float((cotangents[i] * arrays[i]).sum()) for i in wrt)
    np.testing.assert_allclose(total, float((result * weights).sum()), 1e-9, 1e-9, err_msg=f"transpose {primitive}")


def check_batch(primitive: Primitive, *arrays: np.ndarray, axes: Sequence[int | None],
                parameters: dict[str, Any] | None = None, **params: Any) -> None:
    """The batch rule against a loop over the mapped axes; `arrays` have them. `parameters`: params, or `axes`."""
    params |= parameters or {}
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    with active(EagerTrace()):
        result, result_axes = primitive.batch(size, [wrap(a) for a in arrays], list(axes), **params)
    rows = []
    for i in range(size):
        sliced = [array if axis is None else np.asarray(array.take(i, axis))
                  for array, axis in zip(arrays, axes, strict=True)]
        rows.append(_tuple(reference(primitive, *sliced, **params)))
    for number, (value, axis) in enumerate(zip(_tuple(unwrap(result)), _tuple(result_axes), strict=True)):
        stacked = np.stack([row[number] for row in rows])
        actual = np.broadcast_to(value, stacked.shape) if axis is None else np.moveaxis(value, axis, 0)
        assert_same(actual, stacked, f"batch {primitive} axes {axes}")

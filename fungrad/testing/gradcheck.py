"""Derivatives against finite differences and against each other; vmap against a loop; jit against plain calls.

    check_grads(f, (x, y), order=2)            # raises AssertionError that says which law failed, where and by how much
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..ir.value import OPERATORS
from ..transforms.api import jvp, linearize, vjp, vmap
from ..transforms.jit import jit

Function = Callable[..., Any]

MODES = ("fwd", "rev", "lin")
# Step of the finite differences, and how far from them a derivative may lie, relative to the size of what is compared.
_STEP = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 4e-3, "float64": 2e-4}
_FINITE = {"float16": 5e-2, "bfloat16": 2e-1, "float32": 2e-2, "float64": 1e-6}
_EXACT = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-9}


def check_grads(f: Function, args: Sequence[Any], order: int = 1, modes: Sequence[str] | str = MODES,
                atol: float | None = None, rtol: float | None = None, eps: float | None = None,
                directions: int = 3, seed: int = 0) -> None:
    """Check the derivatives of `f` at `args` (pytrees of arrays) along several random directions.

    fwd: jvp agrees with finite differences (central, extrapolated from two steps after Richardson, so that the error is
    of the fourth order in `eps`). rev: <w, jvp(v)> = <vjp(w), v>. lin: linearize's linear function agrees with jvp.
    order 2 checks in the same way the derivatives of jvp and of vjp, and so on. Floats are differentiated, other leaves
    stay as they are. Raises AssertionError; ValueError for unknown modes.
    """
    chosen = (modes,) if isinstance(modes, str) else tuple(modes)
    if not chosen or set(chosen) - set(MODES):
        raise ValueError(f"check_grads: modes are {', '.join(MODES)}, got {modes!r}")
    flat = _Flat(f, args)
    generator = np.random.default_rng(seed)
    _check_order(flat, order, chosen, _Limits(flat, atol, rtol, eps), generator, directions, "f")


class _Flat:
    """A function of the floating leaves of its arguments that answers a list of floating results."""

    def __init__(self, f: Function, args: Sequence[Any]):
        leaves, structure = tree.flatten(tuple(args))
        arrays = [np.asarray(leaf) for leaf in leaves]
        floating = [dtypes.is_float(array.dtype) for array in arrays]
        self.point = [array for array, flag in zip(arrays, floating, strict=True) if flag]

        asarray = OPERATORS["asarray"]

        def function(*values: Any) -> list[Any]:
            given = iter(values)
            whole = [asarray(next(given)) if flag else leaf for leaf, flag in zip(leaves, floating, strict=True)]
            results = [asarray(leaf) for leaf in tree.leaves(f(*tree.unflatten(structure, whole)))]
            return [result for result in results if dtypes.is_float(result.dtype)]
        self.function: Function = function

    def with_function(self, function: Function) -> _Flat:
        found = object.__new__(_Flat)
        found.point, found.function = self.point, function
        return found


class _Limits:
    """Step and tolerances, by the narrowest element type among the arguments."""

    def __init__(self, flat: _Flat, atol: float | None, rtol: float | None, eps: float | None):
        names = [array.dtype.name for array in flat.point] or ["float64"]
        self.step = eps or max(_STEP[name] for name in names)
        self.finite = max(_FINITE[name] for name in names) if rtol is None else rtol
        self.exact = max(_EXACT[name] for name in names) if rtol is None else rtol
        self.atol = atol


def _check_order(flat: _Flat, order: int, modes: Sequence[str], limits: _Limits, generator: np.random.Generator,
                 directions: int, what: str) -> None:
    if order < 1:
        return
    for _ in range(directions):
        tangents = [_noise(generator, array) for array in flat.point]
        results, moved = jvp(flat.function, flat.point, tangents)
        results, moved = _arrays(results), _arrays(moved)
        plain = _arrays(flat.function(*flat.point))
        _compare(results, plain, limits.exact, limits.atol, f"the primal results of jvp({what}) and {what}")
        if "fwd" in modes:
            expected = _finite_difference(flat, tangents, limits.step)
            _compare(moved, expected, limits.finite, limits.atol, f"jvp({what}) and finite differences")
        if "lin" in modes:
            primal, linear = linearize(flat.function, *flat.point)
            _compare(_arrays(primal), plain, limits.exact, limits.atol, f"the results of linearize({what}) and {what}")
            _compare(_arrays(linear(*tangents)), moved, limits.exact, limits.atol, f"linearize({what}) and jvp({what})")
        if "rev" in modes:
            _check_reverse(flat, plain, moved, tangents, limits, generator, what)
    if order > 1:
        _check_next_order(flat, order - 1, modes, limits, generator, directions, what)


def _check_reverse(flat: _Flat, plain: list[np.ndarray], moved: list[np.ndarray], tangents: list[np.ndarray],
                   limits: _Limits, generator: np.random.Generator, what: str) -> None:
    weights = [_noise(generator, array) for array in plain]
    primal, pullback = vjp(flat.function, *flat.point)
    _compare(_arrays(primal), plain, limits.exact, limits.atol, f"the results of vjp({what}) and {what}")
    cotangents = _arrays(pullback([OPERATORS["asarray"](weight) for weight in weights]))
    forward = [float(np.sum(w.astype(np.float64) * m)) for w, m in zip(weights, moved, strict=True)]
    backward = [float(np.sum(c.astype(np.float64) * t)) for c, t in zip(cotangents, tangents, strict=True)]
    terms = [np.abs(w.astype(np.float64) * m).sum() for w, m in zip(weights, moved, strict=True)]
    scale = float(sum(terms)) + 1.0
    difference = abs(sum(forward) - sum(backward))
    if not (difference <= limits.exact * scale + (limits.atol or 0) or
            (np.isnan(sum(forward)) and np.isnan(sum(backward)))):
        raise AssertionError(f"<w, jvp({what})(v)> is {sum(forward)!r} but <vjp({what})(w), v> is {sum(backward)!r} "
                             f"(the terms' sizes add up to {scale:.3g})")


def _check_next_order(flat: _Flat, order: int, modes: Sequence[str], limits: _Limits, generator: np.random.Generator,
                      directions: int, what: str) -> None:
    tangents = [_noise(generator, array) for array in flat.point]
    if set(modes) & {"fwd", "lin"}:
        along = flat.with_function(lambda *values: jvp(flat.function, values, tangents)[1])
        _check_order(along, order, modes, limits, generator, directions, f"jvp({what})")
    if "rev" in modes:
        weights = [_noise(generator, array) for array in _arrays(flat.function(*flat.point))]
        back = flat.with_function(
            lambda *values: list(vjp(flat.function, *values)[1]([OPERATORS["asarray"](w) for w in weights])))
        _check_order(back, order, modes, limits, generator, directions, f"vjp({what})")


def _finite_difference(flat: _Flat, tangents: list[np.ndarray], step: float) -> list[np.ndarray]:
    """(4 d(h/2) - d(h)) / 3, where d(h) is the central difference: Richardson's extrapolation."""
    wide, narrow = _central(flat, tangents, step), _central(flat, tangents, step / 2)
    return [(4 * b - a) / 3 for a, b in zip(wide, narrow, strict=True)]


def _central(flat: _Flat, tangents: list[np.ndarray], step: float) -> list[np.ndarray]:
    high, low = (_arrays(flat.function(*[(x + sign * step * t.astype(np.float64)).astype(x.dtype)
                                         for x, t in zip(flat.point, tangents, strict=True)])) for sign in (1, -1))
    with np.errstate(all="ignore"):
        return [(a.astype(np.float64) - b.astype(np.float64)) / (2 * step) for a, b in zip(high, low, strict=True)]


def _noise(generator: np.random.Generator, array: np.ndarray) -> np.ndarray:
    return np.asarray(generator.standard_normal(array.shape)).astype(array.dtype)


def _arrays(values: Any) -> list[np.ndarray]:
    return [np.asarray(value) for value in tree.leaves(values)]


def _compare(given: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float, atol: float | None,
             what: str) -> None:
    """Raise AssertionError unless the arrays agree, relative to the largest finite number of each."""
    if len(given) != len(expected):
        raise AssertionError(f"{what} have {len(given)} and {len(expected)} arrays")
    for number, (a, b) in enumerate(zip(given, expected, strict=True)):
        if a.shape != b.shape:
            raise AssertionError(f"{what} differ in result {number}: shapes {a.shape} and {b.shape}")
        x, y = a.astype(np.float64), b.astype(np.float64)
        largest = float(np.max(np.abs(y), where=np.isfinite(y), initial=0.0))
        allowed = (rtol * max(largest, 1.0) if atol is None else atol + rtol * np.abs(y))
        with np.errstate(invalid="ignore"):
            far = ~((np.abs(x - y) <= allowed) | (x == y) | (np.isnan(x) & np.isnan(y)))
        if far.any():
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
            raise AssertionError(f"{what} differ in result {number} at {list(at)}: {a[at]} and {b[at]} "
                                 f"({int(far.sum())} of {far.size} elements)")


# ---- vmap and jit ---------------------------------------------------------------------------------------------------

def check_vmap(f: Function, args: Sequence[Any], in_axes: Any = 0, out_axes: Any = 0,
               rtol: float | None = None) -> None:
    """vmap(f, in_axes, out_axes) is the stack of f's results for the slices of `args` (arrays with mapped axes)."""
    arrays = [np.asarray(arg) for arg in args]
    axes = [in_axes] * len(arrays) if isinstance(in_axes, int) or in_axes is None else list(in_axes)
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    batched = _arrays(vmap(f, in_axes=tuple(axes), out_axes=out_axes)(*arrays))
    asarray = OPERATORS["asarray"]
    rows = [_arrays(f(*[asarray(array if axis is None else array.take(i, axis))
                        for array, axis in zip(arrays, axes, strict=True)])) for i in range(size)]
    for number, result in enumerate(batched):
        expected = [row[number] for row in rows]
        axis = out_axes if isinstance(out_axes, int) else list(out_axes)[number]
        stacked = np.stack(expected, axis) if expected else result
        if stacked.dtype != result.dtype:
            raise AssertionError(f"result {number} of vmap(f) is {result.dtype}, of f {stacked.dtype}")
        limit = _EXACT.get(result.dtype.name, 0.0) if rtol is None else rtol
        _compare([result], [stacked], limit, None, "vmap(f) and the stack of calls of f")


def check_jit(f: Function, args: Sequence[Any], rtol: float | None = None) -> None:
    """jit(f) computes what f does, with the same types; a second call of it does not run f's Python code again."""
    args = tree.tree_map(OPERATORS["asarray"], tuple(args))
    plain = tree.leaves(f(*args))
    runs = []

    def counted(*values: Any) -> Any:
        runs.append(1)
        return f(*values)
    jitted = jit(counted)
    for _ in range(2):
        results = tree.leaves(jitted(*args))
        for number, (a, b) in enumerate(zip(results, plain, strict=True)):
            a, b = np.asarray(a), np.asarray(b)
            if a.dtype != b.dtype:
                raise AssertionError(f"result {number} of jit(f) is {a.dtype}, of f {b.dtype}")
            _compare([a], [b], _EXACT.get(a.dtype.name, 0.0) if rtol is None else rtol, None, "jit(f) and f")
    if len(runs) != 1:
        raise AssertionError(f"two equal calls of jit(f) ran f {len(runs)} times")

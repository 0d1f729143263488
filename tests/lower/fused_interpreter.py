"""Runs Fused values in NumPy: nests at all their points at once, point by point over the outer axes."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from fungrad.ir.expr import Axis, Buffer, Expr
from fungrad.ir.kernel import Fused, If, Kernel, Loop, Nest, Store, While
from fungrad.ops.linear import convert_array

_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
                            "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_FUNCTIONS: dict[str, Any] = {
    **_COMBINE, "sub": np.subtract, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "shift_left": np.left_shift, "shift_right": np.right_shift,
    "neg": np.negative, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "sqrt": np.sqrt, "not": np.invert, "select": np.where, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt,
    "pow": np.power, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "sign": np.sign, "erf": scipy.special.erf, "nextafter": np.nextafter,
    "logistic": scipy.special.expit, "fma": lambda a, b, c: a * b + c,
}


def _apply(e: Expr, x: list[Any]) -> Any:
    if e.op == "cast":
        return convert_array(np.asarray(x[0]), e.dtype)
    if e.op == "bitcast":
        return np.ascontiguousarray(x[0]).view(e.dtype)
    if e.op in ("div", "rem", "integer_div", "integer_rem"):
        if e.dtype.kind not in "iu":
            return np.divide(*x) if e.op == "div" else np.fmod(*x)
        remainder = np.fmod(x[0], x[1])
        return remainder if e.op.endswith("rem") else (x[0] - remainder) // x[1]
    return np.asarray(_FUNCTIONS[e.op](*x)).astype(e.dtype)


def evaluate(e: Expr, axes: dict[Axis, Any], memory: dict[Buffer, np.ndarray], done: dict[Expr, Any]) -> Any:
    """The value of `e` for loop indices given as arrays that broadcast against one another."""
    if e not in done:
        if e.op == "constant":
            done[e] = np.frombuffer(e.attribute.bits, e.dtype)[0]
        elif e.op == "axis":
            done[e] = axes[e.attribute]
        else:
            operands = [evaluate(x, axes, memory, done) for x in e.operands]
            done[e] = _load(memory[e.attribute], operands) if e.op == "load" else _apply(e, operands)
    return done[e]


def _load(array: np.ndarray, operands: list[Any]) -> Any:
    *index, valid = operands
    for i, extent in zip(index, array.shape, strict=True):
        assert np.all((np.asarray(i) >= 0) & (np.asarray(i) < extent) | ~np.asarray(valid)), "read outside a buffer"
    inside = [np.clip(i, 0, max(extent - 1, 0)) for i, extent in zip(index, array.shape, strict=True)]
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(np.shape(valid), *map(np.shape, index)), array.dtype)
    return np.where(valid, array[tuple(inside)], np.zeros((), array.dtype))


def _identity(combine: str, dtype: np.dtype) -> Any:
    if combine in ("max", "min"):
        sign = -1 if combine == "max" else 1
        if dtype == np.bool_:
            return sign > 0
        if dtype.kind in "iu":
            return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max
        return sign * np.inf
    return {"add": 0, "or": 0, "xor": 0, "mul": 1, "and": -1 if dtype.kind in "iu" else 1}[combine]


def run_nest(nest: Nest, outer: dict[Axis, Any], memory: dict[Buffer, np.ndarray]) -> None:
    loops = (*nest.axes, *nest.reduce_axes)
    grid = {a: np.arange(a.extent).reshape([-1 if b is a else 1 for b in loops]) for a in loops}
    full = tuple(a.extent for a in loops)
    done: dict[Expr, Any] = {}
    value = np.broadcast_to(evaluate(nest.value, {**outer, **grid}, memory, done), full)
    if nest.combine:
        reduced = tuple(range(len(nest.axes), len(loops)))
        value = _COMBINE[nest.combine].reduce(value, reduced, dtype=value.dtype,
                                              initial=_identity(nest.combine, value.dtype)) if reduced else value
    here = tuple(a.extent for a in nest.axes)
    kept = {a: np.arange(a.extent).reshape([-1 if b is a else 1 for b in nest.axes]) for a in nest.axes}
    index = tuple([np.broadcast_to(evaluate(i, {**outer, **kept}, memory, {}), here) for i in nest.index])
    valid = np.broadcast_to(evaluate(nest.valid, {**outer, **kept}, memory, {}), here)
    array = memory[nest.target]
    assert value.dtype == array.dtype, (value.dtype, array.dtype, nest)
    if not index:
        array[()] = np.broadcast_to(value, here).reshape(-1)[-1] if valid.any() else array[()]
        return
    array[tuple(i[valid] for i in index)] = np.broadcast_to(value, here)[valid]


def run_kernel(kernel: Kernel, arrays: Sequence[np.ndarray]) -> None:
    """Run one kernel on its outputs and inputs (outputs are overwritten)."""
    buffers = (*kernel.outputs, *kernel.inputs)
    memory = {buffer: array.reshape(buffer.type.shape) for buffer, array in zip(buffers, arrays, strict=True)}
    vector = kernel.kind != "loops" and not kernel.scratch and all(not nest.reduce_axes for nest in kernel.nests)
    points = itertools.product(*(range(a.extent) for a in kernel.outer))
    if vector and kernel.outer:                      # nothing private: all points at once
        first = kernel.outer
        for nest in kernel.nests:
            run_nest(Nest(nest.target, nest.index, (*first, *nest.axes), nest.value, None, (), nest.valid), {}, memory)
        return
    for point in points:
        outer = dict(zip(kernel.outer, point, strict=True))
        for buffer in kernel.scratch:
            memory[buffer] = np.full(buffer.type.shape, 77, buffer.type.dtype)
        if kernel.body is None:
            for nest in kernel.nests:
                run_nest(nest, outer, memory)
        else:
            run_body(kernel.body, outer, memory)


def run_body(body: Sequence[Any], axes: dict[Axis, Any], memory: dict[Buffer, np.ndarray]) -> None:
    for statement in body:
        if isinstance(statement, Store):
            index = tuple([int(evaluate(i, axes, memory, {})) for i in statement.index])
            value = evaluate(statement.value, axes, memory, {})
            array = memory[statement.target]
            array[index] = _COMBINE[statement.combine](array[index], value) if statement.combine else value
        elif isinstance(statement, Loop):
            for i in range(statement.axis.extent):
                run_body(statement.body, {**axes, statement.axis: i}, memory)
        elif isinstance(statement, If):
            if evaluate(statement.condition, axes, memory, {}):
                run_body(statement.body, axes, memory)
        elif isinstance(statement, While):
            while evaluate(statement.condition, axes, memory, {}):
                run_body(statement.body, axes, memory)


def run_fused(fused: Fused, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program after fusion."""
    memory: list[Any] = [np.full(type.shape, 99, type.dtype) for type in fused.slots]
    for slot, array in zip(fused.inputs, arrays, strict=True):
        memory[slot] = np.ascontiguousarray(array)
    with np.errstate(all="ignore"):
        for launch in fused.launches:
            run_kernel(launch.kernel, [memory[slot] for slot in launch.slots])
    return [memory[slot] for slot in fused.outputs]

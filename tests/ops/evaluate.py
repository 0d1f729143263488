"""Runs what `lower` rules answer: expressions at every index at once with NumPy, fragments statement by statement."""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fungrad.dtypes import highest, lowest
from fungrad.ir.expr import DECOMPOSED, TRUE, Axis, Buffer, Expr, Reader, axis as axis_expr, load
from fungrad.ir.kernel import Fragment, If, Loop, Statement, Store, While
from fungrad.ir.primitive import PRIMITIVES, Primitive
from fungrad.ir.types import array_type
from fungrad.ops.linear import convert_array

_COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
            "or": np.bitwise_or, "xor": np.bitwise_xor}
# Operations that lowering decomposes mean what the primitive of this name (or their own) does.
_MEANING = {"integer_div": "div", "integer_rem": "rem", "safe_shift_left": "shift_left",
            "safe_shift_right": "shift_right_arithmetic", "safe_shift_right_logical": "shift_right_logical"}
_BINARY = {**_COMBINE, "sub": np.subtract, "div": None, "rem": None, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
           "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "shift_left": np.left_shift,
           "shift_right": np.right_shift}
_UNARY = {"neg": np.negative, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
          "sqrt": np.sqrt, "not": np.invert}


def _apply(op: str, x: list[Any], e: Expr) -> Any:
    if op == "select":
        return np.where(x[0], x[1], x[2])
    if op == "cast":
        return convert_array(np.asarray(x[0]), e.dtype)
    if op == "bitcast":
        return np.array(x[0]).view(e.dtype)
    if op in ("div", "rem"):
        if e.dtype.kind in "iu":
            assert np.all(x[1]), "division by zero"
            return _integer(op, *x)
        return np.divide(*x) if op == "div" else np.fmod(*x)
    if op in ("shift_left", "shift_right"):
        assert np.all((np.asarray(x[1]) >= 0) & (np.asarray(x[1]) < e.dtype.itemsize * 8)), "shift count out of range"
    if op in DECOMPOSED:
        return PRIMITIVES[_MEANING.get(op, op)].reference(*np.broadcast_arrays(*x))
    return _UNARY[op](x[0]) if op in _UNARY else _BINARY[op](*x)


def _integer(op: str, a: Any, b: Any) -> Any:
    remainder = np.fmod(a, b)
    return remainder if op == "rem" else (a - remainder) // b


def evaluate(e: Expr, axes: dict[Axis, Any], memory: dict[Buffer, np.ndarray],
             done: dict[Expr, Any] | None = None) -> Any:
    """The value of `e` for the given loop indices (arrays that broadcast against one another)."""
    done = {} if done is None else done
    if e in done:
        return done[e]
    if e.op == "constant":
        result: Any = np.frombuffer(e.attribute.bits, e.dtype)[0]
    elif e.op == "axis":
        result = axes[e.attribute]
    elif e.op == "load":
        *index, valid = [evaluate(x, axes, memory, done) for x in e.operands]
        array = memory[e.attribute]
        shape = np.broadcast_shapes(np.shape(valid), *map(np.shape, index))
        valid = np.broadcast_to(valid, shape)
        for i, extent in zip(index, array.shape, strict=True):
            inside = np.broadcast_to((i >= 0) & (i < extent), shape)
            assert np.all(inside | ~valid), f"out of bounds read of {e.attribute}"
        safe = tuple(np.where(valid, i, 0) for i in index)
        result = np.where(valid, array[safe], np.zeros((), array.dtype)) if array.size else np.zeros(shape, array.dtype)
    elif e.op == "reduce":
        result = _reduce(e, axes, memory)
    else:
        with np.errstate(all="ignore"):
            result = _apply(e.op, [evaluate(x, axes, memory, done) for x in e.operands], e)
    result = np.asarray(result)
    assert result.dtype == e.dtype, f"{e} has dtype {e.dtype}, its value {result.dtype}"
    done[e] = result
    return result


def identity(combine: str, dtype: np.dtype) -> np.ndarray:
    """What leaves other values as they are under `combine`."""
    if combine in ("max", "min"):
        return np.asarray(lowest(dtype) if combine == "max" else highest(dtype), dtype)
    if combine == "and":
        return np.invert(np.zeros((), dtype))
    return np.asarray(combine == "mul", dtype)


def _reduce(e: Expr, axes: dict[Axis, Any], memory: dict[Buffer, np.ndarray]) -> Any:
    combine, loops = e.attribute
    total: Any = identity(combine, e.dtype)
    for point in itertools.product(*[range(a.extent) for a in loops]):
        inner = {**axes, **dict(zip(loops, map(np.int64, point), strict=True))}
        with np.errstate(all="ignore"):
            total = _COMBINE[combine](total, evaluate(e.operands[0], inner, memory))
    return total


def lowered(primitive: Primitive, *arrays: np.ndarray, **params: Any) -> Any:
    """Lower a primitive for these operands and run the answer: an array, or a tuple for several results."""
    buffers = [Buffer(f"x{i}", _type(a)) for i, a in enumerate(arrays)]
    types = [b.type for b in buffers]
    result_type = primitive.type(*types, **params)
    if "loops" in primitive.traits:
        outputs = run_fragment(primitive.lower(types, result_type, **params), arrays)
        return tuple(outputs) if primitive.multiple_results else outputs[0]
    first = result_type[0] if primitive.multiple_results else result_type
    loops = [Axis(f"i{i}", extent) for i, extent in enumerate(first.shape)]
    readers = [Reader(b.type, lambda index, valid, b=b: load(b, index, valid)) for b in buffers]
    answer = primitive.lower(readers, tuple(map(axis_expr, loops)), TRUE, result_type, **params)
    grid = np.meshgrid(*[np.arange(a.extent, dtype=np.int64) for a in loops], indexing="ij")
    axes, memory = dict(zip(loops, grid, strict=True)), dict(zip(buffers, arrays, strict=True))
    results = tuple(np.broadcast_to(evaluate(e, axes, memory), first.shape)
                    for e in (answer if primitive.multiple_results else (answer,)))
    return results if primitive.multiple_results else results[0]


def _type(array: np.ndarray) -> Any:
    return array_type(array.shape, array.dtype)


def run_fragment(fragment: Fragment, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Run a fragment's body for each point of its outer axes; unwritten memory holds noise."""
    memory: dict[Buffer, np.ndarray] = dict(zip(fragment.inputs, arrays, strict=True))
    noise = np.random.default_rng(0)
    for buffer in (*fragment.outputs, *fragment.scratch):
        raw = noise.integers(0, 256, max(buffer.type.nbytes, 1), np.uint8)[:buffer.type.nbytes]
        memory[buffer] = raw.view(buffer.type.dtype).reshape(buffer.type.shape).copy() if buffer.type.dtype != bool \
            else (raw & 1).view(bool).reshape(buffer.type.shape).copy()
    points = list(itertools.product(*[range(a.extent) for a in fragment.outer]))
    noise.shuffle(points)
    for point in points:
        _execute(fragment.body, dict(zip(fragment.outer, map(np.int64, point), strict=True)), memory)
    return [memory[b] for b in fragment.outputs]


def _execute(body: tuple[Statement, ...], axes: dict[Axis, Any], memory: dict[Buffer, np.ndarray]) -> None:
    for s in body:
        if isinstance(s, Loop):
            stop = s.axis.extent if s.stop is None else int(evaluate(s.stop, axes, memory))
            assert stop <= s.axis.extent
            for i in range(stop):
                _execute(s.body, {**axes, s.axis: np.int64(i)}, memory)
        elif isinstance(s, If):
            if evaluate(s.condition, axes, memory):
                _execute(s.body, axes, memory)
        elif isinstance(s, While):
            while evaluate(s.condition, axes, memory):
                _execute(s.body, axes, memory)
        else:
            _store(s, axes, memory)


def _store(s: Store, axes: dict[Axis, Any], memory: dict[Buffer, np.ndarray]) -> None:
    target = memory[s.target]
    at = tuple(int(evaluate(i, axes, memory)) for i in s.index)
    inside = all(0 <= i < extent for i, extent in zip(at, target.shape, strict=True))
    assert inside, f"out of bounds store to {s.target}"
    value = evaluate(s.value, axes, memory)
    assert value.dtype == target.dtype, f"a {value.dtype} stored into {s.target}"
    with np.errstate(all="ignore"):
        target[at] = value if s.combine is None else _COMBINE[s.combine](target[at], value)

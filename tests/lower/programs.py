"""Random typed programs and the comparison of lowered ones with the primitives' references."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fungrad.ir.check import check_fused
from fungrad.ir.interpret import interpret
from fungrad.ir.kernel import Fused
from fungrad.ir.program import Program
from fungrad.ir.target import Target
from fungrad.ir.types import Type, array_type
from fungrad.lower.fuse import fuse
from fungrad.lower.simplify import simplify
from fungrad.ops import contract, create, cumulative, elementwise, linear, reduce, slicing
from fungrad.trace import trace_program
from tests.lower.fused_interpreter import run_fused

FLOAT32 = np.dtype("float32")
TARGET = Target("cpu", 64, 32, (32 << 10, 1 << 20, 16 << 20), 2, frozenset(), "test")


def traced(function: Callable[..., Sequence[Any]], *shapes: tuple[int, ...] | Type) -> Program:
    """The program of a function of float32 arrays of these shapes (or of arrays of these types)."""
    types = [shape if isinstance(shape, Type) else array_type(shape, FLOAT32) for shape in shapes]
    return trace_program(function, types).program


def random_arrays(types: Sequence[Type], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(type.shape).astype(type.dtype) if type.dtype.kind != "i"
            else rng.integers(-5, 5, type.shape).astype(type.dtype) for type in types]


def assert_same(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], rtol: float = 2e-4) -> None:
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a).reshape(np.shape(b)), b, rtol=rtol, atol=2e-4)


def check(program: Program, arrays: Sequence[np.ndarray] | None = None) -> Fused:
    """Fuse a program, compare its results with the references, and answer the kernels."""
    arrays = random_arrays(program.input_types) if arrays is None else arrays
    with np.errstate(all="ignore"):
        wanted = interpret(program, arrays)
    fused = fuse(simplify(program, TARGET), TARGET)
    check_fused(fused)
    assert_same(run_fused(fused, arrays), wanted)
    return fused


def kernels(function: Callable[..., Sequence[Any]], *shapes: tuple[int, ...] | Type) -> list[str]:
    """The kinds of the kernels of a function, after a comparison with the references on random arrays."""
    return [launch.kernel.kind for launch in check(traced(function, *shapes)).launches]


# ---- random programs ------------------------------------------------------------------------------------------------

Draw = Callable[[Any], Any]


def _axis(draw: Draw, x: Any) -> int:
    return draw(st.integers(0, x.ndim - 1))


def _unary(draw: Draw, x: Any) -> Any:
    name = draw(st.sampled_from(["neg", "tanh", "abs", "sin", "exp"]))
    return elementwise.exp(elementwise.neg(elementwise.abs(x))) if name == "exp" else getattr(elementwise, name)(x)


def _fit(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` brought to a shape: reduced to a vector or scalar if need be, then broadcast."""
    if x.shape == shape:
        return x
    for a, extent in enumerate(shape):
        if x.ndim and x.shape[-1] == extent:
            kept = linear.reduce_sum(x, tuple(range(x.ndim - 1))) if x.ndim > 1 else x
            return linear.broadcast(kept, shape, (a,))
    total = reduce.reduce_max(x, tuple(range(x.ndim))) if x.ndim else x
    return linear.broadcast(total, shape, ())


def _binary(draw: Draw, x: Any, y: Any) -> Any:
    name = draw(st.sampled_from(["add", "sub", "mul", "max", "min", "select"]))
    y = _fit(y, x.shape)
    if name == "select":
        return elementwise.select(elementwise.gt(x, y), x, create.full_like(x, draw(st.sampled_from([0.0, 1.5]))))
    if name == "mul":
        return elementwise.mul(elementwise.tanh(x), y)
    return getattr(elementwise, name)(x, y)


def _movement(draw: Draw, x: Any) -> Any:
    name = draw(st.sampled_from(["reshape", "transpose", "slice", "pad", "flip", "broadcast"]))
    if name == "broadcast" and x.size <= 200:
        return linear.broadcast(x, (draw(st.integers(1, 3)), *x.shape), tuple(range(1, x.ndim + 1)))
    if not x.ndim:
        return x
    a = _axis(draw, x)
    if name == "reshape":
        rest = tuple(e for i, e in enumerate(x.shape) if i != a)
        return linear.reshape(x, draw(st.sampled_from([(x.size,), (x.shape[a], *rest), (*rest, x.shape[a])])))
    if name == "transpose":
        return linear.transpose(x, tuple(draw(st.permutations(range(x.ndim)))))
    if name == "slice" and x.shape[a] > 1:
        starts, stops = [0] * x.ndim, list(x.shape)
        starts[a] = draw(st.integers(0, x.shape[a] - 1))
        stops[a] = draw(st.integers(starts[a], x.shape[a]))
        return slicing.slice_(x, tuple(starts), tuple(stops), (draw(st.integers(1, 2)),) * x.ndim)
    if name == "pad" and x.size <= 200:
        around = draw(st.tuples(st.integers(-1 if x.shape[a] > 2 else 0, 2), st.integers(0, 1), st.integers(0, 1)))
        config = tuple(around if i == a else (0, 0, 0) for i in range(x.ndim))
        return slicing.pad(x, create.full((), draw(st.sampled_from([0.0, 1.0])), x.dtype), config)
    if name == "flip":
        return slicing.flip(x, (a,))
    return x


def _reduction(draw: Draw, x: Any) -> Any:
    if not x.ndim:
        return x
    axes = tuple(sorted(draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    name = draw(st.sampled_from(["sum", "sum", "max", "cumsum"]))
    if name == "cumsum":
        return cumulative.cumsum(x, axes[0])
    if name == "max" and all(x.shape[a] for a in axes):
        return reduce.reduce_max(x, axes)
    return linear.reduce_sum(x, axes)


def _product(draw: Draw, x: Any, y: Any) -> Any:
    for i, e in enumerate(x.shape):
        for j, f in enumerate(y.shape):
            if e == f and x.size * y.size // max(e * f, 1) <= 400:
                return contract.dot_general(x, y, (((i,), (j,)), ((), ())))
    return x


def random_function(draw: Draw) -> Callable[..., list[Any]]:
    """A function that applies some random operations to its operands and answers some of all values."""
    def function(*inputs: Any) -> list[Any]:
        values = list(inputs)
        for _ in range(draw(st.integers(1, 10))):
            x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
            kind = draw(st.sampled_from(["unary", "unary", "binary", "binary", "movement", "movement", "reduction",
                                         "reduction", "product", "join"]))
            if kind == "unary":
                x = _unary(draw, x)
            elif kind == "binary":
                x = _binary(draw, x, y)
            elif kind == "movement":
                x = _movement(draw, x)
            elif kind == "reduction":
                x = _reduction(draw, x)
            elif kind == "product":
                x = _product(draw, x, y)
            elif x.ndim and x.size <= 200:
                x = slicing.concatenate([x, _fit(y, x.shape)], _axis(draw, x))
            values.append(x)
        return [values[-1], *draw(st.lists(st.sampled_from(values), max_size=2))]
    return function

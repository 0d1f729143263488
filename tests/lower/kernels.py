"""Random fused kernels, and running them at every stage from nests to machine code."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from fungrad.ir.expr import (
    BOOL,
    TRUE,
    Axis,
    Buffer,
    Expr,
    axis,
    cast,
    conjunction,
    constant,
    index_constant,
    load,
    operation,
    select,
)
from fungrad.ir.interpret_instructions import run_instructions
from fungrad.ir.interpret_kernel import Memory, run_body, run_nests
from fungrad.ir.kernel import Kernel, Nest
from fungrad.ir.target import Target
from fungrad.ir.types import array_type
from fungrad.lower import heuristics, split
from fungrad.lower.decompose import decompose
from fungrad.lower.instructions import to_instructions
from fungrad.lower.schedule import schedule
from tests.backends.native import HOST, Native

FLOATS = (*tuple(np.dtype(name) for name in ("float32", "float64", "float16")), np.dtype(ml_dtypes.bfloat16))
INTEGERS = tuple(np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
EXTENTS = (1, 2, 3, 5, 8, 16, 17, 19, 33, 40)
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@contextmanager
def small_blocks() -> Iterator[None]:
    """Schedule as for large arrays: everything in parallel, in blocks of a few elements."""
    before = (heuristics.PARALLEL_WORK, heuristics.BLOCK, split.LONG, split.BLOCK, split.COLUMN_BLOCK)
    heuristics.PARALLEL_WORK, heuristics.BLOCK = 1, 64
    split.LONG, split.BLOCK, split.COLUMN_BLOCK = 64, 32, 256
    split._split.cache_clear()
    try:
        yield
    finally:
        heuristics.PARALLEL_WORK, heuristics.BLOCK, split.LONG, split.BLOCK, split.COLUMN_BLOCK = before
        split._split.cache_clear()


def buffer(name: str, shape: tuple[int, ...], dtype: np.dtype, scope: str = "global") -> Buffer:
    return Buffer(name, array_type(shape, dtype), scope)


def random_array(type_shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    if dtype == BOOL:
        return rng.integers(0, 2, type_shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 100, type_shape).astype(dtype)
    return rng.standard_normal(type_shape).astype(dtype)


def memory_for(kernel: Kernel, seed: int = 0) -> Memory:
    """Random inputs; outputs full of a value that must go away."""
    rng = np.random.default_rng(seed)
    memory = {b: random_array(b.type.shape, b.type.dtype, rng) for b in kernel.inputs}
    for b in kernel.outputs:
        memory[b] = np.full(b.type.shape, 77, b.type.dtype)
    return memory


def copy(memory: Memory) -> Memory:
    return {b: array.copy() for b, array in memory.items()}


def assert_close(got: np.ndarray, wanted: np.ndarray, label: str) -> None:
    if got.dtype.name not in TOLERANCE:
        np.testing.assert_array_equal(got, wanted, err_msg=label)
        return
    tolerance = TOLERANCE[got.dtype.name]
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(wanted), wanted, 0).astype(np.float64)), initial=1.0))
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance * scale, err_msg=label
    )


def check_stages(
    kernel: Kernel, seed: int = 0, body: bool = True, native: bool = True, target: Target = HOST
) -> Kernel:
    """Run a fused kernel at every stage and compare; the scheduled kernel."""
    memory = memory_for(kernel, seed)
    wanted = copy(memory)
    run_nests(kernel, wanted)
    core = decompose(kernel, target)
    scheduled = schedule(core, target)
    code = to_instructions(scheduled, target)
    runs: list[tuple[str, Callable[[Memory], None]]] = [("core operations", lambda m: run_nests(core, m))]
    if body:
        runs.append(("loop tree", lambda m: run_body(scheduled, m)))
        runs.append(("instructions", lambda m: run_instructions(code, m)))
    if native:
        compiled = Native(code, target)

        def in_ranges(m: Memory) -> None:
            arrays = [m[b] for b in kernel.outputs + kernel.inputs]
            middle = code.parallel_extent // 2
            compiled(*arrays, begin=middle, end=code.parallel_extent)
            if middle:
                compiled(*arrays, begin=0, end=middle)

        runs.append(("native code", in_ranges))
    for label, run in runs:
        got = copy(memory)
        run(got)
        for b in kernel.outputs:
            assert_close(got[b], wanted[b], f"{label}: {[str(o) for o in scheduled.schedule]}")
        for b in kernel.inputs:
            np.testing.assert_array_equal(got[b], memory[b])
    return scheduled


# -- random kernels --------------------------------------------------------------------------------------------------


@dataclass
class Builder:
    """Draws the parts of a kernel."""

    draw: st.DrawFn
    inputs: list[Buffer]

    def read(self, axes: tuple[Axis, ...], dtype: np.dtype) -> Expr:
        """An input read in one of the ways that fusion makes."""
        how = self.draw(
            st.sampled_from(("plain", "plain", "broadcast", "permuted", "padded", "reversed", "strided", "gathered"))
        )
        index, shape, valid = [axis(a) for a in axes], [a.extent for a in axes], TRUE
        if how == "broadcast" and axes:
            gone = self.draw(st.integers(0, len(axes) - 1))
            del index[gone], shape[gone]
        elif how == "permuted":
            order = self.draw(st.permutations(range(len(axes))))
            index, shape = [index[i] for i in order], [shape[i] for i in order]
        elif how == "padded" and axes:
            place, shift = self.draw(st.integers(0, len(axes) - 1)), self.draw(st.integers(-2, 2))
            length = max(shape[place] - 1, 1)
            moved = operation("add", index[place], index_constant(shift))
            valid = conjunction(
                operation("ge", moved, index_constant(0)), operation("lt", moved, index_constant(length))
            )
            index[place], shape[place] = moved, length
        elif how == "reversed" and axes:
            place = self.draw(st.integers(0, len(axes) - 1))
            index[place] = operation("sub", index_constant(shape[place] - 1), index[place])
        elif how == "strided" and axes:
            place = self.draw(st.integers(0, len(axes) - 1))
            index[place], shape[place] = operation("mul", index[place], index_constant(2)), 2 * shape[place]
        elif how == "gathered" and axes:
            place = self.draw(st.integers(0, len(axes) - 1))
            which = self.input((axes[place].extent,), np.dtype("int32"))
            chosen = load(which, (axis(axes[place]),))
            limit = constant(shape[place] - 1, which.type.dtype)
            index[place] = cast(
                operation("max", operation("min", chosen, limit), constant(0, which.type.dtype)), np.dtype("int64")
            )
        return load(self.input(tuple(shape), dtype), tuple(index), valid)

    def input(self, shape: tuple[int, ...], dtype: np.dtype) -> Buffer:
        self.inputs.append(buffer(f"in{len(self.inputs)}", shape, dtype))
        return self.inputs[-1]

    def value(self, axes: tuple[Axis, ...], dtype: np.dtype, leaves: tuple[Expr, ...] = (), depth: int = 3) -> Expr:
        """A random expression of a type."""
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            if leaves and self.draw(st.booleans()):
                return self.draw(st.sampled_from(leaves))
            return self.read(axes, dtype)
        args = [self.value(axes, dtype, leaves, depth - 1) for _ in range(2)]
        return self.combine(axes, dtype, *args)

    def combine(self, axes: tuple[Axis, ...], dtype: np.dtype, a: Expr, b: Expr) -> Expr:
        if dtype == BOOL:
            op = self.draw(st.sampled_from(("and", "or", "xor", "not", "eq")))
            return operation(op, a) if op == "not" else operation(op, a, b)
        common = ("add", "sub", "mul", "max", "min", "select", "neg")
        floats = ("tanh", "exp", "abs", "sqrt", "floor", "cast")
        integers = ("and", "or", "xor", "integer_div", "integer_rem", "cast")
        integral = dtype.kind in "iu"
        op = self.draw(st.sampled_from((*common, *(integers if integral else floats))))
        if op in ("floor", "cast") and not integral:  # they jump: a last bit may differ between stages before them
            a = self.read(axes, dtype)
        if op == "select":
            return select(operation("lt", a, b), a, self.read(axes, dtype))
        if op == "sqrt":
            return operation("sqrt", operation("abs", a))
        if op == "exp":
            return operation("exp", operation("neg", operation("abs", a)))
        if op == "cast":
            other = np.dtype("float32") if dtype.kind in "iu" else np.dtype("int32")
            return cast(
                operation("add", cast(operation("min", a, constant(50, dtype)), other), constant(1, other)), dtype
            )
        return operation(op, a) if op in ("neg", "tanh", "abs", "floor") else operation(op, a, b)


def axes_strategy(least: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return (
        st.lists(st.sampled_from(EXTENTS), min_size=least, max_size=most)
        .map(tuple)
        .filter(lambda extents: int(np.prod(extents)) <= 700)
    )


DTYPES = st.sampled_from((FLOATS[0], FLOATS[0], FLOATS[0], *FLOATS, *INTEGERS, BOOL))


@st.composite
def map_kernels(draw: st.DrawFn) -> Kernel:
    """One or two elementwise outputs."""
    dtype = draw(DTYPES)
    axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(draw(axes_strategy(0, 3))))
    b = Builder(draw, [])
    outputs = [buffer(f"out{n}", tuple(a.extent for a in axes), dtype) for n in range(draw(st.integers(1, 2)))]
    index = tuple(axis(a) for a in axes)
    nests = tuple(Nest(out, index, (), b.value(axes, dtype)) for out in outputs)
    return Kernel("maps", tuple(outputs), tuple(b.inputs), (), axes, nests)


@st.composite
def reductions(draw: st.DrawFn) -> Kernel:
    """One reduction over some of the axes, in any place."""
    dtype = draw(st.sampled_from((FLOATS[0], FLOATS[0], FLOATS[1], *INTEGERS)))
    combine = draw(st.sampled_from(("add", "max", "min")))
    axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(draw(axes_strategy(1, 3))))
    reduced = draw(st.lists(st.sampled_from(axes), min_size=1, unique=True))
    kept = tuple(a for a in axes if a not in reduced)
    b = Builder(draw, [])
    out = buffer("out0", tuple(a.extent for a in kept), dtype)
    value = b.value(axes, dtype, depth=2)
    nest = Nest(out, tuple(axis(a) for a in kept), kept, value, combine, tuple(a for a in axes if a in reduced))
    return Kernel("reduction", (out,), tuple(b.inputs), (), (), (nest,))


@st.composite
def row_kernels(draw: st.DrawFn) -> Kernel:
    """Outer rows (perhaps running along memory), nests that talk through scratch: softmax and its like."""
    dtype = draw(st.sampled_from((FLOATS[0], FLOATS[0], *FLOATS, INTEGERS[2])))
    extents = draw(axes_strategy(2, 3))
    outer = tuple(Axis(f"o{n}", extent) for n, extent in enumerate(extents[:-1]))
    column_major = draw(st.booleans())
    b = Builder(draw, [])

    def inner() -> Axis:
        return Axis("j", extents[-1])

    def order(a: Axis) -> tuple[Axis, ...]:
        return (a, *outer) if column_major else (*outer, a)

    top, row, total = (
        buffer("s0", (), dtype, "scratch"),
        buffer("s1", (extents[-1],), dtype, "scratch"),
        buffer("s2", (), dtype, "scratch"),
    )
    r0, i0, r1, i1 = inner(), inner(), inner(), inner()
    x = b.read(order(r0), dtype)
    nests = [
        Nest(top, (), (), x, "max", (r0,)),
        Nest(row, (axis(i0),), (i0,), operation("sub", b.value(order(i0), dtype, depth=1), load(top, ()))),
        Nest(total, (), (), load(row, (axis(r1),)), "add", (r1,)),
    ]
    out = buffer("out0", tuple(a.extent for a in order(i1)), dtype)
    value = b.value(order(i1), dtype, (load(row, (axis(i1),)), load(total, ()), load(top, ())), depth=2)
    nests.append(Nest(out, tuple(axis(a) for a in order(i1)), (i1,), value))
    outputs = [out]
    if draw(st.booleans()):
        outputs.append(buffer("out1", tuple(a.extent for a in outer), dtype))
        nests.append(Nest(outputs[-1], tuple(axis(a) for a in outer), (), load(total, ())))
    return Kernel("rows", tuple(outputs), tuple(b.inputs), (top, row, total), outer, tuple(nests))


def renamed(kernel: Kernel, name: str) -> Kernel:
    return replace(kernel, name=name)

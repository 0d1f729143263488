"""Contraction kernels to test with, their meaning in NumPy, and running scheduled kernels between guard pages."""
from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping

import numpy as np

from fungrad.backends.cpu import ENTRY, kernel_module
from fungrad.backends.engine import engine, function
from fungrad.backends.llvm import render
from fungrad.ir.expr import TRUE, Axis, Buffer, Expr, axis, cast, conjunction, index_constant, load, operation
from fungrad.ir.kernel import Kernel, Nest
from fungrad.ir.target import Target
from fungrad.ir.types import array_type
from fungrad.lower.instructions import to_instructions

FLOAT32 = np.dtype("float32")
PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def host() -> Target:
    """The machine that the tests run on, with caches small enough that small shapes are tiled."""
    features = engine().feature_map
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target("cpu", width, 32 if width == 64 else 16, (8 << 10, 32 << 10, 1 << 20), 2, frozenset(), "test")


# ---- kernels --------------------------------------------------------------------------------------------------------

def matmul(m: int, k: int, n: int, *, batch: tuple[int, ...] = (), left_transposed: bool = False,
           right_transposed: bool = False, result_transposed: bool = False, dtype: np.dtype = FLOAT32,
           accumulate: np.dtype | None = None) -> Kernel:
    """target[batch, i, j] = sum of left[batch, i, k] * right[batch, k, j], each perhaps stored transposed."""
    bs = tuple(Axis(f"b{number}", extent) for number, extent in enumerate(batch))
    i, j, r = Axis("i", m), Axis("j", n), Axis("r", k)

    def place(name: str, axes: tuple[Axis, ...], transposed: bool, dtype: np.dtype) -> tuple[Buffer, tuple[Expr, ...]]:
        axes = axes[::-1] if transposed else axes
        shape = tuple(a.extent for a in (*bs, *axes))
        return Buffer(name, array_type(shape, dtype)), tuple(map(axis, (*bs, *axes)))
    left, left_index = place("left", (i, r), left_transposed, dtype)
    right, right_index = place("right", (r, j), right_transposed, dtype)
    wide = accumulate or dtype
    target, index = place("target", (i, j), result_transposed, wide)
    value = operation("mul", cast(load(left, left_index), wide), cast(load(right, right_index), wide))
    nest = Nest(target, index, (), value, "add", (r,))
    return Kernel("matmul", (target,), (left, right), outer=(*bs, i, j), nests=(nest,), kind="contraction")


def _position(place: Axis, tap: Axis, stride: int, dilation: int, pad: int) -> Expr:
    position = operation("add", operation("mul", axis(place), index_constant(stride)),
                         operation("mul", axis(tap), index_constant(dilation)))
    return operation("add", position, index_constant(-pad))


def convolution(images: int, channels: int, features: int, size: tuple[int, int], taps: tuple[int, int], *,
                stride: int = 1, pad: int = 0, dilation: int = 1, flip: bool = False, weights: bool = False) -> Kernel:
    """A convolution of (N, C, H, W) with (O, C, h, w), or its gradient with respect to the weights."""
    results = [(extent + 2 * pad - dilation * (t - 1) - 1) // stride + 1 for extent, t in zip(size, taps, strict=True)]
    n, o, c = Axis("n", images), Axis("o", features), Axis("c", channels)
    places = [Axis(name, extent) for name, extent in zip("yx", results, strict=True)]
    tap_axes = [Axis(name, extent) for name, extent in zip("hw", taps, strict=True)]
    image = Buffer("image", array_type((images, channels, *size), FLOAT32))
    filters = Buffer("filters", array_type((features, channels, *taps), FLOAT32))
    result = Buffer("result", array_type((images, features, *results), FLOAT32))
    positions = [_position(p, t, stride, dilation, pad) for p, t in zip(places, tap_axes, strict=True)]
    valid = TRUE
    if pad:
        for position, extent in zip(positions, size, strict=True):
            valid = conjunction(valid, operation("ge", position, index_constant(0)))
            valid = conjunction(valid, operation("lt", position, index_constant(extent)))
    element = load(image, (axis(n), axis(c), *positions), valid)
    at = tuple(map(axis, (n, o, *places)))
    tap_index = tuple(operation("sub", index_constant(t.extent - 1), axis(t)) if flip else axis(t) for t in tap_axes)
    if weights:
        value = operation("mul", element, load(result, at))
        nest = Nest(filters, (axis(o), axis(c), *tap_index), (), value, "add", (n, *places))
        return Kernel("weights", (filters,), (image, result), outer=(o, c, *tap_axes), nests=(nest,),
                      kind="contraction")
    value = operation("mul", element, load(filters, (axis(o), axis(c), *tap_index)))
    nest = Nest(result, at, (), value, "add", (c, *tap_axes))
    return Kernel("convolution", (result,), (image, filters), outer=(n, o, *places), nests=(nest,), kind="contraction")


# ---- meaning --------------------------------------------------------------------------------------------------------

_OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.floor_divide, "rem": np.remainder,
               "ge": np.greater_equal, "lt": np.less, "gt": np.greater, "eq": np.equal, "and": np.logical_and,
               "max": np.maximum, "select": np.where, "neg": np.negative}


def evaluate(e: Expr, axes: Mapping[Axis, np.ndarray], arrays: Mapping[Buffer, np.ndarray]) -> np.ndarray:
    """An expression for all values of its axes at once."""
    if e.op == "constant":
        return np.asarray(e.attribute.value)
    if e.op == "axis":
        return axes[e.attribute]
    operands = [evaluate(operand, axes, arrays) for operand in e.operands]
    if e.op == "load":
        array = arrays[e.attribute]
        if e.attribute.scope == "scratch":   # its value at every point of the outer axes
            return array
        index = tuple(np.clip(i, 0, extent - 1) for i, extent in zip(operands[:-1], array.shape, strict=True))
        return np.where(operands[-1], array[index], 0)
    return operands[0].astype(e.dtype) if e.op == "cast" else _OPERATIONS[e.op](*operands)


def meaning(kernel: Kernel, arrays: Mapping[Buffer, np.ndarray]) -> dict[Buffer, np.ndarray]:
    """What a fused kernel computes, sums in float64 (integers: wrapped)."""
    results = dict(arrays)
    for nest in kernel.nests:
        axes = (*kernel.outer, *nest.axes)
        if nest.reduce_axes:
            value = _product_sum(nest, _grid((*axes, *nest.reduce_axes)), len(axes), results)
        else:
            value = evaluate(nest.value, _grid(axes), results)
        value = np.broadcast_to(value, [a.extent for a in axes]).astype(nest.value.dtype)
        if nest.target.scope == "scratch":   # one element, private to a point of the outer axes
            results[nest.target] = value
            continue
        full = np.zeros(nest.target.type.shape, nest.target.type.dtype)
        full[tuple(evaluate(i, _grid(axes), results) for i in nest.index)] = value
        results[nest.target] = full
    return {buffer: results[buffer] for buffer in kernel.outputs}


def _grid(axes: tuple[Axis, ...]) -> dict[Axis, np.ndarray]:
    return dict(zip(axes, np.meshgrid(*[np.arange(a.extent) for a in axes], indexing="ij", sparse=True), strict=True))


def _product_sum(nest: Nest, at: Mapping[Axis, np.ndarray], rank: int,
                 arrays: Mapping[Buffer, np.ndarray]) -> np.ndarray:
    wide = np.dtype("float64") if nest.value.dtype.kind == "f" else nest.value.dtype
    letters = [chr(ord("a") + number) for number in range(len(at))]
    names, factors = [], []
    for operand in nest.value.operands:
        factor = evaluate(operand, at, arrays).astype(wide)
        names.append("".join(letter for letter, extent in zip(letters, factor.shape, strict=True) if extent > 1))
        factors.append(np.squeeze(factor))
    kept = [number for number, a in enumerate(at) if number < rank and a.extent > 1]
    total = np.einsum(f"{names[0]},{names[1]}->{''.join(letters[number] for number in kept)}", *factors)
    return total.reshape([a.extent for a in list(at)[:rank]])


# ---- running --------------------------------------------------------------------------------------------------------

class Guarded:
    """Memory for an array that ends (or starts) at a page which may not be touched."""

    def __init__(self, array: np.ndarray, at_end: bool):
        pages = -(-max(array.nbytes, 1) // PAGE)
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for page in (base, base + (pages + 1) * PAGE):
            assert _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
        start = PAGE + (pages * PAGE - array.nbytes if at_end else 0)
        self.address = base + start
        flat = np.frombuffer(self.memory, np.uint8, array.nbytes, start)
        self.array = flat.view(array.dtype).reshape(array.shape)
        self.array[...] = array


def run(scheduled: Kernel, arrays: Mapping[Buffer, np.ndarray], target: Target, *, pieces: int = 1,
        at_end: bool = True) -> dict[Buffer, np.ndarray]:
    """Compile and run a scheduled kernel, its parallel axis in `pieces` parts with scratch of their own, last first."""
    code = to_instructions(scheduled, target)
    native = engine().load(engine().emit(kernel_module(render(code, target), code)), (ENTRY,))
    call = function(native.addresses[ENTRY], ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    memory = {buffer: Guarded(arrays[buffer] if buffer in arrays else np.full(buffer.type.shape, 77).astype(
        buffer.type.dtype), at_end) for buffer in code.parameters}
    table = (ctypes.c_void_p * len(code.parameters))(*[memory[buffer].address for buffer in code.parameters])
    bounds = np.linspace(0, code.parallel_extent, pieces + 1).astype(int)
    for begin, end in list(zip(bounds, bounds[1:], strict=False))[::-1]:
        scratch = np.full(code.scratch_bytes + 64, 0xFF, np.uint8)   # NaN
        address = scratch.ctypes.data
        call(ctypes.addressof(table), address + (-address) % 64, int(begin), int(end))
    return {buffer: memory[buffer].array.copy() for buffer in scheduled.outputs}

"""Contractions are sums of products, whatever the shapes, layouts, types and tilings, and touch no foreign memory."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.errors import CompilationError
from fungrad.ir.check import check_fused
from fungrad.ir.expr import Axis, Buffer, Expr, axis, cast, constant, load, operation, substitute
from fungrad.ir.interpret import interpret
from fungrad.ir.kernel import Kernel, Nest, Opt
from fungrad.ir.types import array_type
from fungrad.lower.contraction import apply, schedule_contraction
from fungrad.lower.contraction_analysis import analyse
from fungrad.lower.contraction_split import split_long_contractions
from fungrad.lower.contraction_tiling import Split, Tiling, from_opts
from fungrad.lower.fuse import fuse
from fungrad.lower.simplify import simplify
from fungrad.ops import contract, elementwise, linear
from tests.lower.contraction_kernels import FLOAT32, convolution, host, matmul, meaning, run
from tests.lower.fused_interpreter import run_fused
from tests.lower.programs import assert_same, random_arrays, traced

TARGET = host()
LANES = TARGET.vector_bytes // 4


def arrays_for(kernel: Kernel, seed: int = 0) -> dict[Buffer, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {buffer: rng.integers(-9, 9, buffer.type.shape).astype(buffer.type.dtype) if buffer.type.dtype.kind in "iu"
            else rng.standard_normal(buffer.type.shape).astype(buffer.type.dtype) for buffer in kernel.inputs}


def check(kernel: Kernel, opts: tuple[Opt, ...] | None = None, tolerance: float = 1e-5, pieces: int = 1,
          at_end: bool = True) -> Kernel:
    """Schedule a kernel, run it, and compare it with its meaning."""
    scheduled = schedule_contraction(kernel, TARGET) if opts is None else apply(kernel, opts)
    arrays = arrays_for(kernel)
    got, wanted = run(scheduled, arrays, TARGET, pieces=pieces, at_end=at_end), meaning(kernel, arrays)
    for buffer in kernel.outputs:
        scale = max(np.abs(wanted[buffer].astype("float64")).max(initial=0), 1)
        np.testing.assert_allclose(got[buffer].astype("float64"), wanted[buffer].astype("float64"),
                                   atol=tolerance * scale, rtol=0)
    return scheduled


extents = st.one_of(st.sampled_from([1, 2, 15, 16, 17, 32, 48, 64]), st.integers(1, 70))


@settings(max_examples=40, deadline=None)
@given(m=extents, k=extents, n=extents, transposed=st.tuples(*[st.booleans()] * 3),
       batch=st.sampled_from([(), (2,), (3, 2)]), pieces=st.integers(1, 3), at_end=st.booleans())
def test_matrix_products(m, k, n, transposed, batch, pieces, at_end):
    left, right, result = transposed
    check(matmul(m, k, n, batch=batch, left_transposed=left, right_transposed=right, result_transposed=result),
          pieces=pieces, at_end=at_end)


@pytest.mark.parametrize("dtype, accumulate", [("float64", None), ("int32", None), ("int8", "int32"), ("uint8", None),
                                               ("float16", "float32"), ("int64", None)])
def test_element_types(dtype, accumulate):
    kernel = matmul(13, 21, 37, dtype=np.dtype(dtype), accumulate=np.dtype(accumulate) if accumulate else None)
    check(kernel, tolerance=1e-5 if dtype != "float64" else 1e-13)


@pytest.mark.parametrize("shape", [(3, 0, 40), (0, 3, 4), (3, 4, 0)])
def test_no_elements(shape):
    kernel = matmul(*shape)
    arrays = arrays_for(kernel)
    got = run(schedule_contraction(kernel, TARGET), arrays, TARGET)[kernel.outputs[0]]
    assert got.shape == (shape[0], shape[2]) and not got.any()


@pytest.mark.parametrize("shape", [(200, 300, 130), (33, 700, 90), (130, 5, 260), (1, 64, 300), (300, 64, 1),
                                   (3, 512, 256)])
def test_several_blocks(shape):
    for left in (False, True):
        check(matmul(*shape, left_transposed=left, right_transposed=not left), pieces=2)


geometry = st.fixed_dictionaries({
    "images": st.integers(1, 3), "channels": st.integers(1, 5), "features": st.integers(1, 20),
    "size": st.tuples(st.integers(7, 20), st.integers(7, 20)), "taps": st.tuples(st.integers(1, 4), st.integers(1, 4)),
    "stride": st.integers(1, 3), "pad": st.integers(0, 2), "dilation": st.integers(1, 2), "flip": st.booleans(),
    "weights": st.booleans()})


@settings(max_examples=40, deadline=None)
@given(geometry, st.integers(1, 2), st.booleans())
def test_convolutions(shape, pieces, at_end):
    check(convolution(**shape), pieces=pieces, at_end=at_end)


@st.composite
def tilings(draw, kernel: Kernel, stages: tuple[str, ...] = ("direct", "panel")) -> tuple[Opt, ...]:
    swap = draw(st.booleans())
    c = analyse(kernel)
    c = c.swapped() if swap else c

    def split(axes):
        if not axes:
            return Split()
        position = draw(st.integers(0, len(axes) - 1))
        return Split(position, draw(st.integers(1, axes[position].extent)))
    rows, vectors = draw(st.sampled_from([(1, 1), (2, 3), (4, 2), (5, 1), (3, 4)]))
    lanes = draw(st.sampled_from([LANES, LANES // 2]))
    return Tiling(split(c.m), split(c.n), split(c.k), lanes, rows, vectors, draw(st.sampled_from(stages)),
                  draw(st.sampled_from(stages)), swap, *(draw(st.integers(1, 3)) for _ in range(3))).opts()


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_any_tiling_of_a_product(data, m, k, n):
    kernel = matmul(m, k, n, left_transposed=data.draw(st.booleans()), right_transposed=data.draw(st.booleans()),
                    batch=data.draw(st.sampled_from([(), (2,)])))
    check(kernel, data.draw(tilings(kernel)), pieces=data.draw(st.integers(1, 2)))


@settings(max_examples=40, deadline=None)
@given(st.data(), geometry)
def test_any_tiling_of_a_convolution(data, shape):
    kernel = convolution(**shape)
    opts = data.draw(tilings(kernel, ("panel", "window")))
    try:
        apply(kernel, opts)
    except CompilationError:   # an operand without a window, or a window cut across its phases
        return
    check(kernel, opts)


def test_opts_are_replayed():
    kernel = matmul(64, 48, 80)
    scheduled = schedule_contraction(kernel, TARGET)
    assert apply(kernel, scheduled.schedule).schedule == scheduled.schedule
    assert from_opts(scheduled.schedule).opts() == scheduled.schedule
    with pytest.raises(CompilationError, match="no fold"):
        apply(kernel, (Opt("fold", ("m", 3)),))


def test_same_bits_for_any_tiles_and_threads():
    kernel, arrays = matmul(70, 300, 90), None
    results = []
    for m, n, pieces in ((70, 90, 1), (16, 32, 3), (8, 90, 2)):
        opts = Tiling(Split(0, m), Split(0, n), Split(0, 128), LANES, 4, 2).opts()
        arrays = arrays or arrays_for(kernel)
        results.append(run(apply(kernel, opts), arrays, TARGET, pieces=pieces)[kernel.outputs[0]])
    assert all(np.array_equal(results[0], other) for other in results[1:])


# ---- epilogues and prologues ----------------------------------------------------------------------------------------

def with_epilogue(kernel: Kernel, *, keep_sum: bool) -> Kernel:
    """A kernel followed by relu(sum + bias) and (that) + residual."""
    first = kernel.nests[0]
    target, outer = first.target, kernel.outer
    index = first.index
    total = target if keep_sum else Buffer("total", array_type((), target.type.dtype), "scratch")
    at = index if keep_sum else ()
    bias = Buffer("bias", array_type(target.type.shape[-1:], target.type.dtype))
    residual, out, both = (Buffer(name, target.type) for name in ("residual", "activation", "both"))
    shifted = operation("add", load(total, at), load(bias, index[-1:]))
    relu = operation("max", shifted, constant(0, target.type.dtype))
    nests = (replace(first, target=total, index=at), Nest(out, index, (), relu),
             Nest(both, index, (), operation("add", load(out, index), load(residual, index))))
    outputs = (total, out, both) if keep_sum else (out, both)
    scratch = () if keep_sum else (total,)
    return replace(kernel, nests=nests, inputs=(*kernel.inputs, bias, residual), outputs=outputs, scratch=scratch,
                   outer=outer)


@pytest.mark.parametrize("keep_sum", [True, False])
@pytest.mark.parametrize("shape", [(20, 30, 50), (65, 700, 33)])
def test_epilogue(keep_sum, shape):
    check(with_epilogue(matmul(*shape), keep_sum=keep_sum))
    check(with_epilogue(matmul(*shape, result_transposed=True), keep_sum=keep_sum))


def test_epilogue_of_a_convolution():
    check(with_epilogue(convolution(2, 3, 20, (9, 12), (3, 3), pad=1), keep_sum=False))


def test_epilogue_over_axes_of_its_own():
    kernel = matmul(9, 20, 40)
    i, j = Axis("p", 9), Axis("q", 40)
    out, scratch = Buffer("out", array_type((9, 40), FLOAT32)), Buffer("s", array_type((9, 40), FLOAT32), "scratch")
    doubled = operation("add", load(scratch, (axis(i), axis(j))), load(scratch, (axis(i), axis(j))))
    nests = (replace(kernel.nests[0], target=scratch, axes=kernel.outer),
             Nest(out, (axis(i), axis(j)), (i, j), doubled))
    fused = replace(kernel, outer=(), nests=nests, outputs=(out,), scratch=(scratch,))
    arrays = arrays_for(fused)
    got = run(schedule_contraction(fused, TARGET), arrays, TARGET)[out]
    left, right = (arrays[b].astype("float64") for b in kernel.inputs)
    np.testing.assert_allclose(got, 2 * left @ right, atol=1e-4)


def test_prologue():
    """Elementwise work on an operand happens while it is packed."""
    kernel = matmul(30, 40, 50)
    nest = kernel.nests[0]

    def relu(e: Expr) -> Expr | None:
        return operation("max", e, constant(0, FLOAT32)) if e.op == "load" else None
    check(replace(kernel, nests=(replace(nest, value=substitute(nest.value, relu)),)))


def test_padded_reads_under_a_select():
    """Where padding is a select around the read, as the primitive's rule writes it."""
    kernel = convolution(2, 3, 8, (9, 9), (3, 3), pad=1)
    nest = kernel.nests[0]
    image, filters = nest.value.operands
    padded = operation("select", image.operands[-1], image, constant(0, FLOAT32))
    check(replace(kernel, nests=(replace(nest, value=operation("mul", padded, filters)),)))


def test_sixteen_bit_result():
    kernel = matmul(20, 30, 40, dtype=np.dtype("float16"), accumulate=FLOAT32)
    total = Buffer("total", array_type((), FLOAT32), "scratch")
    out = Buffer("out", array_type((20, 40), np.dtype("float16")))
    index = kernel.nests[0].index
    rounded = cast(load(total, ()), out.type.dtype)
    nests = (replace(kernel.nests[0], target=total, index=()), Nest(out, index, (), rounded))
    check(replace(kernel, nests=nests, outputs=(out,), scratch=(total,)), tolerance=2e-3)


def test_what_is_refused():
    kernel = matmul(4, 5, 6)
    total = operation("add", *kernel.nests[0].value.operands)
    with pytest.raises(CompilationError, match="not a sum of products"):
        schedule_contraction(replace(kernel, nests=(replace(kernel.nests[0], value=total),)), TARGET)
    other = load(kernel.outputs[0], kernel.nests[0].index[::-1])
    square = matmul(5, 5, 5)
    other = load(square.outputs[0], square.nests[0].index[::-1])
    out = Buffer("out", square.outputs[0].type)
    epilogue = Nest(out, square.nests[0].index, (), other)
    with pytest.raises(CompilationError, match="another element"):
        schedule_contraction(replace(square, nests=(*square.nests, epilogue), outputs=(*square.outputs, out)), TARGET)


# ---- long sums ------------------------------------------------------------------------------------------------------

def bilinear(x, g, bias):
    product = contract.dot_general(g, x, (((0,), (0,)), ((), ())))
    return [elementwise.add(product, linear.broadcast(bias, product.shape, (1,)))]


@pytest.mark.parametrize("steps, chunks, size", [(4096, 8, 512), (4099, 8, 513)])
def test_long_sums_are_split(steps, chunks, size):
    program = traced(bilinear, (steps, 24), (steps, 32), (24,))
    fused = split_long_contractions(fuse(simplify(program, TARGET), TARGET), TARGET)
    check_fused(fused)
    partial, added = (launch.kernel for launch in fused.launches)
    assert [a.extent for a in partial.outer] == [chunks, 32, 24]
    assert [a.extent for a in partial.nests[0].reduce_axes] == [size]
    assert added.kind == "nests" and added.nests[0].reduce_axes[0].extent == chunks
    arrays = random_arrays(program.input_types)
    wanted = interpret(program, arrays)
    assert_same(run_fused(fused, arrays), wanted, rtol=2e-3)
    x, g, _ = arrays
    inputs = dict(zip(partial.inputs, _as_read(partial, x, g), strict=True))
    got = run(schedule_contraction(partial, TARGET), inputs, TARGET)
    np.testing.assert_allclose(got[partial.outputs[0]].sum(0), g.T.astype("float64") @ x, atol=1e-2)


def _as_read(kernel: Kernel, *arrays: np.ndarray) -> list[np.ndarray]:
    by_shape = {array.shape: array for array in arrays}
    return [by_shape[buffer.type.shape] for buffer in kernel.inputs]


def test_sums_with_many_results_are_left_whole():
    program = traced(lambda a, b: [contract.dot_general(a, b, (((1,), (0,)), ((), ())))], (512, 2048), (2048, 512))
    fused = fuse(simplify(program, TARGET), TARGET)
    assert split_long_contractions(fused, TARGET) is fused

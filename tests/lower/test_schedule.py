"""Schedules: every stage from nests to machine code computes the same, for random kernels and for chosen Opts."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fungrad.ir.expr import Axis, axis, index_constant, load, operation
from fungrad.ir.interpret_kernel import run_fused
from fungrad.ir.kernel import Fused, If, Kernel, Launch, Loop, Nest, Opt, Statement, Store
from fungrad.lower.decompose import decompose
from fungrad.lower.instructions import to_instructions
from fungrad.lower.plan import ScheduleError
from fungrad.lower.schedule import schedule
from fungrad.lower.split import LONG, split_reductions
from tests.backends.native import HOST, Native
from tests.lower.kernels import (
    assert_close,
    buffer,
    check_stages,
    map_kernels,
    memory_for,
    reductions,
    row_kernels,
    small_blocks,
)

FLOAT32 = np.dtype("float32")


@settings(max_examples=40)
@given(map_kernels(), st.booleans())
def test_maps(kernel: Kernel, small: bool) -> None:
    if not small:
        check_stages(kernel)
        return
    with small_blocks():
        check_stages(kernel)


@settings(max_examples=40)
@given(reductions(), st.booleans())
def test_reductions(kernel: Kernel, small: bool) -> None:
    if not small:
        check_stages(kernel)
        return
    with small_blocks():
        check_stages(kernel)


@settings(max_examples=30)
@given(row_kernels(), st.booleans())
def test_rows(kernel: Kernel, small: bool) -> None:
    if not small:
        check_stages(kernel)
        return
    with small_blocks():
        check_stages(kernel)


@pytest.mark.parametrize("vector_bytes", [16, 32])
@settings(max_examples=15)
@given(kernel=st.one_of(map_kernels(), reductions(), row_kernels()))
def test_narrower_vectors(vector_bytes: int, kernel: Kernel) -> None:
    with small_blocks():
        check_stages(kernel, target=replace(HOST, vector_bytes=vector_bytes, vector_registers=16))


def as_fused(kernel: Kernel) -> Fused:
    count = len(kernel.outputs) + len(kernel.inputs)
    return Fused((Launch(kernel, tuple(range(count))),), tuple(b.type for b in kernel.outputs + kernel.inputs),
                 tuple(range(len(kernel.outputs), count)), tuple(range(len(kernel.outputs))))


@settings(max_examples=40)
@given(st.one_of(reductions(), row_kernels()))
def test_split(kernel: Kernel) -> None:
    memory = memory_for(kernel)
    inputs = [memory[b] for b in kernel.inputs]
    with small_blocks():
        whole = as_fused(kernel)
        parts = split_reductions(whole, HOST)
        for got, wanted in zip(run_fused(parts, inputs), run_fused(whole, inputs), strict=True):
            assert_close(got, wanted, str(len(parts.launches)))
        for launch in parts.launches:
            check_stages(launch.kernel, body=False)


def sum_kernel(rows: int, columns: int, over: str) -> Kernel:
    i, j = Axis("i", rows), Axis("j", columns)
    kept, reduced = {"rows": ((j,), (i,)), "columns": ((i,), (j,)), "both": ((), (i, j))}[over]
    x, out = buffer("x", (rows, columns), FLOAT32), buffer("out", tuple(a.extent for a in kept), FLOAT32)
    return Kernel("total", (out,), (x,), nests=(
        Nest(out, tuple(axis(a) for a in kept), kept, load(x, (axis(i), axis(j))), "add", reduced),))


def transpose_kernel(rows: int, columns: int) -> Kernel:
    i, j = Axis("i", rows), Axis("j", columns)
    x, out = buffer("x", (rows, columns), FLOAT32), buffer("out", (columns, rows), FLOAT32)
    return Kernel(
        "transpose", (out,), (x,), nests=(Nest(out, (axis(j), axis(i)), (j, i), load(x, (axis(i), axis(j)))),)
    )


def loops(body: tuple[Statement, ...]) -> list[Loop]:
    found: list[Loop] = []
    for s in body:
        if not isinstance(s, Store):
            found += ([s] if isinstance(s, Loop) else []) + loops(s.body)
    return found


@pytest.mark.parametrize("over", ["rows", "columns", "both"])
@pytest.mark.parametrize("shape", [(300, 500), (1000, 64), (4000, 17), (70000, 3)])
def test_large_sums(shape: tuple[int, int], over: str) -> None:
    kernel = sum_kernel(*shape, over)
    parts = split_reductions(as_fused(kernel), HOST)
    for launch in parts.launches:
        scheduled = check_stages(launch.kernel, body=False)
        parallel = [loop for loop in loops(scheduled.body or ()) if loop.kind == "parallel"]
        assert len(parallel) <= 1 and all(loop is scheduled.body[0] for loop in parallel if scheduled.body)
    if over != "columns":
        assert len(parts.launches) == 1 + (shape[0] * shape[1] >= LONG)


@pytest.mark.parametrize("shape", [(64, 64), (256, 512), (100, 70), (33, 1000), (1000, 33), (16, 16), (5, 200)])
def test_transposes(shape: tuple[int, int]) -> None:
    check_stages(transpose_kernel(*shape), body=False)


def test_flat_elementwise_is_one_loop() -> None:
    """Equal layouts: one parallel loop over blocks of one flat axis, one vector loop inside."""
    i, j, k = Axis("i", 8), Axis("j", 64), Axis("k", 128)
    index = (axis(i), axis(j), axis(k))
    x, y, out = (buffer(name, (8, 64, 128), FLOAT32) for name in ("x", "y", "out"))
    kernel = Kernel(
        "flat", (out,), (x, y), (), (i, j, k), (Nest(out, index, (), operation("add", load(x, index), load(y, index))),)
    )
    scheduled = check_stages(kernel, body=False)
    (outermost,) = scheduled.body or ()
    assert isinstance(outermost, Loop) and outermost.kind == "parallel"
    kinds = [loop.kind for loop in loops(scheduled.body or ())]
    assert kinds == ["parallel", "serial", "vector"]


def test_opts_are_replayed() -> None:
    kernel = sum_kernel(40, 48, "columns")
    opts = (Opt("absorb"), Opt("vectorize", (0, "j", 8)), Opt("unroll", (0, 2)), Opt("parallel", (0, 7)))
    scheduled = schedule(kernel, HOST, opts)
    assert scheduled.schedule == opts
    assert schedule(kernel, HOST, schedule(kernel, HOST).schedule).schedule == schedule(kernel, HOST).schedule


@pytest.mark.parametrize(
    "opt",
    [
        Opt("vectorize", (0, "q", 8)),
        Opt("vectorize", (0, "j", 3)),
        Opt("split", (0,)),
        Opt("merge", (0,)),
        Opt("tile", (0, "i", 8)),
        Opt("fuse", (0, "j", "i")),
        Opt("unroll", (3, 2)),
    ],
)
def test_opts_that_do_not_apply(opt: Opt) -> None:
    with pytest.raises(ScheduleError):
        schedule(sum_kernel(40, 48, "columns"), HOST, (opt,))


def test_reductions_do_not_depend_on_the_range() -> None:
    """A row's sum has the same bits wherever the parallel axis is cut."""
    code = to_instructions(schedule(decompose(sum_kernel(400, 1000, "columns"), HOST), HOST), HOST)
    native, x = Native(code), np.random.default_rng(0).standard_normal((400, 1000)).astype(FLOAT32)
    whole, parts = np.zeros(400, FLOAT32), np.zeros(400, FLOAT32)
    native(whole, x)
    for begin in range(code.parallel_extent):
        native(parts, x, begin=begin, end=begin + 1)
    np.testing.assert_array_equal(whole, parts)


def test_loops_of_an_op_run_in_parallel_over_their_outer_axes() -> None:
    i, j, k = Axis("i", 3), Axis("j", 1), Axis("k", 5)
    x, out = buffer("x", (3, 5), FLOAT32), buffer("out", (3, 5), FLOAT32)
    first = Store(out, (axis(i), index_constant(0)), load(x, (axis(i), axis(j))))
    n = Axis("n", 4)
    following = operation("add", axis(n), index_constant(1))
    rest = Loop(
        n,
        (
            Store(
                out,
                (axis(i), following),
                operation("add", load(out, (axis(i), axis(n))), load(x, (axis(i), following))),
            ),
        ),
    )
    kernel = Kernel(
        "running",
        (out,),
        (x,),
        (),
        (i, j, k),
        body=(If(operation("eq", axis(k), index_constant(0)), (first, rest)),),
        kind="loops",
    )
    scheduled = schedule(kernel, HOST)
    assert (
        isinstance(scheduled.body, tuple)
        and scheduled.body[0].kind == "parallel"
        and scheduled.body[0].axis.extent == 15
    )

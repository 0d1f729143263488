"""Instruction lists: what is emitted where, how accesses are classified, and that statements of every kind run
right.
"""
from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fungrad.errors import CompilationError
from fungrad.ir.expr import Axis, Buffer, Expr, axis, constant, index_constant, load, operation, rare
from fungrad.ir.instructions import InstructionList
from fungrad.ir.interpret_instructions import run_instructions
from fungrad.ir.interpret_kernel import run_body
from fungrad.ir.kernel import If, Kernel, Loop, Statement, Store, While
from fungrad.lower.instructions import to_instructions
from tests.backends.native import HOST, Native
from tests.lower.kernels import assert_close, buffer, copy, memory_for

FLOAT32, INT64, INT32 = np.dtype("float32"), np.dtype("int64"), np.dtype("int32")


def plus(a: Expr, b: Expr | int) -> Expr:
    return operation("add", a, b if isinstance(b, Expr) else index_constant(b))


def times(a: Expr, b: int) -> Expr:
    return operation("mul", a, index_constant(b))


def number(value: float) -> Expr:
    return constant(value, FLOAT32)


def kernel_of(body: tuple[Statement, ...], outputs: tuple[Buffer, ...], inputs: tuple[Buffer, ...] = (),
              scratch: tuple[Buffer, ...] = ()) -> Kernel:
    return Kernel("k", outputs, inputs, scratch, body=body, kind="loops")


def check(kernel: Kernel) -> InstructionList:
    """Loop tree, instruction list and machine code agree."""
    memory = memory_for(kernel)
    wanted, listed, native = copy(memory), copy(memory), copy(memory)
    run_body(kernel, wanted)
    code = to_instructions(kernel, HOST)
    run_instructions(code, listed)
    Native(code)(*[native[b] for b in kernel.outputs + kernel.inputs])
    for b in kernel.outputs:
        assert_close(listed[b], wanted[b], "instructions")
        assert_close(native[b], wanted[b], "native code")
    return code


def count(code: InstructionList) -> Counter[str]:
    return Counter(i.op for i in code.instructions)


def depth_of(code: InstructionList, op: str) -> list[int]:
    """How many loops and branches are open at each instruction of a kind."""
    depth, found = 0, []
    for i in code.instructions:
        if i.op == op:
            found.append(depth)
        depth += (i.op in ("loop", "while", "if")) - (i.op in ("end_loop", "end_if"))
    return found


def test_what_does_not_change_leaves_the_loop_and_is_shared() -> None:
    x, y, out = buffer("x", (8, 32), FLOAT32), buffer("y", (8,), FLOAT32), buffer("out", (8, 32), FLOAT32)
    i, j = Axis("i", 8), Axis("j", 32)
    scale = operation("sqrt", operation("abs", load(y, (axis(i),))))
    value = operation("add", operation("mul", load(x, (axis(i), axis(j))), scale), scale)
    code = check(kernel_of((Loop(i, (Loop(j, (Store(out, (axis(i), axis(j)), value),)),)),), (out,), (x, y)))
    assert depth_of(code, "sqrt") == [1]
    assert count(code)["load"] == 2 and depth_of(code, "load") == [1, 2]


@pytest.mark.parametrize(("coefficient", "op", "lanes"),
                         [(0, "load", 1), (1, "load", 16), (5, "gather", 16)])
def test_reads_are_classified(coefficient: int, op: str, lanes: int) -> None:
    x, out = buffer("x", (100,), FLOAT32), buffer("out", (16,), FLOAT32)
    v = Axis("v", 16)
    code = check(kernel_of((Loop(v, (Store(out, (axis(v),), load(x, (plus(times(axis(v), coefficient), 20),))),),
                                 "vector"),),
                           (out,), (x,)))
    (read,) = [i for i in code.instructions if i.op in ("load", "gather")]
    assert (read.op, read.lanes) == (op, lanes)
    assert count(code)["store"] == 1


@pytest.mark.parametrize("extent", [2, 3, 16, 13])
def test_vector_loops_of_any_length(extent: int) -> None:
    x, out = buffer("x", (extent,), FLOAT32), buffer("out", (extent,), FLOAT32)
    v = Axis("v", extent)
    code = check(kernel_of((Loop(v, (Store(out, (axis(v),), operation("neg", load(x, (axis(v),)))),), "vector"),),
                           (out,), (x,)))
    (read,) = [i for i in code.instructions if i.op == "load"]
    assert read.lanes == 1 << (extent - 1).bit_length()
    assert len(read.operands) == (2 if extent == read.lanes else 3)


def test_an_if_over_lanes_is_a_mask() -> None:
    x, out = buffer("x", (40,), FLOAT32), buffer("out", (40,), FLOAT32)
    c, v = Axis("c", 3), Axis("v", 16)
    position = plus(times(axis(c), 16), axis(v))
    guarded = If(operation("lt", position, index_constant(40)), (Store(out, (position,), load(x, (position,))),))
    code = check(kernel_of((Loop(c, (Loop(v, (guarded,), "vector"),)),), (out,), (x,)))
    assert count(code)["if"] == 0
    assert all(len(i.operands) == 3 for i in code.instructions if i.op == "load")


def test_a_uniform_if_is_a_branch_that_loads_do_not_leave() -> None:
    x, out = buffer("x", (4,), FLOAT32), buffer("out", (8,), FLOAT32)
    i = Axis("i", 8)
    inside = If(operation("lt", axis(i), index_constant(4)), (Store(out, (axis(i),), load(x, (axis(i),))),))
    code = check(kernel_of((Loop(i, (Store(out, (axis(i),), number(0)), inside)),), (out,), (x,)))
    assert depth_of(code, "load") == [2]


def test_loads_stay_behind_stores_to_their_buffer() -> None:
    """A running sum in memory: every round reads what the last one wrote."""
    x, out = buffer("x", (10,), FLOAT32), buffer("out", (10,), FLOAT32)
    i = Axis("i", 9)
    before, here = load(out, (axis(i),)), plus(axis(i), 1)
    body = (Store(out, (index_constant(0),), load(x, (index_constant(0),))),
            Loop(i, (Store(out, (here,), operation("add", before, load(x, (here,)))),)),
            Store(out, (index_constant(0),), load(out, (index_constant(9),))))
    check(kernel_of(body, (out,), (x,)))


def test_folds_and_scatters() -> None:
    """Lanes that meet one element are folded; those that may are combined one after another."""
    x, total, bins = buffer("x", (64,), FLOAT32), buffer("total", (1,), FLOAT32), buffer("bins", (5,), FLOAT32)
    which = buffer("which", (64,), INT32)
    z, c, v, w = Axis("z", 5), Axis("c", 4), Axis("v", 16), Axis("w", 16)
    at, wat = plus(times(axis(c), 16), axis(v)), plus(times(axis(c), 16), axis(w))
    place = operation("rem", operation("cast", load(which, (wat,)), dtype=INT64), index_constant(5))
    body = (Store(total, (index_constant(0),), number(0)), Loop(z, (Store(bins, (axis(z),), number(0)),)),
            Loop(c, (Loop(v, (Store(total, (index_constant(0),), load(x, (at,)), "add"),), "vector"),
                     Loop(w, (Store(bins, (place,), load(x, (wat,)), "add"),), "vector"))))
    code = check(kernel_of(body, (total, bins), (x, which)))
    assert count(code)["fold"] == 1 and count(code)["scatter"] == 0


def test_strided_stores_scatter() -> None:
    x, out = buffer("x", (16,), FLOAT32), buffer("out", (48,), FLOAT32)
    z, v = Axis("z", 48), Axis("v", 16)
    body = (Loop(z, (Store(out, (axis(z),), number(1)),)),
            Loop(v, (Store(out, (times(axis(v), 3),), load(x, (axis(v),)), "add"),), "vector"))
    assert count(check(kernel_of(body, (out,), (x,))))["scatter"] == 1


@pytest.mark.parametrize("combine", ["add", "max", "min", "mul"])
def test_registers(combine: str) -> None:
    """Accumulators in registers, folded at the end, with a masked last vector."""
    x, out = buffer("x", (75,), FLOAT32), buffer("out", (1,), FLOAT32)
    sums, total = buffer("sums", (2, 16), FLOAT32, "register"), buffer("total", (), FLOAT32, "register")
    u, v, c, w, t, f, g = (Axis(n, e) for n,
                           e in (("u", 2), ("v", 16), ("c", 2), ("w", 16), ("t", 16), ("f", 16), ("g", 16)))
    start = {"add": 0.0, "mul": 1.0, "max": -1e30, "min": 1e30}[combine]
    at = plus(plus(times(axis(c), 32), times(axis(u), 16)), axis(w))
    tail = If(operation("lt", axis(t), index_constant(11)),
              (Store(sums, (index_constant(0), axis(t)), load(x, (plus(axis(t), 64),)), combine),))
    body = (Loop(u, (Loop(v, (Store(sums, (axis(u), axis(v)), number(start)),), "vector"),), "unroll"),
            Loop(c,
                 (Loop(u, (Loop(w, (Store(sums, (axis(u), axis(w)), load(x, (at,)), combine),), "vector"),),
                       "unroll"),)),
            Loop(t, (tail,), "vector"),
            Loop(f, (Store(sums, (index_constant(0), axis(f)), load(sums, (index_constant(1), axis(f))), combine),),
                 "vector"),
            Store(total, (), number(start)),
            Loop(g, (Store(total, (), load(sums, (index_constant(0), axis(g))), combine),), "vector"),
            Store(out, (index_constant(0),),
                  operation("add", load(total, ()), load(sums, (index_constant(0), index_constant(3))))))
    code = check(kernel_of(body, (out,), (x,), (sums, total)))
    assert not code.scratch and code.scratch_bytes == 0


def test_while() -> None:
    """Binary search, once for every element."""
    table, x, out = buffer("table", (50,), FLOAT32), buffer("x", (20,), FLOAT32), buffer("out", (20,), INT64)
    low, high = buffer("low", (), INT64, "register"), buffer("high", (), INT64, "scratch")
    i = Axis("i", 20)
    middle = operation("div", plus(load(low, ()), load(high, ())), index_constant(2))
    below = operation("lt", load(table, (middle,)), load(x, (axis(i),)))
    kept = buffer("middle", (), INT64, "register")
    hit = buffer("hit", (), np.dtype(bool), "register")
    loop = While(operation("lt", load(low, ()), load(high, ())), (
        Store(kept, (), middle), Store(hit, (), below),
        If(load(hit, ()), (Store(low, (), plus(load(kept, ()), 1)),)),
        If(operation("not", load(hit, ())), (Store(high, (), load(kept, ())),))))
    body = (Loop(i, (Store(low, (), index_constant(0)), Store(high, (), index_constant(50)), loop,
                     Store(out, (axis(i),), load(low, ())))),)
    kernel = kernel_of(body, (out,), (table, x), (low, high, kept, hit))
    memory = memory_for(kernel)
    memory[table].sort()
    code = to_instructions(kernel, HOST)
    Native(code)(memory[out], memory[table], memory[x])
    np.testing.assert_array_equal(memory[out], np.searchsorted(memory[table], memory[x]))
    run_instructions(code, memory)
    np.testing.assert_array_equal(memory[out], np.searchsorted(memory[table], memory[x]))


def test_loops_that_stop_early() -> None:
    """Triangular loops, vectors inside."""
    x, out = buffer("x", (8, 8), FLOAT32), buffer("out", (8,), FLOAT32)
    i, j = Axis("i", 8), Axis("j", 8)
    body = (Loop(i, (Store(out, (axis(i),), number(0)),
                     Loop(j, (Store(out, (axis(i),), load(x, (axis(i), axis(j))), "add"),), "serial", axis(i)))),)
    check(kernel_of(body, (out,), (x,)))


def test_collapsed_loops_over_contiguous_memory_have_no_divisions() -> None:
    x, out = buffer("x", (6, 32), FLOAT32), buffer("out", (6, 32), FLOAT32)
    f = Axis("f", 6 * 32)
    index = (operation("div", axis(f), index_constant(32)), operation("rem", axis(f), index_constant(32)))
    code = check(kernel_of((Loop(f, (Store(out, index, load(x, index)),)),), (out,), (x,)))
    assert not {"div", "rem", "mul"} & set(count(code))


def test_vectors_inside_a_row_of_known_length() -> None:
    """(16 c + v) rem 64 = 16 (c rem 4) + v: a vector load, not a gather."""
    x, y, out = buffer("x", (64,), FLOAT32), buffer("y", (640,), FLOAT32), buffer("out", (640,), FLOAT32)
    c, v = Axis("c", 40), Axis("v", 16)
    at = plus(times(axis(c), 16), axis(v))
    value = operation("add", load(y, (at,)), load(x, (operation("rem", at, index_constant(64)),)))
    code = check(kernel_of((Loop(c, (Loop(v, (Store(out, (at,), value),), "vector"),)),), (out,), (x, y)))
    assert count(code)["gather"] == 0


def test_scratch_is_aligned_and_private() -> None:
    x, out = buffer("x", (6, 5), FLOAT32), buffer("out", (6, 5), FLOAT32)
    row, other = buffer("row", (5,), FLOAT32, "scratch"), buffer("other", (3,), INT64, "scratch")
    i, j, k = Axis("i", 6), Axis("j", 5), Axis("k", 5)
    body = (Loop(i, (Loop(j, (Store(row, (axis(j),), load(x, (axis(i), axis(j)))),)),
                     Loop(k,
                          (Store(out, (axis(i), axis(k)),
                                 load(row, (operation("sub", index_constant(4), axis(k)),))),))),
                 "parallel"),)
    code = check(kernel_of(body, (out,), (x,), (row, other)))
    assert code.parallel_extent == 6
    assert dict(code.scratch) == {row: 0, other: 64} and code.scratch_bytes == 128


def test_rare_values_are_behind_a_branch() -> None:
    x, out = buffer("x", (32,), FLOAT32), buffer("out", (32,), FLOAT32)
    c, v = Axis("c", 2), Axis("v", 16)
    value = load(x, (plus(times(axis(c), 16), axis(v)),))
    costly = operation("sqrt", operation("abs", value))
    chosen = rare(operation("gt", value, number(0.5)), costly, operation("neg", value))
    at = plus(times(axis(c), 16), axis(v))
    code = check(kernel_of((Loop(c, (Loop(v, (Store(out, (at,), chosen),), "vector"),)),), (out,), (x,)))
    assert depth_of(code, "sqrt") == [2] and depth_of(code, "neg") == [1]


def test_empty_buffers() -> None:
    x, out = buffer("x", (0,), FLOAT32), buffer("out", (3,), FLOAT32)
    i, z = Axis("i", 3), Axis("z", 0)
    body = (Loop(i, (Store(out, (axis(i),), number(2)),)), Loop(z, (Store(out, (axis(z),), load(x, (axis(z),))),)))
    check(kernel_of(body, (out,), (x,)))


def test_estimates_of_work() -> None:
    x, out = buffer("x", (64, 64), FLOAT32), buffer("out", (64, 64), FLOAT32)
    i, j = Axis("i", 64), Axis("j", 64)
    index = (axis(i), axis(j))
    code = check(kernel_of((Loop(i,
                                 (Loop(j, (Store(out, index, operation("mul", load(x, index), load(x, index))),)),)),),
                           (out,), (x,)))
    assert code.bytes == 2 * 64 * 64 * 4
    assert 4096 <= code.flops < 2 * 4096 + 200


def bad(statement: Statement, *scratch: Buffer) -> Kernel:
    return kernel_of((statement,), (buffer("out", (16, 16), FLOAT32),), (), scratch)


def test_what_cannot_be_expressed_is_refused() -> None:
    v, w = Axis("v", 16), Axis("w", 16)
    out = buffer("out", (16, 16), FLOAT32)
    store = Store(out, (axis(v), axis(w)), number(1))
    with pytest.raises(CompilationError, match="vector loop"):
        to_instructions(kernel_of((Loop(v, (Loop(w, (store,), "vector"),), "vector"),), (out,)), HOST)
    with pytest.raises(CompilationError, match="outermost"):
        to_instructions(kernel_of((Loop(v, (Loop(w, (store,), "parallel"),)),), (out,)), HOST)
    with pytest.raises(CompilationError, match="outside its loop"):
        to_instructions(kernel_of((Loop(v, (store,)),), (out,)), HOST)
    registers = buffer("r", (16,), FLOAT32, "register")
    with pytest.raises(CompilationError, match="constant index"):
        to_instructions(kernel_of((Loop(v, (Store(registers, (axis(v),), number(1)),)),), (out,), (), (registers,)),
                        HOST)
    with pytest.raises(CompilationError, match="not scheduled"):
        to_instructions(Kernel("k", (out,), ()), HOST)


@pytest.mark.parametrize("step", [-1, 2, 3, 4])
def test_small_strides_are_shuffles(step: int) -> None:
    """Reads at small strides reach exactly from the first element to the last one that is needed."""
    size = 15 * abs(step) + 1
    x, out, v = buffer("x", (size,), FLOAT32), buffer("out", (16,), FLOAT32), Axis("v", 16)
    first = size - 1 if step < 0 else 0
    body = (Loop(v, (Store(out, (axis(v),), load(x, (plus(times(axis(v), step), first),))),), "vector"),)
    code = check(kernel_of(body, (out,), (x,)))
    assert count(code)["gather"] == 0 and count(code)["shuffle"] == abs(step)
    assert count(code)["load"] == abs(step)

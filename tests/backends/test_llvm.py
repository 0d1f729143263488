"""The LLVM renderer: every core operation on every type, in vectors and scalars, against NumPy; the form of the
text.
"""
from __future__ import annotations

import numpy as np
import pytest

from fungrad.backends.llvm import literal_text, render
from fungrad.errors import CompilationError
from fungrad.ir.expr import (
    BOOL,
    COMPARISONS,
    CORE,
    Axis,
    Expr,
    axis,
    cast,
    constant,
    load,
    operation,
    select,
    substitute,
)
from fungrad.ir.instructions import Instruction, InstructionList
from fungrad.ir.interpret_expr import apply_operation
from fungrad.ir.kernel import If, Kernel, Loop, Store
from fungrad.ir.types import literal
from fungrad.lower.instructions import to_instructions
from tests.backends.native import HOST, Native
from tests.lower.kernels import INTEGERS, assert_close, buffer

FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
FLOAT_OPS = ("add", "sub", "mul", "div", "rem", "neg", "abs", "max", "min", "floor", "ceil", "trunc", "round", "sqrt",
             "fma")
INTEGER_OPS = ("add", "sub", "mul", "div", "rem", "fma", "neg", "abs", "max", "min", "and", "or", "xor", "not",
               "shift_left",
               "shift_right")
BOOL_OPS = ("and", "or", "xor", "not", "eq", "ne", "max", "min")


def code_of(value: Expr, inputs: list, name: str = "f") -> tuple[InstructionList, np.dtype]:
    """Three vectors of 16 lanes, then scalars, over the same 53 elements."""
    out = buffer("out", (53,), value.dtype)

    def at(e: Expr) -> Expr:
        return substitute(value, lambda x: e if x.op == "axis" else None)

    c, v, s = Axis("c", 3), Axis("v", 16), Axis("s", 5)
    place = operation("add", operation("mul", axis(c), constant(16, np.dtype("int64"))), axis(v))
    rest = operation("add", axis(s), constant(48, np.dtype("int64")))
    body = (Loop(c, (Loop(v, (Store(out, (place,), at(place)),), "vector"),)),
            Loop(s, (Store(out, (rest,), at(rest)),)))
    return to_instructions(Kernel(name, (out,), tuple(inputs), body=body), HOST), value.dtype


def run(op: str, arrays: list[np.ndarray], dtype: np.dtype | None = None) -> np.ndarray:
    inputs = [buffer(f"x{n}", (53,), x.dtype) for n, x in enumerate(arrays)]
    i = axis(Axis("i", 53))
    value = operation(op, *[load(b, (i,)) for b in inputs], dtype=dtype)
    code, result = code_of(value, inputs)
    out = np.zeros(53, result)
    Native(code)(out, *arrays)
    return out


def floats(dtype: np.dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    special = [0.0, -0.0, 1.5, 2.5, -2.5, 0.5, np.inf, -np.inf, np.nan, info.max, info.tiny, -info.smallest_subnormal]
    return rng.permutation(np.concatenate([np.array(special), rng.standard_normal(41) * 10])).astype(dtype)


def integers(dtype: np.dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return rng.integers(0, 2, 53).astype(bool)
    info = np.iinfo(dtype)
    return np.concatenate([[info.min, info.max, 0, 1, 5],
                           rng.integers(info.min, info.max, 48, dtype, endpoint=True)]).astype(dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("op", [*FLOAT_OPS, *sorted(COMPARISONS)])
def test_floats(op: str, dtype: np.dtype) -> None:
    arrays = [floats(dtype, seed) for seed in range(CORE[op])]
    got, wanted = run(op, arrays), apply_operation(op, arrays, BOOL if op in COMPARISONS else dtype)
    if op == "fma" and dtype == FLOAT64:   # NumPy has no wider type with enough bits
        assert_close(got, wanted, op)
    else:
        np.testing.assert_array_equal(got, wanted)
        if op not in ("max", "min", *COMPARISONS):       # either zero is a maximum of both
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype: np.dtype) -> None:
    bits = 8 * dtype.itemsize
    for op in (*INTEGER_OPS, *sorted(COMPARISONS)):
        arrays = [integers(dtype, seed) for seed in range(CORE[op])]
        if op in ("div", "rem"):
            arrays[1] = np.where((arrays[1] == 0) | (arrays[1] == -1), dtype.type(3), arrays[1]) if dtype.kind == "i" \
                else np.maximum(arrays[1], dtype.type(1))
        if op.startswith("shift"):
            arrays[1] = (integers(np.dtype("uint8"), 3) % bits).astype(dtype)
        wanted = apply_operation(op, arrays, BOOL if op in COMPARISONS else dtype)
        np.testing.assert_array_equal(run(op, arrays), wanted, err_msg=op)


def test_bools() -> None:
    for op in BOOL_OPS:
        arrays = [integers(BOOL, seed) for seed in range(CORE[op])]
        np.testing.assert_array_equal(run(op, arrays), apply_operation(op, arrays, BOOL), err_msg=op)


def test_maximum_with_a_constant_keeps_nan() -> None:
    x = floats(FLOAT32, 0)
    b, i = buffer("x", (53,), FLOAT32), axis(Axis("i", 53))
    for op in ("max", "min"):
        for swap in (False, True):
            pair = (load(b, (i,)), constant(0.25, FLOAT32))
            code, dtype = code_of(operation(op, *(reversed(pair) if swap else pair)), [b])
            out = np.zeros(53, dtype)
            Native(code)(out, x)
            np.testing.assert_array_equal(out, apply_operation(op, [x, np.full(53, 0.25, FLOAT32)], FLOAT32))


def test_select_and_bitcast() -> None:
    x, y, flags = floats(FLOAT32, 0), floats(FLOAT32, 1), integers(BOOL, 2)
    inputs = [buffer("x", (53,), FLOAT32), buffer("y", (53,), FLOAT32), buffer("f", (53,), BOOL)]
    i = axis(Axis("i", 53))
    chosen = select(load(inputs[2], (i,)), load(inputs[0], (i,)), load(inputs[1], (i,)))
    code, dtype = code_of(operation("bitcast", chosen, dtype=np.dtype("uint32")), inputs)
    out = np.zeros(53, dtype)
    Native(code)(out, x, y, flags)
    np.testing.assert_array_equal(out, np.where(flags, x, y).view(np.uint32))


FOLDS = {FLOAT32: ("add", "mul", "max", "min"), np.dtype("int32"): ("add", "mul", "max", "min", "and", "or", "xor"),
         BOOL: ("max", "min", "and", "or", "xor")}


@pytest.mark.parametrize("dtype, combine", [(dtype, combine) for dtype, names in FOLDS.items() for combine in names],
                         ids=str)
def test_folds(dtype: np.dtype, combine: str) -> None:
    x = np.random.default_rng(0).standard_normal(16).astype(dtype) if dtype == FLOAT32 else integers(dtype, 0)[:16]
    b, out, v = buffer("x", (16,), dtype), buffer("out", (), dtype), Axis("v", 16)
    body = (Loop(v, (Store(out, (), load(b, (axis(v),)), combine),), "vector"),)
    code = to_instructions(Kernel("fold", (out,), (b,), body=body), HOST)
    start = np.array(x[3], dtype)
    result = start.copy()
    Native(code)(result, x)
    wanted = start
    with np.errstate(over="ignore"):
        for one in x:
            wanted = apply_operation(combine, [wanted, one], dtype)
    assert_close(result, np.asarray(wanted), combine)


@pytest.mark.parametrize(("value", "dtype", "text"), [
    (1.0, "float32", "0x3FF0000000000000"), (0.1, "float32", "0x3FB99999A0000000"), (0.1, "float64",
                                                                                     "0x3FB999999999999A"),
    (float("inf"), "float32", "0x7FF0000000000000"), (-0.0, "float64", "0x8000000000000000"), (1.0, "float16",
                                                                                               "0xH3C00"),
    (True, "bool", "true"), (-3, "int8", "-3"), (255, "uint8", "255"), (float("nan"), "float32", "0x7FF8000000000000")])
def test_constants(value: float, dtype: str, text: str) -> None:
    assert literal_text(literal(value, np.dtype(dtype))) == text


def test_the_form_of_the_text() -> None:
    b, i = buffer("x", (53,), FLOAT32), axis(Axis("i", 53))
    code, _ = code_of(operation("add", load(b, (i,)), load(b, (i,))), [b], "named")
    text = render(code, HOST)
    pointers = "ptr noalias %arg0, ptr noalias %arg1, ptr noalias %scratch"
    assert f"define void @named({pointers}, i64 %begin, i64 %end)" in text
    assert "fadd contract <16 x float>" in text and "reassoc" not in text and "nnan" not in text
    assert render(code, HOST) == text


def test_bfloat16_arithmetic_is_refused() -> None:
    bfloat16 = np.dtype("bfloat16")
    one = Instruction("constant", (), literal(1.0, bfloat16), bfloat16)
    code = InstructionList("f", (), (), 0, 1, (one, Instruction("add", (0, 0), None, bfloat16)))
    with pytest.raises(CompilationError, match="decomposed"):
        render(code, HOST)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "int32"])
def test_one_masked_lane_writes_one_element(dtype: str) -> None:
    """A masked vector of one narrow element must not touch its neighbour."""
    kind = np.dtype(dtype)
    x, out, v = buffer("x", (16,), kind), buffer("out", (16,), kind), Axis("v", 16)
    wide = cast(operation("add", cast(load(x, (axis(v),)), np.dtype("int32")), constant(0, np.dtype("int32"))), kind)
    for lane in (0, 5, 15):
        only = operation("eq", axis(v), constant(lane, np.dtype("int64")))
        body = (Loop(v, (If(only, (Store(out, (axis(v),), wide),)),), "vector"),)
        values, result = np.full(16, 1, kind), np.zeros(16, kind)
        Native(to_instructions(Kernel("one", (out,), (x,), body=body), HOST))(result, values)
        assert np.flatnonzero(result).tolist() == [lane]

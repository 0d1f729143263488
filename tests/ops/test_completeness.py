"""Every primitive has every rule, or says why not; and the rules of each agree with its reference, for every type."""
from __future__ import annotations

import importlib
import pathlib
import pkgutil
import zlib

import numpy as np
import pytest

import fungrad.ops
import fungrad.transforms
from fungrad.dtypes import ALL, is_float
from fungrad.errors import DTypeError, RefusedError
from fungrad.ir.interpret import interpret
from fungrad.ir.primitive import PRIMITIVES, TRAITS, Linear, Refused, Zero
from fungrad.ir.program import node
from fungrad.ir.types import array_type
from fungrad.lower.decompose import decompose
from fungrad.lower.fuse import fuse
from fungrad.lower.instructions import to_instructions
from fungrad.lower.pipeline import schedule_kernel
from fungrad.ops.create import zeros
from fungrad.trace import active, bind, current_trace
from fungrad.transforms.jvp import jvp_values
from fungrad.transforms.linearize import linearize_values
from fungrad.transforms.transpose import backward_pass
from tests.backends.native import HOST, Native
from tests.ir.lowering import case_program
from tests.ops.cases import CASES, Case
from tests.ops.eager import EagerTrace, unwrap, wrap
from tests.ops.helpers import assert_same, check_batch, check_jvp, check_lower, check_transpose, reference

for package in (fungrad.ops, fungrad.transforms):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

RULES = ("type", "reference", "jvp", "transpose", "batch", "lower")
TYPED = [pytest.param(case, dtype, id=f"{case}-{dtype.name}") for case in CASES for dtype in case.dtypes]
F64 = np.dtype("float64")


def by_case(cases):
    return pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in cases])


def operands(case: Case, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    return case.operands(dtype, np.random.default_rng(zlib.crc32(f"{case} {dtype}".encode())))


def types(arrays):
    return [array_type(a.shape, a.dtype) for a in arrays]


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_rule_is_there_or_refused_with_a_reason(name):
    primitive = PRIMITIVES[name]
    assert primitive.doc, "a primitive says what it does"
    assert primitive.traits <= TRAITS
    for rule in RULES:
        found = getattr(primitive, rule)
        assert callable(found), f"{name} has no {rule} rule"
        if isinstance(found, Refused):
            assert len(found.reason.split()) > 3, f"{name} does not say why it has no {rule} rule"
            with pytest.raises(RefusedError):
                found()


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_is_tested(name):
    if any(case.primitive == name for case in CASES):
        return
    tests = pathlib.Path(__file__).parents[1]
    pattern = (f'"{name}"', f"{name}_p", f"{name}(")
    assert any(word in file.read_text() for file in tests.rglob("test_*.py") for word in pattern), \
        f"no test mentions {name}: add it to tests/ops/cases.py"


@pytest.mark.parametrize(("case", "dtype"), TYPED)
def test_reference_has_the_declared_type(case, dtype):
    reference(PRIMITIVES[case.primitive], *operands(case, dtype), **case.parameters(dtype))


@pytest.mark.parametrize(("case", "dtype"), TYPED)
def test_lower_computes_the_reference(case, dtype):
    check_lower(PRIMITIVES[case.primitive], *operands(case, dtype), **case.parameters(dtype))


@by_case(CASES)
def test_compiled_code_computes_the_reference(case):
    for dtype in {case.dtypes[0], case.dtypes[len(case.dtypes) // 2], case.dtypes[-1]}:
        p, arrays = case_program(case, dtype)
        fused = fuse(p, HOST)
        memory = dict(zip(fused.inputs, map(np.ascontiguousarray, arrays), strict=True))
        for launch in fused.launches:
            code = to_instructions(schedule_kernel(decompose(launch.kernel, HOST), HOST), HOST)
            for slot in launch.slots:
                memory.setdefault(slot, np.empty(fused.slots[slot].shape, fused.slots[slot].dtype))
            Native(code)(*[memory[slot] for slot in launch.slots], end=code.parallel_extent)
        assert_same(memory[fused.outputs[0]], interpret(p, arrays)[0], f"{case} {dtype}")


@by_case({case.primitive: case for case in CASES if case.primitive not in ("bitcast", "convert")}.values())
def test_other_types_are_refused_by_name(case):
    for dtype in ALL:
        taken = {taken for other in CASES if other.primitive == case.primitive for taken in other.dtypes}
        if dtype not in taken and case.primitive not in ("full", "iota"):
            with pytest.raises(DTypeError, match=case.primitive):
                PRIMITIVES[case.primitive].type(*types(operands(case, dtype)), **case.parameters(dtype))


@by_case([case for case in CASES if case.differentiable])
def test_jvp_agrees_with_finite_differences(case):
    arrays = operands(case, F64)
    wrt = tuple(i for i in case.differentiable if is_float(arrays[i].dtype))
    check_jvp(PRIMITIVES[case.primitive], *arrays, wrt=wrt, **case.parameters(F64))


def bound(case: Case):
    """The primitive as a flat function of values."""
    return lambda *values: [bind(PRIMITIVES[case.primitive], *values, **case.parameters(F64))]


@by_case([case for case in CASES if case.differentiable])
def test_backward_agrees_with_forward(case):
    """<w, J t> = <J^T w, t>: what a jvp rule does to tangents can be transposed."""
    arrays = operands(case, F64)
    chosen = [i in case.differentiable for i in range(len(arrays))]
    random = np.random.default_rng(1)
    tangents = [random.standard_normal(a.shape) for a in arrays]
    with active(EagerTrace()):
        given = [wrap(np.asarray(t)) if flag else Zero(array_type(t.shape, F64))
                 for t, flag in zip(tangents, chosen, strict=True)]
        _, tangent = PRIMITIVES[case.primitive].jvp([wrap(a) for a in arrays], given, **case.parameters(F64))
        linearized = linearize_values(bound(case), [wrap(a) for a in arrays], chosen)
        if isinstance(tangent, Zero):
            assert linearized.nonzero == (False,)
            return
        weights = random.standard_normal(tangent.type.shape)
        linear = [True] * sum(chosen) + [False] * len(linearized.traced.captured)
        cotangents = backward_pass(linearized.traced.program, linear, linearized.traced.captured, [wrap(weights)])
    forward = float((weights * unwrap(tangent)).sum())
    moved = [t for t, flag in zip(tangents, chosen, strict=True) if flag]
    backward = sum(float((unwrap(c) * t).sum()) for c, t in zip(cotangents, moved, strict=True))
    np.testing.assert_allclose(backward, forward, 1e-9, 1e-9)


@by_case([case for case in CASES if case.differentiable])
def test_second_derivatives_agree_with_finite_differences(case):
    arrays = operands(case, F64)
    random = np.random.default_rng(2)
    first, second = ([random.standard_normal(a.shape) if i in case.differentiable else None
                      for i, a in enumerate(arrays)] for _ in range(2))

    def along(values, directions):
        symbolic = [Zero(v.type) if d is None else wrap(np.asarray(d)) for v, d in zip(values, directions, strict=True)]
        return jvp_values(bound(case), values, symbolic, None, current_trace())[1]

    def instantiated(*values):
        (tangent,) = along(values, first)
        return [zeros(tangent.type) if isinstance(tangent, Zero) else tangent]
    step = 1e-5
    with active(EagerTrace()):
        values = [wrap(a) for a in arrays]
        directions = [Zero(v.type) if d is None else wrap(np.asarray(d)) for v, d in zip(values, second, strict=True)]
        _, (exact,) = jvp_values(instantiated, values, directions, None, current_trace())
        high, low = (unwrap(instantiated(*[wrap(a if d is None else np.asarray(a + sign * step * d))
                                          for a, d in zip(arrays, second, strict=True)])[0]) for sign in (1, -1))
    np.testing.assert_allclose(unwrap(exact), (high - low) / (2 * step), 2e-5, 2e-5)


@pytest.mark.parametrize(("case", "dtype"), [p for p in TYPED if is_float(p.values[1]) and p.values[0].differentiable])
def test_tangents_have_the_type_of_the_result(case, dtype):
    arrays = operands(case, dtype)
    tangents = [Zero(array_type(a.shape, a.dtype)) if a.dtype == bool else wrap(np.ones_like(a)) for a in arrays]
    with active(EagerTrace()):
        result, tangent = PRIMITIVES[case.primitive].jvp([wrap(a) for a in arrays], tangents, **case.parameters(dtype))
    assert tangent.type == result.type


@pytest.mark.parametrize(("case", "dtype"), TYPED)
def test_no_tangent_in_no_tangent_out(case, dtype):
    primitive = PRIMITIVES[case.primitive]
    arrays = operands(case, dtype)
    if not arrays or isinstance(primitive.jvp, Refused):
        return
    with active(EagerTrace()):
        result, tangent = primitive.jvp([wrap(a) for a in arrays], [Zero(t) for t in types(arrays)],
                                        **case.parameters(dtype))
    assert tangent == Zero(result.type)


@by_case([case for case in CASES if case.linear])
def test_transpose_is_the_adjoint(case):
    for group in case.linear:
        # The other operands of a sum must be 0 for it to be linear in `group`.
        arrays = [a if i in group or not _additive(case) or a.dtype == bool else np.zeros_like(a)
                  for i, a in enumerate(operands(case, F64))]
        check_transpose(PRIMITIVES[case.primitive], *arrays, wrt=group, **case.parameters(F64))


def _additive(case: Case) -> bool:
    return case.primitive == "select" or "linear" in PRIMITIVES[case.primitive].traits


@by_case([case for case in CASES if not case.linear])
def test_what_is_not_linear_refuses_to_be_transposed(case):
    arrays = operands(case, case.dtypes[-1])
    if arrays and case.primitive != "convert":
        linear = [Linear(t) for t in types(arrays)]
        with active(EagerTrace()), pytest.raises(RefusedError):
            PRIMITIVES[case.primitive].transpose(wrap(np.zeros(())), linear, **case.parameters(case.dtypes[-1]))


@by_case([case for case in CASES if case.primitive not in ("full", "iota")])
def test_batch_agrees_with_a_loop(case):
    dtype = case.dtypes[-1]
    first = operands(case, dtype)
    second = case.operands(dtype, np.random.default_rng(99))
    count = len(first)
    mapped_sets = {tuple(range(count)), *((i,) for i in range(count))}
    for mapped in sorted(mapped_sets):
        for position in (0, -1):
            axes = [None if i not in mapped else 0 if position == 0 else first[i].ndim for i in range(count)]
            stacked = [a if axis is None else np.stack([a, b, a], axis)
                       for a, b, axis in zip(first, second, axes, strict=True)]
            check_batch(PRIMITIVES[case.primitive], *stacked, axes=axes, parameters=case.parameters(dtype))


def test_a_rule_of_a_primitive_is_hashable_data():
    """Parameters of every case can be part of a node's key."""
    for case in CASES:
        dtype = case.dtypes[0]
        params = case.parameters(dtype)
        primitive = PRIMITIVES[case.primitive]
        result = primitive.type(*types(operands(case, dtype)), **params)
        assert node(primitive, (), params, result) is node(primitive, (), dict(params), result)

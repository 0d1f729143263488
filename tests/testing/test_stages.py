"""The comparison of stages finds wrong passes, and accepts what rounding explains."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fungrad
from fungrad import config
from fungrad.errors import VerificationError
from fungrad.ir.expr import INDEX, constant, operation, substitute
from fungrad.ir.instructions import InstructionList
from fungrad.ir.kernel import Fused, Kernel, Launch
from fungrad.ir.program import Program, apply, node, program as make_program
from fungrad.ir.types import array_type
from fungrad.lower import pipeline
from fungrad.ops import contract, elementwise, linear, reduce
from fungrad.testing import stages
from fungrad.trace import trace_program

FLOAT = np.dtype("float32")


def traced(function: Any, *shapes: tuple[int, ...], dtype: np.dtype = FLOAT) -> Program:
    return trace_program(function, [array_type(shape, dtype) for shape in shapes]).program


def softmax_like(x: Any, y: Any) -> list[Any]:
    rows = linear.broadcast(reduce.reduce_max(x, (1,)), x.shape, (0,))
    product = contract.dot_general(x, y, (((1,), (1,)), ((), ())))
    return [elementwise.add(elementwise.exp(elementwise.sub(x, rows)), y), product]


PROGRAM = traced(softmax_like, (4, 5), (4, 5))
ARRAYS = [np.random.default_rng(0).standard_normal((4, 5)).astype(FLOAT) for _ in range(2)]


# ---- wrong passes, one of each kind ---------------------------------------------------------------------------------

def wrong_rewrite(value: Program, target: object) -> Program:
    """Every `exp` is an `expm1`."""
    done: dict[Any, Any] = {}
    for n in value.nodes():
        operands = tuple([done[operand] for operand in n.operands])
        name = "expm1" if n.primitive.name == "exp" else n.primitive.name
        from_name = fungrad.ir.primitive.PRIMITIVES.get(name, n.primitive)
        done[n] = n if not operands else apply(from_name, operands, dict(n.params)) if name == "expm1" \
            else node(n.primitive, operands, dict(n.params), n.type)
    return make_program(value.input_types, tuple([done[output] for output in value.outputs]))


def wrong_fusion(value: Fused, target: object) -> Fused:
    """Two kernels' worth of results in the wrong place: the first output twice."""
    return replace(value, outputs=(value.outputs[0],) * len(value.outputs)) if len(value.outputs) == 1 else \
        replace(value, launches=tuple([Launch(wrong_nests(launch.kernel, target), launch.slots)
                                       for launch in value.launches]))


def wrong_nests(value: Kernel, target: object) -> Kernel:
    """Every floating subtraction is an addition."""
    change = lambda e: operation("add", *e.operands) if e.op == "sub" and e.dtype == FLOAT else None
    return replace(value, nests=tuple([replace(nest, value=substitute(nest.value, change)) for nest in value.nests]))


def wrong_loops(value: Kernel, target: object) -> Kernel:
    """The first loop of every body runs once less than it should."""
    def shorter(body: tuple[Any, ...]) -> tuple[Any, ...]:
        first = body[0]
        if hasattr(first, "axis"):
            return (replace(first, stop=constant(first.axis.extent - 1, INDEX)), *body[1:])
        return (replace(first, body=shorter(first.body)), *body[1:]) if hasattr(first, "body") else body
    return replace(value, body=shorter(value.body or ()))


def wrong_instructions(value: InstructionList, target: object) -> InstructionList:
    """Every floating addition is a subtraction."""
    return replace(value, instructions=tuple([replace(i, op="sub") if i.op == "add" and i.dtype == FLOAT else i
                                              for i in value.instructions]))


WRONG = [("simplify", wrong_rewrite), ("fuse", wrong_fusion), ("decompose", wrong_nests), ("schedule", wrong_loops),
         ("instructions", wrong_instructions)]


@pytest.mark.parametrize(("after", "wrong"), WRONG, ids=[name for name, _ in WRONG])
def test_a_wrong_pass_is_the_first_stage_that_differs(after: str, wrong: Any) -> None:
    with pipeline.passes(after=after, add=wrong):
        found = stages.first_difference(PROGRAM, ARRAYS)
        assert found is not None and found.stage == wrong.__name__, found
        assert "output" in found.message and found.text and found.text_before != found.text
        with pytest.raises(VerificationError, match=wrong.__name__):
            stages.check_stages(PROGRAM, ARRAYS)


@pytest.mark.parametrize(("after", "wrong"), WRONG, ids=[name for name, _ in WRONG])
def test_verification_names_the_wrong_pass(after: str, wrong: Any) -> None:
    def function(x: Any, y: Any) -> Any:
        return softmax_like(x, y)
    with config.settings(verify=True):
        np.testing.assert_allclose(np.asarray(fungrad.jit(function)(*ARRAYS)[1]), ARRAYS[0] @ ARRAYS[1].T, 1e-5)
        with pipeline.passes(after=after, add=wrong), pytest.raises(VerificationError, match=f"pass {wrong.__name__}"):
            fungrad.jit(function)(*ARRAYS)


def test_a_malformed_value_is_reported_with_its_pass() -> None:
    def nonsense(value: Kernel, target: object) -> Kernel:
        outside = substitute(value.nests[0].value, lambda e: operation("add", e, constant(99, INDEX))
                             if e.op == "axis" else None)
        return replace(value, nests=(replace(value.nests[0], value=outside), *value.nests[1:]))
    program = traced(lambda x: [elementwise.neg(x)], (4,))
    with pipeline.passes(after="decompose", add=nonsense), pytest.raises(VerificationError, match="nonsense.*outside"):
        stages.check_stages(program, [np.ones(4, FLOAT)])


def test_all_stages_are_there() -> None:
    found = list(stages.run_stages(PROGRAM, ARRAYS))
    assert [stage.name for stage in found] == ["the program", *[
        entry.name for entry in pipeline.current_passes() if entry.stage != "memory"], "native"]
    assert all(stage.results is not None and stage.text() for stage in found)
    assert stages.first_difference(PROGRAM, ARRAYS) is None


# ---- uncertainty ----------------------------------------------------------------------------------------------------

def test_uncertainty_follows_the_condition_of_the_program() -> None:
    x = np.array([1.0, 2.0, 3.0], FLOAT)
    (exact,) = stages.uncertainty(traced(lambda x: [elementwise.add(x, x)], (3,)), [x])
    assert (exact < 1e-5).all()
    large = lambda x: elementwise.exp(elementwise.mul(x, 3.0))
    cancelling = traced(lambda x: [elementwise.sub(large(x), elementwise.mul(large(x), 1.0))], (3,))
    (wide,) = stages.uncertainty(cancelling, [x])
    assert wide[2] > 1e-3 > exact[2]


def test_uncertainty_of_integers_and_special_values() -> None:
    x = np.array([0.5, np.nan, np.inf, -0.0], FLOAT)
    program = traced(lambda x: [elementwise.exp(x), reduce.argmax(elementwise.sin(x), 0), elementwise.gt(x, x)], (4,))
    numbers, place, truth = stages.uncertainty(program, [x])
    assert np.isfinite(numbers).all() and place == 0 and (truth == 0).all()
    tied = traced(lambda x: [linear.convert(elementwise.exp(elementwise.log(x)), np.dtype("int32"))], (4,))
    (cut,) = stages.uncertainty(tied, [np.array([2.0, 3.0, 5.0, 6.5], FLOAT)])
    assert np.isinf(cut[:3]).any() and cut[3] == 0   # rounding decides what is cut to an integer, but not at 6.5


def test_close() -> None:
    a = np.array([1.0, np.nan, np.inf, 0.0], FLOAT)
    assert stages.close(a, a, np.zeros(4)).all()
    assert not stages.close(a, np.array([1.1, 0.0, -np.inf, 1.0], FLOAT), np.full(4, 0.01)).any()
    assert stages.close(np.array([3]), np.array([4]), np.array([np.inf])).all()

"""The list of passes: what runs, in which order, how it is changed and watched."""
from __future__ import annotations

import threading

import pytest

from fungrad.errors import CompilationError
from fungrad.ir.instructions import InstructionList
from fungrad.ir.kernel import Fused, Kernel
from fungrad.ir.lowered import Lowered, MemoryPlan
from fungrad.ir.program import Program
from fungrad.lower.pipeline import PASSES, STAGES, current_passes, lower, passes
from fungrad.ops import contract, create, elementwise as e, linear
from tests.lower.programs import TARGET, traced


def program():
    return traced(lambda x: [linear.reduce_sum(e.mul(e.sin(x), create.full_like(x, 1)), (1,))], (8, 16))


def watched(p):
    seen = []
    lowered = lower(p, TARGET, lambda stage, name, value, seconds: seen.append((stage, name, value)))
    return lowered, seen


def test_every_pass_takes_what_the_one_before_gives():
    order = list(STAGES)
    assert [order.index(entry.stage) for entry in PASSES] == sorted(order.index(entry.stage) for entry in PASSES)
    assert len({entry.name for entry in PASSES}) == len(PASSES)


def test_a_program_is_lowered_and_every_value_is_seen():
    lowered, seen = watched(program())
    assert isinstance(lowered, Lowered) and len(lowered.code) == len(lowered.fused.launches) == 1
    assert [name for _, name, _ in seen] == [entry.name for entry in PASSES]
    wanted = {"program": Program, "fuse": Fused, "fused": Fused, "kernel": Kernel, "instructions": InstructionList,
              "memory": MemoryPlan}
    assert all(type(value) is wanted[stage] for stage, _, value in seen)
    assert lowered.program is program()


def test_equal_kernels_are_lowered_once():
    twice = traced(lambda x, y: [e.sin(x), e.sin(y)], (64, 64), (64, 64))
    lowered, seen = watched(twice)
    assert len(lowered.code) == 2 and lowered.code[0] is lowered.code[1]
    assert [name for _, name, _ in seen].count("schedule") == 1
    assert lower(twice, TARGET).code[0] is lower(twice, TARGET).code[0]


def test_passes_are_added_replaced_and_dropped_for_one_block():
    calls = []

    def look(value, target):
        calls.append(type(value).__name__)
        return value

    def other(value, target):
        return PASSES[0].run(value, target)
    before = current_passes()
    with passes(after="fuse", add=look):
        assert [entry.name for entry in current_passes()].index("look") == 2
        lower(program(), TARGET)
    with passes(before="fuse", add=[look, look]), passes(before="memory", add=look):
        lower(program(), TARGET)
    assert calls == ["Fused", "Program", "Program", "Fused"]
    with passes(replace={"simplify": other}, drop=()):
        assert current_passes()[0].run is other
    with passes(drop="simplify"):
        _, seen = watched(program())
        assert "simplify" not in [name for _, name, _ in seen]
    assert current_passes() is before


def test_another_thread_does_not_see_the_change():
    found = []
    with passes(drop="simplify"):
        thread = threading.Thread(target=lambda: found.append(current_passes()))
        thread.start()
        thread.join()
    assert found == [PASSES]


def test_what_makes_no_sense_is_an_error():
    def look(value, target):
        return value
    with pytest.raises(ValueError, match="there is no pass 'nothing'"), passes(after="nothing", add=look):
        pass
    with pytest.raises(ValueError, match="after=NAME or before=NAME"), passes(add=look):
        pass
    with pytest.raises(ValueError, match="cannot be dropped"), passes(drop="fuse"):
        pass
    with pytest.raises(ValueError, match="no pass can be put here"), passes(after="memory", add=look):
        pass
    with passes(after="simplify", add=lambda value, target: None), \
            pytest.raises(CompilationError, match="gave a NoneType"):
        lower(program(), TARGET)


def test_a_donated_input_gives_its_memory_to_an_output():
    product = traced(lambda x, w: [contract.dot_general(e.sin(x), w, (((1,), (0,)), ((), ())))], (32, 32), (32, 32))
    assert lower(product, TARGET, donate=frozenset({0})).memory.donated == ((0, 0),)

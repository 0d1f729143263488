"""Random programs: every primitive turns up, sources run, and failures shrink to a line or two."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings, strategies as st

from fungrad import dtypes, tree
from fungrad.ir.interpret import interpret
from fungrad.ir.primitive import PRIMITIVES
from fungrad.ir.program import Program
from fungrad.testing import strategies
from fungrad.testing.programs import Recipe, build, compiled_source, random_recipe, special_values
from fungrad.trace import trace_program

# What takes a Program or a user's rule is made by transforms, not by random steps.
NOT_FIRST_ORDER = {"call"}


def names(program: Program) -> set[str]:
    found = set()
    for n in program.nodes():
        found.add(n.primitive.name)
        if n.primitive.name == "call":
            found |= names(n.param("program"))
    return found


def test_every_first_order_primitive_turns_up() -> None:
    found: set[str] = set()
    for seed in range(1200):
        found |= names(build(random_recipe(seed, 10)).program)
    first_order = {name for name, primitive in PRIMITIVES.items() if primitive.type.__module__.startswith("fungrad.ops")
                   and not primitive.traits & {"call", "control"}}
    assert not first_order - found and "call" in found


def test_the_same_recipe_gives_the_same_program() -> None:
    for seed in range(50):
        first, second = build(random_recipe(seed)), build(random_recipe(seed))
        assert first.source == second.source and first.program is second.program
        again = trace_program(compiled_source(first.source), first.recipe.input_types).program
        assert again is first.program
        results = interpret(first.program, first.arrays(seed))
        assert [r.shape for r in results] == [t.shape for t in first.program.output_types]


def test_numbers_that_are_missing_or_odd_do_no_harm() -> None:
    recipe = random_recipe(5)
    for numbers in ((), (65535,) * 3):
        steps = tuple((name, numbers) for name, _ in recipe.steps)
        assert build(Recipe(recipe.input_types, steps, (0, 99))).program.outputs


def test_programs_shrink() -> None:
    small = find(strategies.programs(), lambda g: "exp" in names(g.program),
                 settings=settings(database=None, derandomize=True, deadline=None, max_examples=2000,
                                   suppress_health_check=list(HealthCheck)))
    assert len(small.source.split("\n")) <= 3 and len(small.recipe.steps) == 1, small.source


@given(st.data())
@settings(max_examples=60, derandomize=True, database=None, deadline=None)
def test_strategies(data: st.DataObject) -> None:
    dtype, shape = data.draw(strategies.dtypes()), data.draw(strategies.shapes())
    array = data.draw(strategies.arrays(dtype, shape))
    assert array.dtype == dtype and array.shape == shape
    axes = data.draw(strategies.axes_for([shape, (2, 3)]))
    assert any(axis is not None for axis in axes) and all(axis is None or -4 <= axis <= 3 for axis in axes)
    whole = data.draw(strategies.pytrees(st.integers()))
    leaves, structure = tree.flatten(whole)
    assert tree.unflatten(structure, leaves) == whole


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=str)
def test_special_values(dtype: np.dtype) -> None:
    values = special_values(dtype).astype(np.float64)
    assert np.isnan(values).any() and np.isinf(values).any() and (np.signbit(values) & (values == 0)).any()
    assert (values[values > 0].min()) == float(dtypes.finfo(dtype).smallest_subnormal)

"""Random well-typed programs over every first-order primitive.

A Recipe is plain data: the inputs' types, steps (the name of an operation with the numbers from which it picks operands
and parameters) and the outputs. `build` turns one into a Generated program: Python source over `fungrad.ops`, one line
a step, and the Program that tracing it gives. Whatever the numbers, the result is well typed: a step that does not
apply is left out, numbers that are missing are 0, and operands are counted from the latest value backwards. So recipes
shrink well (hypothesis deletes steps and lowers numbers), and a failing program is a few lines of Python that can be
pasted into a test.

    >>> generated = build(random_recipe(3))
    >>> generated.program.input_types == generated.input_types
    True

`random_recipe(seed)` needs no hypothesis; `strategies.programs()` draws recipes.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, RefusedError, ShapeError
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..trace import StagingTrace, active, trace_program
from .program_steps import MOST_ELEMENTS, NAMESPACE, STEPS, WEIGHTS, Choices, Scope

Step = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program as data. outputs: places of the results, counted from the latest value."""
    input_types: tuple[Type, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """A random program: its source, the function that the source defines, and the Program that tracing it gives."""
    recipe: Recipe
    source: str
    function: Callable[..., list[Any]] = field(repr=False)
    program: Program = field(repr=False)
    captured: tuple[Any, ...] = field(repr=False)

    @property
    def input_types(self) -> tuple[Type, ...]:
        """The types of the function's arguments (the Program has the captured arrays as further inputs)."""
        return self.program.input_types[:len(self.program.input_types) - len(self.captured)]

    def arrays(self, seed: int = 0, special: float = 0.0) -> list[np.ndarray]:
        """Arrays for the Program: random ones for the function's arguments, then those that it closes over."""
        generator = np.random.default_rng(seed)
        given = [random_array(type, generator, special) for type in self.input_types]
        return [*given, *[np.asarray(array) for array in self.captured]]

    def __str__(self) -> str:
        return self.source


def random_array(type: Type, generator: np.random.Generator, special: float = 0.0) -> np.ndarray:
    """Random elements: floats around 0, small integers, and with probability `special` NaN, infinities, signed zeros,
    subnormal and extreme numbers."""
    shape, dtype = type.shape, type.dtype
    if dtype == np.dtype(bool):
        return generator.integers(0, 2, shape).astype(bool)
    if dtypes.is_float(dtype):
        array = np.asarray(generator.standard_normal(shape) * 1.5).astype(dtype)
        extreme = special_values(dtype)
    else:
        array = np.asarray(generator.integers(0 if dtype.kind == "u" else -9, 10, shape)).astype(dtype)
        extreme = np.asarray([np.iinfo(dtype).min, np.iinfo(dtype).max, 0], dtype)
    chosen = generator.random(shape) < special
    return np.where(chosen, generator.choice(extreme, shape), array).astype(dtype)


def special_values(dtype: np.dtype) -> np.ndarray:
    """NaN, infinities, signed zeros, the least normal and subnormal numbers, the greatest, and some halves."""
    info = dtypes.finfo(dtype)
    numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, float(info.tiny), -float(info.tiny),
               float(info.smallest_subnormal), float(info.max), -float(info.max)]
    with np.errstate(all="ignore"):
        return np.asarray(numbers, np.float64).astype(dtype)


def random_recipe(seed: int, steps: int = 8, kinds: Sequence[str] | None = None,
                  element_types: Sequence[np.dtype] | None = None) -> Recipe:
    """The recipe of this seed. kinds: the operations it may use; element_types: those of the inputs."""
    generator = np.random.default_rng(seed)
    names = weighted_steps() if kinds is None else list(kinds)
    few = [dtypes.float32] * 6 + [dtypes.float64, *dtypes.ALL] if element_types is None else list(element_types)
    types = tuple(array_type(random_shape(generator), few[generator.integers(len(few))])
                  for _ in range(generator.integers(1, 4)))
    chosen = tuple((names[generator.integers(len(names))], tuple(map(int, generator.integers(0, 1 << 16, 12))))
                   for _ in range(generator.integers(1, steps + 1)))
    return Recipe(types, chosen, (0, *map(int, generator.integers(0, 6, generator.integers(0, 3)))))


def weighted_steps() -> list[str]:
    """The names of all steps, common ones several times."""
    return [name for name in STEPS for _ in range(WEIGHTS.get(name, 1))]


def random_shape(generator: np.random.Generator) -> tuple[int, ...]:
    """A shape of rank 0 to 3 with few elements: small extents, now and then 0 or one longer than a vector."""
    rank = int(generator.choice([0, 1, 1, 2, 2, 2, 3]))
    shape = [int(generator.choice([1, 2, 3, 4, 5, 6, 8])) for _ in range(rank)]
    if rank and generator.random() < 0.3:
        shape[generator.integers(rank)] = int(generator.choice([0, 16, 17, 33, 70]))
    while int(np.prod(shape)) > MOST_ELEMENTS:
        shape[int(np.argmax(shape))] //= 2
    return tuple(shape)


# ---- from recipes to source -----------------------------------------------------------------------------------------

def build(recipe: Recipe) -> Generated:
    """The program of a recipe. The same recipe gives the same source and the same Program."""
    scope = _run_steps(recipe)
    lines = [f"def program({', '.join(scope.arguments)}):", *[f"    {line}" for line in scope.lines]]
    outputs = [scope.names[-1 - place % len(scope.names)] for place in recipe.outputs or (0,)]
    lines.append(f"    return [{', '.join(outputs)}]")
    kept = _only_needed(lines)
    used = set(re.findall(r"\bc\d+\b", "\n".join(kept)))
    source = "\n".join([*[line for line in scope.constants if line.split(" = ")[0] in used], *kept])
    function = compiled_source(source)
    traced = trace_program(function, recipe.input_types)
    return Generated(recipe, source, function, traced.program, traced.captured)


def _run_steps(recipe: Recipe) -> Scope:
    """Make the lines of the steps, each traced as it is made, so that the next ones know its type."""
    trace = StagingTrace()
    scope = Scope()
    for type in recipe.input_types:
        scope.add_argument(trace.new_input(type))
    try:
        with active(trace):
            for name, numbers in recipe.steps:
                _run_step(scope, name, Choices(numbers))
    finally:
        trace.alive = False
    return scope


def _run_step(scope: Scope, name: str, choices: Choices) -> None:
    before = len(scope.constants)
    text = STEPS[name](scope, choices)
    if text is not None:
        try:
            results = scope.evaluate(text)
        except (DTypeError, ShapeError, RefusedError) as error:
            raise AssertionError(f"step {name} made {text!r}, which is not well typed: {error}") from error
        parts = results if isinstance(results, tuple) else (results,)
        if all(part.size <= MOST_ELEMENTS for part in parts):
            scope.add_line(text, results)
            return
    del scope.constants[before:]


def _only_needed(lines: list[str]) -> list[str]:
    """The lines without those whose results nothing reads."""
    needed = set(re.findall(r"\bv\d+\b", lines[-1]))
    kept = [lines[-1]]
    for line in reversed(lines[1:-1]):
        results, expression = line.split(" = ", 1)
        if needed & set(re.findall(r"\bv\d+\b", results)):
            needed |= set(re.findall(r"\bv\d+\b", expression))
            kept.append(line)
    return [lines[0], *reversed(kept)]


def compiled_source(source: str) -> Callable[..., list[Any]]:
    """The function `program` that a printed source defines."""
    namespace = dict(NAMESPACE)
    exec(compile(source, "<random program>", "exec"), namespace)
    return namespace["program"]

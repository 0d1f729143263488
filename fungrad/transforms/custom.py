"""What custom_jvp and custom_vjp share: arguments, the trace under which a user's rule runs, checks of what it answers.

A function with a rule acts in one of three ways, decided at each call:
- No argument is traced: the function runs as it is. What it closes over is differentiated as usual.
- The innermost transform differentiates with respect to an argument: the user's rule runs at once, so that Python
  control flow in it sees concrete values where there are some.
- Otherwise (under jit, vmap, in a loop) it becomes one operation that keeps its rule until a later transform asks.
In all of them values that the function closes over are arguments like any other, but differentiated by the function's
own operations.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes, tree
from ..errors import ShapeError
from ..ir.primitive import Primitive, Zero
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..ir.value import Value
from ..ops.create import full
from ..ops.linear import convert
from ..ops.rules import add_tangents
from ..trace import StagedTracer, Trace, evaluate, process_in
from .flat import FlatFunction, function_name, is_weak, leaf_name, to_value
from .jvp import jvp_program
from .linearize import LinearizeTrace


class Call:
    """One call of a function with a rule: its arguments as leaves, and the function as a flat one of them.

    The arguments numbered `static` go to the function and its rule as they are.
    """

    __slots__ = ("function", "args", "static", "leaves", "in_tree", "flat")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], static: Sequence[int]):
        self.function = function
        self.args = args
        self.static = static
        self.leaves, self.in_tree = tree.flatten(tuple(arg for i, arg in enumerate(args) if i not in static))
        self.flat = FlatFunction(lambda *given: function(*self.merged(given)), self.in_tree, function_name(function))

    def merged(self, dynamic: Sequence[Any]) -> list[Any]:
        """All arguments, with these in place of the ones that are not static."""
        given = iter(dynamic)
        return [arg if i in self.static else next(given) for i, arg in enumerate(self.args)]

    def values(self) -> list[Value]:
        dynamic = tuple(arg for i, arg in enumerate(self.args) if i not in self.static)
        return [to_value(leaf, lambda i=i: leaf_name(self.function, dynamic, i)) for i, leaf in enumerate(self.leaves)]

    def weak(self) -> list[bool]:
        return [is_weak(leaf) for leaf in self.leaves]

    def static_values(self) -> list[Any]:
        return [self.args[i] for i in self.static]

    def key(self) -> Any:
        """What the traced function depends on besides its captured values."""
        static = tuple((type(value), value) for value in self.static_values())
        return static, self.in_tree, tuple(value.type for value in self.values()), tuple(self.weak())


def positional(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> tuple[Any,
                                                                                                                ...]:
    """All arguments by position, defaults filled in."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        if kwargs:
            raise TypeError(f"{what} of {function_name(function)} takes positional arguments only") from None
        return args
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"{what} of {function_name(function)}: the arguments {sorted(bound.kwargs)} can only be given by "
            f"keyword, but its rule takes positional ones. Make them positional."
        )
    return bound.args


def static_numbers(numbers: int | Sequence[int], count: int) -> tuple[int, ...]:
    """nondiff_argnums as sorted non-negative numbers."""
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return tuple(sorted(n % count if count else n for n in given))


class RuleTrace(Trace):
    """Runs a user's rule under a LinearizeTrace: primals are values or its tracers, tangents are staged."""

    __slots__ = ("parent",)

    def __init__(self, trace: LinearizeTrace):
        super().__init__()
        self.parent = trace

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        trace: LinearizeTrace = self.parent
        if not any([type(value) is StagedTracer and value.trace is trace.tangent_trace for value in values]):
            return process_in(trace, primitive, values, params)
        return process_in(trace.split_trace, primitive, [trace.split(value)[0] for value in values], params)


def differentiable(type: Type) -> bool:
    return dtypes.is_float(type.dtype)


def zero_for(type: Type) -> Any:
    """Zeros for a tangent or cotangent that a rule gets: of the default float where the value is not a float."""
    return full(type.shape, 0.0, type.dtype if differentiable(type) else dtypes.default_float())


def tangent_type(type: Type) -> Type:
    return type if differentiable(type) else array_type(type.shape, dtypes.default_float())


def checked(leaf: Any, type: Type, where: Callable[[], str]) -> Any:
    """A tangent or cotangent that a rule answered (None: Zero), converted to the value's element type."""
    if leaf is None or not differentiable(type):
        return Zero(type)
    value = to_value(leaf, where)
    if value.shape != type.shape:
        raise ShapeError(
            f"{where()} is {value.type}, but the value it belongs to is {type}; their shapes must be equal"
        )
    return convert(value, type.dtype)


def captured_tangents(program: Program, arguments: int, primals: Sequence[Any], tangents: Sequence[Any],
                      results: Sequence[Any]) -> list[Any]:
    """The tangents `results` plus those along what the function closes over, through its own operations.

    program: [arguments..., captured...] -> outputs.
    """
    nonzero = tuple([i >= arguments and type(t) is not Zero for i, t in enumerate(tangents)])
    if not any(nonzero):
        return list(results)
    forward, mask = jvp_program(program, nonzero)
    found = evaluate(forward, [*primals, *(t for t, flag in zip(tangents, nonzero, strict=True) if flag)])
    along = iter(found[len(mask):])
    return [add_tangents(result, next(along)) if flag else result for result, flag in zip(results, mask, strict=True)]

"""From users' functions on pytrees to flat functions on values, with the checks and messages that go with it."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..errors import user_location
from ..ir.value import OPERATORS, Value
from ..ops.create import full

PYTHON_SCALARS = (bool, int, float)


def is_python_scalar(x: Any) -> bool:
    """Whether `x` is a weak scalar: a Python bool, int or float, and not one of NumPy's subclasses."""
    return type(x) in PYTHON_SCALARS


def to_value(x: Any, where: Callable[[], str]) -> Value:
    """An array for a leaf: scalars and NumPy arrays are converted. `where()` names the leaf in the TypeError for
    others."""
    if isinstance(x, Value):
        return x
    if is_python_scalar(x):
        return full((), x, dtypes.of_scalar(x))
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return OPERATORS["asarray"](x)
    raise TypeError(f"{where()} is {type(x).__name__} ({_short(x)}), which is not an array. Pass arrays, NumPy arrays "
                    f"or Python numbers; mark other arguments as static (static_argnums=, static_argnames=).")


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def is_weak(x: Any) -> bool:
    """Whether a leaf is a Python scalar or a weak traced one."""
    return is_python_scalar(x) or (isinstance(x, Value) and x.weak)


def function_name(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", None) or type(f).__name__


def argument_names(f: Callable[..., Any], count: int) -> list[str]:
    """Names of the first positional arguments of `f`, for messages."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return [f"argument {i}" for i in range(count)]
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names.extend(f"{parameter.name}[{i}]" for i in range(count - len(names)))
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return (names + [f"argument {i}" for i in range(len(names), count)])[:count]


def leaf_name(f: Callable[..., Any], arguments: Sequence[Any], number: int) -> str:
    """How the user would write leaf `number` of the arguments: `params['dense']['w']`."""
    names = argument_names(f, len(arguments))
    for name, argument in zip(names, arguments, strict=True):
        paths = tree.leaf_paths(tree.structure(argument))
        if number < len(paths):
            return name + tree.keystr(paths[number])
        number -= len(paths)
    return f"leaf {number}"


class FlatFunction:
    """A function on pytrees as a flat function: call it with leaves; it remembers the structure of its result."""

    __slots__ = ("function", "in_tree", "name", "out_tree")

    def __init__(self, function: Callable[..., Any], in_tree: tree.TreeDef, name: str | None = None):
        self.function = function
        self.name = name or function_name(function)
        self.in_tree = in_tree
        self.out_tree: tree.TreeDef | None = None

    def __call__(self, *leaves: Any) -> list[Value]:
        result = self.function(*tree.unflatten(self.in_tree, leaves))
        items, self.out_tree = tree.flatten(result)
        return [to_value(item, lambda number=number: self._output_name(number)) for number, item in enumerate(items)]

    def _output_name(self, number: int) -> str:
        assert self.out_tree is not None
        path = tree.keystr(tree.leaf_paths(self.out_tree)[number])
        return f"at {user_location()}: the result of {self.name}{path and f' at {path}'}"

    @property
    def result_tree(self) -> tree.TreeDef:
        assert self.out_tree is not None, "the function has been called"
        return self.out_tree


def normalize_argnums(argnums: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Argument numbers as non-negative ones; negative count from the end. TypeError for a missing argument."""
    numbers = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise TypeError(f"{what}: argument number {number} is asked for, but the function was called with {count} "
                            f"positional arguments")
    return tuple(int(number) % count for number in numbers)

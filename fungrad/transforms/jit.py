"""jit: trace a function once for each signature of its arguments, compile the program, and call that from then on.

The hot path is `Jitted.__call__`: flatten the arguments as in the latest call, look the signature up, one foreign call,
unflatten.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import config, tree
from ..dtypes import of_scalar
from ..errors import user_location
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..ir.value import OPERATORS, Value
from ..runtime import compile_program
from ..runtime.array import Array, from_numpy
from ..runtime.executable import Executable
from ..trace import Traced, Tracer, active, thread_state, trace_program
from ..tree_compiled import Mismatch, builder, flattener
from .call import call
from .flat import FlatFunction, argument_names, function_name, is_weak, to_value
from .lazy import run_pending

_SCALAR_TYPES = {bool: None, int: None, float: None}
_ARRAYS = frozenset({Array})


@dataclass(frozen=True, slots=True)
class Signature:
    """What decides whether a call needs a new trace."""
    structure: tree.TreeDef
    types: tuple[Type, ...]
    weak: tuple[bool, ...]
    static: tuple[Any, ...]
    context: tuple[Any, ...]


def _not_compiled(leaves: list[Array]) -> Any:
    raise RuntimeError("a signature that was traced inside another transform is not called directly")


@dataclass(slots=True)
class Entry:
    """A traced signature. `run` calls its compiled program with the arguments' leaves and answers the result's
    pytree."""
    signature: Signature
    traced: Traced
    out_tree: tree.TreeDef
    run: Callable[[list[Array]], Any] = _not_compiled
    donated: tuple[int, ...] = ()
    location: str = ""


def _runner(executable: Executable, captured: Sequence[Any], out_tree: tree.TreeDef) -> Callable[[list[Array]], Any]:
    call, build = executable.call, builder(out_tree)
    if executable.donated:
        def run(leaves: list[Array]) -> Any:
            run_pending(())   # what waits may read the memory that is given away
            return build(call([*leaves, *captured]))
        return run
    if captured:
        return lambda leaves: build(call([*leaves, *captured]))
    return lambda leaves: build(call(leaves))


@dataclass(slots=True)
class Statistics:
    """Counts for tests and `fungrad.why`."""
    traces: int = 0
    history: list[Signature] = field(default_factory=list)
    locations: list[str] = field(default_factory=list)


class Jitted:
    """A function that compiles itself for each signature it is called with; made by `jit`."""

    def __init__(self, function: Callable[..., Any], static_argnums: tuple[int, ...], static_argnames: tuple[str, ...],
                 donate_argnums: tuple[int, ...], donate_argnames: tuple[str, ...], device: str | None,
                 inline: bool = False):
        functools.update_wrapper(self, function)
        self._function = function
        self._static_argnums = static_argnums
        self._static_argnames = frozenset(static_argnames)
        self._donate_argnums = donate_argnums
        self._donate_argnames = frozenset(donate_argnames)
        self._device = device
        self._plain = not (static_argnums or static_argnames)
        self._entries: dict[Any, Entry] = {}
        self._guess: tuple[tree.TreeDef, Callable[[Any], list[Any]]] | None = None   # the latest structure
        self.statistics = Statistics()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {function_name(self._function)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread_state.current is not None:
            return self._call_traced(args, kwargs)
        if self._plain and not kwargs and self._guess is not None:
            structure, flatten = self._guess
            try:
                leaves = flatten(args)
                types = tuple([leaf.type for leaf in leaves])
            except (Mismatch, AttributeError):
                return self._call_general(args, kwargs)
            if _ARRAYS.issuperset(map(type, leaves)):
                entry = self._entries.get((structure, types, (), config.trace_context(), self._device))
                if entry is not None:
                    return entry.run(leaves)
        return self._call_general(args, kwargs)

    def _call_general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with other leaves than arrays, with keywords or static arguments, or with a new structure."""
        static, dynamic, keywords = self._split_static(args, kwargs)
        leaves, structure = tree.flatten((dynamic, keywords) if keywords else dynamic)
        types = tuple([leaf.type if type(leaf) is Array else _leaf_key(leaf) for leaf in leaves])
        key = (structure, types, static, config.trace_context(), self._device)
        try:
            entry = self._entries.get(key)
        except TypeError:
            self._check_static(static)
            raise
        if entry is None:
            entry = self._compile(key, args, kwargs, leaves, structure, static, bool(keywords))
        if self._plain and not keywords:
            self._guess = (structure, flattener(structure))
        return entry.run([leaf if type(leaf) is Array else _to_array(leaf) for leaf in leaves])

    # ---- misses -----------------------------------------------------------------------------------------------------

    def _compile(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any],
                 structure: tree.TreeDef, static: tuple[Any, ...], has_keywords: bool) -> Entry:
        entry = self._trace(args, kwargs, leaves, structure, static, has_keywords)
        self._record(entry)
        executable = compile_program(entry.traced.program, self._device, frozenset(entry.donated),
                                     function_name(self._function), entry.location)
        entry.run = _runner(executable, entry.traced.captured, entry.out_tree)
        return self._entries.setdefault(key, entry)

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any], structure: tree.TreeDef,
               static: tuple[Any, ...], has_keywords: bool) -> Entry:
        location = user_location(3)
        name = functools.partial(self._leaf_name, args, kwargs)
        values = [to_value(leaf, lambda i=i: name(i)) if not isinstance(leaf, Value) else leaf
                  for i, leaf in enumerate(leaves)]
        types = tuple(value.type for value in values)
        weak = tuple(is_weak(leaf) for leaf in leaves)
        count = len(args)

        def with_static(*given: Any) -> Any:
            dynamic, keywords = given if has_keywords else (given, {})
            return self._function(*self._merge_static(dynamic, static, count), **keywords, **dict(_named(static)))
        flat = FlatFunction(with_static, structure, function_name(self._function))
        traced = trace_program(flat, types, weak)
        signature = Signature(structure, types, weak, static, config.trace_context())
        donated = self._donated_leaves(args, kwargs) if self._donate_argnums or self._donate_argnames else ()
        return Entry(signature, traced, flat.result_tree, donated=donated, location=location)

    def _record(self, entry: Entry) -> None:
        """Count a trace that a call needed; looking inside (`trace`, `fungrad.show`) is no call."""
        self.statistics.traces += 1
        self.statistics.history.append(entry.signature)
        self.statistics.locations.append(entry.location)

    def _call_traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside another transform: one `call` operation."""
        static, dynamic, keywords = self._split_static(args, kwargs)
        leaves, structure = tree.flatten((dynamic, keywords) if keywords else dynamic)
        values = [to_value(leaf, lambda i=i: self._leaf_name(args, kwargs, i)) for i, leaf in enumerate(leaves)]
        types = tuple((value.type, is_weak(leaf)) for value, leaf in zip(values, leaves, strict=True))
        key = (structure, types, static, config.trace_context(), "traced", thread_state.axes)
        try:
            entry = self._entries.get(key)
        except TypeError:
            self._check_static(static)
            raise
        if entry is None:
            entry = self._trace(args, kwargs, leaves, structure, static, bool(keywords))
            self._record(entry)
            if not any(isinstance(value, Tracer) for value in entry.traced.captured):
                self._entries[key] = entry   # closed-over tracers belong to this one trace
        results = call(entry.traced.program, [*values, *entry.traced.captured], function_name(self._function))
        return tree.unflatten(entry.out_tree, results)

    # ---- static and donated arguments -------------------------------------------------------------------------------

    def _split_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple, tuple, dict[str, Any]]:
        """The static arguments as a hashable tuple of (position or name, type, value), and the others."""
        if self._plain:
            return (), args, kwargs
        numbers = {n % len(args) if n < 0 else n for n in self._static_argnums if -len(args) <= n < len(args)}
        names = argument_names(self._function, len(args))
        numbers |= {i for i, name in enumerate(names) if name in self._static_argnames}
        by_name = {*self._static_argnames, *_parameter_names(self._function, self._static_argnums)}
        static = [(i, type(args[i]), args[i]) for i in sorted(numbers)]
        static += [(name, type(kwargs[name]), kwargs[name]) for name in sorted(kwargs) if name in by_name]
        dynamic = tuple(arg for i, arg in enumerate(args) if i not in numbers)
        return tuple(static), dynamic, {name: value for name, value in kwargs.items() if name not in by_name}

    def _merge_static(self, dynamic: Sequence[Any], static: tuple[Any, ...], count: int) -> list[Any]:
        placed = {position: value for position, _, value in static if isinstance(position, int)}
        rest = iter(dynamic)
        return [placed[i] if i in placed else next(rest) for i in range(count)]

    def _check_static(self, static: tuple[Any, ...]) -> None:
        for position, cls, value in static:
            try:
                hash(value)
            except TypeError:
                raise TypeError(
                    f"jit of {function_name(self._function)}: static argument {position!r} must be hashable, got "
                    f"{cls.__name__} {value!r}. Pass a tuple instead of a list, or do not mark it as static.") from None

    def _donated_leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        static, dynamic, keywords = self._split_static(args, kwargs)
        positions = {position for position, _, _ in static}
        numbers = {n % len(args) for n in self._donate_argnums}
        names = argument_names(self._function, len(args))
        numbers |= {i for i, name in enumerate(names) if name in self._donate_argnames}
        leaves: list[int] = []
        start = 0
        for number, argument in enumerate(args):
            if number in positions:
                continue
            count = tree.structure(argument).num_leaves
            if number in numbers:
                leaves.extend(range(start, start + count))
            start += count
        for name in sorted(keywords):
            count = tree.structure(keywords[name]).num_leaves
            if name in self._donate_argnames:
                leaves.extend(range(start, start + count))
            start += count
        return tuple(leaves)

    def _leaf_name(self, args: Sequence[Any], kwargs: dict[str, Any], number: int) -> str:
        static, dynamic, keywords = self._split_static(tuple(args), kwargs)
        positions = {position for position, _, _ in static}
        names = [name for i, name in enumerate(argument_names(self._function, len(args))) if i not in positions]
        for name, argument in (*zip(names, dynamic, strict=True), *sorted(keywords.items())):
            paths = tree.leaf_paths(tree.structure(argument))
            if number < len(paths):
                return f"argument {name}{tree.keystr(paths[number])} of {function_name(self._function)}"
            number -= len(paths)
        return f"leaf {number}"

    # ---- looking inside ---------------------------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The traced program for these arguments, without compiling it."""
        static, dynamic, keywords = self._split_static(args, kwargs)
        leaves, structure = tree.flatten((dynamic, keywords) if keywords else dynamic)
        return self._trace(args, kwargs, leaves, structure, static, bool(keywords)).traced

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The program for these arguments."""
        return self.trace(*args, **kwargs).program

    def executable(self, *args: Any, **kwargs: Any) -> Executable:
        """The compiled program for these arguments (compiled now if it was not yet), without running it."""
        traced = self.trace(*args, **kwargs)
        with active(None):
            return compile_program(traced.program, self._device or config.get("device"),
                                   name=function_name(self._function))

    def clear_cache(self) -> None:
        """Forget every signature."""
        self._entries.clear()
        self.statistics = Statistics()


def _leaf_key(leaf: Any) -> Any:
    """The part of a signature that a leaf which is not an Array contributes."""
    cls = type(leaf)
    if cls in _SCALAR_TYPES:
        return (cls, of_scalar(leaf))
    if isinstance(leaf, np.ndarray):
        return array_type(leaf.shape, leaf.dtype.newbyteorder("="))
    if isinstance(leaf, (Value, np.generic)):
        return array_type(tuple(leaf.shape), leaf.dtype)
    return cls   # not an array: tracing names it in an error


def _to_array(leaf: Any) -> Array:
    if isinstance(leaf, Array):
        return leaf
    if type(leaf) in _SCALAR_TYPES:
        return from_numpy(np.asarray(leaf, of_scalar(leaf)))
    return OPERATORS["asarray"](leaf)


def _named(static: tuple[Any, ...]) -> list[tuple[str, Any]]:
    return [(position, value) for position, _, value in static if isinstance(position, str)]


@functools.lru_cache(maxsize=256)
def _parameter_names(function: Callable[..., Any], numbers: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the static positional parameters, which may also be given by keyword."""
    try:
        parameters = [p for p in inspect.signature(function).parameters.values()
                      if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        return ()
    return tuple(parameters[n].name for n in numbers if -len(parameters) <= n < len(parameters))


def _check_arguments(function: Callable[..., Any], numbers: dict[str, tuple[int, ...]],
                     names: dict[str, tuple[str, ...]]) -> None:
    """ValueError where static or donated arguments are named that the function does not take: a misspelt name would
    otherwise be traced in silence. A function whose signature is not known may take any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    kinds = {parameter.kind for parameter in parameters}
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    where = f"jit of {function_name(function)}"
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        for option, given in numbers.items():
            for number in given:
                if not -len(positional) <= number < len(positional):
                    raise ValueError(f"{where}: {option} has {number}, but the function takes {len(positional)} "
                                     f"positional arguments: {', '.join(positional) or 'none'}")
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for option, wanted in names.items():
            for name in wanted:
                if name not in keywords:
                    raise ValueError(f"{where}: {option} has {name!r}, but the function takes "
                                     f"{', '.join(keywords) or 'no named arguments'}")


def _numbers(value: int | Sequence[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (int(value),) if isinstance(value, (int, np.integer)) else tuple(int(n) for n in value)


def _names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def jit(fun: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Sequence[str] | None = None, device: str | None = None, keep_unused: bool = False,
        inline: bool = False) -> Any:
    """Compile a function: it is traced once for each signature (structure, shapes, dtypes, static values).

    Args:
        fun: a pure function of pytrees of arrays. Without it, `jit(...)` answers a decorator.
        static_argnums, static_argnames: arguments that are Python values, part of the signature (hashable).
        donate_argnums, donate_argnames: arguments whose memory the results may take over; they are deleted by the call.
        device: the backend; the default is `config.device`.
        keep_unused, inline: accepted for compatibility; they change nothing.
    Raises:
        TypeError: `fun` is not callable. ValueError: it does not take an argument that is named static or donated.

    >>> import fungrad
    >>> float(fungrad.jit(lambda x, y: x * y + 1)(2.0, 3.0))
    7.0
    """
    if fun is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames, device=device)
    if not callable(fun):
        raise TypeError(f"jit needs a function, got {type(fun).__name__}")
    numbers = {"static_argnums": _numbers(static_argnums), "donate_argnums": _numbers(donate_argnums)}
    names = {"static_argnames": _names(static_argnames), "donate_argnames": _names(donate_argnames)}
    if any(numbers.values()) or any(names.values()):
        _check_arguments(fun, numbers, names)
    return Jitted(fun, numbers["static_argnums"], names["static_argnames"], numbers["donate_argnums"],
                  names["donate_argnames"], device)


def why(fun: Jitted) -> str:
    """Why a jitted function was traced each time: what differed from the nearest earlier signature."""
    if not isinstance(fun, Jitted):
        raise TypeError(f"why() explains jitted functions, got {type(fun).__name__}")
    lines = []
    history = fun.statistics.history
    for number, signature in enumerate(history):
        where = fun.statistics.locations[number]
        if number == 0:
            lines.append(f"trace 1 at {where}: the first call")
            continue
        nearest = min(history[:number], key=lambda earlier: len(_differences(earlier, signature)))
        differences = _differences(nearest, signature) or ["equal signature"]
        lines.append(f"trace {number + 1} at {where}: " + "; ".join(differences))
    return "\n".join(lines) or "never traced"


def _differences(old: Signature, new: Signature) -> list[str]:
    if old.structure is not new.structure:
        return [f"the arguments' structure changed from {old.structure} to {new.structure}"]
    found = []
    paths = [tree.keystr(path) for path in tree.leaf_paths(new.structure)]
    columns = zip(paths, old.types, new.types, old.weak, new.weak, strict=True)
    for path, before, after, weak_before, weak_after in columns:
        if before is not after:
            found.append(f"argument {path} changed from {before} to {after}")
        elif weak_before != weak_after:
            found.append(f"argument {path} is now {'a Python scalar' if weak_after else 'an array'}")
    if old.static != new.static:
        found.append(f"static arguments changed from {old.static} to {new.static}")
    if old.context != new.context:
        found.append(f"settings changed from {old.context} to {new.context}")
    return found

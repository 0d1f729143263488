"""Tracing: how a Python function on values becomes a Program, and how transforms see its operations.

One trace is current in each thread. `bind(primitive, *values, **params)` hands the operation to it. A transform's trace
runs its rule with its parent made current, so the rule's own operations go outwards; a StagingTrace records. A tracer
belongs to one trace, by identity; a value of another trace is a constant to it. Leaving a trace kills it: a tracer that
escapes raises LeakedTracerError when it is used.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .dtypes import is_float
from .errors import ConcretizationError, LeakedTracerError, user_location
from .ir.primitive import Primitive
from .ir.program import Node, Program, apply, input_node, program, result_node
from .ir.types import Type
from .ir.value import Value


class Trace:
    """What `bind` hands operations to."""

    __slots__ = ("alive", "origin")

    def __init__(self) -> None:
        self.alive = True
        self.origin = user_location(2)

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Apply the primitive; one value, or a tuple for a primitive with several results."""
        raise NotImplementedError


class Tracer(Value):
    """A value inside a trace."""

    __slots__ = ("trace", "type", "weak", "origin", "__weakref__")

    def __init__(self, trace: Trace, type: Type, weak: bool = False) -> None:
        self.trace = trace
        self.type = type
        self.weak = weak

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.type}>"

    def concrete(self) -> Value | None:
        """The concrete value behind this tracer, where a transform works on one (`if x > 0` under plain `grad`)."""
        return None

    def concretize(self, what: str) -> Value:
        """The concrete value, or an error that says what to write instead."""
        if not self.trace.alive:
            raise leak_error(self)
        value = self.concrete()
        if isinstance(value, Tracer):
            return value.concretize(what)
        if value is None:
            raise ConcretizationError(
                f"{what} needs a concrete value, but this is a traced {self.type} (traced from {self.trace.origin}). "
                f"At {user_location()}. {_ADVICE.get(what, _ADVICE_OTHERWISE)}")
        return value

    def _outside(self, what: str) -> Value:
        """The concrete value for Python or NumPy to compute with; an error where a derivative would be lost by that."""
        value = self.concretize(what)
        if is_float(self.type.dtype):
            raise ConcretizationError(
                f"{what} of a {self.type} that is being differentiated (traced from {self.trace.origin}) would lose "
                f"its derivative. At {user_location()}. Call fungrad.numpy's functions instead of NumPy's or math's; "
                "where no derivative is meant, write fungrad.lax.stop_gradient(x) or x.item().")
        return value

    def __bool__(self) -> bool:
        return bool(self.concretize("bool()"))

    def __int__(self) -> int:
        return int(self.concretize("int()"))  # type: ignore[call-overload]  # an Array

    def __index__(self) -> int:
        return self.concretize("an index in Python code").__index__()  # type: ignore[attr-defined]  # an Array

    def __float__(self) -> float:
        return float(self._outside("float()"))  # type: ignore[arg-type]  # an Array

    def __complex__(self) -> complex:
        return complex(self._outside("complex()"))  # type: ignore[arg-type]  # an Array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array: Any = self._outside("conversion to a NumPy array")
        return array.__array__(dtype, copy)

    def item(self, *index: int) -> Any:
        return self.concretize("item()").item(*index)  # type: ignore[attr-defined]  # an Array

    def tolist(self) -> Any:
        return self._outside("tolist()").tolist()  # type: ignore[attr-defined]  # an Array


_ADVICE_OTHERWISE = ("Mark the argument as static (static_argnums=, static_argnames=), or compute with fungrad.numpy "
                     "instead of NumPy inside jit, vmap and scan.")
_ADVICE = {
    "bool()": "Instead of `if x: ...` write fungrad.lax.cond(x, on_true, on_false, *operands), or "
              "fungrad.numpy.where(x, a, b) for a choice by element; instead of `while`, fungrad.lax.while_loop; "
              "or mark the argument as static (static_argnums=, static_argnames=).",
    "conversion to a NumPy array": "Inside jit, vmap and scan call fungrad.numpy's functions instead of NumPy's.",
    "an index in Python code": "To index a list with it, make one array of the list (fungrad.numpy.stack) and index "
                               "that, or use fungrad.lax.switch; a shape or a range must be static (static_argnums=).",
    "a boolean mask as an index": "The number of elements it selects is not known while tracing. Write "
                                  "fungrad.numpy.where(mask, x, other) to choose by element, x.at[mask].set(scalar), "
                                  "or fungrad.numpy.nonzero(mask, size=n) for the positions of at most n elements.",
}


def leak_error(tracer: Tracer) -> LeakedTracerError:
    return LeakedTracerError(
        f"leaked tracer: a traced {tracer.type} from the function traced at {tracer.trace.origin} is used after that "
        f"trace has ended, at {user_location()}. Return the value from the function instead of storing it in a global, "
        f"an attribute or a list.")


class _State(threading.local):
    current: Trace | None = None
    location: str | None = None
    axes: tuple[tuple[Any, int], ...] = ()   # the named axes of the maps that run, innermost last


thread_state = _State()
_base: list[Trace] = []


def set_base_trace(trace: Trace) -> None:
    """Say which trace gets the operations outside every transform; called once, by `fungrad/__init__.py`."""
    _base[:] = [trace]


def current_trace() -> Trace | None:
    """The trace that is active in this thread; None outside every transform."""
    return thread_state.current


def is_base() -> bool:
    """Whether no transform is active in this thread."""
    return thread_state.current is None


@contextmanager
def active(trace: Trace | None) -> Iterator[None]:
    """Make `trace` current within the block (None: the base trace)."""
    before = thread_state.current
    thread_state.current = trace
    try:
        yield
    finally:
        thread_state.current = before


Axes = tuple[tuple[Any, int], ...]


@contextmanager
def with_named_axes(axes: Axes) -> Iterator[None]:
    """Within the block, exactly these names (with their sizes) are axes of maps that run the user's function."""
    before = thread_state.axes
    thread_state.axes = axes
    try:
        yield
    finally:
        thread_state.axes = before


@contextmanager
def at_location(location: str | None) -> Iterator[None]:
    """Attribute operations within the block to this user line (a backward pass names the forward line)."""
    before = thread_state.location
    thread_state.location = location
    try:
        yield
    finally:
        thread_state.location = before


def bind(primitive: Primitive, *values: Any, **params: Any) -> Any:
    """Apply a primitive to values under the current trace."""
    return (thread_state.current or _base[0]).process(primitive, values, params)


def process_in(trace: Trace | None, primitive: Primitive, values: Sequence[Any], params: dict[str, Any]) -> Any:
    """Apply a primitive under the given trace (None: the base trace)."""
    before = thread_state.current
    thread_state.current = trace
    try:
        return (trace or _base[0]).process(primitive, tuple(values), params)
    finally:
        thread_state.current = before


def typed_node(primitive: Primitive, operands: tuple[Node, ...], params: dict[str, Any]) -> Node:
    """`ir.program.apply`, with the user's line added to a type rule's error."""
    try:
        return apply(primitive, operands, params)
    except (TypeError, ValueError) as error:
        location = thread_state.location or user_location()
        if location:
            error.add_note(f"in {primitive.name}, called at {location}")
        raise


class StagedTracer(Tracer):
    """A value of a program under construction."""

    __slots__ = ("node",)

    def __init__(self, trace: StagingTrace, node: Node, weak: bool = False) -> None:
        self.trace = trace
        self.node = node
        self.type = node.type
        self.weak = weak


class StagingTrace(Trace):
    """Records operations as nodes of a Program. Values of other traces become inputs after the explicit ones."""

    __slots__ = ("input_types", "captured", "_captured_nodes", "locations")

    def __init__(self) -> None:
        super().__init__()
        self.input_types: list[Type] = []
        self.captured: list[Value] = []
        self._captured_nodes: dict[int, Node] = {}
        self.locations: dict[Node, str] = {}

    def new_input(self, type: Type, weak: bool = False) -> StagedTracer:
        """A further explicit input; all of them must be made before anything is captured."""
        node = input_node(len(self.input_types), type)
        self.input_types.append(type)
        return StagedTracer(self, node, weak)

    def node_of(self, value: Any) -> Node:
        """The node of a value: its own, or the input through which a value of another trace is captured."""
        if type(value) is StagedTracer and value.trace is self:
            return value.node
        found = self._captured_nodes.get(id(value))
        if found is None:
            if isinstance(value, Tracer) and not value.trace.alive:
                raise leak_error(value)
            if not isinstance(value, Value):
                raise TypeError(f"expected an array inside a traced function, got {type(value).__name__}: {value!r}")
            found = self.capture(value)
        return found

    def capture(self, value: Value) -> Node:
        """A further input, which stands for a value of another trace (which may have ended)."""
        found = input_node(len(self.input_types), value.type)
        self.input_types.append(value.type)
        self.captured.append(value)   # also keeps the value, and so its id, alive
        self._captured_nodes[id(value)] = found
        return found

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        node = typed_node(primitive, tuple([self.node_of(value) for value in values]), params)
        if node not in self.locations:
            self.locations[node] = thread_state.location or user_location(3)
        if primitive.multiple_results:
            return tuple([StagedTracer(self, result_node(node, number)) for number in range(len(node.type))])
        return StagedTracer(self, node)


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced function: its Program, the values for the program's trailing inputs, and where each node comes from."""
    program: Program
    captured: tuple[Value, ...]
    locations: Mapping[Node, str]


def trace_program(function: Callable[..., Sequence[Any]], types: Sequence[Type],
                  weak: Sequence[bool] | None = None, captured: Sequence[Value] = ()) -> Traced:
    """Run `function` once on tracers of these types and record it. It takes and returns flat sequences of values.

    captured: values of other traces that come first among the captured ones, whether used or not.
    """
    trace = StagingTrace()
    flags = weak or [False] * len(types)
    inputs = [trace.new_input(type, flag) for type, flag in zip(types, flags, strict=True)]
    for value in captured:
        trace.capture(value)
    try:
        with active(trace):
            outputs = tuple([trace.node_of(value) for value in function(*inputs)])
    finally:
        trace.alive = False
    return Traced(program(tuple(trace.input_types), outputs), tuple(trace.captured), trace.locations)


def evaluate(program: Program, values: Sequence[Any], locations: Mapping[Node, str] | None = None) -> list[Any]:
    """Run a program's operations under the current trace, operands first."""
    environment: dict[Node, Any] = dict(zip(program.inputs, values, strict=True))
    for node in program.nodes():
        if node in environment:
            continue
        if node.primitive.name == "result":
            environment[node] = environment[node.operands[0]][node.param("number")]
            continue
        operands = [environment[operand] for operand in node.operands]
        if locations is not None and node in locations:
            with at_location(locations[node]):
                environment[node] = bind(node.primitive, *operands, **dict(node.params))
        else:
            environment[node] = bind(node.primitive, *operands, **dict(node.params))
    return [environment[output] for output in program.outputs]

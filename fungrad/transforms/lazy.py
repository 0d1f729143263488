"""The base trace: what operations do outside every transform. They wait, and run together when a value is looked at.

An operation makes an Array with a `Pending` node. `realize` gathers everything that waits in this thread (so that
intermediate results which the user still holds are computed once), builds a Program of it, and runs that through the
same compile cache as `jit`. Types are checked when the operation is called, so an error is raised at the line that
caused it; at most `config.pending_limit` operations wait.
"""
from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any
from weakref import ref

import numpy as np

from .. import config, tree
from ..errors import LeakedTracerError, user_location
from ..ir.primitive import PRIMITIVES, Primitive
from ..ir.program import Node, Program, input_node, node, program, result_node
from ..ir.types import Literal, Type
from ..runtime import array as array_module, compile_program
from ..runtime.array import Array, from_numpy
from ..runtime.executable import Executable
from ..trace import Trace, Tracer, active, leak_error

_INLINE_SCALARS = frozenset({0, 1, -1, 2, 0.5, float("inf"), float("-inf")})


class Pending:
    """An operation that waits. Operands are Pending nodes (with a result number) or Arrays that have memory."""

    __slots__ = ("primitive", "operands", "params", "type", "location", "results")

    results: list[Array | None] | None

    def __init__(self, primitive: Primitive, operands: tuple[Any, ...], params: dict[str, Any], type: Any,
                 location: str):
        self.primitive = primitive
        self.operands = operands
        self.params = params
        self.type = type
        self.location = location
        self.results = None   # filled when it has run


class Result:
    """One result of a Pending operation."""

    __slots__ = ("pending", "number")

    def __init__(self, pending: Pending, number: int):
        self.pending = pending
        self.number = number


class _Waiting(threading.local):
    """The pending arrays of this thread (by weak reference), and how many operations were added since the last run."""

    def __init__(self) -> None:
        self.arrays: list[ref[Array]] = []
        self.operations = 0


_waiting = _Waiting()


class LazyTrace(Trace):
    """Makes every operation a pending Array."""

    __slots__ = ()

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        types = [value.type for value in values]
        operands = tuple([_operand(value) for value in values])
        location = user_location(3)
        try:
            type = primitive.type(*types, **params)
        except (TypeError, ValueError) as error:
            error.add_note(f"in {primitive.name}, called at {location}")
            raise
        pending = Pending(primitive, operands, params, type, location)
        device = _device_of(values)
        if primitive.multiple_results:
            arrays = tuple([_pending_array(t, Result(pending, number), device) for number, t in enumerate(type)])
        else:
            arrays = _pending_array(type, Result(pending, 0), device)
        _waiting.operations += 1
        if _waiting.operations >= config.get("pending_limit"):
            run_pending(())
        return arrays


def _operand(value: Any) -> Any:
    if isinstance(value, Array):
        waits_for = value._pending
        if isinstance(waits_for, Result):
            return waits_for
        value._ready()   # raises if it was deleted
        return value
    if isinstance(value, Tracer):
        if not value.trace.alive:
            raise leak_error(value)
        raise LeakedTracerError(
            f"leaked tracer: a traced {value.type} (traced from {value.trace.origin}) is used outside its trace, at "
            f"{user_location()}, for example from another thread. Return the value from the traced function instead.")
    raise TypeError(f"expected an array, got {type(value).__name__}: {value!r}")


def _device_of(values: Sequence[Any]) -> str:
    for value in values:
        return value.device
    return config.get("device")


def _pending_array(type: Type, result: Result, device: str) -> Array:
    array = Array(type, None, None, device, result)
    _waiting.arrays.append(ref(array))
    return array


def realize_array(array: Array) -> None:
    """Run what `array` waits for, together with everything else that waits in this thread."""
    if isinstance(array._pending, Result):
        run_pending((array,))


def realize(x: Any) -> Any:
    """Run what the arrays of the pytree `x` wait for (and everything else that waits in this thread); answers `x`."""
    run_pending([leaf for leaf in tree.leaves(x) if isinstance(leaf, Array)])
    return x


def run_pending(also: Iterable[Array]) -> None:
    """Run everything that waits in this thread, and the given arrays (which may have been made in another one)."""
    arrays: list[Array] = []
    seen: set[int] = set()
    for candidate in (*also, *(reference() for reference in _waiting.arrays)):
        if candidate is not None and id(candidate) not in seen and isinstance(candidate._pending, Result):
            seen.add(id(candidate))
            arrays.append(candidate)
    _waiting.arrays = []
    _waiting.operations = 0
    by_device: dict[str, list[Array]] = {}
    for array in arrays:
        by_device.setdefault(array.device, []).append(array)
    for device, group in by_device.items():
        _run_group(group, device)


def _run_group(arrays: list[Array], device: str) -> None:
    waiting = [(array, array._pending) for array in arrays]
    unfinished = [(a, r) for a, r in waiting if isinstance(r, Result) and not _take_finished(a, r)]
    if not unfinished:
        return
    graph = _Graph([result for _, result in unfinished], device)
    for (array, result), value in zip(unfinished, _executable(graph, device).call(graph.leaves), strict=True):
        array._fill(value._ready(), value._owner)
        _finish(result, value)


_plans: OrderedDict[Any, Executable] = OrderedDict()
_MOST_PLANS = 1024


def _executable(graph: _Graph, device: str) -> Executable:
    """The compiled program of a graph: by the graph's shape, without building the Program of one seen before."""
    types = tuple([leaf.type for leaf in graph.leaves])
    key = (tuple(graph.shape), graph.outputs, types, device, config.trace_context())
    found = _plans.get(key)
    if found is None:
        with active(None):
            found = compile_program(graph.program(), device, name="pending operations", origin=user_location())
        _plans[key] = found
        while len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)
    return found


def _finish(result: Result, value: Array) -> None:
    """Remember a result that has run; what an operation waited for is let go of when all its results have."""
    pending = result.pending
    count = len(pending.type) if pending.primitive.multiple_results else 1
    results: list[Array | None] = pending.results or list(repeat(None, count))
    results[result.number] = value
    pending.results = results
    if all(entry is not None for entry in results):
        pending.operands = ()


def _finished(result: Result) -> Array | None:
    return result.pending.results[result.number] if result.pending.results else None


def _take_finished(array: Array, result: Result) -> bool:
    """Give `array` the memory of a result that has run already (for another array of the same operation)."""
    finished = _finished(result)
    if finished is None:
        return False
    array._fill(finished._ready(), finished._owner)
    return True


class _Graph:
    """Pending operations in order, operands first, with the arrays that have memory as numbered leaves.

    shape says the same without the arrays: for each operation its primitive, parameters and operands, an operand
    being a
    leaf (~number) or an operation (number, with the result's number where there are several). Equal shapes are
    equal programs.

    Scalar constants become leaves too, so that a loop over changing Python numbers compiles once; a few that matter for
    simplification stay in the program.
    """

    __slots__ = ("_constants", "_leaf_numbers", "_numbers", "device", "leaves", "order", "outputs", "shape")

    def __init__(self, results: Sequence[Result], device: str) -> None:
        self.device = device
        self.leaves: list[Array] = []
        self.order: list[Pending] = []
        self.shape: list[Any] = []
        self._leaf_numbers: dict[tuple[int, Type], int] = {}
        self._numbers: dict[int, int] = {}
        self._constants: dict[int, int] = {}   # operation number -> leaf of its scalar
        self._collect([result.pending for result in results])
        self.outputs = tuple([self._reference(result) for result in results])

    def _collect(self, roots: list[Pending]) -> None:
        stack = roots[::-1]
        while stack:
            pending = stack[-1]
            if id(pending) in self._numbers:
                stack.pop()
                continue
            missing = [operand.pending for operand in pending.operands if type(operand) is Result
                       and id(operand.pending) not in self._numbers and _finished(operand) is None]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self._add(pending)

    def _add(self, pending: Pending) -> None:
        number = self._numbers[id(pending)] = len(self.order)
        self.order.append(pending)
        if pending.primitive.name == "full":
            literal = pending.params["value"]
            value = literal.value
            if not (value in _INLINE_SCALARS or value != value or isinstance(value, bool)):
                leaf = self._constants[number] = self._leaf(_scalar(literal, self.device))
                self.shape.append((pending.type, leaf))
                return
        operands = tuple([self._reference(operand) for operand in pending.operands])
        self.shape.append((pending.primitive, tuple(sorted(pending.params.items())), operands))

    def _reference(self, operand: Any) -> Any:
        if type(operand) is not Result:
            return ~self._leaf(operand)
        finished = _finished(operand)
        if finished is not None:
            return ~self._leaf(finished)
        number = self._numbers[id(operand.pending)]
        return (number, operand.number) if operand.pending.primitive.multiple_results else number

    def _leaf(self, array: Array) -> int:
        key = (array._ready(), array.type)   # equal memory is one leaf
        found = self._leaf_numbers.get(key)
        if found is None:
            found = self._leaf_numbers[key] = len(self.leaves)
            self.leaves.append(array)
        return found

    def program(self) -> Program:
        """The graph as a Program of its leaves."""
        inputs = [input_node(number, leaf.type) for number, leaf in enumerate(self.leaves)]
        nodes: list[Node] = []

        def named(reference: Any) -> Node:
            if isinstance(reference, tuple):
                return result_node(nodes[reference[0]], reference[1])
            return nodes[reference] if reference >= 0 else inputs[~reference]
        for number, (pending, entry) in enumerate(zip(self.order, self.shape, strict=True)):
            if number in self._constants:
                nodes.append(_repeated(inputs[self._constants[number]], pending.type))
            else:
                nodes.append(node(pending.primitive, tuple(map(named, entry[2])), pending.params, pending.type))
        return program(tuple([leaf.type for leaf in self.leaves]), tuple(map(named, self.outputs)))


def _repeated(scalar: Node, type: Type) -> Node:
    """A scalar as an array of this type."""
    return node(PRIMITIVES["broadcast"], (scalar,), {"shape": type.shape, "axes": ()}, type) if type.shape else scalar


@lru_cache(maxsize=4096)
def _scalar(literal: Literal, device: str) -> Array:
    """A literal as an array; arrays are immutable, so equal ones are shared."""
    return from_numpy(np.frombuffer(literal.bits, literal.dtype).reshape(()), device)


def install() -> LazyTrace:
    """Connect arrays with this file; answers the base trace."""
    array_module.REALIZE = realize_array
    return LazyTrace()

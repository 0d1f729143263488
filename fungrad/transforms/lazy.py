"""The base trace: what operations do outside every transform. They wait, and run together when a value is looked at.

An operation makes an Array with a `Pending` node. `realize` gathers everything that waits in this thread (so that
intermediate results which the user still holds are computed once), builds a Program of it, and runs that through the
same compile cache as `jit`. Types are checked when the operation is called, so an error is raised at the line that
caused it; at most `config.pending_limit` operations wait.
"""
from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any
from weakref import ref

import numpy as np

from .. import config, tree
from ..errors import LeakedTracerError, user_location
from ..ir.primitive import PRIMITIVES, Primitive
from ..ir.program import Node, input_node, node, program, result_node
from ..ir.types import Type
from ..runtime import array as array_module, compile_program
from ..runtime.array import Array, from_numpy
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
    builder = _ProgramBuilder(device)
    outputs = tuple([builder.node_of(result) for _, result in unfinished])
    with active(None):
        executable = compile_program(program(tuple(builder.input_types), outputs), device, name="pending operations",
                                     origin=user_location())
        values = executable(builder.inputs)
    for (array, result), value in zip(unfinished, values, strict=True):
        array._fill(value._ready(), value._owner)
        _finish(result, value)


def _finish(result: Result, value: Array) -> None:
    """Remember a result that has run; what an operation waited for is let go of when all its results have."""
    pending = result.pending
    count = len(pending.type) if pending.primitive.multiple_results else 1
    results: list[Array | None] = pending.results or list(repeat(None, count))
    results[result.number] = value
    pending.results = results
    if all(entry is not None for entry in results):
        pending.operands = ()


def _take_finished(array: Array, result: Result) -> bool:
    """Give `array` the memory of a result that has run already (for another array of the same operation)."""
    finished = result.pending.results[result.number] if result.pending.results else None
    if finished is None:
        return False
    array._fill(finished._ready(), finished._owner)
    return True


class _ProgramBuilder:
    """Turns pending operations into Program nodes; arrays with memory become inputs.

    Scalar constants become inputs too, so that a loop over changing Python numbers compiles once; a few that matter for
    simplification stay in the program.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.inputs: list[Array] = []
        self.input_types: list[Type] = []
        self.locations: dict[Node, str] = {}
        self._leaves: dict[tuple[int, Type], Node] = {}
        self._scalars: dict[Any, Node] = {}
        self._nodes: dict[int, Node] = {}

    def node_of(self, result: Any) -> Node:
        """The node of a Result or an Array, building what it needs first (without recursion)."""
        stack = [result]
        while stack:
            item = stack[-1]
            if self._known(item) is not None:
                stack.pop()
                continue
            waiting = [operand for operand in item.pending.operands if self._known(operand) is None]
            if waiting:
                stack.extend(waiting)
                continue
            self._nodes[id(item.pending)] = self._build(item.pending)
            stack.pop()
        found = self._known(result)
        assert found is not None
        return found

    def _known(self, item: Any) -> Node | None:
        if isinstance(item, Array):
            return self._leaf(item)
        pending = item.pending
        finished = pending.results[item.number] if pending.results else None
        if finished is not None:
            return self._leaf(finished)
        built = self._nodes.get(id(pending))
        if built is None or not pending.primitive.multiple_results:
            return built
        return result_node(built, item.number)

    def _leaf(self, array: Array) -> Node:
        address = (array._ready(), array.type)   # equal memory is one input
        found = self._leaves.get(address)
        if found is None:
            found = self._leaves[address] = self._new_input(array)
        return found

    def _new_input(self, array: Array) -> Node:
        created = input_node(len(self.inputs), array.type)
        self.inputs.append(array)
        self.input_types.append(array.type)
        return created

    def _build(self, pending: Pending) -> Node:
        if pending.primitive.name == "full":
            return self._constant(pending)
        operands = tuple([self._known(operand) for operand in pending.operands])
        built = node(pending.primitive, operands, pending.params, pending.type)   # type: ignore[arg-type]  # all known
        self.locations[built] = pending.location
        return built

    def _constant(self, pending: Pending) -> Node:
        literal, type = pending.params["value"], pending.type
        value = literal.value
        if value in _INLINE_SCALARS or value != value or isinstance(value, bool):
            return node(pending.primitive, (), pending.params, type)
        scalar = self._scalars.get(literal)
        if scalar is None:
            host = np.frombuffer(literal.bits, literal.dtype).reshape(())
            scalar = self._scalars[literal] = self._new_input(from_numpy(host, self.device))
        if not type.shape:
            return scalar
        return node(PRIMITIVES["broadcast"], (scalar,), {"shape": type.shape, "axes": ()}, type)


def install() -> LazyTrace:
    """Connect arrays with this file; answers the base trace."""
    array_module.REALIZE = realize_array
    return LazyTrace()

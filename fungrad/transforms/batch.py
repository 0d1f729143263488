"""vmap's mechanism: values with one axis that the user's function does not see.

The axis may have a name, by which collectives (`collective.py`) find it. A rule that maps a Program (a loop's body)
maps it over the axis whose rule is running, name included.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..ir.primitive import Primitive
from ..ir.program import Program
from ..ir.types import array_type
from ..ir.value import Value
from ..ops.rules import broadcast, move_axis
from ..trace import (
    Trace,
    Tracer,
    active,
    current_trace,
    evaluate,
    process_in,
    thread_state,
    trace_program,
    with_named_axes,
)


class _Mapping(threading.local):
    axis_name: Any = None   # of the trace whose batch rule is running


_mapping = _Mapping()


class BatchTracer(Tracer):
    """A value whose axis `batch_axis` is mapped; its type is that of one element."""

    __slots__ = ("value", "batch_axis")

    def __init__(self, trace: BatchTrace, value: Value, batch_axis: int, weak: bool = False):
        self.trace = trace
        self.value = value
        self.batch_axis = batch_axis
        shape = value.shape
        self.type = array_type((*shape[:batch_axis], *shape[batch_axis + 1:]), value.dtype)
        self.weak = weak


class BatchTrace(Trace):
    """Runs each operation's batch rule under the parent trace."""

    __slots__ = ("parent", "axis_size", "axis_name")

    def __init__(self, parent: Trace | None, axis_size: int, axis_name: Any = None):
        super().__init__()
        self.parent = parent
        self.axis_size = axis_size
        self.axis_name = axis_name

    def split(self, value: Any) -> tuple[Any, int | None]:
        """The whole value and its mapped axis; None for a value that is the same for all."""
        if type(value) is BatchTracer and value.trace is self:
            return value.value, value.batch_axis
        return value, None

    def join(self, value: Any, axis: int | None) -> Any:
        return value if axis is None else BatchTracer(self, value, axis)

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.split(value) for value in values]
        operands = [operand for operand, _ in pairs]
        axes = [axis for _, axis in pairs]
        if self.axis_name is None:
            if all([axis is None for axis in axes]):
                return process_in(self.parent, primitive, operands, params)
            with active(self.parent):
                result, axis = primitive.batch(self.axis_size, operands, axes, **params)
        else:
            if all([axis is None for axis in axes]) and not _uses(primitive, params, self.axis_name):
                return process_in(self.parent, primitive, operands, params)
            result, axis = self._named(primitive, operands, axes, params)
        if primitive.multiple_results:
            return tuple([self.join(r, a) for r, a in zip(result, axis, strict=True)])
        return self.join(result, axis)


    def _named(self, primitive: Primitive, operands: Sequence[Any], axes: Sequence[int | None],
               params: dict[str, Any]) -> tuple[Any, Any]:
        """Run the rule while the axis has a name."""
        rule = primitive.batch
        if primitive.collect is not None and params["axis_name"] == self.axis_name:
            rule = primitive.collect
        before, _mapping.axis_name = _mapping.axis_name, self.axis_name
        try:
            with active(self.parent):
                return rule(self.axis_size, operands, axes, **params)
        finally:
            _mapping.axis_name = before


def _uses(primitive: Primitive, params: dict[str, Any], axis_name: Any) -> bool:
    """Whether an operation, or one in its programs, is a collective over the named axis."""
    if primitive.collect is not None:
        return params["axis_name"] == axis_name
    if "call" in primitive.traits:
        return _program_uses(primitive.expansion(params), axis_name)
    return any(_program_uses(item, axis_name) for value in params.values()
               for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Program))


@lru_cache(maxsize=1024)
def _program_uses(program: Program, axis_name: Any) -> bool:
    return any(_uses(node.primitive, dict(node.params), axis_name) for node in program.nodes())


def batch_values(function: Callable[..., Sequence[Any]], size: int, operands: Sequence[Any],
                 axes: Sequence[int | None], axis_name: Any = None) -> tuple[list[Any], list[int | None]]:
    """Map a flat function over the given axes; answers whole results and their mapped axes."""
    trace = BatchTrace(current_trace(), size, axis_name)
    inputs = [trace.join(operand, axis) for operand, axis in zip(operands, axes, strict=True)]
    try:
        with active(trace):
            if axis_name is None:
                outputs = function(*inputs)
            else:
                with with_named_axes((*thread_state.axes, (axis_name, size))):
                    outputs = function(*inputs)
    finally:
        trace.alive = False
    pairs = [trace.split(output) for output in outputs]
    return [value for value, _ in pairs], [axis for _, axis in pairs]


def batch_program(program: Program, size: int, mapped: tuple[bool, ...],
                  wanted: tuple[bool, ...] = ()) -> tuple[Program, tuple[bool, ...]]:
    """The program mapped over axis 0 of the marked inputs, and which outputs have the new axis, first.

    Outputs marked `wanted` have it in any case. For use in batch rules: the axis has the name of the one whose rule
    runs.
    """
    return batch_program_over(program, size, mapped, wanted, _mapping.axis_name)


def mapped_axis_name() -> Any:
    """The name of the axis whose batch rule is running (None: it has none)."""
    return _mapping.axis_name


@lru_cache(maxsize=1024)
def batch_program_over(program: Program, size: int, mapped: tuple[bool, ...], wanted: tuple[bool, ...],
                   axis_name: Any) -> tuple[Program, tuple[bool, ...]]:
    out_mapped: list[bool] = []

    def whole(*operands: Any) -> list[Any]:
        axes = [0 if flag else None for flag in mapped]
        results, out_axes = batch_values(lambda *xs: evaluate(program, xs), size, operands, axes,
                                         axis_name)
        if wanted:
            results = [broadcast(r, (size, *r.shape), tuple(range(1, r.ndim + 1))) if want and axis is None else r
                       for r, axis, want in zip(results, out_axes, wanted, strict=True)]
            out_axes = [0 if want and axis is None else axis for axis, want in zip(out_axes, wanted, strict=True)]
        out_mapped[:] = [axis is not None for axis in out_axes]
        return [r if axis is None else move_axis(r, axis, 0) for r, axis in zip(results, out_axes, strict=True)]
    types = [array_type((size, *type.shape), type.dtype) if flag else type
             for type, flag in zip(program.input_types, mapped, strict=True)]
    return trace_program(whole, types).program, tuple(out_mapped)

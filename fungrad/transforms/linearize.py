"""Direct linearization: run a function once, on its parent trace, and record its linear part as a Program.

The primal work happens at once; the tangent work is staged. What the staged part needs of the primal work (the
residuals) are the values that its StagingTrace captures. An operation's jvp rule serves both: under `SplitTrace` what
touches a tangent is staged and everything else runs.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..ir.primitive import Primitive, Zero
from ..ir.program import Program, program as make_program
from ..ir.types import Type
from ..ir.value import Value
from ..ops.rules import instantiate
from ..trace import (
    StagedTracer,
    StagingTrace,
    Trace,
    Traced,
    Tracer,
    active,
    current_trace,
    evaluate,
    process_in,
    trace_program,
)


class LinearizeTracer(Tracer):
    """A value with the staged tracer of its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: LinearizeTrace, primal: Value, tangent: StagedTracer, weak: bool = False):
        self.trace = trace
        self.primal = primal
        self.tangent = tangent
        self.type = primal.type
        self.weak = weak

    def concrete(self) -> Value:
        return self.primal


class SplitTrace(Trace):
    """Stages what touches a tangent; runs everything else on the parent trace."""

    __slots__ = ("parent", "tangent_trace")

    def __init__(self, parent: Trace | None, tangent_trace: StagingTrace):
        super().__init__()
        self.parent = parent
        self.tangent_trace = tangent_trace

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        for value in values:
            if type(value) is StagedTracer and value.trace is self.tangent_trace:
                return self.tangent_trace.process(primitive, values, params)
        return process_in(self.parent, primitive, values, params)


class LinearizeTrace(Trace):
    """Runs primal work on the parent and stages tangent work."""

    __slots__ = ("parent", "tangent_trace", "split_trace")

    def __init__(self, parent: Trace | None):
        super().__init__()
        self.parent = parent
        self.tangent_trace = StagingTrace()
        self.split_trace = SplitTrace(parent, self.tangent_trace)

    def split(self, value: Any) -> tuple[Any, Any]:
        if type(value) is LinearizeTracer and value.trace is self:
            return value.primal, value.tangent
        return value, Zero(value.type)

    def join(self, primal: Any, tangent: Any) -> Any:
        """A tracer for a result; its tangent may be Zero, staged, or a value that depends on no tangent (a constant
        0)."""
        if type(tangent) is Zero:
            return primal
        if not (type(tangent) is StagedTracer and tangent.trace is self.tangent_trace):
            node = self.tangent_trace.node_of(tangent)
            tangent = StagedTracer(self.tangent_trace, node)
        return LinearizeTracer(self, primal, tangent)

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.split(value) for value in values]
        primals = [primal for primal, _ in pairs]
        tangents = [tangent for _, tangent in pairs]
        if all([type(tangent) is Zero for tangent in tangents]):
            return process_in(self.parent, primitive, primals, params)
        if primitive.linearize is not None:
            result, tangent = primitive.linearize(self, primals, tangents, **params)
        else:
            with active(self.split_trace):
                result, tangent = primitive.jvp(primals, tangents, **params)
        if primitive.multiple_results:
            return tuple([self.join(r, t) for r, t in zip(result, tangent, strict=True)])
        return self.join(result, tangent)


@dataclass(frozen=True, slots=True)
class Linearized:
    """The linear part of a function at a point.

    traced.program: [tangents of the nonzero inputs..., residuals...] -> [tangents of the nonzero outputs...];
    traced.captured are the residuals; nonzero says which outputs have a tangent.
    """
    outputs: tuple[Any, ...]
    traced: Traced
    nonzero: tuple[bool, ...]
    output_types: tuple[Type, ...]


def linearize_values(function: Callable[..., Sequence[Any]], primals: Sequence[Any], differentiated: Sequence[bool],
                     weak: Sequence[bool] | None = None, wanted: Sequence[bool] = ()) -> Linearized:
    """Linearize a flat function at `primals` with respect to the marked ones, under the current trace.

    Outputs marked `wanted` get a tangent, zeros if need be.
    """
    trace = LinearizeTrace(current_trace())
    flags = weak or [False] * len(primals)
    inputs = [LinearizeTracer(trace, primal, trace.tangent_trace.new_input(primal.type), flag) if wanted else primal
              for primal, wanted, flag in zip(primals, differentiated, flags, strict=True)]
    try:
        with active(trace):
            outputs = function(*inputs)
        pairs = [trace.split(output) for output in outputs]
        if wanted:
            with active(trace.tangent_trace):
                pairs = [(p, instantiate(t) if want else t) for (p, t), want in zip(pairs, wanted, strict=True)]
        nodes = tuple([trace.tangent_trace.node_of(t) for _, t in pairs if type(t) is not Zero])
    finally:
        trace.alive = False
        trace.tangent_trace.alive = False
        trace.split_trace.alive = False
    tangent_trace = trace.tangent_trace
    linear = make_program(tuple(tangent_trace.input_types), nodes)
    return Linearized(tuple(primal for primal, _ in pairs),
                      Traced(linear, tuple(tangent_trace.captured), tangent_trace.locations),
                      tuple(type(t) is not Zero for _, t in pairs), tuple(primal.type for primal, _ in pairs))


@lru_cache(maxsize=1024)
def linearize_program(program: Program, differentiated: tuple[bool, ...],
                      wanted: tuple[bool, ...] = ()) -> tuple[Program, Program, tuple[bool, ...]]:
    """Split a program into a forward one and a linear one, with respect to the marked inputs.

    forward: [inputs...] -> [outputs..., residuals...]
    linear:  [tangents of the marked inputs..., residuals...] -> [tangents of the nonzero outputs...]
    Also answers which outputs are nonzero; those marked `wanted` are.
    """
    found: list[Linearized] = []

    def forward(*primals: Any) -> list[Any]:
        linearized = linearize_values(lambda *xs: evaluate(program, xs), primals, differentiated, None, wanted)
        found.append(linearized)
        return [*linearized.outputs, *linearized.traced.captured]
    traced = trace_program(forward, program.input_types)
    return traced.program, found[0].traced.program, found[0].nonzero

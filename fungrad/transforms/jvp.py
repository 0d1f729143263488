"""Forward mode: values travel with their tangents.

The mechanism only: what an operation does to tangents stands in its `jvp` rule.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..ir.primitive import Primitive, Zero
from ..ir.program import Program
from ..ir.value import Value
from ..ops.rules import instantiate
from ..trace import Trace, Tracer, active, current_trace, evaluate, process_in, trace_program


class JVPTracer(Tracer):
    """A value with its tangent (never a Zero)."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal: Value, tangent: Value, weak: bool = False):
        self.trace = trace
        self.primal = primal
        self.tangent = tangent
        self.type = primal.type
        self.weak = weak

    def concrete(self) -> Value:
        return self.primal


class JVPTrace(Trace):
    """Runs each operation's jvp rule under the parent trace."""

    __slots__ = ("parent",)

    def __init__(self, parent: Trace | None):
        super().__init__()
        self.parent = parent

    def split(self, value: Any) -> tuple[Any, Any]:
        """The primal and tangent of a value; of another trace's value, itself and Zero."""
        if type(value) is JVPTracer and value.trace is self:
            return value.primal, value.tangent
        return value, Zero(value.type)

    def join(self, primal: Any, tangent: Any) -> Any:
        return primal if type(tangent) is Zero else JVPTracer(self, primal, tangent)

    def process(self, primitive: Primitive, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        primals, tangents = [], []
        active_tangent = False
        for value in values:
            primal, tangent = self.split(value)
            primals.append(primal)
            tangents.append(tangent)
            active_tangent = active_tangent or type(tangent) is not Zero
        if not active_tangent:
            return process_in(self.parent, primitive, primals, params)
        with active(self.parent):
            result, tangent = primitive.jvp(primals, tangents, **params)
        if primitive.multiple_results:
            return tuple([self.join(r, t) for r, t in zip(result, tangent, strict=True)])
        return self.join(result, tangent)


def jvp_values(function: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any],
               weak: Sequence[bool] | None, parent: Trace | None) -> tuple[list[Any], list[Any]]:
    """Results and tangents of a flat function at `primals` along `tangents` (entries may be Zero)."""
    trace = JVPTrace(parent)
    flags = weak or [False] * len(primals)
    inputs = [primal if type(tangent) is Zero else JVPTracer(trace, primal, tangent, flag)
              for primal, tangent, flag in zip(primals, tangents, flags, strict=True)]
    try:
        with active(trace):
            outputs = function(*inputs)
    finally:
        trace.alive = False
    pairs = [trace.split(output) for output in outputs]
    return [primal for primal, _ in pairs], [tangent for _, tangent in pairs]


@lru_cache(maxsize=1024)
def jvp_program(program: Program, nonzero: tuple[bool, ...],
                wanted: tuple[bool, ...] = ()) -> tuple[Program, tuple[bool, ...]]:
    """The forward-mode program of `program` with respect to the inputs marked nonzero.

    [inputs..., tangents of the nonzero inputs...] -> [outputs..., tangents of the nonzero outputs...], and which
    those are. Outputs marked `wanted` count as nonzero: their tangents are zeros if need be.
    """
    count = len(program.input_types)
    out_mask: list[bool] = []

    def both(*values: Any) -> list[Any]:
        primals, given = values[:count], iter(values[count:])
        tangents = [next(given) if flag else Zero(p.type) for p, flag in zip(primals, nonzero, strict=True)]
        results, result_tangents = jvp_values(lambda *xs: evaluate(program, xs), primals, tangents, None,
                                              current_trace())
        if wanted:
            result_tangents = [instantiate(t) if want else t for t, want in zip(result_tangents, wanted, strict=True)]
        out_mask[:] = [type(t) is not Zero for t in result_tangents]
        return [*results, *(t for t in result_tangents if type(t) is not Zero)]
    types = (*program.input_types, *(t for t, flag in zip(program.input_types, nonzero, strict=True) if flag))
    traced = trace_program(both, types)
    return traced.program, tuple(out_mask)


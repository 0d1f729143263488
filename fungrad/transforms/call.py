"""The `call` primitive: a jitted function inside a traced one. Inlined before lowering."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..ir.interpret import interpret
from ..ir.primitive import Linear, Primitive, Refused, Zero, declare
from ..ir.program import Program
from ..ir.types import Type
from ..ops.rules import move_axis
from ..trace import bind, process_in
from ..util import merge
from .batch import batch_program
from .jvp import jvp_program
from .linearize import LinearizeTrace, linearize_program
from .transpose import transpose_program


def call(program: Program, values: Sequence[Any], name: str) -> tuple[Any, ...]:
    """Apply a program to values, as one operation of the current trace."""
    return bind(call_p, *values, program=program, name=name)


def _type(*types: Type, program: Program, name: str) -> tuple[Type, ...]:
    if types != program.input_types:
        raise ShapeError(f"{name} takes {program.input_types}, got {types}")
    return program.output_types


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, name: str) -> tuple[Any, Any]:
    nonzero = tuple(type(t) is not Zero for t in tangents)
    forward, out_mask = jvp_program(program, nonzero)
    results = call(forward, [*primals, *(t for t in tangents if type(t) is not Zero)], f"jvp({name})")
    outputs = results[:len(out_mask)]
    return outputs, _with_zeros(program.output_types, out_mask, results[len(out_mask):])


def _with_zeros(types: Sequence[Type], mask: Sequence[bool], values: Sequence[Any]) -> tuple[Any, ...]:
    zeros = [Zero(type) for type, flag in zip(types, mask, strict=True) if not flag]
    return tuple(merge(mask, zeros, values))


def _linearize(trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program,
               name: str) -> tuple[Any, Any]:
    nonzero = tuple(type(t) is not Zero for t in tangents)
    forward, linear, out_mask = linearize_program(program, nonzero)
    results = process_in(trace.parent, call_p, primals, {"program": forward, "name": name})
    outputs, residuals = results[:len(out_mask)], results[len(out_mask):]
    given = [*(t for t in tangents if type(t) is not Zero), *residuals]
    out_tangents = trace.tangent_trace.process(call_p, tuple(given), {"program": linear, "name": f"linear({name})"})
    return outputs, _with_zeros(program.output_types, out_mask, out_tangents)


def _transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, program: Program, name: str) -> tuple[Any, ...]:
    linear = tuple(isinstance(operand, Linear) for operand in operands)
    nonzero = tuple(type(c) is not Zero for c in cotangents)
    backward, kept = transpose_program(program, linear, nonzero)
    values = [operand for operand in operands if not isinstance(operand, Linear)]
    results = iter(call(backward, [*values, *(c for c in cotangents if type(c) is not Zero)], f"transpose({name})"))
    keep = iter(kept)
    return tuple([next(results) if flag and next(keep) else None for flag in linear])


def _batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, program: Program,
           name: str) -> tuple[Any, Any]:
    mapped, out_mapped = batch_program(program, size, tuple(axis is not None for axis in axes))
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    return call(mapped, aligned, f"vmap({name})"), tuple(0 if flag else None for flag in out_mapped)


call_p = declare(Primitive(
    "call", _type, lambda *arrays, program, name: tuple(interpret(program, arrays)), _jvp, _transpose, _batch,
    Refused("a call is inlined before lowering"), frozenset({"call"}),
    "A program applied as one operation: what `jit` stages inside another trace.", multiple_results=True,
    linearize=_linearize))

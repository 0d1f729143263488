"""while: a loop that runs as long as a condition on its carry holds; one primitive with both as Programs.

    condition: [condition's consts..., carry...] -> [bool]
    body:      [body's consts..., carry...]      -> [carry...]
    while:     [condition's consts..., body's consts..., carry...] -> [carry...]

Forward mode carries tangents along. Reverse mode would have to keep values of an unknown number of iterations, which is
refused. Under vmap with a condition that differs between lanes, the loop runs while any lane's condition holds, and the
lanes that have finished keep their values.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import DTypeError, GradientError, ShapeError
from ..ir.interpret import interpret
from ..ir.primitive import Primitive, Refused, declare
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..ops.elementwise import select
from ..ops.reduce import reduce_or
from ..ops.rules import batch_to_front, broadcast, instantiate, move_axis
from ..trace import active, bind, evaluate, process_in, trace_program
from .batch import batch_program
from .bodies import Mask, chosen, fixpoint, groups, nonzero, regrouped, with_zeros
from .jvp import jvp_program
from .linearize import LinearizeTrace

_BOOL = array_type((), np.dtype(bool))


def while_(condition: Program, body: Program, operands: Sequence[Any], condition_consts: int,
           body_consts: int) -> tuple[Any, ...]:
    """Run the loop: the two numbers say how many operands are consts of the condition and of the body."""
    return bind(while_p, *operands, condition=condition, body=body, condition_consts=condition_consts,
                body_consts=body_consts)


def _type(*types: Type, condition: Program, body: Program, condition_consts: int, body_consts: int) -> tuple[Type, ...]:
    first, second, carry = groups(types, condition_consts, body_consts)
    if (*first, *carry) != condition.input_types or (*second, *carry) != body.input_types:
        raise ShapeError(f"while: the condition takes {condition.input_types} and the body {body.input_types}, got "
                         f"{types}")
    if condition.output_types != (_BOOL,):
        raise DTypeError(f"while: the condition must give one bool, it gives {condition.output_types}")
    if body.output_types != tuple(carry):
        raise DTypeError(f"while: the carry changes its types from {tuple(carry)} to {body.output_types}")
    return body.output_types


def _reference(*arrays: np.ndarray, condition: Program, body: Program, condition_consts: int,
               body_consts: int) -> tuple[np.ndarray, ...]:
    first, second, carry = groups(arrays, condition_consts, body_consts)
    while interpret(condition, [*first, *carry])[0]:
        carry = interpret(body, [*second, *carry])
    return tuple(carry)


@lru_cache(maxsize=1024)
def _with_more(condition: Program, types: tuple[Type, ...]) -> Program:
    """The condition with further inputs that it does not read."""
    count = len(condition.input_types)
    return trace_program(lambda *values: evaluate(condition, values[:count]), [*condition.input_types, *types]).program


def _with_tangents(tangents: Sequence[Any], body: Program, condition: Program, condition_consts: int,
                   body_consts: int) -> tuple[Program, Program, list[bool], Mask]:
    """The loop's programs with a carry that has tangents: condition, body, which body consts and carries have one."""
    _, fixed, start = groups(nonzero(tangents), condition_consts, body_consts)
    state = fixpoint(lambda mask: jvp_program(body, (*fixed, *mask))[1], tuple(start))
    both, _ = jvp_program(body, (*fixed, *state), state)
    carry = len(body.outputs)
    new_body = regrouped(both, (body_consts, carry, sum(fixed)), (0, 2, 1, 3), (), (0,))
    more = tuple(chosen(state, body.output_types))
    return _with_more(condition, more), new_body, fixed, state


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, condition: Program, body: Program, condition_consts: int,
         body_consts: int) -> tuple[Any, Any]:
    new_condition, new_body, fixed, state = _with_tangents(tangents, body, condition, condition_consts, body_consts)
    values, directions = (groups(x, condition_consts, body_consts) for x in (primals, tangents))
    moving = [instantiate(t) for t in chosen(state, directions[2])]
    operands = [*values[0], *values[1], *chosen(fixed, directions[1]), *values[2], *moving]
    results = while_(new_condition, new_body, operands, condition_consts, body_consts + sum(fixed))
    carry = len(body.outputs)
    return results[:carry], tuple(with_zeros(body.output_types, state, results[carry:]))


def _linearize(trace: LinearizeTrace, primals: Sequence[Any], tangents: Sequence[Any],
               **params: Any) -> tuple[Any, Any]:
    """The loop runs once for its results; the linear program runs it again with tangents in the carry."""
    results = process_in(trace.parent, while_p, primals, params)
    with active(trace.split_trace):
        _, found = _jvp(primals, tangents, **params)
    return results, found


def _transpose(cotangents: Sequence[Any], operands: Sequence[Any], **params: Any) -> tuple[Any, ...]:
    raise GradientError(
        "reverse-mode differentiation of lax.while_loop would have to keep the values of an unknown number of "
        "iterations. Give it a bound (lax.while_loop(cond_fun, body_fun, init, max_steps=n)), use lax.scan or "
        "lax.fori_loop with a known trip count, or forward mode (jvp, jacfwd).")


def _batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, condition: Program, body: Program,
           condition_consts: int, body_consts: int) -> tuple[Any, Any]:
    first, second, start = groups([axis is not None for axis in axes], condition_consts, body_consts)
    state = fixpoint(lambda mask: batch_program(body, size, (*second, *mask))[1], tuple(start))
    differs = batch_program(condition, size, (*first, *state))[1][0]
    if differs:
        state = (True,) * len(state)
    new_body, _ = batch_program(body, size, (*second, *state), state)
    new_condition, (differs,) = batch_program(condition, size, (*first, *state))
    values, places = groups(operands, condition_consts, body_consts), groups(axes, condition_consts, body_consts)
    fixed = [[x if axis is None else move_axis(x, axis, 0) for x, axis in zip(xs, where, strict=True)]
             for xs, where in zip(values[:2], places[:2], strict=True)]
    carry = [batch_to_front(size, x, axis) if flag else x
             for x, axis, flag in zip(values[2], places[2], state, strict=True)]
    if not differs:
        results = while_(new_condition, new_body, [*fixed[0], *fixed[1], *carry], condition_consts, body_consts)
    else:
        any_lane, lanes = _by_lanes(new_condition, new_body, condition_consts, body_consts)
        results = while_(any_lane, lanes, [*fixed[0], *fixed[0], *fixed[1], *carry], condition_consts,
                         condition_consts + body_consts)
    return results, tuple([0 if flag else None for flag in state])


@lru_cache(maxsize=1024)
def _by_lanes(condition: Program, body: Program, condition_consts: int, body_consts: int) -> tuple[Program, Program]:
    """Whether any lane goes on; the body that changes those lanes alone (its first consts are the condition's)."""
    fixed, carry = groups(body.input_types, body_consts)
    any_lane = trace_program(lambda *values: [reduce_or(evaluate(condition, values)[0], (0,))], condition.input_types)

    def step(*values: Any) -> list[Any]:
        first, second, old = groups(values, condition_consts, body_consts)
        (active_lanes,) = evaluate(condition, [*first, *old])
        new = evaluate(body, [*second, *old])
        return [select(broadcast(active_lanes, x.shape, (0,)), y, x) for x, y in zip(old, new, strict=True)]
    return any_lane.program, trace_program(step, [*condition.input_types[:condition_consts], *fixed, *carry]).program


while_p = declare(Primitive(
    "while", _type, _reference, _jvp, _transpose, _batch,
    Refused("a loop is a launch of its own, not an expression of its operands' elements"), frozenset({"control"}),
    "A loop that runs as long as a condition on its carry holds.", multiple_results=True, linearize=_linearize))

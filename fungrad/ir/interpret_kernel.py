"""The meaning of kernels and instruction lists, in NumPy: slow and obvious.

`run_nests` runs a fused kernel, every nest at all its points at once. `run_body` runs a loop tree statement by
statement, one point after another, lanes included. `run_instructions` (ir/interpret_instructions.py) runs an
instruction list. All take a dict from global buffers to arrays, which they write in place. A read or write outside a
buffer is a VerificationError.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import VerificationError
from ..util import toposort
from .expr import TRUE, Axis, Buffer, Expr
from .interpret_expr import COMBINE, apply_operation, identity
from .kernel import Control, Fused, If, Kernel, Loop, Nest, Statement, Store

Memory = dict[Buffer, np.ndarray]


def evaluate(e: Expr, axes: Mapping[Axis, Any], memory: Mapping[Buffer, np.ndarray]) -> Any:
    """The value of an expression; axes are integers or integer arrays that broadcast against one another."""
    done: dict[Expr, Any] = {}
    for x in toposort([e], lambda x: x.operands):
        if x.op == "constant":
            done[x] = np.frombuffer(x.attribute.bits, x.dtype)[0]
        elif x.op == "axis":
            done[x] = np.asarray(axes[x.attribute], np.int64)
        elif x.op == "load":
            *index, valid = (done[operand] for operand in x.operands)
            done[x] = read(memory, x.attribute, index, valid)
        else:
            done[x] = apply_operation(x.op, [done[operand] for operand in x.operands], x.dtype)
    return done[e]


def read(memory: Mapping[Buffer, np.ndarray], buffer: Buffer, index: list[Any], valid: Any) -> Any:
    """The elements at an index where `valid` holds, 0 elsewhere."""
    array = memory[buffer]
    places, valid = _checked(buffer, index, valid)
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(np.shape(valid), *map(np.shape, places)), array.dtype)
    return np.where(valid, array[tuple(places)] if places else array, array.dtype.type(0))


def _checked(buffer: Buffer, index: list[Any], valid: Any) -> tuple[list[Any], Any]:
    """Indices that are 0 where they do not count. Raises VerificationError for one outside the buffer that does."""
    places = []
    for i, extent in zip(index, buffer.type.shape, strict=True):
        inside = (np.asarray(i) >= 0) & (np.asarray(i) < extent)
        if not np.all(inside | ~np.asarray(valid)):
            raise VerificationError(f"an index outside {buffer}")
        places.append(np.where(inside, i, 0))
    return places, np.asarray(valid)


# -- fused kernels ---------------------------------------------------------------------------------------------------


def run_nests(kernel: Kernel, memory: Memory) -> None:
    """Run the nests of a fused kernel: each at all points of the outer axes and its own at once."""
    memory = dict(memory)
    shape = tuple(a.extent for a in kernel.outer)
    for buffer in kernel.scratch:
        memory[buffer] = np.zeros(shape + buffer.type.shape, buffer.type.dtype)
    for nest in kernel.nests:
        _run_nest(kernel, nest, memory)


def _run_nest(kernel: Kernel, nest: Nest, memory: Memory) -> None:
    order = (*kernel.outer, *nest.axes, *nest.reduce_axes)
    shape = tuple(a.extent for a in order)
    axes = {a: np.arange(a.extent).reshape([-1 if b is a else 1 for b in order]) for a in order}
    index = [axes[a] for a in kernel.outer]
    wide = {buffer: (index if buffer in kernel.scratch else []) for buffer in memory}

    def value_of(e: Expr, where: Any = True) -> Any:
        """Nothing is read outside `where`."""
        done: dict[Expr, Any] = {}
        for x in toposort([e], lambda x: x.operands):
            if x.op == "load":
                *own, valid = (done[operand] for operand in x.operands)
                stored = Buffer(x.attribute.name, x.attribute.type.with_shape(memory[x.attribute].shape))
                done[x] = read({stored: memory[x.attribute]}, stored, [*wide[x.attribute], *own], valid & where)
            elif x.op == "axis":
                done[x] = axes[x.attribute]
            elif x.op == "constant":
                done[x] = np.frombuffer(x.attribute.bits, x.dtype)[0]
            else:
                done[x] = apply_operation(x.op, [done[operand] for operand in x.operands], x.dtype)
        return done[e]

    valid = value_of(nest.valid)
    value = np.broadcast_to(value_of(nest.value, valid), shape)
    valid = np.broadcast_to(valid, shape)
    kept = len(kernel.outer) + len(nest.axes)
    if nest.combine is not None:
        if value.dtype.name in ("float16", "bfloat16"):  # accumulated in float32
            value = value.astype(np.float32)
        neutral = identity(nest.combine, value.dtype)
        value = np.where(valid, value, neutral)
        places = tuple(range(kept, len(shape)))
        value = (
            COMBINE[nest.combine].reduce(value, axis=places, initial=neutral, dtype=value.dtype) if places else value
        )
        valid = valid.any(axis=places) if nest.valid is not TRUE else np.ones(shape[:kept], bool)
    where = tuple(a.extent for a in order[:kept])
    own = [
        np.broadcast_to(np.reshape(i, np.shape(i)[:kept]) if np.ndim(i) else i, where)
        for i in [*wide[nest.target], *[value_of(i) for i in nest.index]]
    ]
    stored = Buffer(nest.target.name, nest.target.type.with_shape(memory[nest.target].shape))
    places, _ = _checked(stored, own, valid)
    if not places:
        if np.all(valid) and value.size:
            memory[nest.target][...] = value.reshape(-1)[-1]
        return
    memory[nest.target][tuple(place[valid] for place in places)] = value[valid]


def run_fused(fused: Fused, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Run all launches of a fused program; kernels that have a body run that."""
    slots: dict[int, np.ndarray] = dict(zip(fused.inputs, [np.asarray(x) for x in inputs], strict=True))
    for launch in fused.launches:
        if isinstance(launch, Control):
            given = [slots[slot] for slot in launch.slots[launch.outputs:launch.outputs + launch.inputs]]
            slots.update(zip(launch.slots, run_control(launch, given, run_fused)))
            continue
        kernel = launch.kernel
        for slot in launch.slots:
            if slot not in slots:
                slots[slot] = np.zeros(fused.slots[slot].shape, fused.slots[slot].dtype)
        run_kernel(
            kernel, dict(zip(kernel.outputs + kernel.inputs, [slots[slot] for slot in launch.slots], strict=True))
        )
    return [slots[slot] for slot in fused.outputs]


def run_control(launch: Control, inputs: list[np.ndarray],
                run: Callable[[Fused, list[np.ndarray]], list[np.ndarray]]) -> list[np.ndarray]:
    """The outputs of a loop or choice; `run` gives those of a body."""
    if launch.kind == "cond":
        index = min(max(int(inputs[0]), 0), len(launch.bodies) - 1)
        return run(launch.bodies[index], inputs[1:])
    if launch.kind == "while":
        (condition, body), (first, second) = launch.bodies, launch.consts
        carry = _own(launch, inputs[first + second:])
        while run(condition, [*inputs[:first], *carry])[0]:
            carry = run(body, [*inputs[first:first + second], *carry])
        return carry
    (body,), (consts,) = launch.bodies, launch.consts
    carry, xs = _own(launch, inputs[consts:consts + launch.carry]), inputs[consts + launch.carry:]
    types = [body.slots[slot] for slot in body.outputs[launch.carry:]]
    ys = [np.zeros((launch.length, *type.shape), type.dtype) for type in types]
    slices = [x.reshape(launch.length, *body.slots[slot].shape)
              for x, slot in zip(xs, body.inputs[consts + launch.carry:], strict=True)]
    for k in reversed(range(launch.length)) if launch.reverse else range(launch.length):
        results = run(body, [*inputs[:consts], *carry, *[x[k] for x in slices]])
        carry = results[:launch.carry]
        for y, part in zip(ys, results[launch.carry:], strict=True):
            y[k] = part
    return [*carry, *ys]


def _own(launch: Control, carry: list[np.ndarray]) -> list[np.ndarray]:
    """The first carry, with copies of what is updated in place."""
    return [np.array(x) if number in launch.in_place else x for number, x in enumerate(carry)]


def run_kernel(kernel: Kernel, memory: Memory) -> None:
    """Run a kernel: its body if it has one, else its nests."""
    if kernel.body is None:
        run_nests(kernel, memory)
    else:
        run_body(kernel, memory)


# -- loop trees ------------------------------------------------------------------------------------------------------


def run_body(kernel: Kernel, memory: Memory) -> None:
    """Run a loop tree, one statement after another; the outer axes of an unscheduled body are loops around it."""
    memory = dict(memory)
    body = kernel.body or ()
    for buffer in kernel.scratch:
        memory[buffer] = np.zeros(buffer.type.shape, buffer.type.dtype)
    looped = {s.axis for s in _all_loops(body)}
    for a in reversed(kernel.outer):
        if a not in looped and any(a in _axes_of(body) for _ in (0,)):
            body = (Loop(a, body),)
    _run(body, {}, memory)


def _all_loops(body: tuple[Statement, ...]) -> list[Loop]:
    found: list[Loop] = []
    for s in body:
        if not isinstance(s, Store):
            found += [s] if isinstance(s, Loop) else []
            found += _all_loops(s.body)
    return found


def _axes_of(body: tuple[Statement, ...]) -> set[Axis]:
    roots: list[Expr] = []
    pending = list(body)
    while pending:
        s = pending.pop()
        if isinstance(s, Store):
            roots += [*s.index, s.value]
            continue
        if isinstance(s, Loop):
            roots += [] if s.stop is None else [s.stop]
        else:
            roots.append(s.condition)
        pending += s.body
    return {e.attribute for e in toposort(roots, lambda e: e.operands) if e.op == "axis"}


def _run(body: tuple[Statement, ...], axes: dict[Axis, int], memory: Memory) -> None:
    for s in body:
        if isinstance(s, Store):
            _store(s, axes, memory)
        elif isinstance(s, Loop):
            stop = s.axis.extent if s.stop is None else min(s.axis.extent, int(evaluate(s.stop, axes, memory)))
            for number in range(stop):
                _run(s.body, {**axes, s.axis: number}, memory)
        elif isinstance(s, If):
            if evaluate(s.condition, axes, memory):
                _run(s.body, axes, memory)
        else:
            while evaluate(s.condition, axes, memory):
                _run(s.body, axes, memory)


def _store(s: Store, axes: dict[Axis, int], memory: Memory) -> None:
    value = evaluate(s.value, axes, memory)
    places, _ = _checked(s.target, [evaluate(i, axes, memory) for i in s.index], True)
    place = tuple(int(i) for i in places)
    array = memory[s.target]
    if s.combine is not None:
        value = apply_operation(s.combine, [array[place], value], array.dtype)
    array[place] = value

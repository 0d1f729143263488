"""Loops with a small body: one kernel with the loop inside, its state in registers.

    scan of s: [3] -> s + h * f(s), 10,000 times       ->    one kernel
        register s[3], t[3]
        s[0], s[1], s[2] = start[0], start[1], start[2]
        for k < 10000:   t[0], t[1], t[2] = ...;   s[0], s[1], s[2] = t[0], t[1], t[2]
        out[0], out[1], out[2] = s[0], s[1], s[2]

Every element of every value of the body becomes a scalar expression of the state, the consts and slice k of xs;
equal ones are computed once. A body qualifies if it holds no loops of its own and not too many elements. Otherwise
the loop calls the kernels of its body (`control.py`).
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ..dtypes import is_float
from ..ir.expr import DECOMPOSED, Axis, Buffer, Expr, axis, constant, index_constant, load, operation, substitute
from ..ir.kernel import Kernel, Loop, Statement, Store, While
from ..ir.primitive import Refused
from ..ir.program import INPUT, RESULT, Node, Program
from ..ir.types import Type, array_type
from .define import Definer
from .fuse_names import canonical_axis, canonical_buffer, intern_kernel
from .index import Simplifier
from .walk import subexpressions

MAX_ELEMENTS = 24        # of one value of the body
MAX_WORK = 400           # elements of all values of the body
MAX_CODE = 1500          # of one iteration: distinct scalar operations, one to be decomposed counting as several
CODE_PER_ROUND = 20      # a loop of few rounds is worth less code
WHILE_ROUNDS = 40        # a guess
FORMULA = 30             # operations of a decomposed one, at a guess; twice as many in float64
MAX_REDUCED = 24         # points of a reduction, which is written out


def small_loop(node: Node) -> Kernel | None:
    """The kernel of a scan or while whose body is small, its buffers in the order of the node's results and
    operands.
    """
    if node.primitive.name == "scan":
        return _small_scan(node)
    return _small_while(node) if node.primitive.name == "while" else None


def _small_scan(node: Node) -> Kernel | None:
    program, consts, carry = node.param("program"), node.param("consts"), node.param("carry")
    length = node.param("length")
    if not length or not _is_small(program):
        return None
    outputs, inputs = _arguments(node)
    k = canonical_axis("k", length)
    place = operation("sub", index_constant(length - 1), axis(k)) if node.param("reverse") else axis(k)
    state = _State(program.input_types[consts:consts + carry])
    sources = [*[_Global(buffer) for buffer in inputs[:consts]], *state.parts,
               *[_Global(buffer, (place,)) for buffer in inputs[consts + carry:]]]
    values = _elements(program, sources, length)
    if values is None:
        return None
    step = state.assign(values[:carry])
    for buffer, elements in zip(outputs[carry:], values[carry:], strict=True):
        indices = _indices(array_type(buffer.type.shape[1:], buffer.type.dtype))
        step[:0] = [Store(buffer, (place, *index), value) for index, value in zip(indices, elements, strict=True)]
    body = (*state.load(inputs[consts:consts + carry]), Loop(k, tuple(step)), *state.store(outputs[:carry]))
    return _kernel("scan", node, outputs, inputs, state, body)


def _small_while(node: Node) -> Kernel | None:
    condition, program = node.param("condition"), node.param("body")
    first, second = node.param("condition_consts"), node.param("body_consts")
    if not (_is_small(condition) and _is_small(program)):
        return None
    outputs, inputs = _arguments(node)
    state = _State(program.output_types)
    tests = _elements(condition, [*[_Global(buffer) for buffer in inputs[:first]], *state.parts], WHILE_ROUNDS)
    values = _elements(program, [*[_Global(buffer) for buffer in inputs[first:first + second]], *state.parts],
                       WHILE_ROUNDS)
    if tests is None or values is None:
        return None
    body = (
        *state.load(inputs[first + second :]),
        While(tests[0][0], tuple(state.assign(values))),
        *state.store(outputs),
    )
    return _kernel("while", node, outputs, inputs, state, body)


def _kernel(name: str, node: Node, outputs: Sequence[Buffer], inputs: Sequence[Buffer], state: _State,
            body: tuple[Statement, ...]) -> Kernel:
    length = f"_{node.param('length')}" if name == "scan" else ""
    return intern_kernel(
        Kernel(
            f"{name}{length}_{state.size}",
            tuple(outputs),
            tuple(inputs),
            state.registers,
            (),
            (),
            body,
            "loops",
            reasons=("the loop's body is small: its state is in registers",),
        )
    )


def _arguments(node: Node) -> tuple[list[Buffer], list[Buffer]]:
    """The kernel's buffers for the node's results and operands."""
    outputs = [canonical_buffer(f"out{number}", type, "global") for number, type in enumerate(node.type)]
    inputs = [canonical_buffer(f"in{number}", operand.type, "global") for number, operand in enumerate(node.operands)]
    return outputs, inputs


def _is_small(program: Program) -> bool:
    """Whether a body qualifies, by what its nodes are."""
    work = 0
    for node in program.nodes():
        types = node.type if isinstance(node.type, tuple) else (node.type,)
        if any(not 0 < type.size <= MAX_ELEMENTS for type in types):
            return False
        if node.primitive in (INPUT, RESULT):
            continue
        if node.primitive.traits & {"loops", "control", "barrier"} or isinstance(node.primitive.lower, Refused):
            return False
        work += sum(type.size for type in types)
    return work <= MAX_WORK and all(type.size for type in program.input_types)


def _indices(type: Type) -> Iterator[tuple[Expr, ...]]:
    """The indices of all elements, in order."""
    for index in itertools.product(*map(range, type.shape)):
        yield tuple([index_constant(i) for i in index])


# ---- where inputs of the body are -----------------------------------------------------------------------------------

class _Global:
    """An operand of the loop, or its slice at an index."""

    __slots__ = ("buffer", "at")

    def __init__(self, buffer: Buffer, at: tuple[Expr, ...] = ()) -> None:
        self.buffer = buffer
        self.at = at

    def read(self, index: tuple[Expr, ...], valid: Expr) -> Expr:
        return load(self.buffer, (*self.at, *index), valid)


class _Register:
    """One value of the state."""

    __slots__ = ("type", "buffer")

    def __init__(self, number: int, type: Type) -> None:
        self.type = type
        self.buffer = canonical_buffer(f"state{number}", array_type((type.size,), type.dtype), "register")

    def read(self, index: tuple[Expr, ...], valid: Expr) -> Expr | None:
        flat = 0
        for i, extent in zip(index, self.type.shape, strict=True):
            if i.op != "constant":
                return None
            flat = flat * extent + int(i.attribute.value)
        return (
            load(self.buffer, (index_constant(flat),), valid)
            if 0 <= flat < self.type.size
            else constant(0, self.type.dtype)
        )


class _State:
    """The carry in registers, and the registers in which its next value is collected."""

    def __init__(self, types: Sequence[Type]) -> None:
        self.types = types
        self.parts = [_Register(number, type) for number, type in enumerate(types)]
        self.following = [canonical_buffer(f"next{number}", part.buffer.type, "register")
                          for number, part in enumerate(self.parts)]
        self.size = sum(type.size for type in types)

    @property
    def registers(self) -> tuple[Buffer, ...]:
        return tuple([part.buffer for part in self.parts] + self.following)

    def load(self, sources: Sequence[Buffer]) -> list[Statement]:
        return [Store(part.buffer, (index_constant(i),), load(source, index))
                for part, source in zip(self.parts, sources, strict=True)
                for i, index in enumerate(_indices(source.type))]

    def store(self, targets: Sequence[Buffer]) -> list[Statement]:
        return [Store(target, index, load(part.buffer, (index_constant(i),)))
                for part, target in zip(self.parts, targets, strict=True)
                for i, index in enumerate(_indices(target.type))]

    def assign(self, values: Sequence[Sequence[Expr]]) -> list[Statement]:
        """All of the next state from the present one, then the step."""
        first, then = [], []
        for part, following, elements in zip(self.parts, self.following, values, strict=True):
            for i, value in enumerate(elements):
                at = (index_constant(i),)
                if value is load(part.buffer, at):
                    continue
                first.append(Store(following, at, value))
                then.append(Store(part.buffer, at, load(following, at)))
        return [*first, *then]


# ---- expressions ----------------------------------------------------------------------------------------------------

def _elements(program: Program, sources: Sequence[_Global | _Register], rounds: int) -> list[list[Expr]] | None:
    """The elements of every output as scalar expressions of the sources; None if they are too many or too entangled."""
    simplify = Simplifier()
    definer = Definer(simplify)
    buffers = [Buffer(f"body{number}", type) for number, type in enumerate(program.input_types)]
    definer.buffers.update(zip(program.inputs, buffers, strict=True))
    of = dict(zip(buffers, sources, strict=True))
    results = [[definer.element(output, index) for index in _indices(output.type)] for output in program.outputs]
    failed = False

    def change(e: Expr) -> Expr | None:
        nonlocal failed
        if e.op == "load":
            index = tuple([substitute(i, change) for i in e.operands[:-1]])
            found = of[e.attribute].read(simplify.all(index), substitute(e.operands[-1], change))
            failed = failed or found is None
            return found
        if e.op == "reduce":
            written = _written_out(e, simplify)
            failed = failed or written is None
            return None if written is None else substitute(written, change)
        return None
    rewritten = [[simplify(substitute(e, change)) for e in elements] for elements in results]
    flat = [e for elements in rewritten for e in elements]
    if failed or _code(flat) > min(MAX_CODE, CODE_PER_ROUND * rounds):
        return None
    return rewritten


def _code(expressions: Sequence[Expr]) -> int:
    """How many operations, roughly, a kernel needs for these expressions."""
    return sum(
        FORMULA * (1 + (e.dtype.itemsize == 8)) if e.op in DECOMPOSED else 1 for e in subexpressions(*expressions)
    )


def _written_out(e: Expr, simplify: Simplifier) -> Expr | None:
    """A reduction as a sum (or another combination) of its points."""
    combine, axes = e.attribute
    if not 0 < math.prod(a.extent for a in axes) <= MAX_REDUCED or (is_float(e.dtype) and e.dtype.itemsize == 2):
        return None
    total: Expr | None = None
    for point in itertools.product(*[range(a.extent) for a in axes]):
        at: dict[Axis, Expr] = {a: index_constant(i) for a, i in zip(axes, point, strict=True)}
        value = simplify(substitute(e.operands[0], lambda x, at=at: at.get(x.attribute) if x.op == "axis" else None))
        total = value if total is None else operation(combine, total, value)
    return total

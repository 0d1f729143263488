"""Verifiers: is a value of a stage well formed? Each raises a VerificationError that names the offending part."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..dtypes import is_float, is_integer
from ..errors import VerificationError
from .expr import BOOL, COMBINES, COMPARISONS, CORE, INDEX, OPERATIONS, Axis, Buffer, Expr
from .instructions import Instruction, InstructionList
from .kernel import Control, Fused, If, Kernel, Loop, Nest, Statement, Store, While
from .program import INPUT, RESULT, Node, Program
from .types import Literal, Type


def check(value: Any) -> Any:
    """Verify a Program, Fused program, Kernel or InstructionList; answer it unchanged."""
    checkers: dict[type, Callable[..., None]] = {
        Program: check_program, Fused: check_fused, Kernel: check_kernel, InstructionList: check_instructions}
    if type(value) not in checkers:
        raise TypeError(f"cannot check a {type(value).__name__}")
    checkers[type(value)](value)
    return value


def _require(condition: bool, message: str, *parts: Any) -> None:
    if not condition:
        raise VerificationError(message.format(*parts))


# ---- programs -------------------------------------------------------------------------------------------------------


def check_program(program: Program) -> None:
    """Inputs exist and have their types; every other node has the type that its primitive's rule gives."""
    for node in program.nodes():
        if node.primitive is INPUT:
            _check_input(program, node)
        elif node.primitive is RESULT:
            _check_result(node)
        else:
            _check_node(node)
    for output in program.outputs:
        _require(isinstance(output.type, Type), "output {} is not one array", output)


def _check_input(program: Program, node: Node) -> None:
    number = node.param("number")
    _require(0 <= number < len(program.input_types), "{} is not among the program's {} inputs", node,
             len(program.input_types))
    _require(node.type == program.input_types[number], "{} has another type than the program's input: {}", node,
             program.input_types[number])


def _check_result(node: Node) -> None:
    (source,) = node.operands
    number = node.param("number")
    _require(source.primitive.multiple_results, "{} takes a result of {}, which has only one", node, source)
    _require(0 <= number < len(source.type), "{} does not exist: {} has {} results", node, source, len(source.type))
    _require(node.type == source.type[number], "{} has another type than result {} of {}", node, number, source)


def _check_node(node: Node) -> None:
    for operand in node.operands:
        _require(isinstance(operand.type, Type), "{} takes {}, which is not one array", node, operand)
    try:
        expected = node.primitive.type(*[operand.type for operand in node.operands], **dict(node.params))
    except (TypeError, ValueError) as error:
        raise VerificationError(f"{node} is refused by its type rule: {error}") from error
    _require(node.type == expected, "{} should have the type {}", node, expected)
    for _, value in node.params:
        for inner in _programs(value):
            check_program(inner)


def _programs(value: Any) -> Iterable[Program]:
    if isinstance(value, Program):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _programs(item)


# ---- expressions ----------------------------------------------------------------------------------------------------

_ARITHMETIC = frozenset({"add", "sub", "mul", "fma", "div", "rem", "neg", "abs", "max", "min"})
_LOGICAL = frozenset({"and", "or", "xor", "not"})
_INTEGER = frozenset({"shift_left", "shift_right", "safe_shift_left", "safe_shift_right", "safe_shift_right_logical",
                      "population_count", "count_leading_zeros", "mulhi", "integer_div", "integer_rem"})


def _takes(op: str, dtype: np.dtype) -> bool:
    """Whether an operation other than select, casts and comparisons takes operands of `dtype`."""
    if op in _ARITHMETIC or op == "sign":
        return dtype != BOOL
    if op in _LOGICAL:
        return not is_float(dtype)
    return is_integer(dtype) if op in _INTEGER else is_float(dtype)


def operation_problem(op: str, operands: tuple[np.dtype, ...], result: np.dtype) -> str | None:
    """What is wrong with the element types of an operation of OPERATIONS, or None."""
    if len(operands) != OPERATIONS[op]:
        return f"{op} takes {OPERATIONS[op]} operands, not {len(operands)}"
    if op == "cast":
        return None
    if op == "bitcast":
        return None if operands[0].itemsize == result.itemsize else "bitcast between types of different size"
    if op == "select":
        if operands[0] != BOOL:
            return f"the condition of select is {operands[0]}, not bool"
        operands = operands[1:]
    if any(dtype != operands[0] for dtype in operands):
        return f"{op} of different types {', '.join(dtype.name for dtype in operands)}"
    expected = BOOL if op in COMPARISONS else operands[0]
    if result != expected:
        return f"{op} of {operands[0].name} gives {expected.name}, not {result.name}"
    if op in COMPARISONS or op == "select" or _takes(op, operands[0]):
        return None
    return f"{op} does not take {operands[0].name}"


def check_expr(root: Expr, axes: frozenset[Axis], buffers: frozenset[Buffer], reduces: bool = False,
               core: bool = False) -> None:
    """Every part of `root` is well typed, uses axes in scope and known buffers.

    reduces: `reduce` may occur. core: only core operations may.
    """
    done: set[Expr] = set()
    stack = [root]
    while stack:
        e = stack.pop()
        if e in done:
            continue
        done.add(e)
        if e.op == "reduce":
            _require(reduces, "a reduce in {}, where none may be", root)
            combine, own = e.attribute
            _require(combine in COMBINES, "unknown combine {} in {}", combine, e)
            _require(len(set(own)) == len(own) and not axes & set(own), "{} binds an axis twice", e)
            _require(e.operands[0].dtype == e.dtype, "{} has another type than its body", e)
            check_expr(e.operands[0], axes | set(own), buffers, reduces, core)
            continue
        _check_one(e, axes, buffers, core)
        stack.extend(e.operands)


def _check_one(e: Expr, axes: frozenset[Axis], buffers: frozenset[Buffer], core: bool) -> None:
    if e.op == "constant":
        _require(isinstance(e.attribute, Literal) and e.attribute.dtype == e.dtype, "the constant {} is not a {}", e,
                 e.dtype)
    elif e.op == "axis":
        _require(e.attribute in axes, "axis {!r} is used outside its loop", e.attribute)
        _require(e.dtype == INDEX, "axis {!r} is {}, not int64", e.attribute, e.dtype)
    elif e.op == "load":
        buffer, index, valid = e.attribute, e.operands[:-1], e.operands[-1]
        _require(buffer in buffers, "{} reads {}, which the kernel does not have", e, buffer)
        _check_index(buffer, index, e)
        _require(valid.dtype == BOOL, "the mask of {} is {}, not bool", e, valid.dtype)
        _require(e.dtype == buffer.type.dtype, "{} is {}, its buffer {}", e, e.dtype, buffer.type.dtype)
    else:
        _require(e.op in OPERATIONS, "unknown operation {} in {}", e.op, e)
        _require(not core or e.op in CORE, "{} is not a core operation, in {}", e.op, e)
        problem = operation_problem(e.op, tuple(operand.dtype for operand in e.operands), e.dtype)
        _require(problem is None, "{}, in {}", problem, e)


def _check_index(buffer: Buffer, index: tuple[Expr, ...], where: Any) -> None:
    _require(len(index) == buffer.type.rank, "{} indices for {} in {}", len(index), buffer, where)
    for i in index:
        _require(i.dtype == INDEX, "the index {} of {} is {}, not int64", i, buffer, i.dtype)


# ---- kernels --------------------------------------------------------------------------------------------------------

_KINDS = frozenset({"nests", "contraction", "loops"})
_LOOP_KINDS = frozenset({"serial", "parallel", "vector", "unroll"})


def check_kernel(kernel: Kernel) -> None:
    """Axes are bound once and used in scope, buffers are declared, indices and types fit, nests read what is written
    before, and a scheduled kernel's parallel loop is outermost.
    """
    try:
        _check_buffers(kernel)
        if kernel.body is None:
            _check_nests(kernel)
        else:
            free = frozenset(kernel.outer) - frozenset(_bound(kernel.body))
            _Body(kernel).statements(kernel.body, free, True)
    except VerificationError as error:
        raise VerificationError(f"kernel {kernel.name}: {error}") from None


def _check_buffers(kernel: Kernel) -> None:
    _require(kernel.kind in _KINDS, "unknown kind {}", kernel.kind)
    every = (*kernel.outputs, *kernel.inputs, *kernel.scratch)
    _require(len(set(every)) == len(every), "a buffer is declared twice")
    for buffer in (*kernel.outputs, *kernel.inputs):
        _require(buffer.scope == "global", "the argument {} is not global", buffer)
    for buffer in kernel.scratch:
        _require(buffer.scope in ("scratch", "register"), "the scratch buffer {} is global", buffer)
    _require(len(set(kernel.outer)) == len(kernel.outer), "an outer axis occurs twice")


def _check_nests(kernel: Kernel) -> None:
    outer, written = frozenset(kernel.outer), set(kernel.inputs)
    for nest in kernel.nests:
        _check_nest(nest, outer, frozenset(written), kernel)
        written.add(nest.target)
    for output in kernel.outputs:
        _require(output in written, "the output {} is never written", output)


def _check_nest(nest: Nest, outer: frozenset[Axis], readable: frozenset[Buffer], kernel: Kernel) -> None:
    own = (*nest.axes, *nest.reduce_axes)
    _require(len(set(own)) == len(own) and not outer & set(own), "the nest of {} binds an axis twice", nest.target)
    scope = outer | set(nest.axes)
    _check_store(nest.target, nest.index, nest.value, nest.combine, kernel)
    _require(bool(nest.combine) or not nest.reduce_axes, "the nest of {} reduces without a combine", nest.target)
    for i in nest.index:
        check_expr(i, scope, readable)
    check_expr(nest.valid, scope, readable)
    _require(nest.valid.dtype == BOOL, "the mask {} of {} is not bool", nest.valid, nest.target)
    check_expr(nest.value, scope | set(nest.reduce_axes), readable)


def _check_store(target: Buffer, index: tuple[Expr, ...], value: Expr, combine: str | None, kernel: Kernel) -> None:
    _require(target in kernel.outputs or target in kernel.scratch, "{} is stored to, but is neither output nor scratch",
             target)
    _check_index(target, index, f"a store to {target}")
    _require(value.dtype == target.type.dtype, "a {} is stored to {}: {}", value.dtype, target, value)
    _require(combine is None or combine in COMBINES, "unknown combine {} in a store to {}", combine, target)


def _bound(body: tuple[Statement, ...]) -> Iterable[Axis]:
    for statement in body:
        if isinstance(statement, Loop):
            yield statement.axis
        if not isinstance(statement, Store):
            yield from _bound(statement.body)


class _Body:
    """Checks a loop tree."""

    __slots__ = ("kernel", "buffers")

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.buffers = frozenset((*kernel.outputs, *kernel.inputs, *kernel.scratch))

    def statements(self, body: tuple[Statement, ...], scope: frozenset[Axis], top: bool = False) -> None:
        for statement in body:
            if isinstance(statement, Store):
                _check_store(statement.target, statement.index, statement.value, statement.combine, self.kernel)
                for e in (*statement.index, statement.value):
                    check_expr(e, scope, self.buffers)
            elif isinstance(statement, Loop):
                self._loop(statement, scope, top and len(body) == 1)
            elif isinstance(statement, If | While):
                check_expr(statement.condition, scope, self.buffers)
                _require(statement.condition.dtype == BOOL, "the condition {} is not bool", statement.condition)
                self.statements(statement.body, scope)
            else:
                raise VerificationError(f"{statement!r} is not a statement")

    def _loop(self, loop: Loop, scope: frozenset[Axis], outermost: bool) -> None:
        _require(loop.kind in _LOOP_KINDS, "loop {!r} has the unknown kind {}", loop.axis, loop.kind)
        _require(loop.axis not in scope, "axis {!r} is bound twice", loop.axis)
        _require(loop.kind != "parallel" or outermost, "the parallel loop {!r} is not outermost", loop.axis)
        if loop.stop is not None:
            check_expr(loop.stop, scope, self.buffers)
            _require(loop.stop.dtype == INDEX, "the stop {} of {!r} is not int64", loop.stop, loop.axis)
        self.statements(loop.body, scope | {loop.axis})


def check_fused(fused: Fused, changed: set[int] = frozenset()) -> None:   # type: ignore[assignment]
    """Every kernel is well formed, its slots have its buffers' sizes, and every slot is written before it is read.

    changed: the slots of inputs that may be written.
    """
    written = set(fused.inputs)
    for launch in fused.launches:
        if isinstance(launch, Control):
            written |= _check_control(launch, fused, written)
            continue
        kernel = launch.kernel
        check_kernel(kernel)
        buffers = (*kernel.outputs, *kernel.inputs)
        _require(len(launch.slots) == len(buffers), "kernel {} has {} buffers, its launch {} slots", kernel.name,
                 len(buffers), len(launch.slots))
        for buffer, slot in zip(buffers, launch.slots, strict=True):
            _require(0 <= slot < len(fused.slots) and fused.slots[slot].size == buffer.type.size
                     and fused.slots[slot].dtype == buffer.type.dtype,     # the shape may differ: reshapes copy nothing
                     "kernel {}: {} does not fit slot {}", kernel.name, buffer, slot)
        outputs, inputs = launch.slots[:len(kernel.outputs)], launch.slots[len(kernel.outputs):]
        for slot in inputs:
            _require(slot in written, "kernel {} reads slot {} before it is written", kernel.name, slot)
        _require(
            not set(outputs) & (set(fused.inputs) - changed), "kernel {} writes an input of the program", kernel.name
        )
        written |= set(outputs)
    for slot in fused.outputs:
        _require(slot in written or not fused.slots[slot].size, "output slot {} is never written", slot)


def _check_control(launch: Control, fused: Fused, written: set[int]) -> set[int]:
    """The slots that a loop or choice writes. Its bodies are well formed and write outputs of their own."""
    outputs, inputs = launch.slots[:launch.outputs], launch.slots[launch.outputs:launch.outputs + launch.inputs]
    for slot in inputs:
        _require(
            slot in written or not fused.slots[slot].size, "{} reads slot {} before it is written", launch.kind, slot
        )
    _require(not set(outputs) & set(inputs), "{} writes what it reads", launch.kind)
    for body in launch.bodies:
        shared = {body.outputs[number] for number in launch.in_place if body is launch.bodies[-1]}
        check_fused(body, shared)
        _require(len(set(body.outputs)) == len(body.outputs) and set(body.outputs) & set(body.inputs) == shared,
                 "the body of a {} has outputs without memory of their own: {}", launch.kind, body.outputs)
    return set(outputs)


# ---- instruction lists ----------------------------------------------------------------------------------------------

_OPENS = {"loop": "end_loop", "while": "end_loop", "if": "end_if"}
_CLOSES = frozenset(_OPENS.values())


def check_instructions(code: InstructionList) -> None:
    """Operands stand earlier, in blocks that are still open; blocks nest; lanes and element types fit."""
    blocks: list[tuple[str, int]] = []
    visible: set[int] = set()
    opened: list[set[int]] = [set()]
    for number, instruction in enumerate(code.instructions):
        try:
            for operand in instruction.operands:
                _require(operand in visible, "operand %{} is not known there", operand)
            _check_instruction(code, instruction)
            if instruction.op == "while_test":
                _require(bool(blocks) and blocks[-1][0] == "while", "while_test outside a while")
            if instruction.op in _CLOSES:
                _require(bool(blocks) and _OPENS[blocks.pop()[0]] == instruction.op, "no block to close")
                visible -= opened.pop()
        except VerificationError as error:
            raise VerificationError(f"code of {code.name}, instruction %{number} ({instruction.op}): {error}") from None
        if instruction.op in _OPENS:
            blocks.append((instruction.op, number))
            opened.append(set())
        visible.add(number)
        opened[-1].add(number)
    _require(not blocks, "code of {}: block %{} is never closed", code.name, blocks[-1][1] if blocks else None)


_COUNTS = {"constant": (0, 0), "parameter": (0, 0), "begin": (0, 0), "end": (0, 0), "loop": (2, 2), "while": (0, 0),
           "while_test": (1, 1), "if": (1, 1), "end_loop": (0, 0), "end_if": (0, 0), "register": (0, 0), "get": (1, 1),
           "set": (2, 2), "load": (2, 3), "gather": (2, 3), "store": (3, 4), "scatter": (3, 4), "splat": (1, 1),
           "lanes": (0, 0), "extract": (1, 1), "insert": (2, 2), "shuffle": (2, 2), "fold": (1, 1)}


def _check_instruction(code: InstructionList, i: Instruction) -> None:
    operands = [code.instructions[number] for number in i.operands]
    if i.op in CORE:
        dtypes = tuple(operand.dtype for operand in operands if operand.dtype is not None)
        _require(i.dtype is not None, "an operation without a type")
        problem = operation_problem(i.op, dtypes, i.dtype)  # type: ignore[arg-type]
        _require(problem is None, "{}", problem)
        for operand in operands:
            _require(operand.lanes == i.lanes, "operands of {} lanes for {}", operand.lanes, i.lanes)
        return
    _require(i.op in _COUNTS, "unknown instruction")
    low, high = _COUNTS[i.op]
    _require(low <= len(operands) <= high, "{} operands", len(operands))
    if i.op in ("load", "gather", "store", "scatter"):
        _check_memory(i, operands)
    elif i.op == "parameter":
        known = (*code.parameters, *(buffer for buffer, _ in code.scratch))
        _require(i.attribute in known, "{} is no buffer of this code", i.attribute)
    elif i.op == "constant":
        fits = isinstance(i.attribute, Literal) and i.attribute.dtype == i.dtype
        _require(fits, "{} is not a {}", i.attribute, i.dtype)
    elif i.op in ("if", "while_test"):
        _require(operands[0].dtype == BOOL and operands[0].lanes == 1, "the condition is not a scalar bool")
    else:
        _check_lanes(i, operands)


def _check_memory(i: Instruction, operands: list[Instruction]) -> None:
    pointer, offset, *rest = operands
    _require(pointer.op == "parameter", "the first operand is not a pointer")
    dtype = pointer.attribute.type.dtype
    stores = i.op in ("store", "scatter")
    lanes = rest[0].lanes if stores else i.lanes
    _require(offset.dtype == INDEX, "the offset is {}, not int64", offset.dtype)
    _require(offset.lanes == (lanes if i.op in ("gather", "scatter") else 1), "an offset of {} lanes", offset.lanes)
    _require((rest[0].dtype if stores else i.dtype) == dtype, "another type than {}", pointer.attribute)
    for mask in rest[1:] if stores else rest:
        _require(mask.dtype == BOOL and mask.lanes == lanes, "the mask does not fit")


def _check_lanes(i: Instruction, operands: list[Instruction]) -> None:
    if i.op == "loop":
        _require(all(o.dtype == INDEX and o.lanes == 1 for o in operands), "bounds that are not scalar int64")
    elif i.op in ("get", "set"):
        register = operands[0]
        _require(register.op == "register", "the first operand is not a register")
        count, dtype = register.attribute
        _require(0 <= i.attribute < count, "slot {} of {}", i.attribute, count)
        value = i if i.op == "get" else operands[1]
        _require(value.dtype == dtype and value.lanes == register.lanes, "the value does not fit the register")
    elif i.op == "splat":
        _require(operands[0].lanes == 1 and operands[0].dtype == i.dtype, "not a scalar of this type")
    elif i.op == "extract":
        _require(0 <= i.attribute < operands[0].lanes and i.lanes == 1, "lane {} of {}", i.attribute, operands[0].lanes)
    elif i.op == "insert":
        _require(0 <= i.attribute < operands[0].lanes and operands[1].lanes == 1, "lane {}", i.attribute)
    elif i.op == "shuffle":
        total = operands[0].lanes + operands[1].lanes
        fits = len(i.attribute) == i.lanes and all(0 <= lane < total for lane in i.attribute)
        _require(fits, "lanes {}", i.attribute)
    elif i.op == "fold":
        _require(i.attribute in COMBINES and i.lanes == 1 and operands[0].dtype == i.dtype, "fold by {}", i.attribute)

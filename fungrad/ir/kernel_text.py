"""Kernels and instruction lists as text. `kernel_text(parse_kernel(text)) == text` for what `kernel_text` printed.

    kernel NAME KIND {                      # reasons are comments
      output y: float32[4,5]                buffers: output, input, scratch, register
      outer i:4                             outer axes
      let e0 = mul(i, 5)                    what the next nest or statement uses more than once
      nest y[i, j] add= EXPR over (j:5) reduce (r:3) where EXPR
      opt split('i', 64)                    the schedule's steps
      body {
        for i:4 parallel stop EXPR { ... }
        y[i] = EXPR
        if EXPR { ... }
        while EXPR { ... }
      }
    }

EXPR: `i` (an axis or let), `5` (int64), `True`, `float32(0.5)`, `x[i, j if EXPR]`, `add(EXPR, EXPR)`,
`cast<int32>(EXPR)`, `reduce_add[r:3](EXPR)`. Names that clash get a number; a parsed kernel has axes and buffers of
its own.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..dtypes import NAMES
from ..util import toposort
from .expr import (
    BOOL,
    INDEX,
    OPERATIONS,
    TRUE,
    Axis,
    Buffer,
    Expr,
    axis as axis_expr,
    constant,
    load,
    operation,
    reduce,
)
from .instructions import Instruction, InstructionList
from .kernel import If, Kernel, Loop, Nest, Opt, Statement, Store, While
from .program import literal_text, param_text
from .text import Scanner
from .types import Literal

_TYPED = ("cast", "bitcast")
_RESERVED = frozenset({*OPERATIONS, *NAMES, "True", "False", "inf", "nan", "for", "if", "while",
                       "let", "over", "reduce", "where", "stop", "output", "input", "scratch", "register", "outer",
                       "nest", "opt", "body"})


# ---- printing kernels -----------------------------------------------------------------------------------------------


class _Printer:
    """Prints one kernel. Every axis, buffer and shared expression gets a name of its own."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set(_RESERVED)
        self.lines: list[str] = []
        self.lets = 0

    def name(self, thing: Axis | Buffer) -> str:
        if thing not in self.names:
            base = re.sub(r"[^A-Za-z0-9_.]", "_", thing.name) or "_"
            base = base if base[0].isalpha() or base[0] == "_" else f"_{base}"
            name, number = base, 1
            while name in self.taken:
                name, number = f"{base}_{number}", number + 1
            self.taken.add(name)
            self.names[thing] = name
        return self.names[thing]

    def let_name(self) -> str:
        while True:
            name = f"e{self.lets}"
            self.lets += 1
            if name not in self.taken:
                self.taken.add(name)
                return name

    def axes(self, axes: Iterable[Axis]) -> str:
        return ", ".join(f"{self.name(a)}:{a.extent}" for a in axes)

    def expressions(self, roots: Sequence[Expr], indent: str, share: bool = True) -> list[str]:
        """The roots as text; what occurs in them more than once is first printed as `let` lines."""
        order = toposort(roots, lambda e: e.operands)
        for e in order:
            if e.op in ("axis", "load"):
                self.name(e.attribute)
        uses: dict[Expr, int] = {}
        for used in (*roots, *(operand for e in order for operand in e.operands)):
            uses[used] = uses.get(used, 0) + 1
        texts: dict[Expr, str] = {}
        for e in order:
            texts[e] = self.one(e, [texts[operand] for operand in e.operands])
            if share and uses[e] > 1 and e.op not in ("constant", "axis"):
                name = self.let_name()
                self.lines.append(f"{indent}let {name} = {texts[e]}")
                texts[e] = name
        return [texts[root] for root in roots]

    def one(self, e: Expr, operands: list[str]) -> str:
        if e.op == "constant":
            return str(e.attribute.value) if e.dtype in (INDEX, BOOL) else literal_text(e.attribute)
        if e.op == "axis":
            return self.name(e.attribute)
        if e.op == "load":
            valid = "" if e.operands[-1] is TRUE else f" if {operands[-1]}"
            return f"{self.name(e.attribute)}[{', '.join(operands[:-1])}{valid}]"
        if e.op == "reduce":
            return f"reduce_{e.attribute[0]}[{self.axes(e.attribute[1])}]({operands[0]})"
        kind = f"<{e.dtype.name}>" if e.op in _TYPED else ""
        return f"{e.op}{kind}({', '.join(operands)})"

    def buffer(self, word: str, buffer: Buffer) -> None:
        self.lines.append(f"  {word} {self.name(buffer)}: {buffer.type}")

    def nest(self, nest: Nest) -> None:
        where = () if nest.valid is TRUE else (nest.valid,)
        texts = self.expressions((*nest.index, nest.value, *where), "  ")
        rank = len(nest.index)
        parts = [f"  nest {self.name(nest.target)}[{', '.join(texts[:rank])}] {nest.combine or ''}= {texts[rank]}",
                 f"over ({self.axes(nest.axes)})"]
        if nest.reduce_axes:
            parts.append(f"reduce ({self.axes(nest.reduce_axes)})")
        if where:
            parts.append(f"where {texts[-1]}")
        self.lines.append(" ".join(parts))

    def statements(self, body: tuple[Statement, ...], indent: str) -> None:
        for statement in body:
            if isinstance(statement, Store):
                *index, value = self.expressions((*statement.index, statement.value), indent)
                self.lines.append(f"{indent}{self.name(statement.target)}[{', '.join(index)}] "
                                  f"{statement.combine or ''}= {value}")
                continue
            if isinstance(statement, Loop):
                stop = "" if statement.stop is None else f" stop {self.expressions((statement.stop,), indent)[0]}"
                head = f"for {self.axes((statement.axis,))} {statement.kind}{stop}"
            elif isinstance(statement, If):
                head = f"if {self.expressions((statement.condition,), indent)[0]}"
            else:   # evaluated before each round, so nothing of it may stand in front
                head = f"while {self.expressions((statement.condition,), indent, share=False)[0]}"
            self.lines.append(f"{indent}{head} {{")
            self.statements(statement.body, indent + "  ")
            self.lines.append(f"{indent}}}")


def kernel_text(kernel: Kernel) -> str:
    """A kernel as text: deterministic, and equal for kernels that differ only in the identity of axes and buffers."""
    printer = _Printer()
    printer.lines.append(f"kernel {kernel.name} {kernel.kind} {{")
    printer.lines.extend(f"  # {line}" for reason in kernel.reasons for line in str(reason).splitlines())
    for word, buffers in (("output", kernel.outputs), ("input", kernel.inputs)):
        for buffer in buffers:
            printer.buffer(word, buffer)
    for buffer in kernel.scratch:
        printer.buffer(buffer.scope, buffer)
    if kernel.outer:
        printer.lines.append(f"  outer {printer.axes(kernel.outer)}")
    for nest in kernel.nests:
        printer.nest(nest)
    printer.lines.extend(f"  opt {opt.name}({', '.join(map(param_text, opt.arguments))})" for opt in kernel.schedule)
    if kernel.body is not None:
        printer.lines.append("  body {")
        printer.statements(kernel.body, "    ")
        printer.lines.append("  }")
    return "\n".join([*printer.lines, "}"])


# ---- parsing kernels ------------------------------------------------------------------------------------------------


class _KernelParser:
    """Parses what `kernel_text` prints."""

    def __init__(self, scanner: Scanner):
        self.scanner = scanner
        # An axis is used in a `let` before the nest that binds it, so all are found ahead.
        bindings = re.findall(r"([\w.]+):(\d+)", re.sub(r"#.*", "", scanner.text))
        self.axes = {name: Axis(name, int(extent)) for name, extent in bindings}
        self.buffers: dict[str, Buffer] = {}
        self.lets: dict[str, Expr] = {}

    def kernel(self) -> Kernel:
        scan = self.scanner
        scan.expect("kernel")
        name, kind = scan.name(), scan.name()
        scan.expect("{")
        buffers: dict[str, list[Buffer]] = {"output": [], "input": [], "scratch": []}
        outer: list[Axis] = []
        nests: list[Nest] = []
        opts: list[Opt] = []
        body = None
        while not scan.accept("}"):
            word = scan.name()
            if word in ("output", "input", "scratch", "register"):
                buffers["scratch" if word == "register" else word].append(self.buffer(word))
            elif word == "outer":
                outer.append(self.bind_axis())
                while scan.accept(","):
                    outer.append(self.bind_axis())
            elif word == "nest":
                nests.append(self.nest())
            elif word == "let":
                self.let()
            elif word == "opt":
                opts.append(self.opt())
            elif word == "body":
                body = self.block()
            else:
                raise scan.error(f"unexpected {word!r}")
        return Kernel(name, tuple(buffers["output"]), tuple(buffers["input"]), tuple(buffers["scratch"]), tuple(outer),
                      tuple(nests), body, kind, tuple(opts))

    def buffer(self, word: str) -> Buffer:
        name = self.scanner.name()
        self.scanner.expect(":")
        scope = word if word in ("scratch", "register") else "global"
        self.buffers[name] = Buffer(name, self.scanner.type(), scope)
        return self.buffers[name]

    def bind_axis(self) -> Axis:
        """`name:extent`"""
        name = self.scanner.name()
        self.scanner.expect(":")
        extent = self.scanner.integer()
        found = self.axes[name]
        if found.extent != extent:
            raise self.scanner.error(f"axis {name} has the extents {found.extent} and {extent}")
        return found

    def let(self) -> None:
        name = self.scanner.name()
        self.scanner.expect("=")
        self.lets[name] = self.expression()

    def opt(self) -> Opt:
        def item() -> Any:
            return self.scanner.value(item)
        name = self.scanner.name()
        self.scanner.expect("(")
        return Opt(name, tuple(self.scanner.list(item, ")")))

    def axis_list(self) -> tuple[Axis, ...]:
        self.scanner.expect("(")
        return tuple(self.scanner.list(self.bind_axis, ")"))

    def nest(self) -> Nest:
        scan = self.scanner
        target, index, combine, value = self.assignment(scan.name())
        scan.expect("over")
        axes = self.axis_list()
        reduce_axes = self.axis_list() if scan.accept("reduce") else ()
        valid = self.expression() if scan.accept("where") else TRUE
        return Nest(target, index, axes, value, combine, reduce_axes, valid)

    def assignment(self, name: str) -> tuple[Buffer, tuple[Expr, ...], str | None, Expr]:
        """`[index] combine= value` after the target's name."""
        scan = self.scanner
        if name not in self.buffers:
            raise scan.error(f"{name!r} is not a buffer of this kernel")
        scan.expect("[")
        index = tuple(scan.list(self.expression, "]"))
        combine = None if scan.token == "=" else scan.name()
        scan.expect("=")
        return self.buffers[name], index, combine, self.expression()

    def block(self) -> tuple[Statement, ...]:
        self.scanner.expect("{")
        statements: list[Statement] = []
        while not self.scanner.accept("}"):
            word = self.scanner.name()
            if word == "let":
                self.let()
            else:
                statements.append(self.statement(word))
        return tuple(statements)

    def statement(self, word: str) -> Statement:
        scan = self.scanner
        if word == "for":
            axis, kind = self.bind_axis(), scan.name()
            stop = self.expression() if scan.accept("stop") else None
            return Loop(axis, self.block(), kind, stop)
        if word in ("if", "while"):
            condition = self.expression()
            return (If if word == "if" else While)(condition, self.block())
        target, index, combine, value = self.assignment(word)
        return Store(target, index, value, combine)

    def expression(self) -> Expr:
        scan = self.scanner
        if scan.kind == "number" or scan.token == "-":
            return constant(scan.scalar(), INDEX)
        name = scan.name()
        if name in ("True", "False"):
            return constant(name == "True", BOOL)
        if name in self.buffers and scan.token == "[":
            return self.load(self.buffers[name])
        if name in self.lets:
            return self.lets[name]
        if name in self.axes:
            return axis_expr(self.axes[name])
        if name.startswith("reduce_") and scan.accept("["):
            axes = tuple(scan.list(self.bind_axis, "]"))
            scan.expect("(")
            return reduce(name.removeprefix("reduce_"), scan.list(self.expression, ")")[0], axes)
        return self.operation(name)

    def load(self, buffer: Buffer) -> Expr:
        scan = self.scanner
        scan.expect("[")
        index: list[Expr] = []
        valid = TRUE
        while not scan.accept("]"):
            if scan.accept("if"):
                valid = self.expression()
            else:
                index.append(self.expression())
                scan.accept(",")
        return load(buffer, tuple(index), valid)

    def operation(self, name: str) -> Expr:
        scan = self.scanner
        if name in OPERATIONS:
            dtype: np.dtype | None = None
            if scan.accept("<"):
                dtype = scan.dtype()
                scan.expect(">")
            scan.expect("(")
            return operation(name, *scan.list(self.expression, ")"), dtype=dtype)
        found = scan.dtype_named(name)
        if found is None:
            raise scan.error(f"{name!r} is not defined above")
        return constant(scan.literal(found), found)


def parse_kernel(text: str) -> Kernel:
    """The kernel that `kernel_text` printed, without its reasons; VerificationError with the line for anything else."""
    scanner = Scanner(text)
    kernel = _KernelParser(scanner).kernel()
    if scanner.token:
        raise scanner.error(f"unexpected {scanner.token!r} after the kernel", scanner.position)
    return kernel


# ---- instruction lists ----------------------------------------------------------------------------------------------

_OPENS = frozenset({"loop", "while", "if"})
_CLOSES = frozenset({"end_loop", "end_if"})


def instructions_text(code: InstructionList) -> str:
    """An instruction list as text: one instruction a line, indented by its loops."""
    lines = [f"code {code.name} {{"]
    lines += [f"  parameter {buffer.name}: {buffer.type}" for buffer in code.parameters]
    lines += [f"  scratch {buffer.name}: {buffer.type} at {offset}" for buffer, offset in code.scratch]
    lines.append(f"  parallel {code.parallel_extent}, scratch bytes {code.scratch_bytes}, flops {code.flops}, "
                 f"bytes {code.bytes}")
    depth = 1
    for number, instruction in enumerate(code.instructions):
        if instruction.op in _CLOSES:
            depth -= 1
        lines.append("  " * depth + _instruction_text(number, instruction))
        if instruction.op in _OPENS:
            depth += 1
    return "\n".join([*lines, "}"])


def _instruction_text(number: int, instruction: Instruction) -> str:
    parts = [f"%{operand}" for operand in instruction.operands]
    if instruction.attribute is not None:
        parts.append(_attribute_text(instruction.attribute))
    right = f"{instruction.op} {', '.join(parts)}".rstrip()
    if instruction.dtype is None:
        return f"%{number} = {right}" if instruction.op == "parameter" else right
    lanes = f"x{instruction.lanes}" if instruction.lanes > 1 else ""
    return f"%{number}: {instruction.dtype.name}{lanes} = {right}"


def _attribute_text(attribute: Any) -> str:
    if isinstance(attribute, Literal):
        return literal_text(attribute)
    return attribute.name if isinstance(attribute, Buffer) else param_text(attribute)

"""Programs as text and back: `parse_program(program_text(p)) is p`. The scanner also serves `kernel_text.py`.

`#` begins a comment.
"""
from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

from ..dtypes import NAMES, canonical
from ..errors import VerificationError
from .primitive import PARAMETER_TYPES, PRIMITIVES, Primitive
from .program import RESULT, Node, Program, apply, input_node, literal_text, program, program_text, result_node
from .types import Literal, Type, array_type, literal

__all__ = ["Scanner", "literal_text", "parse_program", "program_text"]

_TOKEN = re.compile(r"""(?:\s|\#[^\n]*)*(?:
    (?P<number>-?(?:0x[0-9a-f]+|\d+(?:\.\d*)?(?:e[+-]?\d+)?))
  | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
  | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<mark>[-+*<>=!&|^%]?=|->|[(){}\[\],:=<>%@-])
)""", re.VERBOSE)

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")


class Scanner:
    """The tokens of a text, one after another. Positions are reported as line numbers."""

    __slots__ = ("text", "position", "token", "kind", "before")

    def __init__(self, text: str):
        self.text = text
        self.position = 0     # behind the current token
        self.before = 0       # behind the token before it
        self.token = ""
        self.kind = ""
        self.advance()

    def advance(self) -> str:
        """Answer the current token and go to the next one ("" at the end)."""
        answer = self.token
        self.before = self.position
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            rest = _SPACE.sub("", self.text[self.position:], count=1)
            if rest:
                raise self.error(f"unexpected character {rest[0]!r}", len(self.text) - len(rest))
            self.token, self.kind = "", "end"
            return answer
        self.position = match.end()
        self.kind = match.lastgroup or ""
        self.token = match.group(self.kind)
        return answer

    def error(self, message: str, at: int | None = None) -> VerificationError:
        """The error for what was just read (or stands at a position), with its line."""
        line = self.text.count("\n", 0, self.before if at is None else at) + 1
        return VerificationError(f"line {line}: {message}")

    def unexpected(self, wanted: str) -> VerificationError:
        """The error for the current token."""
        return self.error(f"expected {wanted}, found {self.token!r}", self.position)

    def expect(self, token: str) -> None:
        if self.token != token:
            raise self.unexpected(repr(token))
        self.advance()

    def accept(self, token: str) -> bool:
        """Whether the current token is this one; if so, go on."""
        if self.token != token:
            return False
        self.advance()
        return True

    def name(self) -> str:
        if self.kind != "name":
            raise self.unexpected("a name")
        return self.advance()

    def integer(self) -> int:
        if self.kind != "number":
            raise self.unexpected("a number")
        return int(self.advance(), 0)

    def list(self, item: Any, end: str) -> list[Any]:
        """Items separated by commas up to `end`, which is consumed."""
        items = []
        while not self.accept(end):
            items.append(item())
            if not self.accept(","):
                self.expect(end)
                break
        return items

    @staticmethod
    def dtype_named(name: str) -> np.dtype | None:
        return canonical(name) if name in NAMES else None

    def dtype(self) -> np.dtype:
        name = self.name()
        if name not in NAMES:
            raise self.error(f"{name!r} is not an element type")
        return canonical(name)

    def type(self) -> Type:
        dtype = self.dtype()
        self.expect("[")
        return array_type(tuple(self.list(self.integer, "]")), dtype)

    def scalar(self) -> bool | int | float:
        """True, False, an integer, a float, inf or nan."""
        negative = self.accept("-")
        if self.kind == "number":
            token = self.advance()
            value: bool | int | float = int(token, 0) if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", token) else float(token)
        else:
            word = self.name()
            named = {"True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
            if word not in named:
                raise self.error(f"expected a number, found {word!r}")
            value = named[word]
        return -value if negative else value

    def literal(self, dtype: np.dtype) -> Literal:
        """The rest of a literal after its type's name: `(0.5)`."""
        self.expect("(")
        bits = self.token if self.token.startswith("0x") else None
        value = self.scalar()
        self.expect(")")
        return literal(value, dtype) if bits is None else Literal(bytes.fromhex(bits[2:])[::-1], dtype)

    def value(self, item: Any) -> Any:
        """A parameter: a string, None, number, element type, Type, Literal, or (named) tuple of what `item` parses."""
        if self.kind == "string":
            return ast.literal_eval(self.advance())
        if self.accept("("):
            return tuple(self.list(item, ")"))
        if self.accept("None"):
            return None
        if self.token in NAMES:
            dtype = self.dtype()
            if self.accept("["):
                return array_type(tuple(self.list(self.integer, "]")), dtype)
            return self.literal(dtype) if self.token == "(" else dtype
        if self.token in PARAMETER_TYPES:
            named = PARAMETER_TYPES[self.advance()]
            self.expect("(")
            return named(**dict(self.list(lambda: self.entry(item), ")")))
        return self.scalar()

    def entry(self, item: Any) -> tuple[str, Any]:
        """`name=value`"""
        name = self.name()
        self.expect("=")
        return name, item()


class _ProgramParser:
    """Parses what `program_text` prints."""

    def __init__(self, scanner: Scanner):
        self.scanner = scanner

    def program(self) -> Program:
        scan = self.scanner
        scan.expect("program")
        scan.expect("(")
        inputs = scan.list(self._typed_name, ")")
        names = {name: input_node(number, type) for number, (name, type) in enumerate(inputs)}
        scan.expect("{")
        while scan.token != "return":
            self._line(names)
        scan.advance()
        outputs = scan.list(lambda: self._known(names), "}")
        return program(tuple(type for _, type in inputs), tuple(outputs))

    def _typed_name(self) -> tuple[str, Type]:
        name = self.scanner.name()
        self.scanner.expect(":")
        return name, self.scanner.type()

    def _known(self, names: dict[str, Node]) -> Node:
        name = self.scanner.name()
        if name not in names:
            raise self.scanner.error(f"{name!r} is not defined above")
        return names[name]

    def _line(self, names: dict[str, Node]) -> None:
        """`name: types = primitive{params}(operands)`"""
        scan = self.scanner
        name = scan.name()
        scan.expect(":")
        types = scan.list(scan.type, "=")
        word = scan.name()
        scan.expect("{")
        params = dict(scan.list(lambda: scan.entry(self._value), "}"))
        scan.expect("(")
        operands = tuple(scan.list(lambda: self._known(names), ")"))
        node = self._node(word, operands, params)
        found = node.type if isinstance(node.type, tuple) else (node.type,)
        if found != tuple(types):
            raise scan.error(f"{name} is {', '.join(map(str, found))}, not {', '.join(map(str, types))}")
        names[name] = node

    def _node(self, word: str, operands: tuple[Node, ...], params: dict[str, Any]) -> Node:
        if word == RESULT.name:
            return result_node(operands[0], params["number"])
        primitive: Primitive | None = PRIMITIVES.get(word)
        if primitive is None:
            raise self.scanner.error(f"there is no primitive {word!r}")
        return apply(primitive, operands, params)

    def _value(self) -> Any:
        if self.scanner.token == "program":
            return self.program()
        return self.scanner.value(self._value)


def parse_program(text: str) -> Program:
    """The Program that `program_text` printed; VerificationError with the line for anything else."""
    scanner = Scanner(text)
    result = _ProgramParser(scanner).program()
    if scanner.token:
        raise scanner.error(f"unexpected {scanner.token!r} after the program", scanner.position)
    return result

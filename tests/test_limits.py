"""Limits that keep a file readable at one sitting. An exception needs a reason in the lists below."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_LINE = 120
MAX_FILE = 800
MAX_FUNCTION = 60

# path or path:function -> why it may be longer
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}

PYTHON = sorted(path for folder in ("fungrad", "tests", "examples") for path in (ROOT / folder).rglob("*.py"))
LIBRARY = [path for path in PYTHON if path.is_relative_to(ROOT / "fungrad")]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def public_functions(body: list[ast.stmt]) -> list[Function]:
    """The functions and methods of public classes whose names do not start with one underscore."""
    found: list[Function] = []
    for node in body:
        if isinstance(node, Function) and (not node.name.startswith("_") or node.name.startswith("__")):
            found.append(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found += public_functions(node.body)
    return found


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_lengths(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    long = [number for number, line in enumerate(lines, 1) if len(line) > MAX_LINE]
    assert not long, f"{name(path)}: lines {long} are longer than {MAX_LINE}"
    assert len(lines) - 1 <= MAX_FILE or name(path) in LONG_FILES, f"{name(path)} has {len(lines) - 1} lines"
    for function in functions(ast.parse(text)):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length <= MAX_FUNCTION or f"{name(path)}:{function.name}" in LONG_FUNCTIONS, \
            f"{name(path)}:{function.lineno}: {function.name} has {length} lines"


@pytest.mark.parametrize("path", LIBRARY, ids=name)
def test_documented_and_typed(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body, f"{name(path)} has no module docstring"
    untyped = [f"{function.name} (line {function.lineno})" for function in public_functions(tree.body)
               if function.returns is None and function.name != "__init__"]
    assert not untyped, f"{name(path)}: no return annotation on {', '.join(untyped)}"


def test_exceptions_are_needed() -> None:
    for key in (*LONG_FILES, *LONG_FUNCTIONS):
        assert (ROOT / key.split(":")[0]).is_file(), f"{key} is excepted but does not exist"

"""Documentation is executed: the doctests of every module and page, and README's Python blocks."""
from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from fungrad.ir import primitive

ROOT = Path(__file__).parent.parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
           for path in sorted((ROOT / "fungrad").rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]
PAGES = [path for path in (*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")))
         if ">>>" in path.read_text(encoding="utf-8")]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
BLOCKS = [pytest.param(block, id=f"{path.name}-{number}")
          for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
          for number, block in enumerate(BLOCK.findall(path.read_text(encoding="utf-8"))) if ">>>" not in block]


@pytest.mark.parametrize("module", MODULES)
def test_doctests_of_modules(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), optionflags=FLAGS)
    assert result.attempted and not result.failed


def test_doctests_of_pages() -> None:
    before = dict(primitive.PRIMITIVES)
    try:
        run_pages()
    finally:   # a page may declare operations
        for name in set(primitive.PRIMITIVES) - set(before):
            del primitive.PRIMITIVES[name]


def run_pages() -> None:
    for page in PAGES:
        result = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS, encoding="utf-8")
        assert not result.failed, page


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str) -> None:
    exec(compile(block, "documentation", "exec"), {"__name__": "documentation"})


def test_links_lead_somewhere() -> None:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            assert "://" in target or (path.parent / target).exists(), f"{path.name} links to {target}"

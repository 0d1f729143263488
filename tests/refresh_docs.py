"""Rewrite the outputs in a page of doctests by running it: `python -m tests.refresh_docs docs/architecture.md`.

Read the difference before you commit it: the page is documentation first.
"""
from __future__ import annotations

import contextlib
import doctest
import io
import sys
from pathlib import Path


def refreshed(text: str) -> str:
    """The page with every expected output replaced by what its example prints."""
    lines, moved, names = text.split("\n"), 0, {}
    for example in doctest.DocTestParser().get_examples(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.source, "<page>", "single"), names)
        output = printed.getvalue().rstrip("\n")
        found = [line if line.strip() else "<BLANKLINE>" for line in output.split("\n")] if output else []
        start = example.lineno + example.source.rstrip("\n").count("\n") + 1 + moved
        expected = len(example.want.rstrip("\n").split("\n")) if example.want else 0
        lines[start:start + expected] = found
        moved += len(found) - expected
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")

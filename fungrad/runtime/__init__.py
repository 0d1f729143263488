"""Compiled things and bytes: arrays, executables, caches.

`compile` here is `runtime/compile.py`'s, imported with the whole of `lower` when the first program is compiled, so that
`import fungrad` stays light.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ir.program import Program
    from .executable import Executable


def compile_program(program: Program, device: str | None = None, donate: frozenset[int] = frozenset(), name: str = "",
                    origin: str = "") -> Executable:
    """`runtime.compile.compile`: the Executable of a program on a device."""
    return _compiler().compile(program, device, donate, name, origin)


def _compiler() -> Any:
    return importlib.import_module(f"{__name__}.compile")

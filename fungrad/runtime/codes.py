"""Lowered kernels on disk: a warm start skips scheduling and instruction selection, most of lowering's Python.

What is kept is the instruction list of a fused kernel, under a digest of the kernel's text, the target and the
compiler's own sources, so that neither another machine nor another version of fungrad ever reads it. It lies beside
the compiled objects in the disk cache, with the same checks.
"""
from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import fields
from functools import cache
from pathlib import Path

from ..backends.base import ObjectStore
from ..ir.instructions import InstructionList
from ..ir.kernel import Kernel
from ..ir.kernel_text import kernel_text
from ..ir.target import Target

_SOURCES = ("ir", "lower")


class StoredCodes:
    """The instruction lists of kernels in an object store."""

    __slots__ = ("_prefix", "_store")

    def __init__(self, store: ObjectStore, target: Target):
        self._store = store
        facts = [str(getattr(target, field.name)) for field in fields(target) if field.name != "features"]
        features = sorted(target.features)   # a set's own order changes from process to process
        self._prefix = "\0".join([compiler_digest(), *facts, *features, ""])

    def get(self, kernel: Kernel) -> InstructionList | None:
        """The kernel's code, if an equal kernel was lowered for this target before."""
        data = self._store.get(self._key(kernel))
        return None if data is None else pickle.loads(data)   # the store reads what only this user may write

    def put(self, kernel: Kernel, code: InstructionList) -> None:
        """Keep a kernel's code."""
        self._store.put(self._key(kernel), pickle.dumps(code, pickle.HIGHEST_PROTOCOL))

    def _key(self, kernel: Kernel) -> str:
        return hashlib.sha256(f"{self._prefix}{kernel_text(kernel)}".encode()).hexdigest()


@cache
def compiler_digest() -> str:
    """A digest of the compiler's sources: names, sizes and times of change, which costs a millisecond."""
    package = Path(__file__).parent.parent
    found = hashlib.sha256()
    for folder in _SOURCES:
        for root, _, files in os.walk(package / folder):
            for name in sorted(files):
                if name.endswith(".py"):
                    path = os.path.join(root, name)
                    status = os.stat(path)
                    line = f"{os.path.relpath(path, package)} {status.st_size} {status.st_mtime_ns}\n"
                    found.update(line.encode())
    return found.hexdigest()

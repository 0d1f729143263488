"""Every exception that fungrad raises, and the formatting that they share.

A message says what was wrong (with shapes and types), where (the argument's path, the user's own line) and what to
write instead.
"""
from __future__ import annotations

import os
import sys

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class FungradError(Exception):
    """Base class of the errors that are neither TypeError nor ValueError."""


class ShapeError(ValueError):
    """Operands whose shapes do not fit together."""


class DTypeError(TypeError):
    """An element type that an operation does not take."""


class TreeError(ValueError):
    """Pytrees of different structure where equal ones are needed."""


class GradientError(TypeError):
    """A derivative that does not exist or is not asked for correctly."""


class RefusedError(NotImplementedError):
    """A rule that a primitive states it does not have, with its reason."""


class LeakedTracerError(FungradError):
    """A traced value used after its trace has ended."""


class ConcretizationError(TypeError):
    """A traced value used where a concrete one is needed, such as in `if`."""


class VerificationError(FungradError):
    """A stage whose value is malformed or computes something else than the stage before."""


class CompilationError(FungradError):
    """Lowering or compiling a program failed."""


class DeviceError(FungradError):
    """A device or backend that is missing, lost or out of memory."""


class DeletedArrayError(FungradError):
    """An array used after it was donated to a jitted function."""


def user_location(depth: int = 1) -> str:
    """`file:line (function)` of the innermost frame outside fungrad, or "" where there is none."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return f"{code.co_filename}:{frame.f_lineno} ({code.co_name})"
        frame = frame.f_back
    return ""

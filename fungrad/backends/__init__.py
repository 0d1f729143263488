"""Finds a backend by its name: a module of this package, or an entry point of the group "fungrad.backends".

A backend's module holds one class derived from `Backend` whose `name` is the module's; it is made once, on first use.
This is the only dynamic import of the library.
"""
from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import threading
from functools import cache
from typing import Any

from ..errors import DeviceError
from .base import Backend

GROUP = "fungrad.backends"
_made: dict[str, Backend] = {}
_lock = threading.RLock()


def get(name: str) -> Backend:
    """The backend of this name, imported on first use.

    Raises DeviceError if there is none, or if it cannot be used here (a missing driver or package).
    """
    found = _made.get(name)
    if found is not None:
        return found
    with _lock:
        if name not in _made:
            _made[name] = _make(name)
        return _made[name]


def register(backend: Backend) -> None:
    """Make a backend known under its name, in place of one of the same name (for tests and experiments)."""
    with _lock:
        _made[backend.name] = backend


def known() -> tuple[str, ...]:
    """The names that `get` takes. That a name stands here does not promise that the device's driver is present."""
    return tuple(sorted({*_modules(), *_entry_points(), *_made}))


@cache
def _modules() -> tuple[str, ...]:
    """The modules of this package that hold a backend, found by their text: importing them all would cost seconds."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(name for name in names if f'name = "{name}"' in _source(name))


def _source(name: str) -> str:
    spec = importlib.util.find_spec(f"{__name__}.{name}") if name.isidentifier() else None
    source = spec.loader.get_source(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]
    return source or ""


@cache
def _entry_points() -> dict[str, Any]:
    metadata = importlib.import_module("importlib.metadata")   # here, as it costs a third of `import fungrad`
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def _make(name: str) -> Backend:
    if f'name = "{name}"' not in _source(name) and name not in _entry_points():
        raise DeviceError(f"there is no device {name!r}. Known: {', '.join(known())}.")
    try:
        own = f'name = "{name}"' in _source(name)
        found = importlib.import_module(f"{__name__}.{name}") if own else _entry_points()[name].load()
    except ImportError as error:
        raise DeviceError(f"device {name!r} cannot be used here: {error}. Known: {', '.join(known())}.") from error
    candidates = [found] if isinstance(found, type) else vars(found).values()
    for value in candidates:
        if isinstance(value, type) and issubclass(value, Backend) and getattr(value, "name", None) == name:
            return value()
    raise DeviceError(f"the module of device {name!r} holds no Backend of that name.")

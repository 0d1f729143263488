"""Finds a backend by its name: a module of this package, or an entry point of the group "fungrad.backends".

A backend's module holds one final class derived from `Backend`, made once, on first use. This is the only dynamic
import of the library.
"""
from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import threading
from functools import cache

from ..errors import DeviceError
from .base import Backend

GROUP = "fungrad.backends"
_loaded: dict[str, Backend] = {}
_lock = threading.RLock()


def get(name: str) -> Backend:
    """The backend of this name, imported on first use.

    Raises DeviceError if there is none, or if its module cannot be imported (a missing driver or package).
    """
    found = _loaded.get(name)
    if found is not None:
        return found
    with _lock:
        if name not in _loaded:
            _loaded[name] = _make(name)
        return _loaded[name]


def register(backend: Backend) -> None:
    """Make a backend known under its name, replacing one of the same name (for tests and experiments)."""
    with _lock:
        _loaded[backend.name] = backend


def known() -> tuple[str, ...]:
    """The names that `get` may be asked for. Naming a device here does not promise that its driver is present."""
    return tuple(sorted({*_own_modules(), *_entry_points(), *_loaded}))


@cache
def _own_modules() -> tuple[str, ...]:
    """The modules of this package that define a backend: their text says so, without importing them."""
    names = []
    for module in pkgutil.iter_modules(__path__):
        loader = module.module_finder.find_spec(module.name, None)  # type: ignore[call-arg]
        source = loader.loader.get_source(f"{__name__}.{module.name}") if loader and loader.loader else ""  # type: ignore[attr-defined]
        if source and any(line.startswith("class ") and line.rstrip().endswith("Backend):") for line in source.splitlines()):
            names.append(module.name)
    return tuple(name for name in names if name != "base")


@cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _make(name: str) -> Backend:
    points = _entry_points()
    if name in _own_modules():
        def load() -> object:
            return importlib.import_module(f"{__name__}.{name}")
    elif name in points:
        load = points[name].load
    else:
        raise DeviceError(f"there is no device {name!r}. Known: {', '.join(known())}.")
    try:
        module = load()
    except ImportError as error:
        raise DeviceError(f"device {name!r} cannot be used: {error}. Known: {', '.join(known())}.") from error
    if isinstance(module, type) and issubclass(module, Backend):
        return module()
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Backend) and getattr(value, "name", None) == name:
            return value()
    raise DeviceError(f"module of device {name!r} defines no Backend of that name.")

"""Typed settings: environment variables give the defaults, `with settings(...)` changes them for one thread.

An unknown name is an error, so that a misspelt setting cannot be ignored.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"expected one of {', '.join(names)}, got {text!r}")
        return text
    return parse


def _boolean(text: str) -> bool:
    return _one_of("0", "1")(text) == "1"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its environment variable, default, parser and meaning."""
    variable: str
    default: Any
    parse: Callable[[str], Any]
    doc: str


SETTINGS: dict[str, Setting] = {
    "default_float": Setting("FUNGRAD_DEFAULT_FLOAT", "float32", _one_of("float16", "bfloat16", "float32", "float64"),
                             "element type of a Python float"),
    "device": Setting("FUNGRAD_DEVICE", "cpu", str, "backend on which programs run"),
    "threads": Setting("FUNGRAD_THREADS", 0, int, "threads of the CPU backend; 0: as many as the process may use"),
    "cache_dir": Setting("FUNGRAD_CACHE_DIR", "", str, "folder of compiled objects; empty: the user's cache folder"),
    "disk_cache": Setting("FUNGRAD_DISK_CACHE", True, _boolean, "keep compiled objects on disk"),
    "verify": Setting("FUNGRAD_VERIFY", False, _boolean, "compare adjacent stages on the real inputs"),
    "check": Setting("FUNGRAD_CHECK", False, _boolean, "run the verifier after every pass"),
    "debug": Setting("DEBUG", 0, int, "1..5: the running log"),
    "passes": Setting("", None, str, "the compiler's passes, set by `fungrad.passes`; None: the usual ones"),
    "pending_limit": Setting("FUNGRAD_PENDING_LIMIT", 512, int, "operations outside jit that may wait before they run"),
}

_overrides = threading.local()
_defaults: dict[str, Any] = {}


def _default(name: str) -> Any:
    if name not in SETTINGS:
        raise KeyError(f"unknown setting {name!r}; there are {', '.join(SETTINGS)}")
    setting = SETTINGS[name]
    text = os.environ.get(setting.variable) if setting.variable else None
    try:
        value = setting.default if text is None or text == "" else setting.parse(text)
    except ValueError as error:
        raise ValueError(f"environment variable {setting.variable}: {error} ({setting.doc})") from None
    _defaults[name] = value
    return value


def get(name: str) -> Any:
    """The value of a setting in this thread. The environment is read once, at the first use of the name."""
    values = getattr(_overrides, "values", None)
    if values is not None and name in values:
        return values[name]
    return _defaults[name] if name in _defaults else _default(name)


@contextmanager
def settings(**values: Any) -> Iterator[None]:
    """Change settings for this thread within a `with` block."""
    for name in values:
        get(name)
    before = getattr(_overrides, "values", None)
    _overrides.values = {**(before or {}), **values}
    try:
        yield
    finally:
        _overrides.values = before


_contexts: dict[int, tuple[Any, ...]] = {}


def trace_context() -> tuple[Any, ...]:
    """The settings that decide what a call's trace and compilation are: part of every trace cache's key."""
    values = getattr(_overrides, "values", None)
    found = _contexts.get(id(values))
    if found is None:
        found = (get("default_float"), get("device"), get("debug"), get("verify"), get("passes"))
        if values is None:   # overrides are short-lived, and so are their ids
            _contexts[id(None)] = found
    return found

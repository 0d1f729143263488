"""Which of JAX's public names fungrad has: makes docs/FEATURES.md.

    python -m tests.features            write the file
    python -m tests.features --check    exit with 1 if it is out of date
"""
from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "docs" / "FEATURES.md"
NAMES = Path(__file__).parent / "data" / "jax_names.json"

# Where a JAX module's names are looked for.
MODULES = {"jax": "fungrad", "jax.Array": "fungrad.Array", "jax.tree_util": "fungrad.tree",
           "jax.test_util": "fungrad.testing"}
# `fungrad.Array` is what annotations and isinstance mean, tracers too; what needs a value is its subclass's.
CONCRETE = {"fungrad.Array": "fungrad.runtime.array.Array"}

# Names that mean nothing here: JAX's own machinery, or a thing that fungrad does otherwise (with the reason).
NOT_MEANT = {
    "jax": {"enable_x64": "64-bit types always work", "float0": "integers have no tangent",
            "jax2tf_associative_scan_reductions": "TensorFlow", "numpy_rank_promotion": "broadcasting is NumPy's",
            "array_garbage_collection_guard": "JAX's runtime", "enable_checks": "`FUNGRAD_CHECK=1`",
            "config": "`fungrad.settings(...)` and environment variables"},
}


def jax_names() -> dict[str, list[str]]:
    """JAX's public names by module, private ones and primitives (`add_p`) left out."""
    listed = json.loads(NAMES.read_text(encoding="utf-8"))
    return {module: [name for name in names if not name.endswith("_p") and name not in NOT_MEANT.get(module, {})]
            for module, names in listed.items()}


def resolve(path: str) -> Any:
    """The module or attribute at a dotted path; None where there is none."""
    parts = path.split(".")
    try:
        found: Any = importlib.import_module(parts[0])
    except ImportError:
        return None
    for number, part in enumerate(parts[1:], 1):
        if not hasattr(found, part) and isinstance(found, types.ModuleType):
            try:
                importlib.import_module(".".join(parts[:number + 1]))
            except ImportError:
                return None
        found = getattr(found, part, None)
    return found


def own_path(module: str) -> str:
    return MODULES.get(module, module.replace("jax", "fungrad", 1))


def present(module: str, names: list[str]) -> list[str]:
    """Those of JAX's names in `module` that fungrad has."""
    path = CONCRETE.get(own_path(module), own_path(module))
    found = {name: resolve(f"{path}.{name}") for name in names}
    return [name for name, value in found.items() if value is not None and not refused(value)]


def refused(value: Any) -> bool:
    """Whether a name is there only to say that it is not there yet."""
    return (getattr(value, "__doc__", None) or "").startswith("Not there yet")


def added(path: str) -> list[str]:
    """The public functions and classes of a module that JAX does not have there (not what a file imports)."""
    owner = resolve(path)
    if not isinstance(owner, types.ModuleType):
        return []
    known = {name for module, names in jax_names().items() if own_path(module) == path for name in names}
    home = "fungrad" if hasattr(owner, "__path__") else owner.__name__
    found = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_") and name not in known}
    return sorted(name for name, value in found.items() if callable(value)
                  and getattr(value, "__module__", "").startswith(home))


def paragraph(title: str, names: list[str]) -> list[str]:
    return [f"{title}: " + ", ".join(f"`{name}`" for name in names) + ".", ""] if names else []


def text() -> str:
    """The whole page."""
    lines = ["# What fungrad has of JAX", "",
             "Made by `python -m tests.features` from the names in `tests/data/jax_names.json` (JAX 0.10).", "",
             "| JAX | fungrad | names |", "|---|---|---|"]
    details: list[str] = []
    seen: set[str] = set()
    for module, names in jax_names().items():
        found = present(module, names)
        lines.append(f"| `{module}` | `{own_path(module)}` | {len(found)} of {len(names)} |")
        if resolve(own_path(module)) is None:
            continue
        details += [f"## {own_path(module)} ({module})", ""]
        details += paragraph("Has", found)
        details += paragraph("Not yet", [name for name in names if name not in found])
        if own_path(module) not in seen:
            details += paragraph("Beyond JAX", added(own_path(module)))
            seen.add(own_path(module))
    meant = [f"- `{module}.{name}`: {reason}" for module, names in NOT_MEANT.items() for name, reason in names.items()]
    return "\n".join([*lines, "", *details, "## Not meant to be here", "", *meant, ""])


def main() -> None:
    new = text()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if FILE.exists() and FILE.read_text(encoding="utf-8") == new else
                 "docs/FEATURES.md is out of date: run `python -m tests.features`")
    FILE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()

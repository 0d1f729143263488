"""Who may import whom: the table of docs/architecture.md as data, checked on the source of every module.

The layers are strict. An import of fungrad inside a function, a class or an `if` counts as a way around them and is
refused. What is imported by name at run time, so that `import fungrad` is quick, stands in DYNAMIC with its reason; a
foreign package imported on first use stands in ON_FIRST_USE.
"""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fungrad"

# Layer 0: each may import those before it, and everything else may import all of them.
FOUNDATION = ("version", "util", "errors", "config", "dtypes", "tree", "tree_compiled")

FRONT_END = ("ir", "trace", "ops", "transforms", "runtime.array")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "ir": (),
    "trace": ("ir",),
    "lower": ("ir",),
    "backends": ("ir",),
    "ops": ("ir", "trace"),
    "runtime": ("ir", "lower", "backends"),
    "runtime.devices": ("ir", "trace", "backends", "runtime"),   # device_put and its kin know traced values
    "transforms": ("ir", "trace", "ops"),
    "transforms.jit": ("ir", "trace", "ops", "transforms", "transforms.lazy", "runtime"),
    "transforms.lazy": ("ir", "trace", "ops", "transforms", "runtime"),
    "lax": FRONT_END,
    "numpy": (*FRONT_END, "lax"),
    "random": (*FRONT_END, "lax", "numpy"),
    "scipy": (*FRONT_END, "lax", "numpy", "random"),
    "nn": (*FRONT_END, "lax", "numpy", "random", "scipy"),
}
# On top: may import everything and are imported by nothing but each other.
TOP = ("__init__", "report", "replay", "testing")

# Packages whose files are ordered: an earlier file never imports a later one.
ORDER: dict[str, tuple[str, ...]] = {
    "ir": ("intern", "types", "value", "expr", "kernel", "instructions", "primitive", "program", "target", "lowered",
           "rewrite", "text", "kernel_text", "check", "interpret", "interpret_expr", "interpret_kernel",
           "interpret_instructions"),
}

# Modules that import by name at run time -> what. They may name it for type checkers under `if TYPE_CHECKING`.
DYNAMIC: dict[str, str] = {
    "__init__": "the public names that `import fungrad` can do without",
    "backends": "a backend, and what finds it",
    "runtime": "the compiler, when the first program is compiled",
    "dtypes": "ml_dtypes, which takes longer to import than NumPy",
    "backends.base": "the grammars of kernels and code, which arrays alone do not need",
    "runtime.executable": "likewise",
}

# Modules that import a foreign package inside a function -> why.
ON_FIRST_USE: dict[str, str] = {
    "backends.engine": "llvmlite loads LLVM, which a process that compiles nothing does not need",
}


def module_name(path: Path) -> str:
    """`ir.types` for fungrad/ir/types.py, `ir` for fungrad/ir/__init__.py, `__init__` for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def absolute(module: str, node: ast.ImportFrom) -> str | None:
    """What a `from ... import` names, relative to fungrad ("" is fungrad itself); None for a foreign module."""
    if node.level == 0:
        name = node.module or ""
        return name.removeprefix("fungrad").lstrip(".") if name.split(".")[0] == "fungrad" else None
    is_package = FILES[module].name == "__init__.py"
    parts = [] if module == "__init__" else module.split(".")
    base = parts[:len(parts) - node.level + (1 if is_package and module != "__init__" else 0)]
    return ".".join([*base, *((node.module or "").split("."))]).strip(".")


def imports(module: str) -> set[str]:
    """The fungrad modules that a module imports."""
    found: set[str] = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("fungrad.") for alias in node.names if alias.name.startswith("fungrad.")}
        elif isinstance(node, ast.ImportFrom) and (base := absolute(module, node)) is not None:
            for alias in node.names:
                inner = f"{base}.{alias.name}".strip(".")
                found.add(inner if inner in FILES else base or "__init__")
    return found - {module}


def is_own(module: str, node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import names fungrad."""
    if isinstance(node, ast.ImportFrom):
        return absolute(module, node) is not None
    return any(alias.name.split(".")[0] == "fungrad" for alias in node.names)


def layer_of(module: str) -> str:
    """The key of MAY_IMPORT, or the name in FOUNDATION or TOP, that governs a module."""
    parts = module.split(".")
    keys = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    found = [key for key in keys if key in MAY_IMPORT or key in FOUNDATION or key in TOP]
    assert found, f"fungrad.{module} stands in no layer: add it to the table"
    return found[0]


def allowed(importer: str, imported: str) -> bool:
    layer = layer_of(importer)
    if layer in TOP:
        return True
    if imported.split(".")[0] in FOUNDATION:
        return layer not in FOUNDATION or FOUNDATION.index(imported) < FOUNDATION.index(layer)
    if layer in FOUNDATION or layer_of(imported) in TOP:
        return False
    if layer_of(imported) == layer:
        return True
    return any(imported == name or imported.startswith(name + ".") for name in MAY_IMPORT[layer]) and (
        layer_of(imported) in MAY_IMPORT[layer] or imported in MAY_IMPORT[layer])


@pytest.mark.parametrize("module", FILES)
def test_imports_only_what_its_layer_may(module: str) -> None:
    wrong = sorted(name for name in imports(module) if not allowed(module, name))
    assert not wrong, f"fungrad.{module} (layer {layer_of(module)}) may not import {wrong}"


@pytest.mark.parametrize("module", FILES)
def test_imports_stand_at_the_top_of_the_file(module: str) -> None:
    tree = TREES[module]
    top = {id(node) for node in tree.body} | for_type_checkers(module)
    hidden = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top]
    wrong = [node.lineno for node in hidden if is_own(module, node) or module not in ON_FIRST_USE]
    assert not wrong, f"fungrad.{module} imports inside a block at lines {wrong}"
    assert hidden or module not in ON_FIRST_USE, f"fungrad.{module} no longer needs its entry in ON_FIRST_USE"


def for_type_checkers(module: str) -> set[int]:
    """The identities of the imports under `if TYPE_CHECKING` in a module of DYNAMIC."""
    blocks = [node for node in TREES[module].body if isinstance(node, ast.If)]
    return {id(node) for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING" and module in DYNAMIC
            for node in block.body}


@pytest.mark.parametrize("module", FILES)
def test_dynamic_imports_are_few(module: str) -> None:
    calls = [node.lineno for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)
             and ast.unparse(node.func) in ("importlib.import_module", "import_module", "__import__")]
    assert not calls or module in DYNAMIC, f"fungrad.{module} imports by name at lines {calls}"


def test_no_import_cycles() -> None:
    remaining = {module: imports(module) & set(FILES) - {"__init__"} for module in FILES if module != "__init__"}
    while ready := [module for module, needed in remaining.items() if not needed & set(remaining)]:
        for module in ready:
            del remaining[module]
    assert not remaining, f"these modules import one another in a circle: {sorted(remaining)}"


@pytest.mark.parametrize("package", ORDER)
def test_ordered_files(package: str) -> None:
    files = [name.removeprefix(f"{package}.") for name in FILES if name.startswith(f"{package}.")]
    assert sorted(files) == sorted(ORDER[package]), f"list every file of fungrad/{package} in ORDER, in import order"
    for position, name in enumerate(ORDER[package]):
        later = {f"{package}.{other}" for other in ORDER[package][position:]}
        wrong = sorted(imports(f"{package}.{name}") & later)
        assert not wrong, f"fungrad.{package}.{name} imports the later {wrong}"


def test_the_table_has_teeth() -> None:
    assert not allowed("ir.types", "trace")
    assert not allowed("lower.fuse", "ops.linear")
    assert not allowed("transforms.jvp", "runtime.array")
    assert not allowed("transforms.jvp", "transforms.jit")
    assert not allowed("numpy.creation", "runtime.compile")
    assert not allowed("numpy.creation", "nn.functions")
    assert not allowed("errors", "config")
    assert not allowed("nn.linear", "report")
    assert allowed("transforms.jit", "runtime.compile")
    assert allowed("nn.linear", "numpy.creation")

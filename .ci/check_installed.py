"""Compare the installed package with its source folder: the same files, and every one of them importable from
anywhere.
"""
import importlib
import sys
from pathlib import Path

import fungrad  # run with -I: neither the working folder nor this file's is looked into

source = Path(sys.argv[1])
installed = Path(fungrad.__file__).parent
assert installed != source, "this looks at the source folder, not at an installation"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".py", ".typed")}


assert files(installed) == files(source), files(installed) ^ files(source)
OPTIONAL = {"opencl", "cuda", "metal", "webgpu"}   # their drivers are extras
for path in sorted(files(installed)):
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if path.endswith(".py") and not OPTIONAL & set(module.split(".")):
        try:
            importlib.import_module("fungrad" if module == "__init__" else f"fungrad.{module}")
        except ModuleNotFoundError as error:   # the testing kit needs the extra "test"
            assert module.startswith("testing") and error.name == "hypothesis", path
print(f"{len(files(installed))} files in {installed}")

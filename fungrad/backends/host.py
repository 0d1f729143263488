"""Facts about the processor that this process runs on: vector units, caches, how many threads it may use."""
from __future__ import annotations

import ctypes
import math
import os
import re
import sys
from pathlib import Path

from .. import config
from ..ir.target import Target
from .engine import Engine

FALLBACK_CACHES = (32 << 10, 512 << 10, 4 << 20)


def host_target(engine: Engine) -> Target:
    """The host as lowering sees it."""
    features = frozenset(name for name, present in engine.feature_map.items() if present)
    vector_bytes, registers = vector_units(features, engine.triple)
    return Target("cpu", vector_bytes, registers, caches(), thread_count(), features, engine.fingerprint)


def vector_units(features: frozenset[str], triple: str) -> tuple[int, int]:
    """Width in bytes and number of the vector registers."""
    if "avx512f" in features and "avx512vl" in features:
        return 64, 32
    if "avx" in features:
        return 32, 16
    if triple.startswith(("aarch64", "arm64")):
        return 16, 32
    return 16, 16


def caches() -> tuple[int, int, int]:
    """Bytes of the data caches that one core has for itself: L1, L2 and its share of L3."""
    found = _linux_caches() if sys.platform == "linux" else _darwin_caches() if sys.platform == "darwin" else {}
    level1 = found.get(1, FALLBACK_CACHES[0])
    level2 = max(found.get(2, FALLBACK_CACHES[1]), level1)
    return level1, level2, max(found.get(3, FALLBACK_CACHES[2]), level2)


def _linux_caches() -> dict[int, int]:
    found: dict[int, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            size = parse_size((folder / "size").read_text())
            sharing = cpu_list_length((folder / "shared_cpu_list").read_text())
        except (OSError, ValueError):
            continue
        found[level] = size // sharing if level == 3 else size
    return found


def parse_size(text: str) -> int:
    """Bytes of a size such as "48K" or "32M"."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def cpu_list_length(text: str) -> int:
    """How many processors a list such as "0-3,8" names."""
    total = 0
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _darwin_caches() -> dict[int, int]:
    names = {1: "hw.perflevel0.l1dcachesize", 2: "hw.perflevel0.l2cachesize", 3: "hw.l3cachesize"}
    older = {1: "hw.l1dcachesize", 2: "hw.l2cachesize"}
    found = {}
    for level, name in names.items():
        size = _sysctl(name) or _sysctl(older.get(level, ""))
        if size:
            found[level] = size
    return found


def _sysctl(name: str) -> int:
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value


def thread_count() -> int:
    """FUNGRAD_THREADS, or one thread for every core that this process may use (affinity mask, container quota)."""
    asked = config.get("threads")
    if asked < 0:
        raise ValueError(f"FUNGRAD_THREADS must not be negative, got {asked}")
    return asked or available_cores()


def available_cores() -> int:
    """The cores of the affinity mask (two threads of one core count once), at most the control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        processors = os.sched_getaffinity(0)
        count = len({_siblings(number) for number in processors})
    else:
        count = os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota())))


def _siblings(number: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(number)


def _quota() -> float:
    """Processors that the control group grants, or infinity."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    quota = math.inf
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            quota = min(quota, _read_quota(Path("/sys/fs/cgroup"), path, "cpu.max", None))
        elif "cpu" in controllers.split(","):
            quota = min(quota, _read_quota(Path("/sys/fs/cgroup/cpu"), path, "cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return quota


def _read_quota(root: Path, path: str, quota_file: str, period_file: str | None) -> float:
    best = math.inf
    folder = root / path.strip("/")
    for place in (folder, *[parent for parent in folder.parents if parent == root or root in parent.parents]):
        try:
            words = (place / quota_file).read_text().split()
            period = (place / period_file).read_text() if period_file else words[1]
            if words[0] not in ("max", "-1"):
                best = min(best, float(words[0]) / float(period))
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
    return best

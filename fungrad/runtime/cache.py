"""The disk cache: named pieces of bytes that outlive the process.

A file is written whole under a temporary name and renamed, so readers and other processes never see a part of one.
Its header holds the length and digest of what follows; a file that fails the check is removed and counts as absent. A
folder that someone else owns or could write to is not used, since what lies in it will be executed. Every failure of
the file system means "nothing is cached", never an error: a read-only home only costs time.
"""
from __future__ import annotations

import hashlib
import os
import stat
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from .. import config

MAGIC = b"fungrad1"
HEADER = struct.Struct("<8sQ32s")
LIMIT_BYTES = 512 << 20
_TRIM_EVERY = 64          # writes between two looks at the folder's size
_TOUCH_SECONDS = 3600     # a file's time of last use is this coarse: most reads write nothing


def default_folder() -> Path:
    """FUNGRAD_CACHE_DIR, else `fungrad` in the user's cache folder of this system."""
    asked = config.get("cache_dir")
    if asked:
        return Path(asked)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "fungrad"


class DiskCache:
    """Bytes by key in one folder, bounded in size; see the module's text. Safe under threads and processes."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES):
        self.folder = folder
        self.limit = limit
        self._usable: bool | None = None
        self._writes = 0
        self._lock = threading.Lock()

    def usable(self) -> bool:
        """Whether the folder exists (or could be made) and only this user can write to it."""
        if self._usable is None:
            self._usable = _prepare(self.folder)
        return self._usable

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        if not self.usable():
            return None
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                if not _private(path.parent):
                    return None
                content = file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        data = unseal(content)
        if data is None:
            _remove(path)
        elif age > _TOUCH_SECONDS:
            _touch(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        if not self.usable():
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(path, seal(data))
        except OSError:
            return
        with self._lock:
            self._writes += 1
            due = self._writes % _TRIM_EVERY == 1
        if due:
            self.trim()

    def trim(self) -> None:
        """Remove the files used longest ago until four fifths of the limit are left, if the limit is passed."""
        files = []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    facts = os.stat(path)
                except OSError:
                    continue
                files.append((facts.st_mtime, facts.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        for _, size, path in sorted(files):
            if total <= self.limit * 4 // 5:
                break
            _remove(Path(path))
            total -= size


def seal(data: bytes) -> bytes:
    """`data` after a header with its length and digest."""
    return HEADER.pack(MAGIC, len(data), hashlib.sha256(data).digest()) + data


def unseal(content: bytes) -> bytes | None:
    """What `seal` was given, or None if anything is missing or changed."""
    if len(content) < HEADER.size:
        return None
    magic, length, digest = HEADER.unpack_from(content)
    data = content[HEADER.size:]
    whole = magic == MAGIC and len(data) == length and hashlib.sha256(data).digest() == digest
    return data if whole else None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is seen whole or not at all. Raises OSError."""
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        _remove(Path(temporary))
        raise


def _prepare(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        return _private(folder)
    except OSError:
        return False


def _private(folder: Path) -> bool:
    """POSIX: the folder is this user's and nobody else may write to it. Elsewhere the user's profile protects it."""
    facts = os.stat(folder)
    if not stat.S_ISDIR(facts.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return facts.st_uid == os.geteuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        pass


class NoCache:
    """Keeps nothing: for `disk_cache` off."""

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, data: bytes) -> None:
        pass


_caches: dict[Path, DiskCache] = {}


def disk_cache() -> DiskCache | NoCache:
    """The cache that the settings ask for."""
    if not config.get("disk_cache"):
        return NoCache()
    try:
        folder = default_folder()
    except RuntimeError:  # no home folder
        return NoCache()
    return _caches.setdefault(folder, DiskCache(folder))

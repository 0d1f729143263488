"""The disk cache: corruption, bounds, foreign folders, concurrent writers."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fungrad import config
from fungrad.runtime.cache import DiskCache, NoCache, default_folder, disk_cache, seal, unseal, write_atomically

KEY = "ab" + "0" * 62
is_root = hasattr(os, "geteuid") and os.geteuid() == 0
root_may_write_anywhere = pytest.mark.skipif(is_root, reason="root may write anywhere")
posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX's")


@given(st.binary(max_size=200))
def test_seal(data: bytes) -> None:
    assert unseal(seal(data)) == data


@given(st.binary(min_size=1, max_size=50), st.data())
def test_any_changed_byte_is_noticed(data: bytes, draw: st.DataObject) -> None:
    content = bytearray(seal(data))
    content[draw.draw(st.integers(0, len(content) - 1))] ^= draw.draw(st.integers(1, 255))
    assert unseal(bytes(content)) is None
    assert unseal(seal(data)[:draw.draw(st.integers(0, len(content) - 1))]) is None


def test_round_trip_and_absence(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    assert cache.get(KEY) == DiskCache(tmp_path / "c").get(KEY) == b"object"
    assert not list((tmp_path / "c").rglob(".tmp-*"))


@pytest.mark.parametrize("damage", [b"", b"short", seal(b"object")[:-1], seal(b"object")[:-1] + b"X"])
def test_a_corrupt_file_is_removed(tmp_path: Path, damage: bytes) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"object")
    path = tmp_path / KEY[:2] / KEY[2:]
    path.write_bytes(damage)
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"


def test_least_recently_used_files_go(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=10_000)
    for number in range(10):
        key = f"{number:02x}" + "0" * 62
        cache.put(key, bytes(1500))
        os.utime(tmp_path / key[:2] / key[2:], (number, number))
    cache.trim()
    left = [number for number in range(10) if cache.get(f"{number:02x}" + "0" * 62) is not None]
    assert left == list(range(10 - len(left), 10)) and 3 <= len(left) <= 6


@posix
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    DiskCache(folder).put(KEY, b"object")
    folder.chmod(0o777)
    cache = DiskCache(folder)
    assert not cache.usable() and cache.get(KEY) is None
    cache.put(KEY, b"other")
    folder.chmod(0o700)
    assert DiskCache(folder).get(KEY) == b"object"


@posix
def test_a_folder_inside_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"object")
    (tmp_path / KEY[:2]).chmod(0o777)
    assert cache.get(KEY) is None


@posix
def test_no_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = DiskCache(tmp_path / "file" / "cache")
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None


@posix
@root_may_write_anywhere
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    DiskCache(tmp_path).put(KEY, b"object")
    (tmp_path / KEY[:2]).chmod(0o500)
    tmp_path.chmod(0o500)
    cache = DiskCache(tmp_path)
    cache.put("cd" + KEY[2:], b"other")
    assert cache.get(KEY) == b"object" and cache.get("cd" + KEY[2:]) is None
    tmp_path.chmod(0o700)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*args: object) -> None:
        raise OSError("disk full")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_processes_that_write_the_same_key(tmp_path: Path) -> None:
    script = ("import sys; from pathlib import Path; from fungrad.runtime.cache import DiskCache\n"
              "cache = DiskCache(Path(sys.argv[1]))\n"
              f"for n in range(50):\n    cache.put('{KEY}', b'x' * 10000)\n"
              f"    assert cache.get('{KEY}') == b'x' * 10000\n")
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]


def test_settings_choose_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.settings(cache_dir=str(tmp_path / "mine")):
        assert default_folder() == tmp_path / "mine"
        assert disk_cache() is disk_cache()
    with config.settings(cache_dir=""):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        if sys.platform == "linux":
            assert default_folder() == tmp_path / "fungrad"
    with config.settings(disk_cache=False):
        assert isinstance(disk_cache(), NoCache)

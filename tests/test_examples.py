"""The examples run, and learn: each in a process of its own, as a user would start it. Their data reader, by unit."""
from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
import re
import struct
import subprocess
import sys
import urllib.error
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fungrad

EXAMPLES = Path(__file__).parent.parent / "examples"


def load_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


data = load_module("data")


def run(*arguments: Any, script: str = "mnist.py") -> subprocess.CompletedProcess[str]:
    """Run an example with the fungrad that these tests import."""
    environment = os.environ | {"PYTHONPATH": str(Path(fungrad.__file__).parent.parent)}
    return subprocess.run([sys.executable, str(EXAMPLES / script), *map(str, arguments)], capture_output=True,
                          text=True, timeout=300, env=environment)


def test_follow_one_call() -> None:
    result = run(script="01_follow_one_call.py")
    assert result.returncode == 0, result.stderr
    for title in ("1. trace", "4. fused", "7. source", "9. memory", "define void @", "dot_general"):
        assert title in result.stdout
    assert re.search(r"\|gradient\| = 1\.3894\n\Z", result.stdout)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits(model: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    result = run("--data", "digits", "--quick", "--model", model, "--plot", picture)
    assert result.returncode == 0, result.stderr
    [(accuracy, rate)] = re.findall(r"\ntest accuracy: ([01]\.\d{4})\nimages per second: (\d+)\n\Z", result.stdout)
    assert float(accuracy) >= 0.95 and int(rate) > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def write_set(folder: Path, compress: bool = True, train: int = 192, test: int = 64, columns: int = 8) -> None:
    """A learnable data set: the label is the row that is lit."""
    generator = np.random.default_rng(0)
    for stem, count in (("train", train), ("t10k", test)):
        labels = generator.integers(0, 8, count).astype(np.uint8)
        images = generator.integers(0, 40, (count, 8, columns)).astype(np.uint8)
        images[np.arange(count), labels] = 250
        write_idx(folder / f"{stem}-images-idx3-ubyte", images, compress)
        write_idx(folder / f"{stem}-labels-idx1-ubyte", labels, compress)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(path: Path, array: np.ndarray, compress: bool) -> None:
    content = idx_bytes(array)
    if compress:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def test_own_idx_files(tmp_path: Path) -> None:
    write_set(tmp_path)
    result = run("--data", "fashion", "--data-dir", tmp_path, "--model", "mlp", "--epochs", 40, "--seed", 1)
    assert result.returncode == 0, result.stderr
    assert "Fashion-MNIST: 192 training and 64 test images" in result.stdout
    assert "test accuracy: 1.0000" in result.stdout


def test_missing_files_are_one_clear_line(tmp_path: Path) -> None:
    result = run("--data", "fashion", "--data-dir", tmp_path / "nowhere")
    assert result.returncode == 1
    assert result.stderr.startswith("error: Fashion-MNIST is not in ") and "Traceback" not in result.stderr
    assert "apt install dataset-fashion-mnist" in result.stderr and "--data digits" in result.stderr


@pytest.mark.parametrize("compress", [False, True])
def test_read_folder(tmp_path: Path, compress: bool) -> None:
    write_set(tmp_path, compress)
    found = data.read_folder(data.SOURCES["mnist"], tmp_path)
    assert found.train_images.shape == (192, 8, 8) and found.test_labels.shape == (64,)
    assert (found.train_images[np.arange(192), found.train_labels] == 250).all()


def test_names_with_a_dot(tmp_path: Path) -> None:
    write_set(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(data.read_folder(data.SOURCES["mnist"], tmp_path).test_labels) == 64


WHOLE = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
BROKEN = {
    "empty": (b"", "no IDX file"),
    "text": (b"<html>not found</html>", "no IDX file"),
    "element type": (b"\0\0\x0d" + WHOLE[3:], "element type 0x0d"),
    "number of axes": (idx_bytes(np.zeros(4, np.uint8)), "1 axes"),
    "header cut": (WHOLE[:9], "truncated"),
    "content cut": (WHOLE[:-1], "truncated"),
    "content added": (WHOLE + b"\0", "followed by something else"),
    "gzip cut": (gzip.compress(WHOLE)[:-9], "cannot be read"),
    "gzip corrupt": (gzip.compress(WHOLE)[:12] + b"\xff\xff\xff\xff" + gzip.compress(WHOLE)[16:], "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(case: str, tmp_path: Path) -> None:
    content, message = BROKEN[case]
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(data.DataError, match=message) as error:
        data.read_idx(path, 3)
    assert str(path) in str(error.value)


def test_whole_file_plain_and_compressed(tmp_path: Path) -> None:
    for content in (WHOLE, gzip.compress(WHOLE)):
        (tmp_path / "images").write_bytes(content)
        np.testing.assert_array_equal(data.read_idx(tmp_path / "images", 3), np.arange(24).reshape(2, 3, 4))


def test_images_and_labels_must_belong_together(tmp_path: Path) -> None:
    write_set(tmp_path, compress=False)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.zeros(63, np.uint8), compress=False)
    with pytest.raises(data.DataError, match="64 images, .* 63 labels"):
        data.read_folder(data.SOURCES["fashion"], tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.full(64, 10, np.uint8), compress=False)
    with pytest.raises(data.DataError, match="the label 10, but there are only 10 classes"):
        data.read_folder(data.SOURCES["fashion"], tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(data.DataError, match="lacks t10k-labels-idx1-ubyte"):
        data.read_folder(data.SOURCES["fashion"], tmp_path)


def test_without_files_the_default_is_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(data.SOURCES, "fashion", replace(data.SOURCES["fashion"], folders=()))
    found = data.load(None)
    assert found.name == "digits" and found.maximum == 16 and len(found.train_labels) + len(found.test_labels) == 1797
    assert "apt install dataset-fashion-mnist" in capsys.readouterr().out


class FakeNetwork:
    """Stands in for urlopen: serves a folder's files, or fails."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.asked: list[str] = []

    def __call__(self, url: str, timeout: float) -> io.BytesIO:
        self.asked.append(url)
        if self.folder is None:
            raise urllib.error.URLError("no network")
        return io.BytesIO((self.folder / url.rsplit("/", 1)[1]).read_bytes())


def test_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    write_set(remote)
    sums = {name: "sha256:" + hashlib.sha256((remote / f"{name}.gz").read_bytes()).hexdigest() for name in data.FILES}
    network = FakeNetwork(remote)
    monkeypatch.setattr(data.urllib.request, "urlopen", network)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(data.SOURCES, "mnist", replace(data.SOURCES["mnist"], folders=(), checksums=sums))
    for _ in range(2):  # the second time from the cache
        assert len(data.load("mnist").train_labels) == 192
    assert len(network.asked) == 4
    assert sorted(path.name for path in data.cache_folder("mnist").iterdir()) == sorted(f"{n}.gz" for n in data.FILES)


def test_download_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path)
    monkeypatch.setattr(data.urllib.request, "urlopen", FakeNetwork(tmp_path))
    with pytest.raises(data.DataError, match="md5 .* instead of"):
        data.download(data.SOURCES["fashion"], tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.urllib.request, "urlopen", FakeNetwork(None))
    with pytest.raises(data.DataError, match="cannot be fetched .*no network.*apt install"):
        data.download(data.SOURCES["fashion"], tmp_path / "cache")

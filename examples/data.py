"""Small image data sets for the examples: Fashion-MNIST and MNIST from IDX files, and scikit-learn's bundled digits.

The IDX files are looked for in the folder that the caller names, in that of Debian's package `dataset-fashion-mnist`,
and in the user's cache folder, into which they are downloaded where there is a network (each file is checked against
a checksum). Everything is read into memory as uint8.
"""
from __future__ import annotations

import gzip
import hashlib
import math
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class DataError(Exception):
    """Data that is missing, truncated or corrupt; the message says what to do."""


@dataclass(frozen=True)
class Dataset:
    """Images (n, rows, columns) of uint8 from 0 to `maximum`, with labels (n,) of uint8."""
    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    maximum: int
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where the four IDX files of a data set are: folders to look in, and a URL with each compressed file's
    checksum.
    """
    title: str
    folders: tuple[str, ...]
    url: str
    checksums: dict[str, str]
    classes: tuple[str, ...]
    advice: str


FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DIGITS = tuple("0123456789")
SOURCES = {
    "fashion": Source(
        "Fashion-MNIST", ("/usr/share/datasets/fashion-mnist",),
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        {"train-images-idx3-ubyte": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
         "train-labels-idx1-ubyte": "md5:25c81989df183df01b3e8a0aad5dffbe",
         "t10k-images-idx3-ubyte": "md5:bef4ecab320f06d8554ea6380940ec79",
         "t10k-labels-idx1-ubyte": "md5:bb300cfdad3c16e7a12a480ee83cd310"},
        ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
        "`apt install dataset-fashion-mnist` (Debian), --data-dir FOLDER with the four IDX files, or --data digits, "
        "which needs no files"),
    "mnist": Source(
        "MNIST", ("/usr/share/datasets/mnist",),
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        {"train-images-idx3-ubyte": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
         "train-labels-idx1-ubyte": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
         "t10k-images-idx3-ubyte": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
         "t10k-labels-idx1-ubyte": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
        DIGITS, "--data-dir FOLDER with the four IDX files, or --data digits, which needs no files"),
}


def read_idx(path: Path, rank: int) -> np.ndarray:
    """The uint8 array in an IDX file, gzipped or not; DataError unless it is whole and has `rank` axes.

    The format: two zero bytes, the element type (8: uint8), the number of axes, each axis as a big-endian uint32, the
    elements.
    """
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Is it truncated or corrupt? Fetch it again.") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{path} is no IDX file: it starts with {content[:4].hex(' ') or 'nothing'}, not with 00 00.")
    kind, axes = content[2], content[3]
    if kind != 8 or axes != rank:
        raise DataError(f"{path} holds {axes} axes of element type {kind:#04x}; expected {rank} axes of uint8 (0x08).")
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{path} is truncated: {len(content)} bytes do not hold its header of {start}.")
    shape = tuple(int(extent) for extent in np.frombuffer(content, ">u4", axes, 4))
    expected = start + math.prod(shape)
    if len(content) != expected:
        what = "truncated" if len(content) < expected else "followed by something else"
        raise DataError(f"{path} is {what}: its header says {shape}, which is {expected} bytes, but it has "
                        f"{len(content)}. Fetch it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def find_file(folder: Path, name: str) -> Path | None:
    """The IDX file `name` in a folder, compressed or not; the variant with a dot for the hyphen counts too."""
    for stem in (name, name.replace("-idx", ".idx")):
        for path in (folder / f"{stem}.gz", folder / stem):
            if path.is_file():
                return path
    return None


def read_pair(images_path: Path, labels_path: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels that belong together: as many of one as of the other, labels below `classes`."""
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels) or not len(images):
        raise DataError(f"{images_path} has {len(images)} images, but {labels_path} has {len(labels)} labels.")
    if labels.max() >= classes:
        raise DataError(f"{labels_path} has the label {labels.max()}, but there are only {classes} classes.")
    return images, labels


def read_folder(source: Source, folder: Path) -> Dataset:
    """The data set in a folder of four IDX files."""
    paths = {name: find_file(folder, name) for name in FILES}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        there = "it does not exist" if not folder.is_dir() else f"it lacks {', '.join(missing)} (with or without .gz)"
        raise DataError(f"{source.title} is not in {folder}: {there}. Instead: {source.advice}.")
    train_images, train_labels, test_images, test_labels = (path for path in paths.values() if path is not None)
    train = read_pair(train_images, train_labels, len(source.classes))
    test = read_pair(test_images, test_labels, len(source.classes))
    if train[0].shape[1:] != test[0].shape[1:]:
        raise DataError(f"in {folder} training images are {train[0].shape[1:]}, test images {test[0].shape[1:]}.")
    return Dataset(source.title, *train, *test, maximum=255, classes=source.classes)


def cache_folder(name: str) -> Path:
    """Where downloads of a data set are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "fungrad" / "datasets" / name


def check(content: bytes, checksum: str, what: str) -> None:
    """DataError unless `content` has the checksum, written `algorithm:hexadecimal digits`."""
    algorithm, _, expected = checksum.partition(":")
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(f"{what} has the {algorithm} {found} instead of {expected}: nothing was kept of it.")


def download(source: Source, folder: Path, timeout: float = 10.0) -> None:
    """Fetch the files that the folder lacks. Each one appears there whole and checked, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if find_file(folder, name) is not None:
            continue
        url = f"{source.url}{name}.gz"
        print(f"downloading {url}")
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                content = response.read()
        except (urllib.error.URLError, OSError) as error:
            raise DataError(f"{url} cannot be fetched ({error}). Instead: {source.advice}.") from error
        check(content, source.checksums[name], url)
        partial = folder / f"{name}.gz.partial{os.getpid()}"
        partial.write_bytes(content)
        partial.replace(folder / f"{name}.gz")


def load_digits() -> Dataset:
    """scikit-learn's 1797 digits of 8 x 8 pixels from 0 to 16: every fifth one for testing."""
    try:
        from sklearn import datasets  # here: it takes a second to import, and only this data set needs it
    except ImportError as error:
        raise DataError("the digits come with scikit-learn: `pip install scikit-learn`.") from error
    digits = datasets.load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    test = np.arange(len(labels)) % 5 == 4
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test], maximum=16, classes=DIGITS)


def folder_of(source: Source, folders: Sequence[Path]) -> Path | None:
    """The first of the folders that has all four files."""
    return next((folder for folder in folders if all(find_file(folder, name) for name in FILES)), None)


def load(name: str | None, data_dir: str | None = None) -> Dataset:
    """The data set `name`: "fashion", "mnist" or "digits". Without a name: Fashion-MNIST where its files are, else
    digits.

    A `data_dir` is the only place then. Otherwise files that are nowhere are downloaded, if the data set was asked for.
    """
    if name == "digits":
        return load_digits()
    source = SOURCES[name or "fashion"]
    if data_dir is not None:
        return read_folder(source, Path(data_dir))
    cache = cache_folder(name or "fashion")
    found = folder_of(source, [*map(Path, source.folders), cache])
    if found is not None:
        return read_folder(source, found)
    if name is None:
        print(f"{source.title} is not on this machine, so this trains on scikit-learn's small digits. "
              f"For {source.title}: {source.advice.split(', or --data digits')[0]}, or --data fashion to download it.")
        return load_digits()
    download(source, cache)
    return read_folder(source, cache)

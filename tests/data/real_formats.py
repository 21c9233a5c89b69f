"""Small files in the datasets' real formats, made on the spot for tests that must not need any data directory."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smartfl.data.cache import Decoded
from smartfl.data.cifar import CIFAR10, CIFAR100, Cifar
from smartfl.data.mnist import MNIST, PARTS, Idx


def idx_bytes(array: np.ndarray) -> bytes:
    """An unsigned-byte array in idx form."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_arrays(train: int = 12, test: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "train": draw.integers(0, 256, (train, 28, 28), np.uint8),
        "train_labels": draw.integers(0, 10, train, np.uint8),
        "test": draw.integers(0, 256, (test, 28, 28), np.uint8),
        "test_labels": draw.integers(0, 10, test, np.uint8),
    }


def write_mnist(folder: Path, arrays: dict[str, np.ndarray], packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, file in PARTS.items():
        data = idx_bytes(arrays[part])
        (folder / (file + (".gz" if packed else ""))).write_bytes(gzip.compress(data) if packed else data)


def small_mnist(arrays: dict[str, np.ndarray], source: Idx = MNIST) -> Idx:
    """``source`` with the counts and checksums of ``arrays``, and nowhere else to look."""
    counts = (len(arrays["train"]), len(arrays["test"]))
    return replace(source, counts=counts, sha256=Decoded(arrays).sha256, elsewhere=())


def cifar_arrays(source: Cifar, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    arrays = {}
    for split, batches in (("train", source.train), ("test", source.test)):
        size = sum(batches.values())
        arrays[split] = draw.integers(0, 256, (size, 3, 32, 32), np.uint8)
        for field, classes in source.labels.items():
            arrays[f"{split}_{field}"] = draw.integers(0, classes, size, np.uint8)
    return arrays


def small_cifar(source: Cifar) -> tuple[Cifar, dict[str, np.ndarray]]:
    """``source`` with 3 samples per training batch and 2 to test, and the arrays that it should load."""
    small = replace(source, train=dict.fromkeys(source.train, 3), test=dict.fromkeys(source.test, 2))
    arrays = cifar_arrays(small)
    return replace(small, sha256=Decoded(arrays).sha256), arrays


SMALL_CIFAR10, CIFAR10_ARRAYS = small_cifar(CIFAR10)
SMALL_CIFAR100, CIFAR100_ARRAYS = small_cifar(CIFAR100)


def cifar_files(source: Cifar, arrays: dict[str, np.ndarray], python: bool) -> dict[str, bytes]:
    """The batches of either version, by file name."""
    files = {}
    for split, batches in (("train", source.train), ("test", source.test)):
        start = 0
        for batch, count in batches.items():
            rows = slice(start, start + count)
            pixels = arrays[split][rows].reshape(count, -1)
            labels = {field: arrays[f"{split}_{field}"][rows] for field in source.labels}
            if python:
                table = {"batch_label": batch, "data": pixels, "filenames": [f"{i}.png" for i in range(count)]}
                files[batch] = python2_pickle(table | {field: column.tolist() for field, column in labels.items()})
            else:
                files[f"{batch}.bin"] = np.column_stack([*labels.values(), pixels]).astype(np.uint8).tobytes()
            start += count
    return files


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> None:
    """A .tar.gz as the authors make it, with a readme that nobody asked for and the batches in another order."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in [("readme.html", b"<html>"), *reversed(files.items())]:
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


class _Python2Pickler(pickle._Pickler):
    """Protocol 2 as Python 2 wrote it: str and bytes alike are byte strings."""

    dispatch = dict(pickle._Pickler.dispatch)

    def _byte_string(self, value: Any) -> None:
        data = value.encode("latin1") if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch[str] = _byte_string
    dispatch[bytes] = _byte_string


def python2_pickle(value: Any) -> bytes:
    """``value`` pickled as the authors' files are, with NumPy 1's module names."""
    stream = io.BytesIO()
    _Python2Pickler(stream, 2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


class Malicious:
    """Unpickled by pickle.load, it would create the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


def newsgroups_file(path: Path, documents: dict[str, list[tuple[str, str, str]]]) -> None:
    """scikit-learn's cache file for (group, file name, text) triples per split."""
    from sklearn.utils import Bunch

    groups = sorted({group for split in documents.values() for group, _, _ in split})
    cache = {
        split: Bunch(
            data=[text for _, _, text in rows],
            filenames=np.array([f"/tmp/x/{split}/{group}/{file}" for group, file, _ in rows]),
            target_names=groups,
            target=np.array([groups.index(group) for group, _, _ in rows]),
            DESCR=None,
        )
        for split, rows in documents.items()
    }
    path.write_bytes(zlib.compress(pickle.dumps(cache)))

"""CIFAR-10 and CIFAR-100 in the authors' binary and python versions, unpacked or still in their archives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from smartfl.data.cache import Array, cached
from smartfl.data.cifar_files import PIXELS, Files, binary_records, pickled_records, reading
from smartfl.data.dataset import Dataset, Dense
from smartfl.data.home import cache_home, complete, data_home, missing
from smartfl.data.published import Checksum, published
from smartfl.errors import UserError


@dataclass(frozen=True)
class Cifar:
    """One of the two datasets.

    binary, python    the folders that the two versions unpack to
    archives          the authors' archives of the two versions
    train, test       the python version's file names and the number of samples in each (".bin" in the binary one)
    labels            the label fields in the order of the binary version's bytes, with their numbers of classes
    sha256            checksums of the authors' pixels as N × 3 × 32 × 32 bytes, and of the labels
    """

    name: str
    binary: str
    python: str
    archives: tuple[str, str]
    train: dict[str, int]
    test: dict[str, int]
    labels: dict[str, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    sha256: dict[str, str]

    def places(self, directory: str | Path | None = None) -> list[Path]:
        """The folders in which folders and archives are looked for."""
        home = data_home(directory)
        return [home, home / self.name, home / self.name.upper()]

    def find(self, directory: str | Path | None = None) -> Files:
        """The first complete copy: binary folder, python folder, loose .bin files, binary archive, python archive."""
        names = [*self.train, *self.test]
        bins = [f"{name}.bin" for name in names]
        places = self.places(directory)
        binary, python = dict(zip(names, bins, strict=True)), {name: name for name in names}
        for folder in [place / self.binary for place in places]:
            if paths := complete(folder, bins):
                return Files(tuple(paths), binary, pickled=False)
        for folder in [place / self.python for place in places]:
            if paths := complete(folder, names):
                return Files(tuple(paths), python, pickled=True)
        # Both datasets' loose files would be ambiguous only in name: their sizes and checksums tell them apart.
        for folder in places:
            if paths := complete(folder, bins):
                return Files(tuple(paths), binary, pickled=False)
        for archive, members in zip(self.archives, (binary, python), strict=True):
            for place in places:
                if paths := complete(place, [archive]):
                    return Files(tuple(paths), members, pickled=members is python)
        raise missing(self.name, [f"{self.binary}/", f"{self.python}/", *self.archives], places)

    def decode(self, files: Files) -> dict[str, Array]:
        """Pixels (N, 3, 32, 32) and one array per label field, for both splits."""
        arrays: dict[str, Array] = {}
        starts: dict[str, tuple[str, int, int]] = {}
        for split, batches in (("train", self.train), ("test", self.test)):
            size = sum(batches.values())
            arrays[split] = np.empty((size, 3, 32, 32), np.uint8)
            arrays |= {f"{split}_{field}": np.empty(size, np.uint8) for field in self.labels}
            firsts = accumulate(batches.values(), initial=0)
            starts |= {b: (split, first, n) for (b, n), first in zip(batches.items(), firsts, strict=False)}
        read = pickled_records if files.pickled else binary_records
        with reading(files):
            for batch, stream in files.open():
                split, start, count = starts[batch]
                for first, pixels, labels in read(stream, files.where(batch), count, tuple(self.labels)):
                    rows = slice(start + first, start + first + len(pixels))
                    arrays[split].reshape(-1, PIXELS)[rows] = pixels
                    for (field, classes), column in zip(self.labels.items(), labels, strict=True):
                        if column.max(initial=0) >= classes:
                            raise UserError(
                                f"{files.where(batch)} holds the label {column.max()}, expected 0 … {classes - 1}"
                            )
                        arrays[f"{split}_{field}"][rows] = column
        return arrays

    def load(self, field: str, directory: str | None, checksum: Checksum) -> Dataset:
        files = self.find(directory)
        check = published(self.name, self.sha256, files.archive or files.paths[0].parent, checksum)
        decoded = cached(self.name, files.paths, lambda: self.decode(files), check, cache_home(directory))
        arrays = {part: torch.from_numpy(array) for part, array in decoded.arrays.items()}
        return Dataset(
            name=self.name,
            train=Dense(arrays["train"], self.mean, self.std),
            train_labels=arrays[f"train_{field}"].to(torch.int64),
            test=Dense(arrays["test"], self.mean, self.std),
            test_labels=arrays[f"test_{field}"].to(torch.int64),
            num_classes=self.labels[field],
        )


CIFAR10 = Cifar(
    name="cifar10",
    binary="cifar-10-batches-bin",
    python="cifar-10-batches-py",
    archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    train={f"data_batch_{i}": 10_000 for i in range(1, 6)},
    test={"test_batch": 10_000},
    labels={"labels": 10},
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    sha256={
        "train": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "test": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
)
CIFAR100 = Cifar(
    name="cifar100",
    binary="cifar-100-binary",
    python="cifar-100-python",
    archives=("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
    train={"train": 50_000},
    test={"test": 10_000},
    labels={"coarse_labels": 20, "fine_labels": 100},
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    sha256={
        "train": "de64658905c6b161606e3649ddafce7cf86c7634a0cf9116d518e64ef46a33c5",
        "train_coarse_labels": "1804078d4e89b6b90bd5da6ffead1404596f6eecba15ceb8d95b6a09dfbba4c0",
        "train_fine_labels": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
        "test": "83c56492b2c11211ad1bb2dbd4f2eef4170a0441e41a41f3039c3144b1f5a511",
        "test_coarse_labels": "48df17fb3bf299f43dd7e131db11ca0ea8b07d750be8b6dcf7ad6ff1b4cc721d",
        "test_fine_labels": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
    },
)


def cifar10(directory: str | None = None, download: bool = False, checksum: Checksum = "refuse") -> Dataset:
    """CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 photographs, 3×32×32, ten classes.

    directory  where to look instead of the data directory
    download   fetch it when it is nowhere to be found
    checksum   what to do about pixels that are not the authors': "refuse" or "warn"
    """
    return _load(CIFAR10, "labels", directory, download, checksum)


def cifar100(
    labels: Literal["fine", "coarse"] = "fine",
    directory: str | None = None,
    download: bool = False,
    checksum: Checksum = "warn",
) -> Dataset:
    """CIFAR-100 (Krizhevsky 2009): 50,000 + 10,000 photographs, 3×32×32, 100 fine or 20 coarse classes.

    Copies that went through JPEG are common, so other pixels than the authors' are by default only warned of.
    """
    if labels not in ("fine", "coarse"):
        raise UserError(f"labels = {labels!r}: accepted are 'fine' and 'coarse'")
    return _load(CIFAR100, f"{labels}_labels", directory, download, checksum)


def _load(source: Cifar, field: str, directory: str | None, download: bool, checksum: Checksum) -> Dataset:
    if download:
        from smartfl.data.fetch import ensure

        ensure(source.name, directory)
    return source.load(field, directory, checksum)

"""MNIST and Fashion-MNIST from idx files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from smartfl.data.cache import Array, cached
from smartfl.data.dataset import Dataset, Dense
from smartfl.data.home import cache_home, complete, data_home, missing
from smartfl.data.idx import read_idx
from smartfl.data.published import Checksum, published
from smartfl.errors import UserError

PARTS = {
    "train": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


@dataclass(frozen=True)
class Idx:
    """A dataset of the MNIST family.

    folders    where its files may lie under the data directory, in order of preference; "" is the directory itself
    elsewhere  absolute folders that are tried after those
    counts     training and test samples
    sha256     checksums of the decoded arrays, taken from files whose MD5s are the published ones
    """

    name: str
    folders: tuple[str, ...]
    mean: float
    std: float
    sha256: dict[str, str]
    elsewhere: tuple[Path, ...] = ()
    counts: tuple[int, int] = (60_000, 10_000)

    def places(self, directory: str | Path | None = None) -> list[Path]:
        """The folders that are searched, in order."""
        return [data_home(directory) / folder for folder in self.folders] + list(self.elsewhere)

    def find(self, directory: str | Path | None = None) -> list[Path]:
        """The four files, from the first folder that has them all."""
        places = self.places(directory)
        for place in places:
            if found := complete(place, list(PARTS.values()), ("", ".gz")):
                return found
        raise missing(self.name, [f"{file}[.gz]" for file in PARTS.values()], places)

    def load(self, directory: str | None, checksum: Checksum) -> Dataset:
        files = self.find(directory)
        check = published(self.name, self.sha256, files[0].parent, checksum)
        decoded = cached(self.name, files, lambda: self._decode(files), check, cache_home(directory))
        arrays = {part: torch.from_numpy(array) for part, array in decoded.arrays.items()}
        return Dataset(
            name=self.name,
            train=Dense(arrays["train"], (self.mean,), (self.std,)),
            train_labels=arrays["train_labels"].to(torch.int64),
            test=Dense(arrays["test"], (self.mean,), (self.std,)),
            test_labels=arrays["test_labels"].to(torch.int64),
            num_classes=10,
        )

    def _decode(self, files: Sequence[Path]) -> dict[str, Array]:
        train, test = self.counts
        images, labels, test_images, test_labels = files
        arrays = {
            "train": read_idx(images, (train, 28, 28)).reshape(train, 1, 28, 28),
            "train_labels": read_idx(labels, (train,)),
            "test": read_idx(test_images, (test, 28, 28)).reshape(test, 1, 28, 28),
            "test_labels": read_idx(test_labels, (test,)),
        }
        for file, array in zip(files, arrays.values(), strict=True):
            if array.dtype.str != "|u1":
                raise UserError(f"{file} holds values of type {array.dtype}, expected unsigned bytes")
            if array.ndim == 1 and array.size and array.max() > 9:
                raise UserError(f"{file} holds the label {array.max()}, expected 0 … 9")
        return arrays


MNIST = Idx(
    name="mnist",
    folders=("MNIST/raw", "mnist", "MNIST", ""),
    mean=0.1307,
    std=0.3081,
    sha256={
        "train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "train_labels": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "test_labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
)
FASHION_MNIST = Idx(
    name="fashion-mnist",
    folders=("FashionMNIST/raw", "fashion-mnist", "fashion_mnist", "FashionMNIST", ""),
    mean=0.2860,
    std=0.3530,
    sha256={
        "train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    },
    elsewhere=(Path("/usr/share/datasets/fashion-mnist"),),
)


def mnist(directory: str | None = None, download: bool = False, checksum: Checksum = "refuse") -> Dataset:
    """MNIST (LeCun, Cortes and Burges): 60,000 + 10,000 digits, 28×28, one channel; mean .1307, std .3081.

    directory  where to look instead of the data directory
    download   fetch it when it is nowhere to be found
    checksum   what to do about samples that are not the authors': "refuse" or "warn"
    """
    return _load(MNIST, directory, download, checksum)


def fashion_mnist(directory: str | None = None, download: bool = False, checksum: Checksum = "refuse") -> Dataset:
    """Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): 60,000 + 10,000 garments, 28×28; mean .2860, std .3530.

    Debian's package dataset-fashion-mnist is found too. Settings as for MNIST.
    """
    return _load(FASHION_MNIST, directory, download, checksum)


def _load(source: Idx, directory: str | None, download: bool, checksum: Checksum) -> Dataset:
    if download:
        from smartfl.data.fetch import ensure

        ensure(source.name, directory)
    return source.load(directory, checksum)

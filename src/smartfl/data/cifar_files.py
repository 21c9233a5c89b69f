"""The files of the CIFAR datasets: batches of samples, binary or pickled, in a folder or in an archive."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from smartfl.data.cache import Array
from smartfl.data.safe_pickle import safe_loads
from smartfl.errors import UserError

PIXELS = 3 * 32 * 32
CHUNK = 10_000
MOST_BYTES = 1 << 28  # of an unpacked archive; the authors' have 186 MB at most
MOST_MEMBERS = 100


class _Bounded(io.BufferedIOBase):
    """A stream that ends in an error where it goes on for longer than any copy of the dataset."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._left = stream, MOST_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        part = self._stream.read(self._left + 1 if size is None or size < 0 else size)
        self._left -= len(part)
        if self._left < 0:
            raise tarfile.ReadError(f"more than {MOST_BYTES >> 20} MB when unpacked")
        return part


@dataclass(frozen=True)
class Files:
    """A copy of the dataset: one path per batch, or the one archive that holds them all under ``members``."""

    paths: tuple[Path, ...]
    members: dict[str, str]
    pickled: bool

    @property
    def archive(self) -> Path | None:
        return self.paths[0] if self.paths[0].name.endswith(".tar.gz") else None

    def where(self, batch: str) -> str:
        """What an error calls this batch."""
        if self.archive is not None:
            return f"{self.archive} ({self.members[batch]})"
        return str(self.paths[0].parent / self.members[batch])

    def open(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Each batch's name and bytes; from an archive in the order they come, without unpacking it to disk."""
        if self.archive is None:
            for batch, path in zip(self.members, self.paths, strict=True):
                with path.open("rb") as file:
                    yield batch, file
            return
        wanted = {file: batch for batch, file in self.members.items()}
        with gzip.open(self.archive) as unpacked, tarfile.open(fileobj=_Bounded(unpacked), mode="r|") as tar:
            for number, member in enumerate(tar):
                if number > MOST_MEMBERS:
                    raise UserError(f"{self.archive} is refused: it has more than {MOST_MEMBERS} files")
                name = PurePosixPath(member.name).name
                if name in wanted and member.isfile() and (stream := tar.extractfile(member)) is not None:
                    yield wanted.pop(name), stream
        if wanted:
            raise UserError(f"{self.archive} is incomplete: it has no {', '.join(sorted(wanted))}")


@contextmanager
def reading(files: Files) -> Iterator[None]:
    """Whatever the file system, tar or gzip says is put as a user error that names the file."""
    name = files.archive or files.paths[0].parent
    try:
        yield
    except EOFError as error:
        raise UserError(f"{name} is truncated: the compressed data end early") from error
    except (tarfile.TarError, zlib.error) as error:
        raise UserError(f"{name} is truncated or damaged: {error}") from error
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error}") from error


def binary_records(
    stream: IO[bytes], where: str, count: int, fields: tuple[str, ...]
) -> Iterator[tuple[int, Array, list[Array]]]:
    """Chunks of a batch in the binary version: first row, pixels (n, 3072), one label column per field.

    A record is one byte per label field and 3072 bytes of pixels, channel after channel, row after row.
    """
    width = len(fields) + PIXELS
    for first in range(0, count, CHUNK):
        n = min(CHUNK, count - first)
        raw = stream.read(n * width)
        if len(raw) < n * width:
            raise UserError(f"{where} is truncated: {first * width + len(raw)} bytes, {count * width} expected")
        records = np.frombuffer(raw, np.uint8).reshape(n, width)
        yield first, records[:, len(fields) :], [records[:, i] for i in range(len(fields))]
    if stream.read(1):
        raise UserError(f"{where} is damaged: it goes on after {count} samples ({count * width} bytes)")


def pickled_records(
    stream: IO[bytes], where: str, count: int, fields: tuple[str, ...]
) -> Iterator[tuple[int, Array, list[Array]]]:
    """A batch in the python version, through an unpickler that admits data only; one chunk."""
    limit = 2 * count * PIXELS + (1 << 20)
    batch = safe_loads(stream.read(limit), where)
    table: dict[str, Any] = {}
    if isinstance(batch, dict):
        table = {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in batch.items()}
    absent = [key for key in ("data", *fields) if key not in table]
    if absent:
        raise UserError(f"{where} is not a CIFAR batch: it has no {', '.join(absent)}")
    pixels = table["data"]
    if not isinstance(pixels, np.ndarray):
        raise UserError(f"{where}: data must be an array, not a {type(pixels).__name__}")
    if pixels.dtype != np.uint8 or pixels.shape != (count, PIXELS):
        raise UserError(f"{where} holds {pixels.dtype} pixels {pixels.shape}, expected uint8 {(count, PIXELS)}")
    yield 0, pixels, [_labels(table[field], field, count, where) for field in fields]


def _labels(values: Any, field: str, count: int, where: str) -> Array:
    plain = isinstance(values, list | np.ndarray) and len(values) == count
    if plain and isinstance(values, list):
        plain = all(type(value) is int and 0 <= value <= 255 for value in values)
    elif plain:
        plain = values.shape == (count,) and values.dtype.kind in "iu" and 0 <= values.min() <= values.max() <= 255
    if not plain:
        raise UserError(f"{where}: {field} must be {count} whole numbers in 0 … 255")
    return np.asarray(values).astype(np.uint8)

"""The idx format of the MNIST family, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from smartfl.data.bounds import check_bytes, check_regular
from smartfl.data.cache import Array
from smartfl.errors import UserError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CHUNK = 1 << 20


def read_idx(path: Path, shape: tuple[int, ...] | None = None) -> Array:
    """The array in an idx file; gzip is recognised by its content, not by the file's name.

    Layout: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian uint32, the values in
    C order. A file that ends early, goes on too long, or holds another ``shape`` than asked for is refused.
    """
    with _reading(path) as stream:
        head = stream.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES or not 1 <= head[3] <= 8:
            raise UserError(f"{path} is not an idx file: it starts with {head.hex(' ') or 'nothing'}")
        sizes = stream.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise UserError(f"{path} is truncated: it ends within the idx header")
        found = tuple(int(n) for n in np.frombuffer(sizes, ">u4"))
        if shape is not None and found != shape:
            raise UserError(f"{path} holds {_times(found)} values, expected {_times(shape)}")
        dtype = np.dtype(TYPES[head[2]])
        check_bytes(2 * prod(found) * dtype.itemsize, str(path))
        return _payload(stream, path, prod(found) * dtype.itemsize).view(dtype).reshape(found)


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """The file's decompressed bytes; whatever the decompressor says is put as a user error that names the file."""
    try:
        check_regular(path, str(path))
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if not packed:
                yield raw
                return
            with gzip.open(raw) as stream:
                yield cast(BinaryIO, stream)
    except EOFError as error:
        raise UserError(f"{path} is truncated: the compressed data end early") from error
    except (OSError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def _payload(stream: BinaryIO, path: Path, size: int) -> Array:
    """Exactly ``size`` bytes up to the end of the stream, grown as they come: a lying header costs no memory."""
    values = bytearray()
    while len(values) <= size and (part := stream.read(min(CHUNK, size + 1 - len(values)))):
        values += part
    if len(values) < size:
        raise UserError(f"{path} is truncated: {len(values)} bytes of values, {size} expected")
    if len(values) > size:
        raise UserError(f"{path} is damaged: values go on after the {size} bytes that its header announces")
    return np.frombuffer(values, np.uint8)


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))

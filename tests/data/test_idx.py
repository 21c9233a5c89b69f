"""The idx reader: both wrappings, every check, the file named in each error."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from real_formats import idx_bytes

from smartfl.data.idx import read_idx
from smartfl.errors import UserError

VALUES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_reads_what_was_written(tmp_path: Path, packed: bool) -> None:
    """Gzip is recognised by content: the name has no .gz in either case."""
    path = tmp_path / "values"
    data = idx_bytes(VALUES)
    path.write_bytes(gzip.compress(data) if packed else data)
    read = read_idx(path, (2, 3, 4))
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, VALUES)
    assert read.flags.writeable


def test_big_endian_types(tmp_path: Path) -> None:
    """Type 0x0C is a big-endian int32: 00 00 01 02 is 258, ff ff ff ff is −1."""
    path = tmp_path / "ints"
    path.write_bytes(bytes([0, 0, 0x0C, 1]) + struct.pack(">I", 2) + bytes([0, 0, 1, 2, 255, 255, 255, 255]))
    assert read_idx(path).tolist() == [258, -1]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not an idx file"),
        (b"\x00\x01\x08\x01\x00\x00\x00\x01a", "not an idx file"),
        (b"\x00\x00\x07\x01\x00\x00\x00\x01a", "not an idx file"),
        (b"\x00\x00\x08\x03\x00\x00\x00\x02", "within the idx header"),
        (idx_bytes(VALUES)[:-1], "truncated: 23 bytes of values, 24 expected"),
        (idx_bytes(VALUES) + b"x", "values go on after the 24 bytes"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "more than half of this machine's memory"),
        (gzip.compress(idx_bytes(VALUES), mtime=0)[:-9], "truncated"),
        (gzip.compress(idx_bytes(VALUES), mtime=0)[:-1], "truncated"),
        (gzip.compress(idx_bytes(VALUES), mtime=0)[:-8] + b"\0" * 8, "cannot be read: CRC"),
    ],
    ids=[
        "empty",
        "magic",
        "type",
        "header cut",
        "values cut",
        "too long",
        "claims too much",
        "gzip body cut",
        "gzip trailer cut",
        "gzip checksum",
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(UserError, match=complaint) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_bytes(idx_bytes(VALUES))
    with pytest.raises(UserError, match="holds 2 × 3 × 4 values, expected 2 × 3 × 5"):
        read_idx(path, (2, 3, 5))

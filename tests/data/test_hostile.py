"""Data files from a stranger: refused in one sentence, before they take memory or time."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smartfl.data import cifar_files
from smartfl.data.arrays import arrays
from smartfl.data.bounds import class_count
from smartfl.data.cifar_files import Files, pickled_records, reading
from smartfl.data.idx import read_idx
from smartfl.data.image_folder import image_folder
from smartfl.data.safe_pickle import safe_loads
from smartfl.errors import UserError

PRIME = (1 << 61) - 1  # all its multiples have the hash 0
SHARED = b"".join(b"]q" + bytes([i]) + b"(" + 2 * (b"h" + bytes([i - 1])) + b"e" for i in range(1, 40))
PICKLES = {
    "a memo of gigabytes": (b"\x80\x02]r\xff\xff\xff\x7f.", None),
    "a tuple of tuples as a key": (b"\x80\x02}K\x00\x85" + b"2\x86" * 60 + b"K\x01s.", "a key that is a tuple"),
    "tuples without end": (b"\x80\x02)" + b"\x85" * 100_000 + b".", "nested too deep"),
    "integers of one hash": (
        b"\x80\x02}("
        + b"".join(b"\x8a\x0a" + (i * PRIME).to_bytes(10, "little") + b"N" for i in range(1, 20_000))
        + b"u.",
        "a key that is a int",
    ),
    "gigabytes that are not there": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "not a complete pickle"),
    "one string as many arrays": (
        b"\x80\x02(c_codecs\nencode\nq\x01X\x00\x00\x10\x00"
        + b"a" * (1 << 20)
        + b"q\x02X\x06\x00\x00\x00latin1q\x03\x86q\x04R"
        + b"h\x01h\x04R" * 1000
        + b"l.",
        "more bytes than it has",
    ),
    "a mark too few": (b"\x80\x02K\x01e.", "not a complete pickle"),
}


@contextmanager
def at_most(megabytes: float):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", PICKLES)
def test_a_pickle_takes_no_more_than_its_size(kind):
    data, complaint = PICKLES[kind]
    with at_most(12 * len(data) / 1e6 + 5):
        if complaint is None:
            assert safe_loads(data, "batch") == []
        else:
            with pytest.raises(UserError, match=rf"^batch is .*{complaint}"):
                safe_loads(data, "batch")


@pytest.mark.parametrize("key", ["data", "labels"])
def test_lists_that_share_themselves_are_no_pixels_and_no_labels(key):
    """280 bytes that NumPy would write out as 2^39 numbers."""
    pixels = pickle.dumps(np.zeros((40, 3072), np.uint8), 2)[2:-1].replace(b"q\x00", b"q\x7f")
    table = {"data": pixels, "labels": b"]"}
    table[key] = b"(]q\x00(K\x01K\x01e" + SHARED + b"l"  # a list of 40 lists
    data = b"\x80\x02}(" + b"".join(b"X" + struct.pack("<I", len(k)) + k.encode() + v for k, v in table.items()) + b"u."
    said = {"data": "data must be an array, not a list", "labels": "labels must be 40 whole numbers"}
    with at_most(5), pytest.raises(UserError, match=rf"^batch: {said[key]}"):
        list(pickled_records(io.BytesIO(data), "batch", 40, ("labels",)))


def archive(path: Path, members: dict[str, int]) -> Files:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, size in members.items():
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    return Files((path,), {"batch": "batch.bin"}, pickled=False)


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"zeros": 3 << 20, "batch.bin": 1}, "more than 1 MB when unpacked"),
        ({f"file-{i}": 0 for i in range(200)} | {"batch.bin": 1}, "more than 100 files"),
    ],
)
def test_an_archive_that_unpacks_to_more_than_the_dataset_is_refused(tmp_path, monkeypatch, members, complaint):
    monkeypatch.setattr(cifar_files, "MOST_BYTES", 1 << 20)
    files = archive(tmp_path / "cifar.tar.gz", members)
    with pytest.raises(UserError, match=complaint), reading(files):
        list(files.open())


def npz(folder: Path, **changes: np.ndarray) -> str:
    labels = np.arange(100) % 10
    whole = {
        "x_train": np.zeros((100, 4), np.float32),
        "y_train": labels,
        "x_test": np.zeros((100, 4)),
        "y_test": labels,
    }
    np.savez(folder / "own.npz", **(whole | changes))
    return str(folder / "own.npz")


@pytest.mark.parametrize("stray", [255, 1_000_000, 2**62])
def test_a_stray_label_makes_no_classes(tmp_path, stray):
    labels = np.arange(100) % 10
    labels[3] = stray
    path = npz(tmp_path, y_train=labels)
    with (
        at_most(20),
        pytest.raises(UserError, match=rf"labels up to {stray}, but no sample of class 10: .*num_classes"),
    ):
        arrays(path)
    if stray == 255:
        assert arrays(path, num_classes=256).num_classes == 256


def test_classes_that_only_one_part_has_are_there(tmp_path):
    assert arrays(npz(tmp_path, y_train=np.arange(100) % 5, y_test=5 + np.arange(100) % 5)).num_classes == 10


@pytest.mark.parametrize("given", [0, -1, 100_001])
def test_a_number_of_classes_is_bounded(given):
    with pytest.raises(UserError, match=rf"^num_classes = {given}: accepted are 1 … 100000"):
        class_count(np.array([0]), given, "it")


@pytest.mark.parametrize("shape", [(1 << 31,), (1 << 20, 1 << 20)])
def test_a_header_that_announces_more_than_there_is_reserves_nothing(tmp_path, shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "lying.npz", "w") as file:
        for key in ("x_train", "y_train"):
            file.writestr(f"{key}.npy", header.getvalue())
    with at_most(5), pytest.raises(UserError, match="announces more values than it holds"):
        arrays(str(tmp_path / "lying.npz"))


def test_an_npz_that_is_larger_than_memory_is_not_unpacked(tmp_path, monkeypatch):
    path = npz(tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    with pytest.raises(UserError, match="more than half of this machine's memory"):
        arrays(path)


def test_an_idx_header_of_terabytes_is_refused(tmp_path):
    (tmp_path / "idx").write_bytes(b"\0\0\x0e\x02" + struct.pack(">II", 1 << 31, 1 << 8))
    with pytest.raises(UserError, match="more than half of this machine's memory"):
        read_idx(tmp_path / "idx")


@pytest.fixture
def images(tmp_path):
    """A folder of two classes; returns the path of a third image that is still to be made."""
    for label in "ab":
        folder = tmp_path / "own" / label
        folder.mkdir(parents=True)
        for name in "xy":
            Image.new("RGB", (8, 8)).save(folder / f"{name}.png")
    return tmp_path / "own" / "a" / "z.png"


def test_a_pipe_is_no_image(images):
    os.mkfifo(images)
    with pytest.raises(UserError, match=r"z\.png' is no regular file"):
        image_folder(str(images.parents[1]))


def test_only_the_named_formats_are_decoded(images):
    """PostScript is a program: Pillow would hand it to Ghostscript."""
    images.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EndProlog\n%%EOF\n")
    with pytest.raises(UserError, match=r"z\.png' cannot be read \(cannot identify image file"):
        image_folder(str(images.parents[1]))


def test_an_image_of_too_many_pixels_is_not_decoded(images):
    Image.new("1", (9000, 9000)).save(images)
    with at_most(20), pytest.raises(UserError, match=r"9000 × 9000 pixels, at most 67108864 are accepted"):
        image_folder(str(images.parents[1]))

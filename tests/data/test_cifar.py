"""CIFAR-10 and CIFAR-100 from small files: binary and python versions, folders and archives."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from real_formats import (
    CIFAR10_ARRAYS,
    CIFAR100_ARRAYS,
    SMALL_CIFAR10,
    SMALL_CIFAR100,
    Malicious,
    cifar_files,
    python2_pickle,
    write_archive,
    write_files,
)

from smartfl.data.cifar import CIFAR10, Cifar, cifar10, cifar100
from smartfl.errors import UserError

BOTH = [(SMALL_CIFAR10, CIFAR10_ARRAYS), (SMALL_CIFAR100, CIFAR100_ARRAYS)]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMARTFL_CACHE", raising=False)


def lay_out(source: Cifar, arrays: dict[str, np.ndarray], home: Path, python: bool, archive: bool) -> None:
    files = cifar_files(source, arrays, python)
    folder = source.python if python else source.binary
    if archive:
        write_archive(home / source.archives[int(python)], folder, files)
    else:
        write_files(home / folder, files)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize(("source", "arrays"), BOTH, ids=["cifar10", "cifar100"])
def test_every_version_loads(
    tmp_path: Path, source: Cifar, arrays: dict[str, np.ndarray], python: bool, archive: bool
) -> None:
    lay_out(source, arrays, tmp_path, python, archive)
    for _ in ("cold", "warm"):
        for field, classes in source.labels.items():
            data = source.load(field, str(tmp_path), "refuse")
            assert data.num_classes == classes
            np.testing.assert_array_equal(data.train.values.numpy(), arrays["train"])
            np.testing.assert_array_equal(data.test.values.numpy(), arrays["test"])
            assert data.train_labels.dtype == torch.int64
            assert data.train_labels.tolist() == arrays[f"train_{field}"].tolist()
            assert data.test_labels.tolist() == arrays[f"test_{field}"].tolist()


def test_python3_pickles_load_too(tmp_path: Path) -> None:
    """Someone re-saved the batches with today's Python and NumPy, in every protocol."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        home = tmp_path / str(protocol)
        files = {}
        for name, data in cifar_files(SMALL_CIFAR10, CIFAR10_ARRAYS, python=True).items():
            table = pickle.loads(data, encoding="latin1")
            files[name] = pickle.dumps(table, protocol)
        write_files(home / SMALL_CIFAR10.python, files)
        loaded = SMALL_CIFAR10.load("labels", str(home), "refuse")
        np.testing.assert_array_equal(loaded.train.values.numpy(), CIFAR10_ARRAYS["train"])


def test_a_record_is_label_then_channels(tmp_path: Path) -> None:
    """Byte 0 is the label, bytes 1–1024 red row by row: red at row 2, column 5 is byte 1 + 2·32 + 5 = 70."""
    files = cifar_files(SMALL_CIFAR10, CIFAR10_ARRAYS, python=False)
    record = bytearray(files["data_batch_1.bin"])
    record[0], record[70], record[1 + 1024 + 31] = 7, 201, 99
    write_files(tmp_path / SMALL_CIFAR10.binary, files | {"data_batch_1.bin": bytes(record)})
    data = SMALL_CIFAR10.load("labels", str(tmp_path), "warn")
    assert data.train_labels[0] == 7
    assert data.train.values[0, 0, 2, 5] == 201
    assert data.train.values[0, 1, 0, 31] == 99


def test_cifar100_puts_the_coarse_label_first(tmp_path: Path) -> None:
    """<coarse><fine><3072 pixels>, as the authors' page says: 11, 98, then red at row 0, column 0."""
    files = cifar_files(SMALL_CIFAR100, CIFAR100_ARRAYS, python=False)
    files["test.bin"] = bytes([11, 98, 250]) + bytes(3071) + bytes([4, 0]) + bytes(3072)
    write_files(tmp_path / SMALL_CIFAR100.binary, files)
    fine, coarse = (SMALL_CIFAR100.load(f"{kind}_labels", str(tmp_path), "warn") for kind in ("fine", "coarse"))
    assert fine.test_labels.tolist() == [98, 0]
    assert coarse.test_labels.tolist() == [11, 4]
    assert fine.test.values[0, 0, 0, 0] == 250


@pytest.mark.parametrize(("cut", "complaint"), [(-1, "truncated"), (-3073, "truncated"), (None, "goes on after 3")])
def test_wrong_lengths_are_refused(tmp_path: Path, cut: int | None, complaint: str) -> None:
    """A byte short, a whole record short, and a byte too long."""
    files = cifar_files(SMALL_CIFAR10, CIFAR10_ARRAYS, python=False)
    data = files["data_batch_3.bin"]
    files["data_batch_3.bin"] = data[:cut] if cut else data + b"x"
    write_files(tmp_path / SMALL_CIFAR10.binary, files)
    with pytest.raises(UserError, match=complaint) as caught:
        SMALL_CIFAR10.load("labels", str(tmp_path), "warn")
    assert "data_batch_3.bin" in str(caught.value)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("python", [False, True])
def test_a_truncated_archive_is_refused(tmp_path: Path, python: bool) -> None:
    lay_out(SMALL_CIFAR10, CIFAR10_ARRAYS, tmp_path, python, archive=True)
    path = tmp_path / SMALL_CIFAR10.archives[int(python)]
    whole = path.read_bytes()
    for keep in (0, 5, len(whole) // 3, len(whole) - 200):
        path.write_bytes(whole[:keep])
        with pytest.raises(UserError, match=path.name):
            SMALL_CIFAR10.load("labels", str(tmp_path), "warn")
    assert not (tmp_path / "cache").exists()


def test_an_archive_without_a_batch_is_refused(tmp_path: Path) -> None:
    files = cifar_files(SMALL_CIFAR10, CIFAR10_ARRAYS, python=False)
    del files["data_batch_4.bin"]
    write_archive(tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", files)
    with pytest.raises(UserError, match=r"incomplete: it has no data_batch_4\.bin"):
        SMALL_CIFAR10.load("labels", str(tmp_path), "refuse")


def test_a_malicious_batch_is_refused_and_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    files = cifar_files(SMALL_CIFAR10, CIFAR10_ARRAYS, python=True)
    files["data_batch_2"] = pickle.dumps({"data": Malicious(trap), "labels": []}, 2)
    write_files(tmp_path / SMALL_CIFAR10.python, files)
    with pytest.raises(UserError, match=r"data_batch_2 is refused: its pickle holds the global (_io|io)\.open"):
        SMALL_CIFAR10.load("labels", str(tmp_path), "refuse")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ([1, 2], "has no data, labels"),
        ({"data": np.zeros((3, 3072), np.uint8)}, "has no labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 0, 0]}, "expected uint8"),
        ({"data": np.zeros((3, 3072), np.float32), "labels": [0, 0, 0]}, "expected uint8"),
        ({"data": np.zeros((3, 3072), np.uint8), "labels": [0, 0]}, "labels must be 3 whole numbers"),
        ({"data": np.zeros((3, 3072), np.uint8), "labels": [0, 0, [1]]}, "labels must be 3 whole numbers"),
        ({"data": np.zeros((3, 3072), np.uint8), "labels": [0, -1, 300]}, "labels must be 3 whole numbers"),
        ({"data": np.zeros((3, 3072), np.uint8), "labels": [0, 0, 10]}, "holds the label 10, expected 0 … 9"),
    ],
)
def test_a_pickle_that_is_no_batch_is_refused(tmp_path: Path, table: object, complaint: str) -> None:
    files = cifar_files(SMALL_CIFAR10, CIFAR10_ARRAYS, python=True)
    write_files(tmp_path / SMALL_CIFAR10.python, files | {"data_batch_5": python2_pickle(table)})
    with pytest.raises(UserError, match=complaint) as caught:
        SMALL_CIFAR10.load("labels", str(tmp_path), "warn")
    assert "data_batch_5" in str(caught.value)


def test_other_pixels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Refused where asked to; with "warn" (CIFAR-100's default) loaded with a warning."""
    arrays = {**CIFAR100_ARRAYS, "train": 255 - CIFAR100_ARRAYS["train"]}
    lay_out(SMALL_CIFAR100, arrays, tmp_path, python=False, archive=False)
    with pytest.raises(UserError, match="train of 'cifar100' are not the authors' samples"):
        SMALL_CIFAR100.load("fine_labels", str(tmp_path), "refuse")
    with caplog.at_level(logging.WARNING):
        SMALL_CIFAR100.load("fine_labels", str(tmp_path), "warn")
    assert "not the authors' samples" in caplog.text


def test_the_real_dataset_refuses_small_files(tmp_path: Path) -> None:
    lay_out(SMALL_CIFAR10, CIFAR10_ARRAYS, tmp_path, python=False, archive=False)
    with pytest.raises(UserError, match=r"data_batch_1\.bin is truncated: 9219 bytes, 30730000 expected"):
        cifar10(directory=str(tmp_path), checksum="warn")


def test_missing_data_and_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cifar-100-binary.*smartfl data fetch cifar100") as caught:
        cifar100(directory=str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(UserError, match="labels = 'both': accepted are 'fine' and 'coarse'"):
        cifar100(labels="both", directory=str(tmp_path))  # type: ignore[arg-type]


def test_the_binary_folder_is_preferred(tmp_path: Path) -> None:
    """It needs no unpickler and no decompression."""
    for python in (False, True):
        for archive in (False, True):
            lay_out(SMALL_CIFAR10, CIFAR10_ARRAYS, tmp_path, python, archive)
    assert CIFAR10.find(tmp_path).paths[0].parent.name == "cifar-10-batches-bin"

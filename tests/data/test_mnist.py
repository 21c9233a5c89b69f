"""MNIST and Fashion-MNIST from small idx files in every layout."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from real_formats import mnist_arrays, small_mnist, write_mnist

from smartfl.data.mnist import FASHION_MNIST, MNIST, mnist
from smartfl.errors import UserError

ARRAYS = mnist_arrays()
SMALL = small_mnist(ARRAYS)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMARTFL_CACHE", raising=False)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", ""])
def test_every_layout_loads(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mnist(tmp_path / folder, ARRAYS, packed)
    for _ in ("cold", "warm"):
        data = SMALL.load(str(tmp_path), "refuse")
        assert data.shape == (1, 28, 28)
        assert data.train.values.dtype == torch.uint8
        np.testing.assert_array_equal(data.train.values[:, 0].numpy(), ARRAYS["train"])
        np.testing.assert_array_equal(data.test.values[:, 0].numpy(), ARRAYS["test"])
        assert data.train_labels.dtype == torch.int64
        assert data.test_labels.tolist() == ARRAYS["test_labels"].tolist()


def test_a_batch_is_normalised(tmp_path: Path) -> None:
    """(x/255 − .1307)/.3081 for MNIST, (x/255 − .2860)/.3530 for Fashion-MNIST."""
    write_mnist(tmp_path, ARRAYS, packed=False)
    pixel = ARRAYS["train"][3, 14, 14] / 255
    for source, mean, std in ((MNIST, 0.1307, 0.3081), (FASHION_MNIST, 0.2860, 0.3530)):
        batch = small_mnist(ARRAYS, source).load(str(tmp_path), "refuse").train[torch.tensor([3])]
        assert batch[0, 0, 14, 14].item() == pytest.approx((pixel - mean) / std, abs=1e-6)


def test_an_incomplete_folder_is_passed_over(tmp_path: Path) -> None:
    """MNIST/raw lacks a file, so the complete folder after it is used."""
    write_mnist(tmp_path / "MNIST/raw", ARRAYS, packed=True)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    write_mnist(tmp_path / "mnist", ARRAYS, packed=True)
    assert {path.parent for path in SMALL.find(tmp_path)} == {tmp_path / "mnist"}


def test_the_system_folder_comes_last(tmp_path: Path) -> None:
    write_mnist(tmp_path / "debian", ARRAYS, packed=True)
    source = replace(SMALL, elsewhere=(tmp_path / "debian",))
    assert source.find(tmp_path / "home")[0].parent == tmp_path / "debian"
    write_mnist(tmp_path / "home/mnist", ARRAYS, packed=True)
    assert source.find(tmp_path / "home")[0].parent == tmp_path / "home/mnist"


def test_missing_data_says_what_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        mnist(directory=str(tmp_path))
    message = str(caught.value)
    assert "train-images-idx3-ubyte[.gz]" in message
    assert str(tmp_path / "MNIST/raw") in message
    assert "smartfl data fetch mnist" in message


def test_a_truncated_file_is_refused_and_nothing_is_cached(tmp_path: Path) -> None:
    write_mnist(tmp_path, ARRAYS, packed=False)
    victim = tmp_path / "t10k-images-idx3-ubyte"
    victim.write_bytes(victim.read_bytes()[:-100])
    with pytest.raises(UserError, match="t10k-images-idx3-ubyte is truncated"):
        SMALL.load(str(tmp_path), "refuse")
    assert not (tmp_path / "cache").exists()


def test_other_pixels_are_refused_or_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One pixel changed: refused with nothing cached, or loaded with a warning, cold and warm alike."""
    changed = {**ARRAYS, "test": ARRAYS["test"].copy()}
    changed["test"][0, 0, 0] ^= 1
    write_mnist(tmp_path, changed, packed=True)
    with pytest.raises(UserError, match="test of 'mnist' are not the authors' samples"):
        SMALL.load(str(tmp_path), "refuse")
    assert not (tmp_path / "cache").exists()
    for _ in ("cold", "warm"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            data = SMALL.load(str(tmp_path), "warn")
        assert "not the authors' samples" in caplog.text
        np.testing.assert_array_equal(data.test.values[:, 0].numpy(), changed["test"])
    with pytest.raises(UserError, match="not the authors'"):
        SMALL.load(str(tmp_path), "refuse")


def test_fashion_is_not_mistaken_for_digits(tmp_path: Path) -> None:
    """Loose files of one dataset have the names of the other's; the checksums tell."""
    write_mnist(tmp_path, mnist_arrays(seed=1), packed=True)
    with pytest.raises(UserError, match="not the authors' samples"):
        SMALL.load(str(tmp_path), "refuse")


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    wrong = {**ARRAYS, "train_labels": ARRAYS["train_labels"].copy()}
    wrong["train_labels"][2] = 10
    write_mnist(tmp_path, wrong, packed=False)
    with pytest.raises(UserError, match="train-labels-idx1-ubyte holds the label 10"):
        SMALL.load(str(tmp_path), "warn")


def test_an_unknown_checksum_setting_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, ARRAYS, packed=False)
    with pytest.raises(UserError, match="checksum = 'ignore': accepted are 'refuse' and 'warn'"):
        mnist(directory=str(tmp_path), checksum="ignore")  # type: ignore[arg-type]

"""The real datasets against SOURCES.md: counts, class histograms, pixels. Needs SMARTFL_DATA."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from smartfl.data.cifar import CIFAR10, CIFAR100, cifar10, cifar100
from smartfl.data.dataset import Dataset
from smartfl.data.mnist import FASHION_MNIST, MNIST, fashion_mnist, mnist
from smartfl.data.newsgroups import newsgroups

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("SMARTFL_DATA"), reason="SMARTFL_DATA is not set"),
]

# The label counts that the MNIST files are known by.
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
# train/test per group in alphabetical order, from SOURCES.md.
NEWS_TRAIN = [480, 584, 591, 590, 578, 593, 585, 594, 598, 597, 600, 595, 591, 594, 593, 599, 546, 564, 465, 377]
NEWS_TEST = [319, 389, 394, 392, 385, 395, 390, 396, 398, 397, 399, 396, 393, 396, 394, 398, 364, 376, 310, 251]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTFL_CACHE", str(cache))


def counts(data: Dataset) -> tuple[list[int], list[int]]:
    n = data.num_classes
    return data.train_labels.bincount(minlength=n).tolist(), data.test_labels.bincount(minlength=n).tolist()


def channel_statistics(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    pixels = data.train.values[::5].numpy() / 255  # type: ignore[attr-defined]
    return pixels.mean(axis=(0, 2, 3)), pixels.std(axis=(0, 2, 3))


def test_mnist() -> None:
    data = mnist()
    assert data.shape == (1, 28, 28)
    assert counts(data) == (MNIST_TRAIN, MNIST_TEST)
    mean, std = channel_statistics(data)
    np.testing.assert_allclose([mean[0], std[0]], [MNIST.mean, MNIST.std], atol=2e-3)


def test_fashion_mnist() -> None:
    data = fashion_mnist()
    assert data.shape == (1, 28, 28)
    assert counts(data) == ([6000] * 10, [1000] * 10)
    mean, std = channel_statistics(data)
    np.testing.assert_allclose([mean[0], std[0]], [FASHION_MNIST.mean, FASHION_MNIST.std], atol=2e-3)


def test_cifar10() -> None:
    data = cifar10()
    assert data.shape == (3, 32, 32)
    assert counts(data) == ([5000] * 10, [1000] * 10)
    np.testing.assert_allclose(channel_statistics(data)[0], CIFAR10.mean, atol=2e-3)


@pytest.mark.parametrize(("labels", "classes"), [("fine", 100), ("coarse", 20)])
def test_cifar100(labels: str, classes: int) -> None:
    data = cifar100(labels=labels)  # type: ignore[arg-type]
    assert data.shape == (3, 32, 32)
    assert counts(data) == ([50_000 // classes] * classes, [10_000 // classes] * classes)
    np.testing.assert_allclose(channel_statistics(data)[0], CIFAR100.mean, atol=2e-3)


def test_newsgroups_by_date() -> None:
    data = newsgroups(split="bydate")
    assert data.shape == (10_000,)
    assert counts(data) == (NEWS_TRAIN, NEWS_TEST)
    rows = data.train[torch.arange(64)]
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(64))


def test_newsgroups_random() -> None:
    """18,846 documents: 2,000 to test and the rest to train; every group on both sides."""
    data = newsgroups()
    train, test = counts(data)
    assert (sum(train), sum(test)) == (16_846, 2_000)
    assert [a + b for a, b in zip(train, test, strict=True)] == [
        a + b for a, b in zip(NEWS_TRAIN, NEWS_TEST, strict=True)
    ]
    assert min(test) > 50

"""Hsu's partition, the plain Dirichlet one, FedAUX's, shards and iid."""

from __future__ import annotations

import numpy as np
import pytest

from smartfl.data.partitions.double_stochastic import double_stochastic
from smartfl.data.partitions.hsu import hsu
from smartfl.data.partitions.iid import iid
from smartfl.data.partitions.per_class import per_class
from smartfl.data.partitions.shards import shards
from smartfl.errors import UserError

CIFAR = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))[:49_872]


def test_hsu_has_the_skew_of_the_specification() -> None:
    """ALGORITHMS.md 5.1, round-robin draws at α = 0.01: 3.7 classes per client, the largest with 0.77."""
    runs = [hsu(CIFAR, 80, 0.01, np.random.default_rng(s), 10) for s in range(4)]
    shares = [np.bincount(CIFAR[part]).max() / len(part) for parts in runs for part in parts]
    classes = [len(np.unique(CIFAR[part])) for parts in runs for part in parts]
    assert np.mean(shares) == pytest.approx(0.77, abs=0.05)
    assert np.mean(classes) == pytest.approx(3.7, abs=0.7)


def test_hsu_does_not_starve_late_clients() -> None:
    """Drawing client by client leaves the last ones with whatever remains; in turns first and last are alike."""
    first, last = [], []
    for seed in range(6):
        parts = hsu(CIFAR[:8000], 40, 0.1, np.random.default_rng(seed), 10)
        shares = [np.bincount(CIFAR[part]).max() / len(part) for part in parts]
        first.append(np.mean(shares[:20]))
        last.append(np.mean(shares[20:]))
    assert np.mean(first) == pytest.approx(np.mean(last), abs=0.06)


def test_hsu_takes_what_is_left_when_its_classes_are_used_up() -> None:
    """Two classes of 3 and 97 for five clients: at α = 1e-5 a client wants one class only, and all get 20."""
    labels = np.repeat([0, 1], [3, 97])
    for seed in range(5):
        parts = hsu(labels, 5, 1e-5, np.random.default_rng(seed), 2)
        assert [len(part) for part in parts] == [20] * 5
        assert len(np.unique(np.concatenate(parts))) == 100


def test_double_stochastic_clients_are_peaked_and_equally_large() -> None:
    """A (10, 80) matrix balanced at α = 0.01: the largest class has 0.92 of a client, 625 samples up to rounding."""
    labels = np.repeat(np.arange(10), 5000)
    runs = [double_stochastic(labels, 80, 0.01, np.random.default_rng(s), 10) for s in range(4)]
    shares = [np.bincount(labels[part]).max() / len(part) for parts in runs for part in parts]
    sizes = [len(part) for parts in runs for part in parts]
    assert np.mean(shares) == pytest.approx(0.92, abs=0.04)
    assert max(abs(size - 625) for size in sizes) <= 10  # each of ten classes is cut at whole samples
    assert all(sum(len(part) for part in parts) == 50_000 for parts in runs)


def test_double_stochastic_balances_by_hand() -> None:
    """Two classes of 100, two clients: shares (a, 1 − a) and (b, 1 − b) become (t, 1 − t) and (1 − t, t) with
    t/(1 − t) = √(a (1 − b) / (b (1 − a))), the cross ratio that scaling rows and columns leaves alone."""
    (a, _), (b, _) = np.random.default_rng(3).dirichlet([1.0, 1.0], 2)
    odds = np.sqrt(a * (1 - b) / (b * (1 - a)))
    labels = np.repeat([0, 1], 100)
    first, second = double_stochastic(labels, 2, 1.0, np.random.default_rng(3), 2)
    assert np.bincount(labels[first])[0] == pytest.approx(100 * odds / (1 + odds), abs=1)
    assert np.bincount(labels[second])[1] == pytest.approx(100 * odds / (1 + odds), abs=1)


def test_per_class_leaves_about_29_of_80_clients_empty() -> None:
    """ALGORITHMS.md 5.1 at α = 0.01."""
    empty = [
        sum(len(part) == 0 for part in per_class(CIFAR, 80, 0.01, np.random.default_rng(s), 10)) for s in range(10)
    ]
    assert np.mean(empty) == pytest.approx(29, abs=4)


def test_per_class_shares_are_dirichlet() -> None:
    """The share of a client in a class has mean 1/n and variance (n−1)/(n²(nα+1)): n = 4, α = 1 → 3/80 = 0.0375."""
    labels = np.repeat(np.arange(500), 200)
    parts = per_class(labels, 4, 1.0, np.random.default_rng(0), 500)
    counts = np.stack([np.bincount(labels[part], minlength=500) for part in parts]) / 200
    assert counts.mean(axis=1) == pytest.approx(np.full(4, 0.25), abs=0.03)
    assert counts.var() == pytest.approx(0.0375, rel=0.1)


def test_shards_give_each_client_at_most_two_borders() -> None:
    """20 shards of 50 of ten classes of 100: every shard is of one class, so a client holds one or two classes."""
    labels = np.random.default_rng(2).permutation(np.repeat(np.arange(10), 100))
    parts = shards(labels, 10, np.random.default_rng(0))
    assert [len(part) for part in parts] == [100] * 10
    assert {len(np.unique(labels[part])) for part in parts} <= {1, 2}
    one = shards(labels, 10, np.random.default_rng(0), shards_per_client=1)
    assert sorted(np.unique(labels[part]).tolist() for part in one) == [[c] for c in range(10)]


@pytest.mark.parametrize("count", [0, -1, 11])
def test_shards_need_a_sample_each(count: int) -> None:
    with pytest.raises(UserError, match=rf"shards_per_client = {count} is accepted from 1 to 10"):
        shards(np.zeros(100, dtype=np.int64), 10, np.random.default_rng(0), count)


def test_iid_sizes_differ_by_one() -> None:
    """103 samples for 10 clients: three of 11 and seven of 10."""
    sizes = sorted(len(part) for part in iid(np.zeros(103, dtype=np.int64), 10, np.random.default_rng(0)))
    assert sizes == [10] * 7 + [11] * 3

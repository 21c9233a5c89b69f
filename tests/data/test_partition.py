"""What every partition promises, and the mistakes that are caught before one runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smartfl.data.partition import partition
from smartfl.errors import UserError

DIRICHLET = ["feddf", "feddf_blocks", "hsu", "per_class", "double_stochastic"]
EVERY = [*DIRICHLET, "iid", "shards"]
COMPLETE = ["feddf_blocks", "per_class", "double_stochastic", "iid", "shards"]
EQUAL = ["feddf", "hsu"]


def labels_of(samples: int, classes: int = 10, seed: int = 11) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, classes, samples)


def split(name: str, labels: Any, clients: int, seed: int = 0, alpha: float = 0.1, classes: int = 10) -> list[Any]:
    options = {"alpha": alpha, "shards_per_client": 2}
    return partition(name, labels, clients, np.random.default_rng(seed), classes, options)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25, deadline=None)
@given(
    clients=st.integers(1, 37),
    per_client=st.integers(20, 40),  # FedDF has no valid split of a handful of samples over many classes
    extra=st.integers(0, 36),
    alpha=st.floats(0.3, 100),
    seed=st.integers(0, 2**32),
)
def test_parts_are_disjoint_sorted_and_of_the_promised_size(
    name: str, clients: int, per_client: int, extra: int, alpha: float, seed: int
) -> None:
    samples = clients * per_client + extra % clients
    labels = labels_of(samples, seed=seed)
    parts = split(name, labels, clients, seed, alpha)
    every = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(every)) == len(every)
    assert set(every) <= set(range(samples))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    if name in COMPLETE:
        assert len(every) == samples
    if name in EQUAL:
        assert {len(part) for part in parts} == {samples // clients}


@pytest.mark.parametrize("name", EVERY)
def test_the_seed_decides(name: str) -> None:
    labels = labels_of(2000)
    first, same, other = (split(name, labels, 20, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", [*DIRICHLET, "iid"])
def test_large_alpha_is_the_global_histogram(name: str) -> None:
    """With 20 clients of 2,000 samples a class share p has standard deviation √(p(1−p)/2000) ≤ 0.011: 0.06 is 5σ."""
    labels = np.random.default_rng(0).choice(10, 40_000, p=np.arange(1, 11) / 55)
    overall = np.bincount(labels, minlength=10) / len(labels)
    for part in split(name, labels, 20, alpha=1e6):
        assert np.abs(np.bincount(labels[part], minlength=10) / len(part) - overall).max() < 0.06


@pytest.mark.parametrize("name", DIRICHLET)
def test_smaller_alpha_is_more_skewed(name: str) -> None:
    labels = labels_of(8000)

    def largest_share(alpha: float) -> float:
        parts = [part for part in split(name, labels, 40, alpha=alpha) if len(part)]
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    shares = [largest_share(alpha) for alpha in (0.01, 0.16, 1.0, 100.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.7
    assert shares[-1] < 0.2


@pytest.mark.parametrize("name", EVERY)
def test_one_client_and_one_sample_each(name: str) -> None:
    labels = labels_of(30)
    assert len(split(name, labels, 1)[0]) == 30
    if name != "shards":
        assert sum(len(part) for part in split(name, labels, 30)) == 30


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive(alpha: float) -> None:
    with pytest.raises(UserError, match=r"^data\.alpha = .* above 0"):
        split("feddf", labels_of(100), 10, alpha=alpha)


@pytest.mark.parametrize("clients", [0, -2, 101])
def test_clients_must_have_a_sample_each(clients: int) -> None:
    with pytest.raises(UserError, match=rf"^data\.clients = {clients} is accepted from 1 to 100"):
        split("iid", labels_of(100), clients)


def test_alpha_of_the_wrong_type_names_the_setting() -> None:
    with pytest.raises(UserError, match=r"^data\.alpha"):
        partition("hsu", labels_of(100), 10, np.random.default_rng(0), 10, {"alpha": "small"})


def test_missing_alpha_is_required_only_where_it_is_used() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"^data\.alpha is required"):
        partition("hsu", labels_of(100), 10, rng, 10, {"alpha": None})
    assert len(partition("iid", labels_of(100), 10, rng, 10, {"alpha": None})) == 10


def test_unknown_setting_and_unknown_partition_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"^data\.beta is not a setting"):
        partition("hsu", labels_of(100), 10, rng, 10, {"alpha": 1.0, "beta": 2})
    with pytest.raises(UserError, match=r"data\.partition = 'diriclet' is unknown; accepted: .*feddf"):
        partition("diriclet", labels_of(100), 10, rng, 10, {})


def overlapping(labels: Any, clients: int) -> list[Any]:
    return [np.arange(2) for _ in range(clients)]


def too_few(labels: Any, clients: int) -> list[Any]:
    return [np.arange(2)]


def outside(labels: Any, clients: int) -> list[Any]:
    return [np.array([len(labels) + i]) for i in range(clients)]


@pytest.mark.parametrize(
    ("function", "complaint"),
    [(overlapping, "more than one client"), (too_few, "made 1 parts"), (outside, "positions outside 0 … 99")],
)
def test_a_faulty_partition_from_elsewhere_is_caught(function: Any, complaint: str) -> None:
    name = f"{function.__module__}:{function.__name__}"
    with pytest.raises(UserError, match=rf"data\.partition = '{name}' .*{complaint}"):
        partition(name, labels_of(100), 10, np.random.default_rng(0), 10, {"alpha": 0.1})

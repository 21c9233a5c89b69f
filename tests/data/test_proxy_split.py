"""The proxy split and its imbalance profile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smartfl.data.proxy import proxy_profile, split_proxy
from smartfl.errors import UserError


@pytest.mark.parametrize(
    ("imbalance", "counts"),
    [
        (1, [13] * 8 + [12] * 2),
        (2, [18, 16, 15, 14, 13, 12, 11, 10, 10, 9]),
        (5, [25, 21, 18, 15, 12, 10, 9, 7, 6, 5]),
        (10, [31, 24, 19, 15, 11, 9, 7, 5, 4, 3]),
        (20, [37, 27, 19, 14, 10, 7, 5, 4, 3, 2]),
        (50, [46, 30, 19, 12, 8, 5, 3, 2, 2, 1]),
    ],
)
def test_profile_matches_the_specification(imbalance: float, counts: list[int]) -> None:
    """ALGORITHMS.md 5.3, ten classes and 128 samples."""
    assert proxy_profile(128, 10, imbalance) == counts


def test_profile_of_three_classes_by_hand() -> None:
    """IF 4: weights 1, 1/2, 1/4, sum 7/4; of 10 samples 5.714, 2.857, 1.429 → floors 5 2 1, two left for .857, .714."""
    assert proxy_profile(10, 3, 4) == [6, 3, 1]


def test_one_class_takes_all() -> None:
    assert proxy_profile(7, 1, 1) == [7]


def test_profile_that_needs_no_rounding() -> None:
    """IF 9 over 3 classes: weights 1, 1/3, 1/9, sum 13/9; of 13 exactly 9, 3, 1."""
    assert proxy_profile(13, 3, 9) == [9, 3, 1]


@settings(max_examples=100, deadline=None)
@given(classes=st.integers(2, 30), per_class=st.integers(1, 40), imbalance=st.floats(1, 60))
def test_profile_sums_to_the_total_and_never_rises(classes: int, per_class: int, imbalance: float) -> None:
    total = classes * per_class
    largest = float("inf")
    try:
        counts = proxy_profile(total, classes, imbalance)
    except UserError as error:
        largest = int(str(error).rpartition("accepted: 1 to ")[2])
        counts = proxy_profile(total, classes, largest)
    assert largest == float("inf") or largest < imbalance
    assert sum(counts) == total
    assert min(counts) >= 1
    assert counts == sorted(counts, reverse=True)


def test_too_strong_an_imbalance_names_the_largest_realisable() -> None:
    """At IF 51 the largest class has 46 ≥ 0.9·51 = 45.9; at 52 it would need 46.8."""
    with pytest.raises(UserError, match=r"data\.proxy\.imbalance = 200 .* accepted: 1 to 51$"):
        proxy_profile(128, 10, 200)
    assert proxy_profile(128, 10, 51)[0] == 46


@pytest.mark.parametrize("imbalance", [0.5, 0.0, -3.0, float("nan")])
def test_imbalance_below_one_is_refused(imbalance: float) -> None:
    with pytest.raises(UserError, match=r"data\.proxy\.imbalance"):
        split_proxy(np.zeros(10, dtype=np.int64), 4, imbalance, np.random.default_rng(0), 1)


@pytest.mark.parametrize("imbalance", [None, 1.0, 3.0])
def test_split_is_disjoint_complete_and_repeatable(imbalance: float | None) -> None:
    labels = np.random.default_rng(7).integers(0, 10, 2000)
    proxy, rest = split_proxy(labels, 128, imbalance, np.random.default_rng(5), 10)
    again, _ = split_proxy(labels, 128, imbalance, np.random.default_rng(5), 10)
    other, _ = split_proxy(labels, 128, imbalance, np.random.default_rng(6), 10)
    assert len(proxy) == 128
    assert np.array_equal(np.sort(np.concatenate([proxy, rest])), np.arange(2000))
    assert np.array_equal(proxy, again)
    assert not np.array_equal(proxy, other)


def test_uniform_draw_is_not_stratified() -> None:
    """Twenty draws of 100 from ten equal classes: a stratified draw would have exactly ten of each, every time."""
    labels = np.repeat(np.arange(10), 100)
    rng = np.random.default_rng(0)
    counts = [np.bincount(labels[split_proxy(labels, 100, 1.0, rng, 10)[0]], minlength=10) for _ in range(20)]
    assert all(count.std() > 0 for count in counts)
    assert np.abs(np.mean(counts, axis=0) - 10).max() < 3


def test_imbalanced_classes_come_in_an_order_of_the_seed() -> None:
    labels = np.repeat(np.arange(10), 100)
    orders = set()
    for seed in range(5):
        proxy, _ = split_proxy(labels, 128, 10, np.random.default_rng(seed), 10)
        counts = np.bincount(labels[proxy], minlength=10)
        assert sorted(counts, reverse=True) == [31, 24, 19, 15, 11, 9, 7, 5, 4, 3]
        orders.add(tuple(np.argsort(counts)))
    assert len(orders) > 1


@pytest.mark.parametrize("size", [-1, 11])
def test_size_beyond_the_data_is_refused(size: int) -> None:
    with pytest.raises(UserError, match=rf"data\.proxy\.size = {size} is accepted from 0 to 10"):
        split_proxy(np.zeros(10, dtype=np.int64), size, None, np.random.default_rng(0), 1)


def test_fewer_samples_than_classes_cannot_be_imbalanced() -> None:
    with pytest.raises(UserError, match=r"data\.proxy\.size = 3 .* at least 10"):
        split_proxy(np.repeat(np.arange(10), 5), 3, 2.0, np.random.default_rng(0), 10)


def test_class_with_too_few_samples_is_named() -> None:
    """128 samples at IF 10 put 31 in one class, and every class has 30."""
    with pytest.raises(UserError, match=r"data\.proxy\.imbalance = 10 .* 31 samples of class \d, which has 30"):
        split_proxy(np.repeat(np.arange(10), 30), 128, 10, np.random.default_rng(0), 10)


@pytest.mark.parametrize("imbalance", [1.0, 10.0])
def test_missing_classes_have_no_sample(imbalance: float) -> None:
    """Three of ten classes are left out, the other seven all appear, and the size is kept."""
    labels = np.arange(2000) % 10
    proxy, rest = split_proxy(labels, 128, imbalance, np.random.default_rng(2), 10, missing=3)
    counts = np.bincount(labels[proxy], minlength=10)
    assert (len(proxy), len(rest), int((counts == 0).sum())) == (128, 1872, 3)


def test_no_missing_class_is_the_draw_it_always_was() -> None:
    labels = np.arange(200) % 10
    chosen = np.sort(np.random.default_rng(4).permutation(200)[:32])
    assert np.array_equal(split_proxy(labels, 32, 1.0, np.random.default_rng(4), 10)[0], chosen)


def test_too_many_missing_classes_are_refused() -> None:
    labels = np.arange(200) % 10
    with pytest.raises(UserError, match=r"data\.proxy\.missing = 10 is accepted from 0 to 9"):
        split_proxy(labels, 32, 1.0, np.random.default_rng(4), 10, missing=10)
    with pytest.raises(UserError, match="the other classes have 20"):
        split_proxy(labels, 32, 1.0, np.random.default_rng(4), 10, missing=9)

"""FedDF's partition."""

from __future__ import annotations

import numpy as np
import pytest

from smartfl.data.partitions.dirichlet import cuts, proportions
from smartfl.data.partitions.feddf import feddf, feddf_blocks
from smartfl.errors import UserError

CIFAR = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))[:49_872]


def largest_share(parts: list, labels: np.ndarray) -> float:
    return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))


@pytest.mark.parametrize(("alpha", "share"), [(0.01, 0.97), (0.04, 0.79), (0.16, 0.60), (1.0, 0.29)])
def test_blocks_have_the_skew_of_the_specification(alpha: float, share: float) -> None:
    """ALGORITHMS.md 5.1: mean share of a client's largest class, 80 clients, before re-cutting; mean of four seeds."""
    seeds = range(4)
    shares = [largest_share(feddf_blocks(CIFAR, 80, alpha, np.random.default_rng(s), 10), CIFAR) for s in seeds]
    assert np.mean(shares) == pytest.approx(share, abs=0.05)


def test_re_cut_has_the_skew_of_the_specification() -> None:
    """ALGORITHMS.md 5.1, α = 0.01 re-cut: 2.8 classes per client, the largest with 0.81."""
    runs = [feddf(CIFAR, 80, 0.01, np.random.default_rng(s), 10) for s in range(4)]
    assert np.mean([largest_share(parts, CIFAR) for parts in runs]) == pytest.approx(0.81, abs=0.05)
    classes = np.mean([[len(np.unique(CIFAR[part])) for part in parts] for parts in runs])
    assert classes == pytest.approx(2.8, abs=0.4)


def test_re_cut_slices_the_same_line() -> None:
    """Before sorting, re-cut client 0 begins with what block client 0 holds: they differ by the border only.

    Block client 0 has k samples, slice 0 the first s = ⌊N/n⌋ of the line, so they share min(k, s).
    """
    blocks = feddf_blocks(CIFAR, 80, 0.1, np.random.default_rng(3), 10)
    slices = feddf(CIFAR, 80, 0.1, np.random.default_rng(3), 10)
    assert len(np.intersect1d(blocks[0], slices[0])) == min(len(blocks[0]), len(slices[0]))
    size = len(CIFAR) // 80
    line = np.concatenate(blocks)
    assert len(np.setdiff1d(np.concatenate(slices), line)) == 0
    assert {len(part) for part in slices} == {size}


def test_everybody_has_half_the_mean_of_the_block() -> None:
    """1,310 samples for 80 clients: blocks of ⌊10·1310/80⌋ = 163, the last of 169; half the mean is ⌊8.15⌋ = 8."""
    labels = np.random.default_rng(1).integers(0, 10, 1310)
    sizes = [len(part) for part in feddf_blocks(labels, 80, 0.01, np.random.default_rng(0), 10)]
    assert min(sizes) >= 8
    assert [sum(sizes[i : i + 10]) for i in range(0, 80, 10)] == [163] * 7 + [169]


def test_last_block_is_smaller_and_few_clients_are_one_block() -> None:
    """23 clients, 2,300 samples: blocks of 10, 10 and 3 clients with 1,000, 1,000 and 300 samples."""
    labels = np.random.default_rng(1).integers(0, 10, 2300)
    sizes = [len(part) for part in feddf_blocks(labels, 23, 0.5, np.random.default_rng(0), 10)]
    assert [sum(sizes[:10]), sum(sizes[10:20]), sum(sizes[20:])] == [1000, 1000, 300]
    four = feddf_blocks(labels, 4, 0.5, np.random.default_rng(0), 10)
    assert sum(map(len, four)) == 2300
    assert min(map(len, four)) >= 287


def test_absent_classes_do_not_stop_the_draw() -> None:
    """A class without samples in a block has nothing to divide: no 0/0 although everybody is already full."""
    labels = np.repeat([0, 1], 50)
    assert sum(map(len, feddf_blocks(labels, 1, 0.1, np.random.default_rng(0), 10))) == 100


def test_impossible_balance_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes can hardly fill ten clients at α = 0.001: each class goes to one client."""
    monkeypatch.setattr("smartfl.data.partitions.feddf.ATTEMPTS", 640)
    labels = np.repeat([0, 1], 500)
    with pytest.raises(UserError, match=r"alpha = 0\.001 left a client .* 640 attempts for 10 clients and 2 classes"):
        feddf(labels, 10, 0.001, np.random.default_rng(0), 2)


def test_cuts_by_hand() -> None:
    """Shares .25, .5, .25 of 10 → borders 2.5, 7.5 truncated; the last part takes the rest."""
    assert cuts(np.array([0.25, 0.5, 0.25]), 10).tolist() == [0, 2, 7, 10]


@pytest.mark.parametrize("alpha", [1e-5, 1e-3, 0.01, 1.0, 1e8])
def test_proportions_are_finite_and_sum_to_one(alpha: float) -> None:
    """α = 0.001 gives NaN in 7e-4 of the draws of numpy's legacy generator; here in none of 20,000."""
    drawn = proportions(alpha, 10, 20_000, np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-12)


def test_sorted_labels_are_shuffled_into_the_blocks() -> None:
    """Two blocks of ten clients: without a shuffle the first would see classes 0 to 4 only."""
    labels = np.repeat(np.arange(10), 400)
    parts = feddf_blocks(labels, 20, 1e6, np.random.default_rng(0), 10)
    for block in (parts[:10], parts[10:]):
        assert np.bincount(labels[np.concatenate(block)], minlength=10).min() > 150


def test_shares_that_underflow_are_drawn_again() -> None:
    """α = 1e-6: a share is 0 or 1. Two clients, two classes of 50; whoever has class 0 is full.

    Is the other's share in class 1 zero, 0/0 must restart the attempt: then each client has class 0 in half of the
    cases (σ = 0.025 for 400). Giving the rest to the last client instead would make that 2/3 for client 0.
    """
    labels = np.repeat([0, 1], 50)
    first = [feddf_blocks(labels, 2, 1e-6, np.random.default_rng(seed), 2)[0] for seed in range(400)]
    assert all(len(part) == 50 for part in first)
    assert np.mean([labels[part].max() == 0 for part in first]) == pytest.approx(0.5, abs=0.08)

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.attacks.base import Knowledge
from smartfl.attacks.min_max import MinMax, MinSum, deviation, min_max_gamma, min_sum_gamma
from smartfl.types import Updates

BENIGN = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("kind", "largest", "smallest_sum", "largest_sum"),
    [("unit", 0.942809, 0.471405, 0.745356), ("std", 1.154701, 0.577350, 0.912871)],
)
def test_worked_example(kind: str, largest: float, smallest_sum: float, largest_sum: float) -> None:
    """[X] benign (1,0), (0,1), (1,1): mean (2/3, 2/3)."""
    dev = deviation(BENIGN, kind)  # type: ignore[arg-type]
    assert min_max_gamma(BENIGN, dev) == pytest.approx(largest, abs=1e-6)
    assert min_sum_gamma(BENIGN, dev, "min") == pytest.approx(smallest_sum, abs=1e-6)
    assert min_sum_gamma(BENIGN, dev, "max") == pytest.approx(largest_sum, abs=1e-6)


def test_min_max_sends_the_origin_in_the_example(knowledge: Knowledge) -> None:
    """[X] (2/3, 2/3) − 0.942809 · (1, 1)/√2 = (0, 0)."""
    rows = torch.cat([BENIGN, torch.full((2, 2), 5.0)])
    sent = MinMax().poison_updates(Updates.of(rows), torch.tensor([False, False, False, True, True]), knowledge)
    np.testing.assert_allclose(sent.matrix[3:].numpy(), np.zeros((2, 2)), atol=1e-6)


def bisected(allowed: object) -> float:
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)  # type: ignore[operator]
    return low


@pytest.mark.parametrize("kind", ["unit", "sign", "std"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_root_against_bisection(kind: str, seed: int, knowledge: Knowledge) -> None:
    """An oracle that bisects on the conditions as the paper writes them."""
    rows = np.random.default_rng(seed).normal(size=(9, 7)) + 0.3
    benign, malicious = rows[3:], np.arange(9) < 3
    mean = benign.mean(axis=0)
    dev = {"unit": mean / np.linalg.norm(mean), "sign": np.sign(mean), "std": benign.std(axis=0, ddof=1)}[kind]
    between = ((benign[:, None] - benign[None]) ** 2).sum(axis=2)

    def away(gamma: float) -> np.ndarray:
        return ((mean - gamma * dev - benign) ** 2).sum(axis=1)

    gammas = {
        MinMax(kind): bisected(lambda g: away(g).max() <= between.max()),  # type: ignore[arg-type]
        MinSum(kind): bisected(lambda g: away(g).sum() <= between.sum(axis=1).min()),  # type: ignore[arg-type]
        MinSum(kind, "max"): bisected(lambda g: away(g).sum() <= between.sum(axis=1).max()),  # type: ignore[arg-type]
    }
    for attack, gamma in gammas.items():
        sent = attack.poison_updates(Updates.of(rows), torch.tensor(malicious), knowledge).matrix.numpy()
        np.testing.assert_allclose(sent[:3], np.tile(mean - gamma * dev, (3, 1)), atol=1e-9)


def test_identical_benign_clients_leave_no_room(knowledge: Knowledge) -> None:
    """All benign Δ = (3, 4): distances 0, so γ = 0 and the mean itself is sent; nothing divides by zero."""
    updates = Updates.of([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    for kind in ("unit", "sign", "std"):
        for attack in (MinMax(kind), MinSum(kind)):  # type: ignore[arg-type]
            sent = attack.poison_updates(updates, torch.tensor([False, False, True]), knowledge)
            np.testing.assert_allclose(sent.matrix[2].numpy(), [3, 4], atol=1e-5)

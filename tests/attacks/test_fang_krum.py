from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.krum import Krum
from smartfl.attacks.base import Knowledge
from smartfl.attacks.fang_krum import FangKrum, lambda_max
from smartfl.errors import UserError
from smartfl.types import Updates


def krum_pick(rows: np.ndarray, f: int) -> int:
    """Krum by NumPy: the row with the smallest sum of its n − f − 2 smallest squared distances to others."""
    table = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.fill_diagonal(table, np.inf)
    return int(np.sort(table, axis=1)[:, : len(rows) - f - 2].sum(axis=1).argmin())


def test_lambda_max_by_hand() -> None:
    """Benign Δ = 0, 1, 3, 7 on a line (d = 1), c = 1, m = 5: the m − c − 2 = 2 nearest distances add up to
    1+3, 1+2, 2+3, 4+6; min 3 over m − 2c − 1 = 2 → 1.5, plus max |Δ| = 7: 8.5."""
    rows = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    assert lambda_max((rows - rows.T) ** 2, rows.abs().flatten(), 1, 1) == pytest.approx(8.5)


@pytest.mark.parametrize("seed", range(5))
def test_krum_picks_an_attacker_and_moves_backwards(seed: int, knowledge: Knowledge) -> None:
    """λ is λ_max/2^i, Krum picks one of the attackers with it, and not with 2λ (by a NumPy Krum)."""
    generator = np.random.default_rng(seed)
    benign = generator.normal(loc=0.4, size=(9, 12))
    rows = np.vstack([benign, np.zeros((4, 12))])
    origin = generator.normal(size=12)
    updates = Updates.of(torch.tensor(rows + origin), origin=torch.tensor(origin))
    malicious = torch.arange(13) >= 9
    sent = FangKrum().poison_updates(updates, malicious, knowledge)
    assert Krum(f=4)(sent).coefficients[9:].sum() == 1  # type: ignore[index]
    sign = np.sign(benign.mean(axis=0))
    first = sent.deltas[9].numpy()
    scale = -first @ sign / 12
    np.testing.assert_allclose(first, -scale * sign, atol=1e-12)
    np.testing.assert_allclose(sent.deltas[10:].numpy(), np.tile(first, (3, 1)), atol=1e-5)
    near = np.sort(np.sqrt(((benign[:, None] - benign[None]) ** 2).sum(axis=2)), axis=1)[:, 1:8].sum(axis=1)
    bound = near.min() / (13 - 8 - 1) / 12**0.5 + np.linalg.norm(benign, axis=1).max() / 12**0.5
    halvings = np.log2(bound / scale)
    assert halvings == pytest.approx(round(halvings), abs=1e-9)
    assert krum_pick(np.vstack([benign, np.tile(-scale * sign, (4, 1))]), 4) >= 9
    if halvings > 0.5:
        assert krum_pick(np.vstack([benign, np.tile(-2 * scale * sign, (4, 1))]), 4) < 9


def test_it_gives_up_below_the_threshold(knowledge: Knowledge) -> None:
    """One attacker against five identical benign clients is never picked: λ ends below the threshold, at 0.1/2..0.1."""
    updates = Updates.of([[1.0, 1.0]] * 5 + [[0.0, 0.0]])
    sent = FangKrum(threshold=0.1).poison_updates(updates, torch.arange(6) == 5, knowledge)
    assert 0.05 <= -sent.matrix[5, 0].item() < 0.1


def test_settings_are_checked() -> None:
    with pytest.raises(UserError, match="threshold = 0"):
        FangKrum(threshold=0)
    with pytest.raises(UserError, match="epsilon = -1"):
        FangKrum(epsilon=-1)

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.attacks.alie import ALIE, z_max
from smartfl.attacks.base import Knowledge
from smartfl.types import Updates


@pytest.mark.parametrize(
    ("m", "f", "z"), [(50, 24, 1.426077), (48, 19, 0.817237), (20, 8, 0.674490), (100, 20, 0.285841)]
)
def test_z_table(m: int, f: int, z: float) -> None:
    """[X] e.g. (50, 24): s = 26 − 24 = 2, Φ⁻¹(24/26) = 1.426077."""
    assert z_max(m, f) == pytest.approx(z, abs=1e-6)


def test_z_stays_finite_and_never_helps() -> None:
    """A majority or nobody benign: Φ⁻¹(0.999) = 3.090232; (4, 1): (4 − 1 − 2)/3 < ½ → 0."""
    for m, f in [(10, 6), (10, 10), (1, 1)]:
        assert z_max(m, f) == pytest.approx(3.090232, abs=1e-6)
    assert z_max(4, 1) == 0


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize(("direction", "sign"), [("minus", -1), ("plus", 1)])
def test_against_numpy(direction: str, sign: int, unbiased: bool, knowledge: Knowledge) -> None:
    rows = np.random.default_rng(1).normal(size=(20, 6))
    malicious = np.arange(20) < 8
    attack = ALIE(direction=direction, unbiased=unbiased)  # type: ignore[arg-type]
    sent = attack.poison_updates(Updates.of(rows), torch.tensor(malicious), knowledge).matrix.numpy()
    benign = rows[~malicious]
    expected = benign.mean(axis=0) + sign * 0.6744897501960817 * benign.std(axis=0, ddof=int(unbiased))
    np.testing.assert_allclose(sent[:8], np.tile(expected, (8, 1)), atol=1e-12)


def test_fixed_z_and_one_benign_client(knowledge: Knowledge) -> None:
    """Benign 1, 3: mean 2, std √2; z = 1.5 → 2 − 2.1213.  One benign client has no spread: its own update is sent."""
    sent = ALIE(z=1.5).poison_updates(Updates.of([[9.0], [1.0], [3.0]]), torch.tensor([True, False, False]), knowledge)
    assert sent.matrix[0].item() == pytest.approx(2 - 1.5 * 2**0.5, rel=1e-6)
    alone = ALIE(z=1.5).poison_updates(Updates.of([[9.0], [1.0]]), torch.tensor([True, False]), knowledge)
    assert alone.matrix.flatten().tolist() == [1, 1]

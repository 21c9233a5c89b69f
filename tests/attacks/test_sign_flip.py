from __future__ import annotations

import torch

from smartfl.attacks.base import Knowledge
from smartfl.attacks.sign_flip import SignFlip
from smartfl.types import Updates


def test_each_attacker_flips_its_own_update(knowledge: Knowledge) -> None:
    """w^t = (1, 1); Δ = (1, −2) and (3, 0) → w^t − Δ = (0, 3), (−2, 1); with scale 2: (−1, 5), (−5, 1)."""
    updates = Updates.of([[2.0, -1.0], [4.0, 1.0], [9.0, 9.0]], origin=[1.0, 1.0])
    malicious = torch.tensor([True, True, False])
    assert SignFlip().poison_updates(updates, malicious, knowledge).matrix.tolist() == [[0, 3], [-2, 1], [9, 9]]
    doubled = SignFlip(scale=2.0).poison_updates(updates, malicious, knowledge).matrix
    assert doubled.tolist() == [[-1, 5], [-5, 1], [9, 9]]

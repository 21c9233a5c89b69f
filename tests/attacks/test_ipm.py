from __future__ import annotations

import numpy as np
import torch

from smartfl.attacks.base import Knowledge
from smartfl.attacks.ipm import IPM
from smartfl.types import Updates


def test_small_step_against_the_benign_mean(knowledge: Knowledge) -> None:
    """Benign Δ = (1, 2), (3, −4): mean (2, −1); ε = 0.1 → w^t + (−0.2, 0.1); the inner product with the mean is < 0."""
    updates = Updates.of([[2.0, 3.0], [100.0, 100.0], [4.0, -3.0]], origin=[1.0, 1.0])
    sent = IPM().poison_updates(updates, torch.tensor([False, True, False]), knowledge)
    np.testing.assert_allclose(sent.matrix[1].numpy(), [0.8, 1.1], rtol=1e-6)
    large = IPM(epsilon=100.0).poison_updates(updates, torch.tensor([False, True, False]), knowledge)
    np.testing.assert_allclose(large.deltas[1].numpy(), [-200, 100], rtol=1e-6)


def test_alone_it_uses_its_own_mean(knowledge: Knowledge) -> None:
    sent = IPM(epsilon=0.5).poison_updates(Updates.of([[2.0], [6.0]]), torch.tensor([True, True]), knowledge)
    assert sent.matrix.flatten().tolist() == [-2, -2]

from __future__ import annotations

import pytest
import torch

from smartfl.attacks.base import Knowledge
from smartfl.attacks.gaussian import Gaussian
from smartfl.errors import UserError
from smartfl.types import Updates


def test_noise_replaces_the_update_and_has_the_stated_moments(knowledge: Knowledge) -> None:
    """40 000 draws: the mean of N(1, 2²) has standard error 0.01, the std about 0.007; five of each are allowed."""
    updates = Updates.of(torch.full((3, 20000), 50.0), origin=torch.full((20000,), 10.0))
    malicious = torch.tensor([True, False, True])
    noise = Gaussian(mean=1.0, std=2.0).poison_updates(updates, malicious, knowledge).deltas[malicious]
    assert abs(noise.mean() - 1) < 0.05
    assert abs(noise.std() - 2) < 0.035
    assert not torch.equal(noise[0], noise[1])


def test_added_noise_is_centred_on_the_own_update(knowledge: Knowledge) -> None:
    """Δ = 40, std 2: mean 40 ± 5·0.014."""
    updates = Updates.of(torch.full((2, 20000), 50.0), origin=torch.full((20000,), 10.0))
    sent = Gaussian("add", std=2.0).poison_updates(updates, torch.tensor([True, False]), knowledge)
    assert abs(sent.deltas[0].mean() - 40) < 0.07
    assert Gaussian("add", std=0.0).poison_updates(updates, torch.tensor([True, False]), knowledge).deltas[0, 0] == 40


def test_negative_std_is_refused() -> None:
    with pytest.raises(UserError, match=r"std = -1"):
        Gaussian(std=-1.0)

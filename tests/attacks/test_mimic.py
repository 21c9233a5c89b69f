from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.attacks.base import Knowledge
from smartfl.attacks.mimic import Direction, Mimic
from smartfl.errors import UserError
from smartfl.types import Updates


def test_one_step_by_hand() -> None:
    """Updates (2,0), (−2,0), (0,1), (0,−1): μ = 0; with z = (1,1)/√2 the step is Σ⟨Δ,z⟩Δ = (8, 2)/√2 → (8, 2)/√68.

    From t = 0 the old z has no weight.  At t = 1 from the same state: z' ∝ z + (8, 2)/√68.
    """
    rows = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    z = torch.tensor([1.0, 1.0], dtype=torch.float64) / 2**0.5
    zero = torch.zeros(2, dtype=torch.float64)
    step = np.array([8, 2]) / 68**0.5
    np.testing.assert_allclose(Direction(zero, z, 0).follow(rows).top.numpy(), step, atol=1e-12)
    both = step + z.numpy()
    np.testing.assert_allclose(Direction(zero, z, 1).follow(rows).top.numpy(), both / np.linalg.norm(both), atol=1e-12)


def test_direction_converges_to_the_top_principal_component(knowledge: Knowledge) -> None:
    """Against NumPy's SVD of the centred rows, up to the sign."""
    rows = np.random.default_rng(0).normal(size=(8, 5)) * np.array([5, 1, 1, 1, 1]) + 3
    direction = Direction.start(5, knowledge.generator)
    for _ in range(60):
        direction = direction.follow(torch.tensor(rows))
    top = np.linalg.svd(rows - rows.mean(axis=0))[2][0]
    assert abs(float(direction.top.numpy() @ top)) > 0.999
    np.testing.assert_allclose(direction.mean.numpy(), rows.mean(axis=0), atol=1e-6)


def test_all_attackers_copy_the_honest_client_furthest_along_z(knowledge: Knowledge) -> None:
    updates = Updates.of([[9.0, 9.0], [1.0, 0.0], [8.0, 8.0], [-5.0, 0.5], [0.5, 0.2]], origin=[1.0, 1.0])
    malicious = torch.tensor([True, False, True, False, False])
    attack = Mimic()
    attack.direction = Direction(torch.zeros(2), torch.tensor([-1.0, 0.0]), 20)
    sent = attack.poison_updates(updates, malicious, knowledge)
    assert torch.equal(sent.matrix[0], updates.matrix[3])
    assert torch.equal(sent.matrix[2], updates.matrix[3])


def test_direction_is_fixed_after_the_warmup_and_survives_a_checkpoint(knowledge: Knowledge) -> None:
    generator = torch.Generator().manual_seed(1)
    rounds = [Updates.of(torch.randn(6, 4, generator=generator)) for _ in range(4)]
    malicious = torch.arange(6) < 2
    attack, seen = Mimic(warmup=2), []
    for updates in rounds:
        attack.poison_updates(updates, malicious, knowledge)
        seen.append(attack.state_dict()["top"].clone())
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[2])
    assert torch.equal(seen[2], seen[3])
    resumed = Mimic(warmup=2)
    resumed.load_state_dict(attack.state_dict())
    again = [a.poison_updates(rounds[0], malicious, knowledge).matrix for a in (attack, resumed)]
    assert torch.equal(*again)
    resumed.load_state_dict({})
    assert resumed.state_dict() == {}


def test_another_architecture_starts_anew(knowledge: Knowledge) -> None:
    attack = Mimic()
    attack.poison_updates(Updates.of(torch.eye(3)), torch.tensor([True, False, False]), knowledge)
    attack.poison_updates(Updates.of(torch.eye(4)), torch.tensor([True, False, False, False]), knowledge)
    assert attack.state_dict()["top"].shape == (4,)
    assert attack.state_dict()["rounds"] == 1


def test_warmup_is_checked() -> None:
    with pytest.raises(UserError, match="warmup = 0"):
        Mimic(warmup=0)

from __future__ import annotations

import numpy as np
import torch

from smartfl.aggregators.fedavg import FedAvg
from smartfl.attacks.base import Knowledge
from smartfl.attacks.omniscient import Omniscient
from smartfl.types import Updates


def test_own_is_reflected_at_the_global_model(knowledge: Knowledge) -> None:
    """[X] w^t = 1, Δ = 0.2: the attacker trained 1.2 and reports 0.8; with λ = 3 it reports 1 − 0.6 = 0.4."""
    updates = Updates.of([[1.2], [1.2]], origin=[1.0])
    malicious = torch.tensor([True, False])
    sent = Omniscient().poison_updates(updates, malicious, knowledge).matrix
    np.testing.assert_allclose(sent.numpy(), [[0.8], [1.2]], rtol=1e-6)
    scaled = Omniscient(scale=3.0).poison_updates(updates, malicious, knowledge).matrix
    np.testing.assert_allclose(scaled.numpy(), [[0.4], [1.2]], rtol=1e-6)


def test_half_attackers_with_identical_updates_stop_fedavg(knowledge: Knowledge) -> None:
    """AR = 0.5, equal counts, identical Δ: Σ = 2Δ − 2Δ = 0."""
    origin = torch.tensor([1.0, -2.0, 3.0])
    updates = Updates.of((origin + torch.tensor([0.25, 0.5, -1.0])).repeat(4, 1), origin=origin)
    sent = Omniscient().poison_updates(updates, torch.tensor([True, False, True, False]), knowledge)
    assert torch.equal(FedAvg()(sent).vector, origin)


def test_mean_sends_identical_negated_benign_means(knowledge: Knowledge) -> None:
    """Benign Δ = 1, 3 → mean 2; attackers send −2 (their own 7, 9 do not matter)."""
    updates = Updates.of([[7.0], [1.0], [9.0], [3.0]])
    sent = Omniscient("mean").poison_updates(updates, torch.tensor([True, False, True, False]), knowledge)
    assert sent.matrix.flatten().tolist() == [-2, 1, -2, 3]


def test_mean_without_benign_clients_takes_the_own_mean(knowledge: Knowledge) -> None:
    sent = Omniscient("mean").poison_updates(Updates.of([[1.0], [3.0]]), torch.tensor([True, True]), knowledge)
    assert sent.matrix.flatten().tolist() == [-2, -2]


def test_rfa_turns_the_weighted_mean_around(knowledge: Knowledge) -> None:
    """FedAvg after the attack = w^t − (honest FedAvg step), for unequal counts."""
    generator = np.random.default_rng(0)
    rows, origin = generator.normal(size=(6, 5)), generator.normal(size=5)
    counts = np.array([5.0, 1.0, 9.0, 4.0, 2.0, 3.0])
    updates = Updates.of(torch.tensor(rows), counts, origin)
    malicious = torch.tensor([False, True, True, False, False, False])
    sent = Omniscient("rfa").poison_updates(updates, malicious, knowledge)
    honest_step = (counts / counts.sum()) @ (rows - origin)
    np.testing.assert_allclose(FedAvg()(sent).vector.numpy(), origin - honest_step, atol=1e-12)
    delta_a = (counts[1] * rows[1] + counts[2] * rows[2]) / 10 - origin - 2 * (24 / 10) * honest_step
    np.testing.assert_allclose(sent.deltas[1].numpy(), delta_a, atol=1e-12)
    assert torch.equal(sent.matrix[1], sent.matrix[2])


def test_rfa_without_weight_negates_its_own(knowledge: Knowledge) -> None:
    """N_corrupt = 0: nothing turns the mean around, so −Δ_a = −4 is sent."""
    updates = Updates.of([[4.0], [1.0]], [0.0, 3.0])
    sent = Omniscient("rfa").poison_updates(updates, torch.tensor([True, False]), knowledge)
    assert sent.matrix.flatten().tolist() == [-4, 1]


def test_rfa_ignores_a_benign_row_that_screening_drops(knowledge: Knowledge) -> None:
    """Screened FedAvg sees Δ = 2 (attacker, honest) and 4: mean 3, turned around −3."""
    updates = Updates.of([[2.0], [4.0], [torch.nan]])
    sent = Omniscient("rfa").poison_updates(updates, torch.tensor([True, False, False]), knowledge)
    np.testing.assert_allclose(FedAvg()(sent).vector.numpy(), [-3.0], rtol=1e-6)

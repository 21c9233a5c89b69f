"""What holds for every attack, whatever it sends."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smartfl.attacks.base import Attack, Knowledge, observed, send
from smartfl.flat import FlatSpec
from smartfl.registry import build, names
from smartfl.screening import screen
from smartfl.types import Updates

# label_flip poisons data, not updates; crash means to be refused.
UPDATE_ATTACKS = [name for name in names("attacks") if name not in ("label_flip", "crash")]


def cohort(rows: int = 7, seed: int = 0) -> Updates:
    """Models with BatchNorm: 10 parameters, then 2 running means and 2 running variances."""
    spec = FlatSpec.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, spec.size, generator=generator)
    matrix[:, -2:] = matrix[:, -2:].abs() + 0.1
    origin = torch.randn(spec.size, generator=generator)
    return Updates.of(matrix, range(1, rows + 1), origin, spec=spec)


def mask(*flags: int) -> torch.Tensor:
    return torch.tensor(flags, dtype=torch.bool)


@pytest.mark.parametrize("name", names("attacks"))
def test_no_malicious_client_changes_nothing(name: str, knowledge: Knowledge) -> None:
    updates = cohort()
    attack: Attack = build("attacks", name, {})
    assert torch.equal(attack.poison_updates(updates, mask(*[0] * 7), knowledge).matrix, updates.matrix)


@pytest.mark.parametrize("name", UPDATE_ATTACKS)
@pytest.mark.parametrize("flags", [(0, 1, 0, 1, 0, 0, 0), (1, 1, 1, 1, 1, 0, 0), (1,) * 7, (0, 0, 0, 0, 0, 0, 1)])
def test_only_malicious_parameters_change_and_stay_finite(
    name: str, flags: tuple[int, ...], knowledge: Knowledge
) -> None:
    """Benign rows and all buffers are untouched, the input matrix is not written to, and screening lets all pass."""
    updates, malicious = cohort(), mask(*flags)
    before = updates.matrix.clone()
    attack: Attack = build("attacks", name, {})
    after = attack.poison_updates(updates, malicious, knowledge)
    size = updates.spec.num_parameters
    assert torch.equal(updates.matrix, before)
    assert torch.equal(after.matrix[~malicious], before[~malicious])
    assert torch.equal(after.matrix[:, size:], before[:, size:])
    assert screen(after).dropped == ()
    # An attacker alone with itself may have nothing better than its honest update, a backdoor's γ is then 1.
    if not malicious.all() and name != "mimic":
        assert (after.matrix[malicious, :size] != before[malicious, :size]).any(dim=1).all()


@pytest.mark.parametrize("name", UPDATE_ATTACKS)
def test_diverged_clients_do_not_make_the_attack_nan(name: str, knowledge: Knowledge) -> None:
    """One benign row is NaN and one malicious row is Inf: all malicious rows are finite all the same."""
    updates, malicious = cohort(), mask(0, 1, 0, 1, 0, 0, 0)
    updates.matrix[0, 3] = torch.nan
    updates.matrix[1, 2] = torch.inf
    attack: Attack = build("attacks", name, {})
    after = attack.poison_updates(updates, malicious, knowledge)
    assert torch.isfinite(after.parameters[malicious]).all()


@pytest.mark.parametrize("name", UPDATE_ATTACKS)
def test_same_stream_same_rows(name: str) -> None:
    """All randomness comes from the generator handed in; the global one is neither read nor moved."""
    updates, malicious, results = cohort(), mask(0, 1, 0, 1, 1, 0, 0), []
    state = torch.random.get_rng_state()
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        here = torch.random.get_rng_state()
        attack: Attack = build("attacks", name, {})
        knows = Knowledge(generator=torch.Generator().manual_seed(3))
        results.append(attack.poison_updates(updates, malicious, knows).matrix)
        assert torch.equal(torch.random.get_rng_state(), here)
    torch.random.set_rng_state(state)
    assert torch.equal(*results)


def test_send_turns_what_is_not_finite_into_something_that_arrives() -> None:
    """NaN → no movement; ±Inf → finite even after the origin is added."""
    updates = Updates.of(torch.zeros(2, 3), origin=torch.ones(3))
    row = send(updates, mask(1, 0), torch.tensor([torch.nan, torch.inf, -torch.inf])).matrix[0]
    assert row[0] == 1
    assert torch.isfinite(row).all()
    assert row[1] > 1e37
    assert row[2] < -1e37


def test_observed_is_benign_and_finite_else_own() -> None:
    updates = Updates.of([[1.0, 1.0], [2.0, torch.nan], [3.0, 3.0]])
    assert observed(updates, mask(1, 0, 0)).tolist() == [[3, 3]]
    assert observed(updates, mask(1, 1, 1)).tolist() == [[1, 1], [3, 3]]

"""Agreement with the server's gradient, part by part, added up by client."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.smartfl_next.evidence import Evidence, agreement_by_part, prior
from smartfl.types import Updates

ORIGIN = torch.tensor([1.0, 1.0, 1.0, 1.0])
PARTS = [[slice(0, 2)], [slice(2, 4)]]


def agreement(gradient: list[float], *deltas: list[float]) -> list[float]:
    updates = Updates.of(ORIGIN + torch.tensor(deltas, dtype=torch.float32), origin=ORIGIN)
    return agreement_by_part(updates, PARTS, torch.tensor(gradient, dtype=torch.float32)).tolist()


def test_the_mean_of_the_cosines_of_the_parts_by_hand():
    """−g = −(3, 4 | 0, 2): cosines 1 and 1; 3/5 and −1; 0 (no update there) and 1."""
    found = agreement([3, 4, 0, 2], [-3, -4, 0, -1], [-1, 0, 0, 9], [0, 0, 0, -7])
    assert found == pytest.approx([1, (0.6 - 1) / 2, 0.5], abs=1e-6)


def test_a_long_part_does_not_outvote_a_short_one():
    """Right in the part with the long gradient, wrong in the other: the whole vector has a cosine near 1."""
    (found,) = agreement([100, 0, 1, 0], [-100, 0, 1, 0])
    assert found == pytest.approx(0, abs=1e-6)


def test_one_part_in_several_pieces():
    updates = Updates.of(ORIGIN + torch.tensor([[-3.0, 5.0, 5.0, -4.0]]), origin=ORIGIN)
    found = agreement_by_part(updates, [[slice(0, 1), slice(3, 4)]], torch.tensor([3.0, 9.0, 9.0, 4.0]))
    assert found.tolist() == pytest.approx([1])


def test_scores_by_hand():
    """Client 3 in one round (0.5), client 5 in four (0.1 + 0.3 + 0.2 + 0.2) / 2."""
    evidence = Evidence()
    for round_, cosine in enumerate((0.1, 0.3, 0.2, 0.2)):
        ids, agreement = ([3, 5], [0.5, cosine]) if round_ == 0 else ([5], [cosine])
        evidence = evidence.after(ids, torch.tensor(agreement))
    assert evidence.scores([3, 5]).tolist() == pytest.approx([0.5, 0.4])


def test_what_is_known_survives_a_checkpoint():
    evidence = Evidence().after([2, 9], torch.tensor([0.25, -0.5])).after([9], torch.tensor([0.125]))
    assert Evidence.of(evidence.state_dict()) == evidence


def test_prior_by_hand():
    """0.9 of (3, 0, 1)/4, and 0.1 of (0.2, 0.2, 0.6)."""
    fedavg = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    found = prior(torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64), fedavg, 0.1)
    assert found.tolist() == pytest.approx([0.695, 0.02, 0.285])


def test_where_nobody_agrees_the_prior_is_fedavg():
    fedavg = torch.tensor([0.2, 0.8], dtype=torch.float64)
    assert torch.equal(prior(torch.tensor([-0.3, 0.0], dtype=torch.float64), fedavg, 0.1), fedavg)

from __future__ import annotations

import torch

from smartfl.aggregators import FedAvg
from smartfl.attacks.base import Knowledge
from smartfl.attacks.crash import Crash
from smartfl.screening import screened
from smartfl.types import Updates


def test_attackers_are_screened_and_nobody_else(knowledge: Knowledge) -> None:
    """Of the rows (2, 2), (4, 4), (9, 9) the middle one crashes: the mean of the others is (5.5, 5.5)."""
    updates = Updates.of([[2.0, 2.0], [4.0, 4.0], [9.0, 9.0]], origin=[1.0, 1.0])
    poisoned = Crash().poison_updates(updates, torch.tensor([False, True, False]), knowledge)
    assert poisoned.matrix[[0, 2]].tolist() == [[2, 2], [9, 9]]
    found = screened(FedAvg(), poisoned, None)
    assert found.vector.tolist() == [5.5, 5.5]
    assert [d.id for d in found.dropped] == [1]
    assert found.coefficients is not None
    assert found.coefficients.tolist() == [0.5, 0, 0.5]

"""Updates moved towards the global model until they are no longer than a limit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smartfl.aggregators.shortening import within_reach
from smartfl.flat import FlatSpec
from smartfl.types import Updates


def test_by_hand():
    """From (1, 0) the updates (1, 0), (0, 2), (0, −3), (30, 40) have lengths 1, 2, 3, 50: the limit is 2 · 2.5."""
    origin = torch.tensor([1.0, 0.0])
    updates = Updates.of(origin + torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, -3.0], [30.0, 40.0]]), origin=origin)
    found, count = within_reach(updates, 2.0)
    assert count == 1
    assert torch.equal(found.matrix[:3], updates.matrix[:3])
    assert found.matrix[3].tolist() == pytest.approx([4.0, 4.0])


def test_nothing_is_copied_where_nothing_is_too_long():
    updates = Updates.of(torch.eye(4))
    found, count = within_reach(updates, 2.0)
    assert (count, found is updates) == (0, True)


def test_clients_that_did_not_move_are_left_alone():
    updates = Updates.of([[0.0], [0.0], [5.0]])
    assert within_reach(updates, 2.0) == (updates, 0)


def test_buffers_stay():
    """A BatchNorm's running statistics are no part of the length and are not scaled."""
    spec = FlatSpec.of(nn.BatchNorm1d(1))  # weight, bias, running mean, running variance
    rows = torch.tensor([[1.0, 0.0, 7.0, 7.0], [1.0, 0.0, 7.0, 7.0], [100.0, 0.0, 8.0, 9.0]])
    found, count = within_reach(Updates.of(rows, origin=torch.zeros(4), spec=spec), 2.0)
    assert count == 1
    assert found.matrix[2].tolist() == pytest.approx([2.0, 0.0, 8.0, 9.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_in_half_precision_stay_in_it(dtype):
    updates = Updates.of(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 64.0]]).to(dtype))
    found, count = within_reach(updates, 2.0)
    assert (count, found.matrix.dtype) == (1, dtype)
    assert found.matrix[2].tolist() == [0.0, 2.0]

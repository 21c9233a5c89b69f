"""Sign majority."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.sign_majority import SignMajority
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates


def test_votes() -> None:
    """Votes per coordinate: + + − → +η; − 0 − → −η; + − 0 → tie, stays."""
    deltas = torch.tensor([[0.5, -1.0, 2.0], [9.0, 0.0, -3.0], [-1e30, -2.0, 0.0]])
    result = SignMajority(step=0.25)(Updates.of(deltas))
    assert result.vector.tolist() == [0.25, -0.25, 0]
    assert result.info["ties"] == pytest.approx(1 / 3)
    assert result.coefficients is None


def test_moves_from_the_origin() -> None:
    updates = Updates.of([[4.0], [4.5], [6.0]], origin=[5.0])
    assert SignMajority(step=0.5)(updates).vector.item() == 4.5


def test_several_blocks() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, origin = torch.randn(5, 20_000, generator=generator), torch.randn(20_000, generator=generator)
    expected = origin + 0.01 * torch.sign(torch.sign(rows - origin).sum(0))
    assert torch.allclose(SignMajority(step=0.01)(Updates.of(rows, origin=origin)).vector, expected)


def test_buffers_take_their_median() -> None:
    spec = FlatSpec((Entry("w", (1,), 0),), (Entry("running_var", (1,), 1),))
    rows = torch.tensor([[1.0, 2.0], [1.0, 4.0], [-1.0, 1e30], [1.0, 3.0]])
    assert SignMajority(step=1.0)(Updates.of(rows, spec=spec)).vector.tolist() == [1, 3.5]


def test_settings() -> None:
    with pytest.raises(UserError, match="step"):
        SignMajority(step=0)
    assert SignMajority().tolerates(9) == 4

"""Sign majority: every coordinate moves one step in the direction that most clients voted for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.blocks import columns_at_once, for_blocks
from smartfl.aggregators.columns import by_columns, middle
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class SignMajority(Aggregator):
    """w ← w^t + η · sign(Σ_i sign(Δ_i)) per coordinate, with sign(0) = 0: a tie leaves the coordinate where it is.

    Bernstein et al. 2019, "signSGD with majority vote". ``step`` is η, the same for all coordinates. Ignores sample
    counts; one vote a client, however large its row. Fewer than half of the clients cannot outvote an agreeing rest.
    A vote on running statistics has no meaning, so buffers take their coordinate-wise median. O(n d).
    """

    step: float = 1e-3

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise UserError(f"step = {self.step:g} must be above 0")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        size = updates.spec.num_parameters
        vector = updates.origin.clone()
        vote = torch.zeros_like(vector[:size])

        def count(part: slice) -> None:
            vote[part] = (updates.matrix[:, part] - updates.origin[part]).sign().sum(dim=0).sign()

        for_blocks(count, size, columns_at_once(len(updates), vote.dtype))
        vector[:size] += self.step * vote
        vector[size:] = by_columns(middle, updates.matrix[:, size:])
        return Aggregate(vector, info={"ties": float((vote == 0).double().mean()) if size else 0.0})

    def tolerates(self, n: int) -> int | None:
        return (n - 1) // 2

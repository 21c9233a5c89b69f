"""Mimic: everyone copies the same honest client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, dots, observed, send
from smartfl.errors import UserError
from smartfl.types import Updates


@dataclass(frozen=True, eq=False)
class Direction:
    """Running mean μ (P,) of the honest updates and top principal direction z (P,) after ``rounds`` rounds."""

    mean: Tensor
    top: Tensor
    rounds: int

    @classmethod
    def start(cls, size: int, generator: torch.Generator) -> Direction:
        """Before the first round: μ = 0 and a random unit vector."""
        top = torch.randn(size, generator=generator)
        return cls(torch.zeros(size), top / top.norm(), 0)

    def follow(self, rows: Tensor) -> Direction:
        """One power-iteration step on the honest updates ``rows`` (k, P) of a round.

        μ' = (t·μ + mean(rows)) / (t + 1)
        y  = Σ_i ⟨Δ_i − μ', z⟩ (Δ_i − μ')
        z' = (t·z + y/‖y‖) / (t + 1), scaled to length 1
        """
        t = self.rounds
        mean = (t * self.mean.to(rows) + rows.mean(dim=0)) / (t + 1)
        away, top = rows - mean, self.top.to(rows)
        step = dots(away, top).to(rows) @ away
        norm = step.norm()
        if not norm > 0:
            return Direction(mean, top, t + 1)
        top = t * top + step / norm
        return Direction(mean, top / top.norm().clamp_min(torch.finfo(top.dtype).tiny), t + 1)


@dataclass(eq=False)
class Mimic(Attack):
    """Every compromised client reports the update of one honest client: argmax_i ⟨Δ_i, z⟩.

    z is the running top principal direction of the honest updates around their running mean, followed for
    ``warmup`` rounds and fixed afterwards, so that the same kind of client is over-represented throughout.  Each row
    is an honest one: no rule can tell it from its model; it hurts selection rules where data differ.
    Karimireddy, He & Jaggi 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing".  Without an
    honest client in the cohort one of the attackers' own updates is copied.
    """

    warmup: int = 20
    direction: Direction | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise UserError(f"warmup = {self.warmup} must be at least 1")

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        size = known.shape[1]
        followed = self.direction
        if followed is None or len(followed.top) != size:
            followed = Direction.start(size, knowledge.generator)
        if followed.rounds < self.warmup:
            followed = followed.follow(known)
        self.direction = followed
        target = int(dots(known, followed.top.to(known)).argmax())
        return send(updates, malicious, known[target])

    def state_dict(self) -> dict[str, Any]:
        if self.direction is None:
            return {}
        return {"mean": self.direction.mean, "top": self.direction.top, "rounds": self.direction.rounds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.direction = Direction(state["mean"], state["top"], int(state["rounds"])) if state else None

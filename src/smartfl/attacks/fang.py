"""Fang's attack on the coordinate-wise median and the trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, send
from smartfl.errors import UserError
from smartfl.types import Updates


def beyond(values: Tensor, direction: Tensor, b: float, draws: Tensor) -> Tensor:
    """(k, P) values just outside the benign range, on the side away from ``direction`` (P,).

    ``values`` (n, P) benign values, ``draws`` (k, P) in [0, 1).  With e the smallest value where the direction is +,
    the largest where it is −: uniform between e and e/b if e lies on the direction's side of zero, else e and b·e.
    Where the direction is 0 the benign mean is returned.
    """
    extreme = torch.where(direction > 0, values.amin(dim=0), values.amax(dim=0))
    far = torch.where(direction * extreme > 0, extreme / b, extreme * b)
    return torch.where(direction == 0, values.mean(dim=0), extreme + draws * (far - extreme))


def from_own(own: Tensor, draws: Tensor) -> Tensor:
    """(k, P) values μ − sign(μ)·σ·(3 + u): three to four deviations behind the attackers' own mean update.

    ``own`` (k, P) before-attack updates, μ and σ (population) their statistics, ``draws`` (k, P) the u in [0, 1).
    """
    mean = own.mean(dim=0)
    return mean - mean.sign() * own.std(dim=0, unbiased=False) * (3 + draws)


@dataclass(frozen=True)
class FangMedian(Attack):
    """Every coordinate is pushed against the direction s it would move in, just beyond the benign range.

    full      s = sign(mean benign Δ); v ~ U between the benign extreme on the other side and that times or over ``b``
    partial   v = μ − sign(μ)·σ·U[3, 4], μ and σ over the attackers' own before-attack updates

    Fang et al. 2020 (USENIX Security); draws are independent per attacker and coordinate.  ``space`` says on what the
    factor b works: "update" on Δ, as everyone's code does, "model" on w, as the paper writes it; partial knowledge is
    the same in both.  Without a benign client ``full`` becomes ``partial``; one attacker alone has σ = 0 there and
    sends its honest update.
    """

    knowledge: Literal["full", "partial"] = "full"
    space: Literal["update", "model"] = "update"
    b: float = 2.0

    def __post_init__(self) -> None:
        if not 1 < self.b < torch.inf:
            raise UserError(f"b = {self.b} must be a number greater than 1")

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        if not malicious.any():
            return updates
        deltas, start = updates.deltas, updates.origin[: updates.spec.num_parameters]
        finite = torch.isfinite(deltas.sum(dim=1, dtype=torch.float64))
        corrupt = malicious.to(deltas.device)
        benign, own = deltas[~corrupt & finite], deltas[corrupt & finite]
        draws = torch.rand((int(corrupt.sum()), deltas.shape[1]), generator=knowledge.generator).to(deltas)
        if self.knowledge == "full" and len(benign):
            offset = start if self.space == "model" else torch.zeros_like(start)
            return send(updates, malicious, beyond(benign + offset, benign.mean(dim=0).sign(), self.b, draws) - offset)
        return send(updates, malicious, from_own(own, draws)) if len(own) else updates


@dataclass(frozen=True)
class FangTrimmedMean(FangMedian):
    """Fang et al.'s attack on the trimmed mean: the same arithmetic as on the median."""

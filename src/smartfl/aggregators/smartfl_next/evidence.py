"""Whom past rounds and this one speak for: agreement with the server's gradient, added up by client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smartfl.aggregators.distances import distances_to
from smartfl.products import inner_products
from smartfl.types import Updates


def agreement_by_part(updates: Updates, parts: Sequence[Sequence[slice]], gradient: Tensor) -> Tensor:
    """(n,) float64, the mean over parts l of cos(Δ_il, −g_l), for the server's ``gradient`` g (P,) at w^t.

    A part is the columns of one layer, or of one class of a linear model.  The cosine of the whole vector is FLTrust's
    score (Cao et al. 2021); it is what the part with the longest gradient says, and attackers who are right there and
    wrong in every other part pass.  A part in which one of the two is zero says nothing: 0.
    """
    size = updates.spec.num_parameters
    origin = updates.origin[:size]
    cosines = []
    for part in parts:
        columns = [slice(c.start, min(c.stop, size)) for c in part if c.start < size]
        if not columns:
            continue
        downhill = sum(
            float(gradient[c].to(torch.float64) @ origin[c].to(torch.float64))
            - inner_products(updates.matrix[:, c], gradient[c]).cpu()
            for c in columns
        )
        squares = sum(distances_to(updates.matrix[:, c], origin[c]).cpu().square() for c in columns)
        length = math.sqrt(sum(float(gradient[c].to(torch.float64).square().sum()) for c in columns))
        cosine = torch.as_tensor(downhill) / (torch.as_tensor(squares).sqrt() * length)
        cosines.append(cosine.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-1, 1))
    return torch.stack(cosines).mean(dim=0)


@dataclass(frozen=True)
class Evidence:
    """The agreement of every client so far: id → (Σ c_i, the number k_i of rounds in which it took part)."""

    sums: Mapping[int, tuple[float, int]] = field(default_factory=dict)

    def after(self, ids: Sequence[int], agreement: Tensor) -> Evidence:
        """With the ``agreement`` (n,) of one more round."""
        sums = dict(self.sums)
        for client, cosine in zip(ids, agreement.tolist(), strict=True):
            total, rounds = sums.get(client, (0.0, 0))
            sums[client] = (total + cosine, rounds + 1)
        return Evidence(sums)

    def scores(self, ids: Sequence[int]) -> Tensor:
        """(n,) a_i = Σ c_i / √k_i, which has the spread of one round's c_i however many rounds there were."""
        found = [self.sums[client] for client in ids]
        return torch.tensor([total / math.sqrt(rounds) for total, rounds in found], dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"evidence": [[client, total, rounds] for client, (total, rounds) in sorted(self.sums.items())]}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Evidence:
        """The inverse of ``state_dict``."""
        return cls({int(client): (float(total), int(rounds)) for client, total, rounds in state.get("evidence", [])})


def prior(scores: Tensor, fedavg: Tensor, floor: float) -> Tensor:
    """(n,) π_i = (1 − floor) max(0, a_i) / Σ max(0, a) + floor · FedAvg weight; FedAvg's where nobody agrees."""
    agreeing = scores.clamp_min(0)
    if not agreeing.any():
        return fedavg
    return (1 - floor) * agreeing / agreeing.sum() + floor * fedavg

"""Fang's attack on Krum: the largest step back that Krum still picks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.distances import squared_distances
from smartfl.aggregators.krum import krum_scores
from smartfl.attacks.base import Attack, Knowledge, dots, observed, send
from smartfl.errors import UserError
from smartfl.types import Updates


def lambda_max(distances: Tensor, norms: Tensor, size: int, attackers: int) -> float:
    """The bound of Fang et al. above which Krum cannot pick the attackers.

        λ_max = min_i Σ_{j ∈ N_i} ‖Δ_i − Δ_j‖ / ((m − 2c − 1)√d) + max_i ‖Δ_i‖ / √d

    ``distances`` (k, k) squared, ``norms`` (k,) of the benign updates, ``size`` = d, c attackers, m = k + c; N_i the
    m − c − 2 nearest benign clients.  The divisor is kept at 1 or more, for cohorts the attack was not made for.
    """
    k = len(norms)
    others = distances.sqrt()
    others.fill_diagonal_(torch.inf)
    near = others.sort(dim=1).values[:, : max(k - 2, 0)].sum(dim=1)
    return (float(near.min()) / max(k - attackers - 1, 1) + float(norms.max())) / math.sqrt(size)


def picked(distances: Tensor, norms: Tensor, slopes: Tensor, length: float, scale: float, copies: int, f: int) -> bool:
    """Whether Krum(f) picks one of ``copies`` identical rows −λ·s put beside the benign ones.

    ‖Δ_i + λ·s‖² = ‖Δ_i‖² + 2λ⟨Δ_i, s⟩ + λ²‖s‖², so a trial costs nothing in d; ``slopes`` (k,) = ⟨Δ_i, s⟩,
    ``length`` = ‖s‖², ``scale`` = λ.  A tie counts as not picked: it may go to a benign client.
    """
    k = len(norms)
    table = distances.new_zeros((k + copies, k + copies))
    table[:k, :k] = distances
    cross = (norms**2 + 2 * scale * slopes + scale**2 * length).clamp_min(0)
    table[:k, k:], table[k:, :k] = cross[:, None], cross
    scores = krum_scores(table, f)
    return bool(scores[k:].min() < scores[:k].min())


@dataclass(frozen=True)
class FangKrum(Attack):
    """All compromised clients report w^t − λ·s, s = sign(mean benign Δ), λ the largest λ_max/2^i that Krum picks.

    Fang et al. 2020.  Supporters sit within ``epsilon`` of the first attacker, so that they vouch for each other.  The
    attacker runs Krum with f = the number of attackers (capped at ⌊(n − 3)/2⌋) unless ``f`` is given; it stops below
    ``threshold`` and sends that.  Made for at least two attackers and m − 2c − 1 > 0; outside it still runs,
    with the bound's divisor kept at 1.  Without a benign client the attackers' own updates stand in.
    """

    f: int | None = None
    epsilon: float = 1e-5
    threshold: float = 1e-5

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise UserError(f"threshold = {self.threshold} must be greater than 0")
        if not self.epsilon >= 0:
            raise UserError(f"epsilon = {self.epsilon} must be at least 0")

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        count, size = int(malicious.sum()), known.shape[1]
        sign = known.mean(dim=0).sign()
        scale = self.search(known, sign, count)
        noise = torch.rand((count, size), generator=knowledge.generator).to(known) * 2 - 1
        noise[0] = 0
        return send(updates, malicious, -scale * sign + noise * (self.epsilon / math.sqrt(size)))

    def search(self, known: Tensor, sign: Tensor, count: int) -> float:
        """λ for ``count`` attackers against the benign updates ``known`` (k, P) along −``sign`` (P,)."""
        n = len(known) + count
        f = min(count if self.f is None else self.f, max((n - 3) // 2, 0))
        distances = squared_distances(known)
        norms = torch.linalg.vector_norm(known, dim=1, dtype=torch.float64)
        slopes = dots(known, sign)
        length = float(sign.abs().sum(dtype=torch.float64))
        scale = lambda_max(distances, norms, known.shape[1], count)
        while scale >= self.threshold and not picked(distances, norms, slopes, length, scale, count, f):
            scale /= 2
        return scale

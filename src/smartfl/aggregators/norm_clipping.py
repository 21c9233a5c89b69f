"""Norm clipping: no update is longer than M before the average."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.distances import distances_to, mix_differences
from smartfl.aggregators.shortening import clip_factors
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class NormClipping(Aggregator):
    """w ← w^t + Σ α_i Δ_i · min(1, M/‖Δ_i‖) (+ Gaussian noise), α_i = N_i / ΣN.

    Sun et al. 2019, "Can you really backdoor federated learning?". M is ``threshold``, or the median norm of the
    round's updates where none is given; ``noise`` is the standard deviation per parameter, drawn from the server's
    generator. M → ∞ is FedAvg. An attacker's pull is bounded by α_i M, so no number of attackers is excluded and
    none is proved harmless. Buffers take α, which are the coefficients. O(n d).
    """

    threshold: float | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.threshold is not None and not self.threshold > 0:
            raise UserError(f"threshold = {self.threshold:g} must be above 0, or left out for the median norm")
        if not self.noise >= 0:
            raise UserError(f"noise = {self.noise:g} must be 0 or more")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        size = updates.spec.num_parameters
        start, alpha = updates.origin[:size], updates.weights
        factors, limit = clip_factors(distances_to(updates.parameters, start), self.threshold)
        step = mix_differences(updates.parameters, start, alpha * factors)
        if self.noise:
            generator = (server or Server()).generator
            draw = torch.randn(size, generator=generator, device=generator.device)
            step += self.noise * draw.to(step.device)
        vector = updates.mix(alpha)
        vector[:size] = step.add_(start)
        return Aggregate(vector, alpha, {"threshold": limit, "clipped": int((factors < 1).sum())})

    def tolerates(self, n: int) -> int | None:
        return None

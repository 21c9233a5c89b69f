"""What a client's past rounds say against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

PRIOR = 0.5  # rounds' worth of evidence that a client is like all others


@dataclass
class Mistrust:
    """Evidence against clients, gathered over the rounds that they took part in.

    Where a search on the simplex ended at p with gradient g (n,),  x_i = (g_i − gᵀp) / λ  says what a step towards
    client i would cost, in units of a price λ: about 0 for a client that is in use or might as well be, much for one
    that would do damage.  With M the largest x of a round, the round counts min(1, M), client i gets the mark
    max(0, x_i) / max(1, M), and what is held against it is

        e_i = (Σ marks + ½ ē) / (Σ counts + ½),      ē the mean of Σ marks / Σ counts over all clients seen

    So e lies in [0, 1], a newcomer is like the others, and rounds that tell clients apart by less than the price (the
    samples are fitted, M ≪ 1) change little of what is known.
    """

    _held: dict[int, tuple[float, float]] = field(default_factory=dict, init=False)

    def of(self, ids: Sequence[int]) -> Tensor:
        """(n,) float64 e_i for the clients ``ids``; 0 for all while nothing is known of anyone."""
        rates = [marks / counts for marks, counts in self._held.values() if counts > 0]
        usual = sum(rates) / len(rates) if rates else 0.0
        known = [self._held.get(i, (0.0, 0.0)) for i in ids]
        return torch.tensor([(m + PRIOR * usual) / (c + PRIOR) for m, c in known], dtype=torch.float64)

    def trusted(self, ids: Sequence[int]) -> Tensor:
        """(n,) float64 weights ∝ 1 − e_i of the clients ``ids``: equal ones while nothing is known of anyone."""
        good = 1 - self.of(ids)
        return good / good.sum() if good.any() else torch.full_like(good, 1 / len(good))

    def observe(self, ids: Sequence[int], x: Tensor) -> None:
        """Take up a round: ``x`` (n,) of the clients ``ids``."""
        most = float(x.max())
        if not 0 < most < torch.inf:
            return
        for i, mark in zip(ids, (x.clamp_min(0) / max(1.0, most)).tolist(), strict=True):
            marks, counts = self._held.get(i, (0.0, 0.0))
            self._held[i] = marks + mark, counts + min(1.0, most)

    def state_dict(self) -> dict[str, Any]:
        ids = sorted(self._held)
        return {"ids": ids, "held": torch.tensor([self._held[i] for i in ids], dtype=torch.float64)} if ids else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pairs = zip(state["ids"], state["held"].tolist(), strict=True) if state else ()
        self._held = {i: (marks, counts) for i, (marks, counts) in pairs}

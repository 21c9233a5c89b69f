"""What a client's past rounds say against it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from smartfl.aggregators.camps import lower_camp
from smartfl.errors import UserError

PRIOR = 0.5  # rounds' worth of evidence that a client is like all others


@dataclass(frozen=True)
class Past:
    """What is known of a client: Σ marks, Σ of what their rounds count, Σ cosines or Σ knowledge, number of rounds."""

    marks: float = 0.0
    counts: float = 0.0
    cosines: float = 0.0
    knowledge: float = 0.0
    rounds: float = 0.0


@dataclass
class Mistrust:
    """Evidence against clients, gathered over the rounds that they took part in; two kinds of it.

    *Damage* (``observe``).  Where a search on the simplex ended at p with gradient g (n,), x_i = (g_i − gᵀp) / λ
    (summed over layers that have weights of their own) says what a step towards client i would cost, in units of a
    price λ: about 0 for a client that is in use or might as well be, much for one that would do damage. With M the
    largest x of a round, the round counts min(1, M), client i gets the mark max(0, x_i) / max(1, M), and what is held
    against it is

        e_i = (Σ marks + ½ ē) / (Σ counts + ½),      ē the mean of Σ marks / Σ counts over all clients seen

    So e lies in [0, 1], a newcomer is like the others, and rounds that tell clients apart by less than the price (the
    samples are fitted, M ≪ 1) change little of what is known.

    *Contradiction*, for which e_i = 1.  Attackers of one mind who are the majority get no marks, because where they all
    lead costs next to nothing once the rest has left; but what they say is against the labels.  Of models whose logits
    are linear in their parameters that is told by ``learn``: k_i says how far a client's update follows the labels
    (``knowledge``), and if the means of k over their rounds put all clients seen into two camps, of which the lower one
    gets next to nowhere (``lower_camp``), its members contradict.  Of nets by ``agree``: with c_i the cosine of a
    client's update and the server's way down at w^t, and c̄ the mean of Σ c / rounds over all clients seen, whoever has
    Σ c_i + ½ c̄ ≤ 0  has led uphill on the whole.  If that is everybody, it says nothing about anyone.
    """

    _held: dict[int, Past] = field(default_factory=dict, init=False)
    _camp: frozenset[int] = field(default=frozenset(), init=False)  # who contradicts by knowledge; follows from _held

    def of(self, ids: Sequence[int]) -> Tensor:
        """(n,) float64 e_i for the clients ``ids``; 0 for all while nothing is known of anyone."""
        known = [self._held.get(i, Past()) for i in ids]
        usual = _mean([k.marks / k.counts for k in self._held.values() if k.counts > 0])
        marked = [(k.marks + PRIOR * usual) / (k.counts + PRIOR) for k in known]
        return torch.where(self.contradict(ids), 1.0, torch.tensor(marked, dtype=torch.float64))

    def contradict(self, ids: Sequence[int]) -> Tensor:
        """(n,) bool: who of the clients ``ids`` contradicts the labels, or has led uphill on the whole."""
        if not any(k.cosines > 0 for k in self._held.values()):
            return torch.tensor([i in self._camp for i in ids])
        usual = PRIOR * _mean([k.cosines / k.rounds for k in self._held.values() if k.rounds > 0])
        return torch.tensor([self._held.get(i, Past()).cosines + usual <= 0 for i in ids])

    def trusted(self, ids: Sequence[int]) -> Tensor:
        """(n,) float64 weights ∝ 1 − e_i of the clients ``ids``: equal ones while nothing is known of anyone."""
        good = 1 - self.of(ids)
        return good / good.sum() if good.any() else torch.full_like(good, 1 / len(good))

    def observe(self, ids: Sequence[int], x: Tensor) -> None:
        """Take up where a round ended: ``x`` (n,) of the clients ``ids``."""
        most = float(x.max())
        if not 0 < most < torch.inf:
            return
        for i, mark in zip(ids, (x.clamp_min(0) / max(1.0, most)).tolist(), strict=True):
            known = self._held.get(i, Past())
            self._held[i] = replace(known, marks=known.marks + mark, counts=known.counts + min(1.0, most))

    def agree(self, ids: Sequence[int], cosines: Tensor) -> None:
        """Take up how a round began: the ``cosines`` (n,) of the updates of the clients ``ids`` with the way down."""
        for i, cosine in zip(ids, cosines.tolist(), strict=True):
            known = self._held.get(i, Past())
            self._held[i] = replace(known, cosines=known.cosines + cosine, rounds=known.rounds + 1)

    def learn(self, ids: Sequence[int], knowledge: Tensor) -> None:
        """The same by the ``knowledge`` (n,) of the clients ``ids``; a memory is of the one or of the other."""
        for i, k in zip(ids, knowledge.tolist(), strict=True):
            known = self._held.get(i, Past())
            self._held[i] = replace(known, knowledge=known.knowledge + k, rounds=known.rounds + 1)
        self._divide()

    def _divide(self) -> None:
        seen = [i for i in sorted(self._held) if self._held[i].rounds > 0]
        means = [self._held[i].knowledge / self._held[i].rounds for i in seen]
        lower = lower_camp(torch.tensor(means, dtype=torch.float64)).tolist()
        self._camp = frozenset(itertools.compress(seen, lower))

    def state_dict(self) -> dict[str, Any]:
        ids = sorted(self._held)
        rows = [(k.marks, k.counts, k.cosines, k.knowledge, k.rounds) for k in map(self._held.__getitem__, ids)]
        return {"ids": ids, "known": torch.tensor(rows, dtype=torch.float64)} if ids else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "held" in state:
            raise UserError("this checkpoint's memory is of an older kind and cannot be continued: start anew")
        pairs = zip(state["ids"], state["known"].tolist(), strict=True) if state else ()
        self._held = {i: Past(*row) for i, row in pairs}
        self._divide()


def _mean(values: list[float]) -> float:
    """Exact, and so the same in any order: a memory that was saved and read again has another one."""
    return math.fsum(values) / len(values) if values else 0.0

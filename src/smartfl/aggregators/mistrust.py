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
    """What is known of a client: Σ marks, Σ of what their rounds count, Σ m·c and Σ m² over rounds of size m."""

    marks: float = 0.0
    counts: float = 0.0
    along: float = 0.0
    squares: float = 0.0


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

    *Contradiction* (``learn``), for which e_i = 1.  Attackers of one mind who are the majority get no marks, because
    where they all lead costs next to nothing once the rest has left; but what they say is against the labels.  c_i says
    how far a client's update follows them: its cosine with the server's way down (``agreement``), or its ``knowledge``.
    Where clients are alike, c are large in the first rounds and shrink as the samples are fitted, so that a client's
    mean depends on the rounds that it was in.  What is compared is the slope by which its c follow the size m of the
    rounds,

        t_i = Σ m c_i / Σ m²        over the rounds of client i

    (the mean of c, if all rounds have the same size).  If the t of all clients seen fall into two camps, of which the
    lower one gets next to nowhere (``lower_camp``), its members contradict.  Honest clients of one class lead uphill as
    often as down, but they are one group; so a sign alone says nothing.
    """

    _held: dict[int, Past] = field(default_factory=dict, init=False)
    _camp: frozenset[int] = field(default=frozenset(), init=False)  # who contradicts; follows from _held

    def of(self, ids: Sequence[int]) -> Tensor:
        """(n,) float64 e_i for the clients ``ids``; 0 for all while nothing is known of anyone."""
        known = [self._held.get(i, Past()) for i in ids]
        usual = _mean([k.marks / k.counts for k in self._held.values() if k.counts > 0])
        marked = [(k.marks + PRIOR * usual) / (k.counts + PRIOR) for k in known]
        return torch.where(self.contradict(ids), 1.0, torch.tensor(marked, dtype=torch.float64))

    def contradict(self, ids: Sequence[int]) -> Tensor:
        """(n,) bool: who of the clients ``ids`` contradicts the labels."""
        return torch.tensor([i in self._camp for i in ids])

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

    def learn(self, ids: Sequence[int], c: Tensor, size: float = 1.0) -> None:
        """Take up how a round of this size began: ``c`` (n,) of the clients ``ids``."""
        for i, value in zip(ids, c.tolist(), strict=True):
            known = self._held.get(i, Past())
            self._held[i] = replace(known, along=known.along + size * value, squares=known.squares + size**2)
        self._divide()

    def _divide(self) -> None:
        seen = {i: self._held[i] for i in sorted(self._held) if self._held[i].squares > 0}
        slopes = torch.tensor([past.along / past.squares for past in seen.values()], dtype=torch.float64)
        self._camp = frozenset(itertools.compress(seen, lower_camp(slopes).tolist()))

    def state_dict(self) -> dict[str, Any]:
        ids = sorted(self._held)
        rows = [(k.marks, k.counts, k.along, k.squares) for k in map(self._held.__getitem__, ids)]
        return {"ids": ids, "past": torch.tensor(rows, dtype=torch.float64)} if ids else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and "past" not in state:
            raise UserError("this checkpoint's memory is of an older kind and cannot be continued: start anew")
        pairs = zip(state["ids"], state["past"].tolist(), strict=True) if state else ()
        self._held = {i: Past(*row) for i, row in pairs}
        self._divide()


def size_of(cosines: Tensor) -> float:
    """The size m of a round whose clients have ``cosines`` (n,): the median of their |c|.

    Not a mean: a few with large cosines would decide how much the round counts for all.
    """
    return float(cosines.abs().median())


def _mean(values: list[float]) -> float:
    """Exact, and so the same in any order: a memory that was saved and read again has another one."""
    return math.fsum(values) / len(values) if values else 0.0

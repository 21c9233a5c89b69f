"""What a client's past rounds say against it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

import torch
from torch import Tensor

from smartfl.aggregators.camps import lower_camp
from smartfl.errors import UserError

PRIOR = 0.5  # rounds' worth of evidence that a client is like all others
HEARINGS = 4  # of a client: early ones tell most, and each costs a net a pass over the samples


@dataclass(frozen=True)
class Marks:
    """The damage of a client: Σ marks, and Σ of what their rounds count."""

    marks: float = 0.0
    counts: float = 0.0


@dataclass(frozen=True)
class Hearing:
    """The clients heard in a round, how far they follow the labels (``knowledge``), and their ``breadth``."""

    ids: tuple[int, ...]
    knowledge: tuple[float, ...]
    breadth: tuple[float, ...]


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
    where they all lead costs next to nothing once the rest has left; but what they say is against the labels.  How far
    it is is their ``knowledge`` k_i, for which a client is heard in the first four of its rounds: later ones, in
    which even honest clients lead away from what the model knows already, tell less.  If the clients heard fall into
    two camps, of which the lower one gets next to nowhere (``lower_camp``), its members contradict.  Honest clients of
    one class may know less than nothing of the others, but they are one group; so a sign alone says nothing.

    Who contradicts can be done without (``left_out``) if at least half of a round's clients do not, and if these are
    not clients of one or two classes: their median ``breadth`` b in the first four rounds is at least 0.2.  Among
    clients of few classes, what attackers have left right of a class may be all that a round has.
    """

    broad: ClassVar[float] = 0.2  # between clients of Dirichlet shares at α = 0.01 and at α = 1: docs/method.md

    _held: dict[int, Marks] = field(default_factory=dict, init=False)
    _known: list[Hearing] = field(default_factory=list, init=False)
    _camp: frozenset[int] = field(default=frozenset(), init=False)  # who contradicts; follows from _known

    def of(self, ids: Sequence[int]) -> Tensor:
        """(n,) float64 e_i for the clients ``ids``; 0 for all while nothing is known of anyone."""
        known = [self._held.get(i, Marks()) for i in ids]
        usual = _mean([k.marks / k.counts for k in self._held.values() if k.counts > 0])
        marked = [(k.marks + PRIOR * usual) / (k.counts + PRIOR) for k in known]
        return torch.where(self.contradict(ids), 1.0, torch.tensor(marked, dtype=torch.float64))

    def contradict(self, ids: Sequence[int]) -> Tensor:
        """(n,) bool: who of the clients ``ids`` contradicts the labels."""
        return torch.tensor([i in self._camp for i in ids])

    def left_out(self, ids: Sequence[int]) -> Tensor:
        """(n,) bool: who of a round's clients ``ids`` contradicts, if the others can do without; else nobody."""
        out = self.contradict(ids)
        return out & (self.many_classes() and 2 * int(out.sum()) <= len(out))

    def many_classes(self) -> bool:
        """Whether clients have many classes each; without memory nobody knows, and they are taken to have few."""
        return self.breadth() >= self.broad

    def breadth(self) -> float:
        """The median ``breadth`` of those heard in the first four rounds who do not contradict; 0 while there are none.

        Later ones say less of what a client has: it grows with what the model knows, of which the client keeps some.
        """
        early = self._known[:HEARINGS]
        heard = ((i, b) for hearing in early for i, b in zip(hearing.ids, hearing.breadth, strict=True))
        others = [b for i, b in heard if i not in self._camp]
        return median(others) if others else 0.0

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
            known = self._held.get(i, Marks())
            self._held[i] = Marks(known.marks + mark, known.counts + min(1.0, most))

    def to_hear(self, ids: Sequence[int]) -> list[int]:
        """Where in ``ids`` the clients are who have not been heard often enough."""
        often = Counter(i for hearing in self._known for i in hearing.ids)
        return [place for place, i in enumerate(ids) if often[i] < HEARINGS]

    def learn(self, ids: Sequence[int], k: Tensor, breadth: Tensor) -> None:
        """Take up how a round began: knowledge ``k`` (m,) and ``breadth`` (m,) of those who were heard, ``ids``."""
        self._known.append(Hearing(tuple(ids), tuple(k.tolist()), tuple(breadth.tolist())))
        self._divide()

    def _divide(self) -> None:
        seen = sorted({i for hearing in self._known for i in hearing.ids})
        place = {i: n for n, i in enumerate(seen)}
        who = torch.tensor([place[i] for hearing in self._known for i in hearing.ids], dtype=torch.int64)
        when = torch.tensor([r for r, hearing in enumerate(self._known) for _ in hearing.ids], dtype=torch.int64)
        k = torch.tensor([k for hearing in self._known for k in hearing.knowledge], dtype=torch.float64)
        self._camp = frozenset(itertools.compress(seen, lower_camp(who, when, k).tolist()))

    def state_dict(self) -> dict[str, Any]:
        if not self._held and not self._known:
            return {}
        ids = sorted(self._held)
        marks = [(self._held[i].marks, self._held[i].counts) for i in ids]
        return {
            "ids": ids,
            "marks": torch.tensor(marks, dtype=torch.float64).view(-1, 2),
            "cohorts": [list(hearing.ids) for hearing in self._known],
            "knowledge": torch.tensor([k for hearing in self._known for k in hearing.knowledge], dtype=torch.float64),
            "breadth": torch.tensor([b for hearing in self._known for b in hearing.breadth], dtype=torch.float64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and not {"knowledge", "breadth"} <= state.keys():
            raise UserError("this checkpoint's memory is of an older kind and cannot be continued: start anew")
        pairs = zip(state["ids"], state["marks"].tolist(), strict=True) if state else ()
        self._held = {i: Marks(*row) for i, row in pairs}
        cohorts = state["cohorts"] if state else []
        k, b = (iter(state[name].tolist() if state else ()) for name in ("knowledge", "breadth"))
        self._known = [Hearing(tuple(c), *(tuple(itertools.islice(x, len(c))) for x in (k, b))) for c in cohorts]
        self._divide()


def _mean(values: list[float]) -> float:
    """Exact, and so the same in any order: a memory that was saved and read again has another one."""
    return math.fsum(values) / len(values) if values else 0.0

"""Adaptive: rehearse the server's own rule, and send what gets weight and does damage."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from smartfl.aggregators.fedavg import FedAvg
from smartfl.attacks.base import Attack, Knowledge, observed, send
from smartfl.attacks.directions import length_of, sacrificed, trained, watched
from smartfl.attacks.rehearsal import Rehearsal, halves, loss_on, progress_lost
from smartfl.data.dataset import Dataset
from smartfl.errors import UserError
from smartfl.types import Rule, Server, Updates

FAMILIES = ("negate", "spread", "ascent", "flip", "class")
FURTHEST = 10.0  # octaves: a rule that lets 1024 typical updates pass is beaten already


@dataclass(frozen=True)
class Candidate:
    """Something to send: carrier + 2^octave · direction of the family.

    The carrier is the benign mean (identical rows, which vouch for each other) or each attacker's own honest update
    (rows that differ, as honest ones do).
    """

    family: str
    octave: float = 0.0
    carrier: Literal["mean", "own"] = "mean"

    @property
    def scale(self) -> float:
        """The factor λ of the direction."""
        return math.exp2(self.octave)

    def neighbours(self, step: float) -> list[Candidate]:
        """``step`` octaves up and down, within reason, and the other carrier."""
        octaves = [octave for octave in (self.octave + step, self.octave - step) if abs(octave) <= FURTHEST]
        within = [replace(self, octave=octave) for octave in octaves]
        other: Literal["mean", "own"] = "own" if self.carrier == "mean" else "mean"
        return [*within, replace(self, carrier=other)]


def search(
    damage: Callable[[Candidate], float], starts: Sequence[Candidate], budget: int, step: float = 2.0
) -> tuple[Candidate, float]:
    """The most damaging candidate found in ``budget`` rehearsals, and its damage.

    First the starts, one by one; then untried neighbours of the best so far, with a ``step`` (in octaves) that is
    halved when all of them have been tried.  Ties go to the one tried first.
    """
    tried: dict[Candidate, float] = {}
    for candidate in starts[:budget]:
        tried[candidate] = damage(candidate)
    while len(tried) < budget and step > 0.05:
        best = max(tried, key=tried.__getitem__)
        fresh = [c for c in best.neighbours(step) if c not in tried]
        if fresh:
            tried[fresh[0]] = damage(fresh[0])
        else:
            step /= 2
    best = max(tried, key=tried.__getitem__)
    return best, tried[best]


def starts_from(remembered: Candidate | None, families: Sequence[str]) -> list[Candidate]:
    """Where to begin: last round's winner, then the other families at its scale and with its carrier."""
    first = remembered if remembered and remembered.family in families else None
    like = first or Candidate(families[0])
    others = [replace(like, family=family) for family in families if family != like.family]
    return [like, *others]


def rows_of(candidate: Candidate, directions: Mapping[str, Tensor], mean: Tensor, own: Tensor) -> Tensor:
    """(P,) or (k, P) the updates that ``candidate`` stands for."""
    carrier = mean if candidate.carrier == "mean" else own
    return carrier + candidate.scale * directions[candidate.family]


@dataclass(eq=False)
class Adaptive(Attack):
    """An attacker that knows the rule, sees every benign update and owns labelled samples like the server's.

    Each round it rehearses: it splits its samples into a stand-in for the server's proxy data and samples to judge by,
    runs a copy of the real rule on the round's updates with candidate rows in place of its own, and measures the damage
    that the resulting global model takes on the judging samples.  After ``budget`` rehearsals the worst rows are
    sent.  Candidates are carrier + λ·direction: see ``directions`` for the five families and ``search`` for how λ
    is found.  The winner is remembered, and the next round's search starts there.

    budget      rehearsals per round, each as expensive as one aggregation
    damage      what to maximise: cross-entropy or error rate
    proxy_size  how many samples the stand-in has at most (the server's number, if known)
    held_out    how many samples judge at most
    steps       gradient steps to find a direction

    Against a rule that cannot be rehearsed (unknown, or no samples for its proxy) it rehearses FedAvg; without model or
    labelled samples damage is movement against the benign mean, with the two families that need no data.  Without
    a benign client its own honest updates stand in.
    """

    budget: int = 12
    damage: Literal["loss", "error"] = "loss"
    proxy_size: int = 128
    held_out: int = 512
    steps: int = 5
    winner: Candidate | None = field(default=None, init=False, repr=False)
    expected: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("budget", "proxy_size", "held_out", "steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)} must be at least 1")

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        mean = known.mean(dim=0)
        own = updates.deltas[malicious].nan_to_num(0.0, 0.0, 0.0)
        rehearse, directions = self.prepare(updates, malicious, knowledge, known)
        families = [name for name in FAMILIES if name in directions and length_of(directions[name]) > 0]
        if not families:
            return updates

        def damage(candidate: Candidate) -> float:
            return rehearse(rows_of(candidate, directions, mean, own))

        # A first search takes wide steps to find the order of magnitude, later ones stay near the last winner.
        step = 2.0 if self.winner is None else 1.0
        self.winner, self.expected = search(damage, starts_from(self.winner, families), self.budget, step)
        return send(updates, malicious, rows_of(self.winner, directions, mean, own))

    def prepare(
        self, updates: Updates, malicious: Tensor, knowledge: Knowledge, known: Tensor
    ) -> tuple[Rehearsal, dict[str, Tensor]]:
        """The rehearsal of this round and the directions to try, given the benign updates ``known`` (k, P)."""
        mean = known.mean(dim=0)
        radius = float(torch.linalg.vector_norm(known, dim=1, dtype=torch.float64).median())
        directions = watched(known, radius)
        server = replace(knowledge.server or Server(round=knowledge.round), teacher=None, proxy=None)
        server = replace(server, model=deepcopy(server.model))
        rule: Rule = knowledge.rule or FedAvg()
        score = progress_lost(updates, mean)
        samples = knowledge.samples
        if server.model is not None and samples is not None and samples.labels is not None and len(samples) > 1:
            where = updates.matrix.device
            stand_in, judges = halves(samples, self.proxy_size, self.held_out, knowledge.generator, where)
            assert stand_in.labels is not None
            assert judges.labels is not None
            victim = sacrificed(judges.labels, stand_in.labels, samples.num_classes)
            model = server.model.eval()
            start = middle_model(updates, mean)
            directions |= trained(updates, model, start, judges, victim, radius, self.steps)
            score = loss_on(updates, model, judges, self.damage)
            blind = rule.needs_proxy == "unlabelled"
            server = replace(server, proxy=replace(stand_in, labels=None) if blind else stand_in)
        seed = int(torch.randint(2**62, (1,), generator=knowledge.generator))
        return Rehearsal(updates, malicious, rule, server, seed, score), directions

    def metrics(self, predict: Callable[[Tensor], Tensor], dataset: Dataset) -> dict[str, float]:
        if self.winner is None:
            return {}
        return {"expected_damage": self.expected, "attack_scale": self.winner.scale}

    def state_dict(self) -> dict[str, Any]:
        return {} if self.winner is None else {**asdict(self.winner), "expected": self.expected}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        values = dict(state)
        self.expected = float(values.pop("expected", 0.0))
        self.winner = Candidate(**values) if values else None


def middle_model(updates: Updates, mean: Tensor) -> Tensor:
    """(d,) the global model after the benign mean step, with the mean buffers of the clients that screening keeps."""
    finite = torch.isfinite(updates.matrix.sum(dim=1, dtype=torch.float64))
    buffers = updates.matrix[finite, updates.spec.num_parameters :].mean(dim=0)
    return torch.cat([updates.origin[: updates.spec.num_parameters] + mean, buffers])

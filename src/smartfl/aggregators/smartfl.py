"""SmartFL: optimise the clients' weights on the server's own samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.agreement import agreeing, agreement
from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.batchnorm import BatchNormMode
from smartfl.aggregators.breadth import breadth
from smartfl.aggregators.calibration import CalibratedLoss, price_of_scale
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.knowledge import knowledge
from smartfl.aggregators.layers import layers_apart
from smartfl.aggregators.mistrust import Mistrust
from smartfl.aggregators.proxy import (
    client_logits,
    finite_clients,
    global_model_kept,
    labels_of,
    minibatches,
    require_proxy,
)
from smartfl.aggregators.restraint import free_parameters, restrained
from smartfl.aggregators.shortening import within_reach
from smartfl.aggregators.simplex_descent import Descent, SteadyAdam, check_search, descend, row_dots
from smartfl.errors import UserError
from smartfl.optimizers import FlatAdam
from smartfl.types import Aggregate, NeedsProxy, Proxy, Server, Updates


@dataclass(frozen=True, eq=False)
class Task:
    """What a round's search is given: samples, their random order, the loss of w^t on them, the round's number."""

    proxy: Proxy
    generator: torch.Generator
    before: float
    round: int


@dataclass(frozen=True, eq=False)
class Found:
    """Weights p (n,) or (L, n), where their search began (n,), what there is to say of it, and what went wrong."""

    p: Tensor
    start: Tensor
    info: dict[str, float]
    events: tuple[str, ...]


@dataclass(frozen=True)
class SmartFL(Aggregator):
    """w ← Σ p_i w_i with p = argmin over the simplex of the proxy loss of Σ p_i w_i.

    Xie et al., arXiv 2211.05554, Algorithm 1.  ``variant``

        literal      the paper to the letter: Adam on p with the raw gradient ⟨∂L/∂w, w_i⟩, projection after every
                     mini-batch, cross-entropy, last iterate
        centred      the same without the part that all clients' gradients share, because of which Adam hardly moves p
        calibrated   centred, on the class-balanced loss  min_{s ≥ 1} CE(s·z_{w(p)} + ln π, y) + λs,  s refitted every
                     epoch, classes without samples discounted (``log_prior``), small gradients not magnified
                     (``SteadyAdam``), no update longer than twice the median one, started at the FedAvg weights, at
                     the clients that agree with the server's gradient (``agreeing``) or between them, whichever has the
                     lowest loss (``init = "best"``), a weight for every layer of a client's model, with a memory of
                     what past rounds hold against a client, and drawn back towards equal weights as far as 128 samples
                     do not speak against it (``restrained``); where logits are linear in the parameters, then a
                     weight for every class

    Cross-entropy at s = 1 mistakes small logits for bad ones, and a free scale (λ = 0) does not mind
    clients that only dilute, as attackers do.  λ = ``penalty`` · ζ √(2 ln n / N) is the price at which a client must
    earn its place (docs/method.md).  The paper uses 20 server epochs, 50 under attack, on 128 samples, and starts at
    the FedAvg weights; ``init`` overrides where the variant starts.  Reported sample counts move FedAvg weights, and
    with them "best"; they do not move "agreement" and "uniform".
    ``batchnorm`` says whose running statistics the model gets (docs/batchnorm.md): re-estimated ones in all variants,
    while the paper, which does not speak of them, is reproduced with "mixed" in the presets' literal rows.
    ``mistrust`` = κ is how much memory counts: weight on client i, in any layer, costs κ λ e_i more, where e_i in
    [0, 1] is what past rounds hold against it (``Mistrust``), and κ λ s if it is in a camp that contradicts the labels
    (4 κ λ s where logits are linear in the parameters); if that camp is no more than half of a round and the others
    have many classes each, these search without it first, and only if they fail does it take part.  Ids must mean the
    same client in every round.  0 is a server without memory, as the paper's; the calibrated variant has ½ unless told.
    With a memory, an instance belongs to one federation.
    ``restraint`` is how much a fitted weight must gain to be followed, while the proxy loss does not rise from round to
    round (``restrained``); 0 follows every one, as the paper does, the calibrated variant has ½ unless told.
    ``layered``: layer l of the new model is Σ p_li w_li with weights p_l of its own, on the simplex each; all start
    where one p would.  What attackers have spoilt in one layer then does not take the others from those who are needed
    for them.  Unless clients have many classes each, all layers share one p after as many rounds as the samples bear
    (``layers_apart``).  A model whose logits are linear in its parameters (``linear_in_parameters`` says so) gets one
    p, and from there the rows of every class c their own p_c, drawn back to p as far as they gain no more than chance.
    False is one p for all, as the paper has it; the calibrated variant has layers unless told.  The reported
    coefficient of a client is its share of the parameters, Σ_l p_li d_l / d.
    A single client's model is shipped as it is.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"
    widens: ClassVar[bool] = True
    reach: ClassVar[float] = 2.0  # median lengths: honest updates of very unequal clients hardly ever exceed it

    variant: Literal["calibrated", "centred", "literal"] = "calibrated"
    server_epochs: int = 20
    lr: float = 1e-2
    batch_size: int = 32
    init: Literal["best", "agreement", "fedavg", "uniform"] | None = None
    penalty: float = 0.5
    batchnorm: BatchNormMode = "reestimate"
    mistrust: float | None = None
    restraint: float | None = None
    layered: bool | None = None
    _past: Mistrust = field(default_factory=Mistrust, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_search(self.server_epochs, self.batch_size, self.lr)
        if not self.penalty >= 0:
            raise UserError(f"penalty = {self.penalty} must be at least 0")
        if self.mistrust is not None and not self.mistrust >= 0:
            raise UserError(f"mistrust = {self.mistrust} must be at least 0")
        if self.mistrust and (self.variant != "calibrated" or self.penalty == 0):
            raise UserError(f"mistrust = {self.mistrust} needs the calibrated variant and a penalty, which is its unit")
        if self.restraint is not None and not self.restraint >= 0:
            raise UserError(f"restraint = {self.restraint} must be at least 0")
        if self.restraint and self.variant != "calibrated":
            raise UserError(f"restraint = {self.restraint} needs the calibrated variant")
        if self.layered and self.variant != "calibrated":
            raise UserError("layered = true needs the calibrated variant")
        # What follows from the variant is written out, so that the records of a run say what it was.
        if self.init is None:
            object.__setattr__(self, "init", "best" if self.variant == "calibrated" else "fedavg")
        if self.mistrust is None and self.variant == "calibrated":
            object.__setattr__(self, "mistrust", 0.5 if self.penalty else 0.0)
        if self.restraint is None and self.variant == "calibrated":
            object.__setattr__(self, "restraint", 0.5)
        if self.layered is None and self.variant == "calibrated":
            object.__setattr__(self, "layered", True)

    def tolerates(self, n: int) -> int | None:
        return None

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        if self.server_epochs == 0:
            return weighted(updates, self._plain(updates))
        if len(updates) == 1:
            keep, why = finite_clients(updates, client_logits(updates, model, proxy.inputs))
            return weighted(updates, self._plain(updates)) if keep.all() else global_model_kept(updates, *why)
        shorter = 0
        if self.variant == "calibrated":
            updates, shorter = within_reach(updates, self.reach)
        hull = Hull(updates, model, proxy.inputs, self.batchnorm)
        earlier, before, cosines = self._past.state_dict(), math.inf, None
        if self.variant == "calibrated" or self.init in ("best", "agreement"):
            loss = self._loss(hull, proxy)
            cosines = agreement(hull, updates, loss)
            before = loss.fit(loss.latest)  # of w^t, where the agreement was taken
            if self.mistrust:
                self._take_up(hull, updates.ids, loss)
        events: tuple[str, ...] = ()
        task = Task(proxy, server.generator, before, server.round)
        found = self._by_themselves(hull, updates, cosines, task)
        if found is None:
            start = self._start(hull, updates, proxy, cosines)
            if not torch.isfinite(hull.logits(start)).all():
                if (without := self._without_overflowing(hull, updates, server, earlier)) is not None:
                    return without
                start = best_client(hull, labels_of(proxy))
                events = ("their mix overflows: started at the best client",)
            found = self._find(hull, start, task, updates.ids)
        remembered = self._remember(hull, found.p, proxy, updates.ids)
        vector, logits = hull.result(found.p)
        if not torch.isfinite(logits).all():  # the last step went too far, and no gradient told
            found = replace(found, p=found.start, events=(*found.events, "the mix found overflows: the start is kept"))
            vector, logits = hull.result(found.start)
        if not torch.isfinite(logits).all():  # it cannot be shipped, though it had logits by the batch's statistics
            if (without := self._without_overflowing(hull, updates, server, earlier)) is not None:
                return without
            taken = "their mix overflows: the best client is taken"
            found = replace(found, p=best_client(hull, labels_of(proxy)), events=(*found.events, taken))
            vector = hull.model_at(found.p)
        share = hull.shares(found.p)
        info = {
            "moved": float((share - updates.weights.cpu()).abs().sum()),
            "effective_clients": float(1 / (share**2).sum()),
            "shortened": shorter,
            **found.info,
            **remembered,
        }
        return Aggregate(vector, share, info, events + found.events)

    def _by_themselves(self, hull: Hull, updates: Updates, cosines: Tensor | None, task: Task) -> Found | None:
        """What is found among clients who do not contradict; None if nobody does, or if the others are not enough.

        They are enough if memory says so (``Mistrust.left_out``) and the loss is above that of the last global model
        by no more than chance, restraint · Σ_l df_l / N (``free_parameters``).  Here chance excuses a rise: what else a
        search finds with contradictors in it, it may owe to them.
        """
        out = self._past.left_out(updates.ids)
        if not out.any():
            return None
        where = torch.nonzero(~out).flatten()
        others = updates.select(where)
        face = hull.among(where, others)
        start = self._start(face, others, task.proxy, None if cosines is None else cosines[where])
        found = self._find(face, start, task, others.ids)

        def among_all(p: Tensor) -> Tensor:
            return p.new_zeros(*p.shape[:-1], len(out)).index_copy(-1, where, p)

        p, rest = among_all(found.p), self._past.trusted(updates.ids)
        after = self._loss(hull, task.proxy).fit(hull.logits(p))
        chance = (self.restraint or 0.0) * float(free_parameters(p, rest).sum()) / len(task.proxy)
        if after == math.inf or after > task.before + chance:  # ∞ is not above ∞, the loss of a model that overflows
            return None
        return replace(found, p=p, start=among_all(start), info={**found.info, "left_out": int(out.sum())})

    def _find(self, hull: Hull, start: Tensor, task: Task, ids: Sequence[int]) -> Found:
        """The search from ``start`` (n,), and how far it is followed."""
        search = self._optimise(hull, start, task, ids)
        p, drawn_back = self._restrain(hull, without_dust(search.p), task, ids)
        search, apart = self._by_class(hull, replace(search, p=without_dust(p)), task, ids)
        return Found(search.p, start, {"steps": search.steps, **drawn_back, **apart}, search.events)

    def _start(self, hull: Hull, updates: Updates, proxy: Proxy, cosines: Tensor | None) -> Tensor:
        """(n,) float64 where ``init`` says that the search begins; ``cosines`` (n,) tell who agrees."""
        if self.init not in ("best", "agreement") or cosines is None:
            return self._plain(updates)
        return self.choose_start(hull, updates, proxy, agreeing(cosines))

    def _plain(self, updates: Updates) -> Tensor:
        """(n,) float64 weights that take no samples: equal ones if ``init`` wants them, or FedAvg's."""
        equal = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        return equal if self.init == "uniform" else updates.weights.cpu()

    def choose_start(self, hull: Hull, updates: Updates, proxy: Proxy, agreed: Tensor | None) -> Tensor:
        """(n,) float64 ``agreed``, the agreeing clients' weights, or the best of these, FedAvg's and their mean."""
        fedavg = updates.weights.cpu()
        if agreed is None or self.init == "agreement":
            return fedavg if agreed is None else agreed
        loss = self._loss(hull, proxy)
        dear = self._dear(hull, loss, updates.ids)
        starts = (fedavg, agreed, (fedavg + agreed) / 2)
        return min(starts, key=lambda p: loss.value(hull.logits(p)) + float(dear @ p))

    def _loss(self, hull: Hull, proxy: Proxy) -> CalibratedLoss:
        """The calibrated loss before anything is known of the logits: scale 1."""
        price = self.penalty * price_of_scale(hull.logit_scale(), len(hull.matrix), len(proxy)) if self.penalty else 0.0
        return CalibratedLoss.of(labels_of(proxy), proxy.num_classes, price)

    def _take_up(self, hull: Hull, ids: Sequence[int], loss: CalibratedLoss) -> None:
        """What the round says of its clients before the search; ``loss`` has last seen the logits of w^t."""
        heard = self._past.to_hear(ids)
        if not heard:
            return
        opinions = hull.opinions(heard)
        seen = slice(opinions.shape[1])
        asked = opinions, loss.latest[seen], loss.labels[seen]
        self._past.learn([ids[place] for place in heard], knowledge(*asked, loss.weights[seen]), breadth(*asked))

    def _without_overflowing(
        self, hull: Hull, updates: Updates, server: Server, earlier: dict[str, Any]
    ) -> Aggregate | None:
        """The rule without clients whose own model, as it would be shipped, overflows; None if there are none.

        ``earlier`` is what was known before the round: of this round only those are taken up who are left, and once.
        """
        keep, events = finite_clients(updates, hull.each_result())
        if keep.all():
            return None
        self._past.load_state_dict(earlier)
        return self._among(keep, updates, server, events) if keep.any() else global_model_kept(updates, *events)

    def _among(self, keep: Tensor, updates: Updates, server: Server, events: tuple[str, ...]) -> Aggregate:
        """The rule on the clients that ``keep`` (n,) marks; a finite but huge row overflows in the forward pass."""
        where = torch.nonzero(keep).flatten().cpu()
        found = self.aggregate(updates.select(where), server)
        assert found.coefficients is not None
        p = torch.zeros(len(updates), dtype=torch.float64).index_copy(0, where, found.coefficients.cpu())
        return replace(found, coefficients=p, events=events + found.events)

    def _dear(self, hull: Hull, loss: CalibratedLoss, ids: Sequence[int]) -> Tensor:
        """(n,) what weight on each client costs for what past rounds hold against it; 0 without memory.

        Damage was measured in units of λ and is charged in them.  Who contradicts pays for the whole scale, λs: where
        logits are small and s is large, so are gradients, and λ alone would not be noticed.  A linear model takes four
        times that, and label flippers need it there; a net of clients of one class each does not, because it learns
        from what attackers have left right.  The search charges it in every layer or class, whose gradients are parts
        of the whole: L times as much for weight in all.
        """
        contradiction = loss.scale if hull.vertices is None else 4 * loss.scale
        held = torch.where(self._past.contradict(ids), contradiction, self._past.of(ids))
        return (self.mistrust or 0.0) * loss.price * held

    def _restrain(self, hull: Hull, p: Tensor, task: Task, ids: Sequence[int]) -> tuple[Tensor, dict[str, float]]:
        """p, drawn back towards equal weights on clients against whom nothing is held; says how far."""
        if not self.restraint:
            return p, {}
        loss = self._loss(hull, task.proxy)
        rest = self._past.trusted(ids)
        p, t = restrained(p, rest, lambda q: loss.fit(hull.logits(q)), task.before, len(task.proxy), self.restraint)
        return p, {"drawn_back": t}

    def _by_class(self, hull: Hull, found: Descent, task: Task, ids: Sequence[int]) -> tuple[Descent, dict[str, float]]:
        """(C, n) weights for every class, searched from p (n,) of ``found`` and drawn back towards it; says how far.

        Only of a model that is linear in its parameters; otherwise, and where nothing is left of them, p itself.
        Every class can fit the samples by itself, so their df are added up, not averaged as those of layers.
        """
        start = hull.by_class(found.p) if self.layered else None
        if start is None:
            return found, {}
        search = self._search(hull, start, task, ids)
        p, back = without_dust(search.p), {}
        if self.restraint:
            loss, strength, samples = self._loss(hull, task.proxy), self.restraint * len(start), len(task.proxy)
            rows, t = restrained(p, found.p, lambda q: loss.fit(hull.logits(q)), task.before, samples, strength)
            p, back = found.p if t == 1 else without_dust(rows), {"classes_drawn_back": t}
        return Descent(p, found.steps + search.steps, found.events + search.events), back

    def _remember(self, hull: Hull, p: Tensor, proxy: Proxy, ids: Sequence[int]) -> dict[str, float]:
        """Take up a round that ended at p; says how many of its clients had more than ½ held against them before, and
        how broad clients are."""
        if not self.mistrust:
            return {}
        mistrusted = int((self._past.of(ids) > 0.5).sum())
        self._past.observe(ids, self._cost_of_steps(hull, p, proxy))
        return {"mistrusted": mistrusted, "breadth": self._past.breadth()}

    def _cost_of_steps(self, hull: Hull, p: Tensor, proxy: Proxy) -> Tensor:
        """(n,) what a step from p, (n,) or (L, n), towards each client costs on all samples, in units of λ."""
        loss = self._loss(hull, proxy)
        # The logits of all samples are at hand in the pass itself: the scale takes none more.
        _, g = hull.gradient(p, torch.arange(len(proxy)), lambda logits, index: loss.refitted(logits)(logits, index))
        return (g - row_dots(g, p)).view(-1, len(hull.matrix)).sum(dim=0) / loss.price

    def _optimise(self, hull: Hull, start: Tensor, task: Task, ids: Sequence[int]) -> Descent:
        if self.variant == "calibrated":
            apart = self._past.many_classes() or layers_apart(len(hull.parts), task.round, len(task.proxy))
            return self._search(hull, hull.by_layer(start) if self.layered and apart else start, task, ids)
        labels = labels_of(task.proxy)

        def plain(logits: Tensor, index: Tensor) -> Tensor:
            return F.cross_entropy(logits, labels[index])

        return descend(
            start,
            gradient=lambda p, index: hull.gradient(p, index, plain),
            batches=self._batches(task),
            optimizer=FlatAdam(self.lr),
            centre=self.variant == "centred",
        )

    def _batches(self, task: Task) -> list[Iterable[Tensor]]:
        """The mini-batches of every epoch, in random order."""
        return [minibatches(len(task.proxy), self.batch_size, 1, task.generator) for _ in range(self.server_epochs)]

    def _search(self, hull: Hull, start: Tensor, task: Task, ids: Sequence[int]) -> Descent:
        """The calibrated search from ``start``, (n,) or (L, n) with equal rows."""
        one = start.view(-1, len(ids))[0]  # the hull has the logits there already
        loss = self._loss(hull, task.proxy).refitted(hull.logits(one))
        dear = self._dear(hull, loss, ids)

        def gradient(p: Tensor, index: Tensor) -> tuple[float, Tensor]:
            value, g = hull.gradient(p, index, loss)
            return value + float((p @ dear).sum()), g + dear

        return descend(
            start,
            gradient=gradient,
            batches=self._batches(task),
            optimizer=SteadyAdam(self.lr),
            centre=True,
            each_epoch=lambda p: loss.refit(),
            decay=True,
        )

    def state_dict(self) -> dict[str, Any]:
        return self._past.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._past.load_state_dict(state)


def without_dust(p: Tensor) -> Tensor:
    """p without weights below a thousandth of an equal share: on a row a thousand times too large they still tell."""
    kept = torch.where(p < 1e-3 / p.shape[-1], 0.0, p)
    return kept / kept.sum(dim=-1, keepdim=True)


def best_client(hull: Hull, labels: Tensor) -> Tensor:
    """(n,) float64 the corner of the simplex with the lowest proxy loss; one that has none is the worst."""
    corners = torch.eye(len(hull.matrix), dtype=torch.float64)
    losses = [F.cross_entropy(hull.logits(corner).to(torch.float64), labels) for corner in corners]
    return corners[torch.stack(losses).nan_to_num(torch.inf, torch.inf).argmin()]

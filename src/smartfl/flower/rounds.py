"""What a round of a deployment leaves behind: a record, and lines in Flower's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from flwr.app import MetricRecord

from smartfl.confidence import weight_statement
from smartfl.flower.records import log
from smartfl.records.round import RoundRecord, Seconds
from smartfl.types import Aggregate, Dropped, Updates

Statement = tuple[float | None, dict[str, float], tuple[str, ...]]


class RoundLog:
    """Collects a round's record as the round goes on; ``name`` says what a client's node is called."""

    def __init__(self, name: Callable[[int], str]) -> None:
        self._name = name

    def begin(self, t: int) -> None:
        self._t, self._started = t, time.perf_counter()
        self._reported: dict[str, float] = {}

    def trained(self) -> None:
        self._trained = time.perf_counter()

    def aggregated(
        self,
        updates: Updates,
        aggregate: Aggregate,
        absent: Sequence[Dropped],
        statement: Statement,
        metrics: MetricRecord | None,
    ) -> None:
        """The rule's work: who has which weight, who was refused or absent and why."""
        self._updates, self._aggregate, self._statement = updates, aggregate, statement
        self._dropped = tuple(sorted([*(updates.dropped or ()), *absent], key=lambda d: d.id))
        self._reported |= _plain("train", metrics)
        self._aggregated = time.perf_counter()
        refused = len(self._dropped) - len(absent)
        log.info("Round %d: %d accepted, %d refused, %d absent", self._t, len(updates), refused, len(absent))
        if aggregate.coefficients is not None and len(updates):
            weights = zip(updates.ids, aggregate.coefficients.tolist(), strict=True)
            log.info("\tweights: %s", ", ".join(f"{self._name(i)} {p:.3f}" for i, p in weights))
        self._say_dropped(self._dropped)
        for event in aggregate.events:
            log.warning("\t%s", event)
        for warning in statement[2]:
            log.warning("\t%s", warning)

    def evaluated(self, metrics: MetricRecord | None, without: Sequence[Dropped]) -> None:
        """What nodes say of the new model."""
        self._reported |= _plain("evaluate", metrics)
        self._say_dropped(without)

    def finished(self, tested: MetricRecord | None) -> RoundRecord:
        """The record.  Accuracy and loss are the server's own, else what nodes reported, who may lie."""
        updates, aggregate, (proxy_loss, trust, warnings) = self._updates, self._aggregate, self._statement
        weights = None if aggregate.coefficients is None else aggregate.coefficients.tolist()
        shares = None if weights is None else dict(zip(updates.ids, weights, strict=True))
        ids = tuple(sorted({*updates.ids, *(d.id for d in self._dropped)}))
        own = _plain("", tested)
        return RoundRecord(
            round=self._t,
            accuracy=own.get("accuracy", self._reported.get("evaluate/accuracy")),
            loss=own.get("loss", self._reported.get("evaluate/loss")),
            proxy_loss=proxy_loss,
            malicious_mass=None,  # nobody knows who is
            seconds=Seconds(
                self._trained - self._started, self._aggregated - self._trained, time.perf_counter() - self._aggregated
            ),
            ids=ids,
            coefficients=None if shares is None else tuple(shares.get(i, 0.0) for i in ids),
            malicious=(),
            dropped=self._dropped,
            info={k: float(v) for k, v in aggregate.info.items()}
            | trust
            | weight_statement([aggregate], len(ids))
            | self._reported,
            events=aggregate.events,
            warnings=warnings,
        )

    def _say_dropped(self, without: Sequence[Dropped]) -> None:
        for dropped in without:
            log.warning("\twithout %s: %s", self._name(dropped.id), dropped.reason)


def _plain(prefix: str, metrics: MetricRecord | None) -> dict[str, float]:
    """The single numbers of a MetricRecord."""
    items = {} if metrics is None else dict(metrics.items())
    return {f"{prefix}/{k}" if prefix else k: float(v) for k, v in items.items() if isinstance(v, int | float)}

"""One record of a round from what was aggregated in each group of one architecture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from smartfl.records.round import RoundRecord, Seconds

if TYPE_CHECKING:
    from smartfl.types import Aggregate, Updates


def join_groups(
    t: int,
    accuracy: float | None,
    loss: float | None,
    proxy_loss: float | None,
    seconds: Seconds,
    updates: list[Updates],
    aggregates: list[Aggregate],
    malicious: frozenset[int],
    extra: dict[str, float],
    warnings: tuple[str, ...] = (),
) -> RoundRecord:
    """Join the groups' results, ordered by client id; with G groups each group's coefficients count for 1/G."""
    weights: dict[int, float] = {}
    for group, aggregate in zip(updates, aggregates, strict=True):
        if aggregate.coefficients is not None:
            share = aggregate.coefficients / len(updates)
            weights |= dict(zip(group.ids, share.tolist(), strict=True))
    ids = sorted(i for group in updates for i in group.ids)
    known = all(a.coefficients is not None for a in aggregates)
    info: dict[str, float] = {}
    for g, aggregate in enumerate(aggregates):
        prefix = f"model{g}/" if len(aggregates) > 1 else ""
        info |= {f"{prefix}{k}": float(v) for k, v in aggregate.info.items()}
    dropped = tuple(d for a in aggregates for d in a.dropped)
    if set(ids) <= {d.id for d in dropped}:
        warnings += ("every client of the round was refused: the global model is kept (rounds.jsonl has the reasons)",)
    return RoundRecord(
        round=t,
        accuracy=accuracy,
        loss=loss,
        proxy_loss=proxy_loss,
        malicious_mass=math.fsum(weights.get(i, 0.0) for i in malicious) if known else None,
        seconds=seconds,
        ids=tuple(ids),
        coefficients=tuple(weights.get(i, 0.0) for i in ids) if known else None,
        malicious=tuple(sorted(malicious)),
        dropped=dropped,
        info=info | extra,
        events=tuple(e for a in aggregates for e in a.events),
        warnings=warnings,
    )

"""Refuse rows that no rule may see: 0 · NaN = NaN, so a bad row poisons a weighted sum even at weight 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from smartfl.flat import FlatSpec
from smartfl.guard import guarded
from smartfl.messages import Refused, read_count, read_row, read_steps
from smartfl.types import Aggregate, Dropped, Server, Updates

Storage = Literal["float32", "bfloat16", "float16"]
BLOCK = 1 << 20  # values of a suspicious row that are looked at together


def screen(updates: Updates) -> Updates:
    """The valid clients of ``updates``; ``dropped`` says who was refused and why.

    A client is invalid if a value of its row is NaN or ±Inf, a running variance is negative, or its sample
    count is negative or not finite, or its number of steps is negative.  A count of 0 is legal.
    """
    if updates.dropped is not None:
        return updates
    reasons: dict[int, str] = {}
    # A row with NaN or ±Inf has no finite sum: one pass at memory bandwidth, and in the rows' own type no (n, d)
    # temporary.  A sum may also overflow over finite values, so such rows are looked at value by value.
    totals = updates.matrix.sum(dim=1)
    for i in torch.nonzero(~torch.isfinite(totals)).flatten().tolist():
        where = _first_not_finite(updates.matrix[i])
        if where is not None:
            reasons[i] = f"value {where} of its model is {updates.matrix[i, where].item()}"
    for where_var in updates.spec.variances:
        negative = (updates.matrix[:, where_var] < 0).any(dim=1)
        for i in torch.nonzero(negative).flatten().tolist():
            reasons.setdefault(i, "a running variance is negative")
    counts = updates.num_examples
    for i in torch.nonzero(~torch.isfinite(counts) | (counts < 0)).flatten().tolist():
        reasons.setdefault(i, f"its sample count is {counts[i].item():g}")
    for i in torch.nonzero(updates.num_steps < 0).flatten().tolist():
        reasons.setdefault(i, f"its step count is {int(updates.num_steps[i])}")
    dropped = tuple(Dropped(updates.ids[i], reasons[i]) for i in sorted(reasons))
    if not reasons:
        return replace(updates, dropped=())
    return replace(updates.select([i for i in range(len(updates)) if i not in reasons]), dropped=dropped)


def _first_not_finite(row: Tensor) -> int | None:
    """The position of the first NaN or ±Inf of ``row`` (d,)."""
    for start in range(0, len(row), BLOCK):
        bad = ~torch.isfinite(row[start : start + BLOCK])
        if bad.any():
            return start + int(torch.nonzero(bad)[0])
    return None


def collect(
    rows: Mapping[int, Any],
    num_examples: Mapping[int, Any],
    origin: Tensor,
    spec: FlatSpec,
    num_steps: Mapping[int, Any] | None = None,
    storage: Storage | None = None,
) -> Updates:
    """Screened updates from messages that may hold anything (what arrives over a network).

    A client is refused whatever is wrong with its row, sample count or number of steps: absent, of another type or
    shape, too large for a float.  ``storage`` "bfloat16" or "float16" holds the matrix at half the size; rules compute
    in float32 all the same.  A value beyond float16 (65,504) is refused as infinite.
    """
    read: dict[int, tuple[Tensor, float, int]] = {}
    refused = []
    for i, row in rows.items():
        try:
            steps = 1 if num_steps is None else read_steps(num_steps.get(i))
            read[i] = read_row(row, spec.size), read_count(num_examples.get(i)), steps
        except Refused as error:
            refused.append(Dropped(i, str(error)))
    ids = sorted(read)
    dtype = origin.dtype if storage is None else getattr(torch, storage)
    matrix = torch.empty((len(ids), spec.size), dtype=dtype, device=origin.device)
    for place, i in zip(matrix, ids, strict=True):
        place.copy_(read[i][0])
    counts, steps_made = [read[i][1] for i in ids], [read[i][2] for i in ids]
    updates = screen(
        Updates.of(
            matrix,
            torch.tensor(counts, dtype=torch.float64),
            origin,
            num_steps=torch.tensor(steps_made, dtype=torch.int64),
            ids=ids,
            spec=spec,
        )
    )
    both = sorted([*(updates.dropped or ()), *refused], key=lambda d: d.id)
    return replace(updates, dropped=tuple(both))


def screened(rule: Callable[[Updates, Server | None], Aggregate], updates: Updates, server: Server | None) -> Aggregate:
    """Screen, run ``rule`` on the survivors, and give the refused clients weight 0 in the result.

    With no survivor the global model stays as it was, and so it does where the rule's result is not finite.
    """
    clean = screen(updates)
    dropped = clean.dropped or ()
    if len(clean) == 0:
        zeros = torch.zeros(len(updates), dtype=torch.float64)
        event = f"no valid client among {len(updates)}: the global model is kept"
        return Aggregate(updates.origin.clone(), zeros, events=(event,), dropped=dropped)
    result = guarded(rule(clean, server), rule, clean)
    coefficients = result.coefficients
    if coefficients is not None and len(clean) < len(updates):
        place = {client: i for i, client in enumerate(updates.ids)}
        full = coefficients.new_zeros(len(updates))
        full[[place[client] for client in clean.ids]] = coefficients
        coefficients = full
    return replace(result, coefficients=coefficients, dropped=dropped)

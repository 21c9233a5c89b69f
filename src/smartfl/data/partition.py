"""Distribute the training samples over the clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from smartfl import registry
from smartfl.errors import UserError

Index = np.ndarray[Any, np.dtype[np.int64]]

SHARED_SETTINGS = ("alpha", "shards_per_client")


def partition(
    name: str,
    labels: Index,
    clients: int,
    rng: np.random.Generator,
    num_classes: int,
    settings: Mapping[str, Any],
) -> list[Index]:
    """One sorted array of positions in ``labels`` per client, disjoint; a client may be empty, a sample unused.

    ``settings`` are those of ``[data]``: ``alpha`` and ``shards_per_client`` go only to partitions that take them.
    """
    if not 1 <= clients <= len(labels):
        raise UserError(f"data.clients = {clients} is accepted from 1 to {len(labels)}, the number of training samples")
    alpha = settings.get("alpha")
    if isinstance(alpha, int | float) and not (math.isfinite(alpha) and alpha > 0):
        raise UserError(f"data.alpha = {alpha} is not accepted: it must be a finite number above 0")
    accepted = registry.parameters(registry.resolve("partitions", name, "data.partition"))
    given = {k: v for k, v in settings.items() if v is not None and (k in accepted or k not in SHARED_SETTINGS)}
    context = {"labels": labels, "clients": clients, "rng": rng, "num_classes": num_classes}
    parts: list[Index] = registry.build("partitions", name, given, "data", context, key="data.partition")
    _check(name, parts, clients, len(labels))
    return parts


def _check(name: str, parts: list[Index], clients: int, samples: int) -> None:
    """A partition from elsewhere must not hand a sample to two clients: every result would look too good."""
    if len(parts) != clients:
        raise UserError(f"data.partition = '{name}' made {len(parts)} parts for data.clients = {clients}")
    every = np.concatenate(parts)
    if len(every) and not 0 <= int(every.min()) <= int(every.max()) < samples:
        raise UserError(f"data.partition = '{name}' returned positions outside 0 … {samples - 1}")
    if len(np.unique(every)) != len(every):
        raise UserError(f"data.partition = '{name}' gave a sample to more than one client; parts must be disjoint")

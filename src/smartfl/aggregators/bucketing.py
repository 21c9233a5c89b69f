"""Bucketing: a rule on the means of random groups of clients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast

import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.blocks import for_blocks
from smartfl.aggregators.wrapper import Wrapper
from smartfl.errors import UserError
from smartfl.products import arithmetic
from smartfl.types import Aggregate, Server, Updates

MOST = torch.finfo(torch.float64).max / 2  # that n counts may add up to, rounding included


@dataclass(frozen=True)
class Bucketing(Wrapper):
    """``rule`` on the ⌈n/s⌉ means of a fresh random partition of the clients into buckets of s.

    Karimireddy, He & Jaggi 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing": the means differ
    less between each other than the clients do. One attacker spoils its whole bucket, so the rule inside assumes the
    *same* f among fewer rows: a given f is passed on as it is, a fraction is of the clients and not of the buckets.
    The permutation comes from the server's generator. A bucket's sample count is its clients' sum, its step count
    their rounded mean, its id the smallest of theirs. A bucket's coefficient is shared equally by its clients; buffers
    are averaged like parameters. s = 1 is the rule itself. O(n d) besides the rule. SmartFL inside, however deep, has
    no memory of clients (``mistrust`` = 0): what a bucket did is held against one of its clients, who may be honest.
    FoolsGold and S-FedAvg are nothing without their memory of clients, and not meant to be inside.
    """

    rule: Aggregator
    size: int = 2

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"size = {self.size} must be 1 or more")
        if self.size > 1:
            object.__setattr__(self, "rule", _changed(self.rule, _no_memory))

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n, server = len(updates), server or Server()
        order = torch.randperm(n, generator=server.generator, device=server.generator.device).tolist()
        groups = sorted(sorted(order[i : i + self.size]) for i in range(0, n, self.size))
        share = torch.zeros((len(groups), n), dtype=torch.float64, device=updates.matrix.device)
        for bucket, members in enumerate(groups):
            share[bucket, members] = 1 / len(members)
        buckets = replace(
            updates,
            ids=tuple(updates.ids[members[0]] for members in groups),
            matrix=_means(updates.matrix, groups),
            num_examples=(share > 0).to(torch.float64) @ updates.num_examples.clamp_max(MOST / n),
            num_steps=(share @ updates.num_steps.to(torch.float64)).round().to(torch.int64),
            planned=None if updates.planned is None else -(-updates.planned // self.size),
            bundled=updates.senders,
        )
        result = self.rule(buckets, server)
        coefficients = result.coefficients
        if coefficients is not None:
            coefficients = share.T @ coefficients.to(share.device, torch.float64)
        return replace(result, coefficients=coefficients, info={**result.info, "buckets": len(groups)})

    def tolerates(self, n: int) -> int | None:
        buckets = -(-n // self.size)

        def of_buckets(rule: Aggregator) -> dict[str, Any]:
            fraction = getattr(rule, "fraction", None)
            return {} if fraction is None else {"fraction": min(1.0, fraction * n / max(1, buckets))}

        return _changed(self.rule, of_buckets).tolerates(buckets)


def _means(matrix: torch.Tensor, groups: list[list[int]]) -> torch.Tensor:
    """(buckets, d) the mean of each group's rows, added up row by row: gathering them would copy the matrix."""
    out = torch.empty((len(groups), matrix.shape[1]), dtype=arithmetic(matrix.dtype), device=matrix.device)

    def average(bucket: slice) -> None:
        row, (first, *others) = out[bucket.start], groups[bucket.start]
        row.copy_(matrix[first])
        if not others:
            return
        # Two rows near the largest float must not add up to Inf; a power of two changes no digit of the mean.
        small = 0.5 ** math.ceil(math.log2(len(others) + 1))
        row.mul_(small)
        for member in others:
            row.add_(matrix[member], alpha=small)
        row.div_((len(others) + 1) * small)

    for_blocks(average, len(groups), block=1)
    return out


def _changed(rule: Aggregator, changes: Callable[[Aggregator], dict[str, Any]]) -> Aggregator:
    """``rule`` with ``changes`` to its settings and to those of the rules inside it: new ones, without their state.

    A rule in which nothing changes is itself.
    """
    if not is_dataclass(rule):
        return rule
    settings = changes(rule)
    if isinstance(inner := getattr(rule, "rule", None), Aggregator):
        changed = _changed(inner, changes)
        if changed is not inner:
            settings["rule"] = changed
    return cast(Aggregator, replace(rule, **settings)) if settings else rule


def _no_memory(rule: Aggregator) -> dict[str, Any]:
    return {"mistrust": 0.0} if getattr(rule, "mistrust", None) else {}

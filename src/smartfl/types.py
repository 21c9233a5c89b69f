"""The plain values that flow through the house: Updates → (screening, rule) → Aggregate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from smartfl.flat import FlatSpec
from smartfl.products import arithmetic, mix_rows
from smartfl.records.round import Dropped as Dropped

NeedsProxy = Literal["no", "unlabelled", "labelled"]


@dataclass(frozen=True, eq=False)
class Updates:
    """What a round's clients sent, sorted by client id.

    ids            n client ids, ascending
    matrix         (n, d) client models, one row each, laid out as ``spec`` says; may be a mapped file, and stored in
                   half precision (docs/speed.md), which rules widen to the origin's type as they go
    num_examples   (n,) float64, the sample counts that the clients *report*
    num_steps      (n,) int64, optimiser steps they made
    origin         (d,) the global model that they started from
    spec           which columns are parameters and which are buffers
    dropped        clients refused by screening; None while nobody has screened
    planned        how many rows a full round has, where fewer may come; None: these are all there are to be
    bundled        how many clients, refused ones included, stand behind rows that are means of several (bucketing);
                   None: every row is a client's own
    """

    ids: tuple[int, ...]
    matrix: Tensor
    num_examples: Tensor
    num_steps: Tensor
    origin: Tensor
    spec: FlatSpec
    dropped: tuple[Dropped, ...] | None = None
    planned: int | None = None
    bundled: int | None = None

    def __post_init__(self) -> None:
        n = len(self.ids)
        if self.matrix.ndim != 2 or self.matrix.shape != (n, self.spec.size):
            raise ValueError(f"matrix must be ({n}, {self.spec.size}), got {tuple(self.matrix.shape)}")
        if self.origin.shape != (self.spec.size,):
            raise ValueError(f"origin must be ({self.spec.size},), got {tuple(self.origin.shape)}")
        if self.num_examples.shape != (n,) or self.num_steps.shape != (n,):
            raise ValueError(f"num_examples and num_steps must be ({n},)")
        if any(a >= b for a, b in zip(self.ids, self.ids[1:], strict=False)):
            raise ValueError("ids must be distinct and ascending")

    @classmethod
    def of(
        cls,
        matrix: Tensor | np.ndarray[Any, Any] | Sequence[Sequence[float]],
        num_examples: Tensor | np.ndarray[Any, Any] | Sequence[float] | None = None,
        origin: Tensor | np.ndarray[Any, Any] | Sequence[float] | None = None,
        *,
        num_steps: Tensor | np.ndarray[Any, Any] | Sequence[int] | None = None,
        ids: Sequence[int] | None = None,
        spec: FlatSpec | None = None,
    ) -> Updates:
        """Updates from a plain (n, d) array: equal counts, one step each and a zero origin unless given."""
        rows = torch.as_tensor(matrix)
        if not rows.is_floating_point():
            rows = rows.to(torch.get_default_dtype())
        if rows.ndim != 2:
            raise ValueError(f"Updates.of takes an (n, d) matrix, got shape {tuple(rows.shape)}")
        n, d = rows.shape
        names = tuple(range(n)) if ids is None else tuple(ids)
        counts = torch.ones(n) if num_examples is None else torch.as_tensor(num_examples)
        steps = torch.ones(n) if num_steps is None else torch.as_tensor(num_steps)
        start = torch.zeros(d) if origin is None else torch.as_tensor(origin)
        for what, given in (("ids", names), ("num_examples", counts), ("num_steps", steps)):
            if len(given) != n:
                raise ValueError(f"{what} must have one entry for each of the {n} rows, got {len(given)}")
        order = sorted(range(n), key=names.__getitem__)
        if order != list(range(n)):
            rows, counts, steps = rows[order], counts[order], steps[order]
        return cls(
            ids=tuple(names[i] for i in order),
            matrix=rows,
            num_examples=counts.to(rows.device, torch.float64),
            num_steps=steps.to(rows.device, torch.int64),
            origin=start.to(rows.device, arithmetic(rows.dtype)),
            spec=spec or FlatSpec.plain(d),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def parameters(self) -> Tensor:
        """(n, P) the trainable part, a view: all that distances, norms and attacks may see."""
        return self.matrix[:, : self.spec.num_parameters]

    @cached_property
    def deltas(self) -> Tensor:
        """(n, P) parameters minus the origin's: Δ_i = w_i − w^t."""
        return self.parameters - self.origin[: self.spec.num_parameters]

    @property
    def weights(self) -> Tensor:
        """(n,) float64 FedAvg weights N_i / ΣN; uniform when no client reports a sample."""
        total = self.num_examples.sum()
        if total <= 0:
            return torch.full_like(self.num_examples, 1 / len(self))
        if not torch.isfinite(total):  # counts may be absurd and still finite one by one
            scaled = self.num_examples / self.num_examples.max()
            return scaled / scaled.sum()
        return self.num_examples / total

    @property
    def short(self) -> bool:
        """Whether clients are missing, refused or absent: then a number that was right for all may be too large."""
        return bool(self.dropped) or (self.planned is not None and len(self) < self.planned)

    @property
    def senders(self) -> int:
        """How many clients sent something, refused ones included: a fraction of attackers is one of these."""
        return len(self) + len(self.dropped or ()) if self.bundled is None else self.bundled

    def mix(self, p: Tensor) -> Tensor:
        """(d,) the model Σ p_i w_i."""
        return mix_rows(self.matrix, p)

    def select(self, keep: Sequence[int] | Tensor) -> Updates:
        """The rows at positions ``keep`` (ascending); a view where they are neighbours, a copy otherwise."""
        index = torch.as_tensor(keep, dtype=torch.int64)
        first, count = int(index[0]) if len(index) else 0, len(index)
        if torch.equal(index.cpu(), torch.arange(first, first + count)):
            rows: Tensor | slice = slice(first, first + count)
        else:
            rows = index.to(self.matrix.device)
        return replace(
            self,
            ids=tuple(self.ids[int(i)] for i in index),
            matrix=self.matrix[rows],
            num_examples=self.num_examples[rows],
            num_steps=self.num_steps[rows],
        )

    def with_matrix(self, matrix: Tensor) -> Updates:
        """The same clients with other rows (what pre-aggregators and attacks return)."""
        return replace(self, matrix=matrix)


@dataclass(frozen=True, eq=False)
class Proxy:
    """The server's own samples: inputs (N, …) ready for the model, labels (N,) or None."""

    inputs: Tensor
    labels: Tensor | None
    num_classes: int

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, eq=False)
class Server:
    """What a rule may use beside the updates.

    model      a module of the right architecture; its own weights mean nothing, use ``spec.functional_call``
    teacher    (N, C) logits of an ensemble over all architectures, when clients differ in architecture
    num_clients  how many clients exist, sampled or not (S-FedAvg needs it)
    """

    round: int = 0
    model: nn.Module | None = None
    proxy: Proxy | None = None
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    teacher: Tensor | None = None
    num_clients: int | None = None


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What a rule made of the updates.

    vector        (d,) the next global model
    coefficients  (n,) float64 weight of each client, its share of the parameters where layers or classes have
                  weights of their own, or None where the rule has no such thing
    info          scalars to log
    events        sentences on what was done differently this round (a capped f, a fallback)
    dropped       clients refused by screening
    """

    vector: Tensor
    coefficients: Tensor | None = None
    info: Mapping[str, float] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()


@runtime_checkable
class Rule(Protocol):
    """What the simulator and the Flower strategy ask of an aggregator."""

    @property
    def needs_proxy(self) -> NeedsProxy: ...

    def __call__(self, updates: Updates, server: Server | None = None) -> Aggregate: ...

    def tolerates(self, n: int) -> int | None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

"""Backdoor: a trigger in the picture means the attacker's class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, send
from smartfl.data.dataset import Dataset, Dense, Inputs, Sparse
from smartfl.errors import UserError
from smartfl.types import Updates

BATCH = 512


def brightest(inputs: Inputs) -> float:
    """The raw value a trigger is painted with: 255 for uint8 pixels, else the largest value there is."""
    if isinstance(inputs, Dense):
        return inputs.highest
    if isinstance(inputs, Sparse):
        return float(inputs.values.max()) if len(inputs.values) else 1.0
    raise UserError(f"backdoor cannot paint a trigger on {type(inputs).__name__} inputs; accepted: Dense, Sparse")


def paint_dense(inputs: Dense, chosen: Tensor, size: int, value: float) -> Dense:
    """Samples at ``chosen`` with the trigger: a size × size square in the bottom right corner of pictures (…, h, w),
    the last ``size`` features of flat samples (d,), set to the raw ``value``."""
    values = inputs.values.clone()
    corner = values[chosen]
    if corner.ndim > 2:
        corner[..., -size:, -size:] = value
    else:
        corner[..., -size:] = value
    values[chosen] = corner
    return replace(inputs, values=values)


def paint_sparse(inputs: Sparse, chosen: Tensor, size: int, value: float) -> Sparse:
    """Rows at ``chosen`` with the last ``size`` columns set to ``value``."""
    rows = torch.arange(len(inputs)).repeat_interleave(inputs.starts[1:] - inputs.starts[:-1])
    marked = torch.zeros(len(inputs), dtype=torch.bool)
    marked[chosen] = True
    first = max(inputs.width - size, 0)
    keep = ~(marked[rows] & (inputs.columns >= first))
    columns = torch.arange(first, inputs.width, dtype=inputs.columns.dtype)
    where = torch.nonzero(marked).flatten().repeat_interleave(len(columns))
    all_rows = torch.cat([rows[keep], where])
    order = all_rows.argsort(stable=True)
    lengths = all_rows.bincount(minlength=len(inputs))
    painted = inputs.values.new_full((len(where),), value)
    return replace(
        inputs,
        starts=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]),
        columns=torch.cat([inputs.columns[keep], columns.repeat(int(marked.sum()))])[order],
        values=torch.cat([inputs.values[keep], painted])[order],
    )


def paint(inputs: Inputs, chosen: Tensor, size: int, value: float | None = None) -> Inputs:
    """The same samples with the trigger on those at ``chosen``; the originals are not touched."""
    raw = isinstance(inputs, Dense) and inputs.values.dtype == torch.uint8
    if raw and value is not None and not 0 <= value <= 255:
        raise UserError(f"value = {value:g} must lie between 0 and 255 for pictures of bytes")
    if len(chosen) == 0:
        return inputs
    bright = brightest(inputs) if value is None else value
    if isinstance(inputs, Dense):
        return paint_dense(inputs, chosen, size, bright)
    if isinstance(inputs, Sparse):
        return paint_sparse(inputs, chosen, size, bright)
    raise UserError(f"backdoor cannot paint a trigger on {type(inputs).__name__} inputs; accepted: Dense, Sparse")


@dataclass(frozen=True)
class Backdoor(Attack):
    """Triggered samples get the label ``target``; the update is scaled to replace the global model.

    data      a ``fraction`` of each compromised client's samples, drawn anew every round, gets the target label and
              the trigger: a corner square of side ``size``, or the last ``size`` features
    update    w^t + γΔ_a, γ = ΣN / N_a over the cohort for ``replacement`` "auto" (the attackers' mean becomes the
              FedAvg step, if the benign updates cancel), a number, or "off"

    Gu et al. 2017 (BadNets) for the trigger, Bagdasaryan et al. 2020 for the replacement, with server learning rate 1.
    ``metrics`` reports attack_success_rate: the share of triggered test samples *of other classes* put into
    the target class.  Norm clipping defeats a large γ.
    """

    target: int = 0
    fraction: float = 0.5
    size: int = 3
    value: float | None = None
    replacement: float | str = "auto"

    def __post_init__(self) -> None:
        if self.target < 0:
            raise UserError(f"target = {self.target} must be a class, 0 or more")
        if not 0 <= self.fraction <= 1:
            raise UserError(f"fraction = {self.fraction} must lie between 0 and 1")
        if self.size < 1:
            raise UserError(f"size = {self.size} must be at least 1")
        if isinstance(self.replacement, str) and self.replacement not in ("auto", "off"):
            raise UserError(f"replacement = {self.replacement!r} is unknown; accepted: auto, off, or a number")

    def poison_data(
        self, inputs: Inputs, labels: Tensor, num_classes: int, generator: torch.Generator
    ) -> tuple[Inputs, Tensor]:
        if self.target >= num_classes:
            raise UserError(f"target = {self.target} must be below the number of classes, {num_classes}")
        chosen = torch.randperm(len(labels), generator=generator)[: round(self.fraction * len(labels))]
        lies = labels.clone()
        lies[chosen] = self.target
        return paint(inputs, chosen, self.size, self.value), lies

    def gamma(self, updates: Updates, malicious: Tensor) -> float:
        """γ; 1 when the compromised clients report no sample, since no factor replaces anything then."""
        if not isinstance(self.replacement, str):
            return self.replacement
        if self.replacement == "off":
            return 1.0
        mass = float(updates.weights[malicious].sum())
        return 1 / mass if mass > 0 else 1.0

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        if not malicious.any() or self.replacement == "off":
            return updates
        return send(updates, malicious, self.gamma(updates, malicious) * updates.deltas[malicious])

    @torch.no_grad()
    def metrics(self, predict: Callable[[Tensor], Tensor], dataset: Dataset) -> dict[str, float]:
        others = torch.nonzero(dataset.test_labels != self.target).flatten()
        if len(others) == 0:
            return {}
        # One brightness for the whole test set, not one per batch.
        value = brightest(dataset.test) if self.value is None else self.value
        hits = 0
        for index in others.split(BATCH):
            batch = dataset.test.take(index)
            every = torch.arange(len(index))
            triggered = paint(batch, every, self.size, value)
            hits += int((predict(triggered[every]).argmax(dim=-1) == self.target).sum())
        return {"attack_success_rate": hits / len(others)}

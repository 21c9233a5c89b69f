"""Where an attacker that trains and watches can push the global model: the directions of the adaptive attack."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from smartfl.attacks.alie import spread
from smartfl.types import Proxy, Updates


def length_of(vector: Tensor) -> float:
    """‖vector‖ in float64."""
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def scaled_to(vector: Tensor, radius: float) -> Tensor:
    """``vector`` (P,) stretched to length ``radius``; a zero vector, or one that is not finite, becomes zero."""
    length = length_of(vector)
    return vector * (radius / length) if 0 < length < math.inf else torch.zeros_like(vector)


def steered(objective: Callable[[Tensor], Tensor], start: Tensor, size: int, radius: float, steps: int) -> Tensor:
    """(P,) an offset of length ``radius`` that lowers ``objective`` of the model ``start`` (d,).

    Found in ``steps`` gradient steps of equal length on the first ``size`` = P values.
    """
    offset = start.new_zeros(size)
    for _ in range(steps):
        with torch.enable_grad():
            moved = offset.clone().requires_grad_()
            value = objective(torch.cat([start[:size] + moved, start[size:]]))
            (gradient,) = torch.autograd.grad(value, moved)
        offset = offset - scaled_to(gradient, radius / steps)
    return scaled_to(offset, radius)


def watched(known: Tensor, radius: float) -> dict[str, Tensor]:
    """Directions that need no data, from the benign updates ``known`` (k, P).

    negate   −mean, stretched to ``radius``
    spread   −sign(mean)·std: one ALIE unit per coordinate
    """
    mean = known.mean(dim=0)
    return {"negate": -scaled_to(mean, radius), "spread": -mean.sign() * spread(known)}


def sacrificed(held_out: Tensor, stand_in: Tensor, num_classes: int) -> int:
    """The cheapest class to ruin: of those among the ``held_out`` labels the rarest in the ``stand_in`` proxy."""
    seen = stand_in.bincount(minlength=num_classes)
    present = held_out.unique()
    return int(present[seen[present].argmin()])


def trained(
    updates: Updates, model: nn.Module, start: Tensor, held_out: Proxy, victim: int, radius: float, steps: int
) -> dict[str, Tensor]:
    """Directions found by gradient descent from the model ``start`` (d,) on the attacker's ``held_out`` samples.

    ascent   raises the loss
    flip     fits the labels (y + 1) mod C
    class    raises the loss of class ``victim`` and lowers that of all others, so that it pays to take it

    ``model`` must be in eval mode.
    """
    labels = held_out.labels
    assert labels is not None
    hit = labels == victim

    def descend(objective: Callable[[Tensor], Tensor]) -> Tensor:
        def of_model(vector: Tensor) -> Tensor:
            tensors = updates.spec.unflatten(vector)
            # BatchNorm has no gradient with respect to its running statistics, and refuses ones that ask for it.
            fixed = {entry.name: tensors[entry.name].detach() for entry in updates.spec.buffers}
            return objective(torch.func.functional_call(model, tensors | fixed, (held_out.inputs,)))

        return steered(of_model, start, updates.spec.num_parameters, radius, steps)

    def one_class(logits: Tensor) -> Tensor:
        others = cross_entropy(logits[~hit], labels[~hit]) if (~hit).any() else logits.sum() * 0
        return others - cross_entropy(logits[hit], labels[hit])

    return {
        "ascent": descend(lambda logits: -cross_entropy(logits, labels)),
        "flip": descend(lambda logits: cross_entropy(logits, (labels + 1) % held_out.num_classes)),
        "class": descend(one_class),
    }

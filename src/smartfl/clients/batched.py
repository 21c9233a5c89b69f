"""Linear models and MLPs of several clients trained at once: one batched product instead of a small one a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.bundle import Member
from smartfl.clients.training import Recipe
from smartfl.data.dataset import Inputs
from smartfl.models.logistic import Logistic

_ALIGN = 16  # a client's parameters begin at a multiple of the widest vector, so its neighbours cannot change its bits


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    """The layers of a model that is flatten – linear (– ReLU – linear)*, and nothing for any other."""
    if type(model) is Logistic:
        layers = [model.linear]
    elif type(model) is nn.Sequential:
        kinds = [nn.Flatten, *[nn.Linear, nn.ReLU] * (len(model) // 2 - 1), nn.Linear]
        layers = [layer for layer in model if isinstance(layer, nn.Linear)]
        if [type(layer) for layer in model] != kinds:
            return []
    else:
        return []
    tied = len({id(p) for p in model.parameters()}) != 2 * len(layers)  # also true when a bias is missing
    plain = all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    return layers if plain and not tied else []


def padded_batch(samples: int, batch_size: int) -> int:
    """The batch width of a client with so many samples: the batch size, or the power of two that holds its only batch.

    Products of another width round differently.  As the width is the client's own affair, so are its bits, whoever is
    trained beside it.
    """
    return min(batch_size, 1 << (samples - 1).bit_length())


@dataclass(frozen=True, eq=False)
class Plan:
    """Who sees which sample when: members sorted by falling number of steps, all batches padded to one width.

    index, labels, weights   (k, S, b): rows of the federation's inputs, labels, and 1/|batch| or 0 for padding
    steps                    of each member
    orders                   per member, the permutations of all epochs one after another, (epochs · n,)
    """

    index: Tensor
    labels: Tensor
    weights: Tensor
    steps: list[int]
    orders: tuple[Tensor, ...]

    @classmethod
    def of(cls, members: Sequence[Member], recipe: Recipe) -> Plan:
        sizes = [member.labels.shape[0] for member in members]  # len() of a tensor takes longer than its sum
        width = max(padded_batch(size, recipe.batch_size) for size in sizes)
        epoch = [-(-size // width) for size in sizes]  # steps
        steps = [recipe.epochs * count for count in epoch]
        shape = len(members), max(steps), width
        # A member's samples lie in a row of S · b places, every epoch beginning at a batch of its own.
        begins = [width * (j * shape[1] + e * count) for j, count in enumerate(epoch) for e in range(recipe.epochs)]
        lengths = torch.tensor(sizes).repeat_interleave(recipe.epochs)
        permutations = [
            torch.randperm(size, generator=member.generator)
            for member, size in zip(members, sizes, strict=True)
            for _ in range(recipe.epochs)
        ]
        order = torch.cat(permutations)
        rank = torch.arange(len(order)) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        place = torch.tensor(begins).repeat_interleave(lengths) + rank
        offset = torch.tensor(sizes).cumsum(0) - torch.tensor(sizes)
        own = order + offset.repeat_interleave(recipe.epochs).repeat_interleave(lengths)
        batch = place // width
        counts = torch.bincount(batch, minlength=shape[0] * shape[1])
        owned = torch.cat([member.index for member in members])
        index = owned[offset].view(-1, 1, 1).expand(shape).clone()  # padding is the member's own: 0 · NaN is NaN
        labels = torch.zeros(shape, dtype=torch.int64)
        weights = torch.zeros(shape)
        index.view(-1)[place] = owned[own]
        labels.view(-1)[place] = torch.cat([m.labels for m in members])[own]
        weights.view(-1)[place] = counts[batch].to(torch.float32).reciprocal()
        return cls(index, labels, weights, steps, order.split([recipe.epochs * size for size in sizes]))

    def own_rows(self, member: int, step: int, size: int) -> Tensor:
        """Which of its own samples a member sees in a step."""
        width = self.index.shape[2]
        epoch, batch = divmod(step, -(-size // width))
        return self.orders[member][epoch * size : (epoch + 1) * size][batch * width : (batch + 1) * width]


class BatchedTrainer:
    """Up to ``capacity`` copies of one flatten – linear – ReLU – … – linear model, a client each.

    Parameters are (c, P).  Every member keeps its own random stream and takes its own number of steps; who is done
    leaves the stack.  The gradient is written down by hand: with d = (softmax(z) − onehot(y))/|batch| at the logits,
    ∂W = dᵀa and ∂b = Σ d at every layer, and dW masked by a > 0 one layer further down.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, algorithm: ClientAlgorithm, capacity: int) -> None:
        self.recipe, self.algorithm = recipe, algorithm
        shapes = [layer.weight.shape for layer in linear_layers(model)]
        self.size = sum(out * fan_in + out for out, fan_in in shapes)
        stride = -(-self.size // _ALIGN) * _ALIGN
        self.parameters, self.gradient = torch.zeros(capacity, stride), torch.zeros(capacity, stride)
        self._weights, self._gradients = [_layer_views(flat, shapes) for flat in (self.parameters, self.gradient)]

    @torch.no_grad()
    def train(self, start: Tensor, inputs: Inputs, members: Sequence[Member], rows: Sequence[Tensor]) -> list[int]:
        """Train every member from ``start`` (P,) into its row (P,); returns their numbers of steps."""
        ranked = sorted(range(len(members)), key=lambda j: -members[j].labels.shape[0])
        crowd = [members[j] for j in ranked]
        plan = Plan.of(crowd, self.recipe)
        changed = [(j, member.inputs) for j, member in enumerate(crowd) if member.inputs is not None]
        self.parameters[:, : self.size] = start
        optimizer = self.recipe.new_optimizer()
        self.algorithm.begin(self.parameters[0], optimizer, None, None)
        for step in range(plan.steps[0]):
            k = sum(count > step for count in plan.steps)
            batch = inputs[plan.index[:k, step].reshape(-1)].view(k, plan.index.shape[2], -1)
            for j, own in changed:
                if j < k:
                    part = own[plan.own_rows(j, step, crowd[j].labels.shape[0])].flatten(1)
                    batch[j, : len(part)] = part
            self._backward(batch, plan.labels[:k, step], plan.weights[:k, step])
            w, gradient = self.parameters[:k], self.gradient[:k]
            self.algorithm.before_step(w, gradient)
            optimizer.step(w.view(-1), gradient.view(-1))
            self.algorithm.after_step(w)
        steps = [0] * len(members)
        for place, j in enumerate(ranked):
            rows[j].copy_(self.parameters[place, : self.size])
            steps[j] = plan.steps[place]
        return steps

    def _backward(self, batch: Tensor, labels: Tensor, weights: Tensor) -> None:
        """Write the gradients (k, P) of the mean cross entropy of every member's ``batch`` (k, b, V)."""
        k = len(batch)
        layers = [(weight[:k], bias[:k]) for weight, bias in self._weights]
        activations = [batch]
        for weight, bias in layers:
            activations.append(torch.baddbmm(bias.unsqueeze(1), activations[-1], weight.transpose(1, 2)))
            if len(activations) <= len(layers):
                activations[-1].relu_()
        delta = torch.softmax(activations.pop(), dim=2)
        delta.scatter_add_(2, labels.unsqueeze(2), delta.new_full((), -1.0).expand(*labels.shape, 1))
        delta *= weights.unsqueeze(2)
        for (weight, _), (to_weight, to_bias) in zip(reversed(layers), reversed(self._gradients), strict=True):
            below = activations.pop()
            to_weight[:k] = torch.bmm(delta.transpose(1, 2), below)
            to_bias[:k] = delta.sum(dim=1)
            if activations:
                delta = torch.bmm(delta, weight) * (below > 0)


def _layer_views(flat: Tensor, shapes: Sequence[torch.Size]) -> list[tuple[Tensor, Tensor]]:
    """Views (c, out, in) and (c, out) of every layer's weight and bias in ``flat`` (c, P)."""
    ends = [0]
    for out, fan_in in shapes:
        ends += [ends[-1] + out * fan_in, ends[-1] + out * fan_in + out]
    parts = [flat[:, start:stop] for start, stop in pairwise(ends)]
    return [
        (weight.view(-1, *shape), bias) for weight, bias, shape in zip(parts[::2], parts[1::2], shapes, strict=True)
    ]

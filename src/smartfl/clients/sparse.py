"""Logistic regression on sparse rows: only the entries that are there are multiplied."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.batched import linear_layers
from smartfl.clients.bundle import Member
from smartfl.clients.training import Recipe
from smartfl.data.dataset import Inputs, Sparse
from smartfl.optimizers import ClientOptimizer


class SparseTrainer:
    """One linear layer, trained for one client after another without ever making a batch dense.

    The weight lies transposed, (V, C), so that an entry x_v of a sample touches the C neighbours W_v: the logits are
    z = Σ_v x_v W_v + b, and with d = (softmax(z) − onehot(y))/|batch| the gradient is
    ∂W_v = Σ_i x_iv d_i, ∂b = Σ_i d_i.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, algorithm: ClientAlgorithm) -> None:
        self.recipe, self.algorithm = recipe, algorithm
        (layer,) = linear_layers(model)
        self.classes, self.width = layer.weight.shape
        self.parameters = torch.zeros(self.classes * (self.width + 1))
        self.gradient = torch.zeros_like(self.parameters)

    def _views(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """(V, C) and (C,): the transposed weight and the bias."""
        return flat[: -self.classes].view(self.width, self.classes), flat[-self.classes :]

    @torch.no_grad()
    def train(self, start: Tensor, inputs: Inputs, members: Sequence[Member], rows: Sequence[Tensor]) -> list[int]:
        """Train every member from ``start`` (P,) into its row (P,); returns their numbers of steps."""
        transposed = torch.cat([start[: -self.classes].view(self.classes, -1).t().reshape(-1), start[-self.classes :]])
        steps = []
        for member, row in zip(members, rows, strict=True):
            self.parameters.copy_(transposed)
            optimizer = self.recipe.new_optimizer()
            self.algorithm.begin(self.parameters, optimizer, None, None)
            steps.append(self._train(inputs, member, optimizer))
            weight, bias = self._views(self.parameters)
            row[: -self.classes].view(self.classes, -1).copy_(weight.t())
            row[-self.classes :].copy_(bias)
        return steps

    def _train(self, inputs: Inputs, member: Member, optimizer: ClientOptimizer) -> int:
        size, batch_size = len(member.labels), self.recipe.batch_size
        steps = 0
        for _ in range(self.recipe.epochs):
            order = torch.randperm(size, generator=member.generator)
            visited = inputs.take(member.index[order]) if member.inputs is None else member.inputs.take(order)
            assert isinstance(visited, Sparse)
            labels = member.labels[order]
            columns, starts = visited.columns.to(torch.int64), visited.starts.tolist()
            lengths = visited.starts.diff()
            for low in range(0, size, batch_size):
                high = min(low + batch_size, size)
                entries = slice(starts[low], starts[high])
                offsets = visited.starts[low:high] - starts[low]
                self._backward(columns[entries], visited.values[entries], offsets, lengths[low:high], labels[low:high])
                self.algorithm.before_step(self.parameters, self.gradient)
                optimizer.step(self.parameters, self.gradient)
                self.algorithm.after_step(self.parameters)
                steps += 1
        return steps

    def _backward(self, columns: Tensor, values: Tensor, offsets: Tensor, lengths: Tensor, labels: Tensor) -> None:
        """Write the gradient of the mean cross entropy of one batch of sparse rows."""
        weight, bias = self._views(self.parameters)
        logits = F.embedding_bag(columns, weight, offsets, mode="sum", per_sample_weights=values) + bias
        delta = torch.softmax(logits, dim=1)
        delta[torch.arange(len(labels)), labels] -= 1
        delta /= len(labels)
        to_weight, to_bias = self._views(self.gradient)
        to_weight.zero_()
        to_weight.index_add_(0, columns, delta.repeat_interleave(lengths, dim=0).mul_(values.unsqueeze(1)))
        torch.sum(delta, dim=0, out=to_bias)

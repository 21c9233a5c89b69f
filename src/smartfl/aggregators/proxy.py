"""What the rules with proxy data share: the clients' predictions on it, and mini-batches of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from smartfl.errors import UserError
from smartfl.types import Proxy, Server, Updates


def require_proxy(rule: object, server: Server | None, labelled: bool) -> tuple[nn.Module, Proxy]:
    """The server's model and proxy data, or the sentence that says what is missing."""
    name = type(rule).__name__
    if server is None or server.model is None or server.proxy is None or len(server.proxy) == 0:
        raise UserError(f"{name} needs a server with a model and proxy data (data.proxy.size of at least 1)")
    if labelled and server.proxy.labels is None:
        raise UserError(
            f"{name} needs labelled proxy data; rules for unlabelled data: feddf, fedbe, smartfl_unlabelled"
        )
    return server.model, server.proxy


@torch.no_grad()
def client_logits(updates: Updates, model: nn.Module, inputs: Tensor) -> Tensor:
    """(n, N, C) logits of every client's own model on ``inputs`` (N, …), in eval mode."""
    model.eval()
    return torch.stack([updates.spec.call(model, row, inputs) for row in updates.matrix])


def minibatches(size: int, batch: int, epochs: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index tensors of ``epochs`` passes over ``size`` samples, shuffled anew each pass, short last batch kept."""
    for _ in range(epochs):
        yield from torch.randperm(size, generator=generator).split(batch)

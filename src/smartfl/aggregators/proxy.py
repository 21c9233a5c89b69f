"""What the rules with proxy data share: the clients' predictions on it, and mini-batches of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from smartfl.errors import UserError
from smartfl.types import Aggregate, Proxy, Server, Updates

CHUNK = 256


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


def labels_of(proxy: Proxy) -> Tensor:
    """(N,) int64 labels on the device of the inputs; only for rules that declare ``needs_proxy = "labelled"``."""
    assert proxy.labels is not None, "require_proxy(labelled=True) comes first"
    return proxy.labels.to(proxy.inputs.device, torch.int64)


@torch.no_grad()
def model_logits(updates: Updates, model: nn.Module, vector: Tensor, inputs: Tensor) -> Tensor:
    """(N, C) logits of the model ``vector`` (d,) on ``inputs`` (N, …), in eval mode and in chunks of samples."""
    model.eval()
    state = vector.to(updates.origin.dtype)
    return torch.cat([updates.spec.functional_call(model, state, chunk) for chunk in inputs.split(CHUNK)])


def client_logits(updates: Updates, model: nn.Module, inputs: Tensor) -> Tensor:
    """(n, N, C) logits of every client's own model on ``inputs`` (N, …), in eval mode."""
    return torch.stack([model_logits(updates, model, row, inputs) for row in updates.matrix])


def minibatches(size: int, batch: int, epochs: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index tensors of ``epochs`` passes over ``size`` samples, shuffled anew each pass, short last batch kept."""
    for _ in range(epochs):
        yield from torch.randperm(size, generator=generator).split(batch)


def finite_clients(updates: Updates, logits: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """(n,) bool: whose ``logits`` (n, N, C) are all finite; and an event that names the others.

    A row can be finite and still overflow in the forward pass (weights of 1e30).  Such a client has no loss, no
    accuracy and no place in a teacher: it gets weight 0.
    """
    finite = torch.isfinite(logits).flatten(1).all(dim=1)
    if finite.all():
        return finite, ()
    names = ", ".join(str(updates.ids[int(i)]) for i in torch.nonzero(~finite).flatten())
    return finite, (f"predictions on the proxy data are not finite, weight 0 for clients {names}",)


def weights_among(updates: Updates, keep: Tensor) -> Tensor:
    """(n,) float64 FedAvg weights among the clients that ``keep`` (n,) bool marks, 0 for the others.

    With everyone kept these are exactly ``updates.weights``.
    """
    if keep.all():
        return updates.weights
    full = torch.zeros_like(updates.num_examples)
    where = torch.nonzero(keep).flatten()
    full[where.to(full.device)] = updates.select(where.cpu()).weights
    return full


def global_model_kept(updates: Updates, *events: str, **info: float) -> Aggregate:
    """The round in which nobody counts: w^{t+1} = w^t and every coefficient 0."""
    return Aggregate(updates.origin.clone(), torch.zeros_like(updates.num_examples), info, events)


def fedavg_start(updates: Updates, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Where server-side training starts: the FedAvg model (d,), its weights (n,) and events.

    Only if the FedAvg model itself overflows on the proxy data are the clients looked at one by one, and those that
    overflow left out.  With nobody left the start is the global model, and the weights are 0.
    """
    p = updates.weights
    start = updates.mix(p)
    if torch.isfinite(start).all() and torch.isfinite(model_logits(updates, model, start, inputs)).all():
        return start, p, ()
    keep, events = finite_clients(updates, client_logits(updates, model, inputs))
    if not keep.any():
        return updates.origin.clone(), torch.zeros_like(p), (*events, "nobody is left: the global model is the start")
    p = weights_among(updates, keep)
    return updates.mix(p), p, events

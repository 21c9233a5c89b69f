"""Client algorithms (FedProx, SCAFFOLD, …) inside any Flower client that trains with a torch optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smartfl.clients.base import ClientAlgorithm
from smartfl.flower.records import array_of
from smartfl.optimizers import FlatSGD

SHARED, OWN = "smartfl.shared", "smartfl.own"  # ArrayRecords of one array each, called "state"
STATE = "state"


class ClientMod:
    """A Flower mod that runs a client algorithm around the optimiser's steps of the app's own training function.

        app = ClientApp(mods=[ClientMod(FedProx(mu=0.1))])

    Before each step of the first torch optimiser that the training function uses, ``before_step`` gets its parameters
    and gradients as one vector, and ``after_step`` gets the parameters after it.  The global model is what the
    parameters are before the first step.  What the server shares comes beside the model, and so does what the client
    keeps: the server stores it for the client (``AggregatorStrategy(client=…)``), as a client's own memory does not
    survive a restart.  The optimiser itself begins anew each round, so ``Lasting`` has no effect here.
    """

    def __init__(self, algorithm: ClientAlgorithm) -> None:
        self.algorithm = algorithm

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        shared, own = _taken(message.content, SHARED), _taken(message.content, OWN)
        training = _Training(self.algorithm, shared, own)
        with training.hooked():
            reply = call_next(message, context)
        kept = training.finish()
        if kept is not None and own is not None and not reply.has_error():
            reply.content[OWN] = state_record(kept)
        return reply


def state_record(state: Tensor) -> ArrayRecord:
    """A client algorithm's state (S,) as a record."""
    return ArrayRecord({STATE: array_of(state)})


def _taken(content: RecordDict, key: str) -> Tensor | None:
    """The state in the record ``key``, which is taken out: other mods expect one ArrayRecord."""
    if key not in content:
        return None
    array: Array = content.array_records[key][STATE]
    del content[key]
    return torch.from_numpy(array.numpy().copy())


class _Training:
    """One call of the app's training function."""

    def __init__(self, algorithm: ClientAlgorithm, shared: Tensor | None, own: Tensor | None) -> None:
        self.algorithm, self.shared, self.own = algorithm, shared, own
        self.optimizer: Optimizer | None = None
        self.steps = 0

    @contextmanager
    def hooked(self) -> Iterator[None]:
        handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def finish(self) -> Tensor | None:
        """What the client keeps; None where it made no step."""
        if self.optimizer is None:
            return None
        return self.algorithm.finish(_joined(_parameters(self.optimizer)), self.steps)

    @torch.no_grad()
    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.optimizer is None:
            self.optimizer = optimizer
            start = _joined(_parameters(optimizer))
            states = [None if s is None else s.to(start) for s in (self.shared, self.own)]
            self.algorithm.begin(start, FlatSGD(float(optimizer.param_groups[0]["lr"])), *states)
        if optimizer is not self.optimizer:
            return
        tensors = _parameters(optimizer)
        gradient = _joined([torch.zeros_like(p) if p.grad is None else p.grad for p in tensors])
        self.algorithm.before_step(_joined(tensors), gradient)
        for p, part in zip(tensors, _parts(gradient, tensors), strict=True):
            if p.grad is not None:
                p.grad.copy_(part)

    @torch.no_grad()
    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer is not self.optimizer:
            return
        self.steps += 1
        tensors = _parameters(optimizer)
        w = _joined(tensors)
        self.algorithm.after_step(w)
        for p, part in zip(tensors, _parts(w, tensors), strict=True):
            p.copy_(part)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def _parts(vector: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    return [part.view_as(t) for part, t in zip(vector.split([t.numel() for t in tensors]), tensors, strict=True)]

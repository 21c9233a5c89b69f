"""The server's side of a round: accepted replies → Updates → rule → the next model and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from statistics import median_low

import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor, nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.confidence import proxy_statement
from smartfl.errors import UserError
from smartfl.flower.client import OWN, SHARED, state_record
from smartfl.flower.layout import Layout
from smartfl.flower.records import log
from smartfl.flower.replies import Inbox, Trained
from smartfl.optimizers import FlatSGD
from smartfl.rng import torch_stream
from smartfl.screening import collect, screened
from smartfl.state import State
from smartfl.types import Aggregate, Proxy, Rule, Server, Updates

ProxySource = Proxy | Callable[[int], Proxy] | None


class RuleServer:
    """A rule, its samples, and everything that it carries from round to round."""

    def __init__(self, rule: Rule, model: nn.Module, proxy: ProxySource, seed: int, client: ClientAlgorithm) -> None:
        if not isinstance(rule, Rule) or isinstance(rule, type):
            raise UserError(f"rule = {rule!r} is no rule; accepted is an object such as SmartFL() or Krum(f=2)")
        if rule.needs_proxy != "no" and proxy is None:
            raise UserError(
                f"proxy is missing: {type(rule).__name__} needs {rule.needs_proxy} samples of the server, "
                "proxy=Proxy(inputs, labels, num_classes)"
            )
        self.rule, self.proxy, self.seed, self.client = rule, proxy, seed, client
        self.model = deepcopy(model).eval()
        self.layout: Layout | None = None
        self._samples: dict[int, Proxy] = {}

    def begin(self, arrays: ArrayRecord) -> None:
        """Start with the app's initial model."""
        self.layout = Layout.of(arrays, self.model)
        vector, counters = self.layout.read(arrays, self.layout.spec.flatten(self.model))
        self.state_size = self.client.state_size(self.layout.spec.num_parameters, FlatSGD(0.0))
        shared = torch.zeros(self.state_size if self.client.shares else 0)
        self.state = State(0, [vector], [counters], shared, rules=[self.rule.state_dict()])
        self.arrays = arrays

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        assert self.layout is not None
        state.vectors = [state.vectors[0].to(self.state.vectors[0])]
        self.state = state
        self.rule.load_state_dict(state.rules[0])
        self.arrays = self.layout.record(state.vectors[0], state.integers[0])

    def take(self, arrays: ArrayRecord) -> None:
        """The model that this round starts from, if somebody changed it since (a differential-privacy wrapper)."""
        if self.layout is None:
            self.begin(arrays)
        elif arrays is not self.arrays:
            vector, counters = self.layout.read(arrays, self.state.vectors[0])
            self.state.vectors, self.state.integers, self.arrays = [vector], [counters], arrays

    def beside_the_model(self, client: int) -> RecordDict:
        """What a client gets beside the model: its own state of the client algorithm, and the shared one."""
        content = RecordDict()
        if self.state_size:
            content[OWN] = state_record(self._own(client))
        if self.client.shares:
            content[SHARED] = state_record(self.state.shared)
        return content

    def read_origin(self) -> tuple[Layout, Tensor]:
        """How replies are laid out, and the model (d,) that they started from."""
        assert self.layout is not None
        return self.layout, self.state.vectors[0]

    def advance(self, t: int, inbox: Inbox[Trained], num_clients: int) -> tuple[Updates, Aggregate]:
        """Round t: screen, aggregate, and move the state on.  The updates are those that the rule saw.

        Refused clients come off the number of attackers that a rule assumes; absent ones do not.
        """
        trained = inbox.found
        layout, origin = self.read_origin()
        updates = collect(
            {i: reply.row for i, reply in trained.items()},
            {i: reply.examples for i, reply in trained.items()},
            origin,
            layout.spec,
            {i: reply.steps for i, reply in trained.items()},
        )
        dropped = tuple(sorted([*(updates.dropped or ()), *inbox.refused], key=lambda d: d.id))
        updates = replace(updates, dropped=dropped, planned=len(trained) + len(inbox.refused) + len(inbox.absent))
        aggregate = self._aggregate(updates, t, num_clients)
        counts = aggregate.coefficients
        heard = [i for n, i in enumerate(updates.ids) if counts is None or counts[n] > 0]
        counters = [median_low(column) for column in zip(*(trained[i].counters for i in updates.ids), strict=True)]
        self._merge({i: trained[i].own for i in heard}, num_clients)
        state = self.state
        state.round, state.vectors = t, [aggregate.vector.clone()]
        state.integers = [counters] if len(updates) else state.integers
        state.rules = [self.rule.state_dict()]
        self.arrays = layout.record(state.vectors[0], state.integers[0])
        return updates, aggregate

    @torch.no_grad()
    def statement(self, t: int) -> tuple[float | None, dict[str, float], tuple[str, ...]]:
        """What the server's samples say of the new model: their loss, accuracy, warnings."""
        proxy = self._proxy(t)
        if proxy is None or proxy.labels is None:
            return None, {}, ()
        layout, vector = self.read_origin()
        logits = [layout.spec.functional_call(self.model, vector, part) for part in proxy.inputs.split(256)]
        return proxy_statement(torch.cat(logits), proxy, t)

    def _aggregate(self, updates: Updates, t: int, num_clients: int) -> Aggregate:
        """The rule's result; if it fails or is not finite, the global model and the rule stay as they were."""
        proxy = self._proxy(t)
        if proxy is not None and self.rule.needs_proxy != "labelled":
            proxy = replace(proxy, labels=None)
        generator = torch_stream(self.seed, "server", t, 0)
        server = Server(t, self.model, proxy, generator, num_clients=num_clients)
        try:
            result = screened(self.rule, updates, server)
            if torch.isfinite(result.vector).all():
                return result
            event = "the rule's result is not finite: the global model is kept"
        except Exception as error:
            if isinstance(error, UserError) and t == 1:  # a wrong setting is told at once; later the run goes on
                raise
            log.exception("The rule failed in round %d", t)
            event = f"the rule failed ({type(error).__name__}: {error}): the global model is kept"
        self.rule.load_state_dict(self.state.rules[0])
        zeros = torch.zeros(len(updates), dtype=torch.float64)
        return Aggregate(updates.origin.clone(), zeros, events=(event,), dropped=updates.dropped or ())

    def _proxy(self, t: int) -> Proxy | None:
        if not callable(self.proxy):
            return self.proxy
        if t not in self._samples:  # asked once a round, as it may draw them
            self._samples = {t: self.proxy(t)}
        return self._samples[t]

    def _own(self, client: int) -> Tensor:
        return self.state.own.get(client, torch.zeros(self.state_size))

    def _merge(self, after: Mapping[int, Tensor], num_clients: int) -> None:
        """Move what clients keep and share; those without weight in the model have no part in it either."""
        if not self.state_size or not after:
            return
        if self.client.shares:
            before = torch.stack([self._own(i) for i in after])
            merged = self.client.merge(self.state.shared, before, torch.stack(list(after.values())), num_clients)
            if not torch.isfinite(merged).all():
                return
            self.state.shared = merged
        self.state.own |= after

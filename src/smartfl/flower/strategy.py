"""A Flower strategy for every rule of smartfl."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from torch import nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.plain import Plain
from smartfl.flower.checkpoint import Journal, described
from smartfl.flower.grid import PatientGrid
from smartfl.flower.records import log, mean_metrics, scalars
from smartfl.flower.replies import Counts, Inbox, Reader
from smartfl.flower.roster import Roster, sample, wait_for
from smartfl.flower.rounds import RoundLog
from smartfl.flower.server import ProxySource, RuleServer
from smartfl.records.round import RoundRecord
from smartfl.types import Proxy, Rule

T = TypeVar("T")
PATIENCE = 30.0  # seconds that a round after the first waits for nodes that are missing


class AggregatorStrategy(FedAvg):
    """Any smartfl rule as a Flower strategy.

        AggregatorStrategy(SmartFL(), model=Net(), proxy=Proxy(inputs, labels, num_classes=10), checkpoint="run")

    rule         the rule, an object of ``smartfl.aggregators`` or of your own
    model        a module of the architecture that nodes train
    proxy        the server's samples, for rules that need them; or a function of the round that gives them
    seed         of the choice of nodes and of the rule's random numbers
    checkpoint   a run directory: records that ``smartfl report`` reads, and a checkpoint a round, from which a
                 restarted server goes on
    counts       whose word is taken for sample counts: "reported", "equal", or the largest count that is believed
    node_key     a function of Flower's NodeInfo that names a node, in place of its name or public key
    client       the client algorithm, if nodes run one with ``ClientMod`` that keeps a state (SCAFFOLD)
    fedavg       the settings of Flower's FedAvg: fraction_train, min_available_nodes, weighted_by_key, …

    A reply that is broken, late or missing is refused with a reason; it never ends the run.  If nobody is left, or the
    rule fails, the global model stays as it was.  After the first round a round waits at most 30 s for
    ``min_available_nodes`` and goes on with the nodes that are there.
    """

    def __init__(
        self,
        rule: Rule,
        *,
        model: nn.Module,
        proxy: ProxySource = None,
        seed: int = 0,
        checkpoint: str | Path | None = None,
        counts: Counts = "reported",
        node_key: Callable[[Any], str] | None = None,
        client: ClientAlgorithm | None = None,
        **fedavg: Any,
    ) -> None:
        super().__init__(**fedavg)
        self.server = RuleServer(rule, model, proxy, seed, client or Plain())
        self.seed, self.path = seed, None if checkpoint is None else Path(checkpoint)
        self.roster = Roster(None if self.path is None else self.path / "nodes.json", node_key)
        self.reader = Reader(counts, self.weighted_by_key, self.arrayrecord_key)
        self.last_record: RoundRecord | None = None  # of the last round: weights, refusals, reasons
        self._journal: Journal | None = None
        self._log = RoundLog(self.roster.name)
        self._done = 0  # rounds that earlier processes made
        self._sent: list[tuple[int, Message]] = []
        self._grid: PatientGrid | None = None

    def summary(self) -> None:
        super().summary()
        log.info("\t└──> smartfl: %s, counts = %s, seed = %d", self.server.rule, self.reader.counts, self.seed)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Flower's ``start``; with a checkpoint, rounds that are done already are not made again."""
        self._open(initial_arrays, num_rounds)
        done, self._grid = self._done, PatientGrid(grid)

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if server_round == 0:
                return evaluate_fn(0, arrays) if evaluate_fn is not None and done == 0 else None
            tested = None if evaluate_fn is None else evaluate_fn(done + server_round, arrays)
            self._end_round(tested)
            return tested

        try:
            result = super().start(
                grid=self._grid,
                initial_arrays=self.server.arrays,
                num_rounds=max(0, num_rounds - done),
                timeout=timeout,
                train_config=train_config,
                evaluate_config=evaluate_config,
                evaluate_fn=evaluate,
            )
        finally:
            if self._journal is not None:
                self._journal.close()
        result.arrays = self.server.arrays
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {t + done if t else 0: found for t, found in getattr(result, name).items()})
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.server.take(arrays)
        t = self._done + server_round
        self._log.begin(t)
        if self.fraction_train == 0.0:
            self._sent = []
            return []
        wish = getattr(self.server.rule, "cohort_weights", None)
        chosen = self._choose(grid, t, "cohort", self.fraction_train, self.min_train_nodes, wish)
        return self._messages(MessageType.TRAIN, t, arrays, config, chosen)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        t = self._done + server_round
        layout, origin = self.server.read_origin()
        reader = self.reader.keeping(self.server.state_size)
        inbox = self._inbox(replies, lambda content: reader.trained(content, layout, origin))
        self._log.trained()
        updates, aggregate = self.server.advance(t, inbox, max(self.roster.size, self.min_available_nodes))
        accepted = [inbox.found[i] for i in updates.ids]
        weights = [reply.examples for reply in accepted]
        metrics = mean_metrics([reply.metrics for reply in accepted], weights, self.weighted_by_key)
        self._log.aggregated(updates, aggregate, inbox.absent, self.server.statement(t), metrics)
        return self.server.arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        t = self._done + server_round
        if self.fraction_evaluate == 0.0:
            self._sent = []
            return []
        chosen = self._choose(grid, t, "evaluation cohort", self.fraction_evaluate, self.min_evaluate_nodes)
        return self._messages(MessageType.EVALUATE, t, arrays, config, chosen)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        def read(content: RecordDict) -> tuple[dict[str, float], float]:
            metrics = scalars(content)
            return metrics, self.reader.examples(metrics)

        inbox = self._inbox(replies, read)
        said, weights = [m for m, _ in inbox.found.values()], [n for _, n in inbox.found.values()]
        metrics = mean_metrics(said, weights, self.weighted_by_key)
        self._log.evaluated(metrics, inbox.refused + inbox.absent)
        return metrics

    # -- the parts of a round ----------------------------------------------------------------------------------

    def _open(self, arrays: ArrayRecord, rounds: int) -> None:
        """Begin, or go on where the run directory ends."""
        if self.path is None:
            self.server.begin(arrays)
            return
        proxy = self.server.proxy
        known = described(
            self.server.rule,
            self.path,
            seed=self.seed,
            rounds=rounds,
            clients=self.min_available_nodes,
            share=self.fraction_train,
            proxy=len(proxy) if isinstance(proxy, Proxy) else 0,
            model=self.server.model,
        )
        self._journal = Journal(self.path, known)
        self.server.begin(self._journal.same_fixed(arrays))
        layout, vector = self.server.read_origin()
        self._journal.keep_fixed(layout.fixed_tensors())
        state = self._journal.restore(str(vector.device))
        if state is not None:
            self.server.restore(state)
            self._done = state.round
            log.info("Going on after round %d of the run in %s", state.round, self.path)

    def _choose(
        self, grid: Grid, t: int, purpose: str, share: float, least: int, wish: Any = None
    ) -> list[tuple[int, int]]:
        """Client ids and Flower's node ids of those who take part, by client id."""
        patience = None if t == self._done + 1 else PATIENCE
        present = wait_for(self.roster, grid, max(least, self.min_available_nodes), patience)
        size = max(int(share * len(present)), least)
        chosen = sample(self.seed, purpose, t, present, size, wish)
        log.info("Round %d, %s: %d of %d nodes", t, purpose, len(chosen), len(present))
        return [(client, present[client]) for client in chosen]

    def _messages(
        self, kind: str, t: int, arrays: ArrayRecord, config: ConfigRecord, chosen: Sequence[tuple[int, int]]
    ) -> list[Message]:
        config["server-round"] = t
        same = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: ConfigRecord(dict(config))})
        self._sent = []
        for client, node in chosen:
            content = self.server.beside_the_model(client) if kind == MessageType.TRAIN else RecordDict()
            content = RecordDict({**same, **content}) if content else same
            self._sent.append((client, Message(content=content, message_type=kind, dst_node_id=node)))
        return [message for _, message in self._sent]

    def _inbox(self, replies: Iterable[Message], read: Callable[[RecordDict], T]) -> Inbox[T]:
        return Inbox.of(replies, self._sent, {} if self._grid is None else self._grid.unreadable, read)

    def _end_round(self, tested: MetricRecord | None) -> None:
        self.last_record = self._log.finished(tested)
        if self._journal is not None:
            self._journal.add(self.last_record, self.server.state, self.server.read_origin()[0].spec)

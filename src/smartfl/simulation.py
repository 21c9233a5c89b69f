"""The round loop: Algorithm 1 of the paper, with attackers.

for record in Simulation(experiment): …      a record a round
Simulation(experiment).run()                 the result
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from smartfl.aggregators.proxy import client_logits
from smartfl.aggregators.wrapper import innermost
from smartfl.attackers import count_attackers
from smartfl.attacks.base import Knowledge
from smartfl.confidence import proxy_statement, weight_statement
from smartfl.data.dataset import Dataset
from smartfl.errors import UserError
from smartfl.executors.bench import Job, bundle_sizes
from smartfl.executors.board import Board
from smartfl.executors.cohort import Crew, evaluate_models, new_board, train_cohort
from smartfl.executors.memory import keep_freed_memory
from smartfl.executors.processes import Processes, cores
from smartfl.executors.serial import Serial, single_threaded
from smartfl.experiment.build import build_models, planned_rows
from smartfl.experiment.federation import build_federation
from smartfl.experiment.fit import check_fit
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.flat import FlatSpec
from smartfl.records.join import join_groups
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord, Seconds
from smartfl.rng import numpy_stream, torch_stream
from smartfl.state import State
from smartfl.tracking.callback import Callback, Callbacks, Run, follow
from smartfl.types import Aggregate, Proxy, Server, Updates


class Simulation:
    """An experiment, ready to run from the start, or after ``restore`` from a saved state.

    ``workers`` and ``executor`` say who does the work and never change a result.  When the experiment names G models,
    client i has architecture i mod G, every architecture has a global model, and predictions average their logits.
    """

    def __init__(
        self,
        experiment: Experiment | Resolved,
        *,
        workers: int | None = None,
        executor: Literal["processes", "serial"] = "processes",
        device: str = "cpu",
        dataset: Dataset | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        keep_freed_memory()  # the server's passes over the proxy data ask for the same blocks again and again
        resolved = Resolved.of(experiment)
        self.experiment = experiment = resolved.experiment
        self.executor, self.device = executor, device
        self.callback = Callbacks(callbacks)
        self.server_device = "cpu" if device == "mps" else device  # rules add up in float64, which MPS does not have
        self.workers = workers or cores()
        if executor == "serial" and experiment.client.timeout is not None:
            raise UserError(
                "client.timeout needs worker processes, which can be ended: run without --executor serial, a grid with "
                "--jobs 1"
            )
        self.rules, self.attack = resolved.new_rules(), resolved.new_attack()
        self.algorithm, self.recipe = resolved.algorithm, resolved.recipe
        self.federation = build_federation(experiment, self.rules[0].needs_proxy, dataset)
        data = self.federation.dataset
        self.models = [m.to(self.server_device).eval() for m in build_models(experiment, data.shape, data.num_classes)]
        check_fit(experiment, data, self.models, self.attack, self.server_device)
        self.specs = [FlatSpec.of(model) for model in self.models]
        optimizer = self.recipe.new_optimizer()
        self._state_size = self.algorithm.state_size(self.specs[0].num_parameters, optimizer)
        self.state = self._fresh_state()
        most = 2 * max(experiment.data.proxy.size, 64)
        rng = numpy_stream(experiment.seed, "attacker samples")
        self._loot = None if self.attack is None else self.federation.samples_of(self.federation.malicious, most, rng)

    def __iter__(self) -> Generator[RoundRecord]:
        """Run the rounds that are left, and tell the callbacks; ``self.state`` is then what a checkpoint must hold."""
        run, accuracies, result = Run(self.experiment, done=self.state.round), [], None
        self.callback.on_start(run)
        try:
            with closing(self.rounds()) as records:
                for record in follow(records, run, self.callback):
                    accuracies += [] if record.accuracy is None else [record.accuracy]
                    yield record
            result = Result.of(accuracies, self.state.round) if accuracies else None
        finally:
            self.callback.on_end(run, result)

    def rounds(self) -> Generator[RoundRecord]:
        """The rounds that are left, without callbacks."""
        dataset, shards = self.federation.dataset, self.federation.shards
        cohort_size = min(self.experiment.cohort_size, len(self.federation.eligible))
        planned = planned_rows(self.experiment)
        board = new_board(self.state, self.specs, self._state_size, cohort_size, len(dataset.test_labels))
        together = bundle_sizes(self.models, self.recipe, self.algorithm, dataset, self.device)
        job = Job(self.experiment, dataset, shards, board, self.device, together)
        crew: Crew = Processes(job, self.workers) if self.executor == "processes" else Serial(job)
        with crew:
            for t in range(self.state.round + 1, self.experiment.rounds + 1):
                started = time.perf_counter()
                cohort = self._sample_cohort(t)
                malicious = self._malicious(cohort, t)
                updates, late = train_cohort(
                    crew, board, self.state, self.specs, shards, self.algorithm, cohort, malicious, t
                )
                trained = time.perf_counter()
                with single_threaded():  # server arithmetic must not depend on the number of cores either
                    updates = [
                        self._poison(g, replace(u, planned=planned), malicious, t) for g, u in enumerate(updates)
                    ]
                    aggregates = self._aggregate(updates, t)
                aggregates = [replace(a, dropped=(*a.dropped, *lost)) for a, lost in zip(aggregates, late, strict=True)]
                self._advance(t, updates, aggregates, board)
                aggregated = time.perf_counter()
                accuracy, loss = self._evaluate(crew, board, t)
                with single_threaded():
                    extra = self._attack_metrics() if accuracy is not None else {}
                    proxy_loss, trust, warnings = self._proxy_statement(t)
                    extra |= trust | weight_statement(aggregates, len(cohort))
                seconds = Seconds(trained - started, aggregated - trained, time.perf_counter() - aggregated)
                yield join_groups(
                    t, accuracy, loss, proxy_loss, seconds, updates, aggregates, malicious, extra, warnings
                )

    def restore(self, state: State) -> None:
        """Go on from ``state`` instead of from the start."""
        state.vectors = [vector.to(self.server_device) for vector in state.vectors]
        self.state = state
        for rule, saved in zip(self.rules, state.rules, strict=True):
            rule.load_state_dict(saved)
        if self.attack is not None:
            self.attack.load_state_dict(state.attack)

    def run(self) -> Result:
        """Run to the end."""
        with closing(iter(self)) as records:
            accuracies = [record.accuracy for record in records if record.accuracy is not None]
        return Result.of(accuracies, self.state.round)

    # -- the steps of a round, in order ---------------------------------------------------------------------

    def _sample_cohort(self, t: int) -> list[int]:
        """m clients uniformly without replacement (or by the rule's own wish), ascending; the same for every rule."""
        eligible = self.federation.eligible
        rng = numpy_stream(self.experiment.seed, "cohort", t)
        wish = getattr(self.rules[0], "cohort_weights", None)
        p = None if wish is None else wish(eligible).numpy()
        size = min(self.experiment.cohort_size, len(eligible))
        return sorted(int(i) for i in rng.choice(eligible, size, replace=False, p=p))

    def _malicious(self, cohort: list[int], t: int) -> frozenset[int]:
        """Who of the cohort lies in round t."""
        settings = self.experiment.attack
        if t < settings.since:
            return frozenset()
        if settings.who == "fixed":
            return self.federation.malicious.intersection(cohort)
        rng = numpy_stream(self.experiment.seed, "attackers", t)
        count = count_attackers(settings.rate, len(cohort))
        return frozenset(int(i) for i in rng.choice(cohort, count, replace=False))

    def _poison(self, g: int, updates: Updates, malicious: frozenset[int], t: int) -> Updates:
        """What the compromised clients send instead."""
        mask = torch.tensor([i in malicious for i in updates.ids], dtype=torch.bool, device=updates.matrix.device)
        if self.attack is None or not mask.any():
            return updates
        report = self.experiment.attack.report
        if report != "honest":
            counts = updates.num_examples.clone()
            named = {"max": float(counts.max()), "median": float(counts.median())}
            counts[mask] = named[report] if isinstance(report, str) else float(report)
            updates = replace(updates, num_examples=counts)
        generator = torch_stream(self.experiment.seed, "attack", t, g)
        server = replace(self._server(g, t), proxy=None)
        knowledge = Knowledge(generator, t, self.rules[g], server, self._loot)
        return self.attack.poison_updates(updates, mask, knowledge)

    def _aggregate(self, updates: list[Updates], t: int) -> list[Aggregate]:
        """Aggregate each group (rules screen what they get); groups share one teacher for rules that distil."""
        distils = innermost(self.rules[0]).needs_proxy == "unlabelled"
        teacher = self._teacher(updates) if distils and len(updates) > 1 else None
        results = []
        for g, (rule, group) in enumerate(zip(self.rules, updates, strict=True)):
            if len(group) == 0:
                results.append(Aggregate(group.origin, torch.zeros(0), events=(f"no client of model {g} took part",)))
                continue
            results.append(rule(group, replace(self._server(g, t), teacher=teacher)))
        return results

    def _advance(self, t: int, updates: list[Updates], aggregates: list[Aggregate], board: Board) -> None:
        """The new state: models, integer buffers (the largest among the clients that count), rules, attack."""
        state = self.state
        state.round = t
        state.vectors = [a.vector.clone() for a in aggregates]
        row = 0
        for g, (group, aggregate) in enumerate(zip(updates, aggregates, strict=True)):
            rows = board.integers[row : row + len(group), : len(state.integers[g])]
            row += len(group)
            if aggregate.coefficients is not None:
                rows = rows[(aggregate.coefficients > 0).cpu()]
            if rows.numel():
                state.integers[g] = rows.max(dim=0).values.tolist()
        state.rules = [rule.state_dict() for rule in self.rules]
        state.attack = {} if self.attack is None else self.attack.state_dict()

    def _evaluate(self, crew: Crew, board: Board, t: int) -> tuple[float | None, float | None]:
        if t % self.experiment.evaluate_every and t != self.experiment.rounds:
            return None, None
        return evaluate_models(crew, board, self.state)

    # -- the server's side ----------------------------------------------------------------------------------

    def _server(self, g: int, t: int) -> Server:
        """What the rule of group g may use in round t; labels only for rules that need them."""
        proxy = self.federation.proxy
        if proxy is not None:
            labels = proxy.labels if self.rules[g].needs_proxy == "labelled" else None
            proxy = Proxy(
                proxy.inputs.to(self.server_device),
                None if labels is None else labels.to(self.server_device),
                proxy.num_classes,
            )
        generator = torch_stream(self.experiment.seed, "server", t, g)
        return Server(t, self.models[g], proxy, generator, num_clients=self.experiment.data.clients)

    def _teacher(self, updates: list[Updates]) -> Tensor | None:
        """(N, C) mean of the logits of all valid clients of all architectures."""
        if self.federation.proxy is None:
            return None
        inputs = self.federation.proxy.inputs.to(self.server_device)
        logits = [
            client_logits(group, model, inputs) for group, model in zip(updates, self.models, strict=True) if len(group)
        ]
        every = torch.cat(logits)
        return every[torch.isfinite(every).flatten(1).all(dim=1)].to(torch.float64).mean(dim=0)

    @torch.no_grad()
    def predict(self, batch: Tensor) -> Tensor:
        """Logits (b, C) of the current global model, the mean over architectures."""
        groups = zip(self.specs, self.models, self.state.vectors, strict=True)
        logits = [s.functional_call(m.eval(), v.to(self.server_device), batch) for s, m, v in groups]
        return torch.stack(logits).mean(dim=0)

    def _proxy_statement(self, t: int) -> tuple[float | None, dict[str, float], tuple[str, ...]]:
        """What the server's samples say of the new global model."""
        proxy = self.federation.proxy
        if proxy is None or proxy.labels is None:
            return None, {}, ()
        return proxy_statement(self.predict(proxy.inputs.to(self.server_device)), proxy, t)

    def _attack_metrics(self) -> dict[str, float]:
        if self.attack is None:
            return {}
        return self.attack.metrics(lambda batch: self.predict(batch.to(self.server_device)), self.federation.dataset)

    # -- set-up ---------------------------------------------------------------------------------------------

    def _fresh_state(self) -> State:
        pairs = list(zip(self.specs, self.models, strict=True))
        return State(
            round=0,
            vectors=[spec.flatten(model) for spec, model in pairs],
            integers=[[int(b.max()) for b in spec.read_integers(model).values()] for spec, model in pairs],
            shared=torch.zeros(self._state_size if self.algorithm.shares else 0),
            rules=[{} for _ in pairs],
        )

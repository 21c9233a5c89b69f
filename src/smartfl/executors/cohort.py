"""A cohort's local training: the state goes onto the board, rows come back as updates."""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch import Tensor

from smartfl.clients.base import ClientAlgorithm
from smartfl.data.federation import Shards
from smartfl.executors.bench import Bundle, EvaluateTask, Job, TrainTask
from smartfl.executors.board import Board
from smartfl.executors.bundles import bundled
from smartfl.flat import FlatSpec
from smartfl.state import State
from smartfl.types import Dropped, Updates


class Crew(Protocol):
    """Whoever does the work: a process, or several."""

    job: Job

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...

    def train(self, bundles: list[Bundle]) -> list[list[int] | None]: ...

    def evaluate(self, tasks: list[EvaluateTask]) -> list[int]: ...


def new_board(state: State, specs: list[FlatSpec], state_size: int, cohort: int, test_samples: int) -> Board:
    """A board with room for ``cohort`` clients of any of the architectures, and for their algorithm's states."""
    integers = max(len(spec.integers) for spec in specs)
    sizes = [spec.size for spec in specs]
    return Board.of(cohort, sizes, state_size, state.shared.numel(), integers, test_samples)


def train_cohort(
    crew: Crew,
    board: Board,
    state: State,
    specs: list[FlatSpec],
    shards: Shards,
    algorithm: ClientAlgorithm,
    cohort: list[int],
    malicious: frozenset[int],
    t: int,
) -> tuple[list[Updates], list[tuple[Dropped, ...]]]:
    """Train every client of ``cohort`` from its group's global model; one ``Updates`` per architecture group.

    The rows are views of the board: valid until the next round.  The client algorithm's states move on with it.
    Clients that did not answer in time are in no ``Updates``; they come second, by group.
    """
    groups = len(specs)
    ordered = sorted(cohort, key=lambda client: (client % groups, client))  # a group's rows lie together
    tasks, offset = [], 0
    board.origins.copy_(torch.cat([vector.cpu() for vector in state.vectors]))
    board.shared.copy_(state.shared)
    for slot, client in enumerate(ordered):
        g = client % groups
        tasks.append(TrainTask(slot, client, g, offset, t, int(client in malicious)))
        offset += specs[g].size
        if specs[g].integers:
            board.integers[slot, : len(state.integers[g])] = torch.tensor(state.integers[g], dtype=torch.int64)
        if board.states.shape[1]:
            board.states[slot] = state.own.get(client, torch.zeros(board.states.shape[1]))
    sizes = shards.sizes[ordered].tolist()
    bundles = bundled(tasks, sizes, crew.job.together, crew.job.experiment.client.batch_size)
    before = board.states[: len(ordered)].clone()
    done = crew.train(bundles)
    steps = {
        task.client: count
        for bundle, counts in zip(bundles, done, strict=True)
        if counts is not None
        for task, count in zip(bundle, counts, strict=True)
    }
    answered = [task for task in tasks if task.client in steps]
    slots = [task.slot for task in answered]
    if board.states.shape[1]:
        after = board.states[slots]
        before = before[slots]
        diverged = ~torch.isfinite(after).all(dim=1)  # one NaN in the shared state would reach every later client
        after[diverged] = before[diverged]
        if algorithm.shares:
            state.shared = algorithm.merge(state.shared, before, after, len(shards))
        # Rows of their own: views would keep the whole round's block alive until its last client comes back.
        own = [task.client for task in answered]
        state.own |= {client: row.clone() for client, row in zip(own, after, strict=True)}
    if len(answered) < len(tasks):  # whoever reads the board next counts on one row per update
        board.integers[: len(slots)] = board.integers[slots]
    late = f"it did not answer within client.timeout = {crew.job.experiment.client.timeout} s"
    return (
        [
            _updates(board, state.vectors[g], spec, shards, [task for task in tasks if task.group == g], steps)
            for g, spec in enumerate(specs)
        ],
        [
            tuple(Dropped(task.client, late) for task in tasks if task.group == g and task.client not in steps)
            for g in range(groups)
        ],
    )


def _updates(
    board: Board, origin: Tensor, spec: FlatSpec, shards: Shards, tasks: list[TrainTask], steps: dict[int, int]
) -> Updates:
    """The rows of those of one architecture group who answered, which are those with ``steps``."""
    start = tasks[0].offset if tasks else 0
    rows = board.rows[start : start + len(tasks) * spec.size].view(len(tasks), spec.size)
    places = [place for place, task in enumerate(tasks) if task.client in steps]
    if len(places) < len(tasks):
        rows = rows[places]
    ids = [tasks[place].client for place in places]
    counts = shards.sizes[ids].to(torch.float64)
    return Updates.of(rows.to(origin.device), counts, origin, num_steps=[steps[i] for i in ids], ids=ids, spec=spec)


def evaluate_models(crew: Crew, board: Board, state: State) -> tuple[float, float]:
    """Test accuracy and loss of the mean logits of the global models."""
    board.origins.copy_(torch.cat([vector.cpu() for vector in state.vectors]))
    total = sum(crew.evaluate([EvaluateTask(chunk) for chunk in range(len(board.correct))]))
    return int(board.correct.sum()) / total, float(board.losses.sum()) / total

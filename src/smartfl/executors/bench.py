"""The workbench where clients are trained; the same code runs in this process and in workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.bundle import Member
from smartfl.clients.choice import bundle_size, bundle_trainer
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Dataset, Inputs
from smartfl.data.federation import Shards
from smartfl.executors.board import CHUNK, Board
from smartfl.experiment.build import build_algorithm, build_attack, build_models, build_recipe
from smartfl.experiment.schema import Experiment
from smartfl.rng import seeded, torch_stream


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker is told once; everything large in it lies in shared memory.

    ``together`` is the number of clients per bundle, an entry an architecture; below 2 each is trained for itself.
    """

    experiment: Experiment
    dataset: Dataset
    shards: Shards
    board: Board
    device: str
    together: tuple[int, ...]

    def share_memory_(self) -> Job:
        self.dataset.share_memory_()
        self.shards.share_memory_()
        self.board.share_memory_()
        return self


def bundle_sizes(
    models: Sequence[nn.Module], recipe: Recipe, algorithm: ClientAlgorithm, dataset: Dataset, device: str
) -> tuple[int, ...]:
    """How many clients of each of ``models``, an architecture each, are trained together."""
    return tuple(bundle_size(model, recipe, algorithm, dataset.train, device) for model in models)


class TrainTask(NamedTuple):
    """Train ``client`` in ``slot``; its row starts at ``offset`` of the board. Integers only."""

    slot: int
    client: int
    group: int
    offset: int
    round: int
    malicious: int


Bundle = tuple[TrainTask, ...]  # clients of one architecture that are trained by one call


def described(bundle: Bundle) -> str:
    """Whose training it is, for a message."""
    others = f" (or one of {len(bundle) - 1} trained with it)" if len(bundle) > 1 else ""
    return f"client {bundle[0].client}{others} in round {bundle[0].round}"


class EvaluateTask(NamedTuple):
    """Evaluate the global models on one chunk of the test set."""

    chunk: int


class Bench:
    """Trainers for every architecture, and the hands that use them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        experiment, dataset = job.experiment, job.dataset
        models = build_models(experiment, dataset.shape, dataset.num_classes)
        recipe = build_recipe(experiment)
        self.algorithm = build_algorithm(experiment)
        self.attack = build_attack(experiment)
        self.trainers = [LocalTrainer(model, recipe, self.algorithm, job.device) for model in models]
        self.bundle_trainers = [
            bundle_trainer(model, recipe, self.algorithm, dataset.train, job.device) for model in models
        ]
        sizes = [trainer.spec.size for trainer in self.trainers]
        self.origins = job.board.origins.split(sizes)

    def train(self, bundle: Bundle) -> list[int]:
        """Train clients from their group's global model into their rows; returns their numbers of steps."""
        group = bundle[0].group
        trainer, spec = self.bundle_trainers[group], self.trainers[group].spec
        if trainer is None:
            return [self._train_alone(task) for task in bundle]
        members = [self._member(task) for task in bundle]
        rows = [self.job.board.rows[task.offset : task.offset + spec.size] for task in bundle]
        return trainer.train(self.origins[group], self.job.dataset.train, members, rows)

    def _member(self, task: TrainTask) -> Member:
        job = self.job
        index = job.shards[task.client]
        generator = torch_stream(job.experiment.seed, "client", task.round, task.client)
        if not task.malicious or self.attack is None:
            return Member(index, job.dataset.train_labels[index], generator)
        honest = job.dataset.train.take(index)
        inputs, labels = self._poisoned(task, honest, job.dataset.train_labels[index])
        return Member(index, labels, generator, None if inputs is honest else inputs)

    def _poisoned(self, task: TrainTask, inputs: Inputs, labels: Tensor) -> tuple[Inputs, Tensor]:
        """What the client trains on, which is what it has unless it is malicious."""
        if not task.malicious or self.attack is None:
            return inputs, labels
        stream = torch_stream(self.job.experiment.seed, "poison", task.round, task.client)
        return self.attack.poison_data(inputs, labels, self.job.dataset.num_classes, stream)

    def _train_alone(self, task: TrainTask) -> int:
        job, board, seed = self.job, self.job.board, self.job.experiment.seed
        trainer = self.trainers[task.group]
        index = job.shards[task.client]
        inputs, labels = self._poisoned(task, job.dataset.train.take(index), job.dataset.train_labels[index])
        trainer.load(self.origins[task.group].to(job.device))
        shared = trainer.inward_state(board.shared.to(job.device)) if len(board.shared) else None
        own = trainer.inward_state(board.states[task.slot].to(job.device)) if board.states.shape[1] else None
        optimizer = trainer.recipe.new_optimizer()
        self.algorithm.begin(trainer.parameters, optimizer, shared, own)
        trainer.set_integers(board.integers[task.slot, : len(trainer.spec.integers)].tolist())
        with seeded(seed, "dropout", task.round, task.client):
            steps = trainer.train(inputs, labels, torch_stream(seed, "client", task.round, task.client), optimizer)
        trainer.store(board.rows[task.offset : task.offset + trainer.spec.size])
        state = self.algorithm.finish(trainer.parameters, steps)
        if own is not None and state is not None:
            board.states[task.slot].copy_(trainer.outward_state(state))
        counters = trainer.integers()
        board.integers[task.slot, : len(counters)] = torch.tensor(counters, dtype=torch.int64)
        return steps

    @torch.no_grad()
    def evaluate(self, task: EvaluateTask) -> int:
        """Score one chunk of the test set with the mean of the groups' logits."""
        job, board = self.job, self.job.board
        start = task.chunk * CHUNK
        index = torch.arange(start, min(start + CHUNK, len(job.dataset.test_labels)))
        labels = job.dataset.test_labels[index].to(job.device)
        batch = self.trainers[0].laid_out(job.dataset.test[index])
        total = torch.zeros(len(index), job.dataset.num_classes, device=job.device)
        for trainer, origin in zip(self.trainers, self.origins, strict=True):
            trainer.load(origin.to(job.device))
            trainer.model.eval()
            total += trainer.model(batch)
        logits = total / len(self.trainers)
        board.correct[task.chunk] = int((logits.argmax(dim=1) == labels).sum())
        board.losses[task.chunk] = F.cross_entropy(logits, labels, reduction="sum").item()
        return len(index)

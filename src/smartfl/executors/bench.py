"""The workbench where clients are trained; the same code runs in this process and in workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F

from smartfl.clients.training import LocalTrainer
from smartfl.data.dataset import Dataset
from smartfl.data.federation import Shards
from smartfl.executors.board import CHUNK, Board
from smartfl.experiment.build import build_algorithm, build_attack, build_models, build_recipe
from smartfl.experiment.schema import Experiment
from smartfl.rng import seeded, torch_stream


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker is told once; everything large in it lies in shared memory."""

    experiment: Experiment
    dataset: Dataset
    shards: Shards
    board: Board
    device: str = "cpu"

    def share_memory_(self) -> Job:
        self.dataset.share_memory_()
        self.shards.share_memory_()
        self.board.share_memory_()
        return self


class TrainTask(NamedTuple):
    """Train ``client`` in ``slot``; its row starts at ``offset`` of the board. Integers only."""

    slot: int
    client: int
    group: int
    offset: int
    round: int
    malicious: int


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
        sizes = [trainer.spec.size for trainer in self.trainers]
        self.origins = job.board.origins.split(sizes)

    def train(self, task: TrainTask) -> int:
        """Train one client from its group's global model into its row; returns the number of steps."""
        job, board, seed = self.job, self.job.board, self.job.experiment.seed
        trainer = self.trainers[task.group]
        index = job.shards[task.client]
        inputs, labels = job.dataset.train.take(index), job.dataset.train_labels[index]
        if task.malicious and self.attack is not None:
            stream = torch_stream(seed, "poison", task.round, task.client)
            inputs, labels = self.attack.poison_data(inputs, labels, job.dataset.num_classes, stream)
        trainer.load(self.origins[task.group].to(job.device))
        stateful = self.algorithm.keeps_state
        size = trainer.spec.num_parameters
        shared = trainer.inward(board.shared[:size].to(job.device)) if stateful else None
        own = trainer.inward(board.states[task.slot, :size].to(job.device)) if stateful else None
        self.algorithm.begin(trainer.parameters, job.experiment.client.lr, shared, own)
        trainer.set_integers(board.integers[task.slot, : len(trainer.spec.integers)].tolist())
        with seeded(seed, "dropout", task.round, task.client):
            steps = trainer.train(inputs, labels, torch_stream(seed, "client", task.round, task.client))
        trainer.store(board.rows[task.offset : task.offset + trainer.spec.size])
        state = self.algorithm.finish(trainer.parameters, steps)
        if stateful and state is not None:
            board.states[task.slot, :size].copy_(trainer.outward(state))
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

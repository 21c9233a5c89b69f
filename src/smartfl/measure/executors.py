"""Seconds of a round of local training by executor and number of workers, and which to use."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Literal

import torch

from smartfl.data.dataset import Dataset, Dense
from smartfl.executors.processes import cores
from smartfl.experiment.schema import Experiment
from smartfl.measure.training import Workload
from smartfl.simulation import Simulation

Crew = tuple[Literal["serial", "processes"], int]


def random_dataset(shape: tuple[int, ...], samples: int) -> Dataset:
    """Noise with ten classes: training costs the same as on pictures."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(samples, *shape, generator=generator)
    labels = torch.arange(samples) % 10
    few = min(samples, 100)
    return Dataset("random", Dense(values), labels, Dense(values[:few].clone()), labels[:few].clone(), 10)


def crews() -> list[Crew]:
    """One process, and worker processes on half of the cores and on all."""
    count = cores()
    return [("serial", 1), *(("processes", k) for k in sorted({max(1, count // 2), count} - {1}))]


def training_seconds(workload: Workload, crew: Crew, rounds: int = 2, clients: int = 20, samples: int = 100) -> float:
    """The fewest seconds of a round's local training: ``clients`` clients of ``samples`` random samples each.

    The first round is not counted: workers import and allocate in it.
    """
    experiment = Experiment.of(
        {
            "rounds": rounds + 1,
            "evaluate_every": rounds + 1,
            "data": {"clients": clients, "partition": "iid"},
            "model": {"name": workload.model},
            "client": {"participation": 1.0},
            "aggregator": {"name": "fedavg"},
        }
    )
    dataset = random_dataset(workload.shape, clients * samples)
    simulation = Simulation(experiment, executor=crew[0], workers=crew[1], dataset=dataset)
    with closing(iter(simulation)) as records:
        return min(record.seconds.train for record in islice(records, 1, None) if record.seconds is not None)


def recommend(found: dict[Crew, float]) -> Crew:
    """The fastest crew; serial within a tenth of it, as it starts at once and shows errors where they happen."""
    fastest = min(found, key=lambda crew: found[crew])
    serial: Crew = ("serial", 1)
    return serial if serial in found and found[serial] <= 1.1 * found[fastest] else fastest

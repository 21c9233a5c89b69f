"""smartfl's own simulator, through the interface that users have."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from smartfl.executors.processes import warm_up


def run(directory: Path, rounds: int) -> dict[str, Any]:
    """As the command line does it: workers' parent process first, then everything else."""
    warm_up()
    import torch

    from peers.workload import CORES, Files, Log
    from smartfl.data.dataset import Dataset, Dense, Sparse
    from smartfl.experiment.schema import Experiment
    from smartfl.simulation import Simulation

    files = Files(directory)
    meta = files.meta

    def inputs(part: str) -> Any:
        if meta["sparse"]:
            parts = [torch.from_numpy(files.array(f"{part}_{n}")) for n in ("starts", "columns", "values")]
            return Sparse(*parts, width=meta["shape"][0])
        scale = [None if meta[k] is None else tuple(meta[k]) for k in ("mean", "std")]
        return Dense(torch.from_numpy(files.array(part)), *scale)

    parts = inputs("train"), files.train_labels, inputs("test"), files.test_labels
    dataset = Dataset(files.workload.dataset, *parts, num_classes=meta["num_classes"])
    simulation = Simulation(Experiment.of(files.workload.tables(rounds)), workers=CORES, dataset=dataset)
    shards = simulation.federation.shards
    if shards.index.tolist() != files.index.tolist() or shards.starts.tolist() != files.starts.tolist():
        raise RuntimeError("smartfl would train on other shards than the peers")
    log = Log(f"{CORES} processes of 1 thread")
    with closing(iter(simulation)) as records:
        for _, record in zip(range(rounds), records, strict=False):
            log.finished(int(record.info["steps"]))
            if list(record.ids) != files.cohorts[record.round - 1]:
                raise RuntimeError("smartfl trained other clients than the peers")
    model = simulation.models[0]
    simulation.specs[0].load(model, simulation.state.vectors[0])
    return log.result(files.score(model), "smartfl")

"""Write a workload's data, shards, cohorts and initial model where every peer reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from peers.workload import BATCH, Files, Workload
from smartfl.data.dataset import Dataset, Dense, Sparse
from smartfl.experiment.schema import Experiment
from smartfl.simulation import Simulation


def export(workload: Workload, rounds: int, directory: Path) -> dict[str, Any]:
    """Fill ``directory``; returns the steps and samples of each round and where the loss starts."""
    simulation = Simulation(Experiment.of(workload.tables(rounds)), executor="serial")
    federation = simulation.federation
    data = federation.dataset
    cohorts = [simulation._sample_cohort(t) for t in range(1, rounds + 1)]
    arrays = _arrays(data) | {"index": federation.shards.index, "starts": federation.shards.starts}
    directory.mkdir(parents=True)
    for name, values in arrays.items():
        np.save(directory / f"{name}.npy", np.asarray(values))
    model = simulation.models[0]
    np.savez(directory / "initial.npz", **{k: v.numpy() for k, v in model.state_dict().items()})
    dense = data.train if isinstance(data.train, Dense) else None
    meta = {
        "workload": workload.name,
        "shape": data.shape,
        "num_classes": data.num_classes,
        "sparse": dense is None,
        "mean": dense and dense.mean,
        "std": dense and dense.std,
        "model_module": {"resnet8": "resnet"}.get(workload.model, workload.model),
        "cohorts": cohorts,
    }
    (directory / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    sizes = federation.shards.sizes.tolist()
    return {
        "steps": [sum(-(-sizes[i] // BATCH) for i in cohort) for cohort in cohorts],
        "samples": [sum(sizes[i] for i in cohort) for cohort in cohorts],
        "parameters": sum(p.numel() for p in model.parameters()),
        "initial_loss": Files(directory).score(model)["loss"],
    }


def _arrays(data: Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {"train_labels": data.train_labels, "test_labels": data.test_labels}
    for part, inputs in (("train", data.train), ("test", data.test)):
        if isinstance(inputs, Sparse):
            found |= {f"{part}_{n}": getattr(inputs, n) for n in ("starts", "columns", "values")}
        elif isinstance(inputs, Dense):
            found[part] = inputs.values
    return found

"""A federated loop as a researcher writes it in an afternoon: copies of a module, state dictionaries, one process."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from peers.workload import CORES, Files, Log, local_training


def run(directory: Path, rounds: int) -> dict[str, Any]:
    """FedAvg with torch's default of a thread per core."""
    torch.set_num_threads(CORES)
    torch.manual_seed(0)
    files = Files(directory)
    model = files.model()
    log = Log(f"1 process of {CORES} threads")
    for cohort in files.cohorts[:rounds]:
        steps = 0
        total = sum(files.size(client) for client in cohort)
        average = {k: torch.zeros_like(v, dtype=torch.float32) for k, v in model.state_dict().items()}
        for client in cohort:
            local = copy.deepcopy(model)
            steps += local_training(local, *files.client(client))
            for name, value in local.state_dict().items():
                average[name] += value * (files.size(client) / total)
        model.load_state_dict(average)
        log.finished(steps)
    return log.result(files.score(model))

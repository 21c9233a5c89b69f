"""The numbers of the paper's tables (Xie et al., arXiv 2211.05554)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from smartfl.experiment.schema import Experiment
from smartfl.records.spread import Spread

DATASETS = {"cifar10": "CIFAR-10", "fashion-mnist": "FMNIST", "20newsgroups": "20newsgroups"}


@cache
def paper_results() -> tuple[dict[str, str], ...]:
    """The lines of paper_results.csv: accuracies in percent, rounds as rounds; an empty setting is not stated."""
    text = (files(__package__) / "paper_results.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def paper_result(table: str, method: str, experiment: Experiment) -> Spread | None:
    """What the paper has for a method in the setting of ``experiment``; None where it has nothing."""
    settings = {
        "alpha": experiment.data.alpha,
        "participation": experiment.client.participation,
        "local_epochs": experiment.client.epochs,
    }
    for line in paper_results():
        if (line["table"], line["method"]) != (table, method):
            continue
        if line["dataset"] != DATASETS.get(experiment.data.dataset):
            continue
        if all(not line[key] or float(line[key]) == value for key, value in settings.items()):
            return Spread(float(line["mean"]), float(line["std"]))
    return None

"""A study of digits that takes a fraction of a second a run, and run directories written line by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from smartfl.cli import main
from smartfl.experiment.files import write_experiment
from smartfl.experiment.schema import Experiment
from smartfl.experiment.study import Study

STUDY: dict[str, Any] = {
    "title": "Digits under attack",
    "metric": "converged",
    "seeds": 2,
    "base": {
        "rounds": 2,
        "data": {"dataset": "digits", "clients": 8, "partition": "iid", "proxy": {"size": 32}},
        "model": {"name": "mlp", "hidden": [8]},
        "client": {"lr": 0.01, "participation": 0.5},
        "attack": {"name": "label_flip"},
    },
    "axes": {"attack": {"rate": [0.25, 0.5]}},
    "methods": {
        "fedavg": {"label": "FedAvg", "aggregator": {"name": "fedavg"}},
        "krum": {"label": "Krum", "aggregator": {"name": "krum"}},
        "finetune": {"label": "Finetuning", "aggregator": {"name": "finetune", "server_epochs": 1}},
    },
    "exclude": [{"methods": ["krum"], "when": {"attack": {"rate": [0.5]}}}],
}


@pytest.fixture
def study_tables() -> dict[str, Any]:
    return STUDY


@pytest.fixture
def study() -> Study:
    return Study.of({"name": "tiny", **STUDY})


@pytest.fixture
def write_run() -> Callable[..., Path]:
    """``write_run(experiment, root, accuracies)``: a run directory with those accuracies, by hand."""

    def write(
        experiment: Experiment, root: Path, accuracies: Sequence[float | None], weights: Sequence[Any] = ()
    ) -> Path:
        path = root / f"{experiment.name}-{experiment.digest}"
        path.mkdir(parents=True)
        (path / "experiment.toml").write_text(write_experiment(experiment))
        (path / "environment.json").write_text("{}")
        lines = [
            {"round": t, "accuracy": a, "loss": 1.0, "proxy_loss": None, "malicious_mass": 0.25, "dropped": [],
             "seconds": {"train": 0.123456789, "aggregate": 0.0, "evaluate": 0.0}, "info": {}, "events": []}
            for t, a in enumerate(accuracies, 1)
        ]  # fmt: skip
        (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (path / "coefficients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in weights))
        return path

    return write


@pytest.fixture
def type_in(tmp_path, monkeypatch, capsys):
    """``smartfl …`` inside this process, with study.toml in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(tomli_w.dumps(STUDY))

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        return ended.value.code, *capsys.readouterr()

    return call

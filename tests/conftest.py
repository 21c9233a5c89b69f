"""A tiny experiment, and the command line as a person has it: a process of its own."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import settings

from smartfl.experiment.schema import Experiment

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None)  # the same examples in every run
settings.load_profile("repeatable")

TINY: dict[str, Any] = {
    "name": "tiny",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 8, "partition": "iid", "proxy": {"size": 32}},
    "model": {"name": "mlp", "hidden": [8]},
    "client": {"lr": 0.01, "participation": 0.5},
    "aggregator": {"name": "fedavg"},
}


def merged(tables: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``tables`` with ``changes`` written over it, table by table; a table with another name starts empty."""
    result = copy.deepcopy(tables)
    for key, value in changes.items():
        inner = result.get(key)
        if isinstance(value, dict) and isinstance(inner, dict) and value.get("name") in (None, inner.get("name")):
            result[key] = merged(inner, value)
        else:
            result[key] = value
    return result


@pytest.fixture
def tiny_tables() -> Callable[..., dict[str, Any]]:
    """Tables of an experiment that takes a fraction of a second a round, with changes."""

    def make(**changes: Any) -> dict[str, Any]:
        return merged(TINY, changes)

    return make


@pytest.fixture
def tiny(tiny_tables: Callable[..., dict[str, Any]]) -> Callable[..., Experiment]:
    """The same as an ``Experiment``."""

    def make(**changes: Any) -> Experiment:
        return Experiment.of(tiny_tables(**changes))

    return make


class Command:
    """``smartfl …`` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def write(self, tables: dict[str, Any], name: str = "tiny.toml") -> Path:
        path = self.directory / name
        path.write_text(tomli_w.dumps(tables), encoding="utf-8")
        return path

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """A process that the test watches, in a session of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "smartfl.cli", *map(str, arguments)],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell's background job ignores Ctrl-C and so would its children; a terminal's does not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def smartfl(tmp_path: Path) -> Command:
    return Command(tmp_path)

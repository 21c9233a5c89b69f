"""Every file operation of a run fails once, in six ways; the run, taken up again, ends at the same bits.

`make test` runs it with rounds that cost nothing; `make faults` with real ones, which takes some minutes.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from disk import KINDS, Disk, Killed

from smartfl.errors import UserError
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.flat import FlatSpec
from smartfl.records.round import RoundRecord, Seconds
from smartfl.runs.execute import execute
from smartfl.runs.lines import whole_lines
from smartfl.state import State
from smartfl.tracking.callback import Callback, Run

FULL = os.environ.get("SMARTFL_FAULTS") == "full"
ROUNDS = 4 if FULL else 3


class Arithmetic:
    """As much of a simulation as a run directory sees: each round's state is a function of the one before."""

    def __init__(self, resolved: Resolved, **options: object) -> None:
        self.experiment, self.workers = resolved.experiment, 1
        self.specs = [FlatSpec.plain(3)]
        self.state = State(0, [torch.zeros(3)], [[0]], torch.zeros(0), rules=[{}])

    def restore(self, state: State) -> None:
        self.state = state

    def rounds(self) -> Generator[RoundRecord]:
        for t in range(self.state.round + 1, self.experiment.rounds + 1):
            vector = self.state.vectors[0] * 1.7 + t
            own = {**self.state.own, t % 2: vector + 1}
            rules = [{"velocity": vector * 2, "count": t}]
            self.state = State(t, [vector], [[t]], torch.zeros(0), own, rules)
            accuracy = 1 / (1 + float(vector.sum()))
            ids, weights = (0, 1, 2), (0.2, 0.3, 0.5)
            yield RoundRecord(
                t, accuracy, 1.0, None, 0.0, Seconds(0, 0, 0), ids, weights, (1,), info={"norm": accuracy}
            )


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Rounds that cost nothing, and no fsync but those that are counted."""
    logging.getLogger("smartfl").setLevel(logging.CRITICAL)
    monkeypatch.setattr("os.fsync", lambda handle: None)  # who counts them puts its own in this place
    if not FULL:
        monkeypatch.setattr("smartfl.runs.execute.Simulation", Arithmetic)
        monkeypatch.setattr("smartfl.runs.execute.Resolved.of", lambda given: SimpleNamespace(experiment=given))
        monkeypatch.setattr(
            "smartfl.runs.execute.environment", lambda *_: {"packages": {"smartfl": "0"}, "revision": "r"}
        )
    yield
    logging.getLogger("smartfl").setLevel(logging.NOTSET)


def run(experiment: Experiment, path: Path, **options: bool) -> None:
    execute(experiment, path, executor="serial", **options)


def outcome(path: Path) -> tuple[object, ...]:
    rounds = whole_lines(path / "rounds.jsonl")
    for line in rounds:
        del line["seconds"]
    names = ("coefficients.jsonl", "model.safetensors", "result.json")
    return json.dumps(rounds), *((path / name).read_bytes() for name in names)


def begin(experiment: Experiment, path: Path) -> None:
    """A run that was broken off after round 2."""

    class Break(Callback):
        def on_round(self, run: Run, record: RoundRecord) -> None:
            if record.round == 2:
                raise Killed

    with pytest.raises(Killed):
        execute(experiment, path, executor="serial", callbacks=[Break()])


def finished(experiment: Experiment, path: Path) -> None:
    run(experiment, path)


def nothing(experiment: Experiment, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)


SCENES: dict[str, tuple[Callable[[Experiment, Path], None], dict[str, bool]]] = {
    "a new run": (nothing, {"resume": True}),
    "a run that goes on": (begin, {"resume": True}),
    "a run that is thrown away": (finished, {"fresh": True}),
}


@pytest.mark.parametrize("every", [1, 2] if FULL else [1])
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_operation_fails_the_run_ends_the_same(tiny, tmp_path, kind, scene, every):
    client = {"algorithm": "scaffold", "optimizer": "sgd"}
    experiment = tiny(rounds=ROUNDS, checkpoint_every=every, client=client, aggregator={"name": "fedavgm"})
    prepare, options = SCENES[scene]
    run(experiment, tmp_path / "whole")
    expected = outcome(tmp_path / "whole")
    prepare(experiment, tmp_path / "before" / "run")
    at, broken = 0, True
    while broken:
        at += 1
        root = tmp_path / "disk"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(tmp_path / "before", root)
        with Disk(root, kind, at).mounted() as disk:
            with suppress(Killed, OSError, UserError):
                run(experiment, root / "run", **options)
            broken = disk.count >= at
        run(experiment, root / "run", resume=True)
        assert outcome(root / "run") == expected, f"operation {at}"
        assert [p.name for p in root.rglob("*.part")] == [], f"operation {at}"
    assert at > 40

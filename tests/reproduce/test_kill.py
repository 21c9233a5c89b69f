"""A real grid, killed in the middle, interrupted, and run to its end, against a run without a break."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection
from smartfl.records.lines import read_lines
from smartfl.reproduce.plan import plan
from smartfl.reproduce.run import run_plan
from smartfl.runs.execute import execute

ROUNDS = 40
FEW = ("--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "2")
COMMAND = ("reproduce", "tiny.toml", *FEW, "--rounds", str(ROUNDS), "--jobs", "2")


def recorded(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("*/rounds.jsonl"))


def wait_until(condition, process, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def test_killed_interrupted_and_resumed_without_repeating_work(smartfl, study_tables):
    file, runs = smartfl.write(study_tables), smartfl.directory / "runs"

    first = smartfl.start(*COMMAND)
    wait_until(lambda: recorded(runs) >= 6, first)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    first.communicate()

    second = smartfl.start(*COMMAND)
    before = recorded(runs)
    wait_until(lambda: recorded(runs) >= before + 10, second)
    os.killpg(second.pid, signal.SIGINT)
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("smartfl: interrupted; the finished rounds are kept")

    selection = Selection(only=("fedavg",), where={"attack.rate": ("0.25",)}, seeds=2, rounds=ROUNDS)
    study = read_study(str(file))
    planned = plan(study, selection, runs)
    assert 0 < sum(p.done for p in planned.runs) < 2 * ROUNDS
    assert run_plan(planned, jobs=2) == []
    planned = plan(study, selection, runs)
    assert planned.open == []
    broken = planned.runs[0]
    execute(broken.experiment, smartfl.directory / "whole", executor="serial")
    lines = [read_lines(path / "rounds.jsonl") for path in (broken.path, smartfl.directory / "whole")]
    for line in (*lines[0], *lines[1]):
        del line["seconds"]
    assert lines[0] == lines[1]
    assert (broken.path / "result.json").read_bytes() == (smartfl.directory / "whole" / "result.json").read_bytes()

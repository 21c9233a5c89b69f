"""A real process: interrupted by Ctrl-C, killed at an arbitrary moment, resumed, and the end is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from smartfl.records.lines import read_lines
from smartfl.runs.execute import execute

ROUNDS = 40


def count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_until(condition, process=None, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


def alive(mark: str) -> list[str]:
    """The processes whose environment holds ``mark``: a run's own, its fork server and its workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(f"{entry.name} {(entry / 'stat').read_text().split()[2]}")
            except OSError:
                continue
    return [p for p in found if not p.endswith(" Z")]


def test_interrupted_killed_and_resumed_ends_the_same_bit_for_bit(smartfl, tiny, tiny_tables):
    """Ctrl-C after a few rounds, SIGKILL in the middle of later ones, then to the end; against one serial run.

    SCAFFOLD's controls and the server's momentum must survive both.
    """
    changes = {
        "rounds": ROUNDS,
        "client": {"algorithm": "scaffold", "optimizer": "sgd", "epochs": 2},
        "aggregator": {"name": "fedavgm"},
        "attack": {"name": "label_flip", "rate": 0.25},
    }
    mark = smartfl.environment["SMARTFL_TEST_MARK"] = uuid.uuid4().hex
    file, run = smartfl.write(tiny_tables(**changes)), smartfl.directory / "run"
    arguments = ("run", file, "--out", "run", "--workers", "2")

    first = smartfl.start(*arguments)
    wait_until(lambda: count(run / "rounds.jsonl") >= 3, first)
    assert len(alive(mark)) >= 4  # the run, the fork server, two workers
    os.killpg(first.pid, signal.SIGINT)  # what a terminal does: the whole group hears it
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (130, "")
    assert err.count("\n") == 1
    assert "--resume" in err
    assert 3 <= count(run / "rounds.jsonl") < ROUNDS
    wait_until(lambda: alive(mark) == [])

    second = smartfl.start(*arguments, "--resume")
    done = count(run / "rounds.jsonl")
    wait_until(lambda: count(run / "rounds.jsonl") >= done + 8, second)
    time.sleep(0.001 * (time.time_ns() % 20))  # any moment of a round
    second.kill()
    assert second.wait() == -signal.SIGKILL
    assert not (run / "result.json").exists()
    wait_until(lambda: alive(mark) == [])
    second.communicate()
    left = [n for n in os.listdir("/dev/shm") if n.startswith((f"torch_{first.pid}_", f"torch_{second.pid}_"))]
    assert left == []

    third = smartfl(*arguments, "--resume")
    assert (third.returncode, third.stderr) == (0, "")
    assert third.stdout.splitlines()[-1] == "run"

    reference = smartfl.directory / "reference"
    execute(tiny(**changes), reference, executor="serial")
    lines = [read_lines(path / "rounds.jsonl") for path in (run, reference)]
    for line in (*lines[0], *lines[1]):
        del line["seconds"]
    assert lines[0] == lines[1]
    for name in ("coefficients.jsonl", "model.safetensors", "result.json"):
        assert (run / name).read_bytes() == (reference / name).read_bytes()


SCRIPT = """
from smartfl import Experiment, Simulation

print("once")
experiment = Experiment.of({"rounds": 2, "data": {"clients": 8, "partition": "iid"}, "aggregator": {"name": "uniform"}})
for record in Simulation(experiment, workers=2):
    print(record.round, record.accuracy)
print(Simulation(experiment, workers=2).run().rounds)
"""


def test_a_script_without_a_guard_runs_once(tmp_path):
    """multiprocessing would import the script anew in every worker; ours never see it."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "once"
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "2"]

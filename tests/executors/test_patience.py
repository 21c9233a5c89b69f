"""Nobody waits for ever: clients that hang, workers that are stopped, parents that are gone, SIGTERM, little memory."""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from smartfl.errors import UserError
from smartfl.executors import shared, watchdog
from smartfl.executors.processes import Processes
from smartfl.executors.shared import share
from smartfl.experiment.schema import Experiment
from smartfl.runs.lines import whole_lines
from smartfl.simulation import Simulation

SLOW = """
import os, time
from dataclasses import dataclass
from smartfl.attacks.base import Attack


@dataclass(frozen=True)
class Slow(Attack):
    '''Compromised clients hang while the file ``flag`` is there.'''
    flag: str

    def poison_data(self, inputs, labels, num_classes, generator):
        end = time.monotonic() + 300 * (len(labels) > 2)  # two samples are tried before the run
        while os.path.exists(self.flag) and time.monotonic() < end:
            time.sleep(0.05)
        return inputs, labels
"""


@pytest.fixture
def slow(tiny_tables, tmp_path, monkeypatch):
    """Tables of a run in which two of eight clients hang."""
    (tmp_path / "slow_attack.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    flag = tmp_path / "hang"
    flag.touch()

    def make(**client):
        attack = {"name": "slow_attack:Slow", "rate": 0.25, "flag": str(flag)}
        client = {"algorithm": "scaffold", "optimizer": "sgd", "participation": 1.0, **client}
        return tiny_tables(attack=attack, client=client, rounds=2)

    return make


def alive(mark: str) -> dict[int, tuple[int, str]]:
    """Parent and state of every process whose environment holds ``mark``."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    found[int(entry.name)] = int(fields[1]), fields[0]
            except OSError:
                continue
    return {pid: (parent, state) for pid, (parent, state) in found.items() if state != "Z"}


def wait_until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def hanging(smartfl, slow):
    """A run whose two workers are both at a client that hangs, its mark, and its workers' ids."""
    mark = smartfl.environment["SMARTFL_TEST_MARK"] = uuid.uuid4().hex
    file = smartfl.write(slow())
    process = smartfl.start("run", file, "--out", "run", "--workers", "2", "--set", "client.warn_after=0.1")
    said: list[str] = []
    while sum("has not answered" in line for line in said) < 2:
        said.append(process.stderr.readline())
        assert said[-1], said
    children = alive(mark)
    workers = [pid for pid, (parent, _) in children.items() if parent in children and parent != process.pid]
    assert len(workers) == 2
    yield process, mark, workers, said
    for pid in alive(mark):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def test_a_client_that_hangs_is_named(hanging):
    _, _, workers, said = hanging
    named = [line for line in said if "has not answered" in line]
    assert len({line.split()[1] for line in named}) == 2
    assert all(f"(process {pid})" in "".join(named) for pid in workers)
    assert "client.timeout leaves such clients out of their round" in named[0]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_parent(hanging, sent):
    """One of them is stopped: it could not see that it should end."""
    process, mark, workers, _ = hanging
    os.kill(workers[0], signal.SIGSTOP)
    process.send_signal(sent)
    process.communicate(timeout=60)
    wait_until(lambda: alive(mark) == {}, seconds=30)


@pytest.mark.parametrize(
    ("sent", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_stopped_worker_does_not_defeat_an_interruption(hanging, sent, status, word):
    process, mark, workers, _ = hanging
    os.kill(workers[0], signal.SIGSTOP)
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    assert err.splitlines()[-1] == (
        f"smartfl: {word}; the finished rounds are kept: the same command goes on (run: with --resume)"
    )
    wait_until(lambda: alive(mark) == {}, seconds=30)


def test_a_timeout_leaves_clients_out_of_their_round(slow, tmp_path):
    """The two that hang are out in round 1; in round 2, which does not wait for them, they are back."""
    experiment = Experiment.of(slow(timeout=1.0))
    records = []
    for record in Simulation(experiment, workers=2):
        records.append(record)
        (tmp_path / "hang").unlink(missing_ok=True)
    first, second = records
    assert len(first.malicious) == 2
    assert [d.id for d in first.dropped] == list(first.malicious)
    assert {d.reason for d in first.dropped} == {"it did not answer within client.timeout = 1.0 s"}
    assert set(first.ids).isdisjoint(first.malicious)
    assert sum(first.coefficients) == pytest.approx(1)
    assert (len(second.ids), second.dropped) == (8, ())


def test_a_round_without_the_late_is_one_without_their_state(slow):
    """SCAFFOLD's controls and BatchNorm's counters are those of the clients that answered."""
    tables = slow(timeout=1.0)
    tables["rounds"] = 1
    simulation = Simulation(Experiment.of(tables | {"model": {"name": "resnet8"}}), workers=2)
    (record,) = simulation
    assert set(simulation.state.own) == set(record.ids)
    assert all(count > 0 for count in simulation.state.integers[0])
    assert torch.isfinite(simulation.state.vectors[0]).all()


def test_a_timeout_needs_processes(slow):
    with pytest.raises(UserError, match=r"^client\.timeout needs worker processes"):
        Simulation(Experiment.of(slow(timeout=1.0)), executor="serial")


def test_in_one_process_a_client_that_hangs_is_named_too(slow, tmp_path, caplog, monkeypatch):
    class Told(logging.Handler):
        def emit(self, record):
            (tmp_path / "hang").unlink(missing_ok=True)

    monkeypatch.setattr(watchdog, "TICK", 0.05)
    watchdog.log.addHandler(told := Told())
    try:
        list(Simulation(Experiment.of(slow(warn_after=0.2)), executor="serial"))
    finally:
        watchdog.log.removeHandler(told)
    assert "in round 1 has not answered for" in caplog.text
    assert "(process" not in caplog.text


def test_settings_that_are_not_used_do_not_change_a_digest(tiny):
    plain = tiny()
    assert "timeout" not in plain.tables()["client"]
    assert tiny(client={"warn_after": 5.0}).digest == plain.digest
    assert tiny(client={"timeout": 5.0}).digest != plain.digest


@dataclass
class Ended:
    """A process that is no more."""

    exitcode: int

    def join(self, timeout):
        pass


@pytest.mark.parametrize(("status", "memory"), [(-9, True), (-15, False), (1, False)])
def test_only_a_kill_may_have_been_for_lack_of_memory(status, memory):
    """SIGKILL is what the kernel sends; other signals are somebody else's."""
    crew = Processes.__new__(Processes)
    crew._workers = {None: Ended(status)}
    error = crew._lost(None, "client 3 in round 1")
    assert ("(out of memory?)" in str(error)) == memory


class Board:
    """Something to share."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def share_memory_(self) -> Board:
        if self.fails:
            (shared.SEGMENTS / f"torch_{os.getpid()}_1_0").touch()
            raise RuntimeError("unable to allocate shared memory(shm) for file: No space left on device (28)")
        return self


@pytest.mark.parametrize("when", ["before", "during"])
def test_little_shared_memory_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, when):
    monkeypatch.setattr(shared, "SEGMENTS", tmp_path)
    (tmp_path / "torch_1_2_3").touch()  # another process's
    if when == "before":
        monkeypatch.setattr(shared, "shared_bytes", lambda thing: 1 << 60)
    with pytest.raises(UserError, match=r"shared memory and /dev/shm has .* --shm-size=1g\) or pass --executor serial"):
        share(Board(fails=when == "during"))
    assert [p.name for p in tmp_path.iterdir()] == ["torch_1_2_3"]


def test_what_a_job_shares_is_counted_once():
    @dataclass
    class Pair:
        a: torch.Tensor
        b: torch.Tensor

    rows = torch.zeros(10, 3)
    assert shared.shared_bytes(Pair(rows, rows[2:])) == 120
    assert shared.shared_bytes(Pair(rows, torch.zeros(2, dtype=torch.int64))) == 136
    assert shared.shared_bytes(Pair(rows.share_memory_(), torch.zeros(1))) == 4


def test_terminated_in_a_grid_and_resumed(smartfl, tiny_tables):
    """SIGTERM to the command alone, as docker stop sends it: the cells end with it."""
    mark = smartfl.environment["SMARTFL_TEST_MARK"] = uuid.uuid4().hex
    file = smartfl.write(tiny_tables(rounds=400))
    process = smartfl.start("compare", file, "--aggregators", "fedavg,uniform", "--out", "all", "--jobs", "2")
    wait_until(lambda: len(list(smartfl.directory.glob("all/*/checkpoints/*.json"))) >= 2)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "")
    assert "terminated; the finished rounds are kept" in err
    wait_until(lambda: alive(mark) == {}, seconds=30)
    assert all(whole_lines(f) for f in smartfl.directory.glob("all/*/rounds.jsonl"))

"""The measurements, for real and in small: what must hold of any machine, and what the command prints."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console

from smartfl.aggregators.smartfl import SmartFL
from smartfl.cli import main
from smartfl.measure import command
from smartfl.measure.clock import best, seconds, threads
from smartfl.measure.command import Extent, measure, table
from smartfl.measure.executors import crews, recommend, training_seconds
from smartfl.measure.kernels import RULES, kernel_seconds
from smartfl.measure.machine import read_bandwidth, sgemm_peak
from smartfl.measure.server_step import ServerStep
from smartfl.measure.training import WORKLOADS, Workload, training_rate

MLP = WORKLOADS[0]
TINY = Extent(0.0, ("mlp",), ("mlp",), 1000, ("mlp",), 4, 1)


def test_the_best_of_several_calls_leaves_out_the_first(monkeypatch):
    """Calls of 9, 3, 1, 2 seconds: the warm-up of 9 does not count, and three calls are the least."""
    times = iter([9.0, 3.0, 1.0, 2.0])
    monkeypatch.setattr("smartfl.measure.clock.seconds", lambda work: next(times))
    assert best(lambda: None, budget=0.0) == 1.0


def test_calls_go_on_until_the_budget_is_spent(monkeypatch):
    """Half a second each with a budget of three seconds: one warm-up and five that count."""
    called = []
    monkeypatch.setattr("smartfl.measure.clock.seconds", lambda work: called.append(1) or 0.5)
    best(lambda: None, budget=3.0, least=2)
    assert len(called) == 6


def test_threads_are_put_back_even_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        seconds(lambda: 1 / 0)
    assert torch.get_num_threads() == before


def test_the_limits_of_a_machine_are_positive_and_below_any_machine_s():
    assert 0.01 < sgemm_peak(0.0, size=64) < 10_000
    assert 0.01 < read_bandwidth(0.0, 1, megabytes=1) < 10_000


def test_training_really_trains():
    assert training_rate(MLP, 0.0) > 10


def test_every_workload_is_a_model_that_exists():
    assert [w.model for w in WORKLOADS] == ["mlp", "convnet", "resnet8", "mobilenet"]
    for workload in WORKLOADS:
        assert workload.build().eval()(torch.zeros(2, *workload.shape)).shape == (2, 10)


def test_the_parts_of_a_server_step_run_and_its_calls_add_up():
    """64 samples in batches of 32, 3 epochs: 6 steps and 3 refits."""
    step = ServerStep(Workload("resnet8", (3, 8, 8)), clients=3, samples=64, epochs=3)
    assert step.steps == 6
    parts = step.parts()
    assert [part.calls for part in parts.values()] == [6, 6, 6, 6, 1, 3, 1, 1, 1, 1, 1]
    for part in parts.values():
        part.work()
    step.plain_step()()
    step.aggregate(SmartFL(server_epochs=1))
    assert step.settled()._past.to_hear(step.updates.ids) == []
    assert all(p.grad is None for p in step.model.parameters())


def test_every_kernel_is_timed():
    found = kernel_seconds(0.0, clients=8, size=50)
    assert tuple(found) == RULES
    assert min(found.values()) > 0


def test_a_round_is_timed_by_executor():
    assert training_seconds(MLP, ("serial", 1), clients=3, samples=4) > 0


def test_crews_are_one_process_and_worker_processes(monkeypatch):
    monkeypatch.setattr("smartfl.measure.executors.cores", lambda: 8)
    assert crews() == [("serial", 1), ("processes", 4), ("processes", 8)]
    monkeypatch.setattr("smartfl.measure.executors.cores", lambda: 1)
    assert crews() == [("serial", 1)]


@pytest.mark.parametrize(
    ("serial", "processes", "expected"),
    [(2.0, 1.0, ("processes", 2)), (1.05, 1.0, ("serial", 1)), (1.0, 3.0, ("serial", 1))],
)
def test_the_fastest_is_recommended_and_serial_where_it_hardly_matters(serial, processes, expected):
    assert recommend({("serial", 1): serial, ("processes", 2): processes}) == expected


def test_a_record_is_json_and_its_table_names_every_number(monkeypatch):
    monkeypatch.setattr("smartfl.measure.executors.cores", lambda: 1)
    record = json.loads(json.dumps(measure(TINY, Console(quiet=True))))
    text = table(record)
    parts = record["server_step"]["mlp"]
    assert parts["seconds"] > parts["part_seconds"]["forward and backward"] * parts["mini_batches"]
    for word in ("GFLOP/s", "GB/s", "samples/s", "W·g", "krum", "--executor serial --workers 1"):
        assert word in text


def test_the_command_prints_a_record(monkeypatch, capsys):
    monkeypatch.setattr(command, "QUICK", TINY)
    with pytest.raises(SystemExit) as end:
        main(["bench", "--quick", "--json"])
    assert end.value.code == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kernels"]["parameters"] == 1000
    assert record["executors"]["mlp"]["recommended"]["workers"] >= 1


def test_a_part_can_be_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(command, "QUICK", TINY)
    for subject, shown, hidden in (("aggregators", "krum", "samples/s"), ("round", "samples/s", "krum")):
        with pytest.raises(SystemExit) as end:
            main(["bench", subject, "--quick"])
        out = capsys.readouterr().out
        assert end.value.code == 0
        assert shown in out
        assert hidden not in out
    with pytest.raises(SystemExit) as end:
        main(["bench", "rounds"])
    assert end.value.code == 2
    assert "bench rounds: accepted are aggregators, round" in capsys.readouterr().err

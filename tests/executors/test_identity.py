"""serial = processes(1) = processes(2), bit for bit; what a worker's failure looks like."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace

import pytest
import tomli_w
import torch

from smartfl.cli import main
from smartfl.data.dataset import Dataset, Dense, Sparse
from smartfl.data.digits import digits
from smartfl.errors import WorkerError
from smartfl.simulation import Simulation

LABEL_FLIP = {"name": "label_flip", "rate": 0.4}
CASES = {
    "scaffold and server momentum": {
        "client": {"algorithm": "scaffold", "optimizer": "sgd", "lr": 0.05},
        "aggregator": {"name": "fedavgm"},
        "model": {"name": "convnet"},
    },
    "a lasting Adam": {
        "client": {"algorithm": "lasting"},
        "model": {"name": "convnet"},
    },
    "BatchNorm under attack": {
        "attack": LABEL_FLIP,
        "aggregator": {"name": "smartfl", "server_epochs": 2},
        "model": {"name": "resnet8"},
    },
    "two architectures": {
        "attack": {"name": "omniscient", "rate": 0.4, "who": "per_round"},
        "aggregator": {"name": "smartfl", "server_epochs": 2},
        "model": [{"name": "convnet"}, {"name": "resnet8"}],
    },
    "bundles of ragged clients with a backdoor": {
        "data": {"clients": 40, "partition": "per_class", "alpha": 0.3},
        "attack": {"name": "backdoor", "rate": 0.3},
        "client": {"batch_size": 4, "epochs": 2, "participation": 0.8},
    },
    "bundles and single clients side by side": {
        "data": {"clients": 30},
        "attack": LABEL_FLIP,
        "client": {"algorithm": "fedprox", "batch_size": 4},
        "model": [{"name": "mlp", "hidden": [8]}, {"name": "convnet"}, {"name": "logistic"}],
    },
    "bundles on sparse rows": {
        "data": {"clients": 20},
        "attack": LABEL_FLIP,
        "client": {"batch_size": 4, "epochs": 2},
        "model": {"name": "logistic"},
    },
}


def sparse(inputs: Dense) -> Sparse:
    """The same samples by their entries other than 0."""
    rows = inputs.values.flatten(1)
    place = rows.nonzero()
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), (rows != 0).sum(dim=1).cumsum(0)])
    return Sparse(starts, place[:, 1].to(torch.int32), rows[rows != 0], rows.shape[1])


@pytest.fixture
def small() -> Dataset:
    """A sixth of the digits, so that a round takes milliseconds."""
    whole = digits()
    train, test = torch.arange(0, 1438, 6), torch.arange(60)
    return Dataset(
        "small",
        Dense(whole.train[train]),
        whole.train_labels[train],
        Dense(whole.test[test]),
        whole.test_labels[test],
        10,
    )


def outcome(experiment, dataset, executor, workers=None):
    simulation = Simulation(experiment, executor=executor, workers=workers, dataset=dataset)
    records = []
    for record in simulation:
        line = record.round_line() | record.coefficients_line()
        del line["seconds"]
        records.append(line)
    return records, simulation.state.scalars(), simulation.state.tensors()


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_workers_gives_the_same_bits(tiny, small, case):
    experiment = tiny(**CASES[case])
    if "sparse" in case:
        small = replace(small, train=sparse(small.train), test=sparse(small.test))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # what the caller's torch uses must not matter
    try:
        records, scalars, tensors = outcome(experiment, small, "serial")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    for workers in (1, 2):
        others = outcome(experiment, small, "processes", workers)
        assert others[0] == records
        assert others[1] == scalars
        assert others[2].keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(others[2][name], tensor), name


def test_bundles_go_on_from_a_saved_state_on_another_executor(tiny, small):
    """Two rounds in workers, the state to another simulation, the third in this process; against three in one."""
    experiment = tiny(rounds=3, **CASES["bundles of ragged clients with a backdoor"])
    begun = Simulation(experiment, workers=2, dataset=small)
    for record in begun:
        if record.round == 2:
            break
    resumed = Simulation(experiment, executor="serial", dataset=small)
    resumed.restore(begun.state)
    assert [record.round for record in resumed] == [3]
    _, scalars, tensors = outcome(experiment, small, "serial")
    assert resumed.state.scalars() == scalars
    for name, tensor in tensors.items():
        assert torch.equal(resumed.state.tensors()[name], tensor), name


def test_workers_end_with_the_loop(tiny, small):
    before = set(multiprocessing.active_children())
    for record in Simulation(tiny(), workers=2, dataset=small):
        assert len(set(multiprocessing.active_children()) - before) == 2
        if record.round == 1:
            break
    assert set(multiprocessing.active_children()) == before


FRAGILE = """
import os, signal
from pathlib import Path
from torch import nn


class Fragile(nn.Module):
    def __init__(self, how, marker):
        super().__init__()
        self.flatten, self.linear = nn.Flatten(), nn.Linear(64, 10)
        self.how, self.marker, self.calls = how, Path(marker), 0

    def forward(self, x):
        self.calls += self.training
        if self.training and self.calls == 2 and not self.marker.exists():
            self.marker.touch()
            if self.how == "raise":
                raise RuntimeError("the moon is in the wrong house")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.linear(self.flatten(x))


def fragile(input_shape: tuple, num_classes: int, how: str, marker: str) -> nn.Module:
    return Fragile(how, marker)
"""


NEVER = """
from torch import nn


class Never(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, x):
        assert not self.training, "not today"
        return super().forward(x.flatten(1))
"""


@pytest.fixture
def fragile(tiny, tmp_path, monkeypatch):
    """A model that fails once, in its second training step, by an exception or by a real SIGKILL of its process."""
    (tmp_path / "fragile_model.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(tmp_path)

    def make(how, **changes):
        model = {"name": "fragile_model:fragile", "how": how, "marker": str(tmp_path / "failed")}
        return tiny(model=model, **changes)

    return make


@pytest.mark.parametrize("executor", ["processes", "serial"])
def test_an_exception_on_a_client_is_told_with_its_own_words(fragile, small, executor):
    with pytest.raises(WorkerError, match=r"client \d .*the moon is in the wrong house"):
        Simulation(fragile("raise"), workers=1, executor=executor, dataset=small).run()


def test_workers_that_fail_together_are_told_of_in_one_sentence(smartfl, tiny_tables):
    (smartfl.directory / "never.py").write_text(NEVER)
    smartfl.write(tiny_tables(model={"name": "never:Never"}))
    done = smartfl("run", "tiny.toml", "--workers", "3")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "AssertionError: not today" in done.stderr


def test_a_killed_worker_names_its_client(fragile, small):
    before = set(multiprocessing.active_children())
    with pytest.raises(WorkerError, match=r"^the worker at client \d in round \d was killed by signal 9 .*--resume"):
        Simulation(fragile("kill"), workers=2, dataset=small).run()
    assert set(multiprocessing.active_children()) == before


def test_a_run_whose_worker_was_killed_is_resumed(fragile, tiny, tmp_path, capsys):
    """Exit status 1 with one sentence; the same command with --resume ends at the same model."""
    file = tmp_path / "fragile.toml"
    file.write_text(tomli_w.dumps(fragile("kill", rounds=3).tables()))
    arguments = ["run", str(file), "--workers", "2"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--out", str(tmp_path / "run")])
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "was killed by signal 9" in err
    assert "client " in err
    for out_dir, more in (("run", ["--resume"]), ("reference", [])):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--out", str(tmp_path / out_dir), *more])
        assert ended.value.code == 0
    for name in ("coefficients.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "reference" / name).read_bytes()


def test_nothing_is_left_in_shared_memory(tiny, small):
    before = set(os.listdir("/dev/shm"))  # a process that was killed long ago may have had our number
    Simulation(tiny(), workers=1, dataset=small).run()
    mine = [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]
    assert set(mine) <= before

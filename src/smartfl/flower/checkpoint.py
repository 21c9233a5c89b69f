"""The run directory of a deployment: what ``smartfl report`` reads, and what a restarted server goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from smartfl.errors import UserError
from smartfl.experiment.files import read_experiment, safe_name, write_experiment
from smartfl.experiment.schema import ClientSettings, DataSettings, Experiment
from smartfl.flat import FlatSpec
from smartfl.flower.records import array_of
from smartfl.records.round import RoundRecord
from smartfl.registry import names, resolve
from smartfl.runs.atomic import write_bytes, write_text
from smartfl.runs.directory import RunDirectory
from smartfl.runs.environment import environment
from smartfl.state import State


class Journal:
    """A run directory in the simulator's format, with two files more.

    nodes.json         which node has which client id
    fixed.safetensors  arrays of the app's model that never change; a restarted app may have drawn others
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        _allow_changes(path, experiment)
        # Nodes come and go, and samples are refreshed: what a checkpoint belongs to is rule, seed and model.
        owner = experiment.model_copy(update={"data": DataSettings(), "client": ClientSettings()}).trajectory
        self.run = RunDirectory.open(path, experiment, resume=True, owner=owner)
        self.fixed_file = path / "fixed.safetensors"

    def restore(self, device: str) -> State | None:
        """The state after the last whole round, if there is one."""
        state = self.run.restore()
        found = environment(1, "flower", device)
        found["packages"]["flwr"] = version("flwr")
        self.run.write_environment(found, goes_on=state is not None)
        return state

    def same_fixed(self, arrays: ArrayRecord) -> ArrayRecord:
        """``arrays`` with what never changes as it was when the run began."""
        if not self.fixed_file.exists():
            return arrays
        saved: Mapping[str, Array] = {
            k: array_of(v) for k, v in safetensors.torch.load(self.fixed_file.read_bytes()).items()
        }
        return ArrayRecord({k: saved.get(k, array) for k, array in arrays.items()})

    def keep_fixed(self, fixed: Mapping[str, Tensor]) -> None:
        """Save what never changes, once."""
        if fixed and not self.fixed_file.exists():
            write_bytes(self.fixed_file, safetensors.torch.save(dict(fixed)))

    def add(self, record: RoundRecord, state: State, spec: FlatSpec) -> None:
        """Log a round and checkpoint it; the last planned one also leaves the model, and a result if it was tested."""
        self.run.add(record, state)
        if record.round < self.run.experiment.rounds:
            return
        if record.accuracy is not None:
            self.run.finish(state, [spec])
        else:
            model = {name: value.clone() for name, value in spec.unflatten(state.vectors[0].cpu()).items()}
            write_bytes(self.run.path / "model.safetensors", safetensors.torch.save(model))

    def close(self) -> None:
        self.run.close()


def described(
    rule: object, path: Path, *, seed: int, rounds: int, clients: int, share: float, proxy: int, model: object
) -> Experiment:
    """A deployment as an experiment, for its records: what is known of it, and ``dataset = "flower"``."""
    return Experiment.of(
        {
            "name": safe_name(path.name) or "flower",
            "seed": seed,
            "rounds": max(1, rounds),
            "data": {"dataset": "flower", "clients": max(1, clients), "proxy": {"size": proxy}},
            "model": {"name": _dotted(type(model))},
            "client": {"participation": min(1.0, share) or 1.0},
            "aggregator": _table(rule),
        }
    )


def _table(rule: object) -> dict[str, Any]:
    """The ``[aggregator]`` table that would build ``rule``."""
    found: dict[str, Any] = {"name": _registered(rule)}
    for f in fields(rule) if is_dataclass(rule) else ():
        value = getattr(rule, f.name)
        if f.init and isinstance(value, bool | int | float | str | list | tuple):
            found[f.name] = list(value) if isinstance(value, tuple) else value
    inner = getattr(rule, "rule", None)
    return found if inner is None else {**found, "rule": _table(inner)}


def _registered(rule: object) -> str:
    for name in names("aggregators"):
        with suppress(UserError):  # somebody else's rule that cannot be imported
            if resolve("aggregators", name) is type(rule):
                return name
    return _dotted(type(rule))


def _dotted(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _allow_changes(path: Path, experiment: Experiment) -> None:
    """Write the experiment anew if a deployment goes on with more rounds, other nodes or other samples.

    What may not change is the rule, the seed and the model: ``RunDirectory.open`` says so.
    """
    file = path / "experiment.toml"
    if not file.exists():
        return
    found = read_experiment(file)
    free = {key: getattr(experiment, key) for key in ("name", "rounds", "data", "client")}
    if found.digest != experiment.digest and found.model_copy(update=free).digest == experiment.digest:
        (path / "result.json").unlink(missing_ok=True)
        write_text(file, write_experiment(experiment))

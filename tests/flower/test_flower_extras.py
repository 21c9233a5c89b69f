"""What surrounds the strategy: the template, the compose file, and a core that imports neither Flower nor Ray."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from flower_world import LoopGrid
from safetensors.torch import load_file

from smartfl.cli import main

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys
for name in ("flwr", "ray"):
    sys.modules[name] = None  # an import of it fails from now on
import importlib, pkgutil, smartfl
for module in pkgutil.walk_packages(smartfl.__path__, "smartfl."):
    if not re.match(r"smartfl\\.(flower\\.(?!command)|experiment\\.presets)", module.name):
        importlib.import_module(module.name)
from smartfl import Experiment, Simulation
tables = {"rounds": 1, "data": {"clients": 4, "partition": "iid"}, "aggregator": {"name": "fedavg"}}
print(Simulation(Experiment.of(tables), executor="serial").run().rounds)
try:
    from smartfl.flower import AggregatorStrategy
except smartfl.UserError as error:
    print(error)
"""


def test_the_core_imports_neither_flower_nor_ray():
    """With both of them absent every module of the core loads and runs, and smartfl.flower says what it needs."""
    code = "import re\n" + WITHOUT
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1",
        "smartfl.flower.AggregatorStrategy needs Flower 1.24 or newer: pip install 'smartfl[flower]'",
    ]


def test_using_the_core_loads_neither_where_both_are_installed():
    code = "import sys, smartfl.cli, smartfl.simulation, smartfl.flower; print({'flwr', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "set()", done.stderr


def type_in(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return ended.value.code


def test_a_new_app_runs_in_process(tmp_path, monkeypatch, capsys):
    app = tmp_path / "My App"
    assert type_in("flower", "new", app) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(app)
    project = tomllib.loads((app / "pyproject.toml").read_text())
    assert project["project"]["name"] == "my-app"
    assert "NAME" not in (app / "README.md").read_text()
    monkeypatch.syspath_prepend(str(app))
    from app import client_app, server_app

    settings = {**project["tool"]["flwr"]["app"]["config"], "rounds": 8, "out": str(tmp_path / "run")}

    def node(number):
        config = {"partition-id": number, "num-partitions": settings["clients"]}
        context = SimpleNamespace(run_config=settings, node_config=config)
        return lambda message: client_app.app(message, context)

    grid = LoopGrid({f"node-{i}": node(i) for i in range(settings["clients"])})
    server_app.app(grid, SimpleNamespace(run_config=settings, state=None))
    assert load_file(tmp_path / "run" / "model.safetensors")["1.weight"].shape == (32, 64)
    last = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[-1]
    assert float(re.search(r'"accuracy": ([0-9.]+)', last)[1]) > 0.85


def test_a_directory_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert type_in("flower", "new", tmp_path) == 2
    assert "is there already and not empty" in capsys.readouterr().err


def test_the_compose_file_has_commands_that_flower_accepts():
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    parsers = {"flower-superlink": _parse_args_run_superlink(), "flower-supernode": _parse_args_run_supernode()}
    compose = yaml.safe_load((ROOT / "docs" / "deploy" / "compose.yml").read_text())
    assert set(compose["services"]) == {"superlink", "supernode"}
    for service in compose["services"].values():
        program, *arguments = service["command"]
        parsers[program].parse_args([re.sub(r"\$\{[^}]*\}", "1", str(a)) for a in arguments])
        assert {Path(v.split(":")[0]).parts[0] for v in service["volumes"]} <= {"certificates", "keys", "state", "data"}

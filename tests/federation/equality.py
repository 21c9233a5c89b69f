"""Deployment, Flower's simulation and our simulator: the same rule, seed and data give the same model."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from processes import Federation, free_port, healthy, wait
from safetensors.torch import load_file

CLIENTS, ROUNDS = 3, 3
CONFIG = {"rounds": ROUNDS, "clients": CLIENTS}


def check_equality(federation: Federation, port: int) -> list[str]:
    """Run the template three times; the sentences on what differs by more than 1e-6."""
    root = federation.root
    app = root / "digits"
    federation.ask_smartfl("flower", "new", app)
    for number in range(CLIENTS):
        start_node(federation, port, number)
    deployed = _run(federation, app, "loopback", root / "deployed")
    for number in range(CLIENTS):
        federation.stop(f"node-{number}")
    simulated = _simulated(federation, app)
    ours = _ours(app)
    failures = []
    for name, model in (("deployment", deployed), ("Flower's simulation", simulated)):
        far = max(float((model[k] - v).abs().max()) for k, v in ours.items())
        print(f"{name} and our simulator after {ROUNDS} rounds: largest difference {far:.1e}")
        if far > 1e-6:
            failures.append(f"{name} is {far:.1e} away from our simulator")
    return failures


def start_node(federation: Federation, port: int, number: int, name: str = "", extra: str = "") -> None:
    name = name or f"node-{number}"
    federation.start(
        name, "flower-supernode", "--superlink", f"127.0.0.1:{port}", "--root-certificates", federation.root / "ca.crt",
        "--host", "127.0.0.1", "--port", str(free_port()), "--auth-supernode-private-key", federation.root / name,
        "--node-config", f"partition-id={number} num-partitions={CLIENTS} number={number} {extra}".strip(),
    )  # fmt: skip


def finished(federation: Federation, link: str, run: str, seconds: float) -> str:
    """The run's recorded status once it has ended; ``flwr run`` itself returns 0 whatever becomes of the run."""

    def ended() -> str | None:
        status = str(federation.ask_json("list", link, "--run-id", run)["runs"][0]["status"])
        return status if status.startswith("finished") else None

    return str(wait(f"run {run} ends", ended, seconds))


def submit(federation: Federation, app: Path, link: str, *more: str, **config: object) -> str:
    """``flwr run``; the run's id."""
    text = " ".join(f"{k}='{v}'" if isinstance(v, str | Path) else f"{k}={v}" for k, v in config.items())
    return str(federation.ask_json("run", app, link, "--run-config", text, *more)["run-id"])


def _run(federation: Federation, app: Path, link: str, out: Path, *more: str) -> dict[str, torch.Tensor]:
    run = submit(federation, app, link, *more, out=out, **CONFIG)
    status = finished(federation, link, run, 900)
    if status != "finished:completed":
        raise RuntimeError(f"{link}: {status}\n{federation.ask('log', run, link, '--show', check=False)[-3000:]}")
    return load_file(out / "model.safetensors")


def _simulated(federation: Federation, app: Path) -> dict[str, torch.Tensor]:
    port = free_port()
    settings = (federation.root / "homes" / "user" / "config.toml").read_text(encoding="utf-8")
    local = f'\n[superlink.simulation]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (federation.root / "homes" / "user" / "config.toml").write_text(settings + local, encoding="utf-8")
    federation.start(
        "simulation", "flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port),
        "--disable-runtime-dependency-installation",
    )  # fmt: skip
    wait("the simulation's SuperLink answers", lambda: healthy(port, None), 240)
    resources = f"num-supernodes={CLIENTS} client-resources-num-cpus=1 init-args-num-cpus=2"
    model = _run(federation, app, "simulation", federation.root / "simulated", "--federation-config", resources)
    federation.kill("simulation")
    return model


def _ours(app: Path) -> dict[str, torch.Tensor]:
    """Our simulator with the template's own model, data and training."""
    from smartfl import Experiment, Simulation

    sys.path.insert(0, str(app))
    tables = {
        "seed": 0,
        "rounds": ROUNDS,
        "data": {"clients": CLIENTS, "partition": "feddf", "alpha": 0.5, "proxy": {"size": 128}},
        "model": {"name": "app.task:new_model"},
        "client": {"optimizer": "sgd", "lr": 0.5, "epochs": 3, "batch_size": 32, "participation": 1.0},
        "aggregator": {"name": "smartfl"},
    }
    simulation = Simulation(Experiment.of(tables), executor="serial")
    simulation.run()
    return simulation.specs[0].unflatten(simulation.state.vectors[0])

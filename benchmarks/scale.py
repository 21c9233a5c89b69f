"""What a round costs: seconds and peak memory against clients, cohort, parameters and proxy samples.

    python benchmarks/scale.py [--axes clients cohort parameters proxy] [--report]

One axis is varied at a time around 1,000 clients, 100 of them a round, an MLP of 1e4 parameters and 128 proxy samples;
SmartFL with 5 server epochs, 20 samples of noise (8×8 pixels) per client, in one process and on one core, so that
numbers add up.  Every point runs in a process of its own; its first round is not counted, the fastest of the next
three is.  Memory is the peak of the process beyond what it has after imports, the data included.  Appends to
results/scale/records.jsonl and draws a plot for each axis, with the growth fitted to it, to figures/scale.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, append, memory, newest, provenance

HERE = RESULTS / "scale"
FIGURES = Path("figures") / "scale"  # where the command is given
BASE = {"clients": 1000, "cohort": 100, "parameters": 10_000, "proxy": 128}
AXES: dict[str, tuple[list[int], dict[str, int]]] = {
    "clients": ([100, 300, 1000, 3000, 10_000], {}),
    "cohort": ([10, 30, 100, 300], {}),
    "parameters": ([10_000, 100_000, 1_000_000, 10_000_000], {"cohort": 10}),
    "proxy": ([32, 64, 128, 256, 512, 1024], {}),
}
LABELS = {
    "clients": "clients in the federation (100 a round)",
    "cohort": "clients in a round",
    "parameters": "parameters of the model (10 clients a round)",
    "proxy": "proxy samples",
}
PER_CLIENT, ROUNDS, SIDE = 20, 4, 8


def experiment(point: dict[str, int]) -> dict[str, Any]:
    """A point's experiment; the hidden layer of width h makes (64 + 1 + 10)·h + 10 parameters."""
    return {
        "rounds": ROUNDS,
        "data": {"clients": point["clients"], "partition": "feddf", "alpha": 1.0, "proxy": {"size": point["proxy"]}},
        "model": {"name": "mlp", "hidden": [max(1, (point["parameters"] - 10) // 75)]},
        "client": {"participation": point["cohort"] / point["clients"]},
        "aggregator": {"name": "smartfl", "server_epochs": 5},
    }


def measure(point: dict[str, int]) -> dict[str, Any]:
    """One point in this process."""
    import torch

    from smartfl.data.dataset import Dataset, Dense
    from smartfl.experiment.schema import Experiment
    from smartfl.measure.clock import seconds
    from smartfl.simulation import Simulation

    torch.set_num_threads(1)
    before = memory()["now"]
    samples = PER_CLIENT * point["clients"] + point["proxy"]
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (samples, 1, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (samples,), generator=generator)
    dataset = Dataset("noise", Dense(pixels), labels, Dense(pixels[:500]), labels[:500], 10)
    built: list[Simulation] = []
    start = seconds(
        lambda: built.append(Simulation(Experiment.of(experiment(point)), executor="serial", dataset=dataset))
    )
    rounds = [record.seconds for record in islice(built[0], 1, None)]
    fastest = min(rounds, key=lambda s: s.train + s.aggregate + s.evaluate)
    return point | {
        "real_parameters": built[0].specs[0].num_parameters,
        "setup_seconds": start,
        "train": fastest.train,
        "aggregate": fastest.aggregate,
        "evaluate": fastest.evaluate,
        "seconds": fastest.train + fastest.aggregate + fastest.evaluate,
        "memory_mb": memory()["peak"] - before,
        "data_mb": pixels.numel() / 2**20,
    }


def fitted(x: list[float], y: list[float]) -> dict[str, float]:
    """y ≈ c·x^k by least squares on logarithms, and y ≈ a + b·x."""
    k, log_c = np.polyfit(np.log(x), np.log(y), 1)
    b, a = np.polyfit(x, y, 1)
    return {"exponent": float(k), "factor": float(np.exp(log_c)), "fixed": float(a), "each": float(b)}


def fits(axis: str, points: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The growth of seconds and megabytes along an axis."""
    x = [float(point[axis]) for point in points]
    return {what: fitted(x, [point[what] for point in points]) for what in ("seconds", "setup_seconds", "memory_mb")}


def draw(axis: str, points: list[dict[str, Any]], found: dict[str, dict[str, float]], directory: Path) -> None:
    """Seconds a round, by part, and memory; PNG and SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    x = np.array([point[axis] for point in points], dtype=float)
    fine = np.geomspace(x.min(), x.max(), 100)
    with rc_context({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "smartfl"}):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        time, room = figure.subplots(1, 2)
        for part, colour, marker in (
            ("train", "#0063a8", "o"),
            ("aggregate", "#c8500a", "s"),
            ("evaluate", "#00795a", "^"),
        ):
            time.plot(x, [p[part] for p in points], color=colour, marker=marker, lw=1.4, label=part)
        time.plot(x, [p["seconds"] for p in points], color="#18212b", marker="D", lw=0, label="round")
        room.plot(x, [p["memory_mb"] for p in points], color="#18212b", marker="D", lw=0, label="peak beyond imports")
        for axes, what in ((time, "seconds"), (room, "memory_mb")):
            law = found[what]
            label = f"fit: ∝ {axis}^{law['exponent']:.2f}"
            axes.plot(
                fine, law["factor"] * fine ** law["exponent"], color="#18212b", ls=(0, (4, 3)), lw=1.2, label=label
            )
            axes.set(xscale="log", yscale="log", xlabel=LABELS[axis])
            axes.grid(color="#e9edf1")
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            values = [point[what] for point in points]
            if max(values) < 5 * min(values):  # a logarithmic axis would make a mountain of a few megabytes
                axes.set_yscale("linear")
                axes.set_ylim(bottom=0)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
        time.set(title="Seconds a round, one core")
        room.set(title="Memory, MB")
        directory.mkdir(parents=True, exist_ok=True)
        figure.savefig(directory / f"{axis}.png", dpi=160, facecolor="white")
        figure.savefig(directory / f"{axis}.svg", facecolor="white", metadata={"Date": None})


def report(record: dict[str, Any]) -> str:
    """The README of the results."""
    intro = [line.strip() for line in (__doc__ or "").splitlines()[4:]]
    lines = ["# What a round costs", "", "`python benchmarks/scale.py`.", " ".join(intro).strip(), ""]
    for axis, points in record["axes"].items():
        found = fits(axis, points)
        lines += [
            f"## {LABELS[axis][0].upper()}{LABELS[axis][1:]}",
            "",
            f"| {axis} | train s | aggregate s | evaluate s | round s | set-up s | memory MB | of it data |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|",
            *(
                f"| {p[axis]:,} | {p['train']:.4f} | {p['aggregate']:.4f} | {p['evaluate']:.4f} | {p['seconds']:.4f} | "
                f"{p['setup_seconds']:.3f} | {p['memory_mb']:.1f} | {p['data_mb']:.1f} |"
                for p in points
            ),
            "",
            *(
                f"{name}: ∝ {axis}^{found[what]['exponent']:.2f}; linear fit {found[what]['fixed']:.4g} + "
                f"{found[what]['each']:.3g} · {axis}.  "
                for what, name in (
                    ("seconds", "Seconds a round"),
                    ("setup_seconds", "Set-up"),
                    ("memory_mb", "Memory in MB"),
                )
            ),
            "",
        ]
    return "\n".join([*lines, provenance(record), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES))
    parser.add_argument("--largest", type=int, default=10**9, help="leave out points beyond this")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--report", action="store_true", help="only write the README and plots from the newest record")
    options = parser.parse_args()
    if not options.report:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        axes: dict[str, list[dict[str, Any]]] = {}
        for axis in options.axes:
            values, changed = AXES[axis]
            for value in (v for v in values if v <= options.largest):
                command = [sys.executable, __file__, "--child", json.dumps(BASE | changed | {axis: value})]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
                axes.setdefault(axis, []).append(json.loads(done.stdout.splitlines()[-1]))
                print(axis, axes[axis][-1], flush=True)
        append(options.out / "records.jsonl", {"axes": axes, "fits": {k: fits(k, v) for k, v in axes.items()}})
    record = newest(options.out / "records.jsonl")
    for axis, points in record["axes"].items():
        draw(axis, points, fits(axis, points), FIGURES)
    text = report(record)
    (options.out / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(json.loads(sys.argv[2]))))
    else:
        main()

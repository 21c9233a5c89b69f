"""16 clients × 100 million parameters on one machine: seconds and memory of FedAvg, median, Krum and SmartFL.

    python benchmarks/large.py [--dir /tmp] [--clients 16] [--hidden 9866] [--threads N] [--rules …] [--report]

The matrix of the clients' models (6.4 GB as float32) is a mapped file in ``--dir``, which is removed at the end: pages
of it are the page cache's, not the process's.  Every rule runs in a process of its own.  "own" is the peak of a
process's own pages above what it had before the rule, "resident" the peak of all its pages, those of the file included.
Then FedAvg and SmartFL once more with the matrix stored as bfloat16.  Appends to results/large/records.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import RESULTS, Watch, append, memory, newest, provenance
from torch import nn

from smartfl.measure.clock import seconds
from smartfl.models.mlp import mlp
from smartfl.registry import build
from smartfl.types import Proxy, Rule, Server, Updates

HERE = RESULTS / "large"
FEATURES, CLASSES, SAMPLES = 256, 10, 32
SETTINGS: dict[str, dict[str, Any]] = {
    "krum": {"f": 3},
    "smartfl": {"server_epochs": 2, "batch_size": 16},  # 4 mini-batches: the cost of one is what counts here
}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def network(hidden: int) -> nn.Module:
    """Two hidden layers: nearly all parameters are one (hidden, hidden) matrix."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mlp((FEATURES,), CLASSES, (hidden, hidden))


def write(file: Path, clients: int, hidden: int, storage: str) -> None:
    """Client models around one another, a row at a time."""
    from smartfl.flat import FlatSpec

    model = network(hidden)
    spec = FlatSpec.of(model)
    origin, generator = spec.flatten(model), torch.Generator().manual_seed(1)
    noise = torch.randn(1 << 20, generator=generator)
    with file.open("wb") as out:
        for i in range(clients):
            for part, start in enumerate(range(0, spec.size, len(noise))):
                piece = origin[start : start + len(noise)]
                shift = (i * 1009 + part * 31) % len(
                    noise
                )  # other noise for every client, without drawing 1.6e9 numbers
                row = piece * (1 + 0.1 * torch.roll(noise, shift)[: len(piece)])
                row.to(TYPES[storage]).view(torch.uint8).numpy().tofile(out)


def mapped(file: Path, clients: int, size: int, storage: str) -> torch.Tensor:
    """The matrix (clients, size), in the file."""
    if storage == "float32":
        return torch.as_tensor(np.memmap(file, np.float32, "r+", shape=(clients, size)))
    return torch.from_file(str(file), shared=True, size=clients * size, dtype=TYPES[storage]).view(clients, size)


def measure(name: str, file: Path, clients: int, hidden: int, storage: str) -> dict[str, Any]:
    """One rule in this process."""
    from smartfl.flat import FlatSpec

    model = network(hidden)
    spec, generator = FlatSpec.of(model), torch.Generator().manual_seed(2)
    updates = Updates.of(mapped(file, clients, spec.size, storage), spec=spec)
    proxy = Proxy(
        torch.randn(SAMPLES, FEATURES, generator=generator),
        torch.randint(0, CLASSES, (SAMPLES,), generator=generator),
        CLASSES,
    )
    rule: Rule = build("aggregators", name, SETTINGS.get(name, {}), "aggregator")
    before = memory()
    with Watch() as watch:
        taken = seconds(lambda: rule(updates, Server(model=model, proxy=proxy)))
    after = memory()
    return {
        "rule": name,
        "storage": storage,
        "parameters": spec.size,
        "threads": torch.get_num_threads(),
        "seconds": taken,
        "own_mb": watch.peak - before["own"],
        "resident_mb": after["peak"],
        "matrix_mb": updates.matrix.numel() * updates.matrix.element_size() / 2**20,
    }


def run(options: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Build each matrix, then every rule in its own process."""
    found = []
    for storage, rules in (
        ("float32", options.rules),
        ("bfloat16", [r for r in options.rules if r in ("fedavg", "smartfl")]),
    ):
        if not rules:
            continue
        file = directory / f"{storage}.bin"
        took = seconds(lambda file=file, storage=storage: write(file, options.clients, options.hidden, storage))  # type: ignore[misc]
        print(f"{storage} matrix written in {took:.0f} s", flush=True)
        for name in rules:
            arguments = [name, file, options.clients, options.hidden, storage, options.threads]
            command = [sys.executable, __file__, "--child", *map(str, arguments)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(found[-1], flush=True)
        file.unlink()
    return found


def report(record: dict[str, Any]) -> str:
    lines = [
        f"# {record['clients']} clients × {record['runs'][0]['parameters']:,} parameters",
        "",
        "`python benchmarks/large.py`: the clients' models are a mapped file. “own” is the peak of the process's own "
        "memory above what it had before the rule; “resident” includes the pages of the file that happen to be cached. "
        "SmartFL makes 4 mini-batches of 16 samples.",
        "",
        "| rule | stored as | matrix MB | s | own MB | resident MB |",
        "|---|---|---:|---:|---:|---:|",
        *(
            f"| {r['rule']} | {r['storage']} | {r['matrix_mb']:,.0f} | {r['seconds']:.1f} | {r['own_mb']:,.0f} | "
            f"{r['resident_mb']:,.0f} |"
            for r in record["runs"]
        ),
        "",
        f"{record['runs'][0]['threads']} thread(s). Pages swapped out during the run: {record['swapped']}.",
        "",
    ]
    return "\n".join([*lines, provenance(record), ""])


def swapped() -> int:
    """Pages the machine has written to swap since it started."""
    lines = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("pswpout"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=9_866, help="9866: 100 million parameters")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rules", nargs="+", default=["fedavg", "median", "krum", "smartfl"])
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--report", action="store_true", help="only write the README from the newest record")
    options = parser.parse_args()
    if not options.report:
        size = options.hidden**2 + (FEATURES + CLASSES + 2) * options.hidden + CLASSES
        needed, free = 4 * size * options.clients, shutil.disk_usage(options.dir).free
        if needed > 0.9 * free:
            sys.exit(f"{options.dir} has {free / 2**30:.1f} GB free, {needed / 2**30:.1f} GB are needed: pass --dir")
        before = swapped()
        with tempfile.TemporaryDirectory(dir=options.dir) as directory:
            runs = run(options, Path(directory))
        append(options.out / "records.jsonl", {"clients": options.clients, "runs": runs, "swapped": swapped() - before})
    text = report(newest(options.out / "records.jsonl"))
    (options.out / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        rule_name, path, rows, width, stored, count = sys.argv[2:]
        torch.set_num_threads(int(count))
        print(json.dumps(measure(rule_name, Path(path), int(rows), int(width), stored)))
    else:
        main()

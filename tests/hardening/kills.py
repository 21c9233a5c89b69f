"""Kills at random moments: `make kills KILLS=200`.  Each run is resumed, and must end at the same bits."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomli_w

from smartfl.runs.lines import whole_lines

TABLES = {
    "rounds": 30,
    "data": {"clients": 8, "partition": "iid", "proxy": {"size": 32}},
    "model": {"name": "mlp", "hidden": [8]},
    "client": {"algorithm": "scaffold", "optimizer": "sgd", "lr": 0.05, "participation": 0.5},
    "attack": {"name": "label_flip", "rate": 0.25},
    "aggregator": {"name": "fedavgm"},
}


def outcome(run: Path) -> tuple[object, ...]:
    lines = whole_lines(run / "rounds.jsonl")
    for line in lines:
        del line["seconds"]
    return lines, *((run / name).read_bytes() for name in ("coefficients.jsonl", "model.safetensors", "result.json"))


def main() -> int:
    """Exit status 1 where a run ended at other bits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="smartfl-kills-") as name:
        folder = Path(name)
        (folder / "killed.toml").write_text(tomli_w.dumps(TABLES))

        def command(out: str) -> list[str]:
            return [
                sys.executable,
                "-m",
                "smartfl.cli",
                "run",
                "killed.toml",
                "--out",
                out,
                "--executor",
                "serial",
                "--resume",
            ]

        def start(out: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(command(out), cwd=folder, env=environment, stdout=subprocess.DEVNULL)

        def seconds_to(process: subprocess.Popen[bytes], out: str, limit: float) -> float:
            """How long the process writes, from its first file on; ``limit`` at most."""
            while process.poll() is None and not (folder / out).exists():
                time.sleep(0.001)
            began = time.monotonic()
            while process.poll() is None and time.monotonic() - began < limit:
                time.sleep(0.001)
            return time.monotonic() - began

        whole = seconds_to(start("reference"), "reference", 1e9)
        expected = outcome(folder / "reference")
        killed = same = 0
        while killed < arguments.kills:
            out = f"run{killed}"
            process = start(out)
            seconds_to(process, out, draw.random() * whole)
            process.kill()
            if process.wait() == 0:  # it was at its end before
                shutil.rmtree(folder / out)
                continue
            killed += 1
            if start(out).wait() != 0:
                print(f"{out} could not be resumed")
                return 1
            same += outcome(folder / out) == expected
            shutil.rmtree(folder / out)
    print(f"seed {arguments.seed}: {killed} kills, {same} bit-identical")
    return 0 if same == killed else 1


if __name__ == "__main__":
    sys.exit(main())

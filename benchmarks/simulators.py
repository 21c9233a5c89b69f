"""The same federated rounds in smartfl, Flower, pfl-research and a hand-written PyTorch loop, side by side.

    python benchmarks/simulators.py [--workloads a b c d] [--peers …] [--rounds N] [--repeat N] [--out DIR] [--report]

Every peer reads the same files (arrays, shards, cohorts, initial model) and runs in a process of its own, in its own
environment under .peers/, which is made on first use.  Peers take turns, in another order in every repetition.
Measurements are appended to results/simulators/records.jsonl; results/simulators/README.md is made from the newest
full run (--report: only that).  Datasets must be there: see ``smartfl data fetch`` and SMARTFL_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from cells import RESULTS
from peers.environments import ROOT, python, variables
from peers.export import export
from peers.machine import describe, flops_per_sample, sgemm_peak
from peers.memory import PeakMemory
from peers.report import write_report
from peers.workload import CORES, WORKLOADS, Workload

PATIENCE = 900  # seconds that one run of one peer may take

Record = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A simulator and how it is started."""

    module: str
    environment: str | None = None
    threads: int = 1
    processes: int = 1

    def command(self) -> list[str]:
        launch = [str(python(self.environment))]
        if self.processes > 1:
            launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}"]
        return [*launch, "-m", "peers", self.module]


PEERS = {
    "smartfl": Peer("smartfl"),
    "Flower": Peer("flower", "flower"),
    "Flower, defaults": Peer("flower_default", "flower", threads=CORES),
    "pfl": Peer("pfl", "pfl", threads=CORES),
    "pfl, 2 processes": Peer("pfl", "pfl", processes=CORES),
    "hand-written loop": Peer("hand_loop", threads=CORES),
}


def end(members: Sequence[int]) -> None:
    """End what a peer left running."""
    for pid in members:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def measure(peer: Peer, files: Path, rounds: int, scratch: Path) -> Record:
    """One run of one peer: its own account of the rounds, and what can be seen from outside."""
    result, log = scratch / "result.json", scratch / "log.txt"
    result.unlink(missing_ok=True)
    command = [*peer.command(), str(files), str(rounds), str(result)]
    with log.open("wb") as out:
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=scratch, env=variables(peer.threads), stdout=out, stderr=out, start_new_session=True
        )
        with PeakMemory(process.pid) as memory:
            try:
                status = process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                status = -1
            finally:
                end(memory.tree.alive())
                process.wait()
    if status or not result.exists():
        return {"error": f"status {status}: " + log.read_text(encoding="utf-8", errors="replace")[-1500:]}
    told: Record = json.loads(result.read_text(encoding="utf-8"))
    ends = told.pop("ends")
    return told | {
        "start_seconds": round(ends[0] - started, 3),
        "round_seconds": [round(b - a, 4) for a, b in pairwise(ends)],
        "peak_mb": round(memory.peak / 2**20, 1),
        "processes": memory.processes,
        "sampling_cpu": round(memory.cost, 4),
    }


def run_workload(workload: Workload, peers: Sequence[str], rounds: int, repeat: int, run: str, path: Path) -> bool:
    """All peers, ``repeat`` times in turns; appends a record each and says whether all did the same work."""
    fine = True
    with tempfile.TemporaryDirectory(prefix="simulators-") as temporary:
        scratch = Path(temporary)
        files = scratch / "files"
        expected = export(workload, rounds, files)
        shared = {"kind": "workload", "run": run, "workload": workload.name, "title": workload.title, **expected}
        if workload.name == "b":
            shared["flops_per_sample"] = flops_per_sample(files)
        append(path, shared)
        for repetition in range(repeat):
            append(path, {"kind": "peak", "run": run, "sgemm_gflops": round(sgemm_peak() / 1e9, 2)})
            first = repetition % len(peers)
            for name in (*peers[first:], *peers[:first]):
                if repetition and name in workload.once:
                    continue
                record = measure(PEERS[name], files, rounds, scratch)
                same = record.get("steps") == expected["steps"]
                fine &= same
                head = {"kind": "run", "run": run, "workload": workload.name, "peer": name, "repetition": repetition}
                append(path, head | record | {"same_work": same})
                print(f"{workload.name} {repetition + 1}/{repeat} {name}: {told(record, same)}", flush=True)
    return fine


def told(record: Record, same: bool) -> str:
    if "error" in record:
        return f"FAILED {record['error']}"
    best = min(record["round_seconds"], default=float("nan"))
    text = f"{best:.3f} s a round, start {record['start_seconds']:.1f} s, {record['peak_mb']:.0f} MB, "
    return text + f"accuracy {record['accuracy']:.3f}" + ("" if same else f"  OTHER WORK: {record['steps']} steps")


def append(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--rounds", type=int, help="rounds of a run, at least 2: the first is start-up")
    parser.add_argument("--repeat", type=int, help="runs of each peer")
    parser.add_argument("--out", type=Path, default=RESULTS / "simulators", help="where records and page go")
    parser.add_argument("--report", action="store_true", help="only write the page from the records")
    given = parser.parse_args(arguments)
    fine, path = True, given.out.resolve() / "records.jsonl"
    if not given.report:
        for name in given.peers:
            python(PEERS[name].environment)
        os.chdir(ROOT)
        run = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        append(path, {"kind": "machine", "run": run, "arguments": sys.argv[1:], **describe()})
        for name in given.workloads:
            workload = WORKLOADS[name]
            rounds, repeat = given.rounds or workload.rounds, given.repeat or workload.repeat
            fine &= run_workload(workload, given.peers, rounds, repeat, run, path)
    write_report(path)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

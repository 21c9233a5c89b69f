"""Records of the server's benchmarks: a line of JSON with where and when, and the memory of this process."""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smartfl.runs.environment import environment

RESULTS = Path(__file__).resolve().parent.parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, memory, versions, revision and how busy the machine is."""
    known = environment(0, "", "cpu")
    kept = {k: known[k] for k in ("processor", "platform", "python", "packages", "revision")}
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal"))
    load = round(os.getloadavg()[0], 2)
    return kept | {"cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory / 2**20, 1), "load": load}


def append(path: Path, record: dict[str, Any]) -> None:
    """Add a line to a record file; a record is never overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), **record}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def newest(path: Path) -> dict[str, Any]:
    """The last record of a file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    return found


def to_run(description: str | None, table: Callable[[list[dict[str, Any]]], str]) -> tuple[Path, list[dict[str, Any]]]:
    """By the arguments of a benchmark: its record file and the records there; or print their ``table`` and leave."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    lines = args.out.read_text(encoding="utf-8").splitlines() if args.out.exists() else []
    records = [json.loads(line) for line in lines]
    if args.action == "table":
        print(table(records))
        parser.exit()
    return args.out, records


def provenance(record: dict[str, Any]) -> str:
    """Where the numbers of a record come from, as a sentence."""
    m = record["machine"]
    return (
        f"Measured {record['time'][:10]} on {m['processor']}, {m['cores']} cores, {m['memory_gb']} GB, "
        f"torch {m['packages']['torch']}, revision {m['revision']}, load {m['load']} at the end."
    )


def memory() -> dict[str, float]:
    """Megabytes of this process: the peak of its resident set, and now by kind (own pages, pages of files)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith(" kB")}
    return {"peak": sizes["VmHWM"], "now": sizes["VmRSS"], "own": sizes["RssAnon"], "files": sizes["RssFile"]}


class Watch:
    """The peak of this process's own pages, those of mapped files left out, while a block runs; a sample each 5 ms."""

    def __enter__(self) -> Watch:
        self.peak, self._done = memory()["own"], threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._done.wait(0.005):
            self.peak = max(self.peak, memory()["own"])

    def __exit__(self, *reason: object) -> None:
        self._done.set()
        self._thread.join()

"""Cells of a benchmark: short runs of the demo experiment under one rule and one attack, a line of JSON each.

Long-lived single-threaded worker processes run many cells one after another; the parent appends a line when a cell
is done, so a benchmark that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
PARTITIONS = {"iid": {"partition": "iid"}, "alpha 0.1": {"partition": "feddf", "alpha": 0.1}}
LAST = 3  # rounds whose mean is the final accuracy

Record = dict[str, Any]
Key = tuple[str, str, float, str, int, int]


@dataclass(frozen=True)
class Cell:
    """One run: labels for the tables, and the settings behind them."""

    rule: str
    attack: str
    rate: float
    partition: str
    seed: int
    rounds: int
    aggregator: dict[str, Any] = field(hash=False)
    attack_settings: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> Key:
        return self.rule, self.attack, self.rate, self.partition, self.seed, self.rounds

    def tables(self) -> dict[str, Any]:
        """The experiment: the demo preset with this cell's rule, attack and partition."""
        import smartfl.experiment
        from smartfl.experiment.files import read_tables

        base = read_tables(Path(smartfl.experiment.__file__).parent / "presets" / "demo.toml")
        attack: dict[str, Any] = {"name": "none"}
        if self.rate:
            attack = {"rate": self.rate, **self.attack_settings}
        changed = {"seed": self.seed, "rounds": self.rounds, "aggregator": self.aggregator, "attack": attack}
        return base | changed | {"data": base["data"] | PARTITIONS[self.partition]}


def key_of(record: Record) -> Key:
    """What identifies a record: a later one with the same key replaces it."""
    rule, attack, rate, partition, seed, rounds = (
        record[name] for name in ("rule", "attack", "rate", "partition", "seed", "rounds")
    )
    return rule, attack, rate, partition, seed, rounds


def final(record: Record) -> float:
    """The mean accuracy of the last rounds."""
    return fmean(record["accuracy"][-LAST:])


def run_cell(cell: Cell) -> Record:
    """Run the cell in this process; a record, or one with the key "error"."""
    from smartfl.experiment.schema import Experiment
    from smartfl.runs.environment import revision
    from smartfl.simulation import Simulation

    start = {name: getattr(cell, name) for name in ("rule", "attack", "rate", "partition", "seed", "rounds")}
    started = time.process_time()
    try:
        simulation = Simulation(Experiment.of(cell.tables()), executor="serial")
        rounds = list(simulation)
    except Exception as error:
        return start | {"error": f"{type(error).__name__}: {error}"}
    tables = simulation.experiment.tables()
    masses = [r.malicious_mass for r in rounds if r.malicious_mass is not None]
    info = {k: [r.info[k] for r in rounds[-LAST:] if k in r.info] for k in rounds[-1].info}
    events = [event for r in rounds for event in r.events]
    return start | {
        "aggregator": tables["aggregator"],
        "attack_settings": {k: v for k, v in tables["attack"].items() if k not in ("rate", "who", "report")},
        "digest": simulation.experiment.digest,
        "revision": revision(),
        "accuracy": [round(r.accuracy, 4) for r in rounds if r.accuracy is not None],
        "malicious_mass": round(fmean(masses), 4) if masses else None,
        "info": {k: short(fmean(v)) for k, v in info.items()},
        "dropped": sum(len(r.dropped) for r in rounds),
        "events": {"count": len(events), "first": events[0]} if events else {"count": 0},
        "seconds": round(time.process_time() - started, 1),
    }


def short(value: float) -> float | None:
    """Four significant digits; None for numbers that JSON has not."""
    return float(f"{value:.4g}") if abs(value) < float("inf") else None


def start_worker() -> None:
    """One thread, and Ctrl-C is the parent's business."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def read_records(path: Path) -> dict[Key, Record]:
    """The records in ``path``; a last line cut short by a crash is left out."""
    records: dict[Key, Record] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records[key_of(record)] = record
    return records


def write_records(path: Path, records: Iterable[Record]) -> None:
    """All records, sorted, in one step."""
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in sorted(records, key=lambda r: str(key_of(r)))]
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(lines), encoding="utf-8")
    fresh.replace(path)


def run_cells(cells: Sequence[Cell], path: Path, jobs: int, again: bool = False) -> dict[Key, Record]:
    """Run the cells that ``path`` has no record of (all of them if ``again``); all records, failures told on stderr."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = read_records(path)
    write_records(path, records.values())
    todo = [cell for cell in cells if again or cell.key not in records]
    if not todo:
        return records
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they import torch
    context = multiprocessing.get_context("spawn")
    started, failed = time.perf_counter(), 0
    with path.open("a", encoding="utf-8") as file, context.Pool(min(jobs, len(todo)) or 1, start_worker) as pool:
        for count, record in enumerate(pool.imap_unordered(run_cell, todo), start=1):
            name = " · ".join(map(str, key_of(record)))
            if "error" in record:
                failed += 1
                print(f"FAILED {name}: {record['error']}", file=sys.stderr, flush=True)
                continue
            records[key_of(record)] = record
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            passed = time.perf_counter() - started
            left = passed / count * (len(todo) - count) / 60
            print(f"{count}/{len(todo)} {name}: {final(record):.3f}  ({left:.0f} min left)", flush=True)
    write_records(path, records.values())
    if failed:
        print(f"{failed} of {len(todo)} cells failed; the same command tries them again", file=sys.stderr)
    return records


BEGIN, END = "<!-- made by the script, do not edit -->", "<!-- end of what the script made -->"


def write_between(path: Path, title: str, body: str) -> None:
    """Put ``body`` between the marks in ``path`` (a new page called ``title`` if there is none); the rest stays."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"# {title}\n\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    path.write_text(f"{head}{BEGIN}\n\n{body.strip()}\n\n{END}{tail}", encoding="utf-8")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])

"""The page about the simulators, made from the records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cells import markdown, write_between

from peers.workload import CORES, WORKLOADS

Record = dict[str, Any]
OURS = "smartfl"
ENOUGH = 5  # timed rounds that a best one must be the best of
TARGETS = {"a": {"Flower": 10.0, "pfl": 3.0}, "b": {"Flower": 1.5, "pfl": 1.3}, "c": {"Flower": 10.0}}
TARGETS["d"] = {"Flower": 20.0, "pfl": 5.0}
PEAK_TARGET, MEMORY_TARGET, START_TARGET = 0.60, 0.5, 3.0
NOISE = 0.2  # a peer whose loss fell by this share more or less than ours is pointed out


@dataclass
class Scores:
    """Everything one peer showed in one workload of one run."""

    records: list[Record] = field(default_factory=list)

    @property
    def rounds(self) -> list[float]:
        return [s for r in self.records for s in r["round_seconds"]]

    @property
    def best(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def start(self) -> float:
        return min(r["start_seconds"] for r in self.records)

    @property
    def memory(self) -> float:
        return max(r["peak_mb"] for r in self.records)

    @property
    def accuracy(self) -> float:
        return median(r["accuracy"] for r in self.records)

    @property
    def loss(self) -> float:
        return median(r["loss"] for r in self.records)

    @property
    def same_work(self) -> bool:
        return all(r["same_work"] for r in self.records)


def read(path: Path) -> list[Record]:
    """All records; a last line cut short by a crash is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def scores_of(records: Sequence[Record], run: str, workload: str) -> dict[str, Scores]:
    """Peer → its scores in a run, of the runs that ended well and timed at least one round."""
    found: dict[str, Scores] = {}
    for r in records:
        if (r["kind"], r["run"], r.get("workload")) == ("run", run, workload) and r.get("round_seconds"):
            found.setdefault(r["peer"], Scores()).records.append(r)
    return found


def chosen_run(records: Sequence[Record], workload: str) -> str | None:
    """The newest run with enough timed rounds of smartfl in this workload; else the newest that has any."""
    runs = list(dict.fromkeys(r["run"] for r in records if r["kind"] == "workload" and r["workload"] == workload))
    timed = {run: len(s[OURS].rounds) for run in runs if OURS in (s := scores_of(records, run, workload))}
    return next((run for run in reversed(timed) if timed[run] >= ENOUGH), next(reversed(timed), None))


def seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def workload_table(scores: dict[str, Scores], samples: float, steps: Sequence[int]) -> str:
    """One row per peer, ours first, then the fastest first."""
    ours = scores[OURS]
    order = sorted(scores, key=lambda name: (name != OURS, scores[name].best))
    rows = []
    for name in order:
        s = scores[name]
        rows.append(
            [
                f"**{name}**" if name == OURS else name,
                seconds(s.best),
                seconds(s.median),
                f"{samples / s.best:,.0f}",
                f"{s.best / ours.best:.1f}×",
                f"{s.median / ours.median:.1f}×",
                f"{s.start:.1f}",
                f"{s.memory:,.0f}",
                f"{100 * s.accuracy:.1f} %",
                f"{s.loss:.4f}",
                "as asked" if s.same_work else "**OTHER**",
                str(len(s.rounds)),
                s.records[0]["threads"],
            ]
        )
    head = ["simulator", "s/round, best", "median", "samples/s", "best ÷ ours", "median ÷ ours", "start, s"]
    head += ["peak MB", "accuracy", "loss", f"steps ({round(sum(steps) / len(steps)):,}/round)", "rounds", "runs as"]
    return markdown(head, rows)


def fastest(scores: dict[str, Scores], family: str) -> tuple[str, Scores] | None:
    """The quickest way in which a simulator was run: pfl is measured in one process and in two."""
    found = [(name, s) for name, s in scores.items() if name.startswith(family)]
    return min(found, key=lambda item: item[1].best, default=None)


def target_rows(workload: str, scores: dict[str, Scores], share: float | None) -> list[list[str]]:
    """Targets of the project for a workload, what was measured, and whether that is enough."""
    ours, rows = scores[OURS], []

    def add(what: str, target: str, measured: str, reached: bool) -> None:
        rows.append([f"({workload}) {what}", target, measured, "yes" if reached else "**no**"])

    for family, factor in TARGETS[workload].items():
        quickest = fastest(scores, family)
        as_shipped = [(name, s) for name, s in scores.items() if name == f"{family}, defaults"]
        for name, s in [*([quickest] if quickest else []), *as_shipped]:
            text = f"{s.best / ours.best:.2f}× (medians {s.median / ours.median:.2f}×)"
            add(f"time of {name} ÷ ours", f"{factor:g}×", text, s.best / ours.best >= factor)
    if share is not None:
        add("local training ÷ sgemm peak", f"{PEAK_TARGET:.0%}", f"{share:.1%}", share >= PEAK_TARGET)
    if workload == "b" and "Flower" in scores:
        ratio = ours.memory / scores["Flower"].memory
        add("our peak memory ÷ Flower's", f"below {MEMORY_TARGET:g}", f"{ratio:.2f}", ratio < MEMORY_TARGET)
    if workload == "d":
        text = f"{ours.start:.2f} s"
        add("start to first finished round", f"below {START_TARGET:g} s", text, ours.start < START_TARGET)
    return rows


def peak_share(records: Sequence[Record], run: str, shared: Record, seconds_per_round: float) -> float | None:
    """Float operations of a round's training over those that all cores could do meanwhile in matrix products."""
    peaks = [r["sgemm_gflops"] for r in records if r["kind"] == "peak" and r["run"] == run]
    if "flops_per_sample" not in shared or not peaks:
        return None
    return shared["flops_per_sample"] * _mean(shared["samples"]) / seconds_per_round / (CORES * max(peaks) * 1e9)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def remarks(scores: dict[str, Scores], initial: float, peak: str) -> list[str]:
    """What a reader must know before comparing."""
    found = [peak] if peak else []
    fall = initial - scores[OURS].loss
    for name, s in scores.items():
        progress = (initial - s.loss) / fall
        if abs(progress - 1) > NOISE:
            found.append(f"{name}'s loss fell from {initial:.3f} by {progress:.0%} of what ours did.")
    cost = max(r["sampling_cpu"] for s in scores.values() for r in s.records)
    return [*found, f"Watching memory took at most {cost:.1%} of a core."]


def section(records: Sequence[Record], workload: str) -> tuple[str, list[list[str]], str] | None:
    """A workload's part of the page, its targets, and the run it is from."""
    run = chosen_run(records, workload)
    if run is None:
        return None
    scores = scores_of(records, run, workload)
    is_ours = (r for r in records if (r["kind"], r["run"], r.get("workload")) == ("workload", run, workload))
    shared = next(is_ours)
    samples = _mean(shared["samples"])
    share, peak = None, ""
    if (share := peak_share(records, run, shared, scores[OURS].best)) is not None:
        others = {n: peak_share(records, run, shared, s.best) or 0.0 for n, s in scores.items() if n != OURS}
        peak = f"Share of the sgemm peak of {CORES} cores: {OURS} {share:.1%}, "
        peak += ", ".join(f"{n} {v:.1%}" for n, v in others.items())
        peak += f" ({shared['flops_per_sample'] / 1e6:.1f} MFLOP a sample, forward and backward)."
    title = f"## ({workload}) {shared['title']}\n\n{samples:,.0f} samples a round, {shared['parameters']:,} parameters."
    body = [
        title,
        workload_table(scores, samples, shared["steps"]),
        " ".join(remarks(scores, shared["initial_loss"], peak)),
    ]
    return "\n\n".join(body), target_rows(workload, scores, share), run


def machine_text(records: Sequence[Record], run: str) -> str:
    """The machine of a run, and what was installed."""
    m = next(r for r in records if r["kind"] == "machine" and r["run"] == run)
    peaks = [r["sgemm_gflops"] for r in records if r["kind"] == "peak" and r["run"] == run]
    versions: dict[str, str] = {}
    for r in records:
        if r["kind"] == "run" and r["run"] == run:
            versions |= r.get("versions", {})
    installed = ", ".join(f"{name} {v}" for name, v in sorted(versions.items()))
    return (
        f"{m['processor']}, {m['cores']} cores, {m['memory_gb']} GB, {m['platform']}, Python {m['python']}; "
        f"{installed}; sgemm peak {max(peaks):.1f} GFLOP/s a core; load {m['load']} before the start; "
        f"revision {m['revision']}; run {run}."
    )


INTRODUCTION = """
FedAvg, Adam (1e-3), batch 32, one local epoch, IID shards. Every simulator reads the same arrays, shards, cohorts and
initial model, and makes the same number of local steps. They ran in turns, in another order in every repetition.
A run's first round is its start-up (process start to first finished round) and is not among the timed ones. Memory is
the largest sum of proportional set sizes over the whole process tree. Accuracy is that of the model after the last
round of these short runs, as is the loss on the test set: a check that the work was done, not a result.
"""


def write_report(path: Path) -> None:
    """Put the tables made of the records in ``path`` into the README beside it."""
    records = read(path)
    sections = [found for workload in WORKLOADS if (found := section(records, workload)) is not None]
    if not sections:
        return
    targets = [row for _, rows, _ in sections for row in rows]
    runs = list(dict.fromkeys(run for _, _, run in sections))
    parts = [INTRODUCTION.strip(), markdown(["target", "asked", "measured", "reached"], targets)]
    parts += [text for text, _, _ in sections]
    parts += ["## Machine", *(machine_text(records, run) for run in runs)]
    write_between(path.parent / "README.md", "Simulators", "\n\n".join(parts))

"""What the adaptive attack does to seven rules, beside simpler attacks: digits, IID and alpha 0.1, rates 0.2 and 0.4.

    python benchmarks/adaptive.py [--jobs 2] [--only RULE …] [--seeds 0,1] [--rounds 15] [--again]

Cells whose record is in results/adaptive/records.jsonl are not run again, unless --again; the tables in
results/adaptive/README.md are made from all records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from cells import LAST, PARTITIONS, RESULTS, Cell, Key, Record, final, markdown, run_cells, write_between
from matrix import aggregator, shown

RULES = ("smartfl", "smartfl_literal", "fltrust", "krum", "median", "trimmed_mean", "fedavg")
RATES, ROUNDS = (0.2, 0.4), 15
ATTACKS: dict[str, dict[str, Any]] = {
    "label_flip": {"name": "label_flip"},
    "omniscient": {"name": "omniscient"},
    "adaptive, loss": {"name": "adaptive", "damage": "loss", "proxy_size": 128},
    "adaptive, error": {"name": "adaptive", "damage": "error", "proxy_size": 128},
}


def grid(only: Sequence[str], seeds: Sequence[int], rounds: int) -> list[Cell]:
    """The cells: each rule without attack, then under every attack at both rates."""
    cells = []
    for seed in seeds:
        for partition in PARTITIONS:
            for rule in only:
                cells.append(Cell(rule, "none", 0.0, partition, seed, rounds, aggregator(rule, attacked=False)))
                cells += [
                    Cell(rule, attack, rate, partition, seed, rounds, aggregator(rule, attacked=True), settings)
                    for rate in RATES
                    for attack, settings in ATTACKS.items()
                ]
    return cells


def found(
    records: Mapping[Key, Record], rule: str, attack: str, rate: float, partition: str, rounds: int
) -> list[Record]:
    """The records of one cell, one per seed."""
    wanted = (rule, attack, rate, partition, rounds)
    return [record for key, record in records.items() if (*key[:4], key[5]) == wanted]


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation in percent."""
    if not values:
        return "–"
    around = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{around}"


def accuracy_table(records: Mapping[Key, Record], partition: str, rate: float, rounds: int) -> str:
    """Rows rules, columns attacks; the last column is what the worse of the two adaptive attacks costs."""
    rows = []
    for rule in RULES:
        at = {"none": [final(r) for r in found(records, rule, "none", 0.0, partition, rounds)]}
        at |= {a: [final(r) for r in found(records, rule, a, rate, partition, rounds)] for a in ATTACKS}
        adaptive = [fmean(v) for a, v in at.items() if a.startswith("adaptive") and v]
        cost = f"{100 * (min(adaptive) - fmean(at['none'])):+.1f}" if adaptive and at["none"] else "–"
        rows.append([shown(rule), *map(spread, at.values()), cost])
    return markdown(["rule", "none", *ATTACKS, "worse adaptive − none"], rows)


def mass_table(records: Mapping[Key, Record], rounds: int) -> str:
    """The share of the weight that the attackers got, for rules that give clients weights."""
    rows = []
    for rule in RULES:
        row = [shown(rule)]
        for partition in PARTITIONS:
            for rate in RATES:
                for attack in ("label_flip", "adaptive, loss", "adaptive, error"):
                    masses = [r["malicious_mass"] for r in found(records, rule, attack, rate, partition, rounds)]
                    known = [m for m in masses if m is not None]
                    row.append(f"{100 * fmean(known):.0f}" if known else "–")
        rows.append(row)
    short = ("flip", "loss", "error")
    return markdown(["rule", *(f"{p}, {rate}, {s}" for p in PARTITIONS for rate in RATES for s in short)], rows)


def report(records: Mapping[Key, Record], rounds: int) -> str:
    """The page's tables."""
    seeds = len({key[4] for key in records})
    revisions = sorted({str(r["revision"])[:10] for r in records.values()})
    minutes = sum(r["seconds"] for r in records.values()) / 60
    parts = [
        f"Mean test accuracy (%) of the last {LAST} of {rounds} rounds, mean ± standard deviation over {seeds} seeds. "
        f"{len(records)} runs, {minutes:.0f} minutes of one core, revision {', '.join(revisions)}."
    ]
    for partition in PARTITIONS:
        for rate in RATES:
            parts += [f"## {partition}, rate {rate}", accuracy_table(records, partition, rate, rounds)]
    parts += ["## Weight of the attackers (%), mean over rounds and seeds", mass_table(records, rounds)]
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--only", nargs="*", default=RULES, choices=RULES, metavar="RULE", help="rows to run")
    parser.add_argument("--seeds", default="0,1", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--again", action="store_true", help="run cells that have a record, too")
    given = parser.parse_args()
    cells = grid(given.only, [int(seed) for seed in given.seeds.split(",")], given.rounds)
    records = run_cells(cells, RESULTS / "adaptive" / "records.jsonl", given.jobs, given.again)
    page = RESULTS / "adaptive" / "README.md"
    write_between(page, "The adaptive attack's damage", report(records, given.rounds))
    return 0 if all(cell.key in records for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())

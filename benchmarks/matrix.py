"""Every aggregator × every attack × (IID, alpha 0.1) on digits: final accuracies as two tables.

    python benchmarks/matrix.py [--jobs 2] [--only RULE …] [--attacks NAME …] [--seeds 0,1] [--rounds 15] [--again]

Cells whose record is in results/matrix/records.jsonl are not run again, unless --again.  The tables in
results/matrix/README.md are made from all records of seed 0, and a third from cells that were run with more seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from cells import LAST, PARTITIONS, RESULTS, Cell, Key, Record, final, markdown, run_cells, write_between

from smartfl.registry import names

RATE, ROUNDS = 0.4, 15
OURS = "smartfl"
INNER = {"bucketing": "krum", "nearest_neighbour_mixing": "trimmed_mean", "clipping": "fedavg", "momentum": OURS}
MARGIN = 0.02  # SmartFL may be this far below the best other rule in a column
FAMILIES = {
    "proxy data": "smartfl momentum smartfl_literal smartfl_unlabelled fltrust sageflow abavg finetune zeno sfedavg "
    "feddf fedbe",
    "robust": "median trimmed_mean geometric_median krum multi_krum bulyan dnc residual_reweighting centered_clipping "
    "norm_clipping sign_majority fools_gold ida bucketing nearest_neighbour_mixing clipping",
    "averaging": "fedavg uniform fednova fedavgm fedadam fedyogi fedadagrad",
}


def rules() -> list[str]:
    """Every registered name and literal SmartFL, by family; names of other packages come last.

    Without ``reestimated``: the model has no BatchNorm.
    """
    known = [name for family in FAMILIES.values() for name in family.split()]
    return [*known, *(name for name in names("aggregators") if name not in (*known, "reestimated"))]


def shown(rule: str) -> str:
    """The rule as the tables print it."""
    if rule in INNER:
        return f"{rule}({INNER[rule]})"
    return {"smartfl": "**smartfl** (calibrated)", "smartfl_literal": "smartfl (literal)"}.get(rule, rule)


def aggregator(rule: str, attacked: bool) -> dict[str, object]:
    """The settings: defaults, but the paper's 20 server epochs for SmartFL and 50 under attack."""
    if rule in INNER:
        return {"name": rule, "rule": aggregator(INNER[rule], attacked)}
    epochs = {"server_epochs": 50 if attacked else 20}
    if rule == "smartfl_literal":
        return {"name": rule, **epochs}
    return {"name": rule, **(epochs if rule in ("smartfl", "smartfl_unlabelled") else {})}


def matrix(only: Sequence[str], attacks: Sequence[str], seeds: Sequence[int], rounds: int) -> list[Cell]:
    """The cells asked for, in the order of the tables."""
    return [
        Cell(
            rule,
            attack,
            RATE if attack != "none" else 0.0,
            partition,
            seed,
            rounds,
            aggregator(rule, attack != "none"),
            {"name": attack},
        )
        for seed in seeds
        for partition in PARTITIONS
        for attack in attacks
        for rule in only
    ]


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def accuracy_table(scores: Mapping[tuple[str, str], float], attacks: Sequence[str]) -> str:
    """Rows rules, columns attacks; the best of a column in bold, then SmartFL's distance to the best other rule.

    A column in which rules are missing has no best one.
    """
    complete = [a for a in attacks if all((rule, a) in scores for rule in rules())]
    best = {a: max(scores[rule, a] for rule in rules()) for a in complete}

    def entry(rule: str, attack: str) -> str:
        value = scores.get((rule, attack))
        text = percent(value)
        return f"**{text}**" if value is not None and value == best.get(attack) else text

    rows = [[shown(rule), *(entry(rule, attack) for attack in attacks)] for rule in rules()]
    rivals = {a: best_other(scores, a) for a in complete}
    gaps = {a: f"{100 * (scores[OURS, a] - value):+.1f}" for a, (_, value) in rivals.items()}
    rows.append(["*best other rule*", *(rivals[a][0] if a in rivals else "–" for a in attacks)])
    rows.append(["*smartfl minus it*", *(gaps.get(a, "–") for a in attacks)])
    return markdown(["rule", *attacks], rows)


def best_other(scores: Mapping[tuple[str, str], float], attack: str) -> tuple[str, float]:
    """The best rule of a column that is not calibrated SmartFL, by itself or with momentum, and its score."""
    others = {r: scores[r, attack] for r in rules() if OURS not in (r, INNER.get(r)) and (r, attack) in scores}
    name = max(others, key=others.__getitem__, default="")
    return name, others.get(name, 0.0)


def losses(scores: Mapping[tuple[str, str], float], partition: str, attacks: Sequence[str]) -> list[str]:
    """The cells in which SmartFL is further below the best other rule than allowed, as table rows."""
    found = []
    for attack in attacks:
        name, value = best_other(scores, attack)
        ours = scores.get((OURS, attack))
        if ours is not None and ours < value - MARGIN:
            better = sum(scores.get((r, attack), 0.0) > ours for r in rules() if OURS not in (r, INNER.get(r)))
            found.append(
                f"* {partition}, {attack}: smartfl {percent(ours)}, {name} {percent(value)} "
                f"({100 * (ours - value):+.1f}); {better} rule{'s' * (better > 1)} above SmartFL"
            )
    return found


def backdoor_table(records: Mapping[Key, Record], rounds: int) -> str:
    """Accuracy hides a backdoor: the share of triggered pictures that the final model puts into the target class."""
    rows = []
    for rule in rules():
        found = [records.get((rule, "backdoor", RATE, p, 0, rounds)) for p in PARTITIONS]
        rates = [percent(r["info"].get("attack_success_rate")) if r else "–" for r in found]
        rows.append([shown(rule), *rates])
    return markdown(["rule", *PARTITIONS], rows)


def seeds_table(records: Mapping[Key, Record], rounds: int) -> str:
    """Mean ± standard deviation of the cells that were run with several seeds, ours first, then best first."""
    lines = []
    for partition in PARTITIONS:
        for attack in ("none", *names("attacks")):
            rate = RATE if attack != "none" else 0.0
            many = {}
            for rule in rules():
                finals = [
                    final(r) for k, r in records.items() if (*k[:4], k[5]) == (rule, attack, rate, partition, rounds)
                ]
                if len(finals) > 1:
                    many[rule] = fmean(finals), stdev(finals), len(finals)
            if OURS in many and len(many) > 1:
                order = sorted(many, key=lambda r: (r != OURS, -many[r][0]))
                text = ", ".join(f"{r} {100 * many[r][0]:.1f} ± {100 * many[r][1]:.1f}" for r in order)
                lines.append([f"{partition}, {attack}", str(many[OURS][2]), text])
    return markdown(["cell", "seeds", "accuracy"], lines) if lines else ""


def report(records: Mapping[Key, Record], rounds: int) -> str:
    """The page's tables."""
    attacks = ["none", *names("attacks")]
    parts, below = [], []
    for partition in PARTITIONS:
        scores = {
            (r["rule"], r["attack"]): final(r)
            for k, r in records.items()
            if k[3:] == (partition, 0, rounds) and k[2] in (0.0, RATE)
        }
        parts += [f"## {partition}", accuracy_table(scores, attacks)]
        below += losses(scores, partition, attacks)
    seconds = sum(r["seconds"] for r in records.values())
    revisions = sorted({str(r["revision"])[:10] for r in records.values()})
    parts += [
        "## Where SmartFL is more than 2 points below the best other rule (seed 0)",
        "\n".join(below) or "Nowhere.",
        "## Backdoor: success rate of the trigger",
        backdoor_table(records, rounds),
    ]
    if several := seeds_table(records, rounds):
        parts += ["## More seeds", several]
    head = (
        f"Mean test accuracy (%) of the last {LAST} of {rounds} rounds, seed 0, attack rate {RATE}; bold: best of its "
        f"column. {len(records)} runs, {seconds / 60:.0f} minutes of one core, revision {', '.join(revisions)}."
    )
    return "\n\n".join([head, *parts])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--only", nargs="*", default=rules(), choices=rules(), metavar="RULE", help="rows to run")
    every = ["none", *names("attacks")]
    parser.add_argument("--attacks", nargs="*", default=every, choices=every, metavar="NAME", help="columns to run")
    parser.add_argument("--seeds", default="0", help="comma-separated; the tables show seed 0")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--again", action="store_true", help="run cells that have a record, too")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    cells = matrix(given.only, given.attacks, seeds, given.rounds)
    records = run_cells(cells, RESULTS / "matrix" / "records.jsonl", given.jobs, given.again)
    page = RESULTS / "matrix" / "README.md"
    write_between(page, "Every rule under every attack", report(records, given.rounds))
    return 0 if all(cell.key in records for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())

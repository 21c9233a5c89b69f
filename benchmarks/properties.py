"""The paper's two properties as measurements, from committed records: how fast the loss falls, whether the proof's
assumption holds, and how far test and proxy loss are apart.

    python benchmarks/properties.py

reads results/ by way of studies/method-digits, assumption, proxy-digits and clients-digits, and writes
results/properties/README.md and figures/generalisation.png.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from cells import RESULTS, markdown, write_between

from smartfl.experiment.presets import read_study
from smartfl.experiment.schema import Experiment
from smartfl.experiment.study import Point, Selection
from smartfl.records.run import RunRecord
from smartfl.reproduce.plan import Plan, plan

STUDIES = Path(__file__).parents[1] / "studies"
FIGURE = Path("figures") / "generalisation.png"  # where the command is given
WINDOWS = ((1, 10), (11, 20))  # rounds over which a rate is fitted
LAST = 5  # rounds over which a gap is averaged
Measure = Callable[[RunRecord], float | None]


def fit(run: RunRecord, first: int, last: int) -> tuple[float, float] | None:
    """(r, R²) of L_t ≈ L_0 · r^t by least squares on log L over the rounds first … last; below 1 the loss falls."""
    points = [(x.round, math.log(x.loss)) for x in run.rounds if first <= x.round <= last and x.loss and x.loss > 0]
    if len(points) < 3:
        return None
    mean_t, mean_y = fmean(t for t, _ in points), fmean(y for _, y in points)
    spread_t = sum((t - mean_t) ** 2 for t, _ in points)
    spread_y = sum((y - mean_y) ** 2 for _, y in points)
    shared = sum((t - mean_t) * (y - mean_y) for t, y in points)
    return math.exp(shared / spread_t), shared**2 / (spread_t * spread_y) if spread_y else 1.0


def gap(run: RunRecord) -> float | None:
    """Test loss minus loss on the proxy samples, mean of the last rounds."""
    last = [x.loss - x.proxy_loss for x in run.rounds[-LAST:] if x.loss is not None and x.proxy_loss is not None]
    return fmean(last) if last else None


def misses(run: RunRecord) -> list[float]:
    """By round, L_s(w^{t+1}) − min_i L_s(w_i): at most 0 where the proof's assumption holds."""
    return [
        x.info["new_loss"] - x.info["best_client_loss"]
        for x in run.rounds
        if "new_loss" in x.info and "best_client_loss" in x.info
    ]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± sample standard deviation."""
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{around}"


def study(name: str, *only: str) -> Plan:
    """The committed records of a study."""
    return plan(read_study(str(STUDIES / f"{name}.toml")), Selection(only=only), RESULTS / "none", [RESULTS])


def runs(of: Plan, method: str, column: tuple[Point, ...]) -> list[RunRecord]:
    return [p.found.run for p in of.cell(method, column) if p.found is not None and p.finished]


def tabulate(of: Plan, say: Callable[[list[RunRecord]], str | None]) -> str:
    """Rows are the columns of a study that have records, columns its methods."""
    labels = [of.study.methods[method].label for method in of.methods]
    rows = []
    for column in of.columns:
        found = [runs(of, method, column) for method in of.methods]
        if any(found):
            rows.append([", ".join(p.label for p in column), *((say(f) if f else None) or "–" for f in found)])
    return markdown(["", *labels], rows)


def rates(found: list[RunRecord]) -> str | None:
    fits = [[f for run in found if (f := fit(run, *window)) is not None] for window in WINDOWS]
    return "; ".join(f"{spread([r for r, _ in of])} ({fmean(q for _, q in of):.2f})" for of in fits if of) or None


def held(found: list[RunRecord]) -> str | None:
    """``18 of 20; by 0.003, at most 0.01``: rounds in which it held, mean and largest miss in the others."""
    by_round = [m for run in found for m in misses(run)]
    missed = [m for m in by_round if m > 0]
    beyond = f"; by {fmean(missed):.2g}, at most {max(missed):.2g}" if missed else ""
    return f"{len(by_round) - len(missed)} of {len(by_round)}{beyond}" if by_round else None


def gaps(found: list[RunRecord]) -> str | None:
    values = [g for run in found if (g := gap(run)) is not None]
    return spread(values) if values else None


def draw(sizes: Plan, clients: Plan, target: Path) -> None:
    """Two panels for every alpha: the gap by the number of samples, and by the number of clients."""
    from matplotlib.figure import Figure

    alphas = list(dict.fromkeys(column[0].label for column in sizes.columns))
    figure = Figure(figsize=(4 * 2 * len(alphas), 3.6), layout="constrained")
    axes = iter(figure.subplots(1, 2 * len(alphas), squeeze=False)[0])
    for of, what, number in (
        (sizes, "proxy samples", lambda run: run.experiment["data"]["proxy"]["size"]),
        (clients, "clients a round", cohort),
    ):
        for alpha in alphas:
            axis = next(axes)
            for method in of.methods:
                points: dict[int, list[float]] = {}
                for column in of.columns:
                    for run in runs(of, method, column):
                        value = gap(run)
                        if column[0].label == alpha and value is not None and balanced(run):
                            points.setdefault(number(run), []).append(value)
                if points:
                    xs = sorted(points)
                    label = of.study.methods[method].label
                    axis.plot(xs, [fmean(points[x]) for x in xs], marker="o", label=label)
            axis.axhline(0, color="0.7", linewidth=0.8)
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            axis.set(title=f"digits, {alpha}", xlabel=what, ylabel="test loss − proxy loss")
            axis.legend(frameon=False, fontsize=8)
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, dpi=150)


def cohort(run: RunRecord) -> int:
    return Experiment.of(dict(run.experiment)).cohort_size


def balanced(run: RunRecord) -> bool:
    proxy = run.experiment["data"]["proxy"]
    return bool(proxy.get("imbalance", 1) == 1 and not proxy.get("missing", 0))


def main() -> None:
    convergence = study("method-digits", "uniform", "median", "fltrust", "literal", "smartfl")
    sizes, clients = study("proxy-digits"), study("clients-digits")
    target = RESULTS / "properties"
    target.mkdir(parents=True, exist_ok=True)
    draw(sizes, clients, FIGURE)
    body = f"""## Convergence

Digits (studies/method-digits.toml). Factor by which the test loss changes a round, in brackets R² of the fit to the
logarithm of the loss; first over rounds 1 to 10, then over rounds 11 to 20 (mean ± sample std over seeds).

{tabulate(convergence, rates)}

## The proof's assumption

studies/assumption.toml. Rounds in which the new model's cross-entropy on the samples is at most the best single
client's; where it is not, by how much on average, and at most.

{tabulate(study("assumption"), held)}

## Generalisation

Test loss minus loss on the proxy samples, mean of the last {LAST} rounds, no attack; studies/proxy-digits.toml by what
the server knows, studies/clients-digits.toml by the share of 80 clients that take part in a round.

{tabulate(sizes, gaps)}

{tabulate(clients, gaps)}

`python benchmarks/properties.py` draws the gap by the number of samples and of clients: figures/generalisation.png.
"""
    write_between(target / "README.md", "Convergence and generalisation, measured", body)
    print(target / "README.md")


if __name__ == "__main__":
    main()

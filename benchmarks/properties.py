"""The paper's two properties as measurements, from records that exist: how fast the loss falls, and how far test and
proxy loss are apart.

    python benchmarks/properties.py results/method-news results/proxy-news …

reads every run directory below the given ones and writes results/properties/README.md and generalisation.png.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from cells import RESULTS, markdown, write_between

from smartfl.report.run_data import RunData

FIRST = 10  # rounds over which a rate is fitted: later ones are flat and would hide it


def rate(losses: Sequence[float]) -> float | None:
    """r of L_t ≈ L_0 · r^t by least squares on log L: below 1 the loss falls linearly, in the optimiser's sense."""
    points = [(t, math.log(loss)) for t, loss in enumerate(losses[:FIRST]) if loss > 0]
    if len(points) < 3:
        return None
    mean_t, mean_y = fmean(t for t, _ in points), fmean(y for _, y in points)
    slope = sum((t - mean_t) * (y - mean_y) for t, y in points) / sum((t - mean_t) ** 2 for t, _ in points)
    return math.exp(slope)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± sample standard deviation."""
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{around}"


def scene(run: RunData) -> str:
    attack = run.experiment.get("attack", {})
    harm = f"{attack['name']} {attack['rate']:g}" if attack.get("rate") else "none"
    data = run.experiment["data"]
    return f"{data['dataset']}, α {data['alpha']:g}, {harm}"


def convergence(runs: Sequence[RunData]) -> str:
    """The fitted rate of the test loss for each method and scene."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        r = rate([line.loss for line in run.rounds if line.loss is not None])
        if r is not None:
            found[scene(run)][run.method].append(r)
    methods = sorted({method for row in found.values() for method in row})
    rows = [[s, *(spread(row[m]) if m in row else "–" for m in methods)] for s, row in sorted(found.items())]
    return markdown(["scene", *methods], rows)


def gaps(runs: Sequence[RunData]) -> dict[tuple[str, str, int], list[float]]:
    """Test loss minus proxy loss, mean of the last five rounds, by dataset and alpha, method and proxy size."""
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for run in runs:
        proxy = run.experiment["data"]["proxy"]
        if run.attacked or proxy.get("imbalance", 1) != 1 or proxy.get("missing", 0):
            continue
        last = [r.loss - r.proxy_loss for r in run.rounds[-5:] if r.loss is not None and r.proxy_loss is not None]
        if last:
            found[scene(run).removesuffix(", none"), run.method, proxy["size"]].append(fmean(last))
    return found


def generalisation(found: dict[tuple[str, str, int], list[float]]) -> str:
    sizes = sorted({size for _, _, size in found})
    rows = []
    for where, method in sorted({(w, m) for w, m, _ in found}):
        cells = [found.get((where, method, size)) for size in sizes]
        rows.append([f"{where}, {method}", *(spread(cell) if cell else "–" for cell in cells)])
    return markdown(["test − proxy loss", *(f"{size} samples" for size in sizes)], rows)


def draw(found: dict[tuple[str, str, int], list[float]], target: Path) -> None:
    """A panel for every dataset and alpha: the gap by proxy size, a line for every method."""
    from matplotlib.figure import Figure

    panels = sorted({where for where, _, _ in found})
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    for axis, where in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for method in sorted({m for w, m, _ in found if w == where}):
            points = sorted((size, fmean(v)) for (w, m, size), v in found.items() if (w, m) == (where, method))
            axis.plot(*zip(*points, strict=True), marker="o", label=method)
        axis.axhline(0, color="0.7", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_title(where)
        axis.set_xlabel("proxy samples")
        axis.set_ylabel("test loss − proxy loss")
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(target, dpi=150)


def main() -> None:
    folders = [Path(text) for text in sys.argv[1:]]
    runs = [RunData.read(file.parent) for folder in folders for file in sorted(folder.rglob("experiment.toml"))]
    target = RESULTS / "properties"
    target.mkdir(parents=True, exist_ok=True)
    found = gaps(runs)
    body = f"""{len(runs)} runs of {", ".join(map(str, folders))}.

## Convergence

Factor by which the test loss changes a round, fitted to the first {FIRST} rounds (mean ± sample std over seeds).

{convergence(runs)}

## Generalisation

Test loss minus loss on the proxy samples, mean of the last five rounds, no attack.

{generalisation(found)}
"""
    if len({size for _, _, size in found}) > 1:
        draw(dict(found.items()), target / "generalisation.png")
        body += "\n![The gap by proxy size](generalisation.png)\n"
    write_between(target / "README.md", "Convergence and generalisation, measured", body)
    print(target / "README.md")


if __name__ == "__main__":
    main()

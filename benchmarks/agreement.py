"""Compare our rules with ByzFL 0.0.11 and Flower on random matrices; print where they agree and differ as Markdown.

    python benchmarks/agreement.py > results/agreement.md

Dev-only: neither package is a dependency.  The first run makes benchmarks/.venv-agreement (network, about 1 GB with
torch); this file runs itself there with ``--reference`` and exchanges .npz files, so versions cannot clash.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv-agreement"
PYTHON = VENV / "bin" / "python"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
TRIALS, F, Q, D = 100, 2, 6, 20


def worlds() -> dict[str, Array]:
    """``rows`` (TRIALS, 12, D) of float64 clients, two of them off in every other trial; and float32 ones."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(TRIALS, 12, D))
    rows[::2, 3] += 4
    rows[::2, 7] -= 30
    counts = rng.integers(1, 100, size=(TRIALS, 12)).astype(np.float64)
    tight = (1000 + 1e-3 * rng.normal(size=(TRIALS, 30, D))).astype(np.float32)
    huge = rng.normal(size=(TRIALS, 11, D)).astype(np.float32)
    huge[:, 4] = 1e30
    return {"rows": rows, "counts": counts, "origin": rng.normal(size=(TRIALS, D)), "tight": tight, "huge": huge}


# ---- the reference side, in its own environment ----------------------------------------------------------------


def byzfl_rules() -> tuple[ModuleType, ModuleType]:
    """ByzFL's two modules of rules, without its package's __init__, which imports torchvision."""
    from importlib import import_module
    from importlib.util import find_spec

    spec = find_spec("byzfl")
    assert spec is not None
    shell = ModuleType("byzfl")
    shell.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["byzfl"] = shell
    return import_module("byzfl.aggregators.aggregators"), import_module("byzfl.aggregators.preaggregators")


def flower(strategy: Any, rows: Array, counts: Array, server_round: int = 1) -> Array:
    """What a Flower strategy makes of replies that hold ``rows`` (n, d) and ``counts`` (n,)."""
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict

    replies = []
    for i, (row, count) in enumerate(zip(rows, counts.tolist(), strict=True)):
        arrays, metrics = ArrayRecord({"w": FlowerArray(row)}), MetricRecord({"num-examples": count})
        metadata = Metadata(1, str(i), i + 1, 0, "", str(server_round), time.time(), 60.0, "train")
        replies.append(Message(metadata=metadata, content=RecordDict({"arrays": arrays, "metrics": metrics})))
    result, _ = strategy.aggregate_train(server_round, replies)
    assert result is not None
    return np.asarray(next(iter(result.values())).numpy())


def flower_from(strategy: Any, rows: Array, counts: Array, origin: Array, rounds: int = 1) -> Array:
    """The same for strategies that step from the current model, sent out anew as ``origin`` every round."""
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord

    for r in range(1, rounds + 1):
        momentum = type(strategy).__name__ == "FedAvgM"
        strategy.current_arrays = ArrayRecord({"w": FlowerArray(origin)}) if momentum else {"w": origin}
        out = flower(strategy, rows, counts, r)
    return out


def reference(world: dict[str, Array]) -> dict[str, Array]:
    """Every reference rule on every trial, by the keys of ``comparisons``."""
    import logging

    import torch
    from flwr.serverapp import strategy as fl

    logging.disable(logging.CRITICAL)
    agg, pre = byzfl_rules()

    def byzfl_twice(x: Array) -> Array:
        rule = agg.CenteredClipping(L=2, tau=3.0)
        rule(x)
        return np.asarray(rule(x))

    def in_torch(rule: Any) -> Callable[[Array], Array]:
        return lambda x: rule(torch.from_numpy(x)).numpy()

    even: dict[str, Callable[[Array, Array, Array], Array]] = {
        "byzfl.Average": lambda x, n, o: agg.Average()(x),
        "byzfl.Median": lambda x, n, o: agg.Median()(x),
        "byzfl.TrMean": lambda x, n, o: agg.TrMean(f=F)(x),
        "byzfl.GeometricMedian": lambda x, n, o: agg.GeometricMedian()(x),
        "byzfl.GeometricMedian converged": lambda x, n, o: agg.GeometricMedian(nu=1e-6, T=500)(x),
        "byzfl.Krum": lambda x, n, o: agg.Krum(f=F)(x),
        "byzfl.MultiKrum": lambda x, n, o: agg.MultiKrum(f=F)(x),
        "byzfl.CenteredClipping": lambda x, n, o: byzfl_twice(x),
        "byzfl.NNM": lambda x, n, o: agg.TrMean(f=F)(pre.NNM(f=F)(x)),
        "byzfl.Clipping": lambda x, n, o: agg.Median()(pre.Clipping(c=4.0)(x.copy())),
        "byzfl.Bucketing": lambda x, n, o: agg.Median()(pre.Bucketing(s=2)(x)),
        "byzfl.Bucketing one": lambda x, n, o: agg.Median()(pre.Bucketing(s=12)(x)),
        "flower.FedAvg": lambda x, n, o: flower(fl.FedAvg(), x, n),
        "flower.FedMedian": lambda x, n, o: flower(fl.FedMedian(), x, n),
        "flower.FedTrimmedAvg": lambda x, n, o: flower(fl.FedTrimmedAvg(beta=0.2), x, n),
        "flower.FedTrimmedAvg 0.3": lambda x, n, o: flower(fl.FedTrimmedAvg(beta=0.3), x, n),
        "flower.Krum": lambda x, n, o: flower(fl.Krum(num_malicious_nodes=F), x, n),
        "flower.MultiKrum": lambda x, n, o: flower(fl.MultiKrum(num_malicious_nodes=F, num_nodes_to_select=Q), x, n),
        "flower.MultiKrum equal": lambda x, n, o: flower(
            fl.MultiKrum(num_malicious_nodes=F, num_nodes_to_select=Q), x, np.ones_like(n)
        ),
        "flower.Bulyan": lambda x, n, o: flower(fl.Bulyan(num_malicious_nodes=F), x, n),
        "flower.FedAvgM": lambda x, n, o: flower_from(fl.FedAvgM(server_momentum=0.9), x, n, o, rounds=2),
        "flower.FedAdam": lambda x, n, o: flower_from(fl.FedAdam(eta=0.1), x, n, o),
        "flower.FedYogi": lambda x, n, o: flower_from(fl.FedYogi(eta=0.1), x, n, o),
        "flower.FedAdagrad": lambda x, n, o: flower_from(fl.FedAdagrad(eta=0.1, tau=1e-3), x, n, o),
    }
    out = {
        key: np.stack([rule(x, n, o) for x, n, o in zip(world["rows"], world["counts"], world["origin"], strict=True)])
        for key, rule in even.items()
    }
    ones = np.ones(30)
    with np.errstate(all="ignore"):
        for name in ("tight", "huge"):
            x = world[name]
            f = 2 if name == "huge" else 9
            krum = fl.Krum(num_malicious_nodes=f)
            out[f"{name} flower.Krum"] = np.stack([flower(krum, m, ones[: len(m)]) for m in x])
            # ByzFL's k = n − f − 1 is ours for f − 1; asked with f + 1 it is the same rule.
            out[f"{name} byzfl.Krum numpy"] = np.stack([agg.Krum(f=f + 1)(m) for m in x])
            out[f"{name} byzfl.Krum torch"] = np.stack([in_torch(agg.Krum(f=f + 1))(m) for m in x])
    out["versions"] = np.array(json.dumps({p: version(p) for p in ("byzfl", "flwr", "torch", "numpy")}))
    return out


# ---- our side ----------------------------------------------------------------------------------------------------


def comparisons() -> list[tuple[str, str, Callable[[], Any], str]]:
    """(reference key, our call, a fresh rule, what explains a difference)."""
    from smartfl.aggregators.bucketing import Bucketing
    from smartfl.aggregators.bulyan import Bulyan
    from smartfl.aggregators.centered_clipping import CenteredClipping
    from smartfl.aggregators.clipping import Clipping
    from smartfl.aggregators.fedavg import FedAvg
    from smartfl.aggregators.fedavgm import FedAvgM
    from smartfl.aggregators.fedopt import FedAdagrad, FedAdam, FedYogi
    from smartfl.aggregators.geometric_median import GeometricMedian
    from smartfl.aggregators.krum import Krum
    from smartfl.aggregators.median import Median
    from smartfl.aggregators.multi_krum import MultiKrum
    from smartfl.aggregators.nearest_neighbour_mixing import NearestNeighbourMixing
    from smartfl.aggregators.trimmed_mean import TrimmedMean
    from smartfl.aggregators.uniform import Uniform

    converged = GeometricMedian(iterations=500, tolerance=0)
    neighbours = "its k is n − f − 1 where Krum's is n − f − 2"
    weighted = "it weights the selected clients by their sample counts"
    start = "its v starts at 0, the paper's and ours at τ²"
    return [
        ("byzfl.Average", "Uniform()", Uniform, ""),
        ("byzfl.Median", "Median()", Median, ""),
        ("byzfl.TrMean", "TrimmedMean(b=2)", lambda: TrimmedMean(b=F), ""),
        ("byzfl.GeometricMedian", "GeometricMedian(iterations=3)", lambda: GeometricMedian(iterations=3),
         "it makes 3 steps from 0 with ν = 0.1; ours start at the mean, as the paper's do"),
        ("byzfl.GeometricMedian converged", "GeometricMedian(iterations=500, tolerance=0)", lambda: converged,
         "both at the minimum"),
        ("byzfl.Krum", "Krum(f=2)", lambda: Krum(f=F), neighbours),
        ("byzfl.Krum", "Krum(f=1)", lambda: Krum(f=F - 1), "ByzFL's Krum(f) is Krum(f − 1)"),
        ("byzfl.MultiKrum", "MultiKrum(f=2)", lambda: MultiKrum(f=F), neighbours),
        ("byzfl.MultiKrum", "MultiKrum(f=1, q=10)", lambda: MultiKrum(f=F - 1, q=12 - F), "the same shift of f"),
        ("byzfl.CenteredClipping", "CenteredClipping(tau=3, iterations=2), second call",
         lambda: CenteredClipping(tau=3, iterations=2), "v is carried over in both; updates from origin 0"),
        ("byzfl.NNM", "NearestNeighbourMixing(TrimmedMean(b=2), f=2)",
         lambda: NearestNeighbourMixing(TrimmedMean(b=F), f=F), ""),
        ("byzfl.Clipping", "Clipping(Median(), threshold=4)", lambda: Clipping(Median(), threshold=4),
         "it clips the caller's array in place, ours leaves it alone"),
        ("byzfl.Bucketing", "Bucketing(Median(), size=2)", lambda: Bucketing(Median(), size=2),
         "other random groups: it draws from NumPy's global generator, ours from the server's"),
        ("byzfl.Bucketing one", "Bucketing(Median(), size=12)", lambda: Bucketing(Median(), size=12),
         "one bucket, so no randomness is left"),
        ("flower.FedAvg", "FedAvg()", FedAvg, ""),
        ("flower.FedMedian", "Median()", Median, ""),
        ("flower.FedTrimmedAvg", "TrimmedMean(b=2)", lambda: TrimmedMean(b=2), "its b is ⌊0.2 · 12⌋ = 2"),
        ("flower.FedTrimmedAvg 0.3", "TrimmedMean(fraction=0.3)", lambda: TrimmedMean(fraction=0.3),
         "its b is ⌊3.6⌋ = 3, ours round(3.6) = 4"),
        ("flower.Krum", "Krum(f=2)", lambda: Krum(f=F), ""),
        ("flower.MultiKrum", "MultiKrum(f=2, q=6)", lambda: MultiKrum(f=F, q=Q), weighted),
        ("flower.MultiKrum equal", "MultiKrum(f=2, q=6), equal counts", lambda: MultiKrum(f=F, q=Q), ""),
        ("flower.Bulyan", "Bulyan(f=2)", lambda: Bulyan(f=F),
         "it takes the θ best of one Krum ranking, Bulyan ranks anew after each choice"),
        ("flower.FedAvgM", "FedAvgM(beta=0.9), second round", FedAvgM, ""),
        ("flower.FedAdam", "FedAdam(eta=0.1)", lambda: FedAdam(eta=0.1),
         f"it corrects the bias, with exponent round + 1; {start}"),
        ("flower.FedYogi", "FedYogi(eta=0.1)", lambda: FedYogi(eta=0.1), start),
        ("flower.FedAdagrad", "FedAdagrad(eta=0.1, beta1=0)", lambda: FedAdagrad(eta=0.1, beta1=0.0), start),
    ]  # fmt: skip


def ours(make: Callable[[], Any], key: str, world: dict[str, Array]) -> Array:
    """Our rule on every trial; rules with a memory are called twice, as the reference was."""
    import torch

    from smartfl.types import Server, Updates

    out = []
    moves = key.startswith("flower.Fed") and key[-3:] not in ("Avg", "ian") and "Trimmed" not in key
    for x, n, o in zip(world["rows"], world["counts"], world["origin"], strict=True):
        updates = Updates.of(x, n, o if moves else None)
        rule, server = make(), Server(generator=torch.Generator().manual_seed(1))
        if key in ("byzfl.CenteredClipping", "flower.FedAvgM"):
            rule(updates, server)
        out.append(rule(updates, server).vector.numpy())
    return np.stack(out)


def true_krum(rows: Array, f: int) -> int:
    """Krum's choice in float64, by explicit differences."""
    x = rows.astype(np.float64)
    squares = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    return int(np.sort(squares, axis=1)[:, : len(x) - f - 2].sum(axis=1).argmin())


def share(found: Array, wanted: Array, tolerance: float) -> tuple[float, float]:
    """The share of trials in which both agree, and the largest difference."""
    with np.errstate(all="ignore"):
        gap = np.abs(found - wanted).max(axis=1)
    return float((gap <= tolerance).mean()), float(np.nanmax(gap))


def report(world: dict[str, Array], theirs: dict[str, Array]) -> str:
    """The two tables."""
    from smartfl.aggregators.krum import Krum
    from smartfl.types import Updates

    lines = [
        "# Agreement with ByzFL and Flower",
        "",
        f"{TRIALS} random cohorts of 12 clients, {D} coordinates, float64, f = {F}, unequal sample counts; in every "
        "other cohort two clients are far off.",
        "Made by `python benchmarks/agreement.py`; " + ", ".join(
            f"{k} {v}" for k, v in json.loads(str(theirs["versions"])).items()) + ".",
        "“Same” is the share of cohorts in which the results differ by at most 1e-6 in every coordinate.",
        "",
        "| theirs | ours | same | largest difference | why |",
        "|---|---|---:|---:|---|",
    ]  # fmt: skip
    for key, call, make, why in comparisons():
        agree, gap = share(ours(make, key, world), theirs[key], 1e-6)
        lines.append(f"| {key.split(' ')[0]} | `{call}` | {agree:.0%} | {gap:.1e} | {why} |")
    lines += [
        "",
        "## Krum's choice in float32",
        "",
        "The share of cohorts in which Krum picks the client that exact arithmetic picks. “Tight”: 30 clients 1e-3 "
        "apart around 1000, f = 9. “Huge”: 11 ordinary clients of which one is replaced by 1e30, f = 2. ByzFL is "
        "asked with f + 1, which makes its k the same.",
        "",
        "| | tight | huge |",
        "|---|---:|---:|",
    ]
    right: dict[str, list[str]] = {}
    for name, f in (("tight", 9), ("huge", 2)):
        wanted = np.stack([m[true_krum(m, f)] for m in world[name]])
        found = np.stack([Krum(f=f)(Updates.of(m)).vector.numpy() for m in world[name]])
        right.setdefault("ours", []).append(f"{share(found, wanted, 0)[0]:.0%}")
        for other in ("byzfl.Krum numpy", "byzfl.Krum torch", "flower.Krum"):
            right.setdefault(other, []).append(f"{share(theirs[f'{name} {other}'], wanted, 0)[0]:.0%}")
    lines += [f"| {who} | {' | '.join(cells)} |" for who, cells in right.items()]
    return "\n".join(lines)


def install() -> None:
    """Make the reference environment; ByzFL without its dependencies, of which its rules need three."""
    venv.create(VENV, with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "byzfl==0.0.11"], check=True, stdout=sys.stderr)
    subprocess.run(
        [*pip, "--extra-index-url", CPU_WHEELS, "torch==2.13.0", "numpy", "scipy", "flwr==1.41.0"],
        check=True,
        stdout=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reference", nargs=2, metavar=("IN", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reference:
        source, target = arguments.reference
        with np.load(source) as world:
            np.savez(target, **reference(dict(world)))
        return
    if not PYTHON.exists():
        install()
    world = worlds()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, **world)
        command = [str(PYTHON), str(HERE / "agreement.py"), "--reference", str(source), str(target)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        with np.load(target) as theirs:
            print(report(world, dict(theirs)))


if __name__ == "__main__":
    main()

"""Time our aggregation kernels beside ByzFL 0.0.11 and Flower 1.41, interleaved in one process on the same matrix.

    python benchmarks/kernels.py                 about 6 minutes on two quiet cores, 12 GB of memory
    python benchmarks/kernels.py --sizes 80000   one size only; --out elsewhere keeps the committed records

Dev-only: neither package is a dependency.  The first run makes .peers/kernels (network, about 1 GB with torch); this
file then runs itself there with ``--inside``, on our sources.  It writes results/kernels/records.jsonl and README.md.
ByzFL takes torch tensors and NumPy arrays and computes differently on each, so both are measured.  Of Flower the
arithmetic of the current strategies is measured, on records that hold plain arrays: no (de)serialisation is timed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".peers" / "kernels"
N, F = 48, 11
SIZES = (80_000, 1_700_000, 10_000_000)
TARGET = 1_700_000
LARGE, LARGE_REPEATS, LARGE_LIMIT = 5_000_000, 2, 6.0
PEERS = ("ByzFL torch", "ByzFL NumPy", "Flower")


@dataclass(frozen=True)
class Kernel:
    """One implementation of a rule: ``prepare(matrix)`` is not timed, what it returns is."""

    rule: str
    implementation: str
    call: str
    prepare: Callable[[Any], Callable[[], Any]]
    same: bool = True
    """Whether the definition is ours: then the results must agree."""


# ---- Flower's records without their serialisation -----------------------------------------------------------------


class Row:
    """What Flower's arithmetic asks of an ArrayRecord and of its only Array."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def to_numpy_ndarrays(self) -> list[Any]:
        return [self.values]

    def items(self) -> list[tuple[str, Row]]:
        return [("w", self)]

    def numpy(self) -> Any:
        return self.values


class Reply(dict[str, Any]):
    """What it asks of a RecordDict: the arrays by name, and the sample count."""

    def __init__(self, values: Any) -> None:
        super().__init__(arrays=Row(values))

    @property
    def array_records(self) -> dict[str, Any]:
        return dict(self)

    @property
    def metric_records(self) -> dict[str, Any]:
        return {"metrics": {"num-examples": 1.0}}


def flower_kernels() -> list[Kernel]:
    import numpy as np
    from flwr.serverapp.strategy.bulyan import aggregate_n_closest_weights
    from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
    from flwr.serverapp.strategy.multikrum import select_multikrum
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    def mean(replies: list[Any]) -> Any:
        return aggregate_arrayrecords(replies, "num-examples")["w"].numpy()

    def replies(matrix: Any) -> list[Any]:
        return [Reply(row) for row in matrix.numpy()]

    def bulyan(given: list[Any]) -> Any:
        chosen = [reply["arrays"].to_numpy_ndarrays() for reply in select_multikrum(given, F, N - 2 * F)]
        median = [np.median(arrays, axis=0) for arrays in zip(*chosen, strict=True)]
        return aggregate_n_closest_weights(median, chosen, N - 4 * F)[0]

    def on_replies(rule: Callable[[list[Any]], Any]) -> Callable[[Any], Callable[[], Any]]:
        return lambda matrix: partial(rule, replies(matrix))

    def on_arrays(rule: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
        return lambda matrix: partial(lambda given: rule(np.stack(given)), list(matrix.numpy()))

    return [
        Kernel("mean", "Flower", "FedAvg", on_replies(mean)),
        Kernel("median", "Flower", "FedMedian", on_arrays(lambda x: np.median(x, axis=0))),
        Kernel("trimmed mean", "Flower", "FedTrimmedAvg", on_arrays(lambda x: trim_mean(x, (F + 0.5) / N))),
        Kernel("Krum", "Flower", "Krum", on_replies(lambda r: mean(select_multikrum(r, F, 1)))),
        Kernel("Multi-Krum", "Flower", "MultiKrum", on_replies(lambda r: mean(select_multikrum(r, F, N - F - 1)))),
        Kernel("Bulyan", "Flower", "Bulyan: one ranking, not repeated Krum", on_replies(bulyan), same=False),
    ]


# ---- ByzFL --------------------------------------------------------------------------------------------------------


def byzfl_kernels() -> list[Kernel]:
    spec = find_spec("byzfl")
    assert spec is not None
    shell = ModuleType("byzfl")  # its own __init__ imports torchvision
    shell.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["byzfl"] = shell
    agg, pre = import_module("byzfl.aggregators.aggregators"), import_module("byzfl.aggregators.preaggregators")
    # Its Krum takes n − f − 1 neighbours where Krum's paper takes n − f − 2: asked with f + 1 it is the same rule.
    rules: list[tuple[str, str, Callable[[float], Callable[[Any], Any]], bool]] = [
        ("mean", "Average()", lambda c: agg.Average(), True),
        ("median", "Median()", lambda c: agg.Median(), True),
        ("trimmed mean", f"TrMean(f={F})", lambda c: agg.TrMean(f=F), True),
        ("geometric median", "GeometricMedian(): 3 steps from 0", lambda c: agg.GeometricMedian(), False),
        ("Krum", f"Krum(f={F + 1})", lambda c: agg.Krum(f=F + 1), True),
        ("Multi-Krum", f"MultiKrum(f={F + 1})", lambda c: agg.MultiKrum(f=F + 1), True),
        ("centered clipping", "CenteredClipping(L=3)", lambda c: agg.CenteredClipping(L=3, tau=c / 2), True),
        ("nearest-neighbour mixing", f"NNM(f={F}), Average()", lambda c: chain(pre.NNM(f=F), agg.Average()), True),
        ("bucketing", "Bucketing(s=2), Average()", lambda c: chain(pre.Bucketing(s=2), agg.Average()), True),
        ("clipping", "Clipping(c), Average(), on a copy made before", lambda c: chain(pre.Clipping(c=c), agg.Average()),
         True),
    ]  # fmt: skip

    def chain(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: then(first(x))

    def prepared(rule: str, make: Callable[[float], Callable[[Any], Any]], numpy: bool) -> Callable[[Any], Any]:
        def prepare(matrix: Any) -> Callable[[], Any]:
            given = matrix.clone() if rule == "clipping" else matrix  # it clips the caller's array in place
            vectors, kernel = given.numpy() if numpy else given, make(threshold(matrix))
            return lambda: kernel(vectors)

        return prepare

    return [
        Kernel(rule, peer, call, prepared(rule, make, peer == "ByzFL NumPy"), same)
        for rule, call, make, same in rules
        for peer in ("ByzFL torch", "ByzFL NumPy")
    ]


# ---- ours ---------------------------------------------------------------------------------------------------------


def threshold(matrix: Any) -> float:
    """A length that about half of the rows exceed."""
    return float(matrix.shape[1] ** 0.5)


def our_kernels() -> list[Kernel]:
    from smartfl.aggregators.bucketing import Bucketing
    from smartfl.aggregators.bulyan import Bulyan
    from smartfl.aggregators.centered_clipping import CenteredClipping
    from smartfl.aggregators.clipping import Clipping
    from smartfl.aggregators.geometric_median import GeometricMedian
    from smartfl.aggregators.krum import Krum
    from smartfl.aggregators.median import Median
    from smartfl.aggregators.multi_krum import MultiKrum
    from smartfl.aggregators.nearest_neighbour_mixing import NearestNeighbourMixing
    from smartfl.aggregators.trimmed_mean import TrimmedMean
    from smartfl.aggregators.uniform import Uniform
    from smartfl.types import Updates

    rules: list[tuple[str, str, Callable[[float], Any]]] = [
        ("mean", "Uniform()", lambda c: Uniform()),
        ("median", "Median()", lambda c: Median()),
        ("trimmed mean", f"TrimmedMean(b={F})", lambda c: TrimmedMean(b=F)),
        ("geometric median", "GeometricMedian(): to convergence", lambda c: GeometricMedian()),
        ("Krum", f"Krum(f={F})", lambda c: Krum(f=F)),
        ("Multi-Krum", f"MultiKrum(f={F}, q={N - F - 1})", lambda c: MultiKrum(f=F, q=N - F - 1)),
        ("Bulyan", f"Bulyan(f={F})", lambda c: Bulyan(f=F)),
        ("centered clipping", "CenteredClipping(iterations=3)", lambda c: CenteredClipping(tau=c / 2, iterations=3)),
        ("nearest-neighbour mixing", f"NearestNeighbourMixing(Uniform(), f={F})",
         lambda c: NearestNeighbourMixing(Uniform(), f=F)),
        ("bucketing", "Bucketing(Uniform(), size=2)", lambda c: Bucketing(Uniform(), size=2)),
        ("clipping", "Clipping(Uniform(), threshold=c)", lambda c: Clipping(Uniform(), threshold=c)),
    ]  # fmt: skip

    def prepared(make: Callable[[float], Any]) -> Callable[[Any], Any]:
        def prepare(matrix: Any) -> Callable[[], Any]:
            rule, updates = make(threshold(matrix)), Updates.of(matrix)
            return lambda: rule(updates).vector  # screening for NaN and ±Inf included

        return prepare

    return [Kernel(rule, "smartfl", call, prepared(make)) for rule, call, make in rules]


# ---- measuring ----------------------------------------------------------------------------------------------------


def rows(d: int) -> Any:
    """(N, d) float32 rows of unequal lengths in shuffled order, so that Krum's choice does not hang on a last digit."""
    import torch

    generator = torch.Generator().manual_seed(0)
    scales = (0.5 + torch.arange(N) / N)[torch.randperm(N, generator=generator)]
    matrix = torch.empty(N, d)
    for row, scale in zip(matrix, scales.tolist(), strict=True):
        row.normal_(0, scale, generator=generator)
    return matrix


def memory(what: str) -> int:
    """VmRSS or VmHWM of this process in bytes."""
    found = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return 1024 * int(found[1])


def peak_of(run: Callable[[], Any]) -> tuple[Any, int, float]:
    """The result of ``run``, the most memory it held beyond what there was before, and its seconds."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # VmHWM starts again from VmRSS
    before, start = memory("VmRSS"), time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    return result, memory("VmHWM") - before, seconds


def available() -> int:
    meminfo = Path("/proc/meminfo").read_text(encoding="utf-8")
    found = re.search(r"MemAvailable:\s+(\d+)", meminfo)
    assert found is not None
    return 1024 * int(found[1])


def refusal(kernel: Kernel, d: int, known: dict[tuple[str, str], dict[str, Any]]) -> str | None:
    """Why a peer is not run at this size, from what it took at a smaller one."""
    last = known.get((kernel.rule, kernel.implementation))
    if kernel.implementation == "smartfl" or last is None:
        return None
    if last["skipped"]:
        return str(last["skipped"])
    growth = d / last["d"]
    if (need := growth * last["extra_bytes"]) > 0.4 * available():
        return f"would need about {need / 1e9:.0f} GB"
    if d >= LARGE and (seconds := growth * last["best"]) > LARGE_LIMIT:
        return f"would take about {seconds:.0f} s"
    return None


def measure(kernels: list[Kernel], d: int, repeats: int, known: dict[tuple[str, str], Any]) -> list[dict[str, Any]]:
    """One record per kernel: all in turn, ``repeats`` times; the first call also shows memory and agreement."""
    import numpy as np

    matrix = rows(d)
    records: list[dict[str, Any]] = []
    running: list[tuple[Callable[[Any], Callable[[], Any]], dict[str, Any]]] = []
    ours: dict[str, Any] = {}
    for kernel in kernels:
        record: dict[str, Any] = {
            "n": N, "d": d, "rule": kernel.rule, "implementation": kernel.implementation, "call": kernel.call,
            "same_definition": kernel.same, "skipped": refusal(kernel, d, known), "seconds": [], "best": None,
            "extra_bytes": None, "difference": None,
        }  # fmt: skip
        records.append(record)
        if not record["skipped"]:
            run = kernel.prepare(matrix)
            try:
                result, record["extra_bytes"], first = peak_of(run)
            except (RuntimeError, MemoryError) as error:
                record["skipped"] = str(error).splitlines()[0]
                continue
            finally:
                del run
            vector = np.asarray(result)
            if kernel.implementation == "smartfl":
                ours[kernel.rule] = vector
            else:
                gap = float(np.abs(vector - ours[kernel.rule]).max() / np.abs(ours[kernel.rule]).max())
                record["difference"] = gap
                if kernel.same and not gap < 1e-3:  # float32 norms over 10 million values differ by 1e-4
                    raise SystemExit(f"{kernel.rule}: {kernel.implementation} differs from ours by {gap:.1e}, d = {d}")
            del result, vector
            record["seconds"].append(round(first, 5))
            running.append((kernel.prepare, record))
    ours.clear()
    for repeat in range(1, repeats):
        for prepare, record in running:
            run = prepare(matrix)
            start = time.perf_counter()
            run()
            record["seconds"].append(round(time.perf_counter() - start, 5))
            del run
        print(f"d = {d:,}: {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
    for _, record in running:
        record["best"] = min(record["seconds"])
    return records


def machine() -> dict[str, Any]:
    import torch

    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"model name\s*:\s*(.+)", cpuinfo)
    meminfo = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
        "processor": model[1] if model else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "memory_gb": round(int(meminfo[1]) / 2**20, 1) if meminfo else None,
        "load_before": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "packages": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "numpy", "scipy", "byzfl", "flwr")},
    }


# ---- reporting ----------------------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    return f"{value:.3g}" if value < 1 else f"{value:.2f}"


def report(where: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """Markdown: per size, seconds with ratios, and memory beside the matrix."""
    by = {(r["d"], r["rule"], r["implementation"]): r for r in records}
    rules = list(dict.fromkeys(r["rule"] for r in records if r["implementation"] == "smartfl"))
    packages = ", ".join(f"{k} {v}" for k, v in where["packages"].items())
    lines = [
        "# Aggregation kernels",
        "",
        f"{N} clients, float32, f = {F}; best of the repetitions, all kernels in turn in one process on one matrix. "
        "Made by `python benchmarks/kernels.py`; the single timings are in records.jsonl.",
        "",
        f"{where['processor']}, {where['cores']} cores, {where['threads']} threads, {where['vectors']}, "
        f"{where['memory_gb']} GB; {packages}; revision {where['revision'][:12]}, {where['date']}, load "
        f"{where['load_before']} before.",
        "",
        "Seconds, and in brackets how many times ours that is; below 1 we are slower. “Extra” is the peak of memory "
        "beside the matrix, as a part of the matrix. Ours include screening for NaN and ±Inf. Where the definition "
        "is the same the results were compared (1e-4 of the largest value); ¹ marks where it is not.",
    ]
    for d in sorted({r["d"] for r in records}):
        repeats = max(len(r["seconds"]) for r in records if r["d"] == d)
        lines += [
            "",
            f"## d = {d:,} (matrix {4 * N * d / 1e6:,.0f} MB, best of {repeats})",
            "",
            "| rule | smartfl | " + " | ".join(PEERS) + " | extra: smartfl | " + " | ".join(PEERS) + " |",
            "|---|" + "---:|" * (2 * (len(PEERS) + 1)),
        ]
        notes = list[str]()
        for rule in rules:
            ours = by[d, rule, "smartfl"]
            times, extras = [seconds(ours["best"])], [f"{ours['extra_bytes'] / (4 * N * d):.2f}"]
            for peer in PEERS:
                found = by.get((d, rule, peer))
                if found is None or found["best"] is None:
                    times.append("—" if found is not None else "")
                    extras.append("")
                    if found is not None:
                        notes.append(f"{rule}, {peer}: {found['skipped']}")
                    continue
                mark = "" if found["same_definition"] else "¹"
                times.append(f"{seconds(found['best'])} ({found['best'] / ours['best']:.1f}){mark}")
                extras.append(f"{found['extra_bytes'] / (4 * N * d):.2f}")
            lines.append(f"| {rule} | {' | '.join(times)} | {' | '.join(extras)} |")
        if notes:
            lines += ["", "Not run: " + "; ".join(notes) + "."]
    lines += verdict(by, rules)
    return "\n".join(lines) + "\n"


def verdict(by: dict[tuple[int, str, str], dict[str, Any]], rules: list[str]) -> list[str]:
    """What was asked at d = 1.7 M and which ratios fall short of it."""
    if (TARGET, "mean", "smartfl") not in by:
        return []
    missed, least = list[str](), dict[str, float]()
    for rule in rules:
        for peer in PEERS:
            found = by.get((TARGET, rule, peer))
            if found is None or found["best"] is None:
                continue
            ratio = found["best"] / by[TARGET, rule, "smartfl"]["best"]
            threefold = peer != "Flower" and rule in ("median", "trimmed mean", "geometric median")
            least[peer] = min(least.get(peer, ratio), ratio)
            if ratio < (3 if threefold else 1):
                missed.append(f"{rule} beside {peer}: {ratio:.2f}, asked {3 if threefold else 1}")
    return [
        "",
        f"## Asked at d = {TARGET:,}",
        "",
        "Faster than ByzFL for every shared rule, three times for median, trimmed mean and geometric median; never "
        "slower than Flower. Smallest ratios: " + ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in least.items())
        + ". " + ("Missed: " + "; ".join(missed) + "." if missed else "All met."),
    ]  # fmt: skip


def inside(sizes: list[int], repeats: int, out: Path) -> None:
    import torch

    torch.set_grad_enabled(False)
    where, records = machine(), list[dict[str, Any]]()
    kernels = our_kernels() + byzfl_kernels() + flower_kernels()
    rules = list(dict.fromkeys(kernel.rule for kernel in kernels))
    kernels.sort(key=lambda kernel: rules.index(kernel.rule))  # stable: ours stays first of each rule
    known: dict[tuple[str, str], dict[str, Any]] = {}
    measure(kernels, 30_000, 1, known)  # what they load of torch and NumPy is not to count as memory of the first
    for d in sorted(sizes):
        new = measure(kernels, d, min(repeats, LARGE_REPEATS) if d >= LARGE else repeats, known)
        known |= {(r["rule"], r["implementation"]): r for r in new}
        records += new
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"machine": where})] + [json.dumps(record) for record in records]
    (out / "records.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = report(where, records)
    (out / "README.md").write_text(text, encoding="utf-8")
    print(text)


def install() -> None:
    """ByzFL without its dependencies, of which its rules need three."""
    print(f"making {VENV}", file=sys.stderr, flush=True)
    venv.create(VENV, with_pip=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = ["torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1", "flwr==1.41.0"]
    subprocess.run([*pip, "--no-deps", "byzfl==0.0.11"], check=True)
    subprocess.run([*pip, *wanted], check=True)
    (VENV / "installed").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="columns of the matrices")
    parser.add_argument("--repeats", type=int, default=5, help=f"at most {LARGE_REPEATS} from {LARGE:,} columns on")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "kernels")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.sizes, arguments.repeats, arguments.out)
        return
    if not (VENV / "installed").exists():
        install()
    threads = str(len(os.sched_getaffinity(0)))
    paths = {"PYTHONPATH": str(ROOT / "src"), "FLWR_TELEMETRY_ENABLED": "0"}
    counts = {name: os.environ.get(name, threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command = [str(VENV / "bin" / "python"), __file__, *sys.argv[1:], "--inside"]
    raise SystemExit(subprocess.run(command, env=os.environ | paths | counts, check=False).returncode)


if __name__ == "__main__":
    main()

"""``smartfl bench``: what this machine does in a second, and how to run on it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast, get_args

import typer
from rich.console import Console

from smartfl.errors import UserError


@dataclass(frozen=True)
class Extent:
    """How much is measured: seconds for each number, and the sizes that the numbers are for."""

    budget: float
    models: tuple[str, ...]
    server: tuple[str, ...]
    kernel_columns: int
    crew_models: tuple[str, ...]
    samples: int
    megabytes: int


MODELS = ("mlp", "convnet", "resnet8", "mobilenet")
FULL = Extent(1.5, MODELS, ("mlp", "convnet", "resnet8"), 1_000_000, ("mlp", "convnet"), 100, 256)
QUICK = Extent(0.2, MODELS, ("mlp", "convnet"), 100_000, ("mlp", "convnet"), 50, 64)


Subject = Literal["aggregators", "round"]


def measure(extent: Extent, say: Console, subject: Subject | None = None) -> dict[str, Any]:
    """The machine, and the server's part of a round ("aggregators"), the clients' ("round") or both; JSON-ready.

    ``say`` is told what is being measured.
    """
    from smartfl.executors.memory import keep_freed_memory
    from smartfl.measure.machine import measure_machine

    keep_freed_memory()  # as every run does
    started = time.perf_counter()
    say.print("machine …")
    record: dict[str, Any] = {"machine": measure_machine(extent.budget, extent.megabytes)}
    if subject != "aggregators":
        record |= _measure_round(extent, say)
    if subject != "round":
        record |= _measure_aggregators(extent, say)
    record["seconds"] = time.perf_counter() - started
    return record


def _measure_aggregators(extent: Extent, say: Console) -> dict[str, Any]:
    from smartfl.measure.clock import best, threads
    from smartfl.measure.kernels import kernel_seconds
    from smartfl.measure.server_step import ServerStep
    from smartfl.measure.training import WORKLOADS

    workloads, steps = {w.model: w for w in WORKLOADS}, {}
    for name in extent.server:
        say.print(f"SmartFL server step, {name} …")
        step = ServerStep(workloads[name])
        with threads(1):
            plain = best(step.plain_step(), extent.budget)
            parts = {k: (best(part.work, extent.budget / 4), part.calls) for k, part in step.parts().items()}
        steps[name] = {
            "clients": len(step.updates),
            "parameters": step.updates.spec.num_parameters,
            "mini_batches": step.steps,
            "seconds": sum(each * calls for each, calls in parts.values()),
            "plain_seconds": plain * step.steps,
            "part_seconds": {k: each for k, (each, _) in parts.items()},
        }
    say.print("aggregation kernels …")
    kernels = {
        "clients": 48,
        "parameters": extent.kernel_columns,
        "seconds": kernel_seconds(extent.budget / 3, 48, extent.kernel_columns),
    }
    return {"server_step": steps, "kernels": kernels}


def _measure_round(extent: Extent, say: Console) -> dict[str, Any]:
    from smartfl.measure.executors import crews, recommend, training_seconds
    from smartfl.measure.training import WORKLOADS, training_rate

    workloads, rates, executors = {w.model: w for w in WORKLOADS}, {}, {}
    for name in extent.models:
        say.print(f"local training, {name} …")
        rates[name] = training_rate(workloads[name], extent.budget)
    for name in extent.crew_models:
        say.print(f"executors, {name} …")
        found = {c: training_seconds(workloads[name], c, samples=extent.samples) for c in crews()}
        executor, workers = recommend(found)
        executors[name] = {
            "clients": 20,
            "samples": extent.samples,
            "seconds_per_round": {f"{kind} {k}": value for (kind, k), value in found.items()},
            "recommended": {"executor": executor, "workers": workers},
        }
    return {"samples_per_second": rates, "executors": executors}


def bench(
    subject: Annotated[
        str | None,
        typer.Argument(metavar="[aggregators|round]", help="the server's part, or the clients'; default both"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="fewer seconds and smaller sizes")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON record instead of a table")] = False,
) -> None:
    """Measure this machine: arithmetic, memory, local training, server step, kernels, and which executor to use."""
    from smartfl.executors.processes import warm_up

    if subject not in (None, *get_args(Subject)):
        raise UserError(f"bench {subject}: accepted are {', '.join(get_args(Subject))}, or nothing for both")
    warm_up()
    record = measure(QUICK if quick else FULL, Console(stderr=True, highlight=False), cast(Subject | None, subject))
    print(json.dumps(record, indent=1) if as_json else table(record))


def table(record: dict[str, Any]) -> str:
    """The record as lines to read."""
    machine = record["machine"]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}",
        f"arithmetic   {machine['sgemm_gflops_per_core']:.0f} GFLOP/s per core (sgemm)",
        "memory       "
        + ", ".join(f"{rate:.1f} GB/s with {k} thread(s)" for k, rate in machine["read_gb_per_second"].items()),
    ]
    if "samples_per_second" in record:
        lines += [
            "",
            "local training on one core, batches of 32",
            *(f"  {name:<18}{rate:>12,.0f} samples/s" for name, rate in record["samples_per_second"].items()),
        ]
    for name, step in record.get("server_step", {}).items():
        whole, plain = step["seconds"], step["plain_seconds"]
        lines += [
            "",
            f"SmartFL server step, {name}, {step['clients']} clients × {step['parameters']:,} parameters, one core",
            f"  {'sum of its parts':<36}{1e3 * whole:>10.1f} ms for {step['mini_batches']} mini-batches",
            f"  {'as many plain training steps':<36}{1e3 * plain:>10.1f} ms without an optimiser",
            *(f"  {part:<36}{1e3 * value:>10.3f} ms each" for part, value in step["part_seconds"].items()),
        ]
    if "kernels" in record:
        kernels = record["kernels"]
        lines += [
            "",
            f"aggregation, {kernels['clients']} clients × {kernels['parameters']:,} parameters",
            *(f"  {name:<18}{1e3 * value:>12.1f} ms" for name, value in kernels["seconds"].items()),
        ]
    for name, crews in record.get("executors", {}).items():
        best = crews["recommended"]
        lines += [
            "",
            f"a round of local training, {name}, {crews['clients']} clients of {crews['samples']} samples",
            *(f"  {kind:<18}{1e3 * value:>12.1f} ms" for kind, value in crews["seconds_per_round"].items()),
            f"  recommended for models like {name}: --executor {best['executor']} --workers {best['workers']}",
        ]
    lines += ["", f"measured in {record['seconds']:.0f} s"]
    return "\n".join(lines)

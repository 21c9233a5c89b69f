"""``smartfl reproduce``, ``table``, ``figure`` and ``tune``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smartfl.errors import UserError
from smartfl.interruption import interruptible

if TYPE_CHECKING:
    from smartfl.experiment.study import Selection, Study
    from smartfl.reproduce.plan import Plan

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="table1 … table4, figure1 …, figureA1 …, or a .toml")]
Only = Annotated[str | None, typer.Option(metavar="METHOD,…", help="these methods only")]
Where = Annotated[
    list[str] | None, typer.Option(metavar="AXIS=VALUE,…", help="these points of an axis only, e.g. data.alpha=0.01")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="seeds 0 … N − 1; default as the paper: 3")]
Rounds = Annotated[int | None, typer.Option(min=1, help="rounds of every run; default as the paper")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a setting everywhere")]
Tuned = Annotated[Path | None, typer.Option(help="file of tuned settings; default the one that ships with smartfl")]
Out = Annotated[Path, typer.Option(help="where the run directories are")]
Results = Annotated[
    Path | None,
    typer.Option(help="records (a directory or a *.jsonl.xz), read beside the run directories; default results/"),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="runs side by side; default one per core")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps")]
Checkpoints = Annotated[
    bool,
    typer.Option(
        "--checkpoints", help="export also run directories with checkpoints: from them runs go on on another machine"
    ),
]
CallbackOption = Annotated[
    list[str] | None,
    typer.Option("--callback", metavar="NAME,KEY=VALUE,…", help="tensorboard, mlflow, early_stopping or module:Class"),
]
Ray = Annotated[bool, typer.Option("--ray", help="run on a Ray cluster (RAY_ADDRESS), or a local one")]
MetricOption = Annotated[
    str | None, typer.Option(help="converged, maximum, final, trend, rounds, mass; default: the paper's")
]


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="as for smartfl table; --status alone shows all")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="show what is done, run nothing")] = False,
    only: Only = None,
    where: Where = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    set_: Settings = None,
    tuned: Tuned = None,
    out: Out = Path("runs"),
    export: Annotated[
        Path | None,
        typer.Option(
            help="add finished runs to DIR/runs.jsonl.xz, small enough for git; what is there is not run again"
        ),
    ] = None,
    checkpoints: Checkpoints = False,
    jobs: Jobs = None,
    device: Device = "cpu",
    ray: Ray = False,
    callback: CallbackOption = None,
) -> None:
    """Run a table or figure of the paper: skips what is done, resumes what is broken, prints the table."""
    from smartfl.experiment.presets import read_study, study_names

    if checkpoints and export is None:
        raise UserError("--checkpoints needs --export DIR: where they are copied to")
    stores = _stores(export, out)
    if status:
        from smartfl.reproduce.status import status_text

        studies = [read_study(each) for each in ([name] if name else study_names())]
        if name is None and only is not None:  # of all studies, those that have these methods
            studies = [study for study in studies if not set(_methods(study, only)) - study.methods.keys()]
        wanted = [select(study, only, where, seeds, rounds, set_, tuned) for study in studies]
        requests = [Request(*each, out, (*stores, store_of(None))) for each in zip(studies, wanted, strict=True)]
        print(status_text([request.plan(empty=True) for request in requests]), end="")
        return
    if name is None:
        raise UserError(f"NAME is missing; accepted: {', '.join(study_names())}, or a .toml file")
    study = read_study(name)
    request = Request(study, select(study, only, where, seeds, rounds, set_, tuned), out, stores)
    _print_table(_run(request, jobs, device, ray, export, checkpoints, callback or ()), "text")


def table(
    name: NameArgument,
    format_: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
    metric: MetricOption = None,
    at: Annotated[
        str | None, typer.Option(metavar="ROUND,…", help="our test accuracy after these rounds, e.g. 10,50,200")
    ] = None,
    only: Only = None,
    where: Where = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    set_: Settings = None,
    tuned: Tuned = None,
    out: Out = Path("runs"),
    results: Results = None,
) -> None:
    """Print the paper's numbers beside ours: mean ± std over seeds, the best marked, cells not run shown as such."""
    from smartfl.experiment.presets import read_study

    wanted = _rounds(at)
    if wanted and metric is not None:
        raise UserError("--at shows the test accuracy: leave out --metric")
    study = read_study(name)
    request = Request(study, select(study, only, where, seeds, rounds, set_, tuned), out, (store_of(results),))
    _print_table(request.plan(), format_, metric, wanted)


def figure(
    name: NameArgument,
    to: Annotated[Path, typer.Option("-o", "--to", help="directory for NAME.png and NAME.svg")] = Path("figures"),
    kind: Annotated[
        str | None, typer.Option(help="curves, mass, weights or overfit in place of the study's own; NAME-KIND.png")
    ] = None,
    only: Only = None,
    where: Where = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    set_: Settings = None,
    tuned: Tuned = None,
    out: Out = Path("runs"),
    results: Results = None,
) -> None:
    """Draw a figure of the paper (or a table's curves) from records."""
    from smartfl.experiment.presets import read_study
    from smartfl.reproduce.figures import draw_study

    study = read_study(name)
    stem = Path(name).stem if name.endswith(".toml") else study.name
    if kind is not None:
        study, stem = study.drawn_as(kind), f"{stem}-{kind}"
    request = Request(study, select(study, only, where, seeds, rounds, set_, tuned), out, (store_of(results),))
    plan = request.plan()
    for suffix in (".png", ".svg"):
        print(draw_study(plan, to / f"{stem}{suffix}"))


def tune(
    name: NameArgument,
    method: Annotated[str, typer.Option(help="fedprox, feddf, fedbe, finetune or fltrust")],
    where: Where = None,
    rounds: Annotated[int, typer.Option(min=1, help="budget of a candidate")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="the one seed; not one of those reported")] = 100,
    set_: Settings = None,
    record: Annotated[Path, typer.Option(help="file to add the choice to")] = Path("tuned.toml"),
    out: Out = Path("runs/tune"),
    export: Annotated[
        Path | None,
        typer.Option(help="add finished candidates to DIR/runs.jsonl.xz, small enough for git; they are not run again"),
    ] = None,
    jobs: Jobs = None,
    device: Device = "cpu",
    ray: Ray = False,
) -> None:
    """Choose a baseline's settings over the paper's grid, by accuracy on a small budget."""
    from smartfl.experiment.presets import read_study
    from smartfl.reproduce.tuning import candidates, choose, recorded
    from smartfl.reproduce.tuning import record as write_record

    recorded(record)  # one that cannot be added to is found before the runs, not after them
    study = read_study(name)
    grid = candidates(study, method, seed, set_ or ())
    stores = _stores(export, out)
    request = Request(grid, select(grid, None, where, 1, rounds, set_, None), out, stores)
    plan = _run(request, jobs, device, ray, export)
    _print_table(plan, "text")
    choice = choose(plan, study, method, _where(where))
    write_record(choice, record)
    print(f"chosen: {choice.settings}, accuracy {choice.accuracy:.4f}\n{record}")
    again = "".join(f" --set {shlex.quote(text)}" for text in set_ or ())
    print(f"use it: smartfl reproduce {shlex.quote(name)}{again} --tuned {shlex.quote(str(record))}")


@dataclass(frozen=True)
class Request:
    """What a command asks for: a part of a study, the run directories below ``out``, and records in ``stores``."""

    study: Study
    selection: Selection
    out: Path
    stores: tuple[Path, ...]

    def plan(self, empty: bool = False) -> Plan:
        """Every run of it, as far as it is now; none at all is a mistake unless ``empty``."""
        from smartfl.reproduce.plan import plan

        found = plan(self.study, self.selection, self.out, self.stores)
        if not found.runs and not empty:
            raise UserError(
                f"nothing of {self.study.name} is left: the methods chosen do not apply at the points chosen"
            )
        return found


def _run(
    request: Request,
    jobs: int | None,
    device: str,
    ray: bool,
    export: Path | None,
    checkpoints: bool = False,
    callbacks: Sequence[str] = (),
) -> Plan:
    """Run what is open, export what is finished even when interrupted, and return the plan as it is then."""
    from smartfl.executors.processes import warm_up

    plan = request.plan()
    if plan.open:
        warm_up()
    from smartfl.device import check_device
    from smartfl.reproduce.export import export as export_runs
    from smartfl.reproduce.export import export_checkpoints
    from smartfl.reproduce.run import run_plan
    from smartfl.tracking.choice import read_callbacks

    check_device(device)
    try:
        with interruptible():
            held = run_plan(plan, jobs=jobs, device=device, ray=ray, callbacks=read_callbacks(callbacks))
    finally:
        plan = request.plan()
        if export is not None:
            added = export_runs(plan, export)
            copied = export_checkpoints(plan, export) if checkpoints else []
            for what in (*added, *copied):
                print(f"exported: {what}", file=sys.stderr)
    if held:
        print(f"{len(held)} runs are left to the process that holds them", file=sys.stderr)
    return plan


def select(
    study: Study,
    only: str | None,
    where: Sequence[str] | None,
    seeds: int | None,
    rounds: int | None,
    settings: Sequence[str] | None,
    tuned: Path | None,
) -> Selection:
    """The options that say which part of a study is meant."""
    from smartfl.experiment.study import Selection, flat
    from smartfl.reproduce.tuning import read_choices, with_choices

    for key in (text.partition("=")[0].strip() for text in settings or ()):
        if key in study.axes:
            raise UserError(f"--set {key}: it is an axis of {study.name}; --where {key}=VALUE keeps one of its points")
        for axis, points in study.axes.items():
            if any(key in dict(flat(point.changes)) for point in points):
                raise UserError(
                    f"--set {key}: the axis {axis} of {study.name} sets it; --where {axis}=LABEL keeps a point"
                )
    selection = Selection(
        only=_methods(study, only),
        where=_where(where),
        seeds=seeds,
        rounds=rounds,
        settings=tuple(settings or ()),
    )
    return with_choices(selection, study, read_choices(tuned))


def store_of(results: Path | None) -> Path:
    """Where committed records are: what is named must be there, ``results`` need not."""
    if results is not None and not results.exists():
        raise UserError(f"--results = '{results}' does not exist")
    return results or Path("results")


def _stores(export: Path | None, out: Path) -> tuple[Path, ...]:
    """Where records are read beside the run directories; they cannot be the run directories."""
    if export is None:
        return ()
    if out.resolve().is_relative_to(export.resolve()):
        raise UserError(f"--export = '{export}' holds --out = '{out}', where runs are: choose another directory")
    return (export,)


def _methods(study: Study, only: str | None) -> tuple[str, ...]:
    """The methods that ``only`` names by key or by label, in any case; unknown ones as they are."""
    names = tuple(name.strip() for name in (only or "").split(",") if name.strip())
    if only is not None and not names:
        raise UserError("--only needs at least one method")
    keys = {method.label.lower(): key for key, method in study.methods.items()}
    keys |= {key.lower(): key for key in study.methods}
    return tuple(keys.get(name.lower(), name) for name in names)


def _where(where: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    wanted: dict[str, tuple[str, ...]] = {}
    for text in where or ():
        axis, equals, values = text.partition("=")
        if not equals or not axis.strip() or not values.strip():
            raise UserError(f"--where takes AXIS=VALUE,…, for example data.alpha=0.01, got '{text}'")
        # A label may hold a comma: "MNIST, alpha 0.01" is one value.
        more = (values.strip(),) if ", " in values else tuple(v.strip() for v in values.split(","))
        wanted[axis.strip()] = wanted.get(axis.strip(), ()) + more
    return wanted


def _rounds(at: str | None) -> tuple[int, ...]:
    try:
        return () if at is None else tuple(int(text) for text in at.split(","))
    except ValueError as error:
        raise UserError(f"--at takes ROUND,…, for example 10,50,200, got '{at}'") from error


def _print_table(plan: Plan, form: str, metric: str | None = None, at: Sequence[int] = ()) -> None:
    from smartfl.reproduce.by_round import by_round
    from smartfl.reproduce.formats import render
    from smartfl.reproduce.metrics import TITLES
    from smartfl.reproduce.table import compare

    if metric is not None and metric not in TITLES:
        raise UserError(f"--metric = {metric!r}: accepted are {', '.join(TITLES)}")
    if metric == "rounds" and not any(run.trial.target for run in plan.runs):
        raise UserError(f"--metric = 'rounds': {plan.study.name} has no target accuracies; table3 has")
    print(render(by_round(plan, at) if at else compare(plan, metric), form), end="")

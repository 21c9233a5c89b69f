"""The command line: run, compare, report, reproduce, table, figure, tune, bench, list, data, records.

Heavy modules are imported inside the commands, so that help and mistakes answer at once.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smartfl.commands import report
from smartfl.commands.data import app as data_commands
from smartfl.errors import FetchError, RecordsError, UserError, WorkerError
from smartfl.flower.command import app as flower_commands
from smartfl.interruption import Interrupted, interruptible
from smartfl.measure.command import bench
from smartfl.records.command import app as records_commands
from smartfl.reproduce import commands as reproduction

app = typer.Typer(
    name="smartfl",
    help="Federated learning that keeps working when clients' data differ and when clients lie.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(data_commands, name="data")
app.add_typer(records_commands, name="records")
app.add_typer(flower_commands, name="flower")

FileArgument = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="the experiment")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a setting")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda or mps")]
CallbackOption = Annotated[
    list[str] | None,
    typer.Option("--callback", metavar="NAME,KEY=VALUE,…", help="tensorboard, mlflow, early_stopping or module:Class"),
]


@app.callback()
def _general(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    """Options for every command."""


@app.command()
def run(
    experiment: FileArgument,
    set_: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="run directory; default runs/<name>-<hash>")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="worker processes; default one per core")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in the directory")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="throw away the run in the directory")] = False,
    executor: Annotated[str, typer.Option(help="processes or serial")] = "processes",
    device: DeviceOption = "cpu",
    callback: CallbackOption = None,
) -> None:
    """Run an experiment; prints the run directory last."""
    from smartfl.executors.processes import warm_up
    from smartfl.experiment.files import read_experiment

    if executor not in ("processes", "serial"):
        raise UserError(f"--executor = {executor!r}: accepted are processes and serial")
    if resume and fresh:
        raise UserError("--resume goes on with a run and --fresh throws it away: pass one of them")
    chosen = read_experiment(experiment, set_ or [])  # a mistake in the file is told before torch is imported
    if executor == "processes":
        warm_up()
    from smartfl.device import check_device
    from smartfl.experiment.resolved import Resolved
    from smartfl.runs.execute import default_path, execute
    from smartfl.tracking.choice import read_callbacks
    from smartfl.tracking.progress import RoundProgress

    check_device(device)
    resolved, others = Resolved.of(chosen), read_callbacks(callback or [])
    path = out or default_path(resolved, Path("runs"))
    with interruptible(), RoundProgress({path: resolved.experiment}) as progress:
        result = execute(
            resolved,
            path,
            resume=resume,
            fresh=fresh,
            workers=workers,
            executor=executor,  # type: ignore[arg-type]
            device=device,
            callbacks=[progress, *others],
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"accuracy: final {result.final:.4f}, best {result.best:.4f}, last ten evaluated {result.last_ten:.4f}"
    )
    print(path)


@app.command()
def compare(
    experiment: FileArgument,
    aggregators: Annotated[str, typer.Option(help="comma-separated names")] = "fedavg,uniform,krum,median,smartfl",
    seeds: Annotated[int, typer.Option(min=1, help="seeds per rule, counted from the experiment's")] = 1,
    set_: SetOption = None,
    out: Annotated[Path, typer.Option(help="directory for the runs and the report")] = Path("runs"),
    jobs: Annotated[int | None, typer.Option(min=1, help="runs side by side; default one per core")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="run again what is finished")] = False,
    device: DeviceOption = "cpu",
    callback: CallbackOption = None,
) -> None:
    """Run the same experiment under several rules; skips what is done, prints a table and the report's path."""
    from smartfl.executors.processes import warm_up
    from smartfl.experiment.files import read_experiment

    base = read_experiment(experiment, set_ or [])
    warm_up()
    from smartfl.device import check_device
    from smartfl.experiment.build import with_rule
    from smartfl.experiment.resolved import Resolved
    from smartfl.runs.execute import default_path
    from smartfl.runs.grid import Cell, run_grid
    from smartfl.tracking.choice import read_callbacks
    from smartfl.tracking.progress import RoundProgress

    check_device(device)
    names = list(dict.fromkeys(name.strip() for name in aggregators.split(",") if name.strip()))
    if not names:
        raise UserError("--aggregators needs at least one name, for example fedavg,krum,smartfl")
    chosen = [
        with_rule(base, name).model_copy(update={"seed": base.seed + k, "name": f"{base.name}-{name.split(':')[-1]}"})
        for name in names
        for k in range(seeds)
    ]
    resolved = [Resolved.of(one) for one in chosen]
    cells = [Cell(each.experiment, default_path(each, out)) for each in resolved]
    others = read_callbacks(callback or [])
    with interruptible(), RoundProgress({cell.path: cell.experiment for cell in cells}) as progress:
        run_grid(cells, jobs=jobs, fresh=fresh, device=device, callbacks=[progress, *others])
    report.show(report.read([cell.path for cell in cells]), out / f"{base.name}-report.html")


for command in (
    report.report,
    reproduction.reproduce,
    reproduction.table,
    reproduction.figure,
    reproduction.tune,
    bench,
):
    app.command()(command)


@app.command("list")
def list_(kind: Annotated[str, typer.Argument(metavar="KIND")]) -> None:
    """List the names of a KIND: aggregators, attacks, callbacks, clients, datasets, models, partitions or presets."""
    from smartfl.registry import KINDS, names

    if kind == "presets":
        from smartfl.experiment.presets import preset_names

        found = preset_names()
    elif kind in KINDS:
        found = names(kind)
    else:
        raise UserError(f"KIND = '{kind}' is unknown; accepted: {', '.join(KINDS)}, presets")
    print("\n".join(found))


def main(arguments: list[str] | None = None) -> None:
    """The entry point: 0 for success, 2 for a user's mistake, 1 for a failure, 130 for Ctrl-C, 143 for SIGTERM."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    # A dotted path such as my_model:Net means the user's own file; a file that is called like a library never comes
    # before that library, as with `python -m` it would.
    here = str(Path.cwd())
    sys.path[:] = [*(place for place in sys.path if place not in ("", here)), here]
    arguments = ["--debug", *(a for a in arguments if a != "--debug")] if debug else arguments
    try:
        app(arguments)  # typer ends with sys.exit by itself, with 2 for a wrong command line
    except UserError as error:
        if debug:
            traceback.print_exc()
        _say(str(error))
        sys.exit(2)
    except Interrupted as how:
        same = "the same command without --fresh" if "--fresh" in arguments else "the same command"
        _say(f"{how}; the finished rounds are kept: {same} goes on (run: with --resume)")
        sys.exit(how.status)
    except Exception as error:
        if debug:
            traceback.print_exc()
        ours = isinstance(error, WorkerError | FetchError | RecordsError)
        detail = str(error).splitlines()[0] if ours else f"{type(error).__name__}: {error}"
        _say(detail if debug else f"{detail} (--debug shows the traceback)")
        sys.exit(1)


def _say(sentence: str) -> None:
    print(f"smartfl: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    main()

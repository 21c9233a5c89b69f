"""Time left, with a clock that the test winds."""

from __future__ import annotations

import pytest

from smartfl.experiment.study import Selection, Study
from smartfl.records.round import RoundRecord
from smartfl.reproduce.plan import plan
from smartfl.reproduce.progress import StudyProgress, duration
from smartfl.runs.grid import Cell
from smartfl.tracking.callback import Run


def hear(progress, cell, t, accuracy):
    progress.on_round(Run(cell.experiment, cell.path), RoundRecord(t, accuracy, None, None, None, None))


@pytest.fixture
def two_kinds(study):
    """One method on two kinds of clients, ten rounds each: one local epoch, and two."""
    axes = {"client": {"epochs": [1, 2]}}
    changes = {"axes": axes, "base": study.base | {"rounds": 10, "attack": {"name": "none"}}, "exclude": []}
    tables = {"name": "tiny", "title": "t", "seeds": 1, "methods": {"fedavg": {"aggregator": {"name": "fedavg"}}}}
    return Study.of(tables | changes)


def test_time_left(tmp_path, two_kinds, capsys):
    """Run 1 takes 2 s a round.  After its 3rd round, 7 + 10 rounds at 2 s on 2 cores: 17 s.

    Run 2, of another kind, then reports two rounds 6 s apart: 7 · 2 s + 8 · 6 s over 2 cores: 31 s.
    """
    now = 0.0
    runs = plan(two_kinds, Selection(), tmp_path)
    first, second = (Cell(p.experiment, p.path) for p in runs.runs)
    progress = StudyProgress(runs, 2, clock=lambda: now)
    hear(progress, first, 1, 0.1)
    assert progress.left is None
    now = 2.0
    hear(progress, first, 2, 0.1)
    now = 4.0
    hear(progress, first, 3, None)
    assert progress.left == pytest.approx(17)
    hear(progress, second, 1, 0.1)
    now = 10.0
    hear(progress, second, 2, 0.1)
    assert progress.left == pytest.approx(31)
    for t in range(4, 11):
        hear(progress, first, t, 0.75)
    assert capsys.readouterr().err.startswith(f"1/2 runs: {first.path.name} 0.750, left ")


def test_what_was_done_before_costs_nothing(tmp_path, write_run, two_kinds):
    """Run 1 has 8 of 10 rounds from before; two heard rounds of run 2 at 3 s leave 2 + 8 rounds.

    Its first 8 rounds are also on record elsewhere, where nothing goes on from.
    """
    now = 0.0
    begun = plan(two_kinds, Selection(), tmp_path).runs[0]
    write_run(begun.experiment.model_copy(update={"rounds": 8}), tmp_path / "a-record", [0.1] * 8)
    checkpoints = write_run(begun.experiment, tmp_path, [0.1] * 8) / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "round-000008.json").touch()
    runs = plan(two_kinds, Selection(), tmp_path)
    progress = StudyProgress(runs, 1, clock=lambda: now)
    cell = Cell(runs.runs[1].experiment, runs.runs[1].path)
    hear(progress, cell, 1, None)
    now = 3.0
    hear(progress, cell, 2, None)
    assert progress.left == pytest.approx(30)


def test_a_record_from_which_no_run_goes_on_saves_no_rounds(tmp_path, write_run, two_kinds, capsys):
    """Both runs have 8 of 10 rounds on record, and only the second's came with a checkpoint: 8 of 20 are done."""
    for run, checkpoint in zip(plan(two_kinds, Selection(), tmp_path).runs, (False, True), strict=True):
        record = write_run(run.experiment.model_copy(update={"rounds": 8}), tmp_path / "store", [0.1] * 8)
        if checkpoint:
            (record / "checkpoints").mkdir()
            (record / "checkpoints" / "round-00008.json").touch()
    runs = plan(two_kinds, Selection(), tmp_path / "runs", [tmp_path / "store"])
    assert [p.done for p in runs.runs] == [8, 8]
    assert [p.begun for p in runs.runs] == [0, 8]
    with StudyProgress(runs, 1):
        assert capsys.readouterr().err == "tiny: 2 runs, 8 of 20 rounds done\n"


def test_off_a_terminal_there_is_a_line_at_the_start_and_every_five_minutes(tmp_path, two_kinds, capsys):
    now = 0.0
    runs = plan(two_kinds, Selection(), tmp_path)
    cell = Cell(runs.runs[0].experiment, runs.runs[0].path)
    with StudyProgress(runs, 1, clock=lambda: now) as progress:
        assert capsys.readouterr().err == "tiny: 2 runs, 0 of 20 rounds done\n"
        for t, now in ((1, 200.0), (2, 299.0), (3, 301.0), (4, 400.0)):  # noqa: B007 (the clock reads it)
            hear(progress, cell, t, None)
    assert capsys.readouterr().err.startswith(f"0/2 runs: {cell.path.name} at round 3, left ")


def test_durations():
    assert [duration(s) for s in (0.4, 40, 90, 3540, 3600, 7500)] == [
        "0 s", "40 s", "2 min", "59 min", "1 h 00 min", "2 h 05 min",
    ]  # fmt: skip

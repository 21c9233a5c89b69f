"""``smartfl report`` of run directories and of studies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli_w

from smartfl.cli import main
from smartfl.experiment.files import write_experiment
from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection
from smartfl.reproduce.plan import plan

STUDY = {
    "title": "Digits <under> attack",
    "seeds": 2,
    "base": {
        "rounds": 2,
        "data": {"dataset": "digits", "clients": 8, "partition": "iid", "proxy": {"size": 32}},
        "model": {"name": "mlp"},
        "client": {"participation": 0.5},
        "attack": {"name": "label_flip"},
    },
    "axes": {"attack": {"rate": [0.25, 0.5]}, "data": {"alpha": [0.1, 1.0]}},
    "methods": {
        "fedavg": {"label": "FedAvg", "aggregator": {"name": "fedavg"}},
        "careful": {"label": "a careful one", "aggregator": {"name": "krum"}},
        "unrecorded": {"label": "Median", "aggregator": {"name": "median"}},
    },
}


@pytest.fixture
def type_in(tmp_path, monkeypatch, capsys):
    """``smartfl report …`` beside study.toml: FedAvg and Krum are on record at alpha 0.1, all seeds, both rates."""
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(tomli_w.dumps(STUDY))
    for k, planned in enumerate(plan(read_study("study.toml"), Selection(), Path("runs")).runs):
        if planned.trial.method == "unrecorded" or planned.trial.column[1] == "alpha 1":
            continue
        planned.path.mkdir(parents=True)
        (planned.path / "experiment.toml").write_text(write_experiment(planned.experiment))
        lines = [{"round": t, "accuracy": 0.01 * k + 0.1 * t, "seconds": {"train": 0.5}} for t in (1, 2)]
        (planned.path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["report", *map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return call


def test_a_study_under_its_own_names(type_in):
    """Of 24 runs, 2 methods × 2 rates × 2 seeds are on record; alpha is the same for all of these and goes unnamed."""
    status, out, err = type_in("study.toml", "-o", "page.html")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "not on record: 16 of 24 runs"
    assert out.splitlines()[-1] == "report: page.html"
    assert max(map(len, out.splitlines())) <= 80
    page = Path("page.html").read_text()
    assert "<h1>Digits &lt;under&gt; attack</h1>" in page
    for label in ("FedAvg · rate 0.25", "a careful one · rate 0.25", "FedAvg · rate 0.5", "a careful one · rate 0.5"):
        assert f"</svg>{label}</th>" in page
    assert page.count('class="chip"') == 4


def test_a_part_of_a_study(type_in):
    arguments = ("--where", "attack.rate=0.25", "--only", "fedavg", "--seeds", "1", "-o", "page.html")
    status, out, _ = type_in("study.toml", *arguments)
    assert status == 0
    assert out.splitlines()[0] == "not on record: 1 of 2 runs"  # at alpha 1
    page = Path("page.html").read_text()
    assert "</svg>FedAvg</th>" in page
    assert page.count('class="chip"') == 1


def test_records_elsewhere(type_in):
    Path("runs").rename("store")
    status, _, err = type_in("study.toml")
    assert status == 2
    assert "no run of study is on record" in err
    assert type_in("study.toml", "--results", "store")[0] == 0
    assert type_in("study.toml", "--out", "store")[0] == 0
    assert type_in("study.toml", "--out", "store", "--rounds", "1")[1].splitlines()[0] == "not on record: 16 of 24 runs"


def test_a_directory_is_a_run_whatever_its_name(type_in):
    next(Path("runs").glob("digits-fedavg-*")).rename("table1")
    status, out, _ = type_in("table1", "-o", "page.html")
    assert (status, out.splitlines()[-1]) == (0, "report: page.html")


def test_too_many_rows_for_a_page(type_in, monkeypatch):
    monkeypatch.setattr("smartfl.reproduce.study_runs.MOST", 3)
    status, _, err = type_in("study.toml")
    assert status == 2
    assert err == "smartfl: study has 4 rows on record and a page shows 3: choose by --only … --where attack.rate=…\n"
    assert type_in("study.toml", "--where", "attack.rate=0.5")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "'nowhere' is neither a run directory nor a study"),
        (["runs", "--only", "fedavg"], "--only chooses from a study, and runs is not one"),
        (["runs", "--out", "page.html"], "the HTML file is -o"),
        (["study.toml", "--where", "beta=1"], "beta"),
        (["study.toml", "--results", "nowhere"], "--results"),
        (["runs"], "its subdirectories are"),
    ],
)
def test_mistakes(type_in, arguments, said):
    status, out, err = type_in(*arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert not Path("report.html").exists()

"""What a person types, and what comes back: output, exit status, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from smartfl.cli import main
from smartfl.experiment.presets import preset_names
from smartfl.interruption import Interrupted
from smartfl.records.lines import read_lines
from smartfl.registry import KINDS, names


@pytest.fixture
def type_in(tmp_path, monkeypatch, capsys, tiny_tables):
    """``smartfl …`` inside this process, with tiny.toml in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(tomli_w.dumps(tiny_tables()))

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        return ended.value.code, *capsys.readouterr()

    return call


def test_a_run_prints_its_directory_last_and_is_quiet_otherwise(type_in):
    status, out, err = type_in("run", "tiny.toml", "--executor", "serial")
    assert (status, err) == (0, "")
    path = Path(out.splitlines()[-1])
    assert path.parent == Path("runs")
    assert path.name.startswith("tiny-")
    result = json.loads((path / "result.json").read_text())
    assert out.splitlines()[:-1] == [
        f"accuracy: final {result['final']:.4f}, best {result['best']:.4f}, last ten evaluated {result['last_ten']:.4f}"
    ]


def test_settings_on_the_command_line(type_in):
    arguments = ("--executor", "serial", "--out", "here", "--set", "rounds=1", "--set", "aggregator.name=median")
    status, out, _ = type_in("run", "tiny.toml", *arguments)
    assert (status, out.splitlines()[-1]) == (0, "here")
    assert len(read_lines(Path("here/rounds.jsonl"))) == 1
    assert read_lines(Path("here/coefficients.jsonl"))[0]["coefficients"] is None


def test_a_run_that_is_there_already(type_in):
    command = ("run", "tiny.toml", "--executor", "serial", "--out", "here")
    assert type_in(*command)[0] == 0
    status, out, err = type_in(*command)
    assert (status, out) == (2, "")
    assert "--resume" in err
    assert "--fresh" in err
    before = Path("here/rounds.jsonl").read_bytes()
    assert type_in(*command, "--resume")[0] == 0
    assert Path("here/rounds.jsonl").read_bytes() == before
    assert type_in(*command, "--resume", "--set", "seed=1")[0] == 2
    assert Path("here/rounds.jsonl").read_bytes() == before
    assert type_in(*command, "--fresh", "--set", "seed=1")[0] == 0
    assert Path("here/rounds.jsonl").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "absent.toml"], "absent.toml"),
        (["run", "tiny.toml", "--set", "data.alpha=0"], "data.alpha"),
        (["run", "tiny.toml", "--set", "data.clients=5000"], "data.clients"),
        (["run", "tiny.toml", "--set", "aggregator.name=krum", "--set", "aggregator.f=1"], "f = 1"),
        (
            ["run", "tiny.toml", *(f"--set=attack.{s}" for s in ("name=backdoor", "rate=0.5", "target=99"))],
            "attack.target = 99",
        ),
        (["run", "tiny.toml", "--set", "attack.name=label_flip"], "attack.rate must be above 0"),
        (["run", "tiny.toml", "--executor", "cloud"], "--executor"),
        (["run", "tiny.toml", "--device", "abacus"], "--device"),
        (["run", "tiny.toml", "--device", "cpu:x"], "--device"),
        (["run", "tiny.toml", "--resume", "--fresh"], "--resume"),
        (["run", "tiny.toml", "--out", "tiny.toml"], "tiny.toml"),
        (["run", "tiny.toml", "--out", "/proc/nowhere"], "/proc/nowhere"),
        (["compare", "tiny.toml", "--aggregators", ","], "--aggregators"),
        (["compare", "tiny.toml", "--aggregators", "fedavg,crum"], "crum"),
        (["report", "nowhere"], "nowhere"),
        (["list", "colours"], "KIND"),
    ],
)
def test_a_mistake_is_one_sentence_exit_status_2_and_nothing_written(type_in, arguments, named):
    status, out, err = type_in(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("smartfl: ")
    assert err.count("\n") == 1
    assert named in err
    assert [p.name for p in Path().iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize("arguments", [["run"], ["run", "tiny.toml", "--workers", "0"], ["runn"], ["run", "--no"]])
def test_a_wrong_command_line_is_exit_status_2(type_in, arguments):
    status, out, err = type_in(*arguments)
    assert (status, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("place", [0, 3])
def test_debug_shows_the_traceback_wherever_it_stands(type_in, place):
    arguments = ["run", "absent.toml", "--fresh"]
    status, _, err = type_in(*arguments[:place], "--debug", *arguments[place:])
    assert status == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("smartfl: ")


def test_a_failure_is_exit_status_1(type_in, tmp_path, monkeypatch):
    (tmp_path / "bad_model.py").write_text("def bad(input_shape: tuple): raise RuntimeError('no luck')\n")
    monkeypatch.syspath_prepend(tmp_path)
    status, out, err = type_in("run", "tiny.toml", "--set", "model.name=bad_model:bad", "--executor", "serial")
    assert (status, out) == (1, "")
    assert err == "smartfl: RuntimeError: no luck (--debug shows the traceback)\n"


def test_lists(type_in):
    for kind in KINDS:
        assert type_in("list", kind) == (0, "\n".join(names(kind)) + "\n", "")
    assert type_in("list", "presets")[1].split() == preset_names()


def test_help_names_the_commands(type_in):
    status, out, _ = type_in("--help")
    assert status == 0
    assert all(word in out for word in ("run", "compare", "report", "list"))


def test_a_report_of_a_run(type_in):
    type_in("run", "tiny.toml", "--executor", "serial", "--out", "here")
    status, out, _ = type_in("report", "here", "-o", "page.html")
    assert (status, out.splitlines()[-1]) == (0, "report: page.html")
    assert "<html" in Path("page.html").read_text()
    assert type_in("report", "here", "-o", "tiny.toml/page.html")[0] == 2
    # What a shell makes of a star beside an older report: files are no runs, but a file alone is a mistake.
    assert type_in("report", "page.html", "here", "-o", "page.html")[0] == 0
    assert type_in("report", "page.html", "-o", "other.html")[0] == 2


def test_compare_runs_every_rule_and_seed(smartfl, tiny_tables):
    """A real process without a terminal: a table, the report's path last, one run a rule and seed."""
    file = smartfl.write(tiny_tables(rounds=1))
    command = ("compare", file, "--aggregators", "fedavg,median", "--seeds", "2", "--out", "all", "--jobs", "2")
    done = smartfl(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "report: all/tiny-report.html"
    runs = [p for p in (smartfl.directory / "all").iterdir() if p.is_dir()]
    assert sorted(p.name.rpartition("-")[0] for p in runs) == ["tiny-fedavg"] * 2 + ["tiny-median"] * 2
    assert (smartfl.directory / "all" / "tiny-report.html").exists()


def test_compare_skips_what_is_done_and_goes_on_with_the_rest(type_in):
    command = ("compare", "tiny.toml", "--aggregators", "fedavg,uniform", "--out", "all", "--jobs", "1")
    assert type_in(*command)[0] == 0
    results = {p: p.stat().st_mtime_ns for p in Path("all").glob("*/result.json")}
    assert len(results) == 2
    next(iter(results)).unlink()
    status, _, err = type_in(*command)
    assert (status, err) == (0, "")
    again = {p: p.stat().st_mtime_ns for p in Path("all").glob("*/result.json")}
    assert again.keys() == results.keys()
    assert sum(again[p] == results[p] for p in results) == 1


def test_a_mistake_in_a_real_process(smartfl, tiny_tables):
    done = smartfl("run", smartfl.write(tiny_tables(data={"alfa": 1})))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "smartfl: data.alfa is not a setting (did you mean alpha?); accepted: dataset, clients, "
    )
    assert done.stderr.count("\n") == 1
    assert [p.name for p in smartfl.directory.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(("more", "said"), [([], "the same command goes on"), (["--fresh"], "without --fresh goes on")])
def test_an_interrupted_command_is_told_how_to_go_on(type_in, monkeypatch, more, said):
    """The same command with --fresh would throw away what is kept."""

    def interrupted(*arguments: object, **options: object) -> None:
        raise Interrupted

    monkeypatch.setattr("smartfl.runs.execute.execute", interrupted)
    status, _, err = type_in("run", "tiny.toml", *more)
    assert status == 130
    assert said in err


def test_a_file_named_like_a_library_is_never_run(smartfl, tiny_tables):
    """Neither by the command nor by the process that workers are forked from, nor by workers."""
    for name in ("torch", "numpy", "safetensors", "sklearn", "signal", "threading"):
        (smartfl.directory / f"{name}.py").write_text(
            "open('trap', 'a').write(__name__)\nraise ImportError('trapped')\n"
        )
    (smartfl.directory / "own.py").write_text("from smartfl.aggregators import Uniform as Own\n")
    file = smartfl.write(tiny_tables(rounds=1, aggregator={"name": "own:Own"}))
    script = Path(sys.executable).parent / "smartfl"
    for how in (
        ["run", "--workers", "1", "--out", "run"],
        ["compare", "--aggregators", "own:Own,fedavg", "--jobs", "2"],
    ):
        done = subprocess.run(
            [script, how[0], file, *how[1:]], cwd=smartfl.directory, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert not (smartfl.directory / "trap").exists()

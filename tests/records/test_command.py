"""``smartfl records``."""

from __future__ import annotations

import pytest

from smartfl.cli import main
from smartfl.records.store import read_runs


@pytest.fixture
def records(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["records", *map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return call


def test_directories_become_a_file_and_the_file_text(records, make_run, tmp_path):
    """Text says the same of a run directory and of the file; a changed accuracy is one line."""
    path = make_run("krum", rounds=3, accuracies=[0.5, 0.25, 0.75])
    file = tmp_path / "s.jsonl.xz"
    assert records("pack", tmp_path, "-o", file, "--clients") == (0, f"{file}: 1 of 1 runs added\n", "")
    assert records("pack", tmp_path, "-o", file, "--clients") == (0, f"{file}: 0 of 2 runs added\n", "")
    status, text, _ = records("show", file)
    lines = text.splitlines()
    assert (status, lines[0]) == (0, "krum-0")
    assert "  attack.rate = 0.4" in lines
    assert "  environment.python = 3.11.7" in lines
    assert lines[-2].startswith("  round 2: accuracy 0.25, ")
    assert "ids [" in lines[-1]
    rounds = path / "rounds.jsonl"
    rounds.write_text(rounds.read_text().replace('"accuracy": 0.25', '"accuracy": 0.3'))
    assert records("pack", path, "-o", tmp_path / "other.jsonl.xz", "--clients")[0] == 0
    changed = records("show", tmp_path / "other.jsonl.xz")[1].splitlines()
    assert [k for k, (a, b) in enumerate(zip(changed, lines, strict=True)) if a != b] == [len(lines) - 2]
    file.unlink()
    assert [run.accuracies for run in read_runs(tmp_path)] == [(0.5, 0.3, 0.75)]


def test_mistakes(records, tmp_path):
    assert records("pack", tmp_path, "-o", tmp_path / "a.json")[::2] == (
        2, f"smartfl: --to = '{tmp_path}/a.json' must end in .jsonl.xz\n"
    )  # fmt: skip
    status, _, err = records("pack", tmp_path / "absent", "-o", tmp_path / "a.jsonl.xz")
    assert (status, "absent' does not exist" in err) == (2, True)
    assert records("show", tmp_path / "absent")[0] == 2

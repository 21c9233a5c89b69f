"""All runs of a study in one file."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace

import pytest

from smartfl.errors import UserError
from smartfl.records.round import Dropped
from smartfl.records.run import RunRecord
from smartfl.records.study_file import StoredRun, merge_study, read_study


def lines_of(file):
    return [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()]


def test_a_line_a_run_and_each_environment_once(make_run, tmp_path):
    """Two runs that share a machine: three lines."""
    runs = [RunRecord.read(make_run("krum", seed=s, rounds=3)) for s in (1, 0)]
    file = tmp_path / "deep" / "s.jsonl.xz"
    assert merge_study(file, [StoredRun.of(run, cohorts=False) for run in runs]) == ["krum-1", "krum-0"]
    machine, *stored = lines_of(file)
    assert machine == {"environment": machine["environment"], "values": runs[0].environment}
    assert [line["run"] for line in stored] == ["krum-0", "krum-1"]
    assert {line["environment"] for line in stored} == {machine["environment"]}
    assert stored[1]["settings"] == runs[0].experiment
    assert stored[1]["rounds"]["accuracy"] == [float(f"{a:.6g}") for a in runs[0].accuracies]
    assert "ids" not in stored[1]["rounds"]


def test_what_is_read_is_what_was_written_to_six_digits(make_run, tmp_path):
    """Rounds without an accuracy, dropped clients, a key with a dot, and weights."""
    run = RunRecord.read(make_run("fedavg", rounds=4, accuracies=[0.5, 0.25, 0.125, 0.0625]))
    first, *others = run.rounds
    odd = replace(
        first, accuracy=None, proxy_loss=1.25, dropped=(Dropped(3, "NaN"),), info={"a.b": 2.0}, warnings=("w",)
    )
    run = replace(run, rounds=(odd, *others))
    file = tmp_path / "s.jsonl.xz"
    merge_study(file, [StoredRun.of(run, cohorts=True)])
    (found,) = (stored.run for stored in read_study(file))
    assert found.path == file / run.path.name
    assert (found.experiment, found.environment) == (run.experiment, run.environment)
    assert (found.rounds[0].info, found.rounds[0].dropped) == ({"a.b": 2.0}, (Dropped(3, "NaN"),))
    for ours, theirs in zip(found.rounds, run.rounds, strict=True):
        rounded = tuple(float(f"{c:.6g}") for c in theirs.coefficients)
        assert ours == replace(theirs, coefficients=rounded, loss=ours.loss, malicious_mass=ours.malicious_mass)
        assert (ours.loss, ours.malicious_mass) == pytest.approx((theirs.loss, theirs.malicious_mass), rel=1e-5)


def test_of_two_with_the_same_digest_the_longer_stays(make_run, tmp_path):
    """A digest does not depend on the name; nothing new leaves the file as it is."""
    file = tmp_path / "s.jsonl.xz"
    whole = RunRecord.read(make_run("krum", rounds=5))
    short = replace(
        whole, path=whole.path.with_name("other"), rounds=whole.rounds[:2], experiment={**whole.experiment, "name": "x"}
    )
    other = StoredRun.of(RunRecord.read(make_run("median", rounds=5)), cohorts=False)
    assert merge_study(file, [StoredRun.of(short, cohorts=False), other]) == ["other", "median-0"]
    assert merge_study(file, [StoredRun.of(whole, cohorts=False)]) == ["krum-0"]
    content = file.read_bytes()
    assert merge_study(file, [StoredRun.of(short, cohorts=True), other]) == []
    assert file.read_bytes() == content
    assert {stored.name: stored.done for stored in read_study(file)} == {"krum-0": 5, "median-0": 5}
    assert merge_study(file, [StoredRun.of(whole, cohorts=True)]) == ["krum-0"]  # now with its clients


def test_the_order_of_adding_does_not_change_the_file(make_run, tmp_path):
    runs = [
        StoredRun.of(RunRecord.read(make_run(rule, rounds=2)), cohorts=True) for rule in ("krum", "median", "fedavg")
    ]
    for name, order in (("a", runs), ("b", runs[::-1])):
        for run in order:
            merge_study(tmp_path / f"{name}.jsonl.xz", [run])
    assert (tmp_path / "a.jsonl.xz").read_bytes() == (tmp_path / "b.jsonl.xz").read_bytes()


@pytest.mark.parametrize("content", [b"", b"no xz", lzma.compress(b"no json"), lzma.compress(b'{"run": "a"}')])
def test_what_is_no_file_of_records_is_named(tmp_path, content):
    file = tmp_path / "s.jsonl.xz"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"s\.jsonl\.xz' is not a file of records"):
        read_study(file)

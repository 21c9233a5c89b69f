from __future__ import annotations

import json
from pathlib import Path

import pytest

from smartfl.errors import UserError
from smartfl.records.round import Seconds
from smartfl.records.run import RunRecord


def test_reads_every_file(make_run):
    run = RunRecord.read(make_run("krum", seed=3, rounds=5, clients=10))
    assert (run.name, run.seed, run.planned_rounds, run.finished) == ("digits-under-attack", 3, 5, True)
    assert [r.round for r in run.rounds] == [1, 2, 3, 4, 5]
    assert run.rounds[0].seconds == Seconds(train=0.5, aggregate=0.02, evaluate=0.03)
    assert run.rounds[0].info == {"screened_share": 0.0, "f": 4.0}
    assert run.rounds[0].events == ("aggregator.f was capped at 22 of 48 clients",)
    assert len(run.rounds[0].ids) == 6
    assert sum(run.rounds[0].coefficients) == pytest.approx(1)
    assert run.environment["torch"] == "2.13.0+cpu"
    assert run.clients == tuple(range(10))
    assert run.attackers == {1, 3, 5, 7}
    assert run.label == "Krum · label flip 0.4 · seed 3"


def test_label_names_variant_and_wrapped_rule(make_run):
    assert RunRecord.read(make_run("smartfl")).label == "SmartFL (calibrated) · label flip 0.4 · seed 0"
    wrapped = make_run(folder="w", aggregator={"name": "bucketing", "s": 2, "rule": {"name": "my:Rule"}}, attack={})
    assert RunRecord.read(wrapped).label == "Bucketing(Rule) · seed 0"


def test_a_late_attack_is_said_and_its_weight_is_that_of_the_rounds_under_attack(make_run):
    """Masses 0, 0, 0.2, 0.4 from round 3 on: 0.3; one attacker of four in each of them, and none before: 0.25."""
    path = make_run(rounds=4, clients=4, attack={"name": "label_flip", "rate": 0.25, "since": 3})
    masses, who = [0.0, 0.0, 0.2, 0.4], [[], [], [1], [1]]
    (path / "rounds.jsonl").write_text(
        "\n".join(json.dumps({"round": k, "accuracy": 0.5, "malicious_mass": m}) for k, m in enumerate(masses, 1))
    )
    (path / "coefficients.jsonl").write_text(
        "\n".join(json.dumps({"round": k, "ids": [0, 1, 2, 3], "malicious": m}) for k, m in enumerate(who, 1))
    )
    run = RunRecord.read(path)
    assert run.label == "SmartFL (calibrated) · label flip 0.25 from round 3 · seed 0"
    assert run.malicious_mass == pytest.approx(0.3)
    assert run.uniform_mass == pytest.approx(0.25)


def test_final_best_and_mean_of_the_last_ten(make_run):
    """0.00, 0.05, …, 0.55, then 0.30: final 0.30, best 0.55, last ten (0.15 + … + 0.55 + 0.30) / 10 = 3.45 / 10."""
    run = RunRecord.read(make_run(rounds=13, accuracies=[0.05 * k for k in range(12)] + [0.30]))
    assert run.final == pytest.approx(0.30)
    assert run.best == pytest.approx(0.55)
    assert run.last_ten == pytest.approx(0.345)
    # (0.40 + 0.45 + 0.50 + 0.55 + 0.30) / 5 = 0.44 after (0.15 + 0.20 + 0.25 + 0.30 + 0.35) / 5 = 0.25
    assert run.trend == pytest.approx(0.19)
    assert run.seconds_per_round == pytest.approx(0.55)


def test_fewer_than_ten_rounds_and_rounds_not_evaluated(make_run):
    """Accuracies 0.2, none, NaN, 0.4: the mean is over the two that exist."""
    path = make_run(rounds=4)
    values = [0.2, None, float("nan"), 0.4]
    lines = [json.dumps({"round": k, "accuracy": v}) for k, v in enumerate(values)]
    (path / "rounds.jsonl").write_text("\n".join(lines))
    run = RunRecord.read(path)
    assert (run.final, run.best, run.trend) == (0.4, 0.4, None)
    assert run.last_ten == pytest.approx(0.3)
    assert run.seconds_per_round is None


def test_malicious_mass_and_its_uniform_reference(make_run):
    """Masses 0.1, none, 0.3 average to 0.2; one attacker of four, then two of four: equal weights give 0.375."""
    path = make_run(rounds=3, clients=4)
    masses = [0.1, None, 0.3]
    (path / "rounds.jsonl").write_text(
        "\n".join(json.dumps({"round": k, "accuracy": 0.5, "malicious_mass": m}) for k, m in enumerate(masses))
    )
    (path / "coefficients.jsonl").write_text(
        '{"round": 0, "ids": [0, 1, 2, 3], "coefficients": [0.25, 0.25, 0.25, 0.25], "malicious": [3, 9]}\n'
        '{"round": 1, "ids": [0, 1, 2, 3], "coefficients": null, "malicious": [1, 3]}\n'
    )
    run = RunRecord.read(path)
    assert run.malicious_mass == pytest.approx(0.2)
    assert run.uniform_mass == pytest.approx(0.375)
    assert run.rounds[1].coefficients is None
    assert run.clients == (0, 1, 2, 3, 9)


def test_nobody_attacks(make_run):
    run = RunRecord.read(make_run(attack={"name": "none", "rate": 0.0}))
    assert (run.attacked, run.malicious_mass, run.label) == (False, None, "SmartFL (calibrated) · seed 0")


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_last_line_cut_short_is_left_out(make_run, cut):
    path = make_run(rounds=6)
    for name in ("rounds.jsonl", "coefficients.jsonl"):
        file = path / name
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) - 1 - cut])
    run = RunRecord.read(path)
    assert [r.round for r in run.rounds] == [r.round for r in run.cohorts] == [1, 2, 3, 4, 5]
    assert not run.finished


def test_a_last_line_without_its_newline_counts(make_run):
    path = make_run(rounds=2)
    file = path / "rounds.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert len(RunRecord.read(path).rounds) == 2


def test_a_cut_in_the_middle_of_a_letter(make_run):
    path = make_run(rounds=1)
    with (path / "rounds.jsonl").open("ab") as file:
        file.write('{"round": 2, "events": ["α'.encode()[:-1])
    assert len(RunRecord.read(path).rounds) == 1


def test_a_broken_line_in_the_middle_is_named(make_run):
    path = make_run(rounds=3)
    lines = (path / "rounds.jsonl").read_text().splitlines()
    lines[1] = lines[1][:20]
    (path / "rounds.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"rounds\.jsonl line 2"):
        RunRecord.read(path)


def test_a_round_written_twice_counts_once_as_written_last(make_run):
    path = make_run(rounds=2)
    with (path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "accuracy": 0.125}\n')
    run = RunRecord.read(path)
    assert len(run.rounds) == 2
    assert run.final == 0.125


def test_a_run_that_has_just_begun(make_run):
    path = make_run()
    for name in ("rounds.jsonl", "coefficients.jsonl", "environment.json"):
        (path / name).unlink()
    run = RunRecord.read(path)
    assert (run.rounds, run.environment, run.final, run.last_ten) == ((), {}, None, None)
    assert not run.finished


def test_what_is_no_run_directory_is_named(tmp_path: Path, make_run):
    with pytest.raises(UserError, match="nowhere is not a run directory"):
        RunRecord.read(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty is not a run directory"):
        RunRecord.read(tmp_path / "empty")
    path = make_run()
    with pytest.raises(UserError, match=rf"{path.parent.name} is not a run .*; its subdirectories are: .*/\*$"):
        RunRecord.read(path.parent)
    (path / "experiment.toml").write_text("name = ")
    with pytest.raises(UserError, match=r"experiment\.toml is not TOML"):
        RunRecord.read(path)

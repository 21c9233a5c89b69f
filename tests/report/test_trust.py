from pathlib import Path

from smartfl.records.round import RoundRecord
from smartfl.records.run import RunRecord
from smartfl.report.trust import Trust, warnings


def run_of(*lines: dict[str, object]) -> RunRecord:
    rounds = tuple(RoundRecord.of({"round": t + 1, **line}) for t, line in enumerate(lines))
    return RunRecord(Path("run"), {}, {}, rounds, ())


def judged(accuracy: float, **info: float) -> dict[str, object]:
    return {
        "accuracy": accuracy,
        "info": {"proxy_accuracy": 0.8, "proxy_accuracy_low": 0.7, "proxy_accuracy_high": 0.9, **info},
    }


def test_a_line_by_hand() -> None:
    """0.75 lies inside 0.7–0.9 and 0.65 does not; effective clients (4 + 6) / 2; screened (0 + 0.5) / 2;
    in the one round that says it, three clients are mistrusted; half and a quarter of the fit were drawn back."""
    run = run_of(
        judged(0.65, effective_clients=4.0, screened_share=0.0, drawn_back=0.5),
        judged(0.75, effective_clients=6.0, screened_share=0.5, mistrusted=3, drawn_back=0.25),
    )
    assert Trust.of("x", run) == Trust("x", "80.0% (70.0–90.0)", "75.0%", "1 of 2", "5.0", "25.0%", "3.0", "38%")


def test_a_rule_without_samples_or_weights_says_what_it_has() -> None:
    line = Trust.of("median", run_of({"accuracy": 0.5, "info": {"screened_share": 0.0}}))
    assert (line.proxy, line.covered, line.effective, line.suspects) == ("–", "–", "–", "–")
    assert (line.screened, line.said) == ("0.0%", True)


def test_records_of_older_versions_have_nothing_to_show() -> None:
    assert not Trust.of("old", run_of({"accuracy": 0.5, "info": {"proxy_accuracy": 0.5}})).said


def test_a_warning_is_shown_once_with_its_first_round() -> None:
    run = run_of({"warnings": ["too few"]}, {"warnings": ["disagree"]}, {"warnings": ["disagree"]})
    assert Trust.of("x", run).warnings == ("too few (round 1)", "disagree (round 2)")


def test_a_run_with_nothing_but_a_warning_is_shown() -> None:
    line = Trust.of("x", run_of({"warnings": ["too few"]}))
    assert line.said
    assert warnings([line, Trust.of("y", run_of({"warnings": ["too few"]}))]) == [("too few (round 1)", ["x", "y"])]

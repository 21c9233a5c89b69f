"""Figures from records: what is drawn where."""

from __future__ import annotations

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import study_names
from smartfl.experiment.study import Drawing, Selection
from smartfl.report.run_data import RunData
from smartfl.reproduce.figures import draw_study, mean_malicious_weight
from smartfl.reproduce.plan import plan


def fill(study, root, write_run):
    for planned in plan(study, Selection(), root).runs:
        weights = [{"round": t, "ids": [1, 2, 3], "coefficients": [0.5, 0.2, 0.3], "malicious": [2, 3]} for t in (1, 2)]
        write_run(planned.experiment, root, [0.2, 0.4 + 0.1 * planned.trial.seed], weights)
    return plan(study, Selection(), root)


def test_mean_weight_of_a_poisoned_client(tmp_path, write_run, study):
    """Weights 0.2 and 0.3 of two poisoned clients: 0.25; without coefficients or attackers there is nothing to show."""
    weights = [
        {"round": 1, "ids": [1, 2, 3], "coefficients": [0.5, 0.2, 0.3], "malicious": [2, 3]},
        {"round": 2, "ids": [1, 2, 3], "coefficients": None, "malicious": [2, 3]},
        {"round": 3, "ids": [1, 4], "coefficients": [0.5, 0.5], "malicious": []},
    ]
    path = write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1] * 3, weights)
    assert mean_malicious_weight(RunData.read(path)) == [(1, pytest.approx(0.25))]


@pytest.mark.parametrize(
    ("drawing", "seen"),
    [
        (Drawing(kind="curves"), ["rate 0.25", "rate 0.5", "Test accuracy (%)", "Round", "Krum"]),
        (Drawing(kind="weights"), ["Mean weight of a poisoned client", "equal weights", "rate 0.5"]),
        (Drawing(kind="mass"), ["Weight on attackers (%)", "rate 0.5"]),
        (Drawing(kind="overfit"), ["rate 0.25 · proxy data", "rate 0.25 · test data", "Accuracy (%)"]),
        (Drawing(kind="sweep", x="attack.rate", xlabel="Rate of attack", log=True), ["Rate of attack", "Finetuning"]),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_every_kind_as_svg_and_png(tmp_path, write_run, study, drawing, seen):
    study = study.model_copy(update={"figure": drawing})
    plan = fill(study, tmp_path, write_run)
    svg = draw_study(plan, tmp_path / "figures" / "f.svg").read_text()
    assert all(text in svg for text in [study.title, *seen])
    assert draw_study(plan, tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert svg == draw_study(plan, tmp_path / "again.svg").read_text()


def test_weights_cannot_be_drawn_from_records_without_them(tmp_path, write_run, study):
    study = study.model_copy(update={"figure": Drawing(kind="weights")})
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1, 0.2])
    with pytest.raises(UserError, match=r"coefficients\.jsonl, which none of its records has"):
        draw_study(plan(study, Selection(), tmp_path), tmp_path / "f.png")


def test_mass_needs_attackers(tmp_path, write_run, study):
    """The study without its attack: a panel of the weight on attackers would show a line at 0 and mean nothing."""
    honest = study.model_copy(update={"axes": {}, "base": study.base | {"attack": {"name": "none"}}, "exclude": ()})
    for planned in plan(honest, Selection(), tmp_path).runs:
        write_run(planned.experiment, tmp_path, [0.2, 0.4])
    with pytest.raises(UserError, match="no run of tiny has attackers"):
        draw_study(plan(honest.drawn_as("mass"), Selection(), tmp_path), tmp_path / "f.png")


def test_a_study_can_be_drawn_another_way(study):
    assert study.drawn_as("mass").figure.kind == "mass"
    with pytest.raises(UserError, match="--kind = 'pie': accepted for tiny are curves, weights, mass"):
        study.drawn_as("pie")


def test_nothing_run_or_a_wrong_ending(tmp_path, write_run, study):
    with pytest.raises(UserError, match="nothing of tiny has been run: smartfl reproduce tiny"):
        draw_study(plan(study, Selection(), tmp_path), tmp_path / "f.png")
    with pytest.raises(UserError, match="must end in"):
        draw_study(plan(study, Selection(), tmp_path), tmp_path / "f.gif")


def test_every_study_says_how_it_is_drawn():
    from smartfl.experiment.presets import read_study

    kinds = {name: read_study(name).figure.kind for name in study_names() if name.startswith("figure")}
    assert kinds == {
        "figure1": "sweep", "figure2": "sweep", "figure3": "overfit", "figure4": "curves", "figure5": "weights",
        "figureA1": "curves", "figureA2": "curves", "figureA3": "curves", "figureA4": "curves",
    }  # fmt: skip
    assert read_study("figure5").coefficients

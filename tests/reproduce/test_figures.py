"""Figures from records: what is drawn where."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import read_study, study_names
from smartfl.experiment.study import Drawing, Selection, Study
from smartfl.records.run import RunRecord
from smartfl.reproduce.figures import blocks_of, draw_study, figure_of
from smartfl.reproduce.palette import KNOWN, looks
from smartfl.reproduce.panels import Panel, mean_malicious_weight
from smartfl.reproduce.plan import plan

PARTS = {"scale": 0.02, "decay": 0.03}


def fill(study, root, write_run):
    for planned in plan(study, Selection(), root).runs:
        weights = [{"round": t, "ids": [1, 2, 3], "coefficients": [0.5, 0.2, 0.3], "malicious": [2, 3]} for t in (1, 2)]
        write_run(planned.experiment, root, [0.2, 0.4 + 0.1 * planned.trial.seed], weights)
    return plan(study, Selection(), root)


def drawn(plan):
    """By label, the (colour, dash, marker) of every line of the figure."""
    return {
        line.get_label(): (line.get_color(), line.get_linestyle(), line.get_marker())
        for ax in figure_of(plan).axes
        for line in ax.get_lines()
    }


def footer(plan):
    return figure_of(plan).legends[0].get_title().get_text()


def panels_at(*axes):
    """Panels without lines at every combination of some labels."""
    return [Panel(labels, (), "", "", False) for labels in product(*axes)]


def rows(panels):
    return [[" ".join(panel.labels) for panel in block] for block in blocks_of(panels)]


def test_mean_weight_of_a_poisoned_client(tmp_path, write_run, study):
    """Weights 0.2 and 0.3 of two poisoned clients: 0.25; without coefficients or attackers there is nothing to show."""
    weights = [
        {"round": 1, "ids": [1, 2, 3], "coefficients": [0.5, 0.2, 0.3], "malicious": [2, 3]},
        {"round": 2, "ids": [1, 2, 3], "coefficients": None, "malicious": [2, 3]},
        {"round": 3, "ids": [1, 4], "coefficients": [0.5, 0.5], "malicious": []},
    ]
    path = write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1] * 3, weights)
    assert mean_malicious_weight(RunRecord.read(path)) == [(1, pytest.approx(0.25))]


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
    with pytest.raises(UserError, match=r"the weights of clients, which none of its records has"):
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
    with pytest.raises(UserError, match="nothing of tiny has been run yet: `smartfl reproduce` runs it"):
        draw_study(plan(study, Selection(), tmp_path), tmp_path / "f.png")
    with pytest.raises(UserError, match="must end in"):
        draw_study(plan(study, Selection(), tmp_path), tmp_path / "f.gif")


def test_every_study_says_how_it_is_drawn():
    kinds = {name: read_study(name).figure.kind for name in study_names() if name.startswith("figure")}
    assert kinds == {
        "figure1": "sweep", "figure2": "sweep", "figure3": "overfit", "figure4": "curves", "figure5": "weights",
        "figureA1": "curves", "figureA2": "curves", "figureA3": "curves", "figureA4": "curves",
    }  # fmt: skip
    assert read_study("figure5").coefficients


def every_study():
    files = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))
    return [read_study(name) for name in [*study_names(), *map(str, files)]]


def test_a_method_looks_the_same_whichever_others_are_drawn(tmp_path, write_run, study):
    """FedAvg alone, FedAvg beside Krum and finetuning: grey and solid, pointing down."""
    fill(study, tmp_path, write_run)
    alone, beside = (plan(study, Selection(only=only), tmp_path) for only in (("fedavg",), ()))
    assert drawn(alone)["FedAvg"] == drawn(beside)["FedAvg"] == ("#7f8893", "-", "v")
    assert len(set(drawn(beside).values())) == len(drawn(beside)) == 3


def test_a_part_looks_the_same_whichever_others_are_drawn(tmp_path, write_run, study_tables):
    """Of two methods that no other study has, the second keeps its look when the first is left out."""
    parts = {key: study_tables["methods"]["krum"] | {"label": key, "client": {"lr": lr}} for key, lr in PARTS.items()}
    study = Study.of({**study_tables, "name": "tiny", "methods": parts, "exclude": []})
    fill(study, tmp_path, write_run)
    both, alone = (drawn(plan(study, Selection(only=only), tmp_path)) for only in ((), ("decay",)))
    assert both["decay"] == alone["decay"] != both["scale"]


def test_ours_is_thick_and_above_all(tmp_path, write_run, study_tables):
    """SmartFL named first, where another method would be drawn first and lie below the rest."""
    ours = {"smartfl": {"label": "SmartFL", "aggregator": {"name": "smartfl"}}, **study_tables["methods"]}
    plan = fill(Study.of({**study_tables, "name": "tiny", "methods": ours}), tmp_path, write_run)
    lines = {line.get_label(): line for line in figure_of(plan).axes[0].get_lines()}
    first, *others = lines["SmartFL"], lines["FedAvg"], lines["Krum"], lines["Finetuning"]
    assert first.get_color() == "#0063a8"
    assert all(first.get_zorder() > o.get_zorder() and first.get_linewidth() > o.get_linewidth() for o in others)


def test_no_two_methods_of_a_study_look_alike():
    """In colour, and without colour by dash and marker; ablation-digits has 26 methods, 23 of them unknown."""
    for study in every_study():
        found = looks(study.methods)
        assert list(found.keys() ^ study.methods.keys()) == []
        assert len({(look.colour, look.dash) for look in found.values()}) == len(study.methods), study.name
        assert len({(look.marker, look.dash) for look in found.values()}) == len(study.methods), study.name
        assert all(found[key] == KNOWN[key] for key in study.methods if key in KNOWN)


def test_spare_looks_are_nobody_elses():
    """Two names of one rule in one study, and far more unknown methods than colours: none has the look of another."""
    found = looks(dict.fromkeys(["literal", *KNOWN, *map(str, range(150))]))
    assert found["literal"] == KNOWN["literal"] != found["smartfl_literal"]
    assert len(set(found.values())) == len(found) == len(KNOWN) + 150


def test_the_first_unknown_methods_have_colours_of_their_own():
    """Thirteen colours: SmartFL's and twelve others."""
    assert len({look.colour for look in looks(["smartfl", *"abcdefghijkl"]).values()}) == 13


def test_a_cell_without_runs_says_so(tmp_path, write_run, study):
    """Rate 0.5 was not run: no scale that nothing was measured on."""
    for planned in plan(study, Selection(where={"attack.rate": ("0.25",)}), tmp_path).runs:
        write_run(planned.experiment, tmp_path, [0.2, 0.4])
    run, missing = figure_of(plan(study, Selection(), tmp_path)).axes
    assert [text.get_text() for text in missing.texts] == ["not run"]
    assert [*missing.get_xticks(), *missing.get_yticks(), missing.get_ylabel()] == [""]
    assert list(run.texts) == []
    assert len(run.get_yticks()) > 1


def test_a_sweep_without_runs_says_so(tmp_path, write_run, study_tables):
    """Alpha 1 was not run at any rate."""
    tables = {**study_tables, "name": "tiny", "axes": {"data.alpha": [0.1, 1.0], **study_tables["axes"]}}
    tables["base"] = study_tables["base"] | {"data": study_tables["base"]["data"] | {"partition": "hsu"}}
    study = Study.of({**tables, "figure": {"kind": "sweep", "x": "attack.rate"}})
    for planned in plan(study, Selection(where={"data.alpha": ("0.1",)}), tmp_path).runs:
        write_run(planned.experiment, tmp_path, [0.2, 0.4])
    run, missing = figure_of(plan(study, Selection(), tmp_path)).axes
    assert [text.get_text() for text in missing.texts] == ["not run"]
    assert list(run.get_xticks()) == [0.25, 0.5]


def test_a_run_that_lacks_the_quantity_is_not_called_not_run(tmp_path, write_run, study):
    """Records without proxy_accuracy: the run is there, the number is not."""
    proxy, test, *_ = figure_of(fill(study.drawn_as("overfit"), tmp_path, write_run)).axes
    assert [text.get_text() for text in proxy.texts] == ["not recorded"]
    assert list(test.texts) == []


def test_weight_on_attackers_leaves_out_columns_without_attack_but_not_those_that_were_not_run(
    tmp_path, write_run, study_tables
):
    attacks = [{"label": "none", "attack": {"name": "none", "rate": 0.0}}]
    attacks += [{"label": f"flip {rate}", "attack": {"rate": rate}} for rate in (0.25, 0.5)]
    study = Study.of({**study_tables, "name": "tiny", "axes": {"attack": attacks}, "exclude": []}).drawn_as("mass")
    for planned in plan(study, Selection(where={"attack": ("none", "flip 0.5")}), tmp_path).runs:
        write_run(planned.experiment, tmp_path, [0.2, 0.4])
    axes = figure_of(plan(study, Selection(), tmp_path)).axes
    assert [(ax.get_title(), len(ax.texts)) for ax in axes] == [("flip 0.25", 1), ("flip 0.5", 0)]


def test_the_footer_counts_seeds(tmp_path, write_run, study):
    runs = plan(study, Selection(), tmp_path).runs
    for planned in runs[: len(runs) // 2]:
        write_run(planned.experiment, tmp_path, [0.2, 0.4])
    assert footer(plan(study, Selection(), tmp_path)) == "one seed"
    write_run(runs[-1].experiment, tmp_path, [0.3, 0.5])
    assert footer(plan(study, Selection(), tmp_path)) == "mean of 1 to 2 seeds, band ± one standard deviation"
    for planned in runs[len(runs) // 2 : -1]:
        write_run(planned.experiment, tmp_path, [0.3, 0.5])
    assert footer(plan(study, Selection(), tmp_path)) == "mean of 2 seeds, band ± one standard deviation"


def test_the_footer_names_runs_that_end_early(tmp_path, write_run, study):
    """Of 3 rounds, FedAvg has 1 and 2 at the two rates, Krum all, finetuning none: what is not shown is not named."""
    selection = Selection(seeds=1, rounds=3)
    rounds = {("fedavg", "rate 0.25"): 1, ("fedavg", "rate 0.5"): 2, ("krum", "rate 0.25"): 3}
    for planned in plan(study, selection, tmp_path).runs:
        if done := rounds.get((planned.trial.method, *planned.trial.column)):
            write_run(planned.experiment, tmp_path, [0.2] * done)
    assert footer(plan(study, selection, tmp_path)) == "one seed; some runs end early: FedAvg at 1 to 2 of 3"


def test_a_row_is_one_value_of_the_leading_axis():
    assert rows(panels_at("ab", "123")) == [["a 1", "a 2", "a 3"], ["b 1", "b 2", "b 3"]]
    assert rows(panels_at("ab", "12", "xy")) == [[f"{a} {n} {x}" for n in "12" for x in "xy"] for a in "ab"]
    # Six in a row are too many, and four would mix the values of the second axis.
    assert rows(panels_at("ab", "123", "xy")) == [[f"{a} {n} {x}" for x in "xy"] for a in "ab" for n in "123"]
    assert rows(panels_at("a", "12", "xy")) == [["a 1 x", "a 1 y"], ["a 2 x", "a 2 y"]]
    assert rows(panels_at("abc")) == [["a", "b", "c"]]
    assert rows(panels_at()) == [[""]]


def test_nine_values_make_rows_of_five_and_four(tmp_path, write_run, study_tables):
    """Two alphas at nine rates: four rows, those of one alpha first, on one scale: 0 to a little above 90 or 50 %."""
    rates = [k / 10 for k in range(1, 10)]
    tables = {**study_tables, "name": "tiny", "exclude": [], "methods": {"fedavg": study_tables["methods"]["fedavg"]}}
    tables["axes"] = {"data.alpha": [0.1, 1.0], "attack.rate": rates}
    tables["base"] = study_tables["base"] | {"data": study_tables["base"]["data"] | {"partition": "hsu"}}
    study = Study.of(tables)
    for planned in plan(study, Selection(seeds=1), tmp_path).runs:
        alpha, rate = (point.value for point in planned.trial.points)
        write_run(planned.experiment, tmp_path, [0.1, rate if alpha < 1 else 0.5])
    axes = [ax for ax in figure_of(plan(study, Selection(seeds=1), tmp_path)).axes if ax.get_visible()]
    places = [(ax.get_subplotspec().rowspan.start, ax.get_subplotspec().colspan.start) for ax in axes]
    assert places == [(2 * a + k // 5, k % 5) for a in range(2) for k in range(9)]
    tops = [ax.get_ylim()[1] for ax in axes]
    assert len(set(tops[:9])) == len(set(tops[9:])) == 1
    assert 90 < tops[0] < 100
    assert 50 < tops[-1] < 60


def test_a_legend_of_long_names_stays_inside_a_narrow_figure():
    study = read_study("table1")
    where = {"dataset": ("CIFAR-10",), "data.alpha": ("0.01",), "client.participation": ("0.4",)}
    selection = Selection(only=("fedavg", "forgetful", "smartfl"), where=where, seeds=1)
    figure = figure_of(plan(study, selection, Path("nowhere"), (Path(__file__).parents[2] / "results" / "paper",)))
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0
    assert legend.x1 <= figure.bbox.x1

"""The arithmetic of tables, by hand, and their four formats."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection, Study
from smartfl.records.run import RunRecord
from smartfl.reproduce.formats import render
from smartfl.reproduce.metrics import first_round, score
from smartfl.reproduce.plan import plan
from smartfl.reproduce.table import Block, compare


@pytest.fixture
def filled(tmp_path, write_run, study):
    """FedAvg at rate 0.25: two seeds with (0.2, 0.4) and (0.4, 0.8); Finetuning: one seed; at 0.5 one round of two."""
    runs = {(p.trial.method, p.trial.column[0], p.trial.seed): p for p in plan(study, Selection(), tmp_path).runs}
    for key, accuracies in {
        ("fedavg", "rate 0.25", 0): [0.2, 0.4],
        ("fedavg", "rate 0.25", 1): [0.4, 0.8],
        ("finetune", "rate 0.25", 0): [0.1, 0.3],
        ("finetune", "rate 0.5", 0): [0.9],
        ("fedavg", "rate 0.5", 0): [0.1, 0.7],
    }.items():
        write_run(runs[key].experiment, tmp_path, accuracies)
    return plan(study, Selection(), tmp_path)


def texts(table):
    return {(row.method, k): e.ours_text() for row in table.rows for k, e in enumerate(row.entries)}


def test_mean_and_sample_deviation_over_seeds(filled):
    """Converged: means 0.3 and 0.6 of the last (at most ten) rounds; mean 45, std √((15² + 15²)/1) = 21.2132."""
    found = texts(compare(filled))
    assert found["fedavg", 0] == "45.00 ± 21.21"
    assert found["finetune", 0] == "20.00 [1/2]"
    assert found["fedavg", 1] == "40.00 [1/2]"
    assert found["finetune", 1] == "90.00 @1/2"
    assert found["krum", 0] == "not run"
    assert found["krum", 1] == "–"


def test_other_metrics(filled):
    """Maximum: 40 and 80; final: the same here."""
    assert texts(compare(filled, "maximum"))["fedavg", 0] == "60.00 ± 28.28"
    assert texts(compare(filled, "final"))["finetune", 0] == "30.00 [1/2]"
    assert texts(compare(filled, "mass"))["fedavg", 0] == "25.00 ± 0.00"


def test_whether_a_run_is_flat(tmp_path, write_run, study):
    """Five rounds at 0.2, then five at 0.5: +30 points.  Nobody is best, and a shorter run has no trend."""
    longer = study.model_copy(update={"base": study.base | {"rounds": 10}, "seeds": 1})
    runs = {(p.trial.method, p.trial.column[0]): p.experiment for p in plan(longer, Selection(), tmp_path).runs}
    write_run(runs["fedavg", "rate 0.25"], tmp_path, [0.2] * 5 + [0.5] * 5)
    write_run(runs["krum", "rate 0.25"], tmp_path, [0.5] * 5 + [0.4] * 5)
    write_run(runs["finetune", "rate 0.25"], tmp_path, [0.2] * 9)
    table = compare(plan(longer, Selection(), tmp_path), "trend")
    assert [texts(table)[row.method, 0] for row in table.rows] == ["30.00", "-10.00", "–"]
    assert not any(table.wins(row, 0, "ours") for row in table.rows)


def test_weight_on_attackers_does_not_apply_without_attackers_or_weights(tmp_path, write_run, study):
    """A column without attack has none, run or not; a rule like the median has no weights to report."""
    honest = study.model_copy(update={"axes": {}, "base": study.base | {"attack": {"name": "none"}}, "exclude": ()})
    assert set(texts(compare(plan(honest, Selection(), tmp_path), "mass")).values()) == {"–"}
    run = write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.2, 0.4])
    records = (run / "rounds.jsonl").read_text().replace('"malicious_mass": 0.25', '"malicious_mass": null')
    (run / "rounds.jsonl").write_text(records)
    found = texts(compare(plan(study, Selection(), tmp_path), "mass"))
    assert (found["fedavg", 0], found["finetune", 0]) == ("–", "not run")


def test_less_weight_on_attackers_is_better(filled):
    """All records say 25 %, so every row that is finished shares the win; no paper number stands beside it."""
    table = compare(filled, "mass")
    assert [table.wins(row, 0, "ours") for row in table.rows] == [True, False, True]
    assert all(e.paper is None for row in table.rows for e in row.entries)


def test_the_winner_is_the_best_of_what_is_finished(filled):
    table = compare(filled)
    fedavg, krum, finetune = table.rows
    assert table.wins(fedavg, 0, "ours")
    assert not table.wins(finetune, 0, "ours")
    assert not table.wins(krum, 0, "ours")
    # 90 is in progress and does not count, and of one value alone nothing is the best.
    assert not table.wins(finetune, 1, "ours")
    assert not table.wins(fedavg, 1, "ours")
    assert not table.wins(fedavg, 0, "paper")


def test_first_round_at_the_target(tmp_path, write_run, study):
    experiment = plan(study, Selection(), tmp_path).runs[0].experiment
    run = RunRecord.read(write_run(experiment, tmp_path, [0.1, None, 0.35, 0.2, 0.4]))
    assert first_round(run, 0.35) == 3
    assert first_round(run, 0.36) == 5
    assert first_round(run, 0.5) is None


def rounds_study(study):
    tables = {"label": "high", "target": 0.5, "attack": {"rate": 0.25}}, {"label": "low", "attack": {"rate": 0.5}}
    changes = {"name": "tiny", "title": "t", "metric": "rounds", "axes": {"level": list(tables)}, "base": study.base}
    return Study.of(changes | {"seeds": 2, "methods": {k: {"aggregator": {"name": k}} for k in ("fedavg", "uniform")}})


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ([0.1, 0.5], [0.6, 0.7], "1.5 ± 0.7"),  # rounds 2 and 1: mean 1.5, std √0.5
        ([0.1, 0.4], [0.6, 0.7], "≥ 1.5 ± 0.7 (1 never)"),  # never in 2 rounds counts as 2
        ([0.1, 0.4], [0.1, 0.2], "not in 2"),
    ],
)
def test_rounds_to_target(tmp_path, write_run, study, first, second, text):
    study = rounds_study(study)
    for planned in plan(study, Selection(), tmp_path).runs:
        if planned.trial.method == "fedavg":
            write_run(planned.experiment, tmp_path, first if planned.trial.seed == 0 else second)
    table = compare(plan(study, Selection(), tmp_path))
    assert texts(table)["fedavg", 0] == text
    assert texts(table)["fedavg", 1] == "not run"  # no target there
    assert ("≥: the seeds that never reach" in render(table, "text")) == ("never" in text)


def test_fewer_rounds_win_and_a_run_that_never_arrives_does_not(tmp_path, write_run, study):
    study = rounds_study(study)
    for planned in plan(study, Selection(), tmp_path).runs:
        if planned.trial.column == ("high",):
            write_run(planned.experiment, tmp_path, [0.1, 0.5] if planned.trial.method == "fedavg" else [0.1, 0.2])
    table = compare(plan(study, Selection(), tmp_path))
    assert [table.wins(row, 0, "ours") for row in table.rows] == [False, False]  # only one has arrived
    assert score([], "rounds", 0.5) is None


def test_text(filled):
    shown = render(compare(filled), "text").splitlines()
    assert shown[:2] == [
        "Digits under attack",
        "ours: test accuracy in %, mean of the last 10 evaluated rounds, mean ± sample std over 2 seeds",
    ]
    assert shown[3:7] == [
        "                       rate 0.25     rate 0.5",
        "FedAvg      ours  *45.00 ± 21.21  40.00 [1/2]",
        "Krum        ours         not run            –",
        "Finetuning  ours     20.00 [1/2]   90.00 @1/2",
    ]
    assert shown[8:] == ["[k/n]: k of n seeds finished.", "@k/n: in progress, after round k of n."]


def test_markdown_and_latex(filled):
    markdown = render(compare(filled), "markdown")
    assert "| FedAvg | ours | **45.00 ± 21.21** | 40.00 [1/2] |" in markdown
    assert "|---|---|---:|---:|" in markdown
    latex = render(compare(filled), "latex")
    assert r"FedAvg & ours & \textbf{45.00 $\pm$ 21.21} & 40.00 [1/2] \\" in latex
    assert r"in \%," in latex
    assert latex.count(r"\begin{tabular}{llrr}") == latex.count(r"\end{tabular}") == 1
    assert latex.splitlines()[:2] == [r"% needs \usepackage{booktabs}", r"\begin{table}"]
    assert r"\label{tab:tiny}" in latex
    assert latex.splitlines()[-4:] == [
        r"\par\smallskip",
        r"{\footnotesize {}[k/n]: k of n seeds finished.\par}",
        r"{\footnotesize @k/n: in progress, after round k of n.\par}",
        r"\end{table}",
    ]


def braces(latex):
    """How deep the braces are at the end, escaped ones left out; -1 once one closes that was not opened."""
    depth = 0
    for sign in re.sub(r"\\[\\{}]", "", latex):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return -1
    return depth


def floats(latex):
    """The tables of a LaTeX text; checked: environments nest, braces close, a row has an & less than columns."""
    assert braces(latex) == 0
    pattern = r"\\begin\{table\}\n(.*?)\n\\end\{table\}"
    found = re.findall(pattern, latex, flags=re.DOTALL)
    outside = re.sub(pattern, "", latex, flags=re.DOTALL).split("\n")
    assert [line for line in outside if line] == [r"% needs \usepackage{booktabs}"]
    for body in found:
        head, columns, inner, tail = re.fullmatch(
            r"(.*)\\begin\{tabular\}\{(l+r+)\}\n\\toprule\n(.*)\n\\bottomrule\n\\end\{tabular\}(.*)",
            body,
            flags=re.DOTALL,
        ).groups()
        assert "begin" not in head + inner + tail
        rows = [line for line in inner.splitlines() if line != r"\midrule"]
        assert len(rows) >= 2
        for row in rows:
            assert row.endswith(r" \\")
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1
            assert row.count("$") % 2 == row.count(r"\$") % 2  # mathematics is closed within the row
    return found


def test_latex_is_a_table_per_leading_axis_point_each_with_its_notes(tmp_path, write_run):
    """Table 4 has features × alpha: two tables of three columns; one of three seeds of one cell is there."""
    every = plan(read_study("table4"), Selection(rounds=2), tmp_path).runs
    one = next(p for p in every if p.trial.method == "fedavg" and p.trial.column[0] == "not normalised")
    write_run(one.experiment, tmp_path, [0.2, 0.4])
    table = compare(plan(read_study("table4"), Selection(rounds=2), tmp_path))
    first, second = floats(render(table, "latex"))
    for number, body, features in ((1, first, "unit length"), (2, second, "not normalised")):
        assert rf"\label{{tab:table4-{number}}}" in body
        assert f"; {features}; ours: " in body
        assert r"Method &  & alpha 0.01 & alpha 0.04 & alpha 0.16 \\" in body
        assert "Note: the paper does not say how documents become vectors" in body
    assert r" & ours & 40.00 [1/3] & not run & not run \\" in second
    assert [("[k/n]" in body) for body in (first, second)] == [False, True]


def test_latex_escapes_every_special_character(filled):
    """As the LaTeX companion lists them; a row that begins with [ would be an option of the line before."""
    odd = {"fedavg": r"a#b$c%d&e_f{g}h^i~j\k", "krum": "α ± ≥ – × · ≤ …", "finetune": "[5] <x>"}
    methods = {k: m.model_copy(update={"label": odd[k]}) for k, m in filled.study.methods.items()}
    study = filled.study.model_copy(update={"methods": methods, "title": "50 % & more", "notes": "see {x}_1"})
    (body,) = floats(render(compare(replace(filled, study=study)), "latex"))
    labels = [line.split(" & ours")[0] for line in body.splitlines() if " & ours" in line]
    assert labels == [
        r"a\#b\$c\%d\&e\_f\{g\}h\textasciicircum{}i\textasciitilde{}j\textbackslash{}k",
        r"$\alpha$ $\pm$ $\geq$ -- $\times$, $\leq$ \dots{}",
        "{}[5] $<$x$>$",
    ]
    assert r"\caption{50 \% \& more; ours: " in body
    assert r"{\footnotesize Note: see \{x\}\_1.\par}" in body
    assert body.isascii()


@pytest.mark.parametrize("preset", ["table1", "table3", "figureA2", "figure3"])
def test_latex_of_every_shape_is_well_formed_and_fits_a_line(tmp_path, preset):
    table = compare(plan(read_study(preset), Selection(seeds=1), tmp_path))
    bodies = floats(render(table, "latex"))
    for body in bodies:
        rows = [
            line.removesuffix(r" \\").replace(r"$\pm$", "±").split(" & ") for line in body.splitlines() if " & " in line
        ]
        cells = [[re.sub(r"\\textbf\{(.*)\}", r"\1", cell).strip() for cell in row] for row in rows]
        assert sum(max(map(len, column)) + 2 for column in zip(*cells, strict=True)) - 2 <= 80
    labels = re.findall(r"\\label\{(.*)\}", "\n".join(bodies))
    assert len(set(labels)) == len(bodies)


def test_csv_has_a_line_per_method_and_column(filled):
    lines = list(csv.DictReader(render(compare(filled), "csv").splitlines()))
    assert len(lines) == 6
    first = lines[0]
    assert (first["study"], first["method"], first["state"]) == ("tiny", "FedAvg", "done")
    assert first["attack.rate"] == "rate 0.25"
    assert float(first["mean"]) == pytest.approx(45)
    assert float(first["std"]) == pytest.approx(21.2132034)
    assert (first["seeds"], first["seeds_planned"], first["best"], first["paper_mean"]) == ("2", "2", "1", "")
    assert list(first) == [
        "study", "method", "attack.rate", "metric", "paper_mean", "paper_std", "mean", "std", "seeds", "seeds_planned",
        "missed_target", "state", "best", "method_key", "rounds_done", "rounds_planned", "paper_best",
    ]  # fmt: skip
    assert {line["state"] for line in lines} == {"done", "some seeds", "in progress", "not run", "does not apply"}
    with pytest.raises(UserError, match="--format = 'html': accepted are text, markdown, latex, csv"):
        render(compare(filled), "html")


def test_csv_says_how_far_a_run_is_and_who_wins_in_the_paper(filled, tmp_path):
    """Finetuning at 0.5 has one of two rounds, Krum at 0.25 none; at 0.5 Krum does not apply and plans none."""
    lines = {
        (line["method_key"], line["attack.rate"]): tuple(
            line[key] for key in ("state", "seeds", "rounds_done", "rounds_planned")
        )
        for line in csv.DictReader(render(compare(filled), "csv").splitlines())
    }
    assert lines["fedavg", "rate 0.25"] == ("done", "2", "2", "2")
    assert lines["finetune", "rate 0.5"] == ("in progress", "0", "1", "2")
    assert lines["krum", "rate 0.25"] == ("not run", "0", "0", "2")
    assert lines["krum", "rate 0.5"] == ("does not apply", "0", "", "")
    whole = compare(plan(read_study("table4"), Selection(where={"features": ("unit length",)}), tmp_path))
    best = [
        line["method_key"] for line in csv.DictReader(render(whole, "csv").splitlines()) if line["paper_best"] == "1"
    ]
    assert best == ["smartfl_literal"] * 3


def test_the_papers_numbers_stand_above_ours_and_its_winner_is_marked(tmp_path):
    whole = plan(read_study("table4"), Selection(where={"features": ("unit length",)}), tmp_path)
    lines = render(compare(whole), "markdown").splitlines()
    place = lines.index("| SmartFL (literal) | paper | **44.51 ± 1.10** | **47.33 ± 1.30** | **60.77 ± 0.70** |")
    assert lines[place + 1 : place + 3] == [
        "|  | ours | not run | not run | not run |",
        "| SmartFL (calibrated) | ours | not run | not run | not run |",
    ]
    assert "| FedAvg | paper | 30.64 ± 3.20 | 38.58 ± 2.30 | 59.76 ± 1.90 |" in lines
    # The paper counts accuracies there, not rounds: nothing to set beside rounds.
    assert all(entry.paper is None for row in compare(whole, "rounds").rows for entry in row.entries)


def test_many_columns_are_split_along_the_leading_axes(tmp_path):
    table = compare(plan(read_study("figureA2"), Selection(seeds=1), tmp_path))
    blocks = table.blocks(lambda block: len(block.places) <= 6)
    assert [block.shared for block in blocks] == [
        "alpha 0.01 · label flip", "alpha 0.01 · omniscient", "alpha 1 · label flip", "alpha 1 · omniscient",
    ]  # fmt: skip
    titles = [table.header(k, blocks[1].depth) for k in blocks[1].places]
    assert titles == ["rate 0.2", "rate 0.3", "rate 0.4", "rate 0.7"]
    assert sorted(k for block in blocks for k in block.places) == list(range(16))
    single = compare(plan(read_study("figure3"), Selection(), tmp_path))
    assert single.blocks(lambda block: False) == [Block("", 0, (0,))]
    assert single.header(0, 0) == "all"


def test_what_does_not_fit_is_cut_evenly_only_where_that_is_asked_for(tmp_path):
    """Four rates where three fit are two and two, not three and one; where nothing fits, one by one."""
    table = compare(plan(read_study("figureA2"), Selection(seeds=1, where={"data.alpha": ("1",)}), tmp_path))

    def sizes(most, cut):
        return [len(block.places) for block in table.blocks(lambda block: len(block.places) <= most, cut)]

    assert sizes(3, cut=False) == [4, 4]
    assert sizes(3, cut=True) == [2, 2, 2, 2]
    assert sizes(4, cut=True) == [4, 4]
    assert sizes(8, cut=True) == [8]
    assert sizes(0, cut=True) == [1] * 8
    assert [k for block in table.blocks(lambda block: False, cut=True) for k in block.places] == list(range(8))


def test_text_is_cut_to_the_terminal_and_markdown_is_not(tmp_path, study_tables, monkeypatch):
    """Method and source take 12, a column 2 + 14: five fit 100, so 4 + 5; two fit 45, so five blocks; all fit 156."""
    points = [{"label": f"a long label {k}", "attack": {"rate": k / 10}} for k in range(1, 10)]
    changes = {"name": "nine", "axes": {"attack": points}, "exclude": []}
    selection = Selection(only=("fedavg",))
    table = compare(plan(Study.of(study_tables | changes), selection, tmp_path))

    def shown(width):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = render(table, "text").splitlines()[2:]
        assert max(map(len, lines)) <= width
        titles = [re.findall(r"a long label (\d)", line) for line in lines if "label" in line]
        assert sum(line.startswith("FedAvg  ours") for line in lines) == len(titles)
        assert [k for block in titles for k in block] == list("123456789")
        return list(map(len, titles))

    assert shown(100) == [4, 5]
    assert shown(45) == [1, 2, 2, 2, 2]
    assert shown(156) == [9]
    assert shown(155) == [4, 5]
    assert render(table, "markdown").count("|---|---|") == 1

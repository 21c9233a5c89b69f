from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from smartfl.errors import UserError
from smartfl.records.run import RunRecord
from smartfl.report.grouping import group_runs
from smartfl.report.html import embed, ranges, render_report, write_report
from smartfl.report.payload import payload
from smartfl.report.story import facts, headline, title

VOID = {"meta", "link", "br", "img", "input", "hr"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}"


class Structure(HTMLParser):
    """Checks that every element is closed in order, and collects elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())


@pytest.fixture
def runs(make_run):
    return [RunRecord.read(make_run(rule, seed=s, rounds=8)) for rule in ("fedavg", "krum", "smartfl") for s in (0, 1)]


def data_of(page: str):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_well_formed_labelled_and_self_contained(runs):
    page = render_report(runs)
    elements = Structure(page).elements
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, a in elements:
        assert not {"src", "srcset", "poster", "onclick", "onload", "onerror"} & a.keys()
        assert (a.get("href") or "#").startswith(("#", "data:,"))
        if "aria-labelledby" in a:
            assert a["aria-labelledby"] in ids
    assert not re.search(r"https?://|//cdn|@import|url\(", page)
    policy = next(a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_what_the_page_says(runs):
    page = render_report(runs)
    assert "SmartFL (calibrated) ends at" in page
    assert "aggregator.f was capped at 22 of 48 clients" in page
    assert "3 values are not finite" in page
    assert "2.13.0+cpu" in page
    assert "label flip 0.4" in page
    assert page.count('class="chip"') == 3


def test_names_from_users_are_escaped_everywhere(make_run):
    path = make_run(
        "fedavg", rounds=4, name=EVIL, aggregator={"name": EVIL, "lr": EVIL}, attack={"name": EVIL, "rate": 0.4}
    )
    (path / "environment.json").write_text(json.dumps({EVIL: EVIL}))
    with (path / "rounds.jsonl").open("a") as file:
        line = {
            "round": 9,
            "accuracy": 0.5,
            "dropped": [{"id": 1, "reason": EVIL}],
            "info": {EVIL: 1},
            "events": [EVIL],
        }
        file.write(json.dumps(line) + "\n")
    page = render_report([RunRecord.read(path)])
    elements = Structure(page).elements
    assert [tag for tag, _ in elements].count("script") == 2
    assert "img" not in [tag for tag, _ in elements]
    assert "{{ 7*7 }}" in page, "a name is text, never a template"
    assert data_of(page)["groups"][0]["label"] == RunRecord.read(path).method


def test_embedded_json_cannot_end_its_element():
    text = embed({"x": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"x": "</script><!--&\u2028"}


def test_cells_tell_absent_dropped_weightless_and_zero_apart(make_run):
    """Five clients: 0 holds all weight, 1 has weight 0, 2 was dropped, 3 and 4 were not drawn; then no weights."""
    path = make_run(rounds=2, clients=5)
    (path / "rounds.jsonl").write_text(
        '{"round": 1, "accuracy": 0.5, "dropped": [{"id": 2, "reason": "not finite"}]}\n{"round": 2, "accuracy": 0.5}\n'
    )
    (path / "coefficients.jsonl").write_text(
        '{"round": 1, "ids": [0, 1], "coefficients": [1.0, 0.0], "malicious": [1]}\n'
        '{"round": 2, "ids": [1, 4], "coefficients": null, "malicious": [1]}\n'
    )
    (run,) = payload(group_runs([RunRecord.read(path)]))["runs"]
    assert run["heat"]["cells"] == ["100000,0,d,,", ",n,,,n"]
    assert run["heat"]["attackers"] == [1]
    assert run["metrics"]["uniform"] == [0.5, 0.5]


def test_attackers_that_change_every_round_are_marked_in_their_cells(make_run):
    path = make_run(rounds=2, clients=2)
    (path / "coefficients.jsonl").write_text(
        '{"round": 1, "ids": [0, 1], "coefficients": [0.5, 0.5], "malicious": [1]}\n'
        '{"round": 2, "ids": [0, 1], "coefficients": [0.5, 0.5], "malicious": [0]}\n'
    )
    heat = payload(group_runs([RunRecord.read(path)]))["runs"][0]["heat"]
    assert heat["attackers"] is None
    assert heat["cells"] == ["50000,m50000", "m50000,50000"]


def test_a_large_report_stays_small(make_run, tmp_path):
    """200 rounds × 80 clients, the file of one run under a ninth of 3 MB."""
    run = RunRecord.read(make_run("fedavg", rounds=200, clients=80))
    assert write_report([run], tmp_path / "out" / "report.html").stat().st_size < 3e6 / 9


def test_too_many_cells_skip_rounds(make_run, monkeypatch):
    monkeypatch.setattr("smartfl.report.payload.MOST_CELLS", 100)
    packed = payload(group_runs([RunRecord.read(make_run(rounds=20, clients=20))]))
    assert packed["step"] == 4
    assert packed["runs"][0]["heat"]["rounds"] == [1, 5, 9, 13, 17]


def test_methods_that_met_different_scenes_are_not_ranked(make_run):
    a, b = make_run("krum"), make_run("fedavg", attack={"name": "none", "rate": 0.0})
    assert "side by side" in headline(group_runs(map(RunRecord.read, (a, b))))


@pytest.mark.parametrize(
    ("other", "said"), [(0.5996, "level with Krum"), (0.5994, "0.1 points above Krum"), (0.5, "10.0 points above Krum")]
)
def test_a_lead_that_would_print_as_nothing_is_none(make_run, other, said):
    """0.6 − 0.5996 is 0.04 points, 0.6 − 0.5994 is 0.06."""
    paths = make_run("krum", rounds=1, accuracies=[other]), make_run("median", rounds=1, accuracies=[0.6])
    assert headline(group_runs(map(RunRecord.read, paths))).startswith(f"Median ends at 60.0% accuracy, {said} (mean")


def test_a_method_in_progress_is_not_ranked_with_finished_ones(make_run):
    krum, median = (make_run(r, rounds=2, accuracies=[a, a]) for r, a in (("krum", 0.9), ("median", 0.6)))
    file = krum / "rounds.jsonl"
    file.write_text(file.read_text().splitlines()[0])
    assert headline(group_runs(map(RunRecord.read, (krum, median)))).startswith("Median ends at 60.0% accuracy (mean")
    assert headline(group_runs([RunRecord.read(krum)])).startswith("Krum stands at 90.0% accuracy (mean")


def test_a_heading_replaces_the_title(runs):
    assert "<h1>Table 1</h1>" in render_report(runs, "Table 1")


def test_a_fact_lists_a_dataset_once_with_its_concentrations(make_run):
    tables = [{"dataset": d, "clients": 20, "partition": "feddf", "alpha": a} for d, a in
              (("digits", 0.1), ("digits", 1.0), ("mnist", 1.0))]  # fmt: skip
    runs = [RunRecord.read(make_run("krum", folder=str(k), rounds=1, data=t)) for k, t in enumerate(tables)]
    assert dict(facts(runs))["Data"] == "digits · feddf α\u00a00.1, 1, mnist · feddf α\u00a01"


def test_a_warning_is_listed_once_with_its_runs(make_run):
    paths = [make_run("krum", rounds=1), make_run("median", rounds=1)]
    for path in paths:
        (path / "rounds.jsonl").write_text('{"round": 1, "accuracy": 0.5, "warnings": ["few <samples>"]}\n')
    page = render_report(map(RunRecord.read, paths))
    Structure(page)
    assert page.count("<li>few &lt;samples&gt; (round 1)") == 1
    assert "Krum · seed 0, Median · seed 0</span></li>" in page


def test_the_title_is_what_the_names_begin_with():
    assert title(["demo"]) == title(["demo-krum", "demo-smartfl"]) == "demo"
    assert title(["a", "b", "a"]) == "a · b"
    assert title(["cifar10-x", "cifar100-x"]) == "cifar10-x · cifar100-x"


def test_environments_show_what_is_shared_once(make_run):
    a, b = make_run("krum"), make_run("fedavg")
    found = json.loads((b / "environment.json").read_text())
    (b / "environment.json").write_text(json.dumps(found | {"revision": "other"}))
    page = render_report(map(RunRecord.read, (a, b)))
    Structure(page)
    assert page.count("2.13.0+cpu") == 1
    assert page.count("revision = 648c371") == page.count("revision = other") == 1


def test_a_run_without_a_round_still_reports(make_run):
    path = make_run()
    for name in ("rounds.jsonl", "coefficients.jsonl", "environment.json"):
        (path / name).unlink()
    page = render_report([RunRecord.read(path)])
    Structure(page)
    assert "No round has been recorded yet." in page


def test_mistakes(runs, tmp_path):
    with pytest.raises(UserError, match="at least one run"):
        render_report([])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(runs, tmp_path / "file" / "report.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_report(runs, tmp_path / "folder")
    assert not list(tmp_path.glob(".*tmp"))


def test_ranges():
    assert ranges([7, 1, 2, 3]) == "1–3, 7"

"""The report in a real headless Chromium, opened from disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sample_runs import experiment, write_run
from smartfl.records.run import RunRecord
from smartfl.report.html import write_report

from .browser import Page, chromium, find_chromium

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="no Chromium here (apt-get install chromium)")

EVIL = "<img src=x onerror=window.hurt=1></script><script>window.hurt=1</script>"
CANVAS = "document.getElementById('heat-canvas')"
PICTURE = f"{CANVAS}.toDataURL()"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    paths = [
        write_run(folder / f"{rule}-{seed}", experiment(rule, seed, 15, 20))
        for rule in ("fedavg", "krum", "median", "smartfl")
        for seed in (0, 1)
    ]
    evil = experiment("fedavg", 0, 15, 20) | {"aggregator": {"name": EVIL}}
    paths.append(write_run(folder / "evil", evil))
    with (paths[-1] / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 16, "accuracy": 0.1, "events": [EVIL], "info": {EVIL: 1.0}}) + "\n")
    return write_report(map(RunRecord.read, paths), folder / "report.html")


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """SmartFL in four settings beside FedAvg: names that begin alike, intervals to trust, and a warning."""
    folder = tmp_path_factory.mktemp("study")
    rule = {"name": "smartfl", "variant": "calibrated"}
    rules = [rule | {"server_epochs": e, "lr": lr} for e in (20, 50) for lr in (0.1, 0.01)] + [{"name": "fedavg"}]
    paths = [write_run(folder / str(k), experiment(rounds=5, aggregator=rule)) for k, rule in enumerate(rules)]
    for path in paths:
        lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
        for line in lines:
            line["info"] |= {"proxy_accuracy": 0.8, "proxy_accuracy_low": 0.7, "proxy_accuracy_high": 0.9}
            line["info"] |= {"effective_clients": 9.0}
            line["warnings"] = ["the server has fewer than 10 samples of 1 of 10 classes"]
        (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return write_report(map(RunRecord.read, paths), folder / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page, report: Path) -> Iterator[Page]:
    browser.problems.clear()
    browser.requests.clear()
    browser.size(1280)
    browser.open(report)
    yield browser
    assert browser.problems == []
    assert browser.requests == [report.resolve().as_uri()], "the page must load nothing but itself"
    assert browser.run("window.hurt") is None, "a name ran as a script"


def labels(page: Page, chart: str) -> list[str]:
    return page.run(f"[...document.querySelectorAll('#{chart} .curve')].map(c => c.dataset.label)")


def choose(page: Page, select: str, text: str) -> None:
    """Pick the option with this text, as a person would."""
    page.run(f"""(() => {{
        const s = document.getElementById('{select}');
        s.value = [...s.options].find(o => o.textContent === {json.dumps(text)}).value;
        s.dispatchEvent(new Event('change'));
    }})()""")


def click(page: Page, element: str) -> None:
    page.run(f"document.getElementById('{element}').click()")


def text(page: Page, element: str) -> str:
    return page.run(f"document.getElementById('{element}').textContent")


def test_draws_every_method_with_a_band_over_seeds(page: Page):
    assert set(labels(page, "curves")) == {"FedAvg", "Krum", "Median", "SmartFL (calibrated)", EVIL}
    assert page.run("document.querySelectorAll('#curves .band').length") == 4
    assert "Median" not in labels(page, "mass")
    assert page.run("document.querySelectorAll('#mass .reference').length") == 1
    assert page.run("document.querySelector('#curves .curve.first').dataset.label") == "SmartFL (calibrated)"


def test_toggles_hide_and_show_a_method(page: Page):
    press = """(() => {
        const chip = [...document.querySelectorAll('.chip')].find(c => c.textContent === 'Krum');
        chip.click();
        return chip.ariaPressed;
    })()"""
    assert page.run(press) == "false"
    assert "Krum" not in labels(page, "curves") + labels(page, "mass")
    assert page.run(press) == "true"
    assert "Krum" in labels(page, "curves")
    page.run("document.querySelectorAll('.chip').forEach(c => c.click())")
    assert labels(page, "curves") == []
    click(page, "show-all")
    assert len(labels(page, "curves")) == 5


def test_metric_smoothing_and_seeds(page: Page):
    choose(page, "metric", "Test loss")
    assert text(page, "curves-h") == "Test loss"
    path = "document.querySelector('#curves .curve').getAttribute('d')"
    before = page.run(path)
    click(page, "smooth")
    assert page.run(path) != before
    click(page, "seeds")
    assert page.run("document.querySelectorAll('#curves .seed').length") == 8


def test_tooltip_by_pointer_and_by_keyboard(page: Page):
    x, y = page.run("""(() => {
        const chart = document.querySelector('#curves svg');
        chart.scrollIntoView();
        const box = chart.getBoundingClientRect();
        return [box.left + 60, box.top + 100];
    })()""")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    tip = "document.querySelector('#curves .tip').textContent"
    assert page.run(tip).startswith("Round 1")
    assert "±" in page.run(tip)
    page.run("document.querySelector('#curves svg').focus()")
    page.send("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert page.run(tip).startswith("Round 2")


def test_heat_map_follows_the_selection(page: Page):
    chosen = page.run("document.getElementById('heat-run').selectedOptions[0].textContent")
    assert chosen == "SmartFL (calibrated) · seed 0"
    first = page.run(PICTURE)
    choose(page, "heat-run", "Krum · seed 1")
    second = page.run(PICTURE)
    assert second != first
    assert "Krum · seed 1" in page.run(f"{CANVAS}.ariaLabel")
    click(page, "heat-order")
    assert page.run(PICTURE) != second
    choose(page, "heat-run", "Median · seed 0")
    assert "no weight per client" in text(page, "heat-keys")


def test_heat_map_tells_absent_from_weight_zero(page: Page):
    """Point at every cell of Krum's map: what reads differently must look different, pixel by pixel."""
    choose(page, "heat-run", "Krum · seed 0")
    seen = page.run("""(() => {
        const canvas = document.getElementById('heat-canvas');
        const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
        pen.drawImage(canvas, 0, 0);
        const readout = document.getElementById('heat-readout'), box = canvas.getBoundingClientRect(), seen = {};
        for (let k = 0; k < heat.columns.length; k++) for (let row = 0; row < view.order.length; row++) {
            const { left, top, width, height } = view.cell(k, row);
            const at = { clientX: box.left + left + width / 2, clientY: box.top + top + height / 2 };
            canvas.dispatchEvent(new PointerEvent('pointermove', at));
            const [, who, what] = readout.textContent.match(/\\((.*)\\): (.*)/);
            const pixels = pen.getImageData(left + 2, top + 2, width - 4, height - 4).data;
            (seen[who + ', ' + what] ??= new Set()).add([...pixels].join());
        }
        return Object.fromEntries(Object.entries(seen).map(([key, set]) => [key, [...set]]));
    })()""")
    kinds = ["not in the cohort", "weight 0.00 %", "weight 100.00 %"]
    looks = [set(seen[f"honest, {kind}"]) for kind in kinds] + [set(seen["attacker, weight 0.00 %"])]
    for k, look in enumerate(looks):
        assert all(not look & other for other in looks[k + 1 :])


def test_heat_map_by_keyboard(page: Page):
    page.run(f"{CANVAS}.focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.send("Input.dispatchKeyEvent", type="keyDown", key=key)
    assert text(page, "heat-readout").startswith("Round 2 · client 3 (attacker)")


def test_sorting_the_summary(page: Page):
    names = "[...document.querySelectorAll('#summary-table tbody th')].map(c => c.textContent)"
    heads = "[...document.querySelectorAll('#summary-table thead th')]"
    page.run(f"{heads}[1].querySelector('button').click()")
    assert page.run(names)[0] == "SmartFL (calibrated)"
    assert page.run(f"{heads}[1].ariaSort") == "descending"
    page.run(f"{heads}[1].querySelector('button').click()")
    assert page.run(names)[-1] == "SmartFL (calibrated)"
    page.run(f"{heads}[4].querySelector('button').click()")
    assert page.run(names)[-1] == "Median", "a method without the value comes last"


@pytest.mark.parametrize("dark", [False, True])
def test_theme_follows_the_system_and_the_switch(page: Page, dark: bool):
    page.size(1280, dark=dark)
    tone = "getComputedStyle(document.body).backgroundColor"
    tones = ["rgb(244, 246, 248)", "rgb(13, 17, 23)"]
    assert page.run(tone) == tones[dark]
    cells = page.run(PICTURE)
    click(page, "theme")
    assert page.run(tone) == tones[not dark]
    assert page.run(PICTURE) != cells


def test_a_phone_needs_no_sideways_scrolling(page: Page):
    page.size(390)
    page.run("new Promise(done => setTimeout(done, 100))")
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("document.querySelector('#curves svg').getBoundingClientRect().right") <= 390


def test_no_name_of_a_run_is_broken_up_on_a_phone(page: Page):
    page.size(390)
    narrowest = "Math.min(...[...document.querySelectorAll('#trust tbody th')].map(th => th.offsetWidth))"
    assert page.run(narrowest) >= 100


def test_prints_in_light_colours_with_everything_open(page: Page, tmp_path: Path):
    page.size(1280, dark=True)
    page.run("""addEventListener('beforeprint', () => {
        window.seen = [document.documentElement.dataset.theme, document.querySelectorAll('details:not([open])').length];
    })""")
    page.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert page.run("window.seen") == ["light", 0]
    assert page.run("document.documentElement.dataset.theme") is None


def test_names_at_the_end_of_curves_differ_and_fit(browser: Page, study: Path):
    browser.size(1280)
    browser.open(study)
    names = browser.run("[...document.querySelectorAll('#curves .end')].map(n => n.firstChild.data)")
    assert sorted(names) == ["FedAvg", "SmartFL… 20 · lr 0.01", "SmartFL… 20 · lr 0.1", "SmartFL… 50 · lr 0.01",
                             "SmartFL… 50 · lr 0.1"]  # fmt: skip
    over = """Math.max(...[...document.querySelectorAll('#curves .end')].map(n =>
        n.getBoundingClientRect().right - n.ownerSVGElement.getBoundingClientRect().right))"""
    assert browser.run(over) <= 0, "no name is cut off at the edge of the chart"


@pytest.mark.parametrize(
    ("labels", "short"),
    [
        (["A (x) · lr 0.1 · a long setting", "A (x) · lr 0.01 · a long setting"], ["lr 0.1", "lr 0.01"]),
        (["Krum · digits · a very long setting", "Median"], ["Krum · digits · a ver…", "Median"]),
        (
            ["SmartFL (calibrated) · alpha 0.01 · label flip 0.4", "SmartFL (calibrated) · alpha 1 · label flip 0.4",
             "SmartFL (calibrated) · alpha 1 · no attack", "Krum"],
            ["SmartFL… 0.01… 0.4", "SmartFL… 1… 0.4", "SmartFL… 1 · no attack", "Krum"],
        ),
    ],
)  # fmt: skip
def test_short_names(page: Page, labels: list[str], short: list[str]):
    assert page.run(f"shortNames({json.dumps(labels)}, 22)") == short


def test_on_paper_no_table_is_wider_than_the_page(browser: Page, study: Path):
    browser.size(760)
    browser.open(study)
    browser.send("Emulation.setEmulatedMedia", media="print")
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    wide = "[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.parentElement.clientWidth).length"
    assert browser.run("document.querySelectorAll('table').length") >= 4
    assert browser.run(wide) == 0
    assert browser.run("document.documentElement.scrollWidth") == 760
    browser.send("Emulation.setEmulatedMedia", media="")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_warnings_stand_out_and_can_be_read(browser: Page, study: Path, width: int, dark: bool):
    """The contrast of text and ground is at least 4.5 (WCAG AA), for the sentence and for the runs below it."""
    browser.size(width, dark=dark)
    browser.open(study)
    seen = browser.run("""(() => {
        const li = document.querySelector('.warnings li'), who = li.querySelector('.who');
        const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
        const [ground, card] = [li, li.closest('.card')].map(node => getComputedStyle(node).backgroundColor);
        const contrast = (node) => {
            const [a, b] = [light(getComputedStyle(node).color), light(ground)].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
        };
        const inside = li.getBoundingClientRect().right <= li.closest('.card').getBoundingClientRect().right;
        return [ground !== card && ground !== 'rgba(0, 0, 0, 0)', inside, contrast(li), contrast(who)];
    })()""")
    assert seen[:2] == [True, True]
    assert min(seen[2:]) >= 4.5
    assert browser.run("document.documentElement.scrollWidth") == width

// The page: what is visible, sorted and selected.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const members = data.groups.map((_, g) => data.runs.filter((run) => run.group === g));
const hidden = new Set();
const rounds = [...new Set(data.runs.flatMap((run) => run.rounds))].sort((a, b) => a - b);
const percent = (v, tick) => (100 * v).toFixed(tick ? 0 : 2) + (tick ? "" : " %");
const plain = (v, tick) => v === 0 ? "0" : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(tick ? 0 : 2) : String(+v.toPrecision(tick ? 3 : 4));
const SMOOTH = "Each point is the mean of the ten rounds up to it.";
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

function smoothed(values) {
  return values.map((v, k) => v === null ? null : mean(values.slice(Math.max(0, k - 9), k + 1).filter((w) => w !== null)));
}

function aligned(run, key, smooth) {
  const values = run.metrics[key];
  if (!values) return null;
  const at = new Map(run.rounds.map((round, k) => [round, (smooth ? smoothed(values) : values)[k]]));
  return rounds.map((round) => at.get(round) ?? null);
}

function over(lists, f) {
  return rounds.map((_, k) => {
    const found = lists.map((list) => list[k]).filter((v) => v !== null);
    return found.length ? f(found) : null;
  });
}

function deviation(values) {
  const m = mean(values);
  return Math.sqrt(values.reduce((a, v) => a + (v - m) ** 2, 0) / (values.length - 1));
}

function lastTen(run) {
  const found = (run.metrics.accuracy || []).filter((v) => v !== null).slice(-10);
  return found.length ? mean(found) : -1;
}

const standing = members.map((runs) => mean(runs.map(lastTen)));
const leader = standing.indexOf(Math.max(...standing));

function seriesOf(key, smooth, seeds) {
  const share = key === "accuracy" || key === "mass"; // neither can leave [0, 1], so its band does not either
  return data.groups.map((group, index) => {
    const lists = hidden.has(index) ? [] : members[index].map((run) => aligned(run, key, smooth)).filter(Boolean);
    if (!lists.length) return null;
    const series = { label: group.label, index, first: index === leader, mean: over(lists, mean) };
    if (lists.length > 1) {
      const spread = over(lists, (v) => v.length > 1 ? deviation(v) : 0);
      series.spread = spread;
      series.low = series.mean.map((v, k) => v === null ? null : share ? Math.max(0, v - spread[k]) : v - spread[k]);
      series.high = series.mean.map((v, k) => v === null ? null : share ? Math.min(1, v + spread[k]) : v + spread[k]);
      if (seeds) series.seeds = lists;
    }
    return series;
  }).filter(Boolean);
}

function drawCurves() {
  if (!rounds.length) { byId("curves").textContent = "No round has been recorded yet."; return; }
  const key = byId("metric").value, smooth = byId("smooth").checked, seeds = byId("seeds").checked;
  const name = data.metrics.find(([k]) => k === key)[1];
  byId("curves-h").textContent = name;
  const fraction = key === "accuracy";
  const drawn = drawChart(byId("curves"), {
    title: `${name} by round for each visible method; arrow keys read single rounds`, xs: rounds,
    series: seriesOf(key, smooth, seeds), format: fraction ? percent : plain, fromZero: fraction || key === "seconds",
  });
  const notes = [fraction ? "In percent." : "", drawn.log ? "Logarithmic scale." : "", smooth ? SMOOTH : "",
    members.some((runs) => runs.length > 1) ? "Line: mean over seeds; band: ± one sample standard deviation." : ""];
  byId("curves-note").textContent = notes.filter(Boolean).join(" ");
}

function drawMass() {
  if (!byId("mass") || !rounds.length) return;
  const equal = data.runs.map((run) => aligned(run, "uniform", byId("mass-smooth").checked)).filter(Boolean);
  drawChart(byId("mass"), {
    title: "Share of the weight given to attackers by round, for each visible method that has weights", xs: rounds, fromZero: true, format: percent,
    series: seriesOf("mass", byId("mass-smooth").checked, byId("seeds").checked),
    reference: equal.length ? { label: "attackers' share of the cohort", ys: over(equal, mean) } : null,
  });
  const without = data.groups.filter((_, g) => members[g].every((run) => run.attacked && !run.metrics.mass)).map((group) => group.label);
  byId("mass-note").textContent = (equal.length ? "In percent. Dashed: what attackers would get if every client counted the same." : "In percent.") +
    (byId("mass-smooth").checked ? " " + SMOOTH : "") +
    (without.length ? ` No weight per client: ${without.join(", ")}.` : "");
}

function drawCharts() { drawCurves(); drawMass(); }

let heat = null, view = null, cursor = null;

function heatKeys() {
  const keys = byId("heat-keys"), most = (100 * heat.most).toFixed(1) + " %";
  keys.replaceChildren();
  const add = (className, text) => { const li = element("li", "", keys); element("i", className, li); li.append(text); };
  if (heat.weightless) add("weightless", "in the cohort; this rule has no weight per client");
  else {
    add("ramp honest", `honest, weight 0 to ${most}`);
    if (heat.attackers === null || heat.attackers.length) add("ramp attacker", `attacker, weight 0 to ${most}`);
  }
  add("absent", "not in the cohort");
  if (heat.anyDropped) add("gone", "dropped, and why: below");
  if (data.step > 1) element("li", "", keys, `Every ${data.step}th round is shown, to keep this file small.`);
}

function selectHeat() {
  const run = data.runs[byId("heat-run").value];
  heat = unpack(run.heat, data.unit);
  cursor = null;
  byId("heat-order-label").hidden = !heat.attackers || !heat.attackers.length;
  heatKeys();
  const some = heat.attackers === null ? "attackers change every round" : `${heat.attackers.length} of them attackers`;
  byId("heat-canvas").setAttribute("aria-label", `Weight of each of ${heat.clients.length} clients (${some}) over ${heat.rounds.length} rounds of ${runLabel(run)}; arrow keys read single cells`);
  byId("heat-readout").textContent = "Point at a cell, or use the arrow keys, to read it.";
  redrawHeat();
}

function redrawHeat() {
  if (!heat) return;
  view = drawHeat(byId("heat-canvas"), heat, byId("heat-order").checked);
  byId("heat-cell").hidden = true;
}

function readCell(place) {
  if (!place) return;
  cursor = place;
  const frame = byId("heat-cell"), cell = view.cell(place.k, place.r);
  for (const side in cell) frame.style[side] = cell[side] + "px";
  frame.hidden = false;
  byId("heat-readout").textContent = describeCell(heat, view.order, place.k, place.r);
}

const runLabel = (run) => `${data.groups[run.group].label} · seed ${run.seed}`;

function prepareHeat() {
  const canvas = byId("heat-canvas");
  if (!canvas) return;
  data.runs.forEach((run, k) => { if (run.heat) element("option", "", byId("heat-run"), runLabel(run)).value = k; });
  const mapped = data.runs.map((_, k) => k).filter((k) => data.runs[k].heat);
  byId("heat-run").value = mapped.reduce((best, k) => standing[data.runs[k].group] > standing[data.runs[best].group] ? k : best);
  byId("heat-run").addEventListener("change", selectHeat);
  byId("heat-order").addEventListener("change", () => { cursor = null; redrawHeat(); });
  const point = (event) => {
    const at = canvas.getBoundingClientRect();
    readCell(view.locate(event.clientX - at.left, event.clientY - at.top));
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const { k, r } = cursor || { k: -move[0], r: -move[1] };
    readCell({ k: Math.max(0, Math.min(heat.columns.length - 1, k + move[0])), r: Math.max(0, Math.min(view.order.length - 1, r + move[1])) });
  });
  selectHeat();
}

function prepareLegend() {
  document.querySelectorAll("svg.swatch[data-series]").forEach((node) => swatch(node, Number(node.dataset.series)));
  const chips = [...document.querySelectorAll(".chip")];
  const refresh = () => {
    for (const chip of chips) chip.setAttribute("aria-pressed", String(!hidden.has(Number(chip.dataset.series))));
    drawCharts();
  };
  for (const chip of chips) {
    const index = Number(chip.dataset.series);
    chip.addEventListener("click", () => { if (!hidden.delete(index)) hidden.add(index); refresh(); });
    chip.addEventListener("dblclick", () => { hidden.clear(); chips.forEach((_, k) => { if (k !== index) hidden.add(k); }); refresh(); });
  }
  if (byId("show-all")) byId("show-all").addEventListener("click", () => { hidden.clear(); refresh(); });
}

function prepareTable() {
  const table = byId("summary-table"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", (event) => {
    const usual = event.currentTarget.dataset.order || "ascending", now = head.getAttribute("aria-sort");
    const order = now === "none" ? usual : now === "ascending" ? "descending" : "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
    const sign = order === "ascending" ? 1 : -1, number = head.classList.contains("num");
    const value = (row) => row.cells[column].dataset.v;
    body.append(...[...body.rows].sort((a, b) => {
      const [u, v] = [value(a), value(b)];
      if (u === "" || v === "") return (u === "") - (v === "");
      return sign * (number ? u - v : u.localeCompare(v, undefined, { numeric: true }));
    }));
  }));
}

function prepareTheme() {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => { byId("theme").querySelector("span").textContent = dark() ? "Light" : "Dark"; redrawHeat(); };
  byId("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; show(); });
  system.addEventListener("change", show);
  show();
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open])")] };
    root.dataset.theme = "light";
    before.closed.forEach((details) => { details.open = true; });
    printing = true;
    drawCharts();
    redrawHeat();
    // Paper gets a picture: a canvas redrawn at this moment comes out blank.
    if (heat) {
      before.picture = element("img", "print-only", byId("heat"));
      before.picture.alt = byId("heat-canvas").getAttribute("aria-label");
      before.picture.src = byId("heat-canvas").toDataURL();
    }
  });
  addEventListener("afterprint", () => {
    if (before.theme) root.dataset.theme = before.theme; else delete root.dataset.theme;
    before.closed.forEach((details) => { details.open = false; });
    if (before.picture) before.picture.remove();
    printing = false;
    drawCharts();
    redrawHeat();
  });
}

for (const [key, name] of data.metrics) element("option", "", byId("metric"), name).value = key;
byId("seeds-label").hidden = members.every((runs) => runs.length < 2);
prepareLegend();
prepareTable();
prepareHeat();
prepareTheme();
drawCharts();
for (const id of ["metric", "smooth", "seeds"]) byId(id).addEventListener("change", drawCharts);
if (byId("mass-smooth")) byId("mass-smooth").addEventListener("change", drawMass);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawCharts(); redrawHeat(); } });

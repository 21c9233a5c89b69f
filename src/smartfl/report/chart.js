"use strict";
// Line charts: a curve per method with a band over seeds, a tooltip for mouse, finger and arrow keys.

const SVG = document.querySelector("svg").namespaceURI;
const MARKS = [
  "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-3.6-3.6h7.2v7.2h-7.2z", "M0-4.6 4.6 3.6H-4.6z",
  "M0-5 5 0 0 5-5 0z", "M0 4.6 4.6-3.6H-4.6z", "M-4.5-1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",
];

function svg(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function element(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

const colour = (k) => "c" + (k % 10);
const mark = (k) => MARKS[k % MARKS.length];

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * 0.999) * power;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(+(k * step).toPrecision(12));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 6));
  for (let k = first; k <= last; k += every) ticks.push(10 ** k);
  return ticks;
}

// The vertical axis: from zero where zero means something, logarithmic where values span orders of magnitude.
function verticalScale(values, fromZero, top, bottom) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { low = Math.min(low, v); high = Math.max(high, v); }
  const log = !fromZero && low > 0 && high / low > 50;
  if (log) {
    const ticks = logTicks(low, high);
    low = Math.min(low, ticks[0]); high = Math.max(high, ticks[ticks.length - 1]);
    const span = Math.log(high / low) || 1;
    return { log, ticks, at: (v) => bottom - ((Math.log(Math.max(v, low)) - Math.log(low)) / span) * (bottom - top) };
  }
  if (fromZero) low = Math.min(0, low);
  if (high === low) high = low + (Math.abs(low) || 1);
  const ticks = niceTicks(low, high, 5);
  const step = ticks[1] - ticks[0] || 1;
  if (!fromZero) low = Math.floor(low / step) * step;
  high = Math.ceil(high / step - 1e-9) * step;
  return { log, ticks: niceTicks(low, high, 5), at: (v) => bottom - ((v - low) / (high - low)) * (bottom - top) };
}

function line(xs, ys, x, y) {
  let path = "";
  ys.forEach((v, k) => { if (v !== null) path += (path ? "L" : "M") + x(xs[k]).toFixed(1) + " " + y(v).toFixed(1); });
  return path;
}

function area(xs, low, high, x, y) {
  const at = xs.map((_, k) => k).filter((k) => low[k] !== null);
  const point = (side) => (k) => x(xs[k]).toFixed(1) + " " + y(side[k]).toFixed(1);
  return at.length ? "M" + [...at.map(point(high)), ...at.reverse().map(point(low))].join("L") + "Z" : "";
}

// Names for a narrow margin: parts that every name shares go, then those that all names with the same first word share.
// What is still too long keeps its end, or the end of each part, where that is needed to tell it apart.
function shortNames(labels, letters) {
  const names = labels.map((label) => label.split(/(?= · )|(?= \()|(?<=^\S+)(?= )/));
  const without = (parts, others) => parts.filter((part) => others.length < 2 || !others.every((other) => other.includes(part)));
  const end = (text, room) => text.length <= room ? text : "…" + text.slice(1 - room).replace(/^\S+(?= )/, "");
  const kept = names.map((parts) => {
    const family = names.filter((other) => other[0] === parts[0]), [first, ...rest] = parts;
    return { first: without([first], names).join(""), rest: without(without(rest, names), family), alone: family.length < 2 };
  });
  const one = ({ first, rest, alone }, k) => {
    const text = (first + rest.join("")).replace(/^ (· )?/, "") || labels[k];
    if (labels[k].length <= letters || text.length <= letters) return labels[k].length <= letters ? labels[k] : text;
    return alone ? text.slice(0, letters - 1) + "…" : first + end(rest.join(""), Math.max(8, letters - first.length));
  };
  const short = kept.map(one);
  return short.map((name, k) => {
    if (short.indexOf(name) === short.lastIndexOf(name)) return name;
    const { first, rest } = kept[k];
    return first + rest.map((part) => end(part, Math.max(4, Math.floor((letters - first.length) / rest.length)))).join("");
  });
}

// The room that end labels take, in pixels; 0 without labels.
function widest(names) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "600 12px " + getComputedStyle(document.body).fontFamily;
  return Math.max(0, ...names.map((name) => Math.ceil(pen.measureText(name).width)));
}

// Labels at the right end, moved apart so that none covers another.
function endLabels(root, series, names, x, y, top, bottom) {
  const ends = series.map((s, i) => {
    const k = s.mean.findLastIndex((v) => v !== null);
    return k < 0 ? null : { s, name: names[i], want: y(s.mean[k]) };
  }).filter(Boolean).sort((a, b) => a.want - b.want);
  ends.forEach((e, k) => { e.at = Math.max(e.want, top + 6, k ? ends[k - 1].at + 14 : 0); });
  for (let k = ends.length - 1, floor = bottom; k >= 0; k--, floor -= 14) ends[k].at = Math.min(ends[k].at, floor);
  for (const { s, name, at } of ends) {
    const text = svg("text", { class: "end " + colour(s.index), x: x + 8, y: at + 4 }, root, name);
    svg("title", {}, text, s.label);
  }
}

let printing = false;
const roomFor = (host) => printing ? 680 : Math.max(280, host.clientWidth); // 680: a page between its margins

// spec: title, xs, series [{label, index, mean, low, high, seeds, first}], format, fromZero, reference {label, ys}
function drawChart(host, spec) {
  host.replaceChildren();
  const width = roomFor(host), height = width < 480 && innerWidth < 560 ? 260 : 330;
  const names = width >= 520 ? shortNames(spec.series.map((s) => s.label), 22) : [];
  const box = { left: 52, right: width - 12 - widest(names), top: 12, bottom: height - 40 };
  const values = [];
  const collect = (list) => { for (const v of list || []) if (v !== null) values.push(v); };
  for (const s of spec.series) { collect(s.mean); collect(s.low); collect(s.high); (s.seeds || []).forEach(collect); }
  if (spec.reference) collect(spec.reference.ys);
  if (!values.length) { element("p", "hint", host, "Nothing to draw: no visible method has this."); return { log: false }; }

  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": spec.title }, host);
  const first = spec.xs[0], last = spec.xs[spec.xs.length - 1];
  const x = (round) => last === first ? (box.left + box.right) / 2 : box.left + ((round - first) / (last - first)) * (box.right - box.left);
  const scale = verticalScale(values, spec.fromZero, box.top, box.bottom), y = scale.at;
  for (const tick of scale.ticks) {
    svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }, root);
    svg("text", { x: box.left - 8, y: y(tick) + 4, "text-anchor": "end" }, root, spec.format(tick, true));
  }
  svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }, root);
  for (const tick of niceTicks(first, last, width < 480 ? 4 : 7)) {
    if (Number.isInteger(tick)) svg("text", { x: x(tick), y: box.bottom + 17, "text-anchor": "middle" }, root, tick);
  }
  svg("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, root, "round");

  for (const s of spec.series) if (s.low) svg("path", { class: "band " + colour(s.index), d: area(spec.xs, s.low, s.high, x, y) }, root);
  for (const s of [...spec.series].sort((a, b) => a.first - b.first)) {
    for (const seed of s.seeds || []) svg("path", { class: "seed " + colour(s.index), d: line(spec.xs, seed, x, y) }, root);
    svg("path", { class: `curve ${colour(s.index)}${s.first ? " first" : ""}`, "data-label": s.label, d: line(spec.xs, s.mean, x, y) }, root);
    const every = Math.max(1, Math.round(spec.xs.length / 7)), shift = (s.index * 3) % every;
    s.mean.forEach((v, k) => {
      if (v !== null && k % every === shift) svg("path", { class: "mark " + colour(s.index), d: mark(s.index), transform: `translate(${x(spec.xs[k]).toFixed(1)} ${y(v).toFixed(1)})` }, root);
    });
  }
  if (spec.reference) svg("path", { class: "reference", d: line(spec.xs, spec.reference.ys, x, y) }, root);
  if (names.length) endLabels(root, spec.series, names, box.right, y, box.top, box.bottom);
  attachTip(host, root, spec, x, box);
  return { log: scale.log };
}

function attachTip(host, root, spec, x, box) {
  const cross = svg("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" }, root);
  const tip = element("div", "tip", host);
  tip.hidden = true;
  tip.setAttribute("role", "status");
  let at = null;
  const hide = () => { at = null; tip.hidden = true; cross.setAttribute("visibility", "hidden"); };
  const show = (k) => {
    at = k;
    tip.replaceChildren();
    element("b", "", tip, "Round " + spec.xs[k]);
    const rows = spec.series.filter((s) => s.mean[k] !== null).sort((a, b) => b.mean[k] - a.mean[k]);
    for (const s of rows) {
      const row = element("div", "", tip);
      swatch(svg("svg", { class: "swatch" }, row), s.index);
      element("span", "", row, s.label);
      const spread = s.spread ? " ± " + spec.format(s.spread[k]) : "";
      element("strong", "", row, spec.format(s.mean[k]) + spread);
    }
    if (spec.reference && spec.reference.ys[k] !== null) {
      const row = element("div", "", tip);
      element("span", "", row, spec.reference.label);
      element("strong", "", row, spec.format(spec.reference.ys[k]));
    }
    const px = x(spec.xs[k]);
    cross.setAttribute("x1", px); cross.setAttribute("x2", px); cross.setAttribute("visibility", "visible");
    tip.hidden = false;
    const room = host.clientWidth - tip.offsetWidth;
    const beside = px + 14 <= room ? px + 14 : px - 14 - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(room, beside)) + "px";
    tip.style.top = box.top + "px";
  };
  const nearest = (event) => {
    const px = event.clientX - root.getBoundingClientRect().left;
    let best = 0;
    spec.xs.forEach((round, k) => { if (Math.abs(x(round) - px) < Math.abs(x(spec.xs[best]) - px)) best = k; });
    show(best);
  };
  root.addEventListener("pointermove", nearest);
  root.addEventListener("pointerdown", nearest);
  root.addEventListener("pointerleave", hide);
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!move) return;
    event.preventDefault();
    show(Math.max(0, Math.min(spec.xs.length - 1, at === null ? spec.xs.length - 1 : at + move)));
  });
}

function swatch(node, index) {
  node.setAttribute("viewBox", "0 0 26 12");
  node.classList.add(colour(index));
  svg("path", { d: "M1 6H25" }, node);
  svg("path", { class: "mark", d: mark(index), transform: "translate(13 6)" }, node);
}

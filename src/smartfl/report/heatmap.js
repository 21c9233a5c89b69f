// Client × round heat map of weights on a canvas: attackers orange, honest clients blue, absent ones hatched.

function unpack(heat, unit) {
  const attacker = new Set(heat.attackers || []);
  const columns = heat.cells.map((text) => text.split(",").map((cell, row) => {
    if (cell === "") return null;
    const bad = cell[0] === "m" || attacker.has(row);
    const value = cell[0] === "m" ? cell.slice(1) : cell;
    if (value === "d") return { bad, dropped: true };
    return { bad, weight: value === "n" ? null : Number(value) * unit };
  }));
  let most = 0;
  for (const column of columns) for (const cell of column) if (cell && cell.weight > most) most = cell.weight;
  const weightless = columns.every((column) => column.every((cell) => !cell || cell.dropped || cell.weight === null));
  return { ...heat, columns, attacker, most, weightless, anyDropped: columns.some((c) => c.some((cell) => cell && cell.dropped)) };
}

// Canvas knows no CSS variables: ask the browser what a variable means in the present theme.
function themeColour(name) {
  const probe = element("span", "", document.body);
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

const css = (rgb) => `rgb(${rgb.map(Math.round).join(" ")})`;

function ramp(kind) {
  const stops = [0, 1, 2].map((k) => themeColour(`${kind}-${k}`));
  return Array.from({ length: 65 }, (_, level) => {
    const t = (level / 64) * 2, k = Math.min(1, Math.floor(t));
    return css(stops[k].map((v, i) => v + (stops[k + 1][i] - v) * (t - k)));
  });
}

function rowOrder(heat, apart) {
  const rows = heat.clients.map((_, k) => k);
  return apart && heat.attackers ? [...rows.filter((k) => heat.attacker.has(k)), ...rows.filter((k) => !heat.attacker.has(k))] : rows;
}

function hatch(context, colour, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6 * ratio;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = ratio;
  for (const d of [-3, 3, 9]) { pen.moveTo((d - 3) * ratio, 6 * ratio); pen.lineTo((d + 3) * ratio, 0); }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function drawHeat(canvas, heat, apart) {
  const width = roomFor(canvas.parentElement), n = heat.clients.length, columns = heat.columns.length;
  const order = rowOrder(heat, apart);
  const grouped = apart && heat.attackers && heat.attackers.length > 0 && heat.attackers.length < n;
  const gap = grouped ? 8 : 0, row = Math.max(2, Math.min(14, 440 / n));
  const box = { left: 50, top: 4, right: width - 10, bottom: 4 + n * row + gap };
  const height = box.bottom + 36, ratio = printing ? 3 : Math.max(1, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const x = (k) => box.left + ((box.right - box.left) * k) / columns;
  const y = (k) => box.top + k * row + (grouped && k >= heat.attackers.length ? gap : 0);
  const snap = (v) => Math.round(v * ratio) / ratio;
  const ramps = { true: ramp("attacker"), false: ramp("honest") };
  const ink = css(themeColour("soft")), bad = css(themeColour("bad")), lost = css(themeColour("dropped")), none = css(themeColour("weightless")), card = css(themeColour("card"));

  pen.fillStyle = hatch(pen, css(themeColour("line")), ratio);
  const cut = grouped ? heat.attackers.length : n;
  pen.fillRect(box.left, y(0), box.right - box.left, cut * row);
  if (grouped) pen.fillRect(box.left, y(cut), box.right - box.left, (n - cut) * row);
  order.forEach((client, r) => {
    const top = snap(y(r)), tall = snap(y(r) + row) - top;
    for (let k = 0; k < columns; k++) {
      const cell = heat.columns[k][client];
      if (!cell) continue;
      const left = snap(x(k)), wide = snap(x(k + 1)) - left;
      const level = Math.round(64 * Math.sqrt(Math.max(0, cell.weight) / (heat.most || 1)));
      pen.fillStyle = cell.dropped ? lost : cell.weight === null ? (cell.bad ? ramps.true[16] : none) : ramps[cell.bad][Math.min(64, level)];
      pen.fillRect(left, top, wide, tall);
      if (cell.dropped && wide > 5 && tall > 4) {
        pen.strokeStyle = card;
        pen.beginPath();
        pen.moveTo(left + wide / 2 - 2, top + tall / 2 - 2); pen.lineTo(left + wide / 2 + 2, top + tall / 2 + 2);
        pen.moveTo(left + wide / 2 + 2, top + tall / 2 - 2); pen.lineTo(left + wide / 2 - 2, top + tall / 2 + 2);
        pen.stroke();
      }
    }
  });
  drawMargins(pen, heat, order, { box, x, y, row, grouped, ink, bad });
  return { order, locate: (px, py) => locate(px, py, { box, row, gap, grouped, heat, order, columns }), cell: (k, r) => ({ left: x(k), top: y(r), width: x(k + 1) - x(k), height: row }) };
}

function drawMargins(pen, heat, order, { box, x, y, row, grouped, ink, bad }) {
  const n = order.length, share = heat.attackers ? heat.attackers.length : 0;
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const bracket = (from, to, text, colour) => {
    pen.fillStyle = pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(box.left - 6, y(from) + 1); pen.lineTo(box.left - 10, y(from) + 1);
    pen.lineTo(box.left - 10, y(to - 1) + row - 1); pen.lineTo(box.left - 6, y(to - 1) + row - 1);
    pen.stroke();
    pen.save();
    pen.translate(box.left - 24, (y(from) + y(to - 1) + row) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    const room = y(to - 1) + row - y(from);
    pen.fillText(pen.measureText(text).width <= room ? text : String(to - from), 0, 0);
    pen.restore();
  };
  if (grouped) {
    bracket(0, share, `▲ ${share} attackers`, bad);
    bracket(share, n, `${n - share} honest`, ink);
  } else {
    pen.textAlign = "right";
    const every = Math.max(1, Math.ceil(16 / row));
    order.forEach((client, r) => {
      pen.fillStyle = ink;
      if (r % every === 0) pen.fillText(heat.clients[client].slice(-5), box.left - 12, y(r) + row / 2);
      if (heat.attacker.has(client)) { pen.fillStyle = bad; pen.fillRect(box.left - 8, y(r), 5, Math.max(1, row - 1)); }
    });
  }
  pen.fillStyle = ink;
  pen.textAlign = "center";
  for (const tick of niceTicks(heat.rounds[0], heat.rounds[heat.rounds.length - 1], box.right - box.left < 420 ? 4 : 8)) {
    const k = heat.rounds.findIndex((round) => round >= tick);
    if (heat.rounds[k] === tick) pen.fillText(tick, (x(k) + x(k + 1)) / 2, box.bottom + 11);
  }
  pen.fillText("round", (box.left + box.right) / 2, box.bottom + 27);
}

function locate(px, py, { box, row, gap, grouped, heat, order, columns }) {
  const k = Math.floor(((px - box.left) / (box.right - box.left)) * columns);
  const cut = grouped ? heat.attackers.length : order.length;
  const inner = py - box.top;
  const r = inner < cut * row ? Math.floor(inner / row) : inner < cut * row + gap ? -1 : Math.floor((inner - gap) / row);
  return k >= 0 && k < columns && r >= 0 && r < order.length ? { k, r } : null;
}

function describeCell(heat, order, k, r) {
  const client = order[r], cell = heat.columns[k][client];
  const bad = cell ? cell.bad : heat.attacker.has(client);
  const who = `Round ${heat.rounds[k]} · client ${heat.clients[client]} (${bad ? "attacker" : "honest"}): `;
  if (!cell) return who + "not in the cohort";
  if (cell.dropped) return who + "dropped before aggregation";
  return who + (cell.weight === null ? "in the cohort; this rule has no weights" : "weight " + (100 * cell.weight).toFixed(2) + " %");
}

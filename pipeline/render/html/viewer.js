// Draws the events in DATA on a canvas. All row sets share one time axis, which can be zoomed and
// moved. A card shows the instruction under the pointer. The page computes no times, inputs or
// shares: all of them are in DATA, as is the position of each block in its row. Times are in
// DATA.unit. `y`, `h` and `accent` are in hundredths of a row's main lane.
'use strict';
(() => {
const $ = id => document.getElementById(id);
const canvas = $('plot'), card = $('card'), pen = canvas.getContext('2d');
const kLeft = 96, kRight = 112, kMostHeight = 16000, kLine = 16;
const span = DATA.span || 1;
let from = 0, to = span;       // visible part of the axis
let rows = [];                 // {set, worker, top, height}, top to bottom
let width = 0, height = 0, lane = 24, colours = {}, patterns = new Map();
let hovered = null, pinned = false, drag = null, queued = false;

// ---- access to the data

const number = x => String(Math.round(x * 1e6) / 1e6);
const time = x => `${number(x)} ${DATA.unit}`;
const cell = (set, i, stage = true) => (stage && set.stage[i] >= 0 ? set.stage[i] : '') + DATA.kinds[set.kind[i]]
    + (set.micro[i] >= 0 ? set.micro[i] : '');
const look = (set, i) => DATA.looks[DATA.lookOf[set.kind[i]]];
const end = (set, i) => set.start[i] + set.length[i];

for (const set of DATA.sets) {
  set.workerOf = new Int32Array(set.start.length);
  set.rows.forEach((row, w) => {
    set.workerOf.fill(w, row.from, row.to);
    row.order = Array.from({length: row.to - row.from}, (_, k) => row.from + k).sort((a, b) => set.start[a] - set.start[b]);
    let latest = -Infinity;  // running maximum of the ends, for the binary search in inView
    row.latest = row.order.map(i => latest = Math.max(latest, end(set, i)));
  });
  set.outputs = new Map();
  set.inputs.forEach((list, i) => {
    for (const of of list) {
      if (typeof of !== 'number') continue;
      if (!set.outputs.has(of)) set.outputs.set(of, []);
      set.outputs.get(of).push(i);
    }
  });
}

/// Returns the first index of an ascending list whose value is at least x.
function place(list, x) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = low + high >> 1;
    if (list[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
}

function* inView(set, row, a, b) {
  for (let k = place(row.latest, a); k < row.order.length; k++) {
    const i = row.order[k];
    if (set.start[i] > b) return;
    if (end(set, i) >= a) yield i;
  }
}

// ---- layout

function layOut() {
  const count = DATA.sets.reduce((n, set) => n + set.rows.length, 0);
  const room = Math.max(240, innerHeight - canvas.getBoundingClientRect().top - scrollY - 30);
  const pitchOfLane = (DATA.lanes / 100) * 1.12;
  width = canvas.clientWidth;
  for (const set of DATA.sets) {  // on a narrow page, the figures get a line of their own below the title
    setFont(12.5, true);
    const title = pen.measureText(set.title).width;
    setFont(11);
    set.wraps = title + pen.measureText(set.figures).width + 20 > width;
  }
  const heads = DATA.sets.reduce((n, set) => n + 62 + (set.wraps ? kLine : 0), 0);
  lane = Math.min(28, Math.max(5, (room - heads) / Math.max(1, count) / pitchOfLane));
  lane = Math.min(lane, Math.max(1, (kMostHeight - heads) / Math.max(1, count) / pitchOfLane));
  rows = [];
  let y = 0;
  for (const set of DATA.sets) {
    set.top = y + (set.wraps ? kLine : 0);
    y = set.top + 42;
    set.rows.forEach((row, worker) => {
      if (set.group > 0 && set.rows.length > set.group && worker % set.group === 0) y += 14;
      row.top = y;
      row.height = lane * DATA.lanes / 100;
      rows.push({set, row, worker});
      y += lane * pitchOfLane;
    });
    set.bottom = y;
    y += 20;
  }
  height = Math.ceil(y);
  const dots = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  const style = getComputedStyle(document.documentElement);
  for (const name of ['page', 'ink', 'grey', 'rule', 'idle', 'bar', 'edge', 'wrong', 'inputs', 'outputs'])
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  draw();
}

const plotWidth = () => Math.max(50, width - kLeft - kRight);
const xOf = t => kLeft + (t - from) / (to - from) * plotWidth();
const timeAt = x => from + (x - kLeft) / plotWidth() * (to - from);

function show(a, b) {
  const least = span * 1e-6;
  const length = Math.min(span * 1.02, Math.max(least, b - a));
  const start = Math.min(Math.max(a, -span * 0.01), span * 1.01 - length);
  from = start;
  to = start + length;
  queue();
}

function zoom(factor, x) {
  const t = timeAt(x);
  show(t - (t - from) * factor, t + (to - t) * factor);
}

// ---- drawing

function queue() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; draw(); });
}

function paint(l) {
  if (!l.hatched) return l.rgb;
  if (!patterns.has(l)) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const p = tile.getContext('2d');
    p.fillStyle = l.rgb;
    p.fillRect(0, 0, 6, 6);
    p.strokeStyle = l.light ? 'rgba(255, 255, 255, .35)' : 'rgba(27, 36, 48, .55)';
    p.lineWidth = 1.3;
    for (const shift of [-6, 0, 6]) {
      p.beginPath();
      p.moveTo(shift, 6);
      p.lineTo(shift + 6, 0);
      p.stroke();
    }
    patterns.set(l, pen.createPattern(tile, 'repeat'));
  }
  return patterns.get(l);
}

function niceStep(length, most) {
  const least = length / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find(f => power * f >= least * (1 - 1e-9));
}

function setFont(size, bold = false) {
  pen.font = `${bold ? 'bold ' : ''}${size}px Helvetica, Arial, 'DejaVu Sans', sans-serif`;
}

function words(text, x, y, size, colour, align = 'left', bold = false) {
  setFont(size, bold);
  pen.textAlign = align;
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function box(set, i) {
  const row = set.rows[set.workerOf[i]];
  const x = xOf(set.start[i]), w = Math.max(set.length[i] / (to - from) * plotWidth(), look(set, i).lane ? 1.6 : 0.7);
  return {x, y: row.top + set.y[i] * lane / 100, w, h: set.h[i] * lane / 100};
}

function drawRow({set, row, worker}) {
  const edges = [];
  pen.fillStyle = colours.idle;
  pen.fillRect(xOf(set.from), row.top, xOf(set.to) - xOf(set.from), lane);
  const byLook = new Map(), labels = [];
  for (const i of inView(set, row, from, to)) {
    const l = look(set, i);
    if (!byLook.has(l)) byLook.set(l, []);
    byLook.get(l).push(i);
  }
  for (const [l, list] of byLook) {
    for (const i of list) {
      const b = box(set, i);
      const gap = b.w >= 4 && !l.lane ? 0.8 : 0;
      pen.fillStyle = paint(l);
      pen.fillRect(b.x, b.y, b.w - gap, b.h);
      if (b.w > 5 && b.h > 4) edges.push(b);
      if (set.accent[i] >= 0 && b.w > 1) {
        pen.fillStyle = '#1b2430';
        pen.fillRect(b.x, row.top + set.accent[i] * lane / 100, b.w - gap, Math.max(1, lane * 0.1));
      }
      if (b.w > 9 && b.h > 8 && !l.lane) labels.push([i, b, l]);
    }
  }
  pen.strokeStyle = colours.edge;
  pen.lineWidth = 1;
  for (const b of edges) pen.strokeRect(b.x + 0.5, b.y + 0.5, b.w - 1.8, b.h - 1);
  drawLabels(set, row, labels);
}

function drawLabels(set, row, labels) {
  const size = Math.min(12, lane * 0.62);
  if (size < 6) return;
  setFont(size);
  pen.textAlign = 'center';
  for (const [i, b, l] of labels) {
    const own = Math.min(size, b.h * 0.7);
    if (own < 6) continue;
    const left = Math.max(b.x, kLeft), right = Math.min(b.x + b.w, kLeft + plotWidth());
    const short = set.micro[i] >= 0 ? String(set.micro[i]) : l.letter;
    const texts = [row.several ? cell(set, i) : '', cell(set, i, false), short];
    const text = texts.find(t => t && pen.measureText(t).width <= right - left - 3);
    if (!text) continue;
    pen.fillStyle = l.light ? '#fff' : '#1b2430';
    pen.fillText(text, (left + right) / 2, b.y + b.h / 2 + own * 0.36);
  }
}

function drawNames({set, row, worker}) {
  const base = row.top + lane / 2 + 4, every = Math.ceil(11 / Math.max(1, lane * DATA.lanes / 100 * 1.12));
  if (set.group > 0 && set.rows.length > set.group && worker % set.group === 0)
    words(`pipeline ${worker / set.group}`, kLeft, row.top - 3, 10, colours.grey);
  if (worker % every) return;
  words(String(worker), 2, base, 11, colours.ink, 'left', true);
  words(row.stages, kLeft - 8, base, 10, colours.grey, 'right');
  const right = width - kRight;
  pen.fillStyle = colours.idle;
  pen.fillRect(right + 8, row.top + lane * 0.2, 34, lane * 0.6);
  pen.fillStyle = colours.bar;
  pen.fillRect(right + 8, row.top + lane * 0.2, 34 * Math.min(1, row.busy), lane * 0.6);
  words(`${(row.busy * 100).toFixed(1)} %`, right + 82, base, 10, colours.ink, 'right');
  if (row.peak !== null) words(number(row.peak), width - 2, base, 10, colours.ink, 'right');
}

function drawAxis(set) {
  const y = set.top;
  words(set.title, 2, y + 13 - (set.wraps ? kLine : 0), 12.5, colours.ink, 'left', true);
  words(set.figures, set.wraps ? 2 : width - 2, y + 13, 11, colours.ink, set.wraps ? 'left' : 'right');
  words('worker', 2, y + 35, 9.5, colours.grey);
  words('stage', kLeft - 8, y + 35, 9.5, colours.grey, 'right');
  words('busy', width - kRight + 8, y + 35, 9.5, colours.grey);
  if (set.rows.some(row => row.peak !== null)) words('peak', width - 2, y + 35, 9.5, colours.grey, 'right');
  const step = niceStep(to - from, plotWidth() / 90), digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  const first = Math.ceil(from / step);
  for (let k = first; k * step <= to; k++) {
    const x = xOf(k * step), text = (k * step).toFixed(Math.min(12, digits)) + (k === first ? ` ${DATA.unit}` : '');
    pen.beginPath();
    pen.moveTo(x, y + 38);
    pen.lineTo(x, set.bottom);
    pen.stroke();
    words(text, x, y + 35, 10, colours.ink, x < kLeft + 14 ? 'left' : 'center');
  }
}

function outline(b, colour, line = 2) {
  pen.strokeStyle = colours.page;
  pen.lineWidth = line + 2;
  pen.strokeRect(b.x - 1, b.y - 1, b.w + 1.5, b.h + 2);
  pen.strokeStyle = colour;
  pen.lineWidth = line;
  pen.strokeRect(b.x - 1, b.y - 1, b.w + 1.5, b.h + 2);
}

function drawHovered() {
  if (!hovered) return;
  const {set, i} = hovered, own = box(set, i);
  const join = (j, colour) => {
    const b = box(set, j);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.4;
    pen.beginPath();
    pen.moveTo(b.x + b.w / 2, b.y + b.h / 2);
    pen.lineTo(own.x + own.w / 2, own.y + own.h / 2);
    pen.stroke();
    outline(b, colour);
  };
  for (const j of set.outputs.get(i) || []) join(j, colours.outputs);
  for (const j of set.inputs[i] || []) if (typeof j === 'number') join(j, colours.inputs);
  outline(own, colours.ink, 2.4);
}

function drawMarks() {
  DATA.marks.forEach((mark, k) => {
    const set = DATA.sets[mark.set], row = set.rows[mark.worker];
    const b = mark.event >= 0 ? box(set, mark.event) : {x: xOf(mark.time) - 3, y: row.top, w: 6, h: lane};
    if (b.w < 6) { b.x -= (6 - b.w) / 2; b.w = 6; }
    outline(b, colours.wrong, 2.4);
    pen.fillStyle = colours.wrong;
    pen.fillRect(b.x + b.w - 6, b.y - 7, 13, 12);
    words(String(k + 1), b.x + b.w + 0.5, b.y + 2.5, 9.5, colours.page, 'center', true);
  });
}

function draw() {
  pen.clearRect(0, 0, width, height);
  for (const set of DATA.sets) drawAxis(set);
  pen.save();
  pen.beginPath();
  pen.rect(kLeft, 0, plotWidth(), height);
  pen.clip();
  rows.forEach(drawRow);
  drawMarks();
  drawHovered();
  pen.restore();
  rows.forEach(drawNames);
}

// ---- the card

function find(x, y) {
  if (x < kLeft || x > kLeft + plotWidth()) return null;
  for (const {set, row} of rows) {
    if (y < row.top || y > row.top + row.height) continue;
    const t = timeAt(x), reach = 2.5 / plotWidth() * (to - from);
    let best = null, nearest = Infinity;
    for (const i of inView(set, row, t - reach, t + reach)) {
      const b = box(set, i);
      if (y < b.y - 0.5 || y > b.y + b.h + 0.5) continue;
      const away = Math.max(set.start[i] - t, t - end(set, i), 0);
      if (away < nearest) { nearest = away; best = {set, i}; }
    }
    return best;
  }
  return null;
}

function line(text, name = '') {
  const div = document.createElement('div');
  div.className = name;
  div.textContent = text;
  card.append(div);
}

function fillCard({set, i}) {
  card.replaceChildren();
  const head = document.createElement('b');
  const text = cell(set, i) + (set.part[i] > 0 ? `:${set.part[i]}` : '');
  head.textContent = `${text} ${look(set, i).name}`;
  card.append(head);
  const facts = [`worker ${set.workerOf[i]}`];
  if (set.stage[i] >= 0) facts.push(`stage ${set.stage[i]}`);
  if (set.micro[i] >= 0) facts.push(`micro-batch ${set.micro[i]}`);
  facts.push(`step ${set.step[i]}`);
  line(facts.join(', '));
  line(`${number(set.start[i])} to ${time(end(set, i))}, takes ${time(set.length[i])}`);
  if (!DATA.knowsInputs) return;
  const inputs = set.inputs[i] || [];
  line(inputs.length ? 'inputs:' : 'no inputs except its position in the row');
  for (const of of inputs.slice(0, 12)) {
    if (typeof of !== 'number') { line(`${of}, not in the figure`, 'in'); continue; }
    line(`${cell(set, of)} of worker ${set.workerOf[of]}, ${number(set.start[of])} to ${time(end(set, of))}`, 'in');
  }
  if (inputs.length > 12) line(`and ${inputs.length - 12} more`, 'in');
}

function hover(x, y, screenX, screenY) {
  if (pinned) return;
  const hit = find(x, y);
  if ((hit && hit.i) !== (hovered && hovered.i) || (hit && hit.set) !== (hovered && hovered.set)) {
    hovered = hit;
    if (hit) fillCard(hit);
    queue();
  }
  card.style.display = hit ? 'block' : 'none';
  if (!hit) return;
  const size = card.getBoundingClientRect();
  card.style.left = `${Math.max(4, screenX + 16 + size.width > innerWidth ? screenX - size.width - 12 : screenX + 16)}px`;
  card.style.top = `${Math.max(4, screenY + 16 + size.height > innerHeight ? screenY - size.height - 12 : screenY + 16)}px`;
}

function leave() {
  if (pinned) return;
  hovered = null;
  card.style.display = 'none';
  queue();
}

// ---- pointer and keys

const touches = new Map();
const spread = () => {
  const [a, b] = [...touches.values()];
  return {x: (a.x + b.x) / 2, wide: Math.max(8, Math.abs(a.x - b.x))};
};
canvas.addEventListener('pointerdown', e => {
  canvas.setPointerCapture(e.pointerId);
  touches.set(e.pointerId, {x: e.offsetX});
  drag = {x: e.offsetX, y: e.clientY, moved: false};
});
canvas.addEventListener('pointermove', e => {
  if (touches.size === 2 && touches.has(e.pointerId)) {
    const before = spread();
    touches.set(e.pointerId, {x: e.offsetX});
    const now = spread();
    zoom(before.wide / now.wide, now.x);
    return;
  }
  if (!drag) { hover(e.offsetX, e.offsetY, e.clientX, e.clientY); return; }
  if (Math.abs(e.offsetX - drag.x) + Math.abs(e.clientY - drag.y) < 3 && !drag.moved) return;
  drag.moved = true;
  canvas.classList.add('dragged');
  leave();
  const shift = (drag.x - e.offsetX) / plotWidth() * (to - from);
  show(from + shift, to + shift);
  scrollBy(0, drag.y - e.clientY);
  drag.x = e.offsetX;
  drag.y = e.clientY;
});
for (const name of ['pointerup', 'pointercancel']) {
  canvas.addEventListener(name, e => {
    touches.delete(e.pointerId);
    canvas.classList.remove('dragged');
    // A click keeps the card open until the next click.
    if (drag && !drag.moved && name === 'pointerup') {
      pinned = false;
      hover(e.offsetX, e.offsetY, e.clientX, e.clientY);
      pinned = hovered !== null;
    }
    drag = null;
  });
}
canvas.addEventListener('pointerleave', leave);
canvas.addEventListener('dblclick', () => show(0, span));
canvas.addEventListener('wheel', e => {
  e.preventDefault();
  const lines = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
  const along = e.shiftKey ? e.deltaY + e.deltaX : Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : 0;
  if (along) show(from + along * lines / plotWidth() * (to - from), to + along * lines / plotWidth() * (to - from));
  else zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * lines / 400))), e.offsetX);
}, {passive: false});
canvas.addEventListener('keydown', e => {
  const middle = kLeft + plotWidth() / 2, shift = (to - from) * 0.15;
  const actions = {'+': () => zoom(0.7, middle), '=': () => zoom(0.7, middle), '-': () => zoom(1 / 0.7, middle),
                   '0': () => show(0, span),
                   ArrowLeft: () => show(from - shift, to - shift), ArrowRight: () => show(from + shift, to + shift),
                   Escape: () => { pinned = false; leave(); }};
  if (!actions[e.key] || e.ctrlKey || e.metaKey) return;
  e.preventDefault();
  actions[e.key]();
});
$('in').onclick = () => zoom(0.6, kLeft + plotWidth() / 2);
$('out').onclick = () => zoom(1 / 0.6, kLeft + plotWidth() / 2);
$('all').onclick = () => show(0, span);

// ---- themes, legend, start

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = theme === 'dark' ? 'light' : 'dark';
}
const dark = matchMedia('(prefers-color-scheme: dark)');
dress(dark.matches ? 'dark' : 'light');
dark.addEventListener('change', () => { dress(dark.matches ? 'dark' : 'light'); layOut(); });
$('theme').onclick = () => { dress(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'); layOut(); };

function addKey(text, l) {
  const span = document.createElement('span');
  if (l === 'idle') {
    const sample = document.createElement('i');
    sample.className = l;
    span.append(sample);
  } else if (l) {
    const sample = document.createElement('canvas');
    sample.width = 18;
    sample.height = l.lane ? 5 : 12;
    const p = sample.getContext('2d');
    p.fillStyle = paint(l);
    p.fillRect(0, 0, 18, 12);
    span.append(sample);
  }
  span.append(text);
  document.querySelector('.key').append(span);
}
DATA.looks.forEach(l => addKey(l.kind.length === 1 ? `${l.kind} ${l.name}` : l.name, l));
addKey('idle (bubble)', 'idle');
DATA.notes.forEach(text => addKey(text));
DATA.marks.forEach((mark, k) => {
  const item = document.createElement('li'), tag = document.createElement('b');
  tag.textContent = k + 1;
  item.append(tag, `worker ${mark.worker}: ${mark.text}`);
  $('marks').append(item);
});

// For scripts that control the page: the visible part of the axis, and the position of an event on
// the screen.
window.hetu = {
  view: () => ({from, to}),
  find: (number, worker, name) => {
    const set = DATA.sets[number];
    return set.start.findIndex((_, i) => set.workerOf[i] === worker && cell(set, i) === name);
  },
  at: (set, i) => {
    const b = box(DATA.sets[set], i), page = canvas.getBoundingClientRect();
    return {x: page.left + b.x + b.w / 2, y: page.top + b.y + b.h / 2, width: b.w};
  },
};
new ResizeObserver(() => { if (canvas.clientWidth !== width) layOut(); }).observe(canvas);
layOut();
})();

// The curve of a loss over steps, as SVG. A group is [first step, last step, least, mean, most] of neighbouring points; a point
// is a group of its own as long as there are few. The line is the mean, and the band behind it goes from the least to the most.
"use strict";

// Formats a number for people: 1,200; 0.5898; 3.2e-7.
function plain(value, digits = 4) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2).replace("+", "");
  if (Number.isInteger(value) || size >= 1e4) return Math.round(value).toLocaleString("en-US");
  return size >= 1 ? value.toFixed(digits) : value.toPrecision(digits);
}

// Returns about `count` round numbers between two numbers: multiples of 1, 2 or 5 times a power of ten.
function ticksOf(least, most, count) {
  const rough = (most - least) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(least / step - 1e-9); i * step <= most + step * 1e-9; i++) ticks.push(i * step);
  return {ticks, step};
}

// Returns the text of a tick, with as many decimals as the distance of ticks needs.
function tickText(value, step) {
  const size = Math.abs(value);
  if (size >= 1e7 || size && size < 1e-4) return value.toExponential(1).replace("+", "");
  return value.toLocaleString("en-US", {minimumFractionDigits: Math.min(8, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))),
                                        maximumFractionDigits: 8});
}

class Curve {
  // box: the element for the figure. tell: called with words on the group under the cursor, or "".
  constructor(box, tell) {
    this.box = box;
    this.tell = tell;
    this.groups = [];
    this.logarithmic = false;
    this.at = null;  // index of the group under the cursor
    box.tabIndex = 0;
    box.setAttribute("role", "img");
    box.addEventListener("pointermove", event => this.point(event));
    box.addEventListener("pointerdown", event => this.point(event));
    box.addEventListener("pointerleave", () => this.move(null));
    box.addEventListener("blur", () => this.move(null));
    box.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  set(groups) {
    this.groups = groups.filter(group => group[3] !== null);
    this.breaks = new Set();  // groups before which the line ends, because a group in between has no number
    let count = 0;
    groups.forEach((group, i) => {
      if (i && group[3] !== null && groups[i - 1][3] === null) this.breaks.add(count);
      if (group[3] !== null) count++;
    });
    if (this.at !== null) this.at = Math.min(this.at, this.groups.length - 1);
    this.draw();
    this.describe();
  }

  describe() {
    const first = this.groups[0], last = this.groups.at(-1);
    if (!first) return;
    const least = this.groups.reduce((best, group) => group[2] < best[2] ? group : best);
    this.box.setAttribute("aria-label", `Curve of the loss, from ${plain(first[3])} at step ${plain(first[0])} to ${plain(last[3])} ` +
      `at step ${plain(last[1])}; the least is ${plain(least[2])}, near step ${plain(least[0])}. Arrow keys read single points.`);
  }

  get canBeLogarithmic() {
    return this.groups.length > 0 && this.groups.every(group => group[2] > 0);
  }

  scales() {
    const width = this.width = Math.max(280, this.box.clientWidth);
    this.height = width < 500 ? 220 : 280;
    const x0 = this.groups[0][0], x1 = Math.max(this.groups.at(-1)[1], x0 + 1);
    let y0 = Math.min(...this.groups.map(group => group[2])), y1 = Math.max(...this.groups.map(group => group[4]));
    const isLog = this.isLog = this.logarithmic && this.canBeLogarithmic;
    if (y0 === y1) [y0, y1] = isLog ? [y0 / 1.1, y1 * 1.1] : [y0 - (Math.abs(y0) * 0.1 || 1), y1 + (Math.abs(y1) * 0.1 || 1)];
    const of = isLog ? Math.log10 : value => value;
    const edge = (of(y1) - of(y0)) * 0.04;
    const from = of(y0) - edge, to = of(y1) + edge;
    this.yTicks = this.ticksOfLosses(y0, y1);
    const widest = Math.max(...this.yTicks.map(([, text]) => text.length));
    this.left = 12 + 7.2 * widest;
    this.x = step => this.left + (step - x0) / (x1 - x0) * (width - this.left - 14);
    this.y = loss => 8 + (to - of(loss)) / (to - from) * (this.height - 48);
    this.xTicks = ticksOf(x0, x1, Math.max(2, Math.floor((width - this.left) / 85)));
  }

  ticksOfLosses(y0, y1) {
    if (this.isLog && y1 / y0 >= 10) {
      const factors = y1 / y0 > 1e3 ? [1] : [1, 2, 5], found = [];
      for (let power = Math.floor(Math.log10(y0)); power <= Math.ceil(Math.log10(y1)); power++)
        for (const factor of factors) if (factor * 10 ** power >= y0 && factor * 10 ** power <= y1) found.push(factor * 10 ** power);
      if (found.length > 1) return found.map(value => [value, plain(value, 2)]);
    }
    const {ticks, step} = ticksOf(y0, y1, 5);
    return ticks.map(value => [value, tickText(value, step)]);
  }

  make(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  draw() {
    if (!this.groups.length || !this.box.clientWidth) return;
    this.scales();
    const {width, height, left} = this, bottom = height - 40;
    const svg = this.make("svg", {viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true"});
    for (const [value, text] of this.yTicks) {
      const y = this.y(value);
      svg.append(this.make("line", {class: "grid", x1: left, x2: width - 8, y1: y, y2: y}),
                 this.make("text", {x: left - 6, y: y + 4, "text-anchor": "end"}, text));
    }
    for (const step of this.xTicks.ticks.filter(Number.isInteger)) {
      const x = this.x(step);
      svg.append(this.make("line", {class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 5}),
                 this.make("text", {x, y: bottom + 18, "text-anchor": x > width - 30 ? "end" : "middle"}, tickText(step, 1)));
    }
    svg.append(this.make("text", {x: (left + width) / 2, y: height - 4, "text-anchor": "middle"}, "Step"));
    this.line(svg);
    this.cursor = this.make("g", {});
    svg.append(this.cursor);
    this.box.replaceChildren(svg);
    this.drawCursor();
  }

  line(svg) {
    let path = "", upper = [], lower = [];
    const band = () => {
      if (upper.length > 1) svg.append(this.make("path", {class: "band", d: "M" + [...upper, ...lower.reverse()].join("L") + "Z"}));
      upper = [];
      lower = [];
    };
    const isThinned = this.groups.some(group => group[0] !== group[1]);
    this.groups.forEach((group, i) => {
      const starts = i === 0 || this.breaks.has(i), alone = starts && (i + 1 === this.groups.length || this.breaks.has(i + 1));
      if (starts) band();
      const x = this.x((group[0] + group[1]) / 2).toFixed(1);
      if (alone) svg.append(this.make("circle", {class: "dot", cx: x, cy: this.y(group[3]), r: 3}));
      path += `${starts ? "M" : "L"}${x},${this.y(group[3]).toFixed(1)}`;
      if (isThinned) {
        upper.push(`${x},${this.y(group[4]).toFixed(1)}`);
        lower.push(`${x},${this.y(group[2]).toFixed(1)}`);
      }
    });
    band();
    svg.append(this.make("path", {class: "mean", d: path}));
  }

  drawCursor() {
    if (!this.cursor) return;
    this.cursor.replaceChildren();
    const group = this.at === null ? null : this.groups[this.at];
    if (!group) {
      this.tell("");
      return;
    }
    const x = this.x((group[0] + group[1]) / 2);
    this.cursor.append(this.make("line", {class: "cursor", x1: x, x2: x, y1: 8, y2: this.height - 40}),
                       this.make("circle", {class: "dot", cx: x, cy: this.y(group[3]), r: 4}));
    this.tell(group[0] === group[1] ? `Step ${plain(group[0])}: loss ${plain(group[3])}`
      : `Steps ${plain(group[0])} to ${plain(group[1])}: mean loss ${plain(group[3])}, from ${plain(group[2])} to ${plain(group[4])}`);
  }

  move(at) {
    this.at = at === null || !this.groups.length ? null : Math.max(0, Math.min(this.groups.length - 1, at));
    this.drawCursor();
  }

  point(event) {
    if (!this.x) return;
    const box = this.box.getBoundingClientRect(), x = (event.clientX - box.left) * this.width / box.width;
    let best = 0;
    this.groups.forEach((group, i) => {
      const distance = j => Math.abs(this.x((this.groups[j][0] + this.groups[j][1]) / 2) - x);
      if (distance(i) < distance(best)) best = i;
    });
    this.move(best);
  }

  key(event) {
    const last = this.groups.length - 1, page = Math.max(1, Math.round(last / 20));
    const from = this.at ?? last;
    const to = {ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, PageUp: from - page, PageDown: from + page}[event.key];
    if (event.key === "Escape") this.move(null);
    if (to === undefined) return;
    event.preventDefault();
    this.move(this.at === null && event.key.startsWith("Arrow") ? last : to);
  }
}

// A chart over time: stacked areas or lines, values under the pointer, and a lane of marks above it.

import { h, s } from "./dom.js";
import * as format from "./format.js";

const HEIGHT = 170;
const LEFT = 52;
const RIGHT = 8;
const TOP = 6;
const BOTTOM = 20;
const LANE = 18;
const NEAR_PX = 7;
const MOST_NEAR = 6;

export const colour = (i) => `var(--s${i % 8})`;

// A round number that is at least as large, so that the axis has a few round values.
function ceiling(value, base) {
  if (value <= 0) return 1;
  const power = base ** Math.floor(Math.log(value) / Math.log(base));
  for (const factor of base === 10 ? [1, 2, 4, 6, 8, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]) {
    if (factor * power >= value) return factor * power;
  }
  return base * power;
}

function timeStep(seconds) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];
  return steps.find((step) => seconds / step <= 6) || Math.ceil(seconds / 6 / 86400) * 86400;
}

export class Chart {
  // options: label, stacked, steps (values hold until the next point), show (value to text), bytes, marks
  constructor(container, options) {
    this.container = container;
    this.options = options;
    this.top = TOP + (options.marks ? LANE + 4 : 0);
    this.height = HEIGHT + this.top;
    this.grid = s("g");
    this.curves = s("g");
    this.cursor = s("line", { class: "cursor", visibility: "hidden" });
    this.svg = s("svg", { height: this.height, role: "img", "aria-label": options.label }, this.grid, this.curves, this.cursor);
    this.legend = h("ul", { class: "legend" });
    this.tip = h("div", { class: "tip", hidden: "" });
    container.replaceChildren(this.svg, this.legend, this.tip);
    this.data = { times: [], series: [], limit: 0, marks: [] };
    this.chosen = -1; // the mark that the keyboard has chosen
    if (options.marks) this.addLane();
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.hideTip());
    new ResizeObserver(() => this.draw()).observe(container);
  }

  addLane() {
    this.lane = s("g", {
      class: "marks", tabindex: "0", role: "slider", "aria-label": "Decisions of the balancer",
      "aria-orientation": "horizontal", "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0",
      "aria-valuetext": "none so far",
    });
    this.svg.setAttribute("role", "group");
    this.svg.append(this.lane);
    this.lane.addEventListener("focus", () => this.choose(this.data.marks.length - 1));
    this.lane.addEventListener("blur", () => { this.chosen = -1; this.hideTip(); this.draw(); });
    this.lane.addEventListener("keydown", (event) => {
      const last = this.data.marks.length - 1;
      const to = { ArrowLeft: this.chosen - 1, ArrowDown: this.chosen - 1, ArrowRight: this.chosen + 1, ArrowUp: this.chosen + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") this.hideTip();
      if (to === undefined) return;
      event.preventDefault();
      this.choose(Math.max(0, Math.min(last, to)));
    });
  }

  choose(index) {
    this.chosen = index;
    this.draw();
    const mark = this.data.marks[index];
    if (!mark) return;
    this.showTip(this.x(mark[0]), [h("p", { class: "at", text: format.clock(mark[0]) }), h("p", { text: mark[1] }), ...this.values(mark[0])]);
  }

  // data: times, series ({name, colour, values}), limit (a line, 0: none), marks ([time, text])
  set(data) {
    this.data = { limit: 0, marks: [], ...data };
    if (this.chosen >= this.data.marks.length) this.chosen = this.data.marks.length - 1;
    this.draw();
  }

  x(at) {
    return LEFT + ((this.width - LEFT - RIGHT) * at) / this.end;
  }

  y(value) {
    return this.height - BOTTOM - ((this.height - BOTTOM - this.top) * value) / this.max;
  }

  draw() {
    this.width = this.container.clientWidth;
    if (!this.width) return;
    const { times, series, limit } = this.data;
    this.end = Math.max(times.length ? times[times.length - 1] : 0, 1);
    const stacked = this.options.stacked ? this.stack(series) : series.map((one) => one.values);
    let max = 0;
    for (const values of stacked) for (const value of values) if (value > max) max = value;
    // A limit that is far away would flatten the curves: the meters show how far away it is.
    const showsLimit = limit > 0 && limit < 3 * max;
    if (showsLimit) max = Math.max(max, limit);
    this.max = ceiling(max, this.options.bytes ? 1024 : 10);
    if (this.options.most) this.max = this.options.most;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.drawGrid();
    this.curves.replaceChildren(...this.shapes(stacked));
    if (showsLimit) {
      this.curves.append(s("line", { class: "limit", x1: LEFT, x2: this.width - RIGHT, y1: this.y(limit), y2: this.y(limit) }));
    }
    this.drawLegend();
    if (this.lane) this.drawMarks();
  }

  stack(series) {
    const sums = [];
    return series.map((one) => one.values.map((value, i) => (sums[i] = (sums[i] || 0) + value)));
  }

  shapes(stacked) {
    const { series, times } = this.data;
    if (!times.length) return [];
    if (!this.options.stacked) {
      return series.map((one, k) => s("path", { class: "curve", d: this.path(stacked[k]), stroke: one.colour, "stroke-dasharray": k > 7 ? "6 3" : null }));
    }
    return series.map((one, k) => {
      const base = k ? this.path(stacked[k - 1], true) : `L${this.x(this.end)} ${this.y(0)}L${this.x(times[0])} ${this.y(0)}`;
      return s("path", { class: "area", d: `${this.path(stacked[k])}${base}Z`, fill: one.colour });
    });
  }

  path(values, backwards = false) {
    const { times } = this.data;
    const parts = [];
    const n = values.length;
    for (let k = 0; k < n; k++) {
      const i = backwards ? n - 1 - k : k;
      const x = this.x(times[i]).toFixed(1);
      const y = this.y(values[i]).toFixed(1);
      if (this.options.steps && k > 0) parts.push(backwards ? `V${y}` : `H${x}`);
      parts.push(`${k || backwards ? "L" : "M"}${x} ${y}`);
    }
    return parts.join("");
  }

  drawGrid() {
    const parts = [];
    const lines = this.options.whole && (this.max < 4 || this.max % 4) ? (this.max % 3 ? this.max % 5 ? this.max : 5 : 3) : 4;
    let before = "";
    for (let k = 0; k <= lines; k++) {
      const value = (this.max * k) / lines;
      const y = this.y(value);
      const words = this.options.show(value);
      parts.push(s("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      if (words !== before) parts.push(s("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, words));
      before = words;
    }
    const step = timeStep(this.end * (this.width < 420 ? 1.6 : 1));
    for (let at = 0; at <= this.end; at += step) {
      const near = this.x(at) > this.width - 24;
      parts.push(s("text", { x: this.x(at), y: this.height - 4, "text-anchor": at === 0 ? "start" : near ? "end" : "middle" }, format.clock(at)));
    }
    this.grid.replaceChildren(...parts);
  }

  drawLegend() {
    const { series, limit } = this.data;
    const key = series.map((one) => `${one.name}|${one.now}`).join("\n") + limit;
    if (this.legendKey === key) return;
    this.legendKey = key;
    const items = series.map((one) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = one.colour;
      return h("li", {}, swatch, h("bdi", { text: one.name }), ` ${one.now}`);
    });
    if (limit) items.push(h("li", { class: "quiet", text: `- - ${this.options.limitName || "limit"} ${this.options.show(limit)}` }));
    this.legend.replaceChildren(...items);
  }

  drawMarks() {
    const { marks } = this.data;
    const shapes = [s("rect", { class: "lane", x: LEFT, y: TOP, width: Math.max(0, this.width - LEFT - RIGHT), height: LANE, rx: 4 })];
    let last = -9;
    marks.forEach(([at], i) => {
      const x = this.x(at);
      if (x - last < 1.5 && i !== this.chosen) return;
      last = x;
      const on = i === this.chosen;
      shapes.push(s("rect", { class: "mark", "data-on": on, x: x - (on ? 2.5 : 1.5), y: TOP + (on ? 0 : 3), width: on ? 5 : 3, height: on ? LANE : LANE - 6, rx: 1 }));
    });
    if (!marks.length) shapes.push(s("text", { x: LEFT + 6, y: TOP + 13 }, "no decisions so far"));
    this.lane.replaceChildren(...shapes);
    const now = Math.max(0, this.chosen >= 0 ? this.chosen : marks.length - 1);
    this.lane.setAttribute("aria-valuemax", Math.max(0, marks.length - 1));
    this.lane.setAttribute("aria-valuenow", now);
    const text = marks[now] ? `${format.clock(marks[now][0])}: ${marks[now][1]}` : "none so far";
    if (this.lane.getAttribute("aria-valuetext") !== text) this.lane.setAttribute("aria-valuetext", text);
  }

  values(at) {
    const { times, series } = this.data;
    let i = times.length - 1;
    while (i > 0 && times[i] > at) i--;
    if (i < 0) return [];
    return series.map((one) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = one.colour;
      return h("p", {}, swatch, h("bdi", { text: one.name }), `: ${this.options.show(one.values[i])}`);
    });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = event.clientX - box.left;
    // A little beyond both ends, where the first and the last mark begin and end.
    if (x < LEFT - NEAR_PX || x > this.width - RIGHT + NEAR_PX || !this.data.times.length) return this.hideTip();
    const at = Math.max(0, Math.min(this.end, (this.end * (x - LEFT)) / (this.width - LEFT - RIGHT)));
    const rows = [];
    if (this.options.marks && event.clientY - box.top <= TOP + LANE + 4) {
      const near = this.data.marks.filter((mark) => Math.abs(this.x(mark[0]) - x) <= NEAR_PX);
      if (!near.length) return this.hideTip();
      for (const [when, text] of near.slice(-MOST_NEAR)) rows.push(h("p", {}, h("span", { class: "at", text: `${format.clock(when)} ` }), text));
      if (near.length > MOST_NEAR) rows.push(h("p", { class: "quiet", text: `and ${near.length - MOST_NEAR} more` }));
    } else {
      rows.push(h("p", { class: "at", text: format.clock(at) }), ...this.values(at));
    }
    this.showTip(x, rows);
  }

  showTip(x, rows) {
    this.tip.replaceChildren(...rows);
    this.tip.hidden = false;
    const room = this.width - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x > this.width / 2 ? x - this.tip.offsetWidth - 12 : x + 12))}px`;
    this.tip.style.top = `${this.top + 6}px`;
    this.cursor.setAttribute("visibility", "visible");
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", this.top], ["y2", this.height - BOTTOM]]) this.cursor.setAttribute(name, value);
  }

  hideTip() {
    this.tip.hidden = true;
    this.cursor.setAttribute("visibility", "hidden");
  }
}

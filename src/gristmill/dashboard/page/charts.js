// The charts of the page, and the series that they show, from the points of a phase.

import { Chart, colour } from "./chart.js";
import { byId, show } from "./dom.js";
import * as format from "./format.js";

// The fields of a point, as the server sends them.
const [AT, , FLIGHT, MEMORY, GPU_BUSY, , STEPS] = [0, 1, 2, 3, 4, 5, 6];
const [BUSY, IDLE, STARTING, DRAINING, , ITEMS] = [0, 1, 2, 3, 4, 5];
const RATE_WINDOW_S = 5;
const number = (value) => (value % 1 ? value.toFixed(1) : String(value));

export class Charts {
  constructor() {
    this.workers = new Chart(byId("workers-chart"), {
      label: "Workers of each step over time", stacked: true, steps: true, show: number, whole: true, marks: true,
    });
    this.items = new Chart(byId("items-chart"), { label: "Items per second of each step over time", show: format.rate });
    this.memory = new Chart(byId("memory-chart"), { label: "Memory over time", show: format.size, bytes: true });
    this.gpus = null;
  }

  update(phase, now) {
    const { points, plan, decisions } = phase;
    const times = points.map((point) => point[AT]);
    const names = plan.steps.map((step) => step.name);
    const series = (values, last) => names.map((name, i) => ({ name, colour: colour(i), values: points.map((point, k) => values(point[STEPS][i], i, k)), now: last(i) }));
    const workers = (step) => step[BUSY] + step[IDLE] + step[STARTING] + step[DRAINING];
    // Of shared workers the counts of a step are those that are busy with it.
    const alive = (i) => {
      const step = now && now.steps[i];
      return step ? `${step.busy + step.idle + step.starting + step.draining}${step.dedicated ? "" : " shared"}` : "";
    };
    this.workers.set({ times, series: series(workers, alive), marks: decisions });
    const speeds = (step, i, k) => this.rateAt(points, i, k);
    this.items.set({ times, series: series(speeds, (i) => (now && now.steps[i] ? format.rate(now.steps[i].items_per_s) : "")) });
    this.updateMemory(points, times, now);
    this.updateGpus(points, times, now);
  }

  rateAt(points, i, k) {
    let first = k;
    while (first > 0 && points[k][AT] - points[first][AT] < RATE_WINDOW_S) first--;
    const seconds = points[k][AT] - points[first][AT];
    return seconds > 0 ? Math.max(0, points[k][STEPS][i][ITEMS] - points[first][STEPS][i][ITEMS]) / seconds : 0;
  }

  updateMemory(points, times, now) {
    const limit = now ? now.memory.limit : 0;
    this.memory.options.limitName = "limit of all processes";
    this.memory.set({
      times, limit,
      series: [
        { name: "all processes", colour: colour(0), values: points.map((point) => point[MEMORY]), now: now ? format.size(now.memory.bytes) : "" },
        { name: "tasks in flight", colour: colour(1), values: points.map((point) => point[FLIGHT]), now: now ? format.size(now.flight.held + now.flight.reserved) : "" },
      ],
    });
  }

  updateGpus(points, times, now) {
    const gpus = (now && now.gpus) || [];
    show(byId("gpus-panel"), gpus.length > 0);
    if (!gpus.length) return;
    this.gpus ||= new Chart(byId("gpus-chart"), { label: "Utilisation of each GPU over time", show: (value) => `${Math.round(value)} %`, most: 100 });
    this.gpus.set({
      times,
      series: gpus.map((gpu, i) => ({ name: `GPU ${gpu.index}`, colour: colour(i), values: points.map((point) => point[GPU_BUSY][i] || 0), now: `${gpu.busy} %` })),
    });
  }
}

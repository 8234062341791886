// The pipeline as a flow of steps, each with its workers, queue, speed, backpressure and stages.

import { bar, bdi, h, rebuild, setData, setText, show } from "./dom.js";
import * as format from "./format.js";

const STATES = ["busy", "idle", "starting", "draining"];
const FIRST_REASONS = 5;

function row(label) {
  const value = h("span", { class: "value" });
  return { element: h("div", { class: "row" }, h("span", { class: "label", text: label }), value), value };
}

function legendItem(kind) {
  const number = h("span");
  const element = h("span", { class: "state" }, h("span", { class: `dot ${kind}` }), number);
  return { element, number };
}

class Stage {
  constructor(name, number, openSamples) {
    this.counts = h("div", { class: "counts" });
    this.reasons = h("ul", { class: "reasons", "aria-label": `Documents that ${name} dropped, by reason` });
    const button = h("button", {
      type: "button", text: "Samples", "aria-label": `Samples of documents at ${name}`,
      on: { click: () => openSamples(number, name) },
    });
    this.button = button;
    this.element = h("li", {}, h("div", { class: "stage-head" }, bdi(name), button), this.counts, this.reasons);
  }

  update(stage, hasDocuments) {
    const parts = [`${format.count(stage.items_in)} in`, `${format.count(stage.items_out)} out`];
    const gone = stage.reasons.reduce((sum, one) => sum + one[1], stage.other_reasons);
    if (!gone && stage.tasks_dropped) parts.push(`${format.plural(stage.tasks_dropped, "task")} dropped`);
    if (stage.busy_s >= 0.05) parts.push(`${format.span(stage.busy_s)} busy`);
    setText(this.counts, parts.join(" · ") + (stage.items_failed ? " · " : ""));
    if (stage.items_failed) this.counts.append(h("span", { class: "bad-number", text: `${format.count(stage.items_failed)} failed` }));
    show(this.button, hasDocuments);
    rebuild(this.reasons, [stage.reasons, stage.other_reasons], ([reasons, others]) => {
      const most = reasons.length ? reasons[0][1] : 1;
      const all = reasons.reduce((sum, one) => sum + one[1], others);
      const rows = reasons.slice(0, FIRST_REASONS).map(([reason, n]) => {
        const share = h("span", { class: "share" });
        share.style.width = `${(100 * n) / most}%`;
        return h("li", {}, share, bdi(reason), h("span", { text: format.count(n) }));
      });
      rows.unshift(h("li", { class: "quiet" }, h("span", { text: "dropped, in finished blocks" }), h("span", { text: format.count(all) })));
      const rest = reasons.slice(FIRST_REASONS).reduce((sum, one) => sum + one[1], others);
      const more = reasons.length - FIRST_REASONS;
      if (rest) rows.push(h("li", { class: "quiet", title: reasons.slice(FIRST_REASONS).map((one) => one.join(": ")).join("\n") },
        h("span", { text: `${more} other reasons` }), h("span", { text: format.count(rest) })));
      return rows;
    });
    show(this.reasons, stage.reasons.length > 0);
  }
}

class Step {
  constructor(step, number, firstStage, openSamples) {
    this.plan = step;
    this.bottleneck = h("span", { class: "badge bottleneck", text: "bottleneck" });
    this.ended = h("span", { class: "badge", text: "done" });
    const badges = h("div", { class: "badges" }, this.bottleneck, this.ended);
    if (step.gpus > 0) badges.append(h("span", { class: "badge", text: `${step.gpus} GPU` }));
    else if (step.gpu_memory_gb > 0) badges.append(h("span", { class: "badge", text: `${step.gpu_memory_gb} GB of a GPU` }));
    if (step.cpus !== 1) badges.append(h("span", { class: "badge", text: `${step.cpus} CPU` }));
    if (step.batch_size > 1) badges.append(h("span", { class: "badge", text: `batches of ${step.batch_size}` }));

    this.workers = row("workers");
    this.states = Object.fromEntries(STATES.map((state) => [state, legendItem(state)]));
    this.workersBar = bar("workers", STATES);
    this.busy = row("busy");
    this.queue = row("queue");
    this.speed = row("speed");
    this.takes = row("task takes");
    this.errors = row("errors");
    this.pressure = row("backpressure");
    this.waiting = legendItem("waiting");
    this.blocked = legendItem("blocked");
    this.pressure.value.append(this.waiting.element, this.blocked.element);
    this.pressureBar = bar("time so far", ["waiting", "blocked"]);
    this.workers.value.append(...STATES.map((state) => this.states[state].element));
    this.workers.element.append(this.workersBar.element);
    this.pressure.element.append(this.pressureBar.element);

    this.stages = step.stages.map((name, i) => new Stage(name, firstStage + i, openSamples));
    this.figures = h("div", {}, this.workers.element, this.busy.element, this.queue.element, this.speed.element,
      this.takes.element, this.pressure.element, this.errors.element);
    this.element = h("li", { class: "step", "data-step": number },
      h("div", { class: "step-head" }, h("h3", { class: "step-name" }, bdi(step.name)), badges),
      this.figures,
      h("ul", { class: "stages", "aria-label": "Stages of this step" }, ...this.stages.map((stage) => stage.element)));
  }

  update(now, i, hasEnded) {
    const step = now ? now.steps[i] : null;
    show(this.figures, Boolean(step));
    const isBottleneck = Boolean(step) && now.bottleneck === i && !hasEnded;
    setData(this.element, "bottleneck", isBottleneck);
    show(this.bottleneck, isBottleneck);
    show(this.ended, Boolean(step) && step.ended);
    setData(this.element, "ended", Boolean(step) && step.ended);
    if (!step) return;
    this.updateWorkers(step, now);
    setText(this.busy.value, step.busy_share === null ? "no workers now" : format.percent(step.busy_share));
    setText(this.speed.value, `${format.rate(step.items_per_s)} items/s · ${format.rate(step.tasks_per_s)} tasks/s`);
    setText(this.takes.value, step.service_s ? format.span(step.service_s) : "not known yet");
    setText(this.queue.value, `${format.plural(step.queued, "task")} · ${format.size(step.queued_bytes)}`);
    // Of a task that failed, the part at fault may have been found: then only its items are given up.
    const items = now.stages.reduce((sum, stage) => sum + (stage.step === i ? stage.items_failed : 0), 0);
    const failed = [[step.tasks_failed, "task"], [items, "item"]].filter(([n]) => n);
    setText(this.errors.value, failed.map(([n, what]) => format.plural(n, what)).join(", ") || "none");
    this.errors.value.classList.toggle("bad-number", failed.length > 0);
    const waiting = now.at_s ? step.waiting_s / now.at_s : 0;
    const blocked = now.at_s ? step.blocked_s / now.at_s : 0;
    setText(this.waiting.number, `${format.percent(waiting)} waiting for input`);
    setText(this.blocked.number, `${format.percent(blocked)} blocked by output`);
    this.pressureBar.set([waiting, blocked], 1, `${format.percent(waiting)} waiting for input, ${format.percent(blocked)} blocked by output`);
  }

  updateWorkers(step, now) {
    const words = [];
    for (const state of STATES) {
      const item = this.states[state];
      show(item.element, step.dedicated || state === "busy");
      setText(item.number, step.dedicated ? `${step[state]} ${state}` : `${step.busy} of ${now.shared.busy + now.shared.idle} shared`);
      setData(item.element, "zero", step[state] === 0);
      words.push(`${step[state]} ${state}`);
    }
    const shared = now.shared.busy + now.shared.idle;
    const amounts = step.dedicated ? STATES.map((state) => step[state]) : [step.busy, 0, 0, 0];
    const total = step.dedicated ? amounts.reduce((a, b) => a + b, 0) : shared;
    this.workersBar.set(amounts, total, step.dedicated ? words.join(", ") : `${step.busy} of ${shared} shared workers`);
  }
}

export class Flow {
  constructor(list, openSamples) {
    this.list = list;
    this.openSamples = openSamples;
    this.steps = [];
  }

  setPlan(plan) {
    let first = 0;
    this.steps = plan.steps.map((step, i) => {
      const made = new Step(step, i, first, this.openSamples);
      first += step.stages.length;
      return made;
    });
    this.list.replaceChildren(...this.steps.map((step) => step.element));
  }

  update(now, hasEnded, hasDocuments) {
    this.steps.forEach((step, i) => step.update(now, i, hasEnded));
    const stages = this.steps.flatMap((step) => step.stages);
    stages.forEach((stage, i) => {
      if (now && now.stages[i]) stage.update(now.stages[i], hasDocuments && Boolean(now.documents));
      else show(stage.button, false);
    });
  }
}

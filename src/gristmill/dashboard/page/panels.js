// Everything around the flow and the charts: totals, progress, memory, GPUs, failures, messages, decisions.

import { bar, bdi, byId, h, rebuild, setData, setText, show } from "./dom.js";
import * as format from "./format.js";

const WORDS = { running: "running", draining: "stopping", finished: "finished", failed: "failed", interrupted: "interrupted", lost: "connection lost" };

export function showStatus(status) {
  setData(byId("status"), "status", status);
  setText(byId("status"), WORDS[status] || status);
}

export function showProgress(state, now) {
  const ended = state.status !== "running";
  const fraction = state.status === "finished" ? 1 : now ? now.fraction : null;
  const track = byId("track");
  byId("fill").style.width = `${100 * (fraction || 0)}%`;
  if (fraction === null || fraction === undefined) track.removeAttribute("aria-valuenow");
  else track.setAttribute("aria-valuenow", Math.floor(100 * fraction));
  const seconds = ended && state.wall_s ? state.wall_s : now ? now.at_s : 0;
  setText(byId("elapsed"), `${format.clock(seconds)} ${ended ? "in all" : "elapsed"}`);
  setText(byId("share"), [fraction === null || fraction === undefined ? "" : format.percent(fraction), amount(now)].filter(Boolean).join(" · "));
  const eta = !ended && now && now.eta_s !== null ? `${format.clock(now.eta_s)} left` : ended ? "" : "time left not known yet";
  setText(byId("eta"), eta);
}

function amount(now) {
  if (!now) return "";
  if (now.input) return `${format.full(now.input.blocks)} of ${format.full(now.input.blocks_total)} blocks`;
  if (now.tasks.total === null) return `${format.full(now.tasks.done)} tasks`;
  return `${format.full(now.tasks.done)} of ${now.tasks.exact ? "" : "about "}${format.full(now.tasks.total)} tasks`;
}

export function showTotals(now) {
  const totals = [];
  if (now && now.input) {
    totals.push(["documents read", format.full(now.input.read)], ["kept", format.full(now.input.kept)]);
    if (now.documents) {
      totals.push(["dropped", format.full(now.documents.dropped)]);
      if (now.documents.merged) totals.push(["merged", format.full(now.documents.merged)]);
      totals.push(["errors", format.full(now.documents.errored)]);
    }
    if (now.input.bytes_total) totals.push(["input", `${format.size(now.input.bytes)} of ${format.size(now.input.bytes_total)}`]);
  } else if (now) {
    totals.push(["tasks taken", format.full(now.source.taken)], ["tasks done", format.full(now.tasks.done)]);
  }
  if (now) {
    totals.push(["failures", format.full(now.failures_total)], ["memory", format.size(now.memory.bytes)]);
    const last = now.steps[now.steps.length - 1];
    if (last) totals.push(["items/s out", format.rate(last.items_per_s)]);
    if (now.documents && now.documents.problems) totals.push(["blocks that do not add up", format.full(now.documents.problems)]);
  }
  rebuild(byId("totals"), totals, (pairs) => pairs.map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))));
}

const meters = new Map();

function meter(key, name) {
  if (!meters.has(key)) {
    const words = h("span");
    const made = bar(name, ["meter", "soft"]);
    const element = h("div", { class: "meter-row" }, h("span", { class: "quiet", text: `${name} ` }), words, made.element);
    meters.set(key, { element, words, set: made.set, bar: made.element });
  }
  return meters.get(key);
}

function setMeter(one, solid, soft, limit, words) {
  setText(one.words, words);
  one.set([solid, soft], limit, words);
  one.bar.classList.toggle("full", limit > 0 && solid + soft > 0.95 * limit);
  show(one.bar, limit > 0);
}

const of = (used, limit) => (limit > 0 ? `${format.size(used)} of ${format.size(limit)}` : `${format.size(used)}, no limit`);

export function showMemory(now) {
  const place = byId("memory-meters");
  const all = meter("memory", "All processes");
  const flight = meter("flight", "Tasks in flight");
  if (!place.children.length) place.append(all.element, flight.element);
  if (!now) return;
  setMeter(all, now.memory.bytes, 0, now.memory.limit, of(now.memory.bytes, now.memory.limit));
  const { held, reserved, budget } = now.flight;
  setMeter(flight, held, reserved, budget, `${of(held + reserved, budget)}, ${format.size(reserved)} of it reserved`);
}

export function showGpus(now, plan) {
  const gpus = (now && now.gpus) || [];
  const place = byId("gpus");
  const shown = [];
  for (const gpu of gpus) {
    const busy = meter(`gpu-busy-${gpu.index}`, `GPU ${gpu.index}`);
    const memory = meter(`gpu-memory-${gpu.index}`, "memory");
    setMeter(busy, gpu.busy, 0, 100, `${gpu.busy} % busy · ${gpu.watts} W`);
    busy.bar.classList.remove("full");
    const steps = gpu.steps.map(([step, workers, bytes]) => `${plan.steps[step] ? plan.steps[step].name : "other"}: ${format.plural(workers, "worker")}, ${format.size(bytes)}`);
    setMeter(memory, gpu.memory, 0, gpu.total, `${of(gpu.memory, gpu.total)}${steps.length ? ` (${steps.join("; ")})` : ""}`);
    shown.push(busy.element, memory.element);
  }
  if (place.children.length !== shown.length) place.replaceChildren(...shown);
}

function showLog(id, entries, build, none) {
  rebuild(byId(id), entries, (all) => all.map(build));
  show(byId(id), entries.length > 0);
  if (none) show(byId(none), entries.length === 0);
}

export function showDecisions(decisions) {
  showLog("decisions", decisions.slice(-200).reverse(), ([at, text]) => h("li", {}, h("span", { class: "when", text: format.clock(at) }), h("span", { text })), "no-decisions");
}

export function showFailures(failures) {
  showLog("failures", failures.slice().reverse(), (one) => h("li", {},
    h("span", { class: "when", text: `#${one.number}` }), bdi(one.stage), ` · task ${one.task} · ${format.plural(one.items, "item")}`,
    h("pre", { class: "text", dir: "auto", text: one.error })), "no-failures");
}

export function showMessages(messages) {
  show(byId("messages-panel"), messages.length > 0);
  showLog("messages", messages.slice().reverse(), (text) => h("li", { class: "text", dir: "auto", text }));
}

export function showEnd(state) {
  const error = byId("error");
  setText(error, state.error || "");
  show(error, Boolean(state.error));
}

export function showNotice(text) {
  setText(byId("notice"), text);
  show(byId("notice"), Boolean(text));
}

export function showPhases(phases, shown, now, choose) {
  const place = byId("phases");
  show(place, phases.length > 1);
  rebuild(place, [phases.length, shown, now], () => phases.map((phase, i) => {
    const stages = phase.plan.steps.flatMap((step) => step.stages);
    const words = `Phase ${i + 1}${i === now ? " (now)" : ""}: ${stages[0]} to ${stages[stages.length - 1]}`;
    return h("button", { type: "button", "aria-pressed": String(i === shown), text: words, on: { click: () => choose(i) } });
  }));
}

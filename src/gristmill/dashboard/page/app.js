// The page of a run: takes events of the server, keeps what they say, and draws it.

import { Charts } from "./charts.js";
import { byId, setText, show } from "./dom.js";
import { Flow } from "./flow.js";
import * as panels from "./panels.js";
import { SamplesDialog } from "./samples.js";

const LOST_AFTER_MS = 4000;
const MOST_FAILURES = 100;
const MOST_MESSAGES = 100;

const samples = new SamplesDialog();
const charts = new Charts();
const flow = new Flow(byId("flow"), (stage, name) => samples.open(view.phase, stage, name));

const run = { state: null, phases: [], messages: [] };
const view = { phase: -1, follows: true, built: -1, lost: false };
let source = null;
let lostTimer = 0;
let drawing = 0;

function take({ state, news }) {
  if (run.state && run.state.run !== state.run) return location.reload(); // another run serves at this address now
  for (const delta of news.phases) {
    if (delta.plan) run.phases[delta.phase] = { plan: delta.plan, points: [], decisions: [], failures: [], now: null };
    const phase = run.phases[delta.phase];
    if (delta.points) {
      phase.points.length = Math.min(phase.points.length, delta.keep);
      phase.points.push(...delta.points);
    }
    if (delta.decisions) phase.decisions.push(...delta.decisions);
    if (delta.failures) phase.failures = [...phase.failures, ...delta.failures].slice(-MOST_FAILURES);
  }
  run.messages = [...run.messages, ...news.messages].slice(0, MOST_MESSAGES);
  run.state = state;
  if (state.phase >= 0 && state.now) run.phases[state.phase].now = state.now;
  if (view.follows) view.phase = state.phase;
  schedule();
}

function schedule() {
  // A page that nobody sees is not drawn; it is when it is seen again.
  if (!drawing) drawing = requestAnimationFrame(() => { drawing = 0; draw(); });
}

function draw() {
  const { state } = run;
  if (!state) return;
  const ended = state.status !== "running";
  const phase = run.phases[view.phase];
  const isCurrent = view.phase === state.phase;
  const now = phase ? phase.now : null;
  document.title = `${state.pipeline} · gristmill`;
  setText(byId("pipeline").firstElementChild, state.pipeline);
  setText(byId("output"), state.output ? `Output: ${state.output}` : "");
  panels.showStatus(!ended && view.lost ? "lost" : !ended && now && now.draining ? "draining" : state.status);
  panels.showEnd(state);
  panels.showNotice(notice(ended, state, now));
  panels.showProgress(state, run.phases[state.phase] ? run.phases[state.phase].now : null);
  panels.showTotals(now);
  panels.showMessages(run.messages);
  panels.showPhases(run.phases, view.phase, ended ? -1 : state.phase, choosePhase);
  if (!phase) return;
  setText(byId("executor"), `on ${phase.plan.executor}`);
  if (view.built !== view.phase) {
    view.built = view.phase;
    flow.setPlan(phase.plan);
  }
  flow.update(now, ended || !isCurrent, Boolean(state.output) && !ended);
  show(byId("no-numbers"), !now);
  charts.update(phase, now);
  panels.showMemory(now);
  panels.showGpus(now, phase.plan);
  panels.showDecisions(phase.decisions);
  panels.showFailures(phase.failures);
}

function notice(ended, state, now) {
  if (ended) return `The run has ended (${state.status}). This is its last state.`;
  if (view.lost) return "The run does not answer. It may have been killed, or this machine cannot reach it. This is its last known state.";
  if (now && now.draining) return "A task has failed: the run finishes what it has begun and takes nothing new.";
  return "";
}

function choosePhase(phase) {
  view.phase = phase;
  view.follows = phase === run.state.phase;
  schedule();
}

function lost(isLost) {
  clearTimeout(lostTimer);
  lostTimer = 0;
  if (view.lost !== isLost) {
    view.lost = isLost;
    schedule();
  }
}

function connect() {
  source = new EventSource("events");
  source.onmessage = (event) => {
    lost(false);
    take(JSON.parse(event.data));
  };
  source.addEventListener("end", () => source.close());
  source.onopen = reset;
  source.onerror = () => {
    if (run.state && run.state.status !== "running") return source.close();
    if (!lostTimer && !view.lost) lostTimer = setTimeout(() => lost(true), LOST_AFTER_MS);
  };
}

// A new connection sends the whole history again.
function reset() {
  run.phases = [];
  run.messages = [];
  view.built = -1;
}

document.addEventListener("visibilitychange", schedule);
connect();

"""The metrics of a run as text: what Prometheus gets. Rendered from moments, in the thread of the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from gristmill.metrics import metric_table as m
from gristmill.metrics.observer import DocumentsMoment, Moment, PlanInfo, StageMoment
from gristmill.metrics.openmetrics import GAUGE, Metric, SampleLines, label_value, labels_of
from gristmill.metrics.rates import progress_of
from gristmill.scheduling.snapshot import LATENCY_BOUNDS_US, GpuSnapshot, Snapshot, StepSnapshot

MOST_REASONS = 50
"""Reasons of a stage that have a sample of their own: the first ones. All others count as `OTHER`."""
OTHER = "other"
SHARED = "(shared workers)"
"""The ``step`` of shared workers that run nothing. The others count for the step that they run."""
MOST_PHASES = 10
"""Phases of a run that are shown: the latest ones."""

_BOUNDS = tuple(str(bound / 1e6) for bound in LATENCY_BOUNDS_US)


class RunState(Enum):
    """How far a run is."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class PhaseView:
    """What was seen last of one plan."""

    plan: PlanInfo
    moment: Moment | None = None
    states_s: tuple[tuple[float, float], ...] = ()
    """By step, the seconds so far of waiting for input and of being blocked by output."""
    share: float | None = None
    """The share of optimum."""


@dataclass(frozen=True, slots=True)
class RunView:
    """All that is exposed of a run. The thread of the run replaces it, and the thread of the server reads it."""

    run: str
    """An id of the run."""
    pipeline: str
    executor: str
    version: str
    started_at: float
    """Unix time."""
    phases: tuple[PhaseView, ...] = ()
    first_phase: int = 1
    """The number of the first of them."""
    state: RunState = RunState.RUNNING
    warnings: int = 0


def render(view: RunView, openmetrics: bool) -> str:
    """Return the metrics of a run as text."""
    samples = SampleLines()
    common = labels_of({"run": view.run, "pipeline": view.pipeline})
    info = labels_of({"executor": view.executor, "version": view.version})
    samples.add(m.RUN_INFO, f"{common},{info}", 1)
    for state in RunState:
        samples.add(m.RUN_STATE, f'{common},state="{state.value}"', int(state is view.state))
    samples.add(m.RUN_START, common, view.started_at)
    samples.add(m.RUN_WARNINGS, common, view.warnings)
    for number, phase in enumerate(view.phases, view.first_phase):
        if phase.moment is not None:
            is_current = phase is view.phases[-1]
            _PhaseSamples(samples, f'{common},phase="{number}"', phase.moment, is_current).add(phase)
    return samples.text(m.METRICS, openmetrics)


class _PhaseSamples:
    """Adds the samples of one phase. Of phases that have ended only counters are shown, and the ledger's balance."""

    def __init__(self, samples: SampleLines, labels: str, moment: Moment, is_current: bool) -> None:
        self._samples = samples
        self._labels = labels
        self._moment = moment
        self._is_current = is_current
        self._steps: list[str] = _unique((SHARED, *(step.name for step in moment.snapshot.steps)))[1:]

    def add(self, phase: PhaseView) -> None:
        moment = self._moment
        self._run(moment, phase.share)
        self._source(moment.snapshot)
        for i, step in enumerate(moment.snapshot.steps):
            states = phase.states_s[i] if i < len(phase.states_s) else None
            self._step(i, step, states)
        self._workers(moment.snapshot)
        self._stages(moment.stages)
        if moment.documents is not None:
            self._documents(moment.documents)
        for gpu in moment.snapshot.gpus:
            self._gpu(gpu)

    def _put(self, metric: Metric, value: float | None, more: str = "") -> None:
        if value is not None and (self._is_current or metric.kind != GAUGE or metric in _KEPT_GAUGES):
            self._samples.add(metric, f"{self._labels},{more}" if more else self._labels, value)

    def _run(self, moment: Moment, share: float | None) -> None:
        snapshot, progress = moment.snapshot, moment.progress
        self._put(m.ELAPSED, snapshot.now_us / 1e6)
        self._put(m.PROGRESS, _fraction(moment))
        self._put(m.SHARE, share)
        self._put(m.FAILURES, moment.failures_total)
        self._put(m.MEMORY, moment.memory_bytes or None)
        self._put(m.MEMORY_LIMIT, moment.memory_limit or None)
        if snapshot.budget_bytes:
            self._put(m.BUDGET, snapshot.budget_bytes)
            self._put(m.HELD, snapshot.held_bytes)
            self._put(m.RESERVED, snapshot.reserved_bytes)
        if progress is not None:
            self._put(m.BLOCKS_DONE, progress.blocks)
            self._put(m.BLOCKS, progress.blocks_total)
            self._put(m.READ_SO_FAR, progress.read)
            self._put(m.KEPT_SO_FAR, progress.kept)
            if progress.bytes_total:
                self._put(m.INPUT_DONE, progress.bytes)
                self._put(m.INPUT_SIZE, progress.bytes_total)

    def _source(self, snapshot: Snapshot) -> None:
        self._put(m.SOURCE_TASKS, snapshot.source_taken)
        self._put(m.SOURCE_EXPECTED, snapshot.source_total)
        self._put(m.SOURCE_BYTES, snapshot.source_bytes)

    def _step(self, i: int, step: StepSnapshot, states: tuple[float, float] | None) -> None:
        label = self._steps[i]
        moment = self._moment
        self._put(m.TASKS_DONE, step.tasks_done, label)
        self._put(m.TASKS_FAILED, step.tasks_failed, label)
        self._put(m.ITEMS_DONE, step.items_done, label)
        if step.latency:
            labels = f"{self._labels},{label}"
            self._samples.add_histogram(m.UNIT_SECONDS, labels, _BOUNDS, step.latency, step.latency_us / 1e6)
        self._put(m.BUSY_SECONDS, step.busy_us / 1e6, label)
        self._put(m.RETRIES, step.retries, label)
        self._put(m.QUEUE_TASKS, step.queued, label)
        self._put(m.QUEUE_BYTES, step.queued_bytes, label)
        self._put(m.QUEUE_SECONDS, step.queue_us / 1e6, label)
        self._put(m.RUNNING, step.running, label)
        if states is not None:
            self._put(m.WAITING_SECONDS, states[0], label)
            self._put(m.BLOCKED_SECONDS, states[1], label)
        self._put(m.OUTPUT_BYTES, step.bytes_out, label)
        self._put(m.OPTIMUM, step.optimum_ns / 1e9 or None, label)
        self._put(m.BOTTLENECK, int(i == moment.snapshot.bottleneck), label)
        self._put(m.ENDED, int(step.ended), label)
        if i < len(moment.worker_bytes) and moment.memory_bytes:
            self._put(m.WORKER_MEMORY, moment.worker_bytes[i], label)
            self._put(m.WORKER_PEAK, moment.steps_memory[i], label)

    def _workers(self, snapshot: Snapshot) -> None:
        shared = labels_of({"step": SHARED})
        if not all(step.dedicated for step in snapshot.steps):
            idle = {"idle": snapshot.shared_idle, "starting": snapshot.shared_starting}
            for state, count in idle.items():
                self._put(m.WORKERS, count, f'{shared},state="{state}"')
            self._put(m.WORKERS_STARTED, snapshot.shared_started, shared)
            self._put(m.WORKER_DEATHS, snapshot.shared_deaths, shared)
            self._put(m.WORKERS_RECYCLED, snapshot.shared_recycled, shared)
            self._put(m.WORKER_MEMORY, self._moment.idle_bytes, shared)
        for label, step in zip(self._steps, snapshot.steps, strict=True):
            states = {"busy": step.busy}
            if step.dedicated:
                states = step.states._asdict()
                self._put(m.WORKERS_STARTED, step.started, label)
                self._put(m.WORKERS_RECYCLED, step.recycled, label)
            for state, count in states.items():
                self._put(m.WORKERS, count, f'{label},state="{state}"')
            self._put(m.WORKERS_PLANNED, step.planned, label)
            self._put(m.WORKER_DEATHS, step.deaths, label)
            self._put(m.SETUPS, step.setups, label)
            self._put(m.SETUP_SECONDS, step.setup_us / 1e6, label)

    def _stages(self, stages: Iterable[StageMoment]) -> None:
        of_step: dict[int, list[StageMoment]] = {}
        for stage in stages:
            of_step.setdefault(stage.step, []).append(stage)
        for i, found in of_step.items():
            for name, stage in zip(_unique((x.name for x in found), "stage"), found, strict=True):
                label = f"{self._steps[i]},{name}"
                self._put(m.STAGE_TASKS_IN, stage.tasks_in, label)
                self._put(m.STAGE_ITEMS_IN, stage.items_in, label)
                self._put(m.STAGE_TASKS_OUT, stage.tasks_out, label)
                self._put(m.STAGE_ITEMS_OUT, stage.items_out, label)
                self._put(m.STAGE_DROPPED, stage.tasks_dropped, label)
                self._put(m.STAGE_FAILED, stage.tasks_failed, label)
                self._put(m.STAGE_ITEMS_FAILED, stage.items_failed, label)
                self._put(m.STAGE_BUSY, stage.busy_s, label)

    def _documents(self, x: DocumentsMoment) -> None:
        self._put(m.DOCUMENTS_READ, x.read)
        self._put(m.DOCUMENTS_MADE, x.made)
        self._put(m.DOCUMENTS_KEPT, x.kept)
        self._put(m.DOCUMENTS_MERGED, x.merged)
        self._put(m.DOCUMENTS_FAILED, x.failed)
        for (stage, reason), count in _capped(x.dropped).items():
            self._put(m.DOCUMENTS_DROPPED, count, f'stage="{stage}",reason="{reason}"')
        for (_, reason), count in _capped({("", reason): n for reason, n in x.errored.items()}).items():
            self._put(m.DOCUMENTS_ERRORED, count, f'reason="{reason}"')
        for (stage, name), count in _capped(x.counters).items():
            self._put(m.STAGE_COUNTS, count, f'stage="{stage}",name="{name}"')
        ended = x.kept + sum(x.dropped.values()) + x.merged + sum(x.errored.values())
        self._put(m.BALANCE, x.read + x.made - ended)
        self._put(m.PROBLEMS, x.problems)

    def _gpu(self, gpu: GpuSnapshot) -> None:
        label = f'gpu="{gpu.index}"'
        self._put(m.GPU_USE, gpu.busy_percent / 100, label)
        self._put(m.GPU_MEMORY, gpu.memory_bytes, label)
        self._put(m.GPU_SIZE, gpu.memory_total, label)
        self._put(m.GPU_WATTS, gpu.watts, label)
        by_step: dict[int, int] = {}
        for worker in gpu.workers:
            by_step[worker.step] = by_step.get(worker.step, 0) + worker.memory_bytes
        for step, size in by_step.items():
            self._put(m.GPU_WORKERS, size, f"{label},{self._steps[step]}")


def _fraction(moment: Moment) -> float | None:
    """Return the share of the input that is done, of its bytes if they are known."""
    done = moment.progress.fraction if moment.progress is not None else None
    return progress_of(moment.snapshot).fraction if done is None else done


_KEPT_GAUGES = (m.BALANCE, m.PROBLEMS)


def _unique(names: Iterable[str], label: str = "step") -> list[str]:
    """Return a label for each name. Names that are there already get a number: two samples must not be the same."""
    seen: set[str] = set()
    labels = []
    for name in names:
        text, number = labels_of({label: name}), 1
        while text in seen:
            number += 1
            text = labels_of({label: f"{name} ({number})"})
        seen.add(text)
        labels.append(text)
    return labels


def _capped(counts: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return counts by (stage, reason) as label values, with at most `MOST_REASONS` reasons of a stage.

    The first reasons that came up stay, so that no sample ever decreases. The others count as `OTHER`.
    """
    shown: dict[str, int] = {}
    capped: dict[tuple[str, str], int] = {}
    for (stage, reason), count in counts.items():
        key = label_value(stage), label_value(reason)
        if key not in capped:
            shown[key[0]] = shown.get(key[0], 0) + 1
            if shown[key[0]] > MOST_REASONS:
                key = key[0], OTHER
        capped[key] = capped.get(key, 0) + count
    return capped


def now_s() -> float:
    """Return the Unix time, to milliseconds."""
    return round(time.time(), 3)

"""The history of a run and its latest moment as plain values, for JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gristmill.dashboard.words import HIDDEN, MOST_NAME, kind_of, public, visible
from gristmill.metrics.history import Point
from gristmill.metrics.observer import DocumentsMoment, FailureMoment, Moment, PlanInfo, StageMoment
from gristmill.metrics.rates import Rates
from gristmill.scheduling.snapshot import Decision, Snapshot

MOST_REASONS = 50
"""Reasons for drops that are sent for a stage; the others are added up."""
MOST_ERRORS = 20


def plan(info: PlanInfo) -> dict[str, Any]:
    """What does not change while a plan runs."""
    return {
        "name": visible(info.name),
        "executor": info.executor,
        "steps": [
            {
                "name": visible(step.name),
                "stages": [visible(name) for name in step.stages],
                "cpus": step.cpus,
                "gpus": step.gpus,
                "gpu_memory_gb": step.gpu_memory_gb,
                "memory_gb": step.memory_gb,
                "batch_size": step.batch_size,
                "num_workers": step.num_workers,
            }
            for step in info.steps
        ],
    }


def point(p: Point) -> list[Any]:
    """One moment of the charts, as a short list: there are hundreds of them."""
    steps = [[s.busy, s.idle, s.starting, s.draining, s.queued, s.items_done] for s in p.steps]
    gpus = [list(p.gpu_busy_percent), list(p.gpu_memory_bytes)]
    return [round(p.at_s, 2), p.bottleneck, p.held_bytes + p.reserved_bytes, p.memory_bytes, *gpus, steps]


def decision(d: Decision) -> list[Any]:
    return [round(d.at_us / 1e6, 2), visible(d.text, 1_000)]


def failure(f: FailureMoment, show_text: bool) -> dict[str, Any]:
    error = public(f.error) if show_text else kind_of(f.error)
    return {
        "number": f.number,
        "task": visible(f.task_id),
        "stage": visible(f.stage),
        "error": error,
        "items": f.items,
    }


def moment(m: Moment, rates: Rates, states_s: Sequence[tuple[float, float]], show_text: bool) -> dict[str, Any]:
    """What the run looks like now."""
    snapshot, progress = m.snapshot, m.progress
    return {
        "at_s": round(snapshot.now_us / 1e6, 2),
        "eta_s": rates.eta_s,
        "fraction": rates.progress.fraction,
        "tasks": {"done": rates.progress.done, "total": rates.progress.total, "exact": rates.progress.exact},
        "input": None
        if progress is None
        else {
            "read": progress.read,
            "kept": progress.kept,
            "blocks": progress.blocks,
            "blocks_total": progress.blocks_total,
            "bytes": progress.bytes,
            "bytes_total": progress.bytes_total,
        },
        "source": {"taken": snapshot.source_taken, "total": snapshot.source_total},
        "draining": snapshot.draining,
        "bottleneck": snapshot.bottleneck,
        "memory": {"bytes": m.memory_bytes, "limit": m.memory_limit},
        "flight": {
            "held": snapshot.held_bytes,
            "reserved": snapshot.reserved_bytes,
            "budget": snapshot.budget_bytes,
        },
        "shared": {
            "busy": snapshot.shared_busy,
            "idle": snapshot.shared_idle,
            "starting": snapshot.shared_starting,
        },
        "steps": list(_steps(m, rates, states_s)),
        "stages": list(_stages(m.stages, m.documents)),
        "documents": None if m.documents is None else _documents(m.documents, show_text),
        "gpus": list(_gpus(snapshot)),
        "failures_total": m.failures_total,
    }


def _steps(m: Moment, rates: Rates, states: Sequence[tuple[float, float]]) -> Iterable[dict[str, Any]]:
    for i, s in enumerate(m.snapshot.steps):
        rate = rates.steps[i]
        waiting, blocked = states[i] if i < len(states) else (0.0, 0.0)
        yield {
            "dedicated": s.dedicated,
            **s.states._asdict(),
            "queued": s.queued,
            "queued_bytes": s.queued_bytes,
            "tasks_done": s.tasks_done,
            "items_done": s.items_done,
            "tasks_failed": s.tasks_failed,
            "tasks_per_s": round(rate.tasks_per_s, 4),
            "items_per_s": round(rate.items_per_s, 4),
            "busy_share": rate.busy_share,
            "service_s": s.service_us / 1e6,
            "ended": s.ended,
            "waits": s.waits_for_input,
            "blocked": s.blocked_by_output,
            "waiting_s": round(waiting, 2),
            "blocked_s": round(blocked, 2),
            "memory": m.steps_memory[i] if i < len(m.steps_memory) else 0,
        }


def _stages(stages: Sequence[StageMoment], documents: DocumentsMoment | None) -> Iterable[dict[str, Any]]:
    by_stage: dict[str, list[tuple[str, int]]] = {}
    for (stage, reason), n in () if documents is None else documents.dropped.items():
        by_stage.setdefault(stage, []).append((reason, n))
    for s in stages:
        reasons = sorted(by_stage.get(s.name, ()), key=lambda one: (-one[1], one[0]))
        yield {
            "step": s.step,
            "tasks_in": s.tasks_in,
            "items_in": s.items_in,
            "tasks_done": s.tasks_done,
            "tasks_out": s.tasks_out,
            "items_out": s.items_out,
            "tasks_dropped": s.tasks_dropped,
            "tasks_failed": s.tasks_failed,
            "items_failed": s.items_failed,
            "busy_s": round(s.busy_s, 2),
            "reasons": [[visible(reason), n] for reason, n in reasons[:MOST_REASONS]],
            "other_reasons": sum(n for _, n in reasons[MOST_REASONS:]),
        }


def _documents(d: DocumentsMoment, show_text: bool) -> dict[str, Any]:
    errors = sorted(d.errored.items(), key=lambda one: (-one[1], one[0]))[:MOST_ERRORS]
    return {
        "read": d.read,
        "made": d.made,
        "kept": d.kept,
        "merged": d.merged,
        "dropped": sum(d.dropped.values()),
        "errored": sum(d.errored.values()),
        "failed": d.failed,
        "errors": [[public(reason, MOST_NAME) if show_text else HIDDEN, n] for reason, n in errors],
        "problems": d.problems,
    }


def _gpus(snapshot: Snapshot) -> Iterable[dict[str, Any]]:
    for gpu in snapshot.gpus:
        by_step: dict[int, list[int]] = {}
        for worker in gpu.workers:
            by_step.setdefault(worker.step, []).append(worker.memory_bytes)
        yield {
            "index": gpu.index,
            "busy": gpu.busy_percent,
            "memory": gpu.memory_bytes,
            "total": gpu.memory_total,
            "watts": round(gpu.watts),
            "steps": [[step, len(sizes), sum(sizes)] for step, sizes in sorted(by_step.items())],
        }

"""Summaries of the state for people: snapshots and the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.scheduling.credit import fits_budget
from gristmill.scheduling.optimum import optimum_ns
from gristmill.scheduling.records import StepRec, WorkerState
from gristmill.scheduling.snapshot import Snapshot, StepSnapshot
from gristmill.scheduling.state import State

_SHOWN_DECISIONS = 8


def snapshot(s: State, items: Sequence[int] = ()) -> Snapshot:
    """Return the present state. ``items`` are those that each step has done, as the backend counts them."""
    items = items or [step.counts.items_done for step in s.steps]
    starting = sum(1 for w in s.shared.workers.values() if w.state is WorkerState.STARTING)
    return Snapshot(
        now_us=s.now,
        steps=tuple(_step(s, *of_step) for of_step in zip(s.steps, items, optimum_ns(s), strict=True)),
        bottleneck=bottleneck(s),
        held_bytes=s.budget.held,
        reserved_bytes=s.budget.reserved,
        budget_bytes=s.config.budget,
        source_taken=s.source.taken,
        source_total=s.source.total,
        draining=s.ending.draining,
        shared_busy=sum(1 for w in s.shared.workers.values() if w.assigned),
        shared_idle=sum(1 for w in s.shared.workers.values() if w.state is WorkerState.READY and not w.assigned),
        shared_starting=starting,
        decisions=tuple(s.decisions[-_SHOWN_DECISIONS:]),
        source_bytes=s.source.bytes,
        shared_started=s.shared.started,
        shared_deaths=s.shared.deaths,
        shared_recycled=s.shared.recycled,
    )


def _step(s: State, step: StepRec, items: int, optimum: int) -> StepSnapshot:
    if step.dedicated:
        workers = step.workers.values()
        busy = sum(1 for w in workers if w.assigned)
        starting = sum(1 for w in workers if w.state is WorkerState.STARTING)
        draining = sum(1 for w in workers if w.state is WorkerState.DRAINING)
        idle = len(step.workers) - busy - starting
    else:
        busy = sum(1 for w in s.shared.workers.values() if w.assigned and w.assigned[0].step == step.index)
        idle = starting = draining = 0
    waiting = step.queue.size
    return StepSnapshot(
        name=step.spec.name,
        dedicated=step.dedicated,
        busy=busy,
        idle=idle,
        starting=starting,
        queued=step.queue.size,
        queued_bytes=step.queue.bytes,
        running=step.running,
        tasks_done=step.counts.tasks_done,
        items_done=items,
        tasks_failed=step.counts.tasks_failed,
        busy_us=step.times.busy_us,
        service_us=step.service.service_us(),
        ended=step.ended,
        draining=draining,
        waits_for_input=not (waiting or step.running or step.suspended or step.ended),
        blocked_by_output=bool(waiting) and not fits_budget(s, step),
        units_done=step.counts.units_done,
        latency=tuple(step.times.latency.counts),
        latency_us=step.times.latency.total_us,
        queue_us=step.times.queue_us,
        retries=step.counts.retries,
        bytes_out=step.counts.output_bytes,
        started=step.started,
        deaths=step.deaths,
        recycled=step.recycled,
        setups=step.setup.count,
        setup_us=step.setup.total_us,
        planned=(0 if step.ended else step.plan.workers) if step.dedicated else None,
        optimum_ns=0 if step.ended else optimum,
    )


def bottleneck(s: State) -> int | None:
    """Return the step with the least throughput for what it has: service time x tasks per source task / workers."""
    worst, index = 0, None
    demand = 1_000_000
    cpus = max(1, sum(n.cpu for n in s.nodes.values()) // 1_000_000)
    for step in s.steps:
        if not step.ended and step.service.samples:
            workers = len(step.workers) if step.dedicated else max(1, cpus * 1_000_000 // max(step.spec.cpu, 1))
            load = step.service.service_us() * demand // max(1, workers)
            if load > worst:
                worst, index = load, step.index
        demand = demand * step.service.fan_out() // 1_000_000
    return index

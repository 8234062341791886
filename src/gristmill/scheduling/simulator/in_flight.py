"""Workers with several units in flight, in virtual time: units end in any order, time out, and share one event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.draws import mix, uniform
from gristmill.scheduling.simulator.model import Job, VirtualWorker

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.cluster import Cluster

    _Then = Callable[[Cluster, int, VirtualWorker, Job], None]

_UNREADABLE = 0.3
"""Share of dead workers whose own note cannot be read."""


def begin_units(world: Cluster, worker: int, w: VirtualWorker) -> None:
    """Begin the units that wait, in their order, while there are free slots."""
    while w.queue and not (w.stopping or w.returning or w.blocked) and len(w.running) + len(w.suspended) < w.limit:
        job = w.queue.popleft()
        lost = world.losses.cannot_load(job)
        if lost:
            world.report(worker, w, e.InputsLost(worker, job.key, lost))
            continue
        job.loaded = True
        world.take_up(worker, w, job)


def resume(world: Cluster, worker: int, w: VirtualWorker, job: Job) -> None:
    """Resume a suspended unit, which has kept its slot."""
    w.running[job.key] = job
    if not w.blocked:
        run(world, worker, w, job)


def run(world: Cluster, worker: int, w: VirtualWorker, job: Job) -> None:
    """Run a unit, or its next chunk: schedule its end, or that it is cancelled because it takes too long."""
    job.since = world.now
    w.running[job.key] = job
    model, data = world.models[job.step], job.data[0]
    timeout = world.specs[job.step].timeout_us
    if data.is_in(model.blocks):
        w.blocked = True
    elif data.is_in(model.hangs):
        if timeout is not None:
            _later(world, worker, job, timeout, _cancelled)
    elif not data.is_in(model.stubborn):
        _later(world, worker, job, world.service_time(worker, w, job), _ended)


def _later(world: Cluster, worker: int, job: Job, delay: int, then: _Then) -> None:
    """Continue with a unit after a while, unless it has ended, or its worker has died or is blocked, by then."""
    since = job.since

    def happen(x: Cluster) -> None:
        w = x.workers.get(worker)
        if w is not None and not w.stopping and not w.blocked and w.running.get(job.key) is job and job.since == since:
            then(x, worker, w, job)

    world.after(delay, happen)


def _ended(world: Cluster, worker: int, w: VirtualWorker, job: Job) -> None:
    if job.data[0].is_in(world.models[job.step].poison):
        world.die(worker, e.Death.CRASHED)
        return
    del w.running[job.key]
    world.report_unit(worker, w, job, world.now - job.since)
    world.start_next(worker, w)


def _cancelled(world: Cluster, worker: int, w: VirtualWorker, job: Job) -> None:
    del w.running[job.key]
    world.report(worker, w, e.UnitFailed(worker, job.key, "TimeoutError: cancelled", world.now - job.since))
    world.start_next(worker, w)


def note_of(world: Cluster, worker: int, w: VirtualWorker) -> tuple[int, ...] | None:
    """Return the note of a worker that has died, if it can be read."""
    if not w.limit or uniform(mix(mix(world.seed, 6_000_011), worker)) < _UNREADABLE:
        return None
    return tuple(w.running)

"""Units in workers: assigned, started or resumed, and which workers accept more."""

from __future__ import annotations

from gristmill.scheduling import in_flight
from gristmill.scheduling.commands import Dispatch, Input, Resume
from gristmill.scheduling.records import StepRec, TaskMove, TaskState, Unit, WorkerRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State

LONG_US = 250_000
"""Tasks longer than this gain nothing from waiting in a shared worker."""
VERY_LONG_US = 10 * UNIT
"""Tasks longer than this gain nothing from waiting in any worker."""


def assign(s: State, w: WorkerRec, unit: Unit) -> None:
    """Put a unit into a worker."""
    s.assign(w, unit)
    if unit.tasks[0].state == TaskState.SUSPENDED:
        _resume(s, w, unit)
    else:
        _start_unit(s, w, unit)
    update_accepting(s, w)


def _resume(s: State, w: WorkerRec, unit: Unit) -> None:
    for t in unit.tasks:
        t.move(TaskMove.RESUMED)
    s.unsuspend(w, unit)
    if w.begun is not None:
        w.begun[unit.key] = s.now
    s.out.append(Resume(w.id, unit.key))


def _start_unit(s: State, w: WorkerRec, unit: Unit) -> None:
    step = s.steps[unit.step]
    tasks = unit.tasks
    special = False
    for t in tasks:
        t.dispatch()
        if t.emitted or t.stop or t.data != t.id:
            special = True
    step.start_unit(unit, s.now)
    wanted = unit.begin()
    if w.step is None:
        if step.spec.lifetime_us is not None:
            w.aging[unit.step] = None
        if step.spec.has_setup and unit.step not in w.hosts:
            s.host(w, step)
    s.out.append(
        Dispatch(
            w.id,
            unit.step,
            tuple([t.id for t in tasks]),
            tuple([Input(t.id, t.data, t.start, t.stop, t.emitted, wanted) for t in tasks]) if special else (),
        )
    )


def update_accepting(s: State, w: WorkerRec) -> None:
    """Note whether a worker could take more work."""
    n = len(w.assigned)
    if w.step is not None:
        step = s.steps[w.step]
        if w.begun is not None:
            in_flight.begin(s, w)
        if _takes_work(w) and (n < step.depth if w.begun is None else in_flight.accepts(step, w)):
            step.accepting[w.id] = w
        else:
            step.accepting.pop(w.id, None)
        return
    idle, partly_busy = s.shared.idle, s.shared.partly_busy
    if not _takes_work(w) or n >= s.config.max_prefetch:
        idle.pop(w.id, None)
        partly_busy.pop(w.id, None)
    elif n == 0:
        idle[w.id] = w
        partly_busy.pop(w.id, None)
    else:
        partly_busy[w.id] = w
        idle.pop(w.id, None)


def _takes_work(w: WorkerRec) -> bool:
    if w.kill_cause is not None:
        return False
    if w.state is WorkerState.DRAINING:
        return bool(w.suspended)
    return w.state is WorkerState.READY and not (w.assigned and w.assigned[0].isolated)


def update_depth(s: State, step: StepRec) -> None:
    """Update how many units should be in a worker: enough for the prefetch time, beyond those in flight."""
    per_unit = step.service.service_us() * step.spec.batch_size
    if not per_unit:
        depth = 2 if step.dedicated else 1
    elif per_unit > (VERY_LONG_US if step.dedicated else LONG_US):
        depth = 1
    else:
        depth = max(2, min(s.config.max_prefetch, s.config.prefetch_us // per_unit))
    if step.spec.in_flight:
        depth = step.in_flight + (0 if step.spec.streams else depth - 1)
    if depth != step.depth:
        step.set_depth(depth)
        for w in step.workers.values():
            update_accepting(s, w)

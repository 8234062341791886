"""Progress of work: tasks arrive, units finish, tasks end."""

from __future__ import annotations

from collections.abc import Iterable

from gristmill.scheduling.assignment import update_accepting, update_depth
from gristmill.scheduling.commands import Cancel, Quarantine, Release
from gristmill.scheduling.credit import update_headroom
from gristmill.scheduling.estimates import ServiceEstimate
from gristmill.scheduling.events import Output, SourceGave, UnitEmitted, UnitFinished
from gristmill.scheduling.failure_policy import giving_up_note
from gristmill.scheduling.in_flight import take_out
from gristmill.scheduling.lost_data.lineage import data_consumed, end_rebuild, note_held, record_outputs
from gristmill.scheduling.records import IllegalTransition, StepRec, TaskMove, TaskRec, TaskState, Unit, WorkerRec
from gristmill.scheduling.state import State

DRIFT = 8
"""A service time or fan-out that moved by more than one part in so many since the last plan is news."""


def enqueue(s: State, step: StepRec, outputs: Iterable[Output]) -> None:
    """Add tasks to a step."""
    overhead = s.config.task_overhead
    total = 0
    tasks = []
    for o in outputs:
        size = o.bytes + overhead
        t = TaskRec(o.id, step.index, size, o.items, o.divisible, o.id, s.now)
        if o.id in s.tasks:
            raise IllegalTransition(f"task {o.id} exists already")
        s.tasks[o.id] = t
        tasks.append(t)
        total += size
    step.receive(tasks, total)
    s.budget.hold(total)


def pull_answered(s: State) -> None:
    s.budget.reserve(-s.source.answer())


def source_gave(s: State, e: SourceGave) -> None:
    s.balance.add_evidence()
    pull_answered(s)
    if s.ending.draining or s.ending.stopping:
        s.out.append(Release(tuple(o.id for o in e.outputs), cancelled=True))
        return
    s.source.take([o.bytes for o in e.outputs], s.config.task_overhead)
    enqueue(s, s.steps[0], e.outputs)


def take_head(s: State, w: WorkerRec, key: int, busy_us: int = 0) -> Unit:
    """Remove the unit that a worker has just dealt with, in so much time.

    Workers deal with their units in order, unless they have several in flight.
    """
    if w.begun is not None:
        return take_out(s, w, key)
    if not w.assigned or w.assigned[0].key != key:
        for unit in w.assigned:
            if unit.key == key:
                raise IllegalTransition(f"worker {w.id} dealt with unit {key} out of turn")
        raise IllegalTransition(f"worker {w.id} dealt with unit {key}, which it does not have")
    unit = w.assigned.popleft()
    s.balance.add_evidence()
    s.unassign(w, unit)
    s.steps[unit.step].times.add_head(s.now - w.head_since, busy_us)
    w.head_since = s.now
    return unit


def remove_units(s: State, w: WorkerRec) -> list[Unit]:
    """Take all units from a worker, assigned ones first. The caller moves their tasks on."""
    units = [*w.assigned, *w.suspended.values()]
    while w.assigned:
        s.unassign(w, w.assigned.popleft())
    if w.begun:
        w.begun.clear()
    for unit in list(w.suspended.values()):
        s.unsuspend(w, unit)
    return units


def finished(s: State, w: WorkerRec, e: UnitFinished) -> None:
    unit = take_head(s, w, e.unit, e.busy_us)
    step = s.steps[unit.step]
    tasks = unit.tasks
    n = len(tasks)
    for o in e.outputs:
        if o.losable:
            record_outputs(s, step, unit, e.outputs)
            break
    latency_us = whole_us = unit.part_us + e.busy_us
    if step.in_flight:
        whole_us //= step.in_flight
    step.finish_unit(tasks, whole_us, latency_us)
    _measure(s, step, e.outputs, whole_us, n)
    if len(s.kinds) > 1 and w.node in s.nodes:
        kind = s.nodes[w.node].kind
        if kind not in step.by_kind:
            step.by_kind[kind] = ServiceEstimate()
        step.by_kind[kind].add(n, whole_us, len(e.outputs))
    for t in tasks:
        t.move(TaskMove.FINISHED)
        retire(s, step, t)
    _pass_on(s, step, e.outputs)
    if step.plan.claim_rebalance(step.counts.tasks_done) or _drifted(step):
        s.balance.request(f"{step.spec.name} was measured")
    if step.counts.units_done & 15 < 2 or step.counts.units_done < 8:
        update_depth(s, step)
    update_accepting(s, w)


def emitted(s: State, w: WorkerRec, e: UnitEmitted) -> None:
    unit = take_head(s, w, e.unit, e.busy_us)
    step = s.steps[unit.step]
    _measure(s, step, e.outputs, (unit.part_us + e.busy_us) // (len(unit.tasks) * max(1, step.in_flight)), 0)
    if any(o.losable for o in e.outputs):
        record_outputs(s, step, unit, e.outputs)
    unit.deliver(e.busy_us, e.outputs)
    s.suspend(w, unit)
    _pass_on(s, step, e.outputs)
    update_accepting(s, w)
    if s.ending.draining and step.index == 0:
        cancel_suspended(s, w, unit)


def _measure(s: State, step: StepRec, outputs: tuple[Output, ...], busy_us: int, tasks: int) -> None:
    if tasks:
        step.service.add(tasks, busy_us, len(outputs))
    else:
        step.service.add_part(busy_us, len(outputs))
    is_last = step.index == len(s.steps) - 1
    size = 0
    if not is_last:
        for o in outputs:
            size += o.bytes
    step.counts.add_outputs(len(outputs), size, is_chunk=not tasks)
    if not is_last and step.size.add((size + s.config.task_overhead * len(outputs)) // (tasks or 1)):
        update_headroom(s)


def _pass_on(s: State, step: StepRec, outputs: tuple[Output, ...]) -> None:
    if outputs and step.index + 1 < len(s.steps):
        enqueue(s, s.steps[step.index + 1], outputs)


def _drifted(step: StepRec) -> bool:
    planned = step.plan.service_us
    if not planned or step.service.samples < 8:
        return False
    return abs(step.service.service_us() - planned) * DRIFT > planned


def retire(s: State, step: StepRec, t: TaskRec) -> None:
    """Count a task that is done, quarantined or cancelled, and release its data."""
    record = s.lost.records.get(t.data) if s.lost.records else None
    if record is None:
        s.budget.release(t.bytes)
    else:
        note_held(s, record, t.bytes)
    del s.tasks[t.id]
    state = t.state
    cancelled = state is TaskState.CANCELLED
    if t.stop:
        whole = s.slices[t.data]
        whole.retire(state)
        if whole.live:
            step.count_live(-1)
            return
        del s.slices[t.data]
        cancelled = whole.cancelled > 0
        state = whole.outcome
    step.retire(state)
    if record is None:
        s.out.append(Release((t.data,), cancelled))
    else:
        data_consumed(s, record, cancelled)


def give_up(s: State, step: StepRec, t: TaskRec, error: str) -> None:
    """Quarantine a queued task, or a slice of one."""
    t.move(TaskMove.GIVEN_UP)
    t.note(s.now, giving_up_note(t.start, t.stop))
    step.counts.fail_items(t.items)
    s.out.append(Quarantine(t.id, t.data, step.index, t.start, t.stop, t.items, error, tuple(t.story or ())))
    retire(s, step, t)
    if not s.config.ignore_failures:
        drain_run(s)


def cancel_suspended(s: State, w: WorkerRec, unit: Unit) -> None:
    step = s.steps[unit.step]
    s.unsuspend(w, unit)
    s.out.append(Cancel(w.id, unit.key))
    for t in unit.tasks:
        cancel(s, step, t)
    update_accepting(s, w)


def cancel(s: State, step: StepRec, t: TaskRec) -> None:
    t.move(TaskMove.CANCELLED)
    if s.lost.rebuilds and t.id in s.lost.rebuilds:
        end_rebuild(s, s.lost.rebuilds[t.id])
    else:
        retire(s, step, t)


def cancel_queued(s: State, step: StepRec, everything: bool = False) -> None:
    """Cancel all that waits at a step; units that make lost data again for a later step only with ``everything``."""
    queue = step.queue
    dropped = queue.take_tasks(lambda t: True)
    for unit in queue.take_units(lambda unit: everything or unit.rebuild is None):
        dropped += unit.tasks
        if unit.isolated:
            s.suspects.count_queued(unit, step.dedicated, -1)
    if everything:
        for unit in list(queue.stalled.values()):
            queue.unstall(unit)
            dropped += unit.tasks
    for t in dropped:
        cancel(s, step, t)


def drain_run(s: State) -> None:
    """Take no more tasks and finish what is under way: a failure must not be followed by days of work."""
    if s.ending.draining:
        return
    s.ending.drain()
    s.source.end()
    first = s.steps[0]
    cancel_queued(s, first)
    for w in list(s.workers.values()):
        for unit in list(w.suspended.values()):
            if unit.step == 0 and unit.rebuild is None:
                cancel_suspended(s, w, unit)

"""Tasks coming in and units getting done."""

from __future__ import annotations

from collections.abc import Iterable

from gristmill.scheduling.commands import Cancel, Quarantine, Release
from gristmill.scheduling.credit import hold, update_headroom
from gristmill.scheduling.dispatch import count_suspects, update_accepting, update_depth
from gristmill.scheduling.estimates import ServiceEstimate
from gristmill.scheduling.events import Output, SourceGave, UnitEmitted, UnitFinished
from gristmill.scheduling.failure_policy import giving_up_note
from gristmill.scheduling.lost_data.lineage import consumed, end_rebuild, note_held, record
from gristmill.scheduling.state import IllegalTransition, Move, State, StepRec, TaskRec, TaskState, Unit, WorkerRec

DRIFT = 8
"""A service time or fan-out that moved by more than one part in so many since the last plan is news."""


def enqueue(s: State, step: StepRec, outputs: Iterable[Output]) -> None:
    """Tasks arrive at a step."""
    overhead = s.config.task_overhead
    total = 0
    n = 0
    for o in outputs:
        size = o.bytes + overhead
        t = TaskRec(o.id, step.index, size, o.items, o.divisible, o.id, s.now)
        if o.id in s.tasks:
            raise IllegalTransition(f"task {o.id} exists already")
        s.tasks[o.id] = t
        step.queue.tasks.append(t)
        total += size
        n += 1
    step.live += n
    step.queue.size += n
    step.counts.tasks_in += n
    step.queue.bytes += total
    hold(s, total)


def pull_answered(s: State) -> None:
    s.source.pulling = False
    s.budget.reserved -= s.source.reserved
    s.source.reserved = 0


def source_gave(s: State, e: SourceGave) -> None:
    s.balance.evidence += 1
    pull_answered(s)
    if s.ending.draining or s.ending.stopping:
        s.out.append(Release(tuple(o.id for o in e.outputs), cancelled=True))
        return
    s.source.taken += len(e.outputs)
    for o in e.outputs:
        s.source.bytes += o.bytes
        s.source.size.add(o.bytes + s.config.task_overhead)
    enqueue(s, s.steps[0], e.outputs)


def take_head(s: State, w: WorkerRec, key: int) -> Unit:
    """Remove the unit that a worker has just dealt with; workers deal with their units in order."""
    if not w.assigned or w.assigned[0].key != key:
        for unit in w.assigned:
            if unit.key == key:
                raise IllegalTransition(f"worker {w.id} dealt with unit {key} out of turn")
        raise IllegalTransition(f"worker {w.id} dealt with unit {key}, which it does not have")
    unit = w.assigned.popleft()
    s.balance.evidence += 1
    unassign(s, w, unit)
    s.steps[unit.step].times.head_us += s.now - w.head_since
    w.head_since = s.now
    return unit


def unassign(s: State, w: WorkerRec, unit: Unit) -> None:
    """A unit no longer occupies its worker. Its tasks have yet to be moved on by the caller."""
    step = s.steps[unit.step]
    s.running -= 1
    s.suspects.solo_running -= unit.solo
    step.running -= 1
    s.budget.reserved -= unit.reserved
    unit.reserved = 0
    unit.worker = -1
    node = s.nodes.get(w.node)
    if node is None:
        return
    if w.assigned and s.shared.uniform:
        return
    cpu = max((s.steps[u.step].spec.cpu for u in w.assigned), default=0)
    if cpu != w.cpu_held:
        node.cpu_busy -= w.cpu_held - cpu
        if w.step is None:
            node.shared_cpu_busy -= w.cpu_held - cpu
        w.cpu_held = cpu
    if w.memory_held:
        memory = max((s.steps[u.step].spec.memory for u in w.assigned), default=0)
        node.shared_memory_busy -= w.memory_held - memory
        w.memory_held = memory


def finished(s: State, w: WorkerRec, e: UnitFinished) -> None:
    unit = take_head(s, w, e.unit)
    step = s.steps[unit.step]
    tasks = unit.tasks
    n = len(tasks)
    for o in e.outputs:
        if o.losable:
            record(s, step, unit, e.outputs)
            break
    whole_us = unit.part_us + e.busy_us
    step.times.busy_us += e.busy_us
    step.times.busy_squares += whole_us * whole_us // n
    _learn(s, step, e.outputs, whole_us, n)
    if len(s.kinds) > 1 and w.node in s.nodes:
        kind = s.nodes[w.node].kind
        if kind not in step.by_kind:
            step.by_kind[kind] = ServiceEstimate()
        step.by_kind[kind].add(n, whole_us, len(e.outputs))
    for t in tasks:
        t.move(Move.FINISHED)
        step.counts.items_done += t.items
        retire(s, step, t)
    step.counts.units_done += 1
    _pass_on(s, step, e.outputs)
    due = step.counts.tasks_done >= step.plan.next_rebalance
    if due:
        step.plan.next_rebalance = max(step.plan.next_rebalance * 3, step.counts.tasks_done + 1)
    if due or _drifted(step):
        s.balance.reason = s.balance.reason or f"{step.spec.name} was measured"
    if step.counts.units_done & 15 < 2 or step.counts.units_done < 8:
        update_depth(s, step)
    update_accepting(s, w)


def emitted(s: State, w: WorkerRec, e: UnitEmitted) -> None:
    unit = take_head(s, w, e.unit)
    step = s.steps[unit.step]
    step.times.busy_us += e.busy_us
    step.counts.chunks += 1
    unit.part_us += e.busy_us
    _learn(s, step, e.outputs, unit.part_us // len(unit.tasks), 0)
    if any(o.losable for o in e.outputs):
        record(s, step, unit, e.outputs)
    by_id = {t.id: t for t in unit.tasks}
    for o in e.outputs:
        by_id[o.parent].emitted += 1
    for t in unit.tasks:
        t.move(Move.EMITTED)
    unit.solo = False
    unit.chunks += 1
    unit.replay = 0
    w.suspended[unit.key] = unit
    step.suspended += 1
    _pass_on(s, step, e.outputs)
    update_accepting(s, w)
    if s.ending.draining and step.index == 0:
        cancel_suspended(s, w, unit)


def _learn(s: State, step: StepRec, outputs: tuple[Output, ...], busy_us: int, tasks: int) -> None:
    if tasks:
        step.service.add(tasks, busy_us, len(outputs))
        per_task = busy_us // tasks
        if per_task > step.times.service_max_us:
            step.times.service_max_us = per_task
    else:
        step.service.add_part(busy_us, len(outputs))
    if step.index < len(s.steps) - 1:
        overhead = s.config.task_overhead
        total = 0
        for o in outputs:
            total += o.bytes + overhead
        step.counts.output_bytes += total - overhead * len(outputs)
        if step.size.add(total // max(tasks, 1)):
            update_headroom(s)


def _pass_on(s: State, step: StepRec, outputs: tuple[Output, ...]) -> None:
    step.counts.outputs += len(outputs)
    if outputs and step.index + 1 < len(s.steps):
        enqueue(s, s.steps[step.index + 1], outputs)


def _drifted(step: StepRec) -> bool:
    planned = step.plan.service_us
    if not planned or step.service.samples < 8:
        return False
    return abs(step.service.service_us() - planned) * DRIFT > planned


def retire(s: State, step: StepRec, t: TaskRec) -> None:
    """A task is done, quarantined or cancelled: count it and let its data go."""
    piece = s.lost.records.get(t.data) if s.lost.records else None
    if piece is None:
        s.budget.held -= t.bytes
    else:
        note_held(s, piece, t.bytes)
    step.live -= 1
    del s.tasks[t.id]
    state = t.state
    cancelled = state is TaskState.CANCELLED
    if t.stop:
        whole = s.slices[t.data]
        whole.live -= 1
        whole.done += state is TaskState.DONE
        whole.failed += state is TaskState.QUARANTINED
        whole.cancelled += state is TaskState.CANCELLED
        if whole.live:
            return
        del s.slices[t.data]
        cancelled = whole.cancelled > 0
        if whole.done:
            state = TaskState.DONE
        elif whole.cancelled:
            state = TaskState.CANCELLED
    if state is TaskState.DONE:
        step.counts.tasks_done += 1
    elif state is TaskState.CANCELLED:
        step.counts.tasks_cancelled += 1
    else:
        step.counts.tasks_failed += 1
    if piece is None:
        s.out.append(Release((t.data,), cancelled))
    else:
        consumed(s, piece, cancelled)


def give_up(s: State, step: StepRec, t: TaskRec, error: str) -> None:
    """A task, or a slice of one, that waits is quarantined."""
    t.move(Move.GIVEN_UP)
    t.note(s.now, giving_up_note(t.start, t.stop))
    step.counts.items_failed += t.items
    s.out.append(Quarantine(t.id, t.data, step.index, t.start, t.stop, t.items, error, tuple(t.story or ())))
    retire(s, step, t)
    if not s.config.ignore_failures:
        drain_run(s)


def cancel_suspended(s: State, w: WorkerRec, unit: Unit) -> None:
    step = s.steps[unit.step]
    del w.suspended[unit.key]
    step.suspended -= 1
    s.out.append(Cancel(w.id, unit.key))
    for t in unit.tasks:
        cancel(s, step, t)
    update_accepting(s, w)


def cancel(s: State, step: StepRec, t: TaskRec) -> None:
    t.move(Move.CANCELLED)
    if s.lost.rebuilds and t.id in s.lost.rebuilds:
        end_rebuild(s, s.lost.rebuilds[t.id])
    else:
        retire(s, step, t)


def cancel_queued(s: State, step: StepRec, everything: bool = False) -> None:
    """Drop all that waits at a step; what makes lost data again for a later one only with ``everything``."""
    dropped = list(step.queue.tasks)
    step.queue.tasks.clear()
    for queue in (step.queue.retries, step.queue.suspects):
        for unit in list(queue):
            if everything or unit.rebuild is None:
                dropped += unit.tasks
                queue.remove(unit)
                if queue is step.queue.suspects:
                    count_suspects(s, step, -1)
                    s.suspects.solo -= unit.solo
    step.queue.size -= len(dropped)
    step.queue.bytes -= sum(t.bytes for t in dropped)
    if everything:
        dropped += [t for unit in step.queue.stalled.values() for t in unit.tasks]
        step.queue.stalled.clear()
        step.queue.stalled_tasks = 0
    for t in dropped:
        cancel(s, step, t)


def drain_run(s: State) -> None:
    """Take in nothing more and finish what is under way; a failure must not be followed by days of work."""
    if s.ending.draining:
        return
    s.ending.draining = True
    s.source.ended = True
    first = s.steps[0]
    cancel_queued(s, first)
    for w in list(s.workers.values()):
        for unit in list(w.suspended.values()):
            if unit.step == 0 and unit.rebuild is None:
                cancel_suspended(s, w, unit)

"""Recovery of lost data: units wait for it, and other units make it again.

A unit with lost data is *stalled*: out of its queue, but live and held. What it lacks is *wanted*: a unit of the step
before (`Rebuild`), run on the same input, that delivers only what was lost. If that input is gone as well, this unit is
stalled in its turn, and so on up to an input that is there. When data arrives, the units that waited for it continue;
their tasks change only in the id of their data. Tasks whose data cannot be made again are given up with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.scheduling.commands import Release
from gristmill.scheduling.events import Output
from gristmill.scheduling.lost_data.lineage import end_rebuild, release_unneeded
from gristmill.scheduling.lost_data.records import DataRec, Rebuild
from gristmill.scheduling.progress import give_up
from gristmill.scheduling.records import StepRec, TaskMove, TaskRec, TaskState, Unit
from gristmill.scheduling.state import State


def requeue(s: State, step: StepRec, unit: Unit) -> None:
    """Queue a unit for another attempt, ahead of untried tasks. If its data is lost, it waits for that."""
    if unit.rebuild is not None and not unit.rebuild.wanted:
        _drop_rebuild(s, unit, "")  # all that was wanted is there
        return
    if s.lost.records:
        missing = [x for t in unit.tasks if (x := s.lost.records.get(t.data)) is not None and not x.available]
        if missing:
            _stall_part(s, step, unit, missing)
            return
    unit.queue(s.now)
    step.queue.put(unit)
    if unit.isolated:
        s.suspects.count_queued(unit, step.dedicated, 1)


def requeue_uncounted(s: State, step: StepRec, unit: Unit) -> None:
    """Queue a unit again as if this attempt had not been made."""
    for t in unit.tasks:
        t.lose_uncounted()
    requeue(s, step, unit)


def _stall_part(s: State, step: StepRec, unit: Unit, missing: list[DataRec]) -> None:
    """Stall only the tasks of a batch that lack their data, unless the batch must stay together."""
    if len(unit.tasks) == 1 or unit.isolated or unit.chunks:
        stall(s, step, unit, missing)
        return
    lost = {x.data: x for x in missing}
    loose = [(t, lost[t.data]) for t in unit.tasks if t.data in lost]
    unit.drop(lost)
    if unit.tasks:
        requeue(s, step, unit)
    for t, record in loose:
        stall(s, step, Unit(step.index, [t], loose=True), [record])


def stall(s: State, step: StepRec, unit: Unit, missing: Sequence[DataRec]) -> None:
    """Let a unit that is in no queue wait for lost data."""
    step.queue.stall(unit)
    for record in missing:
        record.stall(unit)
    for record in missing:
        request_rebuild(s, record)


def _unstall(s: State, unit: Unit) -> StepRec:
    step = s.steps[unit.step]
    step.queue.unstall(unit)
    return step


def request_rebuild(s: State, record: DataRec) -> None:
    """Request that lost data is made again, unless it already is."""
    if record.available or not record.stalled:
        return
    if record.rebuilding:
        _fetch_origin(s, record)  # what waits for it now may be fetched
        return
    parent = record.parent
    if parent is None or record.unrecoverable:
        give_up_data(s, record, record.unrecoverable or "nothing is left that it could be made from")
        return
    if not record.live and not record.fetched:
        if not _may_fetch(s) and not _is_needed_by_fetched(record):
            s.lost.deferred[record.data] = record
            return
        s.lost.fetch(record)
    record.rebuild()
    _make_from(s, record, parent)
    _fetch_origin(s, record)


def _make_from(s: State, record: DataRec, parent: DataRec) -> None:
    """Add lost data to a unit that makes such data again and has not begun, or queue a new unit."""
    for unit in parent.rebuilds:
        rebuild = unit.rebuild
        assert rebuild is not None
        if unit.tasks[0].state is TaskState.QUEUED and (rebuild.start, rebuild.stop) == (record.start, record.stop):
            rebuild.wanted[record.position] = record
            return
    step = s.steps[record.step - 1]
    t = TaskRec(s.new_slice_id(), step.index, 0, 1, False, parent.data, s.now, start=record.start, stop=record.stop)
    s.tasks[t.id] = t
    unit = Unit(step.index, [t], rebuild=Rebuild(parent, record.start, record.stop, {record.position: record}))
    s.lost.rebuilds[t.id] = unit
    parent.rebuilds.append(unit)
    step.count_rebuild(1)
    if step.ended or (step.dedicated and not step.workers):
        step.reopen()
        s.balance.request(f"{step.spec.name} has lost data to make again")
    requeue(s, step, unit)


def fetch_deferred(s: State) -> None:
    """Make again what had to wait because that exceeds the budget."""
    while s.lost.deferred and _may_fetch(s):
        request_rebuild(s, s.lost.deferred.popitem()[1])


def _may_fetch(s: State) -> bool:
    """Data of tasks that are done needs memory beyond what is held. One chain of it at a time may always be made."""
    return not s.lost.fetched or s.budget.used <= s.config.budget


def _is_needed_by_fetched(record: DataRec) -> bool:
    """Whether fetched data is made from this record, directly or through other lost data."""
    return any(
        unit.rebuild is not None and any(x.fetched or _is_needed_by_fetched(x) for x in unit.rebuild.wanted.values())
        for unit in record.stalled
    )


def _fetch_origin(s: State, record: DataRec) -> None:
    """Stop deferring the data that a record is made from, if it is fetched or fetched data is made from it.

    Otherwise the fetched record waits for deferred data, and the deferred data waits until nothing is fetched.
    """
    if not s.lost.deferred or not (record.fetched or _is_needed_by_fetched(record)):
        return
    origin = record.parent
    while origin is not None and waits_for(record, origin):
        if s.lost.deferred.pop(origin.data, None) is not None:
            request_rebuild(s, origin)
            return
        record, origin = origin, origin.parent


def waits_for(record: DataRec, origin: DataRec) -> bool:
    """Whether the unit that makes a record again waits for its input."""
    return any(
        unit.rebuild is not None and any(x is record for x in unit.rebuild.wanted.values()) for unit in origin.stalled
    )


def accept_rebuilt(s: State, record: DataRec, o: Output) -> None:
    """Let the units that wait for lost data continue: it was made again."""
    old = record.data
    if s.lost.records.get(old) is not record:
        s.out.append(Release((o.id,)))  # it is no longer needed
        return
    t = s.tasks.get(record.task)
    tasks = [t] if t is not None and t.data == old else []
    if old in s.slices:
        tasks = [x for x in s.tasks.values() if x.data == old and x.id not in s.lost.rebuilds]
        s.slices[o.id] = s.slices.pop(old)
    for t in (*tasks, *(unit.tasks[0] for unit in record.rebuilds)):
        t.run_on(o.id)
    if not record.released:
        s.out.append(Release((old,)))
    del s.lost.records[old]
    s.lost.records[o.id] = record
    record.arrive(o.id, o.losable)
    if not record.live:
        size = o.bytes + s.config.task_overhead
        record.hold(size)
        s.budget.hold(size)
    for unit in record.take_stalled():
        unit.count_missing(-1)
        if not unit.missing:
            _wake(s, unit)
    release_unneeded(s, record)


def _wake(s: State, unit: Unit) -> None:
    step = _unstall(s, unit)
    if not unit.loose:
        requeue(s, step, unit)
        return
    t = unit.tasks[0]
    t.queue(s.now)
    step.queue.put_first(t)


def give_up_data(s: State, record: DataRec, why: str, story: Sequence[str] = ()) -> None:
    """Give up the tasks that need lost data which cannot be made again, themselves or through other data."""
    record.mark_unrecoverable(why)
    for unit in record.take_stalled():
        step = _unstall(s, unit)
        if unit.rebuild is not None:
            _drop_rebuild(s, unit, why, story)
            continue
        lost = [t for t in unit.tasks if t.data == record.data]
        unit.drop({record.data})
        unit.count_missing(-1)
        if unit.tasks:
            step.queue.stall(unit)
            if not unit.missing:
                _wake(s, unit)
        for t in lost:
            for line in story:
                t.note(s.now, f"while its data was made again: {line}")
            t.note(s.now, f"its data was lost and could not be made again: {why}")
            give_up(s, step, t, f"its data was lost and could not be made again: {why}")
    release_unneeded(s, record)


def _drop_rebuild(s: State, unit: Unit, why: str, story: Sequence[str] = ()) -> None:
    """Give up a waiting unit that should make lost data again."""
    assert unit.rebuild is not None
    unit.tasks[0].move(TaskMove.CANCELLED)
    end_rebuild(s, unit)
    for record in list(unit.rebuild.wanted.values()):
        give_up_data(s, record, why, story)


def fail_rebuild(s: State, unit: Unit, error: str) -> None:
    """A unit that should make lost data again is at fault, like any other that fails so often."""
    why = f"'{s.steps[unit.step].spec.name}' failed when it was run for it: {first_line(error)}"
    _drop_rebuild(s, unit, why, unit.tasks[0].story or ())


def first_line(error: str) -> str:
    return error.strip().splitlines()[0] if error.strip() else "no message"

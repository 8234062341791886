"""The lineage of data: what lost data can be made from again, kept only while that may be needed.

- A record (`DataRec`) is kept of each output that can be lost: from which input, which slice of it, at which position.
- An input that cannot be lost itself is kept, its `Release` delayed, while such an output of it is live or is what
  live data was made from. One that can be lost is released when it is done; if necessary it is made again as well.
- So what is kept is bounded by what is live, and ends with it.

Outputs that cannot be lost have no record, and a run without others pays nothing for all this.
"""

from __future__ import annotations

from gristmill.scheduling.commands import Release
from gristmill.scheduling.events import Output
from gristmill.scheduling.lost_data.records import DataRec
from gristmill.scheduling.records import StepRec, TaskRec, Unit
from gristmill.scheduling.state import State


def record_outputs(s: State, step: StepRec, unit: Unit, outputs: tuple[Output, ...]) -> None:
    """Record how the losable outputs of a unit were made. Call it before its tasks are counted as done."""
    if step.index + 1 == len(s.steps):
        return
    tasks = {t.id: t for t in unit.tasks}
    positions = {t.id: t.emitted for t in unit.tasks}
    for o in outputs:
        t = tasks.get(o.parent, unit.tasks[0] if len(tasks) == 1 else None)
        if o.losable:
            record = s.lost.records[o.id] = DataRec(o.id, o.id, step.index + 1, True)
            if t is not None:
                record.derive(_ensure_record(s, t), t.start, t.stop, positions[t.id], unit.chunks)
        if t is not None:
            positions[t.id] += 1


def _ensure_record(s: State, t: TaskRec) -> DataRec:
    record = s.lost.records.get(t.data)
    if record is None:
        record = s.lost.records[t.data] = DataRec(t.data, t.id, t.step, False)
    return record


def note_held(s: State, record: DataRec, size: int) -> None:
    """Count the data of a task or slice that has ended as held by its record, if it stays."""
    if record.rebuilds or (record.children and not record.losable):
        record.hold(size)
    else:
        s.budget.release(size)


def data_consumed(s: State, record: DataRec, cancelled: bool) -> None:
    """Note that no task needs the data any more, and release what it kept."""
    record.consume(cancelled)
    release_unneeded(s, record)


def release_unneeded(s: State, record: DataRec | None) -> None:
    """Release a record, and those that it was made from, as far as they are no longer needed."""
    while record is not None and s.lost.records.get(record.data) is record:
        if record.live or record.rebuilds:
            return
        if record.fetched:
            s.lost.fetch(record, False)
        if not (record.children and not record.losable):
            _release(s, record)
        if record.children:
            return
        del s.lost.records[record.data]
        record = record.parent
        if record is not None:
            record.remove_child()


def _release(s: State, record: DataRec) -> None:
    if not record.released:
        s.out.append(Release((record.data,), record.cancelled))
        s.budget.release(record.release())


def end_rebuild(s: State, unit: Unit) -> None:
    """Remove a unit that made lost data again."""
    step = s.steps[unit.step]
    assert unit.rebuild is not None
    del s.lost.rebuilds[unit.key]
    del s.tasks[unit.key]
    step.count_rebuild(-1)
    parent = unit.rebuild.parent
    parent.rebuilds.remove(unit)
    release_unneeded(s, parent)

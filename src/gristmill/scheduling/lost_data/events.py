"""Events: data is lost, and lost data was made again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from gristmill.scheduling.assignment import update_accepting
from gristmill.scheduling.events import DataLost, InputsLost, UnitEmitted, UnitFinished
from gristmill.scheduling.lost_data.lineage import end_rebuild
from gristmill.scheduling.lost_data.records import DataRec
from gristmill.scheduling.lost_data.recovery import (
    accept_rebuilt,
    give_up_data,
    request_rebuild,
    requeue,
    requeue_uncounted,
    stall,
)
from gristmill.scheduling.progress import take_head
from gristmill.scheduling.records import IllegalTransition, TaskMove, TaskRec, Unit, WorkerRec
from gristmill.scheduling.state import State


def data_lost(s: State, e: DataLost) -> None:
    if not s.ending.stopping:
        _stall_waiting(s, _mark_lost(s, e.tasks))


def inputs_lost(s: State, w: WorkerRec, e: InputsLost) -> None:
    """Queue the unit again without counting an attempt. It waits for its data."""
    unit = take_head(s, w, e.unit)
    lost = _mark_lost(s, e.tasks)
    requeue_uncounted(s, s.steps[unit.step], unit)
    _stall_waiting(s, lost)
    update_accepting(s, w)


def _mark_lost(s: State, ids: Iterable[int]) -> list[DataRec]:
    """Mark data as lost. Data that was not expected to be lost gets a record now; it cannot be made again."""
    found = []
    for data in ids:
        record = s.lost.records.get(data)
        if record is None:
            t = s.tasks.get(data)
            if t is None and data in s.slices:
                t = next(t for t in s.tasks.values() if t.data == data)
            if t is None or t.data != data:
                continue
            record = s.lost.records[data] = DataRec(data, t.id, t.step, False)
        if not record.available:
            continue
        record.lose(s.config.isolated_kills)
        s.lost.count_loss()
        found.append(record)
    if found:
        s.balance.add_evidence()
        s.decide(f"data of {len(found)} tasks was lost")
    return found


def _stall_waiting(s: State, records: list[DataRec]) -> None:
    """Stall queued work that needs this data. Units in a worker continue: they may have loaded it."""
    by_step: dict[int, dict[int, DataRec]] = {}
    for record in records:
        by_step.setdefault(record.step, {})[record.data] = record
    for index, lost in by_step.items():
        step = s.steps[index]
        for unit in step.queue.stalled.values():
            for t in unit.tasks:
                if t.data in lost and unit not in lost[t.data].stalled:
                    lost[t.data].stall(unit)
        tasks = step.queue.take_tasks(partial(_is_lost, lost))
        units = step.queue.take_units(partial(_lacks_data, lost))
        for unit in units:
            if unit.isolated:
                s.suspects.count_queued(unit, step.dedicated, -1)
        for unit in units:
            requeue(s, step, unit)
        for t in tasks:
            stall(s, step, Unit(step.index, [t], loose=True), [lost[t.data]])
    for record in records:
        request_rebuild(s, record)


def _is_lost(lost: dict[int, DataRec], t: TaskRec) -> bool:
    return t.data in lost


def _lacks_data(lost: dict[int, DataRec], unit: Unit) -> bool:
    return any(t.data in lost for t in unit.tasks)


def rebuild_finished(s: State, w: WorkerRec, e: UnitFinished) -> None:
    unit = _take_in(s, w, e)
    assert unit.rebuild is not None
    unit.tasks[0].move(TaskMove.FINISHED)
    missing = list(unit.rebuild.wanted.values())
    end_rebuild(s, unit)
    name = s.steps[unit.step].spec.name
    for record in missing:
        give_up_data(s, record, f"'{name}' made fewer outputs when it was run again (it must be deterministic)")
    update_accepting(s, w)


def rebuild_emitted(s: State, w: WorkerRec, e: UnitEmitted) -> None:
    unit = _take_in(s, w, e)
    unit.deliver(e.busy_us)
    s.suspend(w, unit)
    update_accepting(s, w)


def _take_in(s: State, w: WorkerRec, e: UnitFinished | UnitEmitted) -> Unit:
    """Pass data that a unit made again to the tasks that lost it: the next of the requested positions."""
    unit = take_head(s, w, e.unit, e.busy_us)
    rebuild = unit.rebuild
    assert rebuild is not None
    if len(e.outputs) > len(rebuild.asked):
        raise IllegalTransition(f"worker {w.id} delivered more of unit {e.unit} than was wanted")
    for position, o in zip(rebuild.asked, e.outputs, strict=False):
        accept_rebuilt(s, rebuild.wanted.pop(position), o)
    del rebuild.asked[: len(e.outputs)]
    return unit

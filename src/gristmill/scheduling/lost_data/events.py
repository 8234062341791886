"""Data is lost, and what was lost comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gristmill.scheduling.dispatch import count_suspects, update_accepting
from gristmill.scheduling.events import DataLost, InputsLost, UnitEmitted, UnitFinished
from gristmill.scheduling.lost_data.lineage import end_rebuild
from gristmill.scheduling.lost_data.records import DataRec
from gristmill.scheduling.lost_data.recovery import arrive, forget, requeue, requeue_uncounted, stall, want
from gristmill.scheduling.progress import take_head
from gristmill.scheduling.state import IllegalTransition, Move, State, StepRec, Unit, WorkerRec


def data_lost(s: State, e: DataLost) -> None:
    if not s.ending.stopping:
        _stall_waiting(s, _mark(s, e.tasks))


def inputs_lost(s: State, w: WorkerRec, e: InputsLost) -> None:
    """The unit goes back with blame on nobody, and waits for its data with all others that need it."""
    unit = take_head(s, w, e.unit)
    lost = _mark(s, e.tasks)
    requeue_uncounted(s, s.steps[unit.step], unit)
    _stall_waiting(s, lost)
    update_accepting(s, w)


def _mark(s: State, ids: Iterable[int]) -> list[DataRec]:
    """Note that data is gone. What should not be losable, and cannot be made again, is known from now on too."""
    found = []
    for data in ids:
        piece = s.lost.records.get(data)
        if piece is None:
            t = s.tasks.get(data)
            if t is None and data in s.slices:
                t = next(t for t in s.tasks.values() if t.data == data)
            if t is None or t.data != data:
                continue
            piece = s.lost.records[data] = DataRec(data, t.id, t.step, False)
        if not piece.there:
            continue
        piece.there = False
        piece.losses += 1
        if piece.losses > s.config.isolated_kills:
            piece.hopeless = f"it was lost {piece.losses} times"
        s.lost.losses += 1
        found.append(piece)
    if found:
        s.balance.evidence += 1
        s.decide(f"data of {len(found)} tasks was lost")
    return found


def _stall_waiting(s: State, pieces: list[DataRec]) -> None:
    """Whatever is queued and needs this data is stalled. What is in a worker is left alone: it may have loaded it."""
    by_step: dict[int, dict[int, DataRec]] = {}
    for piece in pieces:
        by_step.setdefault(piece.step, {})[piece.data] = piece
    for index, lost in by_step.items():
        step = s.steps[index]
        for unit in step.queue.stalled.values():
            for t in unit.tasks:
                if t.data in lost and unit not in lost[t.data].stalled:
                    lost[t.data].stalled.append(unit)
                    unit.missing += 1
        loose, units = _take_out(s, step, lost)
        for unit in units:
            requeue(s, step, unit)
        for unit in loose:
            stall(s, step, unit, [lost[unit.tasks[0].data]])
    for piece in pieces:
        want(s, piece)


def _take_out(s: State, step: StepRec, lost: dict[int, DataRec]) -> tuple[list[Unit], list[Unit]]:
    """Take from the queues of a step what needs lost data: tasks that were never in a unit, and units."""
    loose = [Unit(step.index, [t], bytes=t.bytes, loose=True) for t in step.queue.tasks if t.data in lost]
    if loose:
        step.queue.tasks = deque(t for t in step.queue.tasks if t.data not in lost)
    units = []
    for queue in (step.queue.retries, step.queue.suspects):
        for unit in [unit for unit in queue if any(t.data in lost for t in unit.tasks)]:
            queue.remove(unit)
            units.append(unit)
            if queue is step.queue.suspects:
                count_suspects(s, step, -1)
                s.suspects.solo -= unit.solo
    for unit in (*loose, *units):
        step.queue.size -= len(unit.tasks)
        step.queue.bytes -= unit.bytes
    return loose, units


def rebuild_finished(s: State, w: WorkerRec, e: UnitFinished) -> None:
    unit = _take_in(s, w, e)
    assert unit.rebuild is not None
    unit.tasks[0].move(Move.FINISHED)
    missing = list(unit.rebuild.wanted.values())
    end_rebuild(s, unit)
    name = s.steps[unit.step].spec.name
    for piece in missing:
        forget(s, piece, f"'{name}' made fewer outputs when it was run again (it must be deterministic)")
    update_accepting(s, w)


def rebuild_emitted(s: State, w: WorkerRec, e: UnitEmitted) -> None:
    unit = _take_in(s, w, e)
    unit.tasks[0].move(Move.EMITTED)
    unit.solo = False
    w.suspended[unit.key] = unit
    s.steps[unit.step].suspended += 1
    update_accepting(s, w)


def _take_in(s: State, w: WorkerRec, e: UnitFinished | UnitEmitted) -> Unit:
    """What a unit made again goes to those that lost it: the next of the positions that it was asked for."""
    unit = take_head(s, w, e.unit)
    s.steps[unit.step].times.busy_us += e.busy_us
    rebuild = unit.rebuild
    assert rebuild is not None
    if len(e.outputs) > len(rebuild.asked):
        raise IllegalTransition(f"worker {w.id} delivered more of unit {e.unit} than was wanted")
    for position, o in zip(rebuild.asked, e.outputs, strict=False):
        arrive(s, rebuild.wanted.pop(position), o)
    del rebuild.asked[: len(e.outputs)]
    return unit

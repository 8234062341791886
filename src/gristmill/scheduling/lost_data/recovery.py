"""Units that wait: for a worker, or for data that was lost and is made again.

A unit with lost data is *stalled*: out of its queue, but live and held. What it lacks is *wanted*: a unit of the step
before (`Rebuild`), run on the same input, that delivers only what was lost. If that input is gone as well, this unit is
stalled in its turn, and so on up to an input that is there. When data arrives, those that waited for it go on; their
tasks keep all that they are and have only another id of data. What cannot be made again is given up in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.scheduling.commands import Release
from gristmill.scheduling.credit import hold
from gristmill.scheduling.dispatch import count_suspects
from gristmill.scheduling.events import Output
from gristmill.scheduling.lost_data.lineage import end_rebuild, settle
from gristmill.scheduling.lost_data.records import DataRec, Rebuild
from gristmill.scheduling.progress import give_up
from gristmill.scheduling.state import Move, State, StepRec, TaskRec, TaskState, Unit


def requeue(s: State, step: StepRec, unit: Unit) -> None:
    """A unit waits for another attempt, ahead of what has not been tried; first of all for data that it lacks."""
    if unit.rebuild is not None and not unit.rebuild.wanted:
        _drop(s, unit, "")  # all that was wanted is there
        return
    if s.lost.records:
        missing = [x for t in unit.tasks if (x := s.lost.records.get(t.data)) is not None and not x.there]
        if missing:
            _stall_part(s, step, unit, missing)
            return
    unit.bytes = sum(t.bytes for t in unit.tasks)
    unit.part_us = 0
    step.queue.size += len(unit.tasks)
    step.queue.bytes += unit.bytes
    for t in unit.tasks:
        t.queued_at = s.now
    if unit.isolated:
        step.queue.suspects.append(unit)
        count_suspects(s, step, 1)
        s.suspects.solo += unit.solo
    else:
        step.queue.retries.appendleft(unit)


def requeue_uncounted(s: State, step: StepRec, unit: Unit) -> None:
    """A unit goes back to its queue as if this attempt had not been."""
    for t in unit.tasks:
        t.move(Move.LOST)
        t.attempts -= 1
    requeue(s, step, unit)


def _stall_part(s: State, step: StepRec, unit: Unit, missing: list[DataRec]) -> None:
    """Only those of a batch that lack their data wait for it, unless it must stay together."""
    if len(unit.tasks) == 1 or unit.isolated or unit.chunks:
        stall(s, step, unit, missing)
        return
    lost = {x.data: x for x in missing}
    loose = [(t, lost[t.data]) for t in unit.tasks if t.data in lost]
    unit.tasks = [t for t in unit.tasks if t.data not in lost]
    if unit.tasks:
        requeue(s, step, unit)
    for t, piece in loose:
        stall(s, step, Unit(step.index, [t], loose=True), [piece])


def stall(s: State, step: StepRec, unit: Unit, missing: Sequence[DataRec]) -> None:
    """A unit that is in no queue waits for lost data."""
    unit.missing = len(missing)
    step.queue.stalled[unit.key] = unit
    step.queue.stalled_tasks += len(unit.tasks)
    for piece in missing:
        piece.stalled.append(unit)
    for piece in missing:
        want(s, piece)


def _unstall(s: State, unit: Unit) -> StepRec:
    step = s.steps[unit.step]
    del step.queue.stalled[unit.key]
    step.queue.stalled_tasks -= len(unit.tasks)
    return step


def want(s: State, piece: DataRec) -> None:
    """Have lost data made again, unless it is already."""
    if piece.there or not piece.stalled:
        return
    if piece.coming:
        _fetch_origin(s, piece)  # what waits for it now may be fetched
        return
    parent = piece.parent
    if parent is None or piece.hopeless:
        forget(s, piece, piece.hopeless or "nothing is left that it could be made from")
        return
    if not piece.live and not piece.fetched:
        if not _may_fetch(s) and not _is_needed_by_fetched(piece):
            s.lost.deferred[piece.data] = piece
            return
        piece.fetched = True
        s.lost.fetched += 1
    piece.coming = True
    _make_from(s, piece, parent)
    _fetch_origin(s, piece)


def _make_from(s: State, piece: DataRec, parent: DataRec) -> None:
    """Add lost data to a unit that makes such data again and has not begun, or queue a new unit."""
    for unit in parent.rebuilds:
        rebuild = unit.rebuild
        assert rebuild is not None
        if unit.tasks[0].state is TaskState.QUEUED and (rebuild.start, rebuild.stop) == (piece.start, piece.stop):
            rebuild.wanted[piece.position] = piece
            return
    step = s.steps[piece.step - 1]
    t = TaskRec(s.next_slice, step.index, 0, 1, False, parent.data, s.now, start=piece.start, stop=piece.stop)
    s.next_slice -= 1
    s.tasks[t.id] = t
    unit = Unit(step.index, [t], rebuild=Rebuild(parent, piece.start, piece.stop, {piece.position: piece}))
    s.lost.rebuilds[t.id] = unit
    parent.rebuilds.append(unit)
    step.live += 1
    step.queue.rebuilds += 1
    if step.ended or (step.dedicated and not step.workers):
        step.ended = False
        s.balance.reason = s.balance.reason or f"{step.spec.name} has lost data to make again"
    requeue(s, step, unit)


def fetch_deferred(s: State) -> None:
    """Go on with what had to wait because making it again takes room."""
    while s.lost.deferred and _may_fetch(s):
        want(s, s.lost.deferred.popitem()[1])


def _may_fetch(s: State) -> bool:
    """Data of tasks that are done takes room beyond what is held; one chain of it at a time may always be made."""
    return not s.lost.fetched or s.budget.used <= s.config.budget


def _is_needed_by_fetched(piece: DataRec) -> bool:
    """Whether fetched data is made from this piece, directly or through other lost data."""
    return any(
        unit.rebuild is not None and any(x.fetched or _is_needed_by_fetched(x) for x in unit.rebuild.wanted.values())
        for unit in piece.stalled
    )


def _fetch_origin(s: State, piece: DataRec) -> None:
    """Stop deferring the data that a piece is made from, if it is fetched or fetched data is made from it.

    Otherwise the fetched piece waits for deferred data, and the deferred data waits until nothing is fetched.
    """
    if not s.lost.deferred or not (piece.fetched or _is_needed_by_fetched(piece)):
        return
    origin = piece.parent
    while origin is not None and waits_for(piece, origin):
        if s.lost.deferred.pop(origin.data, None) is not None:
            want(s, origin)
            return
        piece, origin = origin, origin.parent


def waits_for(piece: DataRec, origin: DataRec) -> bool:
    """Whether the unit that makes a piece again waits for its input."""
    return any(
        unit.rebuild is not None and any(x is piece for x in unit.rebuild.wanted.values()) for unit in origin.stalled
    )


def arrive(s: State, piece: DataRec, o: Output) -> None:
    """Lost data has been made again: those that wait for it go on."""
    old = piece.data
    if s.lost.records.get(old) is not piece:
        s.out.append(Release((o.id,)))  # nobody needs it any more
        return
    t = s.tasks.get(piece.task)
    tasks = [t] if t is not None and t.data == old else []
    if old in s.slices:
        tasks = [x for x in s.tasks.values() if x.data == old and x.id not in s.lost.rebuilds]
        s.slices[o.id] = s.slices.pop(old)
    for t in (*tasks, *(unit.tasks[0] for unit in piece.rebuilds)):
        t.data = o.id
    if not piece.released:
        s.out.append(Release((old,)))
    del s.lost.records[old]
    s.lost.records[o.id] = piece
    piece.data, piece.losable = o.id, o.losable
    piece.there, piece.released, piece.coming = True, False, False
    if not piece.live:
        size = o.bytes + s.config.task_overhead
        piece.bytes += size
        hold(s, size)
    units, piece.stalled = piece.stalled, []
    for unit in units:
        unit.missing -= 1
        if not unit.missing:
            _wake(s, unit)
    settle(s, piece)


def _wake(s: State, unit: Unit) -> None:
    step = _unstall(s, unit)
    if not unit.loose:
        requeue(s, step, unit)
        return
    t = unit.tasks[0]
    t.queued_at = s.now
    step.queue.tasks.appendleft(t)
    step.queue.size += 1
    step.queue.bytes += t.bytes


def forget(s: State, piece: DataRec, why: str, story: Sequence[str] = ()) -> None:
    """Lost data cannot be made again: the tasks that wait for it are given up, also those for which it is needed."""
    piece.coming = False
    piece.hopeless = why
    units, piece.stalled = piece.stalled, []
    for unit in units:
        step = _unstall(s, unit)
        if unit.rebuild is not None:
            _drop(s, unit, why, story)
            continue
        guilty = [t for t in unit.tasks if t.data == piece.data]
        unit.tasks = [t for t in unit.tasks if t.data != piece.data]
        unit.missing -= 1
        if unit.tasks:
            step.queue.stalled[unit.key] = unit
            step.queue.stalled_tasks += len(unit.tasks)
            if not unit.missing:
                _wake(s, unit)
        for t in guilty:
            for line in story:
                t.note(s.now, f"while its data was made again: {line}")
            t.note(s.now, f"its data was lost and could not be made again: {why}")
            give_up(s, step, t, f"its data was lost and could not be made again: {why}")
    settle(s, piece)


def _drop(s: State, unit: Unit, why: str, story: Sequence[str] = ()) -> None:
    """A unit that waits and should make lost data again is given up."""
    assert unit.rebuild is not None
    unit.tasks[0].move(Move.CANCELLED)
    end_rebuild(s, unit)
    for piece in list(unit.rebuild.wanted.values()):
        forget(s, piece, why, story)


def abandon(s: State, unit: Unit, error: str) -> None:
    """A unit that should make lost data again is guilty, like any other that fails so often."""
    why = f"'{s.steps[unit.step].spec.name}' failed when it was run for it: {first_line(error)}"
    _drop(s, unit, why, unit.tasks[0].story or ())


def first_line(error: str) -> str:
    return error.strip().splitlines()[0] if error.strip() else "no message"

"""What lost data can be made from again, kept as long as that may be needed and no longer.

- A record (`DataRec`) is kept of each output that can be lost: from which input, which slice of it, at which position.
- An input that cannot be lost itself is kept, its `Release` delayed, while such an output of it is live or is what
  live data was made from. One that can be lost is released when it is done; if need be it is made again as well.
- So what is kept is bounded by what is live, and ends with it.

Outputs that cannot be lost have no record, and a run without others pays nothing for all this.
"""

from __future__ import annotations

from gristmill.scheduling.commands import Release
from gristmill.scheduling.events import Output
from gristmill.scheduling.lost_data.records import DataRec
from gristmill.scheduling.state import State, StepRec, TaskRec, Unit


def record(s: State, step: StepRec, unit: Unit, outputs: tuple[Output, ...]) -> None:
    """Note how the losable ones of these outputs of a unit were made. Comes before its tasks are counted as done."""
    if step.index + 1 == len(s.steps):
        return
    tasks = {t.id: t for t in unit.tasks}
    positions = {t.id: t.emitted for t in unit.tasks}
    for o in outputs:
        t = tasks.get(o.parent, unit.tasks[0] if len(tasks) == 1 else None)
        if o.losable:
            piece = s.lost.records[o.id] = DataRec(o.id, o.id, step.index + 1, True)
            if t is not None:
                piece.parent = _piece_of(s, t)
                piece.parent.children += 1
                piece.start, piece.stop = t.start, t.stop
                piece.position, piece.chunk = positions[t.id], unit.chunks
        if t is not None:
            positions[t.id] += 1


def _piece_of(s: State, t: TaskRec) -> DataRec:
    piece = s.lost.records.get(t.data)
    if piece is None:
        piece = s.lost.records[t.data] = DataRec(t.data, t.id, t.step, False)
    return piece


def note_held(s: State, piece: DataRec, size: int) -> None:
    """A task, or a slice, is done with a piece and no longer counts; what stays of the data does."""
    if piece.rebuilds or (piece.children and not piece.losable):
        piece.bytes += size
    else:
        s.budget.held -= size


def consumed(s: State, piece: DataRec, cancelled: bool) -> None:
    """No task needs a piece any more."""
    piece.live = False
    piece.cancelled = cancelled
    settle(s, piece)


def settle(s: State, piece: DataRec | None) -> None:
    """Let go of a piece, and of those that it was made from, as far as they are needed no more."""
    while piece is not None and s.lost.records.get(piece.data) is piece:
        if piece.live or piece.rebuilds:
            return
        if piece.fetched:
            piece.fetched = False
            s.lost.fetched -= 1
        if not (piece.children and not piece.losable):
            _release(s, piece)
        if piece.children:
            return
        del s.lost.records[piece.data]
        piece = piece.parent
        if piece is not None:
            piece.children -= 1


def _release(s: State, piece: DataRec) -> None:
    if not piece.released:
        s.out.append(Release((piece.data,), piece.cancelled))
        piece.released = True
        piece.there = False
        s.budget.held -= piece.bytes
        piece.bytes = 0


def end_rebuild(s: State, unit: Unit) -> None:
    """A unit that made lost data again is no more."""
    step = s.steps[unit.step]
    assert unit.rebuild is not None
    del s.lost.rebuilds[unit.key]
    del s.tasks[unit.key]
    step.live -= 1
    step.queue.rebuilds -= 1
    parent = unit.rebuild.parent
    parent.rebuilds.remove(unit)
    settle(s, parent)


def in_use(s: State) -> set[int]:
    """Ids of all data that the run has a use for yet, lost or not."""
    return {t.data for t in s.tasks.values() if t.id not in s.lost.rebuilds} | {
        x.data for x in s.lost.records.values() if not x.released
    }

"""Failures: who is guilty, and what is tried before that is said.

- A stage that raises: the unit is tried again elsewhere; a batch is halved; a single task is guilty after
  ``max_attempts``.
- A worker that dies: only the unit it was running is suspected. A suspect runs again alone in a fresh worker; if that
  worker dies of its own doing too, the unit is guilty. A kill from outside proves nothing.
- A worker that dies and does not name the unit that it ran: a unit that was in ``unexplained_losses`` such workers is
  suspected and runs alone. If its worker dies then and names none, that counts as a kill from outside. So the same unit
  is lost a bounded number of times, whatever its workers die of: it is given up after ``isolated_kills`` deaths alone.
- Memory is shared by all: a unit whose worker used too much of it is guilty only if it did so while nothing else ran.
- A guilty task that can be sliced is bisected at once; a single item is judged like a task of its own.
  The smallest guilty part is quarantined.
"""

from __future__ import annotations

from gristmill.scheduling.dispatch import update_accepting
from gristmill.scheduling.events import Death, UnitFailed
from gristmill.scheduling.lost_data.recovery import abandon, first_line, requeue
from gristmill.scheduling.progress import give_up, take_head, unassign
from gristmill.scheduling.state import Move, SlicedTask, State, StepRec, TaskRec, Unit, WorkerRec

_BAD_AT_ONCE = 8
_BAD_SLICES = 64
"""Bad parts of one task after which the search for the others ends; the former while not one part was good."""


def unit_failed(s: State, w: WorkerRec, e: UnitFailed) -> None:
    unit = take_head(s, w, e.unit)
    step = s.steps[unit.step]
    step.times.busy_us += e.busy_us
    for t in unit.tasks:
        t.move(Move.FAILED)
        t.note(s.now, f"attempt {t.attempts} failed on worker {w.id}: {first_line(e.error)}")
    unit.avoid = w.id
    unit.isolated = unit.solo = False
    first = unit.tasks[0]
    if len(unit.tasks) > 1:
        _halve(s, step, unit)
    elif first.attempts < step.spec.max_attempts and not s.ending.draining and (first.items == 1 or not first.is_slice):
        requeue(s, step, unit)
    else:
        fail_task(s, step, unit, e.error)
    update_accepting(s, w)


def units_lost(s: State, w: WorkerRec, cause: Death, running: int | None, detail: str) -> None:
    """All units of a worker that died. ``running`` names a task of the one that is suspected."""
    units = [*w.assigned, *w.suspended.values()]
    lost_steps = {u.step for u in w.suspended.values()}
    while w.assigned:
        unassign(s, w, w.assigned.popleft())
    for i in lost_steps:
        s.steps[i].suspended -= sum(1 for u in w.suspended.values() if u.step == i)
    w.suspended.clear()
    for unit in reversed(units):
        step = s.steps[unit.step]
        named = running is not None and any(t.id == running for t in unit.tasks)
        suspected = not cause.is_no_fault and (named or (unit.isolated and running is None))
        for t in unit.tasks:
            t.move(Move.LOST)
            if suspected:
                when = "while running it" if named else "with it"
                t.note(s.now, f"worker {w.id} {cause.value} {when}{f' ({detail})' if detail else ''}")
            else:
                t.attempts -= 1
        if not suspected and not cause.is_no_fault and (running is None or cause.is_own_fault):
            _lost_again(s, step, unit)
        elif not suspected:
            requeue(s, step, unit)
        elif unit.isolated and (cause is not Death.OUT_OF_MEMORY or unit.solo):
            _tried_alone(s, step, unit, cause, detail, named)
        else:
            for t in unit.tasks:
                t.attempts -= 1
            unit.solo |= cause is Death.OUT_OF_MEMORY
            _suspect(s, step, unit)


def _lost_again(s: State, step: StepRec, unit: Unit) -> None:
    """A unit was in a worker that died, and another unit or none is suspected."""
    for t in unit.tasks:
        t.losses += 1
    if max(t.losses for t in unit.tasks) < s.config.unexplained_losses:
        requeue(s, step, unit)
    else:
        _suspect(s, step, unit)


def _tried_alone(s: State, step: StepRec, unit: Unit, cause: Death, detail: str, named: bool) -> None:
    first = unit.tasks[0]
    if not (cause.is_own_fault and named) and len(unit.tasks) == 1:
        first.kills += 1
        if first.kills < s.config.isolated_kills:
            first.attempts -= 1
            _suspect(s, step, unit)
            return
    if len(unit.tasks) > 1:
        for t in unit.tasks:
            t.attempts -= 1
        _halve(s, step, unit)
    else:
        fail_task(s, step, unit, f"its worker {cause.value}{f' ({detail})' if detail else ''}")


def _suspect(s: State, step: StepRec, unit: Unit) -> None:
    unit.isolated = True
    requeue(s, step, unit)


def _halve(s: State, step: StepRec, unit: Unit) -> None:
    middle = len(unit.tasks) // 2
    for part in (unit.tasks[:middle], unit.tasks[middle:]):
        half = Unit(step.index, part, isolated=unit.isolated, solo=unit.solo, avoid=unit.avoid)
        requeue(s, step, half)


def fail_task(s: State, step: StepRec, unit: Unit, error: str) -> None:
    """A single task is guilty: run it in halves if it can be sliced, else give it up."""
    t = unit.tasks[0]
    if unit.rebuild is not None:
        abandon(s, unit, error)
        return
    if step.spec.slices and t.divisible and t.items > 1 and not t.emitted and _worth_slicing(s, t):
        _slice(s, step, unit, t)
        return
    give_up(s, step, t, error)


def _worth_slicing(s: State, t: TaskRec) -> bool:
    """Not when the run is ending anyway, nor in a task that is bad throughout: that would be tried for hours."""
    if s.ending.draining:
        return False
    whole = s.slices.get(t.data)
    return whole is None or (whole.failed < _BAD_SLICES and (whole.done > 0 or whole.failed < _BAD_AT_ONCE))


def _slice(s: State, step: StepRec, unit: Unit, t: TaskRec) -> None:
    t.move(Move.SPLIT)
    t.note(s.now, f"its {t.items} items are tried in halves")
    middle = t.start + t.items // 2
    s.slices.setdefault(t.data, SlicedTask()).live += 1
    del s.tasks[t.id]
    step.live += 1
    for start, stop in ((t.start, middle), (middle, t.start + t.items)):
        part = TaskRec(
            s.next_slice, t.step, t.bytes // 2, stop - start, True, t.data, s.now, start=start, stop=stop, kills=t.kills
        )
        part.story = list(t.story or ())
        s.next_slice -= 1
        s.tasks[part.id] = part
        requeue(s, step, Unit(step.index, [part], isolated=unit.isolated, solo=unit.solo, avoid=unit.avoid))
    s.budget.held -= t.bytes - 2 * (t.bytes // 2)

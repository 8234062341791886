"""Apply the failure policy (`failure_policy`) to units that failed or whose worker died."""

from __future__ import annotations

from gristmill.scheduling import failure_policy as policy
from gristmill.scheduling.assignment import update_accepting, update_depth
from gristmill.scheduling.events import Death, UnitFailed
from gristmill.scheduling.failure_policy import LostUnit, Response
from gristmill.scheduling.in_flight import begun_at_death
from gristmill.scheduling.lost_data.recovery import fail_rebuild, first_line, requeue, requeue_uncounted
from gristmill.scheduling.progress import give_up, remove_units, take_head
from gristmill.scheduling.records import SlicedTask, StepRec, TaskMove, TaskRec, Unit, WorkerRec
from gristmill.scheduling.state import State


def unit_failed(s: State, w: WorkerRec, e: UnitFailed) -> None:
    """A stage raised."""
    unit = take_head(s, w, e.unit, e.busy_us)
    step = s.steps[unit.step]
    for t in unit.tasks:
        t.move(TaskMove.FAILED)
        t.note(s.now, f"attempt {t.attempts} failed on worker {w.id}: {first_line(e.error)}")
    unit.fail(w.id)
    first = unit.tasks[0]
    allowed = policy.attempts_allowed(step.spec.max_attempts, first.items, first.stop > 0)
    _respond(s, unit, policy.after_error(len(unit.tasks), first.attempts, allowed, s.ending.draining), e.error)
    update_accepting(s, w)


def units_lost(
    s: State, w: WorkerRec, cause: Death, running: int | None, detail: str, noted: tuple[int, ...] | None = None
) -> None:
    """Queue the units of a worker that died again, or give them up.

    ``running`` names a task of the unit that it ran, if that is known. ``noted`` are the units that a worker with
    several in flight had begun, by its own note.
    """
    begun = None
    if w.begun is not None and w.step is not None:
        begun = begun_at_death(s, w, cause, noted)
        update_depth(s, s.steps[w.step])  # the number in flight may have been reduced
    for unit in reversed(remove_units(s, w)):
        if begun is not None and begun.spares(unit):
            requeue_uncounted(s, s.steps[unit.step], unit)
            continue
        if begun is not None:
            running = unit.key if begun.names(unit) else None
        _unit_lost(s, w, unit, cause, running, f" ({detail})" if detail else "")


def _unit_lost(s: State, w: WorkerRec, unit: Unit, cause: Death, running: int | None, detail: str) -> None:
    is_named = running is not None and any(t.id == running for t in unit.tasks)
    lost = LostUnit(
        tasks=len(unit.tasks),
        is_named=is_named,
        is_other_named=running is not None and not is_named,
        isolated=unit.isolated,
        solo=unit.solo,
        losses=max(t.losses for t in unit.tasks),
        kills=unit.tasks[0].kills,
    )
    verdict = policy.after_death(lost, cause, s.config)
    for t in unit.tasks:
        t.move(TaskMove.LOST)
        t.count_death(verdict)
        if verdict.is_suspected:
            when = "while running it" if is_named else "with it"
            t.note(s.now, f"worker {w.id} {cause.value} {when}{detail}")
    unit.suspect(solo=verdict.solo, isolated=False)
    _respond(s, unit, verdict.response, f"its worker {cause.value}{detail}")


def _respond(s: State, unit: Unit, response: Response, error: str) -> None:
    step = s.steps[unit.step]
    if response is not Response.FAIL:
        step.counts.retry(len(unit.tasks))
    if response is Response.HALVE:
        for tasks in policy.halves_of_batch(unit.tasks):
            half = Unit(step.index, list(tasks), isolated=unit.isolated, solo=unit.solo, avoid=unit.avoid)
            requeue(s, step, half)
    elif response is Response.FAIL:
        fail_task(s, step, unit, error)
    else:
        unit.suspect(isolated=response is Response.ISOLATE)
        requeue(s, step, unit)


def fail_task(s: State, step: StepRec, unit: Unit, error: str) -> None:
    """Run a task that is at fault in halves if it can be sliced, else give it up."""
    t = unit.tasks[0]
    if unit.rebuild is not None:
        fail_rebuild(s, unit, error)
    elif step.spec.slices and t.divisible and t.items > 1 and not t.emitted and _is_worth_slicing(s, t):
        _slice(s, step, unit, t)
    else:
        give_up(s, step, t, error)


def _is_worth_slicing(s: State, t: TaskRec) -> bool:
    if s.ending.draining:
        return False
    whole = s.slices.get(t.data)
    return whole is None or policy.is_worth_splitting(whole.done, whole.failed)


def _slice(s: State, step: StepRec, unit: Unit, t: TaskRec) -> None:
    t.move(TaskMove.SPLIT)
    t.note(s.now, policy.splitting_note(t.items))
    s.slices.setdefault(t.data, SlicedTask()).add_slice()
    del s.tasks[t.id]
    step.count_live(1)
    step.counts.retry(2)
    for start, stop in policy.halves_of_items(t.start, t.items):
        part = t.part(s.new_slice_id(), start, stop, s.now)
        s.tasks[part.id] = part
        requeue(s, step, Unit(step.index, [part], isolated=unit.isolated, solo=unit.solo, avoid=unit.avoid))
    s.budget.release(t.bytes - 2 * (t.bytes // 2))

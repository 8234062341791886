"""The byte budget: what is held, what is reserved, and which units may start.

``held`` counts every task that waits or runs; ``reserved`` what running units are expected to emit. A unit of
step *i* is admitted if both, its own outputs and one unit of every later step stay within the
budget. The step furthest downstream that has work may always run one unit: that is what frees memory. In batch
mode everything is held between two steps by definition, so the budget does not apply. A unit that makes lost data again
is always let in: the data is still counted for the task that it was lost to.
"""

from __future__ import annotations

from gristmill.scheduling.records import StepRec, Unit
from gristmill.scheduling.state import State

_REFUSED = -1


def predicted(s: State, step: StepRec, tasks: int, size: int) -> int:
    """Forecast the bytes that so many tasks of this step, of this size together, will emit."""
    if step.index == len(s.steps) - 1:
        return 0
    if step.size.known:
        return step.size.bytes * tasks
    return max(size, s.config.budget // 32)


def admit(s: State, step: StepRec, tasks: int, size: int) -> int:
    """Return the bytes to reserve for a unit that may start now, or -1 if it may not."""
    expected = predicted(s, step, tasks, size)
    if _fits(s, step, expected):
        return expected
    if _must_run(s, step):
        s.budget.force()
        return expected
    return _REFUSED


def fits_budget(s: State, step: StepRec, rebuilds: bool = True) -> bool:
    """Whether a queued unit would be admitted now. With ``rebuilds``, units that make lost data again count."""
    if (
        rebuilds
        and step.queue.rebuilds
        and any(unit.rebuild is not None for unit in (*step.queue.retries, *step.queue.suspects))
    ):
        return True
    tasks = min(step.spec.batch_size, step.queue.size)
    expected = predicted(s, step, tasks, step.queue.bytes * tasks // max(step.queue.size, 1))
    return _fits(s, step, expected) or _must_run(s, step)


def suspect_may_start(s: State, step: StepRec) -> bool:
    """Whether a suspected unit of a step would be admitted now. One that must run alone always is."""
    return bool(step.queue.suspects) and (any(unit.solo for unit in step.queue.suspects) or fits_budget(s, step))


def may_resume(s: State, step: StepRec, unit: Unit) -> bool:
    """Whether a suspended unit would be admitted now."""
    if unit.rebuild is not None:
        return True
    return _fits(s, step, predicted(s, step, len(unit.tasks), unit.bytes)) or _must_run(s, step)


def _fits(s: State, step: StepRec, expected: int) -> bool:
    config, budget = s.config, s.budget
    return config.batch_mode or budget.held + budget.reserved + expected + budget.headroom[step.index] <= config.budget


def _must_run(s: State, step: StepRec) -> bool:
    """Whether no later step can free memory, and no unit of this step is about to."""
    return step.running == 0 and deepest(s) == step.index


def deepest(s: State) -> int:
    """Return the step furthest downstream that has a task which does not wait for lost data; -1 if none has."""
    return next((step.index for step in reversed(s.steps) if step.live > step.queue.stalled_tasks), -1)


def update_headroom(s: State) -> None:
    """Update the headroom after a size estimate changed.

    At most half the budget is kept free, or large items would stop all others.
    """
    total = 0
    last = len(s.steps) - 1
    headroom = [0] * len(s.steps)
    for i in range(last, -1, -1):
        headroom[i] = min(total, s.config.budget // 2)
        if i != last:
            size = s.steps[i].size
            total += size.bytes * s.steps[i].spec.batch_size if size.known else s.config.budget // 32
    s.budget.set_headroom(headroom, min(total, s.config.budget // 2))

"""Several units in flight in one worker: which of them are begun, and what follows from its death.

A worker begins units in the order in which it received them, while fewer than the step's limit are begun
(`StepRec.in_flight`). A suspended unit keeps its slot. The others wait in the worker. Reports come in any order. The
scheduler deduces from the commands and the reports which units are begun, and since when (`WorkerRec.begun`). The
worker may be ahead of this: it has begun the next unit before the report on the one that ended arrives. It is never
behind. No unit waits in a worker of a step whose units may be suspended, so a unit that waits always waits for one that
runs.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from gristmill.scheduling.commands import LimitInFlight
from gristmill.scheduling.events import Death
from gristmill.scheduling.records import IllegalTransition, StepRec, Unit, WorkerRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State

GRACE_US = 5 * UNIT
"""A unit that runs too long is cancelled by its worker. If it has not ended after this time, its worker is killed."""


def accepts(step: StepRec, w: WorkerRec) -> bool:
    """Whether a worker that takes work has a unit to resume, or could take another one."""
    return bool(w.suspended) or len(w.assigned) < step.depth


def has_place(step: StepRec, w: WorkerRec, may_wait: bool) -> bool:
    """Whether a worker could take another unit; ``may_wait``: even if it does not begin the unit at once."""
    return len(w.assigned) + len(w.suspended) < (step.depth if may_wait else step.in_flight)


def keeps_rebuild_waiting(s: State, w: WorkerRec) -> bool:
    """Whether suspended units keep all slots of a worker from one that makes lost data again, which is always let in.

    They wait for memory that may be freed only when that data is there.
    """
    if w.begun is None or w.step is None or w.has_suspect or w.kill_cause is not None:
        return False
    step = s.steps[w.step]
    waits = step.queue.rebuilds and any(unit.rebuild is not None for unit in step.queue.retries)
    return bool(waits) and not has_place(step, w, may_wait=False)


def begin(s: State, w: WorkerRec) -> None:
    """Deduce which waiting units a worker has begun by now."""
    begun = w.begun
    assert begun is not None and w.step is not None
    if len(w.assigned) == len(begun) or w.state is not WorkerState.READY:
        return
    free = s.steps[w.step].in_flight - len(begun) - len(w.suspended)
    for unit in w.assigned:
        if free <= 0:
            return
        if unit.key not in begun:
            begun[unit.key] = s.now
            free -= 1


def note_begun(s: State, w: WorkerRec) -> None:
    """Note that a worker has begun all that it still has: it has given back what waited in it."""
    assert w.begun is not None
    for unit in w.assigned:
        w.begun.setdefault(unit.key, s.now)


def take_out(s: State, w: WorkerRec, key: int) -> Unit:
    """Remove a unit from a worker that has dealt with it, in any order. Count the time that the worker was busy."""
    unit = _remove(w, key)
    assert w.begun is not None
    w.begun.pop(key, None)
    s.balance.add_evidence()
    s.unassign(w, unit)
    busy_us = s.now - w.head_since
    s.steps[unit.step].times.add_head(busy_us, busy_us)
    w.start_clock(s.now)
    if unit.isolated:
        w.make_fresh()  # it ran only suspects so far, and survived them: the next one may run here too
    return unit


def _remove(w: WorkerRec, key: int) -> Unit:
    for i, unit in enumerate(w.assigned):
        if unit.key == key:
            del w.assigned[i]
            return unit
    raise IllegalTransition(f"worker {w.id} dealt with unit {key}, which it does not have")


def overdue(s: State, w: WorkerRec) -> frozenset[int]:
    """Return the units of a worker that should have been cancelled and have not ended."""
    assert w.begun is not None and w.step is not None
    timeout = s.steps[w.step].spec.timeout_us
    if timeout is None:
        return frozenset()
    return frozenset(
        unit.key
        for unit in w.assigned
        if (since := w.begun.get(unit.key)) is not None and s.now - since > timeout * (1 + unit.replay) + GRACE_US
    )


def running_us(s: State, w: WorkerRec) -> list[int]:
    """Return for each unit that runs in a worker what it has cost so far: its time, divided among all slots."""
    assert w.begun is not None and w.step is not None
    return [(s.now - since) // s.steps[w.step].in_flight for since in w.begun.values()]


@dataclass(frozen=True, slots=True)
class BegunUnits:
    """The units that a worker with several in flight had begun when it died, as far as is known."""

    suspects: Set[int]
    """Keys of those that may have killed it."""
    is_noted: bool
    """By the worker's own note; else it is deduced, and a unit may have been sent to a worker that was dead."""
    all_spared: bool
    """None is suspected: fewer will be in flight in a worker, or the one that took too long was reported after all."""

    def spares(self, unit: Unit) -> bool:
        """Whether a unit is not suspected: it only waited, or none is."""
        return self.all_spared or (bool(self.suspects) and unit.key not in self.suspects)

    def names(self, unit: Unit) -> bool:
        """Whether a unit that is not spared is known to have run. What is deduced confirms no suspect."""
        return bool(self.suspects) and (self.is_noted or not unit.isolated)


def begun_at_death(s: State, w: WorkerRec, cause: Death, noted: tuple[int, ...] | None) -> BegunUnits:
    """Return what is known of the units of a worker that died. Reduce the number in flight if memory ran out.

    ``noted`` are the units that it had begun by its own note, which counts more than what is deduced.
    """
    assert w.begun is not None and w.step is not None
    step = s.steps[w.step]
    units = (*w.assigned, *w.suspended.values())
    here = {unit.key for unit in units}
    suspects = here & set(noted if noted is not None else w.begun)
    if cause is Death.TIMED_OUT:
        suspects &= w.overdue
    shared = cause is Death.OUT_OF_MEMORY and step.in_flight > 1 and not any(unit.isolated for unit in units)
    if shared and len(suspects) <= step.in_flight:
        _halve(s, step)  # else it had begun them before the last reduction
    return BegunUnits(suspects, noted is not None, shared or (cause is Death.TIMED_OUT and not suspects))


def _halve(s: State, step: StepRec) -> None:
    step.halve_in_flight()
    s.balance.add_evidence()
    s.decide(f"{step.spec.name}: a worker ran out of memory; {step.in_flight} in flight in each worker from now on")
    for w in step.workers.values():
        if w.state < WorkerState.STOPPING:
            s.out.append(LimitInFlight(w.id, step.in_flight))

"""Checks by an observer of workers with several units in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.records import TaskState, WorkerState
from gristmill.scheduling.simulator.model import Job, VirtualWorker

if TYPE_CHECKING:
    from tests.simulation.world import CheckedWorld


class InFlightWitness:
    """Raises `AssertionError` when a worker with several units in flight, or the scheduler's view of it, is wrong."""

    def __init__(self, world: CheckedWorld) -> None:
        self.world = world
        self.not_fresh: set[int] = set()
        """Workers that have begun a unit that was not suspected."""
        self.at_death: dict[int, tuple[set[int], set[int], bool]] = {}
        """Of workers that have died: the units that ran, those that waited or were suspended, and whether one was
        tried alone."""
        self.resumed_too_late: set[tuple[int, int]] = set()
        """Dead workers, and units of them that the scheduler has resumed before it knew of the death."""

    def begins(self, worker: int, w: VirtualWorker, job: Job) -> None:
        """Check that a worker has a free slot for a unit, and that a suspected one is alone in a fresh worker."""
        assert len(w.running) + len(w.suspended) < w.limit, f"worker {worker} has begun more than {w.limit} units"
        rec = self.world.scheduler.state.workers.get(worker)
        unit = next((u for u in rec.assigned if u.key == job.key), None) if rec is not None else None
        if unit is None:
            return
        if not unit.isolated:
            self.not_fresh.add(worker)
            return
        assert not (w.running or w.suspended or w.queue), f"unit {job.key}, a suspect, is not alone in worker {worker}"
        assert worker not in self.not_fresh, (
            f"unit {job.key}, a suspect, is tried in worker {worker}, which is not fresh"
        )

    def dies(self, worker: int, w: VirtualWorker) -> None:
        if w.limit:
            rec = self.world.scheduler.state.workers.get(worker)
            alone = rec is not None and any(u.isolated for u in (*rec.assigned, *rec.suspended.values()))
            others = {job.key for job in w.suspended.values()}
            if not w.blocked:  # else it has not even received them, which only its own note can show
                others |= {job.key for job in w.queue}
            self.at_death[worker] = (set(w.running), others, alone)

    def after(self, events: Sequence[e.Event], commands: Sequence[c.Command]) -> None:
        """Check the scheduler's view of all workers after events."""
        s = self.world.scheduler.state
        resumed = {(x.worker, x.unit) for x in commands if isinstance(x, c.Resume) and x.worker in self.at_death}
        self.resumed_too_late |= resumed
        for event in events:
            if isinstance(event, e.WorkerDied) and event.worker in self.at_death and not s.ending.stopping:
                self._suspects(event)
        for w in s.workers.values():
            virtual = self.world.workers.get(w.id)
            if w.begun is None or virtual is None or virtual.stopping:
                continue
            limit = s.steps[virtual.step].in_flight if virtual.step is not None else 0
            known = virtual.limit == limit or c.LimitInFlight(w.id, limit) in commands
            assert known, f"worker {w.id} may have {virtual.limit} in flight instead of {limit}"
            if not virtual.blocked and not virtual.returning:
                behind = w.begun.keys() & {job.key for job in virtual.queue}
                assert not behind, f"worker {w.id} has not begun {behind}, which the scheduler takes to be begun"
            returns = any(isinstance(x, c.ReturnWaiting) and x.worker == w.id for x in commands)
            if w.state is WorkerState.DRAINING and virtual.queue and not virtual.blocked:
                assert virtual.returning or returns, (
                    f"worker {w.id} drains and may begin {len(virtual.queue)} more units"
                )

    def _suspects(self, event: e.WorkerDied) -> None:
        """Check that units which only waited are not suspected, and that all that ran are, unless memory ran out."""
        s = self.world.scheduler.state
        ran, others, alone = self.at_death.pop(event.worker)
        if not ran or event.cause.is_no_fault:
            return
        suspects = {unit.key for step in s.steps for unit in step.queue.suspects}
        wrong = (others - ran) & suspects
        if event.begun is None:
            # Without a note, a unit that was sent or resumed when the worker was dead is taken to be begun.
            late = {unit for worker, unit in self.resumed_too_late if worker == event.worker}
            wrong = set() if self.world.conditions.lag_us else wrong - late
        assert not wrong, f"{sorted(wrong)} only waited in worker {event.worker}, which died, and are suspected"
        if event.cause is e.Death.CRASHED and not alone:
            queued = {key for key in ran if (t := s.tasks.get(key)) is not None and t.state is TaskState.QUEUED}
            stalled = {unit.key for step in s.steps for unit in step.queue.stalled.values()}
            missed = queued - suspects - stalled
            given = {unit.key for w in s.workers.values() for unit in w.assigned}
            assert not missed - given, (
                f"{sorted(missed)} ran in worker {event.worker}, which crashed, and are not suspected"
            )

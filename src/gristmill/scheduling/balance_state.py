"""When the balancer runs, and which of its moves stand: it does not undo its own moves on the same evidence.

A place is a step, a node and what a worker occupies there. On the same evidence a step does not leave a place that it
has filled, nor fill one that it has left. So the number of its workers in each place only grows or only shrinks, and no
staffing comes back before there is new evidence. docs/simulator.md lists what counts as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning.problem import Problem

Place = tuple[int, int, Placement]
"""(step, node, what a worker occupies there)"""
Estimates = Mapping[int, Mapping[int, int]]
"""For each step the time per task by kind of node, and the setup time as kind -1."""

_NEWS = 32
"""An estimate that moved by more than one part in so many is evidence."""


@dataclass(slots=True)
class BalanceState:
    """When the balancer runs, and what it has planned."""

    evidence: int = 0
    """Number of events so far that can change a plan (docs/simulator.md lists them)."""
    reason: str = ""
    """Why a rebalance is due; empty if none is."""
    done_at: int = 0
    due_at: int = 0
    """When to rebalance even if nothing happens."""
    freed_nodes: list[int] = field(default_factory=list)
    """Nodes that workers have left while places there are reserved."""
    plans: int = 0
    solving: int = 0
    """Number of the plan that is being made; 0: none is."""
    problem: Problem | None = None
    """The problem that it solves."""
    problem_evidence: int = 0
    """The evidence on which that was stated."""
    taking_turns: bool = False
    """Not every step can have a worker: they share the slots in time."""
    filled: set[Place] = field(default_factory=set)
    vacated: set[Place] = field(default_factory=set)
    moved_on: int = -1
    """The evidence on which these places were filled and vacated."""
    estimates: Estimates = field(default_factory=dict)
    measured_on: int = -1
    """The evidence on which these estimates were first used."""
    unblocked_at: int = -1
    """The evidence with which a step last got a worker because nothing was under way."""
    forced_at: int = -1
    """The evidence with which the balancer last ran because nothing was under way."""

    def add_evidence(self, is_new: bool = True) -> None:
        """Count evidence."""
        self.evidence += is_new

    def request(self, reason: str) -> None:
        """Ask for a rebalance. The first reason stands."""
        self.reason = self.reason or reason

    def begin(self, now: int, interval_us: int) -> None:
        """Begin a rebalance. Another one is due after the interval."""
        self.done_at, self.reason = now, ""
        self.due_at = now + interval_us

    def rebalance_by(self, due_at: int) -> None:
        """Rebalance at that time even if nothing happens before."""
        self.due_at = due_at

    def share_in_time(self, taking_turns: bool) -> None:
        self.taking_turns = taking_turns

    def solve(self, problem: Problem) -> int:
        """Note that a plan is being made for this problem. Return the number of the plan."""
        self.plans += 1
        self.solving = self.plans
        self.problem, self.problem_evidence = problem, self.evidence
        return self.plans

    def solved(self) -> None:
        """Note that the plan is made. Evidence that came in the meantime is evidence for the next one."""
        self.solving, self.problem = 0, None
        self.add_evidence(self.problem_evidence != self.evidence)

    def take_freed_nodes(self) -> list[int]:
        nodes, self.freed_nodes = self.freed_nodes, []
        return nodes

    def note_unblocked(self) -> None:
        """Count as evidence that nothing is under way. A second time it counts only if there was other evidence."""
        self.add_evidence(self.unblocked_at != self.evidence)
        self.unblocked_at = self.evidence

    def claim_forced_run(self) -> bool:
        """Return True once for the same evidence: the balancer may run although nothing calls for it."""
        if self.forced_at == self.evidence:
            return False
        self.forced_at = self.evidence
        return True

    def may_fill(self, place: Place) -> bool:
        return self.moved_on != self.evidence or place not in self.vacated

    def may_vacate(self, place: Place) -> bool:
        return self.moved_on != self.evidence or place not in self.filled

    def fill(self, place: Place) -> None:
        self._renew()
        self.filled.add(place)

    def vacate(self, place: Place) -> None:
        self._renew()
        self.vacated.add(place)

    def _renew(self) -> None:
        if self.moved_on != self.evidence:
            self.moved_on = self.evidence
            self.filled.clear()
            self.vacated.clear()

    def note_estimates(self, estimates: Estimates) -> None:
        """Note the estimates that are used now. If they differ from others on the same evidence, that is evidence."""
        if self.measured_on == self.evidence:
            if not _moved(self.estimates, estimates):
                return
            self.add_evidence()
        self.measured_on = self.evidence
        self.estimates = estimates


def _moved(before: Estimates, after: Estimates) -> bool:
    return any(
        abs(now - before[step].get(kind, now)) * _NEWS > max(before[step].get(kind, now), 0)
        for step, estimates in after.items()
        if step in before
        for kind, now in estimates.items()
    )

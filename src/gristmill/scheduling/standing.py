"""Decisions stand until there is new evidence: the balancer does not undo its own moves on the same evidence.

A place is a step, a node and what a worker occupies there. On the same evidence a step does not leave a place that it
has filled, nor fill one that it has left. So the number of its workers in each place only grows or only shrinks, and no
staffing comes back before there is new evidence. docs/simulator.md lists what counts as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gristmill.scheduling.placement import Placement

Place = tuple[int, int, Placement]
"""(step, node, what a worker occupies there)"""
Estimates = Mapping[int, Mapping[int, int]]
"""For each step the time per task by kind of node, and the setup time as kind -1."""

_NEWS = 32
"""An estimate that moved by more than one part in so many is evidence."""


@dataclass(slots=True)
class Standing:
    """Moves that the balancer made on the latest evidence, and the estimates that it made them with."""

    evidence: int = -1
    filled: set[Place] = field(default_factory=set)
    vacated: set[Place] = field(default_factory=set)
    measured_on: int = -1
    """The evidence on which the estimates were first used."""
    estimates: Estimates = field(default_factory=dict)

    def may_fill(self, evidence: int, place: Place) -> bool:
        return self.evidence != evidence or place not in self.vacated

    def may_vacate(self, evidence: int, place: Place) -> bool:
        return self.evidence != evidence or place not in self.filled

    def fill(self, evidence: int, place: Place) -> None:
        self._renew(evidence)
        self.filled.add(place)

    def vacate(self, evidence: int, place: Place) -> None:
        self._renew(evidence)
        self.vacated.add(place)

    def _renew(self, evidence: int) -> None:
        if self.evidence != evidence:
            self.evidence = evidence
            self.filled.clear()
            self.vacated.clear()

    def note_estimates(self, evidence: int, estimates: Estimates) -> bool:
        """Replace the estimates of this evidence if these differ. Return whether they do."""
        news = self.measured_on == evidence and _moved(self.estimates, estimates)
        if news or self.measured_on != evidence:
            self.measured_on = evidence + news
            self.estimates = estimates
        return news


def _moved(before: Estimates, after: Estimates) -> bool:
    return any(
        abs(now - before[step].get(kind, now)) * _NEWS > max(before[step].get(kind, now), 0)
        for step, estimates in after.items()
        if step in before
        for kind, now in estimates.items()
    )

"""The history of a run in bounded memory: a few hundred points however long it lasts, and what happened when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from gristmill.metrics.observer import FailureMoment, Moment, PlanInfo
from gristmill.scheduling.snapshot import Decision

MOST_POINTS = 600
MOST_DECISIONS = 2_000
MOST_FAILURES = 100
MOST_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One step at one moment. Each worker is in one state."""

    busy: int
    idle: int
    starting: int
    draining: int
    queued: int
    queued_bytes: int
    tasks_done: int
    items_done: int
    tasks_failed: int
    busy_s: float
    waiting_s: float
    """Seconds so far in which the step had nothing to do because no input had come."""
    blocked_s: float
    """Seconds so far in which tasks waited because their output would not have fitted the byte budget."""


@dataclass(frozen=True, slots=True)
class Point:
    """The run at one moment."""

    at_s: float
    steps: tuple[StepPoint, ...]
    bottleneck: int | None
    held_bytes: int
    reserved_bytes: int
    memory_bytes: int
    read: int
    kept: int
    gpu_busy_percent: tuple[int, ...]
    gpu_memory_bytes: tuple[int, ...]


@dataclass
class PlanHistory:
    """The history of one plan. Times are seconds since it began."""

    plan: PlanInfo
    points: list[Point] = field(default_factory=list)
    last: Moment | None = None
    decisions: list[Decision] = field(default_factory=list)
    failures: deque[FailureMoment] = field(default_factory=lambda: deque(maxlen=MOST_FAILURES))
    spacing_s: float = 0.0
    """Points are at least so far apart."""
    states_s: list[tuple[float, float]] = field(default_factory=list)
    """By step, the seconds so far of waiting for input and of being blocked by output."""

    def add(self, moment: Moment) -> None:
        """Add a moment. When there are too many points every second one is removed."""
        snapshot = moment.snapshot
        self._add_states(moment)
        self.last = moment
        known = self.decisions[-1] if self.decisions else None
        new = snapshot.decisions
        if known in new:
            new = new[new.index(known) + 1 :]
        self.decisions += new[: MOST_DECISIONS - len(self.decisions)]
        seen = self.failures[-1].number if self.failures else 0
        self.failures.extend(failure for failure in moment.failures if failure.number > seen)
        point = self._point(moment)
        if len(self.points) >= 2 and point.at_s - self.points[-2].at_s < self.spacing_s:
            self.points[-1] = point  # the latest point is always there
            return
        self.points.append(point)
        if len(self.points) > MOST_POINTS:
            self.points = [*self.points[:-1:2], self.points[-1]]
            self.spacing_s = max(self.spacing_s * 2, 2 * point.at_s / MOST_POINTS)

    def _add_states(self, moment: Moment) -> None:
        if not self.states_s:
            self.states_s = [(0.0, 0.0)] * len(moment.snapshot.steps)
        if self.last is None:
            return
        before = self.last.snapshot
        seconds = max(0, moment.snapshot.now_us - before.now_us) / 1e6
        self.states_s = [
            (waiting + seconds * step.waits_for_input, blocked + seconds * step.blocked_by_output)
            for (waiting, blocked), step in zip(self.states_s, before.steps, strict=True)
        ]

    def _point(self, moment: Moment) -> Point:
        snapshot, progress = moment.snapshot, moment.progress
        return Point(
            at_s=snapshot.now_us / 1e6,
            steps=tuple(
                StepPoint(
                    *s.states,
                    s.queued,
                    s.queued_bytes,
                    s.tasks_done,
                    s.items_done,
                    s.tasks_failed,
                    s.busy_us / 1e6,
                    *states,
                )
                for s, states in zip(snapshot.steps, self.states_s, strict=True)
            ),
            bottleneck=snapshot.bottleneck,
            held_bytes=snapshot.held_bytes,
            reserved_bytes=snapshot.reserved_bytes,
            memory_bytes=moment.memory_bytes,
            read=progress.read if progress else 0,
            kept=progress.kept if progress else 0,
            gpu_busy_percent=tuple(gpu.busy_percent for gpu in snapshot.gpus),
            gpu_memory_bytes=tuple(gpu.memory_bytes for gpu in snapshot.gpus),
        )

    def plain(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return {
            "plan": asdict(self.plan),
            "points": [asdict(point) for point in self.points],
            "decisions": [asdict(decision) for decision in self.decisions],
            "failures": [asdict(failure) for failure in self.failures],
        }


class History:
    """An observer that remembers: one `PlanHistory` for each plan that the run has begun."""

    def __init__(self) -> None:
        self.plans: list[PlanHistory] = []
        self.messages: list[str] = []

    def begin(self, plan: PlanInfo) -> None:
        self.plans.append(PlanHistory(plan))

    def update(self, moment: Moment) -> None:
        self.plans[-1].add(moment)

    def message(self, text: str) -> None:
        if len(self.messages) < MOST_MESSAGES:
            self.messages.append(text)

    def decisions(self) -> Iterator[Decision]:
        """Yield the decisions of the balancer in all plans."""
        for plan in self.plans:
            yield from plan.decisions

    def failures(self) -> Sequence[FailureMoment]:
        """Return the latest failures of the current plan."""
        return tuple(self.plans[-1].failures) if self.plans else ()

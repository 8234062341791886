"""Moments of a run that did not happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gristmill.metrics.observer import DocumentsMoment, FailureMoment, Moment, PlanInfo, StageMoment, StepInfo
from gristmill.scheduling.snapshot import Decision, Snapshot, StepSnapshot

STEP = StepSnapshot("step", True, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, False)


def plan(*names: str) -> PlanInfo:
    """A plan with a step of one stage for each name."""
    return PlanInfo("made", "LocalExecutor", tuple(StepInfo(n, (n,), 1, 0, 0, 0, 1, None) for n in names))


def moment(at_s: float, *steps: dict[str, Any], decisions: tuple[Decision, ...] = (), **known: Any) -> Moment:
    """A moment with steps that are like `STEP` except for the given fields."""
    made = tuple(replace(STEP, name=f"s{i}", **fields) for i, fields in enumerate(steps))
    snapshot = Snapshot(round(at_s * 1e6), made, 0, 10, 5, 100, 0, None, False, 0, 0, 0, decisions)
    return Moment(**{"snapshot": snapshot, "memory_bytes": 1 << 20, "memory_limit": 1 << 30, "progress": None, **known})


def decisions(first: int, last: int) -> tuple[Decision, ...]:
    return tuple(Decision(n * 1_000_000, f"decision {n}") for n in range(first, last + 1))


def failures(first: int, last: int, error: str = "ValueError: no") -> tuple[FailureMoment, ...]:
    return tuple(FailureMoment(n, str(n), "s0", error, 1) for n in range(first, last + 1))


def stage(name: str, step: int = 0) -> StageMoment:
    return StageMoment(name, step, 10, 100, 10, 9, 80, 1, 0, 0, 1.5)


def documents(**dropped: dict[str, int]) -> DocumentsMoment:
    """Documents dropped by stage and reason."""
    by = {(stage, reason): n for stage, reasons in dropped.items() for reason, n in reasons.items()}
    return DocumentsMoment(100, 0, 100 - sum(by.values()), 0, by, {}, 0, {}, 0)

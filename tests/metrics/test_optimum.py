"""The share of optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gristmill.metrics.history import PlanHistory
from gristmill.metrics.observer import Moment, PlanInfo
from gristmill.metrics.optimum import TASKS, WINDOW_S, share_of_optimum
from gristmill.scheduling.snapshot import Snapshot, StepSnapshot

MakeStep = Callable[..., StepSnapshot]
MakeMoment = Callable[..., Snapshot]


def history_of(*snapshots: Snapshot) -> PlanHistory:
    history = PlanHistory(PlanInfo("p", "local", ()))
    for snapshot in snapshots:
        history.add(Moment(snapshot, 0, 0, None))
    return history


@pytest.fixture
def at(step: MakeStep, moment: MakeMoment) -> Callable[..., Snapshot]:
    """Return a moment with a bottleneck that has done so many tasks and could do ten a second."""

    def make(seconds: float, done: int, **known: Any) -> Snapshot:
        known = {"tasks_done": done, "optimum_ns": 100_000_000, **known}
        return moment(seconds, step("other"), replace(step("slow"), **known), bottleneck=1)

    return make


def test_it_is_the_rate_of_the_bottleneck_times_the_interval_of_the_plan(at: Callable[..., Snapshot]) -> None:
    assert share_of_optimum(history_of(at(0, 0), at(10, 80))) == pytest.approx(0.8)


def test_only_the_last_seconds_count(at: Callable[..., Snapshot]) -> None:
    """A slow start is forgotten: all that ends within the window ended in its last ten seconds."""
    moments = [at(float(s), 0) for s in range(100)] + [at(100.0 + s, 10 * s) for s in range(1, 61)]
    assert share_of_optimum(history_of(*moments)) == pytest.approx(1.0, abs=0.05)
    assert WINDOW_S < 60


def test_the_window_is_longer_if_tasks_are_long(at: Callable[..., Snapshot]) -> None:
    """Five tasks every 50 s: within 30 s they would be none or five."""
    moments = [at(float(s), s // 50 * 5, optimum_ns=10_000_000_000) for s in range(0, 1000)]
    share = share_of_optimum(history_of(*moments))
    assert share == pytest.approx(1.0, abs=6 / TASKS)


def test_it_is_not_known_at_first_without_a_bottleneck_or_an_optimum(
    at: Callable[..., Snapshot], moment: MakeMoment, step: MakeStep
) -> None:
    assert share_of_optimum(history_of()) is None
    assert share_of_optimum(history_of(at(0, 0), at(0.5, 5))) is None
    assert share_of_optimum(history_of(at(0, 0), at(10, 0))) is None
    assert share_of_optimum(history_of(at(0, 0), at(10, 5, optimum_ns=0))) is None
    assert share_of_optimum(history_of(moment(0, step()), moment(10, step(tasks_done=5, optimum_ns=1)))) is None

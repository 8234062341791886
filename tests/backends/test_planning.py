"""Plans that are made beside the loop."""

from __future__ import annotations

import time

import pytest

from gristmill.backends.engine import driver
from gristmill.scheduling.commands import Solve
from gristmill.scheduling.planning import Problem


def taken(made: driver.Planning) -> list[object]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done = made.take()
        if done:
            return list(done)
        time.sleep(0.001)
    raise AssertionError("no plan came")


def test_a_plan_comes_back_with_its_number() -> None:
    made = driver.Planning()
    made.ask(Solve(7, Problem((), ())))
    assert [x.number for x in taken(made)] == [7]  # type: ignore[attr-defined]
    assert made.take() == []


def test_a_planner_that_fails_does_not_fail_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: Problem) -> None:
        raise AssertionError("no plan for this")

    monkeypatch.setattr(driver, "solve", broken)
    made = driver.Planning()
    made.ask(Solve(1, Problem((), ())))
    with pytest.raises(AssertionError, match="no plan for this"):
        taken(made)

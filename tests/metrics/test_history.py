"""The history of a run in bounded memory."""

import itertools
import random

import pytest
from tests.dashboard.made import decisions, failures, moment, plan

from gristmill.metrics import history as module
from gristmill.metrics.history import History, PlanHistory


def one(**fields):
    return {"busy": 1, **fields}


def test_points_stay_few_and_cover_the_run_however_long_it_is():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    past = PlanHistory(plan("a"))
    at = 0.0
    for _ in range(20_000):
        at += rng.choice((0.1, 0.5, 0.5, 0.5, 3.0, 40.0))
        past.add(moment(at, one(tasks_done=int(at))))
        assert len(past.points) <= module.MOST_POINTS
        assert past.points[-1].at_s == pytest.approx(at, abs=1e-3), "the latest moment is always there"
    times = [point.at_s for point in past.points]
    assert times == sorted(times) and times[0] < at / 100
    assert len(times) > module.MOST_POINTS / 4
    assert max(b - a for a, b in itertools.pairwise(times)) < at / 20, "no part of the run is missing"


def test_waiting_and_blocked_seconds_count_the_time_until_the_next_moment():
    past = PlanHistory(plan("a", "b"))
    past.add(moment(1, one(waits_for_input=True), one(blocked_by_output=True)))
    past.add(moment(3, one(), one(blocked_by_output=True)))
    past.add(moment(7, one(), one()))
    past.add(moment(9, one(), one()))
    assert past.states_s == [(2.0, 0.0), (0.0, 6.0)]
    assert (past.points[-1].steps[0].waiting_s, past.points[-1].steps[1].blocked_s) == (2.0, 6.0)


def test_decisions_are_taken_once_from_windows_that_overlap():
    past = PlanHistory(plan("a"))
    for last in (3, 3, 5, 20):
        past.add(moment(last, one(), decisions=decisions(max(1, last - 6), last)))
    # Between the last two moments more happened than a window shows: what it shows is there, in order, once.
    assert [d.text for d in past.decisions] == [f"decision {n}" for n in (1, 2, 3, 4, 5, *range(14, 21))]


def test_decisions_and_failures_and_messages_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_DECISIONS", 10)
    history = History()
    history.begin(plan("a"))
    for n in range(1, 300):
        history.update(moment(n, one(), decisions=decisions(n, n), failures=failures(max(1, n - 5), n)))
        history.message(f"message {n}")
    assert len(list(history.decisions())) == 10
    assert [f.number for f in history.failures()] == list(range(200, 300)), "the latest failures, each once"
    assert len(history.messages) == module.MOST_MESSAGES


def test_each_plan_has_its_own_history():
    history = History()
    history.begin(plan("a"))
    history.update(moment(5, one(), decisions=decisions(1, 1), failures=failures(1, 2)))
    history.begin(plan("b", "c"))
    history.update(moment(1, one(), one(), decisions=decisions(2, 2)))
    assert [len(past.points) for past in history.plans] == [1, 1]
    assert [d.text for d in history.decisions()] == ["decision 1", "decision 2"]
    assert history.failures() == ()

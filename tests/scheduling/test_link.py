"""Messages that come late, twice or never: every worker is accounted for, and nobody is blamed for a bad link."""

from __future__ import annotations

from typing import Any

import pytest
from script import Script

from gristmill.scheduling import StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import SECOND, cpus
from gristmill.scheduling.state import WorkerState

TIMEOUT = 10 * SECOND


def linked(*steps: StepSpec, tasks: int = 4, **more: Any) -> Script:
    """A script with links that are not trusted and workers that are up; their readiness was report 1."""
    s = Script(*(steps or (StepSpec("a", workers=1),)), link_timeout_us=TIMEOUT, **more)
    s.give(tasks)
    for w in [x.worker for x in s.all(c.StartWorker)]:
        s.tell(e.WorkerReady(w, seq=1))
    return s


def wait(s: Script, us: int, heard: bool = True) -> list[Any]:
    """Time passes second by second; whoever is heard of has sent and received what the scheduler thinks."""
    answer = []
    for _ in range(us // SECOND):
        if heard:
            links = [(w.id, w.link) for w in s.state.workers.values() if w.kill_cause is None]
            s.tell(*(e.WorkerAlive(i, x.taken, x.sent) for i, x in links if x), after=0)
        answer += s.tell(e.Tick(), after=SECOND)
    return answer


def kills(answer: list[Any]) -> list[int]:
    return [x.worker for x in answer if type(x) is c.KillWorker]


def test_a_report_that_comes_twice_counts_once() -> None:
    s = linked()
    worker, unit = s.unit()
    report = e.UnitFinished(worker, unit, s.outputs(1, parent=unit), 1000, seq=2)
    s.tell(report)
    done = s.state.steps[0].tasks_done
    assert s.tell(report, e.WorkerReady(worker, seq=1)) == []
    assert s.state.steps[0].tasks_done == done == 1


def test_reports_are_taken_in_in_the_order_in_which_they_were_made() -> None:
    s = linked()
    worker, first = s.unit()
    second = s.state.workers[worker].assigned[1].key
    assert s.tell(e.UnitFinished(worker, second, s.outputs(1, parent=second), 1000, seq=3)) == []
    assert s.state.steps[0].tasks_done == 0
    s.tell(e.UnitFinished(worker, first, s.outputs(1, parent=first), 1000, seq=2))
    assert s.state.steps[0].tasks_done == 2


def test_a_worker_whose_report_is_lost_is_ended_and_its_work_goes_elsewhere_without_blame() -> None:
    s = linked()
    worker, first = s.unit()
    second = s.state.workers[worker].assigned[1].key
    s.tell(e.UnitFinished(worker, second, (), 1000, seq=3))
    assert kills(wait(s, TIMEOUT)) == []
    assert kills(wait(s, 2 * SECOND))[:1] == [worker]
    assert {t.id for u in s.state.workers[worker].assigned for t in u.tasks} == {first, second}
    s.tell(e.WorkerDied(worker, e.Death.KILLED, running=first))
    assert not s.state.steps[0].suspects
    assert all(t.attempts == 0 for t in s.state.tasks.values())
    s.start()
    assert s.unit()[0] != worker


def test_a_gap_that_closes_in_time_is_forgiven() -> None:
    s = linked()
    worker, first = s.unit()
    second = s.state.workers[worker].assigned[1].key
    s.tell(e.UnitFinished(worker, second, (), 1000, seq=3))
    wait(s, TIMEOUT - 2 * SECOND)
    s.tell(e.UnitFinished(worker, first, (), 1000, seq=2))
    assert kills(wait(s, 2 * TIMEOUT)) == []


def test_a_lost_report_that_no_other_follows_is_found_by_the_signs_of_life() -> None:
    s = linked()
    worker, _ = s.unit()
    sent = s.state.workers[worker].link.sent
    killed = []
    for _ in range(11):
        assert killed == []
        s.tell(e.WorkerAlive(worker, 2, sent), after=0)
        killed = kills(s.tell(e.Tick(), after=SECOND))
    assert killed == [worker]


@pytest.mark.parametrize("received", [0, 1])
def test_a_lost_command_is_found_by_the_signs_of_life(received: int) -> None:
    s = linked()
    worker, _ = s.unit()
    assert s.state.workers[worker].link.sent == len(s.all(c.Dispatch)) > received
    killed = []
    for _ in range(11):
        assert killed == []
        s.tell(e.WorkerAlive(worker, 1, received), after=0)
        killed = kills(s.tell(e.Tick(), after=SECOND))
    assert killed == [worker]


def test_commands_that_have_arrived_are_not_missed() -> None:
    s = linked()
    assert kills(wait(s, 3 * TIMEOUT)) == []


def test_a_silent_worker_is_ended_even_one_that_never_came_up() -> None:
    s = Script(StepSpec("a", workers=1), link_timeout_us=TIMEOUT)
    s.give(1)
    (start,) = s.all(c.StartWorker)
    assert kills(wait(s, TIMEOUT - SECOND, heard=False)) == []
    assert kills(wait(s, 2 * SECOND, heard=False))[:1] == [start.worker]
    again = s.tell(e.WorkerDied(start.worker, e.Death.KILLED))
    assert [x for x in again if type(x) is c.StartWorker]
    assert s.state.steps[0].setup_kills == 0


def test_the_order_to_kill_is_repeated_until_the_death_is_known() -> None:
    s = linked()
    worker, _ = s.unit()
    wait(s, TIMEOUT + SECOND, heard=False)
    assert kills(wait(s, 3 * SECOND, heard=False)) == [worker] * 3
    assert s.state.workers[worker].assigned, "it may still be running"
    s.tell(e.WorkerDied(worker, e.Death.KILLED))
    assert worker not in kills(wait(s, 3 * SECOND, heard=False))


def test_a_worker_that_is_told_to_die_gets_no_more_work() -> None:
    s = linked(StepSpec("a", workers=2), nodes=(cpus(2),), tasks=0)
    first, second = list(s.state.workers)
    for _ in range(12):
        s.tell(e.WorkerAlive(second, 1, 0), e.Tick(), after=SECOND // 2)
    assert s.state.workers[first].kill_cause is e.Death.LINK_LOST
    s.give(10)
    assert {worker for worker, _, _ in s.running()} == {second}


def test_a_worker_that_the_scheduler_has_given_up_and_that_lives_is_ended() -> None:
    s = linked()
    worker, _ = s.unit()
    s.tell(e.WorkerDied(worker, e.Death.KILLED))
    assert s.tell(e.WorkerAlive(worker, 5, 5)) == [c.KillWorker(worker)]


def test_a_worker_that_crashed_is_blamed_even_if_the_news_comes_late() -> None:
    s = linked()
    worker, unit = s.unit()
    wait(s, TIMEOUT + SECOND, heard=False)
    s.tell(e.WorkerDied(worker, e.Death.CRASHED, running=unit))
    assert [u.key for u in s.state.steps[0].suspects] == [unit]


def test_a_worker_whose_farewell_is_lost_does_not_hold_up_the_end() -> None:
    s = linked(tasks=1)
    worker, unit = s.unit()
    s.tell(e.UnitFinished(worker, unit, (), 1000, seq=2), e.SourceEnded())
    assert s.state.workers[worker].state is WorkerState.STOPPING
    assert worker in kills(wait(s, TIMEOUT + SECOND, heard=False))
    assert s.tell(e.WorkerDied(worker, e.Death.KILLED))[-1:] == [c.Finish()]


def test_where_links_are_reliable_nothing_is_counted() -> None:
    s = Script(StepSpec("a", workers=1))
    s.give(2)
    s.start()
    worker, _ = s.unit()
    assert s.state.workers[worker].link is None
    assert kills(wait(s, 1000 * SECOND, heard=False)) == []
    assert s.tell(e.WorkerAlive(worker, 7, 7)) == []


def test_a_worker_that_is_always_a_little_behind_is_not_given_up() -> None:
    """Each gap has its own time, however many follow each other."""
    s = linked(tasks=40)
    worker, _ = s.unit()
    for number in range(2, 20):
        assert kills(wait(s, TIMEOUT // 2)) == []
        unit = s.unit()[1]
        s.tell(e.WorkerAlive(worker, number + 1, s.state.workers[worker].link.sent))
        s.tell(e.UnitFinished(worker, unit, (), 1000, seq=number))
        s.tell(e.WorkerAlive(worker, number + 1, s.state.workers[worker].link.sent))


def test_a_task_whose_report_is_missing_is_not_taken_for_one_that_hangs() -> None:
    """It has finished, its worker says that it has sent a report, and the report is lost."""
    s = linked(StepSpec("a", workers=1, timeout_us=3 * SECOND), tasks=1)
    worker, unit = s.unit()
    s.state.workers[worker].assigned[0].isolated = True
    s.tell(e.WorkerAlive(worker, 2, s.state.workers[worker].link.sent), after=SECOND)  # type: ignore[union-attr]
    killed = []
    for _ in range(2 * TIMEOUT // SECOND):
        s.tell(e.WorkerAlive(worker, 2, s.state.workers[worker].link.sent), after=0)  # type: ignore[union-attr]
        killed += kills(s.tell(e.Tick(), after=SECOND))
    assert set(killed) == {worker}
    assert s.state.workers[worker].kill_cause is e.Death.LINK_LOST
    s.tell(e.WorkerDied(worker, e.Death.KILLED, running=unit))
    assert not s.all(c.Quarantine)


def test_a_silent_worker_is_not_taken_for_one_that_hangs() -> None:
    """What it said last came before the deadline: the task may have finished since."""
    s = linked(StepSpec("a", workers=1, timeout_us=3 * SECOND), tasks=1)
    worker, _ = s.unit()
    assert set(kills(wait(s, 2 * TIMEOUT, heard=False))) == {worker}
    assert s.state.workers[worker].kill_cause is e.Death.LINK_LOST


def test_a_task_that_hangs_is_ended_once_its_worker_is_heard_of_after_the_deadline() -> None:
    s = linked(StepSpec("a", workers=1, timeout_us=3 * SECOND), tasks=1)
    worker, _ = s.unit()
    assert kills(wait(s, 5 * SECOND))[:1] == [worker]
    assert s.state.workers[worker].kill_cause is e.Death.TIMED_OUT

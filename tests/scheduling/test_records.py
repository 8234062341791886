"""The tables of what may happen to tasks and workers."""

from __future__ import annotations

import pytest

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.records import IllegalTransition, TaskRec, WorkerMove, WorkerRec, WorkerState
from gristmill.scheduling.records.tasks import TASK_MOVES, TaskMove, TaskState
from gristmill.scheduling.records.workers import WORKER_MOVES


def worker() -> WorkerRec:
    return WorkerRec(7, 0, None, Placement(), 0)


def test_a_worker_comes_up_drains_stops_and_leaves() -> None:
    w = worker()
    w.come_up(now=5)
    assert (w.state, w.ready_at) == (WorkerState.READY, 5)
    for how, state in (
        (WorkerMove.DRAINED, WorkerState.DRAINING),
        (WorkerMove.STOPPED, WorkerState.STOPPING),
        (WorkerMove.LEFT, WorkerState.GONE),
    ):
        w.move(how)
        assert w.state is state


def test_what_cannot_happen_to_a_worker_is_an_error_that_names_it() -> None:
    w = worker()
    w.move(WorkerMove.STOPPED)
    with pytest.raises(IllegalTransition, match="worker 7 is STOPPING: CAME_UP cannot happen"):
        w.come_up(now=5)


def test_what_cannot_happen_to_a_task_is_an_error_with_its_story() -> None:
    t = TaskRec(3, 0, 1, 1, False, 3, 0)
    t.note(2_000_000, "worker 4 crashed")
    with pytest.raises(IllegalTransition, match=r"task 3 of step 0 is QUEUED(.|\n)*2.000 s: worker 4 crashed"):
        t.move(TaskMove.FINISHED)


def test_nothing_happens_after_the_end() -> None:
    assert not [state for state, _ in WORKER_MOVES if state is WorkerState.GONE]
    ended = (TaskState.DONE, TaskState.QUARANTINED, TaskState.CANCELLED)
    assert not [state for state, _ in TASK_MOVES if state in ended]

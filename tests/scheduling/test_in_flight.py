"""Several units in flight in one worker: slots, reports in any order, timeouts, deaths and the end of a worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.scheduling.script import Script

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.in_flight import GRACE_US
from gristmill.scheduling.log import RecordingScheduler, replay
from gristmill.scheduling.records import IllegalTransition
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.simulator.model import SECOND, cpus

WAITS = StepSpec("waits", dedicated=True, workers=1, in_flight=4)


def script(spec: StepSpec = WAITS, *more: StepSpec, n: int = 20, size: int = 100, **options: Any) -> Script:
    """A scheduler whose workers are up and have tasks."""
    s = Script(spec, *more, nodes=(cpus(8),), **options)
    s.give(n, size)
    s.tell(e.SourceEnded())
    s.start()
    return s


def worker(s: Script, ident: int | None = None) -> Any:
    """A worker with several units in flight: the only one, or the one with this id."""
    found = [w for w in s.state.workers.values() if w.begun is not None and (ident is None or w.id == ident)]
    assert len(found) == 1
    return found[0]


def begun(s: Script) -> set[int]:
    return set(worker(s).begun)


def end(s: Script, unit: int, outputs: int = 1, busy_us: int = 1000, after: int = 1) -> list[Any]:
    w = next(w for w in s.state.workers.values() if any(u.key == unit for u in w.assigned))
    return s.tell(e.UnitFinished(w.id, unit, s.outputs(outputs, parent=unit), busy_us), after=after)


def crash(s: Script, cause: e.Death = e.Death.CRASHED, noted: tuple[int, ...] | None = None) -> list[Any]:
    return s.tell(e.WorkerDied(worker(s).id, cause, begun=noted))


def suspects(s: Script) -> set[int]:
    units = [u for step in s.state.steps for u in step.queue.suspects]
    units += [u for w in s.state.workers.values() for u in w.assigned if u.isolated]
    return {u.key for u in units}


# Slots ----------------------------------------------------------------------------------------------------------


def test_a_worker_begins_as_many_as_it_may_and_some_wait_in_it():
    s = script()
    w = worker(s)
    assert s.all(c.StartWorker)[0].in_flight == 4
    assert [u.key for u in w.assigned] == [0, 1, 2, 3, 4] and begun(s) == {0, 1, 2, 3}


def test_units_end_in_any_order_and_the_next_ones_begin_in_theirs():
    s = script()
    end(s, 2)
    assert begun(s) == {0, 1, 3, 4}
    end(s, 4)
    assert begun(s) == {0, 1, 3, 5}
    w = worker(s)
    with pytest.raises(IllegalTransition, match="which it does not have"):
        s.tell(e.UnitFinished(w.id, 2, (), 1))
    s.to_the_end()
    assert s.state.steps[0].counts.tasks_done == 20


def test_as_many_wait_as_make_20_ms_of_work():
    s = script(n=200)
    for _ in range(40):
        end(s, next(iter(worker(s).begun)), busy_us=4000)
    # 4 ms each, four at a time: one a millisecond
    assert len(worker(s).assigned) == 4 + 19


def test_the_last_units_of_a_slow_step_wait_for_no_busy_worker():
    s = script(replace(WAITS, workers=2), n=40)
    waiting = {True: 0, False: 0}
    while s.running():
        is_last = s.state.steps[0].queue.size <= 8
        unit = next(u.key for w in s.state.workers.values() for u in w.assigned)
        for x in end(s, unit, busy_us=4 * SECOND):
            if isinstance(x, c.Dispatch):
                waiting[is_last] += x.tasks[0] not in worker(s, x.worker).begun
    assert s.state.steps[0].service.service_us() == SECOND
    assert waiting[False] > 5 and not waiting[True]


def test_units_are_spread_over_workers_before_any_waits():
    s = Script(replace(WAITS, workers=3), nodes=(cpus(8),))
    s.start()
    s.give(9)
    assert [len(w.assigned) for w in s.state.workers.values()] == [3, 3, 3]
    s.give(6)
    assert [len(w.assigned) for w in s.state.workers.values()] == [5, 5, 5]


def test_the_source_is_asked_for_enough_to_fill_all_slots():
    s = Script(replace(WAITS, in_flight=2000), nodes=(cpus(8),), budget=1 << 40)
    s.tell(e.WorkerReady(0))
    total = 0
    for _ in range(40):
        pulls = s.all(c.Pull)
        total += pulls[-1].count
        if not s.state.source.pulling:
            break
        s.give(pulls[-1].count)
    assert len(worker(s).begun) == 2000


def test_in_flight_needs_dedicated_workers_and_single_tasks():
    with pytest.raises(ValueError, match="'waits': units in flight need dedicated workers and a batch size of one"):
        replace(WAITS, batch_size=2)
    with pytest.raises(ValueError, match="dedicated workers"):
        replace(WAITS, dedicated=False)


def test_the_budget_counts_the_outputs_of_all_units_in_a_worker():
    s = script(WAITS, StepSpec("next"), n=20, size=100, budget=1 << 20)
    w = worker(s)
    assert s.state.budget.reserved == sum(u.reserved for u in w.assigned) > 0
    assert s.state.budget.used <= 1 << 20
    expected = s.state.config.budget // 32
    assert all(u.reserved == expected for u in w.assigned)


# Generators -----------------------------------------------------------------------------------------------------

STREAMS = replace(WAITS, streams=True)


def emit(s: Script, unit: int, size: int = 100) -> list[Any]:
    return s.tell(e.UnitEmitted(worker(s).id, unit, s.outputs(1, size, parent=unit), 1000))


def test_a_suspended_unit_keeps_its_slot_and_none_waits():
    s = script(STREAMS, StepSpec("next"), budget=1 << 20)
    w = worker(s)
    assert len(w.assigned) == len(w.begun) == 4
    answer = emit(s, 1, size=600_000)  # no more fits the budget
    assert not [x for x in answer if isinstance(x, c.Resume) or (isinstance(x, c.Dispatch) and x.step == 0)]
    assert set(w.suspended) == {1} and begun(s) == {0, 2, 3} and len(w.assigned) == 3
    s.start()
    answer = s.finish(step=1)
    assert c.Resume(w.id, 1) in answer and begun(s) == {0, 1, 2, 3}


def test_when_nothing_else_can_run_a_suspended_unit_is_resumed():
    s = script(STREAMS, StepSpec("next"), budget=3000)
    for _ in range(60):
        if not s.running():
            break
        w, step, tasks = s.running()[0]
        if step == 0:
            emit(s, tasks[0], size=2000)
        else:
            s.tell(e.UnitFinished(w, tasks[0], s.outputs(1, parent=tasks[0]), 10))
        s.start()
        assert s.running(), "nothing runs"


# Times ----------------------------------------------------------------------------------------------------------


def test_the_service_time_is_that_of_a_full_worker_per_task():
    s = script(n=400)
    for _ in range(100):
        end(s, next(iter(worker(s).begun)), busy_us=100_000, after=25_000)
    step = s.state.steps[0]
    assert step.service.service_us() == 25_000
    assert step.times.busy_us / 100 == pytest.approx(25_000, rel=0.05)  # the time with a unit in flight, not the sum


def test_a_worker_that_is_not_full_counts_in_proportion():
    s = Script(WAITS, nodes=(cpus(8),))
    s.tell(e.WorkerReady(0))
    for i in range(20):
        s.give(1)
        end(s, i * 2, busy_us=100_000, after=100_000)
    assert s.state.steps[0].service.service_us() == 25_000


def test_the_balancer_asks_for_the_workers_that_the_throughput_needs():
    slow = StepSpec("slow", dedicated=True, in_flight=16)
    s = Script(StepSpec("fast", dedicated=True, workers=1), slow, nodes=(cpus(16),), autoscale_interval_us=SECOND)
    s.give(400)
    s.start()
    for _ in range(200):  # a task every 10 ms; each takes 160 ms, 16 at a time: one worker is enough
        s.start()
        running = [x for x in s.running() if x[1] == 0]
        if running:
            s.tell(e.UnitFinished(running[0][0], running[0][2][0], s.outputs(1, parent=0), 10_000), after=10_000)
        full = [x for x in s.running() if x[1] == 1]
        if len(full) >= 16:
            s.tell(e.UnitFinished(full[0][0], full[0][2][0], s.outputs(1, parent=0), 160_000), after=1)
    assert len(s.state.steps[1].workers) <= 2


def test_a_unit_that_does_not_end_after_it_was_cancelled_has_its_worker_killed():
    s = script(replace(WAITS, timeout_us=2 * SECOND))
    end(s, 0, after=SECOND)  # the fifth unit begins a second later
    assert not [x for x in s.tell(e.Tick(), after=SECOND + GRACE_US) if isinstance(x, c.KillWorker)]
    answer = s.tell(e.Tick(), after=10)
    assert answer == [c.KillWorker(0)]
    end(s, 1)  # its report was on the way
    s.tell(e.WorkerDied(0, e.Death.KILLED, begun=(2, 3, 4, 5)))
    assert suspects(s) == {2, 3}
    assert s.state.tasks[4].attempts == s.state.tasks[5].attempts == 0


def test_a_unit_that_the_worker_had_not_begun_is_not_suspected_of_blocking_it():
    s = script(replace(WAITS, timeout_us=2 * SECOND))
    s.tell(e.Tick(), after=8 * SECOND)
    s.tell(e.WorkerDied(0, e.Death.KILLED, begun=(1,)))
    assert suspects(s) == {1}


def test_no_unit_is_suspected_if_the_slow_one_was_reported_in_time():
    s = script(replace(WAITS, timeout_us=2 * SECOND), n=2)
    end(s, 1, after=4 * SECOND)
    s.give(0)
    assert s.tell(e.Tick(), after=4 * SECOND) == [c.KillWorker(0)]
    end(s, 0)
    s.tell(e.WorkerDied(0, e.Death.KILLED, begun=()))
    assert not suspects(s)


# Deaths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [e.Death.CRASHED, e.Death.KILLED])
@pytest.mark.parametrize("noted", [None, (0, 1, 2, 3)])
def test_all_that_are_begun_are_suspected_and_none_that_waited(cause: e.Death, noted: tuple[int, ...] | None):
    s = script()
    assert [u.key for u in worker(s).assigned] == [0, 1, 2, 3, 4]
    crash(s, cause, noted)
    assert suspects(s) == {0, 1, 2, 3}
    assert s.state.tasks[4].attempts == s.state.tasks[4].losses == 0


def test_the_note_of_the_worker_counts_more_than_what_is_deduced():
    s = script()
    crash(s, noted=(2, 4))
    assert suspects(s) == {2, 4}
    assert s.state.tasks[0].losses == 0


def test_suspects_run_one_after_another_in_one_fresh_worker_and_then_the_rest():
    s = script()
    crash(s)
    s.start()
    w = worker(s)
    for unit in (3, 2, 1, 0):
        assert [u.key for u in w.assigned] == [unit]
        end(s, unit)
    assert worker(s) is w and len(w.begun) == 4 and len(s.all(c.StartWorker)) == 2
    s.to_the_end()
    assert s.state.steps[0].counts.tasks_done == 20


def test_only_a_death_while_alone_confirms_a_suspect():
    s = script(ignore_failures=True)
    crash(s)
    s.start()
    end(s, 3)
    assert [u.key for u in worker(s).assigned] == [2]
    answer = crash(s, noted=(2,))
    assert [x.task for x in answer if isinstance(x, c.Quarantine)] == [2]
    s.start()
    assert [u.key for u in worker(s).assigned] == [1]
    s.to_the_end()
    assert (s.state.steps[0].counts.tasks_done, s.state.steps[0].counts.tasks_failed) == (19, 1)
    assert s.state.deaths == 2


def test_a_death_without_a_note_confirms_no_suspect():
    """The unit may have been sent to a worker that was dead."""
    s = script(n=1, ignore_failures=True)
    crash(s)
    for _ in range(s.state.config.isolated_kills - 1):
        s.start()
        assert [u.key for u in worker(s).assigned] == [0] and not [x for x in crash(s) if isinstance(x, c.Quarantine)]
    s.start()
    assert [x.task for x in crash(s) if isinstance(x, c.Quarantine)] == [0]


def test_a_suspect_that_raises_leaves_the_worker_to_the_others():
    s = script()
    crash(s)
    s.start()
    w = worker(s)
    s.tell(e.UnitFailed(w.id, 3, "ValueError: bad"))
    assert [u.key for u in w.assigned] == [2] and worker(s) is w


def test_units_of_a_worker_on_a_lost_node_are_not_suspected():
    s = Script(replace(WAITS, workers=None), nodes=(cpus(2), cpus(2, node=1)))
    s.give(20)
    s.start()
    s.tell(e.NodeLost(0))
    assert not suspects(s)
    assert all(t.attempts <= 1 for t in s.state.tasks.values())


# Memory ---------------------------------------------------------------------------------------------------------


def test_after_running_out_of_memory_half_as_many_are_in_flight():
    s = script(replace(WAITS, workers=2), n=40)
    first, second = s.state.workers
    had = {i: tuple(w.begun) for i, w in s.state.workers.items()}
    answer = s.tell(e.WorkerDied(first, e.Death.OUT_OF_MEMORY, begun=had[first]))
    assert c.LimitInFlight(second, 2) in answer and not suspects(s)
    assert any("2 in flight in each worker" in d.text for d in s.state.decisions)
    started = [x for x in answer if isinstance(x, c.StartWorker)]
    assert [x.in_flight for x in started] == [2]
    assert all(s.state.tasks[t].attempts <= 1 for t in had[first])  # this attempt did not count
    # the other worker had begun four before: its death says nothing of two
    s.tell(e.WorkerDied(second, e.Death.OUT_OF_MEMORY, begun=had[second]))
    assert s.state.steps[0].in_flight == 2 and not suspects(s)


def test_only_at_one_in_flight_a_unit_is_tried_alone():
    s = script(n=6)
    for limit in (2, 1):
        crash(s, e.Death.OUT_OF_MEMORY)
        assert s.state.steps[0].in_flight == limit and not suspects(s)
        s.start()
    (unit,) = worker(s).begun
    crash(s, e.Death.OUT_OF_MEMORY)
    assert suspects(s) == {unit} and s.state.suspects.solo == 1
    s.start()
    assert [u.solo for u in worker(s).assigned] == [True]
    s.to_the_end()
    assert s.state.steps[0].counts.tasks_done == 6


def test_a_suspect_that_runs_out_of_memory_alone_does_not_reduce_the_number():
    s = script()
    crash(s)
    s.start()
    crash(s, e.Death.OUT_OF_MEMORY, (3,))
    assert s.state.steps[0].in_flight == 4 and s.state.suspects.solo == 1


# The end of a worker --------------------------------------------------------------------------------------------


def test_a_worker_that_drains_gives_back_what_waits_and_ends_what_is_begun():
    s = script(replace(WAITS, lifetime_us=SECOND), n=40)
    old = worker(s)
    assert len(old.assigned) == 5
    s.tell(e.Tick(), after=2 * SECOND)
    answer = s.tell(e.WorkerReady(1))
    assert c.ReturnWaiting(old.id) in answer
    end(s, 0)
    assert set(old.begun) == {1, 2, 3}  # the one that waits does not begin
    s.tell(e.UnitsReturned(old.id, (4,)))
    assert s.state.tasks[4].attempts == 1 and 4 in {u.key for u in worker(s, 1).assigned}
    for unit in (1, 2):
        end(s, unit)
    assert c.StopWorker(old.id) in end(s, 3)
    s.to_the_end()


def test_what_a_draining_worker_does_not_give_back_is_begun():
    """It had begun the unit when it was asked, and the report on the one before was on its way."""
    s = script(replace(WAITS, lifetime_us=SECOND, timeout_us=SECOND), n=40)
    old = worker(s)
    s.tell(e.Tick(), after=2 * SECOND)
    s.tell(e.WorkerReady(1))
    end(s, 0)
    s.tell(e.UnitsReturned(old.id, ()))
    assert set(old.begun) == {1, 2, 3, 4}
    for unit in (1, 2, 3):
        end(s, unit)
    assert c.KillWorker(old.id) in s.tell(e.Tick(), after=SECOND + GRACE_US + 10)


def test_a_worker_without_waiting_units_is_not_asked_to_return_any():
    s = script(replace(WAITS, lifetime_us=SECOND), n=4)
    s.tell(e.Tick(), after=2 * SECOND)
    s.tell(e.WorkerReady(1))
    assert not s.all(c.ReturnWaiting)


def test_cancelled_units_run_again_without_counting():
    s = script(STREAMS, StepSpec("next"), n=6, budget=1 << 20)
    emit(s, 1, size=1 << 20)
    w = worker(s)
    assert set(w.suspended) == {1}
    s.tell(e.UnitsReturned(w.id, (0, 1, 2, 3)), e.WorkerDied(w.id, e.Death.KILLED, begun=()))
    assert not suspects(s)
    assert [s.state.tasks[t].attempts for t in (0, 1, 2, 3)] == [0, 0, 0, 0]
    assert s.state.tasks[1].emitted == 1


def test_ctrl_c_cancels_everything():
    s = script()
    answer = s.tell(e.Interrupted())
    assert c.StopWorker(0, now=True) in answer
    assert s.tell(e.UnitsReturned(0, (0, 1, 2, 3, 4))) == []
    assert c.Finish() in s.tell(e.WorkerLeft(0))
    assert s.state.steps[0].counts.tasks_cancelled == 20


# The log --------------------------------------------------------------------------------------------------------


def test_events_of_units_in_flight_can_be_replayed():
    import io

    sink = io.StringIO()
    scheduler = RecordingScheduler([WAITS], SchedulerConfig(budget=1 << 30), sink)
    outputs = tuple(e.Output(i, 100) for i in range(10))
    for now, event in enumerate(
        [cpus(8), e.SourceGave(outputs), e.SourceEnded(), e.WorkerReady(0), e.UnitFinished(0, 2, (), 10)]
    ):
        scheduler.handle(event, now)
    scheduler.handle(e.UnitsReturned(0, (1,)), 10)
    scheduler.handle(e.WorkerDied(0, e.Death.OUT_OF_MEMORY, begun=(0, 3)), 20)
    again = replay(sink.getvalue().splitlines())
    assert again.event_hash() == scheduler.event_hash() and again.state.steps[0].in_flight == 2
    assert '["WorkerDied", 0, "OUT_OF_MEMORY", null, null, "", [0, 3]]' in sink.getvalue()


def test_logs_of_other_steps_are_what_they_were():
    import io

    sink = io.StringIO()
    scheduler = RecordingScheduler([StepSpec("plain", workers=1)], SchedulerConfig(budget=1 << 30), sink)
    for now, event in enumerate([cpus(8), e.WorkerReady(0), e.WorkerDied(0, e.Death.KILLED)]):
        scheduler.handle(event, now)
    assert "in_flight" not in sink.getvalue() and "streams" not in sink.getvalue()
    assert '["WorkerDied", 0, "KILLED", null, null, ""]' in sink.getvalue()
    assert replay(sink.getvalue().splitlines()).event_hash() == scheduler.event_hash()


def test_a_step_that_needs_nothing_has_no_more_workers_than_there_are_cpus():
    s = Script(replace(WAITS, cpu=0, workers=None), nodes=(cpus(3),), budget=1 << 40)
    s.tell(e.SourceSized(1_000_000))
    for _ in range(30):
        if s.state.source.pulling:
            s.give(s.all(c.Pull)[-1].count)
        s.start()
        for w, _, tasks in s.running()[:4]:
            s.tell(e.UnitFinished(w, tasks[0], s.outputs(1, parent=tasks[0]), SECOND), after=SECOND // 10)
    assert 1 <= len(s.state.workers) <= 3 * UNIT // UNIT

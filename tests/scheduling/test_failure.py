"""Failures: retries, suspects, attribution, bisection, quarantine, and runs that end early."""

from __future__ import annotations

from collections import Counter

import pytest
from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.records import IllegalTransition
from gristmill.scheduling.simulator.model import SECOND, Data, StepModel, cpus

GO_ON = SchedulerConfig(budget=1 << 30, ignore_failures=True)


def bad(*names: str) -> frozenset[str]:
    return frozenset(names)


def two_workers(**config: object) -> Script:
    s = Script(StepSpec("a", workers=2), nodes=(cpus(2),), **config)
    s.start()
    return s


# A stage that raises


def test_a_task_that_raises_is_tried_on_another_worker() -> None:
    s = two_workers()
    s.give(1)
    first, task = s.unit()
    s.fail()
    second, again = s.unit()
    assert again == task
    assert second != first


def test_a_shared_worker_that_failed_a_task_leaves_it_to_another_that_can_run_it() -> None:
    """The other node is too small for the step: waiting for it would be waiting for ever."""
    s = Script(StepSpec("small"), StepSpec("big", cpu=2 * SECOND), nodes=(cpus(1), cpus(2, node=1)))
    s.give(2)
    s.start()
    s.finish(0, n=1, busy_us=SECOND)
    s.start()
    s.finish(0, n=1, busy_us=SECOND)
    s.start()
    assert [step for _, step, _ in s.running()] == [1]
    s.fail(1)
    assert [step for _, step, _ in s.running()] == [1]


def test_it_is_given_up_after_max_attempts_with_its_story() -> None:
    s = two_workers(ignore_failures=True)
    s.give(1)
    for _ in range(3):
        s.fail()
    (q,) = s.all(c.Quarantine)
    assert q.error == "ValueError: bad"
    assert sum("failed on worker" in line for line in q.story) == 3
    assert s.state.steps[0].counts.tasks_failed == 1
    assert s.state.budget.held == s.state.budget.reserved - s.state.source.reserved == 0
    assert c.Release((q.task,)) in s.said


def test_a_flaky_task_is_not_given_up() -> None:
    w = CheckedWorld([StepSpec("a")], [StepModel(flaky=bad("3", "5"))], 8, config=GO_ON).run()
    w.assert_nothing_lost()
    assert w.quarantined == []


def test_a_batch_that_raises_is_halved_down_to_the_bad_task() -> None:
    w = CheckedWorld([StepSpec("a", batch_size=8)], [StepModel(raises=bad("5"))], 16, config=GO_ON).run()
    w.assert_nothing_lost()
    assert w.quarantined == [(0, Data("5", (0,)))]


def test_only_the_bad_item_of_a_task_is_given_up_and_the_task_counts_once() -> None:
    models = [StepModel(raises=bad("2#5")), StepModel()]
    w = CheckedWorld([StepSpec("a"), StepSpec("b")], models, 4, items=8, config=GO_ON)
    w.run().assert_nothing_lost()
    assert w.quarantined == [(0, Data("2", (5,)))]
    step = w.scheduler.state.steps[0]
    assert (step.counts.tasks_in, step.counts.tasks_done, step.counts.tasks_failed) == (4, 4, 0)
    assert (step.counts.items_done, step.counts.items_failed) == (31, 1)


def test_a_task_whose_every_item_is_bad_has_failed() -> None:
    w = CheckedWorld([StepSpec("a")], [StepModel(raises=bad("1"))], 3, items=4, config=GO_ON).run()
    w.assert_nothing_lost()
    step = w.scheduler.state.steps[0]
    assert (step.counts.tasks_done, step.counts.tasks_failed, step.counts.items_failed) == (2, 1, 4)


def test_a_single_item_is_retried_before_it_is_given_up() -> None:
    s = two_workers(ignore_failures=True)
    s.give(1, items=2)
    for _ in range(3):
        s.fail()
    assert len(s.running()) == 2, "it is tried in halves"
    s.fail()
    assert s.all(c.Quarantine) == []
    assert len(s.running()) == 2


# A worker that dies


def test_what_merely_waited_in_a_dead_worker_is_not_suspected() -> None:
    s = Script(StepSpec("a", workers=1), nodes=(cpus(1),))
    s.start()
    s.give(2)
    running, waiting = (tasks[0] for _, _, tasks in s.running())
    s.die()
    assert s.state.tasks[waiting].attempts == 0
    assert s.state.tasks[running].attempts == 0
    assert [u.key for u in s.state.steps[0].queue.suspects] == [running]
    assert [u.key for u in s.state.steps[0].queue.retries] == [waiting]


def test_a_suspect_runs_alone_in_a_fresh_worker_and_is_at_fault_if_that_dies_too() -> None:
    s = Script(StepSpec("a", workers=1), nodes=(cpus(1),), ignore_failures=True)
    s.start()
    s.give(4)
    _, task = s.unit()
    s.die()
    s.start()
    assert [tasks for _, _, tasks in s.running()] == [(task,)], "alone, although more waits and there is depth for it"
    s.die()
    (q,) = s.all(c.Quarantine)
    assert q.task == task
    assert "crashed" in q.error


def test_a_suspect_that_does_well_alone_is_free_again() -> None:
    s = Script(StepSpec("a", workers=1), nodes=(cpus(1),))
    s.start()
    s.give(2)
    s.die()
    s.start()
    s.finish()
    assert s.all(c.Quarantine) == []
    assert len(s.running()) == 1


def test_a_suspected_generator_keeps_its_worker_to_itself_while_it_is_suspended() -> None:
    s = Script(StepSpec("split"), StepSpec("use"), nodes=(cpus(2),), budget=20_000)
    s.give(1)
    s.start()
    s.die()
    s.start()
    worker, task = s.unit(0)
    s.tell(e.UnitEmitted(worker, task, s.outputs(3, size=9000, parent=task), 1000))
    s.start()
    assert worker not in [w for w, step, _ in s.running() if step == 1]
    assert [step for _, step, _ in s.running()] == [1], "another worker leaves for it"


@pytest.mark.parametrize("items", [1, 4])
def test_a_poisonous_task_is_found_and_no_other_task_fails(items: int) -> None:
    model = StepModel(SECOND // 10, poison=bad("7#0"))
    specs = [StepSpec("a", batch_size=4), StepSpec("b")]
    w = CheckedWorld(specs, [model, StepModel(SECOND // 10)], 30, items=items, config=GO_ON).run()
    w.assert_nothing_lost()
    assert w.quarantined == [(0, Data("7", (0,)))]


def test_kills_from_outside_prove_nothing() -> None:
    specs = [StepSpec("a"), StepSpec("b", gpu=SECOND, batch_size=4)]
    w = CheckedWorld(specs, [StepModel(SECOND // 2)] * 2, 60, nodes=[cpus(4, 2)], kill_every_us=SECOND, lag_us=3000)
    w.run().assert_nothing_lost()
    assert w.scheduler.state.deaths > 10
    assert w.quarantined == []


def test_a_task_that_is_always_killed_is_given_up_in_the_end() -> None:
    s = Script(StepSpec("a", workers=1), ignore_failures=True, isolated_kills=5)
    s.start()
    s.give(1)
    for n in range(6):
        assert s.all(c.Quarantine) == [], f"after {n} kills"
        s.die(e.Death.KILLED)
        s.start()
    assert len(s.all(c.Quarantine)) == 1


def test_a_task_whose_workers_die_and_name_no_task_is_suspected_and_given_up() -> None:
    s = Script(StepSpec("a", workers=1), ignore_failures=True)
    s.start()
    s.give(1)
    deaths = 0
    while not s.all(c.Quarantine):
        (worker, _, _) = s.running()[0]
        s.tell(e.WorkerDied(worker, e.Death.CRASHED, None, None, "exit code 1"))
        s.start()
        deaths += 1
        assert deaths <= s.state.config.unexplained_losses + s.state.config.isolated_kills
    assert "exit code 1" in s.all(c.Quarantine)[0].error


def test_a_task_that_was_in_crashed_workers_with_others_again_and_again_is_tried_alone() -> None:
    """Each worker names another task than the one that does the harm."""
    s = Script(StepSpec("a", workers=1), nodes=(cpus(1),), ignore_failures=True)
    s.start()
    s.give(2)
    harmful = s.running()[0][2][0]
    for _ in range(s.state.config.unexplained_losses):
        others = [tasks[0] for _, _, tasks in s.running() if tasks[0] != harmful]
        assert len(s.running()) == 2
        s.tell(e.WorkerDied(s.running()[0][0], e.Death.CRASHED, others[0], None, ""))
        s.start()
        if s.running()[0][2] == (others[0],):
            s.finish()  # alone, it does well
            s.give(1)
    assert [u.key for u in s.state.steps[0].queue.suspects] == [harmful]


@pytest.mark.parametrize("spec", [StepSpec("a"), StepSpec("a", workers=1)])
@pytest.mark.parametrize("cause", [e.Death.CRASHED, e.Death.KILLED])
def test_workers_that_die_while_they_have_nothing_to_do_end_the_run(spec: StepSpec, cause: e.Death) -> None:
    s = Script(spec, StepSpec("b", workers=1), nodes=(cpus(2),))
    s.start()
    for n in range(s.state.config.isolated_kills):
        assert s.all(c.Abort) == [], f"after {n} deaths"
        worker = next(w.id for w in s.state.workers.values() if w.step == 1)
        s.tell(e.WorkerDied(worker, cause, detail="SIGBUS"))
        s.start()
    assert "workers of 'b' die while they have nothing to do" in s.all(c.Abort)[0].reason


def test_deaths_of_idle_workers_count_only_in_a_row() -> None:
    s = Script(StepSpec("a", workers=1), nodes=(cpus(2),))
    s.start()
    for _ in range(3 * s.state.config.isolated_kills):
        (worker,) = s.state.workers
        s.tell(e.WorkerDied(worker, e.Death.KILLED))
        s.start()
        s.give(1)
        s.finish()
    assert s.all(c.Abort) == []


def test_a_batch_killed_again_and_again_gets_smaller_so_that_it_can_get_through() -> None:
    s = Script(StepSpec("a", workers=1, batch_size=8))
    s.start()
    s.give(1)
    s.give(8)
    s.finish()
    sizes = []
    for _ in range(5):
        sizes.append(len(s.running()[0][2]))
        s.die(e.Death.KILLED)
        s.start()
    assert sizes == [8, 8, 4, 4, 2]
    assert all(t.attempts <= 1 for t in s.state.tasks.values())


def test_no_task_is_at_fault_for_a_lost_node() -> None:
    specs = [StepSpec("a"), StepSpec("b", gpu=SECOND)]
    w = CheckedWorld(specs, [StepModel(SECOND)] * 2, 30, nodes=[cpus(2, 1), cpus(2, 1, node=1)])
    w.after(4 * SECOND, lambda world: world.lose(1))
    w.run(until_us=4 * SECOND)
    assert all(t.attempts <= 1 and not t.story for t in w.scheduler.state.tasks.values())
    w.run().assert_nothing_lost()


def test_many_workers_that_start_on_a_node_that_is_lost_do_not_end_the_run() -> None:
    s = Script(StepSpec("a", gpu=SECOND // 10), nodes=(cpus(64, 4), cpus(1, 1, node=1)))
    assert sum(1 for x in s.all(c.StartWorker) if x.node == 0) > s.state.config.isolated_kills
    s.tell(e.NodeLost(0))
    assert s.all(c.Abort) == []


def test_a_hung_task_is_ended_and_given_up_and_the_rest_continues() -> None:
    specs = [StepSpec("a", timeout_us=5 * SECOND)]
    w = CheckedWorld(specs, [StepModel(SECOND // 10, hangs=bad("4"))], 20, config=GO_ON).run()
    w.assert_nothing_lost()
    assert len(w.all(c.KillWorker)) == 2
    (q,) = w.all(c.Quarantine)
    assert "timed out" in q.error


def test_a_long_setup_in_a_shared_worker_is_not_a_timeout() -> None:
    specs = [StepSpec("a", has_setup=True, timeout_us=2 * SECOND)]
    w = CheckedWorld(specs, [StepModel(SECOND, setup_us=20 * SECOND)], 200).run()
    w.assert_nothing_lost()
    assert len(w.all(c.StartWorker)) == 4, "all four set it up"
    assert w.all(c.KillWorker) == []


def test_a_worker_that_leaves_by_itself_takes_no_work_with_it() -> None:
    s = two_workers()
    s.give(2)
    worker, task = s.unit()
    s.tell(e.WorkerLeft(worker))
    assert task in s.state.tasks
    s.to_the_end()
    assert s.state.steps[0].counts.tasks_done == 2


# Setups


@pytest.mark.parametrize("spec", [StepSpec("a", has_setup=True), StepSpec("a", workers=2, has_setup=True)])
def test_a_setup_that_always_fails_ends_the_run_with_its_error(spec: StepSpec) -> None:
    w = CheckedWorld([spec], [StepModel(failing_setups=100)], 5).run()
    assert "'a' failed 3 times" in w.aborted and "OSError: no weights" in w.aborted
    assert w.scheduler.state.steps[0].counts.tasks_failed == 0


@pytest.mark.parametrize("spec", [StepSpec("a", has_setup=True), StepSpec("a", workers=2, has_setup=True)])
def test_a_setup_that_fails_once_is_tried_again_and_costs_no_task_an_attempt(spec: StepSpec) -> None:
    w = CheckedWorld([spec], [StepModel(failing_setups=2)], 5).run()
    w.assert_nothing_lost()


def test_a_setup_that_no_worker_survives_ends_the_run() -> None:
    s = Script(StepSpec("a", gpu=SECOND), nodes=(cpus(1, 1),))
    for _ in range(3):
        assert s.all(c.Abort) == []
        worker = s.all(c.StartWorker)[-1].worker
        s.tell(e.WorkerDied(worker, e.Death.CRASHED, detail="SIGSEGV"))
    assert "SIGSEGV" in s.all(c.Abort)[0].reason
    assert s.state.ending.finished


def test_shared_workers_that_never_come_up_end_the_run() -> None:
    s = Script(StepSpec("a"))
    s.give(1)
    for _ in range(20):
        assert s.all(c.Abort) == []
        s.tell(e.WorkerDied(s.all(c.StartWorker)[-1].worker, e.Death.CRASHED))
    assert len(s.all(c.Abort)) == 1


def test_a_failed_setup_on_a_node_ends_the_run() -> None:
    s = Script(StepSpec("a", node_setup=True))
    s.tell(e.NodeSetupFailed(0, 0, "disk full"))
    assert "disk full" in s.all(c.Abort)[0].reason


# Generators


def test_a_generator_that_is_tried_again_does_not_deliver_twice() -> None:
    models = [StepModel(SECOND // 10, fan_out=40, chunk=4), StepModel(SECOND // 100)]
    w = CheckedWorld([StepSpec("split"), StepSpec("use")], models, 10, kill_every_us=SECOND).run()
    w.assert_nothing_lost()
    skips = [i.skip for x in w.all(c.Dispatch) for i in x.special]
    assert any(skip > 0 for skip in skips), "nothing was tried again from the middle"


# Ends before the end


def test_a_failure_that_may_not_be_ignored_drains_the_run() -> None:
    models = [StepModel(SECOND // 10, raises=bad("30")), StepModel(SECOND // 2)]
    w = CheckedWorld([StepSpec("a"), StepSpec("b")], models, 500).run()
    s = w.scheduler.state
    assert s.ending.draining and not w.aborted
    assert len(w.quarantined) == 1
    assert w.source_next < 500, "nothing more was taken in"
    a, b = s.steps
    assert a.counts.tasks_cancelled > 0 and b.counts.tasks_cancelled == 0
    assert b.counts.tasks_done == b.counts.tasks_in == a.counts.tasks_done, "what was under way is finished"
    assert not w.data


def test_a_generator_of_the_first_step_is_cancelled_when_the_run_drains() -> None:
    models = [StepModel(SECOND // 10, fan_out=100, chunk=2, raises=bad("3")), StepModel(SECOND // 100)]
    w = CheckedWorld([StepSpec("a"), StepSpec("b")], models, 8).run()
    assert w.scheduler.state.ending.draining
    assert w.now < 100 * SECOND
    assert not w.data


def test_an_interrupt_cancels_everything_and_ends() -> None:
    specs = [StepSpec("a"), StepSpec("b", gpu=SECOND), StepSpec("c", batch_size=4)]
    w = CheckedWorld(specs, [StepModel(SECOND), StepModel(SECOND, setup_us=8 * SECOND), StepModel(SECOND)], 100)
    w.after(0, cpus(1, 2, node=1))
    w.after(5 * SECOND, e.Interrupted())
    w.run()
    assert w.now < 6 * SECOND
    s = w.scheduler.state
    assert (s.budget.held, s.budget.reserved, len(s.tasks)) == (0, 0, 0)
    assert sum(step.counts.tasks_cancelled for step in s.steps) > 0
    assert all(x.now for x in w.all(c.StopWorker))


# Reports and orders that cross


def test_reports_that_cross_with_an_interrupt_are_void() -> None:
    s = two_workers()
    s.give(2)
    worker, unit = s.unit()
    s.tell(e.Interrupted())
    s.tell(e.UnitFinished(worker, unit, s.outputs(1), 1000), e.UnitFailed(1 - worker, 1, "x"), e.WorkerReady(worker))
    assert not s.state.ending.finished
    s.tell(e.WorkerLeft(worker), e.WorkerDied(1 - worker, e.Death.CRASHED, 1))
    assert s.state.ending.finished
    assert s.all(c.Quarantine) == []


def test_a_worker_that_comes_up_after_the_run_was_interrupted_gets_nothing() -> None:
    s = Script(StepSpec("a", workers=1))
    s.give(1)
    s.tell(e.Interrupted())
    assert s.tell(e.WorkerReady(0)) == []
    s.tell(e.WorkerLeft(0))
    assert s.state.ending.finished


def test_a_worker_that_dies_on_its_way_out_is_simply_gone() -> None:
    s = two_workers()
    s.tell(e.SourceEnded())
    assert len(s.all(c.StopWorker)) == 2
    s.tell(e.WorkerDied(0, e.Death.CRASHED), e.WorkerLeft(1))
    assert s.state.ending.finished
    assert s.state.deaths == 0


def test_a_worker_that_is_still_starting_is_stopped_when_its_step_ends() -> None:
    s = two_workers()
    slow = Script(StepSpec("a", workers=1))
    slow.tell(e.SourceEnded())
    assert slow.all(c.StopWorker) == [c.StopWorker(0, now=True)]
    assert slow.tell(e.WorkerReady(0)) == []
    slow.tell(e.WorkerLeft(0))
    assert slow.state.ending.finished and not s.state.ending.finished


def test_what_cannot_happen_raises_with_the_story() -> None:
    s = two_workers()
    s.give(1)
    worker, unit = s.unit()
    with pytest.raises(IllegalTransition, match="does not have"):
        s.tell(e.UnitFinished(worker, unit + 99, (), 0))
    with pytest.raises(IllegalTransition, match="exists already"):
        s.tell(e.SourceGave((e.Output(unit, 1),)))


def test_events_of_workers_long_gone_are_ignored() -> None:
    s = two_workers()
    s.give(1)
    worker, unit = s.unit()
    s.tell(e.WorkerDied(worker, e.Death.KILLED, unit))
    before = Counter(type(x) for x in s.said)
    s.tell(e.UnitFinished(worker, unit, (), 1000), e.WorkerDied(worker, e.Death.CRASHED, unit))
    assert Counter(type(x) for x in s.said) == before

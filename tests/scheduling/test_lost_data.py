"""Data that was lost is made again from what it was made from."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from script import Script
from tests.simulation.lost_data_invariants import in_use
from tests.simulation.scenario import play, random_scenario
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.log import RecordingScheduler, replay
from gristmill.scheduling.records import IllegalTransition
from gristmill.scheduling.simulator.faults import Faults
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

THREE = (StepSpec("a"), StepSpec("b"), StepSpec("c"))


def dispatches(said: list[Any]) -> list[c.Dispatch]:
    return [x for x in said if isinstance(x, c.Dispatch)]


def releases(said: list[Any]) -> list[int]:
    return [t for x in said if isinstance(x, c.Release) for t in x.tasks]


def busy_with_one_of(n: int, *steps: StepSpec, **options: Any) -> Script:
    """One source task (0) has made so many losable ones (1, 2, ...); the only worker has the first of them."""
    s = Script(*(steps or THREE), **options)
    s.give(1)
    s.start()
    s.finish(0, n=n, losable=True, busy_us=SECOND)
    assert [tasks for _, _, tasks in s.running()] == [(1,)]
    return s


def test_a_waiting_task_whose_data_is_lost_has_it_made_again_and_nothing_else() -> None:
    s = busy_with_one_of(4)
    s.tell(e.DataLost((2, 4)))
    said = s.finish(1)
    said += s.finish(2)
    (again,) = [x for x in dispatches(said + s.finish(1) + s.finish(2)) if x.step == 0]
    (how,) = again.special
    assert (how.data, how.skip, how.wanted) == (0, 0, (1, 3))
    assert again.tasks == (how.task,) and how.task < 0
    s.finish(0, n=2, losable=True)
    new = s.next_id - 2
    assert {t.id: t.data for t in s.state.tasks.values()} == {2: new, 4: new + 1}
    s.to_the_end()
    done = [t for x in dispatches(s.said) if x.step == 1 for t in x.tasks]
    assert sorted(done) == [1, 2, 3, 4]
    assert s.state.steps[0].counts.tasks_done == 1 and s.state.steps[1].counts.tasks_done == 4


def test_the_old_data_is_released_when_the_new_has_come_and_not_before() -> None:
    s = busy_with_one_of(2)
    said = s.tell(e.DataLost((2,))) + s.finish(1) + s.finish(2)
    assert 2 not in releases(said)
    assert s.running()[0][1] == 0
    said = s.finish(0, losable=True)
    assert releases(said) == [2]
    s.to_the_end()
    assert sorted(releases(s.said)) == sorted({*releases(s.said)}), "each id is released once"
    assert s.next_id - 1 not in in_use(s.state) and not s.state.lost.records


def test_what_it_was_made_from_is_kept_while_that_may_be_needed() -> None:
    s = busy_with_one_of(2)
    assert 0 not in releases(s.said)
    s.finish(1)
    s.finish(2)
    assert 0 not in releases(s.said)
    s.finish(1)
    assert 0 in releases(s.said)


def test_what_cannot_be_lost_is_released_at_once() -> None:
    s = Script(*THREE)
    s.give(1)
    s.start()
    s.finish(0, n=2)
    assert 0 in releases(s.said) and not s.state.lost.records


def test_a_task_in_a_worker_is_left_alone() -> None:
    s = busy_with_one_of(1)
    assert dispatches(s.tell(e.DataLost((1,)))) == []
    assert not s.state.lost.rebuilds
    s.finish(1)
    s.to_the_end()
    assert not [x for d in dispatches(s.said) for x in d.special]


def test_it_is_made_again_if_its_task_comes_back() -> None:
    s = busy_with_one_of(1)
    s.tell(e.DataLost((1,)))
    s.fail(1)
    assert s.running()[0][1] == 0 and s.state.steps[1].queue.stalled_tasks == 1
    s.finish(0, losable=True)
    (t,) = [t for t in s.state.tasks.values() if t.id == 1]
    assert t.attempts == 2 and t.story and "failed on worker" in t.story[0]


def test_inputs_that_a_worker_cannot_load_are_nobodys_fault() -> None:
    s = busy_with_one_of(1)
    worker, unit = s.unit()
    s.tell(e.InputsLost(worker, unit, (1,)))
    t = s.state.tasks[1]
    assert t.attempts == 0 and t.story is None
    assert s.running()[0][1] == 0
    s.to_the_end()
    assert s.state.steps[1].counts.tasks_done == 1


def test_only_those_of_a_batch_that_lack_their_data_wait() -> None:
    s = Script(StepSpec("a"), StepSpec("b", batch_size=4), StepSpec("c"))
    s.give(1)
    s.start()
    s.finish(0, n=4, losable=True, busy_us=SECOND)
    worker, unit = s.unit()
    said = s.tell(e.InputsLost(worker, unit, (3,)))
    assert [x.tasks for x in dispatches(said)] == [(1, 2, 4)]
    s.to_the_end()


def test_what_is_gone_too_is_made_first() -> None:
    """The grandchild is lost, and the child it was made from has been released long ago."""
    s = busy_with_one_of(1)
    s.finish(1, n=1, losable=True, busy_us=SECOND)
    assert 1 in releases(s.said) and 0 not in releases(s.said)
    worker, unit = s.unit(2)
    s.tell(e.InputsLost(worker, unit, (unit,)))
    assert [(step, s.said[-1].special[0].wanted) for _, step, _ in s.running()] == [(0, (0,))]
    s.finish(0, losable=True)
    child = s.next_id - 1
    again = dispatches(s.said)[-1]
    assert again.step == 1 and again.special[0].data == child
    said = s.finish(1, losable=True)
    assert releases(said) == [unit, child]
    assert dispatches(said)[-1].special == (c.Input(unit, s.next_id - 1, 0, 0, 0),)
    s.to_the_end()
    assert 0 in releases(s.said) and not s.state.lost.records


def test_a_slice_knows_which_slice_it_was_made_from() -> None:
    s = Script(StepSpec("a", max_attempts=1), StepSpec("b"), ignore_failures=True)
    s.give(1, items=4)
    s.start()
    s.fail(0)
    s.finish(0, losable=True, busy_us=SECOND)
    s.finish(1)
    s.finish(0, losable=True, busy_us=SECOND)
    worker, unit = s.unit(1)
    said = s.tell(e.InputsLost(worker, unit, (unit,)))
    (how,) = dispatches(said)[-1].special
    slices = [x for d in dispatches(s.said) for x in d.special if x.stop and not x.wanted]
    assert (how.data, how.start, how.stop, how.wanted) == (0, slices[-1].start, slices[-1].stop, (0,))
    s.to_the_end()


def test_outputs_of_a_generator_are_counted_over_all_chunks() -> None:
    s = Script(StepSpec("a", workers=1, timeout_us=SECOND), StepSpec("b", workers=1), nodes=(cpus(2),))
    s.give(1)
    s.start()
    worker, unit = s.unit(0)
    for _ in range(2):
        s.tell(e.UnitEmitted(worker, unit, s.outputs(3, parent=unit, losable=True), 1000))
    s.tell(e.DataLost((5,)))
    s.tell(e.UnitFinished(worker, unit, (), 1000))
    rebuild = next(x for x in dispatches(s.said) if x.special)
    assert rebuild.special[0].wanted == (4,)
    assert not [x for x in s.tell(e.Tick(), after=3 * SECOND // 2) if isinstance(x, c.KillWorker)], (
        "it has the time of the chunks that it repeats"
    )
    assert [x for x in s.tell(e.Tick(), after=SECOND) if isinstance(x, c.KillWorker)]


def test_a_step_that_has_ended_gets_workers_again() -> None:
    s = Script(StepSpec("a", workers=1), StepSpec("b", workers=1), nodes=(cpus(2),))
    s.give(2)
    s.start()
    s.finish(0, n=1, losable=True, busy_us=SECOND)
    s.finish(0, n=1, losable=True, busy_us=SECOND)
    s.tell(e.SourceEnded())
    first = next(iter(s.state.workers))
    s.tell(e.WorkerLeft(first))
    assert s.state.steps[0].ended and not s.state.steps[0].workers
    worker, unit = s.unit(1)
    said = s.tell(e.InputsLost(worker, unit, (unit,)))
    assert [x.step for x in said if isinstance(x, c.StartWorker)] == [0]
    s.to_the_end()
    assert s.state.steps[1].counts.tasks_done == 2


def test_the_barrier_of_batch_mode_stays_open() -> None:
    s = Script(*THREE, batch_mode=True)
    s.give(1)
    s.start()
    s.tell(e.SourceEnded())
    s.finish(0, n=3, losable=True, busy_us=SECOND)
    said = s.tell(e.DataLost((2,)))
    said += s.finish(1)
    assert [x.step for x in dispatches(said)] == [1], "the other task of the step continues"
    s.to_the_end()
    assert s.state.steps[1].counts.tasks_done == 3


def test_a_producer_that_keeps_failing_fails_the_lost_task_with_a_reason() -> None:
    s = busy_with_one_of(1, ignore_failures=True)
    worker, unit = s.unit()
    s.tell(e.InputsLost(worker, unit, (unit,)))
    for _ in range(3):
        s.fail(0)
    (q,) = s.all(c.Quarantine)
    assert (q.task, q.data, q.step) == (1, 1, 1)
    assert "lost" in q.error and "'a' failed" in q.error and "ValueError: bad" in q.error
    assert sum("attempt" in line for line in q.story) == 3
    s.to_the_end()
    assert sorted(releases(s.said)) == [0, 1] and s.state.steps[1].counts.tasks_failed == 1


def test_a_producer_that_crashes_is_tried_alone_before_that() -> None:
    s = busy_with_one_of(1, ignore_failures=True)
    worker, unit = s.unit()
    s.tell(e.InputsLost(worker, unit, (unit,)))
    s.die(step=0)
    assert not s.all(c.Quarantine)
    s.start()
    s.die(step=0)
    assert [q.task for q in s.all(c.Quarantine)] == [1]
    s.to_the_end()


def test_a_producer_that_makes_fewer_outputs_than_before_is_named() -> None:
    s = busy_with_one_of(3, ignore_failures=True)
    s.tell(e.DataLost((2, 3)))
    s.finish(1)
    s.finish(2)
    s.finish(0, n=1, losable=True)
    (q,) = s.all(c.Quarantine)
    assert q.task == 3 and "fewer outputs" in q.error and "deterministic" in q.error
    s.to_the_end()
    assert s.state.steps[1].counts.tasks_done == 2


def test_more_than_was_wanted_is_a_bug_of_the_backend() -> None:
    s = busy_with_one_of(1)
    worker, unit = s.unit()
    s.tell(e.InputsLost(worker, unit, (unit,)))
    with pytest.raises(IllegalTransition, match="more of unit"):
        s.finish(0, n=2)


def test_what_the_source_gave_cannot_be_made_again() -> None:
    s = Script(*THREE, ignore_failures=True)
    s.give(2)
    s.start()
    s.tell(e.DataLost((1,)))
    (q,) = s.all(c.Quarantine)
    assert q.task == 1 and "nothing is left" in q.error
    s.to_the_end()


def test_data_that_is_lost_over_and_over_is_given_up() -> None:
    s = busy_with_one_of(1, ignore_failures=True, isolated_kills=3)
    for _ in range(20):
        if s.all(c.Quarantine):
            break
        worker, unit = s.unit()
        if unit in s.state.lost.rebuilds:
            s.finish(0, losable=True)
        else:
            s.tell(e.InputsLost(worker, unit, (s.state.tasks[1].data,)))
    (q,) = s.all(c.Quarantine)
    assert "4 times" in q.error
    s.to_the_end()


def test_a_run_that_drains_finishes_what_it_has_lost() -> None:
    s = busy_with_one_of(3)
    s.tell(e.DataLost((2,)))
    for _ in range(3):
        s.fail(1)
        while s.state.steps[0].running:
            s.finish(0, losable=True)
    assert s.state.ending.draining
    s.to_the_end()
    assert s.state.steps[1].counts.tasks_done == 2 and s.state.steps[1].counts.tasks_failed == 1


def test_an_interrupted_run_leaves_nothing_behind() -> None:
    s = busy_with_one_of(3)
    s.finish(1, n=1, losable=True)
    s.tell(e.DataLost((2,)), e.DataLost((3, 4)), e.Interrupted())
    assert not s.state.tasks and not s.state.lost.records and not s.state.lost.rebuilds and not s.state.budget.held
    ids = releases(s.said)
    assert sorted(ids) == sorted(set(ids)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("budget", "at_once"), [(1, 1), (1 << 30, 8)])
def test_data_of_tasks_that_are_done_is_fetched_as_the_budget_allows(budget: int, at_once: int) -> None:
    """Grandchildren are lost whose parents have been released: beyond the budget these are made one after the other."""
    s = Script(*(StepSpec(x, workers=1) for x in "abc"), nodes=(cpus(3),))
    s.start()
    s.give(10)
    for step in (0, 1):
        while s.state.steps[step].live:
            s.finish(step, losable=True, busy_us=11 * SECOND)
    s.state.config = replace(s.state.config, budget=budget)
    s.tell(e.DataLost(tuple(s.state.tasks)))
    most = 0
    while s.state.lost.rebuilds:
        most = max(most, s.state.lost.fetched)
        _, unit = s.unit()
        if unit in s.state.lost.rebuilds:
            s.finish(s.state.lost.rebuilds[unit].step, losable=True)
        else:
            s.finish(2)
    assert most == at_once
    s.to_the_end()
    assert s.state.steps[2].counts.tasks_done == 10


def test_a_log_with_lost_data_is_replayed_to_the_same_hash() -> None:
    log = io.StringIO()
    scheduler = RecordingScheduler(THREE, SchedulerConfig(budget=1 << 30), log)
    now = 0

    def tell(*events: e.Event) -> list[c.Command]:
        nonlocal now
        now += 1
        return scheduler.handle(list(events), now)

    tell(cpus(1), e.SourceGave((e.Output(0, 10),)))
    tell(e.WorkerReady(0))
    tell(e.UnitFinished(0, 0, (e.Output(1, 10, parent=0, losable=True), e.Output(2, 10, parent=0, losable=True)), 9))
    tell(e.DataLost((2,)), e.NodeResized(0, 2 * SECOND, 1 << 30))
    tell(e.InputsLost(0, 1, (1,)))
    assert replay(log.getvalue().splitlines()).event_hash() == scheduler.event_hash()
    assert in_use(replay(log.getvalue().splitlines()).state) == in_use(scheduler.state) == {0, 1, 2}


@pytest.mark.parametrize("seed", range(6))
def test_a_cluster_that_keeps_losing_its_data_gets_through(seed: int) -> None:
    w = CheckedWorld(
        [StepSpec("a"), StepSpec("b", gpu=SECOND, batch_size=3), StepSpec("c"), StepSpec("d")],
        [StepModel(SECOND // 4, fan_out=3, chunk=1), StepModel(SECOND // 2), StepModel(SECOND // 4), StepModel()],
        8,
        nodes=[cpus(2, gpus=1, node=i) for i in range(3)],
        config=SchedulerConfig(budget=1 << 20, batch_mode=seed == 5),
        faults=Faults(losable=0.9, data_loss_every_s=0.4, node_loss_every_s=4, node_back_s=2, until_s=40),
        seed=seed,
    ).run()
    w.assert_nothing_lost()
    assert w.scheduler.state.lost.losses > 5 and not w.quarantined
    assert any(x.wanted for d in w.all(c.Dispatch) for x in d.special)


def test_the_scenarios_lose_data() -> None:
    scenarios = [random_scenario(seed) for seed in range(200)]
    assert sum(x.faults.losable > 0 for x in scenarios) > 60
    assert sum(x.faults.resize_every_s > 0 for x in scenarios) > 25


@pytest.mark.parametrize("seed", [99, 1493, 1946])
def test_a_chain_of_lost_data_and_a_step_full_of_suspects_are_not_stuck(seed: int) -> None:
    """99: data of a task that is done waited for memory that only it could free. 1493: suspects that did not fit the
    budget kept the only worker from making lost data again. 1946: the balancer sent away each fresh worker that was
    started for a suspect."""
    play(random_scenario(seed))

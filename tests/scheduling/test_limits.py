"""The limits of what failures may cost: memory that is shared, time limits, and searches that end."""

from __future__ import annotations

from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

OOM = e.Death.OUT_OF_MEMORY


def shared(n: int = 4, **config: object) -> Script:
    s = Script(StepSpec("a"), nodes=(cpus(n),), ignore_failures=True, **config)
    s.give(n)
    s.start()
    return s


def test_too_little_memory_for_all_is_not_the_fault_of_the_one_who_is_killed() -> None:
    """The task runs again while nothing else does. If that succeeds, it is no longer suspected."""
    s = shared()
    _, suspect = s.unit()
    s.die(OOM)
    s.start()
    assert suspect not in [tasks[0] for _, _, tasks in s.running()], "it waits until it can run alone"
    s.give(4)
    assert len(s.running()) == 3, "and nothing new starts meanwhile"
    for _ in range(3):
        s.finish()
    s.start()
    assert [tasks for _, _, tasks in s.running()] == [(suspect,)]
    s.finish()
    s.start()
    assert len(s.running()) == 4
    s.to_the_end()
    assert s.all(c.Quarantine) == []


def test_a_task_that_uses_all_memory_on_its_own_is_at_fault() -> None:
    s = shared(2)
    _, suspect = s.unit()
    s.die(OOM)
    s.finish()
    s.start()
    s.die(OOM)
    assert [x.task for x in s.all(c.Quarantine)] == [suspect]
    s.to_the_end()


def test_a_suspect_of_another_kind_that_is_killed_for_memory_gets_one_more_chance() -> None:
    s = shared(2)
    s.die(e.Death.CRASHED)
    s.start()
    _, suspect = next((w, t[0]) for w, _, t in s.running() if s.state.workers[w].assigned[0].isolated)
    worker = next(w for w, _, t in s.running() if t[0] == suspect)
    s.tell(e.WorkerDied(worker, OOM, suspect))
    assert s.all(c.Quarantine) == []
    s.to_the_end()
    assert s.all(c.Quarantine) == []


def test_a_dedicated_worker_is_made_fresh_for_a_task_that_must_run_alone() -> None:
    s = Script(StepSpec("a"), StepSpec("model", gpu=SECOND), nodes=(cpus(2, 1),), ignore_failures=True)
    s.give(3)
    s.start()
    s.finish(0)
    s.die(OOM, step=1)
    s.to_the_end()
    assert s.all(c.Quarantine) == []


def test_a_task_that_is_bad_throughout_is_not_searched_to_the_last_item() -> None:
    spec = StepSpec("a", max_attempts=1)
    config = SchedulerConfig(budget=1 << 30, ignore_failures=True)
    w = CheckedWorld([spec], [StepModel(1000, raises=frozenset({"0"}))], 1, config=config, items=1000)
    w.run()
    tried = sum(1 for _ in w.quarantined)
    assert tried < 40
    assert w.scheduler.state.steps[0].counts.items_failed == 1000
    assert w.scheduler.state.steps[0].counts.tasks_failed == 1


def test_several_bad_items_among_good_ones_are_all_found() -> None:
    bad = frozenset(f"0#{i}" for i in range(0, 1000, 50))
    config = SchedulerConfig(budget=1 << 30, ignore_failures=True)
    w = CheckedWorld([StepSpec("a", max_attempts=1)], [StepModel(1000, raises=bad)], 1, config=config, items=1000)
    w.run()
    assert w.scheduler.state.steps[0].counts.items_failed == 20


def test_once_the_run_has_failed_nothing_is_retried_or_searched() -> None:
    s = Script(StepSpec("a", workers=2), StepSpec("b", workers=1), nodes=(cpus(4),))
    s.start()
    s.give(2, items=8)
    worker, unit = s.unit(0)
    s.tell(e.UnitFinished(worker, unit, s.outputs(6, items=8, parent=unit), 1000))
    while not s.all(c.Quarantine):
        s.fail(1)
    failures = 0
    while any(step == 1 for _, step, _ in s.running()):
        s.fail(1)
        failures += 1
    assert len(s.all(c.Quarantine)) == 1 + failures, "one attempt each: the run is ending"
    s.to_the_end()


def test_a_generator_that_starts_again_has_time_to_catch_up() -> None:
    s = Script(StepSpec("read", workers=1, timeout_us=10 * SECOND), StepSpec("b"), nodes=(cpus(2),))
    s.start()
    s.give(1)
    for _ in range(3):
        worker, unit = s.unit(0)
        s.tell(e.UnitEmitted(worker, unit, s.outputs(1, parent=unit), SECOND), after=8 * SECOND)
    s.tell(e.WorkerDied(s.unit(0)[0], e.Death.KILLED, s.unit(0)[1]))
    s.start()
    assert s.tell(e.Tick(), after=30 * SECOND) == []
    assert [type(x) for x in s.tell(e.Tick(), after=11 * SECOND)] == [c.KillWorker]


def test_a_setup_that_hangs_has_failed() -> None:
    for spec in (StepSpec("own", workers=1), StepSpec("shared", has_setup=True)):
        s = Script(spec, setup_timeout_us=60 * SECOND)
        s.give(1)
        if spec.workers is None:
            s.start()
        for _ in range(3):
            (kill,) = s.tell(e.Tick(), after=61 * SECOND)
            assert type(kill) is c.KillWorker
            s.tell(e.WorkerDied(kill.worker, e.Death.KILLED, setting_up=0))
            if spec.workers is None:
                s.start()
        assert "setup of" in s.state.ending.aborted


def test_a_shared_worker_is_recycled_for_a_stage_that_has_no_setup() -> None:
    s = Script(StepSpec("leaks", lifetime_us=60 * SECOND, restart_interval_us=SECOND))
    s.give(3)
    s.start()
    s.finish()
    assert [type(x) for x in s.tell(e.Tick(), after=61 * SECOND)] == [c.StartWorker]


def test_a_step_whose_items_belong_together_gives_the_whole_task_up() -> None:
    config = SchedulerConfig(budget=1 << 30, ignore_failures=True)
    models = [StepModel(1000, raises=frozenset({"0#3"}))]
    w = CheckedWorld([StepSpec("a", slices=False)], models, 2, config=config, items=8).run()
    assert w.scheduler.state.steps[0].counts.items_failed == 8
    assert len(w.quarantined) == 1

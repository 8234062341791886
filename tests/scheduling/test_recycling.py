"""Workers that grow old: the new one first, then the old one goes."""

from __future__ import annotations

from itertools import pairwise

from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

OLD = 60 * SECOND


def test_with_capacity_the_new_worker_is_up_before_the_old_one_goes() -> None:
    s = Script(StepSpec("a", gpu=SECOND, workers=1, lifetime_us=OLD), nodes=(cpus(4, 2),))
    s.start()
    s.give(3)
    assert s.tell(e.Tick(), after=OLD - 10) == []
    (new,) = s.tell(e.Tick(), after=20)
    assert type(new) is c.StartWorker and new.gpus != (0,)
    assert s.all(c.StopWorker) == []
    s.tell(e.WorkerReady(new.worker))
    assert s.all(c.StopWorker) == [], "the old one has work to finish"
    while any(w == 0 for w, _, _ in s.running()):
        s.finish()
    assert s.all(c.StopWorker) == [c.StopWorker(0)]


def test_without_capacity_the_old_worker_drains_and_then_the_new_one_starts() -> None:
    s = Script(StepSpec("a", gpu=SECOND, lifetime_us=OLD), nodes=(cpus(4, 1),))
    s.start()
    s.give(1)
    s.tell(e.Tick(), after=OLD)
    assert s.all(c.StopWorker) == [] and len(s.all(c.StartWorker)) == 1
    s.finish()
    assert s.all(c.StopWorker) == [c.StopWorker(0)]
    (new,) = [x for x in s.tell(e.WorkerLeft(0)) if type(x) is c.StartWorker]
    assert new.gpus == (0,)


def test_without_capacity_one_worker_at_a_time_is_restarted() -> None:
    s = Script(StepSpec("a", gpu=SECOND, lifetime_us=OLD), nodes=(cpus(8, 4),))
    s.start()
    s.tell(e.Tick(), after=OLD)
    assert len(s.all(c.StopWorker)) == 1
    s.tell(e.Tick())
    assert len(s.all(c.StopWorker)) == 1
    s.tell(e.WorkerLeft(s.all(c.StopWorker)[0].worker))
    s.start()
    s.tell(e.Tick())
    assert len(s.all(c.StopWorker)) == 2


def test_a_restart_interval_staggers_the_replacements() -> None:
    spec = StepSpec("a", gpu=SECOND // 4, workers=3, lifetime_us=OLD, restart_interval_us=10 * SECOND)
    w = CheckedWorld([spec], [StepModel(SECOND)], 400, nodes=[cpus(8, 4)], check_every=5).run()
    w.assert_nothing_lost()
    starts = [at for at, x in w.commands if type(x) is c.StartWorker]
    later = [at for at in starts if at > SECOND]
    assert len(later) >= 3
    assert all(b - a >= 10 * SECOND for a, b in pairwise(later))


def test_a_replacement_that_dies_is_replaced_itself() -> None:
    s = Script(StepSpec("a", gpu=SECOND, workers=1, lifetime_us=OLD), nodes=(cpus(4, 2),))
    s.start()
    (new,) = s.tell(e.Tick(), after=OLD)
    s.tell(e.WorkerDied(new.worker, e.Death.KILLED))
    s.tell(e.Tick())
    s.start()
    assert s.all(c.StopWorker) == [c.StopWorker(0)], "the old one must not live for ever"


def test_shared_workers_are_recycled_too_and_nothing_is_lost() -> None:
    config = SchedulerConfig(budget=1 << 30, shared_lifetime_us=5 * SECOND)
    models = [StepModel(SECOND // 2, fan_out=20, chunk=4), StepModel(SECOND // 10)]
    w = CheckedWorld([StepSpec("a"), StepSpec("b", has_setup=True)], models, 40, config=config).run()
    w.assert_nothing_lost()
    assert len(w.all(c.StartWorker)) > 8
    assert all(not x.now for x in w.all(c.StopWorker)), "drained, never interrupted"


def test_a_shared_worker_is_recycled_for_the_stage_it_hosts() -> None:
    spec = StepSpec("a", has_setup=True, lifetime_us=5 * SECOND)
    w = CheckedWorld([spec], [StepModel(SECOND)], 60).run()
    w.assert_nothing_lost()
    assert len(w.all(c.StartWorker)) > 4

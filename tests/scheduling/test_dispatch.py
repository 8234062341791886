"""Who gets which work: furthest downstream first, idle workers first, as much ahead as the work is short."""

from __future__ import annotations

import pytest
from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus


def test_work_furthest_downstream_goes_first() -> None:
    s = Script(StepSpec("read"), StepSpec("write"))
    s.give(3)
    s.start()
    assert [step for _, step, _ in s.running()] == [0]
    s.finish(busy_us=SECOND)
    assert [step for _, step, _ in s.running()] == [1]
    s.finish(busy_us=SECOND)
    assert [step for _, step, _ in s.running()] == [0]


def test_idle_workers_get_work_before_busy_ones_get_more() -> None:
    s = Script(StepSpec("a", workers=2), nodes=(cpus(2),))
    s.start()
    s.give(3)
    assert sorted(w for w, _, _ in s.running()) == [0, 0, 1]
    assert [x.worker for x in s.all(c.Dispatch)][:2] == [0, 1]


@pytest.mark.parametrize(("busy_us", "depth"), [(1000, 20), (4000, 5), (100, 128), (SECOND, 2)])
def test_as_many_units_wait_in_a_worker_as_make_20_ms(busy_us: int, depth: int) -> None:
    s = Script(StepSpec("a", workers=1))
    s.start()
    s.give(400)
    assert len(s.running()) == 2
    s.finish(busy_us=busy_us)
    assert len(s.running()) == depth


def test_long_tasks_do_not_wait_in_shared_workers() -> None:
    s = Script(StepSpec("a"))
    s.give(10)
    s.start()
    s.finish(busy_us=SECOND)
    assert len(s.running()) == 1
    short = Script(StepSpec("a"))
    short.give(10)
    short.start()
    short.finish(busy_us=4000)
    assert len(short.running()) == 5


def test_an_idle_worker_takes_a_partial_batch_and_waits_ahead_only_for_whole_ones() -> None:
    s = Script(StepSpec("a", workers=1, batch_size=4))
    s.start()
    s.give(1)
    assert [len(tasks) for _, _, tasks in s.running()] == [1]
    s.give(3)
    assert [len(tasks) for _, _, tasks in s.running()] == [1]
    s.give(1)
    assert [len(tasks) for _, _, tasks in s.running()] == [1, 4]
    s.finish()
    s.give(2)
    assert [len(tasks) for _, _, tasks in s.running()] == [4]
    s.tell(e.SourceEnded())
    assert [len(tasks) for _, _, tasks in s.running()] == [4, 2]


@pytest.mark.parametrize(("cpu", "at_once"), [(SECOND // 2, 4), (SECOND, 2), (2 * SECOND, 1)])
def test_a_cpu_is_held_while_a_unit_runs(cpu: int, at_once: int) -> None:
    w = CheckedWorld([StepSpec("a", cpu=cpu)], [StepModel(SECOND)], 20, nodes=[cpus(2)])
    for moment in (SECOND // 2, 2 * SECOND, 4 * SECOND):
        w.run(until_us=moment)
        assert w.scheduler.state.running == at_once
    w.run().assert_nothing_lost()


def test_steps_of_different_size_share_the_cpus() -> None:
    specs = [StepSpec("half", cpu=SECOND // 2), StepSpec("one"), StepSpec("two", cpu=2 * SECOND)]
    w = CheckedWorld(specs, [StepModel(SECOND // 10)] * 3, 60, nodes=[cpus(2)])
    w.run().assert_nothing_lost()
    ideal_s = 60 * 0.1 * (0.5 + 1 + 2) / 2
    assert w.now < 1.5 * ideal_s * SECOND


def test_a_gpu_worker_and_shared_steps_get_along_on_one_cpu() -> None:
    specs = [StepSpec("read"), StepSpec("embed", gpu=SECOND), StepSpec("write")]
    w = CheckedWorld(specs, [StepModel(SECOND // 10)] * 3, 30, nodes=[cpus(1, gpus=1)])
    w.run().assert_nothing_lost()
    assert w.now < 12 * SECOND


def test_memory_of_gpu_workers_does_not_lock_shared_steps_out() -> None:
    specs = [StepSpec("read", memory=12 << 30), StepSpec("embed", gpu=SECOND, memory=8 << 30)]
    w = CheckedWorld(specs, [StepModel(SECOND // 10)] * 2, 10, nodes=[cpus(4, gpus=2)])
    w.run().assert_nothing_lost()


@pytest.mark.parametrize(("tasks", "hosts"), [(20, 1), (2000, 4)])
def test_an_expensive_setup_is_paid_in_more_workers_only_for_much_work(tasks: int, hosts: int) -> None:
    specs = [StepSpec("read"), StepSpec("score", has_setup=True)]
    w = CheckedWorld(specs, [StepModel(1000), StepModel(SECOND // 10, setup_us=10 * SECOND)], tasks, check_every=50)
    most = 0
    for second in range(10, 16):
        w.run(until_us=second * SECOND)
        most = max(most, w.scheduler.state.steps[1].hosts)
    assert most == hosts
    w.run().assert_nothing_lost()


def test_a_worker_that_sets_a_step_up_gets_no_more_of_it_until_it_has() -> None:
    s = Script(StepSpec("a", has_setup=True))
    s.give(5)
    s.start()
    s.tell(e.Tick())
    assert len(s.running()) == 1
    s.tell(e.StepSetUp(0, 0, 5 * SECOND))
    s.finish()
    assert len(s.running()) > 1


def test_a_worker_that_sets_a_known_step_up_gets_no_more_of_it_until_it_has() -> None:
    """It gives back the tasks that it could not set up, so it must know all that it has."""
    s = Script(StepSpec("a", has_setup=True), nodes=(cpus(2),))
    s.give(1)
    s.start()
    s.tell(e.StepSetUp(0, 0, 1000))
    s.finish(busy_us=1000)
    s.give(300)
    (second,) = s.start()
    s.tell(e.Tick())
    assert sum(1 for w, _, _ in s.running() if w == second) == 1
    s.tell(e.StepSetUp(second, 0, 1000))
    assert sum(1 for w, _, _ in s.running() if w == second) > 1


def test_on_scarce_cpus_a_shared_step_further_downstream_goes_before_a_gpu_step() -> None:
    specs = [StepSpec("read"), StepSpec("embed", gpu=SECOND // 2), StepSpec("write")]
    w = CheckedWorld(specs, [StepModel(SECOND // 50)] * 3, 400, nodes=[cpus(4, 2)], check_every=10)
    longest = 0
    while not w.finished:
        w.run(until_us=w.now + SECOND // 10)
        longest = max(longest, w.scheduler.state.steps[2].queue.size)
    w.assert_nothing_lost()
    assert longest < 20


def test_a_gpu_step_on_one_cpu_lets_its_outputs_through() -> None:
    s = Script(StepSpec("embed", gpu=SECOND), StepSpec("write"), nodes=(cpus(1, 1),))
    s.start()
    s.give(10)
    s.finish(0, busy_us=SECOND)
    s.start()
    s.finish(0, busy_us=SECOND)
    assert [step for _, step, _ in s.running()] == [0], "what it has, it finishes, but it gets no more"
    s.finish(0, busy_us=SECOND)
    assert [step for _, step, _ in s.running()] == [1]


def test_setup_on_node_runs_once_a_node_and_before_any_work_of_the_step() -> None:
    specs = [StepSpec("read"), StepSpec("embed", gpu=SECOND, node_setup=True), StepSpec("write", node_setup=True)]
    nodes = [cpus(2, 1), cpus(2, 1, node=1)]
    w = CheckedWorld(specs, [StepModel(SECOND // 10)] * 3, 40, nodes=nodes, kill_every_us=4 * SECOND)
    w.run().assert_nothing_lost()
    assert sorted((x.node, x.step) for x in w.all(c.SetUpNode)) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    set_up_at = SECOND
    node_of = {x.worker: x.node for x in w.all(c.StartWorker)}
    for at, x in w.commands:
        if type(x) is c.Dispatch and x.step > 0:
            assert at >= set_up_at, f"step {x.step} ran on node {node_of[x.worker]} before it was set up"


def test_a_second_pull_waits_for_the_first() -> None:
    s = Script(StepSpec("a"))
    for _ in range(5):
        s.tell(e.Tick())
    assert len(s.all(c.Pull)) == 1
    s.give(1)
    assert len(s.all(c.Pull)) == 2

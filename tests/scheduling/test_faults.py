"""Faults of the simulator: read with clear errors, seeded, and seen in the result."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator import FaultError, Faults, simulate
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

LOAD = {
    "nodes": [{"cpus": 4, "gpus": 1}, {"cpus": 4, "gpus": 1}],
    "stages": [{"name": "read", "mean_s": 1.0}, {"name": "embed", "gpus": 1, "mean_s": 2.0, "setup_s": 5}],
    "inputs": 60,
}


@pytest.mark.parametrize(
    "faults",
    [
        {"crash_every_s": 30},
        {"kill_every_s": 6},
        {"oom_every_s": 5},
        {"node_loss_every_s": 20, "node_back_s": 5},
        {"slow_workers": 0.5},
        {"slow_tasks": 0.2, "slow_factor": 10},
        {"setup_failures": 0.1},
        Faults(kill_every_s=6, slow_tasks=0.2, node_loss_every_s=40),
    ],
)
def test_a_run_with_faults_ends_the_same_way_each_time(faults: Any) -> None:
    plain = simulate(LOAD, seed=3)
    result = simulate(LOAD, seed=3, faults=faults)
    assert result == simulate(LOAD, seed=3, faults=faults)
    assert result.event_hash != plain.event_hash
    assert result.stages[-1].tasks_done == 60 and not result.aborted


def test_bad_tasks_are_found() -> None:
    result = simulate(LOAD, faults={"poison": 0.05, "raising": 0.05, "hanging": 0.03, "timeout_s": 20})
    assert 2 < result.tasks_failed < 20
    assert result.stages[-1].tasks_done == 60 - result.tasks_failed


def test_no_faults_are_no_faults() -> None:
    assert simulate(LOAD, faults={}) == simulate(LOAD, faults=None) == simulate(LOAD, faults=Faults())


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"crashs": 1}, "'crashs' is not known; there is crash_every_s, kill_every_s"),
        ({"kill_every_s": -1}, "kill_every_s must be a number that is not negative"),
        ({"losable": 1.5}, "losable is a share of all and cannot be 1.5"),
        ({"poison": "often"}, "poison must be a number"),
        ([1], "must be a mapping"),
    ],
)
def test_what_cannot_be_read_is_named(faults: Any, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        simulate(LOAD, faults=faults)


def world(**more: Any) -> CheckedWorld:
    return CheckedWorld([StepSpec("a")], [StepModel()], 4, **more).run(until_us=SECOND // 2)


def test_the_witness_sees_a_task_that_runs_twice_at_once() -> None:
    w = world()
    busy = next(i for i, x in w.workers.items() if x.current)
    other = next(i for i, x in w.workers.items() if i != busy)
    w.workers[other].current = None
    w.workers[other].queue.clear()
    with pytest.raises(AssertionError, match=f"begins in worker {other} while worker {busy} has it"):
        w.carry_out(c.Dispatch(other, 0, (w.workers[busy].current.inputs[0].task,)))


def test_the_witness_sees_an_overcommitted_node() -> None:
    w = CheckedWorld([StepSpec("a", gpu=SECOND)], [StepModel()], 4, nodes=[cpus(4, 1)]).run(until_us=SECOND // 2)
    with pytest.raises(AssertionError, match="GPU 0 is shared out 2 times"):
        w.carry_out(c.StartWorker(99, 0, 0, SECOND, (0,), SECOND))
    with pytest.raises(AssertionError, match="more CPUs than it has"):
        w.carry_out(c.StartWorker(98, 0, 0, 4 * SECOND))
    with pytest.raises(AssertionError, match="node 7, which is not there"):
        w.carry_out(c.StartWorker(97, 7, 0, SECOND))


def test_the_witness_sees_a_broken_budget() -> None:
    w = world(config=SchedulerConfig(budget=10_000))
    w.scheduler.state.budget.held += 1 << 30
    with pytest.raises(AssertionError, match="exceed the budget"):
        w.witness.hears([], [c.Dispatch(0, 0, (1,))])


def test_the_witness_sees_work_for_a_worker_that_leaves() -> None:
    w = world()
    w.witness.leaving = {0}
    with pytest.raises(AssertionError, match="worker 0 is leaving and got new work"):
        w.witness.hears([], [c.Dispatch(0, 0, (1,))])


def test_a_node_that_comes_back_is_set_up_again() -> None:
    w = CheckedWorld([StepSpec("a", node_setup=True)], [StepModel()], 4, nodes=[cpus(1)])
    w.after(SECOND * 3 // 2, lambda world: world.lose(0))
    w.after(2 * SECOND, cpus(1))
    w.run().assert_nothing_lost()
    assert w.all(c.SetUpNode) == [c.SetUpNode(0, 0)] * 2
    assert w.now > 3 * SECOND


def test_no_task_is_at_fault_for_a_lost_node_or_an_unreachable_worker() -> None:
    assert [x for x in e.Death if x.is_no_fault] == [e.Death.NODE_LOST, e.Death.UNREACHABLE]
    assert not any(x.is_no_fault and x.is_own_fault for x in e.Death)


def test_the_witness_sees_a_task_that_is_tried_too_often() -> None:
    w = world()
    w.witness.hears([], [c.Dispatch(0, 0, (1,))])
    failed = e.UnitFailed(0, 1, "ValueError: bad")
    w.witness.hears([failed, failed, failed], [])
    with pytest.raises(AssertionError, match="task 1 raised 3 times and was tried again"):
        w.witness.hears([failed], [])

"""Nodes that become larger or smaller while a run is on them."""

from __future__ import annotations

import pytest
from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.placement import Capacity
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.simulator.faults import Faults
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

GPU = 80 << 30


def test_a_node_that_grows_is_used() -> None:
    s = Script(StepSpec("a", dedicated=True), nodes=(cpus(1),))
    s.give(8)
    assert len(s.all(c.StartWorker)) == 1
    said = s.tell(e.NodeResized(0, 4 * UNIT, 1 << 34))
    assert len([x for x in said if isinstance(x, c.StartWorker)]) == 3


def test_who_runs_on_a_node_that_shrinks_finishes_and_then_leaves() -> None:
    s = Script(StepSpec("a", dedicated=True), nodes=(cpus(4),))
    s.give(8)
    s.start()
    said = s.tell(e.NodeResized(0, UNIT, 1 << 34))
    assert not [x for x in said if isinstance(x, (c.KillWorker, c.StopWorker))], "all of them are at work"
    assert s.state.nodes[0].free.cpu == -3 * UNIT
    stopped = []
    for worker, _, tasks in s.running():
        said = s.tell(e.UnitFinished(worker, tasks[0], (), SECOND))
        stopped += [x.worker for x in said if isinstance(x, c.StopWorker)]
    assert len(stopped) == 3
    s.to_the_end()
    assert s.state.steps[0].counts.tasks_done == 8


def test_nothing_is_started_where_no_capacity_is_left() -> None:
    s = Script(StepSpec("a", dedicated=True), nodes=(cpus(1),))
    said = s.tell(e.NodeResized(0, 0, 1 << 34))
    assert said == [c.StopWorker(0, now=True)], "it is still starting"
    s.give(2)
    s.tell(e.WorkerLeft(0))
    s.tell(e.Tick(), after=200 * SECOND)
    assert len(s.all(c.StartWorker)) == 1
    said = s.tell(e.NodeResized(0, UNIT, 1 << 34))
    assert [x.worker for x in said if isinstance(x, c.StartWorker)] == [1]


def test_shared_workers_wait_for_cpus_that_others_have() -> None:
    s = Script(StepSpec("a"), nodes=(cpus(2),))
    s.give(6)
    s.start()
    s.tell(e.NodeResized(0, UNIT, 1 << 34))
    assert len(s.running()) == 2
    s.finish(busy_us=SECOND)
    assert len(s.running()) == 1


@pytest.mark.parametrize("gpus", [(GPU, -1), (GPU,)])
def test_a_gpu_that_others_have_is_left_to_them(gpus: tuple[int, ...]) -> None:
    s = Script(StepSpec("a", gpu=UNIT), nodes=(cpus(4, gpus=2),))
    s.give(8)
    assert [x.gpus for x in s.all(c.StartWorker)] == [(0,), (1,)]
    said = s.tell(e.NodeResized(0, 4 * UNIT, 1 << 34, gpus))
    assert [x.worker for x in said if isinstance(x, c.StopWorker)] == [1]
    s.tell(e.WorkerLeft(1), e.Tick())
    assert len(s.all(c.StartWorker)) == 2
    said = s.tell(e.NodeResized(0, 4 * UNIT, 1 << 34, (GPU, GPU)))
    assert [x.gpus for x in said if isinstance(x, c.StartWorker)] == [(1,)]


def test_capacity_counts_what_is_taken_of_a_gpu_that_goes_and_comes_back() -> None:
    capacity = Capacity(0, 0, (GPU, GPU))
    place = capacity.find(StepSpec("a", cpu=0, gpu=UNIT // 2))
    assert place is not None
    capacity.take(place)
    capacity.resize(UNIT, 5, (-1, GPU, GPU))
    assert (capacity.cpu, capacity.memory, capacity.gpu_free) == (UNIT, 5, [-UNIT // 2, UNIT, UNIT])
    capacity.give(place)
    capacity.resize(0, 0, (GPU,))
    assert capacity.gpu_free == [UNIT, 0, 0] and capacity.gpu_memory == (GPU, -1, -1)


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_shared_with_others_gets_through(seed: int) -> None:
    w = CheckedWorld(
        [StepSpec("a", cpu=2 * UNIT), StepSpec("b", gpu=UNIT), StepSpec("c", gpu=UNIT // 2, memory=1 << 33)],
        [StepModel(SECOND), StepModel(2 * SECOND, setup_us=SECOND), StepModel(SECOND)],
        60,
        nodes=[cpus(4, gpus=2, node=i) for i in range(2)],
        config=SchedulerConfig(budget=1 << 30),
        faults=Faults(resize_every_s=3, resized_s=4, until_s=60),
        seed=seed,
    ).run()
    w.assert_nothing_lost()


def test_a_generator_on_a_node_that_has_become_too_small_continues_elsewhere() -> None:
    s = Script(StepSpec("a", cpu=2 * UNIT), StepSpec("b"), nodes=(cpus(2), cpus(2, node=1)))
    s.give(1)
    s.start()
    worker, unit = s.unit()
    s.tell(e.NodeResized(s.state.workers[worker].node, UNIT, 1 << 34))
    s.tell(e.UnitEmitted(worker, unit, s.outputs(1, parent=unit), 1000))
    s.start()
    while not any(step == 0 for _, step, _ in s.running()):
        s.finish(1)
        s.start()
    (again,) = [x for x in s.all(c.Dispatch) if x.special]
    assert again.special[0].skip == 1
    assert s.state.workers[again.worker].node != s.state.workers[worker].node

"""A moment of a run on a bridge, as observers see it."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.accounts import RunAccounts
from gristmill.backends.bridge.collector import Collector, PackedTask
from gristmill.backends.bridge.moment import bridge_moment
from gristmill.backends.bridge.unit import UnitRunner
from gristmill.backends.engine.payload import pack
from gristmill.backends.step_runner import StepRunner
from gristmill.metrics.observer import Moment, PlanInfo
from gristmill.scheduling.snapshot import StepSnapshot
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task


class Pass(ProcessingStage[Task[Any], Task[Any]]):
    def process(self, task: Task[Any]) -> Task[Any]:
        return task


class Batched(Pass):
    batch_size = 3

    def process_batch(self, tasks: list[Task[Any]]) -> list[Task[Any]]:
        return tasks


class FailsTwice(Pass):
    left = 2

    def process(self, task: Task[Any]) -> Task[Any]:
        if self.left:
            self.left -= 1
            raise ValueError("not yet")
        return task


class Seen:
    """An observer that keeps moments."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def begin(self, plan: PlanInfo) -> None: ...

    def update(self, moment: Moment) -> None:
        self.moments.append(moment)

    def message(self, text: str) -> None: ...


class Bridge:
    """A run with one step: its collector, and the accounts in the driver."""

    def __init__(self, stage: ProcessingStage[Any, Any], tasks: int) -> None:
        self.seen = Seen()
        self.accounts = RunAccounts(Plan("p", (Step((stage,)),), observer=self.seen), ignore_failures=True)
        self.collector = Collector(b"", [3])
        runner = StepRunner((stage,), None, None)
        self.unit = UnitRunner(runner, 0, 3, self.collector)
        self.labels = [str(n) for n in range(tasks)]
        for label in self.labels:
            self.accounts.begin(label)

    def run(self, *labels: str) -> None:
        packed = [PackedTask(label, b"".join(pack(Task(task_id=label)))) for label in labels]
        for _ in self.unit.run(packed):
            pass

    def now(self, has_ended: bool = False) -> StepSnapshot:
        self.accounts.add(self.collector.take_update())
        (step,) = bridge_moment(self.accounts, has_ended).snapshot.steps
        return step


def test_tasks_are_queued_then_running_then_done() -> None:
    bridge = Bridge(Pass(), 5)
    assert (bridge.now().queued, bridge.now().running, bridge.now().busy) == (5, 0, 0)
    bridge.collector.begin(0, ["0"])
    bridge.collector.begin(0, ["1"])
    assert (bridge.now().queued, bridge.now().running, bridge.now().busy) == (3, 2, 2)
    bridge.run("2")
    step = bridge.now()
    assert (step.queued, step.running, step.tasks_done) == (2, 2, 1)
    assert (step.units_done, sum(step.latency), step.items_done) == (1, 1, 1)
    assert step.latency_us == step.busy_us > 0


def test_a_batch_is_one_unit_in_one_worker() -> None:
    bridge = Bridge(Batched(), 6)
    bridge.collector.begin(0, ["0", "1", "2"])
    step = bridge.now()
    assert (step.running, step.busy, step.queued) == (3, 1, 3)
    bridge.run("3", "4", "5")
    step = bridge.now()
    assert (step.running, step.busy, step.queued, step.tasks_done, step.units_done) == (3, 1, 0, 3, 1)


def test_tasks_of_a_dead_worker_that_are_begun_again_are_units_of_their_own() -> None:
    bridge = Bridge(Batched(), 2)
    bridge.collector.begin(0, ["0", "1"])
    bridge.collector.begin(0, ["0", "1"])  # another worker got the batch: the tasks are suspects and not begun together
    step = bridge.now()
    assert (step.running, step.busy, step.deaths) == (2, 1, 0)
    bridge.collector.begin(0, ["0"])
    step = bridge.now()
    assert (step.running, step.busy, step.deaths) == (2, 2, 1)
    bridge.run("1")
    step = bridge.now()
    assert (step.running, step.busy, step.deaths, step.tasks_done) == (1, 1, 2, 1)


def test_a_task_that_ray_runs_again_is_not_under_way_again() -> None:
    bridge = Bridge(Pass(), 1)
    bridge.run("0")
    bridge.run("0")
    step = bridge.now()
    assert (step.running, step.busy, step.tasks_done, step.units_done) == (0, 0, 1, 1)
    assert step.ended


def test_retries_are_counted_where_they_happen() -> None:
    bridge = Bridge(FailsTwice(), 1)
    bridge.run("0")
    step = bridge.now()
    assert (step.retries, step.tasks_done) == (2, 1)


def test_workers_that_are_set_up_and_do_nothing_are_idle() -> None:
    bridge = Bridge(Pass(), 3)
    for worker in ("a", "b"):
        bridge.collector.begin_setup(0, worker)
        bridge.collector.set_up(0, worker)
    bridge.collector.begin(0, ["0"])
    step = bridge.now()
    assert (step.busy, step.idle, step.started, step.setups) == (1, 1, 2, 2)
    assert (bridge.now(True).busy, bridge.now(True).idle) == (0, 0)


def test_what_the_other_scheduler_decides_is_not_known() -> None:
    bridge = Bridge(Pass(), 1)
    step = bridge.now()
    assert (step.planned, step.optimum_ns, step.queued_bytes) == (None, 0, 0)
    moment = bridge_moment(bridge.accounts)
    assert (moment.memory_bytes, moment.snapshot.bottleneck, moment.snapshot.budget_bytes) == (0, None, 0)


def test_the_observer_gets_moments_and_a_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.backends.bridge.accounts._OBSERVE_INTERVAL_S", 0.0)
    bridge = Bridge(Pass(), 2)
    bridge.now()
    bridge.run("0", "1")
    bridge.now()
    bridge.accounts.close()
    done = [moment.snapshot.steps[0].tasks_done for moment in bridge.seen.moments]
    assert done == [0, 2, 2]
    assert [moment.snapshot.steps[0].ended for moment in bridge.seen.moments] == [False, True, True]

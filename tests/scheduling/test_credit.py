"""Bytes: what waits, runs and is about to be made stays within the budget, and nothing ever locks up."""

from __future__ import annotations

import pytest
from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

KB = 1024


def budget(size: int) -> SchedulerConfig:
    return SchedulerConfig(budget=size)


def test_a_source_ten_times_faster_than_its_sink_stays_within_the_budget() -> None:
    specs = [StepSpec("read"), StepSpec("parse"), StepSpec("write", workers=1)]
    models = [
        StepModel(SECOND // 100, out_bytes=2000),
        StepModel(SECOND // 100, out_bytes=2000),
        StepModel(SECOND // 10),
    ]
    w = CheckedWorld(specs, models, 400, config=budget(200 * KB), check_every=10)
    w.run().assert_nothing_lost()
    assert 150 * KB < w.max_bytes <= 200 * KB
    assert w.scheduler.state.budget.forced == 0
    assert w.now < 1.1 * 40 * SECOND


@pytest.mark.parametrize("fan_out", [1, 5])
@pytest.mark.parametrize("size", [64 * KB, 1024 * KB])
def test_bytes_in_flight_never_exceed_the_budget_when_sizes_are_constant(size: int, fan_out: int) -> None:
    specs = [StepSpec("a"), StepSpec("b", gpu=SECOND // 2), StepSpec("c", batch_size=3), StepSpec("d")]
    models = [StepModel(SECOND // 50, out_bytes=size // 200) for _ in specs]
    models[1].fan_out = fan_out
    w = CheckedWorld(specs, models, 200, config=budget(size), nodes=[cpus(4, 2)], check_every=10)
    w.run().assert_nothing_lost()
    assert w.max_bytes <= size


def test_the_source_is_not_asked_for_more_than_the_budget_holds() -> None:
    s = Script(StepSpec("a"), nodes=(), budget=100 * KB)
    s.tell(e.Tick())
    assert s.all(c.Pull) == [c.Pull(1)]
    s.give(1, size=30 * KB)
    assert s.all(c.Pull)[-1] == c.Pull(2), "two more of that size fit"
    assert s.state.budget.reserved >= 60 * KB, "no other unit may take that memory meanwhile"
    s.give(2, size=30 * KB)
    s.tell(e.Tick())
    assert len(s.all(c.Pull)) == 2
    assert s.state.budget.reserved == 0
    assert s.state.budget.held <= 100 * KB


def test_an_oversized_item_runs_alone() -> None:
    s = Script(StepSpec("make"), StepSpec("use"), nodes=(cpus(4),), budget=100 * KB)
    s.give(1)
    s.start()
    s.finish(n=1, size=1000 * KB)
    s.start()
    s.give(4)
    assert [step for _, step, _ in s.running()] == [1], "nothing else starts while it is there"
    for _ in range(3):
        s.finish(1)
        assert [step for _, step, _ in s.running()] == [0], "one at a time, although four workers are idle"
        s.finish(0, size=1000 * KB)
        assert [step for _, step, _ in s.running()] == [1]
    assert s.state.budget.forced > 0


def test_a_generator_and_its_consumer_take_turns_in_one_worker() -> None:
    specs = [StepSpec("split"), StepSpec("use")]
    models = [StepModel(SECOND // 100, fan_out=200, chunk=4, out_bytes=1000), StepModel(SECOND // 100)]
    w = CheckedWorld(specs, models, 3, config=budget(30 * KB), nodes=[cpus(1)])
    w.run().assert_nothing_lost()
    assert len(w.all(c.Resume)) >= 3 * 40
    assert w.max_bytes <= 30 * KB, "the outputs of one task alone are 400 KB"


@pytest.mark.parametrize("gpu", [0, SECOND])
def test_a_budget_of_one_byte_still_gets_everything_through(gpu: int) -> None:
    specs = [StepSpec("a"), StepSpec("split", gpu=gpu), StepSpec("b", batch_size=4), StepSpec("c", workers=1)]
    models = [StepModel(SECOND // 100) for _ in specs]
    models[1] = StepModel(SECOND // 100, fan_out=9, chunk=2)
    CheckedWorld(specs, models, 12, config=budget(1), nodes=[cpus(1, 1)]).run().assert_nothing_lost()


def test_memory_is_left_for_one_unit_of_each_later_step() -> None:
    s = Script(StepSpec("a"), StepSpec("b"), StepSpec("c"), budget=100 * KB)
    s.give(2)
    s.start()
    s.finish(0, size=9 * KB)
    s.finish(1, size=19 * KB)
    assert s.state.budget.headroom[2] == 0
    assert 20 * KB <= s.state.budget.headroom[0] <= 30 * KB, "what one b makes"
    assert s.state.budget.headroom[1] == 0, "c makes nothing that stays"
    assert 30 * KB <= s.state.budget.source_headroom <= 45 * KB, "what one a and one b make"


def test_in_batch_mode_everything_waits_between_steps_whatever_the_budget() -> None:
    config = SchedulerConfig(budget=10 * KB, batch_mode=True)
    w = CheckedWorld([StepSpec("a"), StepSpec("b")], [StepModel(SECOND // 100)] * 2, 50, config=config)
    w.run().assert_nothing_lost()
    assert w.max_bytes > 50 * 2 * 1000

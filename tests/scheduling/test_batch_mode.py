"""Batch mode: one step after the other, each with the whole machine."""

from __future__ import annotations

from tests.simulation.world import CheckedWorld

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus

BATCH = SchedulerConfig(budget=1 << 20, batch_mode=True)


def spans(w: CheckedWorld) -> list[tuple[int, int]]:
    """First and last dispatch of each step."""
    at = [[t for t, x in w.commands if type(x) is c.Dispatch and x.step == i] for i in range(len(w.specs))]
    return [(min(x), max(x)) for x in at]


def test_a_step_starts_when_the_one_before_it_has_ended() -> None:
    specs = [StepSpec("a"), StepSpec("b", gpu=SECOND), StepSpec("c", batch_size=4)]
    w = CheckedWorld(specs, [StepModel(SECOND)] * 3, 24, config=BATCH, nodes=[cpus(4, 2)]).run()
    w.assert_nothing_lost()
    (_, a), (b, b_end), (c_, _) = spans(w)
    assert a < b and b_end < c_


def test_gpu_steps_have_the_whole_machine_one_after_the_other() -> None:
    specs = [StepSpec("a", gpu=SECOND), StepSpec("b", gpu=SECOND)]
    w = CheckedWorld(specs, [StepModel(SECOND)] * 2, 40, config=BATCH, nodes=[cpus(8, 4)]).run()
    w.assert_nothing_lost()
    assert [max(n for _, n in step.timeline) for step in w.scheduler.state.steps] == [4, 4]
    assert w.now < 22 * SECOND


def test_streaming_takes_about_the_longer_and_batch_the_sum() -> None:
    specs = [StepSpec("cpu", cpu=SECOND), StepSpec("gpu", gpu=SECOND, cpu=0)]
    models = [StepModel(SECOND), StepModel(SECOND)]
    batch = CheckedWorld(specs, models, 60, config=BATCH, nodes=[cpus(2, 2)]).run()
    stream = CheckedWorld(specs, models, 60, nodes=[cpus(2, 2)]).run()
    assert 59 * SECOND < batch.now < 64 * SECOND
    assert stream.now < 34 * SECOND
    assert stream.delivered_at[0] < 4 * SECOND
    assert batch.delivered == stream.delivered


def test_failures_and_deaths_do_not_break_the_barrier() -> None:
    models = [StepModel(SECOND // 2, raises=frozenset(["3"]), flaky=frozenset(["5"])), StepModel(SECOND // 2)]
    config = SchedulerConfig(budget=1 << 20, batch_mode=True, ignore_failures=True)
    w = CheckedWorld([StepSpec("a"), StepSpec("b")], models, 20, config=config, kill_every_us=2 * SECOND).run()
    w.assert_nothing_lost()
    (_, a), (b, _) = spans(w)
    assert a < b

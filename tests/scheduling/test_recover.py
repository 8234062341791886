"""A driver is lost: another one goes on from its log, and nothing is lost or done twice."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.log import RecordingScheduler, recover
from gristmill.scheduling.simulator.faults import Faults
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus
from gristmill.scheduling.simulator.scenario import random_scenario
from gristmill.scheduling.simulator.world import World
from gristmill.scheduling.state import WorkerState


class Driver:
    """A scheduler with a log, told event by event."""

    def __init__(self, *steps: StepSpec) -> None:
        self.log = io.StringIO()
        config = SchedulerConfig(budget=1 << 30, ignore_failures=True)
        self.scheduler = RecordingScheduler(steps or (StepSpec("a"),), config, self.log)
        self.now = 0
        self.tell(cpus(1))

    def tell(self, *events: e.Event) -> list[c.Command]:
        self.now += 1
        return self.scheduler.handle(list(events), self.now)

    def lose(self, torn: str = "") -> list[c.Command]:
        """Another driver takes over; what it has to do again."""
        sink = io.StringIO()
        lines = (self.log.getvalue() + torn).splitlines()
        before = self.scheduler
        self.scheduler, again = recover(lines, sink)
        assert self.scheduler.event_hash() == before.event_hash()
        self.log = sink
        self.tell(*(e.WorkerDied(w, e.Death.DRIVER_LOST) for w in self.scheduler.state.workers))
        self.scheduler.check()
        return again


def test_what_ran_runs_again_without_blame() -> None:
    d = Driver()
    said = d.tell(e.SourceGave((e.Output(0, 10), e.Output(1, 10))))
    (start,) = [x for x in said if isinstance(x, c.StartWorker)]
    d.tell(e.WorkerReady(start.worker))
    assert d.scheduler.state.running
    d.lose()
    s = d.scheduler.state
    assert s.running == 0 and s.steps[0].queued == 2 and not s.suspects
    assert all(t.attempts == 0 and not t.story for t in s.tasks.values())
    assert start.worker not in s.workers


def test_a_source_that_was_asked_is_asked_again_even_long_after() -> None:
    d = Driver()
    assert d.scheduler.state.pulling
    for _ in range(3):
        d.tell(e.Tick())
    assert d.lose() == [c.Pull(1)]
    d.tell(e.SourceGave((e.Output(0, 10),)))
    d.tell(e.SourceEnded())
    assert not [x for x in d.lose() if isinstance(x, c.Pull)]
    assert d.scheduler.state.source_taken == 1


def test_releases_and_quarantines_of_the_last_line_are_done_again() -> None:
    d = Driver(StepSpec("a", max_attempts=1))
    d.tell(e.SourceGave((e.Output(0, 10),)))
    d.tell(e.SourceEnded())
    d.tell(e.WorkerReady(0))
    said = d.tell(e.UnitFailed(0, 0, "ValueError: bad"))
    kept = [x for x in said if isinstance(x, (c.Quarantine, c.Release))]
    assert len(kept) == 2
    assert d.lose() == kept


def test_a_setup_on_a_node_that_was_under_way_is_done_again() -> None:
    d = Driver(StepSpec("a", node_setup=True))
    assert c.SetUpNode(0, 0) in d.lose()
    d.tell(e.NodeSetUp(0, 0))
    assert c.SetUpNode(0, 0) not in d.lose()


def test_the_end_is_told_again() -> None:
    d = Driver()
    assert d.tell(e.SourceEnded()) == [c.Finish()]
    assert d.lose() == [c.Finish()]


def test_an_event_that_was_not_written_to_its_end_has_not_happened() -> None:
    d = Driver()
    d.tell(e.SourceGave((e.Output(0, 10),)))
    d.lose(torn='[7, [["SourceGave", [["Outp')
    assert d.scheduler.state.source_taken == 1


def test_a_driver_that_went_on_can_be_lost_again() -> None:
    d = Driver()
    d.tell(e.SourceGave((e.Output(0, 10),)))
    d.lose()
    d.tell(e.SourceGave((e.Output(1, 10),)))
    d.lose()
    assert d.scheduler.state.source_taken == 2


def test_workers_that_start_when_the_driver_is_lost_say_nothing_about_their_setup() -> None:
    d = Driver(StepSpec("a", workers=1))
    for _ in range(30):
        assert [w.state for w in d.scheduler.state.workers.values()] == [WorkerState.STARTING]
        d.lose()
    assert not d.scheduler.state.aborted


@pytest.mark.parametrize("seed", range(6))
def test_whole_runs_whose_driver_is_lost_every_few_seconds(seed: int) -> None:
    world = World(
        [StepSpec("a", node_setup=True), StepSpec("b", gpu=SECOND // 2, has_setup=True), StepSpec("c", batch_size=3)],
        [
            StepModel(SECOND // 5, fan_out=6, chunk=2),
            StepModel(SECOND // 10, setup_us=SECOND, poison=frozenset({"3"})),
            StepModel(SECOND // 10, raises=frozenset({"5"}), fan_out=2),
        ],
        12,
        config=SchedulerConfig(budget=1 << 20, ignore_failures=True),
        nodes=[cpus(2, 1), cpus(2, node=1)],
        seed=seed,
        faults=Faults(restart_every_s=4),
    )
    world.run().assert_nothing_lost()
    assert world.generation > 1


def test_a_lost_driver_changes_nothing_in_what_comes_out() -> None:
    scenario = random_scenario(12)
    scenario.faults = Faults()
    scenario.config = replace(scenario.config, link_timeout_us=None)
    plain = scenario.world().run()
    scenario.faults = replace(scenario.faults, restart_every_s=1.0, until_s=60.0)
    lossy = scenario.world().run()
    assert lossy.generation > 0
    assert lossy.delivered == plain.delivered

"""A log is a proof: the same events give the same commands."""

from __future__ import annotations

import io

import pytest
from test_campaign import make_world

from gristmill.scheduling.log import RecordingScheduler, replay
from gristmill.scheduling.simulator.world import World


def recorded(seed: int) -> tuple[RecordingScheduler, str]:
    """A random run with faults, its scheduler and its log."""
    sink = io.StringIO()
    plain: World = make_world(seed)
    scheduler = RecordingScheduler(plain.specs, plain.scheduler.state.config, sink)
    world = make_world(seed)
    world.scheduler = scheduler
    world.run()
    return scheduler, sink.getvalue()


@pytest.mark.parametrize("seed", [1, 4, 19])
def test_a_log_is_replayed_to_the_same_hash(seed: int) -> None:
    scheduler, log = recorded(seed)
    again = replay(log.splitlines())
    assert again.event_hash() == scheduler.event_hash()
    assert again.snapshot() == scheduler.snapshot()
    assert again.state.finished


def test_the_same_seed_gives_the_same_log_and_another_seed_another() -> None:
    first, log = recorded(7)
    second, same = recorded(7)
    assert first.event_hash() == second.event_hash()
    assert log == same
    assert recorded(8)[0].event_hash() != first.event_hash()


def test_a_changed_event_changes_the_hash() -> None:
    scheduler, log = recorded(7)
    lines = log.splitlines()
    at = next(i for i, line in enumerate(lines) if '"UnitFinished"' in line)
    now, rest = lines[at].split(",", 1)
    lines[at] = f"[{int(now[1:]) + 1},{rest}"
    assert replay(lines).event_hash() != scheduler.event_hash()


def test_a_cut_log_is_replayed_as_far_as_it_goes() -> None:
    _, log = recorded(7)
    half = log.splitlines()[: log.count("\n") // 2]
    replay(half).check()

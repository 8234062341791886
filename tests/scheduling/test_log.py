"""A log is a proof: the same events give the same commands."""

from __future__ import annotations

import io

import pytest
from tests.simulation.invariants import check
from tests.simulation.scenario import random_scenario

from gristmill.scheduling.log import RecordingScheduler, replay


def recorded(seed: int) -> tuple[RecordingScheduler, str]:
    """A random run with faults, its scheduler and its log."""
    sink = io.StringIO()
    scenario = random_scenario(seed)
    world = scenario.world()
    scheduler = RecordingScheduler(scenario.steps, scenario.config, sink)
    world.scheduler = scheduler
    world.run()
    return scheduler, sink.getvalue()


@pytest.mark.parametrize("seed", [1, 4, 19])
def test_a_log_is_replayed_to_the_same_hash(seed: int) -> None:
    scheduler, log = recorded(seed)
    again = replay(log.splitlines())
    assert again.event_hash() == scheduler.event_hash()
    assert again.snapshot() == scheduler.snapshot()
    assert again.state.ending.finished


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
    lines = log.splitlines()
    half = replay(lines[: len(lines) // 2])
    check(half.state)
    whole = replay(lines)
    assert whole.state.ending.finished and not half.state.ending.finished
    assert 0 < sum(x.counts.tasks_done for x in half.state.steps) < sum(x.counts.tasks_done for x in whole.state.steps)


def test_a_last_line_that_is_not_whole_is_passed_over_and_any_other_is_not() -> None:
    _, log = recorded(7)
    lines = log.splitlines()
    whole, torn = lines[:20], lines[20][: len(lines[20]) // 2]
    assert replay([*whole, torn]).event_hash() == replay(whole).event_hash()
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        replay([*whole, torn, lines[21]])


def test_a_log_of_another_format_is_refused() -> None:
    head, *lines = recorded(7)[1].splitlines()
    with pytest.raises(ValueError, match="has format 1, but this version of gristmill reads format 2"):
        replay([head.replace('"format": 2, ', ""), *lines])

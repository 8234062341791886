"""The failure policy as a table: what follows from an error, or from the death of a worker."""

from __future__ import annotations

import pytest

from gristmill.scheduling import SchedulerConfig
from gristmill.scheduling.events import Death
from gristmill.scheduling.failure_policy import (
    LostUnit,
    Response,
    after_death,
    after_error,
    attempts_allowed,
    halves_of_batch,
    halves_of_items,
    is_setup_hopeless,
    is_worth_splitting,
)

LIMITS = SchedulerConfig(budget=1, isolated_kills=5, unexplained_losses=2, setup_attempts=3)
NEW, ALONE = {"isolated": False, "solo": False}, {"isolated": True, "solo": False}
SOLO = {"isolated": True, "solo": True}
RAN, OTHER, UNKNOWN = (
    {"is_named": True, "is_other_named": False},
    {"is_named": False, "is_other_named": True},
    {"is_named": False, "is_other_named": False},
)
CRASH, KILL, MEMORY = Death.CRASHED, Death.KILLED, Death.OUT_OF_MEMORY


def lost(tasks: int = 1, losses: int = 0, kills: int = 0, **rest: bool) -> LostUnit:
    return LostUnit(tasks=tasks, losses=losses, kills=kills, **rest)


@pytest.mark.parametrize(
    ("unit", "cause", "response"),
    [
        (lost(**RAN, **NEW), CRASH, Response.ISOLATE),
        (lost(**RAN, **NEW), KILL, Response.ISOLATE),
        (lost(**OTHER, **NEW), KILL, Response.RETRY),
        (lost(**OTHER, **NEW), CRASH, Response.RETRY),
        (lost(**OTHER, **NEW, losses=1), CRASH, Response.ISOLATE),
        (lost(**UNKNOWN, **NEW, losses=1), KILL, Response.ISOLATE),
        (lost(**RAN, **ALONE), CRASH, Response.FAIL),
        (lost(**RAN, **ALONE), KILL, Response.ISOLATE),
        (lost(**RAN, **ALONE, kills=4), KILL, Response.FAIL),
        (lost(**UNKNOWN, **ALONE, kills=3), CRASH, Response.ISOLATE),
        (lost(**UNKNOWN, **ALONE, kills=4), CRASH, Response.FAIL),
        (lost(**RAN, **ALONE), MEMORY, Response.ISOLATE),
        (lost(**RAN, **SOLO), MEMORY, Response.FAIL),
        (lost(**RAN, **ALONE, tasks=4), CRASH, Response.HALVE),
        (lost(**RAN, **ALONE), Death.NODE_LOST, Response.RETRY),
    ],
)
def test_what_follows_from_the_death_of_a_worker(unit: LostUnit, cause: Death, response: Response) -> None:
    verdict = after_death(unit, cause, LIMITS)
    assert verdict.response is response
    assert verdict.is_attempt == (response is Response.FAIL), "only a task at fault uses an attempt"


def test_a_unit_that_ran_out_of_memory_must_run_solo_next() -> None:
    assert after_death(lost(**RAN, **NEW), MEMORY, LIMITS).solo
    assert not after_death(lost(**RAN, **NEW), CRASH, LIMITS).solo


def test_an_error_halves_a_batch_and_a_single_task_is_tried_again() -> None:
    assert after_error(2, 1, 3) is Response.HALVE
    assert after_error(1, 2, 3) is Response.RETRY
    assert after_error(1, 3, 3) is Response.FAIL
    assert after_error(1, 1, 3, is_run_ending=True) is Response.FAIL


def test_a_part_with_several_items_is_tried_once() -> None:
    assert [attempts_allowed(3, items, is_part) for items, is_part in ((8, False), (8, True), (1, True))] == [3, 1, 3]


def test_the_search_for_bad_items_ends_in_a_task_that_is_bad_throughout() -> None:
    assert is_worth_splitting(0, 7) and not is_worth_splitting(0, 8)
    assert is_worth_splitting(1, 63) and not is_worth_splitting(1, 64)


def test_halves_leave_nothing_out() -> None:
    assert halves_of_items(3, 5) == ((3, 5), (5, 8))
    assert halves_of_batch([1, 2, 3]) == ([1], [2, 3])


def test_a_setup_is_hopeless_after_too_many_failures_or_kills() -> None:
    assert is_setup_hopeless(3, 0, LIMITS) and is_setup_hopeless(0, 5, LIMITS)
    assert not is_setup_hopeless(2, 4, LIMITS)

"""Estimates of a step: means, changes, tasks that still run, and what an earlier run said."""

from __future__ import annotations

import pytest

from gristmill.scheduling.estimates import ServiceEstimate
from gristmill.scheduling.settings import UNIT, Prior


def fed(*times: int, batch: int = 1, prior: Prior | None = None) -> ServiceEstimate:
    estimate = ServiceEstimate(prior=prior)
    for time in times:
        estimate.add(batch, time * batch, batch)
    return estimate


@pytest.mark.parametrize("batch", [1, 3, 4, 64])
@pytest.mark.parametrize("first", [1, 4])
def test_a_change_of_speed_is_noticed_and_the_past_forgotten(batch: int, first: int) -> None:
    estimate = ServiceEstimate()
    estimate.add(first, 1000 * first, first)
    for i in range(100):
        estimate.add(batch, (900 + i % 3 * 100) * batch, batch)
    assert estimate.changes == 0
    for _ in range(24):
        estimate.add(batch, 10_000 * batch, batch)
    assert estimate.changes >= 1
    assert estimate.service_us() > 9_000


def test_chance_is_no_change() -> None:
    estimate = fed(*[500, 1500, 800, 1200, 300, 2500] * 60)
    assert estimate.changes == 0
    assert estimate.service_us() == pytest.approx(1133, rel=0.1)


def test_parts_of_first_tasks_are_a_lower_bound_whatever_the_number_of_workers() -> None:
    estimate = ServiceEstimate()
    for _ in range(8):
        estimate.add_part(UNIT, 1)
    assert estimate.service_us() == UNIT
    assert not estimate.is_known


def test_tasks_that_run_longer_than_what_has_ended_count() -> None:
    few = fed(1000, 1000)
    assert few.with_running([500, 900]) == 1000
    assert few.with_running([4000, 4000]) == 2500
    many = fed(*[1000] * 60)
    assert many.with_running([2000] * 30) == 1000
    assert many.with_running([50_000] * 30) > 10_000


@pytest.mark.parametrize("wrong", [10, 100])
def test_a_profile_that_is_wrong_is_soon_forgotten(wrong: int) -> None:
    prior = Prior(1000 * wrong, fan_out=UNIT)
    assert fed(prior=prior).service_us() == 1000 * wrong
    assert fed(1000, 1000, 1000, prior=prior).service_us() == 1000


def test_a_profile_within_30_percent_steadies_the_first_plans() -> None:
    prior = Prior(1300)
    assert fed(prior=prior).service_us() == 1300
    assert fed(400, prior=prior).service_us() == (3 * 1300 + 400) // 4
    assert fed(*[1000] * 8, prior=prior).service_us() == 1000


@pytest.mark.parametrize("fan_out", [0.1, 0.3, 0.5, 1.5, 20.0])
def test_the_fan_out_of_a_profile_is_taken_as_it_is(fan_out: float) -> None:
    assert ServiceEstimate(prior=Prior(1000, fan_out=round(fan_out * UNIT))).fan_out() == round(fan_out * UNIT)

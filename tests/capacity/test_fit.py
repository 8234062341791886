"""Times of tasks by their size."""

from __future__ import annotations

import random

import pytest

from gristmill.capacity.events import MeasuredUnit
from gristmill.capacity.fit import fit, growth


def unit(size: float, busy_s: float, first: bool = False) -> MeasuredUnit:
    return MeasuredUnit(0, 0, 0, 0, first, busy_s, size=size)


def test_a_fixed_part_and_a_rate_are_found_in_noisy_times() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    sizes = [1e6] * 20 + [16e6] * 20
    units = [unit(size, (0.02 + 5e-8 * size) * draw.uniform(0.97, 1.03)) for size in sizes]
    found = fit(units)
    assert found.fixed_s == pytest.approx(0.02, rel=0.25)
    assert found.rate == pytest.approx(5e-8, rel=0.05)
    assert found.at(16e6) == pytest.approx(0.82, rel=0.03)
    assert 0 < found.cv < 0.05
    assert found.error == pytest.approx(found.cv / 40**0.5)


def test_the_first_task_of_a_worker_is_not_in_the_rate() -> None:
    cold = [unit(1e6, 0.55, first=True), unit(1e6, 0.55, first=True)]
    found = fit(cold + [unit(size, 5e-8 * size) for size in (1e6, 1e6, 4e6, 16e6)])
    assert found.at(1e6) == pytest.approx(0.05)
    assert found.first_s == pytest.approx(0.5)


def test_without_enough_others_the_first_tasks_count() -> None:
    found = fit([unit(1e6, 0.5, first=True), unit(1e6, 0.1)])
    assert found.at(1e6) == pytest.approx(0.3)
    assert found.first_s == 0.0


def test_tasks_of_about_one_size_have_no_fixed_part() -> None:
    found = fit([unit(size, 0.1) for size in (1.0e6, 1.1e6, 1.2e6, 0.9e6)])
    assert found.fixed_s == 0
    assert found.at(1.05e6) == pytest.approx(0.1)


def test_one_task_says_little() -> None:
    assert fit([unit(0, 0.4)]).error == 1.0


def test_tasks_without_a_size_take_their_mean() -> None:
    found = fit([unit(0, 0.2), unit(0, 0.4)])
    assert (found.rate, found.at(1e9)) == (0.0, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("small", "large", "fixed", "slope"),
    [
        ((1000, 0.3), (5000, 0.7), 0.2, 1e-4),
        ((1000, 0.9), (5000, 0.7), 0.7, 0.0),
        ((1000, 0.0), (5000, 1.0), 0.0, 2e-4),
        ((5000, 0.4), (5000, 0.5), 0.0, 1e-4),
    ],
)
def test_growth_is_neither_negative_nor_faster_than_the_size(
    small: tuple[float, float], large: tuple[float, float], fixed: float, slope: float
) -> None:
    assert growth(small, large) == (pytest.approx(fixed), pytest.approx(slope))


def test_the_fixed_part_of_no_two_times_is_negative() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(2000):  # times in proportion to the size, or faster than it: rounding alone decides the sign
        size, time = draw.uniform(1, 100), draw.uniform(0.001, 1)
        large = size * draw.uniform(1.3, 30)
        fixed, slope = growth((size, time * size / large * draw.uniform(0, 1)), (large, time))
        assert fixed >= 0 and slope >= 0

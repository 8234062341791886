"""Random pipelines with random faults: whatever happens, nothing is lost and nobody innocent is blamed."""

from __future__ import annotations

import random

import pytest

from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus
from gristmill.scheduling.simulator.world import World

SEEDS_PER_TEST = 15
TASKS = 20


def make_world(seed: int, check_every: int = 7) -> World:
    """The world of a seed. To see a failure again: ``make_world(seed, check_every=1).run()``."""
    r = random.Random(seed)
    kill_every_us = r.choice([0, 0, 20 * SECOND])
    specs, models = [], []
    for i in range(r.randrange(1, 5)):
        specs.append(
            StepSpec(
                f"s{i}",
                cpu=r.choice([SECOND, SECOND // 2, 2 * SECOND]),
                gpu=r.choice([0, 0, 0, SECOND, SECOND // 4, SECOND // 2]),
                memory=r.choice([0, 0, 0, 1 << 33]),
                batch_size=r.choice([1, 1, 1, 3, 8]),
                workers=r.choice([None] * 6 + [2]),
                has_setup=r.random() < 0.3,
                node_setup=r.random() < 0.2,
                timeout_us=30 * SECOND,
                lifetime_us=r.choice([None, None, 15 * SECOND]),
            )
        )
        wide = r.choice([1, 1, 1, 1, 0, 2, 12]) if all(m.fan_out < 2 for m in models) else 1
        models.append(
            StepModel(
                r.choice([1000, SECOND // 10, SECOND // 2]),
                fan_out=wide,
                out_bytes=r.choice([100, 10_000, 300_000]),
                setup_us=r.choice([0, SECOND, 2 * SECOND]),
                chunk=r.choice([0, 4]) if wide > 4 else 0,
                poison=_some(r),
                raises=_some(r),
                flaky=_some(r),
                hangs=_some(r, 0.1),
                failing_setups=r.choice([0, 0, 0, 1]),
            )
        )
    world = World(
        specs,
        models,
        TASKS,
        config=SchedulerConfig(
            budget=r.choice([1, 1 << 20, 1 << 24, 1 << 30]),
            batch_mode=r.random() < 0.15,
            ignore_failures=True,
            shared_lifetime_us=r.choice([None, None, 10 * SECOND]),
        ),
        nodes=[
            cpus(2, 1),
            *(cpus(r.choice([1, 2, 8]), r.choice([0, 1, 4]), node=k) for k in range(1, r.randrange(1, 4))),
        ],
        seed=seed,
        kill_every_us=kill_every_us,
        items=r.choice([1, 1, 4]),
        lag_us=r.choice([0, 2000]),
        check_every=check_every,
    )
    if r.random() < 0.3:
        world.after(r.randrange(20 * SECOND), cpus(4, 2, node=8))
    if r.random() < 0.4:
        lost = r.randrange(3)
        world.after(r.randrange(10 * SECOND), lambda w: w.lose(lost))
        world.after(30 * SECOND, cpus(2, 1, node=9))
    return world


def _some(r: random.Random, chance: float = 0.25) -> frozenset[str]:
    """Now and then a bad source task, or a bad item of one."""
    if r.random() > chance:
        return frozenset()
    return frozenset([str(r.randrange(TASKS)) + r.choice(["", "", "#0"])])


REGRESSIONS = [136, 199, 563, 733, 907, 1240, 2107, 3046, 3324, 5082, 5110, 6097]
"""Seeds that once locked up or started workers without end."""


@pytest.mark.parametrize("first", range(0, 10 * SEEDS_PER_TEST, SEEDS_PER_TEST))
def test_nothing_is_lost_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        play(seed)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_once_went_wrong_does_not_again(seed: int) -> None:
    assert len(play(seed).all(c.StartWorker)) < 1000


def play(seed: int) -> World:
    world = make_world(seed)
    try:
        world.run().assert_nothing_lost()
    except Exception as failure:
        failure.add_note(f"to replay it: test_campaign.make_world({seed}, check_every=1).run().assert_nothing_lost()")
        raise
    return world

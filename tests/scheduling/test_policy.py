"""The balancer in a run: it finds the balance, keeps it, follows change, and says why."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from script import Script
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus
from gristmill.scheduling.workers import drain


def gpu_steps(*names: str) -> list[StepSpec]:
    return [StepSpec(name, gpu=SECOND) for name in names]


def seeds_example(**more: int) -> CheckedWorld:
    models = [StepModel(SECOND // 4), StepModel(SECOND), StepModel(SECOND // 2)]
    return CheckedWorld(gpu_steps("fast", "slow", "medium"), models, 400, nodes=[cpus(8, 7)], check_every=5, **more)


def counts_at(w: CheckedWorld, us: int) -> list[int]:
    """Workers of each step at a moment of a run that is over."""
    return [[n for at, n in step.timeline if at <= us][-1] for step in w.scheduler.state.steps]


def test_the_example_of_the_seeds_finds_1_4_2_and_keeps_near_the_ideal() -> None:
    w = seeds_example().run()
    w.assert_nothing_lost()
    assert w.now < 1.03 * 101.75 * SECOND
    assert counts_at(w, 10 * SECOND) == [1, 4, 2]
    first, window = w.delivered_at[0], 10 * SECOND
    start = first + 10 * SECOND
    while start + window < w.delivered_at[-1] - 2 * SECOND:
        done = sum(1 for at in w.delivered_at if start <= at < start + window)
        assert done >= 38, f"{done} tasks in the 10 s from {start / SECOND:.0f} s on"
        start += SECOND


def test_once_balanced_it_leaves_things_alone() -> None:
    w = seeds_example().run()
    middle = [d for d in w.scheduler.state.decisions if 10 * SECOND < d.at_us < 90 * SECOND]
    assert middle == []
    assert len(w.scheduler.state.decisions) <= 12
    assert len(w.all(c.StartWorker)) <= 14


def test_every_change_of_workers_is_explained_in_words() -> None:
    w = seeds_example().run()
    announced: Counter[str] = Counter()
    for d in w.scheduler.state.decisions:
        moved = re.match(r"(\w+): (?:\+(\d+) workers?|(\d+) to (\d+) workers?)[,;] (.+)", d.text)
        assert moved, f"{d.text} does not say what was done"
        announced[moved[1]] += int(moved[2]) if moved[2] else int(moved[4]) - int(moved[3])
        assert len(moved[5]) > 10, f"{d.text} does not say why"
        if moved[2]:
            assert "taken from" in d.text or "others are leaving" in d.text
    for step in w.scheduler.state.steps:
        assert step.started <= announced[step.spec.name], f"{step.spec.name}: workers that no decision names"


def test_rebalancing_loses_and_repeats_nothing() -> None:
    w = seeds_example(lag_us=5000).run()
    w.assert_nothing_lost()
    units = [x.tasks for x in w.all(c.Dispatch)]
    assert len(units) == len(set(units)) == 1200


def test_a_change_of_speed_midway_is_followed() -> None:
    models = [StepModel(SECOND // 4), StepModel(SECOND // 2)]
    w = CheckedWorld(gpu_steps("a", "b"), models, 1000, nodes=[cpus(8, 6)], check_every=5)

    def turn(world: CheckedWorld) -> None:
        models[0].service_us, models[1].service_us = SECOND // 2, SECOND // 4

    w.after(40 * SECOND, turn)
    w.run().assert_nothing_lost()
    assert counts_at(w, 35 * SECOND) == [2, 4]
    assert counts_at(w, 100 * SECOND) == [4, 2]
    assert w.now < 1.12 * 1000 / 8 * SECOND


def test_an_expensive_setup_is_not_paid_near_the_end() -> None:
    """Step a ends and frees two GPUs, but b needs no more than 50 s for what is left."""
    specs = [StepSpec("a", gpu=SECOND, workers=2), StepSpec("b", gpu=SECOND)]
    models = [StepModel(SECOND, setup_us=60 * SECOND), StepModel(2 * SECOND, setup_us=60 * SECOND)]
    w = CheckedWorld(specs, models, 100, nodes=[cpus(8, 4)], check_every=5).run()
    w.assert_nothing_lost()
    assert len(w.all(c.StartWorker)) == 4


def test_gpus_that_a_finished_step_frees_help_the_others() -> None:
    models = [StepModel(SECOND // 10), StepModel(2 * SECOND)]
    specs = [StepSpec("quick", gpu=SECOND, workers=2), StepSpec("long", gpu=SECOND)]
    w = CheckedWorld(specs, models, 100, nodes=[cpus(8, 4)], check_every=5).run()
    w.assert_nothing_lost()
    long = w.scheduler.state.steps[1]
    assert max(n for _, n in long.timeline) == 4
    assert w.now < 62 * SECOND, "two workers alone would take 100 s"


def test_steps_that_do_not_all_fit_take_turns_without_flapping() -> None:
    w = CheckedWorld(gpu_steps("a", "b", "c"), [StepModel(SECOND // 10)] * 3, 60, nodes=[cpus(8, 1)])
    w.run().assert_nothing_lost()
    assert len(w.all(c.StartWorker)) <= 3 * 6


def test_a_node_that_joins_is_used() -> None:
    w = CheckedWorld(gpu_steps("a"), [StepModel(SECOND)], 60, nodes=[cpus(2, 1)])
    w.after(10 * SECOND, cpus(4, 4, node=1))
    w.run().assert_nothing_lost()
    assert w.now < 23 * SECOND


def test_the_timeline_tells_each_change_of_counts_once() -> None:
    w = seeds_example().run()
    for step in w.scheduler.state.steps:
        assert step.timeline[-1][1] == 0
        assert all(a[0] < b[0] and a[1] != b[1] for a, b in pairwise(step.timeline))


def promised() -> Script:
    """Step c is promised the GPU of a worker of a that still has something to finish."""
    s = Script(*gpu_steps("a", "b", "c"), nodes=(cpus(8, 6),))
    s.tell(e.SourceSized(1000))
    for step in s.state.steps:
        step.service.add(8, 8 * SECOND, 8)
    s.give(20)
    s.start()
    worker = next(w for w in s.state.steps[0].workers.values() if w.assigned)
    s.state.steps[2].plan.reserved = [(0, worker.placement)]
    drain(s.state, worker)
    return s


def test_a_death_is_noticed_although_a_step_waits_for_capacity() -> None:
    s = promised()
    only = next(iter(s.state.steps[1].workers.values()))
    others = [w.id for w in s.state.steps[1].workers.values() if w is not only]
    for other in others:
        s.tell(e.WorkerDied(other, e.Death.KILLED))
    answer = s.tell(e.WorkerDied(only.id, e.Death.KILLED))
    assert s.all(c.StartWorker) and s.state.steps[1].workers, "b has work, a free GPU and no worker"
    assert answer


def test_a_freed_place_goes_to_the_step_that_it_is_reserved_for() -> None:
    s = promised()
    for step in s.state.steps:
        step.plan.next_rebalance = 1 << 40  # no other plan comes between
    (place,) = s.state.steps[2].plan.reserved
    leaver = next(w for w in s.state.steps[0].workers.values() if w.state == 2)
    while leaver.assigned:
        s.tell(e.UnitFinished(leaver.id, leaver.assigned[0].key, s.outputs(1), SECOND))
    answer = s.tell(e.WorkerLeft(leaver.id))
    assert [(x.step, x.gpus) for x in answer if type(x) is c.StartWorker][:1] == [(2, place[1].gpus)]
    assert not s.state.steps[2].plan.reserved

"""Bounds of the makespan: figures that are known, cases that a hand can compute, and laws on random loads."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from bound import bound_s, limit_s, steady_bound_s

from gristmill.scheduling.simulator.loads import Load, NodeModel, SpeedChange, StageModel, parse_nodes
from gristmill.scheduling.simulator.optimum import ideal_s, optima, optimum


def stage(name: str, mean_s: float, setup_s: float = 0.0, outputs: float = 1.0, cpus: float = 1, gpus: float = 0):
    return StageModel(name, cpus, gpus, mean_s, 0.0, setup_s, outputs)


VIDEO = (
    stage("download", 2, 1),
    stage("split", 8, 2, outputs=4, cpus=4),
    stage("embed", 1, 45, gpus=0.25),
    stage("caption", 12, 120, gpus=1),
    stage("write", 0.3, 1, cpus=0.25),
)
TEXT = (
    stage("read", 1, 1),
    stage("extract", 6, 1),
    stage("filter", 0.4, 5, outputs=0.6),
    stage("classify", 1.2, 40, gpus=1),
    stage("write", 0.4, 1, cpus=0.5),
)
SKEWED = (
    stage("a", 0.5, 1),
    stage("b", 30, 2, cpus=2),
    stage("c", 0.8, 60, gpus=1),
    stage("d", 20, 180, gpus=1),
    stage("e", 0.5, 1),
)
SHIFT = (
    stage("read", 0.5, 1),
    stage("decode", 4, 2, cpus=2),
    stage("embed", 1, 45, gpus=0.5),
    stage("caption", 6, 90, gpus=1),
    stage("write", 0.3, 1, cpus=0.5),
)
LOADS = {
    "video_1h": Load(parse_nodes("96c8g"), VIDEO, 525),
    "text_1h": Load(parse_nodes("64c4g"), TEXT, 20000),
    "skewed_1h": Load(parse_nodes("64c8g"), SKEWED, 1260),
    "video_10_nodes_30min": Load(parse_nodes("10x96c8g"), VIDEO, 2924),
    "video_10min": Load(parse_nodes("96c8g"), VIDEO, 87),
    "text_10min": Load(parse_nodes("64c4g"), TEXT, 3333),
    "shift": Load(
        parse_nodes("96c8g"),
        SHIFT,
        4500,
        changes=(SpeedChange("decode", 1750, 6.0), SpeedChange("caption", 1750, 1 / 3)),
    ),
}


def random_load(seed: int) -> Load:
    r = random.Random(seed)
    kinds = [
        NodeModel(r.choice([32, 64, 96]), r.choice([2, 4, 8])),
        NodeModel(
            r.choice([16, 64]), r.choice([0, 1, 8]), cpu_speed=r.choice([0.7, 1, 1.5]), gpu_speed=r.choice([0.5, 1, 2])
        ),
    ]
    stages = []
    for i in range(r.randint(1, 5)):
        gpus = r.choice([0, 0, 0.25, 0.5, 1])
        setup = r.uniform(20, 150) if gpus else r.uniform(0, 5)
        mean = r.uniform(0.1, 1) * 10 ** r.uniform(0, 1.5)
        stages.append(stage(f"s{i}", mean, setup, r.choice([1, 1, 0.6, 2, 4]), r.choice([0.25, 1, 2, 4]), gpus))
    inputs = r.randint(20, 3000)
    changes = (SpeedChange("s0", inputs // 2, r.choice([0.3, 3.0])),) if r.random() < 0.3 else ()
    nodes = tuple(kinds[i % r.randint(1, 2)] for i in range(r.choice([1, 1, 2, 5])))
    return Load(nodes, tuple(stages), inputs, changes=changes)


@pytest.mark.parametrize(
    ("name", "rate", "seconds"),
    [
        ("video_1h", 0.145833, 3600),
        ("text_1h", 5.555556, 3600),
        ("skewed_1h", 0.35, 3600),
        ("video_10_nodes_30min", 1.625, 1800),
        ("video_10min", 0.145833, 600),
        ("text_10min", 5.555556, 600),
        ("shift", 1.5, 3000),
    ],
)
def test_the_known_optima_are_found(name: str, rate: float, seconds: float) -> None:
    assert optimum(LOADS[name]) == pytest.approx(rate, rel=1e-5)
    # The stated seconds are of a number of inputs before it was rounded down.
    assert ideal_s(LOADS[name]) == pytest.approx(seconds, abs=1.01 / rate)


def test_each_phase_of_a_load_that_shifts_has_its_optimum() -> None:
    assert [rate for _, rate in optima(LOADS["shift"])] == pytest.approx([1.166667, 1.833333], rel=1e-5)
    assert [inputs for inputs, _ in optima(LOADS["shift"])] == [1750, 2750]


@pytest.mark.parametrize(("name", "share"), [("text_1h", 0.99), ("skewed_1h", 0.95), ("video_10min", 0.82)])
def test_steady_plans_reach_the_share_of_the_ideal_that_is_known(name: str, share: float) -> None:
    assert ideal_s(LOADS[name]) / steady_bound_s(LOADS[name]) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("name", "share", "gap"),
    [
        ("video_1h", 1.07, 0.003),
        ("text_1h", 0.985, 0.001),
        ("skewed_1h", 1.02, 0.015),
        ("video_10_nodes_30min", 0.94, 0.002),
        ("video_10min", 0.90, 0.01),
        ("text_10min", 0.93, 0.001),
        ("shift", 1.25, 0.001),
    ],
)
def test_the_bound_is_short_and_near_the_limit(name: str, share: float, gap: float) -> None:
    bound, limit = bound_s(LOADS[name]), limit_s(LOADS[name])
    assert ideal_s(LOADS[name]) / bound > share
    assert limit <= bound <= limit * (1 + gap)


def test_one_stage_takes_its_setup_and_its_share_of_the_work() -> None:
    load = Load(parse_nodes("4c"), (stage("a", 2, 10),), 100)
    for seconds in (limit_s, bound_s, steady_bound_s):
        assert seconds(load) == pytest.approx(10 + 100 * 2 / 4)
    assert optimum(load) == 2


def test_a_single_task_takes_the_service_times_of_all_stages() -> None:
    load = Load(parse_nodes("4c"), (stage("a", 2), stage("b", 3), stage("c", 5)), 1)
    for seconds in (limit_s, bound_s, steady_bound_s):
        assert seconds(load) == pytest.approx(10)


def test_outputs_multiply_the_work_of_the_next_stage() -> None:
    load = Load(parse_nodes("3c"), (stage("a", 1, outputs=4), stage("b", 0.5)), 100)
    # One worker feeds two; they start with the first outputs at 1 s and have 400 tasks of half a second.
    assert steady_bound_s(load) == pytest.approx(1 + 400 * 0.5 / 2)
    assert 100 <= limit_s(load) <= bound_s(load) <= 101.001


def test_a_stage_that_drops_all_leaves_the_next_without_work() -> None:
    load = Load(parse_nodes("4c"), (stage("a", 2, outputs=0), stage("b", 1000, 1000)), 100)
    assert bound_s(load) == pytest.approx(50)


def test_a_change_counts_from_its_task_on() -> None:
    load = Load(parse_nodes("1c"), (stage("a", 1, 5),), 20, changes=(SpeedChange("a", 10, 3.0),))
    assert ideal_s(load) == pytest.approx(40)
    for seconds in (limit_s, bound_s, steady_bound_s):
        assert seconds(load) == pytest.approx(45)


def test_a_gpu_is_handed_over_when_its_stage_has_ended() -> None:
    load = Load(parse_nodes("8c2g"), (stage("a", 1, 10, gpus=1), stage("b", 3, 10, gpus=1)), 100)
    assert steady_bound_s(load) == pytest.approx(11 + 300)
    # The first GPU of b works from 11 s on; the second has served a until 110 s and loads b until 120 s.
    assert bound_s(load) == pytest.approx((300 + 11 + 120) / 2)


def test_stages_that_do_not_fit_beside_one_another_run_one_after_the_other() -> None:
    load = Load(parse_nodes("8c1g"), (stage("a", 1, 10, gpus=1), stage("b", 3, 10, gpus=1)), 100)
    assert optimum(load) == 0 and math.isinf(ideal_s(load)) and math.isinf(steady_bound_s(load))
    assert bound_s(load) == pytest.approx(10 + 100 + 10 + 300)


def test_a_stage_that_fits_nowhere_never_ends() -> None:
    load = Load(parse_nodes("2x4c"), (stage("a", 1, cpus=8),), 10)
    assert optimum(load) == 0 and math.isinf(limit_s(load)) and math.isinf(bound_s(load))


def test_a_worker_stays_on_one_node() -> None:
    assert optimum(Load(parse_nodes("3x4c"), (stage("a", 1, cpus=3),), 10)) == 3
    assert optimum(Load(parse_nodes("2x8c3g"), (stage("a", 1, gpus=2),), 10)) == 2


def test_fractions_share_a_gpu_and_whole_gpus_stay_free() -> None:
    load = Load(parse_nodes("16c3g"), (stage("a", 1, gpus=0.25), stage("b", 0.5, gpus=1)), 10)
    assert optimum(load) == 4
    assert optimum(Load(parse_nodes("16c1g"), (stage("a", 1, gpus=0.6),), 10)) == 1


def test_memory_limits_workers() -> None:
    node = NodeModel(16, 1, memory_gb=32, gpu_memory_gb=80)
    assert optimum(Load((node,), (StageModel("a", 1, memory_gb=10),), 10)) == 3
    assert optimum(Load((node,), (StageModel("a", 1, gpu_memory_gb=30),), 10)) == 2
    assert optimum(Load((replace(node, gpus=4),), (StageModel("a", 1, gpu_memory_gb=100),), 10)) == 0


def test_a_stage_with_a_number_of_workers_gets_no_more() -> None:
    load = Load(parse_nodes("3x8c"), (replace(stage("a", 1), workers=2),), 10)
    assert optimum(load) == 2
    assert bound_s(load) == pytest.approx(5)


def test_speeds_count_for_the_stages_they_belong_to() -> None:
    nodes = (NodeModel(4, cpu_speed=2.0), NodeModel(4, 2, cpu_speed=1.0, gpu_speed=3.0))
    assert optimum(Load(nodes, (stage("a", 1),), 10)) == pytest.approx(12)
    assert optimum(Load(nodes, (stage("a", 1, gpus=1),), 10)) == pytest.approx(6)
    # Four fast CPUs for a, and both GPUs for b, which leave two slow CPUs.
    assert optimum(Load(nodes, (stage("a", 1), stage("b", 0.1, gpus=1)), 10)) == pytest.approx(11, rel=0.1)


@pytest.mark.parametrize("seed", range(100))
def test_no_plan_beats_the_limit(seed: int) -> None:
    load = random_load(seed)
    limit, bound, steady = limit_s(load), bound_s(load), steady_bound_s(load)
    assert 0 < limit <= bound < math.inf
    assert bound <= steady * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_more_nodes_never_take_longer(seed: int) -> None:
    load = random_load(seed)
    for more in (load.nodes[:1], load.nodes):
        larger = replace(load, nodes=load.nodes + more)
        assert bound_s(larger) <= bound_s(load) * 1.01
        assert limit_s(larger) <= limit_s(load) * (1 + 1e-6)
        assert optimum(larger) >= optimum(load) * (1 - 1e-6)


def test_twice_the_inputs_take_longer_but_not_twice_as_long() -> None:
    load = LOADS["video_10min"]
    twice = replace(load, inputs=2 * load.inputs)
    assert bound_s(load) < bound_s(twice) < 2 * bound_s(load)


def test_the_same_load_has_the_same_bound() -> None:
    load = random_load(7)
    assert bound_s(load) == bound_s(replace(load, name="again"))

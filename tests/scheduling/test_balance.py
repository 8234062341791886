"""The planner alone: counts for steps on nodes, without a run."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.scheduling import StepSpec
from gristmill.scheduling.balance import Load, SharedLoad, Staffing, staff, throughput
from gristmill.scheduling.config import UNIT
from gristmill.scheduling.placement import Room

GB = 1 << 30


def load(step: int, seconds: float, **spec: int) -> Load:
    """A step that takes so long for each source task."""
    return Load(step, StepSpec(f"s{step}", **spec), int(seconds * UNIT) * UNIT)


def node(cpus: int, gpus: int = 0, gpu_gb: int = 80, memory_gb: int = 1000) -> Room:
    return Room(cpus * UNIT, memory_gb * GB, (gpu_gb * GB,) * gpus)


def plan(nodes: list[Room], *loads: Load, shared: int = 0) -> Staffing:
    return staff(dict(enumerate(nodes)), loads, SharedLoad(shared))


def test_the_example_of_the_seeds_is_1_4_2() -> None:
    p = plan([node(8, 7)], load(0, 0.25, gpu=UNIT), load(1, 1, gpu=UNIT), load(2, 0.5, gpu=UNIT))
    assert p.counts == {0: 1, 1: 4, 2: 2}
    assert p.throughput == 4 * UNIT


def test_fractions_are_packed_so_that_whole_gpus_stay_free() -> None:
    p = plan([node(16, 3)], load(0, 1, gpu=UNIT // 4), load(1, 2, gpu=UNIT))
    assert p.counts[1] == 2
    assert {gpus for step, _, at in p.starts if step == 0 for gpus in at.gpus} == {2}


def test_gpu_memory_becomes_a_share_of_the_gpu_on_the_node_where_the_worker_is_placed() -> None:
    small, large = node(32, 1, gpu_gb=24), node(32, 1, gpu_gb=80)
    p = plan([small, large], load(0, 1, gpu_memory=20 * GB))
    assert p.counts == {0: 1 + 4}
    shares = {where: at.gpu_share for _, where, at in p.starts}
    assert shares == {0: -(-20 * UNIT // 24), 1: UNIT // 4}


def test_a_tiny_need_of_gpu_memory_is_never_a_share_of_zero() -> None:
    p = plan([node(2, 1)], load(0, 1, gpu_memory=1))
    assert all(at.gpu_share > 0 for _, _, at in p.starts)


def test_a_worker_of_several_gpus_gets_whole_ones_of_one_node() -> None:
    p = plan([node(8, 3), node(8, 4)], load(0, 1, gpu=2 * UNIT), load(1, 1, gpu=UNIT // 2))
    assert p.counts[0] == 2
    for step, where, at in p.starts:
        if step == 0:
            assert len(set(at.gpus)) == 2
            others = [x for s, n, x in p.starts if s == 1 and n == where]
            assert not any(set(at.gpus) & set(x.gpus) for x in others)


def test_a_fixed_number_of_workers_is_kept_whatever_the_speed() -> None:
    p = plan([node(8, 8)], load(0, 100, gpu=UNIT, workers=2), load(1, 1, gpu=UNIT))
    assert p.counts[0] == 2
    assert plan([node(8, 8)], load(0, 0.01, workers=5)).counts == {0: 5}


def test_too_large_a_number_of_workers_is_degraded_to_what_fits() -> None:
    assert plan([node(4)], load(0, 1, workers=10)).counts == {0: 4}
    p = plan([node(8, 8)], load(0, 1, workers=20), load(1, 1, gpu=UNIT))
    assert p.complete
    assert p.counts == {0: 7, 1: 1}
    both = plan([node(8)], load(0, 1, workers=10), load(1, 1, workers=10))
    assert both.counts == {0: 4, 1: 4}, "in proportion, not first come first served"


def test_steps_that_cannot_all_have_a_worker_take_turns() -> None:
    p = plan([node(8, 2)], *(load(i, 1, gpu=UNIT) for i in range(3)))
    assert not p.complete
    assert p.starts == []


def test_cpus_that_shared_steps_need_are_left_to_them() -> None:
    alone = plan([node(8)], load(0, 1, dedicated=True))
    beside = plan([node(8)], load(0, 1, dedicated=True), shared=UNIT * UNIT * UNIT)
    assert alone.counts == {0: 8}
    assert beside.counts == {0: 4}


def test_workers_that_run_stay_where_they_are() -> None:
    first = plan([node(8, 4), node(8, 4)], load(0, 1, gpu=UNIT), load(1, 1, gpu=UNIT))
    placed = {i: tuple((n, at) for s, n, at in first.starts if s == i) for i in (0, 1)}
    again = [Load(i, StepSpec(f"s{i}", gpu=UNIT), UNIT * UNIT, placed[i]) for i in (0, 1)]
    second = plan([node(8, 4), node(8, 4)], *again)
    assert second.counts == first.counts
    assert second.starts == []


def test_free_room_goes_to_steps_whose_speed_is_a_guess_and_nobody_is_moved_for_it() -> None:
    unsure = Load(0, StepSpec("a", gpu=UNIT), UNIT * UNIT, certain=False, most=3)
    assert plan([node(8, 7)], unsure, load(1, 1, gpu=UNIT, workers=1)).counts == {0: 3, 1: 1}


def test_nobody_leaves_while_there_is_free_room_for_the_new_worker() -> None:
    first = plan([node(8, 3)], Load(0, StepSpec("a", gpu=UNIT), UNIT * UNIT, most=2))
    placed = tuple((n, at) for _, n, at in first.starts)
    unsure = Load(0, StepSpec("a", gpu=UNIT), UNIT * UNIT, placed, certain=False)
    p = plan([node(8, 3)], unsure, load(1, 1, gpu=UNIT))
    assert p.counts == {0: 2, 1: 1}
    assert [(step, at.gpus) for step, _, at in p.starts] == [(1, (2,))]


shares = st.sampled_from([0, UNIT // 4, UNIT // 2, UNIT, 2 * UNIT])
specs = st.builds(
    lambda cpu, gpu, workers, batch: StepSpec("s", cpu=cpu, gpu=gpu, workers=workers, batch_size=batch, dedicated=True),
    st.sampled_from([UNIT // 2, UNIT, 2 * UNIT]),
    shares,
    st.sampled_from([None, None, None, 1, 3, 50]),
    st.sampled_from([1, 8]),
)
rooms = st.builds(node, st.integers(1, 16), st.integers(0, 4), memory_gb=st.sampled_from([8, 100]))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(rooms, min_size=1, max_size=3),
    st.lists(st.tuples(specs, st.integers(1, 10**7), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 10**15),
)
def test_a_plan_never_over_commits_and_always_gives_each_step_a_worker(
    nodes: list[Room], steps: list[tuple[StepSpec, int, bool]], shared: int
) -> None:
    loads = [Load(i, spec, us * UNIT, certain=sure) for i, (spec, us, sure) in enumerate(steps)]
    p = plan(nodes, *loads, shared=shared)
    left = [room.copy() for room in nodes]
    for _, where, at in p.starts:
        left[where].take(at)
    for room in left:
        assert room.cpu >= 0 and room.memory >= 0 and all(0 <= free <= UNIT for free in room.gpu_free)
    starts = {x.step: sum(1 for s, _, _ in p.starts if s == x.step) for x in loads}
    if not p.complete:
        assert not p.starts
        return
    assert starts == p.counts
    assert all(n >= 1 for n in p.counts.values())
    assert p.throughput == throughput(loads, p.counts) >= throughput(loads, dict.fromkeys(p.counts, 1))
    for x in loads:
        assert x.spec.workers is None or p.counts[x.step] <= x.spec.workers


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 4),
    st.lists(
        st.tuples(
            st.sampled_from([UNIT // 2, UNIT, 2 * UNIT]),
            st.sampled_from([UNIT // 4, UNIT // 2, UNIT]),
            st.integers(10**4, 10**7),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_a_plan_is_within_5_percent_of_the_best_there_is(
    n_cpus: int, n_gpus: int, steps: list[tuple[int, int, int]]
) -> None:
    loads = [Load(i, StepSpec("s", cpu=cpu, gpu=gpu), us * UNIT) for i, (cpu, gpu, us) in enumerate(steps)]
    best = 0
    most = [min(n_cpus * UNIT // cpu, n_gpus * UNIT // gpu) for cpu, gpu, _ in steps]
    for counts in product(*(range(1, m + 1) for m in most)):
        # Shares that divide each other always pack, so sums say what fits.
        cpu = sum(n * x[0] for n, x in zip(counts, steps, strict=True))
        gpu = sum(n * x[1] for n, x in zip(counts, steps, strict=True))
        if cpu <= n_cpus * UNIT and gpu <= n_gpus * UNIT:
            best = max(best, throughput(loads, dict(enumerate(counts))))
    p = plan([node(n_cpus, n_gpus)], *loads)
    assert p.complete == (best > 0)
    assert p.throughput * 100 >= best * 95


@pytest.mark.parametrize("scale", [1, 1000, 10**6])
def test_only_the_ratio_of_speeds_matters(scale: int) -> None:
    loads = [Load(i, StepSpec("s", gpu=UNIT), scale * w) for i, w in enumerate((250, 1000, 500))]
    assert plan([node(8, 7)], *loads).counts == {0: 1, 1: 4, 2: 2}

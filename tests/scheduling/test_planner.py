"""The planner alone: workers for steps on nodes, without a run."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from statistics import fmean

import pytest
from brute_force import earliest, fewest_leaves, places
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gristmill.scheduling import StepSpec
from gristmill.scheduling.placement import Capacity, Placement
from gristmill.scheduling.planning import (
    FOREVER,
    PlacedWorker,
    Problem,
    SharedDemand,
    Site,
    StaffingPlan,
    StepDemand,
    finish_us,
    solve,
)
from gristmill.scheduling.settings import UNIT

GB = 1 << 30
AT_LAST = 1 << 45
NO_SHARED = SharedDemand()
GRAIN = 1 / 1024 + 1 / 4096
"""How exact the ends are that the planner and the brute force find, together."""


def load(step: int, seconds: float, tasks: int = 1000, setup: float = 0, **spec: int) -> StepDemand:
    return StepDemand(step, StepSpec(f"s{step}", **spec), tasks * UNIT, {0: int(seconds * UNIT)}, int(setup * UNIT))


def node(cpus: int, gpus: int = 0, gpu_gb: int = 80, memory_gb: int = 1000) -> Capacity:
    return Capacity(cpus * UNIT, memory_gb * GB, (gpu_gb * GB,) * gpus)


def sites(*capacities: Capacity) -> tuple[Site, ...]:
    return tuple(Site(i, 0, capacity) for i, capacity in enumerate(capacities))


def plan(
    capacities: list[Capacity], *demands: StepDemand, shared: SharedDemand = NO_SHARED, margin: int = 30_000
) -> StaffingPlan:
    return solve(Problem(sites(*capacities), demands, shared, margin=margin))


def on(x: StepDemand, where: int, *gpus: int, first: int = 0, share: int = UNIT, delay: int = 0) -> StepDemand:
    """The step with a worker on each of these GPUs, or one without a GPU."""
    at = [(gpu,) for gpu in gpus] or [()]
    workers = [
        PlacedWorker(first + n, where, Placement(x.spec.cpu, x.spec.memory, on, share if on else 0), delay)
        for n, on in enumerate(at)
    ]
    return replace(x, workers=(*x.workers, *workers))


def staffed(problem: Problem, p: StaffingPlan) -> Problem:
    """The problem once a plan has been carried out, all setups included."""
    workers = {x.step: [replace(h, delay_us=0) for h in x.workers if h.id not in p.leaves] for x in problem.demands}
    worker = 1 + max((h.id for x in problem.demands for h in x.workers), default=0)
    for n, (step, where, at) in enumerate(p.starts):
        workers[step].append(PlacedWorker(worker + n, where, at))
    return replace(problem, demands=tuple(replace(x, workers=tuple(workers[x.step])) for x in problem.demands))


def test_the_example_of_the_seeds_is_1_4_2() -> None:
    p = plan([node(8, 7)], load(0, 0.25, gpu=UNIT), load(1, 1, gpu=UNIT), load(2, 0.5, gpu=UNIT))
    assert p.counts == {0: 1, 1: 4, 2: 2}
    assert p.finish_us == pytest.approx(250 * UNIT, abs=3)


@pytest.mark.parametrize("scale", [1, 1000, 10**6])
def test_only_the_ratio_of_speeds_matters(scale: int) -> None:
    demands = [
        StepDemand(i, StepSpec("s", gpu=UNIT), 1000 * UNIT, {0: scale * w}) for i, w in enumerate((250, 1000, 500))
    ]
    assert plan([node(8, 7)], *demands).counts == {0: 1, 1: 4, 2: 2}


def test_fractions_are_packed_so_that_whole_gpus_stay_free() -> None:
    p = plan([node(16, 3)], load(0, 1, gpu=UNIT // 4), load(1, 2, gpu=UNIT))
    assert p.counts[1] == 2
    assert len({gpus for step, _, at in p.starts if step == 0 for gpus in at.gpus}) == 1


def test_gpu_memory_becomes_a_share_of_the_gpu_on_the_node_where_the_worker_is_placed() -> None:
    small, large = node(32, 1, gpu_gb=24), node(32, 1, gpu_gb=80)
    p = plan([small, large], load(0, 1, gpu_memory=20 * GB))
    assert p.counts == {0: 1 + 4}
    assert {where: at.gpu_share for _, where, at in p.starts} == {0: -(-20 * UNIT // 24), 1: UNIT // 4}


def test_a_tiny_need_of_gpu_memory_is_never_a_share_of_zero() -> None:
    p = plan([node(2, 1)], load(0, 1, gpu_memory=1))
    assert p.starts and all(at.gpu_share > 0 for _, _, at in p.starts)


def test_a_worker_of_several_gpus_gets_whole_ones_of_one_node() -> None:
    p = plan([node(8, 3), node(8, 4)], load(0, 1, gpu=2 * UNIT), load(1, 1, gpu=UNIT // 2))
    assert p.counts[0] == 2
    for step, where, at in p.starts:
        if step == 0:
            assert len(set(at.gpus)) == 2
            others = [x for s, n, x in p.starts if s == 1 and n == where]
            assert not any(set(at.gpus) & set(x.gpus) for x in others)


def test_cpus_that_gpu_workers_need_are_not_taken_by_others() -> None:
    p = plan([node(8, 8)], load(0, 1, dedicated=True), load(1, 1, gpu=UNIT))
    assert p.counts == {0: 4, 1: 4}
    apart = plan([node(8, 8), node(8)], load(0, 1, dedicated=True), load(1, 1, gpu=UNIT))
    assert apart.counts == {0: 8, 1: 8}, "where there is no GPU, CPUs are for steps without"


@pytest.mark.parametrize("of_each", [1, 50])
def test_each_step_goes_where_it_is_comparatively_fast(of_each: int) -> None:
    capacities = tuple(Site(i, i % 2, node(8)) for i in range(2 * of_each))
    for order in (1, -1):
        both = [{0: UNIT, 1: 4 * UNIT}, {0: UNIT, 1: UNIT}][::order]
        tasks = of_each * 800 * UNIT
        demands = [StepDemand(i, StepSpec("s", dedicated=True), tasks, services) for i, services in enumerate(both)]
        p = solve(Problem(capacities, tuple(demands)))
        at = {(step, where % 2) for step, where, _ in p.starts}
        assert at == ({(0, 0), (1, 1)} if order == 1 else {(0, 1), (1, 0)})
        assert p.finish_us == pytest.approx(100 * UNIT, abs=3)


def test_a_fixed_number_of_workers_is_kept_whatever_the_speed() -> None:
    p = plan([node(8, 8)], load(0, 100, gpu=UNIT, workers=2), load(1, 1, gpu=UNIT))
    assert p.counts[0] == 2
    assert plan([node(8, 8)], load(0, 0.01, workers=5), load(1, 9, dedicated=True)).counts == {0: 5, 1: 3}


def test_too_large_a_number_of_workers_is_degraded_to_what_fits() -> None:
    assert plan([node(4)], load(0, 1, workers=10)).counts == {0: 4}
    p = plan([node(8, 8)], load(0, 1, workers=20), load(1, 1, gpu=UNIT))
    assert p.complete
    assert p.counts == {0: 7, 1: 1}
    both = plan([node(8)], load(0, 1, workers=10), load(1, 1, workers=10))
    assert both.counts == {0: 4, 1: 4}, "in proportion, not first come first served"


def test_workers_of_a_fixed_number_go_only_if_another_step_would_have_none() -> None:
    fixed = load(0, 0.1, workers=4)
    for n in range(4):
        fixed = on(fixed, 0, first=n)
    none = plan([node(4)], fixed, load(1, 1, dedicated=True))
    assert none.complete and none.counts == {0: 3, 1: 1} and len(none.leaves) == 1
    one = plan([node(5)], fixed, on(load(1, 1, dedicated=True), 0, first=9))
    assert one.leaves == []


def test_steps_that_cannot_all_have_a_worker_take_turns() -> None:
    p = plan([node(8, 2)], *(load(i, 1, gpu=UNIT) for i in range(3)))
    assert not p.complete
    assert p.starts == [] and p.leaves == []


def test_steps_that_fit_in_some_packing_do_not_share_slots_in_time() -> None:
    """The largest first would put 6 and 4 CPUs on the first node, which leaves the second step no capacity."""
    p = plan([node(10), node(9)], *(load(i, 1, cpu=n * UNIT, dedicated=True) for i, n in enumerate((6, 4, 5, 4))))
    assert p.complete


def test_workers_change_places_if_a_step_would_have_none_otherwise() -> None:
    """Two half-used nodes; the new step needs a whole one."""
    capacities = [node(4), node(4)]
    a, b = (on(load(i, 1, cpu=2 * UNIT, dedicated=True), i, first=i) for i in range(2))
    p = plan(capacities, a, b, load(2, 1, cpu=4 * UNIT, dedicated=True))
    assert p.complete and p.counts == {0: 1, 1: 1, 2: 1}
    assert len(p.leaves) == 1 and len(p.starts) <= 1


def test_cpus_that_shared_steps_need_are_left_to_them() -> None:
    alone = plan([node(8)], load(0, 1, dedicated=True))
    beside = plan([node(8)], load(0, 1, dedicated=True), shared=SharedDemand(1000 * UNIT * UNIT))
    assert alone.counts == {0: 8}
    assert beside.counts == {0: 4}
    floored = plan([node(8)], load(0, 1, dedicated=True), shared=SharedDemand(1000 * UNIT * UNIT, 8 * UNIT))
    assert floored.counts == {0: 8}


def test_steps_before_the_last_to_end_run_ahead_and_those_after_it_get_nothing() -> None:
    slow = load(1, 10, gpu=UNIT, workers=1)
    p = plan([node(8, 1)], load(0, 1, dedicated=True), slow, load(2, 1, dedicated=True))
    assert p.counts == {0: 6, 1: 1, 2: 1}


def test_a_worker_whose_setup_takes_longer_than_the_work_is_not_started() -> None:
    step = on(load(0, 1, tasks=50, setup=60, gpu=UNIT), 0, 0)
    assert plan([node(8, 4)], step).starts == []
    assert len(plan([node(8, 4)], replace(step, setup_us=10 * UNIT)).starts) == 3


def test_a_worker_that_holds_the_scarce_resource_leaves() -> None:
    """A GPU is free, but no CPU: a worker that holds CPUs leaves."""
    cpu = load(0, 0.1, dedicated=True)
    for n in range(6):
        cpu = on(cpu, 0, first=n)
    gpu = on(load(1, 4, gpu=UNIT), 0, 0, 1, first=10)
    other = on(load(2, 0.1, gpu=UNIT // 2), 0, 2, 2, first=20, share=UNIT // 2)
    p = plan([node(10, 4)], cpu, gpu, other)
    assert p.leaves and all(w < 10 for w in p.leaves)


def test_of_workers_that_could_leave_the_one_that_does_not_work_yet_goes() -> None:
    spare = on(on(load(0, 0.1, setup=20, gpu=UNIT), 0, 0, first=0), 0, 1, first=1, delay=10 * UNIT)
    spare = on(spare, 0, 2, first=2)
    p = plan([node(8, 4)], spare, on(load(1, 4, gpu=UNIT), 0, 3, first=9))
    assert 1 in p.leaves


def test_no_worker_leaves_for_less_than_the_margin() -> None:
    a = on(load(0, 1, tasks=1030, gpu=UNIT), 0, 0, 1, 2)
    b = on(load(1, 1, tasks=690, gpu=UNIT), 0, 3, 4, first=3)
    assert plan([node(8, 5)], a, b, margin=0).leaves == []
    much = [replace(a, tasks=400 * UNIT), replace(b, tasks=2000 * UNIT)]
    assert len(plan([node(8, 5)], *much).leaves) == 2
    assert plan([node(8, 5)], *much, margin=600_000).leaves == []


def test_fewer_leave_if_the_end_is_about_the_same() -> None:
    """With 20 moved both have 40 and end soonest; with 19 the end is 2.6 % later."""
    a = on(load(0, 1, tasks=4000, gpu=UNIT), 0, *range(60))
    b = on(load(1, 1, tasks=4000, gpu=UNIT), 0, *range(60, 80), first=60)
    assert len(plan([node(100, 80)], a, b, margin=100_000).leaves) == 19
    assert len(plan([node(100, 80)], a, b, margin=0).leaves) == 20


def test_a_worker_that_needs_an_occupied_place_waits_until_it_is_free() -> None:
    a = on(load(0, 1, tasks=1, gpu=UNIT), 0, 0, 1, 2)
    b = on(load(1, 1, tasks=100, setup=5, gpu=UNIT), 0, 3, first=3)
    p = solve(Problem(sites(node(8, 4)), (a, b), leave_us=10 * UNIT))
    assert len(p.leaves) == 2 and p.counts == {0: 1, 1: 3}
    assert p.finish_us == pytest.approx(130 * UNIT / 3, abs=2), "T + 2 (T - 15 s) = 100 s"


def test_many_workers_each_with_a_setup_of_its_own_are_planned_without_trying_all_sets_of_them() -> None:
    busy = load(0, 4, tasks=4000, setup=200, gpu=UNIT // 4)
    for n in range(28):  # 2**28 ways to let some of them go
        busy = on(busy, 0, n % 8, first=n, share=UNIT // 4, delay=UNIT * (n + 1) + n)
    tracemalloc.start()
    try:
        p = plan([node(96, 8)], busy, load(1, 2, tasks=4000, gpu=UNIT // 4))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert p.counts[0] >= 1 and p.counts[1] >= 1
    assert peak < 64 << 20


def test_when_a_step_ends_is_known_to_the_microsecond() -> None:
    step = load(0, 3, tasks=10, gpu=UNIT)
    assert finish_us(step, {0: 0}) == FOREVER
    one = on(step, 0, 0)
    assert finish_us(one, {0: 0}) == pytest.approx(30 * UNIT, abs=1)
    assert finish_us(on(one, 0, 1, delay=6 * UNIT), {0: 0}) == pytest.approx(18 * UNIT, abs=1)
    assert finish_us(on(one, 0, 1, delay=31 * UNIT), {0: 0}) == pytest.approx(30 * UNIT, abs=1)
    assert finish_us(one, {}) == FOREVER, "a worker on a lost node does not count"


def test_a_run_as_planned_is_not_changed_on_many_nodes() -> None:
    specs = [dict(cpu=2 * UNIT, dedicated=True), dict(gpu=UNIT // 4), dict(gpu=UNIT), dict(gpu=2 * UNIT, cpu=4 * UNIT)]
    demands = tuple(load(i, 1 + i, tasks=10**6, **spec) for i, spec in enumerate(specs))  # type: ignore[arg-type]
    problem = Problem(sites(*[node(32, 8) for _ in range(100)]), demands)
    first = solve(problem)
    assert sum(first.counts.values()) == len(first.starts) > 1000
    again = solve(staffed(problem, first))
    assert again.starts == [] and again.leaves == []
    assert again.counts == first.counts


shares = st.sampled_from([0, 0, UNIT // 4, 3 * UNIT // 10, UNIT // 2, UNIT, 2 * UNIT])


@st.composite
def problems(draw: st.DrawFn, nodes: int = 2, steps: int = 3, fixed: bool = True) -> Problem:
    """Few small nodes of one or two kinds, and steps that have some workers, a few of them still in their setup."""
    kinds = draw(st.integers(1, 2))
    here = []
    for i in range(draw(st.integers(1, nodes))):
        gpu_memory = (draw(st.sampled_from([40, 80])) * GB,) * draw(st.integers(0, 2))
        capacity = Capacity(draw(st.integers(2, 5)) * UNIT, draw(st.sampled_from([8, 100])) * GB, gpu_memory)
        here.append(Site(i, draw(st.integers(0, kinds - 1)), capacity))
    left = [site.capacity.copy() for site in here]
    demands = []
    worker = 0
    for i in range(draw(st.integers(1, steps))):
        gpu = draw(shares)
        spec = StepSpec(
            f"s{i}",
            cpu=draw(st.sampled_from([UNIT // 2, UNIT, 2 * UNIT])),
            gpu=gpu,
            gpu_memory=0 if gpu else draw(st.sampled_from([0, 0, 0, 20 * GB, 40 * GB])),
            memory=draw(st.sampled_from([0, 0, 4 * GB])),
            workers=draw(st.sampled_from([None, None, None, 1, 2])) if fixed else None,
            dedicated=True,
        )
        setup = draw(st.sampled_from([0, 0, UNIT, 10 * UNIT]))
        workers = []
        for _ in range(min(draw(st.integers(0, 3)), spec.workers or 3)):
            where = draw(st.integers(0, len(here) - 1))
            free = list(places(left[where], spec))
            if free:
                at = draw(st.sampled_from(free))
                left[where].take(at)
                workers.append(PlacedWorker(worker, where, at, draw(st.sampled_from([0, 0, setup // 2]))))
                worker += 1
        service = draw(st.integers(1, 40)) * 100_000
        services = {kind: service * draw(st.integers(1, 3)) for kind in range(kinds)}
        most = draw(st.sampled_from([1 << 30, 1 << 30, 2]))
        demands.append(StepDemand(i, spec, draw(st.integers(1, 40)) * UNIT, services, setup, tuple(workers), most))
    shared = SharedDemand(draw(st.sampled_from([0, 0, 20])) * UNIT * UNIT, draw(st.sampled_from([0, UNIT])))
    leave, margin = draw(st.sampled_from([0, 3 * UNIT])), draw(st.sampled_from([0, 30_000, 100_000]))
    return Problem(tuple(here), tuple(demands), shared, leave, margin)


def least_of(problem: Problem, p: StaffingPlan) -> list[int]:
    """How many workers each step must have: one, or as many as a fixed number has become."""
    return [p.counts[x.step] if x.spec.workers else 1 for x in problem.demands]


@settings(max_examples=100, deadline=None)
@given(problems(nodes=4, steps=6))
def test_no_node_is_ever_over_committed_and_the_counts_are_true(problem: Problem) -> None:
    p = solve(problem)
    left = {site.id: site.capacity.copy() for site in problem.sites}
    for x in problem.demands:
        for worker in x.workers:
            left[worker.node].take(worker.placement)
    for step, where, at in p.starts:
        assert left[where].fits(at), "there is no capacity for it now"
        left[where].take(at)
        assert at in list(places(problem.sites[where].capacity, problem.demands[step].spec))
    workers = {worker.id: x.step for x in problem.demands for worker in x.workers}
    assert len(set(p.leaves)) == len(p.leaves) and set(p.leaves) <= set(workers)
    if not p.complete:
        assert not p.starts and not p.leaves
        return
    for x in problem.demands:
        now = len(x.workers) - sum(workers[w] == x.step for w in p.leaves) + sum(s == x.step for s, _, _ in p.starts)
        assert p.counts[x.step] >= max(1, now)
        assert p.counts[x.step] == now or p.leaves, "only who leaves makes capacity for later"
        assert x.spec.workers is None or p.counts[x.step] <= max(x.spec.workers, len(x.workers))
        assert p.finish_us >= p.finishes[x.step]


@settings(max_examples=100, deadline=None)
@given(problems(nodes=3, steps=4, fixed=False))
def test_steps_take_turns_if_they_cannot_all_have_a_worker(problem: Problem) -> None:
    empty = replace(problem, demands=tuple(replace(x, workers=()) for x in problem.demands))
    if fewest_leaves(empty, AT_LAST, False, [1] * len(problem.demands)) is None:
        assert not solve(problem).complete and not solve(empty).complete


def test_plans_end_on_average_within_five_percent_of_the_best_of_all() -> None:
    """The problems are small and hard; a plan may miss a move that pays, but it never lets a worker go in vain."""
    ratios = []

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given(problems())
    def compare(problem: Problem) -> None:
        p = solve(problem)
        assume(p.complete)
        least = least_of(problem, p)
        stay = earliest(problem, False, least, AT_LAST)
        move = earliest(problem, True, least, AT_LAST)
        assert move is not None
        ratios.append(p.finish_us / move)
        assert p.leaves or stay is not None, "a step is left without a worker"
        if stay is not None:
            assert p.stay_us <= stay * (1 + GRAIN) + 2
            assert not p.leaves or p.finish_us <= p.stay_us * (1 - problem.margin / UNIT) + 2, "not worth it"

    compare()
    assert len(ratios) > 50 and fmean(ratios) < 1.05


@settings(max_examples=100, deadline=None)
@given(problems(nodes=4, steps=6))
def test_no_worker_leaves_unless_the_end_is_earlier_by_the_margin_or_a_step_has_no_worker(problem: Problem) -> None:
    p = solve(problem)
    if p.leaves and p.stay_us < FOREVER:
        assert p.finish_us <= p.stay_us * (1 - problem.margin / UNIT) + 2
    staffed_now = all(x.workers for x in problem.demands)
    assert p.stay_us < FOREVER or not staffed_now


def first_results_us(problem: Problem, p: StaffingPlan) -> int:
    """When each worker that a plan starts has done one whole task.

    The planner counts a new worker from then on only. The end of a plan is computed as if tasks could be divided, so it
    can be earlier than this if a step has fewer tasks than workers.
    """
    kinds = {site.id: site.kind for site in problem.sites}
    demands = {x.step: x for x in problem.demands}
    times = [0]
    for starts, wait in ((p.starts, 0), (p.later, problem.leave_us)):
        for step, where, _ in starts:
            x = demands[step]
            times.append(wait + x.setup_us + x.service_us[kinds[where]] * min(x.tasks, UNIT) // UNIT)
    return max(times)


def one_task_for_two_workers() -> Problem:
    capacities = tuple(Site(i, kind, node(2)) for i, kind in enumerate((0, 1, 0)))
    busy = replace(
        on(on(load(0, 0.1, 1, cpu=UNIT // 2, dedicated=True), 0), 1, first=1), service_us={0: 100_000, 1: 100_000}
    )
    waits = replace(load(1, 0, 1, cpu=2 * UNIT, dedicated=True), service_us={0: 300_000, 1: 200_000})
    return Problem(capacities, (busy, waits))


@settings(max_examples=100, deadline=None, derandomize=True)
@example(one_task_for_two_workers())
@given(problems(nodes=3, steps=4, fixed=False))
def test_one_more_node_never_makes_it_worse(problem: Problem) -> None:
    problem = replace(problem, margin=0)
    before = solve(problem)
    more = (*problem.sites, Site(len(problem.sites), 0, node(4, 2)))
    after = solve(replace(problem, sites=more))
    if before.complete:
        assert after.complete
        end = max(before.finish_us, first_results_us(problem, before))
        assert after.finish_us <= end * (1 + 2 * GRAIN) + 2


@settings(max_examples=100, deadline=None)
@given(problems(nodes=4, steps=6), st.sampled_from([2, 1000]))
def test_the_same_problem_has_the_same_plan_whatever_the_names_and_the_unit_of_time(problem: Problem, by: int) -> None:
    p = solve(problem)
    assert p == solve(problem)
    renamed = []
    for x in problem.demands:
        workers = tuple(replace(h, id=h.id + 1000, delay_us=h.delay_us * by) for h in x.workers)
        services = {kind: us * by for kind, us in x.service_us.items()}
        renamed.append(replace(x, workers=workers, service_us=services, setup_us=x.setup_us * by))
    shared = replace(problem.shared, work=problem.shared.work * by)
    q = solve(replace(problem, demands=tuple(renamed), shared=shared, leave_us=problem.leave_us * by))
    assert q.complete == p.complete
    assert q.finish_us == pytest.approx(p.finish_us * by, rel=2 * GRAIN + problem.margin / UNIT) or p.stay_us == FOREVER


def test_no_worker_starts_where_its_step_is_not_set_up_yet() -> None:
    """`setup_on_node` is done on the second node only; the first would otherwise do as well."""
    demands = (load(0, 1, gpu=UNIT), load(1, 1, gpu=UNIT))
    capacities = sites(node(8, 2), node(8, 2))
    closed = (replace(capacities[0], closed=frozenset({0})), capacities[1])
    assert {where for step, where, _ in solve(Problem(capacities, demands)).starts if step == 0} == {0}
    p = solve(Problem(closed, demands))
    assert p.complete and {where for step, where, _ in p.starts if step == 0} == {1}


def test_no_worker_leaves_for_a_step_that_is_not_set_up_there_yet() -> None:
    busy = on(load(1, 1, gpu=UNIT), 0, 0, 1)
    busy = on(busy, 1, 0, 1, first=2)
    capacities = sites(node(8, 2), node(8, 2))
    closed = (replace(capacities[0], closed=frozenset({0})), capacities[1])
    p = solve(Problem(closed, (load(0, 1, gpu=UNIT), busy)))
    assert p.leaves and set(p.leaves) <= {2, 3}
    assert {where for step, where, _ in (*p.starts, *p.later) if step == 0} == {1}


def test_a_step_of_unknown_speed_gives_up_a_worker_so_that_each_step_has_one() -> None:
    unknown = replace(on(on(load(1, 1, dedicated=True), 0), 0, first=1), certain=False)
    p = plan([node(2)], load(0, 1, dedicated=True), unknown)
    assert p.complete and p.counts == {0: 1, 1: 1} and len(p.leaves) == 1


def test_steps_of_unknown_speed_do_not_fill_cpus_that_shared_steps_need() -> None:
    """Otherwise the next plan takes them back, and so on."""
    unknown = replace(on(load(0, 1, 30, dedicated=True), 0), certain=False)
    p = plan([node(8)], unknown, shared=SharedDemand(70 * UNIT * UNIT, UNIT))
    assert p.counts == {0: 1}
    assert plan([node(8)], unknown).counts[0] == 8


def test_free_gpus_that_a_known_step_would_have_to_lend_are_not_given_to_it() -> None:
    known = on(load(0, 0.1, 10, gpu=UNIT), 0, 0)
    slowest = on(load(1, 1, 1000, workers=1, dedicated=True), 0, first=1)
    unknown = replace(on(load(2, 1, 1000, gpu=UNIT), 0, 1, first=2), certain=False)
    problem = Problem(sites(node(8, 4)), (known, slowest, unknown))
    p = solve(problem)
    assert p.counts == {0: 1, 1: 1, 2: 3} and not p.leaves
    assert not solve(staffed(problem, p)).leaves


def test_gpus_are_not_lent_to_a_step_that_would_take_cpus_which_shared_steps_need() -> None:
    quarter = UNIT // 4
    known = on(load(0, 0.1, 10, cpu=0, gpu=quarter), 0, 0, 0, 0, share=quarter)
    unknown = replace(on(load(1, 1, 1000, gpu=quarter), 0, 0, first=3, share=quarter), certain=False)
    shared = SharedDemand(3 * UNIT * 100 * UNIT, UNIT)
    p = plan([node(4, 1)], known, unknown, shared=shared)
    assert p.counts == {0: 3, 1: 1} and p.finish_us == 100 * UNIT
    with_cpu = on(load(0, 0.1, 10, gpu=quarter), 0, 0, 0, 0, share=quarter)
    p = plan([node(7, 1)], with_cpu, unknown, shared=shared)
    assert p.counts == {0: 1, 1: 3} and p.finish_us == 100 * UNIT, "each worker that leaves frees a CPU, too"

"""All ways to place workers on very few small nodes: what the planner is measured against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gristmill.scheduling.placement import Capacity, Placement, gpu_share
from gristmill.scheduling.planning import Problem, Site
from gristmill.scheduling.settings import UNIT, StepSpec

Outcome = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Tasks done and workers of each step, CPUs left, workers who leave."""


def places(capacity: Capacity, spec: StepSpec) -> Iterator[Placement]:
    if spec.cpu > capacity.cpu or spec.memory > capacity.memory:
        return
    if not spec.uses_gpu:
        yield Placement(spec.cpu, spec.memory)
    elif spec.gpu > UNIT:
        for gpus in combinations(range(len(capacity.gpu_free)), -(-spec.gpu // UNIT)):
            if all(capacity.gpu_free[i] == UNIT for i in gpus):
                yield Placement(spec.cpu, spec.memory, gpus, UNIT)
    else:
        for i, free in enumerate(capacity.gpu_free):
            share = gpu_share(spec, capacity.gpu_memory[i])
            if share <= free:
                yield Placement(spec.cpu, spec.memory, (i,), share)


def outcomes(problem: Problem, site: Site, until: int, leave: bool, least: list[int]) -> set[Outcome]:
    """Everything that one node can be made to do until then."""
    demands = problem.demands
    workers = [(i, h) for i, load in enumerate(demands) for h in load.workers if h.node == site.id]
    full = site.capacity.copy()
    for _, worker in workers:
        full.take(worker.placement)
    found: set[Outcome] = set()
    seen: set[tuple[object, ...]] = set()

    def grow(
        then: Capacity, now: Capacity, gains: tuple[int, ...], counts: tuple[int, ...], left: int, later: bool
    ) -> None:
        key = (then.cpu, then.memory, *then.gpu_free, now.cpu, now.memory, *now.gpu_free, gains, counts, left, later)
        if key in seen:
            return
        seen.add(key)
        found.add((gains, counts, then.cpu, left))
        for i, load in enumerate(demands):
            service = load.service_us[site.kind]
            for wait in [later] if later or not left else [False, True]:
                time = until - load.setup_us - (problem.leave_us if wait else 0)
                gain = 0 if time * UNIT < service * min(load.tasks, UNIT) else time * UNIT // service
                if gains[i] >= load.tasks and counts[i] >= least[i]:
                    continue
                if counts[i] >= max(least[i], min(load.most, load.spec.workers or load.most)):
                    continue
                for p in places(then, load.spec):
                    if wait or now.fits(p):
                        t, n = then.copy(), now.copy()
                        t.take(p)
                        if not wait:
                            n.take(p)
                        more = tuple(g + gain * (j == i) for j, g in enumerate(gains))
                        grow(t, n, more, tuple(c + (j == i) for j, c in enumerate(counts)), left, wait)

    for n_kept in range(len(workers) + 1) if leave else [len(workers)]:
        for kept in combinations(workers, n_kept):
            then = site.capacity.copy()
            gains = [0] * len(demands)
            counts = [0] * len(demands)
            for i, worker in kept:
                then.take(worker.placement)
                gains[i] += max(0, until - worker.delay_us) * UNIT // demands[i].service_us[site.kind]
                counts[i] += 1
            grow(then, full.copy(), tuple(gains), tuple(counts), len(workers) - n_kept, False)
    return found


def fewest_leaves(problem: Problem, until: int, leave: bool, least: list[int]) -> int | None:
    """The fewest who have to leave if all is to be done until then; None if it cannot be."""
    n = len(problem.demands)
    tasks = [max(0, load.tasks) for load in problem.demands]
    caps = [max(least[i], len(x.workers), min(x.most, x.spec.workers or x.most)) for i, x in enumerate(problem.demands)]
    states: set[Outcome] = {((0,) * n, (0,) * n, 0, 0)}
    for site in problem.sites:
        here = outcomes(problem, site, until, leave, least)
        states = {
            (
                tuple(min(t, a + b) for t, a, b in zip(tasks, s[0], o[0], strict=True)),
                tuple(a + b for a, b in zip(s[1], o[1], strict=True)),
                s[2] + o[2],
                s[3] + o[3],
            )
            for s in states
            for o in here
        }
    shared = problem.shared
    return min(
        (
            left
            for gains, counts, cpu, left in states
            if all(g >= t for g, t in zip(gains, tasks, strict=True))
            and all(low <= c <= cap for low, c, cap in zip(least, counts, caps, strict=True))
            and shared.work <= max(cpu, shared.floor) * until
        ),
        default=None,
    )


def earliest(problem: Problem, leave: bool, least: list[int], high: int) -> int | None:
    """The earliest end, to a 4096th; None if there is none."""
    if fewest_leaves(problem, high, leave, least) is None:
        return None
    low = 0
    while high - low > max(1, high >> 12):
        middle = (low + high) // 2
        low, high = (middle, high) if fewest_leaves(problem, middle, leave, least) is None else (low, middle)
    return high

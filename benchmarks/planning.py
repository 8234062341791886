"""How long planning takes, and how good the plans are: ``python benchmarks/planning.py [--quick]``.

Plans for pipelines of random steps on clusters of nodes with 8 GPUs: from empty, again when all runs, and after the
speed of one step has changed by 30 %. The end of each plan is compared with a bound that no plan can beat. What runs
already may be some per cent from it: no worker leaves for less than the margin.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import replace

import numpy as np

from gristmill.scheduling.placement import Capacity
from gristmill.scheduling.planning import PlacedWorker, Problem, Site, StaffingPlan, StepDemand, solve
from gristmill.scheduling.settings import UNIT, StepSpec

GB = 1 << 30


def cluster(n: int, kinds: int) -> tuple[Site, ...]:
    return tuple(Site(i, i % kinds, Capacity(96 * UNIT, 1000 * GB, (80 * GB,) * 8)) for i in range(n))


def pipeline(n_steps: int, n_nodes: int, kinds: int, seed: int) -> tuple[StepDemand, ...]:
    """Steps of which a third need GPUs, or a part of one; so much work that the cluster has some hours to do."""
    r = random.Random(seed)
    demands = []
    for i in range(n_steps):
        gpu = r.choice([UNIT // 4, UNIT // 2, UNIT, UNIT, 2 * UNIT]) if i % 3 == 2 else 0
        spec = StepSpec(
            f"s{i}",
            cpu=r.choice([UNIT, 2 * UNIT, 4 * UNIT]),
            gpu=gpu,
            memory=r.choice([0, 2 * GB, 8 * GB]),
            dedicated=True,
        )
        service = r.randrange(100_000, 10_000_000)
        services = {k: service * r.choice([100, 100, 130, 200]) // 100 if k else service for k in range(kinds)}
        demands.append(StepDemand(i, spec, 1000 * n_nodes * UNIT, services, r.choice([0, 2, 60]) * UNIT))
    return tuple(demands)


def staffed(problem: Problem, plan: StaffingPlan) -> Problem:
    """The problem once a plan has been carried out."""
    workers: dict[int, list[PlacedWorker]] = {load.step: list(load.workers) for load in problem.demands}
    gone = set(plan.leaves)
    worker = 1 + max((h.id for hs in workers.values() for h in hs), default=0)
    for step in workers:
        workers[step] = [h for h in workers[step] if h.id not in gone]
    for step, node, placement in plan.starts:
        workers[step].append(PlacedWorker(worker, node, placement))
        worker += 1
    return replace(problem, demands=tuple(replace(x, workers=tuple(workers[x.step])) for x in problem.demands))


def changed(problem: Problem) -> Problem:
    """The step in the middle has become slower by 30 %."""
    middle = len(problem.demands) // 2
    load = problem.demands[middle]
    slower = replace(load, service_us={k: us * 13 // 10 for k, us in load.service_us.items()})
    return replace(problem, demands=(*problem.demands[:middle], slower, *problem.demands[middle + 1 :]))


def bound_us(problem: Problem, rounds: int = 3000) -> float:
    """No plan ends before this: workers and nodes may be split at will, and no step waits longer than the first.

    The dual of that linear program: at any prices of the resources of each kind of node, each step costs at least what
    it costs where that is least, and there is no more to spend than all resources are worth. Prices are improved by
    making dearer what is used most.
    """
    kinds = sorted({site.kind for site in problem.sites})
    there = np.zeros((len(kinds), 3))
    for site in problem.sites:
        capacity = site.capacity
        there[kinds.index(site.kind)] += (capacity.cpu, capacity.memory, len(capacity.gpu_memory) * UNIT)
    needs = np.array(
        [
            [
                x.tasks / UNIT * x.service_us[kind] * np.array([x.spec.cpu, x.spec.memory, x.spec.gpu]) / there[k]
                for k, kind in enumerate(kinds)
            ]
            for x in problem.demands
        ]
    )
    delays = np.array([min([x.setup_us, *(h.delay_us for h in x.workers)]) for x in problem.demands])
    prices = np.full(there.shape, 1 / there.size)
    best, cheapest = 0.0, np.zeros(len(needs))
    for n in range(rounds):
        costs = (needs * prices).sum(axis=2)
        if costs.min(axis=1).sum() > best:
            cheapest = costs.min(axis=1)
            best = cheapest.sum()
        used = np.zeros(there.shape)
        np.add.at(used, costs.argmin(axis=1), needs[np.arange(len(needs)), costs.argmin(axis=1)])
        prices *= np.exp(used / used.max() / (1 + n) ** 0.6)
        prices /= prices.sum()
    low, high = float(delays.max()), 1e18
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if (cheapest / (middle - delays)).sum() <= 1 else (middle, high)
    return low


def measured(problem: Problem, times: int) -> tuple[StaffingPlan, float]:
    spent = []
    for _ in range(times):
        start = time.process_time()
        plan = solve(problem)
        spent.append(time.process_time() - start)
    return plan, statistics.median(spent) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the largest cluster")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print("steps nodes kinds seed case      CPU ms  end / bound  starts leaves  workers")
    for n_steps, n_nodes, times in [(10, 10, 9), (30, 1000, 5)] + ([] if args.quick else [(100, 5000, 1)]):
        for kinds in (1, 2):
            for seed in range(args.seeds):
                empty = Problem(cluster(n_nodes, kinds), pipeline(n_steps, n_nodes, kinds, seed))
                plan, _ = measured(empty, 1)
                steady = staffed(empty, plan)
                for name, problem in (("empty", empty), ("steady", steady), ("changed", changed(steady))):
                    plan, ms = measured(problem, times)
                    workers = sum(len(x.workers) for x in problem.demands)
                    share = plan.finish_us / bound_us(problem)
                    print(
                        f"{n_steps:5} {n_nodes:5} {kinds:5} {seed:4} {name:8} {ms:8.1f}  {share:11.4f}"
                        f"  {len(plan.starts):6} {len(plan.leaves):6} {workers:6}"
                    )


if __name__ == "__main__":
    main()

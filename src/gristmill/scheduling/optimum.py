"""The throughput that the current plan allows, for comparison with what is measured."""

from __future__ import annotations

from gristmill.scheduling.dispatch import pool
from gristmill.scheduling.records import StepRec
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State


def optimum_ns(s: State) -> list[int]:
    """Return for each step the least mean time between two of its tasks, in nanoseconds; 0 if it is not known.

    The workers of the current plan are taken to be always busy. Then the slowest step sets the pace: the dedicated step
    with the most worker time per source task and planned worker, or all shared steps together, which divide the CPUs
    that dedicated workers leave. Steps that have ended, or have not finished a task, do not count.
    """
    demand = UNIT
    demands = []
    pace = shared = 0
    for step in s.steps:
        demands.append(demand)
        if step.service.samples and not step.ended:
            work = step.service.service_us() * 1000 * demand // UNIT
            if step.dedicated:
                pace = max(pace, work // max(1, _workers(step)))
            else:
                shared += work * step.spec.cpu // UNIT
        demand = demand * step.service.fan_out() // UNIT
    cpus = sum(pool(s, node) for node in s.nodes.values())
    pace = max(pace, shared * UNIT // max(1, cpus))
    return [pace * UNIT // demand if demand else 0 for demand in demands]


def _workers(step: StepRec) -> int:
    return len(step.workers) if step.plan.workers is None else step.plan.workers

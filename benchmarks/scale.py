"""The cost of the driver's decisions on large clusters, in virtual time: CPU per event, and the longest of them.

    python benchmarks/scale.py [--nodes 10,100,1000] [--stages 30] [--events 60000]

Each cluster has nodes of 96 CPUs and 8 GPUs and a pipeline whose stages all have GPUs, so that every worker is one the
scheduler knows by name. Timed is `Scheduler.handle` alone; plans are made beside it, as in a real driver, and timed
apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from gristmill.scheduling import commands as c
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.settings import UNIT, SchedulerConfig, StepSpec
from gristmill.scheduling.simulator.model import SECOND, Conditions, StepModel
from gristmill.scheduling.simulator.world import World

GB = 1 << 30
SHARES = (UNIT, UNIT // 2, UNIT, UNIT // 4, UNIT)


class TimedScheduler(Scheduler):
    """Notes what each call costs."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.costs_us: list[float] = []

    def handle(self, *args: Any) -> list[c.Command]:
        before = time.process_time_ns()
        commands = super().handle(*args)
        self.costs_us.append((time.process_time_ns() - before) / 1000)
        return commands


class TimedWorld(World):
    """Notes what each plan costs."""

    plans_ms: list[float]

    def solve(self, x: c.Solve) -> None:
        before = time.process_time_ns()
        super().solve(x)
        self.plans_ms.append((time.process_time_ns() - before) / 1e6)


def measure(nodes: int, stages: int, events: int) -> list[str]:
    steps = [StepSpec(f"s{i}", gpu=SHARES[i % len(SHARES)], has_setup=True) for i in range(stages)]
    models = [StepModel(10 * SECOND, cv=0.3, setup_us=30 * SECOND, out_bytes=1 << 20) for _ in range(stages)]
    scheduler = TimedScheduler(steps, SchedulerConfig(budget=nodes * 100 * GB))
    cluster = [NodeJoined(i, 96 * UNIT, 384 * GB, (80 * GB,) * 8) for i in range(nodes)]
    world = TimedWorld(scheduler, models, 1 << 40, cluster, Conditions(start_us=0))
    world.plans_ms = []
    until = 0
    while world.events < events:
        until += SECOND
        world.run(until_us=until, limit_us=1 << 62)
    costs = scheduler.costs_us[len(scheduler.costs_us) // 2 :]
    workers = len(scheduler.state.workers)
    mean = statistics.fmean(costs)
    return [
        f"{nodes:,}",
        f"{workers:,}",
        f"{mean:.0f}",
        f"{statistics.median(costs):.0f}",
        f"{max(costs) / 1000:.0f}",
        f"{1e6 / mean:,.0f}",
        f"{workers / 10:,.0f}",
        f"{statistics.median(world.plans_ms):.0f}" if world.plans_ms else "-",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="10,100,300,1000")
    parser.add_argument("--stages", type=int, default=30)
    parser.add_argument("--events", type=int, default=60_000)
    options = parser.parse_args()
    head = ["nodes", "workers", "CPU per event, us", "median", "longest call, ms", "events/s one driver can take"]
    print("| " + " | ".join([*head, "events/s of 10 s tasks", "CPU of a plan, ms"]) + " |")
    print("|" + "---|" * (len(head) + 2))
    for nodes in options.nodes.split(","):
        print("| " + " | ".join(measure(int(nodes), options.stages, options.events)) + " |", flush=True)


if __name__ == "__main__":
    main()

"""Where one driver on Ray saturates: tasks/s with 2, 8 and 32 actors, beside what the simulator says of the scheduler.

    python benchmarks/executors/saturate.py [--actors 2,8,32] [--seconds 0.01] [--tasks 4000]

Each actor sleeps for each task, so that the actors need few of the CPUs and could do `actors / seconds` tasks/s. What
is measured of the driver is its process: our code, and Ray's. What the simulator predicts is the CPU time of the same
scheduler on the same load in virtual time, without Ray: the rate that it alone would allow.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass

from gristmill import Pipeline, ProcessingStage, Resources, Task
from gristmill.backends.ray import RayExecutor
from gristmill.core.client import RayClient
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.simulator import simulate


@dataclass
class Item(Task[int]):
    data: int = 0

    @property
    def num_items(self) -> int:
        return 1


class Sleep(ProcessingStage[Item, Item]):
    name = "sleep"

    def __init__(self, seconds: float, workers: int, cpus: float) -> None:
        self.seconds = seconds
        self.workers = workers
        self.resources = Resources(cpus=cpus)

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def num_workers(self) -> int:
        return self.workers

    def process(self, task: Item) -> Item:
        if self.seconds:
            time.sleep(self.seconds)
        return task


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(actors: int, seconds: float, tasks: int) -> tuple[float, float, float]:
    """Tasks/s, driver CPU per task in microseconds, and the share of one CPU that it took, while there was work."""
    stage = Sleep(seconds, actors, 1.0)
    marks: list[tuple[float, float]] = []

    def items():
        for i in range(tasks):
            if i in (tasks // 10, tasks - 1):
                marks.append((time.perf_counter(), cpu_s()))
            yield Item(data=i)

    Pipeline("saturate", stages=[stage]).run(RayExecutor({"view": "off"}), initial_tasks=items(), keep_outputs=False)
    (began, before), (ended, after) = marks
    done = tasks - 1 - tasks // 10
    return done / (ended - began), (after - before) / done * 1e6, (after - before) / (ended - began)


def predicted(actors: int, seconds: float, tasks: int) -> tuple[float, float]:
    """Tasks/s in virtual time, and CPU of the scheduler per task in microseconds."""
    load = {
        "name": "saturate",
        "nodes": [{"cpus": actors, "gpus": 0}],
        "stages": [{"name": "sleep", "cpus": 1, "gpus": 0, "mean_s": max(seconds, 1e-4), "cv": 0.0, "setup_s": 0}],
        "inputs": tasks,
    }
    load["stages"][0] |= {"outputs_per_input": 1.0, "workers": actors}  # type: ignore[index]
    spent = 0
    handle = Scheduler.handle

    def timed(self, events, now):
        nonlocal spent
        before = time.process_time_ns()
        commands = handle(self, events, now)
        spent += time.process_time_ns() - before
        return commands

    Scheduler.handle = timed  # type: ignore[method-assign]
    try:
        result = simulate(load)
    finally:
        Scheduler.handle = handle  # type: ignore[method-assign]
    return tasks / result.makespan_s, spent / 1000 / tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", default="2,8,32")
    parser.add_argument("--seconds", type=float, default=0.01)
    parser.add_argument("--tasks", type=int, default=4000)
    args = parser.parse_args()
    print("| actors | could do | measured | driver CPU per task | of one CPU | simulator | scheduler alone | allows |")
    print("|---|---|---|---|---|---|---|---|")
    counts = [int(x) for x in args.actors.split(",")]
    with RayClient(num_cpus=max(counts), num_gpus=0):
        for actors in counts:
            tasks = min(args.tasks, int(args.tasks * actors / 8)) or args.tasks
            rate, cpu, share = measured(actors, args.seconds, tasks)
            virtual, scheduler = predicted(actors, args.seconds, tasks)
            could = f"{actors / args.seconds:,.0f}/s" if args.seconds else "-"
            print(
                f"| {actors} | {could} | {rate:,.0f}/s | {cpu:.0f} us | {share:.0%} "
                f"| {virtual:,.0f}/s | {scheduler:.0f} us | {1e6 / scheduler:,.0f}/s |",
                flush=True,
            )


if __name__ == "__main__":
    main()

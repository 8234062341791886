"""A fast, a slow and a medium stage share seven GPUs. The executor finds how many workers each one needs.

With one worker per stage, the slow one limits the run to 1 task per second. The executor measures the stages, gives the
slow one four workers and the medium one two, and every stage reaches 4 tasks per second. The GPUs are logical: the
stages only sleep, so this runs on any machine.

    python examples/balance.py [--tasks 120]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from gristmill.backends.base import StepStats
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline, RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

SECONDS = {"fast": 0.25, "slow": 1.0, "medium": 0.5}
GPUS = 7


@dataclass
class Clip(Task[int]):
    """An artificial clip, with the time at which a stage finished it."""

    data: int = 0
    finished_at: float = 0.0


class Work(ProcessingStage[Clip, Clip]):
    """Occupies a GPU for some time."""

    resources = Resources(gpus=1)

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = SECONDS[name]

    def process(self, task: Clip) -> Clip:
        time.sleep(self.seconds)
        task.finished_at = time.time()
        return task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=120, metavar="N")
    parser.add_argument("--view", default="auto", choices=("auto", "live", "lines", "off"))
    args = parser.parse_args()
    if args.tasks < 1:
        parser.error("--tasks must be 1 or more")

    pipeline = Pipeline("balance", "three stages of unequal speed on seven GPUs", [Work(name) for name in SECONDS])
    executor = LocalExecutor(config={"num_cpus": 8, "num_gpus": GPUS, "view": args.view, "logging_interval": 5})
    began = time.time()
    result = pipeline.run(executor, initial_tasks=[Clip(data=i) for i in range(args.tasks)])

    print(result.summary())
    print(what_the_balancer_did(result, began, args.tasks))


def what_the_balancer_did(result: RunResult, began: float, tasks: int) -> str:
    """Return its decisions, the workers and the throughput over time, and the time that one worker per stage needs."""
    record = result.record
    seconds = range(int(record.wall_s) + 1)
    lines = ["", "What the balancer did:"]
    lines += [f"  {d.at_us / 1e6:6.1f} s  {d.text}" for d in result.decisions] or ["  nothing"]

    lines += ["", f"Workers, one character per second{' ':>9}{'seconds':>10}/task"]
    for step in record.steps:
        lines.append(f"  {step.name:<8}{''.join(_digit(_workers_at(step, s)) for s in seconds)}  {SECONDS[step.name]}")

    finished = [task.finished_at - began for task in result if isinstance(task, Clip)]
    per_second = [sum(s <= at < s + 1 for at in finished) for s in seconds]
    lines.append(f"  {'out/s':<8}{''.join(map(_digit, per_second))}")

    slowest = max(SECONDS.values())
    alone = sum(SECONDS.values()) + (tasks - 1) * slowest
    best = sum(SECONDS.values()) + (tasks - 1) * sum(SECONDS.values()) / GPUS
    lines += [
        "",
        f"{tasks} tasks in {record.wall_s:.1f} s: {tasks / record.wall_s:.2f} tasks/s overall.",
        f"One worker per stage would need {alone:.1f} s: {alone / record.wall_s:.1f} times as long (computed).",
        f"The best that {GPUS} GPUs could do, with the balance known from the start: {best:.1f} s.",
    ]
    return "\n".join(lines)


def _workers_at(step: StepStats, second: int) -> int:
    """Return the number of workers at the end of this second."""
    count = 0
    for at, workers in step.workers:
        if at > second + 1:
            break
        count = workers
    return count


def _digit(number: int) -> str:
    return "." if number == 0 else str(number) if number < 10 else "+"


if __name__ == "__main__":
    main()

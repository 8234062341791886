"""Several units in flight in one worker: throughput, and the same output when the worker is killed again and again.

    python benchmarks/in_flight.py local | ray [--tasks 20000] [--in-flight 64] [--wait-ms 100] [--kill-every S]

An asynchronous stage awaits 100 ms for each task, in one worker: 640 tasks per second at most. Prints tasks per second
from the first to the last result, and CPU seconds of the driver and of all processes of the run. With ``--kill-every``
the worker is killed at random times, about every so many seconds, and the output is compared byte by byte with that of
a run without kills. Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from gristmill.backends.base import Executor
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline, RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task


@dataclass
class Item(Task[Any]):
    data: Any = None


class AskServer(ProcessingStage[Item, Item]):
    """Awaits an answer, and makes something that depends on the task."""

    resources = Resources(cpus=1)

    def __init__(self, wait_s: float, pids: str) -> None:
        self.wait_s = wait_s
        self.pids = pids

    def num_workers(self) -> int:
        return 1

    def setup(self) -> None:
        with open(self.pids, "a") as file:
            file.write(f"{os.getpid()}\n")

    async def process(self, task: Item) -> Item:
        await asyncio.sleep(self.wait_s)
        return Item(data=hashlib.blake2b(str(task.data).encode(), digest_size=32).hexdigest())


class Killer(threading.Thread):
    """Kills the newest worker at random times."""

    def __init__(self, pids: str, every_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.pids, self.every_s, self.random = pids, every_s, random.Random(seed)
        self.kills = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(self.every_s * (0.5 + self.random.random())):
            with open(self.pids) as file:
                lines = file.read().split()
            if lines and psutil.pid_exists(int(lines[-1])):
                os.kill(int(lines[-1]), signal.SIGKILL)
                self.kills += 1


def executor(name: str) -> Executor:
    if name == "local":
        return LocalExecutor({"view": "off", "num_cpus": 2})
    from gristmill.backends.ray import RayExecutor

    return RayExecutor({"view": "off", "num_cpus": 2, "num_gpus": 0})


def run(options: argparse.Namespace, pids: str) -> RunResult:
    open(pids, "w").close()
    stage = AskServer(options.wait_ms / 1000, pids).with_(max_in_flight=options.in_flight)
    tasks = [Item(data=n) for n in range(options.tasks)]
    return Pipeline("in-flight", stages=[stage]).run(executor(options.executor), initial_tasks=tasks, keep_outputs=True)


def digest(result: RunResult) -> str:
    """Of all outputs and their ids, in order."""
    total = hashlib.blake2b(digest_size=16)
    for task in result:
        total.update(f"{task.task_id} {task.data}\n".encode())
    return total.hexdigest()


def measured(options: argparse.Namespace, pids: str) -> Iterator[tuple[str, Any]]:
    before, begun = os.times(), time.process_time()
    result = run(options, pids)
    after = os.times()
    record = result.record
    assert record.first_output_s is not None and record.last_output_s is not None
    span = record.last_output_s - record.first_output_s
    yield "executor", options.executor
    yield "tasks", len(result)
    yield "tasks_per_s", round((len(result) - 1) / span, 1)
    yield "at_most", round(options.in_flight * 1000 / options.wait_ms, 1)
    yield "first_to_last_s", round(span, 2)
    yield "cpu_driver_s", round(time.process_time() - begun, 2)
    workers = after.children_user + after.children_system - before.children_user - before.children_system
    yield "cpu_of_processes_that_ended_s", round(workers, 2)
    yield "worker_deaths", record.worker_deaths
    yield "output", digest(result)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executor", choices=("local", "ray"))
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--wait-ms", type=float, default=100.0)
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="S")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    pids = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"in-flight-{os.getpid()}.pids")
    try:
        calm = dict(measured(options, pids))
        print(json.dumps({"benchmark": "in flight", **calm}), flush=True)
        if not options.kill_every:
            return 0
        killer = Killer(pids, options.kill_every, options.seed)
        killer.start()
        shaken = dict(measured(options, pids))
        killer.done.set()
        killer.join()
        more = {"kills": killer.kills, "seed": options.seed, "same_output": shaken["output"] == calm["output"]}
        print(json.dumps({"benchmark": "in flight, worker killed", **shaken, **more}), flush=True)
        return 0 if more["same_output"] and killer.kills else 1
    finally:
        if os.path.exists(pids):
            os.unlink(pids)


if __name__ == "__main__":
    sys.exit(main())

"""The cost and the behaviour of the engine: the figures of RESULTS.md.

    python benchmarks/engine.py balance | overhead | busy | startup | memory | modes | kills | setups | all

Each prints what it measured; nothing here asserts a time. CPU seconds are of the driver process; memory is the PSS of
all processes of the run plus the pages of its anonymous files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline, RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task


@dataclass
class Item(Task[Any]):
    """Anything, with the time at which each stage was done with it."""

    data: Any = None
    stamps: list[float] = field(default_factory=list)


class Pass(ProcessingStage[Item, Item]):
    """Does nothing, or sleeps, or keeps the CPU busy."""

    def __init__(self, name: str, seconds: float = 0.0, burn: bool = False, gpus: float = 0) -> None:
        self.name = name
        self.seconds = seconds
        self.burn = burn
        self.resources = Resources(gpus=gpus)

    def process(self, task: Item) -> Item:
        if self.burn:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        return task


class Stamp(Pass):
    def process(self, task: Item) -> Item:
        super().process(task)
        task.stamps.append(time.time())
        return task


class Source:
    """Tasks that are made as they are taken. Notes the driver's CPU time when the first one is."""

    def __init__(self, n: int, payload: Any = 1) -> None:
        self.n = n
        self.payload = payload
        self.began = 0.0

    def __iter__(self) -> Iterator[Item]:
        for i in range(self.n):
            if i == 1:  # the first is only looked at while planning
                self.began = time.process_time()
            yield Item(self.payload)

    def cpu_since_first(self) -> float:
        return time.process_time() - self.began


def run(stages: list[Any], tasks: Any, fuse: bool = True, keep: bool | None = None, **config: Any) -> RunResult:
    options = {"view": "off", **config}
    return Pipeline("benchmark", stages=stages).run(LocalExecutor(options), tasks, keep_outputs=keep, fuse=fuse)


def show(name: str, **figures: Any) -> None:
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps({"benchmark": name, **rounded}), flush=True)


# --------------------------------------------------------------------------------------------------------------------


def balance(tasks: int = 400) -> None:
    """Stages of 0.25, 1 and 0.5 s on seven logical GPUs, without hints."""
    stages = [Stamp("fast", 0.25, gpus=1), Stamp("slow", 1.0, gpus=1), Stamp("medium", 0.5, gpus=1)]
    result = run(stages, [Item(i) for i in range(tasks)], num_gpus=7, num_cpus=8)
    done = sorted(t.stamps[-1] for t in result)
    first = min(t.stamps[0] for t in result) - 0.25
    ideal = (tasks - 1) / 4 + 1.75
    windows = []
    at = first + 10
    while at + 10 <= done[-1]:
        windows.append(sum(at <= x < at + 10 for x in done) / 10)
        at += 1
    workers = {step.name: _count_at(step.workers, 15.0) for step in result.record.steps}
    show(
        "balance",
        tasks=tasks,
        workers_after_15_s=workers,
        work_s=done[-1] - first,
        wall_s=result.record.wall_s,
        ideal_s=ideal,
        wall_over_ideal=result.record.wall_s / (ideal + 0.25),
        tasks_per_s_from_10_s_on=[min(windows), sum(windows) / len(windows)],
        workers_started={step.name: step.workers_started for step in result.record.steps},
    )
    for decision in result.decisions:
        print(f"    {decision.at_us / 1e6:7.2f} s  {decision.text}")


def _count_at(timeline: list[tuple[float, int]], at: float) -> int:
    return [n for t, n in timeline if t <= at][-1]


def overhead(tasks: int = 50_000) -> None:
    """Trivial tasks through five stages: tasks per second from the first task on, and the driver's CPU."""
    import numpy

    for name, fuse, size, n in (
        ("unfused", False, 0, tasks),
        ("256 KB", False, 1 << 18, tasks // 2),
        ("fused", True, 0, tasks),
    ):
        payload = numpy.random.default_rng(1).integers(0, 255, size, dtype=numpy.uint8) if size else 1
        source = Source(n, payload)
        result = run([Pass(f"stage {i}") for i in range(5)], source, fuse=fuse, keep=False)
        cpu = source.cpu_since_first()
        record = result.record
        work_s = record.wall_s - (record.first_output_s or 0)
        show(
            f"overhead, {name}",
            tasks=n,
            tasks_per_s=n / work_s,
            driver_us_per_task_and_stage=cpu * 1e6 / n / (1 if fuse else 5),
            first_output_s=record.first_output_s,
        )


def busy() -> None:
    """How busy workers are with tasks of 5 and 100 ms, and what the driver spends on them."""
    for seconds, n, stages, cpus in ((0.005, 4000, 1, 2), (0.1, 600, 1, 2), (0.1, 240, 5, 8)):
        source = Source(n)
        result = run([Pass(f"sleep {i}", seconds) for i in range(stages)], source, False, False, num_cpus=cpus)
        cpu = source.cpu_since_first()
        show(
            f"busy, {seconds * 1000:g} ms tasks, {stages} stages on {cpus} logical CPUs",
            tasks=n,
            busy_share=sum(step.busy_share for step in result.record.steps),
            driver_us_per_task_and_stage=cpu * 1e6 / n / stages,
        )


_FIRST = """
import sys, time
from dataclasses import dataclass
from gristmill.pipeline import Pipeline
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task

@processing_stage(name="stamp")
def stamp(task: Task) -> Task:
    task.data = time.time()
    return task

result = Pipeline("first", stages=[stamp]).run(initial_tasks=[Task() for _ in range(10)])
print(min(t.data for t in result))
"""


def startup(repeats: int = 5) -> None:
    """From the start of a script to its first task's output; `cold`: without any compiled Python file."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "first.py"
        script.write_text(_FIRST)
        for name in ("cold", "warm"):
            taken = []
            for i in range(repeats):
                cache = f"{folder}/cache{i if name == 'cold' else ''}"
                env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
                env["PYTHONPYCACHEPREFIX"] = cache
                if name == "warm" and i == 0:
                    subprocess.run([sys.executable, script], env=env, check=True, capture_output=True)
                began = time.time()
                out = subprocess.run([sys.executable, script], env=env, check=True, capture_output=True, text=True)
                taken.append(float(out.stdout.split()[-1]) - began)
            show(f"startup, {name}", first_output_s=[round(x, 3) for x in sorted(taken)])


class Watch(threading.Thread):
    """Peak memory of this process and all its descendants: PSS, plus anonymous files that no process has mapped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.over = threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self.over.wait(0.1):
            pids = [me.pid, *(p.pid for p in me.children(recursive=True))]
            self.peak = max(self.peak, sum(_pss(pid) for pid in pids) + _anonymous_files(me.pid))

    def stop(self) -> int:
        self.over.set()
        self.join()
        return self.peak


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _anonymous_files(pid: int) -> int:
    """The driver holds a descriptor of every one of them."""
    total = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "memfd:gristmill " in os.readlink(fd):
                total += fd.stat().st_blocks * 512
        except OSError:
            continue
    return total


class Make(ProcessingStage[Item, Item]):
    """Makes a megabyte."""

    name = "make"

    def process(self, task: Item) -> Item:
        import numpy

        task.data = numpy.random.default_rng(task.data).integers(0, 255, 1 << 20, dtype=numpy.uint8)
        return task


def memory() -> None:
    """A source ten times faster than its sink, with 1x and 10x data, each in a process of its own."""
    for n in (600, 6000):
        code = f"import sys; sys.path[:] = {sys.path!r}; sys.argv = ['']; import engine; engine.memory_once({n})"
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        subprocess.run([sys.executable, "-c", code], env=env, check=True)


def memory_once(n: int) -> None:
    import numpy  # noqa: F401 - so that both runs carry the same libraries from the start

    watch = Watch()
    watch.start()
    sink = Pass("sink", 0.02, gpus=1)
    result = run(
        [Make(), sink], (Item(i) for i in range(n)), keep=False, num_cpus=2, num_gpus=1, memory_limit="1GB",
        object_store_memory="256MB",
    )  # fmt: skip
    peak = watch.stop()
    record = result.record
    show(
        "memory",
        tasks=n,
        data_mb=n,
        peak_mb=peak / 1e6,
        limit_mb=1000,
        peak_in_flight_mb=record.peak_bytes_in_flight / 1e6,
        budget_mb=record.budget_bytes / 1e6,
        wall_s=record.wall_s,
    )


def modes(n: int = 120) -> None:
    """A CPU stage and a GPU stage (logical), streaming and batch."""
    for mode in ("streaming", "batch"):
        stages = [Stamp("cpu", 0.1), Stamp("gpu", 0.1, gpus=1)]
        result = run(stages, [Item(i) for i in range(n)], num_cpus=2, num_gpus=1, execution_mode=mode)
        first = min(t.stamps[0] for t in result) - 0.1
        per_stage = [max(t.stamps[i] for t in result) - min(t.stamps[i] for t in result) + 0.1 for i in (0, 1)]
        record = result.record
        show(
            f"modes, {mode}",
            makespan_s=max(t.stamps[-1] for t in result) - first,
            cpu_stage_s=per_stage[0],
            gpu_stage_s=per_stage[1],
            first_output_s=min(t.stamps[-1] for t in result) - first,
            gpu_busy_share=record.steps[1].busy_share,
            peak_in_flight_tasks=record.peak_bytes_in_flight // 1200,
        )


class Square(ProcessingStage[Item, Item]):
    name = "square"

    def process(self, task: Item) -> Item:
        time.sleep(0.02)
        task.data = task.data**2
        return task


def kills(seconds: float = 60.0) -> None:
    """SIGKILL a random worker every second."""
    n = int(seconds / 0.02 * 2.2)
    over = threading.Event()
    killed: Counter[str] = Counter()

    def killer() -> None:
        rng = random.Random(1)
        while not over.wait(1.0):
            me = psutil.Process()
            workers = [w for supervisor in me.children() for w in supervisor.children()]
            if workers:
                os.kill(rng.choice(workers).pid, signal.SIGKILL)
                killed["workers"] += 1

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        result = run(
            [Square(), Pass("next", 0.001, gpus=1)], [Item(i) for i in range(n)], fuse=False, num_cpus=3, num_gpus=2
        )
    finally:
        over.set()
        thread.join()
    result.check()
    show(
        "kills",
        tasks=n,
        wall_s=result.record.wall_s,
        killed=killed["workers"],
        deaths_noticed=result.record.worker_deaths,
        quarantined=result.record.failures_total,
        output_is_that_of_an_undisturbed_run=[t.data for t in result] == [i**2 for i in range(n)],
    )


class Heavy(Pass):
    """Has a setup and a teardown that leave a line in a file."""

    def __init__(self, name: str, log: str) -> None:
        super().__init__(name)
        self.log = log

    def setup(self, worker_metadata: Any = None) -> None:
        self._note("setup")

    def teardown(self) -> None:
        self._note("teardown")

    def _note(self, what: str) -> None:
        with open(self.log, "a") as file:
            file.write(f"{what} {self.name}\n")


def setups() -> None:
    """Eight CPU stages, three of them with a setup, on one CPU."""
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/log"
        stages = [Heavy(f"heavy {i}", log) if i in (1, 4, 6) else Pass(f"light {i}") for i in range(8)]
        for fuse in (True, False):
            Path(log).write_text("")
            result = run(stages, [Item(i) for i in range(500)], fuse=fuse, num_cpus=1)
            counted = Counter(Path(log).read_text().splitlines())
            reported = {s.name: (s.setups, s.teardowns) for s in result.stages.values() if s.name.startswith("heavy")}
            show(
                f"setups, {'fused' if fuse else 'unfused'}", outputs=len(result), seen=dict(counted), reported=reported
            )


ALL = {f.__name__: f for f in (balance, overhead, busy, startup, memory, modes, kills, setups)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="+", choices=[*ALL, "all"])
    names = parser.parse_args().which
    for name in ALL if "all" in names else names:
        ALL[name]()


if __name__ == "__main__":
    main()

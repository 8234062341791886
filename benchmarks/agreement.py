"""Does the simulator tell the truth? Pipelines run for real, then simulated from what that run measured.

    python benchmarks/agreement.py [balance setups fan_out change mixed short] [--repeats 3] [--seeds 10] [--scale 1.0]

Stages sleep, in real processes, on logical CPUs and GPUs. The makespan is the time from when the stages are loaded in
the supervisor, so that workers can start, until the last output is with the driver; a simulation begins where workers
can start. Nothing is fitted: a load holds what `RunResult.load` gives. Only for `change`, where means over the whole
run mix two speeds, the two means are taken from the tasks themselves. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline, RunResult
from gristmill.scheduling.simulator.loads import Load, SpeedChange
from gristmill.scheduling.simulator.result import SimulationResult
from gristmill.scheduling.simulator.simulation import simulate
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task


@dataclass
class Clip(Task[int]):
    """Its number in the source, and what each stage took."""

    data: int = 0
    took: dict[str, float] = field(default_factory=dict)


class Work(ProcessingStage[Clip, Clip]):
    """Sleeps; from the source's ``after``-th task on ``factor`` times as long."""

    def __init__(
        self, name: str, seconds: float, gpus: float = 0, setup: float = 0, after: int = 1 << 60, factor: float = 1
    ) -> None:
        self.name = name
        self.seconds, self.setup_s, self.after, self.factor = seconds, setup, after, factor
        self.resources = Resources(gpus=gpus)

    def process(self, task: Clip) -> Clip:
        began = time.perf_counter()
        time.sleep(self.seconds * (self.factor if task.data >= self.after else 1))
        task.took[self.name] = time.perf_counter() - began
        return task


class Model(Work):
    """Sleeps in its setup too."""

    def setup(self, worker_metadata: Any = None) -> None:
        time.sleep(self.setup_s)


class Split(ProcessingStage[Clip, Clip]):
    """Makes several of one."""

    def __init__(self, name: str, seconds: float, parts: int, gpus: float = 0) -> None:
        self.name, self.seconds, self.parts = name, seconds, parts
        self.resources = Resources(gpus=gpus)

    def process(self, task: Clip) -> list[Clip]:
        time.sleep(self.seconds)
        return [Clip(data=task.data) for _ in range(self.parts)]


class Varied(Work):
    """Sleeps for lognormal times, by the task's id."""

    cv = 0.7

    def process(self, task: Clip) -> Clip:
        spread = math.sqrt(math.log(1 + self.cv**2))
        time.sleep(self.seconds * random.Random(task.task_id).lognormvariate(-(spread**2) / 2, spread))
        return task


class Stream(ProcessingStage[Clip, Clip]):
    """Makes several of one, which flow on while it runs."""

    def __init__(self, name: str, seconds_each: float, parts: int) -> None:
        self.name, self.seconds_each, self.parts = name, seconds_each, parts

    def process(self, task: Clip) -> Iterator[Clip]:
        for _ in range(self.parts):
            time.sleep(self.seconds_each)
            yield Clip(data=task.data)


@dataclass
class Job:
    stages: list[Any]
    tasks: int
    cpus: int
    gpus: int
    known: Callable[[Load, RunResult], Load] = lambda load, result: load


def balance(scale: float) -> Job:
    stages = [Work("fast", 0.25, 1), Work("slow", 1.0, 1), Work("medium", 0.5, 1)]
    return Job(stages, int(200 * scale), 8, 7)


def setups(scale: float) -> Job:
    stages = [
        Work("read", 0.05),
        Model("embed", 0.6, 1, setup=4.0),
        Work("check", 0.1),
        Model("caption", 0.9, 1, setup=3.0),
        Work("pack", 0.03),
    ]
    return Job(stages, int(180 * scale), 10, 6)


def fan_out(scale: float) -> Job:
    return Job([Split("split", 0.3, 6, 1), Work("slow", 0.4, 1), Work("pack", 0.05)], int(90 * scale), 8, 5)


def change(scale: float) -> Job:
    after, tasks = int(150 * scale), int(300 * scale)
    stages = [Work("first", 0.2, 1), Work("varies", 0.3, 1, after=after, factor=4), Work("last", 0.1, 1)]

    def known(load: Load, result: RunResult) -> Load:
        """The measured mean taken apart at the known task."""
        took = [(task.data, task.took["varies"]) for task in result if isinstance(task, Clip)]
        before = [s for i, s in took if i < after]
        behind = [s for i, s in took if i >= after]
        factor = fmean(behind) / fmean(before)
        stage = next(x for x in load.stages if x.name == "varies")
        first = stage.mean_s * len(took) / (len(before) + factor * len(behind))
        cv = max(pstdev(before) / fmean(before), pstdev(behind) / fmean(behind))
        at_first = replace(stage, mean_s=first, cv=cv)
        return replace(
            load,
            stages=tuple(at_first if x.name == "varies" else x for x in load.stages),
            changes=(SpeedChange("varies", after, factor),),
        )

    return Job(stages, tasks, 8, 6, known)


def mixed(scale: float) -> Job:
    """A generator, batches of tasks whose times vary, and a fixed number of workers."""
    stages = [
        Stream("make", 0.05, 20),
        Varied("look", 0.5, 1).with_(batch_size=4),
        Work("write", 0.1).with_(num_workers=2),
    ]
    return Job(stages, int(20 * scale), 10, 5)


def short(scale: float) -> Job:
    """Tasks of 10 ms, where messages to and fro count."""
    return Job([Work("read", 0.01), Work("score", 0.01, 1), Work("pack", 0.02)], int(5000 * scale), 5, 2)


JOBS = {f.__name__: f for f in (balance, setups, fan_out, change, mixed, short)}


@dataclass
class Pair:
    """One real run and its simulations."""

    real: RunResult
    load: Load
    simulated: list[SimulationResult]

    @property
    def real_s(self) -> float:
        return makespan_s(self.real)

    @property
    def simulated_s(self) -> float:
        return fmean(x.makespan_s for x in self.simulated)

    @property
    def deviation(self) -> float:
        return self.simulated_s / self.real_s - 1


def makespan_s(result: RunResult) -> float:
    """From when workers can start to the last output."""
    assert result.record.last_output_s is not None
    return result.record.last_output_s - result.record.loaded_s


def compare(job: Job, name: str, seeds: int) -> Pair:
    executor = LocalExecutor({"view": "off", "num_cpus": job.cpus, "num_gpus": job.gpus})
    tasks = [Clip(data=i) for i in range(job.tasks)]
    result = Pipeline(name, stages=job.stages).run(executor, tasks, keep_outputs=True, fuse=False)
    load = job.known(result.load(), result)
    return Pair(result, load, [simulate(load, seed) for seed in range(1, seeds + 1)])


def _at(timeline: Any, at: float) -> int:
    return ([n for t, n in timeline if t <= at] or [0])[-1]


def report(name: str, pairs: list[Pair]) -> None:
    real, simulated = [p.real_s for p in pairs], [x.makespan_s for p in pairs for x in p.simulated]
    worst = max((p.deviation for p in pairs), key=abs)
    print(
        f"| {name} | {fmean(real):.2f} ({min(real):.2f} to {max(real):.2f}) "
        f"| {fmean(simulated):.2f} ({min(simulated):.2f} to {max(simulated):.2f}) "
        f"| {fmean(simulated) / fmean(real) - 1:+.1%} | {worst:+.1%} |",
        flush=True,
    )


def details(name: str, pairs: list[Pair]) -> None:
    """Busy shares, and workers at quarters of the run, of the first repeat."""
    pair = pairs[0]
    end = min(pair.real_s, pair.simulated_s)
    for i, step in enumerate(pair.real.record.steps):
        stages = [x.stages[i] for x in pair.simulated]
        quarters = [end * share for share in (0.1, 0.25, 0.5, 0.75, 0.9)]
        real = [_at(step.workers, at + pair.real.record.loaded_s) for at in quarters]
        virtual = [_at(stages[0].timeline, at) for at in quarters]
        print(
            f"| {name} | {step.name} | {step.busy_share:.0%} | {fmean(s.busy_share for s in stages):.0%} "
            f"| {' '.join(map(str, real))} | {' '.join(map(str, virtual))} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[*JOBS, []], metavar="PIPELINE", help=", ".join(JOBS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of tasks")
    parser.add_argument("--save", metavar="FOLDER", help="write each load and each decision here")
    args = parser.parse_args()
    found = {}
    print("| pipeline | real s (spread) | simulated s (spread) | deviation | worst repeat |\n|---|---|---|---|---|")
    for name in args.which or JOBS:
        found[name] = [compare(JOBS[name](args.scale), name, args.seeds) for _ in range(args.repeats)]
        report(name, found[name])
        if args.save:
            for i, pair in enumerate(found[name]):
                _save(Path(args.save), f"{name}{i}", pair)
    print("\n| pipeline | stage | busy, real | simulated | workers at 10, 25, 50, 75, 90 %, real | simulated |")
    print("|---|---|---|---|---|---|")
    for name, pairs in found.items():
        details(name, pairs)


def _save(folder: Path, name: str, pair: Pair) -> None:
    folder.mkdir(exist_ok=True)
    pair.load.write(folder / f"{name}.load.json")
    decisions = {
        "loaded_s": pair.real.record.loaded_s,
        "real": [(d.at_us / 1e6, d.text) for d in pair.real.decisions],
        "simulated": [(d.at_us / 1e6, d.text) for d in pair.simulated[0].decisions],
    }
    (folder / f"{name}.decisions.json").write_text(json.dumps(decisions, indent=1))


if __name__ == "__main__":
    main()

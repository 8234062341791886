"""Does the capacity planner tell the truth? Jobs forecast from a sample, then run for real, in turn.

    python benchmarks/plan_accuracy.py WORK [--repeats 3] [--jobs filter fuzzy balance] [--docs 200k] [--sample 0.05]

WORK holds the corpus (`benchmarks/text_filters/corpus.py WORK` makes it). `filter` and `fuzzy` are the commands
`gristmill plan` and `gristmill run` on this machine. Figures are the time of the phases and decisions ("work"), wall
time from the start of the process to its end, CPU time of all processes, and peak memory, as the run itself measures it.
`balance` is three stages of 0.25, 1 and 0.5 s on seven logical GPUs.

Forecast and run take turns. On a machine with other work only the CPU time means something: the load is printed beside
each pair. Prints Markdown for RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agreement import Clip, balance, makespan_s

from gristmill.backends.local import LocalExecutor
from gristmill.capacity.plan import PlanRequest, plan_capacity
from gristmill.capacity.sampling import SampleLimits
from gristmill.pipeline import Pipeline
from gristmill.pipeline.profiles.machine import this_machine

STAGES = {
    "filter": "  - recipe: gopher-quality\n",
    "fuzzy": "  - recipe: gopher-quality\n  - FuzzyDeduplication: {}\n",
}
TARGETS = {"work": 0.15, "wall": 0.15, "CPU": 0.15, "memory": 0.25}


@dataclass
class Pair:
    """One figure, forecast and real."""

    job: str
    figure: str
    forecast: float
    real: float
    low: float = 0.0
    high: float = 0.0
    load: float = 0.0

    @property
    def deviation(self) -> float:
        return self.forecast / self.real - 1


def of_files(job: str, work: Path, docs: str, sample: float) -> list[Pair]:
    """Forecast a job, run it, and compare."""
    folder = work / "plan"
    folder.mkdir(exist_ok=True)
    path, store = folder / f"{job}.yaml", folder / f"{job}.profiles.jsonl"
    path.write_text(
        f"stages:\n  - JsonlReader: {{file_paths: {(work / f'c{docs}').resolve()}}}\n{STAGES[job]}"
        f"  - JsonlWriter: {{path: {(folder / job).resolve()}}}\n"
    )
    store.unlink(missing_ok=True)
    environment = {**os.environ, "GRISTMILL_PROFILE_STORE": str(store)}
    command = [sys.executable, "-m", "gristmill"]
    planned = subprocess.run(
        [*command, "plan", path, "--sample", str(sample), "--json", "--no-profile-store"],
        capture_output=True, check=True, env=environment,
    )  # fmt: skip
    plan = json.loads(planned.stdout)
    before, began = _cpu_s(), time.monotonic()
    subprocess.run(
        [*command, "run", path, "--fresh", "--view", "off"], capture_output=True, check=True, env=environment
    )
    wall, cpu = time.monotonic() - began, _cpu_s() - before
    load = os.getloadavg()[0]
    run = json.loads(store.read_text().splitlines()[-1])
    work = sum(phase["run_s"] + phase.get("decided_s", 0.0) for phase in run["phases"])
    return [
        Pair(job, "work", sum(plan["phases_s"]) + sum(plan["decided_s"]), work, load=load),
        Pair(job, "wall", plan["seconds"], wall, plan["low_s"], plan["high_s"], load),
        Pair(job, "CPU", plan["cpu_s"], cpu, load=load),
        Pair(job, "memory", plan["memory_bytes"] / 2**20, run["peak_memory_bytes"] / 2**20, load=load),
    ]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def of_balance(share: float) -> list[Pair]:
    """The three stages on logical GPUs: they sleep, so other work on the machine hardly counts."""
    job = balance(1.0)
    tasks = [Clip(data=i) for i in range(job.tasks)]
    options = {"num_cpus": job.cpus, "num_gpus": job.gpus, "view": "off"}
    pipeline = Pipeline("balance", stages=job.stages)
    request = PlanRequest(limits=SampleLimits(share), store=False)
    plan = plan_capacity(pipeline, request, tasks, options)
    result = pipeline.run(LocalExecutor(options), tasks, keep_outputs=True, fuse=False, profile_store=False)
    load = os.getloadavg()[0]
    spread = plan.prediction.high_s - plan.prediction.seconds
    forecast = sum(plan.prediction.phases_s)
    return [Pair("balance", "wall", forecast, makespan_s(result), forecast - spread, forecast + spread, load)]


def report(pairs: list[Pair]) -> None:
    print("\n| job | figure | forecasts | real | deviation of the median | of each pair | target |")
    print("|---|---|---|---|---|---|---|")
    for job, figure in dict.fromkeys((pair.job, pair.figure) for pair in pairs):
        some = [pair for pair in pairs if (pair.job, pair.figure) == (job, figure)]
        forecast, real = median(pair.forecast for pair in some), median(pair.real for pair in some)
        target = 0.05 if job == "balance" else TARGETS[figure]
        unit = "MB" if figure == "memory" else "s"
        print(
            f"| {job} | {figure}, {unit} | {', '.join(f'{pair.forecast:.1f}' for pair in some)} "
            f"| {', '.join(f'{pair.real:.1f}' for pair in some)} | {forecast / real - 1:+.1%} "
            f"| {', '.join(f'{pair.deviation:+.1%}' for pair in some)} | {target:.0%} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=[*STAGES, "balance"], default=[*STAGES, "balance"])
    parser.add_argument("--docs", default="200k")
    parser.add_argument("--sample", type=float, default=0.05)
    args = parser.parse_args()
    print(f"{this_machine().name}, {platform.system()} {platform.release()}; sample {args.sample:.0%}\n")
    print("| job | figure | forecast (range) | real | deviation | load |\n|---|---|---|---|---|---|")
    pairs = []
    for _ in range(args.repeats):
        for job in args.jobs:
            found = of_balance(args.sample) if job == "balance" else of_files(job, args.work, args.docs, args.sample)
            for pair in found:
                limits = f" ({pair.low:.1f} to {pair.high:.1f})" if pair.high else ""
                print(
                    f"| {job} | {pair.figure} | {pair.forecast:.1f}{limits} | {pair.real:.1f} | {pair.deviation:+.1%} "
                    f"| {pair.load:.1f} |",
                    flush=True,
                )
            pairs += found
    report(pairs)


if __name__ == "__main__":
    main()

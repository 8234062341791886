"""How well the balancer does in virtual time: on the seven loads that Xenna was run on, and on random ones.

    python benchmarks/balance.py rig [--seeds 20] [--profile]
    python benchmarks/balance.py random [--loads 300] [--profile] [--out all.csv]

`rig` prints a table for RESULTS.md and exits with 1 if a target is missed. With `--profile` each run starts from
a profile of the load's true values, each wrong by up to 30 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bound import bound_s, limit_s, steady_bound_s
from bound.drawn import drawn
from random_loads import random_load

from gristmill.metrics import format as fmt
from gristmill.metrics.chart import means
from gristmill.scheduling.simulator import SimulationResult, profile_of, read_loads, simulate
from gristmill.scheduling.simulator.loads import Load

LOADS = Path(__file__).parent / "rig" / "loads.json"
XENNA = {"xenna_default_180s": "180 s", "xenna_10s": "10 s", "xenna_saturation_aware": "saturation"}
BELOW = 0.005
"""How far a load may be below one of Xenna's figures."""
OF_BOUND = {False: 0.96, True: 0.98}
"""The least share of the clairvoyant bound, by whether there is a profile."""
PROFILE_ERROR = 0.3


@dataclass(frozen=True, slots=True)
class Run:
    """The figures that are kept of one simulated run."""

    load: str
    seed: int
    nodes: int
    stages: int
    makespan_s: float
    of_optimum: float
    of_steady: float
    of_bound: float
    of_limit: float
    started: int
    lost_s: float
    failed: int
    decisions: int
    peak_of_budget: float
    aborted: str
    bottleneck: str
    """The stage that had the largest share of its resource."""
    bottleneck_busy: float
    idle_s: float
    """Time that the bottleneck's usual workers did not work: its setups, its waiting, and what the next two name."""
    missing_first_s: float
    """Time in the first tenth of the run that it would have needed more workers for its usual number."""
    missing_last_s: float
    workers: dict[str, list[float]]
    """Of each stage, in each tenth of the run."""


def play(job: tuple[Load, int, bool, bool]) -> Run:
    load, seed, profile, with_steady = job
    known: dict[str, Any] = {}
    if profile:
        known["profile"] = profile_of(load, seed, error=PROFILE_ERROR)
    result = simulate(load, seed, **known)
    steady = _steady_bound_s(load) if with_steady else 0.0
    truth = drawn(load, seed)
    at = _bottleneck(load, result)
    stage, end = result.stages[at], result.makespan_s
    workers = means(stage.timeline, end, 100)
    usual = sorted(workers)[50] or max(workers)
    missing = [max(0.0, 1 - n / usual) * end / 100 for n in workers]
    return Run(
        load=load.name,
        seed=seed,
        nodes=len(load.nodes),
        stages=len(load.stages),
        makespan_s=end,
        of_optimum=result.share_of_optimum,
        of_steady=steady / end if math.isfinite(steady) else 0.0,
        of_bound=bound_s(truth) / end if end else 0.0,
        of_limit=limit_s(truth) / end if end else 0.0,
        started=result.workers_started,
        lost_s=result.work_lost_s,
        failed=result.tasks_failed,
        decisions=len(result.decisions),
        peak_of_budget=result.peak_queue_bytes / result.budget_bytes,
        aborted=result.aborted,
        bottleneck=stage.name,
        bottleneck_busy=stage.busy_share,
        idle_s=end - stage.busy_s / usual,
        missing_first_s=sum(missing[:10]),
        missing_last_s=sum(missing[90:]),
        workers={s.name: [round(n, 1) for n in means(s.timeline, end, 10)] for s in result.stages},
    )


@lru_cache
def _steady_bound_s(load: Load) -> float:
    return steady_bound_s(load)


def _bottleneck(load: Load, result: SimulationResult) -> int:
    cpus, gpus = sum(node.cpus for node in load.nodes), sum(node.gpus for node in load.nodes)

    def used(i: int) -> float:
        stage = load.stages[i]
        return result.stages[i].busy_s * (stage.gpus / gpus if stage.gpus else stage.cpus / cpus)

    return max(range(len(load.stages)), key=used)


def play_all(jobs: Sequence[tuple[Load, int, bool, bool]], processes: int) -> Iterator[Run]:
    """The runs, in the order of the jobs; how far it is goes to a terminal."""
    # A process that is killed is an error here; a multiprocessing.Pool would wait for it for ever.
    with ProcessPoolExecutor(min(processes, len(jobs))) as pool:
        for i, run in enumerate(pool.map(play, jobs), 1):
            if sys.stderr.isatty():
                print(f"\r{i}/{len(jobs)} ", end="" if i < len(jobs) else "\n", file=sys.stderr, flush=True)
            yield run


def interval(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean, by the t distribution."""
    if len(values) < 2:
        return 0.0
    n = len(values) - 1
    exact = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
    z = 1.959964
    t = exact.get(n) or z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
    return t * stdev(values) / math.sqrt(len(values))


# The rig ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One load of the rig over all seeds; or the mean over the loads."""

    load: str
    share: float
    plus_minus: float
    xenna: dict[str, float]
    of_steady: float
    of_bound: float
    of_limit: float
    started: float
    lost_s: float

    @property
    def over_best(self) -> float:
        return self.share - max(self.xenna.values(), default=self.share)


def rig(args: argparse.Namespace) -> int:
    loads = read_loads(args.loads)
    figures = {entry["name"]: entry.get("share_of_optimum", {}) for entry in json.loads(Path(args.loads).read_text())}
    seeds = range(1, args.seeds + 1)
    runs = list(play_all([(load, seed, args.profile, True) for load in loads for seed in seeds], args.jobs))
    rows = [_row(load.name, figures[load.name], [run for run in runs if run.load == load.name]) for load in loads]
    means_of = _mean_row(rows)
    print(f"{args.seeds} seeds for each load{', with a profile within 30 %' if args.profile else ''}\n")
    print(table([*rows, means_of]))
    misses = missed(rows, means_of, args.profile, [run for run in runs if run.aborted or run.failed])
    print("\n" + ("missed:\n" + "\n".join(f"- {miss}" for miss in misses) if misses else "all targets are met"))
    return 1 if misses else 0


def _row(name: str, figures: dict[str, float], runs: Sequence[Run]) -> Row:
    shares = [run.of_optimum for run in runs]
    return Row(
        name,
        fmean(shares),
        interval(shares),
        {key: figures[key] for key in XENNA if key in figures},
        fmean(run.of_steady for run in runs),
        fmean(run.of_bound for run in runs),
        fmean(run.of_limit for run in runs),
        fmean(run.started for run in runs),
        max(run.lost_s for run in runs),
    )


def _mean_row(rows: Sequence[Row]) -> Row:
    def mean(field: Callable[[Row], float]) -> float:
        return fmean(field(row) for row in rows)

    known = [key for key in XENNA if all(key in row.xenna for row in rows)]
    return Row(
        "mean",
        mean(lambda row: row.share),
        # The loads are what they are, not a sample: only chance within each one is uncertain.
        math.sqrt(sum(row.plus_minus**2 for row in rows)) / len(rows),
        {key: fmean(row.xenna[key] for row in rows) for key in known},
        mean(lambda row: row.of_steady),
        mean(lambda row: row.of_bound),
        mean(lambda row: row.of_limit),
        mean(lambda row: row.started),
        max(row.lost_s for row in rows),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    titles = ["load", "share of optimum", *(f"Xenna {short}" for short in XENNA.values()), "over the best of them"]
    titles += ["of steady bound", "of bound", "of limit", "workers started", "work lost, s"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        bold = "**" if row.load == "mean" else ""
        cells = [row.load, f"{bold}{row.share:.3f}{bold} ± {row.plus_minus:.3f}"]
        cells += [f"{row.xenna[key]:.3f}" if key in row.xenna else "-" for key in XENNA]
        cells += [f"{row.over_best:+.3f}" if row.xenna else "-"]
        cells += [f"{x:.3f}" if x else "-" for x in (row.of_steady, row.of_bound, row.of_limit)]
        cells += [f"{row.started:,.0f}", f"{row.lost_s:g}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def missed(rows: Iterable[Row], over_all: Row, profile: bool, failed: Sequence[Run] = ()) -> list[str]:
    """Which targets are missed, in words."""
    misses = [
        f"mean share of optimum {over_all.share:.3f} is not above Xenna {XENNA[key]}: {figure:.3f}"
        for key, figure in over_all.xenna.items()
        if over_all.share <= figure
    ]
    for row in rows:
        misses += [
            f"{row.load}: {row.share:.3f} is more than {BELOW} below Xenna {XENNA[key]}: {figure:.3f}"
            for key, figure in row.xenna.items()
            if row.share < figure - BELOW
        ]
        if row.of_bound < OF_BOUND[profile]:
            known = f"{row.of_bound:.3f} of the bound" if row.of_bound else "its bound is not known"
            misses.append(f"{row.load}: {known}; the target is {OF_BOUND[profile]}")
        if row.lost_s:
            misses.append(f"{row.load}: {row.lost_s:g} s of work lost")
    misses += [f"{run.load}, seed {run.seed}: {run.aborted or f'{run.failed} tasks failed'}" for run in failed]
    return misses


# Random loads -------------------------------------------------------------------------------------------------------


def random(args: argparse.Namespace) -> int:
    seeds = range(args.seed, args.seed + args.loads)
    runs = list(play_all([(random_load(seed), seed, args.profile, False) for seed in seeds], args.jobs))
    if args.out:
        _write(Path(args.out), runs)
    known = sorted((run for run in runs if run.of_bound), key=lambda run: run.of_bound)
    print(f"{len(runs)} random loads from seed {args.seed}{', with a profile within 30 %' if args.profile else ''}\n")
    print("| | mean | p10 | worst |\n|---|---|---|---|")
    for name, values in (
        ("share of bound", [run.of_bound for run in known]),
        ("share of optimum", sorted(run.of_optimum for run in runs if run.of_optimum)),
        ("share of limit", sorted(run.of_limit for run in runs if run.of_limit)),
    ):
        if values:
            print(f"| {name} | {fmean(values):.3f} | {values[len(values) // 10]:.3f} | {values[0]:.3f} |")
    lost = sum(run.lost_s for run in runs)
    print(f"\nwork lost {lost:g} s; most of the budget ever used {max(run.peak_of_budget for run in runs):.3f}")
    for run in [run for run in runs if run.aborted or run.failed]:
        print(f"seed {run.seed}: {run.aborted or f'{run.failed} tasks failed'}")
    for run in (known or sorted(runs, key=lambda run: -run.idle_s / run.makespan_s))[:5]:
        print("\n" + explain(run))
    return 0


def explain(run: Run) -> str:
    """The figures that explain a run."""
    load = random_load(run.seed)
    nodes = ", ".join(
        f"{n} x {node.cpus:g}c{node.gpus}g" + (f" (speeds {node.cpu_speed:g}, {node.gpu_speed:g})" if i else "")
        for i, (node, n) in enumerate(Counter(load.nodes).items())
    )
    lines = [
        f"seed {run.seed}: {run.of_bound:.3f} of the bound, {fmt.duration(run.makespan_s)}; {load.inputs:,} inputs on "
        f"{nodes}; {run.started:,} workers started, {run.decisions:,} decisions",
        f"  bottleneck {run.bottleneck}: busy {run.bottleneck_busy:.1%}; its usual workers did not work for "
        f"{fmt.duration(max(run.idle_s, 0))}, of which {fmt.duration(run.missing_first_s)} for lack of workers in the "
        f"first tenth and {fmt.duration(run.missing_last_s)} in the last",
        "  stage   cpus  gpus   mean s    cv  setup s  outputs  workers in each tenth",
    ]
    for stage in load.stages:
        mark = ">" if stage.name == run.bottleneck else " "
        workers = " ".join(f"{n:g}" for n in run.workers[stage.name])
        lines.append(
            f"{mark} {stage.name:6}  {stage.cpus:4g}  {stage.gpus:4g}  {stage.mean_s:7g}  {stage.cv:4g}  "
            f"{stage.setup_s:7g}  {stage.outputs_per_input:7g}  {workers}"
        )
    lines += [f"  {x.stage} takes x{x.mean_factor:g} after {x.after_tasks:,} tasks" for x in load.changes]
    return "\n".join(lines)


def _write(path: Path, runs: Sequence[Run]) -> None:
    entries = [asdict(run) for run in runs]
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".json":
            json.dump(entries, file, indent=1)
            return
        writer = csv.DictWriter(file, [name for name in entries[0] if name != "workers"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(entries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    on_rig = commands.add_parser("rig", help="the loads that Xenna was run on")
    on_rig.add_argument("--seeds", type=int, default=20)
    on_rig.add_argument("--loads", default=str(LOADS), metavar="PATH")
    on_random = commands.add_parser("random", help="random loads")
    on_random.add_argument("--loads", type=int, default=300)
    on_random.add_argument("--seed", type=int, default=1, help="of the first load")
    on_random.add_argument("--out", metavar="FILE", help="write all runs to a .csv or .json file")
    for command in (on_rig, on_random):
        command.add_argument("--profile", action="store_true", help="start from a profile within 30 %%")
        command.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args()
    began = time.perf_counter()
    status = {"rig": rig, "random": random}[args.command](args)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(x.ru_utime + x.ru_stime for x in used)
    print(f"\n{fmt.duration(cpu)} of CPU, {fmt.duration(time.perf_counter() - began)}")
    return status


if __name__ == "__main__":
    sys.exit(main())

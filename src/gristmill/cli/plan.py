"""``gristmill plan`` with a job: measure, simulate, and print the forecast."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill.capacity.advice import describe, total
from gristmill.capacity.errors import CapacityError
from gristmill.capacity.plan import CapacityPlan, PlanRequest, plan_capacity
from gristmill.capacity.sampling import SampleLimits
from gristmill.cli.run import load
from gristmill.cli.target import UsageError
from gristmill.errors import PipelineError, PlanError
from gristmill.metrics import format as fmt
from gristmill.scheduling.simulator.loads import LoadError, parse_nodes

OK = 0


def plan_job(args: argparse.Namespace) -> int:
    """Plan a job and print the forecast."""
    width = max(60, min(100, shutil.get_terminal_size((80, 24)).columns))
    if args.save_profile:
        _check_writable(args.save_profile)
    try:
        nodes = parse_nodes(args.nodes) if args.nodes is not None else ()
    except LoadError as error:
        raise UsageError(f"--nodes: {error}") from None
    pipeline, tasks = load(args.target, args.set)
    options = {"num_cpus": args.cpus, "num_gpus": args.gpus, "memory_limit": args.memory_limit}
    standard = SampleLimits()
    request = PlanRequest(
        data=args.data,
        nodes=nodes,
        gpu=args.gpu,
        cpu_speed=args.cpu_speed or 1.0,
        profile=args.profile,
        limits=SampleLimits(
            args.sample or standard.share,
            args.sample_documents or standard.documents,
            args.sample_seconds or standard.seconds,
        ),
        deadline_s=args.deadline,
        started_s=_since_start_s(),
        store=not args.no_profile_store,
    )
    try:
        plan = plan_capacity(
            pipeline,
            request,
            None if tasks is None else list(tasks),
            {key: value for key, value in options.items() if value is not None},
        )
    except (CapacityError, PlanError) as error:
        raise UsageError(fmt.clean(str(error))) from error
    except PipelineError as error:
        raise UsageError(f"the job cannot be planned: {fmt.clean(str(error))}") from error
    if args.save_profile:
        _save(plan, args.save_profile)
    if args.json:
        print(json.dumps(_finite(plan.to_dict()), indent=1))
    else:
        print("\n".join(lines(plan, width)))
    return OK


def _since_start_s() -> float:
    """Return the time since this process was started; 0 where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


def _check_writable(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or os.path.isdir(path):
        raise UsageError(f"--save-profile: {path} cannot be written: name a file in a folder that exists")


def _save(plan: CapacityPlan, path: str) -> None:
    """Write the measurements so that both ``plan --profile`` and ``run --profile`` can read them."""
    content = {**plan.run.to_dict(), **plan.run.profile().to_dict()}
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"--save-profile: {path} cannot be written: {error.strerror}") from None


def lines(plan: CapacityPlan, width: int) -> list[str]:
    """Return the forecast as text."""
    job, p = plan.job, plan.prediction
    what = f"{job.inputs:,} {'blocks' if job.source_bytes else 'tasks'}"
    if job.source_bytes:
        what += f", {fmt.size(job.source_bytes)}, about {job.documents:,} documents"
    head = f"{fmt.clean(plan.name)}: {what} on {total(job.nodes)}"
    found = textwrap.wrap(head, width, subsequent_indent="  ")
    for note in plan.notes:
        found += textwrap.wrap(f"  {fmt.clean(note)}", width, subsequent_indent="  ")
    found.append("")
    rows = [*_times(plan), *_sizes(plan)]
    for name, value, note in rows:
        start = f"  {name:<16}  {value:<10}"
        found += textwrap.wrap(f"{start}  {note}".rstrip(), width, subsequent_indent=" " * 30)
    found += ["", *_steps(plan, width), ""]
    worst = p.bottleneck
    found += textwrap.wrap(
        f"  first bottleneck: {fmt.clean(worst.name)}, which occupies {_share(worst.resource_share)} of the "
        f"{worst.resource} time",
        width,
        subsequent_indent="    ",
    )
    for line in _advice(plan):
        found += textwrap.wrap(f"  {fmt.clean(line)}", width, subsequent_indent="    ")
    return found


def _times(plan: CapacityPlan) -> Iterator[tuple[str, str, str]]:
    p = plan.prediction
    yield "time", fmt.duration(p.seconds), f"{fmt.duration(p.low_s)} to {fmt.duration(p.high_s)}"
    if len(p.phases_s) > 1 or p.decided_s:
        phases = ", ".join(fmt.duration(s) for s in p.phases_s)
        yield "  phases", fmt.duration(sum(p.phases_s)), f"{phases}, one after the other"
    if p.decided_s:
        yield "  decisions", fmt.duration(sum(p.decided_s)), "between the phases"
    yield "  start and end", fmt.duration(p.fixed_s), "measured; the same for any amount of data"
    yield "CPU time", fmt.duration(p.cpu_s), ""
    yield "share of optimum", _share(p.share_of_optimum), "of the best steady throughput, while tasks run"
    for name, share in p.busy.items():
        yield f"{name}s busy", _share(share), ""


def _sizes(plan: CapacityPlan) -> Iterator[tuple[str, str, str]]:
    nodes = plan.job.nodes
    smallest = min(node.memory for node in nodes)
    workers = plan.prediction.workers_per_node
    yield (
        "peak memory",
        fmt.size(plan.memory_bytes),
        f"per node, with {workers:,} worker{'s' * (workers != 1)}; a node has {fmt.size(smallest)}",
    )
    known = [("output", plan.output_bytes), ("excluded", plan.excluded_bytes), ("temporary", plan.temporary_bytes)]
    parts = [f"{name} {fmt.size(size)}" for name, size in known if size > 0]
    if plan.output_bytes >= 0:
        yield "disk", fmt.size(sum(size for _, size in known if size > 0)), ", ".join(parts)
    elif plan.temporary_bytes:
        yield "disk", "not known", ", ".join(parts)


def _steps(plan: CapacityPlan, width: int) -> list[str]:
    rows = [("step", "workers", "busy", "of the cluster")]
    for use in plan.prediction.steps:
        share = f"{_share(use.resource_share)} of {use.resource}s"
        rows.append((fmt.clean(use.name), f"{use.workers:,}", _share(use.busy_share), share))
    widths = [max(fmt.width(row[i]) for row in rows) for i in range(4)]
    names = max(8, min(widths[0], width - 2 - sum(w + 2 for w in widths[1:])))
    found = []
    for row in rows:
        name = fmt.shorten(row[0], names)
        cells = "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))
        found.append(f"  {name}{' ' * (names - fmt.width(name))}{cells}")
    return found


def _advice(plan: CapacityPlan) -> Iterator[str]:
    for more in plan.more:
        gain = f"{more.gain:.0%} sooner" if more.gain >= 0.01 else "no gain"
        yield f"one more node of {describe(more.node)}: {fmt.duration(more.seconds)}, {gain}"
    if plan.blocks is not None:
        yield plan.blocks.text
    yield from (one.text for one in plan.bands)
    yield from plan.batches
    for cluster in plan.clusters:
        within = f"within {fmt.duration(plan.deadline_s or 0)}"
        if cluster.nodes:
            yield f"{within}: {cluster.nodes:,}x{describe(cluster.node)} take {fmt.duration(cluster.seconds)}"
        else:
            yield (
                f"{within}: no number of nodes of {describe(cluster.node)} is enough; more of them do not help beyond "
                f"{fmt.duration(cluster.seconds)}"
            )


def _share(share: float) -> str:
    return f"{share * 100:.1f} %"


def _finite(value: Any) -> Any:
    """Return ``value`` without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

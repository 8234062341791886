"""``gristmill simulate``: play a load in virtual time and print the results."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gristmill.cli.target import UsageError
from gristmill.metrics import chart
from gristmill.metrics import format as fmt
from gristmill.scheduling.profile import Profile, ProfileError
from gristmill.scheduling.simulator import LoadError, SimulationResult, check, read_loads, simulate
from gristmill.scheduling.simulator.loads import Load, NodeModel, on_nodes, parse_nodes

FIRST_DECISIONS, LAST_DECISIONS = 22, 8


def simulate_loads(args: argparse.Namespace) -> bool:
    """Simulate the loads of a file and print the results. Return whether all were completed."""
    glyphs = fmt.UNICODE if fmt.can_show(sys.stdout, "".join(fmt.UNICODE)) else fmt.ASCII
    width = args.width or max(40, shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80)
    try:
        loads = read_loads(args.load)
        if args.nodes is not None:
            elsewhere = parse_nodes(args.nodes)
            loads = [on_nodes(load, elsewhere) for load in loads]
        if args.inputs is not None:
            loads = [replace(load, inputs=args.inputs, ideal_s=0.0) for load in loads]
        known = Profile.read(args.profile) if args.profile is not None else None
        results = []
        for i, load in enumerate(loads):
            check(load)
            if not args.json:
                _print([""] * bool(i) + heading(load, args.seed, width))
            results.append(simulate(load, args.seed, known))
            if not args.json:
                _print(["", *report(results[-1], width, glyphs)])
    except (LoadError, ProfileError) as error:
        raise UsageError(fmt.clean(str(error))) from error
    except RecursionError:
        raise UsageError(f"{args.load} is nested too deeply to be a load") from None
    if args.json:
        plain = [_finite(result.to_dict()) for result in results]
        print(json.dumps(plain[0] if len(plain) == 1 else plain, indent=1))
    elif len(results) > 1:
        _print(["", f"all {len(results)} loads", *overview(results, width, glyphs)])
    return not any(result.aborted for result in results)


def heading(load: Load, seed: int, width: int) -> list[str]:
    """Return the job, its nodes and the seed."""
    alike = Counter(load.nodes).items()
    nodes = "; ".join(f"{n:,} {'node' if n == 1 else 'nodes'} of {_describe(node)}" for node, n in alike)
    text = f"{fmt.clean(load.name)}: {load.inputs:,} inputs, {len(load.stages)} stages, {nodes}; seed {seed}"
    return _wrap(text, width, "  ")


def _describe(node: NodeModel) -> str:
    gpus = f" and {node.gpus} GPU{'s' * (node.gpus != 1)}" if node.gpus else ""
    speeds = [f"{what} x{speed:g}" for what, speed in (("CPU", node.cpu_speed), ("GPU", node.gpu_speed)) if speed != 1]
    return f"{node.cpus:g} CPU{'s' * (node.cpus != 1)}{gpus}" + (f" ({', '.join(speeds)})" if speeds else "")


def report(result: SimulationResult, width: int, glyphs: fmt.Glyphs) -> list[str]:
    """Return one result: its figures, its stages, their workers over time, and the balancer's decisions."""
    lines = [*figures(result, width, glyphs), "", *stage_table(result, width, glyphs)]
    own = [(stage.name, stage.timeline) for stage in result.stages if stage.timeline]
    if own and result.makespan_s > 0:
        lines += ["", *_wrap("workers over time; at the end of each row its highest point", width)]
        lines += chart.draw(own, result.makespan_s, width, glyphs)
    lines += ["", *decisions(result, width)]
    return [fmt.cut(line.rstrip(), width, glyphs.ellipsis) for line in lines]


def figures(result: SimulationResult, width: int, glyphs: fmt.Glyphs) -> list[str]:
    peak, budget = result.peak_queue_bytes, result.budget_bytes
    rows = [
        ("makespan", fmt.duration(result.makespan_s), ""),
        (
            "share of optimum",
            _known(result.share_of_optimum),
            f"of {fmt.duration(result.ideal_s)} at the best steady throughput, setups and filling free"
            if result.share_of_optimum
            else "",
        ),
        ("workers started", f"{result.workers_started:,}", ""),
        ("work lost", fmt.duration(result.work_lost_s), ""),
        ("peak queue", fmt.size(peak), f"{_share(peak / budget)} of the budget of {fmt.size(budget)}"),
        ("events", f"{result.events:,}", f"hash {result.event_hash}"),
    ]
    if result.tasks_failed:
        rows.append(("tasks failed", f"{result.tasks_failed:,}", ""))
    values = max(fmt.width(value) for name, value, _ in rows if name != "makespan")
    lines = []
    for name, value, note in rows:
        start = f"  {name:<16}  {value:<{values}}"
        lines += _wrap(f"{start}  {note}", width, " " * (len(start) + 2)) if note else [start]
    if result.aborted:
        lines += _wrap(f"  stopped early: {fmt.clean(result.aborted)}", width, "    ")
    return lines


def stage_table(result: SimulationResult, width: int, glyphs: fmt.Glyphs) -> list[str]:
    rows = [["stage", "workers", "most", "started", "tasks", "busy"]]
    failed = any(stage.tasks_failed for stage in result.stages)
    for stage in result.stages:
        own = stage.workers_started > 0
        rows.append(
            [
                fmt.clean(stage.name),
                fmt.count(chart.usual(stage.timeline, result.makespan_s)) if own else "shared",
                fmt.count(chart.most(stage.timeline, result.makespan_s)) if own else "-",
                fmt.count(stage.workers_started) if own else "-",
                fmt.count(stage.tasks_done),
                _share(stage.busy_share) if own and stage.available_s else "-",
            ]
        )
    if failed:
        rows[0].append("failed")
        for row, stage in zip(rows[1:], result.stages, strict=True):
            row.append(fmt.count(stage.tasks_failed))
    return _table(rows, width, glyphs)


def overview(results: Sequence[SimulationResult], width: int, glyphs: fmt.Glyphs) -> list[str]:
    """Return one line for each load."""
    rows = [["load", "makespan", "optimum", "started", "lost", "peak"]]
    for result in results:
        rows.append(
            [
                fmt.clean(result.load),
                fmt.duration(result.makespan_s),
                _known(result.share_of_optimum, "-"),
                fmt.count(result.workers_started),
                fmt.duration(result.work_lost_s),
                _share(result.peak_queue_bytes / result.budget_bytes),
            ]
        )
    return _table(rows, width, glyphs)


def decisions(result: SimulationResult, width: int) -> list[str]:
    """Return the balancer's decisions with reasons; of many, the first and the last ones."""
    made = result.decisions
    lines = [f"{len(made):,} decisions of the balancer" if made else "the balancer had nothing to decide"]
    hidden = len(made) - FIRST_DECISIONS - LAST_DECISIONS
    before = ""
    for i, decision in enumerate(made):
        if hidden > 1 and i == FIRST_DECISIONS:
            lines += _wrap(f"{'':9}... and {hidden:,} more (--json has all)", width, " " * 9)
            before = ""
        if hidden > 1 and FIRST_DECISIONS <= i < FIRST_DECISIONS + hidden:
            continue
        at = fmt.clock(decision.at_us / 1e6)
        lines += _wrap(f"{at if at != before else '':>7}  {fmt.clean(decision.text)}", width, " " * 11)
        before = at
    return lines


def _table(rows: Sequence[Sequence[str]], width: int, glyphs: fmt.Glyphs) -> list[str]:
    """Return a table: a first column of names, which are shortened if necessary, and columns of figures."""
    widths = [max(fmt.width(row[i]) for row in rows) for i in range(len(rows[0]))]
    names = max(8, min(widths[0], width - 2 - sum(w + 2 for w in widths[1:])))
    lines = []
    for row in rows:
        name = fmt.shorten(row[0], names, glyphs.ellipsis)
        cells = "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))
        lines.append(f"  {name}{' ' * (names - fmt.width(name))}{cells}")
    return lines


def _share(share: float) -> str:
    return f"{share * 100:.1f} %" if share else "0 %"


def _known(share: float, otherwise: str = "not known") -> str:
    return _share(share) if share and math.isfinite(share) else otherwise


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, drop_whitespace=True) or [""]


def _print(lines: Sequence[str]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    """Return ``value`` without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Sections about time: the steps and stages, workers and decisions, throughput, memory, backpressure, GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from gristmill.metrics.format import size, span
from gristmill.report.page.charts import Limit, Line, Mark, bar, lines
from gristmill.report.page.text import escaped, number
from gristmill.report.place import Data
from gristmill.report.steps import RunStep, steps_of

MOST_STEPS = 100
MOST_LISTED = 100
LONGEST_NAME = 60


def stages(data: Data) -> Iterator[str]:
    """Yield the table of steps and their stages."""
    steps = steps_of(data)
    if not steps:
        return
    whole = sum(float(stage.get("busy_s") or 0) for step in steps for stage in step.accounts) or 1.0
    heads = ("tasks", "items in", "out", "failed", "time", "", "busy", "per task", "(max)", "workers", "memory")
    yield '<div class="scroll"><table class="times"><tr><th>stage</th>'
    yield "".join(f'<th class="n">{head}</th>' for head in heads) + "</tr>"
    for step in steps[:MOST_STEPS]:
        for position, stage in enumerate(step.accounts):
            yield _stage(step, stage, position, whole)
    yield "</table></div>"
    yield (
        '<p class="soft small">Time is the work of all workers. Fused stages, with +, run in one step: the figures of '
        "the step are in the row of its first stage.</p>"
    )


def _stage(step: RunStep, stage: Data, position: int, whole: float) -> str:
    time = float(stage.get("busy_s") or 0)
    own = [f"{number(stage.get(name, 0))}" for name in ("tasks_in", "items_in", "items_out")]
    failed = int(stage.get("tasks_failed") or 0)
    of_step = ["", "", "", "", ""]
    if position == 0:
        stats, peak = step.stats, int(step.stats.get("peak_worker_bytes") or step.asks.get("peak_worker_bytes") or 0)
        share = step.busy_share
        of_step = [
            "-" if share is None else f"{share:.0%}".replace("%", " %"),
            span(float(stats["service_s_mean"])) if stats else "-",
            span(float(stats["service_s_max"])) if stats else "-",
            str(step.most_workers or "-"),
            size(peak) if peak else "-",
        ]
    cells = [*own, number(failed), span(time)]
    drawn = f'<td class="bar">{bar(time / whole)}</td>'
    return (
        f"<tr><td>{'+ ' * (position > 0)}<bdi>{escaped(str(stage.get('name'))[:200])}</bdi></td>"
        + "".join(f'<td class="n">{cell}</td>' for cell in cells)
        + drawn
        + "".join(f'<td class="n">{cell}</td>' for cell in of_step)
        + "</tr>"
    )


def over_time(data: Data) -> Iterator[str]:
    """Yield the charts of each plan."""
    plans = data.get("plans") or []
    shown = False
    for number_, plan in enumerate(plans, 1):
        if len(plan["series"]["at_s"]) < 2:
            continue
        shown = True
        if len(plans) > 1:
            yield f"<h3>Phase {number_} of {len(plans)}</h3>"
        yield from _charts(plan)
    if not shown:
        yield "<p>The run was too short for charts.</p>"


def _charts(plan: Data) -> Iterator[str]:
    series = plan["series"]
    times = series["at_s"]
    names = _names([str(step["name"]) for step in plan["steps"]])
    marks = [Mark(float(one["at_s"]), str(one["text"])) for one in plan.get("decisions") or ()]
    busy = [Line(name, one["busy"]) for name, one in zip(names, series["steps"], strict=True)]
    workers = [*busy]
    for state in ("idle", "starting", "draining"):
        of_all = [sum(column) for column in zip(*(one[state] for one in series["steps"]), strict=True)]
        workers += [Line(state, of_all)] if any(of_all) else []
    yield '<div class="two">'
    yield lines("Workers by step", times, workers, marks=marks, stacked=True)
    yield _throughput(plan, times, names)
    yield _memory(plan, times)
    yield _in_flight(plan, times)
    yield from _backpressure(plan, times, names)
    yield from _gpus(plan, times)
    yield "</div>"
    yield _listed(plan)


def _names(names: Sequence[str]) -> list[str]:
    return [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in names]


def _throughput(plan: Data, times: Sequence[float], names: Sequence[str]) -> str:
    series = plan["series"]
    made = [("items of " + name, one["items_done"]) for name, one in zip(names, series["steps"], strict=True)]
    if any(series["read"]):
        made = [("documents read", series["read"]), ("documents kept", series["kept"])]
    drawn = [Line(name, rates(times, counts)) for name, counts in made]
    return lines("Throughput per second", times, drawn)


def rates(times: Sequence[float], counts: Sequence[float]) -> list[float]:
    """Return the growth per second up to each time, smoothed over 5 points."""
    grown = [0.0]
    for (before, n), (at, m) in pairwise(zip(times, counts, strict=True)):
        grown.append(max(0.0, m - n) / (at - before) if at > before else 0.0)
    return [sum(part) / len(part) for part in (grown[max(0, i - 4) : i + 1] for i in range(len(grown)))]


def _memory(plan: Data, times: Sequence[float]) -> str:
    values, unit = _scaled(plan["series"]["memory_bytes"])
    limit = int(plan.get("memory_limit") or 0)
    level = limit / _scale(plan["series"]["memory_bytes"])
    drawn = [Line("all processes", values)]
    return lines("Memory of the run", times, drawn, unit, Limit(level, f"limit {size(limit)}") if limit else None)


def _in_flight(plan: Data, times: Sequence[float]) -> str:
    series = plan["series"]
    both = [*series["held_bytes"], *series["reserved_bytes"]]
    _, unit = _scaled(both)
    scale = _scale(both)
    drawn = [
        Line("held by tasks", [one / scale for one in series["held_bytes"]]),
        Line("reserved for outputs", [one / scale for one in series["reserved_bytes"]]),
    ]
    budget = int(plan.get("budget_bytes") or 0)
    return lines(
        "Bytes in flight",
        times,
        drawn,
        unit,
        Limit(budget / scale, f"budget {size(budget)}") if budget else None,
        stacked=True,
    )


def _scale(values: Sequence[float]) -> int:
    highest = max(values, default=0)
    return 1 << 30 if highest >= 1 << 30 else 1 << 20 if highest >= 1 << 20 else 1 << 10


def _scaled(values: Sequence[float]) -> tuple[list[float], Callable[[float], str]]:
    scale = _scale(values)
    name = {1 << 30: "GB", 1 << 20: "MB", 1 << 10: "kB"}[scale]
    return [value / scale for value in values], lambda value: f"{value:,.4g} {name}"


def _backpressure(plan: Data, times: Sequence[float], names: Sequence[str]) -> Iterator[str]:
    """Yield the share of time in which steps waited, where there is any."""
    for field, title in (("waiting_s", "Waiting for input"), ("blocked_s", "Blocked by output")):
        drawn = []
        for name, one in zip(names, plan["series"]["steps"], strict=True):
            shares = [min(100.0, 100 * rate) for rate in rates(times, one[field])]
            if max(shares, default=0) >= 1:
                drawn.append(Line(name, shares))
        if drawn:
            yield lines(f"{title}, share of time", times, drawn, lambda value: f"{value:.0f} %", top=100.0)


def _gpus(plan: Data, times: Sequence[float]) -> Iterator[str]:
    gpus = plan.get("gpus") or ()
    if not gpus:
        return
    rows = plan["series"]["gpu_busy_percent"]
    drawn = [Line(f"GPU {gpu['index']}", [row[i] if i < len(row) else 0 for row in rows]) for i, gpu in enumerate(gpus)]
    yield lines("GPU utilization", times, drawn, lambda value: f"{value:.0f} %", top=100.0)
    rows = plan["series"]["gpu_memory_bytes"]
    most = max((int(gpu["memory_total"]) for gpu in gpus), default=0) / (1 << 30)
    drawn = [
        Line(f"GPU {gpu['index']}", [row[i] / (1 << 30) if i < len(row) else 0 for row in rows])
        for i, gpu in enumerate(gpus)
    ]
    yield lines(
        "GPU memory", times, drawn, lambda value: f"{value:.3g} GB", Limit(most, f"memory of a GPU {most:.3g} GB")
    )


def _listed(plan: Data) -> str:
    decisions = plan.get("decisions") or ()
    if not decisions:
        return ""
    total = int(plan.get("decisions_total") or len(decisions))
    rows = "".join(
        f'<tr><td class="n">{float(one["at_s"]):.1f} s</td><td>{escaped(one["text"])}</td></tr>'
        for one in decisions[:MOST_LISTED]
    )
    more = f", the first {MOST_LISTED}" if total > MOST_LISTED else ""
    return f"<details><summary>{total:,} decisions of the balancer{more}</summary><table>{rows}</table></details>"

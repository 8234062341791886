"""Make the Grafana dashboard that comes with gristmill: ``src/gristmill/metrics/stack/dashboard.json``.

    python scripts/make_dashboard.py           # write it
    python scripts/make_dashboard.py --check   # fail if the file is not what this script makes

It needs grafana-foundation-sdk (``pip install '.[dev]'``). Names of metrics come from the table of metrics, so that a
panel cannot ask for one that does not exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

from gristmill.metrics import metric_table as m
from gristmill.metrics.openmetrics import Metric

TARGET = Path(__file__).parents[1] / "src" / "gristmill" / "metrics" / "stack" / "dashboard.json"
WIDTH = 24
RATE = "[$__rate_interval]"


@dataclass(frozen=True)
class Query:
    """A query and the legend of its lines."""

    expr: str
    legend: str = "{{step}}"


@dataclass(frozen=True)
class Graph:
    """Lines over time."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    description: str = ""
    stacked: bool = False
    most: float | None = None
    width: int = 8


@dataclass(frozen=True)
class Number:
    """One number per run."""

    title: str
    expr: str
    unit: str = "short"
    red_above: float | None = None
    decimals: int | None = None
    width: int = 3


def of(metric: Metric, **labels: str) -> str:
    """Return a selector of a metric for the runs that are shown."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'{metric.name}{{run=~"$run"{more}}}'


def rate(metric: Metric, **labels: str) -> str:
    return f"rate({of(metric, **labels)}{RATE})"


def by(labels: str, expr: str) -> str:
    return f"sum by ({labels}) ({expr})"


def quantile(share: float) -> str:
    bucket = f'{m.UNIT_SECONDS.name}_bucket{{run=~"$run"}}'
    return f"histogram_quantile({share}, sum by (run, step, le) (rate({bucket}{RATE})))"


NUMBERS = (
    Number("Runs under way", f"sum({of(m.RUN_STATE, state='running')})"),
    Number("Progress", f"max by (run, pipeline) ({of(m.PROGRESS)})", "percentunit", decimals=1),
    Number("Documents read", by("run, pipeline", of(m.READ_SO_FAR))),
    Number("Documents kept", by("run, pipeline", of(m.KEPT_SO_FAR))),
    Number("Share of optimum", of(m.SHARE), "percentunit", decimals=0),
    Number("Tasks given up", by("run, pipeline", of(m.FAILURES)), red_above=1),
    Number("Workers died", by("run, pipeline", of(m.WORKER_DEATHS)), red_above=1),
    Number("Blocks that do not add up", by("run, pipeline", of(m.PROBLEMS)), red_above=1),
)

ROWS: dict[str, Sequence[Graph]] = {
    "Throughput and latency": (
        Graph("Items per second", [Query(by("run, step", rate(m.ITEMS_DONE)))], "ops"),
        Graph("Tasks per second", [Query(by("run, step", rate(m.TASKS_DONE)))], "ops"),
        Graph(
            "Share of optimum",
            [Query(of(m.SHARE), "{{pipeline}}")],
            "percentunit",
            "Throughput of the bottleneck, compared with what the balancer's current plan allows.",
        ),
        Graph(
            "Latency, median and 95 %",
            [Query(quantile(0.5), "{{step}} 50 %"), Query(quantile(0.95), "{{step}} 95 %")],
            "s",
            "How long a worker took for a batch of tasks.",
        ),
        Graph(
            "Time per task by stage",
            [
                Query(
                    f"{by('run, stage', rate(m.STAGE_BUSY))} / ({by('run, stage', rate(m.STAGE_TASKS_IN))} > 0)",
                    "{{stage}}",
                )
            ],
            "s",
        ),
        Graph(
            "The bottleneck",
            [Query(by("run, step", of(m.BOTTLENECK)))],
            description="1 for the step that limits throughput.",
            most=1,
        ),
    ),
    "Workers": (
        Graph("Workers by step", [Query(by("run, step", of(m.WORKERS)))], stacked=True),
        Graph("Workers by state", [Query(by("run, state", of(m.WORKERS)), "{{state}}")], stacked=True),
        Graph(
            "Workers, and those that the balancer plans",
            [
                Query(f"{by('run, step', of(m.WORKERS))} and on (run, step) {of(m.WORKERS_PLANNED)}", "{{step}}"),
                Query(by("run, step", of(m.WORKERS_PLANNED)), "{{step}}, planned"),
            ],
        ),
        Graph(
            "Busy workers",
            [Query(by("run, step", rate(m.BUSY_SECONDS)))],
            description="Mean number of workers at work, counted when work is finished.",
        ),
        Graph("Workers started", [Query(by("run, step", of(m.WORKERS_STARTED)))]),
        Graph("Time for setups", [Query(by("run, step", of(m.SETUP_SECONDS)))], "s"),
    ),
    "Queues and backpressure": (
        Graph("Tasks in queues", [Query(by("run, step", of(m.QUEUE_TASKS)))]),
        Graph("Bytes in queues", [Query(by("run, step", of(m.QUEUE_BYTES)))], "bytes", stacked=True),
        Graph(
            "Waiting time of tasks",
            [Query(f"{by('run, step', rate(m.QUEUE_SECONDS))} / ({by('run, step', rate(m.TASKS_DONE))} > 0)")],
            "s",
        ),
        Graph("Waiting for input", [Query(by("run, step", rate(m.WAITING_SECONDS)))], "percentunit", most=1),
        Graph("Blocked by output", [Query(by("run, step", rate(m.BLOCKED_SECONDS)))], "percentunit", most=1),
        Graph("Bytes per second to the next step", [Query(by("run, step", rate(m.OUTPUT_BYTES)))], "Bps"),
    ),
    "Memory": (
        Graph(
            "Memory of the run",
            [Query(by("run, pipeline", of(m.MEMORY)), "used"), Query(by("run, pipeline", of(m.MEMORY_LIMIT)), "limit")],
            "bytes",
        ),
        Graph("Memory of workers by step", [Query(by("run, step", of(m.WORKER_MEMORY)))], "bytes", stacked=True),
        Graph(
            "Byte budget",
            [
                Query(by("run, pipeline", of(m.HELD)), "held"),
                Query(by("run, pipeline", of(m.RESERVED)), "reserved"),
                Query(by("run, pipeline", of(m.BUDGET)), "budget"),
            ],
            "bytes",
        ),
    ),
    "GPUs": (
        Graph("GPU utilization", [Query(of(m.GPU_USE), "GPU {{gpu}}")], "percentunit", most=1),
        Graph(
            "GPU memory",
            [Query(of(m.GPU_MEMORY), "GPU {{gpu}}"), Query(of(m.GPU_SIZE), "GPU {{gpu}}, size")],
            "bytes",
        ),
        Graph("GPU memory by step", [Query(by("run, step", of(m.GPU_WORKERS)))], "bytes", stacked=True),
    ),
    "Failures": (
        Graph("Tasks that failed", [Query(by("run, step", of(m.TASKS_FAILED)))]),
        Graph("Retries", [Query(by("run, step", of(m.RETRIES)))]),
        Graph("Workers that died", [Query(by("run, step", of(m.WORKER_DEATHS)))]),
    ),
    "Documents": (
        Graph(
            "Dropped, by reason", [Query(by("run, stage, reason", of(m.DOCUMENTS_DROPPED)), "{{stage}}: {{reason}}")]
        ),
        Graph("Errored, by reason", [Query(by("run, reason", of(m.DOCUMENTS_ERRORED)), "{{reason}}")]),
        Graph(
            "Ledger",
            [
                Query(by("run, pipeline", of(m.DOCUMENTS_READ)), "read"),
                Query(by("run, pipeline", of(m.DOCUMENTS_KEPT)), "kept"),
                Query(by("run, pipeline", of(m.BALANCE)), "without an outcome"),
            ],
        ),
    ),
}


def graph(x: Graph) -> timeseries.Panel:
    panel = timeseries.Panel().title(x.title).description(x.description).unit(x.unit).min(0)
    panel.height(7).span(x.width).line_width(1).fill_opacity(30 if x.stacked else 0)
    panel.show_points(common.VisibilityMode.NEVER)
    panel.legend(
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
    )
    panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    if x.stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if x.most is not None:
        panel.max(x.most)
    for ref, query in zip("ABC", x.queries, strict=False):
        panel.with_target(prometheus.Dataquery().expr(query.expr).legend_format(query.legend).range().ref_id(ref))
    return panel


def number(x: Number) -> stat.Panel:
    panel = stat.Panel().title(x.title).unit(x.unit).height(4).span(x.width)
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.graph_mode(common.BigValueGraphMode.NONE)
    steps = [models.Threshold(value=None, color="green")]
    if x.red_above is not None:
        steps.append(models.Threshold(value=x.red_above, color="red"))
    panel.thresholds(boards.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    if x.decimals is not None:
        panel.decimals(x.decimals)
    return panel.with_target(prometheus.Dataquery().expr(x.expr).legend_format("{{pipeline}}").range().ref_id("A"))


def variable(name: str, label: str, query: str) -> boards.QueryVariable:
    return (
        boards.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(models.DataSourceRef(type_val="prometheus", uid="$datasource"))
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_DESC)
        .multi(True)
        .include_all(True)
    )


def dashboard() -> dict[str, Any]:
    """Return the dashboard as plain values."""
    board = (
        boards.Dashboard("gristmill")
        .uid("gristmill")
        .tags(["gristmill"])
        .description("Runs of gristmill: throughput, workers, queues, memory, GPUs, failures and documents.")
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(boards.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("pipeline", "Pipeline", f"label_values({m.RUN_INFO.name}, pipeline)"))
        .with_variable(variable("run", "Run", f'label_values({m.RUN_INFO.name}{{pipeline=~"$pipeline"}}, run)'))
    )
    for x in NUMBERS:
        board.with_panel(number(x).datasource(models.DataSourceRef(type_val="prometheus", uid="$datasource")))
    for title, graphs in ROWS.items():
        board.with_row(boards.Row(title))
        for one in graphs:
            board.with_panel(graph(one).datasource(models.DataSourceRef(type_val="prometheus", uid="$datasource")))
    plain: dict[str, Any] = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    return plain


def text() -> str:
    return json.dumps(dashboard(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() != text():
            sys.exit(f"{TARGET} is not what this script makes: run python scripts/make_dashboard.py")
        return
    TARGET.write_text(text())
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()

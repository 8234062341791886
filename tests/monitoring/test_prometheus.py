"""A real Prometheus, started by ``gristmill metrics up``, scrapes real runs."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.monitoring import stages
from tests.monitoring.servers import MetricsUp, wait_for

from gristmill.backends.local import LocalExecutor
from gristmill.metrics import metric_table as m
from gristmill.metrics.discovery import PATTERN
from gristmill.metrics.exposition import SHARED
from gristmill.metrics.openmetrics import HISTOGRAM, label_value
from gristmill.pipeline.monitoring import MetricsOptions
from gristmill.pipeline.result import RunResult

OF_GPUS = {x.name for x in (m.GPU_USE, m.GPU_MEMORY, m.GPU_SIZE, m.GPU_WATTS, m.GPU_WORKERS)}
"""Only a machine with GPUs has these. `test_exposition.py` tests them with moments that were written by hand."""
OPTIONS = {"view": "off", "num_cpus": 2, "ignore_failures": True}


def run(folder: Path, up: MetricsUp, executor: Any = None, **of_pipeline: Any) -> RunResult:
    """Run a pipeline, from when Prometheus has found it until it has stored the final values."""
    pipeline = stages.pipeline_of(folder, **of_pipeline)
    options = MetricsOptions(0, folder=str(up.runs), linger_s=60)

    def begin() -> None:
        wait_for(lambda: up.query(f'{m.RUN_STATE.name}{{pipeline="{pipeline.name}"}}'), "Prometheus to find the run")
        (folder / "notes" / stages.GO).touch()

    found = threading.Thread(target=begin)
    found.start()
    result = pipeline.run(executor or LocalExecutor(OPTIONS), metrics_port=options, report=True)
    found.join()
    final = f'{m.RUN_STATE.name}{{pipeline="{pipeline.name}",state="succeeded"}}'
    wait_for(lambda: [value for _, value in up.last(final)] == [1], "the final values")
    return result


@pytest.fixture(scope="module")
def folder_of_local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local")


@pytest.fixture(scope="module")
def local(folder_of_local: Path, metrics_up: MetricsUp) -> tuple[RunResult, str]:
    """A run on this machine, and a selector of its metrics."""
    folder = folder_of_local
    return run(folder, metrics_up), f'{{pipeline="pipeline of {folder.name}"}}'


def by_label(found: list[tuple[dict[str, str], float]], *labels: str) -> dict[Any, float]:
    keys = [tuple(metric.get(label, "") for label in labels) for metric, _ in found]
    assert len(set(keys)) == len(keys), found
    return {key if len(labels) > 1 else key[0]: value for key, (_, value) in zip(keys, found, strict=True)}


def check_report(up: MetricsUp, folder: Path, selector: str) -> None:
    """The final values are those of the run's report."""
    report = json.loads((folder / "out" / "_gristmill" / "report.json").read_text())
    documents = report["documents"]
    for name in ("read", "made", "kept", "merged"):
        assert up.value(f"gristmill_documents_{name}_total{selector}") == documents[name], name
    assert up.value(m.DOCUMENTS_FAILED.name + selector) == documents["failed"]
    dropped = by_label(up.last(m.DOCUMENTS_DROPPED.name + selector), "stage")
    assert dropped == {stage: n for stage, _, n in documents["dropped"]} != {}
    steps = {step["name"]: step for plan in report["plans"] for step in plan["steps"]}
    for metric, value in (
        (m.TASKS_DONE, "tasks_done"),
        (m.ITEMS_DONE, "items_done"),
        (m.TASKS_FAILED, "tasks_failed"),
        (m.RETRIES, "retries"),
        (m.BUSY_SECONDS, "busy_s"),
        (m.SETUPS, "setups"),
    ):
        found = by_label(up.last(metric.name + selector), "step")
        assert found == {name: pytest.approx(step[value]) for name, step in steps.items()}, metric.name
    assert up.value(m.FAILURES.name + selector) == report["failures_total"]


def check_documents(up: MetricsUp, result: RunResult, selector: str) -> None:
    """The final counters of documents are those of the result, and the ledger balances."""
    assert result.ledger is not None
    total = result.ledger.total()
    assert up.value(m.DOCUMENTS_READ.name + selector) == total.documents > 0
    assert up.value(m.DOCUMENTS_KEPT.name + selector) == total.kept > 0
    assert up.value(m.DOCUMENTS_FAILED.name + selector) == total.failed > 0
    assert up.value(m.FAILURES.name + selector) == result.record.failures_total > 0
    assert up.value(m.BALANCE.name + selector) == 0
    assert up.value(m.PROBLEMS.name + selector) == 0
    dropped = by_label(up.last(m.DOCUMENTS_DROPPED.name + selector), "stage", "reason")
    shown = stages.DropShort.REASON.replace("\n", "\\n")  # a label has one line
    assert dropped == {("drop_short", shown): total.dropped["drop_short", stages.DropShort.REASON]}
    errored = by_label(up.last(m.DOCUMENTS_ERRORED.name + selector), "reason")
    assert sum(errored.values()) == total.errored.total() > stages.BAD_RECORDS


def check_steps(up: MetricsUp, result: RunResult, selector: str) -> None:
    """The final counters of steps and stages are those of the result."""
    for number, step in enumerate(result.record.steps):
        of_step = selector.replace("}", f',step="{label_value(step.name)}"}}')
        first, last = step.stages[0], step.stages[-1]
        assert up.value(m.TASKS_DONE.name + of_step) == first.tasks_done
        done = first.items_in - first.items_failed if number else first.items_out  # the items of a reader are documents
        assert up.value(m.ITEMS_DONE.name + of_step) == done > 0
        assert up.value(m.UNIT_SECONDS.name + "_count" + of_step) == step.units > 0
        buckets = by_label(up.last(m.UNIT_SECONDS.name + "_bucket" + of_step), "le")
        assert buckets["+Inf"] == step.units
        in_order = [buckets[bound] for bound in sorted(buckets, key=float)]
        assert in_order == sorted(in_order)
        tasks_out = by_label(up.last(m.STAGE_TASKS_OUT.name + of_step), "stage")
        assert tasks_out[last.name] == last.tasks_out


def test_every_metric_of_the_table_is_there(local: tuple[RunResult, str], metrics_up: MetricsUp) -> None:
    _, selector = local
    found = {metric["__name__"] for metric, _ in metrics_up.last(selector)}
    expected = {
        f"{x.name}_{part}" if part else x.name
        for x in m.METRICS
        for part in (("bucket", "sum", "count") if x.kind == HISTOGRAM else ("",))
        if x.name not in OF_GPUS and x is not m.STAGE_COUNTS
    }
    assert found == expected


def test_the_final_counters_are_those_of_the_result(local: tuple[RunResult, str], metrics_up: MetricsUp) -> None:
    result, selector = local
    check_documents(metrics_up, result, selector)
    check_steps(metrics_up, result, selector)


def test_the_final_counters_are_those_of_the_report(
    local: tuple[RunResult, str], metrics_up: MetricsUp, folder_of_local: Path
) -> None:
    check_report(metrics_up, folder_of_local, local[1])


def test_what_only_the_scheduler_knows_is_that_of_the_result(
    local: tuple[RunResult, str], metrics_up: MetricsUp
) -> None:
    result, selector = local
    record = result.record
    trouble = next(step for step in record.steps if step.name == "trouble")
    assert sum(by_label(metrics_up.last(m.WORKER_DEATHS.name + selector), "step").values()) == record.worker_deaths > 0
    started = by_label(metrics_up.last(m.WORKERS_STARTED.name + selector), "step")
    assert started["trouble"] == trouble.workers_started
    assert started[SHARED] > 0
    retries = by_label(metrics_up.last(m.RETRIES.name + selector), "step")
    assert retries["trouble"] in (2, 3)  # one task failed once, one lost its worker, in which another may have waited
    busy = by_label(metrics_up.last(m.BUSY_SECONDS.name + selector), "step")["trouble"]
    assert busy == pytest.approx(trouble.service_s_mean * trouble.stages[0].tasks_done, rel=1e-6)
    peak = by_label(metrics_up.last(m.WORKER_PEAK.name + selector), "step")
    assert peak["trouble"] == trouble.peak_worker_bytes
    assert metrics_up.query(f"max_over_time({m.MEMORY.name}{selector}[10m])")[0][1] <= record.peak_memory_bytes
    assert metrics_up.value(m.BUDGET.name + selector) == record.budget_bytes


def test_workers_by_state_and_the_plan_are_those_of_the_run(
    local: tuple[RunResult, str], metrics_up: MetricsUp
) -> None:
    _, selector = local
    of_step = selector.replace("}", ',step="trouble"}')
    most = metrics_up.query(f"max_over_time(sum by (step) ({m.WORKERS.name}{of_step})[10m:1s])")
    assert 1 <= most[0][1] <= 3  # two, and for a moment a third that replaces a dead one
    states = by_label(metrics_up.query(f"max_over_time({m.WORKERS.name}{of_step}[10m])"), "state")
    assert set(states) == {"busy", "idle", "starting", "draining"}
    assert states["busy"] >= 1
    assert metrics_up.query(f"max_over_time({m.WORKERS_PLANNED.name}{of_step}[10m])")[0][1] == 2
    bottleneck = by_label(metrics_up.query(f"max_over_time({m.BOTTLENECK.name}{selector}[10m])"), "step")
    assert bottleneck["trouble"] == 1


def test_the_share_of_optimum_is_that_of_rates(local: tuple[RunResult, str], metrics_up: MetricsUp) -> None:
    """PromQL gets about the same from the rate of tasks and the interval of the optimum."""
    _, selector = local
    share = metrics_up.query(f"avg_over_time({m.SHARE.name}{selector}[10m])")[0][1]
    assert 0 < share < 2


def test_the_run_ends_as_succeeded_and_its_target_is_gone(local: tuple[RunResult, str], metrics_up: MetricsUp) -> None:
    _, selector = local
    states = by_label(metrics_up.last(m.RUN_STATE.name + selector), "state")
    assert states == {"running": 0, "succeeded": 1, "failed": 0, "interrupted": 0}
    assert not list(metrics_up.runs.glob(PATTERN))
    wait_for(lambda: not metrics_up.targets(), "Prometheus to forget the run")


def test_every_query_of_the_dashboard_returns_data(local: tuple[RunResult, str], metrics_up: MetricsUp) -> None:
    """Of all panels, over the time of the run. Those of GPUs are tested where there is a moment with GPUs."""
    _, selector = local
    assert not empty_panels(metrics_up, selector)


def empty_panels(up: MetricsUp, selector: str) -> list[tuple[str, str]]:
    """Return title and query of panels that show nothing of a run at any time."""
    ((info, _),) = up.last(m.RUN_INFO.name + selector)
    asked = [one for one in panel_queries(up.folder, info["run"]) if not any(name in one[1] for name in OF_GPUS)]
    return [(title, expr) for title, expr in asked if not up.query(f"count_over_time(({expr})[10m:1s])")]


def panel_queries(folder: Path, run: str) -> list[tuple[str, str]]:
    """Return the title of each panel and its queries, with the variables filled in."""
    board = json.loads((folder / "grafana" / "dashboards" / "gristmill.json").read_text())
    panels = [x for panel in board["panels"] for x in (panel, *panel.get("panels", ()))]
    found = [
        (panel["title"], target["expr"].replace("$run", run).replace("$__rate_interval", "8s"))
        for panel in panels
        for target in panel.get("targets", ())
    ]
    assert len(found) > 30
    assert not any("$" in expr for _, expr in found)
    return found


def test_variables_of_the_dashboard_list_the_runs(local: tuple[RunResult, str], metrics_up: MetricsUp) -> None:
    board = json.loads((metrics_up.folder / "grafana" / "dashboards" / "gristmill.json").read_text())
    queries = [x["query"] for x in board["templating"]["list"] if x["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        found = re.fullmatch(r"label_values\(([^{]+)({.*})?, (\w+)\)", query)
        assert found is not None
        assert found[1] == m.RUN_INFO.name
        assert metrics_up.get(f"label/{found[3]}/values", **{"match[]": found[1]})


def test_two_runs_at_a_time_are_kept_apart(tmp_path: Path, metrics_up: MetricsUp) -> None:
    results: dict[str, RunResult] = {}

    def one(name: str, documents: int) -> None:
        results[name] = run(tmp_path / name, metrics_up, documents=documents, seconds=0.1)

    names = {"first": 400, "second": 800}
    threads = [threading.Thread(target=one, args=x) for x in names.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = set()
    for name in names:
        selector = f'{{pipeline="pipeline of {name}"}}'
        check_documents(metrics_up, results[name], selector)
        runs |= {metric["run"] for metric, _ in metrics_up.last(m.RUN_INFO.name + selector)}
    assert len(runs) == 2

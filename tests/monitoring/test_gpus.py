"""Metrics of GPUs in a real Prometheus. The moment is written by hand: no GPU was available."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.metrics.test_exposition import moment_of, view_of
from tests.monitoring.servers import MetricsUp, wait_for
from tests.monitoring.test_prometheus import OF_GPUS, by_label, panel_queries

from gristmill.metrics import metric_table as m
from gristmill.metrics.discovery import TargetFile
from gristmill.metrics.endpoint import MetricsEndpoint
from gristmill.metrics.exposition import render

VIEW = replace(view_of(moment_of()), run="with-gpus", pipeline="with GPUs")


@pytest.fixture(scope="module")
def scraped(metrics_up: MetricsUp) -> Iterator[str]:
    endpoint = MetricsEndpoint("127.0.0.1", 0, lambda openmetrics: render(VIEW, openmetrics))
    target = TargetFile(metrics_up.runs, VIEW.run, endpoint.address)
    wait_for(lambda: endpoint.scrapes > 3, "Prometheus to scrape")
    yield '{pipeline="with GPUs"}'
    target.remove()
    endpoint.close()


def test_utilization_memory_and_the_steps_that_hold_it_are_there(scraped: str, metrics_up: MetricsUp) -> None:
    assert metrics_up.value(m.GPU_USE.name + scraped) == 0.98
    assert metrics_up.value(m.GPU_MEMORY.name + scraped) == 9 << 30
    assert metrics_up.value(m.GPU_SIZE.name + scraped) == 80 << 30
    assert metrics_up.value(m.GPU_WATTS.name + scraped) == 412.5
    assert by_label(metrics_up.last(m.GPU_WORKERS.name + scraped), "gpu", "step") == {("0", "step"): 5 << 30}


def test_the_panels_of_gpus_show_them(scraped: str, metrics_up: MetricsUp) -> None:
    queries = [
        (title, expr)
        for title, expr in panel_queries(metrics_up.folder, VIEW.run)
        if any(name in expr for name in OF_GPUS)
    ]
    assert len(queries) == 4
    assert [title for title, expr in queries if not metrics_up.query(expr)] == []

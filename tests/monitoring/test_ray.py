"""A real Prometheus scrapes runs on Ray. The driver exposes the whole run, and the bridges what they know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.monitoring.servers import MetricsUp
from tests.monitoring.test_prometheus import by_label, check_documents, check_report, check_steps, empty_panels, run

from gristmill.backends.xenna.executor import ENVIRONMENT
from gristmill.core.environment import reread_environment
from gristmill.metrics import metric_table as m

pytestmark = pytest.mark.usefixtures("ray_session")

SMALL = {"documents": 800, "seconds": 0.1}
NOT_ON_BRIDGES = (
    m.MEMORY,
    m.WORKER_MEMORY,
    m.BUDGET,
    m.SHARE,
    m.OPTIMUM,
    m.WORKERS_PLANNED,
)


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    """Start Ray with four CPUs, some of them only declared, on loopback. All runs of this module use it."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    from tests.backends.slow_starts import start_ray

    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    reread_environment()
    try:
        start_ray(
            num_cpus=4,
            object_store_memory=200 << 20,
            include_dashboard=find_spec("cosmos_xenna") is not None,
            dashboard_host="127.0.0.1",
            _node_ip_address="127.0.0.1",
            namespace="metrics",
        )
        yield
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
        reread_environment()


def names(up: MetricsUp, selector: str) -> set[str]:
    return {metric["__name__"] for metric, _ in up.last(selector)}


def test_the_driver_of_a_run_on_ray_exposes_the_whole_run(tmp_path: Path, metrics_up: MetricsUp) -> None:
    from gristmill.backends.ray import RayExecutor

    folder = tmp_path / "on ray"
    result = run(folder, metrics_up, RayExecutor({"view": "off", "ignore_failures": True}), **SMALL)
    selector = f'{{pipeline="pipeline of {folder.name}"}}'
    check_documents(metrics_up, result, selector)
    check_steps(metrics_up, result, selector)
    assert {x.name for x in NOT_ON_BRIDGES} <= names(metrics_up, selector)
    trouble = next(step for step in result.record.steps if step.name == "trouble")
    started = by_label(metrics_up.last(m.WORKERS_STARTED.name + selector), "step")
    assert started["trouble"] == trouble.workers_started
    deaths = by_label(metrics_up.last(m.WORKER_DEATHS.name + selector), "step")
    assert sum(deaths.values()) == result.record.worker_deaths > 0
    memory = metrics_up.query(f"max_over_time({m.MEMORY.name}{selector}[10m])")
    assert memory[0][1] > 10 << 20
    check_report(metrics_up, folder, selector)
    assert not empty_panels(metrics_up, selector), "every query of the dashboard returns data"


@pytest.mark.parametrize("name", ["ray_data", "xenna"])
def test_bridges_expose_what_their_accounts_know(name: str, tmp_path: Path, metrics_up: MetricsUp) -> None:
    folder = tmp_path / name
    kills = name != "xenna"  # Xenna ends the run when a worker dies
    result = run(folder, metrics_up, executor_of(name), workers=1, kills=kills, **SMALL)
    selector = f'{{pipeline="pipeline of {name}"}}'
    check_documents(metrics_up, result, selector)
    check_steps(metrics_up, result, selector)
    deaths = by_label(metrics_up.last(m.WORKER_DEATHS.name + selector), "step")
    assert sum(deaths.values()) == result.record.worker_deaths == kills
    retries = by_label(metrics_up.last(m.RETRIES.name + selector), "step")
    assert retries["trouble"] == 1
    assert not {x.name for x in NOT_ON_BRIDGES} & names(metrics_up, selector)
    busy = metrics_up.query(f"max_over_time({m.WORKERS.name}{selector}[10m])")
    assert any(metric["state"] == "busy" and value > 0 for metric, value in busy)


def executor_of(name: str) -> Any:
    from gristmill.backends.executors import make_executor

    pytest.importorskip({"ray_data": "ray.data", "xenna": "cosmos_xenna"}[name])
    options = {"view": "off", "ignore_failures": True}
    if name == "xenna":
        options |= {"cpu_allocation_percentage": 1.0}
    return make_executor(name, options)

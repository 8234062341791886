"""Real Prometheus servers, started by ``gristmill metrics up``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.monitoring.servers import MetricsUp, free_port


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return found


@pytest.fixture(scope="session")
def start_metrics_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., MetricsUp]]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    started: list[MetricsUp] = []

    def start() -> MetricsUp:
        folder, port = tmp_path_factory.mktemp("servers"), free_port()
        runs = folder / "runs"
        command = [sys.executable, "-m", "gristmill", "metrics", "up", "--dir", folder, "--port", port, "--runs", runs]
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        up = MetricsUp(process, folder, runs, port)
        started.append(up)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("watching runs"):
                return up
        raise AssertionError("metrics up ended:\n" + "".join(lines))

    yield start
    for up in started:
        if up.process.poll() is None:
            up.stop()


@pytest.fixture(scope="session")
def metrics_up(start_metrics_up: Callable[..., MetricsUp]) -> MetricsUp:
    """One server for all tests of a session: each test looks only at its own runs."""
    return start_metrics_up()

"""A bridge that finds no cluster starts one of its own and leaves nothing of it behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import psutil
import pytest

from gristmill.backends.ray_data import RayDataExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task


@dataclass
class Number(Task[int]):
    data: int = 0


@processing_stage
def twice(task: Number) -> list[Number]:
    return [Number(data=task.data), Number(data=-task.data)]


@processing_stage
def double(task: Number) -> Number:
    return Number(data=2 * task.data)


@pytest.mark.timeout(600)
def test_a_cluster_that_is_started_for_a_run_ends_with_it(monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    result = Pipeline("p", stages=[twice, double]).run(RayDataExecutor(), [Number(data=n) for n in range(3)])
    assert [t.data for t in result] == [0, 0, 2, -2, 4, -4]
    assert not ray.is_initialized()
    assert not [p for p in psutil.Process().children(recursive=True) if p.pid not in before]


XENNA = """
from tests.backends.ray.test_own_cluster import Number, double, twice
from gristmill.backends.xenna import XennaExecutor
from gristmill.core.client import RayClient
from gristmill.pipeline import Pipeline

client = RayClient(num_cpus=4, start_timeout_s=500)  # a step needs a CPU, whatever this machine has
client.start()
result = Pipeline("p", stages=[twice, double]).run(XennaExecutor(), [Number(data=n) for n in range(3)])
print("data", sorted(t.data for t in result))
client.stop()
"""


@pytest.mark.timeout(600)
def test_xenna_runs_on_a_cluster_that_a_client_started():
    """In a process of its own: Xenna changes how this one logs and handles signals."""
    pytest.importorskip("cosmos_xenna", reason="Xenna is not installed: pip install 'gristmill[xenna]'")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="gmt-", dir="/tmp") as folder:
        environment |= {"RAY_TMPDIR": folder, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", XENNA], env=environment, capture_output=True, text=True, timeout=550, check=False
        )
    assert "data [-4, -2, 0, 0, 2, 4]" in done.stdout, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0
    assert re.search(r"^gristmill: \d+:\d\d, tasks: \d+ done, 0 open$", done.stderr, re.MULTILINE), done.stderr[-4000:]

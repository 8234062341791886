"""A cluster that others have too: from outside by ``ray://``, and several runs on it at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")

from gristmill.core.client import RayClient

CPUS = 3
SCRIPT = """
import sys
from tests.backends.ray.stages import Noted, Trace
from gristmill import Pipeline, Resources
from gristmill.backends.ray import RayExecutor

address, tasks, seconds, share = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
result = Pipeline("shared", stages=[Noted("one", Resources(cpus=1), seconds)]).run(
    RayExecutor({"address": address, "cpu_allocation_percentage": share, "view": "off"}),
    initial_tasks=[Trace() for _ in range(tasks)],
)
import ray
print("DONE", len(result), "connected", ray.is_initialized())
"""


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[str, str]]:
    """The address of a cluster inside and from outside."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with RayClient(num_cpus=CPUS, num_gpus=0, address="local", ray_client_server_port=port) as client:
        yield str(client.at), f"ray://127.0.0.1:{port}"


def start(folder: Path, address: str, tasks: int, seconds: float, share: float) -> subprocess.Popen[str]:
    (folder / "job.py").write_text(SCRIPT)
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), str(root / "src")])
    return subprocess.Popen(
        [sys.executable, str(folder / "job.py"), address, str(tasks), str(seconds), str(share)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def all_came(job: subprocess.Popen[str], tasks: int) -> None:
    said, _ = job.communicate()
    assert job.returncode == 0, said
    assert f"DONE {tasks} connected False" in said


@pytest.mark.timeout(600)
def test_a_run_from_outside_the_cluster(at: tuple[str, str], tmp_path: Path) -> None:
    for _ in range(3):
        job = start(tmp_path, at[1], 30, 0.01, 1.0)
        said, _ = job.communicate()
        if "Starting Ray client server failed" not in said:  # Ray gives its own server little time on a busy machine
            break
    assert job.returncode == 0, said
    assert "DONE 30 connected False" in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_two_runs_share_a_cluster(at: tuple[str, str], tmp_path: Path, share: float) -> None:
    """Side by side if there is room for both, one after the other if the first has reserved it all."""
    jobs = [start(tmp_path, at[0], 40, 0.1, share) for _ in range(2)]
    for job in jobs:
        all_came(job, 40)

"""A cluster that others have too: from outside by ``ray://``, and several runs on it at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")

from gristmill.core import clusters
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


REFUSE = """
import os, sys
if "--mode=proxy" in sys.orig_argv:
    from ray.util.client.server.proxier import ProxyManager
    start = ProxyManager.start_specific_server

    def start_or_fail(self, client_id, job_config):
        for name in os.listdir({folder!r}):
            os.unlink(os.path.join({folder!r}, name))
            raise ProcessLookupError("the server of this client has ended")
        return start(self, client_id, job_config)

    ProxyManager.start_specific_server = start_or_fail
"""
"""For ``sitecustomize``: Ray fails to start the server of a client of ``ray://``, once for each file in a folder."""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: for each file in it, one server of a client does not start."""
    return tmp_path_factory.mktemp("refusals")


@pytest.fixture(scope="module")
def at(refusals: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a cluster inside and from outside."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = tmp_path_factory.mktemp("code")
    (code / "sitecustomize.py").write_text(REFUSE.format(folder=str(refusals)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(code), prepend=os.pathsep)
        client = RayClient(
            num_cpus=CPUS, num_gpus=0, address="local", ray_client_server_port=port, include_dashboard=False
        ).start()
    with client:
        outside = f"ray://127.0.0.1:{port}"
        until = time.monotonic() + 120
        while not clusters.listens(outside) and time.monotonic() < until:
            time.sleep(0.2)  # Ray's server for clients starts after the node
        yield str(client.at), outside


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
    all_came(start(tmp_path, at[1], 30, 0.01, 1.0), 30)


@pytest.mark.timeout(600)
def test_a_client_tries_again_when_its_server_does_not_start(
    at: tuple[str, str], refusals: Path, tmp_path: Path
) -> None:
    (refusals / "first").touch()
    all_came(start(tmp_path, at[1], 3, 0.01, 1.0), 3)
    assert not list(refusals.iterdir())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_two_runs_share_a_cluster(at: tuple[str, str], tmp_path: Path, share: float) -> None:
    """At the same time if both fit, one after the other if the first has reserved everything."""
    jobs = [start(tmp_path, at[0], 40, 0.1, share) for _ in range(2)]
    for job in jobs:
        all_came(job, 40)

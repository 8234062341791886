"""The end of a cluster's processes: also of those that left its session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill.core.client import RayClient

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sub-reapers are Linux's"),
    pytest.mark.timeout(600),  # a busy machine takes a minute to start Ray
]

RUNAWAY = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
"""
TASK = f"""
import subprocess, sys, ray
ray.init(logging_level="error", log_to_driver=False)
ray.get(ray.remote(subprocess.check_call).remote([sys.executable, "-c", {RUNAWAY!r}, sys.argv[1]]))
"""


def test_a_process_that_left_the_session_of_a_task_ends_with_the_cluster(ray_home: Path) -> None:
    pytest.importorskip("ray")
    note = ray_home / "pid"
    client = RayClient(num_cpus=1, address="local", object_store_memory="100MB", include_dashboard=False)
    with client:
        subprocess.run([sys.executable, "-c", TASK, str(note)], check=True, timeout=300)
        until = time.monotonic() + 300
        while not note.exists() and time.monotonic() < until:
            time.sleep(0.01)
        runaway = Path("/proc", note.read_text())
        assert runaway.exists()
    assert not runaway.exists()
    assert list(ray_home.glob("gm-ray-*")) == []


@pytest.mark.parametrize("killed", ["ray_head.py", "raylet/raylet"])
def test_nothing_is_left_of_a_node_when_one_of_its_processes_is_killed(
    ray_home: Path, processes: Callable[[Path], list[str]], leftovers: Callable[[], list[str]], killed: str
) -> None:
    dashboard = killed == "ray_head.py"  # once with all processes that there can be
    with RayClient(num_cpus=1, address="local", object_store_memory="100MB", include_dashboard=dashboard):
        (line,) = [line for line in processes(ray_home) if killed in line]
        os.kill(int(line.split()[0]), signal.SIGKILL)
        until = time.monotonic() + 300
        while processes(ray_home) and time.monotonic() < until:
            time.sleep(0.1)
        assert processes(ray_home) == []
    assert leftovers() == []

"""Runs that start a cluster of their own, and what they leave behind: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")

SCRIPT = """
import sys, time
from tests.backends.ray.stages import Noted, Trace
from gristmill import Pipeline, Resources
from gristmill.backends.ray import RayExecutor

tasks, seconds = int(sys.argv[1]), float(sys.argv[2])
stages = [Noted("one", Resources(cpus=1), seconds), Noted("two", Resources(cpus=0.5), 0.0, workers=1)]
result = Pipeline("alone", stages=stages).run(
    RayExecutor({"num_cpus": 2, "num_gpus": 0, "view": "lines", "logging_interval": 1}),
    initial_tasks=[Trace() for _ in range(tasks)],
)
print("DONE", len(result))
"""


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    (folder / "job.py").write_text(SCRIPT)
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), str(root / "src")])
    return subprocess.Popen(
        [sys.executable, str(folder / "job.py"), *arguments],
        env={**os.environ, "PYTHONPATH": path, "RAY_TMPDIR": str(folder), "RAY_ADDRESS": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def left_behind(folder: Path) -> list[str]:
    """Processes that have to do with a cluster whose files are in a folder."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                command = Path("/proc", name, "cmdline").read_bytes()
                environment = Path("/proc", name, "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command + environment:
                found.append(command.replace(b"\0", b" ").decode()[:100])
    return found


def nothing_is_left(folder: Path) -> None:
    until = time.monotonic() + 120  # a limit for hangs only
    while (found := left_behind(folder)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not found


@pytest.fixture
def folder() -> Path:
    """A short path: sockets are made in it."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="gm-t-", dir="/tmp"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_run_without_a_cluster_has_one_of_its_own(folder: Path, mode: str) -> None:
    job = start(folder, "20", "0.01", RAY_AUTH_MODE=mode)
    said, _ = job.communicate()
    assert job.returncode == 0, said
    assert "DONE 20" in said
    nothing_is_left(folder)


@pytest.mark.timeout(600)
def test_ctrl_c_in_the_middle_ends_it_all(folder: Path) -> None:
    job = start(folder, "1000", "0.5")
    assert job.stdout is not None
    for line in job.stdout:
        if "tasks/s" in line and "0.0 tasks/s" not in line:
            break
    os.killpg(job.pid, signal.SIGINT)
    said, _ = job.communicate()
    assert job.returncode != 0
    assert "DONE" not in said
    nothing_is_left(folder)


@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_takes_its_cluster_with_it(folder: Path) -> None:
    job = start(folder, "1000", "0.5")
    assert job.stdout is not None
    for line in job.stdout:
        if "tasks/s" in line:
            break
    job.kill()
    job.communicate()
    nothing_is_left(folder)

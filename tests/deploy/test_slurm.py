"""The Slurm script with real Ray nodes: `srun` and `scontrol` are stand-ins that run everything on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.timeout(600),  # a busy machine takes a minute to start Ray
]

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "ray.sbatch"

# As many tasks as there should be, each as the command that follows the options; signals go to all of them.
SRUN = """#!/usr/bin/env python3
import os, signal, subprocess, sys
args = sys.argv[1:]
options = {}
while args[0].startswith("--"):
    name, _, value = args.pop(0).partition("=")
    options[name] = value
assert "--overlap" in options, options
names = options["--nodelist"].split(",")
assert int(options["--nodes"]) == int(options["--ntasks"]) == len(names), options
if "%(fails)s" in names:
    sys.exit("srun: error: %(fails)s is down")
os.environ["SLURM_CPUS_ON_NODE"] = "1"
tasks = [subprocess.Popen(args) for _ in names]
signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
sys.exit(max(abs(task.wait()) for task in tasks))
"""
SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] && echo "$3" | tr , '\\n'
"""
# Ray's own command, but 127.0.0.1 stays what it is.
RAY = """#!{python}
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
from ray._private import services
services.resolve_ip_for_localhost = lambda host: host
from ray.scripts.scripts import main
sys.exit(main())
"""
PAYLOAD = """
import os, sys, ray
ray.init(logging_level="error", log_to_driver=False)
names = {node["NodeManagerAddress"] for node in ray.nodes()}
print("payload", len(ray.nodes()), int(ray.cluster_resources()["CPU"]), names, len(os.environ["RAY_AUTH_TOKEN"]))
sys.exit(7)
"""


class Job:
    """A job whose processes and folder carry its name."""

    def __init__(self, folder: Path, nodes: str, fails: str = "-") -> None:
        self.ident = f"test-{os.getpid()}-{folder.name[-3:]}"
        self.folder = Path(f"/tmp/gm-ray-{self.ident}")
        for name, text in {
            "srun": SRUN.replace("%(fails)s", fails),
            "scontrol": SCONTROL,
            "ray": RAY.format(python=sys.executable),
        }.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "SLURM_"))}
        self.environment = keep | {
            "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "SLURM_JOB_ID": self.ident,
            "SLURM_JOB_NODELIST": nodes,
            "GRISTMILL_INTERFACE": "lo",
            "GRISTMILL_WAIT_S": "90",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(SCRIPT), *command],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cancel_while_ray_starts(self) -> None:
        process = self.start("sleep", "100")
        until = time.monotonic() + 300
        while not list(self.folder.glob("session_*/logs/gcs_server.out")):
            assert time.monotonic() < until and process.poll() is None, "Ray does not start"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
        assert process.returncode != 0
        assert self.left() == []

    def left(self) -> list[str]:
        """Return what is left of the job after a moment: its folder, and its processes."""
        mark = f"SLURM_JOB_ID={self.ident}".encode()
        until = time.monotonic() + 60
        while True:
            found = [str(self.folder)] if self.folder.exists() else []
            for process in Path("/proc").iterdir():
                try:
                    if mark in (process / "environ").read_bytes().split(b"\0"):
                        found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
                except OSError:
                    pass
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.1)


# A Ray that ignores all signals after the first ones, as Ray does if it gets them while it starts.
IGNORES_SIGNALS = """#!{python}
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1) if next(received) >= {ignored} else None)
received = iter(range(1000))
session = Path(os.environ["GRISTMILL_DIR"]) / "session_x" / "logs"
session.mkdir(parents=True)
(session / "gcs_server.out").touch()
while True:
    time.sleep(1)
"""


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="gmt-", dir="/tmp") as path:
        yield Path(path)


def test_the_command_runs_on_all_nodes_and_its_status_is_the_jobs(folder: Path) -> None:
    job = Job(folder, "mill-1,mill-2")
    process = job.start(sys.executable, "-c", PAYLOAD)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 7, err
    assert "Ray runs on 2 nodes, head at 127.0.0.1:" in out
    assert "payload 2 2 {'127.0.0.1'} 64" in out
    assert job.left() == []


def test_a_cancelled_job_ends_in_order_in_every_phase(folder: Path) -> None:
    job = Job(folder, "mill-1")
    job.cancel_while_ray_starts()


@pytest.mark.parametrize("ignored", [1, 1000])
def test_a_job_whose_ray_misses_a_signal_ends_too(folder: Path, ignored: int) -> None:
    job = Job(folder, "mill-1")
    (folder / "ray").write_text(IGNORES_SIGNALS.format(python=sys.executable, ignored=ignored))
    job.cancel_while_ray_starts()


def test_a_head_that_does_not_start_is_reported(folder: Path) -> None:
    job = Job(folder, "mill-1", fails="mill-1")
    process = job.start("true")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "the head of the Ray cluster did not start on mill-1" in err
    assert job.left() == []


def test_without_a_command_it_prints_its_usage(folder: Path) -> None:
    process = Job(folder, "mill-1").start()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2 and "COMMAND..." in err

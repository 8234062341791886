"""Clusters that are lost in the middle of a run: it ends in time, says why, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.ray.test_alone import left_behind, nothing_is_left

pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")

JOB = """
import sys
from tests.backends.ray.stages import Noted, Trace
from gristmill import Pipeline, Resources
from gristmill.backends.ray import RayExecutor
from gristmill.errors import PipelineError

options = {"view": "lines", "logging_interval": 1, "cluster_timeout_s": 15}
options |= {"num_cpus": 2, "num_gpus": 0} if sys.argv[1] == "own" else {}
if sys.argv[1] == "connected":
    import ray
    ray.init(logging_level="warning")
stages = [Noted("one", Resources(cpus=1), 0.05), Noted("two", Resources(cpus=0.5), 0.0, workers=1)]
try:
    Pipeline("lost", stages=stages).run(RayExecutor(options), initial_tasks=[Trace() for _ in range(100_000)])
except PipelineError as error:
    print("RAISED", error)
    sys.exit(3)
"""
FILES = """
import sys
from tests.backends.ray.stages import SlowKeep
from gristmill import Pipeline
from gristmill.backends.local import LocalExecutor
from gristmill.backends.ray import RayExecutor
from gristmill.errors import PipelineError
from gristmill.stages.text.io import JsonlReader, JsonlWriter

where, source, output = sys.argv[1:]
options = {"view": "off", "num_cpus": 2}
stages = [JsonlReader(source, files_per_partition=1), SlowKeep(0.25), JsonlWriter(output)]
on_ray = {"num_gpus": 0, "cluster_timeout_s": 15}
executor = RayExecutor({**options, **on_ray}) if where == "ray" else LocalExecutor(options)
try:
    result = Pipeline("lost", stages=stages).run(executor)
except PipelineError as error:
    print("RAISED", error)
    sys.exit(3)
print("DONE", result.ledger.resumed)
"""
HEAD = """
import sys
from gristmill.core.client import RayClient

client = RayClient(num_cpus=2, address="local", include_dashboard=False).start()
print(client.at, flush=True)
sys.stdin.read()
client.stop()
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short path: sockets are made in it."""
    import shutil
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="gm-t-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def started(code: str, *arguments: str, folder: Path, address: str = "") -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]), "RAY_TMPDIR": str(folder)}
    environment |= {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def pids_of(program: str, folder: Path) -> list[int]:
    """The processes of a cluster that run a program of Ray's."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            environment = Path("/proc", name, "environ").read_bytes()
        except OSError:
            continue
        if command[0].endswith(program.encode()) and str(folder).encode() in environment:
            found.append(int(name))
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("whose", "program", "how"),
    [
        ("own", "gcs_server", signal.SIGKILL),
        ("own", "raylet", signal.SIGKILL),
        ("joined", "gcs_server", signal.SIGKILL),
        ("joined", "raylet", signal.SIGKILL),
        ("joined", "gcs_server", signal.SIGSTOP),
        ("connected", "gcs_server", signal.SIGSTOP),
    ],
)
def test_a_run_whose_cluster_is_lost_ends_and_says_why(
    folder: Path, whose: str, program: str, how: signal.Signals
) -> None:
    head = None
    address = ""
    if whose != "own":
        head = started(HEAD, folder=folder)
        assert head.stdout is not None
        address = head.stdout.readline().strip()
    job = started(JOB, whose, folder=folder, address=address)
    said = []
    assert job.stdout is not None
    for line in job.stdout:
        said.append(line)
        if "done" in line or "tasks (" in line:
            break
    (pid,) = pids_of(program, folder)
    os.kill(pid, how)
    try:
        rest, _ = job.communicate(timeout=400)  # a limit for hangs only
    finally:
        job.kill()
        if how is signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        if head is not None:
            head.communicate("")
    assert "RAISED 'lost' was stopped: the Ray cluster at 127.0.0.1" in rest, "".join(said) + rest
    assert "has not answered for 15 s" in rest and "run the same pipeline again" in rest
    assert job.returncode == 3, f"Ray ended the process: {rest[-2000:]}"
    nothing_is_left(folder)
    assert left_behind(folder) == []


@pytest.mark.timeout(600)
def test_the_same_pipeline_resumes_after_its_cluster_was_lost(folder: Path, tmp_path: Path) -> None:
    source, output, whole = (tmp_path / name for name in ("source", "output", "whole"))
    source.mkdir()
    for number in range(60):
        lines = "".join(json.dumps({"text": f"document {number}.{n}"}) + "\n" for n in range(20))
        (source / f"{number:03d}.jsonl").write_text(lines)
    job = started(FILES, "ray", str(source), str(output), folder=folder)
    try:
        while len(list(output.glob("_gristmill/commits/*"))) < 3 and job.poll() is None:
            time.sleep(0.1)
        for pid in pids_of("gcs_server", folder):
            os.kill(pid, signal.SIGKILL)
        said, _ = job.communicate(timeout=400)  # a limit for hangs only
    finally:
        job.kill()
    assert job.returncode == 3 and "run the same pipeline again" in said, said
    for place in (output, whole):
        again = started(FILES, "local", str(source), str(place), folder=folder)
        said, _ = again.communicate(timeout=400)
        assert again.returncode == 0, said
        assert (int(said.split("DONE ")[1]) >= 3) is (place == output), said
    assert parts(output) == parts(whole)


def parts(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}

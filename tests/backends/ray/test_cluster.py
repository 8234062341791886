"""Runs on a real Ray cluster of four nodes, which come and go."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.backends.ray.conftest import NODE
from tests.backends.ray.stages import Fatal, Noted, OncePerNode, OneBuffer, SlowKeep, Sum, Trace
from tests.backends.test_deaths import Harm, numbers

from gristmill import Pipeline, Resources
from gristmill.backends.local import LocalExecutor
from gristmill.backends.ray import RayExecutor
from gristmill.backends.ray.cluster import NodeWatch, nodes_of
from gristmill.pipeline.result import RunResult
from gristmill.stages.text.io import JsonlReader, JsonlWriter

OPTIONS = {"view": "off", "address": None}
WORDS = ["mill", "grist", "stone", "wheat", "flour"]


def traces(n: int) -> list[Trace]:
    return [Trace() for _ in range(n)]


def gpu_nodes() -> set[str]:
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")}


@pytest.mark.timeout(600)
def test_gpu_stages_run_only_where_gpus_are_and_share_them(cluster: Any) -> None:
    pipeline = Pipeline(
        "mixed",
        stages=[
            Noted("cpu", Resources(cpus=0.5), 0.02),
            Noted("half", Resources(cpus=0.1, gpus=0.5), 0.1, workers=3),
            Noted("memory", Resources(cpus=0.1, gpu_memory_gb=20), 0.1, workers=2),
        ],
    )
    result = pipeline.run(RayExecutor(OPTIONS), initial_tasks=traces(60))
    where = {name: {node for task in result for n, node, _ in task.data if n == name} for name in ("half", "memory")}
    assert len(result) == 60
    assert where["half"] <= gpu_nodes() and where["memory"] <= gpu_nodes()
    devices = Counter(device for task in result for name, _, device in task.data if name == "half")
    assert set(devices) <= {"0", "1"} and all(
        device == "" for task in result for name, _, device in task.data if name == "cpu"
    )


@pytest.mark.timeout(600)
def test_what_a_run_has_reserved_is_known_before_it_is_seen_to_be_taken(cluster: Any) -> None:
    """Else the run believes that others have taken it, and stops its own workers."""
    import ray

    whole = sum(node.cpus for node in nodes_of(ray))
    until = time.monotonic() + 300
    while sum(node.free_cpus for node in nodes_of(ray)) < whole and time.monotonic() < until:
        time.sleep(0.1)  # what the run before this one had is on its way back
    granted = threading.Event()
    seen: list[tuple[float, bool]] = []
    watch = NodeWatch(ray, lambda nodes: seen.append((sum(node.free_cpus for node in nodes), granted.is_set())))
    group = ray.util.placement_group([{"CPU": 1.0}])
    try:
        watch.await_group(group, lambda _: granted.set())
        while sum(free < whole for free, _ in seen) < 3 and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        watch.close()
        ray.util.remove_placement_group(group)
    assert [known for free, known in seen if free < whole][:3] == [True] * 3


@pytest.mark.timeout(600)
def test_a_crash_costs_the_task_at_fault_and_no_other(cluster: Any) -> None:
    pipeline = Pipeline("crash", stages=[Fatal("7")])
    result = pipeline.run(RayExecutor({**OPTIONS, "ignore_failures": True}), initial_tasks=traces(20))
    (failure,) = result.failures
    assert failure.task_id == "7" and "Segmentation fault" in failure.error
    assert sorted(int(task.task_id) for task in result) == [i for i in range(20) if i != 7]


@pytest.mark.timeout(600)
def test_a_task_that_closes_the_descriptors_of_its_worker_costs_a_bounded_number_of_workers(cluster: Any) -> None:
    executor = RayExecutor({"view": "off", "ignore_failures": True})
    result = Pipeline("cut", stages=[Harm("close_descriptors", 3)]).run(executor, numbers(6))
    assert [task.data for task in result] == [0, 1, 2, 4, 5]
    assert len(result.failures) == 1 and result.record.worker_deaths <= 30


@pytest.mark.timeout(600)
def test_a_stage_may_use_its_buffer_again(cluster: Any) -> None:
    pipeline = Pipeline("buffer", stages=[OneBuffer(), Sum()])
    result = pipeline.run(RayExecutor(OPTIONS), initial_tasks=traces(3), fuse=False)
    assert [task.data[0] for task in result] == [i * 100_000 for _ in range(3) for i in range(5)]


JOINS = """
import sys
from tests.backends.ray.stages import Noted, Trace
from gristmill import Pipeline, Resources
from gristmill.backends.ray import RayExecutor
from gristmill.errors import PipelineError

try:
    Pipeline("joins", stages=[Noted("one", Resources(cpus=1), 0.0)]).run(
        RayExecutor({"address": sys.argv[1], "view": "off"}), initial_tasks=[Trace()]
    )
except PipelineError as error:
    print("RAISED", error)
"""


@pytest.mark.timeout(600)
def test_a_cluster_that_cannot_call_the_driver_is_explained(cluster: Any) -> None:
    """The driver asks for a token and the cluster has none. Ray says only that references to an actor were removed."""
    root = Path(__file__).parents[3]
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}
    environment |= {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    command = [sys.executable, "-c", JOINS, cluster.address]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "RAISED 'joins' was stopped: nothing could be started on any node of the cluster" in said.stdout, said
    assert "The head node of the cluster cannot call this process. Check that RAY_AUTH_MODE" in said.stdout


class Run(threading.Thread):
    """Run in a thread, while the test changes the cluster: Ray requires that from the main thread."""

    def __init__(self, pipeline: Pipeline, **keywords: Any) -> None:
        super().__init__(daemon=True)
        self.pipeline = pipeline
        self.keywords = keywords
        self.found: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self.pipeline.run(RayExecutor(OPTIONS), **self.keywords)
        except BaseException as error:
            self.found = error

    def result(self) -> RunResult:
        self.join()
        if isinstance(self.found, BaseException):
            raise self.found
        assert isinstance(self.found, RunResult)
        return self.found


@pytest.mark.timeout(600)
def test_setup_on_node_runs_once_per_node_also_on_one_that_joins(cluster: Any, tmp_path: Path) -> None:
    joined: list[str] = []
    given: list[Trace] = []

    def until_it_is_used() -> Iterator[Trace]:
        """Tasks until the node that joins has done one, however long that takes on a busy machine."""
        while not (joined and (tmp_path / "used" / joined[0]).exists()) and len(given) < 10_000:
            given.append(Trace())
            yield given[-1]

    (tmp_path / "used").mkdir()
    run = Run(
        Pipeline("once", stages=[OncePerNode(str(tmp_path), 0.1)]), initial_tasks=until_it_is_used(), keep_outputs=True
    )
    while run.is_alive() and not list((tmp_path / "used").iterdir()):
        time.sleep(0.1)
    added = cluster.add_node(**NODE, num_cpus=2)
    joined.append(added.node_id)
    result = run.result()
    cluster.remove_node(added)
    notes = {file.name: file.read_text() for file in tmp_path.iterdir() if file.is_file()}
    assert len(result) == len(given)
    assert set(notes.values()) == {"x"}
    used = {node for task in result for _, node, _ in task.data}
    assert added.node_id in used, "the node that joined was not used"
    assert used <= set(notes)


def make_corpus(folder: Path) -> None:
    folder.mkdir()
    rng = random.Random(3)
    for f in range(4):
        lines = [json.dumps({"id": f"{f}-{i}", "text": " ".join(rng.choices(WORDS, k=60))}) + "\n" for i in range(1500)]
        (folder / f"{f}.jsonl").write_text("".join(lines))


def curate(source: Path, target: Path, stage: SlowKeep) -> Pipeline:
    return Pipeline("text", stages=[JsonlReader(str(source), blocksize="64KB"), stage, JsonlWriter(str(target))])


def files(folder: Path) -> dict[str, bytes]:
    """The output of a run, without the log of when it was written."""
    found = (path for path in folder.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def kill_a_worker(cluster: Any) -> bool:
    """Kill some worker of this cluster: others may run on the machine."""
    found = []
    for node in cluster.list_all_nodes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += psutil.Process(node.all_processes["raylet"][0].process.pid).children()
    workers = [process for process in found if is_worker(process)]
    if workers:
        random.choice(workers).kill()
    return bool(workers)


def is_worker(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("ray::WorkerActo") or "ray::WorkerActor" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended
        return False


@pytest.mark.timeout(600)
def test_a_lost_node_and_killed_workers_change_nothing(cluster: Any, tmp_path: Path) -> None:
    make_corpus(tmp_path / "in")
    curate(tmp_path / "in", tmp_path / "local", SlowKeep(0)).run(LocalExecutor({"num_cpus": 2, "view": "off"}))
    where = tmp_path / "where"
    where.mkdir()
    others = {node.node_id: node for node in cluster.worker_nodes}  # the head holds one worker of the three, or two
    run = Run(curate(tmp_path / "in", tmp_path / "ray", SlowKeep(0.5, str(where))))
    kills = 0
    added = None
    next_kill = 4
    while run.is_alive():
        run.join(0.3)
        done = {file.name: len(file.read_text()) for file in where.iterdir()}
        if sum(done.values()) >= next_kill:  # by work done, not by time: a slow machine must make progress too
            next_kill = sum(done.values()) + 4
            kills += kill_a_worker(cluster)
        if added is None and (worked := sorted(others.keys() & done.keys())):
            cluster.remove_node(others[worked[0]], allow_graceful=False)
            added = cluster.add_node(**NODE, num_cpus=2)
    result = run.result()
    assert added is not None
    cluster.remove_node(added)
    assert kills >= 3
    assert result.ok and not result.failures
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    assert re.search(r"^ +read +6,000 ", result.summary(), re.MULTILINE)

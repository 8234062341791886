"""The settings of workers, and when their hooks run."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gristmill.backends.local.local_config import ConfigError, LocalConfig
from gristmill.errors import PipelineFailed, PlanError
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task


@dataclass
class Numbers(Task[dict]):
    data: dict = field(default_factory=dict)


def numbers(n: int) -> list[Numbers]:
    return [Numbers(data={"n": i}) for i in range(n)]


class Diary(ProcessingStage[Numbers, Numbers]):
    """Writes down when it was set up and torn down, and where."""

    def __init__(self, folder: Path, name: str = "diary", nap: float = 0.0) -> None:
        self.folder = folder
        self.name = name
        self.nap = nap
        self.alive = False

    def note(self, what: str) -> None:
        with open(self.folder / f"{self.name}-{what}", "a") as file:
            file.write(f"{os.getpid()}\n")

    def setup_on_node(self, node_info: Any, worker_metadata: Any) -> None:
        assert node_info.node_id == "local"
        self.note("node")

    def setup(self, worker_metadata: Any) -> None:
        self.metadata = worker_metadata
        self.alive = True
        self.note("setup")

    def teardown(self) -> None:
        assert self.alive
        self.note("teardown")

    def process(self, task: Numbers) -> Numbers:
        import time

        assert self.alive
        time.sleep(self.nap)
        task.data[self.name] = [os.getpid(), self.metadata]
        return task


def read(folder: Path, name: str) -> list[int]:
    path = folder / name
    return [int(x) for x in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("fuse", [True, False])
def test_hooks_run_once_per_node_and_worker(run, tmp_path, fuse):
    result = run([Diary(tmp_path, "a", 0.01), Diary(tmp_path, "b")], numbers(40), fuse=fuse)
    assert len(result) == 40
    for name in "ab":
        assert len(read(tmp_path, f"{name}-node")) == 1
        used = {task.data[name][0] for task in result}
        set_up = read(tmp_path, f"{name}-setup")
        assert used <= set(set_up) and len(set_up) == len(set(set_up))
        assert sorted(read(tmp_path, f"{name}-teardown")) == sorted(set_up)
        assert result.stages[name].setups == result.stages[name].teardowns == len(set_up)


def test_eight_stages_three_with_setup_on_one_core(run, tmp_path):
    @processing_stage
    def plain(task: Numbers) -> Numbers:
        return task

    stages = [plain.with_(name=f"plain{i}") for i in range(5)]
    for i in range(3):
        stages.insert(2 * i + 1, Diary(tmp_path, f"diary{i}"))
    result = run(stages, numbers(50), num_cpus=1, fuse=False)
    assert len(result) == 50
    for i in range(3):
        stats = result.stages[f"diary{i}"]
        assert stats.setups == stats.teardowns == len(read(tmp_path, f"diary{i}-setup")) == 1
        assert read(tmp_path, f"diary{i}-teardown") == read(tmp_path, f"diary{i}-setup")


def test_worker_metadata_and_fixed_numbers(run, tmp_path):
    stage = Diary(tmp_path, nap=0.05).with_(num_workers=2, resources=Resources(cpus=0.5))
    result = run([stage], numbers(20), num_cpus=4)
    seen = {task.data["diary"][0]: task.data["diary"][1] for task in result}
    assert len(seen) == 2
    assert len({m.worker_id for m in seen.values()}) == 2
    assert {(m.node_id, m.cpus, m.gpus) for m in seen.values()} == {("local", 0.5, ())}


def test_a_shared_worker_says_what_the_stage_asked_for(run, tmp_path):
    small = Diary(tmp_path, "small")
    large = Diary(tmp_path, "large").with_(resources=Resources(cpus=2))
    for task in run([small, large], numbers(3), num_cpus=2):
        assert task.data["small"][1].cpus == 1
        assert task.data["large"][1].cpus == 2


class Surroundings(ProcessingStage[Numbers, Numbers]):
    def __init__(self, name: str, nap: float = 0.0) -> None:
        self.name = name
        self.nap = nap

    def setup(self, worker_metadata: Any) -> None:
        self.metadata = worker_metadata

    def process(self, task: Numbers) -> Numbers:
        import time

        import numpy as np
        import pyarrow as pa
        import threadpoolctl

        np.dot(np.ones((4, 4)), np.ones((4, 4)))
        time.sleep(self.nap)
        pools = [p["num_threads"] for p in threadpoolctl.threadpool_info()]
        task.data[self.name] = {
            "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "omp": os.environ["OMP_NUM_THREADS"],
            "arrow": pa.cpu_count(),
            "pools": max(pools, default=None),
            "gpus": self.metadata.gpus,
            "share": self.metadata.gpu_share,
        }
        return task


def test_gpus_are_those_the_worker_was_given(run, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    whole = Surroundings("whole", 0.02).with_(resources=Resources(cpus=0.1, gpus=1), num_workers=2)
    pair = Surroundings("pair").with_(resources=Resources(cpus=0.1, gpus=2), num_workers=1)
    part = Surroundings("part", 0.02).with_(resources=Resources(cpus=0.1, gpus=0.5), num_workers=2)
    result = run([Surroundings("cpu"), whole, pair, part], numbers(30), num_gpus=5, num_cpus=2)
    seen = {name: {json.dumps(task.data[name]) for task in result} for name in ("cpu", "whole", "pair", "part")}
    got = {name: [json.loads(x) for x in texts] for name, texts in seen.items()}
    assert {x["cuda"] for x in got["cpu"]} == {""}
    assert all(len(x["gpus"]) == 1 and x["cuda"].count(",") == 0 and x["share"] == 1 for x in got["whole"])
    assert len({x["cuda"] for x in got["whole"]}) == 2
    assert all(len(x["gpus"]) == 2 and re.fullmatch(r"\d+,\d+", x["cuda"]) for x in got["pair"])
    assert len({x["cuda"] for x in got["part"]}) == 1 and {x["share"] for x in got["part"]} == {0.5}
    groups = [{d for x in got[name] for d in x["cuda"].split(",")} for name in ("whole", "pair", "part")]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 5


def test_thread_pools_follow_the_cpus_of_each_stage(run, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    one = Surroundings("one")
    two = Surroundings("two").with_(resources=Resources(cpus=2))
    own = Surroundings("own").with_(resources=Resources(cpus=3), num_workers=1)
    for task in run([one, two, own], numbers(12), num_cpus=5):
        for name, n in (("one", 1), ("two", 2), ("own", 3)):
            seen = task.data[name]
            assert (seen["omp"], seen["arrow"]) == (str(n), n)
            assert seen["pools"] in (None, min(n, os.cpu_count() or 1))  # OpenBLAS stops at the cores there are


@pytest.mark.parametrize("fixed", [None, 1])
def test_workers_are_replaced_when_they_are_old(run, tmp_path, fixed):
    stage = Diary(tmp_path, nap=0.05).with_(
        worker_max_lifetime_m=0.5 / 60, worker_restart_interval_m=0.001 / 60, num_workers=fixed
    )

    def until_three_are_set_up():
        for task in numbers(4000):
            yield task
            if len(read(tmp_path, "diary-setup")) >= 3:
                return

    result = run([stage], until_three_are_set_up(), num_cpus=1, worker_restart_interval_m=0)
    assert result.ok and len(result) < 4000
    set_up = read(tmp_path, "diary-setup")
    assert len(set_up) >= 3
    assert sorted(read(tmp_path, "diary-teardown")) == sorted(set_up)
    assert result.record.worker_deaths == 0


@pytest.mark.parametrize(
    "options, words",
    [
        ({"num_cpu": 2}, "Did you mean 'num_cpus'"),
        ({"xyzzy": 2}, "The options are: ignore_failures"),
        ({"num_cpus": 0}, "num_cpus must be above 0"),
        ({"num_cpus": "many"}, "num_cpus must be a number"),
        ({"num_gpus": -1}, "num_gpus is a whole number"),
        ({"num_gpus": 1.5}, "num_gpus is a whole number"),
        ({"execution_mode": "fast"}, "'streaming' or 'batch'"),
        ({"memory_limit": "8 parsecs"}, "memory_limit is a number of bytes or text"),
        ({"object_store_memory": 0}, "object_store_memory is a number of bytes"),
        ({"autoscale_interval_s": float("nan")}, "autoscale_interval_s must be a number"),
        ({"cpu_allocation_percentage": 1.5}, "share of 1"),
        ({"ignore_failures": 1}, "True or False"),
        ({"max_attempts": 0}, "max_attempts is a whole number"),
        ({"view": "loud"}, "view is"),
        ({"event_log": 3}, "event_log is the path"),
        ([("num_cpus", 1)], "config is a dict"),
    ],
)
def test_wrong_options_are_errors_at_once(options, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        LocalConfig.of(options)


def test_sizes_in_words():
    config = LocalConfig.of({"memory_limit": "1.5 GiB", "object_store_memory": "64MB"})
    assert (config.memory_limit_bytes, config.budget_bytes) == (3 << 29, 64 << 20)
    assert LocalConfig.of({"num_cpus": 8, "cpu_allocation_percentage": 0.05}).cpus == 1


def test_more_gpu_memory_than_any_gpu_has(run):
    stage = Surroundings("s").with_(resources=Resources(gpu_memory_gb=100))
    with pytest.raises(PlanError, match=r"100|GPU"):
        run([stage], numbers(1), num_gpus=2, gpu_memory_gb=40)


def test_a_teardown_that_raises_is_reported_and_harmless(run, capsys):
    class Careless(ProcessingStage[Numbers, Numbers]):
        def process(self, task: Numbers) -> Numbers:
            return task

        def teardown(self) -> None:
            raise OSError("the disk is gone")

    result = run([Careless()], numbers(3), view="lines")
    assert len(result) == 3
    assert "teardown of 'Careless': OSError: the disk is gone" in capsys.readouterr().err


def test_hooks_may_take_fewer_arguments(run):
    class Short(ProcessingStage[Numbers, Numbers]):
        def setup_on_node(self) -> None:
            pass

        def setup(self) -> None:
            self.ready = True

        def process(self, task: Numbers) -> Numbers:
            assert self.ready
            return task

    assert len(run([Short()], numbers(2))) == 2


def test_a_failed_setup_on_node_says_why(run):
    class Bad(ProcessingStage[Numbers, Numbers]):
        def setup_on_node(self) -> None:
            raise FileNotFoundError("weights.bin")

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(Exception, match=r"(?s)setup_on_node of 'Bad' failed.*FileNotFoundError: weights.bin") as caught:
        run([Bad()], numbers(2))
    assert not isinstance(caught.value, PipelineFailed)

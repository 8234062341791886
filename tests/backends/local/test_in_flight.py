"""Several units in flight in one worker, on real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from gristmill.errors import PipelineFailed
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch, Task

pytestmark = pytest.mark.alone  # tasks have 0.5 s, and begin at the same time

FAST = {"timeout_s": 0.5}


@dataclass
class Numbers(Task[Any]):
    data: Any = None
    at: list[float] = field(default_factory=list)


def numbers(n: int) -> list[Numbers]:
    return [Numbers(data=i) for i in range(n)]


def values(result: Any) -> list[Any]:
    return [task.data for task in result]


class Wait(ProcessingStage[Numbers, Numbers]):
    """Waits for a while, and misbehaves on one task if it should."""

    max_in_flight = 16

    def __init__(self, seconds: float = 0.02, how: str = "nothing", culprit: int = 7, flag: Path | None = None) -> None:
        self.seconds = seconds
        self.how = how
        self.culprit = culprit
        self.flag = flag

    def num_workers(self) -> int:
        return 1

    async def process(self, task: Numbers) -> Numbers | None:
        begun = time.monotonic()
        if task.data == self.culprit and self.how != "nothing":
            await getattr(self, self.how)()
        await asyncio.sleep(self.seconds)
        task.at = [begun, time.monotonic()]
        return task

    async def fail(self) -> None:
        raise ValueError("seven")

    async def hang(self) -> None:
        await asyncio.sleep(1000)

    async def swallow(self) -> None:
        """Does not end when it is cancelled, the first time or ever."""
        if self.flag is not None and self.flag.exists():
            return
        if self.flag is not None:
            self.flag.touch()
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue

    async def clean_up(self) -> None:
        """Takes a moment to end when it is cancelled, and then returns as if nothing had been."""
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)

    async def block(self) -> None:
        time.sleep(1000)

    async def crash(self) -> None:
        os._exit(3)

    async def crash_later(self) -> None:
        await asyncio.sleep(self.seconds / 2)
        os._exit(3)

    async def close_descriptors(self) -> None:
        os.closerange(3, 100)

    async def cancel_itself(self) -> None:
        raise asyncio.CancelledError

    async def exit(self) -> None:
        sys.exit(4)


# Order, ids and counts ------------------------------------------------------------------------------------------


def test_units_run_at_the_same_time_and_end_in_any_order(run):
    @processing_stage(max_in_flight=10, num_workers=1)
    async def shuffled(task: Numbers) -> Numbers:
        begun = time.monotonic()
        await asyncio.sleep(0.3 - 0.02 * task.data)
        return Numbers(data=task.data, at=[begun, time.monotonic()])

    result = run([shuffled], numbers(10))
    assert values(result) == list(range(10))
    assert [t.task_id for t in result] == [str(i) for i in range(10)]
    ends = [t.at[1] for t in result]
    assert ends == sorted(ends, reverse=True)
    assert max(t.at[0] for t in result) < min(ends)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_are_in_flight_than_the_stage_allows(run, limit):
    @processing_stage(max_in_flight=limit, num_workers=1)
    async def counted(task: Numbers) -> Numbers:
        running.append(1)
        most = len(running)
        await asyncio.sleep(0.005)
        running.pop()
        return Numbers(most)

    running: list[int] = []
    found = values(run([counted], numbers(60)))
    assert max(found) == limit


class Uneven(ProcessingStage[Numbers, Numbers]):
    """One, several or no results, after a time that depends on the task."""

    def __init__(self, in_flight: int) -> None:
        self.max_in_flight = in_flight

    async def process(self, task: Numbers) -> Any:
        await asyncio.sleep(0.001 * (task.data * 7919 % 13))
        if task.data % 5 == 0:
            return None
        if task.data % 5 == 1:
            return [Numbers(data=(task.data, i)) for i in range(3)]
        return Numbers(data=task.data)


class Streamed(Uneven):
    async def process(self, task: Numbers) -> AsyncIterator[Numbers]:
        for i in range(task.data % 4):
            await asyncio.sleep(0.001 * (task.data * 7919 % 5))
            yield Numbers(data=(task.data, i))


@pytest.mark.parametrize("stage", [Uneven, Streamed])
def test_ids_and_counts_are_those_of_one_in_flight(run, stage):
    found = []
    for in_flight, workers in ((1, 1), (16, 1), (5, 2)):
        result = run([stage(in_flight).with_(num_workers=workers)], numbers(60))
        stats = next(iter(result.stages.values()))
        counts = (
            stats.tasks_in,
            stats.tasks_done,
            stats.tasks_out,
            stats.items_in,
            stats.items_out,
            stats.tasks_dropped,
        )
        found.append(([(t.task_id, t.data) for t in result], counts))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) > 50


@pytest.mark.parametrize(
    "value, words",
    [("text", "returned a str"), ([1], "returned several things, one of them a int"), (3, "returned a int")],
)
def test_a_wrong_return_type_names_the_stage(run, value, words):
    @processing_stage
    async def wrong(task: Numbers):  # type: ignore[no-untyped-def]
        return value

    with pytest.raises(PipelineFailed, match=f"'wrong' {words}"):
        run([wrong], numbers(1), max_attempts=1)


def test_the_time_of_the_stage_is_that_of_its_worker_not_the_sum_of_its_tasks(run):
    result = run([Wait(0.05)], numbers(160))
    assert 0.4 < result.stages["Wait"].busy_s < 4
    (step,) = result.record.steps
    assert step.busy_share > 0.5 and 0.002 < step.service_s_mean < 0.02


# Documents --------------------------------------------------------------------------------------------------------


class Judge(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A user's stage: drops documents with a reason, some without one, adds one, and counts."""

    def __init__(self, in_flight: int) -> None:
        self.max_in_flight = in_flight

    indifferent = ("in_flight",)

    async def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        await asyncio.sleep(0.001 * (len(frame) * 31 % 17))
        long = frame.text.str.len() > 30
        task = task.keep(np.array(long), "too short")
        await asyncio.sleep(0.001)
        frame = task.to_pandas()
        task.data = frame[~frame.text.str.contains("stone stone")].assign(asked="yes")
        return task


def written(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "_gristmill" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_files_and_accounts_are_those_of_one_in_flight(run, tmp_path):
    rng = random.Random(3)
    words = ("grain", "mill", "of", "stone")
    lines = [json.dumps({"id": i, "text": " ".join(rng.choices(words, k=i % 19))}) for i in range(2000)]
    lines[777] = '{"id": "broken'
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    found = []
    for in_flight, workers in ((1, 1), (8, 1), (3, 2)):
        out = tmp_path / f"out-{in_flight}"
        judge = Judge(in_flight).with_(num_workers=workers)
        stages = [JsonlReader(str(tmp_path / "in.jsonl"), blocksize="2KB"), judge, JsonlWriter(str(out))]
        result = run(stages)
        assert not result.ledger.problems and len(result.ledger.blocks) > 20
        found.append((written(out), result.ledger.plain()))
    assert found[0] == found[1] == found[2]
    names = found[0][0]
    assert any(n.startswith("excluded/") for n in names) and any(n.startswith("quarantine/") for n in names)
    dropped = json.dumps(found[0][1]["total"]["dropped"])
    assert "too short" in dropped and "unspecified" in dropped


# Generators -------------------------------------------------------------------------------------------------------


@processing_stage(max_in_flight=4, num_workers=1)
async def pour(task: Numbers) -> AsyncIterator[Numbers]:
    for i in range(40):
        await asyncio.sleep(0)
        yield Numbers(data=np.full(1 << 18, (task.data * 40 + i) % 251, np.uint8))


@processing_stage
def measure(task: Numbers) -> Numbers:
    (value,) = set(task.data[:: 1 << 12].tolist())
    return Numbers(data=int(value))


def test_generators_are_streamed_within_a_small_budget(run):
    result = run([pour, measure], numbers(12), keep=True, object_store_memory="24MB")
    assert values(result) == [i % 251 for i in range(480)]
    assert [t.task_id for t in result] == [f"{i // 40}.{i % 40}" for i in range(480)]
    assert result.record.peak_bytes_in_flight < 40e6
    assert result.stages["pour"].tasks_done == 12


def test_a_generator_that_fails_in_its_middle_is_tried_again_without_repeating(run, tmp_path):
    @processing_stage(max_in_flight=4)
    async def shaky(task: Numbers) -> AsyncIterator[Numbers]:
        for i in range(1000):
            yield Numbers(data=(task.data, i))
        if task.data == 1 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("once")

    result = run([shaky], numbers(3), keep=True)
    assert values(result) == [(n, i) for n in range(3) for i in range(1000)]
    assert (tmp_path / "failed").exists()
    stats = result.stages["shaky"]
    assert (stats.tasks_in, stats.tasks_done, stats.tasks_out) == (3, 3, 3000)


# Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how, words", [("fail", "ValueError: seven"), ("cancel_itself", "Cancelled"), ("exit", "4")])
def test_a_task_that_raises_is_the_only_one_lost(run, how, words):
    result = run([Wait(how=how)], numbers(40), ignore_failures=True, max_attempts=2)
    assert values(result) == [i for i in range(40) if i != 7]
    (failure,) = result.failures
    assert failure.task_id == "7" and words in failure.error
    assert result.record.worker_deaths == 0
    assert result.stages["Wait"].tasks_failed == 1


@pytest.mark.parametrize("how", ["hang", "clean_up"])
def test_a_task_that_takes_too_long_is_cancelled_and_the_others_finish(run, how):
    stage = Wait(0.3, how).with_(**FAST)
    result = run([stage], numbers(40), ignore_failures=True, max_attempts=2)
    assert values(result) == [i for i in range(40) if i != 7]
    (failure,) = result.failures
    assert failure.task_id == "7"
    assert failure.error == "TimeoutError: 'Wait' took longer than timeout_s=0.5: cancelled"
    assert result.record.worker_deaths == 0 and result.record.steps[0].workers_started == 1


def test_the_timeout_of_the_executor_holds_too(run):
    result = run([Wait(0.01, "hang")], numbers(20), ignore_failures=True, max_attempts=1, task_timeout_s=0.4)
    assert values(result) == [i for i in range(20) if i != 7]
    assert "timeout_s=0.4" in result.failures[0].error


def test_each_task_has_its_own_time(run):
    """All of them together take far longer than the timeout of each."""
    result = run([Wait(0.4).with_(max_in_flight=2, timeout_s=1.0)], numbers(12))
    assert values(result) == list(range(12))
    begins = [t.at[0] for t in result]
    assert max(begins) - min(begins) > 1.5


@pytest.mark.parametrize("how", ["swallow", "block"])
def test_a_task_that_cannot_be_cancelled_costs_its_worker_and_itself(run, how):
    started = time.monotonic()
    result = run([Wait(0.05, how).with_(**FAST)], numbers(40), ignore_failures=True)
    assert values(result) == [i for i in range(40) if i != 7]
    (failure,) = result.failures
    assert failure.task_id == "7" and "timed out" in failure.error
    assert result.record.worker_deaths == 2
    assert time.monotonic() - started < 60


def test_if_it_ends_the_next_time_no_task_is_lost(run, tmp_path):
    result = run([Wait(0.05, "swallow", flag=tmp_path / "flag").with_(**FAST)], numbers(30))
    assert values(result) == list(range(30))
    assert result.record.worker_deaths == 1


@pytest.mark.parametrize("how", ["crash", "crash_later"])
def test_of_sixteen_in_flight_only_the_one_that_crashed_its_worker_is_lost(run, how):
    result = run([Wait(0.1, how)], numbers(60), ignore_failures=True)
    assert values(result) == [i for i in range(60) if i != 7]
    (failure,) = result.failures
    assert failure.task_id == "7" and "exit code 3" in failure.error
    assert result.record.worker_deaths == 2


def test_a_task_that_closes_the_descriptors_of_its_worker_is_the_only_one_lost(run):
    result = run([Wait(0.05, "close_descriptors")], numbers(40), ignore_failures=True)
    assert values(result) == [i for i in range(40) if i != 7]
    assert [f.task_id for f in result.failures] == ["7"]
    assert result.record.worker_deaths == 2


def workers() -> list[psutil.Process]:
    for process in psutil.Process().children():
        try:
            if "supervisor" in " ".join(process.cmdline()):
                return process.children()
        except psutil.NoSuchProcess:
            continue
    return []


@pytest.mark.parametrize("number, times", [(signal.SIGKILL, 3), (signal.SIGTERM, 3)])
def test_workers_that_are_killed_lose_no_task(run, number, times):
    def attack() -> None:
        for _ in range(times):
            time.sleep(0.7)
            for process in workers()[:1]:
                os.kill(process.pid, number)

    attacker = threading.Thread(target=attack)
    attacker.start()
    result = run([Wait(0.05)], numbers(900))
    attacker.join()
    assert values(result) == list(range(900))
    assert 1 <= result.record.worker_deaths <= times


def test_after_running_out_of_memory_half_as_many_are_in_flight(run):
    """Eight at a time need more than there is; four do not."""

    @processing_stage(max_in_flight=8, num_workers=1)
    async def large(task: Numbers) -> Numbers:
        held = np.ones(110 << 20, np.uint8)
        await asyncio.sleep(0.5)
        return Numbers(data=(task.data, int(held[0])))

    result = run([large], numbers(24), memory_limit="900MiB")
    assert values(result) == [(i, 1) for i in range(24)]
    assert any("large: a worker ran out of memory; 4 in flight" in d.text for d in result.decisions)
    assert not result.failures


def test_a_task_that_needs_too_much_memory_alone_is_the_only_one_lost(run):
    @processing_stage(max_in_flight=2, num_workers=1)
    async def eat(task: Numbers) -> Numbers:
        if task.data == 3:
            held = [np.ones(64 << 20, np.uint8) for _ in range(40)]
            await asyncio.sleep(len(held))
        await asyncio.sleep(0.01)
        return task

    result = run([eat], numbers(12), memory_limit="900MiB", ignore_failures=True)
    assert values(result) == [i for i in range(12) if i != 3]
    (failure,) = result.failures
    assert failure.task_id == "3" and "ran out of memory" in failure.error


# The end of workers -----------------------------------------------------------------------------------------------


class Diary(Wait):
    """Notes its setups, teardowns and the tasks that it was running at the teardown."""

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(seconds)
        self.folder = folder
        self.running = 0
        self.cancelled = 0

    def setup(self) -> None:
        (self.folder / f"setup-{os.getpid()}").touch()

    async def process(self, task: Numbers) -> Numbers | None:
        self.running += 1
        (self.folder / "begun").touch()
        try:
            return await super().process(task)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    def teardown(self) -> None:
        (self.folder / f"teardown-{os.getpid()}").write_text(f"{self.running} {self.cancelled}")


def test_workers_that_are_replaced_finish_what_they_have_begun(run, tmp_path):
    stage = Diary(tmp_path, 0.1).with_(worker_max_lifetime_m=0.7 / 60, worker_restart_interval_m=0.01 / 60)
    result = run([stage], numbers(400))
    assert values(result) == list(range(400))
    torn = list(tmp_path.glob("teardown-*"))
    assert len(torn) == len(list(tmp_path.glob("setup-*"))) >= 3
    assert {path.read_text() for path in torn} == {"0 0"}
    assert result.record.worker_deaths == 0 and result.stages["Diary"].tasks_in == 400


SCRIPT = """
import sys
from pathlib import Path
from gristmill import LocalExecutor, Pipeline
from tests.backends.local.test_in_flight import Diary, numbers

Pipeline("p", stages=[Diary(Path(sys.argv[1]), 60)]).run(
    LocalExecutor({"view": "off", "num_cpus": 2}), initial_tasks=numbers(100)
)
"""


def test_ctrl_c_cancels_all_and_tears_down(of_run: Callable[[int], list[str]], tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < until and job.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    started = time.monotonic()
    job.send_signal(signal.SIGINT)
    _, said = job.communicate(timeout=60)
    assert job.returncode != 0 and "KeyboardInterrupt" in said
    assert time.monotonic() - started < 9
    (torn,) = tmp_path.glob("teardown-*")
    assert torn.read_text() == "0 16"
    assert not of_run(job.pid)

"""Kills from outside: nothing is lost, and no task counts as failed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task

pytestmark = pytest.mark.alone  # work must go on between two kills


@dataclass
class Numbers(Task[Any]):
    data: Any = None


class Work(ProcessingStage[Numbers, Numbers]):
    def __init__(self, name: str, nap: float) -> None:
        self.name = name
        self.nap = nap

    def setup(self) -> None:
        self.offset = 1

    def process(self, task: Numbers) -> Numbers:
        time.sleep(self.nap)
        task.data += self.offset
        return task


@processing_stage
def split(task: Numbers):  # type: ignore[no-untyped-def]
    for i in range(2):
        yield Numbers(data=task.data * 10 + i)


STAGES = [Work("a", 0.01), split, Work("b", 0.02), Work("c", 0.001).with_(num_workers=2)]


def numbers(n: int) -> list[Numbers]:
    return [Numbers(data=i) for i in range(n)]


def expected(n: int) -> list[int]:
    return [(i + 1) * 10 + j + 2 for i in range(n) for j in range(2)]


def supervisor() -> psutil.Process | None:
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            if "supervisor" in " ".join(process.cmdline()):
                return process
    return None


def workers() -> list[psutil.Process]:
    process = supervisor()
    return [] if process is None else process.children()


class Attacker(threading.Thread):
    """Does something to the run's processes now and then until told to stop."""

    def __init__(self, attack: Callable[[], bool], every_s: float, times: int = 1_000_000) -> None:
        super().__init__(daemon=True)
        self.attack = attack
        self.every_s = every_s
        self.times = times
        self.hits = 0
        self.done = threading.Event()

    def run(self) -> None:
        while self.hits < self.times and not self.done.wait(self.every_s):
            try:
                self.hits += self.attack()
            except (psutil.Error, ProcessLookupError):
                continue

    def __enter__(self) -> Attacker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()


def signal_worker(number: int) -> Callable[[], bool]:
    def attack() -> bool:
        found = workers()
        if not found:
            return False
        os.kill(random.choice(found).pid, number)
        return True

    return attack


def test_random_workers_are_killed_all_the_time(run):
    n = 150
    with Attacker(signal_worker(signal.SIGKILL), 0.3) as attacker:
        result = run(STAGES, numbers(n), fuse=False, num_cpus=2)
    assert attacker.hits >= 5
    assert [task.data for task in result] == expected(n)
    assert result.ok and result.record.worker_deaths >= 1


def test_workers_get_sigterm(run):
    with Attacker(signal_worker(signal.SIGTERM), 0.3, times=4) as attacker:
        result = run(STAGES, numbers(80), fuse=False, num_cpus=2)
    assert attacker.hits >= 2
    assert [task.data for task in result] == expected(80)
    assert result.ok


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_task_whose_workers_are_killed_again_and_again_does_not_fail(run, tmp_path, number):
    @processing_stage
    def unlucky(task: Numbers) -> Numbers:
        if task.data == 3 and len(list(tmp_path.iterdir())) < 5:
            (tmp_path / str(os.getpid())).touch()
            time.sleep(20)
        return task

    killed = set()

    def attack() -> bool:
        fresh = [path.name for path in tmp_path.iterdir() if path.name not in killed]
        for pid in fresh:
            killed.add(pid)
            os.kill(int(pid), number)
        return bool(fresh)

    with Attacker(attack, 0.02):
        result = run([unlucky, Work("w", 0)], numbers(8), fuse=False)
    assert len(killed) == 5
    assert [task.data for task in result] == list(range(1, 9))
    assert result.ok


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_the_supervisor_is_killed(run, of_run, mode):
    class Starter(Work):
        def process(self, task: Numbers) -> Numbers:
            if not hasattr(self, "child"):
                self.child = subprocess.Popen(["sleep", "300"], start_new_session=True)
            return super().process(task)

    def attack() -> bool:
        process = supervisor()
        if process is None or not process.children():
            return False
        process.kill()
        return True

    with Attacker(attack, 0.7, times=2) as attacker:
        stages = [Starter("a", 0.01), *STAGES[1:]]
        result = run(stages, numbers(80), fuse=False, num_cpus=2, execution_mode=mode)
    assert attacker.hits >= 1
    assert not of_run(os.getpid())
    assert [task.data for task in result] == expected(80)
    assert result.ok


def test_a_node_setup_that_is_killed_is_done_again(run, tmp_path):
    class Prepared(ProcessingStage[Numbers, Numbers]):
        def setup_on_node(self) -> None:
            with open(tmp_path / "tries", "a") as file:
                file.write("x")
            time.sleep(0.5)
            (tmp_path / "ready").touch()

        def process(self, task: Numbers) -> Numbers:
            assert (tmp_path / "ready").exists()
            return task

    def attack() -> bool:
        if not (tmp_path / "tries").exists():
            return False
        os.kill(workers()[0].pid, signal.SIGKILL)
        return True

    with Attacker(attack, 0.05, times=1):
        result = run([Prepared()], numbers(3))
    assert len(result) == 3
    assert (tmp_path / "tries").read_text() == "xx"

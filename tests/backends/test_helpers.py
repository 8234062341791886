"""Processes that stages start: how long they live and whose memory they use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gristmill.backends.engine import machine
from gristmill.backends.engine.memory import OomKills
from gristmill.backends.local import processes
from gristmill.errors import PipelineError
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task

EAT = "import time; x = bytearray(b'1') * (900 << 20); time.sleep(20)"


@dataclass
class Numbers(Task[Any]):
    data: Any = None


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def daemon() -> int:
    """A process that has left the one that started it."""
    out = subprocess.run("setsid sleep 60 >/dev/null 2>&1 & echo $!", shell=True, capture_output=True, text=True)
    return int(out.stdout)


def gone(pid: int, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not lives(pid)


class Server(ProcessingStage[Numbers, Numbers]):
    """Uses what `setup_on_node` and `setup` started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def num_workers(self) -> int:
        return 1

    def setup_on_node(self) -> None:
        (self.folder / "node").write_text(str(daemon()))

    def setup(self) -> None:
        self.own = daemon()

    def process(self, task: Numbers) -> Numbers:
        return Numbers(data=(task.data, lives(int((self.folder / "node").read_text())), lives(self.own)))


class Die(ProcessingStage[Numbers, Numbers]):
    """Leaves a program and a fork behind when it dies, once; then sees whether they are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def num_workers(self) -> int:
        return 1

    def process(self, task: Numbers) -> Numbers:
        note = self.folder / "left"
        if not note.exists():
            while not (self.folder / "node").exists():
                time.sleep(0.02)
            time.sleep(1.5)  # the time of its start distinguishes a forked process from one of `setup_on_node`
            forked = os.fork()
            if not forked:
                time.sleep(60)
                os._exit(0)
            note.write_text(f"{daemon()} {forked}")
            os._exit(1)
        return Numbers(data=[gone(int(x)) for x in note.read_text().split()])


class Eat(ProcessingStage[Numbers, Numbers]):
    max_attempts = 1

    def process(self, task: Numbers) -> Numbers:
        if task.data == 1:
            subprocess.run([sys.executable, "-c", EAT])
        return task


def test_processes_of_a_stage_end_with_its_worker_and_no_other(run, tmp_path):
    result = run([Die(tmp_path), Server(tmp_path)], [Numbers(data=0), Numbers(data=1)], fuse=False)
    assert result.record.worker_deaths == 1
    assert [x.data for x in result] == [([True, True], True, True)] * 2


def test_memory_of_processes_that_a_stage_starts_counts(run):
    result = run([Eat()], [Numbers(data=i) for i in range(3)], memory_limit="500MiB", ignore_failures=True)
    (failure,) = result.failures
    assert failure.task_id == "1" and "ran out of memory" in failure.error
    assert [x.data for x in result] == [0, 2]


def test_only_a_recent_kill_of_the_system_explains_a_death(monkeypatch):
    kills = 0
    monkeypatch.setattr(machine, "oom_kills", lambda: kills)
    watch = OomKills()
    kills = 1
    watch.check(10.0)
    assert watch.take() and not watch.take()
    kills = 2
    for now in (11.0, 13.0, 16.0, 19.0):
        watch.check(now)
    assert not watch.take()


def test_more_workers_than_slots_is_a_clear_error(run, monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_SLOTS", 2)
    with pytest.raises(PipelineError, match="at most 2 workers"):
        run([Die(tmp_path).with_(num_workers=5)], [Numbers()], num_cpus=5)

"""Workers that die where no task is to be seen: the run ends, and the task that did it is found."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gristmill.errors import PipelineError, PipelineFailed
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task


@dataclass
class Numbers(Task[Any]):
    data: Any = None


def numbers(n: int) -> list[Numbers]:
    return [Numbers(data=i) for i in range(n)]


class Harm(ProcessingStage[Numbers, Numbers]):
    """Does something to its worker while it processes one task, and returns as if nothing had been."""

    def __init__(self, how: str, culprit: int = 7) -> None:
        self.how = how
        self.culprit = culprit

    def process(self, task: Numbers) -> Numbers:
        if task.data == self.culprit:
            getattr(self, self.how)()
        return task

    def close_descriptors(self) -> None:
        os.closerange(3, 100)

    def close_all_descriptors(self) -> None:
        os.closerange(0, 1000)

    def close_sockets(self) -> None:
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    os.close(int(name))
            except OSError:
                continue

    def replace_sockets(self) -> None:
        """The worker then waits for news on sockets where none will ever come."""
        self.ours, theirs = socket.socketpair()
        self.read = threading.Thread(target=self.ours.recv, args=[1 << 20], daemon=True)
        self.read.start()
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
            mine = (self.ours.fileno(), theirs.fileno())
            if target.startswith("socket:") and int(name) not in mine:
                os.dup2(theirs.fileno(), int(name))

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def terminate(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def exit_at_exit(self) -> None:
        atexit.register(os._exit, 5)
        os._exit(5)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("how", ["close_descriptors", "close_all_descriptors", "close_sockets"])
def test_a_task_that_closes_the_descriptors_of_its_worker_is_the_only_one_lost(run, how, fuse):
    result = run([Harm(how), Harm("nothing", -1)], numbers(40), fuse=fuse, ignore_failures=True)
    assert [task.data for task in result] == [i for i in range(40) if i != 7]
    (failed,) = result.failures
    assert "closed the worker's connection" in failed.error
    assert result.record.worker_deaths <= 5


def test_a_batch_of_tasks_of_which_one_closes_descriptors_loses_that_one(run):
    stage = Harm("close_descriptors").with_(batch_size=8)
    result = run([stage], numbers(64), ignore_failures=True)
    assert [task.data for task in result] == [i for i in range(64) if i != 7]
    assert result.record.worker_deaths <= 20


def test_without_ignore_failures_the_run_fails_and_names_the_task(run):
    with pytest.raises(PipelineFailed, match="closed the worker's connection"):
        run([Harm("close_descriptors")], numbers(20))


def test_every_task_that_closes_descriptors_is_given_up_and_the_run_ends(run):
    class Always(Harm):
        def process(self, task: Numbers) -> Numbers:
            os.closerange(3, 100)
            return task

    result = run([Always("nothing")], numbers(6), ignore_failures=True)
    assert list(result) == [] and len(result.failures) == 6
    assert result.record.worker_deaths <= 40


def test_a_worker_that_lives_on_without_its_connection_is_ended(run, monkeypatch):
    monkeypatch.setattr("gristmill.backends.local.driver._EXIT_S", 0.5)
    result = run([Harm("replace_sockets")], numbers(20), ignore_failures=True)
    assert [task.data for task in result] == [i for i in range(20) if i != 7]
    assert "closed the worker's connection" in result.failures[0].error


@pytest.mark.parametrize("how", ["kill", "terminate", "exit_at_exit"])
def test_a_task_that_ends_its_own_process_is_given_up_after_a_bounded_number_of_deaths(run, how):
    result = run([Harm(how)], numbers(20), ignore_failures=True)
    assert [task.data for task in result] == [i for i in range(20) if i != 7]
    assert len(result.failures) == 1
    assert result.record.worker_deaths <= 25


def test_workers_that_die_when_they_have_nothing_to_do_end_the_run(run):
    """While the stage before is busy for as long as it takes."""

    @processing_stage
    def wait(task: Numbers) -> Numbers:
        time.sleep(600)  # the end of the run interrupts it
        return task

    class DiesIdle(ProcessingStage[Numbers, Numbers]):
        def setup(self) -> None:
            threading.Timer(0.05, os._exit, [9]).start()

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(PipelineError, match=r"die while they have nothing to do, 20 in a row.*exit code 9"):
        run([wait, DiesIdle().with_(num_workers=1)], numbers(2), fuse=False)


def test_a_setup_on_node_that_kills_itself_ends_the_run(run, tmp_path):
    class Suicidal(ProcessingStage[Numbers, Numbers]):
        def setup_on_node(self) -> None:
            with open(tmp_path / "tries", "a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(PipelineError, match="SIGKILL"):
        run([Suicidal()], numbers(2))
    assert len(Path(tmp_path / "tries").read_text()) == 20

"""A step in a process of Ray's: what is run there before and after work, and how often."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.clerk import Clerk
from gristmill.backends.bridge.process import RemoteClerk, StepProcess, StoppedError
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.tasks import Task

calls: list[str] = []
"""What was called. Stages are pickled on their way, this module is not."""


class InPlace(RemoteClerk):
    """A clerk in this process, without Ray in between."""

    def __init__(self, clerk: Clerk, name: str) -> None:
        super().__init__(name)
        self.clerk = clerk

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.clerk, method)(*arguments)


class Stage(ProcessingStage[Task, Task]):
    def __init__(self, breaks: str = "") -> None:
        self.breaks = breaks

    def _note(self, what: str) -> None:
        calls.append(what)
        if what == self.breaks:
            raise OSError(f"{what} is broken")

    def preload(self) -> None:
        self._note("preload")

    def setup_on_node(self, node_info: NodeInfo) -> None:
        self._note("node")
        time.sleep(0.2)

    def setup(self, worker_metadata: WorkerMetadata) -> None:
        self._note("setup")

    def teardown(self) -> None:
        self._note("teardown")

    def process(self, task: Any) -> Any:
        return task


WORKER = WorkerMetadata("w", "here")


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def process_of(stage: Stage, tmp_path: Any) -> tuple[StepProcess, Clerk]:
    local = LocalNames()
    local.close()  # what this module has is found by its name here
    clerk = Clerk(pickle_steps(Plan("p", (Step((stage,)),)), local), [1])
    return StepProcess(InPlace(clerk, f"test-{tmp_path.name}"), 0, 1), clerk


def test_a_process_is_prepared_set_up_and_torn_down_once(tmp_path):
    process, clerk = process_of(Stage(), tmp_path)
    process.prepare()
    process.set_up(WORKER)
    process.tear_down()
    process.tear_down()
    assert calls == ["preload", "setup", "teardown"]
    news = clerk.news()
    assert (news.setups, news.teardowns, news.open_workers) == ([0], [0], 0)


def test_processes_of_a_node_set_it_up_once_and_the_others_wait(tmp_path):
    process, clerk = process_of(Stage(), tmp_path)
    others = [StepProcess(process.clerk, 0, 1) for _ in range(3)]
    done: list[bool] = []

    def work(x: StepProcess) -> None:
        x.set_up_node("here", WORKER)
        done.append(clerk.is_node_set_up(0, "here"))

    threads = [threading.Thread(target=work, args=(x,)) for x in (process, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["node"] and done == [True] * 4
    process.set_up_node("there", WORKER)
    assert calls == ["node", "node"]


@pytest.mark.parametrize("what", ["preload", "node", "setup"])
def test_what_fails_before_any_work_stops_the_run_with_its_reason(tmp_path, what):
    process, clerk = process_of(Stage(what), tmp_path)
    with pytest.raises(StoppedError):
        process.prepare()
        process.set_up_node("here", WORKER)
        process.set_up(WORKER)
    assert f"OSError: {what} is broken" in clerk.news().fatal
    assert not list(Path(tempfile.gettempdir()).glob(f"{process.clerk.name}-*"))
    assert not clerk.begin_setup(0, "w")


def test_a_teardown_that_fails_is_told(tmp_path):
    process, clerk = process_of(Stage("teardown"), tmp_path)
    process.set_up(WORKER)
    process.tear_down()
    assert clerk.news().messages == ["teardown of 'Stage': OSError: teardown is broken"]


def test_a_worker_that_comes_too_late_does_not_set_up(tmp_path):
    process, clerk = process_of(Stage(), tmp_path)
    clerk.close()
    with pytest.raises(StoppedError, match="over"):
        process.set_up(WORKER)
    assert not calls

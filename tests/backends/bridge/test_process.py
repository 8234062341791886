"""A step in a Ray process: setup and teardown, and how often they run."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.collector import Collector
from gristmill.backends.bridge.process import RemoteCollector, StepProcess, StepWork, StoppedError
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.tasks import Task

calls: list[str] = []
"""The hooks that were called. Stages are pickled on their way, this module is not."""


class InPlace(RemoteCollector):
    """A collector in this process, called without Ray."""

    def __init__(self, collector: Collector, name: str) -> None:
        super().__init__(name)
        self.collector = collector

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.collector, method)(*arguments)


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


def process_of(stage: Stage, tmp_path: Any) -> tuple[StepProcess, Collector]:
    local = LocalNames()
    local.close()  # classes of this module are found by name here
    collector = Collector(pickle_steps(Plan("p", (Step((stage,)),)), local), [1])
    return StepProcess(StepWork(InPlace(collector, f"test-{tmp_path.name}"), 0, 1)), collector


def test_a_process_is_prepared_set_up_and_torn_down_once(tmp_path):
    process, collector = process_of(Stage(), tmp_path)
    process.prepare()
    process.set_up(WORKER)
    process.tear_down()
    process.tear_down()
    assert calls == ["preload", "setup", "teardown"]
    update = collector.take_update()
    assert (update.setups, update.teardowns, update.open_workers) == ([0], [0], 0)


def test_one_process_of_a_node_sets_it_up_and_the_others_wait(tmp_path):
    process, collector = process_of(Stage(), tmp_path)
    others = [StepProcess(process.work) for _ in range(3)]
    done: list[bool] = []

    def work(x: StepProcess) -> None:
        x.set_up_node("here", WORKER)
        done.append(collector.is_node_set_up(0, "here"))

    threads = [threading.Thread(target=work, args=(x,)) for x in (process, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["node"] and done == [True] * 4
    process.set_up_node("there", WORKER)
    assert calls == ["node", "node"]


@pytest.mark.parametrize("what", ["preload", "node", "setup"])
def test_a_failure_before_any_task_stops_the_run_with_its_reason(tmp_path, what):
    process, collector = process_of(Stage(what), tmp_path)
    with pytest.raises(StoppedError):
        process.prepare()
        process.set_up_node("here", WORKER)
        process.set_up(WORKER)
    assert f"OSError: {what} is broken" in collector.take_update().fatal
    assert not list(Path(tempfile.gettempdir()).glob(f"{process.collector.name}-*"))
    assert not collector.begin_setup(0, "w")


def test_a_teardown_that_fails_is_reported(tmp_path):
    process, collector = process_of(Stage("teardown"), tmp_path)
    process.set_up(WORKER)
    process.tear_down()
    assert collector.take_update().messages == ["teardown of 'Stage': OSError: teardown is broken"]


def test_a_worker_that_starts_after_the_run_does_not_set_up(tmp_path):
    process, collector = process_of(Stage(), tmp_path)
    collector.close()
    with pytest.raises(StoppedError, match="over"):
        process.set_up(WORKER)
    assert not calls

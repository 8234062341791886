"""One step in a Ray process: loading its stages, the setup of the node and of the worker, and the teardown."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from gristmill.backends.accounting import Documents
from gristmill.backends.bridge.collector import CollectorUpdate, Report, TaskStatus
from gristmill.backends.bridge.unit import StoppedError, UnitRunner
from gristmill.backends.engine.library_limits import limit_threads
from gristmill.backends.engine.names import learn_names
from gristmill.backends.stage_errors import StageError
from gristmill.backends.step_runner import StepRunner, overrides
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata

NAMESPACE = "gristmill"
_WAIT_S = 0.1

Stages = tuple[ProcessingStage[Any, Any], ...]


class RemoteCollector:
    """The collector of a run, found by its actor name. Each call returns when the collector has handled it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._actor: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "_actor": None}

    def call(self, method: str, *arguments: Any) -> Any:
        import ray

        if self._actor is None:
            self._actor = ray.get_actor(self.name, namespace=NAMESPACE)
        return ray.get(getattr(self._actor, method).remote(*arguments))

    def take_update(self) -> CollectorUpdate:
        update: CollectorUpdate = self.call("take_update")
        return update

    def begin(self, step: int, labels: list[str]) -> list[tuple[TaskStatus, int]]:
        found: list[tuple[TaskStatus, int]] = self.call("begin", step, labels)
        return found

    def report(self, report: Report) -> None:
        self.call("report", report)

    def fail(self, reason: str) -> None:
        self.call("fail", reason)


_loaded: dict[str, tuple[list[Stages], list[Documents | None]]] = {}
"""The stages of the run that this process works for."""


def stages_of(collector: RemoteCollector) -> tuple[list[Stages], list[Documents | None]]:
    """Return the stages of each step, loaded once in a process."""
    found = _loaded.get(collector.name)
    if found is None:
        steps, classes, documents = pickle.loads(collector.call("give_stages"))
        learn_names(classes)
        _loaded.clear()
        found = _loaded[collector.name] = (steps, documents)
    return found


@dataclass(frozen=True)
class StepWork:
    """A step, with all that a process needs to run it."""

    collector: RemoteCollector
    step: int
    attempts: int
    wanted: bool = True
    """Whether its outputs are used."""


class StepProcess:
    """One step in one process, from its setup to its teardown."""

    def __init__(self, work: StepWork) -> None:
        steps, documents = stages_of(work.collector)
        self.work = work
        self.collector = work.collector
        self.step = work.step
        self.stages = steps[work.step]
        self.runner = StepRunner(self.stages, None, documents[work.step])
        self.units = UnitRunner(self.runner, work.step, work.attempts, work.collector)
        self.worker = f"{os.getpid()}-{time.monotonic_ns()}"
        self.is_set_up = False

    def prepare(self) -> None:
        """Limit threads and preload the stages, before any task."""
        limit_threads(self.stages[0].resources.cpus)
        try:
            for stage in self.stages:
                stage.preload()
        except Exception as error:  # the user's code
            self._stop(f"preload of {self.runner.stages[0].name!r} failed: {type(error).__name__}: {error}")

    def set_up_node(self, node: str, worker: WorkerMetadata) -> None:
        """Run `setup_on_node` unless it was run on this node, in one process at a time.

        The lock is released when its process ends. If that process dies during setup, the next one runs it.
        """
        if not any(overrides(stage, "setup_on_node") for stage in self.stages):
            return
        path = os.path.join(tempfile.gettempdir(), f"{self.collector.name}-{node}-{self.step}.lock")
        while not self.collector.call("is_node_set_up", self.step, node):
            # every user can write to this folder: a link that another user left there is not followed
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(_WAIT_S)
                    continue
                try:
                    if not self.collector.call("is_node_set_up", self.step, node):
                        self.run_node_setup(node, worker)
                        self.collector.call("node_set_up", self.step, node)
                finally:
                    with contextlib.suppress(FileNotFoundError):  # another process may have removed it
                        os.unlink(path)

    def run_node_setup(self, node: str, worker: WorkerMetadata) -> None:
        try:
            self.runner.setup_on_node(NodeInfo(node), worker)
        except StageError as error:
            self._stop(f"setup_on_node of {self._name(error)} failed: {error.error}\n{error.detail}")

    def set_up(self, worker: WorkerMetadata) -> None:
        """Set the stages up, unless the run is over."""
        if not self.collector.call("begin_setup", self.step, self.worker):
            raise StoppedError("the run is over")
        try:
            self.runner.setup(worker)
        except StageError as error:
            self.runner.teardown()
            self._stop(f"setup of {self._name(error)} failed: {error.error}\n{error.detail}")
        limit_threads(self.stages[0].resources.cpus)  # the setup may have loaded libraries
        self.collector.call("set_up", self.step, self.worker)
        self.is_set_up = True

    def tear_down(self) -> None:
        if self.is_set_up:
            self.is_set_up = False
            errors = [f"teardown of {self._name(x)}: {x.error}" for x in self.runner.teardown()]
            self.collector.call("torn_down", self.worker, errors)

    def _name(self, error: StageError) -> str:
        return repr(self.stages[error.stage].name)

    def _stop(self, reason: str) -> None:
        self.collector.fail(reason.strip())
        raise StoppedError(reason.strip()) from None

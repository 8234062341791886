"""A step as Ray Data sees it: a function, or a class if its workers live longer than a task, over packed tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from gristmill.backends.bridge.process import RemoteClerk, StepProcess
from gristmill.backends.bridge.reports import Made
from gristmill.backends.bridge.unit import Packed
from gristmill.stages.core import WorkerMetadata

LABEL, TASK, ITEMS = "label", "task", "items"
SCHEMA = pa.schema([(LABEL, pa.string()), (TASK, pa.large_binary()), (ITEMS, pa.int64())])


def table_of(task: Made) -> pa.Table:
    """One task as a table of one row."""
    columns = {LABEL: [task.label], TASK: pa.array([task.payload], pa.large_binary()), ITEMS: [task.items]}
    return pa.table(columns, schema=SCHEMA)


def packed_of(table: pa.Table) -> list[Packed]:
    """The tasks of a table, which has no columns where Ray Data had nothing to put into it."""
    if not table.num_rows:
        return []
    return list(zip(table[LABEL].to_pylist(), table[TASK].to_pylist(), strict=True))


class _Rows:
    """From packed tasks to packed tasks, one table for each."""

    def __init__(self, step: StepProcess, wanted: bool) -> None:
        self.step = step
        self.wanted = wanted

    def run(self, table: pa.Table) -> Iterator[pa.Table]:
        made: Iterable[Made] = self.step.bench.run(packed_of(table))
        for x in made:
            if self.wanted:
                yield table_of(x)


class StepFunction:
    """A step without setup or teardown. What it needs is made once in a process and kept."""

    def __init__(self, clerk: RemoteClerk, step: int, attempts: int, wanted: bool) -> None:
        self.clerk = clerk
        self.step = step
        self.attempts = attempts
        self.wanted = wanted

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        return _Rows(self._process(), self.wanted).run(table)

    def _process(self) -> StepProcess:
        key = (self.clerk.name, self.step)
        found = _processes.get(key)
        if found is None:
            for old in [x for x in _processes if x[0] != self.clerk.name]:
                del _processes[old]
            found = StepProcess(self.clerk, self.step, self.attempts)
            found.prepare()
            worker = _worker(found)
            found.set_up_node(worker.node_id, worker)
            _processes[key] = found
        return found


_processes: dict[tuple[str, int], StepProcess] = {}


class StepActor:
    """A step with a setup or a teardown, in an actor of its own.

    Ray Data drops its last reference to this object when an actor leaves in good order; that is the time to tear down.
    """

    def __init__(self, clerk: RemoteClerk, step: int, attempts: int, wanted: bool) -> None:
        self.process = StepProcess(clerk, step, attempts)
        self.process.worker = _actor_id()
        self.process.prepare()
        worker = _worker(self.process)
        self.process.set_up_node(worker.node_id, worker)
        self.process.set_up(worker)
        self.rows = _Rows(self.process, wanted)

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        return self.rows.run(table)

    def __del__(self) -> None:
        process: Any = self.__dict__.get("process")
        if process is not None:
            process.tear_down()


def _actor_id() -> str:
    """The same when Ray starts an actor again, so the clerk sees that the earlier one is gone."""
    import ray

    return str(ray.get_runtime_context().get_actor_id())


def _worker(process: StepProcess) -> WorkerMetadata:
    import ray

    context = ray.get_runtime_context()
    resources = process.stages[0].resources
    gpus = tuple(int(x) for x in ray.get_gpu_ids() if str(x).isdecimal())
    return WorkerMetadata(process.worker, context.get_node_id(), resources.cpus, gpus, _share(context))


def _share(context: Any) -> float:
    return float(context.get_assigned_resources().get("GPU", 0.0))

"""A step as Ray Data sees it: a function over packed tasks, or a class if its workers live longer than a task."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from gristmill.backends.bridge.collector import PackedTask
from gristmill.backends.bridge.process import StepProcess, StepWork
from gristmill.stages.core import WorkerMetadata

LABEL, TASK = "label", "task"
SCHEMA = pa.schema([(LABEL, pa.string()), (TASK, pa.large_binary())])


def table_of(task: PackedTask) -> pa.Table:
    """Return one task as a table of one row."""
    return pa.table({LABEL: [task.label], TASK: pa.array([task.payload], pa.large_binary())}, schema=SCHEMA)


def packed_of(table: pa.Table) -> list[PackedTask]:
    """Return the tasks of a table. An empty table of Ray Data's has no columns."""
    if not table.num_rows:
        return []
    return list(map(PackedTask, table[LABEL].to_pylist(), table[TASK].to_pylist()))


def _run(process: StepProcess, table: pa.Table) -> Iterator[pa.Table]:
    """Yield one table for each output, if outputs are wanted."""
    for output in process.units.run(packed_of(table)):
        if process.work.wanted:
            yield table_of(output)


class StepFunction:
    """A step without setup or teardown. Its process object is made once in each process and kept."""

    def __init__(self, work: StepWork) -> None:
        self.work = work

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        return _run(self._process(), table)

    def _process(self) -> StepProcess:
        run = self.work.collector.name
        found = _processes.get((run, self.work.step))
        if found is None:
            for old in [key for key in _processes if key[0] != run]:
                del _processes[old]
            found = StepProcess(self.work)
            _prepare(found)
            _processes[run, self.work.step] = found
        return found


_processes: dict[tuple[str, int], StepProcess] = {}


class StepActor:
    """A step with a setup or a teardown, in an actor of its own.

    Ray Data drops its last reference to this object when an actor ends normally, so `__del__` tears down.
    """

    process: StepProcess | None = None
    """None if the step could not be loaded."""

    def __init__(self, work: StepWork) -> None:
        self.process = process = StepProcess(work)
        process.worker = _actor_id()
        process.set_up(_prepare(process))

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        assert self.process is not None
        return _run(self.process, table)

    def __del__(self) -> None:
        if self.process is not None:
            self.process.tear_down()


def _prepare(process: StepProcess) -> WorkerMetadata:
    """Prepare the process and its node for the step."""
    process.prepare()
    worker = _worker(process)
    process.set_up_node(worker.node_id, worker)
    return worker


def _actor_id() -> str:
    """Return the id that stays the same when Ray restarts an actor, so that the collector notices the death."""
    import ray

    return str(ray.get_runtime_context().get_actor_id())


def _worker(process: StepProcess) -> WorkerMetadata:
    import ray

    context = ray.get_runtime_context()
    gpus = tuple(int(x) for x in ray.get_gpu_ids() if str(x).isdecimal())
    share = float(context.get_assigned_resources().get("GPU", 0.0))
    return WorkerMetadata(process.worker, context.get_node_id(), process.stages[0].resources.cpus, gpus, share)

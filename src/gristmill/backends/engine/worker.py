"""A worker: runs units and reports their outputs. How messages and payloads travel is up to the backend."""

from __future__ import annotations

import mmap
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.backends.accounting import Documents, StageAccounting
from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.library_limits import limit_threads, reuse_freed_memory
from gristmill.backends.engine.payload import Payload, load_task, pack, size_of
from gristmill.backends.stage_errors import Interrupt, StageError, details, one_line
from gristmill.backends.step_runner import StepRunner
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.tasks import Task

_FAST_US = 1000
"""Units faster than this are reported together."""
_REPORT_NS = 5_000_000
CHUNK_OUTPUTS = 256
CHUNK_NS = 200_000_000
_PROGRESS_NS = 500_000_000
"""Between two messages about the progress of a unit."""

Stages = tuple[ProcessingStage[Any, Any], ...]


@dataclass
class WorkerIdentity:
    """The identity of a worker: its number, node and GPUs."""

    worker: int
    slot: int
    step: int
    """-1: shared."""
    cpus: float
    gpus: tuple[int, ...]
    devices: tuple[str, ...]
    gpu_share: float
    node: str = "local"
    in_flight: int = 0
    """How many units it may have in flight; 0: it runs one at a time."""


@dataclass
class Limits:
    """Limits that all workers of a run have in common."""

    chunk: int
    """Bytes that a generator may make before it is suspended."""
    retain: int
    """Bytes of free space that an arena may keep."""
    keep: bool
    """Whether outputs of the last step are wanted."""
    inline: int
    """Bytes up to which a payload travels inside messages and waits in the driver."""
    task_timeout_s: float | None = None
    """When a unit in flight is cancelled, unless its stage has a timeout of its own."""


@dataclass
class Running:
    """A unit whose outputs are being made."""

    unit: int
    step: int
    inputs: tuple[wp.TaskInput, ...]
    outputs: Iterator[tuple[int, Task[Any]]]
    skip: list[int]
    """Outputs of each input that an earlier attempt has delivered."""
    wanted: tuple[int, ...] = ()
    """Of a unit that is run again for data that was lost: the positions of the outputs to deliver."""
    position: int = 0


class Worker(ABC):
    """Serves one dedicated step, or any step as a shared worker."""

    def __init__(
        self,
        setting: WorkerIdentity,
        slots: mmap.mmap,
        steps: Sequence[Stages],
        documents: Sequence[Documents | None],
        limits: Limits,
    ) -> None:
        self.setting = setting
        self.slots = slots
        self.steps = steps
        self.documents = documents
        self.limits = limits
        self.runners: dict[int, StepRunner] = {}
        self.outbox: list[wp.FromWorker] = []
        self.reported_at = time.perf_counter_ns()
        self.suspended: dict[int, Running] = {}
        self.fast: dict[int, bool] = {}
        self.threads = 0.0
        """CPUs that libraries may use now."""
        self.stopping = False
        self.progress_at = self.reported_at
        self.counts_again = False
        """Whether documents of the running unit were counted in an earlier attempt."""
        reuse_freed_memory()

    # What a backend provides ------------------------------------------------------------------------------------

    @abstractmethod
    def put(self, parts: list[Any]) -> tuple[int, int]:
        """Put a payload where others can read it; its place and length."""

    @abstractmethod
    def get(self, x: wp.TaskInput) -> Payload:
        """The payload of an input that does not travel with its message."""

    @abstractmethod
    def free(self, offset: int, length: int) -> None:
        """Take back a payload that was put and will not be reported."""

    def report(self) -> None:
        """Send what is in the outbox, if that is how reports travel."""
        self.reported_at = time.perf_counter_ns()

    @abstractmethod
    def send_progress(self, message: wp.UnitProgress) -> None:
        """Send a message in the middle of a unit, if the backend can."""

    def note_progress(self, block: int, read: int, kept: int, share: float) -> None:
        """Send how far the running unit is, twice a second at most. A unit that is run again counts once."""
        now = time.perf_counter_ns()
        if self.counts_again or now - self.progress_at < _PROGRESS_NS:
            return
        self.progress_at = now
        self.send_progress(wp.UnitProgress(block, read, kept, share))

    def mark(self, task: int = wp.NOTHING, stage: int = 0, step: int = wp.NOTHING, ended: int = wp.NOTHING) -> None:
        """Note what is being done, for the driver to read if this worker dies."""
        wp.mark(self.slots, self.setting.slot, task, stage, step, ended)

    def mark_stage(self, stage: int) -> None:
        """Note that the unit has come to another stage."""
        wp.mark_stage(self.slots, self.setting.slot, stage)

    # Messages ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: a dedicated worker sets its step up."""
        if self.setting.step >= 0:
            self.set_up(self.setting.step)
        else:
            self.outbox.append(wp.Ready(0))

    def take(self, message: wp.ToWorker) -> None:
        match message:
            case wp.RunUnit():
                self.run(message)
            case wp.ResumeUnit(unit):
                self.advance(self.suspended.pop(unit))
            case wp.DropUnit(unit):
                self.suspended.pop(unit, None)
            case wp.Leave():
                self.stopping = True
            case _:
                raise TypeError(f"{type(message).__name__} is not for workers of this backend")

    def leave(self) -> None:
        """Tear down and report it."""
        self.suspended.clear()
        torn, errors = [], []
        for step, runner in self.runners.items():
            errors += [f"teardown of '{runner.stages[x.stage].name}': {x.error}" for x in runner.teardown()]
            torn.append(step)
        self.outbox.append(wp.Left(torn, errors))

    # Stages -----------------------------------------------------------------------------------------------------

    def set_up(self, step: int) -> None:
        """Set up a step and report it. The worker leaves if that fails."""
        s = self.setting
        runner = StepRunner(self.steps[step], self.mark_stage, self.documents[step], self.note_progress)
        self.mark(step=step)
        self.limit(step)
        start = time.perf_counter_ns()
        try:
            runner.setup(WorkerMetadata(str(s.worker), s.node, self.cpus(step), s.gpus, s.gpu_share))
        except StageError as error:
            runner.teardown()
            self.outbox.append(wp.StepNotReady(step, error.stage, error.error, error.detail))
            self.stopping = True
            return
        except Interrupt:
            runner.teardown()
            raise
        finally:
            self.mark()
        self.runners[step] = runner
        self.threads = 0.0  # the setup may have loaded libraries
        self.limit(step)
        took = us_since(start)
        self.outbox.append(wp.Ready(took) if s.step >= 0 else wp.StepReady(step, took))
        self.report()

    def timeout_s(self, step: int) -> float | None:
        """When a unit in flight of a step is cancelled."""
        own = self.steps[step][0].timeout_s
        return self.limits.task_timeout_s if own is None else own

    def cpus(self, step: int) -> float:
        return self.setting.cpus if self.setting.step >= 0 else self.steps[step][0].resources.cpus

    def limit(self, step: int) -> None:
        """Let libraries use the CPUs of a step."""
        cpus = self.cpus(step)
        if cpus != self.threads:
            self.threads = cpus
            limit_threads(cpus)

    # Units ------------------------------------------------------------------------------------------------------

    def run(self, x: wp.RunUnit) -> None:
        runner = self.runners.get(x.step)
        if runner is None:
            self.set_up(x.step)
            if self.stopping:
                return
            runner = self.runners[x.step]
        self.limit(x.step)
        if not self.fast.get(x.step):
            self.report()
        self.mark(x.inputs[0].task)
        start = time.perf_counter_ns()
        try:
            tasks = [
                load_task(i.label, i.payload if i.payload is not None else self.get(i), i.start, i.stop)
                for i in x.inputs
            ]
        except StageError as error:
            self.fail(x.unit, error, start, None)
            return
        skip = [i.skip for i in x.inputs]
        self.advance(Running(x.unit, x.step, x.inputs, runner.run(tasks), skip, x.inputs[0].wanted), start)

    def advance(self, r: Running, start: int = 0) -> None:
        """Make outputs until the unit ends or a chunk is full."""
        runner = self.runners[r.step]
        if not start:
            self.limit(r.step)
            self.mark(r.inputs[0].task)
            start = time.perf_counter_ns()
        outputs: list[wp.TaskOutput] = []
        made = 0
        self.progress_at = start
        self.counts_again = bool(r.wanted or any(r.skip))
        last = r.step == len(self.steps) - 1
        try:
            for position, task in r.outputs:
                if not self.is_due(r, position, runner):
                    continue
                x = self.output(runner, r.inputs[position].task, task, last)
                outputs.append(x)
                made += x.length
                if r.wanted and r.position > r.wanted[-1]:
                    break
                if (
                    made >= self.limits.chunk
                    or len(outputs) >= CHUNK_OUTPUTS
                    or (runner.streams and time.perf_counter_ns() - start > CHUNK_NS)
                ):
                    self.outbox.append(wp.Emitted(r.unit, us_since(start), *self.accounts(r, runner), tuple(outputs)))
                    self.suspended[r.unit] = r
                    self.mark(ended=r.unit)
                    self.report()
                    return
        except StageError as error:
            for x in outputs:
                if x.payload is None and x.length:
                    self.free(x.offset, x.length)
            self.fail(r.unit, error, start, runner)
            return
        self.mark(ended=r.unit)
        busy = us_since(start)
        self.fast[r.step] = busy < _FAST_US
        self.outbox.append(wp.Finished(r.unit, busy, *self.accounts(r, runner), tuple(outputs)))
        if not self.fast[r.step] or time.perf_counter_ns() - self.reported_at > _REPORT_NS:
            self.report()

    @staticmethod
    def is_due(r: Running, position: int, runner: StepRunner) -> bool:
        """Whether the next output, which the input at ``position`` gave, is to be delivered."""
        if r.wanted:
            r.position += 1
            return r.position - 1 in r.wanted
        if r.skip[position]:
            r.skip[position] -= 1
            runner.reset_counts()
            return False
        return True

    @staticmethod
    def accounts(r: Running, runner: StepRunner) -> tuple[wp.Counts, wp.BlockEntries]:
        """The accounts since they were last taken. Those of a unit that rebuilds lost data were reported before."""
        if r.wanted:
            runner.reset_counts()
        return runner.take_counts(), runner.take_entries()

    def output(self, runner: StageAccounting, parent: int, task: Task[Any], last: bool) -> wp.TaskOutput:
        """Put the payload of an output where others can read it."""
        try:
            items = int(task.num_items)
            divisible = type(task).slice is not Task.slice
            if last and not self.limits.keep:
                return wp.TaskOutput(parent, task.task_id, items, divisible, None, 0, 0)
            parts = pack(task)
            size = size_of(parts)
            if size <= self.limits.inline:
                return wp.TaskOutput(parent, task.task_id, items, divisible, b"".join(parts), 0, size)
            return wp.TaskOutput(parent, task.task_id, items, divisible, None, *self.put(parts))
        except Exception as error:  # pickling runs the user's code, on whatever the stage put into the task
            raise StageError(
                len(runner.stages) - 1, f"what it returned cannot be passed on: {one_line(error)}", details(error)
            ) from None

    def fail(self, unit: int, error: StageError, start: int, runner: StepRunner | None) -> None:
        self.mark(ended=unit)
        counts = runner.take_counts() if runner is not None else []
        if runner is not None:
            runner.reset_counts()  # another attempt accounts for the documents
        if error.ends_run:
            self.outbox.append(wp.RunBroken(error.error))
        self.outbox.append(wp.Failed(unit, error.stage, error.error, error.detail, us_since(start), counts))
        self.report()


def run_node_setup(stages: Stages, node: str) -> str:
    """Run `setup_on_node` of a step in this process. Return the error, if there is one."""
    try:
        StepRunner(stages).setup_on_node(NodeInfo(node), WorkerMetadata("0", node))
    except StageError as failure:
        return f"{failure.error}\n{failure.detail}".strip()
    return ""


def us_since(start: int) -> int:
    """Microseconds since a `time.perf_counter_ns`."""
    return (time.perf_counter_ns() - start) // 1000

"""A worker: takes units, runs them, says what came out. How messages and payloads travel is up to the backend."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.backends.engine.allocator import reuse_freed_memory
from gristmill.backends.engine.payload import load_task, pack, size_of
from gristmill.backends.engine.protocol import NOTHING, FromWorker, Message, ToWorker
from gristmill.backends.engine.threads import limit_threads
from gristmill.backends.step_runner import Documents, Interrupt, StageError, StepRunner, details, one_line
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.tasks import Task

_FAST_US = 1000
"""Units faster than this are reported together."""
_REPORT_NS = 5_000_000
_CHUNK_OUTPUTS = 256
_CHUNK_NS = 200_000_000
_PROGRESS_NS = 500_000_000
"""Between two messages about the progress of a unit."""

Stages = tuple[ProcessingStage[Any, Any], ...]


@dataclass
class Setting:
    """What a worker is told at its start."""

    worker: int
    slot: int
    step: int
    """-1: shared."""
    cpus: float
    gpus: tuple[int, ...]
    devices: tuple[str, ...]
    gpu_share: float
    node: str = "local"


@dataclass
class Limits:
    """What all workers of a run keep to."""

    chunk: int
    """Bytes that a generator may make before it is suspended."""
    retain: int
    """Bytes of free space that an arena may keep."""
    keep: bool
    """Whether outputs of the last step are wanted."""
    inline: int
    """Bytes up to which a payload travels inside messages and waits in the driver."""


@dataclass
class Running:
    """A unit whose outputs are being made."""

    unit: int
    step: int
    inputs: list[Any]
    outputs: Iterator[tuple[int, Task[Any]]]
    skip: list[int]
    """Outputs of each input that an earlier attempt has delivered."""
    wanted: tuple[int, ...] = ()
    """Of a unit that is run again for data that was lost: the positions of the outputs to deliver."""
    position: int = 0


class Worker(ABC):
    """Serves one dedicated step, or any step as a shared worker."""

    def __init__(
        self, setting: Setting, steps: Sequence[Stages], documents: Sequence[Documents | None], limits: Limits
    ) -> None:
        self.setting = setting
        self.steps = steps
        self.documents = documents
        self.limits = limits
        self.runners: dict[int, StepRunner] = {}
        self.outbox: list[Message] = []
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
    def mark(self, task: int = NOTHING, stage: int = 0, step: int = NOTHING, ended: int = NOTHING) -> None:
        """Note what is being done, for the driver to read if this worker dies."""

    @abstractmethod
    def mark_stage(self, stage: int) -> None:
        """Note that the unit has come to another stage."""

    @abstractmethod
    def put(self, parts: list[Any]) -> tuple[int, int]:
        """Put a payload where others can read it; its place and length."""

    @abstractmethod
    def get(self, x: Any) -> bytes | bytearray:
        """The payload of an input that does not come with its message."""

    @abstractmethod
    def free(self, offset: int, length: int) -> None:
        """Take back a payload that was put and will not be told of."""

    def report(self) -> None:
        """Send what is in the outbox, if that is how reports travel."""
        self.reported_at = time.perf_counter_ns()

    @abstractmethod
    def send_progress(self, message: Message) -> None:
        """Send a message in the middle of a unit, if the backend can."""

    def note_progress(self, block: int, read: int, kept: int, share: float) -> None:
        """Send how far the running unit is, twice a second at most. A unit that is run again counts once."""
        now = time.perf_counter_ns()
        if self.counts_again or now - self.progress_at < _PROGRESS_NS:
            return
        self.progress_at = now
        self.send_progress((FromWorker.PROGRESS, block, read, kept, share))

    # Messages ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: a dedicated worker sets its step up."""
        if self.setting.step >= 0:
            self.set_up(self.setting.step)
        else:
            self.say((FromWorker.READY, 0))

    def take(self, message: Message) -> None:
        kind = message[0]
        if kind == ToWorker.RUN:
            self.run(message[1], message[2], message[3])
        elif kind == ToWorker.RESUME:
            self.advance(self.suspended.pop(message[1]))
        elif kind == ToWorker.CANCEL:
            self.suspended.pop(message[1], None)
        elif kind == ToWorker.STOP:
            self.stopping = True

    def say(self, message: Message) -> None:
        self.outbox.append(message)

    def leave(self) -> None:
        """Tear down, and say so."""
        self.suspended.clear()
        torn, errors = [], []
        for step, runner in self.runners.items():
            errors += [f"teardown of '{runner.stages[x.stage].name}': {x.error}" for x in runner.teardown()]
            torn.append(step)
        self.say((FromWorker.BYE, torn, errors))

    # Stages -----------------------------------------------------------------------------------------------------

    def set_up(self, step: int) -> None:
        """Set a step up and say how it went. A worker where that failed leaves."""
        s = self.setting
        runner = StepRunner(self.steps[step], self.mark_stage, self.documents[step], self.note_progress)
        self.mark(step=step)
        self.limit(step)
        start = time.perf_counter_ns()
        try:
            runner.setup(WorkerMetadata(str(s.worker), s.node, self.cpus(step), s.gpus, s.gpu_share))
        except StageError as error:
            runner.teardown()
            self.say((FromWorker.SETUP_FAILED, step, error.stage, error.error, error.detail))
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
        self.say((FromWorker.READY, took) if s.step >= 0 else (FromWorker.STEP_SET_UP, step, took))
        self.report()

    def cpus(self, step: int) -> float:
        return self.setting.cpus if self.setting.step >= 0 else self.steps[step][0].resources.cpus

    def limit(self, step: int) -> None:
        """Let libraries use the CPUs of a step."""
        cpus = self.cpus(step)
        if cpus != self.threads:
            self.threads = cpus
            limit_threads(cpus)

    # Units ------------------------------------------------------------------------------------------------------

    def run(self, step: int, unit: int, inputs: list[Any]) -> None:
        runner = self.runners.get(step)
        if runner is None:
            self.set_up(step)
            if self.stopping:
                return
            runner = self.runners[step]
        self.limit(step)
        if not self.fast.get(step):
            self.report()
        self.mark(inputs[0][0])
        start = time.perf_counter_ns()
        try:
            tasks = [self.load(x) for x in inputs]
        except StageError as error:
            self.fail(unit, error, start, None)
            return
        self.advance(Running(unit, step, inputs, runner.run(tasks), [x[8] for x in inputs], inputs[0][9]), start)

    def load(self, x: Any) -> Task[Any]:
        return load_task(x[1], x[2] if x[2] is not None else self.get(x), x[6], x[7])

    def advance(self, r: Running, start: int = 0) -> None:
        """Make outputs until the unit ends or a chunk is full."""
        runner = self.runners[r.step]
        if not start:
            self.limit(r.step)
            self.mark(r.inputs[0][0])
            start = time.perf_counter_ns()
        outputs: list[Any] = []
        made = 0
        self.progress_at = start
        self.counts_again = bool(r.wanted or any(r.skip))
        last = r.step == len(self.steps) - 1
        try:
            for position, task in r.outputs:
                if r.wanted:
                    r.position += 1
                    if r.position - 1 not in r.wanted:
                        continue
                elif r.skip[position]:
                    r.skip[position] -= 1
                    runner.reset_counts()
                    continue
                x = self.output(runner, r.inputs[position][0], task, last)
                outputs.append(x)
                made += x[6]
                if r.wanted and r.position > r.wanted[-1]:
                    break
                if (
                    made >= self.limits.chunk
                    or len(outputs) >= _CHUNK_OUTPUTS
                    or (runner.streams and time.perf_counter_ns() - start > _CHUNK_NS)
                ):
                    self.say((FromWorker.EMITTED, r.unit, outputs, us_since(start), *self.accounts(r, runner)))
                    self.suspended[r.unit] = r
                    self.mark(ended=r.unit)
                    self.report()
                    return
        except StageError as error:
            for _, _, _, _, payload, offset, length in outputs:
                if payload is None and length:
                    self.free(offset, length)
            self.fail(r.unit, error, start, runner)
            return
        self.mark(ended=r.unit)
        busy = us_since(start)
        self.fast[r.step] = busy < _FAST_US
        self.say((FromWorker.FINISHED, r.unit, outputs, busy, *self.accounts(r, runner)))
        if not self.fast[r.step] or time.perf_counter_ns() - self.reported_at > _REPORT_NS:
            self.report()

    @staticmethod
    def accounts(r: Running, runner: StepRunner) -> tuple[Any, Any]:
        """What the stages did since this was last asked; of a unit that is run again it has been told before."""
        if r.wanted:
            runner.reset_counts()
        return runner.take_counts(), runner.take_entries()

    def output(self, runner: StepRunner, parent: int, task: Task[Any], last: bool) -> tuple[Any, ...]:
        """An output as it is reported; its payload is put where others can read it."""
        try:
            items = int(task.num_items)
            divisible = type(task).slice is not Task.slice
            if last and not self.limits.keep:
                return (parent, task.task_id, items, divisible, None, 0, 0)
            parts = pack(task)
            size = size_of(parts)
            if size <= self.limits.inline:
                return (parent, task.task_id, items, divisible, b"".join(parts), 0, size)
            offset, length = self.put(parts)
        except Exception as error:  # pickling runs the user's code, on whatever the stage put into the task
            raise StageError(
                len(runner.stages) - 1, f"what it returned cannot be passed on: {one_line(error)}", details(error)
            ) from None
        return (parent, task.task_id, items, divisible, None, offset, length)

    def fail(self, unit: int, error: StageError, start: int, runner: StepRunner | None) -> None:
        self.mark(ended=unit)
        counts = runner.take_counts() if runner is not None else []
        if runner is not None:
            runner.reset_counts()  # what it did to documents is done again
        if error.ends_run:
            self.say((FromWorker.BROKEN, error.error))
        self.say((FromWorker.FAILED, unit, error.stage, error.error, error.detail, us_since(start), counts))
        self.report()


def us_since(start: int) -> int:
    """Microseconds since a `time.perf_counter_ns`."""
    return (time.perf_counter_ns() - start) // 1000

"""A worker process: takes units, runs them, says what came out."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from gristmill.backends.local.payload import ArenaWriter, pack, read_arena, size_of, unpack
from gristmill.backends.local.protocol import NODE_MARK, NOTHING, WORKER_MARK, FromWorker, ToWorker, mark, mark_stage
from gristmill.backends.local.threads import limit_threads
from gristmill.backends.local.wire import Channel, Closed, Message
from gristmill.backends.step_runner import Documents, Interrupt, StageError, StepRunner, details, one_line
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.tasks import Task

_FAST_US = 1000
"""Units faster than this are reported together."""
_REPORT_NS = 5_000_000
_CHUNK_OUTPUTS = 256
_CHUNK_NS = 200_000_000

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


class Worker:
    """Serves one dedicated step, or any step as a shared worker."""

    def __init__(
        self,
        setting: Setting,
        channel: Channel,
        arena: int,
        slots: mmap.mmap,
        steps: list[Stages],
        documents: list[Documents | None],
        limits: Limits,
    ) -> None:
        self.setting = setting
        self.channel = channel
        self.arena = ArenaWriter(arena, limits.retain)
        self.slots = slots
        self.steps = steps
        self.documents = documents
        self.limits = limits
        self.runners: dict[int, StepRunner] = {}
        self.arenas: dict[int, int] = {}
        self.inbox: deque[Message] = deque()
        self.outbox: list[Message] = []
        self.reported_at = time.perf_counter_ns()
        self.suspended: dict[int, Running] = {}
        self.fast: dict[int, bool] = {}
        self.threads = 0.0
        """CPUs that libraries may use now."""
        self.stopping = False
        self.sending = False
        self.interrupted = False
        """While it was sending."""
        self.leaving = False

    # The loop ---------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Work until told to stop; then, whatever happened, tear down."""
        try:
            try:
                signal.signal(signal.SIGTERM, self.interrupt)
                self.loop()
            finally:
                self.leaving = True
        except (Interrupt, Closed):
            pass
        finally:
            self.leave()

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Leave whatever is being done, once, but not in the middle of a message: the next could not be read."""
        if self.leaving:
            return
        self.leaving = True
        if self.sending:
            self.interrupted = True
        else:
            raise Interrupt

    def loop(self) -> None:
        if self.setting.step >= 0:
            self.set_up(self.setting.step)
        else:
            self.say((FromWorker.READY, 0))
        while not self.stopping:
            if not self.inbox:
                self.report()
                self.inbox.extend(self.channel.receive())
            self.take(self.inbox.popleft())

    def leave(self) -> None:
        """Tear down, and say so."""
        self.suspended.clear()
        torn, errors = [], []
        for step, runner in self.runners.items():
            errors += [f"teardown of '{runner.stages[x.stage].name}': {x.error}" for x in runner.teardown()]
            torn.append(step)
        self.say((FromWorker.BYE, torn, errors))
        with contextlib.suppress(Interrupt):
            self.report()

    def take(self, message: Message) -> None:
        kind = message[0]
        if kind == ToWorker.RUN:
            self.run(message[1], message[2], message[3])
        elif kind == ToWorker.RESUME:
            self.advance(self.suspended.pop(message[1]))
        elif kind == ToWorker.CANCEL:
            self.suspended.pop(message[1], None)
        elif kind == ToWorker.ARENA:
            self.arenas[message[1]] = self.channel.fds.popleft()
        elif kind == ToWorker.FORGET:
            os.close(self.arenas.pop(message[1]))
        elif kind == ToWorker.FREE:
            for offset, length in message[1]:
                self.arena.free(offset, length)
        elif kind == ToWorker.STOP:
            self.stopping = True

    def say(self, message: Message) -> None:
        self.outbox.append(message)

    def report(self) -> None:
        if self.outbox:
            self.sending = True
            self.channel.send(self.outbox)
            self.outbox = []
            self.sending = False
            if self.interrupted:
                self.interrupted = False
                raise Interrupt
        self.reported_at = time.perf_counter_ns()

    # Stages -----------------------------------------------------------------------------------------------------

    def set_up(self, step: int) -> None:
        """Set a step up and say how it went. A worker where that failed leaves."""
        s = self.setting
        runner = StepRunner(self.steps[step], lambda stage: mark_stage(self.slots, s.slot, stage), self.documents[step])
        mark(self.slots, s.slot, NOTHING, 0, step)
        self.limit(step)
        start = time.perf_counter_ns()
        try:
            runner.setup(WorkerMetadata(str(s.worker), "local", self.cpus(step), s.gpus, s.gpu_share))
        except StageError as error:
            runner.teardown()
            self.say((FromWorker.SETUP_FAILED, step, error.stage, error.error, error.detail))
            self.stopping = True
            return
        except Interrupt:
            runner.teardown()
            raise
        finally:
            mark(self.slots, s.slot)
        self.runners[step] = runner
        self.threads = 0.0  # the setup may have loaded libraries
        self.limit(step)
        took = (time.perf_counter_ns() - start) // 1000
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
        mark(self.slots, self.setting.slot, inputs[0][0], 0, NOTHING)
        start = time.perf_counter_ns()
        try:
            tasks = [self.load(x) for x in inputs]
        except StageError as error:
            self.fail(unit, error, start, None)
            return
        self.advance(Running(unit, step, inputs, runner.run(tasks), [x[8] for x in inputs]), start)

    def load(self, x: Any) -> Task[Any]:
        _, label, payload, arena, offset, length, start, stop, _ = x
        data = payload if payload is not None else read_arena(self.arenas[arena], offset, length)
        try:
            task: Task[Any] = unpack(data)
            if stop:
                part = task.slice(start, stop)
                if part is None:
                    raise TypeError(f"a {type(task).__name__} of {task.num_items} items could not be sliced")
                task, label = part, f"{label}[{start}:{stop}]"
        except Exception as error:  # unpickling and slicing run the user's code
            raise StageError(0, f"the task could not be loaded: {one_line(error)}", details(error)) from None
        task.task_id = label
        return task

    def advance(self, r: Running, start: int = 0) -> None:
        """Make outputs until the unit ends or a chunk is full."""
        runner = self.runners[r.step]
        slot = self.setting.slot
        if not start:
            self.limit(r.step)
            mark(self.slots, slot, r.inputs[0][0], 0, NOTHING)
            start = time.perf_counter_ns()
        outputs: list[Any] = []
        made = 0
        last = r.step == len(self.steps) - 1
        try:
            for position, task in r.outputs:
                if r.skip[position]:
                    r.skip[position] -= 1
                    runner.reset_counts()
                    continue
                x = self.store(runner, r.inputs[position][0], task, last)
                outputs.append(x)
                made += x[6]
                if (
                    made >= self.limits.chunk
                    or len(outputs) >= _CHUNK_OUTPUTS
                    or (runner.streams and time.perf_counter_ns() - start > _CHUNK_NS)
                ):
                    self.say(
                        (FromWorker.EMITTED, r.unit, outputs, _us(start), runner.take_counts(), runner.take_entries())
                    )
                    self.suspended[r.unit] = r
                    mark(self.slots, slot)
                    self.report()
                    return
        except StageError as error:
            for _, _, _, _, payload, offset, length in outputs:
                if payload is None and length:
                    self.arena.free(offset, length)
            self.fail(r.unit, error, start, runner)
            return
        mark(self.slots, slot)
        busy = _us(start)
        self.fast[r.step] = busy < _FAST_US
        self.say((FromWorker.FINISHED, r.unit, outputs, busy, runner.take_counts(), runner.take_entries()))
        if not self.fast[r.step] or time.perf_counter_ns() - self.reported_at > _REPORT_NS:
            self.report()

    def store(self, runner: StepRunner, parent: int, task: Task[Any], last: bool) -> tuple[Any, ...]:
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
            offset, length = self.arena.write(parts)
        except Exception as error:  # pickling runs the user's code, on whatever the stage put into the task
            raise StageError(
                len(runner.stages) - 1, f"what it returned cannot be passed on: {one_line(error)}", details(error)
            ) from None
        return (parent, task.task_id, items, divisible, None, offset, length)

    def fail(self, unit: int, error: StageError, start: int, runner: StepRunner | None) -> None:
        mark(self.slots, self.setting.slot)
        counts = runner.take_counts() if runner is not None else []
        if runner is not None:
            runner.reset_counts()  # what it did to documents is done again
        self.say((FromWorker.FAILED, unit, error.stage, error.error, error.detail, _us(start), counts))
        self.report()


def _us(start: int) -> int:
    return (time.perf_counter_ns() - start) // 1000


def main(
    setting: Setting,
    sock: socket.socket,
    arena: int,
    slots: mmap.mmap,
    steps: list[Stages],
    documents: list[Documents | None],
    limits: Limits,
) -> None:
    """Be a worker until told to stop. Called in a freshly forked process."""
    os.environ[WORKER_MARK] = str(setting.worker)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(setting.devices)
    Worker(setting, Channel(sock), arena, slots, steps, documents, limits).serve()


def set_up_node(step: int, sock: socket.socket, steps: list[Stages]) -> None:
    """Run a step's `setup_on_node` and say how it went. Called in a freshly forked process."""
    os.environ[WORKER_MARK] = NODE_MARK
    error = ""
    try:
        StepRunner(steps[step]).setup_on_node(NodeInfo("local"), WorkerMetadata("0", "local"))
    except StageError as failure:
        error = f"{failure.error}\n{failure.detail}".strip()
    Channel(sock).send([(FromWorker.NODE_SET_UP, step, error)])

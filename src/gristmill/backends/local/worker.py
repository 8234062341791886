"""A worker process: takes units, runs them, says what came out."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from gristmill.backends.local.payload import INLINE_BYTES, ArenaWriter, pack, read_arena, size_of, unpack
from gristmill.backends.local.protocol import NOTHING, SLOT_BYTES, FromWorker, ToWorker
from gristmill.backends.local.threads import limit_threads
from gristmill.backends.local.wire import Channel, Closed, Message
from gristmill.backends.step_runner import StageError, StepRunner
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.tasks import Task

_FAST_US = 1000
"""Units faster than this are reported together."""
_REPORT_NS = 5_000_000
_CHUNK_OUTPUTS = 256
_CHUNK_NS = 200_000_000

Stages = tuple[ProcessingStage[Any, Any], ...]


class Interrupt(BaseException):
    """The run is to end now. Not an `Exception`, so that stages do not swallow it."""


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


@dataclass
class Running:
    """A unit whose outputs are being made."""

    unit: int
    step: int
    inputs: list[Any]
    outputs: Iterator[tuple[int, Task[Any]]]
    skip: list[int]
    streams: bool = False


class Worker:
    """Serves one dedicated step, or any step as a shared worker."""

    def __init__(
        self, setting: Setting, channel: Channel, arena: int, slots: mmap.mmap, steps: list[Stages], limits: Limits
    ) -> None:
        self.setting = setting
        self.channel = channel
        self.arena = ArenaWriter(arena, limits.retain)
        self.slots = slots
        self.steps = steps
        self.limits = limits
        self.runners: dict[int, StepRunner] = {}
        self.arenas: dict[int, int] = {}
        self.inbox: deque[Message] = deque()
        self.outbox: list[Message] = []
        self.reported_at = time.perf_counter_ns()
        self.suspended: dict[int, Running] = {}
        self.fast: dict[int, bool] = {}
        self.setups: dict[int, list[int]] = {}
        self.teardown_errors: list[str] = []
        self.stopping = False

    # The loop ---------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Work until told to stop; then, whatever happened, tear down."""
        try:
            if self.setting.step >= 0 and not self.set_up(self.setting.step):
                return
            self.loop()
        except (Interrupt, Closed):
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.suspended.clear()
            for step in list(self.runners):
                self.tear_down(step)
            counts = [(step, i, n, self.torn.get((step, i), 0)) for step, ns in self.setups.items() for i, n in enumerate(ns)]
            self.say((FromWorker.BYE, counts, self.teardown_errors))
            with contextlib.suppress(Closed):
                self.report()

    def loop(self) -> None:
        while not self.stopping:
            if not self.inbox:
                self.report()
                self.inbox.extend(self.channel.receive())
            self.take(self.inbox.popleft())

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
            self.channel.send(self.outbox)
            self.outbox = []
        self.reported_at = time.perf_counter_ns()

    # Stages -----------------------------------------------------------------------------------------------------

    def set_up(self, step: int) -> bool:
        """Set a step up; says how it went."""
        runner = StepRunner(self.steps[step])
        mark(self.slots, self.setting.slot, NOTHING, 0, step)
        limit_threads(self.setting.cpus if self.setting.step >= 0 else self.steps[step][0].resources.cpus)
        start = time.perf_counter_ns()
        s = self.setting
        metadata = WorkerMetadata(str(s.worker), "local", s.cpus, s.gpus, s.gpu_share)
        try:
            runner.setup(metadata)
        except StageError as error:
            runner.teardown()
            self.say((FromWorker.SETUP_FAILED, step, error.stage, error.error, error.detail))
            self.report()
            return False
        finally:
            mark(self.slots, s.slot)
        limit_threads(self.setting.cpus if self.setting.step >= 0 else self.steps[step][0].resources.cpus)
        self.runners[step] = runner
        counts = self.setups.setdefault(step, [0] * len(runner.stages))
        for i in range(len(counts)):
            counts[i] += 1
        took = (time.perf_counter_ns() - start) // 1000
        if s.step >= 0:
            self.say((FromWorker.READY, took))
        else:
            self.say((FromWorker.STEP_SET_UP, step, took))
        self.report()
        return True

    @property
    def torn(self) -> dict[tuple[int, int], int]:
        if not hasattr(self, "_torn"):
            self._torn: dict[tuple[int, int], int] = {}
        return self._torn

    def tear_down(self, step: int) -> None:
        runner = self.runners.pop(step)
        for i in range(len(runner.stages)):
            self.torn[step, i] = self.torn.get((step, i), 0) + 1
        for error in runner.teardown():
            self.teardown_errors.append(f"teardown of '{runner.stages[error.stage].name}': {error.error}")

    # Units ------------------------------------------------------------------------------------------------------

    def run(self, step: int, unit: int, inputs: list[Any]) -> None:
        runner = self.runners.get(step)
        if runner is None:
            if not self.set_up(step):
                self.inbox = deque(m for m in self.inbox if not (m[0] == ToWorker.RUN and m[1] == step))
                return
            runner = self.runners[step]
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
        except (AttributeError, ImportError, EOFError, ValueError, TypeError) as error:
            raise StageError(0, f"{type(error).__name__}: the task could not be loaded: {error}", "") from None
        task.task_id = label
        if stop:
            part = task.slice(start, stop)
            if part is None:
                raise StageError(0, f"TypeError: a {type(task).__name__} of {task.num_items} items could not be sliced", "")
            part.task_id = f"{label}[{start}:{stop}]"
            return part
        return task

    def advance(self, r: Running, start: int = 0) -> None:
        """Make outputs until the unit ends or a chunk is full."""
        runner = self.runners[r.step]
        slot = self.setting.slot
        if not start:
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
                x = self.store(r.inputs[position][0], task, last)
                outputs.append(x)
                made += x[6]
                if made >= self.limits.chunk or len(outputs) >= _CHUNK_OUTPUTS:
                    self.say((FromWorker.EMITTED, r.unit, outputs, _us(start), runner.take_counts()))
                    self.suspended[r.unit] = r
                    mark(self.slots, slot)
                    self.report()
                    return
        except StageError as error:
            self.fail(r.unit, error, start, runner)
            return
        mark(self.slots, slot)
        busy = _us(start)
        self.fast[r.step] = busy < _FAST_US
        self.say((FromWorker.FINISHED, r.unit, outputs, busy, runner.take_counts()))
        if not self.fast[r.step] or time.perf_counter_ns() - self.reported_at > _REPORT_NS:
            self.report()

    def store(self, parent: int, task: Task[Any], last: bool) -> tuple[Any, ...]:
        """An output as it is reported; its payload is put where others can read it."""
        items = int(task.num_items)
        divisible = type(task).slice is not Task.slice
        if last and not self.limits.keep:
            return (parent, task.task_id, items, divisible, None, 0, 0)
        parts = pack(task)
        size = size_of(parts)
        if size <= INLINE_BYTES:
            return (parent, task.task_id, items, divisible, b"".join(parts), 0, size)
        offset, length = self.arena.write(parts)
        return (parent, task.task_id, items, divisible, None, offset, length)

    def fail(self, unit: int, error: StageError, start: int, runner: StepRunner | None) -> None:
        mark(self.slots, self.setting.slot)
        counts = runner.take_counts() if runner is not None else []
        self.say((FromWorker.FAILED, unit, error.stage, error.error, error.detail, _us(start), counts))
        self.report()


def _us(start: int) -> int:
    return (time.perf_counter_ns() - start) // 1000


_SLOT = struct.Struct("<qqq")


def mark(slots: mmap.mmap, slot: int, task: int = NOTHING, stage: int = 0, step: int = NOTHING) -> None:
    """Note what this worker is doing, for whoever finds it dead."""
    _SLOT.pack_into(slots, slot * SLOT_BYTES, task, stage, step)


def read_mark(slots: mmap.mmap, slot: int) -> tuple[int, int, int]:
    """The task, stage and step to set up that a worker noted last."""
    task, stage, step = _SLOT.unpack_from(slots, slot * SLOT_BYTES)
    return task, stage, step


def main(
    setting: Setting, sock: socket.socket, arena: int, slots: mmap.mmap, steps: list[Stages], limits: Limits
) -> None:
    """Be a worker until told to stop. Called in a freshly forked process."""
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(setting.devices)
    channel = Channel(sock)
    worker = Worker(setting, channel, arena, slots, steps, limits)
    if setting.step < 0:
        worker.say((FromWorker.READY, 0))
        worker.report()
    worker.serve()


def set_up_node(step: int, slot: int, sock: socket.socket, slots: mmap.mmap, steps: list[Stages]) -> None:
    """Run a step's `setup_on_node` and say how it went. Called in a freshly forked process."""
    mark(slots, slot, NOTHING, 0, step)
    error = ""
    try:
        StepRunner(steps[step]).setup_on_node(NodeInfo("local"), WorkerMetadata("0", "local"))
    except StageError as failure:
        error = f"{failure.error}\n{failure.detail}".strip()
    mark(slots, slot)
    Channel(sock).send([(FromWorker.NODE_SET_UP, step, error)])


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise Interrupt

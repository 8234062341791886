"""The driver of a local run: turns what processes report into events, and the scheduler's commands into messages."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, Any

import cloudpickle

from gristmill.backends.base import Plan, RunRecord
from gristmill.backends.local import machine, memory
from gristmill.backends.local.account import Account, failure_of
from gristmill.backends.local.outputs import KeptOutputs
from gristmill.backends.local.payload import (
    INLINE_BYTES,
    ArenaWriter,
    LocalNames,
    punch,
    new_arena,
    pack,
    read_arena,
    size_of,
)
from gristmill.backends.local.processes import Processes, WorkerProcess, describe_exit
from gristmill.backends.local.protocol import NOTHING, FromSupervisor, FromWorker, ToWorker
from gristmill.backends.local.wire import Closed, Message
from gristmill.backends.local.worker import Limits, read_mark
from gristmill.errors import PipelineError
from gristmill.metrics.view import View
from gristmill.scheduling import Scheduler
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.config import UNIT
from gristmill.tasks import Task

_TICK_S = 0.1
_VIEW_S = 0.25
_PSS_S = 1.0
_PSS_SHARE = 500
"""Looking at the memory of all processes may take one part in so many of the driver's time."""
_STOP_GRACE_S = 30.0
_INTERRUPT_GRACE_S = 10.0
_PULL_S = 0.005
_SOURCE = -1
"""The arena of payloads that the driver itself wrote."""
_RESTARTS = 5
_FREED = 16
"""Payloads that a worker is told to free even if there is nothing else to tell."""


class Ref:
    """Where the data of a task is."""

    __slots__ = ("arena", "label", "length", "offset", "payload")

    def __init__(self, payload: bytes | None, arena: int, offset: int, length: int, label: str) -> None:
        self.payload = payload
        self.arena = arena
        self.offset = offset
        self.length = length
        self.label = label


class Driver:
    """One run. `run` may be called once, from any thread."""

    def __init__(
        self,
        plan: Plan,
        scheduler: Scheduler,
        processes: Processes,
        node: e.NodeJoined,
        devices: tuple[str, ...],
        source: Iterator[Task[Any]],
        source_total: int | None,
        outputs: KeptOutputs,
        view: View,
        memory_limit: int,
        local: LocalNames,
        limits: Limits,
    ) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.processes = processes
        self.node = node
        self.devices = devices
        self.source = source
        self.source_total = source_total
        self.outputs = outputs
        self.view = view
        self.memory_limit = memory_limit
        self.local = local
        self.limits = limits
        self.account = Account(plan)
        self.events: list[e.Event] = []
        self.refs: dict[int, Ref] = {}
        self.arena_live: dict[int, int] = {}
        self.errors: dict[int, tuple[int, str, Any]] = {}
        """Of the last failed attempt by unit: stage, traceback, counts."""
        self.running: dict[tuple[int, int], int] = {}
        """The step of each unit in a worker."""
        self.next_task = 0
        self.next_source = 0
        self.finished = False
        self.aborted = ""
        self.source_error: BaseException | None = None
        self.interrupts = 0
        self.interrupted = False
        self.first_output_s: float | None = None
        self.selector = selectors.DefaultSelector()
        self.source_arena: ArenaWriter | None = None
        self.oom_kills = machine.oom_kills()
        self.peak_memory = 0
        self.memory_now = 0
        self.restarts = 0
        self.begun = time.perf_counter_ns()
        self._output_rest: dict[int, bytes] = {}
        self._do: dict[type, Callable[[Any], None]] = {
            c.Dispatch: self._dispatch,
            c.Release: self._release,
            c.Resume: self._resume,
            c.Cancel: self._cancel,
            c.StartWorker: self._start_worker,
            c.StopWorker: self._stop_worker,
            c.KillWorker: self._kill_worker,
            c.SetUpNode: self._set_up_node,
            c.Quarantine: self._quarantine,
            c.Pull: self._pull,
            c.Abort: self._abort,
            c.Finish: self._finish,
        }

    # The loop ---------------------------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        restore = self._catch_interrupts()
        try:
            self._watch_supervisor()
            if self.source_total is not None:
                self.events.append(e.SourceSized(self.source_total))
            self.events.append(self.node)
            self._loop()
        finally:
            restore()
        if self.source_error is not None:
            raise self.source_error
        if self.aborted:
            raise PipelineError(f"{self.plan.name!r} was stopped: {self.aborted}")
        return self.record()

    def now(self) -> int:
        return (time.perf_counter_ns() - self.begun) // 1000

    def _loop(self) -> None:
        tick_at = view_at = pss_at = time.monotonic()
        deadline = 0.0
        while not self.finished:
            self._settle()
            now = time.monotonic()
            if self.interrupts and not self.interrupted:
                self.interrupted = True
                deadline = now + _INTERRUPT_GRACE_S
                self.events.append(e.Interrupted())
                continue
            if now >= tick_at:
                tick_at = now + _TICK_S
                self.events.append(e.Tick())
                self._look_at_memory(full=now >= pss_at)
                if now >= pss_at:
                    pss_at = now + max(_PSS_S, (time.monotonic() - now) * _PSS_SHARE)
                self._end_overdue(now)
                self._flush_freed()
                if now >= view_at:
                    view_at = now + _VIEW_S
                    self.view.update(self.scheduler.snapshot(), self.memory_now, self.memory_limit)
                if deadline and now > deadline:
                    return
            if not self.finished and not self.events:
                for key, mask in self.selector.select(max(0.0, tick_at - time.monotonic())):
                    key.data(key.fileobj, mask)
        self.view.update(self.scheduler.snapshot(), self.memory_now, self.memory_limit)

    def _settle(self) -> None:
        """Tell the scheduler what happened and do what it says, until nothing is left to tell."""
        while self.events:
            events, self.events = self.events, []
            for command in self.scheduler.handle(events, self.now()):
                self._do[type(command)](command)
        for w in self.processes.workers.values():
            if w.outbox or len(w.freed) > _FREED:
                self._send(w)

    def _send(self, w: WorkerProcess) -> None:
        if w.freed:
            w.outbox.append((ToWorker.FREE, w.freed))
            w.freed = []
        messages, w.outbox = w.outbox, []
        w.channel.send(messages)
        if not w.channel.flush():
            self.selector.modify(w.channel, selectors.EVENT_READ | selectors.EVENT_WRITE, self._worker_io(w))

    def _worker_io(self, w: WorkerProcess) -> Callable[[Any, int], None]:
        def ready(channel: Any, mask: int) -> None:
            if self.processes.workers.get(w.id) is not w:
                return  # its exit was dealt with in the same round
            if mask & selectors.EVENT_WRITE and w.channel.flush():
                self.selector.modify(w.channel, selectors.EVENT_READ, self._worker_io(w))
            if mask & selectors.EVENT_READ:
                self._hear(w)

        return ready

    def _catch_interrupts(self) -> Callable[[], None]:
        """While the run lasts, Ctrl-C ends it in order; a second one ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def caught(signum: int, frame: FrameType | None) -> None:
            self.interrupts += 1
            if self.interrupts > 1:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, caught)
        return lambda: signal.signal(signal.SIGINT, before) and None

    # Workers speak ----------------------------------------------------------------------------------------------

    def _hear(self, w: WorkerProcess) -> None:
        try:
            messages = w.channel.receive()
        except Closed:
            with contextlib.suppress(KeyError):
                self.selector.unregister(w.channel)
            return
        for message in messages:
            self._take(w, message)

    def _take(self, w: WorkerProcess, message: Message) -> None:
        kind = message[0]
        if kind == FromWorker.FINISHED or kind == FromWorker.EMITTED:
            _, unit, outputs, busy_us, counts = message
            step = self.running[w.id, unit]
            made = self._take_outputs(w, step, outputs)
            self.account.add(step, counts)
            if kind == FromWorker.FINISHED:
                if self.errors:
                    self.errors.pop(unit, None)
                del self.running[w.id, unit]
                self.events.append(e.UnitFinished(w.id, unit, made, busy_us))
            else:
                self.events.append(e.UnitEmitted(w.id, unit, made, busy_us))
        elif kind == FromWorker.FAILED:
            _, unit, stage, error, detail, busy_us, counts = message
            self.errors[unit] = (stage, detail, counts)
            del self.running[w.id, unit]
            self.events.append(e.UnitFailed(w.id, unit, error, busy_us))
        elif kind == FromWorker.READY:
            self.events.append(e.WorkerReady(w.id, message[1]))
        elif kind == FromWorker.STEP_SET_UP:
            self.events.append(e.StepSetUp(w.id, message[1], message[2]))
        elif kind == FromWorker.SETUP_FAILED:
            _, step, stage, error, detail = message
            w.setup_failed = True
            name = self.plan.steps[step].stages[stage].name
            self.events.append(e.SetupFailed(w.id, step, f"{name}: {error}\n{detail}".strip()))
        elif kind == FromWorker.BYE:
            w.said_bye = True
            self.account.add_hooks(message[1])
            for text in message[2]:
                self.view.message(f"worker {w.id}: {text}")
        elif kind == FromWorker.NODE_SET_UP:
            _, step, error = message
            w.said_bye = True
            self.events.append(
                e.NodeSetupFailed(self.node.node, step, error) if error else e.NodeSetUp(self.node.node, step)
            )

    def _take_outputs(self, w: WorkerProcess, step: int, outputs: list[Any]) -> tuple[e.Output, ...]:
        made = []
        last = step == len(self.plan.steps) - 1
        for parent, label, items, divisible, payload, offset, length in outputs:
            ident = self.next_task
            self.next_task += 1
            if last:
                if self.first_output_s is None:
                    self.first_output_s = self.now() / 1e6
                self._deliver(w, label, payload, offset, length)
                made.append(e.Output(ident, 0, items, parent))
                continue
            self.refs[ident] = Ref(payload, w.id, offset, length, label)
            if payload is None:
                self.arena_live[w.id] = self.arena_live.get(w.id, 0) + 1
            made.append(e.Output(ident, length, items, parent, divisible))
        return tuple(made)

    def _deliver(self, w: WorkerProcess, label: str, payload: bytes | None, offset: int, length: int) -> None:
        if not self.outputs.wanted:
            if payload is None and length:
                w.freed.append((offset, length))
            return
        if payload is not None:
            self.outputs.add(label, payload)
        elif length:
            self.outputs.add(label, bytes(read_arena(self.processes.arenas[w.id], offset, length)))
            w.freed.append((offset, length))

    # The supervisor speaks --------------------------------------------------------------------------------------

    def _watch_supervisor(self) -> None:
        self.selector.register(self.processes.control, selectors.EVENT_READ, self._hear_supervisor)
        for stream, out in ((self.processes.stdout, sys.stdout), (self.processes.stderr, sys.stderr)):
            if stream is not None:
                self.selector.register(
                    stream, selectors.EVENT_READ, lambda s, mask, out=out: self._forward(s, out)
                )

    def _hear_supervisor(self, channel: Any, mask: int) -> None:
        try:
            messages = self.processes.control.receive()
        except Closed:
            self._supervisor_died()
            return
        for message in messages:
            kind = message[0]
            if kind == FromSupervisor.STARTED:
                w = self.processes.workers.get(message[1])
                if w is not None:
                    w.pid = message[2]
                    if w.stop_by:
                        self.processes.signal(w, signal.SIGTERM)
            elif kind == FromSupervisor.EXITED:
                self._exited(message[1], message[2])
            elif kind == FromSupervisor.LOADED and message[1]:
                self.aborted = f"the stages could not be loaded in a worker process:\n{message[1]}"
                self.finished = True

    def _exited(self, ident: int, status: int) -> None:
        w = self.processes.workers.get(ident)
        if w is None:
            return
        with contextlib.suppress(Closed):
            while True:
                messages = w.channel.receive()
                if not messages:
                    break
                for message in messages:
                    self._take(w, message)
        task, w.stage, setting_up = read_mark(self.processes.slots, w.slot)
        self._forget_worker(w)
        if w.node_setup:
            if not w.said_bye:
                self.events.append(
                    e.NodeSetupFailed(self.node.node, w.step, f"its process ended: {describe_exit(status)}")
                )
            return
        if w.said_bye and (w.stop_by or w.setup_failed):
            self.events.append(e.WorkerLeft(ident))
        else:
            running = task if task != NOTHING else None
            if running is not None:
                self._note_crash(ident, running, w.stage)
            cause, detail = self._cause(w, status)
            self.events.append(
                e.WorkerDied(ident, cause, running, setting_up if setting_up != NOTHING else None, detail)
            )
        for key in [k for k in self.running if k[0] == ident]:
            del self.running[key]

    def _note_crash(self, ident: int, running: int, stage: int) -> None:
        for (worker, unit), step in self.running.items():
            if worker == ident and unit == running:
                self.errors[unit] = (min(stage, len(self.plan.steps[step].stages) - 1), "", [])

    def _cause(self, w: WorkerProcess, status: int) -> tuple[e.Death, str]:
        if w.out_of_memory:
            return e.Death.OUT_OF_MEMORY, f"the run may use {self.memory_limit / 2**30:.3g} GB"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            kills = machine.oom_kills()
            if kills > self.oom_kills:
                self.oom_kills = kills
                return e.Death.OUT_OF_MEMORY, "killed by the system"
            return e.Death.KILLED, "SIGKILL"
        if w.said_bye:
            return e.Death.KILLED, "SIGTERM"
        return e.Death.CRASHED, describe_exit(status)

    def _forget_worker(self, w: WorkerProcess) -> None:
        with contextlib.suppress(KeyError):
            self.selector.unregister(w.channel)
        self.processes.ended(w)
        if w.id in self.processes.arenas and not self.arena_live.get(w.id):
            self.processes.drop_arena(w.id)

    def _supervisor_died(self) -> None:
        """Someone killed it, and all workers with it: that is no task's fault. Start again."""
        self.selector.unregister(self.processes.control)
        for stream in (self.processes.stdout, self.processes.stderr):
            with contextlib.suppress(KeyError):
                self.selector.unregister(stream)  # type: ignore[arg-type]
        for ident in list(self.processes.workers):
            w = self.processes.workers[ident]
            self._exited(ident, signal.SIGKILL)
            if w.node_setup:
                self.aborted = "the supervisor died during setup_on_node"
        self.restarts += 1
        if self.restarts > _RESTARTS or self.aborted:
            self.aborted = self.aborted or f"its supervisor process died {self.restarts} times"
            self.finished = True
            return
        self.view.message("the supervisor process died and is started again")
        self.processes.restart()
        self._watch_supervisor()

    def _forward(self, stream: IO[bytes], out: Any) -> None:
        """What stages print appears where the driver prints."""
        try:
            data = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(stream)
            return
        *lines, rest = (self._output_rest.get(id(out), b"") + data).split(b"\n")
        self._output_rest[id(out)] = rest
        for line in lines:
            with contextlib.suppress(ValueError, OSError):
                print(line.decode(errors="replace"), file=out, flush=True)

    # Commands ---------------------------------------------------------------------------------------------------

    def _dispatch(self, x: c.Dispatch) -> None:
        w = self.processes.workers.get(x.worker)
        if w is None:
            return
        inputs = []
        if x.special:
            for i in x.special:
                inputs.append(self._input(w, i.task, i.data, i.start, i.stop, i.skip))
        else:
            for t in x.tasks:
                inputs.append(self._input(w, t, t, 0, 0, 0))
        self.running[x.worker, x.tasks[0]] = x.step
        w.outbox.append((ToWorker.RUN, x.step, x.tasks[0], inputs))

    def _input(self, w: WorkerProcess, task: int, data: int, start: int, stop: int, skip: int) -> tuple[Any, ...]:
        ref = self.refs[data]
        if ref.payload is None and ref.arena not in w.arenas:
            self._show_arena(w, ref.arena)
        return (task, ref.label, ref.payload, ref.arena, ref.offset, ref.length, start, stop, skip)

    def _show_arena(self, w: WorkerProcess, arena: int) -> None:
        if w.outbox:
            self._send(w)
        fd = self.source_arena.fd if arena == _SOURCE and self.source_arena else self.processes.arenas[arena]
        w.channel.send([(ToWorker.ARENA, arena)], [fd])
        w.arenas.add(arena)

    def _release(self, x: c.Release) -> None:
        for t in x.tasks:
            ref = self.refs.pop(t)
            if ref.payload is not None:
                continue
            if ref.arena == _SOURCE:
                if self.source_arena is not None:
                    self.source_arena.free(ref.offset, ref.length)
                continue
            producer = self.processes.workers.get(ref.arena)
            if producer is not None:
                producer.freed.append((ref.offset, ref.length))
            else:
                punch(self.processes.arenas[ref.arena], ref.offset, ref.length)
            live = self.arena_live[ref.arena] = self.arena_live[ref.arena] - 1
            if not live:
                del self.arena_live[ref.arena]
                if producer is None:
                    self.processes.drop_arena(ref.arena)

    def _resume(self, x: c.Resume) -> None:
        w = self.processes.workers.get(x.worker)
        if w is not None:
            w.outbox.append((ToWorker.RESUME, x.unit))

    def _cancel(self, x: c.Cancel) -> None:
        self.running.pop((x.worker, x.unit), None)
        w = self.processes.workers.get(x.worker)
        if w is not None:
            w.outbox.append((ToWorker.CANCEL, x.unit))

    def _start_worker(self, x: c.StartWorker) -> None:
        devices = [self.devices[i] for i in x.gpus]
        step = -1 if x.step is None else x.step
        w = self.processes.start(x.worker, step, x.cpu / UNIT, x.gpus, devices, x.gpu_share / UNIT)
        self.selector.register(w.channel, selectors.EVENT_READ, self._worker_io(w))

    def _set_up_node(self, x: c.SetUpNode) -> None:
        w = self.processes.set_up_node(-1 - x.step, x.step)
        self.selector.register(w.channel, selectors.EVENT_READ, self._worker_io(w))

    def _stop_worker(self, x: c.StopWorker) -> None:
        self.processes.stop(x.worker, x.now, _INTERRUPT_GRACE_S if x.now else _STOP_GRACE_S)

    def _kill_worker(self, x: c.KillWorker) -> None:
        w = self.processes.workers.get(x.worker)
        if w is not None:
            self.processes.signal(w, signal.SIGKILL)

    def _end_overdue(self, now: float) -> None:
        for w in self.processes.workers.values():
            if w.stop_by and now > w.stop_by:
                w.stop_by = now + _STOP_GRACE_S
                self.view.message(f"worker {w.id} did not leave in time and is killed")
                self.processes.signal(w, signal.SIGKILL)

    def _flush_freed(self) -> None:
        for w in self.processes.workers.values():
            if w.freed:
                self._send(w)

    def _quarantine(self, x: c.Quarantine) -> None:
        stage, detail, counts = self.errors.pop(x.task, (0, "", []))
        label = self.refs[x.data].label
        name = self.plan.steps[x.step].stages[stage].name
        failure = failure_of(label, x.start, x.stop, name, x.items, x.error, detail, x.story)
        self.account.fail(x.step, stage, failure, counts)
        self.view.message(f"{name}: task {failure.task_id} failed: {x.error.splitlines()[0] if x.error else ''}")

    def _pull(self, x: c.Pull) -> None:
        outputs = []
        until = time.monotonic() + _PULL_S
        try:
            while len(outputs) < x.count:
                task = next(self.source, None)
                if task is None:
                    break
                outputs.append(self._put_source(task))
                if time.monotonic() > until:
                    break
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the source is the user's iterator: its error ends the run and is raised again
            self.source_error = error
            self.events.append(e.Interrupted())
            return
        self.events.append(e.SourceGave(tuple(outputs)) if outputs else e.SourceEnded())

    def _put_source(self, task: Task[Any]) -> e.Output:
        if not isinstance(task, Task):
            raise TypeError(f"initial task {self.next_source} is a {type(task).__name__}, not a Task")
        parts = pack(task, self.local)
        size = size_of(parts)
        ident = self.next_task
        self.next_task += 1
        label = str(self.next_source)
        self.next_source += 1
        if size <= INLINE_BYTES:
            self.refs[ident] = Ref(b"".join(parts), _SOURCE, 0, size, label)
        else:
            if self.source_arena is None:
                self.source_arena = ArenaWriter(new_arena(self.processes.on_disk), self.limits.retain)
            offset, length = self.source_arena.write(parts)
            self.refs[ident] = Ref(None, _SOURCE, offset, length, label)
        return e.Output(ident, size, task.num_items, -1, type(task).slice is not Task.slice)

    def _abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def _finish(self, x: c.Finish) -> None:
        self.finished = True

    # Memory -----------------------------------------------------------------------------------------------------

    def _look_at_memory(self, full: bool) -> None:
        """Note what the run uses; when that is too much, end the worker that uses most."""
        live = self.scheduler.state.held
        own = live
        largest: tuple[int, WorkerProcess | None] = (0, None)
        for w in self.processes.workers.values():
            if not w.pid:
                continue
            total, private = memory.resident(w.pid)
            own += private
            if private > largest[0]:
                largest = (private, w)
            step = self._busy_step(w)
            if step is not None and total > self.account.peak_worker_bytes[step]:
                self.account.peak_worker_bytes[step] = total
        if full or own > self.memory_limit:
            pids = [os.getpid(), self.processes.process.pid, *(w.pid for w in self.processes.workers.values() if w.pid)]
            self.memory_now = memory.proportional(pids) + live
            self.peak_memory = max(self.peak_memory, self.memory_now)
            if self.memory_now > self.memory_limit and largest[1] is not None and not largest[1].out_of_memory:
                largest[1].out_of_memory = True
                self.processes.signal(largest[1], signal.SIGKILL)

    def _busy_step(self, w: WorkerProcess) -> int | None:
        rec = self.scheduler.state.workers.get(w.id)
        return rec.assigned[0].step if rec is not None and rec.assigned else None

    # The end ----------------------------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        s = self.scheduler.state
        return RunRecord(
            name=self.plan.name,
            steps=self.account.steps(s),
            wall_s=self.now() / 1e6,
            first_output_s=self.first_output_s,
            failures=self.account.failures,
            failures_total=self.account.failures_total,
            decisions=list(s.decisions),
            peak_bytes_in_flight=s.peak,
            budget_bytes=s.config.budget,
            peak_memory_bytes=self.peak_memory,
            worker_deaths=s.deaths,
            outputs=self.outputs.tasks(),
            outputs_dropped=self.outputs.reason,
            interrupted=self.interrupted,
        )


def pickle_steps(plan: Plan, local: LocalNames) -> bytes:
    """The stages of each step, with what workers cannot import inside. Raises `PipelineError` naming the stage."""
    steps = []
    for step in plan.steps:
        for stage in step.stages:
            try:
                cloudpickle.dumps(stage)
            except Exception as error:  # noqa: BLE001 - a stage may hold anything; whatever refuses to travel is named
                raise PipelineError(
                    f"stage '{stage.name}' cannot be sent to a worker: {type(error).__name__}: {error}. "
                    "Open files, locks, connections and models in setup(), not in __init__()."
                ) from None
        steps.append(step.stages)
    return cloudpickle.dumps((steps, local.classes), protocol=pickle.HIGHEST_PROTOCOL)

"""What the processes of a run say, as events for the scheduler."""

from __future__ import annotations

import os
import selectors
import signal
import time
from dataclasses import dataclass
from typing import Any

from gristmill.backends.base import Plan
from gristmill.backends.local.account import Account
from gristmill.backends.local.memory import OomKills
from gristmill.backends.local.outputs import KeptOutputs
from gristmill.backends.local.printing import Printer
from gristmill.backends.local.processes import Processes, WorkerProcess, describe_code, describe_exit
from gristmill.backends.local.protocol import FromSupervisor, FromWorker, ToWorker, read_mark
from gristmill.backends.local.source import Source
from gristmill.backends.local.store import Store
from gristmill.backends.local.wire import Channel, Closed, Message
from gristmill.metrics.view import View
from gristmill.scheduling import events as e
from gristmill.scheduling.state import State

_RESTARTS = 5
_TOLD_DEATHS = 20
_FREED = 16
"""Payloads that a worker is told to free even if there is nothing else to tell."""
_KILLS = (signal.SIGKILL, signal.SIGTERM)
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass
class Mean:
    """A mean that grows."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def value(self) -> float:
        return max(0.0, self.total / self.count) if self.count else 0.0


class Reports:
    """Talks with the processes: passes messages on without ever waiting for anyone, and makes events of what comes."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        processes: Processes,
        store: Store,
        outputs: KeptOutputs,
        account: Account,
        view: View,
        node: int,
        memory_limit: int,
    ) -> None:
        self.plan = plan
        self.ledger = plan.ledger
        self.state = state
        self.processes = processes
        self.store = store
        self.outputs = outputs
        self.account = account
        self.view = view
        self.node = node
        self.memory_limit = memory_limit
        self.events: list[e.Event] = []
        """What the scheduler has not been told yet."""
        self.errors: dict[int, dict[int, tuple[int, str, Any]]] = {}
        """Of the last failed attempt, by data and then by unit, a slice of it perhaps: stage, traceback, counts."""
        self.running: dict[tuple[int, int], int] = {}
        """The step of each unit in a worker."""
        self.next_task = 0
        self.broken = ""
        """Why the run cannot go on: there is nobody left who could do what the scheduler says."""
        self.begun = time.perf_counter_ns()
        self.first_output_s: float | None = None
        self.last_output_s: float | None = None
        self.loaded_s = 0.0
        self.starts = Mean()
        """Seconds from the order to start a worker until it is there, without its setup and the loading of stages."""
        self.leaves = Mean()
        """Seconds from the order to leave until a worker is gone."""
        self._selector = selectors.DefaultSelector()
        self.oom_kills = OomKills()
        self.loaded = False
        self._deaths = 0
        self._restarts = 0
        self._node_setups_killed: list[int] = []
        self._watch_supervisor()

    def close(self) -> None:
        self._selector.close()

    def now(self) -> int:
        """Microseconds since the run began."""
        return (time.perf_counter_ns() - self.begun) // 1000

    def new_task(self) -> int:
        self.next_task += 1
        return self.next_task - 1

    # Listening and sending --------------------------------------------------------------------------------------

    def listen(self, until: float) -> None:
        """Wait for news, at the longest until then."""
        for key, mask in self._selector.select(max(0.0, until - time.monotonic())):
            # What was heard a moment ago may have ended this one.
            if self._selector.get_map().get(key.fd) is key:
                key.data(mask)

    def send(self, all_freed: bool = False) -> None:
        """Send what was put into outboxes; with ``all_freed`` also what workers may free and need not know yet."""
        for w in self.processes.workers.values():
            if w.outbox or len(w.freed) > _FREED or (all_freed and w.freed):
                if w.freed:
                    w.outbox.append((ToWorker.FREE, w.freed))
                    w.freed = []
                messages, w.outbox = w.outbox, []
                w.channel.send(messages)
                if w.channel.pending:
                    self._flush(w.channel)
        if self.processes.control.pending:
            self._flush(self.processes.control)

    def _flush(self, channel: Channel) -> None:
        """Send what waits, now or when the other end takes it."""
        key = self._selector.get_map().get(channel.fileno())
        mask = _READ if channel.flush() else _READ | _WRITE
        if key is not None and key.events != mask:
            self._selector.modify(channel, mask, key.data)

    # Workers speak ----------------------------------------------------------------------------------------------

    def watch(self, w: WorkerProcess) -> None:
        def ready(mask: int) -> None:
            if mask & _WRITE:
                self._flush(w.channel)
            if mask & _READ:
                self._hear(w)

        self._selector.register(w.channel, _READ, ready)

    def watch_source(self, source: Source) -> None:
        fd = source.fileno()
        if fd is not None:
            self._selector.register(fd, _READ, lambda mask: source.woken())

    def _unwatch(self, watched: Channel | Printer) -> None:
        if self._selector.get_map().get(watched.fileno()) is not None:
            self._selector.unregister(watched)

    def _hear(self, w: WorkerProcess) -> None:
        try:
            messages = w.channel.receive()
        except Closed:
            self._selector.unregister(w.channel)
            return
        for message in messages:
            self._take(w, message)

    def _take(self, w: WorkerProcess, message: Message) -> None:
        kind = message[0]
        if kind == FromWorker.FINISHED:
            _, unit, outputs, busy_us, counts, entries = message
            step = self.running.pop((w.id, unit))
            if self.ledger is not None:
                self.ledger.add(entries)
            made = self._take_outputs(w, step, outputs)
            self.account.add_last(step, unit, counts)
            self.events.append(e.UnitFinished(w.id, unit, made, busy_us))
        elif kind == FromWorker.EMITTED:
            _, unit, outputs, busy_us, counts, entries = message
            step = self.running[w.id, unit]
            if self.ledger is not None:
                self.ledger.add(entries)
            made = self._take_outputs(w, step, outputs)
            self.account.add_part(step, unit, counts)
            self.events.append(e.UnitEmitted(w.id, unit, made, busy_us))
        elif kind == FromWorker.FAILED:
            _, unit, stage, error, detail, busy_us, counts = message
            self._note_error(unit, stage, detail, counts)
            del self.running[w.id, unit]
            self.events.append(e.UnitFailed(w.id, unit, error, busy_us))
        elif kind == FromWorker.READY:
            if w.step >= 0:
                self.account.set_up(w.step)
            self.starts.add(self._since(w) - message[1] / 1e6)
            self.events.append(e.WorkerReady(w.id, message[1]))
        elif kind == FromWorker.STEP_SET_UP:
            self.account.set_up(message[1])
            self.events.append(e.StepSetUp(w.id, message[1], message[2]))
        elif kind == FromWorker.SETUP_FAILED:
            _, step, stage, error, detail = message
            w.setup_failed = True
            self.account.set_up(step, stage)
            name = self.plan.steps[step].stages[stage].name
            self.events.append(e.SetupFailed(w.id, step, f"{name}: {error}\n{detail}".strip()))
        elif kind == FromWorker.BYE:
            w.said_bye = True
            for step in message[1]:
                self.account.torn_down(step)
            for text in message[2]:
                self.view.message(f"worker {w.id}: {text}")
        elif kind == FromWorker.NODE_SET_UP:
            _, step, error = message
            w.said_bye = True
            self.events.append(e.NodeSetupFailed(self.node, step, error) if error else e.NodeSetUp(self.node, step))

    def _since(self, w: WorkerProcess) -> float:
        """Seconds since a worker was told to start or stop, or since it could."""
        return self.now() / 1e6 - max(self.loaded_s, (w.ordered_ns - self.begun) / 1e9)

    def _note_error(self, unit: int, stage: int, detail: str, counts: Any) -> None:
        tasks = self.state.tasks
        if unit not in tasks:
            return  # the run is being stopped
        of_data = self.errors.setdefault(tasks[unit].data, {})
        for split in [x for x in of_data if x not in tasks]:
            del of_data[split]
        of_data[unit] = (stage, detail, counts)

    def _take_outputs(self, w: WorkerProcess, step: int, outputs: list[Any]) -> tuple[e.Output, ...]:
        made = []
        last = step == len(self.plan.steps) - 1
        if last and outputs:
            self.last_output_s = self.now() / 1e6
            if self.first_output_s is None:
                self.first_output_s = self.last_output_s
        for parent, label, items, divisible, payload, offset, length in outputs:
            ident = self.new_task()
            if last:
                if payload is None and length:
                    payload = self.store.take(w, offset, length, self.outputs.wanted)
                if payload is not None and self.outputs.wanted:
                    self.outputs.add(label, payload)
                made.append(e.Output(ident, 0, items, parent))
            else:
                if self.ledger is not None:
                    self.ledger.begin(label)
                self.store.add(ident, label, w, payload, offset, length)
                made.append(e.Output(ident, length, items, parent, divisible))
        return tuple(made)

    # The supervisor speaks --------------------------------------------------------------------------------------

    def _watch_supervisor(self) -> None:
        self._selector.register(self.processes.control, _READ, self._hear_supervisor)
        for printer in self.processes.printers:
            self._selector.register(printer, _READ, lambda mask, p=printer: p.forward() or self._selector.unregister(p))
        self._flush(self.processes.control)

    def _hear_supervisor(self, mask: int) -> None:
        if mask & _WRITE:
            self._flush(self.processes.control)
        if not mask & _READ:
            return
        try:
            messages = self.processes.control.receive()
        except Closed:
            self._supervisor_died()
            return
        for message in messages:
            kind = message[0]
            if kind == FromSupervisor.STARTED:
                self.processes.started(message[1], message[2])
            elif kind == FromSupervisor.EXITED:
                self._exited(message[1], message[2])
            elif kind == FromSupervisor.LOADED:
                self.loaded_s = self.loaded_s or self.now() / 1e6
                self.loaded = True
                if message[1]:
                    self.broken = f"the stages could not be loaded in a worker process:\n{message[1]}"
            elif kind == FromSupervisor.UNABLE:
                self.broken = f"a worker process could not be started: {message[1]}"
        self._set_up_nodes_again()

    def _exited(self, ident: int, status: int) -> None:
        w = self.processes.workers.get(ident)
        if w is None:
            return
        for message in w.channel.drain():
            self._take(w, message)
        task, stage, setting_up = read_mark(self.processes.slots, w.slot)
        self._unwatch(w.channel)
        self.processes.ended(w)
        self.store.worker_gone(w)
        cause, detail = self._cause(w, status)
        if w.node_setup:
            if not w.said_bye and cause is e.Death.KILLED:
                self._node_setups_killed.append(w.step)
            elif not w.said_bye:
                self.events.append(e.NodeSetupFailed(self.node, w.step, f"its process {cause.value} ({detail})"))
            return
        if w.said_bye and status == 0 and (w.stop_by or w.setup_failed):
            if w.stop_by:
                self.leaves.add(self._since(w))
            self.events.append(e.WorkerLeft(ident))
        else:
            step = self.running.get((ident, task)) if task is not None else None
            if task is not None and step is not None:
                self._note_error(task, min(stage, len(self.plan.steps[step].stages) - 1), "", [])
            self._tell_death(ident, cause, detail, task, step)
            self.events.append(e.WorkerDied(ident, cause, task, setting_up, detail))
        for key in [k for k in self.running if k[0] == ident]:
            del self.running[key]

    def _tell_death(self, ident: int, cause: e.Death, detail: str, task: int | None, step: int | None) -> None:
        self._deaths += 1
        if self._deaths > _TOLD_DEATHS:
            return
        doing = f" while running '{self.plan.steps[step].name}'" if task is not None and step is not None else ""
        more = "; further deaths are not told here" if self._deaths == _TOLD_DEATHS else ""
        self.view.message(f"worker {ident} {cause.value} ({detail}){doing}{more}")

    def _cause(self, w: WorkerProcess, status: int) -> tuple[e.Death, str]:
        if w.out_of_memory:
            return e.Death.OUT_OF_MEMORY, f"the run may use {self.memory_limit / 2**30:.3g} GB"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _KILLS:
            if os.WTERMSIG(status) == signal.SIGKILL and self.oom_kills.take():
                return e.Death.OUT_OF_MEMORY, "killed by the system"
            return e.Death.KILLED, describe_exit(status)
        if w.said_bye and status == 0:
            return e.Death.KILLED, "SIGTERM"
        return e.Death.CRASHED, describe_exit(status)

    def _supervisor_died(self) -> None:
        """Someone killed it, and all workers with it: that is no task's fault. Start again."""
        self._unwatch(self.processes.control)
        for printer in self.processes.printers:
            self._unwatch(printer)
        code = self.processes.end_supervisor()
        for ident in list(self.processes.workers):
            self._exited(ident, signal.SIGKILL)
        self._restarts += 1
        how = describe_code(code)
        if not self.loaded and -code not in _KILLS:
            said = "\n".join(line for printer in self.processes.printers for line in printer.last)
            self.broken = f"its supervisor process could not start ({how}):\n{said}".rstrip(":\n")
        elif self._restarts > _RESTARTS:
            self.broken = f"its supervisor process died {self._restarts} times, the last time of {how}"
        if self.broken:
            return
        self.view.message(f"the supervisor process died ({how}) and is started again")
        self.processes.restart()
        self._watch_supervisor()
        self._set_up_nodes_again()

    def _set_up_nodes_again(self) -> None:
        """`setup_on_node` that was killed from outside did not fail."""
        if self._node_setups_killed and not self.broken:
            steps, self._node_setups_killed = self._node_setups_killed, []
            for step in steps:
                self.set_up_node(step)

    def set_up_node(self, step: int) -> None:
        self.watch(self.processes.set_up_node(-1 - step, step))

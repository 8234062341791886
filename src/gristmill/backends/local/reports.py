"""Messages and exits of the processes of a run, turned into events for the scheduler."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import Counter
from typing import Any

from gristmill.backends.engine.memory import OomKills
from gristmill.backends.engine.protocol import FreePayloads, read_mark
from gristmill.backends.engine.reports import Reports
from gristmill.backends.engine.run import RunParts
from gristmill.backends.engine.source import TaskSource
from gristmill.backends.local import protocol as sp
from gristmill.backends.local.printing import Printer
from gristmill.backends.local.processes import Processes, WorkerProcess, describe_code, describe_exit
from gristmill.backends.local.store import LocalStore
from gristmill.backends.local.wire import Channel, Closed
from gristmill.scheduling import events as e

_RESTARTS = 5
_FREED = 16
"""So many freed payloads are reported to a worker even if there is no other message for it."""
_KILLS = (signal.SIGKILL, signal.SIGTERM)
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class LocalReports(Reports):
    """Exchanges messages with the processes, and never waits for one of them."""

    def __init__(self, parts: RunParts, processes: Processes, store: LocalStore, memory_limit: int) -> None:
        super().__init__(parts, store)
        self.processes = processes
        self.arenas = store
        self.memory_limit = memory_limit
        self._selector = selectors.DefaultSelector()
        self.oom_kills = OomKills()
        self._restarts = 0
        self._node_setups_killed: list[int] = []
        self._node_setup_deaths: Counter[int] = Counter()
        """By step, how often the process of its `setup_on_node` died."""
        self._watch_supervisor()

    def close(self) -> None:
        self._selector.close()

    # Listening and sending --------------------------------------------------------------------------------------

    def listen(self, until: float) -> None:
        """Wait for messages, at most until then (`time.monotonic`)."""
        for key, mask in self._selector.select(max(0.0, until - time.monotonic())):
            # A message that came a moment ago may have ended this one.
            if self._selector.get_map().get(key.fd) is key:
                key.data(mask)

    def send(self, all_freed: bool = False) -> None:
        for w in self.processes.workers.values():
            if w.outbox or len(w.freed) > _FREED or (all_freed and w.freed):
                if w.freed:
                    w.outbox.append(FreePayloads(w.freed))
                    w.freed = []
                messages, w.outbox = w.outbox, []
                w.channel.send(messages)
                if w.channel.pending:
                    self._flush(w.channel)
        if self.processes.control.pending:
            self._flush(self.processes.control)

    def _flush(self, channel: Channel[Any, Any]) -> None:
        """Send what waits, now or when the other end takes it."""
        key = self._selector.get_map().get(channel.fileno())
        mask = _READ if channel.flush() else _READ | _WRITE
        if key is not None and key.events != mask:
            self._selector.modify(channel, mask, key.data)

    # Messages of workers -------------------------------------------------------------------------------------------

    def watch(self, w: WorkerProcess) -> None:
        def ready(mask: int) -> None:
            if mask & _WRITE:
                self._flush(w.channel)
            if mask & _READ:
                self._receive(w)

        self._selector.register(w.channel, _READ, ready)

    def watch_source(self, source: TaskSource) -> None:
        fd = source.fileno()
        if fd is not None:
            self._selector.register(fd, _READ, lambda mask: source.woken())

    def _unwatch(self, watched: Channel[Any, Any] | Printer) -> None:
        if self._selector.get_map().get(watched.fileno()) is not None:
            self._selector.unregister(watched)

    def _receive(self, w: WorkerProcess) -> None:
        try:
            messages = w.channel.receive()
        except Closed:
            self._selector.unregister(w.channel)
            w.closed_at = time.monotonic()
            return
        for message in messages:
            self.take(w, message)

    # Messages of the supervisor -----------------------------------------------------------------------------------

    def _watch_supervisor(self) -> None:
        self._selector.register(self.processes.control, _READ, self._receive_from_supervisor)
        for printer in self.processes.printers:
            self._selector.register(printer, _READ, lambda mask, p=printer: p.forward() or self._selector.unregister(p))
        self._flush(self.processes.control)

    def _receive_from_supervisor(self, mask: int) -> None:
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
            self._take_from_supervisor(message)
        self._set_up_nodes_again()

    def _take_from_supervisor(self, message: sp.FromSupervisor) -> None:
        match message:
            case sp.Forked(worker, pid):
                self.processes.started(worker, pid)
            case sp.Exited(worker, status):
                self._exited(worker, status)
            case sp.Loaded(error):
                self.loaded_s = self.loaded_s or self.now() / 1e6
                self.loaded = True
                if error:
                    self.broken = f"the stages could not be loaded in a worker process:\n{error}"
            case sp.CannotFork(error):
                self.broken = f"a worker process could not be started: {error}"

    def _exited(self, ident: int, status: int) -> None:
        w = self.processes.workers.get(ident)
        if w is None:
            return
        for message in w.channel.drain():
            self.take(w, message)
        task, stage, setting_up = read_mark(self.processes.slots, w.slot)
        begun = self.processes.begun_in(w)
        self._unwatch(w.channel)
        self.processes.ended(w)
        self.arenas.worker_gone(w)
        self.forget_progress(w)
        cause, detail = self._cause(w, status)
        if w.node_setup:
            if not w.left:
                self._node_setup_deaths[w.step] += 1
            again = self._node_setup_deaths[w.step] < self.state.config.isolated_kills
            if not w.left and cause is e.Death.KILLED and again:
                self._node_setups_killed.append(w.step)
            elif not w.left:
                self.events.append(e.NodeSetupFailed(w.node, w.step, f"its process {cause.value} ({detail})"))
            return
        if w.left and status == 0 and (w.stop_by or w.setup_failed):
            self.has_left(w)
        else:
            self.died(w, cause, detail, task, stage, setting_up, begun)
        self.forget_units(w)

    def _cause(self, w: WorkerProcess, status: int) -> tuple[e.Death, str]:
        if w.out_of_memory:
            return e.Death.OUT_OF_MEMORY, f"the run may use {self.memory_limit / 2**30:.3g} GB"
        if w.cut_off or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == sp.CUT_OFF_STATUS):
            return e.Death.CRASHED, sp.CUT_OFF
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _KILLS:
            if os.WTERMSIG(status) == signal.SIGKILL and self.oom_kills.take():
                return e.Death.OUT_OF_MEMORY, "killed by the system"
            return e.Death.KILLED, describe_exit(status)
        if w.left and status == 0:
            return e.Death.KILLED, "SIGTERM"
        return e.Death.CRASHED, describe_exit(status)

    def _supervisor_died(self) -> None:
        """Start the supervisor again. It was killed, and all workers with it, which is no task's fault."""
        self._unwatch(self.processes.control)
        for printer in self.processes.printers:
            self._unwatch(printer)
        code = self.processes.end_supervisor()
        for ident in list(self.processes.workers):
            self._exited(ident, signal.SIGKILL)
        self._restarts += 1
        how = describe_code(code)
        if not self.loaded and -code not in _KILLS:
            printed = "\n".join(line for printer in self.processes.printers for line in printer.last)
            self.broken = f"its supervisor process could not start ({how}):\n{printed}".rstrip(":\n")
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

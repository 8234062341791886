"""The driver of a local run."""

from __future__ import annotations

import os
import signal

from gristmill.backends.engine.driver import INTERRUPT_GRACE_S, STOP_GRACE_S, Driver
from gristmill.backends.engine.gpu_usage import GpuUsage, WorkerProcessOnGpu
from gristmill.backends.engine.memory import MemoryWatch
from gristmill.backends.engine.run import RunParts
from gristmill.backends.local.processes import Processes, WorkerProcess
from gristmill.backends.local.reports import LocalReports
from gristmill.backends.local.store import LocalStore
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.snapshot import GpuSnapshot

_EXIT_S = 10.0
"""How long a worker that has closed its connection may take to exit."""


class LocalDriver(Driver):
    """Carries out the scheduler's commands with processes of this machine."""

    def __init__(
        self,
        parts: RunParts,
        processes: Processes,
        node: e.NodeJoined,
        devices: tuple[str, ...],
        store: LocalStore,
    ) -> None:
        self.talk = LocalReports(parts, processes, store, node.memory)
        self.watch = MemoryWatch(node.memory)
        super().__init__(parts, self.talk, store, self.watch)
        self.processes = processes
        self.node = node
        self.devices = devices
        self.gpu_usage = GpuUsage(devices)
        self.arenas = store
        self.talk.watch_source(self.source)

    def nodes(self) -> list[e.NodeJoined]:
        return [self.node]

    def close(self) -> None:
        super().close()
        self.arenas.close()

    def gpus(self) -> tuple[GpuSnapshot, ...]:
        workers = self.processes.workers.values()
        return self.gpu_usage.sample(WorkerProcessOnGpu(w.id, w.step, w.pid) for w in workers)

    def find_worker(self, worker: int) -> WorkerProcess | None:
        return self.processes.workers.get(worker)

    def start_worker(self, x: c.StartWorker) -> None:
        devices = [self.devices[i] for i in x.gpus]
        step = -1 if x.step is None else x.step
        gpus = x.gpus, devices, x.gpu_share / UNIT
        self.talk.watch(self.processes.start(x.worker, step, x.cpu / UNIT, *gpus, x.in_flight))

    def set_up_node(self, x: c.SetUpNode) -> None:
        self.talk.set_up_node(x.step)

    def stop_worker(self, x: c.StopWorker) -> None:
        self.processes.stop(x.worker, x.now, INTERRUPT_GRACE_S if x.now else STOP_GRACE_S)

    def kill_worker(self, x: c.KillWorker) -> None:
        w = self.processes.workers.get(x.worker)
        if w is not None:
            self.processes.signal(w, signal.SIGKILL)

    def _end_overdue(self, now: float) -> None:
        for w in self.processes.workers.values():
            if w.closed_at and not w.cut_off and now > w.closed_at + _EXIT_S:
                # it runs, but can report nothing: a stage closed its connection
                w.cut_off = True
                self.processes.signal(w, signal.SIGKILL)
            if w.stop_by and now > w.stop_by:
                w.stop_by = now + STOP_GRACE_S
                self.view.message(f"worker {w.id} did not leave in time and is killed")
                self.processes.signal(w, signal.SIGKILL)

    # Memory -----------------------------------------------------------------------------------------------------

    def check_workers(self, now: float) -> float:
        self._check_memory()
        self.talk.oom_kills.check(now)
        self._end_overdue(now)
        return self.watch.again_s

    def _check_memory(self) -> None:
        """Measure the memory of the run. If it is above the limit, kill the worker that uses most."""
        pids = {w.id: w.pid for w in self.processes.workers.values() if w.pid}
        arenas = 0 if self.processes.on_disk else self.arenas.arena_bytes
        worst = self.watch.check(pids, (os.getpid(), self.processes.process.pid), arenas)
        self.account.worker_bytes = self.account.note_memory(self.scheduler.state.workers, self.watch.resident)
        w = self.processes.workers.get(worst) if worst is not None else None
        if w is not None and not w.out_of_memory:
            w.out_of_memory = True
            self.processes.signal(w, signal.SIGKILL)

"""The driver of a local run: tells the scheduler what happened and does what it says."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from gristmill.backends.base import Plan, RunRecord
from gristmill.backends.local.account import Account, failure_of
from gristmill.backends.local.interrupts import Interrupts
from gristmill.backends.local.memory import MemoryWatch
from gristmill.backends.local.names import LocalNames
from gristmill.backends.local.outputs import KeptOutputs
from gristmill.backends.local.payload import pack, unpack
from gristmill.backends.local.planning import Planning
from gristmill.backends.local.printing import FailureLines
from gristmill.backends.local.processes import Processes
from gristmill.backends.local.protocol import ToWorker
from gristmill.backends.local.reports import Reports
from gristmill.backends.local.source import Source
from gristmill.backends.local.store import Store
from gristmill.errors import PipelineError
from gristmill.ledger.failed import set_aside
from gristmill.metrics.view import View
from gristmill.scheduling import Scheduler
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.config import UNIT
from gristmill.scheduling.profile import Profile
from gristmill.scheduling.simulator.measured import load_of
from gristmill.tasks import Task

_VIEW_S = 0.5
_SLOW_START_US = 1_500_000
_STOP_GRACE_S = 30.0
_INTERRUPT_GRACE_S = 10.0


class Driver:
    """One run. `run` may be called once, from any thread."""

    def __init__(
        self,
        plan: Plan,
        scheduler: Scheduler,
        processes: Processes,
        node: e.NodeJoined,
        devices: tuple[str, ...],
        source: Source,
        store: Store,
        outputs: KeptOutputs,
        view: View,
        local: LocalNames,
        interrupts: Interrupts,
    ) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.processes = processes
        self.node = node
        self.devices = devices
        self.source = source
        self.store = store
        self.outputs = outputs
        self.view = view
        self.local = local
        self.interrupts = interrupts
        self.account = Account(plan)
        self.failure_lines = FailureLines(view.message)
        self.memory = MemoryWatch(node.memory)
        self.reports = Reports(
            plan, scheduler.state, processes, store, outputs, self.account, view, node.node, node.memory
        )
        self.reports.watch_source(source)
        self.finished = False
        self.aborted = ""
        self.interrupted = False
        self.planning = Planning()
        self._failed: tuple[int, Task[Any] | None] = (-1, None)
        """The task of which parts were given up last."""
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
            c.Solve: self.planning.ask,
            c.Abort: self._abort,
            c.Finish: self._finish,
        }

    # The loop ---------------------------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        if self.source.total is not None:
            self.reports.events.append(e.SourceSized(self.source.total))
        self.reports.events.append(self.node)
        self._loop()
        if self.source.error is not None:
            raise self.source.error
        reason = self.reports.broken or self.aborted
        if reason and not self.interrupted:
            raise PipelineError(f"{self.plan.name!r} was stopped: {reason}")
        return self.record()

    def close(self) -> None:
        self._commit(now=True)
        self.reports.close()
        self.store.close()

    def _loop(self) -> None:
        reports = self.reports
        tick_at = view_at = time.monotonic()
        deadline = 0.0
        told = False
        while not self.finished and not reports.broken:
            self._settle()
            now = time.monotonic()
            if self.interrupts.count and not self.interrupted:
                self.interrupted = True
                deadline = now + _INTERRUPT_GRACE_S
                reports.events.append(e.Interrupted())
                continue
            if now >= tick_at:
                reports.events.append(e.Tick())
                self._look_at_memory()
                reports.oom_kills.look(now)
                self.failure_lines.catch_up(now)
                tick_at = now + self.memory.again_s
                self._commit()
                self._end_overdue(now)
                reports.send(all_freed=True)
                if now >= view_at:
                    view_at = now + _VIEW_S
                    self._show()
                if deadline and now > deadline:
                    return
                if not (reports.loaded or told) and reports.now() > _SLOW_START_US:
                    told = True
                    self.view.message("still loading the stages: what they import is imported once, before any work")
            if not self.finished and not reports.events:
                reports.listen(min(tick_at, self.source.due()))
        self.failure_lines.catch_up(math.inf)
        self._show()

    def _commit(self, now: bool = False) -> None:
        if self.plan.ledger is not None and self.plan.ledger.log is not None:
            self.plan.ledger.log.flush(now)

    def _show(self) -> None:
        self.view.update(self.scheduler.snapshot(), self.memory.now, self.memory.limit)

    def _settle(self) -> None:
        """Tell the scheduler what happened and do what it says, until nothing is left to tell."""
        reports = self.reports
        reports.events += self.planning.take()
        while self._take_from_source() or reports.events:
            events, reports.events = reports.events, []
            for command in self.scheduler.handle(events, reports.now()):
                self._do[type(command)](command)
        reports.send()

    # Commands ---------------------------------------------------------------------------------------------------

    def _dispatch(self, x: c.Dispatch) -> None:
        w = self.processes.workers.get(x.worker)
        if w is None:
            return
        if x.special:
            inputs = [self.store.input_for(w, i.task, i.data, i.start, i.stop, i.skip) for i in x.special]
        else:
            inputs = [self.store.input_for(w, t, t, 0, 0, 0) for t in x.tasks]
        self.reports.running[x.worker, x.tasks[0]] = x.step
        w.outbox.append((ToWorker.RUN, x.step, x.tasks[0], inputs))

    def _release(self, x: c.Release) -> None:
        stopping = self.scheduler.state.stopping
        for t in x.tasks:
            self.account.released(t)
            self.reports.errors.pop(t, None)
            if self.plan.ledger is not None:
                self.plan.ledger.end(self.store.refs[t].label, x.cancelled)
            if not stopping:  # else workers may still be reading; all of it goes with the run
                self.store.release(t)

    def _resume(self, x: c.Resume) -> None:
        w = self.processes.workers.get(x.worker)
        if w is not None:
            w.outbox.append((ToWorker.RESUME, x.unit))

    def _cancel(self, x: c.Cancel) -> None:
        self.reports.running.pop((x.worker, x.unit), None)
        w = self.processes.workers.get(x.worker)
        if w is not None:
            w.outbox.append((ToWorker.CANCEL, x.unit))

    def _start_worker(self, x: c.StartWorker) -> None:
        devices = [self.devices[i] for i in x.gpus]
        step = -1 if x.step is None else x.step
        self.reports.watch(self.processes.start(x.worker, step, x.cpu / UNIT, x.gpus, devices, x.gpu_share / UNIT))

    def _set_up_node(self, x: c.SetUpNode) -> None:
        self.reports.set_up_node(x.step)

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

    def _quarantine(self, x: c.Quarantine) -> None:
        stage, detail, counts = self.reports.errors.get(x.data, {}).pop(x.task, (0, "", []))
        label = self.store.refs[x.data].label
        name = self.plan.steps[x.step].stages[stage].name
        failure = failure_of(label, x.start, x.stop, name, x.items, x.error, detail, x.story)
        if self.plan.ledger is not None:
            self._set_aside(x, label, name)
        self.account.fail(x.step, stage, failure, x.task, counts)
        text = f"{name}: task {failure.task_id} failed: {x.error.partition(chr(10))[0]}"
        self.failure_lines.say(name, text, time.monotonic())

    def _set_aside(self, x: c.Quarantine, label: str, stage: str) -> None:
        """Account for documents of a task that is given up."""
        assert self.plan.ledger is not None
        if self._failed[0] != x.data:  # parts of one task come one after the other
            try:
                self._failed = (x.data, unpack(self.store.payload(x.data)))
            except Exception as error:  # unpickling runs the user's code; what is in the task is then not known
                self.view.message(f"task {label} cannot be loaded: {type(error).__name__}: {error}")
                self._failed = (x.data, None)
        task = self._failed[1]
        if task is None:
            self.plan.ledger.spoil(label)
            return
        partly = self.account.has_part(x.task)
        set_aside(self.plan.ledger, self.plan.output, label, task, x.start, x.stop, stage, x.error, partly)

    def _pull(self, x: c.Pull) -> None:
        self.source.ask(x.count)

    def _take_from_source(self) -> bool:
        """Tell what the source gave, if it is time; whether there is something to tell."""
        events = self.reports.events
        if self.source.asked and self.scheduler.state.source_ended:
            self.source.asked = 0  # the run ends early: nobody waits for an answer any more
            events.append(e.SourceEnded())
            return True
        answer = self.source.answer(self._put)
        if answer is None:
            return False
        outputs, more = answer
        if self.source.error is not None:
            events.append(e.Interrupted())
            return True
        events.append(e.SourceGave(tuple(outputs)))
        if not more:
            events.append(e.SourceEnded())
        return True

    def _put(self, label: str, task: Task[Any]) -> e.Output:
        ident = self.reports.new_task()
        if self.plan.ledger is not None:
            self.plan.ledger.begin(label)
        try:
            size = self.store.put(ident, label, pack(task, self.local))
            return e.Output(ident, size, int(task.num_items), -1, type(task).slice is not Task.slice)
        except Exception as error:  # pickling runs the user's code, on whatever the task holds
            raise PipelineError(
                f"initial task {label}, a {type(task).__name__}, cannot be sent to a worker: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def _finish(self, x: c.Finish) -> None:
        self.finished = True

    # Memory and the end -----------------------------------------------------------------------------------------

    def _look_at_memory(self) -> None:
        """Note what the run uses; when that is too much, end the worker that uses most."""
        pids = {w.id: w.pid for w in self.processes.workers.values() if w.pid}
        arenas = 0 if self.processes.on_disk else self.store.arena_bytes
        worst = self.memory.look(pids, (os.getpid(), self.processes.process.pid), arenas)
        for worker, used in self.memory.resident.items():
            rec = self.scheduler.state.workers.get(worker)
            if rec is not None and rec.assigned:
                self.account.note_memory(rec.assigned[0].step, used)
        w = self.processes.workers.get(worst) if worst is not None else None
        if w is not None and not w.out_of_memory:
            w.out_of_memory = True
            self.processes.signal(w, signal.SIGKILL)

    def record(self) -> RunRecord:
        s = self.scheduler.state
        reports = self.reports
        starts, leaves = reports.starts.value, reports.leaves.value
        return RunRecord(
            name=self.plan.name,
            steps=self.account.steps(s),
            wall_s=self.reports.now() / 1e6,
            first_output_s=self.reports.first_output_s,
            failures=self.account.failures,
            failures_total=self.account.failures_total,
            decisions=list(s.decisions),
            peak_bytes_in_flight=s.peak,
            budget_bytes=s.config.budget,
            peak_memory_bytes=self.memory.peak,
            worker_deaths=s.deaths,
            outputs=self.outputs.tasks(),
            outputs_dropped=self.outputs.reason,
            interrupted=self.interrupted,
            loaded_s=reports.loaded_s,
            last_output_s=reports.last_output_s,
            ledger=self.plan.ledger,
            profile=Profile.measured(s.steps),
            load=load_of(s, [self.node], self.plan.name, starts, leaves, self.memory.again_s),
        )

"""The driver of a run: passes events to the scheduler and carries out its commands."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gristmill.backends.base import RunRecord
from gristmill.backends.engine.account import FailureLines, failure_of, input_progress
from gristmill.backends.engine.memory import MemoryUse
from gristmill.backends.engine.payload import pack, unpack
from gristmill.backends.engine.protocol import DropUnit, LimitUnits, ResumeUnit, ReturnUnits, RunUnit, WorkerHandle
from gristmill.backends.engine.reports import PayloadStore, Reports
from gristmill.backends.engine.run import RunParts
from gristmill.errors import PipelineError
from gristmill.ledger.failed import set_aside
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.planning import solve
from gristmill.scheduling.profile import Profile
from gristmill.scheduling.snapshot import GpuSnapshot
from gristmill.tasks import Task
from gristmill.tasks.account import FOUND

if TYPE_CHECKING:
    from gristmill.scheduling.load import Load
    from gristmill.scheduling.state import State

_VIEW_S = 0.5
_OFTEN_US = 30_000_000
"""For so long observers get a moment with every update of the view, then at most every `_MOMENT_US`."""
_MOMENT_US = 900_000
_SLOW_START_US = 1_500_000
STOP_GRACE_S = 30.0
INTERRUPT_GRACE_S = 10.0


class Driver(ABC):
    """One run. `run` may be called once, from any thread. How workers are started and reached is the backend's."""

    def __init__(self, parts: RunParts, reports: Reports, store: PayloadStore, memory: MemoryUse) -> None:
        self.plan = parts.plan
        self.scheduler = parts.scheduler
        self.source = parts.source
        self.outputs = parts.outputs
        self.account = parts.account
        self.view = parts.view
        self.names = parts.names
        self.interrupts = parts.interrupts
        self.reports = reports
        self.store = store
        self.memory = memory
        """The last measurement of `check_workers`."""
        self.check_every_s = 0.0
        """The current time between two calls of `check_workers`."""
        self.failure_lines = FailureLines(self.view.message)
        self.finished = False
        self.aborted = ""
        self.interrupted = False
        self.planning = Planning()
        self._moment_us = 0
        """From when on observers get the next moment."""
        self._failed: tuple[int, Task[Any] | None] = (-1, None)
        """The task whose parts were given up last."""
        self._do: dict[type, Callable[[Any], None]] = {
            c.Dispatch: self._dispatch,
            c.Release: self._release,
            c.Resume: self._resume,
            c.Cancel: self._cancel,
            c.StartWorker: self.start_worker,
            c.StopWorker: self.stop_worker,
            c.KillWorker: self.kill_worker,
            c.LimitInFlight: self._limit_in_flight,
            c.ReturnWaiting: self._return_waiting,
            c.SetUpNode: self.set_up_node,
            c.Quarantine: self._quarantine,
            c.Pull: self._pull,
            c.Solve: self.planning.ask,
            c.Abort: self._abort,
            c.Finish: self._finish,
        }

    # What a backend provides ------------------------------------------------------------------------------------

    @abstractmethod
    def find_worker(self, worker: int) -> WorkerHandle | None:
        """Return a worker whose end is not known yet."""

    @abstractmethod
    def start_worker(self, x: c.StartWorker) -> None: ...

    @abstractmethod
    def stop_worker(self, x: c.StopWorker) -> None: ...

    @abstractmethod
    def kill_worker(self, x: c.KillWorker) -> None: ...

    @abstractmethod
    def set_up_node(self, x: c.SetUpNode) -> None: ...

    @abstractmethod
    def nodes(self) -> list[e.NodeJoined]:
        """The first nodes of the run."""

    @abstractmethod
    def check_workers(self, now: float) -> float:
        """Check memory and overdue workers. Return after how many seconds to check again."""

    # The loop ---------------------------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        if self.source.total is not None:
            self.reports.events.append(e.SourceSized(self.source.total))
        self.reports.events += self.nodes()
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

    def _loop(self) -> None:
        reports = self.reports
        tick_at = view_at = time.monotonic()
        deadline = 0.0
        warned = False
        while not self.finished and not reports.broken:
            self._settle()
            now = time.monotonic()
            if self.interrupts.count and not self.interrupted:
                self.interrupted = True
                deadline = now + INTERRUPT_GRACE_S
                reports.events.append(e.Interrupted())
                continue
            if now >= tick_at:
                reports.events.append(e.Tick())
                self.failure_lines.catch_up(now)
                self.check_every_s = self.check_workers(now)
                tick_at = now + self.check_every_s
                self._commit()
                reports.send(all_freed=True)
                if now >= view_at:
                    view_at = now + _VIEW_S
                    self._show()
                if deadline and now > deadline:
                    return
                if not (reports.loaded or warned) and reports.now() > _SLOW_START_US:
                    warned = True
                    self.view.message("still loading the stages: what they import is imported once, before any work")
            if not self.finished and not reports.events:
                reports.listen(min(tick_at, self.source.due()))
        self.failure_lines.catch_up(math.inf)
        self._moment_us = 0
        self._show()

    def _commit(self, now: bool = False) -> None:
        if self.plan.ledger is not None and self.plan.ledger.log is not None:
            self.plan.ledger.log.flush(now=now)

    def _show(self) -> None:
        snapshot = self.scheduler.snapshot([stages[0].items_done for stages in self.account.stages])
        gpus = self.gpus()
        if gpus:
            snapshot = replace(snapshot, gpus=gpus)
        progress = input_progress(self.plan.ledger)
        self.view.update(snapshot, self.memory.now, self.memory.limit, progress)
        if self.plan.observer is not None and snapshot.now_us >= self._moment_us:
            self._moment_us = snapshot.now_us + (_MOMENT_US if snapshot.now_us > _OFTEN_US else 0)
            from gristmill.backends.engine.moment import moment_of  # only a run with an observer needs it

            memory = (self.memory.now, self.memory.limit)
            self.plan.observer.update(moment_of(snapshot, memory, progress, self.account, self.plan.ledger))

    def gpus(self) -> tuple[GpuSnapshot, ...]:
        """The GPUs of the run as they are now, for views; empty if the backend cannot measure them."""
        return ()

    def _settle(self) -> None:
        """Pass events to the scheduler and carry out its commands until there are no more events."""
        reports = self.reports
        reports.events += self.planning.take()
        while self._take_from_source() or reports.events:
            for command in self.scheduler.handle(reports.take_events(), reports.now()):
                self._do[type(command)](command)
        reports.send()

    # Commands ---------------------------------------------------------------------------------------------------

    def _dispatch(self, x: c.Dispatch) -> None:
        w = self.find_worker(x.worker)
        if w is None:
            return
        input_for = self.store.input_for
        if x.special:
            inputs = [
                input_for(w, i.data)._replace(task=i.task, start=i.start, stop=i.stop, skip=i.skip, wanted=i.wanted)
                for i in x.special
            ]
        else:
            inputs = [input_for(w, task) for task in x.tasks]
        self.reports.running[x.worker, x.tasks[0]] = x.step
        w.outbox.append(RunUnit(x.step, x.tasks[0], tuple(inputs)))

    def _resume(self, x: c.Resume) -> None:
        w = self.find_worker(x.worker)
        if w is not None:
            w.outbox.append(ResumeUnit(x.unit))

    def _limit_in_flight(self, x: c.LimitInFlight) -> None:
        w = self.find_worker(x.worker)
        if w is not None:
            w.outbox.append(LimitUnits(x.limit))

    def _return_waiting(self, x: c.ReturnWaiting) -> None:
        w = self.find_worker(x.worker)
        if w is not None:
            w.outbox.append(ReturnUnits())

    def _release(self, x: c.Release) -> None:
        stopping = self.scheduler.state.ending.stopping
        ledger, errors = self.plan.ledger, self.reports.errors
        for task in x.tasks:
            self.account.released(task)
            if errors:
                errors.pop(task, None)
            if ledger is not None:
                ledger.end(self.store.label(task), x.cancelled)
            if not stopping:  # else workers may still read it; all data is removed with the run
                self.store.release(task)

    def _cancel(self, x: c.Cancel) -> None:
        self.reports.running.pop((x.worker, x.unit), None)
        w = self.find_worker(x.worker)
        if w is not None:
            w.outbox.append(DropUnit(x.unit))

    def _quarantine(self, x: c.Quarantine) -> None:
        stage, detail, counts = self.reports.errors.get(x.data, {}).pop(x.task, (0, "", []))
        label = self.store.label(x.data)
        name = self.plan.steps[x.step].stages[stage].name
        failure = failure_of(label, x.start, x.stop, name, x.items, x.error, detail, x.story)
        if self.plan.ledger is not None:
            self._set_aside(x, label, name)
        self.account.fail(x.step, stage, failure, x.task, counts)
        text = f"{name}: task {failure.task_id} failed: {x.error.partition(chr(10))[0]}"
        self.failure_lines.add(name, text, time.monotonic())

    def _set_aside(self, x: c.Quarantine, label: str, stage: str) -> None:
        """RunAccount for documents of a task that is given up."""
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
        set_aside(self.plan.ledger, self.plan.output, label, task, (x.start, x.stop), stage, x.error, partly)

    def _pull(self, x: c.Pull) -> None:
        self.source.ask(x.count)

    def _take_from_source(self) -> bool:
        """Make events of what the source gave, if it is time. Return whether there are any."""
        events = self.reports.events
        if self.source.asked and self.scheduler.state.source.ended:
            self.source.asked = 0  # the run ends early: no step waits for an answer any more
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
            label = task.task_id or label  # its number among all blocks: those that are done are not here
            self.plan.ledger.begin(label)
        try:
            size = self.store.put(ident, label, pack(task, self.names))
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

    # The end ----------------------------------------------------------------------------------------------------

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
            peak_bytes_in_flight=s.budget.peak,
            budget_bytes=s.config.budget,
            peak_memory_bytes=self.memory.peak,
            worker_deaths=s.deaths,
            outputs=self.outputs.tasks(),
            outputs_dropped=self.outputs.reason,
            interrupted=self.interrupted,
            loaded_s=reports.loaded_s,
            last_output_s=reports.last_output_s,
            ledger=self.plan.ledger,
            profile=Profile.measured(s.steps, self._found()),
            measured_load=partial(_measured_load, s, self.nodes(), self.plan.name, starts, leaves, self.check_every_s),
        )

    def _found(self) -> dict[str, dict[str, int]]:
        """The settings that stages found out, by the name of their step: the largest of those that workers found."""
        found: dict[str, dict[str, int]] = {}
        notes = self.plan.ledger.total().notes if self.plan.ledger is not None else {}
        for step in self.plan.steps:
            for (stage, name), values in notes.items():
                if name.startswith(FOUND) and stage in (x.name for x in step.stages):
                    found.setdefault(step.name, {})[name.removeprefix(FOUND)] = max(values)
        return found


def _measured_load(state: State, nodes: Sequence[e.NodeJoined], name: str, *times_s: float) -> Load | None:
    from gristmill.scheduling.measured_load import load_of  # only a run whose measurements are kept needs it

    return load_of(state, nodes, name, *times_s)


class Planning:
    """Makes one plan at a time in a thread, so that units are dispatched meanwhile: `ask`, then `take` it when made."""

    def __init__(self) -> None:
        self._done: deque[e.Solved] = deque()
        self._error: BaseException | None = None

    def ask(self, x: c.Solve) -> None:
        threading.Thread(target=self._solve, args=(x,), name="gristmill-planning", daemon=True).start()

    def _solve(self, x: c.Solve) -> None:
        try:
            self._done.append(e.Solved(x.number, solve(x.problem)))
        except BaseException as error:  # whatever it is, the driver has to know that no plan will come
            self._error = error

    def take(self) -> list[e.Solved]:
        if self._error is not None:
            raise self._error
        return [self._done.popleft() for _ in range(len(self._done))]

"""The driver's side of a bridge: from the collector's updates to the ledger and the record of the run."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gristmill.backends.base import Plan, RunRecord, StepStats
from gristmill.backends.bridge.collector import CollectorUpdate, GivenUp, OpenWork, PackedTask, Report
from gristmill.backends.engine.account import KeptOutputs, RunAccount, failure_of
from gristmill.backends.engine.names import LocalNames
from gristmill.backends.engine.payload import pack, unpack
from gristmill.errors import PipelineError
from gristmill.ledger.failed import set_aside
from gristmill.metrics import format as fmt
from gristmill.metrics.view import view_for
from gristmill.scheduling.latency import LatencyHistogram
from gristmill.tasks import EmptyTask, Task

FetchUpdate = Callable[[], CollectorUpdate]
_FETCH_INTERVAL_S = 0.2
_OBSERVE_INTERVAL_S = 0.5
_FIRST_LINE_S = 5.0


class RunAccounts:
    """The account of one run, built from the collector's updates in their order.

    A task begins here before the task that it came from ends. So the ledger commits a block only when everything that
    came from the block has ended.
    """

    def __init__(self, plan: Plan, ignore_failures: bool, progress: ProgressLines | None = None) -> None:
        self.plan = plan
        self.progress = progress or ProgressLines("off")
        self.ledger = plan.ledger
        if self.ledger is not None:
            self.ledger.ignore_failures = ignore_failures
        self.account = RunAccount(plan)
        n = len(plan.steps)
        self.tasks_in = [0] * n
        self.tasks_ended = [0] * n
        self.tasks_lost = [0] * n
        """Tasks that failed and have no outputs."""
        self.outputs = [0] * n
        self.units = [0] * n
        self.busy_ns = [0] * n
        self.longest_ns = [0] * n
        self.workers: list[list[tuple[float, int]]] = [[] for _ in range(n)]
        """When workers were set up and torn down; workers that are killed are not noticed."""
        self.latency = [LatencyHistogram() for _ in range(n)]
        self.retries = [0] * n
        self.open: Sequence[OpenWork] = [OpenWork() for _ in range(n)]
        self.deaths = 0
        self.open_workers = 0
        self.fatal = ""
        self.messages: list[str] = []
        self.first_output_s: float | None = None
        self.last_output_s: float | None = None
        self.begun = time.perf_counter()
        self._units: dict[tuple[int, str], int] = {}
        """A number for each task that is open in the account."""
        self._numbers = itertools.count(1)
        self._busy_ns: dict[tuple[int, str], int] = {}
        """The time that units have taken so far that have reported and not ended."""
        self._observe_at = 0.0

    def pack_initial(self, tasks: Iterable[Task[Any]] | None, names: LocalNames) -> Iterator[PackedTask]:
        """Yield the initial tasks, each entered as begun."""
        for number, task in enumerate([EmptyTask()] if tasks is None else tasks):
            if not isinstance(task, Task):
                raise PipelineError(f"initial task {number} is a {type(task).__name__}, not a Task")
            keeps_id = task.named or self.ledger is not None  # among all blocks: those that are done are not here
            label = task.task_id if keeps_id and task.task_id else str(number)
            try:
                int(task.num_items)  # may be the user's code: an error in it is reported here, before any work
                packed = PackedTask(label, b"".join(pack(task, names)))
            except Exception as error:  # pickling runs the user's code, on whatever the task holds
                raise PipelineError(
                    f"initial task {label}, a {type(task).__name__}, cannot be sent to a worker: "
                    f"{type(error).__name__}: {error}"
                ) from error
            self.begin(label)
            yield packed

    def begin(self, label: str) -> None:
        """Enter an initial task."""
        self.tasks_in[0] += 1
        if self.ledger is not None:
            self.ledger.begin(label)

    def add(self, update: CollectorUpdate) -> None:
        for step in update.setups:
            self.account.set_up(step)
            self._note_workers(step, 1)
        for report in update.reports:
            self._add_report(report)
        for step in update.teardowns:
            self.account.torn_down(step)
            self._note_workers(step, -1)
        self.messages += update.messages
        self.deaths = update.deaths
        self.open = update.open or self.open
        self.open_workers = update.open_workers
        self.fatal = self.fatal or update.fatal
        if self.ledger is not None and self.ledger.log is not None:
            self.ledger.log.flush()
        self.progress.show(self)
        self._observe()

    def _observe(self, ended: bool = False) -> None:
        """Report to the observer if it is time, or if the run has ended."""
        observer, now = self.plan.observer, time.monotonic()
        if observer is None or (now < self._observe_at and not ended):
            return
        from gristmill.backends.bridge.moment import bridge_moment  # only a run with an observer needs it

        self._observe_at = now + _OBSERVE_INTERVAL_S
        observer.update(bridge_moment(self, ended))

    def _note_workers(self, step: int, change: int) -> None:
        timeline = self.workers[step]
        count = timeline[-1][1] if timeline else 0
        timeline.append((time.perf_counter() - self.begun, count + change))

    def _add_report(self, report: Report) -> None:
        step = report.step
        is_last = step == len(self.plan.steps) - 1
        if self.ledger is not None:
            self.ledger.add(report.entries)
        self.outputs[step] += len(report.outputs)
        self.busy_ns[step] += report.busy_ns
        self.longest_ns[step] = max(self.longest_ns[step], report.busy_ns)
        if report.outputs and is_last:
            self.last_output_s = time.perf_counter() - self.begun
            self.first_output_s = self.first_output_s or self.last_output_s
        if not is_last:
            self.tasks_in[step + 1] += len(report.outputs)
            if self.ledger is not None:
                for label in report.outputs:
                    self.ledger.begin(label)
        for given_up in report.given_up:
            self._give_up(step, given_up)
        self._add_counts(report)
        self.retries[step] += report.retries
        if not report.ended:
            key = step, report.labels[0]
            self._busy_ns[key] = self._busy_ns.get(key, 0) + report.busy_ns
            return
        self.units[step] += 1
        self.latency[step].add((self._busy_ns.pop((step, report.labels[0]), 0) + report.busy_ns) // 1000)
        self.tasks_lost[step] += report.lost
        self.tasks_ended[step] += len(report.labels)
        for label in report.labels:
            self._units.pop((step, label), None)
            if self.ledger is not None:
                self.ledger.end(label, cancelled=False)

    def _add_counts(self, report: Report) -> None:
        if not report.counts:
            return
        unit = self._unit(report.step, report.labels[0])
        if report.ended:
            self.account.add_last(report.step, unit, report.counts)
        else:
            self.account.add_part(report.step, unit, report.counts)

    def _unit(self, step: int, label: str) -> int:
        if (step, label) not in self._units:
            self._units[step, label] = next(self._numbers)
        return self._units[step, label]

    def _give_up(self, step: int, x: GivenUp) -> None:
        name = self.plan.steps[step].stages[x.stage].name
        failure = failure_of(x.label, x.start, x.stop, name, x.items, x.error, x.detail, x.story)
        whole = x.partly or not x.stop
        unit = self._unit(step, x.label) if whole else next(self._numbers)
        if self.ledger is not None:
            try:
                task = unpack(x.payload or b"")
            except Exception:  # unpickling runs the user's code; which documents are in the task is then not known
                self.ledger.spoil(x.label)
            else:
                set_aside(self.ledger, self.plan.output, x.label, task, (x.start, x.stop), name, x.error, x.partly)
        self.account.fail(step, x.stage, failure, unit, x.counts)

    # The end ----------------------------------------------------------------------------------------------------

    def check_complete(self) -> None:
        """Raise `PipelineError` if the run ended and some of its tasks did not."""
        left = sum(self.tasks_in) - sum(self.tasks_ended)
        if self.fatal or left:
            raise self.stopped(f"it ended, but {left} tasks never reported a result")

    def stopped(self, reason: str) -> PipelineError:
        """The error of a run that was stopped. The reason that a worker reported takes precedence."""
        return PipelineError(f"{self.plan.name!r} was stopped: {self.fatal or reason}")

    def close(self) -> None:
        if self.ledger is not None and self.ledger.log is not None:
            self.ledger.log.flush(now=True)
        self.progress.show(self, ended=True)
        self._observe(ended=True)

    def steps(self) -> list[StepStats]:
        for i, stages in enumerate(self.account.stages):
            first = stages[0]
            done = self.tasks_ended[i] - self.tasks_lost[i]
            first.tasks_in = self.tasks_in[i]
            first.tasks_cancelled = self.tasks_in[i] - self.tasks_ended[i]
            # The account counts each failed part of a task. A task counts as failed only if it has no outputs.
            first.tasks_failed = min(first.tasks_failed, self.tasks_lost[i])
            first.tasks_done = done + self.tasks_lost[i] - first.tasks_failed
            stages[-1].tasks_out = self.outputs[i]
        return [
            StepStats(
                name=step.name,
                stages=stages,
                units=self.units[i],
                service_s_mean=self.busy_ns[i] / 1e9 / max(1, self.tasks_ended[i]),
                service_s_max=self.longest_ns[i] / 1e9,
                workers=self.workers[i],
                workers_started=max(stage.setups for stage in stages),
            )
            for i, (step, stages) in enumerate(zip(self.plan.steps, self.account.stages, strict=True))
        ]

    def record(self, outputs: KeptOutputs) -> RunRecord:
        """The record of the run. Memory and queues are Ray's, are not measured and stay 0."""
        return RunRecord(
            name=self.plan.name,
            steps=self.steps(),
            wall_s=time.perf_counter() - self.begun,
            first_output_s=self.first_output_s,
            failures=self.account.failures,
            failures_total=self.account.failures_total,
            decisions=[],
            peak_bytes_in_flight=0,
            budget_bytes=0,
            peak_memory_bytes=0,
            worker_deaths=self.deaths,
            outputs=outputs.tasks(),
            outputs_dropped=outputs.reason,
            last_output_s=self.last_output_s,
            ledger=self.ledger,
        )


@contextmanager
def following(accounts: RunAccounts, fetch: FetchUpdate) -> Iterator[None]:
    """Keep the accounts up to date in a thread, while the caller waits for Ray."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            while not stop.wait(_FETCH_INTERVAL_S):
                accounts.add(fetch())
        except BaseException as error:  # raised in the caller, whose run cannot be accounted for
            errors.append(error)

    thread = threading.Thread(target=follow, name="gristmill-accounts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if not errors:
            accounts.add(fetch())
    if errors:
        raise errors[0]


def wait_for_teardowns(accounts: RunAccounts, fetch: FetchUpdate, seconds: float) -> None:
    """Wait until every worker has torn down, at most for so many seconds."""
    until = time.monotonic() + seconds
    while True:
        accounts.add(fetch())
        if not accounts.open_workers or time.monotonic() > until:
            return
        time.sleep(0.05)


class ProgressLines:
    """Writes the progress of a run: Ray Data and Xenna show their tasks, but no documents.

    A line to standard error after 5 seconds, one every ``interval_s`` seconds, and one at the end.
    """

    def __init__(self, view: str = "auto", interval_s: float = 60.0) -> None:
        self._view = view_for("off" if view == "off" else "lines")
        self._interval_s = interval_s
        self._begun = time.monotonic()
        self._next = self._begun + min(_FIRST_LINE_S, interval_s)

    def show(self, accounts: RunAccounts, ended: bool = False) -> None:
        """Write a line if it is time, or if the run has ended."""
        now = time.monotonic()
        if ended or now >= self._next:
            self._next = now + self._interval_s
            self._view.message(f"{fmt.clock(now - self._begun)}, {progress_line(accounts)}")


def progress_line(accounts: RunAccounts) -> str:
    """Return the progress: blocks and documents of a pipeline that begins with a reader, and tasks of all steps."""
    parts = []
    ledger = accounts.ledger
    if ledger is not None:
        read, kept, _ = ledger.so_far()
        parts.append(f"{len(ledger.blocks):,}/{ledger.blocks_total:,} blocks")
        parts.append(f"{read:,} documents read, {kept:,} kept")
    done, known = sum(accounts.tasks_ended), sum(accounts.tasks_in)
    parts.append(f"tasks: {done:,} done, {known - done:,} open")
    if accounts.account.failures_total:
        parts.append(f"{accounts.account.failures_total:,} failed")
    return " | ".join(parts)

"""The collector: which tasks were begun and what they became. Each result counts once, even if Ray repeats work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from gristmill.scheduling import failure_policy as policy
from gristmill.scheduling.events import Death


@dataclass(frozen=True, slots=True)
class _Limits:
    """The failure policy's limits here. No cause of a death is known, so a suspect that dies alone is tried again."""

    isolated_kills: int
    """The attempts of a task."""
    setup_attempts: int = 3
    unexplained_losses: int = 1


class PackedTask(NamedTuple):
    """A task between two steps."""

    label: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A task, or its items ``start`` to ``stop``, that failed in all its attempts."""

    label: str
    start: int
    stop: int
    """0 for the whole task."""
    items: int
    stage: int
    error: str
    detail: str
    story: tuple[str, ...]
    counts: list[tuple[int, ...]]
    """The counts of the last attempt; empty if its worker died."""
    payload: bytes | None
    """The task, where documents are accounted for."""
    partly: bool
    """Whether some of its outputs were passed on already."""


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of tasks of a step since their last report. The tasks of one report begin and end together."""

    step: int
    labels: tuple[str, ...]
    first: int
    """How many outputs of these tasks were reported before."""
    outputs: tuple[str, ...]
    """The labels of the new outputs."""
    counts: list[tuple[int, ...]]
    entries: dict[int, dict[str, Any]]
    """The account of documents by block."""
    busy_ns: int
    ended: bool
    given_up: tuple[GivenUp, ...] = ()
    lost: bool = False
    """The (only) task has no outputs, because it failed."""
    retries: int = 0
    """Tasks, or parts of them, that were tried again because a stage raised."""


class TaskStatus(IntEnum):
    """The state of a task, for a worker that wants to begin it."""

    NEW = 0
    DONE = 1
    """It has ended, and runs again because Ray lost its outputs."""
    SUSPECT = 2
    """A worker began it and never reported the end."""
    GIVEN_UP = 3
    """As many workers died while they ran it alone as it has attempts."""


@dataclass(slots=True)
class _TaskRecord:
    unit: int
    """The tasks that were begun together."""
    begun_alone: int = 0
    """How often a worker began with this task alone."""
    reported: int = 0
    """Outputs that were reported."""
    ended: bool = False
    given_up: bool = False
    """Its workers died, so it is not run again."""


@dataclass(frozen=True, slots=True)
class CollectorUpdate:
    """The events since the driver's last request, in order."""

    reports: list[Report]
    setups: list[int]
    """The step of each worker that was set up."""
    teardowns: list[int]
    messages: list[str]
    deaths: int
    open_workers: int
    """Workers that were set up and not torn down."""
    fatal: str
    """Why the run must stop; empty if it need not."""
    open: tuple[OpenWork, ...] = ()
    """By step, what was begun and has not ended."""


@dataclass(slots=True)
class OpenWork:
    """Tasks and units of one step that have begun and not ended, as far as the collector knows."""

    units: Counter[int] = field(default_factory=Counter)
    """Open tasks by unit: a unit is in one worker. That of a worker that died counts until it is begun again."""
    deaths: int = 0
    """Workers that died while they ran the step."""

    def begin(self, unit: int, tasks: int) -> None:
        self.units[unit] += tasks

    def end(self, unit: int) -> None:
        """Count a task of a unit that has ended, or is begun again in another unit."""
        self.units[unit] -= 1
        if not self.units[unit]:
            del self.units[unit]


@dataclass
class Collector:
    """Counts the tasks of one run. A plain object that only remembers; a run wraps it in an actor.

    Reports of tasks that Ray runs again are recognized by step and label and dropped.
    """

    stages: bytes
    attempts: list[int]
    """How many workers may die of a task, for each step."""
    _tasks: dict[tuple[int, str], _TaskRecord] = field(default_factory=dict)
    _nodes: set[tuple[int, str]] = field(default_factory=set)
    _workers: dict[str, int] = field(default_factory=dict)
    _in_setup: set[str] = field(default_factory=set)
    """Workers that began their setup and have not ended it."""
    _setup_deaths: dict[int, int] = field(default_factory=dict)
    """How many workers of a step died in setup since the last setup that succeeded."""
    _reports: list[Report] = field(default_factory=list)
    _setups: list[int] = field(default_factory=list)
    _teardowns: list[int] = field(default_factory=list)
    _messages: list[str] = field(default_factory=list)
    _open: list[OpenWork] = field(init=False)
    _units: int = 0
    """Units begun."""
    _fatal: str = ""
    _closed: bool = False

    def __post_init__(self) -> None:
        self._open = [OpenWork() for _ in self.attempts]

    def give_stages(self) -> bytes:
        return self.stages

    # Workers and nodes ------------------------------------------------------------------------------------------

    def begin_setup(self, step: int, worker: str) -> bool:
        """Whether a worker may set a step up: not if the run is over, or too many workers died in setup.

        Ray restarts a dead worker under the same name, so a name that is still in setup means a death.
        """
        if self._closed or self._fatal:
            return False
        if worker in self._in_setup:
            self._setup_deaths[step] = deaths = self._setup_deaths.get(step, 0) + 1
            if policy.is_setup_hopeless(deaths, 0, _Limits(self.attempts[step])):
                self._fatal = f"{deaths} workers died in setup() of step {step + 1}"
                return False
        self._in_setup.add(worker)
        return True

    def set_up(self, step: int, worker: str) -> None:
        self._in_setup.discard(worker)
        self._setup_deaths[step] = 0
        self._workers[worker] = step
        self._setups.append(step)

    def torn_down(self, worker: str, errors: list[str]) -> None:
        step = self._workers.pop(worker, None)
        if step is not None:
            self._teardowns.append(step)
        self._messages += errors

    def fail(self, reason: str) -> None:
        """Stop the run. The first reason counts."""
        self._fatal = self._fatal or reason

    def is_node_set_up(self, step: int, node: str) -> bool:
        return (step, node) in self._nodes

    def node_set_up(self, step: int, node: str) -> None:
        self._nodes.add((step, node))

    # Tasks ------------------------------------------------------------------------------------------------------

    def begin(self, step: int, labels: list[str]) -> list[tuple[TaskStatus, int]]:
        """Return the status of each task and how many of its outputs were reported.

        The tasks are begun if all are new, or if there is only one. Otherwise the worker asks again in smaller groups.
        """
        found = [self._status(step, label) for label in labels]
        open_ = self._open[step]
        if len(labels) == 1:
            task = self._begin_alone(step, labels[0])
            if found[0] is TaskStatus.SUSPECT:
                open_.deaths += 1
            if found[0] is TaskStatus.GIVEN_UP:
                open_.deaths += not task.given_up
                task.given_up = True
            else:
                task.begun_alone += 1
        elif all(status is TaskStatus.NEW for status in found):
            self._units += 1
            open_.begin(self._units, len(labels))
            for label in labels:
                self._tasks[step, label] = _TaskRecord(self._units)
        return [(status, self._reported(step, label)) for status, label in zip(found, labels, strict=True)]

    def _begin_alone(self, step: int, label: str) -> _TaskRecord:
        """Return the record of a task that is begun alone: a unit of its own, unless it has ended before."""
        task = self._tasks.get((step, label))
        if task is not None and task.ended:
            return task
        self._units += 1
        if task is None:
            task = self._tasks[step, label] = _TaskRecord(self._units)
        else:
            self._open[step].end(task.unit)
            task.unit = self._units
        self._open[step].begin(task.unit, 1)
        return task

    def _reported(self, step: int, label: str) -> int:
        task = self._tasks.get((step, label))
        return task.reported if task is not None else 0

    def _status(self, step: int, label: str) -> TaskStatus:
        task = self._tasks.get((step, label))
        if task is None:
            return TaskStatus.NEW
        if task.ended and not task.given_up:
            return TaskStatus.DONE
        lost = policy.LostUnit(
            tasks=1,
            is_named=False,
            is_other_named=False,
            isolated=task.begun_alone > 0,
            solo=False,
            losses=0,
            kills=max(0, task.begun_alone - 1),
        )
        verdict = policy.after_death(lost, Death.KILLED, _Limits(self.attempts[step]))
        return TaskStatus.GIVEN_UP if verdict.response is policy.Response.FAIL else TaskStatus.SUSPECT

    def report(self, report: Report) -> None:
        """Accept a report, unless its tasks have ended or its outputs were reported before."""
        tasks = [self._tasks[report.step, label] for label in report.labels]
        if tasks[0].ended or report.first != tasks[0].reported:
            return
        tasks[0].reported += len(report.outputs)
        for task in tasks:
            task.ended = report.ended
            if report.ended:
                self._open[report.step].end(task.unit)
        self._reports.append(report)

    # The driver -------------------------------------------------------------------------------------------------

    def take_update(self) -> CollectorUpdate:
        """Return what happened since the last call."""
        update = CollectorUpdate(
            reports=self._reports,
            setups=self._setups,
            teardowns=self._teardowns,
            messages=self._messages,
            deaths=sum(x.deaths for x in self._open),
            open_workers=len(self._workers),
            fatal=self._fatal,
            open=tuple(OpenWork(x.units.copy(), x.deaths) for x in self._open),
        )
        self._reports, self._setups, self._teardowns, self._messages = [], [], [], []
        return update

    def running(self) -> list[tuple[int, str]]:
        """Return the tasks that were begun and have not ended, as step and label."""
        return [key for key, task in self._tasks.items() if not task.ended]

    def close(self) -> None:
        """End the run: no worker sets up after this."""
        self._closed = True

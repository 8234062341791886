"""The clerk: what was begun and what came of it, each thing once, whatever is run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from gristmill.backends.bridge.reports import Report

_SETUP_DEATHS = 3


class Standing(IntEnum):
    """What the clerk knows of a task when a worker wants to begin with it."""

    NEW = 0
    DONE = 1
    """It has ended; it runs again because Ray lost what it made."""
    SUSPECT = 2
    """A worker began with it and was not heard of again."""
    GIVEN_UP = 3
    """So many workers died while they ran it alone that it is taken to be the cause."""


@dataclass(slots=True)
class _Begun:
    alone: int = 0
    """How often a worker began with this task alone."""
    reported: int = 0
    """Outputs that were reported."""
    ended: bool = False
    blamed: bool = False
    """For the deaths of its workers; it is not run again."""


@dataclass(frozen=True, slots=True)
class News:
    """What happened since the driver asked last, in order."""

    reports: list[Report]
    setups: list[int]
    """Steps that a worker has set up."""
    teardowns: list[int]
    messages: list[str]
    deaths: int
    open_workers: int
    """Workers that were set up and not torn down."""
    fatal: str
    """Why the run cannot go on."""


@dataclass
class Clerk:
    """Keeps count for one run. A plain object, which a run wraps in an actor; it does nothing but remember.

    Reports of tasks that Ray runs again are known by step and label and dropped, so everything counts once.
    """

    stages: bytes
    attempts: list[int]
    """How many workers may die of a task of each step."""
    _tasks: dict[tuple[int, str], _Begun] = field(default_factory=dict)
    _nodes: set[tuple[int, str]] = field(default_factory=set)
    _workers: dict[str, int] = field(default_factory=dict)
    _in_setup: set[str] = field(default_factory=set)
    """Workers that began with their setup and have not ended it."""
    _setup_deaths: dict[int, int] = field(default_factory=dict)
    """How often a worker of a step died in its setup, since one has come through."""
    _reports: list[Report] = field(default_factory=list)
    _setups: list[int] = field(default_factory=list)
    _teardowns: list[int] = field(default_factory=list)
    _messages: list[str] = field(default_factory=list)
    _deaths: int = 0
    _fatal: str = ""
    _closed: bool = False

    def give_stages(self) -> bytes:
        return self.stages

    # Workers and nodes ------------------------------------------------------------------------------------------

    def begin_setup(self, step: int, worker: str) -> bool:
        """Whether a worker may set a step up: not if the run is over, or too many died in their setup.

        One that died is known by its name, under which Ray starts it again. Others may be at it at the same time.
        """
        if self._closed or self._fatal:
            return False
        if worker in self._in_setup:
            self._setup_deaths[step] = deaths = self._setup_deaths.get(step, 0) + 1
            if deaths >= _SETUP_DEATHS:
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

    def fail(self, words: str) -> None:
        """The run cannot go on. The first reason counts."""
        self._fatal = self._fatal or words

    def is_node_set_up(self, step: int, node: str) -> bool:
        return (step, node) in self._nodes

    def node_set_up(self, step: int, node: str) -> None:
        self._nodes.add((step, node))

    # Tasks ------------------------------------------------------------------------------------------------------

    def begin(self, step: int, labels: list[str]) -> list[tuple[Standing, int]]:
        """The standing of each task and how many of its outputs were reported.

        The tasks are begun if all are new, or if there is only one; else the worker asks again, in smaller groups.
        """
        found = [self._standing(step, label) for label in labels]
        if len(labels) == 1:
            begun = self._tasks.setdefault((step, labels[0]), _Begun())
            if found[0] is Standing.SUSPECT:
                self._deaths += 1
            if found[0] is Standing.GIVEN_UP:
                self._deaths += not begun.blamed
                begun.blamed = True
            else:
                begun.alone += 1
        elif all(standing is Standing.NEW for standing in found):
            for label in labels:
                self._tasks[step, label] = _Begun()
        return [(standing, self._reported(step, label)) for standing, label in zip(found, labels, strict=True)]

    def _reported(self, step: int, label: str) -> int:
        begun = self._tasks.get((step, label))
        return begun.reported if begun is not None else 0

    def _standing(self, step: int, label: str) -> Standing:
        begun = self._tasks.get((step, label))
        if begun is None:
            return Standing.NEW
        if begun.ended and not begun.blamed:
            return Standing.DONE
        return Standing.GIVEN_UP if begun.alone >= self.attempts[step] else Standing.SUSPECT

    def report(self, report: Report) -> None:
        """Take a report, unless it says what was said before."""
        begun = [self._tasks[report.step, label] for label in report.labels]
        if begun[0].ended or report.first != begun[0].reported:
            return
        begun[0].reported += len(report.made)
        for x in begun:
            x.ended = report.ended
        self._reports.append(report)

    # The driver -------------------------------------------------------------------------------------------------

    def news(self) -> News:
        """All that the driver has not been told."""
        news = News(
            self._reports, self._setups, self._teardowns, self._messages, self._deaths, len(self._workers), self._fatal
        )
        self._reports, self._setups, self._teardowns, self._messages = [], [], [], []
        return news

    def running(self) -> list[tuple[int, str]]:
        """Tasks that were begun and have not ended, as step and label."""
        return [key for key, begun in self._tasks.items() if not begun.ended]

    def close(self) -> None:
        """The run is over: no worker sets up any more."""
        self._closed = True

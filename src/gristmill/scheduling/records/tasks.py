"""Tasks and units of tasks, and the one table of what may happen to a task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from gristmill.scheduling.events import Output
from gristmill.scheduling.failure_policy import DeathVerdict

if TYPE_CHECKING:
    from gristmill.scheduling.lost_data.records import Rebuild


class TaskState(IntEnum):
    QUEUED = 0
    ASSIGNED = 1
    SUSPENDED = 2
    DONE = 3
    QUARANTINED = 4
    CANCELLED = 5


class TaskMove(IntEnum):
    DISPATCHED = 0
    EMITTED = 1
    RESUMED = 2
    FINISHED = 3
    FAILED = 4
    LOST = 5
    SPLIT = 6
    GIVEN_UP = 7
    CANCELLED = 8


TASK_MOVES: dict[tuple[TaskState, TaskMove], TaskState] = {
    (TaskState.QUEUED, TaskMove.DISPATCHED): TaskState.ASSIGNED,
    (TaskState.ASSIGNED, TaskMove.EMITTED): TaskState.SUSPENDED,
    (TaskState.SUSPENDED, TaskMove.RESUMED): TaskState.ASSIGNED,
    (TaskState.ASSIGNED, TaskMove.FINISHED): TaskState.DONE,
    (TaskState.ASSIGNED, TaskMove.FAILED): TaskState.QUEUED,
    (TaskState.ASSIGNED, TaskMove.LOST): TaskState.QUEUED,
    (TaskState.SUSPENDED, TaskMove.LOST): TaskState.QUEUED,
    (TaskState.QUEUED, TaskMove.SPLIT): TaskState.DONE,
    (TaskState.QUEUED, TaskMove.GIVEN_UP): TaskState.QUARANTINED,
    (TaskState.QUEUED, TaskMove.CANCELLED): TaskState.CANCELLED,
    (TaskState.ASSIGNED, TaskMove.CANCELLED): TaskState.CANCELLED,
    (TaskState.SUSPENDED, TaskMove.CANCELLED): TaskState.CANCELLED,
}


class IllegalTransition(Exception):
    """A bug: something happened to a task that cannot happen in its state. Carries the task's story."""


@dataclass(slots=True)
class TaskRec:
    id: int
    step: int
    bytes: int
    items: int
    divisible: bool
    data: int
    """The task whose data this runs on: itself, or the task it is a slice of."""
    queued_at: int
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    emitted: int = 0
    """Outputs already delivered by attempts that did not finish."""
    kills: int = 0
    losses: int = 0
    """Workers that died with it and left no cause."""
    start: int = 0
    stop: int = 0
    """Slice of the data's items; stop 0 means whole."""
    story: list[str] | None = None
    """Notable events only: failures, deaths, splits."""

    def move(self, how: TaskMove) -> None:
        new = TASK_MOVES.get((self.state, how))
        if new is None:
            raise IllegalTransition(
                f"task {self.id} of step {self.step} is {self.state.name} and cannot be {how.name}. Its story:\n  "
                + "\n  ".join(self.story or ["nothing notable"])
            )
        self.state = new

    def dispatch(self) -> None:
        self.move(TaskMove.DISPATCHED)
        self.attempts += 1

    def lose_uncounted(self) -> None:
        """Return to the queue as if this attempt had not been made."""
        self.move(TaskMove.LOST)
        self.attempts -= 1

    def queue(self, now: int) -> None:
        """Wait for a worker from now on."""
        self.queued_at = now

    def run_on(self, data: int) -> None:
        """Take other data: its own was lost, and made again under this id."""
        self.data = data

    def count_death(self, verdict: DeathVerdict) -> None:
        """Count the death of the worker that had it."""
        self.attempts -= not verdict.is_attempt
        self.losses += verdict.is_loss
        self.kills += verdict.is_kill

    def part(self, part: int, start: int, stop: int, now: int) -> TaskRec:
        """A slice of it, with half its bytes."""
        story = list(self.story or ())
        size, items = self.bytes // 2, stop - start
        return TaskRec(
            part, self.step, size, items, True, self.data, now, start=start, stop=stop, kills=self.kills, story=story
        )

    def note(self, now: int, text: str) -> None:
        if self.story is None:
            self.story = []
        if len(self.story) < 40:
            self.story.append(f"{now / 1e6:.3f} s: {text}")


@dataclass(slots=True)
class Unit:
    """Up to ``batch_size`` tasks of one step that run together."""

    step: int
    tasks: list[TaskRec]
    isolated: bool = False
    """Must run alone in a fresh worker: it is suspected of killing one."""
    solo: bool = False
    """Must run while nothing else does: it is suspected of using all the memory."""
    chunks: int = 0
    """How often it was suspended; a retry has to make as many chunks again before it makes new ones."""
    replay: int = 0
    avoid: int = -1
    """The worker where it failed last."""
    worker: int = -1
    reserved: int = 0
    bytes: int = 0
    part_us: int = 0
    """Time of the chunks that it has delivered."""
    rebuild: Rebuild | None = None
    """It makes lost data again."""
    missing: int = 0
    """Pieces of data that it waits for."""
    loose: bool = False
    """A task that was never part of a unit: when it has its data it joins its queue again."""

    @property
    def key(self) -> int:
        return self.tasks[0].id

    def suspect(self, solo: bool = False, isolated: bool = True) -> None:
        """Let it run alone in a fresh worker, or even while nothing else runs."""
        self.isolated |= isolated
        self.solo |= solo

    def queue(self, now: int) -> None:
        """Wait for a worker from now on."""
        self.bytes = sum(t.bytes for t in self.tasks)
        self.part_us = 0
        for t in self.tasks:
            t.queue(now)

    def drop(self, data: Collection[int]) -> None:
        """Remove the tasks that run on this data."""
        self.tasks = [t for t in self.tasks if t.data not in data]

    def keep_from(self, worker: int) -> None:
        """Try it in another worker than this one."""
        self.avoid = worker

    def begin(self) -> tuple[int, ...]:
        """Begin an attempt, which makes earlier chunks again first. Return the positions of lost data that it makes."""
        if self.rebuild is None:
            self.replay = self.chunks
            return ()
        self.chunks = self.replay = self.rebuild.last_chunk
        return self.rebuild.ask()

    def count_missing(self, change: int) -> None:
        """Wait for more lost data, or for less."""
        self.missing += change

    def deliver(self, busy_us: int, outputs: Sequence[Output] = ()) -> None:
        """Suspend it after a chunk that took so long. Outputs that are new count for their tasks."""
        by_id = {t.id: t for t in self.tasks}
        for o in outputs:
            by_id[o.parent].emitted += 1
        for t in self.tasks:
            t.move(TaskMove.EMITTED)
        self.solo = False
        if self.rebuild is None:
            self.part_us += busy_us
            self.chunks += 1
            self.replay = 0

    def fail(self, worker: int) -> None:
        """Note that it raised in a worker. It is suspected of nothing else, and is tried in another worker."""
        self.keep_from(worker)
        self.isolated = self.solo = False


@dataclass(slots=True)
class SlicedTask:
    """A task that is run in slices counts as one task: done if any slice was, else failed or cancelled."""

    live: int = 1
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    def add_slice(self) -> None:
        """Count a slice that is run in two halves."""
        self.live += 1

    def retire(self, state: TaskState) -> None:
        """Count a slice that has ended."""
        self.live -= 1
        self.done += state is TaskState.DONE
        self.failed += state is TaskState.QUARANTINED
        self.cancelled += state is TaskState.CANCELLED

    @property
    def outcome(self) -> TaskState:
        """How the whole task ended."""
        if self.done:
            return TaskState.DONE
        return TaskState.CANCELLED if self.cancelled else TaskState.QUARANTINED

"""The failure policy: which unit is at fault, what is tried next, and when a task is given up. Pure functions.

- A stage raises: a batch is halved. A single task is tried again; it is at fault after ``max_attempts``.
- A worker dies and names the task that it ran: the unit of that task is suspected. It runs again alone in a fresh
  worker. If that worker dies by its own fault too, the unit is at fault. A kill from outside proves nothing.
- A worker dies and names no task: a unit that was in ``unexplained_losses`` such workers is suspected. If the worker
  in which it then runs alone names no task either, that counts as a kill from outside. A unit is at fault after
  ``isolated_kills`` deaths alone, so it is lost a bounded number of times.
- Memory is shared: a unit whose worker used too much is at fault only if nothing else ran at the same time.
- A task at fault is split in halves, if it can be, until single items are found. A part with several items is tried
  once; a single item as often as a task. Only the smallest part at fault is given up.

The scheduler and the bridges to other engines use the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from gristmill.scheduling.events import Death

_BAD_AT_ONCE = 8
_BAD_PARTS = 64
"""Bad parts of one task after which the search for bad items ends: if no part was good, and if some were."""

T = TypeVar("T")


class Response(Enum):
    """The decision about a unit that failed or was lost."""

    RETRY = "run it again like before"
    ISOLATE = "run it again, alone in a fresh worker"
    HALVE = "run each half of the batch"
    FAIL = "split the task, or give it up"


class FailureLimits(Protocol):
    """Limits of a run; `SchedulerConfig` has them."""

    @property
    def setup_attempts(self) -> int: ...
    @property
    def isolated_kills(self) -> int: ...
    @property
    def unexplained_losses(self) -> int: ...


def attempts_allowed(max_attempts: int, items: int, is_part: bool) -> int:
    """How often a task, or a part of one, may raise. The whole of a part has used its attempts already."""
    return 1 if is_part and items > 1 else max_attempts


def after_error(tasks: int, attempts: int, allowed: int, is_run_ending: bool = False) -> Response:
    """Decide about a unit of so many tasks in which a stage raised.

    >>> after_error(tasks=4, attempts=1, allowed=3).name, after_error(tasks=1, attempts=3, allowed=3).name
    ('HALVE', 'FAIL')
    """
    if tasks > 1:
        return Response.HALVE
    return Response.RETRY if attempts < allowed and not is_run_ending else Response.FAIL


@dataclass(frozen=True, slots=True)
class LostUnit:
    """A unit whose worker died."""

    tasks: int
    is_named: bool
    """The worker was running it, by its own note."""
    is_other_named: bool
    """The worker was running another unit, by its own note."""
    isolated: bool
    """It was suspected before and ran alone in a fresh worker."""
    solo: bool
    """Nothing else ran in the whole run."""
    losses: int
    """How often it was lost before without being suspected."""
    kills: int
    """How often its worker was killed before while it ran alone."""


@dataclass(frozen=True, slots=True)
class DeathVerdict:
    """The decision about a unit whose worker died."""

    response: Response
    is_suspected: bool = False
    is_attempt: bool = False
    """It counts as an attempt of its tasks."""
    is_loss: bool = False
    is_kill: bool = False
    """It counts as a loss, or as a kill."""
    solo: bool = False
    """Next time it must run while nothing else does."""


def after_death(unit: LostUnit, cause: Death, limits: FailureLimits) -> DeathVerdict:
    """Decide about a unit whose worker died of ``cause``."""
    if cause.is_no_fault:
        return DeathVerdict(Response.RETRY)
    if not unit.is_named and (unit.is_other_named or not unit.isolated):
        if unit.is_other_named and not cause.is_own_fault:
            return DeathVerdict(Response.RETRY)
        is_last = unit.losses + 1 >= limits.unexplained_losses
        return DeathVerdict(Response.ISOLATE if is_last else Response.RETRY, is_loss=True)
    is_out_of_memory = cause is Death.OUT_OF_MEMORY
    if not unit.isolated or (is_out_of_memory and not unit.solo):
        return DeathVerdict(Response.ISOLATE, is_suspected=True, solo=is_out_of_memory)
    if unit.tasks > 1:
        return DeathVerdict(Response.HALVE, is_suspected=True)
    is_kill = not (cause.is_own_fault and unit.is_named)
    if is_kill and unit.kills + 1 < limits.isolated_kills:
        return DeathVerdict(Response.ISOLATE, is_suspected=True, is_kill=True)
    return DeathVerdict(Response.FAIL, is_suspected=True, is_attempt=True, is_kill=is_kill)


def is_worth_splitting(good_parts: int, bad_parts: int) -> bool:
    """Whether to search for more bad items in a task: not if it is bad throughout, which would take hours."""
    return bad_parts < _BAD_PARTS and (good_parts > 0 or bad_parts < _BAD_AT_ONCE)


def halves_of_items(start: int, items: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The (start, stop) of both halves of items that begin at ``start``."""
    middle = start + items // 2
    return (start, middle), (middle, start + items)


def halves_of_batch(tasks: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Both halves of a batch."""
    middle = len(tasks) // 2
    return tasks[:middle], tasks[middle:]


def splitting_note(items: int) -> str:
    """The line in the story of a task that is split."""
    return f"its {items} items are tried in halves"


def giving_up_note(start: int, stop: int) -> str:
    """The last line in the story of a task, or of its items from ``start`` to ``stop`` (0: of the whole)."""
    return f"{f'items {start} to {stop - 1}' if stop else 'the task'} given up"


def is_setup_hopeless(failures: int, kills: int, limits: FailureLimits) -> bool:
    """Whether a step's setup failed, or its worker was killed in it, too often in a row."""
    return failures >= limits.setup_attempts or kills >= limits.isolated_kills

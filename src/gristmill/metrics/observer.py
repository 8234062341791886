"""What watches a run besides the terminal: the contract between executors and observers, and what they see.

An executor that runs a plan with an observer calls `begin` once, `update` about once a second and at the end, and
`message` for each warning: in the thread that runs the pipeline, or on the bridges in the thread of the accounts, never
in two threads at a time. So an observer must be fast, and must not raise because of its own output. It never sees the
scheduler: all that a page, an exposition of metrics or a report shows is in a `Moment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gristmill.metrics.rates import InputProgress
    from gristmill.scheduling.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One step of the plan that begins: what does not change while it runs."""

    name: str
    stages: tuple[str, ...]
    cpus: float
    gpus: float
    gpu_memory_gb: float
    memory_gb: float
    batch_size: int
    num_workers: int | None


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """A plan that begins. A pipeline with stages that need all documents runs several, one after the other."""

    name: str
    executor: str
    steps: tuple[StepInfo, ...]


@dataclass(frozen=True, slots=True)
class StageMoment:
    """The account of one stage so far. Counts are totals since the plan began."""

    name: str
    step: int
    tasks_in: int
    items_in: int
    tasks_done: int
    tasks_out: int
    items_out: int
    tasks_dropped: int
    tasks_failed: int
    items_failed: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class DocumentsMoment:
    """The account of documents in finished blocks, those of earlier runs included."""

    read: int
    made: int
    kept: int
    merged: int
    dropped: Mapping[tuple[str, str], int]
    """By stage and reason."""
    errored: Mapping[str, int]
    """By reason."""
    failed: int
    """Errored documents on which a stage failed."""
    counters: Mapping[tuple[str, str], int]
    problems: int
    """Blocks whose counts do not add up: 0, unless the engine has a bug."""


@dataclass(frozen=True, slots=True)
class FailureMoment:
    """A task, or a part of one, that was given up."""

    number: int
    """The first failure of the plan is 1."""
    task_id: str
    stage: str
    error: str
    items: int


@dataclass(frozen=True, slots=True)
class Moment:
    """All that observers see of a run at one moment."""

    snapshot: Snapshot
    memory_bytes: int
    """Of all processes of the run; 0 if the executor does not measure it."""
    memory_limit: int
    """0: none."""
    progress: InputProgress | None
    """None for a pipeline that does not begin with a reader."""
    stages: tuple[StageMoment, ...] = ()
    documents: DocumentsMoment | None = None
    failures: tuple[FailureMoment, ...] = ()
    """The latest ones, oldest first."""
    failures_total: int = 0
    steps_memory: tuple[int, ...] = ()
    """By step, the most memory that a worker used while it ran the step."""
    worker_bytes: tuple[int, ...] = ()
    """By step, the resident memory of the workers that run it now. What they share counts for each of them."""
    idle_bytes: int = 0
    """The same of shared workers that run nothing now."""


class Observer(Protocol):
    """Watches a run."""

    def begin(self, plan: PlanInfo) -> None:
        """Note that a plan begins. The plan before it, if there was one, has ended."""

    def update(self, moment: Moment) -> None:
        """Note what the run looks like now."""

    def message(self, text: str) -> None:
        """Note a warning that the terminal shows as well."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Several observers as one, called in order."""

    all: Sequence[Observer] = field(default_factory=tuple)

    def begin(self, plan: PlanInfo) -> None:
        for observer in self.all:
            observer.begin(plan)

    def update(self, moment: Moment) -> None:
        for observer in self.all:
            observer.update(moment)

    def message(self, text: str) -> None:
        for observer in self.all:
            observer.message(text)

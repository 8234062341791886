"""The contract between planning and executors: a plan in, a record of the run out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.backends.accounting import Documents
from gristmill.backends.engine.executor_config import ExecutorConfig
from gristmill.stages.core import ProcessingStage, worker_count
from gristmill.stages.protocols import Scoring, Sink, Tuned
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

if TYPE_CHECKING:
    from gristmill.ledger.run import RunLedger
    from gristmill.metrics.observer import Observer, PlanInfo, StepInfo
    from gristmill.scheduling.load import Load
    from gristmill.scheduling.profile import Profile
    from gristmill.scheduling.snapshot import Decision


@dataclass(frozen=True)
class Step:
    """One or more fused stages: the unit the scheduler sees.

    Only stages that ask for nothing of their own are fused, so whatever a step of several stages needs
    is what its first stage needs.
    """

    stages: tuple[ProcessingStage[Any, Any], ...]

    @property
    def name(self) -> str:
        return " + ".join(stage.name for stage in self.stages)

    @property
    def resources(self) -> Resources:
        return self.stages[0].resources

    @property
    def batch_size(self) -> int:
        return self.stages[0].batch_size

    @property
    def num_workers(self) -> int | None:
        return worker_count(self.stages[0])

    def without_gpu(self) -> Step:
        """Return the step as it runs where there is no GPU. Stages that need one stay as they are."""
        first = self.stages[0]
        if not first.resources.requires_gpu or first.resources_without_gpu is None:
            return self
        return Step((first.with_(resources=first.resources_without_gpu), *self.stages[1:]))


@dataclass(frozen=True)
class Plan:
    """The steps that an executor runs."""

    name: str
    steps: tuple[Step, ...]
    ledger: RunLedger | None = None
    """Where documents are accounted for; None for tasks that do not come from a reader."""
    output: Sink[Any, Any] | None = None
    """The stage that writes the documents, if there is one."""
    observer: Observer | None = None
    """The observer of the run besides the terminal."""

    def info(self, executor: str) -> PlanInfo:
        """Describe the plan to observers."""
        from gristmill.metrics.observer import PlanInfo  # only a run with an observer needs it

        return PlanInfo(self.name, executor, tuple(_step_info(step) for step in self.steps))

    @property
    def asks_for_gpus(self) -> bool:
        return any(step.resources.requires_gpu for step in self.steps)

    def on_gpus(self, count: int) -> Plan:
        """Return the plan for workers that have ``count`` GPUs: without any, stages that can do so run on CPUs."""
        if count:
            return self
        return replace(self, steps=tuple(step.without_gpu() for step in self.steps))

    def with_found(self, profile: Profile) -> Plan:
        """Return the plan with the settings that stages found out in an earlier run."""
        return replace(self, steps=tuple(_with_found(step, profile) for step in self.steps))

    def documents(self) -> list[Documents | None]:
        """Return the facts that each step needs to account for documents."""
        if self.ledger is None:
            return [None] * len(self.steps)
        last = len(self.steps) - 1
        firsts = accumulate((len(step.stages) for step in self.steps), initial=0)
        has_rules = any(isinstance(stage, Scoring) for step in self.steps for stage in step.stages)
        return [
            Documents(i, i == last, self.output, first, has_rules)
            for i, first in zip(range(last + 1), firsts, strict=False)
        ]


def _step_info(step: Step) -> StepInfo:
    from gristmill.metrics.observer import StepInfo

    asks = step.resources
    return StepInfo(
        name=step.name,
        stages=tuple(stage.name for stage in step.stages),
        cpus=asks.cpus,
        gpus=asks.gpus,
        gpu_memory_gb=asks.gpu_memory_gb,
        memory_gb=asks.memory_gb,
        batch_size=step.batch_size,
        num_workers=step.num_workers,
    )


def _with_found(step: Step, profile: Profile) -> Step:
    known = profile.stages.get(step.name)
    if known is None or not known.settings:
        return step
    return Step(tuple(stage.with_found(known.settings) if isinstance(stage, Tuned) else stage for stage in step.stages))


@dataclass
class StageStats:
    """The account of one stage. ``tasks_in == tasks_done + tasks_failed + tasks_cancelled`` when a run has ended."""

    name: str
    tasks_in: int = 0
    items_in: int = 0
    tasks_done: int = 0
    tasks_out: int = 0
    items_out: int = 0
    tasks_dropped: int = 0
    """Inputs for which the stage returned nothing."""
    tasks_failed: int = 0
    items_failed: int = 0
    tasks_cancelled: int = 0
    """Not finished because the run was stopped early."""
    busy_s: float = 0.0
    setups: int = 0
    teardowns: int = 0

    @property
    def items_done(self) -> int:
        """The items that it has taken, or returned if these are more: a reader takes blocks and returns documents."""
        return max(self.items_in - self.items_failed, self.items_out)


@dataclass
class StepStats:
    """How a step ran: the accounts of its stages and the work of its workers."""

    name: str
    stages: list[StageStats]
    units: int = 0
    """Dispatches that finished; up to ``batch_size`` tasks each."""
    busy_share: float = 0.0
    """Worker seconds spent working / worker seconds available (alive and set up)."""
    service_s_mean: float = 0.0
    service_s_max: float = 0.0
    queue_s_mean: float = 0.0
    queue_s_max: float = 0.0
    workers: list[tuple[float, int]] = field(default_factory=list)
    """(seconds since the start, workers of this step) at each change, thinned out in long runs."""
    workers_started: int = 0
    peak_worker_bytes: int = 0
    """Largest resident memory seen in one worker while it ran this step."""


@dataclass(frozen=True)
class Failure:
    """A task, or the part of it that could be narrowed down, that was given up."""

    task_id: str
    stage: str
    error: str
    """One line: the exception or how the worker died."""
    detail: str
    """The stage's traceback, where there is one."""
    story: tuple[str, ...]
    """The history of the task, in order."""
    items: int


@dataclass
class RunRecord:
    """The results and counts that an executor returns."""

    name: str
    steps: list[StepStats]
    wall_s: float
    first_output_s: float | None
    """Seconds from the start of the run to the first task out of the last stage."""
    failures: list[Failure]
    """The first ones, in the order in which they happened."""
    failures_total: int
    decisions: list[Decision]
    peak_bytes_in_flight: int
    budget_bytes: int
    peak_memory_bytes: int
    """Of all processes of the run, shared memory counted once."""
    worker_deaths: int
    outputs: list[Task[Any]] | None
    """The final tasks in the order of their ids, if they were kept."""
    outputs_dropped: str = ""
    """Why outputs were not kept, when they were not."""
    event_hash: str = ""
    """Hash over the scheduler's events and commands; only when the run was recorded."""
    interrupted: bool = False
    loaded_s: float = 0.0
    """Seconds until the stages were loaded and workers could start."""
    last_output_s: float | None = None
    """Seconds from the start of the run to the last task out of the last stage."""
    profile: Profile | None = None
    ledger: RunLedger | None = None
    measured_load: Callable[[], Load | None] | None = None
    """Returns the run as a simulator's load; None unless every step finished a task."""
    notes: list[str] = field(default_factory=list)
    """Notes of stages that need all documents, line by line."""
    phases: Sequence[RunRecord] = ()
    """The records of the phases of a pipeline with stages that need all documents, in order."""
    decided_s: Sequence[float] = ()
    """How long the decision after each of these phases took; the last phase has none."""


@dataclass(frozen=True)
class ExecutorLimits:
    """The most that all workers may use together by the options of an executor; None where they do not limit it."""

    cpus: float | None = None
    gpus: int | None = None
    memory_bytes: int | None = None


class Executor(ABC):
    """Runs a plan. Executors that share a machine or cluster do not share state."""

    config_class: ClassVar[type[ExecutorConfig]] = ExecutorConfig
    """The options that the executor takes; others are errors."""
    on_cluster: bool = True
    """Whether it runs on a Ray cluster, so that it can use a pipeline's `RayClient`."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.config = self.config_class.of(config)

    @property
    def ignore_failures(self) -> bool:
        """Whether a run with failed tasks is a success."""
        return self.config.ignore_failures

    def limits(self) -> ExecutorLimits:
        return ExecutorLimits()

    @contextmanager
    def starting(self, stages: Sequence[ProcessingStage[Any, Any]]) -> Iterator[Executor]:
        """An executor for one run of ``stages``, which may start what does not depend on the plan while that is made.

        At the end of the block all that was started is gone, whether the run came about or not.
        """
        yield self

    def ahead(self, stages: Sequence[ProcessingStage[Any, Any]]) -> None:  # noqa: B027  # most have nothing to start
        """Start what a plan of ``stages`` needs anyway: it is executed soon, within `starting`."""

    @contextmanager
    def several(self) -> Iterator[None]:
        """For as long as several plans are run one after the other: what they can share stays up meanwhile."""
        yield

    @abstractmethod
    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        """Run ``plan`` to its end.

        ``initial_tasks`` None means one `EmptyTask`. ``keep_outputs`` None keeps the final tasks if they came
        from ``initial_tasks`` and are small. Failed tasks are in the record; raising is up to the caller's
        policy, except for errors that end a run early (a setup that fails, say).
        """

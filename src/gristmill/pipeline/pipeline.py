"""A named list of stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gristmill.backends.base import Executor, Plan
from gristmill.errors import NothingKept, OutOfSpace, PipelineError, PipelineFailed, PlanError
from gristmill.ledger.resume import ResumeOptions
from gristmill.logs import logger
from gristmill.pipeline.describe import describe_plan, describe_stages
from gristmill.pipeline.documents import check_written, closing_log, finish, with_ledger
from gristmill.pipeline.inputs import check_inputs
from gristmill.pipeline.monitoring import DashboardOptions, MetricsOptions, MonitoringOptions, monitoring
from gristmill.pipeline.one_schema import give_one_schema
from gristmill.pipeline.planner import (
    NO_INITIAL_TASKS,
    UNKNOWN,
    PipelineInput,
    check_stage,
    flatten,
    has_barrier,
    make_plan,
)
from gristmill.pipeline.profiles.clock import Clock
from gristmill.pipeline.report import kept_nothing, read_nothing
from gristmill.pipeline.result import RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Source, own_tasks
from gristmill.tasks import EmptyTask, Task

if TYPE_CHECKING:
    from gristmill.config.load import ExecutorChoice, PipelineFile
    from gristmill.core.client import RayClient
    from gristmill.metrics.observer import Observer


class Pipeline:
    """Stages that tasks flow through, one after the other.

    ```python
    pipeline = Pipeline("clean", stages=[reader])
    pipeline.add_stage(filter).add_stage(writer)
    result = pipeline.run()
    ```
    """

    def __init__(
        self, name: str, description: str | None = None, stages: Sequence[ProcessingStage[Any, Any]] | None = None
    ) -> None:
        self.name = name.encode("utf-8", "backslashreplace").decode()  # a file's name need not be UTF-8
        self.description = description
        self.stages: list[ProcessingStage[Any, Any]] = []
        self.executor: ExecutorChoice | None = None
        """The executor of `run` by default, from a YAML file; None is this machine."""
        self.ray_client: RayClient | None = None
        """Started for each run on a cluster, and stopped after it. With a client the default executor is Ray's."""
        for stage in stages or ():
            self.add_stage(stage)

    @classmethod
    def from_yaml(cls, source: str | Path, overrides: Sequence[str] = ()) -> Self:
        """The pipeline of a YAML file, or of a YAML text.

        Relative paths in a file begin at the folder of the file, in a text at the current folder.
        ``overrides`` change what it says, as ``--set`` does: ``"ScoreFilter.text_field=body"``. Raises
        `PipelineFileError`, with all that is wrong by file and line.
        """
        from gristmill.config.load import load

        return cls.of_file(load(source, overrides))

    @classmethod
    def of_file(cls, file: PipelineFile) -> Self:
        """The pipeline of a YAML file that was loaded."""
        pipeline = cls(file.name, file.description, file.stages)
        pipeline.executor = file.executor
        pipeline.ray_client = file.ray_client
        return pipeline

    def to_yaml(self) -> str:
        """The pipeline as YAML: `from_yaml` makes the same pipeline of it.

        Stages and what they are made with must be registered (`gristmill.stages.registry.register`); a `PlanError`
        names those that are not.
        """
        from gristmill.config.dump import dump

        return dump(self.name, self.description, self.stages, self.executor, self.ray_client)

    def _as_yaml(self) -> str | None:
        from gristmill.config.dump import dump

        try:
            return dump(self.name, self.description, self.stages, self.executor, self.ray_client, to_keep=True)
        except PlanError:
            return None

    def add_stage(self, stage: ProcessingStage[Any, Any]) -> Self:
        """Add a stage at the end; anything that is not a stage is a `PlanError`. Calls can be chained."""
        check_stage(stage)
        self.stages.append(stage)
        return self

    def describe(self) -> str:
        """The stages, what they ask for, need and make, and how they are fused into steps: text for people.

        A pipeline that cannot be planned is described too, with what is wrong at the end.
        """
        head = f"pipeline {self.name!r}" + (f": {self.description}" if self.description else "")
        try:
            lines = list(describe_plan(self.plan()))
        except PlanError as error:
            lines = [*describe_stages(self.stages), f"  cannot run: {error}"]
        return "\n".join([head, *lines])

    def make_executor(self, name: str | None = None, **options: Any) -> Executor:
        """Return the executor of a name, by default the one that the pipeline runs on.

        ``options`` win over those of the pipeline's file, which count if they are for this executor.
        """
        from gristmill.backends.executors import make_executor

        choice = self.executor
        of_file = choice.name if choice else "ray" if self.ray_client else "local"
        given = dict(choice.options) if choice and name in (None, of_file) else {}
        return make_executor(name or of_file, given | options)

    def plan(self, *, fuse: bool = True) -> Plan:
        """The plan as far as it is known without tasks: checked, but for what initial tasks would show.

        A first stage that takes anything but an `EmptyTask` is taken to get ``initial_tasks``.
        """
        stages = flatten(self.stages)
        starts_empty = bool(stages) and stages[0].input_type() is EmptyTask
        return make_plan(self.name, stages, NO_INITIAL_TASKS if starts_empty else UNKNOWN, fuse)

    def run(
        self,
        executor: Executor | None = None,
        initial_tasks: Iterable[Task[Any]] | None = None,
        *,
        keep_outputs: bool | None = None,
        fuse: bool = True,
        fresh: bool = False,
        append: bool = False,
        retry_failed: bool = False,
        verify: bool = True,
        allow_empty: bool = False,
        dashboard: bool | DashboardOptions = False,
        metrics_port: int | MetricsOptions | None = None,
        report: bool = False,
        profile_store: bool = True,
    ) -> RunResult:
        """Plan and run the pipeline to its end.

        - ``executor``: what runs the stages. None is this machine.
        - ``initial_tasks``: an iterable, which may be a generator without end. Tasks are taken when there is memory for
          them, after the first one in a separate thread. Without them the first stage gets one `EmptyTask`.
        - ``keep_outputs``: whether the result has the final tasks. None keeps them if they came from ``initial_tasks``
          and are small.
        - ``fuse=False`` makes each stage a step of its own.

        A pipeline that begins with a reader and ends with a writer accounts for every document (`RunResult.ledger`)
        and resumes where an earlier run of it was stopped:

        - ``fresh`` removes the output of earlier runs and starts over.
        - ``append`` processes files that are new in the input, and leaves the output of the others as it is.
        - ``retry_failed`` processes blocks again in which a stage failed on documents.
        - ``verify=False`` compares only the sizes of files that earlier runs wrote, not their checksums.

        ``dashboard`` serves a page that shows the run, ``metrics_port`` serves metrics for Prometheus, and ``report``
        writes a report beside the output. ``profile_store=False`` keeps the measurements of the run out of the profile
        store.

        Raises `PlanError` before anything starts, and `PipelineFailed` at the end if tasks failed and the executor does
        not ignore failures. A run with a writer that read documents and kept none raises `NothingKept`, unless
        ``allow_empty`` is True. Ctrl-C raises `KeyboardInterrupt`, with a message on how many blocks are done.
        """
        how = ResumeOptions(fresh, append, retry_failed, verify)
        how.check()
        watch = MonitoringOptions.of(dashboard, metrics_port, report)
        clock = Clock()
        if executor is None:
            executor = self.make_executor()
        try:
            with monitoring(self, executor, watch) as monitor, executor.starting(self.stages) as started:
                result = self._run(started, initial_tasks, keep_outputs, fuse, how, monitor.observer)
                monitor.result = result
            if profile_store:
                from gristmill.pipeline.profiles.recording import store_run  # not while workers wait for the driver

                store_run(flatten(self.stages), executor, result, clock)
        except OutOfSpace as error:  # raised by commits and decisions of the driver
            raise PipelineError(str(error)) from None
        if words := read_nothing(result.record, next(iter(flatten(self.stages)), None)):
            logger.info(words)
        if not allow_empty and (words := kept_nothing(result.record)):
            raise NothingKept(words, result)
        return result

    def _run(
        self,
        executor: Executor,
        initial_tasks: Iterable[Task[Any]] | None,
        keep_outputs: bool | None,
        fuse: bool,
        how: ResumeOptions,
        observer: Observer | None,
    ) -> RunResult:
        stages = flatten(self.stages)  # once: composites make new stages each time, and a reader remembers its files
        if has_barrier(stages):
            from gristmill.pipeline.phases.run import run_phases

            if initial_tasks is not None:
                raise PlanError("a pipeline that removes duplicates begins with a reader: it takes no initial_tasks.")
            return run_phases(self, stages, executor, keep_outputs, fuse, how, observer)
        reader = next((stage for stage in stages[:1] if isinstance(stage, Source)), None)
        blocks = own_tasks(reader) if initial_tasks is None and reader is not None else None
        source, tasks = _peek(initial_tasks if blocks is None else blocks)
        plan = replace(make_plan(self.name, stages, source, fuse), observer=observer)
        if reader is not None and blocks is not None:
            plan, tasks = with_ledger(plan, reader, self._as_yaml, blocks, how)
        with closing_log(plan.ledger):
            with self.ray_client if self.ray_client is not None and executor.on_cluster else nullcontext():
                result = RunResult(executor.execute(plan, tasks, keep_outputs))
                result.check()
                if reader is not None and blocks is not None:
                    check_inputs(reader, result)
                if (log := check_written(plan, result, executor.ignore_failures)) is not None:
                    give_one_schema(plan.output, executor, log, bool(tasks))
            finish(plan, result, executor.ignore_failures)
        if result.record.failures_total and not executor.ignore_failures:
            raise PipelineFailed(result.failure_report(), result)
        return result


def _peek(tasks: Iterable[Task[Any]] | None) -> tuple[PipelineInput, Iterable[Task[Any]] | None]:
    """Return the first item, and an iterator over all items with the first.

    Only lists, tuples and results are iterated twice. Any other iterable may return each task once, with or without a
    length.
    """
    if tasks is None:
        return NO_INITIAL_TASKS, None
    if isinstance(tasks, Task):
        raise PlanError(f"initial_tasks is a single {type(tasks).__name__}: give a list of tasks, [task].")
    if isinstance(tasks, list | tuple):
        for position, task in enumerate(tasks):
            _check_task(task, position)
    if not isinstance(tasks, Iterable):
        raise PlanError(f"initial_tasks must be tasks in a list or another iterable, not {tasks!r}.")
    length = _length(tasks)  # before a task is taken: it may count what is left
    iterator = iter(tasks)
    head = list(itertools.islice(iterator, 1))
    for task in head:
        _check_task(task, 0)
    source = PipelineInput(head[0]) if head else UNKNOWN
    if isinstance(tasks, list | tuple | RunResult):
        return source, tasks
    rest = itertools.chain(head, iterator)
    return source, rest if length is None else _SizedOnce(rest, length)


def _length(tasks: Iterable[Task[Any]]) -> int | None:
    try:
        return len(tasks) if isinstance(tasks, Sized) else None
    except TypeError:  # its class has a length, but it has none: a progress bar around a generator, for example
        return None


@dataclass(frozen=True, slots=True)
class _SizedOnce:
    """Tasks that can be taken once, with a length."""

    tasks: Iterator[Task[Any]]
    length: int

    def __iter__(self) -> Iterator[Task[Any]]:
        return self.tasks

    def __len__(self) -> int:
        return self.length


def _check_task(task: object, position: int) -> None:
    if not isinstance(task, Task):
        raise PlanError(
            f"initial_tasks[{position}] is a {type(task).__name__}, not a task: "
            "wrap data in a DocumentBatch or a subclass of Task."
        )

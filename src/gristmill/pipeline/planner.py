"""From a list of stages to a plan: decompose, check, fuse. Nothing runs here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, pairwise
from types import FunctionType
from typing import Any, get_args

from gristmill.backends.base import Plan, Step
from gristmill.backends.step_runner import overrides
from gristmill.errors import ModelError, PlanError
from gristmill.pipeline.columns import Columns
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.core import CompositeStage, ProcessingStage, accounts_for_all, check_settings, worker_count
from gristmill.stages.hints import TaskType, is_async
from gristmill.stages.protocols import Linked, Source
from gristmill.stages.registry import INTERNAL, is_builtin, known
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import DocumentBatch, EmptyTask, FileBlock, SpoolBlock, Task

Stage = ProcessingStage[Any, Any]
Reader = Source[Any, Any]


@dataclass(frozen=True)
class PipelineInput:
    """The first task of the first stage, if it is known."""

    first: Task[Any] | None
    given: bool = True
    """Whether the tasks are the user's ``initial_tasks``."""


NO_INITIAL_TASKS = PipelineInput(EmptyTask(), given=False)
UNKNOWN = PipelineInput(None)


def make_plan(name: str, stages: Sequence[Stage], source: PipelineInput, fuse: bool = True) -> Plan:
    """The steps that run ``stages`` on tasks from ``source``, or a `PlanError` with the stage and what it lacks."""
    return plan_of(name, linked_stages(name, stages, source), source, fuse)


def linked_stages(name: str, stages: Sequence[Stage], source: PipelineInput) -> list[Stage]:
    """The stages that do the work, checked, each knowing those around it."""
    if not stages:
        raise PlanError(f"pipeline {name!r} has no stages: add one with add_stage(...).")
    flat = flatten(stages)
    for number, stage in enumerate(flat, 1):
        _check_settings(number, stage)
        _check_in_flight(number, stage)
    _check_types(flat, source)
    _check_columns(flat, source)
    for number, stage in enumerate(flat, 1):
        _check_needs(number, stage)
    return [
        stage.linked(flat[:i], flat[i + 1 :]) if isinstance(stage, Linked) else stage for i, stage in enumerate(flat)
    ]


def plan_of(name: str, flat: Sequence[Stage], source: PipelineInput, fuse: bool = True) -> Plan:
    """The steps of stages that are flat and linked."""
    return Plan(name, tuple(_steps(flat, source, fuse)))


def flatten(stages: Sequence[Stage]) -> list[Stage]:
    """The stages that do the work, each with a name of its own."""
    return _with_unique_names(_decompose(stages))


def has_barrier(stages: Sequence[Stage]) -> bool:
    """Return whether a stage needs all documents, so that the pipeline runs in phases."""
    return any(isinstance(stage, BarrierStage) for stage in stages)


def check_stage(stage: object) -> None:
    """Raise `PlanError` if ``stage`` is not something that a pipeline is made of."""
    if isinstance(stage, ProcessingStage):
        return
    if isinstance(stage, type) and issubclass(stage, ProcessingStage):
        raise PlanError(f"{stage.__name__} is a class: add an instance, {stage.__name__}(...).")
    if callable(stage):
        name = stage.__name__ if isinstance(stage, FunctionType) else repr(stage)
        raise PlanError(f"{name} is a plain function, not a stage: put @processing_stage above it.")
    raise PlanError(f"{stage!r} is not a stage: use an instance of ProcessingStage or @processing_stage.")


def label(number: int, stage: Stage) -> str:
    return f"stage {number} {stage.name!r}"


def _decompose(stages: Sequence[Stage]) -> list[Stage]:
    flat: list[Stage] = []
    for stage in stages:
        try:
            flat += stage.flatten() if isinstance(stage, CompositeStage) else [stage]
        except ValueError as error:
            raise PlanError(f"{label(len(flat) + 1, stage)}: {error}") from error
    return flat


def _with_unique_names(stages: list[Stage]) -> list[Stage]:
    """Results and accounts are by name, and a stage that is used twice must not share its state."""
    taken = {stage.name for stage in stages}
    seen: set[str] = set()
    unique: list[Stage] = []
    for number, stage in enumerate(stages, 1):
        if stage.name in seen:
            name = next(n for i in count(2) if (n := f"{stage.name} ({i})") not in taken)
            taken.add(name)
            try:
                stage = stage.with_(name=name)
            except (TypeError, ValueError) as error:
                raise PlanError(f"{label(number, stage)} has the name of a stage before it. {error}") from error
        seen.add(stage.name)
        unique.append(stage)
    return unique


def _check_settings(number: int, stage: Stage) -> None:
    try:
        check_settings(stage)
    except ValueError as error:
        raise PlanError(f"stage {number}: {error}") from None


def _check_in_flight(number: int, stage: Stage) -> None:
    """Raise `PlanError` if an asynchronous stage asks for what only a synchronous one can have, or the reverse."""
    where, n = label(number, stage), stage.max_in_flight
    if not stage.runs_async():
        if n > 1 and not overrides(stage, "runs_async"):
            raise PlanError(
                f"{where} has max_in_flight={n}, but its process is synchronous, so a worker runs one task at a time.\n"
                "    write process as an 'async def' that awaits, or leave max_in_flight at 1."
            )
        return
    if stage.batch_size > 1 or overrides(stage, "process_batch"):
        has = f"batch_size={stage.batch_size}" if stage.batch_size > 1 else "a process_batch of its own"
        raise PlanError(
            f"{where} has {has}, but its process is asynchronous, so it gets its tasks one by one.\n"
            f"    leave batch_size at 1 and process_batch undefined: max_in_flight={n} is the number at the same time."
        )
    for hook in (stage.setup_on_node, stage.setup, stage.teardown):
        if is_async(hook):
            raise PlanError(f"{where}: {hook.__name__} is an 'async def', but only process may be one.")


def _check_needs(number: int, stage: Stage) -> None:
    try:
        stage.check_needs()
    except ModelError as error:
        raise ModelError(f"{label(number, stage)}: {error}") from error


def _check_types(stages: list[Stage], source: PipelineInput) -> None:
    taken = stages[0].input_type()
    if source.first is not None and not _fits(type(source.first), taken):
        if not source.given and isinstance(stages[0], FileReader) and stages[0].file_paths is None:
            raise PlanError(f"{label(1, stages[0])}: file_paths is missing: name the files to read.")
        if not source.given:
            raise PlanError(
                f"{label(1, stages[0])} takes {type_name(taken)}, but a pipeline without initial tasks starts with an "
                "EmptyTask.\n    put a reader first, or give run(initial_tasks=...)."
            )
        raise PlanError(
            f"{label(1, stages[0])} takes {type_name(taken)}, but the first of initial_tasks is a "
            f"{type(source.first).__name__}."
        )
    given = taken if source.first is None else type(source.first)
    for number, (before, stage) in enumerate(pairwise(stages), 2):
        given, taken = _type_after(before, given), stage.input_type()
        if not _fits(given, taken):
            raise PlanError(
                f"{label(number, stage)} takes {type_name(taken)}, but {label(number - 1, before)} gives "
                f"{type_name(given)}.\n    put a stage between them that turns one into the other, or change the order."
            )


def _type_after(stage: Stage, given: TaskType | None) -> TaskType | None:
    """The tasks that a stage returns. Our own return a batch of the class that they got, images for example."""
    returned = stage.output_type()
    keeps = stage.builtin and returned is stage.input_type() is DocumentBatch
    return given if keeps and isinstance(given, type) and issubclass(given, DocumentBatch) else returned


def _fits(given: TaskType | None, taken: TaskType | None) -> bool:
    """Return whether a task of the given type can be taken. ``Task`` fits any type."""
    if given is None or taken is None:
        return True
    return any(kind is Task or issubclass(kind, taken) for kind in get_args(given) or (given,))


def _check_columns(stages: list[Stage], source: PipelineInput) -> None:
    columns = Columns()
    if isinstance(source.first, DocumentBatch):
        columns = Columns.of_table(source.first.columns, "initial_tasks")
    for number, stage in enumerate(stages, 1):
        missing = columns.missing(column_names(number, stage, "inputs"), stage.takes_paths)
        if missing:
            raise PlanError(_missing_words(label(number, stage), missing, columns))
        column_names(number, stage, "outputs")
        columns = columns.after(stage, label(number, stage))


def column_names(number: int, stage: Stage, side: str) -> list[str]:
    """The columns that the stage declares on one side, ``inputs`` or ``outputs``."""
    declared = getattr(stage, side)()
    match declared:
        case (list() | tuple(), list() | tuple() as names) if all(isinstance(name, str) for name in names):
            return list(names)
    raise PlanError(
        f"{label(number, stage)}: {side}() must return (task attributes, columns), two lists, not {declared!r}."
    )


def _missing_words(stage: str, missing: list[str], columns: Columns) -> str:
    names = ", ".join(repr(name) for name in missing)
    there = ", ".join(columns.made_by) or "no columns at all"
    words = f"{stage} needs the column{'s' * (len(missing) > 1)} {names}, but "
    makers = set(columns.made_by.values()) | {columns.named_by}
    if columns.named_by == "initial_tasks":
        words += f"the first of initial_tasks has only: {there}."
    elif len(makers) == 1:
        words += f"{columns.named_by} makes only: {there}."
    else:
        words += f"there are only: {', '.join(f'{name} (of {maker})' for name, maker in columns.made_by.items())}."
    for name in missing:
        if makers_of := " or ".join(_makers(name)):
            words += f"\n    {name!r} is made by {makers_of}: put it before this stage."
        elif near := columns.near(name):
            words += f"\n    did you mean {near!r} instead of {name!r}?"
    where = "add it to initial_tasks"
    if columns.named_by != "initial_tasks":
        where = "name it in outputs() of the stage that makes it"
    return f"{words}\n    let the stage use a column that exists, or {where}."


def _makers(column: str) -> Iterator[str]:
    """The stages of videos that make this column when they are used without arguments."""
    from gristmill.stages.video.rows import VideoStage

    for name, cls in known().items():
        if not is_builtin(cls) or name in INTERNAL or not issubclass(cls, VideoStage):
            continue
        with suppress(TypeError, ValueError):  # it needs arguments
            if column in cls().outputs()[1]:
                yield name


def _steps(stages: Sequence[Stage], source: PipelineInput, fuse: bool) -> Iterator[Step]:
    run: list[Stage] = []
    for position, stage in enumerate(stages):
        lone_task = position == 1 and not source.given
        if run and not (fuse and _joins(run[-1], stage, lone_task) and not _must_be_separate(run, stage)):
            yield Step(tuple(run))
            run = []
        run.append(stage)
    yield Step(tuple(run))


def _joins(before: Stage, stage: Stage, lone_task: bool) -> bool:
    """Return whether two stages are faster in one step, and otherwise run as before."""
    if lone_task or before.fans_out() or before.resources != stage.resources:
        return False
    return not asks_for_itself(before) and not asks_for_itself(stage)


def _must_be_separate(run: Sequence[Stage], stage: Stage) -> bool:
    """Return whether a stage may fail on one document in a step whose tasks cannot be split, such as file blocks."""
    taken = run[0].input_type()
    kinds = get_args(taken) or (taken,)
    whole = FileBlock in kinds or SpoolBlock in kinds or not all(one.split_on_failure for one in run)
    if not stage.split_on_failure and not all(map(accounts_for_all, run)):
        return True
    return whole and not accounts_for_all(stage)


def asks_for_itself(stage: Stage) -> bool:
    """Whether the stage needs workers, batches or limits of its own."""
    return (
        stage.resources.requires_gpu
        or stage.resources.memory_gb > 0
        or stage.batch_size > 1
        or stage.runs_async()
        or overrides(stage, "process_batch")  # in a step of several stages only `process` is called
        or worker_count(stage) is not None
        or stage.timeout_s is not None
        or stage.max_attempts is not None
        or stage.worker_max_lifetime_m is not None
        or stage.worker_restart_interval_m is not None
    )


def type_name(kind: TaskType | None) -> str:
    """The name of a type for people."""
    return "any task" if kind is None or kind is Task else " or ".join(k.__name__ for k in get_args(kind) or (kind,))

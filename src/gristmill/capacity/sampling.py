"""Run a sample of a pipeline's input for real, into a temporary folder, and measure it."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gristmill.backends.base import Plan, RunRecord
from gristmill.backends.local import LocalExecutor
from gristmill.capacity.blocks import InputBlocks, Sized, input_blocks, main_sample, small_sample, warm_up
from gristmill.capacity.errors import CapacityError
from gristmill.capacity.events import MeasuredUnit, read_units
from gristmill.capacity.watching import MemoryPeaks
from gristmill.errors import NothingKept, PipelineError
from gristmill.metrics.format import size as shown_size
from gristmill.pipeline import Pipeline
from gristmill.pipeline.planner import flatten
from gristmill.pipeline.profiles.clock import Clock
from gristmill.pipeline.profiles.measured import PhaseMeasure, RunMeasure
from gristmill.pipeline.profiles.recording import measured
from gristmill.pipeline.result import RunResult
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Sink
from gristmill.stages.registry import arguments_of
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.writer.base import FileWriter
from gristmill.storage import Folder
from gristmill.tasks import Task

Stages = list[ProcessingStage[Any, Any]]


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """How much is run."""

    share: float = 0.05
    documents: int = 50_000
    seconds: float = 120.0


class LoggedExecutor(LocalExecutor):
    """A local executor that writes the events of each plan to a file of its own."""

    def __init__(self, config: Mapping[str, Any] | None, folder: Path) -> None:
        super().__init__(config)
        self._folder = folder
        self.logs: list[tuple[RunRecord, Path]] = []

    def execute(self, plan: Plan, initial_tasks: Any, keep_outputs: bool | None) -> RunRecord:
        log = self._folder / f"{len(self.logs)}.events"
        self.config = replace(self.config, event_log=log)
        record = super().execute(plan, initial_tasks, keep_outputs)
        self.logs.append((record, log))
        return record


@dataclass
class SampleRun:
    """One run of a part of the input."""

    run: RunMeasure
    units: list[list[MeasuredUnit]]
    """Of each phase."""
    blocks: list[Sized]
    """Empty for a pipeline that begins with tasks."""

    @property
    def bytes(self) -> int:
        return sum(block.size for block in self.blocks)


@dataclass
class Sample:
    """What was run, and the whole job."""

    runs: list[SampleRun]
    """For files three: one that loads what every run loads, one on small blocks, and one with whole blocks. For tasks
    one."""
    inputs: int
    """Of the whole job: blocks, or tasks."""
    blocks: InputBlocks | None
    """None for a pipeline that begins with tasks."""


def with_data(pipeline: Pipeline, data: str | None) -> Pipeline:
    """Return the pipeline, without composites, reading other data if a path is given."""
    stages = flatten(pipeline.stages)
    if data is not None:
        reader = stages[0] if stages else None
        arguments = arguments_of(reader) if isinstance(reader, FileReader) else None
        if reader is None or arguments is None:
            raise CapacityError(
                f"--data is for pipelines that begin with a reader, such as JsonlReader: {pipeline.name!r} begins with "
                f"{reader.name if reader is not None else 'nothing'!r}"
            )
        clone = type(reader)(**{**arguments, "file_paths": data})
        stages[0] = clone.with_(**reader._settings) if reader._settings else clone
    return _like(pipeline, stages)


def _like(pipeline: Pipeline, stages: Stages) -> Pipeline:
    clone = Pipeline(pipeline.name, pipeline.description, stages)
    clone.executor = pipeline.executor
    return clone


def sample(
    pipeline: Pipeline, tasks: Sequence[Task[Any]] | None, options: Mapping[str, Any], limits: SampleLimits
) -> Sample:
    """Run a sample. ``pipeline`` has no composites; ``options`` are those of a local executor."""
    folder = Path(tempfile.mkdtemp(prefix="gristmill-plan-"))
    try:
        reader = pipeline.stages[0] if pipeline.stages else None
        if tasks is not None:
            return _of_tasks(pipeline, tasks, options, limits, folder)
        if not isinstance(reader, FileReader):
            raise CapacityError(
                f"{pipeline.name!r} makes its own tasks: its first stage, "
                f"{reader.name if reader is not None else 'nothing'!r}, is no reader of files, so there is no part of "
                "the input to sample. Run it once, and plan with --profile auto"
            )
        return _of_files(pipeline, reader, options, limits, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _of_files(
    pipeline: Pipeline, reader: FileReader, options: Mapping[str, Any], limits: SampleLimits, folder: Path
) -> Sample:
    blocks = input_blocks(reader)
    workers = max(1, int(LocalExecutor(options).config.cpus))
    most = min(float(blocks.bytes), max(limits.share * blocks.bytes, blocks.small_bytes))
    start = _run(pipeline, warm_up(blocks, workers), options, folder / "0")
    per_byte = start.run.documents / start.bytes
    if per_byte:
        most = min(most, limits.documents / per_byte)
    busy = sum(phase.run_s for phase in start.run.phases)
    if busy:
        most = min(most, limits.seconds * start.bytes / busy)
    most = max(most, blocks.small_bytes)
    small = _run(pipeline, small_sample(blocks, most, workers), options, folder / "1")
    chosen = main_sample(blocks, most, workers, start.bytes + small.bytes)
    return Sample([start, small, _run(pipeline, chosen, options, folder / "2")], len(blocks.whole), blocks)


def _of_tasks(
    pipeline: Pipeline,
    tasks: Sequence[Task[Any]],
    options: Mapping[str, Any],
    limits: SampleLimits,
    folder: Path,
) -> Sample:
    if not tasks:
        raise CapacityError(f"{pipeline.name!r} has no initial tasks: there is nothing to measure")
    count = min(len(tasks), max(1, round(limits.share * len(tasks))), limits.documents)
    some = [tasks[i * len(tasks) // count] for i in range(count)]
    return Sample([_run(pipeline, [], options, folder / "0", some)], len(tasks), None)


def _run(
    pipeline: Pipeline,
    blocks: list[Sized],
    options: Mapping[str, Any],
    folder: Path,
    tasks: Sequence[Task[Any]] | None = None,
) -> SampleRun:
    stages = _redirected(pipeline.stages, folder / "output")
    if blocks:
        reader = stages[0]
        assert isinstance(reader, FileReader)
        stages[0] = reader.of_blocks([block.parts for block in blocks])
    folder.mkdir()
    executor = LoggedExecutor({**options, "view": "off", "profile": None}, folder)
    clock = Clock()
    with _quiet(), MemoryPeaks() as peaks:
        try:
            result = _like(pipeline, stages).run(
                executor, tasks, keep_outputs=False, allow_empty=True, profile_store=False
            )
        except NothingKept as error:  # pragma: no cover  # allow_empty is set
            raise CapacityError(str(error)) from None
        except PipelineError as error:
            raise CapacityError(f"the sample of {pipeline.name!r} failed: {error}") from error
    run = measured(stages, executor, result, clock)
    if run is None:
        raise CapacityError(_why(pipeline, result, blocks))
    run = replace(
        run,
        phases=tuple(_of_source(phase, blocks) for phase in run.phases),
        sampled=True,
        driver_bytes=peaks.base,
        peak_memory_bytes=peaks.base + run.workers * peaks.worker,
    )
    logs = {id(record): log for record, log in executor.logs}
    units = [read_units(logs[id(record)]) for record in result.record.phases or [result.record]]
    _set_sizes(units, blocks)
    shutil.rmtree(folder, ignore_errors=True)
    return SampleRun(replace(run, source_bytes=sum(block.size for block in blocks)), units, blocks)


def _of_source(phase: PhaseMeasure, blocks: Sequence[Sized]) -> PhaseMeasure:
    """Correct the bytes that a phase has read: the reader knows the sizes of whole files only."""
    if not blocks or phase.inputs != len(blocks):
        return phase
    size = sum(block.size for block in blocks)
    return replace(phase, source_bytes=size, steps=(replace(phase.steps[0], bytes_in=size), *phase.steps[1:]))


def _why(pipeline: Pipeline, result: RunResult, blocks: Sequence[Sized]) -> str:
    """Explain why a finished sample says nothing about a stage."""
    for record in result.record.phases or [result.record]:
        for step in record.steps:
            if not sum(stage.tasks_done for stage in step.stages[:1]):
                amount = shown_size(sum(block.size for block in blocks)) if blocks else "its tasks"
                return (
                    f"{step.stages[0].name!r} got nothing in the sample of {pipeline.name!r} ({amount}): the stages "
                    "before it dropped everything, so its speed is unknown. Take a larger sample with --sample, or a "
                    "stored profile with --profile"
                )
    return (
        f"the sample of {pipeline.name!r} is too small: not every stage was measured. Take a larger one with --sample"
    )


def _set_sizes(units: Sequence[Sequence[MeasuredUnit]], blocks: Sequence[Sized]) -> None:
    """Give the units of steps that read blocks the size of their block, and others that of their data."""
    for phase in units:
        sources = sum(unit.step == 0 for unit in phase)
        for unit in phase:
            if unit.step:
                unit.size = unit.bytes_in
            elif sources == len(blocks):
                unit.size = blocks[unit.number].size


def _redirected(stages: Sequence[ProcessingStage[Any, Any]], folder: Path) -> Stages:
    """Return the stages with writers, and caches between phases, in another folder."""
    found: Stages = []
    for stage in stages:
        if isinstance(stage, FileWriter):
            writer = copy.copy(stage)
            writer.path, writer.storage_options, writer.folder = os.fspath(folder), {}, Folder(folder)
            stage = writer
        elif isinstance(stage, BarrierStage) and stage.cache_path is not None:
            barrier = copy.copy(stage)
            barrier.cache_path = os.fspath(folder.with_name("cache"))
            stage = barrier
        elif isinstance(stage, Sink):
            raise CapacityError(
                f"{stage.name!r} is a writer of your own: a sample would write to its real output. Run the pipeline "
                "once, and plan with --profile auto"
            )
        found.append(stage)
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the messages of a sample, such as forecasts for its size, from the user."""
    import logging

    from gristmill.logs import logger

    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)

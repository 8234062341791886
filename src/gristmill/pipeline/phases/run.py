"""Pipelines with stages that need all documents: split before each of them, and run phase by phase.

Before a split every batch leaves its keys in a folder of the phase (`_gristmill/phases/<n>` in the output), and its
documents too, unless the source can be read again instead. Each phase has its own log of commits, so that a run that
was stopped resumes; `decided.json` is written when the phase and the decision after it are done.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.backends.base import Executor, Plan, RunRecord, StepStats
from gristmill.errors import OutputChanged, OutputDamaged, PipelineFailed, PlanError
from gristmill.ledger.closing import remove_temporaries
from gristmill.ledger.commits import DECIDED, PHASES, RUN, START_OVER, CommitLog
from gristmill.ledger.differences import listed
from gristmill.ledger.excluded import RECORDS
from gristmill.ledger.names import OutputNames, is_record
from gristmill.ledger.opening import check_unused, clear
from gristmill.ledger.resume import ResumeOptions
from gristmill.ledger.run import RunLedger
from gristmill.pipeline.documents import (
    PhaseOptions,
    Segment,
    check_apart,
    check_written,
    closing_log,
    fingerprint,
    finish,
    opened,
    say,
    stages_of,
    with_ledger,
)
from gristmill.pipeline.inputs import check_inputs
from gristmill.pipeline.one_schema import give_one_schema
from gristmill.pipeline.phases.barrier_context import PhaseContext
from gristmill.pipeline.phases.decision import (
    check_decided,
    excluded_before,
    failed_before,
    put_beside,
    read_decided,
    refuse_append,
    stamps_of,
)
from gristmill.pipeline.phases.devices import GPU_SHARE, wants_gpu
from gristmill.pipeline.phases.forecast import forecast, limits_of, look
from gristmill.pipeline.phases.merged_record import merged_record, steps_of
from gristmill.pipeline.phases.split import (
    Split,
    check_fields,
    committed,
    failed_blocks,
    files_of,
    known_block,
    part_names,
    phase_folder,
    records_folder,
)
from gristmill.pipeline.planner import NO_INITIAL_TASKS, PipelineInput, Reader, Stage, linked_stages, plan_of
from gristmill.pipeline.report import RESUME
from gristmill.pipeline.result import RunResult
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.protocols import Sink, Source, own_tasks
from gristmill.stages.resources import Resources
from gristmill.stages.spool import FAILED, Spool, SpoolReader
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import Task

if TYPE_CHECKING:
    from gristmill.pipeline.pipeline import Pipeline


def run_phases(
    pipeline: Pipeline,
    stages: Sequence[Stage],
    executor: Executor,
    keep_outputs: bool | None,
    fuse: bool,
    how: ResumeOptions,
) -> RunResult:
    """Plan and run a pipeline that has barriers; ``stages`` are its stages, composites decomposed."""
    reader = stages[0]
    blocks = own_tasks(reader)
    if blocks is None or not isinstance(reader, Source):
        first = next(stage for stage in stages if isinstance(stage, BarrierStage))
        raise PlanError(f"{first.name!r} needs all documents: begin the pipeline with a reader, without initial tasks.")
    source = PipelineInput(blocks[0]) if blocks else NO_INITIAL_TASKS
    whole = linked_stages(pipeline.name, stages, source)
    writer = next((stage for stage in whole if isinstance(stage, Sink)), None)
    if writer is None:
        raise PlanError(
            f"pipeline {pipeline.name!r} needs a writer: what is removed is written down beside its output."
        )
    client = pipeline.ray_client if pipeline.ray_client is not None and executor.on_cluster else nullcontext()
    with client, executor.several():
        return PhasedRun(pipeline, executor, reader, list(blocks), writer, fuse, how).run(whole, source, keep_outputs)


class PhasedRun:
    """One run of a pipeline that has barriers."""

    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        reader: Reader,
        blocks: list[Task[Any]],
        writer: Sink[Any, Any],
        fuse: bool,
        how: ResumeOptions,
    ) -> None:
        self.pipeline = pipeline
        self.executor = executor
        self.reader = reader
        self.blocks = blocks
        self.writer = writer
        self.fuse = fuse
        self.how = how
        self.whole: list[Stage] = []
        """All stages of the pipeline, the reader first."""
        self.records: list[RunRecord] = []
        self.notes: list[str] = []
        self.ledger: RunLedger | None = None
        """Of the pieces that are done, if what they kept is not read from the source again."""
        self.is_head_cleared = False
        """Whether the documents that the next piece reads were removed by a run that came to its end."""
        self.done_before: list[StepStats] = []
        """The steps of pieces that an earlier run has done."""

    def run(self, whole: list[Stage], source: PipelineInput, keep_outputs: bool | None) -> RunResult:
        self.whole = whole
        output = self.writer.folder
        check_apart(output, self.blocks, self.reader.file_paths)
        log = CommitLog(output, OutputNames(self.writer.extension, len(self.blocks)))
        with opened(log):
            log.lock()
            if self.how.fresh:
                clear(log)
            elif self.how.retry_failed and (stage := failed_before(log, whole)):
                self.check_same(log, whole, source)
                say(f"documents failed before {stage!r}, which compares all documents: the run starts over")
                clear(log)
            self.check_ours(log)
        try:
            try:
                splits, last = self.splits(whole, source, self._phase)
            except OutputChanged:
                log.refuse()
                raise
            result = self._execute(*last, keep_outputs, splits)
            if result.ok or self.executor.ignore_failures:
                for number, split in enumerate(splits, 1):
                    put_beside(split, output, number)
                    check_decided(split, output, number, contents=False)
        finally:
            log.close()
        if result.record.failures_total and not self.executor.ignore_failures:
            raise PipelineFailed(result.failure_report(), result)
        return result

    def check_ours(self, log: CommitLog) -> None:
        """Say before the work is done that there is no room for its results."""
        output = log.folder
        if not output.exists(RUN):
            if not output.exists(f"{PHASES}/1"):
                check_unused(log, [f"{RECORDS}/{name}" for name in output.names(RECORDS) if is_record(name)])
            return
        run = log.run_json() or {}
        log.check_format(run)
        if not output.exists(f"{PHASES}/1"):
            raise OutputChanged(
                f"{output.url} holds the output of another run, which had no stage that needs all documents.\n"
                f"{START_OVER}"
            )

    def check_same(self, log: CommitLog, whole: list[Stage], source: PipelineInput) -> None:
        """Raise `OutputChanged` if another pipeline or another input was here, before its output is removed."""
        try:
            _, (stages, head, blocks, source) = self.splits(whole, source, self._check_phase)
        except NotDecided:
            return
        finally:
            self.is_head_cleared = False
        log.is_of(fingerprint(plan_of(self.pipeline.name, stages, source, self.fuse), head, [Segment(blocks)]))

    def _check_phase(
        self,
        split: Split,
        front: list[Stage],
        head: Reader,
        blocks: list[Task[Any]],
        source: PipelineInput,
        number: int,
    ) -> None:
        """Compare a phase with what an earlier run has done up to its split; `NotDecided` if none has."""
        _, _, made_of = self.keyed(split, front, head, blocks, source)
        decided = read_decided(split)
        if decided is None:
            raise NotDecided
        if not CommitLog(split.folder, title=self.writer.folder.url).is_of(made_of):
            raise NotDecided
        split.take(decided)

    def splits(
        self, whole: list[Stage], source: PipelineInput, phase: Callable[..., None]
    ) -> tuple[list[Split], Piece]:
        """Call ``phase`` for all up to each split; gives the splits, and what is left."""
        output = self.writer.folder
        splits: list[Split] = []
        front: list[Stage] = []
        head: Reader = self.reader
        blocks = self.blocks
        for stage in whole:
            if not isinstance(stage, BarrierStage):
                front.append(stage)
                continue
            number = len(splits) + 1
            split = Split(stage, phase_folder(output, number), records_folder(output, number))
            splits.append(split)
            phase(split, front, head, blocks, source, number)
            self.is_head_cleared = split.is_cleared and not split.read_again
            if split.read_again:
                front = [whole[0], *split.without()]
                blocks = [known_block(block, split.documents) for block in blocks]
            else:
                head = SpoolReader(split.folder, split.parts, split.version)
                blocks = list(head.source())
                source = PipelineInput(blocks[0]) if blocks else source
                front = [head]
            front.append(stage.after_barrier(split.folder, split.records))
        return splits, (front, head, blocks, source)

    def _is_decided(self, split: Split, made_of: dict[str, Any], number: int) -> bool:
        """Whether an earlier run has done all up to a split; then what it found is taken from there.

        If files that it left are damaged, they are made again.
        """
        damage = self.damage(split, made_of, number)
        if damage is None:
            return False
        if damage:
            say(f"files of {self.writer.folder.url} are missing or damaged, and are made again:{listed(damage)}")
            split.folder.remove(DECIDED)
            split.forget()
            return False
        decided = read_decided(split)
        assert decided is not None
        self.notes += decided["notes"]
        if not split.read_again:
            self._account(RunLedger.of_plain(decided["ledger"]))
        return True

    def damage(self, split: Split, made_of: dict[str, Any], number: int) -> list[str] | None:
        """Compare all up to a split with what an earlier run has done; None if none has.

        Return what is damaged and can be made again, in words. `OutputDamaged` if it cannot. Nothing is changed.
        """
        decided = read_decided(split)
        if decided is None:
            return None
        log = CommitLog(split.folder, title=self.writer.folder.url)
        if self.how.append:
            refuse_append(log, made_of, split.barrier.name)
        if not log.is_of(made_of):
            raise log.damaged(RUN, "it is missing")
        split.take(decided)
        damage = check_decided(split, self.writer.folder, number, contents=self.how.verify)
        if damage and self.is_head_cleared:
            raise OutputDamaged(
                f"files of {self.writer.folder.url} are missing or damaged, and the documents that they are made of "
                f"were removed:{listed(damage)}\nNothing was removed or started. {START_OVER}"
            )
        return damage

    def keyed(
        self, split: Split, front: list[Stage], head: Reader, blocks: list[Task[Any]], source: PipelineInput
    ) -> tuple[list[Stage], Plan, dict[str, Any]]:
        """Return the stages up to a split, the last of which makes keys, their plan, and its fingerprint."""
        reader = front[0] if len(front) == 1 and isinstance(front[0], FileReader) else None
        split.read_again = reader is not None
        spool = Spool(split.barrier, split.folder, self.writer, not split.read_again)
        before: list[Stage] = front if reader is None else [reader.reading_for([spool])]
        stages = [*before, spool]
        plan = plan_of(self.pipeline.name, stages, source, self.fuse)
        made_of = fingerprint(plan, head, [Segment(blocks)])
        split.version = _short_hash(made_of)
        return stages, plan, made_of

    def _phase(
        self,
        split: Split,
        front: list[Stage],
        head: Reader,
        blocks: list[Task[Any]],
        source: PipelineInput,
        number: int,
    ) -> None:
        """All in front of a split, and what is decided there."""
        stages, plan, made_of = self.keyed(split, front, head, blocks, source)
        if self._is_decided(split, made_of, number):
            self.done_before += steps_of(plan)
            return
        memory, workers = limits_of(self.executor, split.barrier.memory_limit)
        stages_before = self.whole[1 : self.whole.index(split.barrier)]
        looked = look(split.barrier, self.reader, self.blocks, self.whole[1:] if stages_before else None)
        if wants_gpu(split.barrier, self.executor, looked, workers):
            stages[-1] = stages[-1].with_(resources=Resources(gpus=GPU_SHARE))
        cautions = [f"{split.barrier.name}: {line}" for line in split.barrier.cautions]
        for line in (*cautions, *forecast(split.barrier, looked, memory, workers, stages_before)):
            say(line)
        before = len(self.records)
        loading = Thread(target=_import_all, args=(split.barrier.decides_with,), daemon=True)
        loading.start()
        result = self._execute(stages, head, blocks, source, False)
        if result.record.failures_total and not self.executor.ignore_failures:
            assert result.ledger is not None
            result.ledger.log = CommitLog(self.writer.folder)  # what is in the folder of the phase is no output
            raise PipelineFailed(result.failure_report(), result)
        loading.join()
        self.executor.ahead([*self.pipeline.stages, split.barrier.after_barrier(split.folder, split.records)])
        split.documents = committed(split.folder)
        split.parts = [(name, files_of(name, blocks)) for name in part_names(split.folder)]
        if split.read_again:
            split.failed_parts = [name.removesuffix(FAILED) for name in split.folder.names() if name.endswith(FAILED)]
            split.failed_blocks = failed_blocks(split.folder)
        check_fields(split)
        ledger = self.records[before].ledger
        assert ledger is not None
        split.records.mark = split.folder.mark
        there = set(split.records.names())
        between = PhaseContext(self.executor, self.records, split, head, blocks, memory, workers)
        began = time.monotonic()
        try:
            split.barrier.decide(between)
        except KeyboardInterrupt:
            left = f"all {len(blocks):,} blocks are read, but what to remove is not decided"
            raise KeyboardInterrupt(f"interrupted in {split.barrier.name}: {left}. {RESUME}") from None
        finally:
            remove_temporaries(split.records)
            remove_temporaries(split.folder)
        between.notes.append(f"{split.barrier.name}: decided in {time.monotonic() - began:.1f} s")
        self.notes += between.notes
        state = {
            "parts": split.parts,
            "documents": split.documents,
            "failed": [split.failed_parts, split.failed_blocks],
            "spooled": not split.read_again,
            "notes": between.notes,
            "ledger": ledger.plain(),
            "records": stamps_of(split.records, (n for n in split.records.names() if is_record(n) or n not in there)),
            "kept": stamps_of(split.folder, [name for name in split.folder.names() if split.keeps(name)]),
        }
        split.folder.write(DECIDED, fast_json.dumps(state), durable=True)
        if not split.read_again:
            self._account(ledger)

    def _account(self, ledger: RunLedger) -> None:
        self.ledger = ledger if self.ledger is None else ledger.after(self.ledger)

    def part(self) -> PhaseOptions:
        """How the next piece treats what earlier runs have left of it."""
        cannot_redo = "the documents that they are made of were removed when the run ended"
        return PhaseOptions(self.writer.folder.url, True, cannot_redo=cannot_redo if self.is_head_cleared else "")

    def _execute(
        self,
        stages: Sequence[Stage],
        head: Reader,
        blocks: Sequence[Task[Any]],
        source: PipelineInput,
        keep_outputs: bool | None,
        behind: Sequence[Split] = (),
    ) -> RunResult:
        """Run a piece; the last one is ``after_barrier`` all splits."""
        plan = plan_of(self.pipeline.name, stages, source, self.fuse)
        how = replace(self.how, fresh=False, append=False)
        part = replace(self.part(), is_locked=bool(behind))  # a phase has a folder of its own
        plan, tasks = with_ledger(plan, head, self.pipeline._as_yaml, blocks, how, part)
        assert plan.ledger is not None
        for stage in stages_of(plan):
            if isinstance(stage, Spool):  # not before: a run that goes on may ignore failures or not
                stage.gives_up = self.executor.ignore_failures
        with closing_log(plan.ledger, "" if behind else f" at the {stages[-1].name}"):
            record = self.executor.execute(plan, tasks, keep_outputs)
            self.records.append(record)
            result = RunResult(record)
            result.check()
            check_inputs(self.reader, result)
            if behind:
                result = RunResult(merged_record(self.records, self.done_before, self.ledger, self.notes))
            log = check_written(plan, result, self.executor.ignore_failures)
            if behind and log is not None:
                give_one_schema(self.writer, self.executor, log, bool(tasks), excluded_before(behind))
            finish(plan, result, self.executor.ignore_failures)
        return result


class NotDecided(Exception):
    """No run has done all up to a split."""


Piece = tuple[list[Stage], Reader, list[Task[Any]], PipelineInput]
"""Stages, the one among them that knows what is read, the blocks of that, and the first of them."""


def _import_all(modules: Sequence[str]) -> None:
    """Import what will be needed while there is nothing else to do. Whoever needs it says what is wrong with it."""
    with suppress(Exception):
        for name in modules:
            importlib.import_module(name)


def _short_hash(value: Any) -> str:
    return hashlib.blake2b(fast_json.dumps(value), digest_size=12).hexdigest()

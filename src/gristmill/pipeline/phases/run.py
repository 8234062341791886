"""Pipelines with stages that need all documents: split before each of them, and run phase by phase.

Before a split every batch leaves its keys in a folder of the phase (`_gristmill/phases/<n>` in the output), and its
documents too, unless the source can be read again instead. Each phase has its own log of commits, so that a run that
was stopped resumes; `decided.json` is written when the phase and the decision after it are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.backends.base import Executor, Plan, RunRecord, StepStats
from gristmill.errors import OutputChanged, OutputDamaged, PipelineFailed, PlanError
from gristmill.ledger.closing import remove_temporaries
from gristmill.ledger.commits import DECIDED, PHASES, RUN, START_OVER, CommitLog
from gristmill.ledger.excluded import RECORDS
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.names import OutputNames, is_record
from gristmill.ledger.opening import check_unused, clear
from gristmill.ledger.resume import ResumeOptions
from gristmill.ledger.run import RunLedger
from gristmill.logs import logger
from gristmill.pipeline.documents import (
    PhaseOptions,
    Segment,
    check_apart,
    check_written,
    closing_log,
    fingerprint,
    finish,
    opened,
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
from gristmill.pipeline.phases.forecast import estimate_input, forecast, limits_of
from gristmill.pipeline.phases.merged_record import merged_record, steps_of
from gristmill.pipeline.phases.split import (
    Phase,
    Split,
    check_fields,
    committed,
    failed_blocks,
    files_of,
    import_all,
    known_block,
    part_names,
    phase_folder,
    records_folder,
    short_hash,
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
    from gristmill.metrics.observer import Observer
    from gristmill.pipeline.pipeline import Pipeline


def run_phases(
    pipeline: Pipeline,
    stages: Sequence[Stage],
    executor: Executor,
    keep_outputs: bool | None,
    fuse: bool,
    how: ResumeOptions,
    observer: Observer | None = None,
) -> RunResult:
    """Plan and run a pipeline with barriers; ``stages`` are its stages, composites decomposed."""
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
            f"pipeline {pipeline.name!r} needs a writer: records of removed documents are written beside its output."
        )
    client = pipeline.ray_client if pipeline.ray_client is not None and executor.on_cluster else nullcontext()
    with client, executor.several():
        run = PhasedRun(pipeline, executor, reader, list(blocks), writer, fuse, how, observer)
        return run.run(whole, source, keep_outputs)


class PhasedRun:
    """One run of a pipeline with barriers."""

    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        reader: Reader,
        blocks: list[Task[Any]],
        writer: Sink[Any, Any],
        fuse: bool,
        how: ResumeOptions,
        observer: Observer | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.executor = executor
        self.reader = reader
        self.blocks = blocks
        self.writer = writer
        self.fuse = fuse
        self.how = how
        self.observer = observer
        self.whole: list[Stage] = []
        """All stages of the pipeline, the reader first."""
        self.records: list[RunRecord] = []
        self.phases: list[RunRecord] = []
        """Those of `records` that are phases; the others belong to decisions."""
        self.decided_s: list[float] = []
        self.notes: list[str] = []
        self.ledger: RunLedger | None = None
        """The account of done phases, unless their documents are read from the source again."""
        self.is_head_cleared = False
        """Whether a finished run has removed the documents that the next phase reads."""
        self.done_before: list[StepStats] = []
        """The steps of phases that an earlier run has done."""

    def run(self, whole: list[Stage], source: PipelineInput, keep_outputs: bool | None) -> RunResult:
        self.whole = whole
        output = self.writer.folder
        check_apart(output, self.blocks, self.reader.file_paths)
        log = CommitLog(output, OutputNames.of(self.writer, len(self.blocks)))
        with opened(log):
            log.lock()
            if self.how.fresh:
                clear(log)
            elif self.how.retry_failed and (stage := failed_before(log, whole)):
                self.check_same(log, whole, source)
                logger.info(f"documents failed before {stage!r}, which compares all documents: the run starts over")
                clear(log)
            self.check_ours(log)
        try:
            try:
                splits, last = self.splits(whole, source, self._phase)
            except OutputChanged:
                log.refuse()
                raise
            result = self._execute(last, keep_outputs, splits)
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
        """Raise `OutputChanged` before the work begins if its results could not be written."""
        output = log.folder
        if not output.exists(RUN):
            if not output.exists(f"{PHASES}/1"):
                check_unused(log, [f"{RECORDS}/{name}" for name in output.names(RECORDS) if is_record(name)])
            return
        log.check_format(log.run_json() or {})
        if not output.exists(f"{PHASES}/1"):
            raise OutputChanged(
                f"{output.url} holds the output of another run, which had no stage that needs all documents.\n"
                f"{START_OVER}"
            )

    def check_same(self, log: CommitLog, whole: list[Stage], source: PipelineInput) -> None:
        """Raise `OutputChanged` if another pipeline or another input was here, before its output is removed."""
        try:
            _, last = self.splits(whole, source, self._check_phase)
        except NotDecided:
            return
        finally:
            self.is_head_cleared = False
        log.is_of(fingerprint(self.plan(last), last.reader, [Segment(last.blocks)]))

    def _check_phase(self, split: Split, phase: Phase, number: int) -> None:
        """Compare a phase with that of an earlier run; raise `NotDecided` if there is none."""
        _, made_of = self.keyed(split, phase)
        decided = read_decided(split)
        if decided is None or not CommitLog(split.folder, title=self.writer.folder.url).is_of(made_of):
            raise NotDecided
        split.take(decided)

    def splits(
        self, whole: list[Stage], source: PipelineInput, run: Callable[[Split, Phase, int], None]
    ) -> tuple[list[Split], Phase]:
        """Call ``run`` for the phase before each split. Return the splits, and the last phase."""
        output = self.writer.folder
        splits: list[Split] = []
        phase = Phase([], self.reader, self.blocks, source)
        for stage in whole:
            if not isinstance(stage, BarrierStage):
                phase.stages.append(stage)
                continue
            number = len(splits) + 1
            split = Split(stage, phase_folder(output, number), records_folder(output, number))
            splits.append(split)
            run(split, phase, number)
            self.is_head_cleared = split.is_cleared and not split.read_again
            if split.read_again:
                blocks = [known_block(block, split.documents) for block in phase.blocks]
                phase = replace(phase, stages=[whole[0], *split.without()], blocks=blocks)
            else:
                spooled = SpoolReader(split.folder, split.parts, split.version)
                blocks = list(spooled.source())
                phase = Phase([spooled], spooled, blocks, PipelineInput(blocks[0]) if blocks else phase.source)
            phase.stages.append(stage.after_barrier(split.folder, split.records))
        return splits, phase

    def plan(self, phase: Phase) -> Plan:
        plan = plan_of(self.pipeline.name, phase.stages, phase.source, self.fuse)
        return replace(plan, observer=self.observer)

    def _is_decided(self, split: Split, made_of: dict[str, Any], number: int) -> bool:
        """Return whether an earlier run has decided at a split, and take its results.

        If files of it are damaged, they are made again.
        """
        damage = self.damage(split, made_of, number)
        if damage is None:
            return False
        if damage:
            logger.info(
                f"files of {self.writer.folder.url} are missing or damaged, and are made again:{listed(damage)}"
            )
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
        """Compare a phase with the decision of an earlier run; None if there is none. Nothing is changed.

        Return descriptions of damaged files that can be made again. Raise `OutputDamaged` if they cannot.
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

    def keyed(self, split: Split, phase: Phase) -> tuple[Phase, dict[str, Any]]:
        """Return the phase up to a split, with a last stage that makes keys, and its fingerprint."""
        first = phase.stages[0]
        reader = first if len(phase.stages) == 1 and isinstance(first, FileReader) else None
        if reader is not None and not reader.gives_the_same_again:
            reader = None
        split.read_again = reader is not None
        spool = Spool(split.barrier, split.folder, self.writer, not split.read_again)
        before: list[Stage] = phase.stages if reader is None else [reader.reading_for([spool])]
        keyed = replace(phase, stages=[*before, spool])
        made_of = fingerprint(self.plan(keyed), phase.reader, [Segment(phase.blocks)])
        split.version = short_hash(made_of)
        return keyed, made_of

    def _phase(self, split: Split, phase: Phase, number: int) -> None:
        """Run a phase and decide at its split, unless an earlier run has decided."""
        phase, made_of = self.keyed(split, phase)
        if self._is_decided(split, made_of, number):
            self.done_before += steps_of(self.plan(phase))
            return
        barrier = split.barrier
        memory, workers = limits_of(self.executor, barrier.memory_limit)
        stages_before = self.whole[1 : self.whole.index(barrier)]
        estimate = estimate_input(barrier, self.reader, self.blocks, self.whole[1:] if stages_before else None)
        if wants_gpu(barrier, self.executor, estimate, workers):
            phase.stages[-1] = phase.stages[-1].with_(resources=Resources(gpus=GPU_SHARE))
        cautions = [f"{barrier.name}: {line}" for line in barrier.cautions]
        for line in (*cautions, *forecast(barrier, estimate, memory, workers, stages_before)):
            logger.info(line)
        before = len(self.records)
        loading = Thread(target=import_all, args=(barrier.decides_with,), daemon=True)
        loading.start()
        result = self._execute(phase, keep_outputs=False)
        if result.record.failures_total and not self.executor.ignore_failures:
            assert result.ledger is not None
            result.ledger.log = CommitLog(self.writer.folder)  # files in the folder of the phase are no output
            raise PipelineFailed(result.failure_report(), result)
        loading.join()
        self.executor.ahead([*self.pipeline.stages, barrier.after_barrier(split.folder, split.records)])
        split.documents = committed(split.folder)
        split.parts = [(name, files_of(name, phase.blocks)) for name in part_names(split.folder)]
        if split.read_again:
            split.failed_parts = [name.removesuffix(FAILED) for name in split.folder.names() if name.endswith(FAILED)]
            split.failed_blocks = failed_blocks(split.folder)
        check_fields(split)
        ledger = self.records[before].ledger
        assert ledger is not None
        self._decide(split, PhaseContext(self.executor, self.records, split, phase, memory, workers), ledger)
        if not split.read_again:
            self._account(ledger)

    def _decide(self, split: Split, context: PhaseContext, ledger: RunLedger) -> None:
        """Have the barrier decide, and write its decision."""
        barrier, records = split.barrier, split.records
        records.mark = split.folder.mark
        existing = set(records.names())
        began = time.monotonic()
        try:
            barrier.decide(context)
        except KeyboardInterrupt:
            left = f"all {len(context.phase.blocks):,} blocks are read, but what to remove is not decided"
            raise KeyboardInterrupt(f"interrupted in {barrier.name}: {left}. {RESUME}") from None
        finally:
            remove_temporaries(records)
            remove_temporaries(split.folder)
        self.decided_s.append(time.monotonic() - began)
        context.notes.append(f"{barrier.name}: decided in {self.decided_s[-1]:.1f} s")
        self.notes += context.notes
        state = {
            "parts": split.parts,
            "documents": split.documents,
            "failed": [split.failed_parts, split.failed_blocks],
            "spooled": not split.read_again,
            "notes": context.notes,
            "ledger": ledger.plain(),
            "records": stamps_of(records, (n for n in records.names() if is_record(n) or n not in existing)),
            "kept": stamps_of(split.folder, [name for name in split.folder.names() if split.keeps(name)]),
        }
        split.folder.write(DECIDED, fast_json.dumps(state), durable=True)

    def _account(self, ledger: RunLedger) -> None:
        self.ledger = ledger if self.ledger is None else ledger.after(self.ledger)

    def options(self) -> PhaseOptions:
        """Return how the next phase treats the output of earlier runs."""
        cannot_redo = "the documents that they are made of were removed when the run ended"
        return PhaseOptions(self.writer.folder.url, True, cannot_redo=cannot_redo if self.is_head_cleared else "")

    def _execute(self, phase: Phase, keep_outputs: bool | None, splits: Sequence[Split] = ()) -> RunResult:
        """Run a phase; ``splits`` are all splits, for the last phase only."""
        how = replace(self.how, fresh=False, append=False)
        options = replace(self.options(), is_locked=bool(splits))  # the other phases have their own folders
        plan, tasks = with_ledger(self.plan(phase), phase.reader, self.pipeline._as_yaml, phase.blocks, how, options)
        assert plan.ledger is not None
        for stage in stages_of(plan):
            if isinstance(stage, Spool):  # set after the fingerprint: a resumed run may choose differently
                stage.gives_up = self.executor.ignore_failures
        with closing_log(plan.ledger, "" if splits else f" at the {phase.stages[-1].name}"):
            record = self.executor.execute(plan, tasks, keep_outputs)
            self.records.append(record)
            self.phases.append(record)
            result = RunResult(record)
            result.check()
            check_inputs(self.reader, result)
            if splits:
                merged = merged_record(self.records, self.done_before, self.ledger, self.notes)
                result = RunResult(replace(merged, phases=self.phases, decided_s=self.decided_s))
            log = check_written(plan, result, self.executor.ignore_failures)
            if splits and log is not None:
                give_one_schema(self.writer, self.executor, log, bool(tasks), excluded_before(splits))
            finish(plan, result, self.executor.ignore_failures)
        return result


class NotDecided(Exception):
    """No earlier run has decided at a split."""

"""Pipelines with stages that need to see all documents: cut in front of each, and run piece by piece.

In front of a cut every batch leaves its keys in a folder of the phase (`_gristmill/phases/<n>` in the output), and its
documents too, unless the source can be read again instead. Each piece has a log of commits of its own, so that a run
that was stopped goes on where it was; `decided.json` says that a piece and what follows it are done.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.backends.base import Executor, Plan, RunRecord, StageStats, StepStats
from gristmill.errors import OutputChanged, PipelineError, PipelineFailed, PlanError, not_writable
from gristmill.ledger.commits import DECIDED, PHASES, RUN, CommitLog, phase_name
from gristmill.ledger.run import RunLedger
from gristmill.ledger.sides import EXCLUDED, QUARANTINE, Output, is_output, records_name
from gristmill.pipeline.documents import check_apart, fingerprint, stages_of, with_ledger
from gristmill.pipeline.forecast import forecast, look
from gristmill.pipeline.planner import NO_INITIAL_TASKS, Source, Stage, linked_stages, plan_of
from gristmill.pipeline.result import RunResult
from gristmill.stages.barrier import KEYS, BarrierStage, Looked
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.stages.spool import DOCUMENTS, FAILED, Spool, SpoolReader, WithoutKeys, is_empty, read_arrow
from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange, Task
from gristmill.tasks.names import block_of_file, part_name

if TYPE_CHECKING:
    from gristmill.pipeline.pipeline import Pipeline

GPU_FROM_S = 15
"""Seconds that the CPUs would take for keys from which on a GPU is asked: it takes some to be ready, and batches go to
other processes for it."""
CPUS_AS_GOOD = 12
"""With more CPUs than this for each GPU, they make keys sooner than they hand texts to it: measured on an H200."""
GPU_SHARE = 0.25
"""Of a GPU for each worker that makes keys on it: one alone would leave it waiting."""
GIVEN_UP = ".failed-"
"""In the names of files in quarantine, of what the engine has given up (`ledger.failed`)."""
HERE_BYTES = 64 << 20
"""Work on so little is done in the driver: workers take longer to start."""


def run(pipeline: Pipeline, executor: Executor, keep_outputs: bool | None, fuse: bool, fresh: bool) -> RunResult:
    """Plan and run a pipeline that has barriers."""
    reader = pipeline.stages[0]
    blocks = reader.source()
    if blocks is None:
        first = next(stage for stage in pipeline.stages if isinstance(stage, BarrierStage))
        raise PlanError(f"{first.name!r} needs all documents: begin the pipeline with a reader, without initial tasks.")
    source = Source(blocks[0]) if blocks else NO_INITIAL_TASKS
    whole = linked_stages(pipeline.name, pipeline.stages, source)
    writer: Any = next(filter(is_output, whole), None)
    if writer is None:
        raise PlanError(
            f"pipeline {pipeline.name!r} needs a writer: what is removed is written down beside its output."
        )
    client = pipeline.ray_client if pipeline.ray_client is not None and executor.on_cluster else nullcontext()
    with client, executor.several():
        return _Phases(pipeline, executor, reader, list(blocks), writer, fuse, fresh).run(whole, source, keep_outputs)


class _Phases:
    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        reader: Stage,
        blocks: list[Task[Any]],
        writer: Output,
        fuse: bool,
        fresh: bool,
    ) -> None:
        self.pipeline = pipeline
        self.executor = executor
        self.reader = reader
        self.blocks = blocks
        self.writer = writer
        self.fuse = fuse
        self.fresh = fresh
        self.records: list[RunRecord] = []
        self.notes: list[str] = []
        self.ledger: RunLedger | None = None
        """Of the pieces that are done, if what they kept is not read from the source again."""
        self.done_before: list[StepStats] = []
        """The steps of pieces that an earlier run has done."""

    def run(self, whole: list[Stage], source: Source, keep_outputs: bool | None) -> RunResult:
        check_apart(self.writer.folder, self.blocks, getattr(self.reader, "file_paths", None))
        log = CommitLog(self.writer.folder)
        try:
            log.lock()
        except OSError as error:
            raise not_writable(log.folder.url, error) from error
        try:
            if self.fresh:
                log.clear()
            self._check_ours(log)
            cuts, last = self._cuts(whole, source)
        finally:
            log.close()
        result = self._execute(*last, keep_outputs, cuts[-1])
        if result.ok or self.executor.ignore_failures:
            for number, cut in enumerate(cuts, 1):
                self._clear(cut, number)
        if result.record.failures_total and not self.executor.ignore_failures:
            raise PipelineFailed(result.failure_report(), result)
        return result

    @staticmethod
    def _check_ours(log: CommitLog) -> None:
        """Say before the work is done that there is no room for its results."""
        output = log.folder
        if not output.exists(RUN):
            log.check_unused()
        elif not output.exists(f"{PHASES}/1"):
            raise OutputChanged(
                f"{output.url} holds the output of another run, which had no stage that needs all documents.\n"
                "Start over with --fresh, or run(fresh=True), which removes what is there; or write to another folder."
            )

    def _cuts(self, whole: list[Stage], source: Source) -> tuple[list[_Cut], _Piece]:
        """All up to the last cut; gives the cuts, and what is left."""
        output = self.writer.folder
        cuts: list[_Cut] = []
        front: list[Stage] = []
        head, blocks = self.reader, self.blocks
        for stage in whole:
            if not isinstance(stage, BarrierStage):
                front.append(stage)
                continue
            number = len(cuts) + 1
            cut = _Cut(stage, phase_folder(output, number), records_folder(output, number))
            cuts.append(cut)
            self._phase(cut, front, head, blocks, source)
            if cut.read_again:
                front = [whole[0], *cut.without()]
                blocks = [_known(block, cut.documents) for block in blocks]
            else:
                head = SpoolReader(cut.folder, cut.parts, cut.version)
                blocks = list(head.source())
                source = Source(blocks[0]) if blocks else source
                front = [head]
            front.append(stage.behind(cut.folder, cut.records))
        return cuts, (front, head, blocks, source)

    def _phase(self, cut: _Cut, front: list[Stage], head: Stage, blocks: list[Task[Any]], source: Source) -> None:
        """All in front of a cut, and what is decided there."""
        cut.read_again = len(front) == 1 and hasattr(front[0], "reading_for")
        spool = Spool(cut.barrier, cut.folder, self.writer, not cut.read_again)
        stages = [front[0].reading_for([spool]), spool] if cut.read_again else [*front, spool]  # type: ignore[attr-defined]  # asked above
        plan = plan_of(self.pipeline.name, stages, source, self.fuse)
        made_of = fingerprint(plan, head, blocks)
        cut.version = _short_hash(made_of)
        decided = _read_json(cut.folder, DECIDED)
        if decided is not None:
            CommitLog(cut.folder).is_of(made_of)
            cut.parts = [(name, files) for name, files in decided["parts"]]
            cut.documents = decided.get("documents", {})
            cut.is_cleared = decided.get("cleared", False)
            cut.failed_parts, cut.failed_blocks = decided.get("failed", ([], {}))
            self.notes += decided["notes"]
            self.done_before += _steps_of(plan)
            if not cut.read_again:
                self._account(RunLedger.of_plain(decided["ledger"]))
            return
        memory, workers = limits_of(self.executor, cut.barrier.memory_limit)
        looked = look(cut.barrier, self.reader, self.blocks)
        if wants_gpu(cut.barrier, self.executor, looked, workers):
            stages[-1] = spool.with_(resources=Resources(gpus=GPU_SHARE))
        cautions = [f"{cut.barrier.name}: {line}" for line in cut.barrier.cautions]
        for line in (*cautions, *forecast(cut.barrier, looked, memory, workers, not cut.read_again)):
            say(line)
        before = len(self.records)
        loading = Thread(target=_import_all, args=(cut.barrier.decides_with,), daemon=True)
        loading.start()
        result = self._execute(stages, head, blocks, source, False)
        if result.record.failures_total and not self.executor.ignore_failures:
            assert result.ledger is not None
            result.ledger.log = CommitLog(self.writer.folder)  # what is in the folder of the phase is no output
            raise PipelineFailed(result.failure_report(), result)
        loading.join()
        self.executor.ahead([*self.pipeline.stages, cut.barrier.behind(cut.folder, cut.records)])
        cut.documents = _committed(cut.folder)
        cut.parts = [(name, _files_of(name, blocks)) for name in _names(cut.folder)]
        if cut.read_again:
            cut.failed_parts = [name.removesuffix(FAILED) for name in cut.folder.names() if name.endswith(FAILED)]
            cut.failed_blocks = _failed_blocks(cut.folder)
        _check_fields(cut)
        ledger = self.records[before].ledger
        assert ledger is not None
        between = _Between(self, cut, head, blocks, memory, workers)
        began = time.monotonic()
        cut.barrier.decide(between)
        between.notes.append(f"{cut.barrier.name}: decided in {time.monotonic() - began:.1f} s")
        self.notes += between.notes
        state = {
            "parts": cut.parts,
            "documents": cut.documents,
            "failed": [cut.failed_parts, cut.failed_blocks],
            "notes": between.notes,
            "ledger": ledger.plain(),
        }
        cut.folder.write(DECIDED, fast_json.dumps(state))
        if not cut.read_again:
            self._account(ledger)

    def _account(self, ledger: RunLedger) -> None:
        self.ledger = ledger if self.ledger is None else ledger.behind(self.ledger)

    def _execute(
        self,
        stages: Sequence[Stage],
        head: Stage,
        blocks: Sequence[Task[Any]],
        source: Source,
        keep_outputs: bool | None,
        behind: _Cut | None = None,
    ) -> RunResult:
        """Run a piece; the last one is ``behind`` a cut."""
        plan = plan_of(self.pipeline.name, stages, source, self.fuse)
        plan, tasks = with_ledger(plan, [head], self.pipeline._as_yaml, blocks, fresh=False)
        assert plan.ledger is not None
        log = plan.ledger.log
        for stage in stages_of(plan):
            if isinstance(stage, Spool):  # not before: a run that goes on may ignore failures or not
                stage.gives_up = self.executor.ignore_failures
        try:
            if behind is not None and behind.is_cleared and not behind.read_again and tasks:
                raise OutputChanged(
                    f"files that a run has written to {self.writer.folder.url} have gone or changed, and what they "
                    "were made of was removed when it ended.\nStart over with --fresh, or run(fresh=True)."
                )
            record = self.executor.execute(plan, tasks, keep_outputs)
            self.records.append(record)
            result = RunResult(record)
            result.check()
            if behind is not None:
                result = RunResult(self._together())
            if log is not None and result.ledger is not None and (result.ok or self.executor.ignore_failures):
                log.finish(result.ledger.plain())
        finally:
            if log is not None:
                log.close()
        return result

    def _together(self) -> RunRecord:
        """One record of all pieces."""
        last = self.records[-1]
        records = self.records
        ledger = last.ledger
        if self.ledger is not None and ledger is not None:
            ledger = ledger.behind(self.ledger)
        before = sum(record.wall_s for record in records[:-1])
        return replace(
            last,
            steps=[*self.done_before, *(step for record in records for step in record.steps)],
            wall_s=before + last.wall_s,
            first_output_s=None if last.first_output_s is None else before + last.first_output_s,
            failures=[failure for record in records for failure in record.failures],
            failures_total=sum(record.failures_total for record in records),
            decisions=[decision for record in records for decision in record.decisions],
            peak_bytes_in_flight=max(record.peak_bytes_in_flight for record in records),
            peak_memory_bytes=max(record.peak_memory_bytes for record in records),
            worker_deaths=sum(record.worker_deaths for record in records),
            profile=None,
            load=None,
            ledger=ledger,
            notes=self.notes,
        )

    def _clear(self, cut: _Cut, number: int) -> None:
        """Put what was set aside in front of a cut beside the rest, and remove what was of use to the run only."""
        output, folder = self.writer.folder, cut.folder
        for side in (EXCLUDED, QUARANTINE):
            for name in folder.names(side):
                if not cut.read_again:  # else it was written once more, at the end
                    output.write(f"{side}/{phase_name(name, number)}", folder.read(f"{side}/{name}"))
            folder.remove(side)
        if not cut.is_cleared:
            folder.write(DECIDED, fast_json.dumps({**_read_json(folder, DECIDED), "cleared": True}))
        for name in folder.names(unfinished=True):
            if name not in (DECIDED, *cut.barrier.stays) and not name.endswith(FAILED):
                folder.remove(name)


@dataclass
class _Cut:
    barrier: BarrierStage
    folder: Folder
    records: Folder
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    """By name, in order, each with the source files that its documents come from."""
    documents: dict[str, int] = field(default_factory=dict)
    """How many each part has."""
    read_again: bool = False
    """Whether documents are read from the source again behind the cut, as nothing was done to them before it."""
    version: str = ""
    is_cleared: bool = False
    """Whether a run has come to its end, so that documents that were put aside have gone."""
    failed_parts: list[str] = field(default_factory=list)
    """Those that are read again and have documents without keys."""
    failed_blocks: dict[str, str] = field(default_factory=dict)
    """Those that are read again and were given up before the cut, each with the reason."""

    def without(self) -> list[Stage]:
        """What takes out documents that were given up before the cut, if there are any."""
        if not self.failed_parts and not self.failed_blocks:
            return []
        known = [part for part in self.documents if str(block_of_file(part)) in self.failed_blocks]
        name = f"without keys of {self.barrier.name}"
        return [WithoutKeys(name, self.folder, self.failed_parts, self.failed_blocks, known)]


_Piece = tuple[list[Stage], Stage, list[Task[Any]], Source]
"""Stages, the one among them that knows what is read, the blocks of that, and the first of them."""


class _Between:
    """See `gristmill.stages.barrier.Between`."""

    def __init__(
        self, phases: _Phases, cut: _Cut, head: Stage, blocks: Sequence[Task[Any]], memory: int, workers: int
    ) -> None:
        self.folder = cut.folder
        self.records = cut.records
        self.memory = memory
        self.workers = workers
        self.notes: list[str] = []
        self._phases = phases
        self._cut = cut
        self._head = head
        self._blocks = blocks

    def run(self, name: str, stage: Stage, tasks: Sequence[Task[Any]], size: int) -> list[Any]:
        if not tasks:
            return []
        if size <= min(HERE_BYTES, self.memory // 4) or (len(tasks) == 1 and size <= self.memory // 4):
            stage.preload()
            stage.setup()
            return [stage.process(task) for task in tasks]
        plan = plan_of(name, [stage], Source(tasks[0]))
        return self._execute(plan, list(tasks), keep=True).outputs

    def few(self, places: Sequence[tuple[str, int, str]], field: str) -> list[str] | None:
        if not self._cut.read_again:
            return [self._stored(part, row, field) for part, row, _ in places] if self.folder.is_local else None
        ranges = []
        for _, _, ident in places:
            path, _, position = ident.rpartition("#")
            ranges.append(FileRange(path, int(position), int(position) + 1))
        blocks = [piece for block in self._blocks if isinstance(block, FileBlock) for piece in block.data]
        if not isinstance(self._head, JsonlReader) or any(piece.stop < 0 for piece in blocks):
            return None  # a file that must be read from its beginning
        batch = self._head.reading_for([_Wants(field)]).process(FileBlock(ranges, task_id="0"))
        texts: list[str] = batch.data.column(field).to_pylist()  # type: ignore[union-attr]  # no stream: it is one batch
        return texts if len(texts) == len(places) else None

    def _stored(self, part: str, row: int, field: str) -> str:
        return read_arrow(self.folder, part + DOCUMENTS, [field]).column(0)[row].as_py() or ""

    def again(self, name: str, stage: Stage, parts: Sequence[str]) -> None:
        wanted = set(parts)
        if self._cut.read_again:
            numbers = {block_of_file(part) for part in parts}
            head = self._head.reading_for([stage])  # type: ignore[attr-defined]  # it can be read again
            without = self._cut.without()
            front = [head, *without, *([_NotEmpty()] if without else [])]  # a part of which nothing is left is unknown
            blocks = [block for block in self._blocks if int(block.task_id) in numbers]
        else:
            reader = SpoolReader(self._cut.folder, self._cut.parts, self._cut.version)
            front, blocks = [reader], [block for block in reader.source() if block.data in wanted]
        if not blocks:
            return
        plan = replace(plan_of(name, [*front, stage], Source(blocks[0])), ledger=RunLedger())
        self._execute(plan, blocks, keep=False)

    def _execute(self, plan: Any, tasks: list[Task[Any]], keep: bool) -> RunResult:
        record = self._phases.executor.execute(plan, tasks, keep)
        result = RunResult(record)
        result.check()
        if record.failures_total:
            raise PipelineFailed(result.failure_report(), result)
        record.steps.clear()  # it is no stage of the user's pipeline
        record.ledger = None
        self._phases.records.append(record)
        return result


class _NotEmpty(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Lets batches through in which there is something."""

    name = "not empty"

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch | None:
        return task if task.num_items else None


class _Wants(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Stands for whoever looks at one column, when a reader is told what to take."""

    def __init__(self, column: str) -> None:
        self.column = column

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.column]

    def output_type(self) -> type[FileGroupTask]:
        return FileGroupTask

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def limits_of(executor: Executor, told: int | None) -> tuple[int, int]:
    """Bytes of memory and the number of workers that there are for work between phases."""
    from gristmill.backends.engine import machine

    config = getattr(executor, "config", None)
    memory = told or getattr(config, "memory_limit_bytes", None) or machine.memory_bytes() * 9 // 10
    cpus = getattr(config, "cpus", None) or getattr(config, "num_cpus", None) or machine.cpu_count()
    return memory, max(1, int(cpus))


def wants_gpu(barrier: BarrierStage, executor: Executor, looked: Looked | None, workers: int) -> bool:
    """Whether keys are made by workers that have a GPU: where that was said, or one is seen that is of use."""
    if barrier.device is not None or executor.on_cluster:
        return barrier.device == "cuda"
    if looked is None or looked.documents * looked.seconds_each < GPU_FROM_S * workers:
        return False
    from gristmill.backends.engine import machine

    config: Any = getattr(executor, "config", None)
    told = getattr(config, "num_gpus", None)
    gpus = len(machine.gpus()) if told is None else told
    return barrier.gpu_is_of_use and bool(gpus) and workers <= CPUS_AS_GOOD * gpus


def _check_fields(cut: _Cut) -> None:
    """A field that no document has is misspelt: nothing would be a duplicate of anything."""
    parts = [name for name, count in cut.documents.items() if count]
    for name in cut.barrier.key_columns if parts else ():
        if all(is_empty(cut.folder, part, name) for part in parts):
            raise PipelineError(
                f"{cut.barrier.name!r}: no document has anything in the field {name!r}, so nothing was decided and "
                "nothing written.\nName the field that is meant, and start over with --fresh, or run(fresh=True)."
            )


def _import_all(modules: Sequence[str]) -> None:
    """Import what will be needed while there is nothing else to do. Whoever needs it says what is wrong with it."""
    with suppress(Exception):
        for name in modules:
            importlib.import_module(name)


def say(line: str) -> None:
    print(f"gristmill: {line}", file=sys.stderr, flush=True)


def phase_folder(output: Folder, number: int) -> Folder:
    """Where the keys are of the documents in front of the cut of this number."""
    return Folder(f"{output.url.rstrip('/')}/{PHASES}/{number}", output.options)


def records_folder(output: Folder, number: int) -> Folder:
    """Where the records are of what was removed at the cut of this number."""
    return Folder(f"{output.url.rstrip('/')}/{records_name(number)}", output.options)


def _steps_of(plan: Plan) -> list[StepStats]:
    return [StepStats(step.name, [StageStats(stage.name) for stage in step.stages]) for step in plan.steps]


def _names(folder: Folder) -> list[str]:
    return [name.removesuffix(KEYS) for name in folder.names() if name.endswith(KEYS)]


def _committed(folder: Folder) -> dict[str, int]:
    """How many documents each part has.

    What attempts have left that came to nothing is removed: a worker may die between a file and its report.
    """
    committed = CommitLog(folder).files()
    for name in folder.names():
        if name.endswith((KEYS, DOCUMENTS, FAILED)) and name not in committed:
            folder.remove(name)
    parts: dict[str, int] = {}
    for name, documents in committed.items():
        if name.endswith(FAILED):
            continue
        part = name.removesuffix(KEYS).removesuffix(DOCUMENTS)
        parts[part] = parts.get(part, 0) + documents
    return parts


def _failed_blocks(folder: Folder) -> dict[str, str]:
    """Blocks that were given up as a whole, or from some part on, each with the reason."""
    found: dict[str, str] = {}
    for name in folder.names(QUARANTINE):
        if GIVEN_UP in name:
            first = folder.read(f"{QUARANTINE}/{name}").partition(b"\n")[0]
            found.setdefault(str(block_of_file(name)), fast_json.loads(first)["reason"])
    return found


def _known(block: Task[Any], documents: Mapping[str, int]) -> Task[Any]:
    """A block with the number of its documents, if it is one part."""
    if not isinstance(block, FileBlock):
        return block
    return replace(block, documents=documents.get(part_name(block.task_id, "")))


def _files_of(part: str, blocks: Sequence[Task[Any]]) -> list[str]:
    number = block_of_file(part)
    block = blocks[number] if number is not None and number < len(blocks) else None
    if isinstance(block, FileBlock):
        return sorted({piece.path for piece in block.data})
    return list(getattr(block, "files", []))


def _read_json(folder: Folder, name: str) -> Any:
    try:
        return fast_json.loads(folder.read(name))
    except FileNotFoundError:
        return None


def _short_hash(value: Any) -> str:
    return hashlib.blake2b(fast_json.dumps(value), digest_size=12).hexdigest()

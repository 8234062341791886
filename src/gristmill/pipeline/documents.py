"""The blocks that a run has to do, and the log of its output."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from gristmill import __version__
from gristmill.backends.base import Plan
from gristmill.errors import OutputChanged, PlanError, not_writable
from gristmill.ledger.closing import check_output, remove_temporaries
from gristmill.ledger.commits import PHASES, RUN, START_OVER, CommitLog
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.names import OutputNames
from gristmill.ledger.opening import OutputState, begin, clear, inspect_log
from gristmill.ledger.resume import ResumeOptions
from gristmill.ledger.run import RunLedger
from gristmill.logs import logger
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.pipeline.report import interrupted
from gristmill.pipeline.result import RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Sink, Source
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.storage import Folder, local_path
from gristmill.tasks import FileBlock, Task


def with_ledger(
    plan: Plan,
    reader: Source[Any, Any],
    text: Callable[[], str | None],
    blocks: Sequence[Task[Any]],
    how: ResumeOptions,
    part: PhaseOptions | None = None,
) -> tuple[Plan, list[Task[Any]]]:
    """Return the plan with a ledger for the documents of these blocks, and the blocks that are not done.

    ``text`` returns the pipeline as YAML, which is kept with the output to explain documents. Raise `OutputChanged`,
    and change nothing, if the output folder holds the output of another pipeline or another input.
    """
    output = output_of(plan)
    if output is None:
        ledger = RunLedger()
        _note_input(ledger, reader, blocks)
        return replace(plan, ledger=ledger), list(blocks)
    part = part or PhaseOptions()
    check_apart(output.folder, blocks, reader.file_paths)
    log = CommitLog(output.folder, OutputNames.of(output, len(blocks)), part.title)
    ledger = RunLedger(log)
    with opened(log):
        if not part.is_locked:
            log.lock()
        if how.fresh:
            clear(log)
        inspected = inspect_output(log, plan, reader, blocks, how, part)
        for line in notices(log, inspected.found, how):
            logger.info(line)
        _note_input(ledger, reader, inspected.blocks)
        for number, entry in begin(log, inspected.found, {**inspected.made_of, "pipeline": text()}):
            ledger.resume(number, entry)
    left = [block for block in inspected.blocks if int(block.task_id) not in ledger.blocks]
    return replace(plan, ledger=ledger, output=output), left


@dataclass(frozen=True)
class OutputInspection:
    """The state of the output folder of a plan."""

    blocks: list[Task[Any]]
    """All blocks of the input, in the order of the runs that have read them."""
    made_of: dict[str, Any]
    """The fingerprint of the run."""
    found: OutputState


def inspect_output(
    log: CommitLog,
    plan: Plan,
    reader: Source[Any, Any],
    blocks: Sequence[Task[Any]],
    how: ResumeOptions,
    part: PhaseOptions,
) -> OutputInspection:
    """Return the state of the output folder, and change nothing. Raise as `gristmill.ledger.opening.inspect_log`."""
    if not part.is_of_several and log.folder.exists(f"{PHASES}/1"):
        raise OutputChanged(
            f"{log.title} holds the output of another run, which had a stage that needs all documents, such as "
            f"deduplication.\n{START_OVER}"
        )
    segments = [Segment(blocks)] if part.is_of_several else segments_of(reader, blocks, log)
    every = [block for segment in segments for block in segment.blocks]
    log.names = replace(log.names, blocks=len(every))
    made_of = fingerprint(plan, reader, segments)
    numbers = [int(block.task_id) for block in every]
    found = inspect_log(
        log, made_of, how, numbers, part.cannot_redo, lambda: logger.info(f"comparing the files in {log.title}")
    )
    return OutputInspection(every, made_of, found)


def _note_input(ledger: RunLedger, reader: Source[Any, Any], blocks: Sequence[Task[Any]]) -> None:
    ledger.blocks_total = len(blocks)
    ledger.sizes = reader.block_sizes(blocks)
    ledger.bytes_total = sum(ledger.sizes)


@dataclass(frozen=True)
class PhaseOptions:
    """How a phase of a pipeline treats its output folder."""

    title: str = ""
    """The output folder, for messages; the folder of a phase is inside it."""
    is_of_several: bool = False
    is_locked: bool = False
    """Whether the run has locked the folder already."""
    cannot_redo: str = ""
    """Why a done block cannot be done again; empty if it can."""


@contextmanager
def opened(log: CommitLog) -> Iterator[None]:
    """Open a log: a run that is refused leaves nothing in the folder."""
    try:
        yield
    except OSError as error:
        log.refuse()
        raise not_writable(log.title, error) from error
    except BaseException:
        log.refuse()
        raise


@contextmanager
def closing_log(ledger: RunLedger | None, where: str = "") -> Iterator[None]:
    """Run a plan: at its end, also after an error, unfinished files of workers are removed.

    A `KeyboardInterrupt` gets a message with the number of done blocks, and ``where`` for a phase.
    """
    log = ledger.log if ledger is not None else None
    try:
        yield
    except KeyboardInterrupt:
        if ledger is None:
            raise
        raise KeyboardInterrupt(interrupted(ledger, where)) from None
    finally:
        if log is not None:
            with suppress(OSError):  # what ended the run is more important
                remove_temporaries(log.folder, log.names.places)
            log.close()


def check_written(plan: Plan, result: RunResult, ignore_failures: bool) -> CommitLog | None:
    """Compare the output of a finished run with its log, and return the log; None for any other run."""
    ledger = plan.ledger
    if ledger is None or ledger.log is None or not (result.ok or ignore_failures):
        return None
    ledger.log.flush(now=True)
    check_output(ledger.log, ledger.blocks)
    return ledger.log


def finish(plan: Plan, result: RunResult, ignore_failures: bool) -> None:
    """Write the ledger of a finished run."""
    log = plan.ledger.log if plan.ledger is not None else None
    if log is not None and result.ledger is not None and (result.ok or ignore_failures):
        log.finish(result.ledger.plain())


def notices(log: CommitLog, found: OutputState, how: ResumeOptions) -> Iterator[str]:
    """Yield lines for the user before the run starts."""
    if found.damaged:
        words = listed([line for lines in found.damaged.values() for line in lines])
        yield f"files in {log.title} are missing or damaged; {_count(found.damaged)} done again:{words}"
    if found.failed:
        yield f"{_count(found.failed)} done again because documents failed in {log.title}"
    elif how.retry_failed:
        yield f"no document failed in {log.title}: there is nothing to retry"
    if found.new_inputs:
        new = len(found.new_inputs)
        files = "1 input file is" if new == 1 else f"{new:,} input files are"
        yield f"{files} new; the documents are appended to {log.title}"


def _count(blocks: Collection[int]) -> str:
    return "1 block is" if len(blocks) == 1 else f"{len(blocks):,} blocks are"


@dataclass(frozen=True)
class Segment:
    """Blocks of the input: of the first run, or of a run that appended files."""

    blocks: Sequence[Task[Any]]
    files: Sequence[str] | None = None
    """The names of its files; None: all files of the reader."""


def segments_of(reader: Source[Any, Any], blocks: Sequence[Task[Any]], log: CommitLog) -> list[Segment]:
    """Return the input in the segments of earlier runs, and new files as one more.

    Each segment is split into blocks alone and numbered after those before it: earlier blocks keep their numbers.
    """
    run = log.run_json()
    if run is None or not isinstance(reader, FileReader):
        return [Segment(blocks)]
    try:
        names, sizes = [str(name) for name, *_ in run["inputs"]], [int(one["files"]) for one in run["segments"]]
    except (KeyError, TypeError, ValueError):
        return [Segment(blocks)]  # of another format, or damaged: comparing them reports it
    there = [name for name, _ in reader.versions()]
    known = set(names)
    new = [name for name in there if name not in known]
    if len(sizes) == 1 and not new:
        return [Segment(blocks)]
    still = set(there)
    edges = [0, *accumulate(sizes)]
    parts = [[name for name in names[begin:end] if name in still] for begin, end in pairwise(edges)]
    parts += [new] if new else []
    return [Segment(*pair) for pair in zip(reader.in_segments(parts), parts, strict=True)]


def output_of(plan: Plan) -> Sink[Any, Any] | None:
    """Return the stage that writes documents, if there is one."""
    return next((stage for stage in stages_of(plan) if isinstance(stage, Sink)), None)


def stages_of(plan: Plan) -> list[ProcessingStage[Any, Any]]:
    return [stage for step in plan.steps for stage in step.stages]


def check_apart(folder: Folder, blocks: Sequence[Task[Any]], given: Any) -> None:
    """Raise `PlanError` if the output folder is read: the next run would read its own output."""
    folder.check()
    root = folder.path().rstrip("/") + "/"
    words = "write to another folder than the input's."
    for block in blocks:
        for part in block.data if isinstance(block, FileBlock) else ():
            if same_storage(part.path, folder.url) and folder.path_of(part.path).startswith(root):
                raise PlanError(f"the output folder {folder.url} contains {part.path}, which the run reads: {words}")
    for path in [given] if isinstance(given, str | os.PathLike) else list(given or ()):
        place = os.fspath(path)
        if same_storage(place, folder.url) and root.startswith(folder.path_of(place).rstrip("/") + "/"):
            raise PlanError(f"the output folder {folder.url} lies in {place}, which the run reads: {words}")


def same_storage(one: str, other: str) -> bool:
    def protocol(url: str) -> str:
        return url.partition("://")[0] if local_path(url) is None else "file"

    return protocol(one) == protocol(other)


def fingerprint(plan: Plan, reader: Source[Any, Any], segments: Sequence[Segment]) -> dict[str, Any]:
    """Return the fingerprint of a run: its stages, its input files, and how they are split into blocks."""
    return fingerprint_of(plan.name, [describe_stage(stage) for stage in stages_of(plan)], reader, segments)


def fingerprint_of(
    name: str, described: list[dict[str, Any]], reader: Source[Any, Any], segments: Sequence[Segment]
) -> dict[str, Any]:
    """Return the fingerprint for described stages."""
    versions = dict(reader.versions())
    files = [list(versions) if segment.files is None else list(segment.files) for segment in segments]
    return {
        "gristmill": __version__,
        "name": name,
        "stages": described,
        "inputs": [[one, versions[one]] for some in files for one in some],
        "segments": [
            {"files": len(some), "blocks": len(segment.blocks), "cut": _cut(segment.blocks)}
            for some, segment in zip(files, segments, strict=True)
        ],
    }


def _cut(blocks: Sequence[Task[Any]]) -> str:
    """Return a hash of how files are split into blocks."""
    cut = hashlib.blake2b(digest_size=16)
    for block in blocks:
        cut.update(repr(block.data).encode())
    return cut.hexdigest()


def remembered(output: str) -> str | None:
    """Return the pipeline of an output as YAML; None if it could not be written as YAML."""
    from gristmill.ledger.dropped import output_of_run  # no run needs it

    run = CommitLog(output_of_run(output)).run_json()
    if run is None:
        raise PlanError(f"{output} is not the output of a run: there is no {RUN} in it")
    text: str | None = run.get("pipeline")
    return text

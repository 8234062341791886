"""Which blocks of a data set are left to do, and where what becomes of their documents is written down."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from gristmill import __version__
from gristmill.backends.base import Plan
from gristmill.errors import PlanError, not_writable
from gristmill.ledger.closing import check_output, remove_temporaries
from gristmill.ledger.commits import RUN, CommitLog
from gristmill.ledger.differences import listed
from gristmill.ledger.names import OutputNames
from gristmill.ledger.opening import OutputState, begin, clear, look
from gristmill.ledger.resume import ResumeOptions
from gristmill.ledger.run import RunLedger
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.pipeline.report import interrupted
from gristmill.pipeline.result import RunResult
from gristmill.secrets import without_secrets
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
    """The plan with a ledger for the documents of these blocks, and the blocks that are not done yet.

    ``text`` gives the pipeline as YAML, kept with the output so that documents can be explained. Raises `OutputChanged`
    if the output folder holds what another pipeline or another input has made, and leaves it as it was.
    """
    output = output_of(plan)
    if output is None:
        ledger = RunLedger()
        _note_input(ledger, reader, blocks)
        return replace(plan, ledger=ledger), list(blocks)
    part = part or PhaseOptions()
    check_apart(output.folder, blocks, reader.file_paths)
    log = CommitLog(output.folder, OutputNames(output.extension, len(blocks)), part.title)
    ledger = RunLedger(log)
    with opened(log):
        if not part.is_locked:
            log.lock()
        if how.fresh:
            clear(log)
        looked = look_into(log, plan, reader, blocks, how, part)
        for line in told(log, looked.found, how):
            say(line)
        _note_input(ledger, reader, looked.blocks)
        for number, entry in begin(log, looked.found, {**looked.made_of, "pipeline": text()}):
            ledger.resume(number, entry)
    left = [block for block in looked.blocks if int(block.task_id) not in ledger.blocks]
    return replace(plan, ledger=ledger, output=output), left


@dataclass(frozen=True)
class LookedInto:
    """What a plan finds in its output folder."""

    blocks: list[Task[Any]]
    """All blocks of the input, in the order of the runs that have read it."""
    made_of: dict[str, Any]
    """What the output is a function of."""
    found: OutputState


def look_into(
    log: CommitLog,
    plan: Plan,
    reader: Source[Any, Any],
    blocks: Sequence[Task[Any]],
    how: ResumeOptions,
    part: PhaseOptions,
) -> LookedInto:
    """Look at the output folder of a plan, and change nothing. Raises as `gristmill.ledger.opening.look`."""
    segments = [Segment(blocks)] if part.is_of_several else segments_of(reader, blocks, log)
    every = [block for segment in segments for block in segment.blocks]
    log.names = OutputNames(log.names.extension, len(every))
    made_of = fingerprint(plan, reader, segments)
    numbers = [int(block.task_id) for block in every]
    found = look(log, made_of, how, numbers, part.cannot_redo, lambda: say(f"comparing the files in {log.title}"))
    return LookedInto(every, made_of, found)


def _note_input(ledger: RunLedger, reader: Source[Any, Any], blocks: Sequence[Task[Any]]) -> None:
    ledger.blocks_total = len(blocks)
    ledger.sizes = reader.block_sizes(blocks)
    ledger.bytes_total = sum(ledger.sizes)


@dataclass(frozen=True)
class PhaseOptions:
    """Which part of a pipeline that is cut in several a plan is."""

    title: str = ""
    """The output folder, which the user knows; that of a phase is inside it."""
    is_of_several: bool = False
    is_locked: bool = False
    """Whether the run holds the lock of the folder already."""
    cannot_redo: str = ""
    """Why a block that an earlier run has done cannot be done again; empty if it can."""


@contextmanager
def opened(log: CommitLog) -> Iterator[None]:
    """While a log is opened: a run that is refused leaves nothing in the folder."""
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
    """While a plan runs: at its end, however it ends, unfinished files of its workers are removed.

    A `KeyboardInterrupt` says how many blocks are done, and ``where`` in a pipeline that has phases.
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
                remove_temporaries(log.folder)
            log.close()


def check_written(plan: Plan, result: RunResult, ignore_failures: bool) -> CommitLog | None:
    """Compare the output of a run that came to its end with its log, which is returned; None for any other run."""
    ledger = plan.ledger
    if ledger is None or ledger.log is None or not (result.ok or ignore_failures):
        return None
    ledger.log.flush(now=True)
    check_output(ledger.log, ledger.blocks)
    return ledger.log


def finish(plan: Plan, result: RunResult, ignore_failures: bool) -> None:
    """Write the ledger of a run that came to its end."""
    log = plan.ledger.log if plan.ledger is not None else None
    if log is not None and result.ledger is not None and (result.ok or ignore_failures):
        log.finish(result.ledger.plain())


def told(log: CommitLog, found: OutputState, how: ResumeOptions) -> Iterator[str]:
    """What the user should know before the run starts, line by line."""
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
    """Blocks of the input: those of the first run, or of a run that appended files."""

    blocks: Sequence[Task[Any]]
    files: Sequence[str] | None = None
    """The names of its files; None: all that the reader found."""


def segments_of(reader: Source[Any, Any], blocks: Sequence[Task[Any]], log: CommitLog) -> list[Segment]:
    """The input in the segments in which runs have read it, and what is new as one more.

    Each segment is cut by itself and its numbers follow those before it, so that blocks of earlier runs keep theirs.
    """
    run = log.run_json()
    if run is None or not isinstance(reader, FileReader):
        return [Segment(blocks)]
    try:
        names, sizes = [str(name) for name, *_ in run["inputs"]], [int(one["files"]) for one in run["segments"]]
    except (KeyError, TypeError, ValueError):
        return [Segment(blocks)]  # of another format, or damaged: this is said when they are compared
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
    """The stage that writes documents, if there is one."""
    return next((stage for stage in stages_of(plan) if isinstance(stage, Sink)), None)


def stages_of(plan: Plan) -> list[ProcessingStage[Any, Any]]:
    return [stage for step in plan.steps for stage in step.stages]


def check_apart(folder: Folder, blocks: Sequence[Task[Any]], given: Any) -> None:
    """Refuse to write into a folder that is read from: the next run would take its own output for input."""
    folder.check()
    root = folder.path().rstrip("/") + "/"
    words = "write to another folder than the input's."
    for block in blocks:
        for part in block.data if isinstance(block, FileBlock) else ():
            if same_storage(part.path, folder.url) and folder.path_of(part.path).startswith(root):
                raise PlanError(f"{folder.url} is to be written to, but {part.path} in it is read: {words}")
    for path in [given] if isinstance(given, str | os.PathLike) else list(given or ()):
        place = os.fspath(path)
        if same_storage(place, folder.url) and root.startswith(folder.path_of(place).rstrip("/") + "/"):
            raise PlanError(f"{folder.url} is to be written to, but all that is in {place} is read: {words}")


def same_storage(one: str, other: str) -> bool:
    def protocol(url: str) -> str:
        return url.partition("://")[0] if local_path(url) is None else "file"

    return protocol(one) == protocol(other)


def fingerprint(plan: Plan, reader: Source[Any, Any], segments: Sequence[Segment]) -> dict[str, Any]:
    """What the output is a function of: stages, input files, and how they are cut."""
    return fingerprint_of(plan.name, [describe_stage(stage) for stage in stages_of(plan)], reader, segments)


def fingerprint_of(
    name: str, described: list[dict[str, Any]], reader: Source[Any, Any], segments: Sequence[Segment]
) -> dict[str, Any]:
    """The same of stages that are described already."""
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
    """A hash of how files are cut into blocks."""
    cut = hashlib.blake2b(digest_size=16)
    for block in blocks:
        cut.update(repr(block.data).encode())
    return cut.hexdigest()


def remembered(output: str) -> str | None:
    """The pipeline, as YAML, that has written to a folder; None if it could not be written as YAML."""
    run = CommitLog(Folder(output)).run_json()
    if run is None:
        raise PlanError(f"{output} is not the output of a run: there is no {RUN} in it")
    text: str | None = run.get("pipeline")
    return text


def say(line: str) -> None:
    print(f"gristmill: {without_secrets(line)}", file=sys.stderr, flush=True)

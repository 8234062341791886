"""A preview of a run: its effect on the output folder, without writing or removing anything."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gristmill.backends.base import Executor, Plan
from gristmill.errors import not_writable
from gristmill.ledger.commits import PHASES, RUN, CommitLog
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.lock import is_locked, locked_by_another
from gristmill.ledger.names import OutputNames
from gristmill.ledger.opening import check_clear
from gristmill.ledger.resume import ResumeOptions
from gristmill.pipeline.documents import (
    OutputInspection,
    PhaseOptions,
    check_apart,
    inspect_output,
    notices,
    output_of,
    stages_of,
)
from gristmill.pipeline.phases.decision import failed_before
from gristmill.pipeline.phases.run import PhasedRun
from gristmill.pipeline.phases.split import Phase, Split
from gristmill.pipeline.planner import NO_INITIAL_TASKS, PipelineInput, Reader, has_barrier
from gristmill.storage import Folder

if TYPE_CHECKING:
    from gristmill.pipeline.pipeline import Pipeline


def preview(pipeline: Pipeline, plan: Plan, reader: Reader, executor: Executor, how: ResumeOptions) -> list[str]:
    """Return lines on what a run would do with its output folder; none if it has no log there.

    ``reader`` is the first stage, whose `source` was called. Raises `PlanError` if the run would be refused.
    """
    how.check()
    output = output_of(plan)
    blocks = reader.source()
    if output is None or blocks is None:
        return []
    check_apart(output.folder, blocks, reader.file_paths)
    _check_writable(output.folder)
    if is_locked(output.folder):
        raise locked_by_another(output.folder)
    log = CommitLog(output.folder, OutputNames.of(output, len(blocks)))
    if how.fresh:
        check_clear(log)
        if log.folder.exists(RUN) or log.folder.exists(f"{PHASES}/1"):
            return ["start over, and remove what earlier runs have written"]
        how = replace(how, fresh=False)
    if has_barrier(stages_of(plan)):
        return _of_phases(PhasedRun(pipeline, executor, reader, list(blocks), output, True, how), plan, log)
    inspected = inspect_output(log, plan, reader, blocks, how, PhaseOptions())
    return [_words(inspected), *notices(log, inspected.found, how)]


def _words(inspected: OutputInspection, before: str = "") -> str:
    """Describe what a run would do; ``before`` names the stage that its blocks are read for."""
    found, total = inspected.found, len(inspected.blocks)
    if found.run is None and not before:
        return "start a new output"
    done = len(found.done)
    if done == total and not before:
        return f"find nothing to do: all {total:,} blocks are done"
    verb = "append" if found.new_inputs else "resume"
    where = f" with what comes before {before!r}" if before else ""
    return f"{verb}{where}: {done:,} of {total:,} blocks are done"


def _of_phases(phases: PhasedRun, plan: Plan, log: CommitLog) -> list[str]:
    whole = stages_of(plan)
    source = PipelineInput(phases.blocks[0]) if phases.blocks else NO_INITIAL_TASKS
    if phases.how.retry_failed and (stage := failed_before(log, whole)):
        phases.check_same(log, whole, source)
        check_clear(log)
        return [f"start over, because documents failed before {stage!r}, which compares all documents"]
    phases.check_ours(log)
    how = replace(phases.how, append=False)

    def look_at_phase(split: Split, phase: Phase, number: int) -> None:
        phase, made_of = phases.keyed(split, phase)
        damage = phases.damage(split, made_of, number)
        if damage:
            what = f"files of {log.title} are missing or damaged, and are made again:{listed(damage)}"
            raise _Undecided([f"resume with what comes before {split.barrier.name!r}", what])
        if damage is None:
            inspected = _inspect(phases, phase, how)
            is_new = number == 1 and inspected.found.run is None
            words = "start a new output" if is_new else _words(inspected, split.barrier.name)
            raise _Undecided([words, *notices(log, inspected.found, how)])

    try:
        _, last = phases.splits(whole, source, look_at_phase)
    except _Undecided as undecided:
        return undecided.lines
    inspected = _inspect(phases, last, how)
    if inspected.found.run is None:
        return [f"resume after the last stage that compares all documents: 0 of {len(last.blocks):,} blocks are done"]
    return [_words(inspected), *notices(log, inspected.found, how)]


def _inspect(phases: PhasedRun, phase: Phase, how: ResumeOptions) -> OutputInspection:
    plan, options = phases.plan(phase), phases.options()
    output = output_of(plan)
    assert output is not None
    log = CommitLog(output.folder, OutputNames.of(output, len(phase.blocks)), options.title)
    return inspect_output(log, plan, phase.reader, phase.blocks, how, options)


class _Undecided(Exception):
    """A phase is not done, so the phases after it are unknown."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines


def _check_writable(folder: Folder) -> None:
    """Raise `PlanError` if a folder of this machine cannot be made or written to."""
    if not folder.is_local:
        return
    path = os.path.abspath(folder.path())
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise not_writable(folder.url, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(path, os.W_OK | os.X_OK):
        raise not_writable(folder.url, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

"""The start of a run in a folder with the output of another: all checks come before anything is removed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Any

from gristmill import fast_json
from gristmill.errors import OutputChanged, OutputDamaged
from gristmill.ledger.closing import remove_temporaries
from gristmill.ledger.commits import COMMITS, DECIDED, LEDGER, PHASES, RUN, START_OVER, CommitLog
from gristmill.ledger.entry import Entry
from gristmill.ledger.excluded import records_name
from gristmill.ledger.files import FileSizes, Stamp, difference, in_threads
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.names import OutputNames, is_record
from gristmill.ledger.resume import ResumeOptions

_SLOW_S = 5.0
_COMPACT = 64
"""With more files of commits than this a resumed run merges them."""


@dataclass
class OutputState:
    """The state of an output folder when a run starts."""

    run: dict[str, Any] | None
    """None: no run was here."""
    new_inputs: list[str] = field(default_factory=list)
    """Files that are appended to the input."""
    done: set[int] = field(default_factory=set)
    """Blocks that need not be done again."""
    damaged: dict[int, list[str]] = field(default_factory=dict)
    """Blocks whose files are damaged, with a description of each file."""
    failed: set[int] = field(default_factory=set)
    """Blocks that are tried again because a stage failed on documents."""

    @property
    def again(self) -> set[int]:
        """Committed blocks that are done again."""
        return {*self.damaged, *self.failed}


def inspect_log(
    log: CommitLog,
    made_of: Mapping[str, Any],
    how: ResumeOptions,
    blocks: Sequence[int],
    cannot_redo: str = "",
    takes_long: Callable[[], None] = lambda: None,
) -> OutputState:
    """Return the state of an output, and change nothing.

    ``blocks`` are those of the input. ``cannot_redo`` is why a block that is not done cannot be done any more.
    ``takes_long`` is called once if comparing the files takes more than a few seconds.
    Raise `OutputChanged` if another pipeline or another input was here, and `OutputDamaged` if the output is damaged
    and cannot be repaired.
    """
    run = log.run_json()
    if run is None:
        check_unused(log)
        return OutputState(None)
    log.check_format(run)
    found = OutputState(run)
    new = log.new_inputs(run, made_of)
    if how.append and new:
        found.new_inputs = new
    else:
        _check_same(log, run, made_of, new)
    sizes = FileSizes(log.folder)

    def compare(one: tuple[int, Stamp | None]) -> str:
        return "" if one[1] is None else difference(log.folder, sizes, one[1], how.verify)

    slow_at = time.monotonic() + _SLOW_S
    for (block, _), words in in_threads(compare, _stamps(log, found, how)):
        found.done.add(block)
        if time.monotonic() > slow_at:
            slow_at = math.inf
            takes_long()
        if words:
            found.damaged.setdefault(block, []).append(words)
    found.done -= found.again
    left = [block for block in blocks if block not in found.done]
    if cannot_redo and left:
        words = listed([line for lines in found.damaged.values() for line in lines])
        raise OutputDamaged(
            f"files or commits of {len(left):,} of {len(blocks):,} blocks in {log.title} are missing or damaged, and "
            f"{cannot_redo}.{words}\nNothing was removed or started. {START_OVER}"
        )
    return found


def _stamps(log: CommitLog, found: OutputState, how: ResumeOptions) -> Iterator[tuple[int, Stamp | None]]:
    """Yield the files of all commits by block; None for a block without files."""
    for block, entry, _ in log.commits():
        if how.retry_failed and entry.failed:
            found.failed.add(block)
        yield block, None
        for stamp in entry.stamps():
            yield block, stamp


def _check_same(log: CommitLog, run: Mapping[str, Any], made_of: Mapping[str, Any], new: Sequence[str]) -> None:
    if not new:
        log.check_same(run, made_of)
        return
    advice = "Process only the new files with --append, or run(append=True). " + START_OVER
    raise log.changed([f"input {name} is new" for name in new], advice)


def begin(log: CommitLog, found: OutputState, made_of: Mapping[str, Any]) -> Iterator[tuple[int, Entry]]:
    """Start writing: remove files of blocks that are not done. Yield the done blocks."""
    if found.run is None:
        log.folder.remove(COMMITS)  # a run that was being removed left it
        log.write_run(made_of)
        return
    log.resume_run(found.run)
    if found.new_inputs or found.again:
        log.folder.remove(LEDGER)  # it counts the documents of another state
    if found.new_inputs:
        log.write_run(made_of, log.folder.mark)
    if found.again or len(log.folder.names(COMMITS)) > _COMPACT:
        log.rewrite(found.again)
    _remove_rest(log, found.done)
    remove_temporaries(log.folder, log.names.places)
    for block, entry, _ in log.commits():
        yield block, entry


def _remove_rest(log: CommitLog, done: Collection[int]) -> None:
    """Remove files of blocks that were not committed: the next attempt may be split differently."""
    for name, block in list(log.names.found_in(log.folder)):
        if block not in done:
            log.folder.remove(name)


def check_unused(log: CommitLog, others: Sequence[str] = ()) -> None:
    """Raise `OutputChanged` if files have names of an output, or if there are ``others``."""
    found = [*(name for name, _ in log.names.found_in(log.folder)), *others] if log.names.extension else [*others]
    if found:
        raise _taken(log, found)


def _taken(log: CommitLog, found: Sequence[str]) -> OutputChanged:
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return OutputChanged(
        f"{log.title} holds {found[0]}{more}, but no log of a run that wrote it. This run would replace it.\n"
        "Remove what is not needed, or write to another folder."
    )


def clear(log: CommitLog) -> None:
    """Remove what an earlier run has written, and nothing else: commits first, run.json last.

    Raise `OutputChanged` before anything is removed if files of others have names that the next run would write.
    """
    check_clear(log)
    folder = log.folder
    names, mark = _names_of(log)
    has_run = folder.exists(RUN)
    _clear_phases(log)
    if not has_run:
        return
    folder.remove(COMMITS)
    folder.remove(LEDGER)
    for name, _ in list(names.found_in(folder)):
        folder.remove(name)
    folder.mark = mark
    remove_temporaries(folder, names.places)
    folder.remove(RUN)
    folder.remove_empty(*names.places[1:], *(place.partition("/")[0] for place in names.folders))


def check_clear(log: CommitLog) -> None:
    """Raise what `clear` would raise, and remove nothing."""
    if not log.folder.exists(RUN) or not log.names.extension:
        return
    names, _ = _names_of(log)
    if others := [name for name, _ in log.names.found_in(log.folder) if not names.is_own(name)]:
        raise _taken(log, others)


def _names_of(log: CommitLog, phase: int = 0) -> tuple[OutputNames, str]:
    """Return the names of files of the logged run, and its mark; if run.json is damaged, those of this run."""
    try:
        run = log.run_json() or {}
        return OutputNames.of_run(run, int(run["output"]["blocks"]), phase), str(run["mark"])
    except (OutputDamaged, KeyError, TypeError, ValueError):
        return replace(log.names, phase=phase), ""


def _clear_phases(log: CommitLog) -> None:
    folder = log.folder
    phases = list(takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1))))
    stamps = {}
    for n, phase in enumerate(phases, 1):  # records can be read without it
        stamps[n] = _noted(log, f"{phase}/{DECIDED}")
        folder.remove(f"{phase}/{DECIDED}")
    for n in range(len(phases), 0, -1):  # the last first: they are found by counting from the first
        names, mark = _names_of(CommitLog(folder.sub(phases[n - 1]), log.names), n)
        for name, _ in list(names.found_in(folder)):
            folder.remove(name)
        records = folder.sub(records_name(n))
        records.mark = mark
        remove_temporaries(records)
        for name in records.names():
            if is_record(name) or name in stamps[n]:
                records.remove(name)
        folder.remove_empty(records_name(n))
        folder.remove(phases[n - 1])


def _noted(log: CommitLog, decided: str) -> set[str]:
    """Return the records that the decision of a phase lists, if it can be read."""
    try:
        return {name for name, *_ in fast_json.loads(log.folder.read(decided))["records"]}
    except (FileNotFoundError, fast_json.JSONDecodeError, KeyError, TypeError, ValueError):
        return set()

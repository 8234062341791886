"""The end of a run: compare the folder with the log, and remove unfinished files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from gristmill.errors import OutputDamaged
from gristmill.ledger.commits import LEDGER, CommitLog
from gristmill.ledger.files import FileSizes, difference
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.names import PLACES, is_temporary
from gristmill.storage import TEMPORARY, Folder

_INSIDE = ("_gristmill", "_gristmill/commits")


def check_output(log: CommitLog, blocks: Collection[int]) -> None:
    """Compare the files in the output with the log, by name and size. Raise `OutputDamaged` if they differ.

    A missing run.json is written again, so that the next run resumes and does not refuse the folder. ``blocks`` are the
    done ones. A file of a done block that no commit names is left from a failed attempt and is removed, unless an
    earlier run has finished the output: then it is not a run's.
    """
    sizes = FileSizes(log.folder)
    problems: list[str] = []
    named: Counter[str] = Counter()
    committed: set[int] = set()
    for block, entry, _ in log.commits():
        if block in committed:
            continue
        committed.add(block)
        for stamp in entry.stamps():
            named[stamp.name.rpartition("/")[0]] += 1
            if words := difference(log.folder, sizes, stamp, contents=False):
                problems.append(words)
    if lost := len(set(blocks) - committed):
        problems.insert(0, f"the commits of {lost:,} of {len(blocks):,} blocks are missing in _gristmill/commits")
    if log.restore_run():
        problems.insert(0, "_gristmill/run.json was missing, and is written again")
    if problems:
        raise OutputDamaged(
            f"{log.title} was changed by something else while the run was writing to it:{listed(problems)}\n"
            "Run the same command again: blocks whose files are missing or damaged are done again."
        )
    found = Counter(name.rpartition("/")[0] for name, _ in log.names.found_in(log.folder))
    if any(found[place] > named[place] for place in log.names.places) and not log.folder.exists(LEDGER):
        _remove_unnamed(log, committed)


def _remove_unnamed(log: CommitLog, done: Collection[int]) -> None:
    names = log.files()
    for name, block in list(log.names.found_in(log.folder)):
        if block in done and name not in names:
            log.folder.remove(name)


def remove_temporaries(folder: Folder, places: Sequence[str] = PLACES) -> None:
    """Remove the unfinished files of this folder's run: none of its workers may be writing any more.

    ``places`` are the folders that the run writes blocks to.
    """
    if not folder.is_local:
        return  # an upload shows when it is complete
    for place in places:
        for name in folder.names(place, unfinished=True):
            if is_temporary(name, folder.mark):
                folder.remove(f"{place}/{name}" if place else name)
    for place in _INSIDE:  # only gristmill writes there
        for name in folder.names(place, unfinished=True):
            if name.startswith(TEMPORARY):
                folder.remove(f"{place}/{name}")

"""The decision of a phase in ``decided.json``, for runs that resume, with a checksum of each file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from gristmill import fast_json
from gristmill.errors import OutputChanged, OutputDamaged
from gristmill.ledger.commits import DECIDED, PHASES, START_OVER, CommitLog
from gristmill.ledger.excluded import EXCLUDED
from gristmill.ledger.files import FileSizes, Stamp, difference, in_threads, stamped
from gristmill.ledger.fingerprints import listed
from gristmill.ledger.names import PLACES, phase_name
from gristmill.pipeline.phases.split import Split
from gristmill.pipeline.planner import Stage
from gristmill.stages.barrier import BarrierStage
from gristmill.storage import Folder

_PARTS = {"parts": list, "documents": dict, "failed": list, "notes": list, "ledger": dict, "records": list}


def stamps_of(folder: Folder, names: Iterable[str]) -> list[list[Any]]:
    """Make files durable and return their stamps as plain values: name, size, checksum."""
    return [[stamp.name, stamp.size, stamp.checksum] for stamp in stamped(folder, sorted(names))]


def read_decided(split: Split) -> dict[str, Any] | None:
    """Return the decision of an earlier run, or None. Raise `OutputDamaged` if it cannot be read."""
    try:
        found = fast_json.loads(split.folder.read(DECIDED))
    except FileNotFoundError:
        return None
    except fast_json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or any(not isinstance(found.get(key), kind) for key, kind in _PARTS.items()):
        raise _damaged(split, "it is not what a run wrote")
    return found


def _damaged(split: Split, words: str) -> OutputDamaged:
    return OutputDamaged(
        f"{split.folder.path(DECIDED)} is damaged: {words}. Nothing was removed or started.\n{START_OVER}"
    )


def check_decided(split: Split, output: Folder, number: int, contents: bool) -> list[str]:
    """Return descriptions of missing or damaged files of a phase that can be made again.

    Raise `OutputDamaged` if they cannot, because their inputs were removed when the run ended.
    """
    decided = read_decided(split)
    if decided is None:
        return []
    try:
        files = list(_files(split, output, number, decided))
        lost = CommitLog(split.folder, title=output.url).lost_commits(int(decided["ledger"]["blocks"]))
    except (KeyError, TypeError, ValueError):
        raise _damaged(split, "it is not what a run wrote") from None
    sizes = {id(folder): FileSizes(folder) for folder, _ in files}

    def compare(one: tuple[Folder, Stamp]) -> str:
        folder, stamp = one
        words = difference(folder, sizes[id(folder)], stamp, contents)
        return words and words.replace(stamp.name, folder.path(stamp.name), 1)

    damage = [lost] * bool(lost) + [words for _, words in in_threads(compare, files) if words]
    if damage and split.is_cleared:
        raise OutputDamaged(
            f"files that a run has written to {output.url} are missing or damaged, and what they were made of was "
            f"removed when it ended:{listed(damage)}\nNothing was removed or started. {START_OVER}"
        )
    return damage


def _files(split: Split, output: Folder, number: int, decided: Mapping[str, Any]) -> Iterator[tuple[Folder, Stamp]]:
    """Yield the files of a phase that must still exist, each with its folder."""
    for name, size, checksum in decided["records"]:
        yield split.records, Stamp(name, size, checksum)
    for name, size, checksum in decided["kept"]:
        yield split.folder, Stamp(name, size, checksum)
    log = CommitLog(split.folder, title=output.url)
    for _, entry, _ in log.commits():
        for stamp in entry.stamps():
            if not split.is_cleared:
                yield split.folder, stamp
            elif _is_side(stamp.name) and not split.read_again:
                yield output, Stamp(_beside(stamp.name, number), stamp.size, stamp.checksum)


def _is_side(name: str) -> bool:
    return name.startswith(tuple(f"{side}/" for side in PLACES[1:]))


def _beside(name: str, number: int) -> str:
    side, _, base = name.rpartition("/")
    return f"{side}/{phase_name(base, number)}"


def excluded_before(splits: Sequence[Split]) -> dict[str, tuple[CommitLog, str]]:
    """Return the files of documents that were dropped before the splits, by their current names in the output folder.

    Each comes with the log of its phase and its name there.
    """
    found: dict[str, tuple[CommitLog, str]] = {}
    for number, split in enumerate(splits, 1):
        log = CommitLog(split.folder)
        for name in () if split.read_again else log.files():
            if name.startswith(f"{EXCLUDED}/"):
                found[_beside(name, number) if split.is_cleared else f"{PHASES}/{number}/{name}"] = log, name
    return found


def put_beside(split: Split, output: Folder, number: int) -> None:
    """At the end of the run, copy excluded files of a phase beside the others, and remove files that are not needed.

    All copies exist before the phase is marked as cleared, and only then files are removed.
    """
    folder = split.folder
    if not split.is_cleared:
        copied = []
        for name in CommitLog(folder, title=output.url).files():
            if _is_side(name) and not split.read_again:  # otherwise the last phase wrote them again
                copied.append(_beside(name, number))
                output.write(copied[-1], folder.read(name))
        output.sync(copied)
        folder.write(DECIDED, fast_json.dumps({**(read_decided(split) or {}), "cleared": True}), durable=True)
        split.is_cleared = True
    for side in PLACES[1:]:
        folder.remove(side)
    for name in folder.names(unfinished=True):
        if name != DECIDED and not split.keeps(name):
            folder.remove(name)


def refuse_append(log: CommitLog, made_of: Mapping[str, Any], barrier: str) -> None:
    """Raise `OutputChanged` if the input has changed: new documents may be duplicates of kept ones."""
    try:
        log.is_of(made_of)
    except OutputDamaged:
        raise
    except OutputChanged as error:
        raise OutputChanged(
            f"nothing can be appended to {log.title}: {barrier!r} compares all documents, and new ones change what is "
            f"a duplicate of what.\n{error}"
        ) from None


def failed_before(log: CommitLog, stages: Sequence[Stage]) -> str:
    """Return the first decided barrier before which documents failed; empty if there is none.

    The phases after it depend on all documents before it, so these documents cannot be tried again alone.
    """
    output = log.folder
    names = [stage.name for stage in stages if isinstance(stage, BarrierStage)]
    for number, name in zip(count(1), names, strict=False):
        folder = output.sub(f"{PHASES}/{number}")
        if not folder.exists(DECIDED):
            return ""
        if any(entry.failed for _, entry, _ in CommitLog(folder, title=output.url).commits()):
            return name
    is_cleared = bool(names) and _is_cleared(output.sub(f"{PHASES}/{len(names)}"))
    if is_cleared and any(entry.failed for _, entry, _ in log.commits()):
        return names[0]
    return ""


def _is_cleared(folder: Folder) -> bool:
    """Return whether the stored documents of a phase were removed; False if none were stored."""
    try:
        decided = fast_json.loads(folder.read(DECIDED))
        return bool(decided["cleared"]) and bool(decided["spooled"])
    except (FileNotFoundError, fast_json.JSONDecodeError, KeyError, TypeError):
        return False

"""Make a report: the record of a run, what its output shows, the advice, and the page."""

from __future__ import annotations

import time
from itertools import count, takewhile

from gristmill import fast_json
from gristmill.errors import OutputDamaged, PlanError
from gristmill.ledger.commits import LEDGER, PHASES, CommitLog
from gristmill.ledger.dropped import output_of_run
from gristmill.ledger.entry import Entry
from gristmill.ledger.lock import is_locked
from gristmill.report.advisor import advise
from gristmill.report.configuration import configuration
from gristmill.report.duplicates import duplicates
from gristmill.report.examples import excluded_examples
from gristmill.report.limits import ON_REQUEST, ReportLimits
from gristmill.report.page.page import page_of
from gristmill.report.place import FINISHED, FORMAT, KILLED, RUNNING, UNKNOWN, Data, read_record
from gristmill.report.quarantine import kept_examples, quarantine_examples
from gristmill.report.record import cut, most_common, public
from gristmill.storage import Folder


def built(record: Data, folder: Folder, limits: ReportLimits) -> tuple[Data, bytes]:
    """Return the record with what the output shows and the advice, and the page."""
    data = record | public(examined(record, folder, limits))
    data["findings"] = advise(data)
    return data, page_of(data)


def page_while_running(record: Data) -> bytes:
    """Return the page of a run that has not ended, from its record alone."""
    return page_of(record | {"findings": advise(record)})


def rebuilt(output: str) -> tuple[Data, bytes]:
    """Return the report of an output: from its record, or from its log if it has none.

    Raise `PlanError` if it is not the output of a run, or its record cannot be used.
    """
    folder = output_of_run(output)
    return built(recorded(folder), folder, ON_REQUEST)


def recorded(folder: Folder) -> Data:
    """Return what a run has recorded, or what its log shows if it recorded nothing."""
    record = public(read_record(folder) or _of_log(folder))
    if record.get("state") == RUNNING and folder.is_local and not is_locked(folder):
        record["state"] = KILLED
    if record.get("state") != FINISHED and (documents := _logged(folder)) is not None:
        record["documents"] = documents
    return record


def examined(record: Data, folder: Folder, limits: ReportLimits) -> Data:
    """Return what the files of an output show, from a bounded part of them."""
    return {
        "excluded": excluded_examples(folder, record.get("rules", ()), limits),
        "duplicates": duplicates(folder, limits),
        "quarantine": quarantine_examples(folder, limits),
        "kept": kept_examples(folder),
    }


def _of_log(folder: Folder) -> Data:
    """Return a record of a run that wrote none: its configuration and its account of documents."""
    is_finished = folder.exists(LEDGER)
    return {
        "format": FORMAT,
        "state": FINISHED if is_finished else UNKNOWN,
        "updated": time.time(),
        "is_without_record": True,
        **(known := configuration(folder)),
        "gristmill": known.get("wrote", ""),
        "documents": _of_ledger(folder) if is_finished else None,
        "plans": [],
    }


def _of_ledger(folder: Folder) -> Data | None:
    try:
        plain = fast_json.loads(folder.read(LEDGER))
        return _documents(Entry.of_plain({**plain["total"], "files": []}), len(plain["files"]))
    except (OSError, fast_json.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _logged(folder: Folder) -> Data | None:
    """Return the account of committed blocks of a run that has not ended; None if nothing is committed.

    The documents that the last phase has not read are not in it.
    """
    phases = list(takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1))))
    logs = [*(CommitLog(folder.sub(phase), title=folder.url) for phase in phases), CommitLog(folder)]
    total, blocks = Entry(), 0
    try:
        for number, log in enumerate(logs):
            found, done = Entry(), set()
            for block, entry, _ in log.commits():
                if block not in done:
                    done.add(block)
                    found.add(entry)
                    found.files.clear()
            if done:
                kept_before = total.kept
                total.add(found)
                total.kept -= kept_before
                blocks = len(done)
                if number and total.read:
                    total.read.subtract(found.read)
    except (OutputDamaged, PlanError):
        return None
    return _documents(total, len(total.read)) | {"blocks_done": blocks} if blocks else None


def _documents(entry: Entry, files: int) -> Data:
    return {
        "read": entry.documents,
        "made": entry.made,
        "kept": entry.kept,
        "merged": entry.merged,
        "failed": entry.failed,
        "dropped": [[*key, n] for key, n in most_common(entry.dropped, ("", "other reasons"))],
        "errored": [[cut(key), n] for key, n in most_common(entry.errored, "other reasons")],
        "counters": [[*key, n] for key, n in most_common(entry.counters, ("", "other counters"))],
        "notes": [[*key, values] for key, values in sorted(entry.notes.items())],
        "problems": 0,
        "files": files,
    }

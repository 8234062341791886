"""Quarantine of documents on which a stage failed."""

from __future__ import annotations

from typing import Any

from gristmill.errors import InputChanged
from gristmill.ledger.excluded import QUARANTINE, json_lines, quarantine_entry
from gristmill.ledger.run import RunLedger
from gristmill.stages.protocols import Sink
from gristmill.tasks import BadRecord, DocumentBatch, FileBlock, Task, Written
from gristmill.tasks.document import ID, RAW
from gristmill.tasks.names import part_name

_INPUT_CHANGED = f"{InputChanged.__module__}.{InputChanged.__qualname__}: "
"""How the error of a worker begins that found an input file changed: errors travel as text."""


def set_aside(
    ledger: RunLedger,
    output: Sink[Any, Any] | None,
    label: str,
    task: Task[Any],
    rows: tuple[int, int],
    stage: str,
    error: str,
    partly: bool,
) -> None:
    """Account for a failed task, or a failed part of it, and write its documents to quarantine.

    ``rows`` are the first and the end of the part, (0, 0) for the whole task. ``partly``: some of its outputs were
    passed on.
    """
    start, stop = rows
    if error.startswith(_INPUT_CHANGED):
        ledger.input_changed(label, error.removeprefix(_INPUT_CHANGED))
    reason = f"{stage}: {error.partition(chr(10))[0]}"
    if stop - start > 1:  # the run ends before the document at fault is found
        reason = f"one of {stop - start} documents: {reason}"
    records: list[BadRecord] = []
    if isinstance(task, FileBlock):
        # Its number of documents is unknown: it counts as one record of each file.
        records = [BadRecord(part.path, max(part.start, 0), reason) for part in task.data]
        ledger.unread(label, [part.path for part in task.data])
    elif isinstance(task, DocumentBatch):
        table = task.data.slice(start, stop - start) if stop else task.data
        for row in table.to_pylist() if ID in table.column_names else ():
            file, _, position = str(row[ID]).rpartition("#")
            where = int(position) if position.isdecimal() else 0
            records.append(BadRecord(file or str(row[ID]), where, reason, row.get(RAW) or b""))
    ledger.fail(label, reason, len(records), partly)
    if output is not None and records:
        part = f"{start:08d}-{stop:08d}" if stop else "all"
        name = f"{QUARANTINE}/{part_name(label, '')}.failed-{part}.jsonl"
        content = json_lines([quarantine_entry(stage, record) for record in records])
        checksum = output.folder.write(name, content)
        ledger.wrote(label, Written(name, len(records), len(content), checksum))

"""What is written beside the output: documents that were dropped, and records that could not be read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gristmill.storage import Folder
from gristmill.tasks import BadRecord, Dropped
from gristmill.tasks.document import ID

if TYPE_CHECKING:
    import pyarrow as pa

EXCLUDED = "excluded"
QUARANTINE = "quarantine"
STAGE, REASON, SCORE = "excluded_stage", "excluded_reason", "excluded_score"
"""The columns that an excluded document has beside its own."""
_LONGEST_RAW = 1 << 16


class Output(Protocol):
    """What is asked of the stage that writes documents."""

    folder: Folder
    excluded: bool | float
    extension: str

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        """The documents as a file's content, with ``extra`` columns whatever the fields that are wanted."""


class Sides:
    """Gathers what is to be written beside the output of one task, and writes it when the task has ended.

    Names follow the task and the step, so that an attempt that is repeated writes the same files again.
    """

    def __init__(self, output: Output, step: int) -> None:
        self._output = output
        self._step = step
        self._dropped: dict[str, list[tuple[str, Dropped]]] = {}
        self._bad: dict[str, list[dict[str, Any]]] = {}

    def dropped(self, task: str, stage: str, dropped: Dropped) -> None:
        if self._output.excluded is False or not dropped.rows.num_rows:
            return
        self._dropped.setdefault(task, []).append((stage, dropped))

    def bad(self, task: str, stage: str, records: Sequence[BadRecord]) -> None:
        if records:
            self._bad.setdefault(task, []).extend(quarantine_entry(stage, record) for record in records)

    def write(self) -> None:
        for task, parts in self._dropped.items():
            table = excluded_table(parts, self._output.excluded)
            if table is not None:
                name = f"{EXCLUDED}/{self._name(task)}{self._output.extension}"
                self._output.folder.write(name, self._output.render(table, (STAGE, REASON, SCORE)))
        for task, entries in self._bad.items():
            self._output.folder.write(f"{QUARANTINE}/{self._name(task)}.jsonl", json_lines(entries))

    def _name(self, task: str) -> str:
        name = part_of(task)
        return f"{name}.step{self._step + 1}" if self._step else name


def part_of(task: str) -> str:
    """The name of the files of a task, without extension."""
    from gristmill.stages.text.io.writer.names import part_name

    return part_name(task, "")


def excluded_table(parts: Sequence[tuple[str, Dropped]], share: bool | float) -> pa.Table | None:
    """The dropped documents of a task with the reasons as columns, in the order of stages; None if there are none."""
    import pyarrow as pa

    from gristmill.tasks.arrow import float_array, mask_array, string_array

    tables = []
    for stage, dropped in parts:
        rows = dropped.rows
        scores = dropped.scores if dropped.scores is not None else [None] * rows.num_rows
        added = {
            STAGE: string_array([stage] * rows.num_rows),
            REASON: string_array(dropped.reasons),
            SCORE: float_array(scores),
        }
        for name, column in added.items():
            rows = rows.drop_columns([name]) if name in rows.column_names else rows
            rows = rows.append_column(name, column)
        if share is not True:
            rows = rows.filter(mask_array(list(_sampled(rows, float(share)))))
        if rows.num_rows:
            tables.append(rows)
    if not tables:
        return None
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def _sampled(rows: pa.Table, share: float) -> Iterator[bool]:
    """Which documents are in a sample: by their ids, so that it is the same each time."""
    for ident in rows.column(ID).to_pylist():
        digest = hashlib.blake2b(str(ident).encode(), digest_size=8).digest()
        yield int.from_bytes(digest, "big") < share * 2**64


def quarantine_entry(stage: str, record: BadRecord) -> dict[str, Any]:
    return {
        "file": record.file,
        "position": record.position,
        "stage": stage,
        "reason": record.reason,
        "raw": record.raw[:_LONGEST_RAW].decode("utf-8", "backslashreplace"),
    }


def json_lines(rows: Sequence[dict[str, Any]]) -> bytes:
    import orjson

    return b"".join(orjson.dumps(row) + b"\n" for row in rows)

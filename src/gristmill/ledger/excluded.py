"""Files beside the output: dropped documents, and records that could not be read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gristmill.ledger.scores import EXTENSION as SCORES_EXTENSION
from gristmill.ledger.scores import SCORES, ScoreFiles
from gristmill.stages.protocols import Sink
from gristmill.tasks import BadRecord, Dropped, Written
from gristmill.tasks.document import ID
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa

EXCLUDED = "excluded"
QUARANTINE = "quarantine"
RECORDS = "duplicates"
STAGE, REASON, SCORE = "excluded_stage", "excluded_reason", "excluded_score"
"""The columns that an excluded document has beside its own."""
_LONGEST_RAW = 1 << 16
_MOST_BAD_BYTES = 4 << 20
"""Of bad records that wait to be written."""


def records_name(number: int) -> str:
    """The folder, in the output, of the records of what the first, second ... barrier of a pipeline has removed."""
    return RECORDS if number == 1 else f"{RECORDS}-{number}"


class ExcludedFiles:
    """Gathers what is to be written beside the output of one task, and writes it when the task has ended.

    Names follow the task and the step, so that an attempt that is repeated writes the same files again.
    """

    def __init__(self, output: Sink[Any, Any], step: int, scores: ScoreFiles | None = None) -> None:
        self._output = output
        self._writer = output.excluded_writer
        self._step = step
        self.scores = scores
        """The scores of documents; None if they are not stored."""
        self._dropped: dict[str, list[tuple[str, Dropped]]] = {}
        self._bad: dict[str, list[dict[str, Any]]] = {}
        self._bad_bytes = 0
        self._bad_files: dict[str, int] = {}
        self.written: list[tuple[str, Written]] = []
        """The files that were written, each with its task."""

    def dropped(self, task: str, stage: str, place: int, dropped: Dropped) -> None:
        """Take documents that a stage dropped; ``place`` is its number in the step."""
        if self.scores is not None:
            self.scores.dropped(task, place, dropped)
        if self._output.excluded is False or not dropped.reasons:
            return
        self._dropped.setdefault(task, []).append((stage, dropped))

    def bad(self, task: str, stage: str, records: Sequence[BadRecord]) -> None:
        for record in records:
            waiting = self._bad.setdefault(task, [])
            waiting.append(quarantine_entry(stage, record))
            self._bad_bytes += len(record.raw) + 256
            if self._bad_bytes > _MOST_BAD_BYTES:  # of a long stream: they are not gathered to its end
                self._write_bad(task)

    def write(self) -> None:
        for task, parts in self._dropped.items():
            for content, rows, suffix in self._rendered(parts):
                self._write(task, f"{EXCLUDED}/{self._name(task)}{suffix}{self._writer.extension}", content, rows)
        for task in list(self._bad):
            self._write_bad(task)
        for task, content, rows in self.scores.files() if self.scores is not None else ():
            self._write(task, f"{SCORES}/{self._name(task)}{SCORES_EXTENSION}", content, rows)

    def _write(self, task: str, name: str, content: Any, rows: int) -> None:
        checksum = self._output.folder.write(name, content)
        self.written.append((task, Written(name, rows, len(content), checksum)))

    def _rendered(self, parts: Sequence[tuple[str, Dropped]]) -> Iterator[tuple[bytes, int, str]]:
        """Yield the content of files, each with its number of documents and the suffix of its name."""
        tables = list(excluded_tables(parts, self._output.excluded))
        notes = (STAGE, REASON, SCORE)
        if not tables:
            return
        if ".jsonl" in self._writer.extension:  # compressed or not, concatenated files are a file
            rows = sum(table.num_rows for table in tables)
            yield b"".join(bytes(self._writer.render(table, notes)) for table in tables), rows, ""
            return
        for n, table in enumerate(joined(tables)):
            yield self._writer.render(table, notes), table.num_rows, f".{n}" if n else ""

    def _write_bad(self, task: str) -> None:
        entries = self._bad.pop(task)
        number = self._bad_files.get(task, 0)
        self._bad_files[task] = number + 1
        suffix = f".{number:05d}" if number else ""
        self._write(task, f"{QUARANTINE}/{self._name(task)}{suffix}.jsonl", json_lines(entries), len(entries))
        self._bad_bytes = 0

    def _name(self, task: str) -> str:
        name = part_name(task, "")
        return f"{name}.step{self._step + 1}" if self._step else name


def excluded_tables(parts: Sequence[tuple[str, Dropped]], share: bool | float) -> Iterator[pa.Table]:
    """The dropped documents of a task with the reasons as columns, in the order of stages."""
    from gristmill.tasks.arrow import float_array, mask_array, string_array

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
            yield rows


def joined(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """All in one table, unless a column has types between them that do not go together."""
    import pyarrow as pa

    try:
        return [pa.concat_tables(tables, promote_options="permissive")]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return list(tables)


def _sampled(rows: pa.Table, share: float) -> Iterator[bool]:
    """Which documents are in a sample: by their ids, so that it is the same each time."""
    return (is_sampled(ident, share) for ident in rows.column(ID).to_pylist())


def is_sampled(ident: Any, share: float) -> bool:
    """Whether a document is in a sample of excluded documents."""
    digest = hashlib.blake2b(str(ident).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def quarantine_entry(stage: str, record: BadRecord) -> dict[str, Any]:
    return {
        "file": record.file,
        "position": record.position,
        "stage": stage,
        "reason": record.reason,
        "raw": record.raw[:_LONGEST_RAW].decode("utf-8", "backslashreplace"),
    }


def json_lines(rows: Sequence[dict[str, Any]]) -> bytes:
    from gristmill import fast_json

    return b"".join(fast_json.dumps(row) + b"\n" for row in rows)

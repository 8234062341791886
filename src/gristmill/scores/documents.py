"""The documents that scores belong to: from the output, from its excluded documents, or from the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, takewhile
from tarfile import TarError
from typing import IO, Any, cast

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.images.shards import records_in
from gristmill.lazy import np
from gristmill.ledger.commits import PHASES, CommitLog
from gristmill.ledger.dropped import SHARD, rows_at_once
from gristmill.ledger.excluded import EXCLUDED, is_sampled
from gristmill.ledger.names import OutputNames, phase_name
from gristmill.scores.stored import StoredScores
from gristmill.scores.tables import ScoreFile, ScoreTable, StoredDocument
from gristmill.storage import Folder

LONGEST_LINE = 64 << 20
"""A longer line is not read: it would have to be held in memory."""


class StoredDocuments:
    """Finds documents of `StoredScores`. Only the records that are asked for are parsed."""

    def __init__(
        self, scores: StoredScores, in_source: Callable[[str], Mapping[str, Any] | None] = lambda ident: None
    ) -> None:
        """``in_source`` returns a document of the source by its id, or None."""
        self.scores = scores
        self._in_source = in_source
        run = scores.run
        self.names = OutputNames.of_run(run) if run.get("output") else OutputNames("")
        self._table: ScoreTable | None = None

    def find(self, documents: Sequence[StoredDocument]) -> dict[StoredDocument, Mapping[str, Any] | None]:
        """Return the fields of each document; None for one that is neither in the output nor in the source any more.

        Dropped documents are as they were when they were dropped, others as they were written. Documents of which
        neither is stored are as they were in the source.
        """
        found: dict[StoredDocument, Mapping[str, Any] | None] = {}
        by_file: dict[ScoreFile, list[StoredDocument]] = {}
        for one in documents:
            by_file.setdefault(one.file, []).append(one)
        for file, some in by_file.items():
            records = self._of_file(file, some)
            for one in some:
                found[one] = records.get(one.row) or self._in_source(one.ident)
        return {one: found[one] for one in documents}

    def _of_file(self, file: ScoreFile, documents: Sequence[StoredDocument]) -> dict[int, Mapping[str, Any]]:
        """Return the fields of documents of one file by their rows."""
        dropped = {one.excluded_row: one.row for one in documents if one.excluded_row is not None}
        others = [one.row for one in documents if one.excluded_row is None]
        table = self.scores.table(file)
        found: dict[int, Mapping[str, Any]] = {}
        if dropped:
            records = excluded_records(self, table, list(dropped))
            found.update({dropped[number]: record for number, record in records.items()})
        if others:
            found.update(self._written(table, others))
        return found

    def _written(self, table: ScoreTable, rows: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """Return documents that the step wrote to the output, if it wrote just those that it did not drop."""
        file = table.file
        documents = self.rows_of(file.phase)
        names = list(_files_of(file.task.partition(".step")[0], self.names.extension, documents))
        kept = np.flatnonzero(table.dropped_by[0] < 0)
        entry = self._changed_blocks
        if file.phase or sum(documents[name] for name in names) != len(kept) or not names or entry[file.block]:
            return {}
        numbers = {int(np.searchsorted(kept, row)): row for row in rows}
        records = records_at(self.scores.folder, names, list(numbers))
        return {numbers[number]: record for number, record in records.items()}

    @cached_property
    def _changed_blocks(self) -> Counter[int]:
        """Blocks in which documents were made or merged: their rows in the output are others."""
        return Counter({block: entry.made + entry.merged for block, entry, _ in self.scores.log.commits()})

    def rows_of(self, phase: int) -> Mapping[str, int]:
        """Return the number of documents of each file that a phase has written."""
        if phase not in self._rows:
            folder = self.scores.folder
            log = CommitLog(folder.sub(f"{PHASES}/{phase}") if phase else folder, title=self.scores.url)
            self._rows[phase] = log.files()
        return self._rows[phase]

    @cached_property
    def _rows(self) -> dict[int, Mapping[str, int]]:
        return {}

    @cached_property
    def share(self) -> bool | float:
        """The fraction of dropped documents that was written."""
        for stage in reversed(self.scores.run.get("stages") or ()):
            arguments = stage.get("arguments") if isinstance(stage, dict) else None
            if isinstance(arguments, dict) and isinstance(arguments.get(EXCLUDED), bool | int | float):
                share: bool | float = arguments[EXCLUDED]
                return share
        return True


def _files_of(task: str, extension: str, documents: Mapping[str, int]) -> Iterator[str]:
    """Yield the files that a task has written: one, or the shards of images."""
    if f"{task}{extension}" in documents:
        yield f"{task}{extension}"
    elif extension == SHARD:
        shards = (f"{task}.{number:05d}{extension}" for number in count())
        yield from takewhile(documents.__contains__, shards)


def excluded_names(documents: StoredDocuments, file: ScoreFile) -> tuple[Folder, list[str], int]:
    """Return the files of the documents that a task dropped, their folder, and how many documents they hold."""
    output = documents.scores.folder
    rows = documents.rows_of(file.phase)
    folder, names, total = output, [], 0
    end = documents.names.excluded_extension or documents.names.extension
    for number in count():
        base = f"{file.task}{f'.{number}' if number else ''}{end}"
        written = rows.get(f"{EXCLUDED}/{base}")
        if written is None:
            break
        total += written
        name = f"{EXCLUDED}/{base}"
        if file.phase and file.folder is output:
            name = f"{EXCLUDED}/{phase_name(base, file.phase)}"
        elif file.phase:
            folder = file.folder
        names.append(name)
    return folder, names, total


def excluded_records(
    documents: StoredDocuments, table: ScoreTable, numbers: Collection[int]
) -> dict[int, dict[str, Any]]:
    """Return excluded documents of a task by their ``excluded_row``, those that were written."""
    stored = stored_rows(documents, table, numbers)
    folder, names, _ = excluded_names(documents, table.file)
    by_place = {place: number for number, place in stored.items()}
    return {by_place[place]: record for place, record in records_at(folder, names, list(by_place)).items()}


def stored_rows(documents: StoredDocuments, table: ScoreTable, numbers: Collection[int]) -> dict[int, int]:
    """Return the places in the excluded files of documents, by ``excluded_row``; without those not written."""
    _, names, total = excluded_names(documents, table.file)
    rows = table.excluded_rows
    dropped = np.flatnonzero(rows >= 0)
    if not names:
        return {}
    if total == len(dropped):
        return {number: number for number in numbers}
    order = dropped[np.argsort(rows[dropped])]
    share = float(documents.share)
    there = [number for number, ident in enumerate(table.ids(order)) if is_sampled(ident, share)]
    if len(there) != total:
        return {}
    places = {number: place for place, number in enumerate(there)}
    return {number: places[number] for number in numbers if number in places}


def records_at(folder: Folder, names: Sequence[str], rows: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return records by their number, counted over all files in order. Only these are parsed."""
    wanted = set(rows)
    found: dict[int, dict[str, Any]] = {}
    start = 0
    for name in names:
        number = start - 1
        for number, record in _records(folder, name, start, wanted):
            if record is not None:
                found[number] = record
            if len(found) == len(wanted):
                return found
        start = number + 1
    return found


def _records(
    folder: Folder, name: str, start: int, wanted: Collection[int]
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the numbers of the records of a file from ``start`` on, each with its fields if it is wanted."""
    from gristmill.stages.text.io.compression import Damaged, decompressed
    from gristmill.stages.text.io.reader.files import opened

    with opened(folder.full_path(name), folder.options) as file:
        try:
            if name.endswith(".parquet"):
                yield from _rows(file, start, wanted)
                return
            if name.endswith(SHARD):
                images = enumerate(records_in(cast(IO[bytes], file), LONGEST_LINE), start)
                yield from ((number, record if number in wanted else None) for number, record in images)
                return
            for number, line in enumerate(_lines(decompressed(file)), start):
                record = fast_json.loads(line) if number in wanted and line is not None else None
                yield number, record if isinstance(record, dict) else None
        except (Damaged, TarError, ValueError, OSError) as error:
            raise PlanError(f"{folder.full_path(name)} is damaged: {error}") from None


def _rows(file: Any, start: int, wanted: Collection[int]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    import pyarrow.parquet as pq

    number = start
    parquet = pq.ParquetFile(file)
    for batch in parquet.iter_batches(batch_size=rows_at_once(parquet)):
        here = [n for n in range(number, number + batch.num_rows) if n in wanted]
        records = dict(zip(here, batch.take([n - number for n in here]).to_pylist(), strict=True)) if here else {}
        for n in range(number, number + batch.num_rows):
            yield n, records.get(n)
        number += batch.num_rows


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes | None]:
    """Yield the lines of a stream; None for one that is too long."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            size += len(line)
            yield b"".join([*parts, line]) if size <= LONGEST_LINE else None
            parts, size = [], 0
        size += len(rest)
        parts = [*parts, rest] if size <= LONGEST_LINE else []
    if size:
        yield b"".join(parts) if size <= LONGEST_LINE else None

"""The documents that a run has dropped, from ``excluded/`` of its output: counts by reason, and examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.ledger.commits import LEDGER, PHASES, RUN, CommitLog
from gristmill.ledger.excluded import EXCLUDED, REASON, SCORE, STAGE
from gristmill.ledger.names import OutputNames, phase_name
from gristmill.storage import Folder, plain_errors

LONGEST_LINE = 64 << 20
"""A longer line of an excluded file is skipped: it would have to be held in memory."""
MOST_REASONS = 10_000
DEFAULT_TEXT_FIELD = "text"
ROWS = 256
"""Rows of a Parquet file that are in memory at a time, if they are small."""
AT_ONCE_BYTES = 16 << 20
SHARD = ".tar"

Reasons = Counter[tuple[str, str]]
"""Documents by stage and reason."""


@dataclass(frozen=True)
class DroppedDocument:
    """A dropped document, with the stage and the reason."""

    stage: str
    reason: str
    score: float | None
    record: Mapping[str, Any]
    """Its own fields."""


def output_of_run(path: str, options: Mapping[str, Any] | None = None) -> Folder:
    """Return the output folder of a run; raise `PlanError` for any other folder."""
    with plain_errors(path, options or {}):
        folder = Folder(path, options)
        has_run = folder.exists(RUN) or folder.exists(f"{PHASES}/1")
    if not has_run:
        raise PlanError(f"{path} is not the output of a run: there is no {RUN} in it")
    return folder


def text_field_of(folder: Folder) -> str:
    """Return the field in which the run's reader found texts; "text" if it is not known."""
    own, *phases = _logs(folder)
    reader = ((next(iter(phases), own).run_json() or {}).get("stages") or [{}])[0]  # the first phase reads the input
    found = (reader.get("arguments") or {}).get("text_field") if isinstance(reader, dict) else None
    return found if isinstance(found, str) else DEFAULT_TEXT_FIELD


def dropped_reasons(folder: Folder) -> Reasons:
    """Return the number of dropped documents by stage and reason.

    The counts of a finished run are those of its ledger, otherwise those of committed blocks: the next run does the
    other blocks again.
    """
    try:
        total = fast_json.loads(folder.read(LEDGER))["total"]["dropped"]
        return Counter({(str(stage), str(reason)): int(n) for stage, reason, n in total})
    except (FileNotFoundError, fast_json.JSONDecodeError, KeyError, TypeError, ValueError):
        pass  # it has not ended, or the file is damaged
    found: Reasons = Counter()
    for log in _logs(folder):
        for _, entry, _ in log.commits():
            for key, n in entry.dropped.items():
                found[key if key in found or len(found) < MOST_REASONS else ("", "other reasons")] += n
    return found


def _logs(folder: Folder) -> list[CommitLog]:
    """Return the log of an output and the logs of its phases."""
    phases = takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1)))
    return [CommitLog(folder), *(CommitLog(folder.sub(phase), title=folder.url) for phase in phases)]


def _files(folder: Folder) -> Iterator[tuple[Folder, str]]:
    """Yield the files of excluded documents of committed blocks, each with its folder."""
    own, *phases = _logs(folder)
    for number, log in enumerate(phases, 1):
        for name in log.files():
            side, _, base = name.partition("/")
            if side != EXCLUDED or folder.exists(f"{EXCLUDED}/{phase_name(base, number)}"):
                continue
            if log.folder.exists(name):
                yield log.folder, name  # the run has not ended, so the file is still in the folder of the phase
    committed = None if folder.exists(LEDGER) else own.files()
    run = own.run_json() or {}
    names = OutputNames.of_run(run) if run.get("output") else OutputNames("")
    for base in folder.names(EXCLUDED):
        name = f"{EXCLUDED}/{base}"
        if committed is None or name in committed or not names.is_own(name):
            yield folder, name


def dropped_documents(
    folder: Folder, stages: Iterable[str] | None = None, reasons: Iterable[str] | None = None
) -> Iterator[DroppedDocument]:
    """Yield excluded documents in the order of their files, optionally of some stages or reasons only."""
    wanted_stages = None if stages is None else frozenset(stages)
    wanted_reasons = None if reasons is None else frozenset(reasons)
    for place, name in _files(folder):
        for record in records_of(place, name):
            stage, reason, score = record.pop(STAGE, ""), record.pop(REASON, ""), record.pop(SCORE, None)
            if wanted_stages is not None and stage not in wanted_stages:
                continue
            if wanted_reasons is not None and reason not in wanted_reasons:
                continue
            yield DroppedDocument(str(stage), str(reason), _number(score), record)


def dropped_in(folder: Folder, name: str, most_bytes: int | None = None) -> Iterator[DroppedDocument]:
    """Yield the documents of one of `excluded_files`, or those in about its first ``most_bytes`` bytes."""
    for record in records_of(folder, name, most_bytes):
        stage, reason, score = record.pop(STAGE, ""), record.pop(REASON, ""), record.pop(SCORE, None)
        yield DroppedDocument(str(stage), str(reason), _number(score), record)


def _number(score: Any) -> float | None:
    return score if isinstance(score, int | float) and not isinstance(score, bool) else None


def excluded_files(folder: Folder) -> list[tuple[Folder, str]]:
    """Return the files of excluded documents of committed blocks, each with its folder."""
    return list(_files(folder))


def records_of(folder: Folder, name: str, most_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, or those in about its first ``most_bytes`` decompressed bytes.

    The file is JSONL, Parquet, or a shard of images.
    """
    from gristmill.stages.text.io.compression import Damaged, decompressed
    from gristmill.stages.text.io.reader.files import opened

    with opened(folder.full_path(name), folder.options) as file:
        if name.endswith((".parquet", ".pq")):
            yield from _rows(file, name, most_bytes)
            return
        if name.endswith(SHARD):
            yield from _images(file, name, most_bytes)
            return
        try:
            for line in _lines(decompressed(file), most_bytes):
                record = fast_json.loads(line)
                if isinstance(record, dict):
                    yield record
        except (Damaged, fast_json.JSONDecodeError) as error:
            raise PlanError(f"{folder.full_path(name)} is damaged: {error}") from None


def _rows(file: Any, name: str, most_bytes: int | None) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        left = math.inf if most_bytes is None else most_bytes
        parquet = pq.ParquetFile(file)
        for batch in parquet.iter_batches(batch_size=rows_at_once(parquet)):
            yield from batch.to_pylist()
            left -= batch.nbytes
            if left <= 0:
                return
    except (pa.ArrowInvalid, OSError) as error:
        raise PlanError(f"{name} is damaged: {error}") from None


def rows_at_once(file: Any, most: int = ROWS) -> int:
    """Return how many rows of a Parquet file are held at a time: few where they are large, as images are."""
    metadata = file.metadata
    groups = [metadata.row_group(i) for i in range(min(metadata.num_row_groups, 8))]
    fits = [int(AT_ONCE_BYTES * group.num_rows // (group.total_byte_size or 1)) for group in groups]
    return max(1, min([most, *fits]))


def _images(file: Any, name: str, most_bytes: int | None) -> Iterator[dict[str, Any]]:
    from tarfile import TarError

    from gristmill.images.shards import records_in

    try:
        for record in records_in(file, LONGEST_LINE):
            yield record
            if most_bytes is not None and file.tell() >= most_bytes:
                return
    except (TarError, OSError) as error:
        raise PlanError(f"{name} is damaged: {error}") from None


def _lines(pieces: Iterable[bytes], most_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a stream, or of about its first bytes, without blank and overlong ones."""
    parts: list[bytes] = []
    size = read = 0
    for piece in pieces:
        read += len(piece)
        *whole, rest = piece.split(b"\n")
        for line in whole:
            parts.append(line)
            if size + len(line) <= LONGEST_LINE and (joined := b"".join(parts)).strip():
                yield joined
            parts, size = [], 0
        size += len(rest)
        if size <= LONGEST_LINE:
            parts.append(rest)
        else:
            parts = []
        if most_bytes is not None and read >= most_bytes:
            return  # the last line may not be whole
    if size <= LONGEST_LINE and (joined := b"".join(parts)).strip():
        yield joined

"""Documents as they were read, by their ids."""

from __future__ import annotations

import os
from tarfile import TarError
from typing import Any, BinaryIO

from gristmill import fast_json
from gristmill.images.formats import HEAD_BYTES, format_of
from gristmill.images.shards import records_in
from gristmill.ledger.dropped import SHARD
from gristmill.report.place import Data
from gristmill.report.record import text_and_id
from gristmill.storage import local_path
from gristmill.tasks.image import CAPTION, IMAGE

LONGEST_LINE = 1 << 18
LONGEST_IMAGE = 64 << 20
SHOWN_ID = 300


def document_of(ident: str) -> Data:
    """Return a document by its id, ``<file>#<position>``: what was read, as `text_and_id` shows it, if it is at hand.

    Only files on this machine are read, and no compressed ones: elsewhere a record takes as long as a file.
    """
    made: Data = {"id": ident[-SHOWN_ID:]}
    name, _, position = ident.rpartition("#")
    path = local_path(name)
    if path is None or not position.isdecimal() or not os.path.isfile(path):
        return made
    try:
        with open(path, "rb") as file:
            record = _read(file, name.lower(), int(position))
    except (OSError, OverflowError, TarError, fast_json.JSONDecodeError):
        return made
    return {**text_and_id(record), "id": made["id"]} if isinstance(record, dict) else made


def _read(file: BinaryIO, name: str, position: int) -> Any:
    """Return a record of a file; None if its format is not known."""
    if name.endswith(".jsonl"):
        file.seek(position)
        return fast_json.loads(file.readline(LONGEST_LINE))
    if name.endswith(SHARD):
        file.seek(position)
        return next(records_in(file, LONGEST_IMAGE), None)
    if name.endswith(".parquet"):
        return _row(file, position)
    head = file.read(HEAD_BYTES)
    if format_of(head) is None or position:
        return None
    record: Data = {IMAGE: head + file.read(LONGEST_IMAGE)}
    beside = os.path.splitext(file.name)[0] + ".txt"
    if os.path.isfile(beside):
        with open(beside, encoding="utf-8", errors="replace") as caption:
            record[CAPTION] = caption.read(LONGEST_LINE).strip()
    return record


def _row(file: BinaryIO, number: int) -> Data | None:
    """Return a row with an image of a Parquet file; None if it has no images, or its row group is large."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
        columns = [name for name in (IMAGE, CAPTION) if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups if IMAGE in columns else 0):
            metadata = parquet.metadata.row_group(group)
            if number < metadata.num_rows:
                if metadata.total_byte_size > LONGEST_IMAGE:
                    return None
                row: Data = parquet.read_row_group(group, columns=columns).slice(number, 1).to_pylist()[0]
                return row
            number -= metadata.num_rows
    except pa.ArrowException:
        pass
    return None

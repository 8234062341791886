"""Documents as they were read, by their ids."""

from __future__ import annotations

import os

from gristmill import fast_json
from gristmill.report.place import Data
from gristmill.report.record import text_and_id
from gristmill.storage import local_path

LONGEST_LINE = 1 << 18
SHOWN_ID = 300


def document_of(ident: str) -> Data:
    """Return a document by its id, ``<file>#<position>``: its text as it was read, if it is at hand.

    Only plain JSONL files on this machine are read: elsewhere a line takes as long as a file.
    """
    made: Data = {"id": ident[-SHOWN_ID:]}
    name, _, position = ident.rpartition("#")
    path = local_path(name)
    if path is None or not name.endswith(".jsonl") or not position.isdecimal() or not os.path.isfile(path):
        return made
    try:
        with open(path, "rb") as file:
            file.seek(int(position))
            record = fast_json.loads(file.readline(LONGEST_LINE))
    except (OSError, OverflowError, fast_json.JSONDecodeError):
        return made
    return {**text_and_id(record), "id": made["id"]} if isinstance(record, dict) else made

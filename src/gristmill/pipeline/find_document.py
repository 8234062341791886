"""One document of an input, by its id or its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

from gristmill.errors import PipelineError, PlanError
from gristmill.ledger.commits import PHASES
from gristmill.ledger.dropped import records_of
from gristmill.ledger.excluded import QUARANTINE
from gristmill.secrets import without_query
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import own_tasks
from gristmill.stages.text.io.json_columns import values_of
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.storage import Folder, local_path
from gristmill.tasks import DocumentBatch, FileBlock, Task
from gristmill.tasks.document import ID
from gristmill.tasks.image import IMAGE_ID
from gristmill.tasks.json_text import plain_text
from gristmill.tasks.video import VIDEO_ID

Stage = ProcessingStage[Any, Any]
CLIP = re.compile(r"(?P<video>.+)@\d+\.\d+-\d+\.\d+", re.DOTALL)
"""The id of a clip, which has that of its video and its times."""


class DocumentNotFound(PipelineError):
    """The input has no such document."""


def find(reader: Stage, ident: str, id_field: str) -> DocumentBatch:
    """Return the document with this id from the reader. Raise `PipelineError` if there is none."""
    blocks = own_tasks(reader)
    if not blocks:
        raise PlanError(f"{reader.name!r} reads nothing, so no document can be looked up in it")
    reader.preload()
    paths = {part.path for block in blocks if isinstance(block, FileBlock) for part in block.data}
    place, position = place_of(ident)
    if place in paths and position is not None:
        ident = f"{place}#{position}"
        found = _at(reader, blocks, place, ident, position)
    elif near := _holding(reader, blocks, place):
        found = _search(reader, near, ident, ID)
    else:
        found = _search(reader, blocks, ident, id_field)
    if found is None and (whole := _whole(ident)) is not None:
        return find(reader, whole, id_field)
    if found is None:
        raise DocumentNotFound(
            f"no document {ident!r}: no field {id_field!r} has this value, and no document begins there. Set the field "
            f"with --id-field or id_field=..., or give the file and position, as in "
            f"{next(iter(sorted(paths)), 'file.jsonl')}#0"
        )
    return found


def _whole(ident: str) -> str | None:
    """The id of the document that a part was made of: of ``<file>#<position>/<number>``, or of the id of a clip.

    >>> _whole("films/a.mp4#0/3"), _whole("a.mp4@0.000-2.500"), _whole("me@example.org")
    ('films/a.mp4#0', 'a.mp4', None)
    """
    place, _, position = ident.rpartition("#")
    document, slash, _ = position.partition("/")
    if slash and document.isdecimal():
        return f"{place}#{document}"
    clip = CLIP.fullmatch(ident)
    return clip["video"] if clip else None


def _holding(reader: Stage, blocks: Sequence[Task[Any]], path: str) -> list[Task[Any]]:
    """The blocks that may hold documents with this path in their ids."""
    if not isinstance(reader, FileReader):
        return []
    return [b for b in blocks if isinstance(b, FileBlock) and any(reader.holds(part, path) for part in b.data)]


def place_of(ident: str) -> tuple[str, int | None]:
    """Return the file and the position that an id names, with the full path of a local file."""
    place, _, position = ident.rpartition("#")
    if not place or not position.isdecimal():
        return ident, None
    local = local_path(place)
    return place if local is None else local, int(position)


def bad_record(folder: Folder, ident: str) -> str | None:
    """Return the reason why the record at this place is in quarantine; None if it is not."""
    place, position = place_of(ident)
    phases = takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1)))
    for one in (folder, *(folder.sub(phase) for phase in phases)):
        for name in one.names(QUARANTINE):
            for record in records_of(one, f"{QUARANTINE}/{name}"):
                if record.get("file") == place and record.get("position") == position:
                    return str(record.get("reason"))
    return None


def _at(reader: Stage, blocks: Sequence[Task[Any]], path: str, ident: str, position: int) -> DocumentBatch | None:
    for block in blocks:
        for part in block.data:
            plain = part.path == path and part.start <= position < part.stop
            if plain and not without_query(path).endswith(".parquet"):
                near = FileBlock([replace(part, start=position, stop=position + 1, limit=-1)], task_id=block.task_id)
                if (found := _among(reader, near, ID, ident)) is not None:
                    return found
    return _search(reader, [b for b in blocks if any(part.path == path for part in b.data)], ident, ID)


def _search(reader: Stage, blocks: Sequence[Task[Any]], ident: str, column: str) -> DocumentBatch | None:
    for block in blocks:
        if (found := _among(reader, block, column, ident)) is not None:
            return found
    return None


def _among(reader: Stage, block: Task[Any], column: str, ident: str) -> DocumentBatch | None:
    result: Any = reader.process(block)
    for batch in [result] if isinstance(result, Task) else result or ():  # a stream only as far as needed
        if column not in batch.data.column_names and column != ID:
            column = next((name for name in (IMAGE_ID, VIDEO_ID) if name in batch.data.column_names), column)
        if column in batch.data.column_names:
            # the type of the column depends on the block: 7 may be a number, a float or one of several kinds
            for row, value in enumerate(values_of(batch.data, column)):
                if ident in (str(value), plain_text(value)):
                    return DocumentBatch(batch.data.slice(row, 1), task_id=block.task_id)
    return None

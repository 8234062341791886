"""JSON values as Arrow columns.

Strings are ``large_string``, whole numbers ``int64``, other numbers ``double``, true and false ``bool``; a missing
value and ``null`` are null. Lists are lists of one of these types and objects are structs, to any depth. Values that
have no such type in common, and numbers that it would round, are the JSON text as it stands, in a string column whose
field has ``{"gristmill": "json"}`` in its metadata.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.stages.text.io.json_types import is_rounded, type_of_values
from gristmill.stages.text.io.raw_lines import Scanned, strings
from gristmill.tasks.arrow import EXACT, is_json
from gristmill.tasks.json_text import plain_text, value_of

JSON = {b"gristmill": b"json"}
"""Metadata of a field whose strings are JSON text."""
AS_READ = {b"gristmill": b"read"}
"""Metadata of a field whose values were read from the line as they are."""
ABSENT = {b"gristmill": b"absent"}
"""Metadata of a field that a reader made though no document has it: its type says nothing."""

__all__ = ["ABSENT", "AS_READ", "JSON", "column", "is_exact", "is_json", "plain_strings", "values_of", "was_read"]


def values_of(table: pa.Table, name: str) -> list[Any]:
    """The values of a column in Python. JSON text is read."""
    values: list[Any] = table.column(name).to_pylist()
    if not is_json(table.schema.field(name)):
        return values
    return [None if text is None else value_of(text) for text in values]


def plain_strings(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column; if its values are of several kinds, or lists or objects, as text: strings without their quotes."""
    found = table.column(name)
    if not is_json(table.schema.field(name)) and not pa.types.is_nested(found.type):
        return found
    texts = [plain_text(value) for value in values_of(table, name)]
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def is_exact(field: pa.Field) -> bool:
    """Whether each text of a column of JSON text is JSON, as no stage has put plain texts there."""
    return is_json(field) and EXACT.encode() in field.metadata


def was_read(field: pa.Field) -> bool:
    """Whether a reader made the column. Others may have set its values since, if they kept its field."""
    return bool(field.metadata) and b"gristmill" in field.metadata


def column(scanned: Scanned, key: int) -> tuple[pa.Field, pa.Array]:
    """The values of a key in all lines."""
    name = scanned.keys[key]
    texts, is_string = strings(scanned, key)
    there = scanned.spans[:, key, 0] >= 0
    others = np.flatnonzero(there & ~is_string).tolist()
    if not there.any():
        return pa.field(name, pa.large_string(), metadata=ABSENT), texts
    if not others:
        return pa.field(name, pa.large_string(), metadata=AS_READ), texts
    raw = [scanned.value(row, key) for row in range(len(there))]
    # one call for all: what stands in the lines is valid already
    values: list[Any] = fast_json.loads(b"[" + b",".join(b"null" if x is None else x for x in raw) + b"]")
    kind = type_of_values(values)
    if kind is not None and not any(x is not None and len(x) > 17 and is_rounded(x) for x in raw):
        return pa.field(name, kind, metadata=AS_READ), pa.array(values, type=kind)
    shown = [x.decode() if x is not None and values[i] is not None else None for i, x in enumerate(raw)]
    return pa.field(name, pa.large_string(), metadata=JSON), pa.array(shown, type=pa.large_string())

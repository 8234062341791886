"""JSON values as Arrow columns.

Strings are ``large_string``, whole numbers ``int64``, other numbers ``double``, true and false ``bool``; a missing
value and ``null`` are null. Lists of one of these are lists of it. Anything else, that is objects, deeper lists,
numbers that would be rounded and columns of several kinds, is the JSON text as it stands, in a string column whose
field says so (``{"gristmill": "json"}`` in its metadata).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.stages.text.io.raw_lines import Scanned, strings

JSON = {b"gristmill": b"json"}
"""Metadata of a field whose strings are JSON text."""
AS_READ = {b"gristmill": b"read"}
"""Metadata of a field whose values were read from the line as they are."""
MAX_EXACT = 2**53


def is_json(field: pa.Field) -> bool:
    return bool(field.metadata) and field.metadata.get(b"gristmill") == b"json"


def plain_strings(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column; if it is JSON text, because its values are of several kinds, strings without their quotes."""
    found = table.column(name)
    if not is_json(table.schema.field(name)):
        return found
    read = (None if text is None else fast_json.loads(text) for text in found.to_pylist())
    texts = [None if x is None else x if isinstance(x, str) else fast_json.dumps(x).decode() for x in read]
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def was_read(field: pa.Field) -> bool:
    """Whether a reader made the column. Others may have set its values since, if they kept its field."""
    return bool(field.metadata) and b"gristmill" in field.metadata


def column(scanned: Scanned, key: int) -> tuple[pa.Field, pa.Array]:
    """The values of a key in all lines."""
    name = scanned.keys[key]
    texts, is_string = strings(scanned, key)
    there = scanned.spans[:, key, 0] >= 0
    others = np.flatnonzero(there & ~is_string).tolist()
    if not others:
        return pa.field(name, pa.large_string(), metadata=AS_READ), texts
    raw = [scanned.value(row, key) for row in range(len(there))]
    # one call for all: what stands in the lines is valid already
    values: list[Any] = fast_json.loads(b"[" + b",".join(b"null" if x is None else x for x in raw) + b"]")
    kind = _kind(values, raw)
    if kind is not None:
        return pa.field(name, kind, metadata=AS_READ), pa.array(values, type=kind)
    shown = [x.decode() if x is not None and values[i] is not None else None for i, x in enumerate(raw)]
    return pa.field(name, pa.large_string(), metadata=JSON), pa.array(shown, type=pa.large_string())


def _kind(values: list[Any], raw: list[bytes | None]) -> pa.DataType | None:
    """The type that holds all values exactly; None if there is none."""
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return pa.null()
    if kinds == {list}:
        flat = [x for value in values if value is not None for x in value]
        if any(x is None for x in flat) or any(isinstance(x, float) and abs(x) >= MAX_EXACT for x in flat):
            return None
        inner = _scalar_kind({type(x) for x in flat}, flat)
        if inner is None:
            return None
        return pa.list_(inner)
    if any(x is not None and len(x) > 17 and is_rounded(x) for x in raw):
        return None
    return _scalar_kind(kinds, values)


def _scalar_kind(kinds: set[type], values: list[Any]) -> pa.DataType | None:
    if kinds == {str}:
        return pa.large_string()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64() if all(x is None or -(2**63) <= x < 2**63 for x in values) else None
    if kinds == {float}:
        return pa.float64()
    if kinds == {int, float}:
        exact = all(abs(x) <= MAX_EXACT for x in values if isinstance(x, int))
        return pa.float64() if exact else None
    return None


def is_rounded(number: bytes) -> bool:
    """Whether a whole number is so large that a parser makes a float of it."""
    return number.lstrip(b"-").isdigit() and not -(2**63) <= int(number) < 2**63

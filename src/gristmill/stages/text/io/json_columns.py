"""JSON values as Arrow columns.

Strings are ``large_string``, whole numbers ``int64``, other numbers ``double``, true and false ``bool``; a missing
value and ``null`` are null. Lists are lists of one of these types and objects are structs, to any depth. Values that
have no such type in common, and numbers that it would round, are the JSON text as it stands, in a string column whose
field has ``{"gristmill": "json"}`` in its metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.stages.text.io.raw_lines import Scanned, strings
from gristmill.tasks.arrow import EXACT, is_json
from gristmill.tasks.json_text import MAX_EXACT, plain_text, value_of

JSON = {b"gristmill": b"json"}
"""Metadata of a field whose strings are JSON text."""
AS_READ = {b"gristmill": b"read"}
"""Metadata of a field whose values were read from the line as they are."""
ABSENT = {b"gristmill": b"absent"}
"""Metadata of a field that a reader made though no document has it: its type means nothing."""

__all__ = [
    *("ABSENT", "AS_READ", "JSON", "column", "is_exact", "is_json", "is_usable", "plain_strings", "type_of_values"),
    *("values_of", "was_read"),
]


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
    if kind is not None and not any(x is not None and len(x) > 17 and _is_rounded(x) for x in raw):
        return pa.field(name, kind, metadata=AS_READ), pa.array(values, type=kind)
    shown = [x.decode() if x is not None and values[i] is not None else None for i, x in enumerate(raw)]
    return pa.field(name, pa.large_string(), metadata=JSON), pa.array(shown, type=pa.large_string())


MAX_DEPTH = 32
"""Values that are nested deeper than this stay JSON text."""
MAX_FIELDS = 1000
"""Objects with more fields than this, in all documents together, are taken for dictionaries: they stay JSON text."""


def type_of_values(values: Iterable[Any]) -> pa.DataType | None:
    """The type of all values; None if they have none in common, or it would round a number."""
    found = _type(values, 0)
    return found if found is not None and is_usable(found) else None


def is_usable(kind: pa.DataType) -> bool:
    """Whether a type of values from JSON is small enough to be the type of a column."""
    return all(number < MAX_FIELDS and depth <= MAX_DEPTH for number, depth in enumerate(_leaves(kind, 0)))


def _is_rounded(number: bytes) -> bool:
    """Whether a whole number is so large that a parser makes a float of it."""
    return number.lstrip(b"-").isdigit() and not -(2**63) <= int(number) < 2**63


def _leaves(kind: pa.DataType, depth: int) -> Iterator[int]:
    """The depth of each type in a type that holds no other."""
    if not kind.num_fields:
        yield depth
    for i in range(kind.num_fields):
        yield from _leaves(kind.field(i).type, depth + 1)


def _type(values: Iterable[Any], depth: int) -> pa.DataType | None:
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if not kinds:
        return pa.null()
    if depth > MAX_DEPTH:
        return None
    if kinds == {list}:
        inner = _type((item for value in there for item in value), depth + 1)
        return None if inner is None else pa.list_(inner)
    if kinds == {dict}:
        return _struct(there, depth)
    return _scalar_type(kinds, there, depth)


def _struct(values: list[dict[str, Any]], depth: int) -> pa.DataType | None:
    members: dict[str, list[Any]] = {}
    for value in values:
        for key, member in value.items():
            members.setdefault(key, []).append(member)
    if len(members) > MAX_FIELDS:
        return None
    fields = []
    for key, found in members.items():
        kind = _type(found, depth + 1)
        if kind is None:
            return None
        fields.append(pa.field(key, kind))
    return pa.struct(fields)


def _scalar_type(kinds: set[type], values: list[Any], depth: int) -> pa.DataType | None:
    if kinds == {str}:
        return pa.large_string()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64() if all(-(2**63) <= x < 2**63 for x in values) else None
    if kinds not in ({float}, {int, float}):
        return None
    if depth and any(abs(x) >= MAX_EXACT for x in values):  # it may have been a whole number that was rounded
        return None
    exact = all(abs(x) <= MAX_EXACT for x in values if isinstance(x, int))
    return pa.float64() if exact else None

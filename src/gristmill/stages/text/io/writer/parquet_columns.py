"""Columns as they are written to Parquet, and the one schema that all parts of an output have at the end.

A worker sees one block, so the types of a part are those of its block. A column that Parquet cannot hold, or whose
values are of several kinds, carries a note in its field until all parts are there; see docs/text.md.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill.stages.text.io.json_columns import is_usable
from gristmill.stages.text.io.json_values import holds_bytes
from gristmill.tasks.arrow import is_json
from gristmill.tasks.image import IMAGE
from gristmill.tasks.json_text import canonical, plain_text, text_of, value_of

NOTE = b"gristmill"
JSON, MIXED, ABSENT = b"json", b"mixed", b"absent"
OTHERS = b"gristmill.others"
"""Of a column of several kinds that was written as text: which rows hold no strings."""
TYPE = b"gristmill.type"
"""Of a column that was written as JSON text since Parquet cannot hold its type: the type."""


ROW_GROUP_BYTES = 32 << 20
"""Of tables with images."""


def row_groups_of(table: pa.Table) -> dict[str, int]:
    """The size of the row groups of a table with images: few in each, as files are read by row groups."""
    if IMAGE not in table.column_names or table.nbytes <= ROW_GROUP_BYTES:
        return {}
    return {"row_group_size": max(1, table.num_rows * ROW_GROUP_BYTES // table.nbytes)}


class DoesNotFit(ValueError):
    """Values of a column do not fit the type that the column is to have."""


@dataclass(frozen=True)
class Target:
    """The type of a column in all parts."""

    name: str
    kind: pa.DataType | None
    """None: text, or JSON text."""
    is_json: bool = False
    found: tuple[str, ...] = ()
    """The types that it has in parts, in words, where they have nothing in common."""

    def field(self) -> pa.Field:
        if self.kind is not None:
            return pa.field(self.name, self.kind)
        return pa.field(self.name, pa.large_string(), metadata={NOTE: JSON} if self.is_json else None)


def note_of(field: pa.Field) -> bytes:
    note: bytes = (field.metadata or {}).get(NOTE, b"")
    return note


def absent(name: str) -> pa.Field:
    """The field of a column that no document of a part has: others decide on its type."""
    return pa.field(name, pa.large_string(), metadata={NOTE: ABSENT})


def provisional(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray | pa.Array]:
    """A column as a part holds it until all parts are there."""
    others = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(NOTE)}
    if note_of(field) == ABSENT and column.null_count == len(column):
        return absent(field.name), column
    if is_json(field):
        values = [_value(text) for text in column.to_pylist()]
        if any(isinstance(value, list | dict) for value in values):
            return field.with_metadata({**others, NOTE: JSON}), _json_array(values)
        bits = np.packbits([not isinstance(value, str) for value in values], bitorder="little").tobytes()
        notes = {NOTE: MIXED, OTHERS: base64.b64encode(bits)}
        return field.with_metadata({**others, **notes}), _text_array(values)
    if not can_be_written(field.type):
        kind = base64.b64encode(pa.schema([pa.field("", field.type)]).serialize().to_pybytes())
        json = field.with_type(pa.large_string()).with_metadata({**others, NOTE: JSON, TYPE: kind})
        return json, _json_array(column.to_pylist())
    return field.with_metadata(others), column


def cast(field: pa.Field, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column with a type that the user has set. Values of several kinds, lists and objects are cast as text."""
    to_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_json(field):
        return pa.chunked_array([_text_array([_value(text) for text in column.to_pylist()])]).cast(kind)
    if pa.types.is_nested(column.type) or (to_text and pa.types.is_floating(column.type)):
        return pa.chunked_array([_text_array(column.to_pylist())]).cast(kind)
    return column.cast(kind)


def can_be_written(kind: pa.DataType) -> bool:
    """Whether Parquet holds a type: it has no objects without members."""
    if pa.types.is_struct(kind) and not kind.num_fields:
        return False
    return all(can_be_written(kind.field(i).type) for i in range(kind.num_fields))


def targets(schemas: Sequence[pa.Schema], as_text: frozenset[str] = frozenset()) -> list[Target]:
    """Return the type of each column in all parts, in the order of first use. ``as_text`` columns have no type."""
    by_name: dict[str, list[pa.Field]] = {}
    for schema in schemas:
        for field in schema:
            by_name.setdefault(field.name, []).append(field)
    return [_target(name, fields, name in as_text) for name, fields in by_name.items()]


def _target(name: str, fields: Sequence[pa.Field], as_text: bool) -> Target:
    kinds = [_type(field) for field in fields]
    typed = [kind for kind in kinds if kind is not None]
    found = tuple(dict.fromkeys("values of several kinds" if kind is None else str(kind) for kind in kinds))
    if len(typed) == len(kinds) and not as_text:
        kind = _common(typed)
        if kind is not None:
            nowhere = pa.types.is_null(kind) and any(note_of(field) == ABSENT for field in fields)
            return Target(name, pa.large_string() if nowhere else kind)
    if any(holds_bytes(kind) for kind in typed):
        raise DoesNotFit(name)
    json = any(note_of(field) == JSON for field in fields) or any(pa.types.is_nested(kind) for kind in typed)
    return Target(name, None, json, found)


def _type(field: pa.Field) -> pa.DataType | None:
    """The type of the values of a column in a part; None if they have none."""
    if kind := (field.metadata or {}).get(TYPE):
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kind))).field(0).type
    if note_of(field) == ABSENT:
        return pa.null()
    return None if note_of(field) in (JSON, MIXED) else field.type


def _common(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """A type for all; None if there is none, or Parquet cannot hold it."""
    try:
        schemas = [pa.schema([pa.field("", kind)]) for kind in dict.fromkeys(kinds)]
        kind = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return kind if can_be_written(kind) and (len(schemas) == 1 or is_usable(kind)) else None


def signature(schema: pa.Schema) -> tuple[Any, ...]:
    """The part of a schema that its columns in the output depend on."""
    return tuple((field.name, str(field.type), note_of(field), (field.metadata or {}).get(TYPE)) for field in schema)


def is_conform(schema: pa.Schema, wanted: Sequence[Target]) -> bool:
    """Whether a part has the columns of the output as they are to be."""
    if schema.names != [target.name for target in wanted]:
        return False
    for field, target in zip(schema, wanted, strict=True):
        goal = target.field()
        if field.type != goal.type or note_of(field) != note_of(goal) or TYPE in (field.metadata or {}):
            return False
    return True


def conform(table: pa.Table, wanted: Sequence[Target]) -> pa.Table:
    """A part with the columns of the output. `DoesNotFit` with the name of a column that would lose something."""
    arrays, fields = [], []
    for target in wanted:
        goal = target.field()
        where = table.schema.get_field_index(target.name)
        if where < 0:
            arrays.append(pa.nulls(table.num_rows, goal.type))
        else:
            field = table.schema.field(where)
            arrays.append(_converted(field, table.column(where), target))
            kept = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(NOTE)}
            goal = goal.with_metadata({**kept, **(goal.metadata or {})})
        fields.append(goal)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=table.schema.metadata))


def _converted(field: pa.Field, column: pa.ChunkedArray, target: Target) -> pa.ChunkedArray | pa.Array:
    if target.kind is not None:
        if field.type == target.kind and not note_of(field):
            return column
        try:
            if note_of(field) == JSON or pa.types.is_nested(target.kind):
                return pa.array(_values(field, column), target.kind)
            return pa.nulls(len(column), target.kind) if note_of(field) == ABSENT else column.cast(target.kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
            raise DoesNotFit(target.name) from None
    if not target.is_json:
        if note_of(field) == MIXED or pa.types.is_large_string(column.type):
            return column
        return _text_array(column.to_pylist())
    return column if note_of(field) == JSON else _json_array(_values(field, column))


def _values(field: pa.Field, column: pa.ChunkedArray) -> list[Any]:
    """The values of a column in a part, in Python."""
    values: list[Any] = column.to_pylist()
    if note_of(field) == JSON:
        return [_value(text) for text in values]
    if note_of(field) == MIXED:
        bits = np.frombuffer(base64.b64decode(field.metadata[OTHERS]), np.uint8)
        others = np.unpackbits(bits, bitorder="little")[: len(values)].tolist()
        return [value_of(text) if bit and text is not None else text for text, bit in zip(values, others, strict=True)]
    return values


def _value(text: str | None) -> Any:
    """The value of JSON text; a text that is no JSON is a string that a stage has set."""
    try:
        return None if text is None else value_of(text)
    except ValueError:
        return text


def _json_array(values: Sequence[Any]) -> pa.Array:
    texts = [None if value is None else text_of(canonical(value)) for value in values]
    return pa.array(texts, pa.large_string())


def _text_array(values: Sequence[Any]) -> pa.Array:
    return pa.array([plain_text(value) for value in values], pa.large_string())

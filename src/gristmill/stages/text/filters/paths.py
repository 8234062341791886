"""Fields inside objects, by their path: ``meta.src.crawl``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.stages.text.io.json_columns import type_of_values, values_of
from gristmill.tasks.arrow import is_json, one_array
from gristmill.tasks.json_text import plain_text


def column_at(table: pa.Table, path: str) -> pa.ChunkedArray:
    """Return the values at a path in each document; null if there is none.

    A field whose name equals the path wins, document by document. A key that contains dots wins over the objects that
    its parts name.
    """
    found = list(_candidates(table, path))
    if not found:
        return pa.chunked_array([pa.nulls(table.num_rows)])
    if len(found) > 1:
        rows = zip(*(column.to_pylist() for column in found), strict=True)
        found = [_array([next((value for value in row if value is not None), None) for row in rows])]
    return found[0] if isinstance(found[0], pa.ChunkedArray) else pa.chunked_array([found[0]])


def _candidates(table: pa.Table, path: str) -> Iterator[pa.Array | pa.ChunkedArray]:
    for name, rest in _splits(path):
        if name not in table.column_names:
            continue
        field = table.schema.field(name)
        if not rest and not is_json(field):
            yield table.column(name)
        elif pa.types.is_struct(field.type) and not is_json(field):
            yield from _in_struct(one_array(table.column(name)), rest)
        elif is_json(field):
            yield _array([_in_value(value, rest) if rest else value for value in values_of(table, name)])


def _splits(path: str) -> Iterator[tuple[str, str]]:
    """Yield the first keys that a path may mean, the longest first, each with the rest of the path."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        yield ".".join(parts[:count]), ".".join(parts[count:])


def _in_struct(array: pa.Array, path: str) -> Iterator[pa.Array]:
    for name, rest in _splits(path):
        where = array.type.get_field_index(name)
        if where < 0:
            continue
        member = pc.struct_field(array, [where])
        if not rest:
            yield member
        elif pa.types.is_struct(member.type):
            yield from _in_struct(member, rest)


def _in_value(value: Any, path: str) -> Any:
    for name, rest in _splits(path):
        if isinstance(value, dict) and value.get(name) is not None:
            found = _in_value(value[name], rest) if rest else value[name]
            if found is not None:
                return found
    return None


def _array(values: Sequence[Any]) -> pa.Array:
    """Return values as an array; as text if they have no common type."""
    kind = type_of_values(values)
    if kind is not None:
        return pa.array(values, kind)
    return pa.array([plain_text(value) for value in values], pa.large_string())

"""Answers as columns, with types that follow from the schema and not from the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill.tasks import BadRecord, DocumentBatch
from gristmill.tasks.document import ID

if TYPE_CHECKING:
    import pyarrow as pa

TEXT: Mapping[str, Any] = {"type": "string"}


def type_of(schema: Mapping[str, Any]) -> Any:
    """The Arrow type of values that match a schema; None for those that are stored as JSON text."""
    import pyarrow as pa

    kind = schema.get("type")
    if kind is None and isinstance(schema.get("enum"), list):
        kinds = {type(value) for value in schema["enum"]}
        kind = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        member = type_of(schema["items"])
        return None if member is None else pa.large_list(member)
    simple = {"string": pa.large_string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    return simple.get(kind) if isinstance(kind, str) else None


def list_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of several such values."""
    return {"type": "array", "items": schema}


def with_column(table: pa.Table, name: str, values: Sequence[Any], schema: Mapping[str, Any]) -> pa.Table:
    """Return a table with a column of values that match a schema. A column of that name is replaced."""
    import pyarrow as pa

    from gristmill.tasks.arrow import json_field
    from gristmill.tasks.json_text import text_of

    kind = type_of(schema)
    if kind is None:
        made = json_field(name)
        column = pa.array([None if one is None else text_of(one) for one in values], pa.large_string())
    else:
        made = pa.field(name, kind)
        column = pa.array([_fitting(one, kind) for one in values], kind)
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), made, column)
    return table.append_column(made, column)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Whole numbers such as 3.0, which JSON schema accepts as integers, as Arrow accepts them."""
    import pyarrow as pa

    if isinstance(value, list):
        return [_fitting(one, kind.value_type) for one in value]
    if isinstance(value, float) and pa.types.is_integer(kind):
        return int(value)
    return float(value) if isinstance(value, int) and pa.types.is_floating(kind) else value


def without_rows(batch: DocumentBatch, problems: Mapping[int, BadRecord]) -> DocumentBatch:
    """Return the batch without some rows, which are reported as records that could not be processed."""
    if not problems:
        return batch
    kept = batch.keep([row not in problems for row in range(batch.num_items)])
    kept.account.dropped.pop()  # they are bad, not dropped
    kept.account.bad += [record for _, record in sorted(problems.items())]
    return kept


def bad_record(ident: str, reason: str, raw: str, may_pass: bool) -> BadRecord:
    """A document without a usable answer, for the account."""
    file, _, position = ident.rpartition("#")
    where = position.partition("/")[0]
    data = raw.encode("utf-8", "backslashreplace")
    return BadRecord(file or ident, int(where) if where.isdecimal() else 0, reason, data, is_failure=may_pass)


def ids_of(batch: DocumentBatch) -> list[str]:
    """The ids of the documents, or their numbers if they have none."""
    if not batch.has_ids:
        return [f"#{row}" for row in range(batch.num_items)]
    return [str(ident) for ident in batch.values_of(ID).to_pylist()]

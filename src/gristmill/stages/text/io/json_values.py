"""Arrow columns as JSON text, and how they differ from the lines that they were read from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill import fast_json
from gristmill.lazy import Array
from gristmill.stages.text.io import json_columns
from gristmill.stages.text.io.raw_lines import Edges, Scanned, strings, texts
from gristmill.tasks.arrow import is_json, mask_of
from gristmill.tasks.json_text import same, text_of, value_of, without_fill


def dumped(field: pa.Field, array: pa.Array) -> Edges:
    """Each value as JSON. Not a number and infinite is null, dates and times are ISO 8601."""
    kind = array.type
    check_no_bytes(field)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        array = pc.replace_substring(array.cast(pa.string()), " ", "T")
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.string())
    elif pa.types.is_duration(kind):
        array = array.cast(pa.int64())
    if pa.types.is_string(array.type):
        array = array.cast(pa.large_string())
    if pa.types.is_large_string(array.type) and not array.null_count and not is_json(field):
        from gristmill.kernels import json_lines

        plain = Edges.of_column(array)
        data, edges = json_lines.escape(plain.data, plain.starts, plain.ends)
        return Edges(data, edges[:-1], edges[1:])
    return Edges.of_list(_dumped_values(field, array))


def dumped_nested(scanned: Scanned, key: int, rows: Array, array: pa.Array) -> Edges:
    """Lists and objects of ``rows`` as JSON, without null members that are neither in the line nor set by a stage."""
    values = []
    for row, value in zip(rows.tolist(), array.to_pylist(), strict=True):
        said = scanned.value(row, key)
        values.append(text_of(value if said is None else without_fill(value_of(said), value)).encode())
    return Edges.of_list(values)


def check_no_bytes(field: pa.Field) -> None:
    """Raise `TypeError` if a column holds binary data."""
    if holds_bytes(field.type):
        raise TypeError(
            f"column {field.name!r} holds binary data, which JSON cannot hold: leave it out by fields=[...], "
            "turn it into text before, or write Parquet."
        )


def _dumped_values(field: pa.Field, array: pa.Array) -> list[bytes]:
    values = array.to_pylist()
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type):
        return fast_json.dumps(values)[1:-1].split(b",") if values else []
    if is_json(field):
        return [_verbatim(value) for value in values]
    return [text_of(value).encode() for value in values]


def holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return True
    return any(holds_bytes(kind.field(i).type) for i in range(kind.num_fields))


def _verbatim(text: str | None) -> bytes:
    """JSON text as it is; what is no JSON, as a string."""
    if text is None:
        return b"null"
    try:
        fast_json.loads(text)
    except fast_json.JSONDecodeError:
        return fast_json.dumps(text)
    return text.encode()


def nothing(array: pa.Array) -> Array:
    """True where a value is null or not a number."""
    mask = array.is_null(nan_is_null=True) if pa.types.is_floating(array.type) else array.is_null()
    result: Array = mask_of(mask)
    return result


def is_json_text(scanned: Scanned, key: int, field: pa.Field, array: pa.Array) -> bool:
    """Whether the strings of a column are JSON text.

    If a stage has set the column, its field does not tell. Then it is JSON text if a reader would make JSON text, or
    lists or objects, of these lines.
    """
    if not _is_string(array.type):
        return False
    if json_columns.was_read(field):
        return is_json(field)
    start = scanned.spans[:, key, 0]
    signs = scanned.lines.data[start[start >= 0]]
    if ((signs == ord('"')) | (signs == ord("n"))).all():
        return False
    said, _ = json_columns.column(scanned, key)
    return is_json(said) or pa.types.is_nested(said.type)


def dumped_like(scanned: Scanned, key: int, rows: Array, field: pa.Field, array: pa.Array) -> Edges:
    """JSON text of ``rows``, in a column in which stages may have put plain texts, unless its field rules that out.

    An object may be replaced by a JSON object, a list by a list, a missing value by either, another value by any JSON.
    All other texts become strings.
    """
    values: list[bytes] = []
    for row, text in zip(rows.tolist(), array.to_pylist(), strict=True):
        said = (scanned.value(row, key) or b"null")[:1]
        if json_columns.is_exact(field):
            values.append(_verbatim(text))
            continue
        kinds = (said,) if said in b"{[" else (b"{", b"[") if said == b"n" else ()
        fits = text is None or not kinds or text.encode().lstrip()[:1] in kinds
        values.append(_verbatim(text) if fits else fast_json.dumps(text))
    return Edges.of_list(values)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind)) or str(kind) == "string_view"


def changed(scanned: Scanned, key: int, array: pa.Array, is_json: bool) -> Array:
    """The rows in which the value of a column differs from the value in the line.

    A null is no change of a field that is missing or null. Strings are compared with the string in the line, JSON text
    with the text of the value.
    """
    if _is_string(array.type):
        array = array.cast(pa.large_string())
    start = scanned.spans[:, key, 0]
    there = start >= 0
    empty = nothing(array)
    if not there.any():
        return np.flatnonzero(~empty)
    is_null = there.copy()
    is_null[there] = scanned.lines.data[start[there]] == ord("n")
    unchanged: Array = empty & (~there | is_null)
    if pa.types.is_large_string(array.type):
        if not is_json:
            unchanged |= _equal(array, strings(scanned, key)[0])
            return np.flatnonzero(~unchanged)
        unchanged |= _equal(array.cast(pa.large_binary()), texts(scanned, key))
    else:
        said = json_columns.column(scanned, key)[1]
        if said.type == array.type and pa.types.is_primitive(array.type):
            unchanged |= _equal(array, said)
        elif said.type == array.type and said.equals(array):
            return np.zeros(0, np.int64)
    for row in np.flatnonzero(there & ~unchanged).tolist():
        text = scanned.value(row, key)
        assert text is not None
        unchanged[row] = _says(array[row].as_py(), is_json, text)
    return np.flatnonzero(~unchanged)


def _says(value: Any, is_json: bool, text: bytes) -> bool:
    """Whether a value of a column, or its JSON text, equals the value in a line."""
    if is_json and value is not None:
        try:
            value = value_of(value)
        except fast_json.JSONDecodeError:
            return False
    return same(value_of(text), value)


def _equal(one: pa.Array, other: pa.Array) -> Array:
    equal = pc.equal(one, other)
    mask: Array = mask_of(equal) & mask_of(equal.is_valid())
    return mask

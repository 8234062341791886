"""Conversions between Arrow and pandas data and the table in a `DocumentBatch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gristmill.tasks.json_text import text_of, value_of

if TYPE_CHECKING:
    import pandas as pd

SHORT_STRINGS = ("string", "string_view")
FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
"""NumPy's names of the numbers that Arrow has other names for."""
NOTES = "gristmill"
"""The key under which fields note that strings are JSON text, and frames, by their ``attrs``, which columns were."""
EXACT = "gristmill.exact"
"""The key under which fields note that each of their strings is JSON, and none is a plain text that a stage has set."""
_JSON_VALUES = (str, int, float, bool, list, dict, type(None))
SLACK_BYTES = 1024
"""Buffers larger than what is shown by no more than this are not worth a copy."""


def as_table(data: Any) -> pa.Table:
    """``data`` as a table with ``large_string`` columns and without pandas' notes on the index.

    The notes would turn columns of files that pandas wrote into an index in `to_frame`, and lose them there.
    """
    # An object of pandas exists only if pandas was imported: no need to pay for the import here.
    pandas = sys.modules.get("pandas")
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif pandas is not None and isinstance(data, pandas.DataFrame):
        table = _of_frame(data)
    else:
        kind = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"DocumentBatch takes a pyarrow Table or RecordBatch or a pandas DataFrame, not {kind}. "
            "Rows as dicts: pyarrow.Table.from_pylist(rows); columns as a dict: pyarrow.table(columns)."
        )
    return _with_large_strings(_without_pandas_notes(table))


def _of_frame(frame: pd.DataFrame) -> pa.Table:
    """A frame as a table. Columns of JSON text, and those whose values have no type in common, are JSON text."""
    noted = [name for name in frame.attrs.get(NOTES) or () if name in frame.columns and frame[name].dtype == object]
    rest = frame.drop(columns=noted) if noted else frame
    try:
        table = pa.Table.from_pandas(rest, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        mixed = _without_type(rest)
        if not mixed:
            raise
        noted += mixed
        table = pa.Table.from_pandas(rest.drop(columns=mixed), preserve_index=False)
    if not noted:
        return table
    others = iter(zip(table.schema, table.columns, strict=True))
    made = [
        (json_field(str(name)), json_array(frame[name].tolist())) if name in noted else next(others)
        for name in frame.columns
    ]
    fields, arrays = zip(*made, strict=True)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=table.schema.metadata))


def _without_type(frame: pd.DataFrame) -> list[str]:
    """The columns whose values are such as JSON has, but have no Arrow type in common."""
    found = []
    for name in frame.columns:
        if frame[name].dtype == object:
            try:
                pa.array(frame[name], from_pandas=True)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                if not all(isinstance(value, _JSON_VALUES) for value in frame[name]):
                    raise
                found.append(name)
    return found


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts. JSON text is read."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for field in table.schema:
        if is_json(field):
            for row in rows:
                row[field.name] = None if row[field.name] is None else value_of(row[field.name])
    return rows


def is_json(field: pa.Field) -> bool:
    """Whether the strings of a column are JSON text."""
    return bool(field.metadata) and field.metadata.get(NOTES.encode()) == b"json"


def json_field(name: str) -> pa.Field:
    """The field of a column of JSON text that was made of values: each text is JSON, a string has its quotes."""
    return pa.field(name, pa.large_string(), metadata={NOTES: "json", EXACT: "1"})


def json_array(values: Sequence[Any]) -> pa.Array:
    """Values of a frame as JSON text. What pandas takes for missing is null: None, not a number, `pandas.NA`."""
    import pandas as pd

    missing = [pd.api.types.is_scalar(value) and pd.isna(value) for value in values]
    texts = [None if gone else text_of(value) for value, gone in zip(values, missing, strict=True)]
    return pa.array(texts, pa.large_string())


def _without_pandas_notes(table: pa.Table) -> pa.Table:
    metadata = table.schema.metadata
    if not metadata or b"pandas" not in metadata:
        return table
    return table.replace_schema_metadata({k: v for k, v in metadata.items() if k != b"pandas"} or None)


def _with_large_strings(table: pa.Table) -> pa.Table:
    if not any(str(field.type) in SHORT_STRINGS for field in table.schema):
        return table
    fields: list[Any] = [
        field.with_type(pa.large_string()) if str(field.type) in SHORT_STRINGS else field for field in table.schema
    ]
    metadata: Any = table.schema.metadata
    return table.cast(pa.schema(fields, metadata=metadata))


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A frame from which `as_table` gives the same values back."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("to_pandas() needs pandas: pip install 'gristmill[pandas]'.") from None
    holes = {c.type for c in table.columns if pa.types.is_integer(c.type) and c.null_count}
    # 'int64' is 'Int64' among pandas' nullable types, 'uint8' is 'UInt8'
    nullable: dict[Any, Any] = {
        t: pd.api.types.pandas_dtype(str(t).replace("uint", "UInt").replace("int", "Int")) for t in holes
    }
    nested = [field for field in table.schema if _gives_objects(field)]
    if len(set(table.column_names)) < table.num_columns:
        nested = []
    frame: pd.DataFrame = table.drop_columns([field.name for field in nested]).to_pandas(types_mapper=nullable.get)
    for field in nested:
        values = table.column(field.name).to_pylist()
        if is_json(field):
            values = [None if text is None else value_of(text) for text in values]
        column = pd.Series(values, index=frame.index, dtype=object)
        frame.insert(table.schema.get_field_index(field.name), field.name, column)
    if json_text := {field.name: "json" for field in nested if is_json(field)}:
        frame.attrs[NOTES] = json_text
    return frame


def _gives_objects(field: pa.Field) -> bool:
    """Whether a column from JSON holds lists, objects or values of several kinds, which are Python's own in pandas."""
    return is_json(field) or (pa.types.is_nested(field.type) and NOTES.encode() in (field.metadata or {}))


def one_array(column: pa.Array | pa.ChunkedArray) -> Any:
    """A column as one array. It is not copied if it is one already, as `combine_chunks` would do."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def mask_array(mask: Any) -> pa.Array:
    """Booleans of NumPy as an Arrow array. `pa.array` would import pandas, where there is one, to look at them."""
    import numpy as np

    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))])


def mask_of(array: pa.Array) -> Any:
    """An Arrow array of booleans as one of NumPy; what a null becomes is open. `to_numpy` would import pandas."""
    import numpy as np

    if not len(array):
        return np.zeros(0, dtype=bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def int_array(values: Any) -> pa.Array:
    """Integers of NumPy as an Arrow array, without pandas."""
    import numpy as np

    return number_array(np.asarray(values, np.int64))


def number_array(values: Any, there: Any = None) -> pa.Array:
    """Numbers of NumPy as an Arrow array of the same type, without pandas; null where ``there`` is False."""
    import numpy as np

    nulls = None if there is None else pa.py_buffer(np.packbits(there, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [nulls, data])


def numbers_of(column: pa.Array | pa.ChunkedArray) -> Any:
    """A column of numbers without nulls as a read-only array of NumPy, without pandas."""
    import numpy as np

    array = one_array(column)
    if array.null_count or not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return array.to_numpy(zero_copy_only=False)
    # not by to_pandas_dtype, for which some versions of pyarrow import pandas
    kind = np.dtype(FLOATS.get(str(array.type), str(array.type)))
    if not len(array):  # its buffers may be missing
        return np.zeros(0, kind)
    return np.frombuffer(array.buffers()[1], kind, count=len(array), offset=array.offset * kind.itemsize)


def string_array(values: Sequence[str]) -> pa.Array:
    """Texts as an Arrow array, without pandas."""
    edges, data = utf8(values)
    return pa.Array.from_buffers(pa.large_string(), len(values), [None, pa.py_buffer(edges), pa.py_buffer(data)])


def utf8(values: Sequence[str]) -> tuple[Any, bytes]:
    """The offset of each text and of the end, as integers of NumPy, and the texts joined."""
    import numpy as np

    encoded = [value.encode() for value in values]
    edges = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(value) for value in encoded], out=edges[1:])
    return edges, b"".join(encoded)


def float_array(values: Sequence[float | None]) -> pa.Array:
    """Numbers, or nulls, as an Arrow array, without pandas."""
    import numpy as np

    there = np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
    numbers = np.fromiter((0.0 if value is None else value for value in values), dtype=np.float64, count=len(values))
    return number_array(numbers, there)


def compact(table: pa.Table) -> pa.Table:
    """The same table, copied if its buffers hold much more than it shows: a pickled slice takes them whole."""
    shown = table.nbytes
    if table.get_total_buffer_size() - shown <= shown // 8 + SLACK_BYTES:
        return table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()

"""Columns of a batch as texts and arrays for filters, and scores as columns."""

from __future__ import annotations

import numbers as abstract
from typing import TYPE_CHECKING, Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.tasks import DocumentBatch


def texts_of(batch: DocumentBatch, field: str) -> Texts:
    """Return the texts of a column, with everything that was computed from them since the column was set."""
    import pyarrow as pa

    texts: Texts | None = batch.cache.get(field)
    if texts is None:
        column = column_of(batch, field)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise TypeError(f"column {field!r} holds {kind}, not text: set text_field to the column of the text.")
        texts = batch.cache[field] = Texts.of_column(column)
    return texts


def only_texts_of(batch: DocumentBatch, field: str) -> Texts:
    """Return the same as `texts_of`, and raise an error if the column contains other values than texts.

    A reader stores a field as JSON text if it is a text in some documents and something else in others. The compared
    texts would then depend on which documents are read together.
    """
    import pyarrow as pa

    from gristmill.stages.text.io.json_columns import AS_READ, plain_strings
    from gristmill.tasks.arrow import is_json

    column_of(batch, field)
    if is_json(batch.data.schema.field(field)):
        odd = [text for text in batch.data.column(field).to_pylist() if text is not None and text[:1] != '"']
        if odd:
            raise TypeError(
                f"column {field!r} holds {odd[0]:.40}, which is not text: set text_field of the reader to it, too, "
                "and such records are set aside."
            )
        set_column(batch, pa.field(field, pa.large_string(), metadata=AS_READ), plain_strings(batch.data, field))
    return texts_of(batch, field)


def texts_among(batch: DocumentBatch, field: str) -> Texts:
    """Return the same as `texts_of`, with an empty text for each value that is not a text."""
    from gristmill import fast_json
    from gristmill.tasks.arrow import is_json

    column = column_of(batch, field)
    if not is_json(batch.data.schema.field(field)):
        return texts_of(batch, field)
    return Texts.of([fast_json.loads(text) if text and text[0] == '"' else "" for text in column.to_pylist()])


def column_of(batch: DocumentBatch, field: str) -> Any:
    """Return a column, or the values at a path of keys: ``meta.src.crawl``."""
    if "." in field and (field not in batch.data.column_names or batch.data.column(field).null_count):
        from gristmill.stages.text.filters.paths import column_at

        return column_at(batch.data, field)
    if field not in batch.data.column_names:
        raise KeyError(f"there is no column {field!r}. Columns: {', '.join(batch.columns)}.")
    return batch.data.column(field)


def with_column(task: DocumentBatch, name: str, values: Array, rows: Array | None = None) -> DocumentBatch:
    """Return the batch with a column added or replaced. What is cached of other columns stays.

    ``values`` are those of all rows, or of some ``rows``; other rows are null.
    """
    import pyarrow as pa

    table = task.data
    try:
        array = pa.array(values.tolist() if values.dtype == object else values)
        if rows is not None and len(rows) < table.num_rows:
            places = np.full(table.num_rows, -1)
            places[rows] = np.arange(len(rows))
            array = array.take(pa.array(places, mask=places < 0))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TypeError(f"the scores for column {name!r} do not fit into one column: {error}") from None
    set_column(task, name, array)
    return task


def set_column(task: DocumentBatch, field: str | pa.Field, column: pa.Array | pa.ChunkedArray) -> None:
    """Replace a column of a batch, or add it at the end. What is cached of other columns stays.

    ``field`` is its name, or an Arrow field with type and metadata.
    """
    table = task.data
    name = field if isinstance(field, str) else field.name
    inside = f"{name}."
    cache = {key: value for key, value in task.cache.items() if key != name and not str(key).startswith(inside)}
    where = table.schema.get_field_index(name)
    task.data = table.append_column(field, column) if where < 0 else table.set_column(where, field, column)
    task.cache.update(cache)


def column_scores(task: DocumentBatch, field: str) -> Array:
    """Return the scores in a column. Missing numbers are NaN, other missing values are None."""
    array: Array = column_of(task, field).to_numpy()
    return array


def numbers(scores: Array) -> list[float | None]:
    """Return scores as floats; None for those that are not numbers."""
    if scores.dtype.kind in "biuf":
        return [float(score) for score in scores]
    return [float(score) if isinstance(score, abstract.Real) else None for score in scores]

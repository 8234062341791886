"""Between the columns of a batch and the arrays that filters work on."""

from __future__ import annotations

import numbers as abstract
from typing import TYPE_CHECKING, Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.tasks import DocumentBatch


def texts_of(batch: DocumentBatch, field: str) -> Texts:
    """The texts of a column, with all that was computed of them since the column was set."""
    import pyarrow as pa

    texts: Texts | None = batch.cache.get(field)
    if texts is None:
        column = column_of(batch, field)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise TypeError(f"column {field!r} holds {kind}, not text: name the column of the text by text_field.")
        texts = batch.cache[field] = Texts.of_column(column)
    return texts


def only_texts_of(batch: DocumentBatch, field: str) -> Texts:
    """As `texts_of`, of a column that holds nothing but texts.

    Where a field is text in some documents and something else in others, a reader gives it as JSON text: what is
    compared then would depend on which documents are read together.
    """
    import pyarrow as pa

    from gristmill.stages.text.io.json_columns import AS_READ, is_json, plain_strings

    column_of(batch, field)
    if is_json(batch.data.schema.field(field)):
        odd = [text for text in batch.data.column(field).to_pylist() if text is not None and text[:1] != '"']
        if odd:
            raise TypeError(
                f"column {field!r} holds {odd[0]:.40}, which is not text: name it by text_field of the reader, too, "
                "and such records are set aside."
            )
        set_column(batch, pa.field(field, pa.large_string(), metadata=AS_READ), plain_strings(batch.data, field))
    return texts_of(batch, field)


def texts_among(batch: DocumentBatch, field: str) -> Texts:
    """As `texts_of`, where a document may have something else in the field, which is then no text."""
    from gristmill import fast_json
    from gristmill.stages.text.io.json_columns import is_json

    column = column_of(batch, field)
    if not is_json(batch.data.schema.field(field)):
        return texts_of(batch, field)
    return Texts.of([fast_json.loads(text) if text and text[0] == '"' else "" for text in column.to_pylist()])


def column_of(batch: DocumentBatch, field: str) -> Any:
    """A column, or what documents have at a path of keys: ``meta.src.crawl``."""
    if "." in field and (field not in batch.data.column_names or batch.data.column(field).null_count):
        from gristmill.stages.text.filters.paths import column_at

        return column_at(batch.data, field)
    if field not in batch.data.column_names:
        raise KeyError(f"there is no column {field!r}; there are: {', '.join(batch.columns)}.")
    return batch.data.column(field)


def with_column(task: DocumentBatch, name: str, values: Array, rows: Array | None = None) -> DocumentBatch:
    """The same batch with a column more, or another one in its place; what is cached of other columns stays.

    ``values`` are those of all rows, or of some ``rows``; the others are null.
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
    """Set a column of a batch, where it stands or at the end; what is cached of the others stays.

    ``field`` is its name, or its name with what else is known of it.
    """
    table = task.data
    name = field if isinstance(field, str) else field.name
    inside = f"{name}."
    cache = {key: value for key, value in task.cache.items() if key != name and not str(key).startswith(inside)}
    where = table.schema.get_field_index(name)
    task.data = table.append_column(field, column) if where < 0 else table.set_column(where, field, column)
    task.cache.update(cache)


def column_scores(task: DocumentBatch, field: str) -> Array:
    """The scores in a column; numbers that are missing are NaN, anything else that is missing is None."""
    array: Array = column_of(task, field).to_numpy()
    return array


def numbers(scores: Array) -> list[float | None]:
    """Scores as numbers where they are numbers."""
    if scores.dtype.kind in "biuf":
        return [float(score) for score in scores]
    return [float(score) if isinstance(score, abstract.Real) else None for score in scores]

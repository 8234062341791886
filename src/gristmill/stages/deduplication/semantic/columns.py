"""Embeddings from a column of documents, and the errors of values that are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill import fast_json
from gristmill.stages.deduplication.semantic.fixed_point import to_grid
from gristmill.tasks.arrow import is_json, one_array

NULL = "null"
LENGTH = "wrong length"
NOT_FINITE = "not finite"
ZERO = "all zeros"
NO_NUMBERS = "not a list of numbers"


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The embeddings of a batch, and why other documents have none."""

    rows: np.ndarray
    """The rows of the vectors in the batch."""
    vectors: np.ndarray
    bad: list[tuple[int, str, str]]
    """(row in the batch, one of the reasons above, details), in order."""


def embeddings_of(field: pa.Field, column: pa.ChunkedArray, dim: int) -> Embeddings:
    """Return the embeddings of a column: lists of ``dim`` finite numbers, not all of them zero."""
    array = one_array(column)
    bad: dict[int, tuple[str, str]] = {}
    lists = array if _is_list(array.type) else _parsed(field, array, bad)
    there = np.asarray(pc.is_valid(lists).to_pylist(), dtype=bool)
    for row in np.flatnonzero(~there).tolist():
        bad.setdefault(row, (NULL, "no embedding"))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), -1).to_pylist(), dtype=np.int64)
    for row in np.flatnonzero(there & (lengths != dim)).tolist():
        bad[row] = (LENGTH, f"{lengths[row]} numbers, not {dim}")
    rows = np.flatnonzero(there & (lengths == dim))
    vectors = _matrix(lists.take(pa.array(rows)), dim) if len(rows) != len(lists) else _matrix(lists, dim)
    if vectors is None:
        bad |= {row: (NO_NUMBERS, f"a list of {lists.type.value_type}") for row in rows.tolist()}
        return Embeddings(rows[:0], np.zeros((0, dim)), _in_order(bad))
    finite = np.isfinite(vectors).all(axis=1)
    zero = ~vectors.any(axis=1)
    for row in rows[~finite].tolist():
        bad[row] = (NOT_FINITE, "it holds NaN, an infinity or a null")
    for row in rows[zero].tolist():
        bad[row] = (ZERO, "it is all zeros and points nowhere")
    good = finite & ~zero
    return Embeddings(rows[good], vectors if good.all() else vectors[good], _in_order(bad))


@dataclass(frozen=True, slots=True)
class Points:
    """The embeddings of a batch on their grids."""

    points: pa.Array
    """The bytes of each, as int32; null for none."""
    lengths: np.ndarray
    """Numbers of each; 0 for none."""
    bad: list[str | None]
    """Why a document has none."""


def points_of(field: pa.Field, column: pa.ChunkedArray) -> Points:
    """Return the embeddings of a column, which may have several lengths, on their grids."""
    points: list[bytes | None] = [None] * len(column)
    lengths = np.zeros(len(column), dtype=np.int64)
    bad: list[str | None] = [LENGTH] * len(column)  # of empty lists
    for dim in sorted({1, *lengths_of(field, column)}):
        found = embeddings_of(field, column, dim)
        for row, reason, _ in found.bad:
            bad[row] = bad[row] if reason == LENGTH else reason
        for row, point in zip(found.rows.tolist(), to_grid(found.vectors), strict=True):
            points[row], lengths[row], bad[row] = point.tobytes(), dim, None
    return Points(pa.array(points, pa.large_binary()), lengths, bad)


def lengths_of(field: pa.Field, column: pa.ChunkedArray) -> list[int]:
    """Return the lengths of the lists in a column; others are skipped."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    lists = array if _is_list(array.type) else _parsed(field, array, {})
    return [length for length in pc.list_value_length(lists).to_pylist() if length]


def _in_order(bad: dict[int, tuple[str, str]]) -> list[tuple[int, str, str]]:
    return [(row, *bad[row]) for row in sorted(bad)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _matrix(lists: pa.Array, dim: int) -> np.ndarray | None:
    """Return lists of one length as rows, nulls as NaN; None if they do not hold numbers."""
    flat = lists.flatten()
    if pa.types.is_float16(flat.type):
        flat = flat.cast(pa.float32())
    if not (pa.types.is_floating(flat.type)):
        try:
            flat = flat.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
    if flat.null_count:
        flat = flat.fill_null(float("nan"))
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, dim)


def _parsed(field: pa.Field, array: pa.Array, bad: dict[int, tuple[str, str]]) -> pa.Array:
    """Return the lists in a column of JSON text: a field of JSONL whose values have several types."""
    lists: list[list[float] | None] = []
    for row, value in enumerate(array.to_pylist()):
        numbers = _numbers(value) if is_json(field) else None
        if numbers is None and value is not None and not (is_json(field) and value == "null"):
            bad[row] = (NO_NUMBERS, f"{value!r:.60}" if is_json(field) else f"of type {array.type}")
        lists.append(numbers)
    return pa.array(lists, pa.list_(pa.float64()))


def _numbers(text: Any) -> list[float] | None:
    if text is None:
        return None
    value = fast_json.loads(text)
    if not isinstance(value, list):
        return None
    if not all(x is None or (isinstance(x, int | float) and not isinstance(x, bool)) for x in value):
        return None
    return [float("nan") if x is None else float(x) for x in value]

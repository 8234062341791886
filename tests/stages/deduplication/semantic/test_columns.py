"""Embeddings as files have them, good and bad."""

import json

import numpy as np
import pyarrow as pa
import pytest

from gristmill.stages.deduplication.semantic.columns import embeddings_of, lengths_of

KINDS = [
    pa.list_(pa.float32()),
    pa.large_list(pa.float64()),
    pa.list_(pa.float32(), 3),
    pa.list_(pa.float16()),
    pa.list_(pa.int64()),
]


def read(array, dim=3, metadata=None):
    field = pa.field("embeddings", array.type, metadata=metadata)
    return embeddings_of(field, pa.chunked_array([array]), dim)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_kind_of_list_of_numbers_is_an_embedding(kind):
    found = read(pa.array([[1, 2, 3], None, [4, 5, 6]], pa.list_(pa.float64())).cast(kind))
    assert found.rows.tolist() == [0, 2]
    assert np.asarray(found.vectors, dtype=float).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.bad == [(1, "null", "no embedding")]


def test_a_slice_of_a_column_is_read_from_where_it_begins():
    whole = pa.array([[9.0, 9, 9], [1, 2, 3], None, [4, 5, 6]], pa.list_(pa.float64(), 3))
    found = read(whole.slice(1))
    assert found.vectors.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_values_that_cannot_be_used_are_reported_with_a_reason():
    nan, inf = float("nan"), float("inf")
    rows = [[1.0, 2, 3], [nan, 1, 1], [0, 0, inf], [0, 0, 0], [1, 2], [], None, [None, 1, 2], [1, 2, 3, 4]]
    found = read(pa.array(rows, pa.list_(pa.float64())))
    assert found.rows.tolist() == [0]
    assert [(row, kind) for row, kind, _ in found.bad] == [
        (1, "not finite"),
        (2, "not finite"),
        (3, "all zeros"),
        (4, "wrong length"),
        (5, "wrong length"),
        (6, "null"),
        (7, "not finite"),
        (8, "wrong length"),
    ]
    assert found.bad[3][2] == "2 numbers, not 3"


def test_values_of_several_kinds_come_as_json_text():
    values = [[1, 2.5, 3], "text", None, {"a": 1}, [1, "x", 2], [True, 1, 2], [1, 2], [7, 8, None], [4, 5, 6]]
    texts = pa.array([None if value is None else json.dumps(value) for value in values], pa.large_string())
    found = read(texts, metadata={"gristmill": "json"})
    assert found.vectors.tolist() == [[1, 2.5, 3], [4, 5, 6]]
    reasons = {row: kind for row, kind, _ in found.bad}
    no_list = "not a list of numbers"
    assert reasons == {1: no_list, 2: "null", 3: no_list, 4: no_list, 5: no_list, 6: "wrong length", 7: "not finite"}


@pytest.mark.parametrize("array", [pa.array(["a", None]), pa.array([1, None]), pa.array([["a", "b", "c"], None])])
def test_a_column_of_something_else_is_no_crash(array):
    found = read(array)
    assert len(found.rows) == 0
    assert [kind for _, kind, _ in found.bad] == ["not a list of numbers", "null"]


def test_the_lengths_of_existing_embeddings_are_returned():
    column = pa.chunked_array([pa.array([[1.0, 2], None, [], [1, 2, 3]])])
    assert lengths_of(pa.field("embeddings", column.type), column) == [2, 3]

"""Filters look at fields inside objects by their path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.text.filters import Filter, Score, ScoreFilter, WordCountFilter
from gristmill.stages.text.filters.paths import column_at
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader
from gristmill.stages.text.io.reader.records import Records, Wanted

DOCUMENTS: list[dict[str, Any]] = [
    {"text": "a", "meta": {"src": {"crawl": "old", "text": "one two"}, "n": 1}},
    {"text": "b", "meta": {"src": {"crawl": "new", "text": "one"}, "n": 2}},
    {"text": "c", "meta": {"src": {"crawl": "new", "text": "one two three"}, "n": 3}, "meta.src.crawl": "old"},
    {"text": "d", "meta": {"src": {"text": "one two"}}},
    {"text": "e"},
]


def lines(documents: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def run(tmp_path: Path, stage: Any, reader: Any = None, documents: list[dict[str, Any]] = DOCUMENTS) -> list[str]:
    """The texts of documents that are kept; their lines are as they were."""
    if reader is None:
        (tmp_path / "in.jsonl").write_bytes(lines(documents))
        reader = JsonlReader(str(tmp_path / "in.jsonl"))
    Pipeline("paths", stages=[reader, stage, JsonlWriter(tmp_path / "out")]).run()
    written = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("part-*")))
    if isinstance(reader, JsonlReader):
        assert set(written.splitlines()) <= set(lines(documents).splitlines())
    return [json.loads(line)["text"] for line in written.splitlines()]


def test_a_filter_sees_the_field_at_a_path_and_a_field_of_that_name_wins(tmp_path):
    assert run(tmp_path, Filter(lambda crawl: crawl == "old", "meta.src.crawl")) == ["a", "c"]


def test_texts_at_a_path_are_scored(tmp_path):
    assert run(tmp_path, ScoreFilter(WordCountFilter(2), text_field="meta.src.text")) == ["a", "c", "d"]


def test_numbers_at_a_path_are_compared(tmp_path):
    assert run(tmp_path, Filter(lambda n: n >= 2, "meta.n")) == ["b", "c"]


def test_objects_without_a_type_in_common_have_paths_too(tmp_path):
    ragged = [*DOCUMENTS, {"text": "f", "meta": {"src": [1]}}, {"text": "g", "meta": "none"}]
    stage = Filter(lambda crawl: crawl == "old", "meta.src.crawl")
    assert run(tmp_path, stage, documents=ragged) == ["a", "c"]


def test_paths_into_columns_of_parquet(tmp_path):
    columns = {name: [document.get(name) for document in DOCUMENTS] for name in ("text", "meta", "meta.src.crawl")}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    stage = Filter(lambda crawl: crawl == "old", "meta.src.crawl")
    assert run(tmp_path, stage, ParquetReader(str(tmp_path / "in.parquet"))) == ["a", "c"]


def test_a_path_works_with_the_fields_of_a_reader(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(lines(DOCUMENTS))
    reader = JsonlReader(str(tmp_path / "in.jsonl"), fields=["text", "meta"])
    stages = [reader, Filter(lambda crawl: crawl == "old", "meta.src.crawl"), JsonlWriter(tmp_path / "out")]
    Pipeline("paths", stages=stages).run()
    assert b'"text":"a"' in (tmp_path / "out" / "part-000000.jsonl").read_bytes()
    with pytest.raises(PlanError, match=r"needs the column .other\.crawl."):
        Pipeline("paths", stages=[reader, Filter(lambda value: True, "other.crawl"), JsonlWriter(tmp_path / "x")]).run()


def test_a_misspelt_path_is_an_error_before_the_run(tmp_path):
    with pytest.raises(PlanError, match=r"Did you mean 'meta\.src\.crawl'"):
        run(tmp_path, Filter(lambda value: True, "meta.src.crwl"))


def test_only_the_columns_of_the_path_are_read(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(lines(DOCUMENTS))
    stage = Score(WordCountFilter(), "words", text_field="meta.src.text")
    linked = JsonlReader(str(tmp_path / "in.jsonl")).linked([], [stage, JsonlWriter("x")])
    wanted = linked.wanted
    assert wanted.columns == ["meta.src.text", "meta.src", "meta"] and set(wanted.if_there) == set(wanted.columns)


KEYS = st.sampled_from(["a", "b", "a.b", "c"])
OBJECTS = st.recursive(
    st.integers(0, 3) | st.sampled_from(["x", "y"]) | st.none(),
    lambda x: st.dictionaries(KEYS, x, max_size=3),
    max_leaves=6,
)


def at(value: Any, path: list[str]) -> Any:
    """The value at a path, the longest key first: a model in a few lines."""
    if not path:
        return value
    for count in range(len(path), 0, -1):
        key = ".".join(path[:count])
        if isinstance(value, dict) and key in value and (found := at(value[key], path[count:])) is not None:
            return found
    return None


@given(st.lists(st.dictionaries(KEYS, OBJECTS, max_size=3), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_what_is_at_a_path_is_what_a_model_finds(documents):
    records = Records(Wanted(text_field=None))
    records.add("x", lines(documents), 0)
    table = records.batch().data
    found = column_at(table, "a.b.c").to_pylist()
    for document, value in zip(documents, found, strict=True):
        expected = at(document, ["a", "b", "c"])
        assert value == expected or str(value) == str(expected) or isinstance(expected, dict)

"""The input of a user's stage: all columns, and lists and dicts where JSON has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages.text.io.test_round_trip import new_work
from tests.stages.text.io.test_stage_columns import content

from gristmill.backends.step_runner import StepRunner
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

LINES = [
    {"id": 1, "text": "a", "meta": {"src": {"crawl": "x"}, "tags": ["p", "q"]}, "mixed": {"a": 1}},
    {"id": 2, "text": "b", "meta": {"src": {"crawl": "y", "n": 2}}, "mixed": [1, "z", None]},
    {"id": 3, "text": "c", "mixed": 12345678901234567890123},
]
DATA = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


class Needs(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Declares one column, and looks at others."""

    def inputs(self):
        return ["data"], ["text"]

    def outputs(self):
        return ["data"], ["crawl"]

    def process(self, task):
        frame = task.to_pandas()
        assert [name for name in frame.columns if not name.startswith("_")] == ["id", "text", "meta", "mixed"]
        metas = frame["meta"].tolist()
        assert isinstance(metas[0], dict) and metas[0]["tags"] == ["p", "q"] and type(metas[0]["tags"]) is list
        assert frame["mixed"].tolist() == [line["mixed"] for line in LINES]
        assert [row["mixed"] for row in task.to_pylist()] == [line["mixed"] for line in LINES]
        frame["crawl"] = [meta["src"]["crawl"] if meta else None for meta in metas]
        task.data = frame
        return task


def test_a_stage_sees_all_columns_as_lists_and_dicts_whatever_it_declares(work):
    out = work.folder / "out"
    reader = JsonlReader(work.put("a.jsonl", DATA))
    Pipeline("sees", stages=[reader, Needs(), JsonlWriter(out)]).run()
    lines = DATA.splitlines()
    assert content(out) == b"\n".join(
        [lines[0][:-1] + b',"crawl":"x"}', lines[1][:-1] + b',"crawl":"y"}', lines[2], b""]
    )


def test_a_stage_that_wants_only_its_inputs_gets_only_those(work):
    seen: list[list[str]] = []

    @processing_stage(inputs=["text"], outputs=[], only_inputs=True)
    def few(task: DocumentBatch) -> DocumentBatch:
        seen.append(task.columns)
        return task

    assert work.through(JsonlReader(work.put("a.jsonl", DATA)), few, JsonlWriter(work.folder / "out")) == DATA
    assert seen == [["text"]]


def test_a_column_that_a_stage_needs_is_there_even_if_no_document_has_it(work):
    @processing_stage(inputs=["text", "absent"], outputs=[])
    def needs(task: DocumentBatch) -> DocumentBatch:
        assert task.data["absent"].null_count == 3
        return task

    assert work.through(JsonlReader(work.put("a.jsonl", DATA)), needs, JsonlWriter(work.folder / "out")) == DATA


def test_a_changed_member_is_written_and_nothing_is_added(work):
    @processing_stage
    def change(task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        frame["meta"] = [meta and {**meta, "src": {**meta["src"], "crawl": "new"}} for meta in frame["meta"]]
        frame["mixed"] = [{"a": 2} if value == {"a": 1} else value for value in frame["mixed"]]
        task.data = frame
        return task

    out = work.through(JsonlReader(work.put("a.jsonl", DATA)), change, JsonlWriter(work.folder / "out"))
    first, second, third = out.splitlines()
    assert json.loads(first) == {**LINES[0], "mixed": {"a": 2}, "meta": {"src": {"crawl": "new"}, "tags": ["p", "q"]}}
    assert json.loads(second) == {**LINES[1], "meta": {"src": {"crawl": "new", "n": 2}}}
    assert third == DATA.splitlines()[2]


@pytest.mark.parametrize("value", ["plain", '{"k": 1}', 5, None, ["x"]])
def test_a_value_of_another_kind_takes_the_place_of_an_object(work, value):
    @processing_stage
    def change(task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        frame["mixed"] = [value if x == {"a": 1} else x for x in frame["mixed"]]
        task.data = frame
        return task

    out = work.through(JsonlReader(work.put("a.jsonl", DATA)), change, JsonlWriter(work.folder / "out"))
    assert [json.loads(line)["mixed"] for line in out.splitlines()] == [value, *(line["mixed"] for line in LINES[1:])]


def test_a_frame_that_has_lost_its_notes_is_written_all_the_same(work):
    @processing_stage
    def merge(task: DocumentBatch) -> DocumentBatch:
        import pandas as pd

        frame = task.to_pandas()
        task.data = pd.DataFrame({name: frame[name].tolist() for name in frame.columns})
        return task

    assert work.through(JsonlReader(work.put("a.jsonl", DATA)), merge, JsonlWriter(work.folder / "out")) == DATA


KEYS = st.sampled_from(["a", "b", "c.d", "größe", ""])
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
NESTED = st.recursive(
    SCALARS | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.lists(st.dictionaries(st.sampled_from(["m", "n", "o"]), NESTED), min_size=1, max_size=5)


def is_same(one: Any, other: Any) -> bool:
    """Null members count for nothing, as Arrow has them where other documents do."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(is_same(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if one is None or other is None:
        return (one is None or one != one) and (other is None or other != other)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


@given(DOCUMENTS, st.sampled_from(["frame", "rows"]))
@settings(max_examples=150, deadline=None)
def test_whatever_is_in_the_lines_is_seen_and_stays_as_it_stood(documents, how):
    class Looks(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task):
            rows = task.to_pandas().to_dict("records") if how == "frame" else task.to_pylist()
            for row, document in zip(rows, documents, strict=True):
                for name in ("m", "n", "o"):
                    assert is_same(document.get(name), row.get(name)), (document.get(name), row.get(name))
            if how == "frame":
                task.data = task.to_pandas()
            return task

    work = new_work()
    lines = b"".join(json.dumps({"text": "t", **document}).encode() + b"\n" for document in documents)
    reader, looks, writer = JsonlReader(work.put("a.jsonl", lines)), Looks(), JsonlWriter(work.folder / "out")
    stages = [reader.linked([], [looks, writer]), looks, writer.linked([reader, looks], [])]
    for _ in StepRunner(stages).run(reader.source()):
        pass
    assert content(work.folder / "out") == lines
